//! Parquet files of two columns: bytes (text or an encoded image) and a whole number.
//!
//! The format is the `parquet` crate's business. It trusts what a file states, though, so the sizes of row groups, columns
//! and pages are held against limits first ([`pages`]), and where it still panics on damage, that is an error ([`guard`]).

mod guard;
mod pages;

use std::fs;
use std::path::Path;

use guard::guarded;
use parquet::column::reader::ColumnReader;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};

use crate::archive::regular;
use crate::error::{Error, Result, io};

/// Rows that are decoded at once.
const ROWS: usize = 256;

/// What two columns to read, and how large a value of the first may be.
pub(crate) struct Columns {
    /// Path of the column of bytes, its parts joined by dots.
    pub(crate) bytes: &'static str,
    /// Name of the column of whole numbers.
    pub(crate) number: &'static str,
    /// Longest value of the column of bytes.
    pub(crate) longest: usize,
}

/// Takes a row: its number from 1, its bytes, its whole number.
pub(crate) type Visit<'a> = dyn FnMut(u64, &[u8], i64) -> Result<()> + 'a;

/// Gives every row of a file to `visit`. Returns how many there are.
///
/// # Errors
/// The file is no parquet file, is damaged, lacks a column or has it in another type or with gaps; and those of `visit`.
pub(crate) fn read(path: &Path, columns: &Columns, visit: &mut Visit<'_>) -> Result<u64> {
    let damaged = |error: &dyn std::fmt::Display| Error::File {
        file: path.to_owned(),
        problem: format!("not a readable parquet file: {error}"),
    };
    let file = regular(path)?;
    let bytes = fs::metadata(path).map_err(io("read", path))?.len();
    let reader = guarded(|| SerializedFileReader::new(file)).map_err(|error| damaged(&error))?;
    let schema = reader.metadata().file_metadata().schema_descr_ptr();
    let place = |name: &str| {
        let found = (0..schema.num_columns()).find(|&i| schema.column(i).path().string() == name);
        found.ok_or_else(|| {
            let have: Vec<_> = (0..schema.num_columns())
                .map(|i| schema.column(i).path().string())
                .collect();
            damaged(&format!(
                "it has no column `{name}`, but {}",
                have.join(", ")
            ))
        })
    };
    let places = [place(columns.bytes)?, place(columns.number)?];
    for place in places {
        if schema.column(place).max_rep_level() > 0 {
            return Err(damaged(&format!(
                "column `{}` holds lists",
                schema.column(place).path()
            )));
        }
    }

    let mut rows = 0;
    for group in 0..reader.num_row_groups() {
        let metadata = reader.metadata().row_group(group);
        for place in places {
            pages::check(path, metadata.column(place), bytes)
                .map_err(|problem| damaged(&format!("row group {}: {problem}", group + 1)))?;
        }
        let [bytes, number] = guarded(|| {
            let group = reader.get_row_group(group)?;
            Ok([
                Column::open(&*group, places[0])?,
                Column::open(&*group, places[1])?,
            ])
        })
        .map_err(|error| damaged(&error))?;
        let mut group = Group {
            path,
            columns,
            bytes,
            number,
        };
        rows = group.read(rows, visit)?;
    }
    Ok(rows)
}

struct Group<'a> {
    path: &'a Path,
    columns: &'a Columns,
    bytes: Column,
    number: Column,
}

impl Group<'_> {
    /// Gives the rows of one group to `visit`, which have the numbers after `rows`; returns the last one's.
    fn read(&mut self, mut rows: u64, visit: &mut Visit<'_>) -> Result<u64> {
        loop {
            let next = rows + 1;
            let wrong = |problem: String| Error::Row {
                file: self.path.to_owned(),
                line: next,
                problem,
            };
            let (bytes, numbers) = match (self.bytes.next(), self.number.next()) {
                (Ok(Values::Bytes(bytes)), Ok(Values::Numbers(numbers))) => (bytes, numbers),
                (Err(problem), _) | (_, Err(problem)) => {
                    return Err(wrong(format!("or one of the rows after it: {problem}")));
                }
                _ => {
                    return Err(wrong(format!(
                        "`{}` is not bytes, or `{}` not a whole number of 64 bits",
                        self.columns.bytes, self.columns.number
                    )));
                }
            };
            if bytes.len() != numbers.len() {
                return Err(wrong("the columns have different lengths".to_owned()));
            }
            if bytes.is_empty() {
                return Ok(rows);
            }
            for (bytes, number) in bytes.iter().zip(numbers) {
                rows += 1;
                if bytes.len() > self.columns.longest {
                    return Err(Error::Row {
                        file: self.path.to_owned(),
                        line: rows,
                        problem: format!(
                            "{} bytes in `{}`, more than {}",
                            bytes.len(),
                            self.columns.bytes,
                            self.columns.longest
                        ),
                    });
                }
                visit(rows, bytes.data(), number)?;
            }
        }
    }
}

enum Values {
    Bytes(Vec<parquet::data_type::ByteArray>),
    Numbers(Vec<i64>),
}

/// One column of one row group.
struct Column {
    reader: ColumnReader,
    /// The definition level of a value that is there; below it lie gaps.
    present: i16,
}

impl Column {
    fn open(group: &dyn RowGroupReader, place: usize) -> parquet::errors::Result<Column> {
        let description = group.metadata().column(place).column_descr_ptr();
        Ok(Column {
            reader: group.get_column_reader(place)?,
            present: description.max_def_level(),
        })
    }

    /// The next values; none at the end.
    fn next(&mut self) -> Result<Values, String> {
        let mut levels = Vec::new();
        let mut bytes = Vec::new();
        let mut numbers = Vec::new();
        let (rows, values, _) = guarded(|| match &mut self.reader {
            ColumnReader::ByteArrayColumnReader(reader) => {
                reader.read_records(ROWS, Some(&mut levels), None, &mut bytes)
            }
            ColumnReader::Int64ColumnReader(reader) => {
                reader.read_records(ROWS, Some(&mut levels), None, &mut numbers)
            }
            _ => Err(ParquetError::General(
                "a column has another type".to_owned(),
            )),
        })
        .map_err(|error| error.to_string())?;
        if values != rows || levels.iter().any(|&level| level != self.present) {
            return Err("a value is missing".to_owned());
        }
        Ok(match self.reader {
            ColumnReader::Int64ColumnReader(_) => Values::Numbers(numbers),
            _ => Values::Bytes(bytes),
        })
    }
}
