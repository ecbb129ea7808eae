//! Parquet files: a label (a number of any type, or a word, [`labels`]) beside bytes (text or an
//! encoded image, [`read`]) or beside fields of texts and lists of numbers ([`read_fields`],
//! [`nested`]).
//!
//! The format is left to the `parquet` crate. The crate trusts the sizes stated in a file, though,
//! so the sizes of row groups, columns and pages are checked against limits first ([`pages`]), and
//! a panic of the crate on damaged data becomes an error ([`guard`]).

mod arrow;
mod fault;
mod file;
mod guard;
mod labels;
mod nested;
mod pages;

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use fault::Fault;
use file::File;
use guard::guarded;
use labels::{Meaning, Unfit};
use nested::NestedColumn;
use parquet::column::reader::ColumnReader;
use parquet::data_type::ByteArray;
use parquet::file::reader::{FileReader, RowGroupReader};
use serde_json::{Map, Value};

use crate::duplicates::RowHash;
use crate::error::{Error, Result, io};
use crate::lines::whole_number;
use crate::words::counted;

/// Number of rows decoded at once.
const ROWS: usize = 256;

/// The two columns to read, and the maximum size of a value of the first.
pub(crate) struct Columns<'a> {
    /// Possible paths of the column of bytes, parts joined by dots; the first one that the file has
    /// is read.
    pub(crate) bytes: &'static [&'static str],
    /// Name of the column of labels.
    pub(crate) label: &'static str,
    /// Function from a word to its label.
    pub(crate) label_of: &'a dyn Fn(&str) -> Option<i64>,
    /// Maximum length of a value in the column of bytes.
    pub(crate) longest: usize,
}

/// Function that takes a row: its number from 1, its bytes, its label.
pub(crate) type Visit<'a> = dyn FnMut(u64, &[u8], i64) -> Result<()> + 'a;

/// Passes every row of a file to `visit`. Returns the number of rows.
///
/// # Errors
/// The file is not a parquet file, is damaged, lacks a column or has it in another type or with
/// gaps, or `visit` fails.
pub(crate) fn read(path: &Path, columns: &Columns<'_>, visit: &mut Visit<'_>) -> Result<u64> {
    let file = File::open(path)?;
    let places = [file.place(columns.bytes)?, file.place(&[columns.label])?];
    let schema = file.schema();
    for place in places {
        if schema.column(place).max_rep_level() > 0 {
            let path = schema.column(place).path().string();
            return Err(file.damaged(&format!("column `{path}` holds lists")));
        }
    }
    let meaning = file.meaning_of_labels(places[1], columns.label)?;
    let mut rows = 0;
    for group in 0..file.reader.num_row_groups() {
        file.check(group, &places)?;
        let [bytes, labels] = guarded(|| {
            let group = file.reader.get_row_group(group)?;
            Ok([
                Column::open(&*group, places[0])?,
                Column::open(&*group, places[1])?,
            ])
        })
        .map_err(|error| file.failed(error.into(), ""))?;
        let mut group = Group {
            path,
            columns,
            bytes,
            labels,
            meaning,
        };
        rows = group.read(rows, visit)?;
    }
    Ok(rows)
}

/// Function that takes a row of one of several files: the file, the number from 1, the bytes, the
/// label. It returns the hash of the content, by which equal rows are found.
pub(crate) type VisitOfFile<'a> = dyn FnMut(&Path, u64, &[u8], i64) -> Result<RowHash> + 'a;

/// Passes every row of the files of one split to `visit`.
///
/// # Errors
/// Those of [`read`]; also if half of the rows of a file are in other files, too. Names,
/// compression and division of the files do not matter.
pub(crate) fn read_split(
    files: &[PathBuf],
    columns: &Columns<'_>,
    visit: &mut VisitOfFile<'_>,
) -> Result<()> {
    // The first file with each row, and whether a later one has it too.
    let mut first: HashMap<RowHash, (usize, bool)> = HashMap::new();
    // The number of different rows of each file, and an earlier file with one of them.
    let mut files_read: Vec<(usize, Option<usize>)> = Vec::new();
    let mut earlier: Vec<usize> = Vec::new();
    for (index, file) in files.iter().enumerate() {
        let mut own: HashSet<RowHash> = HashSet::new();
        read(file, columns, &mut |row, bytes, label| {
            own.insert(visit(file, row, bytes, label)?);
            Ok(())
        })?;
        let (mut count, mut other) = (0, None);
        for hash in &own {
            match first.get_mut(hash) {
                Some((known, again)) => {
                    (count, *again, other) = (count + 1, true, Some(*known));
                }
                None => {
                    first.insert(*hash, (index, false));
                }
            }
        }
        files_read.push((own.len(), other));
        earlier.push(count);
    }
    let mut shared = earlier;
    for (index, again) in first.into_values() {
        shared[index] += usize::from(again);
    }
    for (index, ((rows, other), shared)) in files_read.into_iter().zip(shared).enumerate() {
        // The last part of a whole may have a single row, which proves nothing.
        if shared > 1 && 2 * shared >= rows {
            let other = other.map_or_else(String::new, |other| {
                format!(", such as {}", files[other].display())
            });
            return Err(Error::File {
                file: files[index].clone(),
                problem: format!(
                    "of its {}, {shared} are in other files of the split, too{other}: the same rows would be read twice; \
                     keep one of the exports",
                    counted(rows, "different row")
                ),
            });
        }
    }
    Ok(())
}

/// Function from a word to its label.
pub(crate) type LabelOf<'a> = dyn Fn(&str) -> Option<i64> + 'a;

/// Function that takes a row: its number from 1, its fields, its label.
pub(crate) type VisitFields<'a> = dyn FnMut(u64, Map<String, Value>, i64) -> Result<()> + 'a;

/// Passes every row of a file to `visit`: those of the fields `names` that the file has, which hold
/// texts, numbers, or lists of numbers, and the label in the column `label`. Returns the number of
/// rows.
///
/// # Errors
/// The file is not a parquet file, is damaged, has none of the fields or no label, has them in
/// another type, or `visit` fails.
pub(crate) fn read_fields(
    path: &Path,
    names: &[String],
    (label, label_of): (&str, &LabelOf<'_>),
    visit: &mut VisitFields<'_>,
) -> Result<u64> {
    let file = File::open(path)?;
    let schema = file.schema();
    let mut found = Vec::new();
    for root in schema.root_schema().get_fields() {
        if !names.iter().any(|name| name == root.name()) {
            continue;
        }
        let place = (0..schema.num_columns()).find(|place| {
            schema
                .column(*place)
                .path()
                .parts()
                .first()
                .map(String::as_str)
                == Some(root.name())
        });
        match place {
            Some(place) if found.iter().all(|(other, _)| *other != place) => {
                found.push((place, root));
            }
            _ => {
                let problem = format!("it has the column `{}` twice", root.name());
                return Err(file.damaged(&problem));
            }
        }
    }
    if found.is_empty() {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        return Err(file.absent(&names));
    }
    let labels = file.place(&[label])?;
    let meaning = file.meaning_of_labels(labels, label)?;
    if schema.column(labels).max_rep_level() > 0 {
        return Err(file.damaged(&format!("column `{label}` holds lists")));
    }
    let mut rows = 0;
    for group in 0..file.reader.num_row_groups() {
        let places: Vec<usize> = found
            .iter()
            .map(|(place, _)| *place)
            .chain([labels])
            .collect();
        file.check(group, &places)?;
        let failed = |fault: Fault| file.failed(fault, &format!("row group {}: ", group + 1));
        let reader = guarded(|| file.reader.get_row_group(group));
        let reader = reader.map_err(|error| failed(error.into()))?;
        let mut columns = found
            .iter()
            .map(|(place, root)| NestedColumn::open(&*reader, *place, root))
            .collect::<Result<Vec<_>, _>>()
            .map_err(failed)?;
        let mut labels =
            guarded(|| Column::open(&*reader, labels)).map_err(|error| failed(error.into()))?;
        loop {
            let of_labels =
                |fault: Fault| file.failed_at(rows + 1, fault, "or one of the rows after it: ");
            let numbers = labels.numbers(meaning, label_of).map_err(of_labels)?;
            if numbers.is_empty() {
                break;
            }
            for number in numbers {
                rows += 1;
                let mut fields = Map::new();
                for (column, (_, root)) in columns.iter_mut().zip(&found) {
                    let value = column
                        .next()
                        .map_err(|fault| file.failed_at(rows, fault, ""))?;
                    let value = value.ok_or_else(|| file.unequal(rows))?;
                    fields.insert(root.name().to_owned(), value);
                }
                visit(rows, fields, number)?;
            }
        }
        for column in &mut columns {
            let next = column
                .next()
                .map_err(|fault| file.failed_at(rows + 1, fault, ""))?;
            if next.is_some() {
                return Err(file.unequal(rows + 1));
            }
        }
    }
    Ok(rows)
}

/// Fault of columns that end at different rows.
const UNEQUAL: &str = "the columns have different lengths";

struct Group<'a> {
    path: &'a Path,
    columns: &'a Columns<'a>,
    bytes: Column,
    labels: Column,
    meaning: Meaning,
}

impl Group<'_> {
    /// Passes the rows of one group, numbered from `rows + 1`, to `visit`; returns the number of
    /// the last one.
    fn read(&mut self, mut rows: u64, visit: &mut Visit<'_>) -> Result<u64> {
        loop {
            let next = rows + 1;
            let wrong = |problem: String| Error::Row {
                file: self.path.to_owned(),
                line: next,
                problem,
            };
            let or_after = |fault: Fault| match fault {
                Fault::System(cause) => io("read", self.path)(cause),
                Fault::Content(problem) => wrong(format!("or one of the rows after it: {problem}")),
            };
            let bytes = self.bytes.bytes().map_err(or_after)?;
            let numbers = self
                .labels
                .numbers(self.meaning, self.columns.label_of)
                .map_err(or_after)?;
            if bytes.len() != numbers.len() {
                return Err(wrong(UNEQUAL.to_owned()));
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
                            self.bytes.name,
                            self.columns.longest
                        ),
                    });
                }
                visit(rows, bytes.data(), number)?;
            }
        }
    }
}

/// One column of one row group.
struct Column {
    name: String,
    reader: ColumnReader,
    /// Definition level of a value that is present; lower levels mark gaps.
    present: i16,
}

/// Returns the next values of a column from its reader of this type; empty at the end.
macro_rules! next_values {
    ($column:expr, $reader:expr) => {{
        let (mut levels, mut values) = (Vec::new(), Vec::new());
        let read = guarded(|| $reader.read_records(ROWS, Some(&mut levels), None, &mut values));
        let (rows, count, _) = read?;
        if count != rows || levels.iter().any(|&level| level != $column.present) {
            return Err(format!("a value of `{}` is missing", $column.name).into());
        }
        values
    }};
}

impl Column {
    fn open(group: &dyn RowGroupReader, place: usize) -> parquet::errors::Result<Column> {
        let description = group.metadata().column(place).column_descr_ptr();
        Ok(Column {
            name: description.path().string(),
            reader: group.get_column_reader(place)?,
            present: description.max_def_level(),
        })
    }

    /// Returns the next values of a column of bytes or text; empty at the end.
    fn bytes(&mut self) -> Result<Vec<ByteArray>, Fault> {
        match &mut self.reader {
            ColumnReader::ByteArrayColumnReader(reader) => Ok(next_values!(self, reader)),
            _ => Err(format!("column `{}` is neither bytes nor text", self.name).into()),
        }
    }

    /// Returns the next values of a column of labels as numbers; empty at the end. `label_of`
    /// converts words.
    fn numbers(
        &mut self,
        meaning: Meaning,
        label_of: &dyn Fn(&str) -> Option<i64>,
    ) -> Result<Vec<i64>, Fault> {
        let name = &self.name;
        let unfit = |Unfit { number, problem }: Unfit| {
            Fault::from(format!("the label {number} of `{name}` {problem}"))
        };
        let float = |value: f64| labels::of_float(value).map_err(unfit);
        // The same stored bytes with a sign and without.
        let integer = |value: i64, unsigned: u64| match meaning {
            Meaning::Decimal { scale } => labels::of_decimal(value.into(), scale).map_err(unfit),
            Meaning::Unsigned => labels::of_unsigned(unsigned).map_err(unfit),
            _ => Ok(value),
        };
        let bytes = |value: &[u8]| match (meaning, value) {
            (Meaning::Decimal { scale }, _) => {
                let unscaled = labels::big_endian(value).ok_or_else(|| {
                    Fault::from(format!(
                        "a label of `{name}` is not a decimal of at most {} digits",
                        labels::MOST_DIGITS
                    ))
                })?;
                labels::of_decimal(unscaled, scale).map_err(unfit)
            }
            (Meaning::Half, &[low, high]) => float(labels::half(u16::from_le_bytes([low, high]))),
            _ => {
                let Ok(word) = std::str::from_utf8(value) else {
                    return Err(format!("a label of `{name}` is not text in UTF-8").into());
                };
                let label = label_of(word.trim()).or_else(|| whole_number(word));
                label.ok_or_else(|| {
                    let shown: String = word.chars().take(40).collect();
                    Fault::from(format!(
                        "the label `{shown}` of `{name}` is neither a number nor a known class"
                    ))
                })
            }
        };
        match &mut self.reader {
            ColumnReader::Int64ColumnReader(reader) => {
                let values = next_values!(self, reader);
                values
                    .into_iter()
                    .map(|value| integer(value, value.cast_unsigned()))
                    .collect()
            }
            ColumnReader::Int32ColumnReader(reader) => {
                let values = next_values!(self, reader);
                values
                    .into_iter()
                    .map(|value| integer(value.into(), value.cast_unsigned().into()))
                    .collect()
            }
            ColumnReader::BoolColumnReader(reader) => {
                let values = next_values!(self, reader).into_iter();
                let label = |value: bool| label_of(if value { "true" } else { "false" });
                Ok(values
                    .map(|value| label(value).unwrap_or(i64::from(value)))
                    .collect())
            }
            ColumnReader::FloatColumnReader(reader) => {
                let values = next_values!(self, reader);
                values
                    .into_iter()
                    .map(|value| float(value.into()))
                    .collect()
            }
            ColumnReader::DoubleColumnReader(reader) => {
                next_values!(self, reader).into_iter().map(float).collect()
            }
            ColumnReader::ByteArrayColumnReader(reader) => {
                let values = next_values!(self, reader);
                values.iter().map(|value| bytes(value.data())).collect()
            }
            ColumnReader::FixedLenByteArrayColumnReader(reader) => {
                let values = next_values!(self, reader);
                values.iter().map(|value| bytes(value.data())).collect()
            }
            _ => Err(format!("column `{name}` holds neither numbers nor words").into()),
        }
    }
}
