//! Archives, packed and not, and their headers.

use std::fs;

use serde_json::Value;

use crate::attack::{attack, attack_file, folder};
use crate::raw::{self, Files};

pub fn attack_archive(task: &str, options: &[(&str, Value)], bytes: &[u8]) {
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

/// Wrong headers that carry the right checksum.
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

#[test]
fn zip() {
    attack_archive("text", &[], &raw::zip(&reviews()));
}
