//! Files beside the published ones: read, known by name, told in a note, or refused; the same in a
//! folder and in an archive.

use std::fs;
use std::path::Path;

use crate::raw::published::{
    batches, class_folders, expressions, pairs, pictures, published, read, refused, reviews,
};
use crate::raw::{self, Files};
use lra_datasets::Task;
use lra_datasets::tasks::pathfinder::PATHFINDER;
use lra_datasets::tasks::{Image, ListOps, Retrieval, Text};

/// A task with its files, a further file with its path and content, and words of the error.
type Case = (&'static dyn Task, Files, String, Vec<u8>, &'static str);

/// Every file that looks like data is read or refused by its name, wherever among the data it lies,
/// and nothing beside the data is read.
#[test]
fn what_looks_like_data_is_never_passed_over_in_silence() {
    let png = pictures(32, 1)[0].1.clone();
    let table = expressions()[0].1.clone();
    let set = "pathfinder32/curv_contour_length_14";
    let list = b"imgs/0 sample_0.png 0 1\n".to_vec();
    let cases: Vec<Case> = vec![
        (
            &Text,
            reviews(),
            "aclImdb/train/pos/sub/99_8.txt".into(),
            b"x".to_vec(),
            "none of the folders",
        ),
        (
            &Text,
            reviews(),
            "aclImdb/train/99_8.txt".into(),
            b"x".to_vec(),
            "none of the folders",
        ),
        (
            &Text,
            reviews(),
            "aclImdb/pos/99_8.txt".into(),
            b"x".to_vec(),
            "none of the folders",
        ),
        (
            &Text,
            reviews(),
            "aclImdb/train/more/pos/99_8.txt".into(),
            b"x".to_vec(),
            "none of the folders",
        ),
        (
            &Text,
            reviews(),
            "aclImdb/99_8.txt.gz".into(),
            raw::gzip(b"x"),
            "none of the folders",
        ),
        (
            &Text,
            reviews(),
            "x/other/train/pos/99_8.txt".into(),
            b"x".to_vec(),
            "a second place of reviews",
        ),
        (
            &Text,
            reviews(),
            "aclImdb/Train/pos/99_8.txt".into(),
            b"x".to_vec(),
            "a second folder of the same reviews",
        ),
        (
            &Text,
            reviews(),
            "aclImdb/train/positive/99_8.txt".into(),
            b"x".to_vec(),
            "a second folder of the same reviews",
        ),
        (
            &Image,
            class_folders(),
            "cifar/loose.png".into(),
            png.clone(),
            "none of the folders",
        ),
        (
            &Image,
            class_folders(),
            "cifar/train/loose.jpg".into(),
            png.clone(),
            "none of the folders",
        ),
        (
            &Image,
            class_folders(),
            "cifar/train/cat/sub/1.png".into(),
            png.clone(),
            "none of the folders",
        ),
        (
            &Image,
            class_folders(),
            "cifar/Train2/cat/1.png".into(),
            png.clone(),
            "none of the folders",
        ),
        (
            &Image,
            class_folders(),
            "cifar/train/3/1.png".into(),
            class_folders()[0].1.clone(),
            "a second folder of the same",
        ),
        (
            &Image,
            class_folders(),
            "other/train/cat/1.png".into(),
            class_folders()[0].1.clone(),
            "a second place of class folders",
        ),
        (
            &Image,
            batches(),
            "cifar-10-batches-bin/more.bin".into(),
            png.clone(),
            "none of data_batch_1.bin",
        ),
        (
            &Image,
            batches(),
            "cifar-10-batches-bin/loose.png".into(),
            png.clone(),
            "none of the folders",
        ),
        (
            &Retrieval,
            pairs(),
            "aan/new_aan_pairs.val.tsv".into(),
            table.clone(),
            "none of the files of pairs",
        ),
        (
            &Retrieval,
            pairs(),
            "aan/new_aan_pairs.valid.tsv".into(),
            table.clone(),
            "none of the files of pairs",
        ),
        (
            &ListOps,
            expressions(),
            "listops/basic_extra.tsv".into(),
            table.clone(),
            "none of the tables",
        ),
        (
            &ListOps,
            expressions(),
            "listops/basic_extra.tsv.gz".into(),
            raw::gzip(&table),
            "none of the tables",
        ),
        (
            &PATHFINDER,
            pictures(32, 40),
            format!("{set}/imgs/0/sample_99.png"),
            png.clone(),
            "in none of the lists, metadata/*.npy, so it has no label: add",
        ),
        (
            &PATHFINDER,
            pictures(32, 40),
            format!("{set}/imgs/loose.png"),
            png.clone(),
            "among the images",
        ),
        (
            &PATHFINDER,
            pictures(32, 40),
            format!("{set}/imgs/0/sample_1.jpg"),
            png.clone(),
            "among the images",
        ),
        (
            &PATHFINDER,
            pictures(32, 40),
            format!("{set}/loose.png"),
            png.clone(),
            "in the folder of a set",
        ),
        (
            &PATHFINDER,
            pictures(32, 40),
            format!("{set}/metadata/more/1.npy"),
            list.clone(),
            "below the lists",
        ),
        (
            &PATHFINDER,
            pictures(32, 40),
            format!("{set}/metadata/0.NPY"),
            list.clone(),
            "a second file of this name",
        ),
        (
            &PATHFINDER,
            pictures(32, 40),
            format!("{set}/metadata/1.npy.gz"),
            raw::gzip(&list),
            "does not end in .npy",
        ),
        (
            &PATHFINDER,
            pictures(32, 40),
            "pathfinder32/curv_contour_length_15/metadata/0.npy".into(),
            list.clone(),
            "in no published set",
        ),
    ];
    for (task, mut files, stray, content, problem) in cases {
        files.push((stray.clone(), content));
        let root = tempfile::tempdir().unwrap();
        let forms = [
            raw::folder(&root.path().join("folder"), &files),
            raw::file(root.path(), "a.tar.gz", &raw::gzip(&raw::tar(&files))),
            raw::file(root.path(), "a.zip", &raw::zip(&files)),
        ];
        for form in forms {
            let said = refused(task, &form);
            // Of two folders of one part, or two files of one name, either may be named first.
            let name = match problem.starts_with("a second folder") {
                true => stray.rsplit_once('/').unwrap().0,
                false => stray.trim_end_matches(".gz"),
            };
            let is_named = said.to_lowercase().contains(&name.to_lowercase());
            assert!(is_named && said.contains(problem), "{stray}: {said}");
            assert!(said.contains("move "), "{said}");
        }
    }
}

/// Documentation, checksums and data of other tasks may lie among the data; what else does is told.
#[test]
fn what_may_lie_beside_the_data_changes_nothing() {
    let beside = [
        "README",
        "readme.html",
        "LICENSE.txt",
        "SHA256SUMS",
        "md5sum.txt",
        "aclImdb_v1.tar.gz.sha256",
        "imdb.vocab",
        "imdbEr.txt",
        "train/urls_pos.txt",
        "train/labeledBow.feat",
        "train/unsup/0_0.txt",
        "batches.meta.txt",
    ];
    let mut all = published();
    all.push((&Image, class_folders()));
    for (task, files) in all {
        let root = tempfile::tempdir().unwrap();
        let plain = raw::folder(&root.path().join("plain"), &files);
        let wanted = read(task, &plain).manifest().clone();
        let folder = match task.info().name {
            "pathfinder" => "pathfinder32/curv_contour_length_14",
            "pathx" => "pathfinder128/curv_contour_length_14",
            _ => files[0].0.split('/').next().unwrap(),
        };
        let mut more = files.clone();
        let of_text = |name: &&&str| task.info().name == "text" || !name.starts_with("train/");
        for name in beside.iter().filter(of_text) {
            more.push((format!("{folder}/{name}"), b"words".to_vec()));
        }
        // Data of other tasks, and files that look like data elsewhere.
        for (other, files) in published() {
            let same = |name: &str| name.strip_suffix('x').unwrap_or(name).starts_with("path");
            let [own, other] = [task, other].map(|task| task.info().name);
            if own != other && !(same(own) && same(other)) {
                more.extend(files);
            }
        }
        more.push(("holiday/cat/beach.png".into(), b"sand".to_vec()));
        more.push(("glue/dev.tsv".into(), b"1\t2\n".to_vec()));
        more.push(("letters/pos/1.txt".into(), b"Dear".to_vec()));
        for form in [
            raw::folder(&root.path().join("folder"), &more),
            raw::file(root.path(), "a.tar.gz", &raw::gzip(&raw::tar(&more))),
            raw::file(root.path(), "a.zip", &raw::zip(&more)),
        ] {
            let read = read(task, &form).manifest().clone();
            assert_eq!(read.digest, wanted.digest, "{}", form.display());
            assert_eq!(read.notes, wanted.notes, "{}", form.display());
        }
        // A file of no known name among the data is told.
        if !folder.starts_with("path") {
            files_told(task, &files, folder);
        }
    }
}

fn files_told(task: &dyn Task, files: &Files, folder: &str) {
    let root = tempfile::tempdir().unwrap();
    let mut more = files.clone();
    more.push((format!("{folder}/thesis.docx"), b"words".to_vec()));
    for form in [
        raw::folder(&root.path().join("folder"), &more),
        raw::file(root.path(), "a.zip", &raw::zip(&more)),
    ] {
        let notes = read(task, &form).manifest().notes.join("\n");
        assert!(notes.contains("was not read: "), "{notes}");
        assert!(notes.contains("thesis.docx"), "{notes}");
    }
}

/// An archive beside its unpacked folder is told: the folder may have been unpacked in part.
#[test]
fn an_archive_beside_its_folder_is_told() {
    let root = tempfile::tempdir().unwrap();
    let whole = raw::gzip(&raw::tar(&reviews()));
    raw::file(root.path(), "aclImdb_v1.tar.gz", &whole);
    let mut part = reviews();
    part.truncate(150);
    let folder = raw::folder(root.path(), &part);
    let notes = read(&Text, &folder).manifest().notes.join("\n");
    let told = "aclImdb_v1.tar.gz lies there too and was not read";
    assert!(notes.contains(told), "{notes}");
    let root = tempfile::tempdir().unwrap();
    raw::file(root.path(), "aclImdb_v1.tar.gz", &whole);
    part.truncate(100);
    let said = refused(&Text, &raw::folder(root.path(), &part));
    assert!(
        said.contains("no positive review of test") && said.contains(told),
        "{said}"
    );
    // The same beside an archive: tables of train alone are not read.
    let root = tempfile::tempdir().unwrap();
    raw::file(root.path(), "aclImdb_v1.tar.gz", &whole);
    write_parquet(root.path(), "train.parquet");
    let notes = read(&Text, root.path()).manifest().notes.join("\n");
    let told = "train.parquet lies there too and was not read";
    assert!(notes.contains(told), "{notes}");
    // Two archives of the published name: either may be meant.
    let root = tempfile::tempdir().unwrap();
    for name in ["a", "b"] {
        fs::create_dir(root.path().join(name)).unwrap();
        raw::file(&root.path().join(name), "aclImdb_v1.tar.gz", &whole);
    }
    let said = refused(&Text, root.path());
    assert!(said.contains("several archives"), "{said}");
}

/// Writes 40 reviews of both classes, with this name in them, into a parquet file.
fn write_parquet(root: &Path, name: &str) {
    write_reviews(root, name, name, 0..40, parquet::basic::Compression::SNAPPY);
}

/// Writes these reviews with `word` in them into a parquet file.
fn write_reviews(
    root: &Path,
    name: &str,
    word: &str,
    numbers: std::ops::Range<usize>,
    packing: parquet::basic::Compression,
) {
    const SCHEMA: &str = "message m { optional binary text (STRING); optional int64 label; }";
    let rows: Vec<Vec<u8>> = numbers
        .map(|n| format!("{word} {n}").into_bytes())
        .collect();
    let rows: Vec<(&[u8], i64)> = rows
        .iter()
        .zip(0..)
        .map(|(row, n)| (&row[..], n % 2))
        .collect();
    let path = root.join(name);
    raw::parquet(&path, SCHEMA, &rows, packing);
}

/// The names do not tell that two files hold the same rows, and neither do their bytes.
#[test]
fn parquet_files_with_the_same_rows_are_refused() {
    use parquet::basic::Compression::{SNAPPY, UNCOMPRESSED};
    for (name, numbers) in [
        ("train-old.parquet", 0..40),
        ("train (1).parquet", 0..40),
        ("train1.parquet", 15..40),
        ("TRAIN.parquet", 0..60),
    ] {
        let root = tempfile::tempdir().unwrap();
        for whole in ["train.parquet", "test.parquet"] {
            write_reviews(root.path(), whole, whole, 0..40, SNAPPY);
        }
        write_reviews(root.path(), name, "train.parquet", numbers, UNCOMPRESSED);
        let said = refused(&Text, root.path());
        assert!(
            said.contains("the same rows would be read twice"),
            "{name}: {said}"
        );
        // Some rows repeat in real data.
        write_reviews(root.path(), name, "train.parquet", 30..80, UNCOMPRESSED);
        let manifest = read(&Text, root.path()).manifest().clone();
        assert!(!manifest.digest.is_empty());
    }
}

/// Two exports of the same rows, divided in other ways: no file is a copy of another.
#[test]
fn two_exports_of_the_same_rows_are_refused() {
    use parquet::basic::Compression::SNAPPY;
    let root = tempfile::tempdir().unwrap();
    write_reviews(root.path(), "test/part-0.parquet", "test", 0..40, SNAPPY);
    for part in 0..6 {
        let name = format!("train/part-{part}-one.parquet");
        write_reviews(
            root.path(),
            &name,
            "train",
            10 * part..10 * part + 10,
            SNAPPY,
        );
    }
    let manifest = read(&Text, root.path()).manifest().clone();
    let rows = manifest.splits.train.rows + manifest.splits.val.rows;
    assert_eq!(rows, 60);
    for part in 0..4 {
        let name = format!("train/part-{part}-two.parquet");
        write_reviews(
            root.path(),
            &name,
            "train",
            15 * part..15 * part + 15,
            SNAPPY,
        );
    }
    let said = refused(&Text, root.path());
    assert!(said.contains("the same rows would be read twice"), "{said}");
}

/// Some writers put the hash of each part behind its number.
#[test]
fn parts_with_hashes_of_their_own_are_one_whole() {
    let root = tempfile::tempdir().unwrap();
    for name in [
        "test.parquet",
        "train-00000-of-00003-a1b2c3d4e5f60718.parquet",
        "train-00001-of-00003-0f0f0f0f0f0f0f0f.parquet",
        "train-00002-of-00003-123456789abcdef0.parquet",
    ] {
        write_parquet(root.path(), name);
    }
    let manifest = read(&Text, root.path()).manifest().clone();
    let rows = manifest.splits.train.rows + manifest.splits.val.rows;
    assert_eq!(rows, 120);
    write_parquet(root.path(), "train-00001-of-00003-ffffffffffffffff.parquet");
    let said = refused(&Text, root.path());
    assert!(said.contains("both are part 1 by their names"), "{said}");
}

/// Parquet files of another split in a folder of their own are not passed over.
#[test]
fn parquet_files_of_other_splits_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let write = |name: &str| write_parquet(root.path(), name);
    for name in [
        "imdb/train/0.parquet",
        "imdb/test/0.parquet",
        "imdb/unsupervised/0.parquet",
    ] {
        write(name);
    }
    // Those of other tasks and folders are none of theirs.
    write("cifar10/train/0.parquet");
    write("elsewhere/0.parquet");
    let digest = read(&Text, root.path()).manifest().digest.clone();
    assert!(!digest.is_empty());
    write("imdb/validation/0.parquet");
    let said = refused(&Text, root.path());
    assert!(
        said.contains("validation/0.parquet: a parquet file beside those"),
        "{said}"
    );
}

/// Of two parquet files in one, the pages of the first would be read by the footer of the last.
#[test]
fn parquet_files_joined_in_one_are_refused() {
    let root = tempfile::tempdir().unwrap();
    for name in ["train.parquet", "test.parquet", "more.parquet"] {
        write_parquet(root.path(), name);
    }
    let at = |name: &str| root.path().join(name);
    let more = fs::read(at("more.parquet")).unwrap();
    fs::remove_file(at("more.parquet")).unwrap();
    read(&Text, root.path());
    let whole = fs::read(at("train.parquet")).unwrap();
    for joined in [[&whole[..], &more].concat(), [&whole[..], &whole].concat()] {
        fs::write(at("train.parquet"), joined).unwrap();
        let said = refused(&Text, root.path());
        assert!(said.contains("two parquet files in one"), "{said}");
    }
}

/// Other files beside parquet files are told, as those beside files of any other form.
#[test]
fn files_beside_parquet_files_are_told() {
    let root = tempfile::tempdir().unwrap();
    for name in [
        "imdb/train-00000-of-00001.parquet",
        "imdb/test-00000-of-00001.parquet",
        "imdb/unsupervised-00000-of-00001.parquet",
    ] {
        write_parquet(root.path(), name);
    }
    let notes = || read(&Text, root.path()).manifest().notes.clone();
    let plain = notes();
    // Known by name, hidden, or elsewhere.
    for name in ["imdb/README.md", "imdb/.train.crc", "train.csv"] {
        raw::folder(root.path(), &vec![(name.into(), b"x".to_vec())]);
    }
    assert_eq!(notes(), plain);
    for name in [
        "train.csv",
        "train.jsonl",
        "train-00001-of-00002.parquet.part",
        "loose.txt",
    ] {
        let path = root.path().join("imdb").join(name);
        fs::write(&path, "x").unwrap();
        let said = notes().join("\n");
        assert!(
            said.contains(&format!("was not read: imdb/{name}")),
            "{said}"
        );
        fs::remove_file(path).unwrap();
    }
    raw::file(root.path(), "aclImdb_v1.tar.gz", b"x");
    let said = notes().join("\n");
    assert!(
        said.contains("aclImdb_v1.tar.gz lies there too and was not read"),
        "{said}"
    );
}

/// The name of a file that was not read is told as a whole, and no folder that was read.
#[test]
fn notes_name_the_files_that_were_not_read() {
    let cases: [(&dyn Task, Files, &str); 4] = [
        (&Text, reviews(), "aclImdb/train/pos/more/scores.csv"),
        (&Image, class_folders(), "cifar/train/cat/more/labels.csv"),
        (&ListOps, expressions(), "listops/a/b/labels.csv"),
        (&Retrieval, pairs(), "aan/labels.csv"),
    ];
    for (task, files, stray) in cases {
        for folder in ["", "a/dn/"] {
            let moved = files.iter();
            let moved = moved.map(|(name, content)| (format!("{folder}{name}"), content.clone()));
            let mut more: Files = moved.collect();
            more.push((format!("{folder}{stray}"), b"x".to_vec()));
            let root = tempfile::tempdir().unwrap();
            for form in [
                raw::folder(&root.path().join("folder"), &more),
                raw::file(root.path(), "a.tar", &raw::tar(&more)),
                raw::file(root.path(), "a.zip", &raw::zip(&more)),
            ] {
                let notes = read(task, &form).manifest().notes.clone();
                let note = format!(
                    "lies among the data, has no name of a data file, and was not read: {folder}{stray}"
                );
                assert!(notes.contains(&note), "{notes:?}");
            }
        }
    }
    let mut several = reviews();
    for number in 0..10 {
        several.push((format!("aclImdb/more/{number}.csv"), b"x".to_vec()));
    }
    let root = tempfile::tempdir().unwrap();
    let notes = read(&Text, &raw::folder(root.path(), &several));
    let notes = notes.manifest().notes.join("\n");
    assert!(
        notes.contains("and were not read: aclImdb/more/0.csv, aclImdb/more/1.csv, ")
            && notes.contains("aclImdb/more/7.csv and 2 more"),
        "{notes}"
    );
}

/// A link in an archive is not followed, so it is refused where it may lead to data.
#[test]
fn links_in_a_place_of_data_are_refused() {
    let cases: [(&'static dyn Task, Files, &str, &[&str]); 6] = [
        (
            &Image,
            class_folders(),
            "cifar/train/cat/",
            &[
                "cifar/train/cat",
                "cifar/train/CAR",
                "cifar/train/lorry",
                "cifar/val",
            ],
        ),
        (
            &Image,
            class_folders(),
            "cifar/train/",
            &["cifar/train", "train", "other/test", "cifar/pictures"],
        ),
        (
            &Text,
            reviews(),
            "aclImdb/train/pos/",
            &[
                "aclImdb/train/pos",
                "aclImdb/train/pos/sub",
                "aclImdb/latest",
                "aclImdb/a.txt",
            ],
        ),
        (&Text, reviews(), "aclImdb/test/", &["aclImdb/test", "test"]),
        (
            &ListOps,
            expressions(),
            "nothing/",
            &["listops/more.tsv", "listops/more.tsv.gz"],
        ),
        (
            &PATHFINDER,
            pictures(32, 40),
            "nothing/",
            &[
                "pathfinder32/curv_contour_length_14/imgs/1",
                "x/pathfinder32",
                "pathfinder32/curv_contour_length_14/metadata/1.npy",
            ],
        ),
    ];
    for (task, mut files, without, links) in cases {
        files.retain(|(name, _)| !name.starts_with(without));
        for link in links {
            let (root, links) = (tempfile::tempdir().unwrap(), [(*link, "../../elsewhere")]);
            let tar = raw::tar_with_links(&files, &links);
            let zip = raw::zip_with_links(&files, &links);
            for form in [
                raw::file(root.path(), "a.tar", &tar),
                raw::file(root.path(), "a.tar.gz", &raw::gzip(&tar)),
                raw::file(root.path(), "a.tar.zst", &raw::zstd(&tar)),
                raw::file(root.path(), "a.zip", &zip),
            ] {
                let said = refused(task, &form);
                let told = format!("`{link}` is a link");
                assert!(
                    said.contains(&told) && said.contains("tar --dereference"),
                    "{said}"
                );
            }
            // A link in a folder is followed, unless it leads nowhere.
            #[cfg(unix)]
            if task.info().name != "pathfinder" {
                let folder = raw::folder(&root.path().join("folder"), &files);
                let at = folder.join(link);
                fs::create_dir_all(at.parent().unwrap()).unwrap();
                std::os::unix::fs::symlink("../../elsewhere", at).unwrap();
                let said = refused(task, &folder);
                assert!(
                    said.contains(link) && said.contains("a link to a file"),
                    "{said}"
                );
            }
        }
    }
}

/// A link elsewhere changes nothing, and a note says that it is one.
#[test]
fn links_elsewhere_are_told() {
    for (task, files) in published() {
        let root = tempfile::tempdir().unwrap();
        let plain = raw::folder(&root.path().join("plain"), &files);
        let plain = read(task, &plain).manifest().clone();
        let links = [("latest", "elsewhere"), ("old/README", "../README")];
        let tar = raw::tar_with_links(&files, &links);
        let zip = raw::zip_with_links(&files, &links);
        for form in [
            raw::file(root.path(), "a.tar", &tar),
            raw::file(root.path(), "a.zip", &zip),
        ] {
            let read = read(task, &form).manifest().clone();
            assert_eq!(read.digest, plain.digest, "{}", form.display());
            // Outside of a set of Pathfinder nothing is told.
            if !task.info().name.starts_with("path") {
                let note = "is a link, which is not followed, and was not read: latest";
                assert!(read.notes.contains(&note.to_owned()), "{:?}", read.notes);
            }
        }
    }
    // Links alone are what is there.
    let root = tempfile::tempdir().unwrap();
    let tar = raw::tar_with_links(&Files::new(), &[("a/train", "../b"), ("a/test", "../c")]);
    let said = refused(&Text, &raw::file(root.path(), "a.tar", &tar));
    assert!(
        said.contains("links, which are not followed: a/train, a/test"),
        "{said}"
    );
}

/// One of several files that belong together by their names is not read as the whole.
#[test]
fn parquet_files_without_all_of_their_parts_are_refused() {
    let root = tempfile::tempdir().unwrap();
    for name in ["test.parquet", "train-00000-of-00002.parquet"] {
        write_parquet(root.path(), name);
    }
    raw::file(root.path(), "train-00001-of-00002.parquet.part", b"PAR1");
    let said = refused(&Text, root.path());
    assert!(
        said.contains("train-00001-of-00002.parquet: not there, and of the 2 files"),
        "{said}"
    );
    write_parquet(root.path(), "train-00001-of-00002.parquet");
    assert!(!read(&Text, root.path()).manifest().digest.is_empty());
}

/// Text from files that is empty is told in words, and one is not many.
#[test]
fn empty_text_and_single_files_are_told_in_words() {
    type Harm = fn(&mut Files);
    let cases: [(&dyn Task, Files, Harm, &str); 4] = [
        (
            &ListOps,
            expressions(),
            |files| files[0].1.clear(),
            "basic_train.tsv:1: the file is empty",
        ),
        (
            &ListOps,
            expressions(),
            |files| files[0].1.extend(b"[MAX 1 2 ]\t\n"),
            "the answer nothing is not a whole number",
        ),
        (
            &Retrieval,
            pairs(),
            |files| files.truncate(1),
            "no pairs of val and test: new_aan_pairs.eval.tsv and new_aan_pairs.test.tsv are missing",
        ),
        (
            &Retrieval,
            pairs(),
            |files| files[1].1 = b"\tA\tB\tx\ty\n".to_vec(),
            "new_aan_pairs.eval.tsv:1: the label nothing is neither 0 nor 1",
        ),
    ];
    for (task, mut files, harm, problem) in cases {
        harm(&mut files);
        let root = tempfile::tempdir().unwrap();
        let said = refused(task, &raw::folder(root.path(), &files));
        assert!(said.contains(problem) && !said.contains("``"), "{said}");
    }
    // Of two copies of the published files, one at the top and one in a folder.
    let root = tempfile::tempdir().unwrap();
    for (name, content) in expressions() {
        let file = name.rsplit('/').next().unwrap().to_owned();
        raw::folder(root.path(), &vec![(name, content.clone()), (file, content)]);
    }
    let notes = read(&ListOps, root.path()).manifest().notes.join("\n");
    assert!(
        notes.contains("read from the top folder; files of the same names in `listops`"),
        "{notes}"
    );
}
