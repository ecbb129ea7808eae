//! Pictures: PNG files and binary records.

use std::fs;

use image::ImageEncoder;
use image::codecs::png::PngEncoder;
use serde_json::{Value, json};

use crate::archives::attack_archive;
use crate::attack::{Random, attack, attack_file, folder};
use crate::raw::{self, Files};

pub fn png(seed: usize) -> Vec<u8> {
    let pixels: Vec<u8> = (0..3072).map(|i| (i * seed / 7 % 256) as u8).collect();
    let mut bytes = Vec::new();
    PngEncoder::new(&mut bytes)
        .write_image(&pixels, 32, 32, image::ExtendedColorType::Rgb8)
        .unwrap();
    bytes
}

pub fn partial() -> [(&'static str, Value); 1] {
    [("allow_partial", json!(true))]
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
    attack("image", &partial(), root.path(), |random| {
        fs::write(&file, damaged_png(random, &bytes)).unwrap();
    });
}

/// Damages a PNG file. Chunks carry a checksum that detects most damage, so about every other
/// result gets the right ones.
fn damaged_png(random: &mut Random, bytes: &[u8]) -> Vec<u8> {
    let mut damaged = bytes.to_vec();
    random.damage(&mut damaged);
    if random.below(2) == 0 {
        fix_checksums(&mut damaged);
    }
    damaged
}

/// Returns contour images and their lists in the form of the release.
fn contours() -> Files {
    let set = "pathfinder32/curv_contour_length_14";
    let mut list = String::new();
    let mut files = Files::new();
    for n in 0..12_u8 {
        let mut png = Vec::new();
        PngEncoder::new(&mut png)
            .write_image(&[n; 1024], 32, 32, image::ExtendedColorType::L8)
            .unwrap();
        files.push((format!("{set}/imgs/0/sample_{n}.png"), png));
        list += &format!("imgs/0 sample_{n}.png {n} {} 1.0 14 4 2 0.5 1 1\n", n % 2);
    }
    files.push((format!("{set}/metadata/0.npy"), list.into_bytes()));
    files
}

#[test]
fn contour_images() {
    let root = folder();
    let files = contours();
    raw::folder(root.path(), &files);
    let (name, bytes) = &files[3];
    attack("pathfinder", &[], root.path(), |random| {
        fs::write(root.path().join(name), damaged_png(random, bytes)).unwrap();
    });
}

#[test]
fn contour_lists() {
    let root = folder();
    let files = contours();
    raw::folder(root.path(), &files);
    let (name, bytes) = &files[12];
    attack_file(
        "pathfinder",
        &[],
        root.path(),
        &root.path().join(name),
        bytes,
    );
}

#[test]
fn contour_archives() {
    attack_archive("pathfinder", &[], &raw::tar(&contours()));
}

/// Recomputes the checksums of PNG chunks, as far as the chunks can be recognized.
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
