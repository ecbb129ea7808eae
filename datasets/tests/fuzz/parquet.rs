//! Parquet files: their footer, page headers, levels, dictionaries and values.

use std::fs;
use std::path::{Path, PathBuf};

use ::parquet::basic::Compression;

use crate::attack::{attack_file, folder};
use crate::pictures::{partial, png};
use crate::raw;

/// Writes train and test of a schema into a folder; returns the file to attack and its bytes.
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
fn parquet_plain() {
    attack_parquet(Compression::UNCOMPRESSED);
}

#[test]
fn parquet_snappy() {
    attack_parquet(Compression::SNAPPY);
}

#[test]
fn parquet_zstd() {
    attack_parquet(Compression::ZSTD(Default::default()));
}

#[test]
fn parquet_gzip() {
    attack_parquet(Compression::GZIP(Default::default()));
}

#[test]
fn parquet_brotli() {
    attack_parquet(Compression::BROTLI(Default::default()));
}

#[test]
fn parquet_lz4() {
    attack_parquet(Compression::LZ4);
    attack_parquet(Compression::LZ4_RAW);
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
