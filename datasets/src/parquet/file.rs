//! An open parquet file: its frame, its schema, and errors that name it.

use std::fs;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::schema::types::SchemaDescPtr;

use super::UNEQUAL;
use super::fault::Fault;
use super::guard::guarded;
use super::labels::Meaning;
use super::{arrow, pages};
use crate::archive::{POINTED, POINTER_BYTES, is_pointer, packed_by};
use crate::error::{Error, Result, io};
use crate::files;

/// An open file whose frame is checked.
pub(super) struct File<'a> {
    path: &'a Path,
    bytes: u64,
    pub(super) reader: SerializedFileReader<fs::File>,
}

impl File<'_> {
    pub(super) fn open(path: &Path) -> Result<File<'_>> {
        let file = files::open(path)?;
        let bytes = fs::metadata(path).map_err(io("read", path))?.len();
        let mut start = Vec::new();
        let mut first = (&file).take(POINTER_BYTES);
        first.read_to_end(&mut start).map_err(io("read", path))?;
        if is_pointer(&start) {
            return Err(damaged(path, &POINTED));
        }
        if let Some((format, _)) = packed_by(&start) {
            let problem = format!("compressed by {format} as a whole: unpack it");
            return Err(damaged(path, &problem));
        }
        let reader = guarded(|| SerializedFileReader::new(file))
            .map_err(|error| failed(path, error.into(), ""))?;
        if is_joined(path, reader.metadata(), bytes)? {
            return Err(damaged(
                path,
                &"two parquet files in one, of which only the last would be read: keep them as two files",
            ));
        }
        Ok(File {
            path,
            bytes,
            reader,
        })
    }

    pub(super) fn schema(&self) -> SchemaDescPtr {
        self.reader.metadata().file_metadata().schema_descr_ptr()
    }

    /// Returns the place of the first of these columns that the file has.
    pub(super) fn place(&self, names: &[&str]) -> Result<usize> {
        let have = self.columns();
        let twice = |name: &&&str| have.iter().filter(|one| one == *name).count() > 1;
        if let Some(name) = names.iter().find(twice) {
            return Err(self.damaged(&format!("it has the column `{name}` twice")));
        }
        let mut here = names
            .iter()
            .filter_map(|name| have.iter().position(|one| one == name));
        here.next().ok_or_else(|| self.absent(names))
    }

    fn columns(&self) -> Vec<String> {
        let schema = self.schema();
        (0..schema.num_columns())
            .map(|place| schema.column(place).path().string())
            .collect()
    }

    pub(super) fn absent(&self, names: &[&str]) -> Error {
        self.damaged(&format!(
            "it has no column `{}`, but {}",
            names.join("` or `"),
            self.columns().join(", ")
        ))
    }

    pub(super) fn meaning_of_labels(&self, place: usize, label: &str) -> Result<Meaning> {
        let meaning = Meaning::of(&self.schema().column(place));
        let meaning = meaning.map_err(|problem| self.damaged(&problem))?;
        match arrow::is_duration(self.reader.metadata().file_metadata(), label) {
            true => Err(self.damaged(&format!(
                "column `{label}` holds durations, which cannot be labels"
            ))),
            false => Ok(meaning),
        }
    }

    /// Checks the pages of some columns of a row group.
    pub(super) fn check(&self, group: usize, places: &[usize]) -> Result<()> {
        let metadata = self.reader.metadata().row_group(group);
        for place in places {
            pages::check(self.path, metadata.column(*place), self.bytes)
                .map_err(|fault| self.failed(fault, &format!("row group {}: ", group + 1)))?;
        }
        Ok(())
    }

    pub(super) fn damaged(&self, error: &dyn std::fmt::Display) -> Error {
        damaged(self.path, error)
    }

    pub(super) fn failed(&self, fault: Fault, of: &str) -> Error {
        failed(self.path, fault, of)
    }

    pub(super) fn failed_at(&self, row: u64, fault: Fault, before: &str) -> Error {
        match fault {
            Fault::System(cause) => io("read", self.path)(cause),
            Fault::Content(problem) => Error::Row {
                file: self.path.to_owned(),
                line: row,
                problem: format!("{before}{problem}"),
            },
        }
    }

    pub(super) fn unequal(&self, row: u64) -> Error {
        let problem = UNEQUAL.to_owned();
        self.failed_at(row, Fault::Content(problem), "")
    }
}

fn damaged(path: &Path, error: &dyn std::fmt::Display) -> Error {
    Error::File {
        file: path.to_owned(),
        problem: format!("not a readable parquet file: {error}"),
    }
}

fn failed(path: &Path, fault: Fault, of: &str) -> Error {
    match fault {
        Fault::System(cause) => io("read", path)(cause),
        Fault::Content(problem) => damaged(path, &format!("{of}{problem}")),
    }
}

/// Mark at the beginning and at the end of a file.
const MARK: &[u8] = b"PAR1";

/// Returns whether a file of so many bytes is several files, one behind the other. Such a file is
/// longer than its last part describes, and in it a beginning follows an end.
fn is_joined(path: &Path, metadata: &ParquetMetaData, bytes: u64) -> Result<bool> {
    let columns = metadata
        .row_groups()
        .iter()
        .flat_map(|group| group.columns());
    // A damaged file may state any sizes.
    let described = columns
        .map(|column| u64::try_from(column.compressed_size()).unwrap_or(0))
        .fold(0, u64::saturating_add);
    let mut file = files::open(path)?;
    let mut end = [0; 8];
    let read = file.seek(SeekFrom::End(-(end.len() as i64)));
    read.and_then(|_| file.read_exact(&mut end))
        .map_err(io("read", path))?;
    // A file ends in its footer, the length of that, and the mark.
    let footer = u64::from(u32::from_le_bytes([end[0], end[1], end[2], end[3]]));
    let marks = (MARK.len() + end.len()) as u64;
    if described.saturating_add(footer + marks) >= bytes {
        return Ok(false);
    }
    // Indexes of pages may be what is not described.
    file.rewind().map_err(io("read", path))?;
    let joint = [MARK, MARK].concat();
    let mut file = BufReader::new(file);
    // The bytes that a joint may begin with, behind those that were searched.
    let mut kept: Vec<u8> = Vec::new();
    loop {
        let read = file.fill_buf().map_err(io("read", path))?;
        if read.is_empty() {
            return Ok(false);
        }
        let count = read.len();
        kept.extend_from_slice(read);
        file.consume(count);
        if kept.windows(joint.len()).any(|part| part == joint) {
            return Ok(true);
        }
        kept.drain(..kept.len().saturating_sub(joint.len() - 1));
    }
}
