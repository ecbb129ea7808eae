//! Comparison of the records on file with what the cells of a sweep would be made with here.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use datasets::Store;
use results::Record;

use crate::cell::changes::{self, StoredData};
use crate::device;
use crate::error::Result;
use crate::progress::Reporter;
use crate::sweep::plan::Cell;

/// Compares records with what would be made here. Data that several cells share are looked at once.
pub struct Comparer<'a> {
    data: PathBuf,
    reporter: &'a Reporter,
    /// Devices that a run may have, as records name them; none if they are not known.
    devices: Vec<String>,
    /// Stored data, by their folders.
    stored: RefCell<HashMap<PathBuf, StoredData>>,
    /// Notes that were printed.
    told: RefCell<HashSet<String>>,
}

/// A record compared with what would be made here.
#[derive(Debug, Default)]
pub struct Comparison {
    /// Differences in words.
    pub changes: Vec<String>,
    /// Reason why the data of the record were not compared.
    pub not_compared: Option<String>,
}

impl<'a> Comparer<'a> {
    /// Returns a comparer for runs with the data directory `data` on one of `devices`, as
    /// `--device` takes them. Devices that are not here, as on the node from which jobs are
    /// submitted, are not compared.
    pub fn new(data: PathBuf, devices: &[String], reporter: &'a Reporter) -> Comparer<'a> {
        let devices = devices.iter().map(|name| device::named(name));
        Comparer {
            data,
            reporter,
            devices: devices.collect::<Option<_>>().unwrap_or_default(),
            stored: RefCell::default(),
            told: RefCell::default(),
        }
    }

    /// Compares a record of a cell with what would be made here.
    ///
    /// # Errors
    /// Its stored data are damaged or cannot be read.
    pub fn compare(&self, cell: &Cell, record: &Record) -> Result<Comparison> {
        let resolved = &cell.resolved;
        let mut changes =
            changes::of_program(record, resolved.task, resolved.model, &self.devices)?;
        let stored = self.stored(cell);
        let stored = stored.map_err(|error| error.during("its data cannot be compared"))?;
        changes.extend(stored.changes(record));
        Ok(Comparison {
            changes,
            not_compared: stored.not_compared(record),
        })
    }

    /// Prints, once each, the differences between the raw files that the stored data of cells were
    /// made from and those that are raw now.
    pub fn tell_other_raw_files(&self, cells: &[Cell]) {
        for stored in cells.iter().flat_map(|cell| self.stored(cell)) {
            if let Some(other) = stored.other_raw_files()
                && self.told.borrow_mut().insert(other.to_owned())
            {
                self.reporter.note(other);
            }
        }
    }

    /// Prints, once each, the data of cells that are missing, with the command that gets them.
    pub fn tell_missing_data(&self, cells: &[Cell]) {
        let store = Store::new(&self.data);
        for cell in cells {
            let resolved = &cell.resolved;
            if let Some(missing) = store.absent(resolved.task, &resolved.spec.data_key()) {
                let text = format!("runs of {} would fail: {missing}", cell.column());
                if self.told.borrow_mut().insert(text.clone()) {
                    self.reporter.alert(&text);
                }
            }
        }
    }

    fn stored(&self, cell: &Cell) -> Result<StoredData> {
        let resolved = &cell.resolved;
        let key = resolved.spec.data_key();
        let folder = Store::new(&self.data).folder(resolved.task, &key);
        if let Some(known) = self.stored.borrow().get(&folder) {
            return Ok(known.clone());
        }
        let found = StoredData::find(resolved.task, &key, &self.data, self.reporter)?;
        // Data that are not here may be built by the next run.
        if found.are_here() {
            self.stored.borrow_mut().insert(folder, found.clone());
        }
        Ok(found)
    }
}

/// Returns a line for each column and reason of the cells whose scores were not compared.
pub fn not_compared<'a>(cells: impl Iterator<Item = (&'a Cell, &'a str)>) -> Vec<String> {
    let mut counts: Vec<(String, &str, usize)> = Vec::new();
    for (cell, reason) in cells {
        let column = cell.column();
        match counts
            .iter_mut()
            .find(|(known, why, _)| *known == column && *why == reason)
        {
            Some((_, _, count)) => *count += 1,
            None => counts.push((column, reason, 1)),
        }
    }
    let line = |(column, reason, count): (String, &str, usize)| match count {
        1 => format!("not compared: a score of {column}: {reason}"),
        _ => format!("not compared: {count} scores of {column}, of each: {reason}"),
    };
    counts.into_iter().map(line).collect()
}
