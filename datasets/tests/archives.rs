//! Archives that are not what they should be: nothing escapes, nothing grows without bound, nothing passes in silence.
#![allow(missing_docs, clippy::unwrap_used)]

mod raw;

use std::path::Path;

use lra_datasets::tasks::Text;
use lra_datasets::{Class, Key};
use raw::{Files, build};

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

fn error(root: &Path, archive: &[u8]) -> String {
    let path = raw::file(root, "archive", archive);
    let error = build(&Text, &Key::default_of(&Text), &path).unwrap_err();
    assert_eq!(error.class(), Class::Data, "{error}");
    error.to_string()
}

/// One member with a name that `tar::Builder` would not write.
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
    let root = tempfile::tempdir().unwrap();
    for name in [
        "../evil.txt",
        "/etc/evil.txt",
        "a/../../evil.txt",
        "..\\evil.txt",
        "C:\\evil.txt",
    ] {
        let mut archive = named(name.as_bytes(), tar::EntryType::Regular, b"evil");
        archive.extend(raw::tar(&files()));
        let text = error(root.path(), &archive);
        assert!(
            text.contains("would lie outside of the archive"),
            "{name}: {text}"
        );
    }
    // Nothing was written beside the archive.
    assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 1);
}

#[test]
fn links_and_devices_are_passed_over() {
    let root = tempfile::tempdir().unwrap();
    let mut archive = Vec::new();
    for kind in [
        tar::EntryType::Symlink,
        tar::EntryType::Link,
        tar::EntryType::Block,
        tar::EntryType::Fifo,
    ] {
        archive.extend(named(b"aclImdb/train/pos/1_9.txt", kind, b""));
    }
    archive.extend(raw::tar(&files()));
    let path = raw::file(root.path(), "archive", &archive);
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
    let archive = named(
        b"././@LongLink",
        tar::EntryType::GNULongName,
        &[b'a'; 100_000],
    );
    let text = error(root.path(), &archive);
    assert!(text.contains("a name of more than 4096 bytes"), "{text}");
    // The same as an extended header.
    let archive = named(b"header", tar::EntryType::XHeader, &[b'1'; 100_000]);
    assert!(error(root.path(), &archive).contains("a name of more than 4096 bytes"));
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
    let root = tempfile::tempdir().unwrap();
    let bomb = named(b"zeros", tar::EntryType::Regular, &vec![0; 80 << 20]);
    for packed in [raw::gzip(&bomb), raw::zstd(&bomb)] {
        let text = error(root.path(), &packed);
        assert!(
            text.contains("unpacks to more than 200 times its size"),
            "{text}"
        );
    }
}

#[test]
fn damage_is_found() {
    let root = tempfile::tempdir().unwrap();
    let plain = raw::tar(&files());
    for packed in [raw::gzip(&plain), raw::zstd(&plain)] {
        for end in [packed.len() - 1, packed.len() / 2, 30] {
            let text = error(root.path(), &packed[..end]);
            assert!(text.contains("damaged or incomplete"), "{text}");
        }
    }
    // A checksum that does not fit, though every member could be read.
    let mut packed = raw::gzip(&plain);
    let place = packed.len() - 8;
    packed[place] ^= 1;
    assert!(error(root.path(), &packed).contains("damaged or incomplete"));
    // Cut within a member of a plain archive.
    assert!(error(root.path(), &plain[..1000 + 512]).contains("damaged or incomplete"));
    assert!(error(root.path(), &raw::gzip(b"not a tar archive")).contains("damaged or incomplete"));
    assert!(error(root.path(), &raw::gzip(b"")).contains("no negative review"));
}
