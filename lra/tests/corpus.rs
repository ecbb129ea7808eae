//! Reads the inputs of `make fuzz` on file: seeds, and inputs that once made a reader fail.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::readers::{Prepared, READERS};

const CORPUS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus");

#[test]
fn every_reader_accepts_or_refuses_its_inputs_on_file() {
    let mut known = BTreeSet::new();
    for reader in READERS {
        let prepared = Prepared::new(reader);
        let inputs = fs::read_dir(Path::new(CORPUS).join(reader.name)).unwrap();
        let mut inputs: Vec<_> = inputs.map(|entry| entry.unwrap().path()).collect();
        inputs.sort();
        assert!(!inputs.is_empty(), "{}", reader.name);
        let mut accepted = 0;
        for input in inputs {
            // Shown if the test fails.
            eprintln!("{}", input.display());
            accepted += usize::from(prepared.read(&fs::read(input).unwrap()));
        }
        // Otherwise a search would not get past the reader's first checks.
        assert!(accepted > 0, "{} accepts none of its inputs", reader.name);
        known.insert(reader.name.to_owned());
    }
    let folders = fs::read_dir(CORPUS).unwrap();
    let folders = folders.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(folders.collect::<BTreeSet<String>>(), known);
}
