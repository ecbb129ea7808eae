//! Readers against damaged input: whatever the bytes, an error or valid data, no panic, no hang, no memory without bound.
//!
//! `LRA_FUZZ=100000 cargo test -p lra-datasets --test fuzz` tries so many inputs per reader; by default it is a few hundred.
#![allow(missing_docs, clippy::unwrap_used)]

mod raw;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use image::ImageEncoder;
use image::codecs::png::PngEncoder;
use lra_datasets::{Class, Key, Store, tasks};
use parquet::basic::Compression;
use raw::Files;
use serde_json::{Value, json};

/// Peak memory of the whole test, with room for the largest page and window that are accepted.
const MOST_MEMORY_KB: u64 = 1 << 20;

/// Xorshift: all that is needed here.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound.max(1) as u64) as usize
    }

    /// Damages bytes in one to four places.
    fn damage(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(4) {
            let place = self.below(bytes.len());
            let end = (place + 1 + self.below(32)).min(bytes.len());
            match self.below(8) {
                0 => bytes.truncate(place),
                1 => drop(bytes.drain(place..end)),
                2 => {
                    let again = bytes[place..end].to_vec();
                    bytes.splice(place..place, again);
                }
                3 => bytes[place..end].fill(0xff),
                4 => bytes[place..end].fill(0),
                5 => bytes[place] = b"\t\n\r'\"\\b/.0"[self.below(10)],
                6 => bytes[place] = self.below(256) as u8,
                _ => bytes[place] ^= 1 << self.below(8),
            }
            if bytes.is_empty() {
                return;
            }
        }
    }
}

/// A folder in memory where there is one: every build writes and syncs files.
fn folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    match memory.is_dir() {
        true => tempfile::tempdir_in(memory).unwrap(),
        false => tempfile::tempdir().unwrap(),
    }
}

/// Builds `task` from the raw path again and again, while `prepare` puts damaged bytes there.
fn attack(task: &str, options: &[(&str, Value)], raw: &Path, mut prepare: impl FnMut(&mut Random)) {
    let task = tasks::find(task).unwrap();
    let mut key = Key::default_of(task);
    for (option, value) in options {
        key.options[*option] = value.clone();
    }
    let count: usize = env::var("LRA_FUZZ").map_or(250, |text| text.parse().unwrap());
    let data = folder();
    let store = Store::new(data.path());
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut built = 0;
    for _ in 0..count {
        prepare(&mut random);
        match store.rebuild(task, &key, Some(raw), &()) {
            Ok(_) => {
                built += 1;
                // Whatever is taken is valid data.
                if built % 8 == 0 {
                    let verification = store.verify(task, &key, &()).unwrap();
                    let failed = verification
                        .checks
                        .iter()
                        .find(|check| !check.ok && !check.name.starts_with("raw files"));
                    assert_eq!(failed, None);
                }
            }
            Err(error) => assert_eq!(error.class(), Class::Data, "{error}"),
        }
    }
    assert!(built < count, "no input was refused");
    if let Some(peak) = peak_kilobytes() {
        assert!(peak < MOST_MEMORY_KB, "{peak} KB");
    }
}

/// The process's peak resident size, where the system says it.
fn peak_kilobytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Attacks one file that holds `bytes` when intact.
fn attack_file(task: &str, options: &[(&str, Value)], raw: &Path, file: &Path, bytes: &[u8]) {
    attack(task, options, raw, |random| {
        let mut damaged = bytes.to_vec();
        random.damage(&mut damaged);
        fs::write(file, damaged).unwrap();
    });
}

fn attack_archive(task: &str, options: &[(&str, Value)], bytes: &[u8]) {
    let root = folder();
    let file = root.path().join("archive");
    attack_file(task, options, &file, &file, bytes);
}

fn reviews() -> Files {
    let mut files: Files = Vec::new();
    for split in ["train", "test"] {
        for (class, rating) in [("neg", 2), ("pos", 8)] {
            for number in 0..8 {
                let name = format!("aclImdb/{split}/{class}/{number}_{rating}.txt");
                files.push((name, format!("{split} {class} {number}").into_bytes()));
            }
        }
    }
    files
}

#[test]
fn tar() {
    attack_archive("text", &[], &raw::tar(&reviews()));
}

/// Headers that are wrong but carry the checksum that they should.
#[test]
fn tar_headers() {
    let intact = raw::tar(&reviews());
    let root = folder();
    let file = root.path().join("archive");
    attack("text", &[], &file, |random| {
        let mut damaged = intact.clone();
        for _ in 0..=random.below(3) {
            // Every member is a header and one block.
            let start = random.below(32) * 1024;
            for _ in 0..=random.below(3) {
                let value = match random.below(3) {
                    0 => b"01234567LKxgS/."[random.below(15)],
                    1 => random.below(256) as u8,
                    _ => 0,
                };
                // Name, size and kind matter most.
                let place = [
                    random.below(512),
                    124 + random.below(12),
                    156,
                    random.below(100),
                ][random.below(4)];
                damaged[start + place] = value;
            }
            let mut header = tar::Header::new_old();
            header
                .as_mut_bytes()
                .copy_from_slice(&damaged[start..start + 512]);
            header.set_cksum();
            damaged[start..start + 512].copy_from_slice(header.as_bytes());
        }
        fs::write(&file, damaged).unwrap();
    });
}

#[test]
fn gzip() {
    attack_archive("text", &[], &raw::gzip(&raw::tar(&reviews())));
}

#[test]
fn zstd() {
    attack_archive("text", &[], &raw::zstd(&raw::tar(&reviews())));
}

/// Writes train and test of a schema into a folder; gives the file to attack and its bytes.
fn parquet_files(
    root: &Path,
    schema: &str,
    rows: &[(&[u8], i64)],
    packing: Compression,
) -> (PathBuf, Vec<u8>) {
    for split in ["train", "test"] {
        raw::parquet(
            &root.join(format!("{split}.parquet")),
            schema,
            rows,
            packing,
        );
    }
    let train = root.join("train.parquet");
    let bytes = fs::read(&train).unwrap();
    (train, bytes)
}

fn attack_parquet(packing: Compression) {
    let root = folder();
    let schema = "message m { optional binary text (STRING); optional int64 label; }";
    let long = "so so ".repeat(50);
    let rows: Vec<(&[u8], i64)> = vec![
        (b"good", 1),
        (b"bad", 0),
        (long.as_bytes(), 1),
        (b"bad", 0),
        (b"good", 1),
    ];
    let (file, bytes) = parquet_files(root.path(), schema, &rows, packing);
    attack_file("text", &[], root.path(), &file, &bytes);
}

#[test]
#[ignore = "the parquet reader panics on some damaged dictionary pages"]
fn parquet_plain() {
    attack_parquet(Compression::UNCOMPRESSED);
}

#[test]
#[ignore = "the parquet reader panics on some damaged dictionary pages"]
fn parquet_snappy() {
    attack_parquet(Compression::SNAPPY);
}

#[test]
#[ignore = "the parquet reader panics on some damaged dictionary pages"]
fn parquet_zstd() {
    attack_parquet(Compression::ZSTD(Default::default()));
}

fn png(seed: usize) -> Vec<u8> {
    let pixels: Vec<u8> = (0..3072).map(|i| (i * seed / 7 % 256) as u8).collect();
    let mut bytes = Vec::new();
    PngEncoder::new(&mut bytes)
        .write_image(&pixels, 32, 32, image::ExtendedColorType::Rgb8)
        .unwrap();
    bytes
}

fn partial() -> [(&'static str, Value); 1] {
    [("allow_partial", json!(true))]
}

#[test]
fn pictures_in_parquet() {
    let root = folder();
    let schema =
        "message m { optional group img { optional binary bytes; } optional int64 label; }";
    let pictures: Vec<_> = (1..20).map(png).collect();
    let rows: Vec<(&[u8], i64)> = pictures
        .iter()
        .zip(0..)
        .map(|(png, i)| (&png[..], i % 10))
        .collect();
    let (file, bytes) = parquet_files(root.path(), schema, &rows, Compression::SNAPPY);
    attack_file("image", &partial(), root.path(), &file, &bytes);
}

#[test]
fn png_files() {
    let root = folder();
    for split in ["train", "test"] {
        let files: Files = (0..20)
            .map(|i| (format!("{split}/{}/{i}.png", i % 10), png(i + 2)))
            .collect();
        raw::folder(root.path(), &files);
    }
    let file = root.path().join("train/3/3.png");
    let bytes = fs::read(&file).unwrap();
    // Chunks carry a checksum that hides most damage: every other input has the right ones.
    let mut fix = false;
    attack("image", &partial(), root.path(), |random| {
        let mut damaged = bytes.clone();
        random.damage(&mut damaged);
        fix = !fix;
        if fix {
            fix_checksums(&mut damaged);
        }
        fs::write(&file, damaged).unwrap();
    });
}

/// Recomputes the checksums of PNG chunks, as far as they can be told.
fn fix_checksums(png: &mut [u8]) {
    let mut place = 8;
    while let Some(head) = png.get(place..place + 4) {
        let length = u32::from_be_bytes(head.try_into().unwrap()) as usize;
        let (start, end) = (place + 4, (place + 8).saturating_add(length));
        if end.saturating_add(4) > png.len() {
            return;
        }
        let mut sum = flate2::Crc::new();
        sum.update(&png[start..end]);
        let sum = sum.sum().to_be_bytes();
        png[end..end + 4].copy_from_slice(&sum);
        place = end + 4;
    }
}

#[test]
fn binary_records() {
    let root = folder();
    let names = ["data_batch_1.bin", "data_batch_2.bin", "test_batch.bin"];
    let records: Vec<u8> = (0..60 * 3073)
        .map(|i| if i % 3073 == 0 { 3 } else { (i % 255) as u8 })
        .collect();
    let files: Files = names
        .map(|name| (name.to_owned(), records.clone()))
        .to_vec();
    raw::folder(root.path(), &files);
    let file = root.path().join(names[0]);
    attack_file("image", &partial(), root.path(), &file, &records);
}

#[test]
fn pairs() {
    let root = folder();
    let line = |i: usize| {
        format!(
            "{}.0\tA{i}\tB{i}\tb'It\\'s \\xc3\\xbc \\\\ {i}'\tb\"other\\n text {i}\"\n",
            i % 2
        )
    };
    let content: String = (0..6).map(line).collect();
    let names = ["train", "eval", "test"].map(|name| format!("new_aan_pairs.{name}.tsv"));
    let files: Files = names
        .iter()
        .map(|name| (name.clone(), content.clone().into_bytes()))
        .collect();
    raw::folder(root.path(), &files);
    let file = root.path().join(&names[1]);
    let decode = [("decode", json!(true))];
    attack_file("retrieval", &decode, root.path(), &file, content.as_bytes());
}

#[test]
fn corpus() {
    let papers: String = (0..40)
        .map(|i| format!("P{i}\tthe text of paper {i}\n"))
        .collect();
    let edges: String = (0..200)
        .map(|i| format!("P{}\tP{}\t1\t0\n", i % 40, (i * 7 + i / 40 + 1) % 40))
        .collect();
    for (attacked, content) in [("papers.tsv", &papers), ("edges.tsv", &edges)] {
        let root = folder();
        let files: Files = vec![
            ("papers.tsv".into(), papers.clone().into_bytes()),
            ("edges.tsv".into(), edges.clone().into_bytes()),
        ];
        raw::folder(root.path(), &files);
        let file = root.path().join(attacked);
        attack_file("retrieval", &[], root.path(), &file, content.as_bytes());
    }
}
