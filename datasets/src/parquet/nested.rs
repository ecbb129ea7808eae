//! Columns whose values are lists of numbers, or lists of such lists, as JSON values.
//!
//! A file stores the elements of all lists one behind the other, each with two levels. The
//! *repetition level* says which list goes on: 0 begins a new row, 1 a new element of the outer
//! list, 2 one of the inner list. The *definition level* says how much of the path to the element
//! is there; below its greatest value a list or an element is missing.

use parquet::basic::Repetition;
use parquet::column::reader::ColumnReader;
use parquet::file::reader::RowGroupReader;
use parquet::schema::types::{ColumnDescPtr, Type};
use serde_json::Value;

use super::fault::Fault;
use super::guard::guarded;
use super::labels::{self, Meaning};

/// Greatest number of elements of a row group: the crate keeps those of one row in memory.
const MOST_ELEMENTS: i64 = 1 << 27;

/// A column of texts, of numbers or of lists of numbers in one row group.
pub(super) struct NestedColumn {
    name: String,
    reader: ColumnReader,
    meaning: Meaning,
    /// Definition level at which a list has an element, from the outermost list.
    lists: Vec<i16>,
    /// Definition level of an element that is present.
    present: i16,
}

impl NestedColumn {
    /// Opens a column of a row group. `root` is the field of the schema that holds it.
    pub(super) fn open(
        group: &dyn RowGroupReader,
        place: usize,
        root: &Type,
    ) -> Result<NestedColumn, Fault> {
        let metadata = group.metadata().column(place);
        let description = metadata.column_descr_ptr();
        let name = root.name().to_owned();
        if metadata.num_values() > MOST_ELEMENTS {
            return Err(format!(
                "column `{name}` has {} numbers in a row group, more than {MOST_ELEMENTS}: write smaller row groups",
                metadata.num_values()
            )
            .into());
        }
        let meaning = Meaning::of_values(&description)?;
        Ok(NestedColumn {
            lists: lists(&name, &description, root)?,
            present: description.max_def_level(),
            reader: guarded(|| group.get_column_reader(place))?,
            meaning,
            name,
        })
    }

    /// Returns the value of the next row, null where it has none; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<Value>, Fault> {
        let (mut definition, mut repetition) = (Vec::new(), Vec::new());
        macro_rules! read {
            ($reader:expr, $value:expr) => {{
                let mut values = Vec::new();
                let levels = (&mut definition, &mut repetition);
                let read = || $reader.read_records(1, Some(levels.0), Some(levels.1), &mut values);
                let (rows, ..) = guarded(read)?;
                if rows == 0 {
                    return Ok(None);
                }
                values
                    .iter()
                    .map($value)
                    .collect::<Result<Vec<Value>, Fault>>()?
            }};
        }
        let (name, meaning) = (&self.name, self.meaning);
        let values = match &mut self.reader {
            ColumnReader::Int32ColumnReader(reader) => read!(reader, |value| Ok(match meaning {
                Meaning::Unsigned => value.cast_unsigned().into(),
                _ => (*value).into(),
            })),
            ColumnReader::Int64ColumnReader(reader) => read!(reader, |value| Ok(match meaning {
                Meaning::Unsigned => value.cast_unsigned().into(),
                _ => (*value).into(),
            })),
            ColumnReader::BoolColumnReader(reader) => {
                read!(reader, |value| Ok((*value).into()))
            }
            ColumnReader::FloatColumnReader(reader) => {
                read!(reader, |value| float(name, f64::from(*value)))
            }
            ColumnReader::DoubleColumnReader(reader) => {
                read!(reader, |value| float(name, *value))
            }
            ColumnReader::FixedLenByteArrayColumnReader(reader) => {
                read!(reader, |value| match value.data() {
                    &[low, high] if meaning == Meaning::Half => {
                        float(name, labels::half(u16::from_le_bytes([low, high])))
                    }
                    _ => Err(format!("column `{name}` holds bytes of a fixed length").into()),
                })
            }
            ColumnReader::ByteArrayColumnReader(reader) => {
                read!(reader, |value| match std::str::from_utf8(value.data()) {
                    Ok(text) => Ok(text.into()),
                    Err(_) => Err(format!("`{name}` is not text in UTF-8").into()),
                })
            }
            ColumnReader::Int96ColumnReader(_) => {
                return Err(format!("column `{name}` holds times").into());
            }
        };
        Ok(Some(self.assembled(&definition, &repetition, values)?))
    }

    /// Returns one row from its elements and their levels, which are empty where a column needs
    /// none.
    fn assembled(
        &self,
        definition: &[i16],
        repetition: &[i16],
        values: Vec<Value>,
    ) -> Result<Value, Fault> {
        let contradiction = || Fault::from(format!("levels of `{}` contradict", self.name));
        let mut values = values.into_iter();
        let mut row = Value::Null;
        let count = definition.len().max(repetition.len()).max(1);
        for index in 0..count {
            let definition = definition.get(index).copied().unwrap_or(self.present);
            let repetition = repetition.get(index).copied().unwrap_or(0);
            let depth = usize::try_from(repetition).map_err(|_| contradiction())?;
            let element = self.element(definition, depth, &mut values)?;
            // The list that goes on; at depth 0 the row begins.
            let mut place = &mut row;
            for _ in 1..depth {
                place = place
                    .as_array_mut()
                    .and_then(|items| items.last_mut())
                    .ok_or_else(contradiction)?;
            }
            match depth {
                0 => row = element,
                _ => place
                    .as_array_mut()
                    .ok_or_else(contradiction)?
                    .push(element),
            }
        }
        match values.next() {
            None => Ok(row),
            Some(_) => Err(contradiction()),
        }
    }

    /// Returns what begins at a depth: an element within as many new lists as are left.
    fn element(
        &self,
        definition: i16,
        depth: usize,
        values: &mut impl Iterator<Item = Value>,
    ) -> Result<Value, Fault> {
        match self.lists.get(depth) {
            None if definition == self.present => values
                .next()
                .ok_or_else(|| format!("levels of `{}` contradict", self.name).into()),
            None => Ok(Value::Null),
            Some(&filled) if definition >= filled => Ok(Value::Array(vec![self.element(
                definition,
                depth + 1,
                values,
            )?])),
            Some(&filled) if definition == filled - 1 => Ok(Value::Array(Vec::new())),
            Some(_) => Ok(Value::Null),
        }
    }
}

/// Returns a number as JSON, which has no infinity.
fn float(name: &str, number: f64) -> Result<Value, Fault> {
    match number.is_finite() {
        true => Ok(number.into()),
        false => Err(format!("`{name}` holds {number}, no number").into()),
    }
}

/// Returns the definition levels at which the lists on the path to a column have an element.
///
/// # Errors
/// The path has something other than lists, or more than two.
fn lists(name: &str, column: &ColumnDescPtr, root: &Type) -> Result<Vec<i16>, Fault> {
    let (mut levels, mut level) = (Vec::new(), 0);
    let mut field = root;
    loop {
        match field.get_basic_info().repetition() {
            Repetition::REQUIRED => {}
            Repetition::OPTIONAL => level += 1,
            Repetition::REPEATED => {
                level += 1;
                levels.push(level);
            }
        }
        if field.is_primitive() {
            break;
        }
        match field.get_fields() {
            [only] => field = only,
            _ => return Err(format!("column `{name}` holds structures of several fields").into()),
        }
    }
    if level != column.max_def_level() || levels.len() > 2 {
        return Err(format!("column `{name}` holds lists of lists of lists").into());
    }
    Ok(levels)
}
