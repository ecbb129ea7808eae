//! Runs libFuzzer on the reader that the variable `READER` names: `make fuzz READER=baseline`.
//!
//! The flags in the Makefile are those of `cargo fuzz` without a sanitizer, so that a stable
//! compiler does.

#![no_main]

#[path = "../../tests/readers/mod.rs"]
mod readers;

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use readers::{Prepared, READERS};

static READER: LazyLock<Prepared> = LazyLock::new(|| {
    let name = std::env::var("READER").unwrap_or_default();
    let reader = READERS.iter().find(|reader| reader.name == name);
    let names: Vec<_> = READERS.iter().map(|reader| reader.name).collect();
    Prepared::new(reader.unwrap_or_else(|| panic!("READER is one of {}", names.join(", "))))
});

fuzz_target!(|bytes: &[u8]| {
    READER.read(bytes);
});
