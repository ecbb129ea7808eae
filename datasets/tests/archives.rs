//! Invalid archives: no member escapes, memory and time stay bounded, and every problem is
//! reported.
#![allow(missing_docs, clippy::unwrap_used)]

use std::path::Path;

use crate::raw::{self, Files, build};
use lra_datasets::tasks::pathfinder::PATHFINDER;
use lra_datasets::tasks::{ListOps, Text};
use lra_datasets::{Class, Key, Source, Store, TASKS, Task, check_archive};

fn files() -> Files {
    let mut files: Files = Vec::new();
    for split in ["train", "test"] {
        for (class, rating) in [("neg", 1), ("pos", 10)] {
            for number in 0..20 {
                let name = format!("aclImdb/{split}/{class}/{number}_{rating}.txt");
                files.push((name, format!("{split} {class} {number}").into_bytes()));
            }
        }
    }
    files
}

/// Returns the error of each reader of archives.
fn errors(root: &Path, archive: &[u8]) -> [String; 3] {
    let path = raw::file(root, "archive", archive);
    let readers: [&dyn Task; 3] = [&Text, &ListOps, &PATHFINDER];
    readers.map(|task| {
        let key = Key {
            source: Source::Official,
            ..Key::default_of(task)
        };
        let error = build(task, &key, &path).unwrap_err();
        assert_eq!(error.class(), Class::Data, "{error}");
        error.to_string()
    })
}

/// Checks that each reader refuses an archive in these words.
fn refused(archive: &[u8], words: &str) {
    let root = tempfile::tempdir().unwrap();
    for text in errors(root.path(), archive) {
        assert!(text.contains(words), "{text}");
    }
    // No file was written beside the archive.
    assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 1);
}

/// Returns an archive of one member with a name that `tar::Builder` would not write.
fn named(name: &[u8], kind: tar::EntryType, content: &[u8]) -> Vec<u8> {
    let mut header = tar::Header::new_gnu();
    header.as_old_mut().name[..name.len()].copy_from_slice(name);
    header.set_entry_type(kind);
    header.set_size(content.len() as u64);
    header.set_cksum();
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend(content);
    bytes.resize(bytes.len().next_multiple_of(512), 0);
    bytes
}

#[test]
fn names_that_lead_outside_are_refused() {
    for name in [
        "../evil.txt",
        "/etc/evil.txt",
        "a/../../evil.txt",
        "..\\evil.txt",
        "C:\\evil.txt",
    ] {
        let mut archive = named(name.as_bytes(), tar::EntryType::Regular, b"evil");
        archive.extend(raw::tar(&files()));
        refused(&archive, "would lie outside of the archive");
    }
}

#[test]
fn control_characters_in_names_are_spelt_out() {
    let name = "\u{1b}[2J\u{202e}/../evil.txt";
    let archive = named(name.as_bytes(), tar::EntryType::Regular, b"evil");
    refused(
        &archive,
        "`\\u{1b}[2J\\u{202e}/../evil.txt` would lie outside",
    );
}

#[test]
fn links_and_devices_are_refused_where_a_file_is_wanted() {
    let root = tempfile::tempdir().unwrap();
    let read = |name: &[u8], kind| {
        let mut archive = named(name, kind, b"");
        archive.extend(raw::tar(&files()));
        let path = raw::file(root.path(), "archive", &archive);
        build(&Text, &Key::default_of(&Text), &path)
    };
    for kind in [
        tar::EntryType::Symlink,
        tar::EntryType::Link,
        tar::EntryType::Block,
        tar::EntryType::Fifo,
    ] {
        let error = read(b"aclImdb/train/pos/1_9.txt", kind)
            .unwrap_err()
            .to_string();
        assert!(error.contains("1_9.txt` is a link or a device"), "{error}");
        assert_eq!(read(b"latest", kind).unwrap().rows()[2], 40);
    }
    assert_eq!(
        read(b"aclImdb/", tar::EntryType::Directory).unwrap().rows()[2],
        40
    );
}

#[test]
fn long_names_are_read_and_endless_ones_refused() {
    let root = tempfile::tempdir().unwrap();
    let mut deep = files();
    for (name, _) in &mut deep {
        *name = format!("{}/{name}", "folder".repeat(30));
    }
    let path = raw::file(root.path(), "deep.tar", &raw::tar(&deep));
    assert_eq!(
        build(&Text, &Key::default_of(&Text), &path)
            .unwrap()
            .splits
            .test
            .len(),
        40
    );
    for (name, kind) in [
        (&b"././@LongLink"[..], tar::EntryType::GNULongName),
        (b"header", tar::EntryType::XHeader),
    ] {
        let archive = named(name, kind, &[b'1'; 100_000]);
        refused(&archive, "a name of more than 4096 bytes");
    }
}

#[test]
fn extended_headers_give_names() {
    let root = tempfile::tempdir().unwrap();
    let mut archive = Vec::new();
    for (name, content) in files() {
        let record = format!(" path={name}\n");
        let length = record.len() + 2;
        archive.extend(named(
            b"header",
            tar::EntryType::XHeader,
            format!("{length}{record}").as_bytes(),
        ));
        archive.extend(named(b"short", tar::EntryType::Regular, &content));
    }
    let path = raw::file(root.path(), "pax.tar", &archive);
    assert_eq!(
        build(&Text, &Key::default_of(&Text), &path)
            .unwrap()
            .splits
            .test
            .len(),
        40
    );
}

#[test]
fn bombs_are_refused() {
    let bomb = named(b"zeros", tar::EntryType::Regular, &vec![0; 80 << 20]);
    for packed in [raw::gzip(&bomb), raw::zstd(&bomb)] {
        refused(&packed, "unpacks to more than 200 times its size");
    }
}

#[test]
fn damage_is_found() {
    let plain = raw::tar(&files());
    for packed in [raw::gzip(&plain), raw::zstd(&plain)] {
        for end in [packed.len() - 1, packed.len() / 2, 30] {
            refused(&packed[..end], "damaged or incomplete");
        }
    }
    // A checksum that does not fit, though every member could be read.
    let mut packed = raw::gzip(&plain);
    let place = packed.len() - 8;
    packed[place] ^= 1;
    refused(&packed, "damaged or incomplete");
    // Cut within a member of a plain archive.
    refused(&plain[..1000 + 512], "damaged or incomplete");
    refused(
        &raw::gzip(b"not a tar archive"),
        "one packed file and no archive",
    );
    refused(&raw::gzip(b""), "what is there: nothing");
}

/// Opening a pipe without a writer would wait without end.
#[cfg(unix)]
#[test]
fn pipes_are_no_input() {
    let root = tempfile::tempdir().unwrap();
    let make = |name: &str| {
        let path = root.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        let made = std::process::Command::new("mkfifo").arg(&path).status();
        assert!(made.unwrap().success());
        path
    };
    let pipe = make("pipe");
    let list = make("list/pathfinder32/curv_contour_length_14/metadata/0.npy");
    let set = root
        .path()
        .join("image/pathfinder32/curv_contour_length_14");
    make("image/pathfinder32/curv_contour_length_14/imgs/0/sample_0.png");
    let files = vec![(
        "metadata/0.npy".to_owned(),
        b"imgs/0 sample_0.png 0 1\n".to_vec(),
    )];
    raw::folder(&set, &files);
    for task in TASKS {
        let key = Key {
            source: Source::Official,
            ..Key::default_of(*task)
        };
        if !task.info().sources.contains(&Source::Official) {
            continue;
        }
        let error = build(*task, &key, &pipe).unwrap_err().to_string();
        assert!(error.contains("pipe: not a regular file"), "{error}");
    }
    let key = Key {
        source: Source::Official,
        ..Key::default_of(&PATHFINDER)
    };
    let within = [
        (&root.path().join("list"), "0.npy"),
        (&root.path().join("image"), "sample_0.png"),
    ];
    for (raw, file) in within {
        let error = build(&PATHFINDER, &key, raw).unwrap_err().to_string();
        assert!(
            error.contains(&format!("{file}: not a regular file")),
            "{error}"
        );
    }
    drop(list);
}

/// Tar archives of the oldest writers have no magic bytes, only a checksum.
#[test]
fn the_oldest_tar_archives_are_known() {
    let root = tempfile::tempdir().unwrap();
    let mut archive = Vec::new();
    for (name, content) in files() {
        let mut header = tar::Header::new_old();
        header.set_path(&name).unwrap();
        header.set_size(content.len() as u64);
        header.set_cksum();
        archive.extend(header.as_bytes());
        archive.extend(content);
        archive.resize(archive.len().next_multiple_of(512), 0);
    }
    for bytes in [archive.clone(), raw::gzip(&archive)] {
        let path = raw::file(root.path(), "old", &bytes);
        assert_eq!(
            build(&Text, &Key::default_of(&Text), &path).unwrap().rows()[2],
            40
        );
    }
}

/// Some writers on Windows separate folders by backslashes.
#[test]
fn backslashes_separate_folders() {
    let root = tempfile::tempdir().unwrap();
    let mut windows = files();
    for (name, _) in &mut windows {
        *name = name.replace('/', "\\");
    }
    let path = raw::file(root.path(), "windows.zip", &raw::zip(&windows));
    assert_eq!(
        build(&Text, &Key::default_of(&Text), &path).unwrap().rows()[2],
        40
    );
}

/// An extended header without a name leaves the long one that stands before it.
#[test]
fn long_names_hold_across_other_headers() {
    let file = named(b"fine.txt", tar::EntryType::Regular, b"evil");
    let long = |name: &[u8]| named(b"././@LongLink", tar::EntryType::GNULongName, name);
    let time = named(b"pax", tar::EntryType::XHeader, b"11 mtime=1\n");
    let path = |name: &str| {
        let record = format!("{} path={name}\n", name.len() + 9);
        named(b"pax", tar::EntryType::XHeader, record.as_bytes())
    };
    let evil = "a/../../evil.txt";
    for heads in [
        long(evil.as_bytes()),
        [long(evil.as_bytes()), time.clone()].concat(),
        path(evil),
        [long(b"fine.txt"), path(evil)].concat(),
    ] {
        refused(
            &[heads, file.clone(), vec![0; 1024]].concat(),
            "would lie outside of the archive",
        );
    }
}

#[test]
fn zip_archives_are_held_to_the_same() {
    let evil = |name: &str| vec![(name.to_owned(), b"evil".to_vec())];
    refused(
        &raw::zip(&evil("a/../../evil.txt")),
        "would lie outside of the archive",
    );
    refused(
        &raw::zip(&evil(&"long".repeat(2000))),
        "a name of more than 4096 bytes",
    );
    let whole = raw::zip(&files());
    refused(&whole[..whole.len() - 30], "damaged or incomplete");
    let root = tempfile::tempdir().unwrap();
    let text = |archive: &[u8]| errors(root.path(), archive)[0].clone();
    // The content of the first member, which is not packed, and the checksum that no longer fits.
    let mut damaged = whole.clone();
    let place = whole.windows(11).position(|bytes| bytes == b"train neg 0");
    damaged[place.unwrap()] ^= 1;
    assert!(text(&damaged).contains("0_1.txt: damaged or incomplete"));
    let review = "aclImdb/train/neg/1_1.txt".to_owned();
    let bomb = vec![
        ("nothing.txt".to_owned(), Vec::new()),
        (review, vec![0; 80 << 20]),
    ];
    let said = text(&raw::zip(&bomb));
    assert!(
        said.contains("unpacks to more than 200 times its size"),
        "{said}"
    );
}

/// The sizes of large members stand in a field of 64 bits behind the name.
#[test]
fn a_zip_archive_that_states_the_largest_size_is_refused() {
    let name = "aclImdb/train/neg/0_1.txt";
    let mut archive = raw::zip(&vec![(name.to_owned(), b"text".to_vec())]);
    let place = |archive: &[u8], mark: &[u8]| {
        let mut windows = archive.windows(mark.len());
        windows.rposition(|bytes| bytes == mark).unwrap()
    };
    let directory = place(&archive, b"PK\x01\x02");
    archive[directory + 24..][..4].fill(0xff);
    archive[directory + 30] = 12;
    let behind = directory + 46 + name.len();
    let field = [&[1, 0, 8, 0][..], &[0xff; 8]].concat();
    archive.splice(behind..behind, field);
    let end = place(&archive, b"PK\x05\x06");
    archive[end + 12] += 12;
    let root = tempfile::tempdir().unwrap();
    let told = "unpacks to more than 200 times its size";
    let said = &errors(root.path(), &archive)[0];
    assert!(said.contains(told), "{said}");
    let said = check_archive(&root.path().join("archive"), &()).unwrap_err();
    assert!(said.to_string().contains(told), "{said}");
}

#[test]
fn archives_without_a_file_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let empty = packed.finish().unwrap();
    for bytes in [empty, raw::tar(&Vec::new()), raw::zip(&Vec::new())] {
        let path = raw::file(root.path(), "empty.tar.gz", &bytes);
        let said = check_archive(&path, &()).unwrap_err().to_string();
        assert!(said.contains("without a file in it"), "{said}");
    }
}

/// A second file of one name would be the only one read.
#[test]
fn names_repeated_in_a_zip_archive_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let mut twice = files();
    let name = "aclImdb/train/pos/0_10.txt";
    twice.push((name.to_owned(), b"another review".to_vec()));
    refused(
        &raw::zip(&twice),
        &format!("`{name}` is in the archive twice"),
    );
    let path = raw::file(root.path(), "twice.zip", &raw::zip(&twice));
    let said = check_archive(&path, &()).unwrap_err().to_string();
    assert!(said.contains("twice.zip: `aclImdb"), "{said}");
    // Folders may be repeated.
    let mut folders = files();
    folders.extend(vec![("aclImdb/".to_owned(), Vec::new()); 2]);
    let path = raw::file(root.path(), "folders.zip", &raw::zip(&folders));
    assert_eq!(
        build(&Text, &Key::default_of(&Text), &path).unwrap().rows()[2],
        40
    );
}

/// Returns the reviews in two parts of both splits each.
fn parts() -> [Files; 2] {
    let (one, other) = files()
        .into_iter()
        .partition(|(name, _)| name.contains("/1"));
    [one, other]
}

/// Checks that data behind the end of an archive is refused, since no reader would see it.
#[test]
fn archives_joined_in_one_file_are_refused() {
    let [one, other] = parts().map(|files| raw::tar(&files));
    let joined = [&one[..], &other].concat();
    let told = "more follows the end of the archive";
    refused(&joined, told);
    refused(&raw::gzip(&joined), told);
    refused(&raw::zstd(&joined), told);
    refused(&[raw::gzip(&one), raw::gzip(&other)].concat(), told);
    refused(&[&one[..], b"x"].concat(), told);
    let joined = parts().map(|files| raw::zip(&files)).concat();
    refused(&joined, "several archives joined in one file");
    // Writers fill the last record with zeros; packers may pack an archive in parts.
    let root = tempfile::tempdir().unwrap();
    let whole = raw::tar(&files());
    let padded = [&whole[..], &[0; 10_240]].concat();
    let (start, end) = whole.split_at(10_000);
    let parts = [raw::gzip(start), raw::gzip(end)].concat();
    for (name, bytes) in [("padded.tar", padded), ("parts.tar.gz", parts)] {
        let path = raw::file(root.path(), name, &bytes);
        let built = build(&Text, &Key::default_of(&Text), &path).unwrap();
        assert_eq!(built.rows()[2], 40, "{name}");
    }
}

/// Without a checksum of the whole, only reading an archive to its end shows damage.
#[test]
fn archives_are_read_to_their_end() {
    let root = tempfile::tempdir().unwrap();
    let check = |bytes: &[u8]| {
        let path = raw::file(root.path(), "archive", bytes);
        check_archive(&path, &()).map_err(|error| error.to_string())
    };
    let tar = raw::tar(&files());
    let zip = raw::zip(&files());
    for whole in [tar.clone(), raw::gzip(&tar), raw::zstd(&tar), zip.clone()] {
        assert_eq!(check(&whole), Ok(()));
        let said = check(&whole[..whole.len() / 2]).unwrap_err();
        assert!(said.contains("damaged or incomplete"), "{said}");
    }
    let mut damaged = zip;
    let place = damaged
        .windows(11)
        .position(|bytes| bytes == b"train neg 0");
    damaged[place.unwrap()] ^= 1;
    let said = check(&damaged).unwrap_err();
    assert!(said.contains("0_1.txt: damaged or incomplete"), "{said}");
    // A link or a device is no damage.
    let link = named(b"latest", tar::EntryType::Symlink, b"");
    assert_eq!(check(&[link, tar].concat()), Ok(()));
}

/// A damaged file among the raw files has to go before another one is read.
#[test]
fn a_damaged_raw_file_is_to_be_removed() {
    let root = tempfile::tempdir().unwrap();
    let store = Store::new(root.path());
    let cut = raw::gzip(&raw::tar(&files()));
    let folder = store.raw(&ListOps);
    std::fs::create_dir_all(&folder).unwrap();
    let kept = raw::file(&folder, "lra_release.gz", &cut[..cut.len() / 2]);
    // Also for a task that is published in the same archive.
    let tasks: [&dyn Task; 2] = [&ListOps, &PATHFINDER];
    let said = |task: &dyn Task| {
        let key = Key {
            source: Source::Official,
            ..Key::default_of(task)
        };
        store
            .open_or_build(task, &key, None, &())
            .unwrap_err()
            .to_string()
    };
    for task in tasks {
        let said = said(task);
        let remedy = format!("\n  remove {}, and fetch the published", kept.display());
        assert!(said.contains(&remedy), "{said}");
    }
    // A table in the folder is read before an archive that is fetched into it.
    std::fs::remove_file(kept).unwrap();
    raw::file(
        &folder,
        "basic_train.tsv",
        b"Source\tTarget\n[MAX 1 2 ]\t1\n",
    );
    let said = said(&ListOps);
    let remedy = format!("\n  move away what is in {}, and fetch", folder.display());
    assert!(said.contains(&remedy), "{said}");
}
