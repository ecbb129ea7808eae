//! The tables of records included in the program.

use std::path::Path;

use crate::Result;
use crate::record::Record;
use crate::store::record_file;

/// A file of records as written by `lra merge`, included in the program.
pub struct Committed {
    /// Its path in the sources.
    pub path: &'static str,
    bytes: &'static [u8],
}

/// Runs of the small protocol, which `lra mini` ranks models among.
pub static MINI: Committed = Committed {
    path: "results/mini/records.csv",
    bytes: include_bytes!("../mini/records.csv"),
};

/// Runs on the probes.
pub static PROBES: Committed = Committed {
    path: "results/probes/records.csv",
    bytes: include_bytes!("../probes/records.csv"),
};

impl Committed {
    /// Returns the runs of the table.
    ///
    /// # Errors
    /// A row of it is not a record, which a test excludes.
    pub fn records(&self) -> Result<Vec<Record>> {
        let rows = record_file::parse(Path::new(self.path), self.bytes)?;
        Ok(rows.into_iter().map(|(_, record)| record).collect())
    }
}
