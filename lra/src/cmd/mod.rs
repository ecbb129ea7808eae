//! One file per verb.

pub mod agree;
pub mod bench;
pub mod check;
pub mod check_model;
pub mod data;
pub mod list;
pub mod merge;
pub mod new;
pub mod parity;
pub mod report;
pub mod repro;
pub mod run;
pub mod shell;
pub mod sweep;

use std::path::Path;

use results::store::Loaded;

use crate::error::{Class, Classify, Error, Result};
pub use crate::output::{print, print_json};
use crate::stderr;

/// Loads the records below a folder, with a warning for each that is damaged.
///
/// # Errors
/// The folder cannot be read or holds no record; under `strict`, also if one is damaged.
pub fn load(folder: &Path, strict: bool) -> Result<Loaded> {
    let loaded = results::store::load(folder).class(Class::Data)?;
    for (path, reason) in &loaded.skipped {
        let path = path.display();
        stderr::line(&format!("warning: {path} left out: {reason}"));
    }
    if strict && !loaded.skipped.is_empty() {
        let count = loaded.skipped.len();
        return Err(Error::new(
            Class::Data,
            format!("{count} damaged or foreign records (see the warnings)"),
        ));
    }
    if loaded.records.is_empty() {
        let place = folder.display();
        return Err(Error::new(
            Class::Data,
            format!("no records under {place}; make one with `lra run`"),
        ));
    }
    Ok(loaded)
}
