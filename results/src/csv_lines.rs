//! Line numbers of CSV files.

use csv::{Error, ErrorKind, Position};

/// Returns the number of the line, from 1, at which the record at `position` of the text `bytes`
/// begins. The reader's own number is one too small where lines end in `\r\n`, as Excel and Python
/// write them.
pub(crate) fn line_of(bytes: &[u8], position: &Position) -> u64 {
    let start = usize::try_from(position.byte()).unwrap_or(usize::MAX);
    let (before, rest) = bytes.split_at(start.min(bytes.len()));
    let ends = rest.iter().take_while(|byte| b"\r\n".contains(byte));
    let breaks = before.iter().chain(ends).filter(|byte| **byte == b'\n');
    1 + breaks.count() as u64
}

/// Returns the line of an error, 1 if it has none, and its reason without a line number.
pub(crate) fn located(bytes: &[u8], error: &Error) -> (u64, String) {
    let line = error.position().map_or(1, |at| line_of(bytes, at));
    let reason = match error.kind() {
        ErrorKind::UnequalLengths {
            expected_len, len, ..
        } => format!("its number of fields is {len}, that of the first line {expected_len}"),
        ErrorKind::Utf8 { err, .. } => format!("field {} is not UTF-8", err.field() + 1),
        ErrorKind::Deserialize { err, .. } => err.to_string(),
        _ => error.to_string(),
    };
    (line, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_an_editor_whatever_they_end_in() {
        for end in ["\n", "\r\n"] {
            let text = ["a,b", "1,2", "\"3\n\",4", "", "5", "6,7"].join(end);
            let mut reader = csv::ReaderBuilder::new()
                .flexible(true)
                .from_reader(text.as_bytes());
            let lines: Vec<u64> = reader
                .records()
                .map(|record| line_of(text.as_bytes(), record.unwrap().position().unwrap()))
                .collect();
            assert_eq!(lines, [2, 3, 6, 7], "{end:?}");
            let mut strict = csv::Reader::from_reader(text.as_bytes());
            let error = strict.records().find_map(Result::err).unwrap();
            let (line, reason) = located(text.as_bytes(), &error);
            assert_eq!(line, 6, "{end:?}");
            assert_eq!(
                reason,
                "its number of fields is 1, that of the first line 2"
            );
        }
    }
}
