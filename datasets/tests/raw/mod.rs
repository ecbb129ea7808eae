//! Raw files as users have them: folders, archives, parquet files, made by the tests.
#![allow(dead_code)] // Not every test file needs all of this module.

pub mod published;

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flate2::Compression;
use flate2::write::{DeflateEncoder, GzEncoder};
use lra_datasets::{Key, Manifest, Result, Splits, Store, Task};
use parquet::basic::{Compression as Packing, ConvertedType, ZstdLevel};
use parquet::column::writer::{ColumnWriter, ColumnWriterImpl};
use parquet::data_type::{ByteArray, ByteArrayType, DataType};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

/// Names and contents of files.
pub type Files = Vec<(String, Vec<u8>)>;

/// Writes files into a folder.
pub fn folder(root: &Path, files: &Files) -> PathBuf {
    for (name, content) in files {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    root.to_owned()
}

/// Returns a tar archive of files.
pub fn tar(files: &Files) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        builder
            .append_data(&mut header, name, &content[..])
            .unwrap();
    }
    builder.into_inner().unwrap()
}

/// Returns a tar archive of files, with symbolic links: their names and what they lead to.
pub fn tar_with_links(files: &Files, links: &[(&str, &str)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, target) in links {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_size(0);
        builder.append_link(&mut header, name, target).unwrap();
    }
    let mut archive = builder.into_inner().unwrap();
    // Without the zeros at the end.
    archive.truncate(archive.len() - 1024);
    archive.extend(tar(files));
    archive
}

/// Packs bytes as `.gz`.
pub fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Packs bytes as `.zst`.
pub fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 3).unwrap()
}

/// Returns a zip archive of files, every other one of them packed.
pub fn zip(files: &Files) -> Vec<u8> {
    zip_with_links(files, &[])
}

/// Returns such an archive with symbolic links too: their names and what they lead to.
pub fn zip_with_links(files: &Files, links: &[(&str, &str)]) -> Vec<u8> {
    let (mut archive, mut directory) = (Vec::new(), Vec::new());
    let links = links.iter();
    let links = links.map(|(name, target)| ((*name).to_owned(), target.as_bytes().to_vec()));
    let all: Files = files.iter().cloned().chain(links).collect();
    for (number, (name, content)) in all.iter().enumerate() {
        let mode = if number < files.len() {
            0
        } else {
            0o120_777_u32
        };
        let mut deflated = Vec::new();
        let (method, packed) = match number % 2 {
            0 => (0_u16, content),
            _ => {
                let mut encoder = DeflateEncoder::new(&mut deflated, Compression::default());
                encoder.write_all(content).unwrap();
                encoder.finish().unwrap();
                (8, &deflated)
            }
        };
        let mut sum = flate2::Crc::new();
        sum.update(content);
        let mut head = Vec::new();
        head.extend([20, 0, 0, 0]); // Version, flags.
        head.extend(method.to_le_bytes());
        head.extend([0, 0, 0x21, 0]); // Time and date.
        head.extend(sum.sum().to_le_bytes());
        head.extend((packed.len() as u32).to_le_bytes());
        head.extend((content.len() as u32).to_le_bytes());
        head.extend((name.len() as u16).to_le_bytes());
        head.extend([0; 2]);
        let start = archive.len() as u32;
        archive.extend(b"PK\x03\x04");
        archive.extend(&head);
        archive.extend(name.as_bytes());
        archive.extend(packed);
        directory.extend(b"PK\x01\x02\x14\x03"); // Written on Unix, which has modes.
        directory.extend(head);
        directory.extend([0; 6]);
        directory.extend((mode << 16).to_le_bytes());
        directory.extend(start.to_le_bytes());
        directory.extend(name.as_bytes());
    }
    let start = archive.len() as u32;
    archive.extend(&directory);
    archive.extend(b"PK\x05\x06\0\0\0\0");
    archive.extend([(all.len() as u16).to_le_bytes(); 2].concat());
    archive.extend((directory.len() as u32).to_le_bytes());
    archive.extend(start.to_le_bytes());
    archive.extend([0; 2]);
    archive
}

/// Writes bytes to a file in `root`.
pub fn file(root: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = root.join(name);
    fs::write(&path, bytes).unwrap();
    path
}

/// Writes a parquet file of this schema with a column of bytes and one of labels; two rows to a
/// group.
pub fn parquet(path: &Path, schema: &str, rows: &[(&[u8], i64)], compression: Packing) {
    let properties = WriterProperties::builder().set_compression(compression);
    parquet_with(path, schema, rows, properties.build());
}

/// Writes such a file with these properties.
pub fn parquet_with(
    path: &Path,
    schema: &str,
    rows: &[(&[u8], i64)],
    properties: WriterProperties,
) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let output = File::create(path).unwrap();
    let mut writer = SerializedFileWriter::new(output, schema, Arc::new(properties)).unwrap();
    for rows in rows.chunks(2) {
        let mut group = writer.next_row_group().unwrap();
        let bytes: Vec<ByteArray> = rows
            .iter()
            .map(|(bytes, _)| bytes.to_vec().into())
            .collect();
        let numbers: Vec<i64> = rows.iter().map(|(_, number)| *number).collect();
        let mut column = group.next_column().unwrap().unwrap();
        let levels =
            vec![column_level(column.typed::<ByteArrayType>().get_descriptor()); rows.len()];
        column
            .typed::<ByteArrayType>()
            .write_batch(&bytes, Some(&levels), None)
            .unwrap();
        column.close().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        write_labels(column.untyped(), &numbers);
        column.close().unwrap();
        group.close().unwrap();
    }
    writer.close().unwrap();
}

/// Writes labels in the type of the column: as names of classes if the column holds text, as they
/// are if it holds decimals.
fn write_labels(column: &mut ColumnWriter<'_>, numbers: &[i64]) {
    fn write<T: DataType>(
        column: &mut ColumnWriterImpl<'_, T>,
        numbers: &[i64],
        value: impl Fn(i64) -> T::T,
    ) {
        let level = column.get_descriptor().max_def_level();
        let values: Vec<T::T> = numbers.iter().map(|&number| value(number)).collect();
        let levels = vec![level; values.len()];
        column.write_batch(&values, Some(&levels), None).unwrap();
    }
    let word = |number: i64| match number {
        0 => "neg".into(),
        1 => "Positive".into(),
        other => other.to_string().as_str().into(),
    };
    let decimal = |number: i64, bytes: usize| {
        let filling = if number < 0 { [0xff; 32] } else { [0; 32] };
        let wide = [&filling[..], &number.to_be_bytes()].concat();
        ByteArray::from(wide[wide.len() - bytes..].to_vec())
    };
    match column {
        ColumnWriter::Int64ColumnWriter(column) => write(column, numbers, |number| number),
        ColumnWriter::Int32ColumnWriter(column) => write(column, numbers, |number| number as i32),
        ColumnWriter::BoolColumnWriter(column) => write(column, numbers, |number| number != 0),
        ColumnWriter::FloatColumnWriter(column) => write(column, numbers, |number| number as f32),
        ColumnWriter::DoubleColumnWriter(column) => write(column, numbers, |number| number as f64),
        ColumnWriter::ByteArrayColumnWriter(column) => {
            match column.get_descriptor().converted_type() {
                ConvertedType::DECIMAL => write(column, numbers, |number| decimal(number, 2)),
                _ => write(column, numbers, word),
            }
        }
        ColumnWriter::FixedLenByteArrayColumnWriter(column) => {
            let length = column.get_descriptor().type_length() as usize;
            let half =
                |number: i64| ByteArray::from([&[0, 0][..], &[0, 0x3c]][number as usize].to_vec());
            match column.get_descriptor().converted_type() {
                ConvertedType::DECIMAL => {
                    write(column, numbers, |number| decimal(number, length).into())
                }
                _ if length == 2 => write(column, numbers, |number| half(number).into()),
                _ => write(column, numbers, |_| ByteArray::from(vec![0; length]).into()),
            }
        }
        _ => panic!("a type of labels that no test writes"),
    }
}

fn column_level(column: &parquet::schema::types::ColumnDescPtr) -> i16 {
    column.max_def_level()
}

/// Returns each compression that is read.
pub fn packings() -> [Packing; 7] {
    [
        Packing::UNCOMPRESSED,
        Packing::SNAPPY,
        Packing::ZSTD(ZstdLevel::default()),
        Packing::GZIP(Default::default()),
        Packing::BROTLI(Default::default()),
        Packing::LZ4,
        Packing::LZ4_RAW,
    ]
}

/// Builds a task's data from raw files in a store of its own, and verifies it.
pub fn build(task: &dyn Task, key: &Key, raw: &Path) -> Result<Built> {
    let root = tempfile::tempdir().unwrap();
    let store = Store::new(root.path());
    let splits = store.open_or_build(task, key, Some(raw), &())?;
    let verification = store.verify(task, key, &())?;
    Ok(Built {
        _root: root,
        splits,
        text: verification.to_string(),
        passed: verification.passed(),
    })
}

/// A built entry.
pub struct Built {
    _root: tempfile::TempDir,
    pub splits: Splits,
    pub text: String,
    pub passed: bool,
}

impl std::fmt::Debug for Built {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl Built {
    pub fn manifest(&self) -> &Manifest {
        &self.splits.manifest
    }

    pub fn fact(&self, name: &str) -> &str {
        let facts = &self.manifest().facts;
        let fact = facts.iter().find(|fact| fact.name == name);
        fact.map_or("no such fact", |fact| &fact.value)
    }

    pub fn rows(&self) -> [usize; 3] {
        [
            self.splits.train.len(),
            self.splits.val.len(),
            self.splits.test.len(),
        ]
    }
}
