//! The types that Arrow's writers record beside a file's own: durations have no type of their own in
//! parquet, and are stored as plain numbers.
//!
//! The record is a schema of Arrow's in a message of its exchange format, a table of Flatbuffers, in
//! base64. Of it only the types of the outermost columns are read. A record that cannot be read says
//! nothing.

use parquet::file::metadata::FileMetaData;

/// Key of the record.
const KEY: &str = "ARROW:schema";

/// Number of a schema among the kinds of messages.
const SCHEMA: u8 = 1;

/// Number of durations among the types of columns.
const DURATION: u8 = 18;

/// Returns whether Arrow's record says that a column holds durations.
pub(super) fn is_duration(file: &FileMetaData, column: &str) -> bool {
    let records = file.key_value_metadata().into_iter().flatten();
    let mut records = records.filter(|record| record.key == KEY);
    let recorded = records.find_map(|record| type_of(record.value.as_deref()?, column));
    recorded == Some(DURATION)
}

/// Returns the number of the type that a record gives for a column.
fn type_of(record: &str, column: &str) -> Option<u8> {
    let bytes = base64(record)?;
    // The length is behind a mark, which older writers lack.
    let start = if bytes.starts_with(&[0xff; 4]) { 8 } else { 4 };
    let message = Table {
        bytes: bytes.get(start..)?,
        place: 0,
    }
    .followed()?;
    if message.byte(1)? != SCHEMA {
        return None;
    }
    let fields = message.table(2)?.table(1)?;
    let field = |number: usize| {
        let place = fields.place.checked_add(4 * (number + 1))?;
        let field = Table { place, ..fields }.followed()?;
        let name = field.table(0)?;
        let text = name.place + 4;
        let text = fields.bytes.get(text..text.checked_add(name.number()?)?)?;
        (text == column.as_bytes()).then(|| field.byte(2))?
    };
    // Each field takes four bytes at least.
    let count = fields.number()?.min(bytes.len() / 4);
    (0..count).find_map(field)
}

/// A table of Flatbuffers, or another value, at a place.
#[derive(Clone, Copy)]
struct Table<'a> {
    bytes: &'a [u8],
    place: usize,
}

impl<'a> Table<'a> {
    /// Returns the number of four bytes at the place.
    fn number(self) -> Option<usize> {
        let number = self.bytes.get(self.place..)?.first_chunk()?;
        usize::try_from(u32::from_le_bytes(*number)).ok()
    }

    /// Returns what the number at the place leads to, counted from there.
    fn followed(self) -> Option<Table<'a>> {
        let place = self.place.checked_add(self.number()?)?;
        Some(Table { place, ..self })
    }

    /// Returns the place of a field, by its number from 0; `None` if the table lacks it.
    fn field(self, number: usize) -> Option<Table<'a>> {
        let back = i32::from_le_bytes(*self.bytes.get(self.place..)?.first_chunk()?);
        let start = i64::try_from(self.place).ok()? - i64::from(back);
        let layout = self.bytes.get(usize::try_from(start).ok()?..)?;
        let entry = |number: usize| {
            let entry = layout.get(2 * number..)?.first_chunk()?;
            Some(usize::from(u16::from_le_bytes(*entry)))
        };
        let length = entry(0)? / 2;
        let offset = (number + 2 < length).then(|| entry(number + 2))??;
        let place = self.place.checked_add(offset)?;
        (offset > 0).then_some(Table { place, ..self })
    }

    fn byte(self, field: usize) -> Option<u8> {
        let field = self.field(field)?;
        field.bytes.get(field.place).copied()
    }

    /// Returns the value that a field leads to.
    fn table(self, field: usize) -> Option<Table<'a>> {
        self.field(field)?.followed()
    }
}

/// Decodes base64; `None` for any other text.
fn base64(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=').bytes().map(|digit| {
        Some(match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        })
    });
    let digits = digits.collect::<Option<Vec<u8>>>()?;
    let decode = |group: &[u8]| {
        let append = |number: u32, &digit: &u8| number << 6 | u32::from(digit);
        let number = group.iter().fold(0, append) << (6 * (4 - group.len()));
        number.to_be_bytes()[1..group.len()].to_vec()
    };
    Some(digits.chunks(4).flat_map(decode).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Written by PyArrow for the columns `text` (text), `label` (duration) and `other` (int64).
    const WRITTEN: &str = "\
        /////+AAAAAQAAAAAAAKAAwABgAFAAgACgAAAAABBAAMAAAACAAIAAAABAAIAAAABAAAAAMAAACEAAAAQAAAAAQA\
        AACY////AAABAhAAAAAgAAAABAAAAAAAAAAFAAAAb3RoZXIAAAAIAAwACAAHAAgAAAAAAAABQAAAAND///8AAAES\
        EAAAABwAAAAEAAAAAAAAAAUAAABsYWJlbAAGAAgABgAGAAAAAAAAABAAFAAIAAYABwAMAAAAEAAQAAAAAAABBRAA\
        AAAcAAAABAAAAAAAAAAEAAAAdGV4dAAAAAAEAAQABAAAAA==";

    #[test]
    fn durations_are_told_from_other_columns() {
        assert_eq!(type_of(WRITTEN, "label"), Some(DURATION));
        assert_eq!(type_of(WRITTEN, "text"), Some(5));
        assert_eq!(type_of(WRITTEN, "other"), Some(2));
        assert_eq!(type_of(WRITTEN, "more"), None);
    }

    #[test]
    fn any_record_is_read_without_a_panic() {
        for end in 0..WRITTEN.len() {
            type_of(&WRITTEN[..end], "label");
            for digit in ["A", "/", "!"] {
                let mut damaged = WRITTEN.to_owned();
                damaged.replace_range(end..=end, digit);
                type_of(&damaged, "label");
            }
        }
    }
}
