//! Minimal reader of NumPy's `.npz` for reference arrays: a ZIP of `.npy` members, stored or
//! deflated, found through the central directory.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

/// An array of the archive, row-major.
pub struct Array {
    /// Length of each axis.
    pub shape: Vec<usize>,
    descriptor: String,
    bytes: Vec<u8>,
}

impl Array {
    /// Returns the values as `f64`, regardless of their stored type; exact for every type that
    /// NumPy files here have.
    pub fn values(&self) -> Vec<f64> {
        macro_rules! decode {
            ($t:ty) => {
                self.bytes
                    .chunks_exact(size_of::<$t>())
                    .map(|b| <$t>::from_le_bytes(b.try_into().unwrap()) as f64)
                    .collect()
            };
        }
        match self.descriptor.as_str() {
            "|u1" => decode!(u8),
            "|i1" => decode!(i8),
            "<i2" => decode!(i16),
            "<i4" => decode!(i32),
            "<i8" => decode!(i64),
            "<f4" => decode!(f32),
            "<f8" => decode!(f64),
            other => panic!("array of type {other}"),
        }
    }

    /// Returns the values of an integer array.
    pub fn integers(&self) -> Vec<i32> {
        self.values().into_iter().map(|v| v as i32).collect()
    }

    /// Returns the values of an array of bytes.
    pub fn bytes(&self) -> &[u8] {
        assert_eq!(self.descriptor, "|u1");
        &self.bytes
    }
}

/// Reads every array of an archive by name (without `.npy`).
pub fn read(path: &Path) -> BTreeMap<String, Array> {
    let file = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let u16_at = |at: usize| u16::from_le_bytes(file[at..at + 2].try_into().unwrap()) as usize;
    let u32_at = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap()) as usize;
    let end = (0..file.len() - 21)
        .rev()
        .find(|&at| &file[at..at + 4] == b"PK\x05\x06")
        .unwrap();
    let mut at = u32_at(end + 16);
    let mut arrays = BTreeMap::new();
    for _ in 0..u16_at(end + 10) {
        let (method, packed) = (u16_at(at + 10), u32_at(at + 20));
        let (name, extra, comment) = (u16_at(at + 28), u16_at(at + 30), u16_at(at + 32));
        let key = std::str::from_utf8(&file[at + 46..at + 46 + name]).unwrap();
        let local = u32_at(at + 42);
        let data = local + 30 + u16_at(local + 26) + u16_at(local + 28);
        let packed = &file[data..data + packed];
        let mut npy = Vec::new();
        match method {
            0 => npy.extend_from_slice(packed),
            8 => {
                flate2::read::DeflateDecoder::new(packed)
                    .read_to_end(&mut npy)
                    .unwrap();
            }
            other => panic!("{key} is packed by method {other}"),
        }
        arrays.insert(key.trim_end_matches(".npy").to_owned(), parse(&npy));
        at += 46 + name + extra + comment;
    }
    arrays
}

fn parse(npy: &[u8]) -> Array {
    assert_eq!(&npy[..6], b"\x93NUMPY");
    let (length, start) = match npy[6] {
        1 => (u16::from_le_bytes([npy[8], npy[9]]) as usize, 10),
        _ => (
            u32::from_le_bytes(npy[8..12].try_into().unwrap()) as usize,
            12,
        ),
    };
    let header = std::str::from_utf8(&npy[start..start + length]).unwrap();
    assert!(header.contains("'fortran_order': False"), "{header}");
    let after = |key: &str, open: char, close: char| {
        let rest = &header[header.find(key).unwrap() + key.len()..];
        let rest = &rest[rest.find(open).unwrap() + 1..];
        rest[..rest.find(close).unwrap()].to_owned()
    };
    Array {
        descriptor: after("'descr':", '\'', '\''),
        shape: after("'shape':", '(', ')')
            .split(',')
            .filter_map(|n| n.trim().parse().ok())
            .collect(),
        bytes: npy[start + length..].to_vec(),
    }
}
