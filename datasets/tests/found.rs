//! Search for published files: their place, files beside them, and other content in their place;
//! the same for every task and container.
#![allow(missing_docs, clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use crate::raw::published::{
    batches, class_folders, expressions, key, pairs, pictures, published, read, refused, reviews,
};
use crate::raw::{self, Files};
use lra_datasets::tasks::pathfinder::{PATHFINDER, PATHX};
use lra_datasets::tasks::{Image, ListOps, Retrieval, Text};
use lra_datasets::{Store, Task};

/// Returns the same files below other folders.
fn below(prefix: &str, files: &Files) -> Files {
    let moved = files.iter();
    moved
        .map(|(name, content)| (format!("{prefix}{name}"), content.clone()))
        .collect()
}

/// Adds the files that macOS and Windows leave, beside every file and in folders of their own.
fn with_litter(files: &Files) -> Files {
    let mut littered = files.clone();
    let noise = b"\0\x05\x16\x07\0\x02\0\0Mac OS X".to_vec();
    for (name, _) in files {
        let (folder, file) = name.rsplit_once('/').unwrap();
        littered.push((format!("__MACOSX/{folder}/._{file}"), noise.clone()));
        littered.push((format!("__MACOSX/{name}"), noise.clone()));
        for litter in [
            format!("._{file}"),
            ".DS_Store".into(),
            "Thumbs.db".into(),
            "desktop.ini".into(),
        ] {
            let name = format!("{folder}/{litter}");
            if !littered.iter().any(|(known, _)| *known == name) {
                littered.push((name, noise.clone()));
            }
        }
    }
    littered
}

/// Notes, runs, the store and the files of other tasks may lie among the files that data are made
/// from, and come and go.
#[test]
fn files_that_are_no_data_are_no_change() {
    for (task, files) in published() {
        let name = task.info().name;
        let root = tempfile::tempdir().unwrap();
        let folder = raw::folder(&root.path().join("project"), &files);
        let store = Store::new(&folder.join("ready"));
        let key = key(task);
        let changed = || {
            let now = store.raw_files(task);
            store.other_raw_files(task, &key, now.as_ref()).is_some()
        };
        store.open_or_build(task, &key, Some(&folder), &()).unwrap();
        assert!(!changed(), "{name}: the store lies there");
        for other in [
            "README.md",
            "notes.txt",
            "runs/a/log.txt",
            "runs/a/record.json",
        ] {
            let path = folder.join(other);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "text").unwrap();
            assert!(!changed(), "{name}: {other}");
        }
        // The sets of Pathfinder and Path-X are parts of one release.
        let release = |name: &str| name.replace("pathx", "pathfinder");
        for (other, files) in published() {
            if release(other.info().name) != release(name) {
                raw::folder(&folder.join(other.info().name), &files);
                assert!(!changed(), "{name}: files of {}", other.info().name);
            }
        }
        let own = folder.join(&files[0].0);
        let content = [fs::read(&own).unwrap(), b"\n".to_vec()].concat();
        fs::write(own, content).unwrap();
        assert!(changed(), "{name}: a file of its own");
    }
}

#[test]
fn every_layout_and_container_is_found_by_every_task() {
    let layouts = [
        "",
        "data/",
        "LRA/data/raw/",
        "lra_release/lra_release/",
        "a/b/c/d/e/f/",
    ];
    for (task, files) in published() {
        let root = tempfile::tempdir().unwrap();
        let plain = raw::folder(&root.path().join("plain"), &files);
        let wanted = read(task, &plain).manifest().digest.clone();
        for (number, layout) in layouts.into_iter().enumerate() {
            let files = with_litter(&below(layout, &files));
            let archived = root.path().join(format!("archived{number}"));
            fs::create_dir(&archived).unwrap();
            let forms = [
                raw::folder(&root.path().join(format!("folder{number}")), &files),
                raw::file(
                    root.path(),
                    &format!("{number}.tar.gz"),
                    &raw::gzip(&raw::tar(&files)),
                ),
                raw::file(
                    root.path(),
                    &format!("{number}.TAR.ZST"),
                    &raw::zstd(&raw::tar(&files)),
                ),
                raw::file(&archived, "DATA.ZIP", &raw::zip(&files)),
                archived,
            ];
            for form in forms {
                let built = read(task, &form);
                let name = task.info().name;
                assert_eq!(
                    built.manifest().digest,
                    wanted,
                    "{name} in {}",
                    form.display()
                );
            }
        }
    }
}

/// All tasks side by side in one folder, as a loader of state-space models documents it.
#[test]
fn one_folder_serves_all_tasks() {
    let root = tempfile::tempdir().unwrap();
    for (task, files) in published() {
        let layout = match task.info().name {
            "pathfinder" | "pathx" => "pathfinder/",
            _ => "",
        };
        raw::folder(root.path(), &below(layout, &files));
    }
    for (task, files) in published() {
        let alone = tempfile::tempdir().unwrap();
        let alone = raw::folder(alone.path(), &files);
        let digest = |raw: &Path| read(task, raw).manifest().digest.clone();
        assert_eq!(digest(root.path()), digest(&alone), "{}", task.info().name);
    }
}

#[test]
fn files_packed_one_by_one_are_read() {
    let mut all = published();
    all.push((&Image, class_folders()));
    for (task, files) in all {
        // Pictures of a set are read by their places.
        if task.info().name.starts_with("path") {
            continue;
        }
        let root = tempfile::tempdir().unwrap();
        let plain = raw::folder(&root.path().join("plain"), &files);
        let wanted = read(task, &plain).manifest().digest.clone();
        for end in ["gz", "zst", "GZ"] {
            let pack = |(name, content): &(String, Vec<u8>)| {
                let packed = match end {
                    "zst" => raw::zstd(content),
                    _ => raw::gzip(content),
                };
                (format!("{name}.{end}"), packed)
            };
            let packed: Files = files.iter().map(pack).collect();
            let zip = raw::file(root.path(), &format!("{end}.zip"), &raw::zip(&packed));
            for form in [raw::folder(&root.path().join(end), &packed), zip] {
                assert_eq!(
                    read(task, &form).manifest().digest,
                    wanted,
                    "{}",
                    form.display()
                );
            }
        }
    }
    // One of several files alone is not a damaged archive.
    let root = tempfile::tempdir().unwrap();
    let one = raw::gzip(&expressions()[0].1);
    let one = raw::file(root.path(), "basic_train.tsv.gz", &one);
    let said = refused(&ListOps, &one);
    assert!(
        said.contains("one packed file and no archive: name the folder"),
        "{said}"
    );
    // Damage within one is still damage.
    let mut cut: Files = vec![("basic_train.tsv.gz".into(), raw::gzip(&expressions()[0].1))];
    cut[0].1.truncate(40);
    let said = refused(&ListOps, &raw::folder(&root.path().join("cut"), &cut));
    assert!(
        said.contains("basic_train.tsv.gz: damaged or incomplete"),
        "{said}"
    );
}

#[test]
fn what_is_missing_says_where_it_looked_and_what_is_there() {
    let others: Files = vec![
        ("holiday/beach.jpg".into(), b"sand".to_vec()),
        ("notes.txt".into(), b"notes".to_vec()),
    ];
    for (task, _) in published() {
        let root = tempfile::tempdir().unwrap();
        let forms = [
            raw::folder(&root.path().join("folder"), &others),
            raw::file(root.path(), "others.tar.gz", &raw::gzip(&raw::tar(&others))),
            raw::file(root.path(), "others.zip", &raw::zip(&others)),
        ];
        for form in forms {
            let said = refused(task, &form);
            assert!(said.starts_with("missing: "), "{said}");
            assert!(
                said.contains("what is there: holiday/, notes.txt\n"),
                "{said}"
            );
            assert!(said.contains(form.to_str().unwrap()), "{said}");
        }
        let empty = root.path().join("empty");
        fs::create_dir(&empty).unwrap();
        raw::file(&empty, ".DS_Store", b"litter");
        let said = refused(task, &empty);
        assert!(
            said.contains("what is there: only hidden files, which are passed over: .DS_Store\n"),
            "{said}"
        );
        // Files in it would be read as well as an archive.
        let sought = format!("looked for {}\n", empty.display());
        assert!(said.contains(&sought), "{said}");
        let page = raw::file(root.path(), "page.tar.gz", b"<html>sign in</html>");
        assert!(refused(task, &page).contains("but a web page (`<html>sign in</html>`)"));
    }
}

/// Checks the messages for hidden files at every depth, and for a path that does not exist.
#[test]
fn hidden_files_and_paths_that_do_not_exist_are_told() {
    let hidden: Files = vec![
        (".cache/huggingface/x.bin".into(), b"x".to_vec()),
        ("a/.git/HEAD".into(), b"x".to_vec()),
    ];
    for (task, _) in published() {
        let root = tempfile::tempdir().unwrap();
        let empty = root.path().join("empty");
        fs::create_dir(&empty).unwrap();
        let told = "what is there: only hidden files, which are passed over: .cache/, a/.git/\n";
        for (form, told) in [
            (raw::folder(&root.path().join("folder"), &hidden), told),
            (
                raw::file(root.path(), "a.tar.gz", &raw::gzip(&raw::tar(&hidden))),
                told,
            ),
            (raw::file(root.path(), "a.zip", &raw::zip(&hidden)), told),
            (empty, "what is there: nothing\n"),
            (
                root.path().join("nosuch"),
                "what is there: nothing: the path does not exist\n",
            ),
        ] {
            let said = refused(task, &form);
            assert!(said.contains(told), "{}: {said}", form.display());
        }
    }
}

/// Parquet files are read from folders alone, which is told wherever an archive has some.
#[test]
fn parquet_files_in_an_archive_are_told_at_every_depth() {
    for (task, _) in published() {
        let reads_them = ["text", "image"].contains(&task.info().name);
        for folder in ["", "imdb/", "a/b/", "a/b/c/d/"] {
            let files: Files = ["train", "test"]
                .map(|split| (format!("{folder}{split}.Parquet"), b"PAR1".to_vec()))
                .to_vec();
            let root = tempfile::tempdir().unwrap();
            for form in [
                raw::file(root.path(), "a.tar", &raw::tar(&files)),
                raw::file(root.path(), "a.tar.zst", &raw::zstd(&raw::tar(&files))),
                raw::file(root.path(), "a.zip", &raw::zip(&files)),
            ] {
                let said = refused(task, &form);
                let told = match reads_them {
                    true => "; parquet files are read from a folder, not from an archive",
                    false => "; parquet files are not read by this task",
                };
                assert!(said.contains(told), "{folder}: {said}");
            }
        }
    }
    // In a folder the place is not what is wrong.
    let root = tempfile::tempdir().unwrap();
    raw::file(root.path(), "train.parquet", b"PAR1");
    let said = refused(&Text, root.path());
    assert!(
        !said.contains("not from an archive") && said.contains("some of test by their names"),
        "{said}"
    );
}

/// A file that is packed under the name of an unpacked one is told, and how it is to be named.
#[test]
fn files_packed_under_another_name_are_told() {
    for (task, files) in published() {
        // The last file of Pathfinder is a list, and the first of the others is read by all forms.
        let place = match task.info().name {
            "pathfinder" | "pathx" => files.len() - 1,
            _ => 0,
        };
        let plain = files[place].1.clone();
        let file = files[place].0.rsplit('/').next().unwrap();
        for (packed, format, end) in [
            (raw::gzip(&plain), "gzip", ".gz"),
            (raw::zstd(&plain), "zstd", ".zst"),
            (b"\xfd7zXZ\0\0\x04 and so on".to_vec(), "xz", ""),
            (b"BZh91AY&SY and so on".to_vec(), "bzip2", ""),
        ] {
            let mut files = files.clone();
            files[place].1 = packed;
            let root = tempfile::tempdir().unwrap();
            let mut forms = vec![
                raw::file(root.path(), "a.tar", &raw::tar(&files)),
                raw::file(root.path(), "a.zip", &raw::zip(&files)),
            ];
            // In a folder the lists of Pathfinder are read by its own reader.
            if place == 0 {
                forms.push(raw::folder(&root.path().join("folder"), &files));
            }
            for form in forms {
                let said = refused(task, &form);
                assert!(
                    said.contains(&format!("{file}: compressed by {format}")),
                    "{said}"
                );
                let name = format!("name it `{file}{end}`");
                assert_eq!(
                    said.contains(&name),
                    !end.is_empty() && place == 0,
                    "{said}"
                );
            }
        }
    }
    let mut twice = expressions();
    twice[0].0 += ".gz";
    twice[0].1 = raw::gzip(&raw::gzip(&twice[0].1));
    let root = tempfile::tempdir().unwrap();
    let said = refused(&ListOps, &raw::folder(root.path(), &twice));
    assert!(said.contains("tsv.gz: compressed twice"), "{said}");
    for split in ["train", "test"] {
        let packed = raw::gzip(b"PAR1");
        raw::file(root.path(), &format!("{split}.parquet"), &packed);
    }
    let said = refused(&Text, root.path());
    assert!(said.contains("compressed by gzip as a whole"), "{said}");
}

/// A web page under the name of an archive is not a missing file: it is in the way.
#[test]
fn a_web_page_under_the_name_of_an_archive_is_told() {
    for (task, _) in published() {
        let root = tempfile::tempdir().unwrap();
        let store = Store::new(root.path());
        let folder = store.raw(task);
        fs::create_dir_all(&folder).unwrap();
        let name = task.remote()[0].file;
        raw::file(&folder, name, b"<!DOCTYPE html><title>Forbidden</title>");
        let error = store
            .open_or_build(task, &key(task), None, &())
            .unwrap_err();
        let said = error.to_string();
        assert!(
            said.contains(name) && said.contains("but a web page"),
            "{said}"
        );
        assert!(!said.starts_with("missing"), "{said}");
        // It does not serve another task either.
        assert_eq!(store.shared(&Retrieval), None);
    }
}

/// Another archive under the name of the published one would not be fetched again, so it has to go.
#[test]
fn an_archive_of_other_files_is_to_be_removed() {
    let other: Files = vec![("hello.txt".into(), b"hello".to_vec())];
    let other = raw::gzip(&raw::tar(&other));
    for (task, _) in published() {
        let root = tempfile::tempdir().unwrap();
        let store = Store::new(root.path());
        // The archive of another task serves this one too.
        for owner in published().into_iter().map(|(owner, _)| owner) {
            let name = owner.remote()[0].file;
            if name != task.remote()[0].file {
                continue;
            }
            let folder = store.raw(owner);
            fs::create_dir_all(&folder).unwrap();
            let kept = raw::file(&folder, name, &other);
            let refused = |from| {
                let built = store.open_or_build(task, &key(task), from, &());
                built.unwrap_err().to_string()
            };
            let remedy = format!(
                "to get it: remove {}, which holds none of these files; then lra data fetch {}",
                kept.display(),
                task.info().name
            );
            let said = refused(None);
            assert!(
                said.starts_with("missing: ") && said.contains(&remedy),
                "{said}"
            );
            assert!(said.contains("what is there: hello.txt\n"), "{said}");
            // A copy that is named is left alone.
            let copy = raw::file(root.path(), name, &other);
            let said = refused(Some(&copy));
            assert!(!said.contains("remove "), "{said}");
            fs::remove_dir_all(folder).unwrap();
        }
    }
}

/// Among several archives the one that has the files is read, regardless of their names.
#[test]
fn of_several_archives_the_right_one_is_read() {
    let root = tempfile::tempdir().unwrap();
    for (number, (task, files)) in published().into_iter().enumerate() {
        let archive = match number % 2 {
            0 => raw::gzip(&raw::tar(&files)),
            _ => raw::zip(&files),
        };
        raw::file(root.path(), &format!("{}.zip", task.info().name), &archive);
    }
    for (task, files) in published() {
        let plain = tempfile::tempdir().unwrap();
        let plain = raw::folder(plain.path(), &files);
        let digest = |raw: &Path| read(task, raw).manifest().digest.clone();
        assert_eq!(digest(root.path()), digest(&plain), "{}", task.info().name);
    }
    raw::file(root.path(), "again.tar", &raw::tar(&reviews()));
    let said = refused(&Text, root.path());
    assert!(
        said.contains("again.tar, text.zip; name the one to read"),
        "{said}"
    );
}

#[test]
fn one_class_alone_is_marked() {
    let one_label = |files: &Files, of: &str, from: &str, to: &str| -> Files {
        let change = |(name, content): &(String, Vec<u8>)| match name.contains(of) {
            false => (name.clone(), content.clone()),
            true => {
                let text = String::from_utf8(content.clone()).unwrap();
                (name.clone(), text.replace(from, to).into_bytes())
            }
        };
        files.iter().map(change).collect()
    };
    let constant = b"Source\tTarget\n[MAX 1 2 ]\t2\n[MIN 2 3 ]\t2\n".to_vec();
    let mut same_answer = expressions();
    same_answer[2].1 = constant;
    let mut one_thing = batches();
    for record in one_thing[5].1.chunks_mut(3073) {
        record[0] = 4;
    }
    let cases: [(&dyn Task, Files, &str); 5] = [
        (
            &ListOps,
            same_answer,
            "test: all of its 2 examples have the label 2",
        ),
        (
            &Image,
            one_thing,
            "test: all of its 60 examples have the label 4",
        ),
        (
            &Retrieval,
            one_label(&pairs(), "eval", "0.0\t", "1.0\t"),
            "val: all of its 6 examples have the label 1",
        ),
        (
            &PATHFINDER,
            one_label(&pictures(32, 40), "metadata", " 1 1.0", " 0 1.0"),
            "train: all of its 32 examples have the label 0",
        ),
        (
            &PATHX,
            one_label(&pictures(128, 40), "metadata", " 1 1.0", " 0 1.0"),
            "train: all of its 32 examples have the label 0",
        ),
    ];
    for (task, files, how) in cases {
        let root = tempfile::tempdir().unwrap();
        let built = read(task, &raw::folder(root.path(), &files));
        assert!(
            built.manifest().altered.contains(&how.to_owned()),
            "{:?}",
            built.manifest().altered
        );
        assert!(!built.passed, "{}", built.text);
    }
}

/// No pipe is waited for, whichever file of a task it replaces.
#[cfg(unix)]
#[test]
fn pipes_are_refused_wherever_a_file_is_opened() {
    let pipe = |path: &Path| {
        let _ = fs::remove_file(path);
        let made = std::process::Command::new("mkfifo").arg(path).status();
        assert!(made.unwrap().success());
    };
    for (task, files) in published() {
        for name in [&files[0].0, &files[files.len() - 1].0] {
            let root = tempfile::tempdir().unwrap();
            let folder = raw::folder(root.path(), &files);
            pipe(&folder.join(name));
            let said = refused(task, &folder);
            assert!(said.contains("not a regular file"), "{name}: {said}");
            // A dangling link is refused as well.
            fs::remove_file(folder.join(name)).unwrap();
            std::os::unix::fs::symlink("nowhere", folder.join(name)).unwrap();
            let said = refused(task, &folder);
            assert!(
                said.contains("a link to a file that is not there"),
                "{name}: {said}"
            );
        }
    }
    let root = tempfile::tempdir().unwrap();
    for split in ["train", "test"] {
        pipe(&root.path().join(format!("{split}.parquet")));
    }
    assert!(refused(&Text, root.path()).contains("not a regular file"));
    // Files of the store.
    let reviews = raw::folder(&root.path().join("reviews"), &reviews());
    for name in [
        "manifest.json",
        "train.safetensors",
        "checked.json",
        "raw.json",
    ] {
        let data = tempfile::tempdir().unwrap();
        let store = Store::new(data.path());
        store
            .open_or_build(&Text, &key(&Text), Some(&reviews), &())
            .unwrap();
        pipe(&store.folder(&Text, &key(&Text)).join(name));
        let opened = store.open(&Text, &key(&Text));
        assert_eq!(
            opened.is_err(),
            !["checked.json", "raw.json"].contains(&name),
            "{name}"
        );
        let again = store.open_or_build(&Text, &key(&Text), Some(&reviews), &());
        assert_eq!(again.is_err(), opened.is_err(), "{name}");
    }
}

/// A link that leads to a folder around it would have no end.
#[cfg(unix)]
#[test]
fn links_upwards_are_not_followed() {
    let root = tempfile::tempdir().unwrap();
    let folder = raw::folder(root.path(), &reviews());
    std::os::unix::fs::symlink("..", folder.join("aclImdb/up")).unwrap();
    std::os::unix::fs::symlink(&folder, folder.join("aclImdb/train/all")).unwrap();
    assert_eq!(read(&Text, &folder).rows()[2], 80);
}

/// Every file among the data is read or refused by its name.
#[test]
fn what_is_no_data_is_refused_by_name() {
    let png = pictures(32, 1)[0].1.clone();
    let cases: [(&dyn Task, Files, &str, &str); 12] = [
        (
            &Image,
            batches(),
            "x/train/lorry/1.png",
            "`lorry` is not a class of CIFAR-10",
        ),
        (&Image, batches(), "x/train/cat/1.jpg", "no PNG file"),
        (&Image, batches(), "x/val/cat/1.png", "a split `val`"),
        (
            &Image,
            batches(),
            "x/data_batch_6.bin",
            "no file of CIFAR-10",
        ),
        (
            &Image,
            batches(),
            "x/data_batch_1.mat",
            "no file of CIFAR-10",
        ),
        (
            &Text,
            reviews(),
            "x/train/mixed/1_5.txt",
            "a folder that is not a class",
        ),
        (
            &Text,
            reviews(),
            "x/train/pos/1_9.html",
            "does not end in .txt",
        ),
        (
            &Text,
            reviews(),
            "x/val/pos/1_9.txt",
            "a split that was not published",
        ),
        (
            &ListOps,
            expressions(),
            "listops/basic_train.tsv.gz",
            "a second file",
        ),
        (
            &Retrieval,
            pairs(),
            "x/new_aan_pairs.test.tsv",
            "a second place of pairs, beside `aan`",
        ),
        (
            &PATHFINDER,
            pictures(32, 40),
            "pathfinder32/curv_contour_length_14/metadata/1.csv",
            "does not end in .npy",
        ),
        (
            &PATHFINDER,
            pictures(32, 40),
            "x/curv_contour_length_14/metadata/0.npy",
            "",
        ),
    ];
    for (task, mut files, stray, problem) in cases {
        files.push((stray.to_owned(), png.clone()));
        let root = tempfile::tempdir().unwrap();
        let forms = [
            raw::folder(&root.path().join("folder"), &files),
            raw::file(root.path(), "a.tar", &raw::tar(&files)),
            raw::file(root.path(), "a.zip", &raw::zip(&files)),
        ];
        for form in forms {
            if problem.is_empty() {
                // Outside of the set, and none of its files.
                read(task, &form);
                continue;
            }
            let said = refused(task, &form);
            let file = stray.rsplit_once('/').unwrap().1;
            assert!(said.contains(file) && said.contains(problem), "{said}");
        }
    }
}

#[test]
fn byte_order_marks_are_no_data() {
    let mark = |files: Files| -> Files {
        let marked = files
            .into_iter()
            .map(|(name, content)| match name.ends_with(".png") {
                true => (name, content),
                false => (name, [b"\xef\xbb\xbf", &content[..]].concat()),
            });
        marked.collect()
    };
    for (task, files) in published() {
        if task.info().name == "image" {
            continue; // Not text.
        }
        let root = tempfile::tempdir().unwrap();
        let plain = raw::folder(&root.path().join("plain"), &files);
        let marked = raw::folder(&root.path().join("marked"), &mark(files));
        let digest = |raw: &Path| read(task, raw).manifest().digest.clone();
        assert_eq!(digest(&plain), digest(&marked), "{}", task.info().name);
    }
    let mut wide = expressions();
    wide[0].1 = "\u{feff}Source\tTarget\n"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    let root = tempfile::tempdir().unwrap();
    let said = refused(&ListOps, &raw::folder(root.path(), &wide));
    assert!(
        said.contains("basic_train.tsv:1: text in UTF-16: save it as UTF-8"),
        "{said}"
    );
}

/// Files that are not the ones they are named as, which servers and Git LFS leave.
#[test]
fn pointers_and_pages_are_no_data() {
    let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 5\n";
    for (task, files) in published() {
        // The last file of Pathfinder is a list, and the first of the others is read by all forms.
        let place = match task.info().name {
            "pathfinder" | "pathx" => files.len() - 1,
            _ => 0,
        };
        let mut files = files;
        files[place].1 = pointer.to_vec();
        let root = tempfile::tempdir().unwrap();
        let archive = raw::file(root.path(), "a.tar", &raw::tar(&files));
        let said = refused(task, &archive);
        assert!(
            said.contains("a pointer of Git LFS: git lfs pull"),
            "{said}"
        );
    }
    let root = tempfile::tempdir().unwrap();
    for split in ["train", "test"] {
        raw::file(root.path(), &format!("{split}.parquet"), pointer);
    }
    let said = refused(&Text, root.path());
    assert!(
        said.contains("a pointer of Git LFS: git lfs pull"),
        "{said}"
    );
    let wide: Vec<u8> = "a fine film"
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect();
    let long: Vec<u8> = "\u{feff}a fine film"
        .chars()
        .flat_map(|one| u32::from(one).to_le_bytes())
        .collect();
    let page = b"\n<!DOCTYPE html><p>404".to_vec();
    for (text, problem) in [
        (wide, "text in UTF-16"),
        (long, "text in UTF-32"),
        (vec![0; 40], "zero bytes instead of text"),
        (page, "a web page instead"),
    ] {
        let mut files = reviews();
        files[3].1 = text;
        let root = tempfile::tempdir().unwrap();
        let said = refused(&Text, &raw::folder(root.path(), &files));
        assert!(said.contains(problem) && said.contains(".txt"), "{said}");
    }
    // A packed page under the name of an archive.
    let root = tempfile::tempdir().unwrap();
    let page = raw::gzip(b"<html>sign in</html>");
    raw::file(root.path(), "aclImdb_v1.tar.gz", &page);
    let said = refused(&Text, root.path());
    assert!(
        said.contains("but one packed file with a web page (`<html>sign in</html>`) in it: remove"),
        "{said}"
    );
}

/// Columns, headers and tables that would be passed over.
#[test]
fn parts_of_tables_are_not_passed_over() {
    let mut more = expressions();
    more[0].1.extend(b"[MAX 1 2 ]\t2\tx\n");
    let root = tempfile::tempdir().unwrap();
    let said = refused(&ListOps, &raw::folder(root.path(), &more));
    assert!(said.contains("`x` behind the last column"), "{said}");
    // The header may have more columns than are read.
    let mut wider = expressions();
    for (_, content) in &mut wider {
        let text = String::from_utf8(content.clone()).unwrap();
        *content = text.replace('\n', "\tx\n").into_bytes();
    }
    let root = tempfile::tempdir().unwrap();
    read(&ListOps, &raw::folder(root.path(), &wider));
    let corpus: Files = vec![
        ("papers.tsv".into(), b"id\ttext\nA\tone\nB\ttwo\n".to_vec()),
        ("edges.tsv".into(), b"A\tB\n".to_vec()),
    ];
    let root = tempfile::tempdir().unwrap();
    let said = refused(&Retrieval, &raw::folder(root.path(), &corpus));
    assert!(said.contains("papers.tsv:1: a header"), "{said}");
    let mut beside = pairs();
    beside.push(("aan/edges.tsv".into(), b"A\tB\n".to_vec()));
    let root = tempfile::tempdir().unwrap();
    let notes = read(&Retrieval, &raw::folder(root.path(), &beside));
    let notes = notes.manifest().notes.join("\n");
    assert!(notes.contains("edges.tsv lies there too"), "{notes}");
}

/// Folders of Pathfinder are found in upper and lower case, as the names of other files are.
#[test]
fn folders_of_pathfinder_may_be_in_upper_case() {
    let root = tempfile::tempdir().unwrap();
    let files = pictures(32, 40);
    let plain = raw::folder(&root.path().join("plain"), &files);
    let mut upper = files;
    for (name, _) in &mut upper {
        *name = name.replace("pathfinder32", "Pathfinder32");
    }
    let digest = |raw: &Path| read(&PATHFINDER, raw).manifest().digest.clone();
    let folder = raw::folder(&root.path().join("upper"), &upper);
    let archive = raw::file(root.path(), "upper.zip", &raw::zip(&upper));
    assert_eq!(digest(&folder), digest(&plain));
    assert_eq!(digest(&archive), digest(&plain));
}
