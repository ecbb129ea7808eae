//! Numbered lines of a raw text file, with a bound on their length: a damaged file cannot fill the
//! memory.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;

use disk::without_mark;

use crate::archive::unreadable;
use crate::error::{Error, Result};

/// Returns the error message for text in UTF-16 or UTF-32, told by its byte order mark or its zero
/// bytes, and for zero bytes alone; `None` for other text.
pub(crate) fn wide(text: &[u8]) -> Option<&'static str> {
    let zeros = text.iter().filter(|byte| **byte == 0).count();
    let begins = |marks: [&[u8]; 2]| marks.iter().any(|mark| text.starts_with(mark));
    // The mark of UTF-16 is the beginning of one of UTF-32.
    if begins([b"\xff\xfe\0\0", b"\0\0\xfe\xff"])
        || is_utf32(text, u32::from_le_bytes)
        || is_utf32(text, u32::from_be_bytes)
    {
        Some("text in UTF-32: save it as UTF-8")
    } else if !text.is_empty() && zeros == text.len() {
        Some("zero bytes instead of text")
    } else if begins([b"\xff\xfe", b"\xfe\xff"]) || zeros > 0 && zeros >= text.len() / 4 {
        Some("text in UTF-16: save it as UTF-8")
    } else {
        None
    }
}

/// Returns whether the first words of four bytes of a text are all characters in UTF-32.
fn is_utf32(text: &[u8], number: fn([u8; 4]) -> u32) -> bool {
    let mut words = text.chunks_exact(4).take(64).peekable();
    let is_character = |word: &[u8]| {
        let number = word.try_into().map(number).unwrap_or(0);
        number > 0 && char::from_u32(number).is_some()
    };
    words.peek().is_some() && words.all(is_character)
}

/// Returns whether a text is a web page, which a server may have sent in place of a file.
pub(crate) fn is_web_page(text: &[u8]) -> bool {
    let text = without_mark(text).trim_ascii_start();
    let begins = |tag: &[u8]| {
        let start = text.get(..tag.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(tag))
    };
    begins(b"<!doctype html") || begins(b"<html")
}

/// Returns the whole number that a text spells, as `2` or as `2.0`.
pub(crate) fn whole_number(text: &str) -> Option<i64> {
    let text = text.trim();
    let spelt = || text.parse().ok().and_then(whole);
    text.parse().ok().or_else(spelt)
}

/// Returns a number as an integer if it has no fraction.
pub(crate) fn whole(number: f64) -> Option<i64> {
    // Labels are small; floats of this size are exact.
    (number.fract() == 0.0 && number.abs() < 1e15).then_some(number as i64)
}

/// Size of a byte order mark, in bytes.
const MARK: u64 = 3;

/// A line that was read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Line {
    /// Line number from 1, empty lines counted.
    pub(crate) number: u64,
    /// True if the line ended in a line feed: only the last line of a file can lack it.
    pub(crate) ended: bool,
}

/// Reader of the lines of a file's content.
pub(crate) struct Lines<R> {
    path: PathBuf,
    input: BufReader<R>,
    number: u64,
    longest: u64,
}

impl<R: Read> Lines<R> {
    /// Returns a reader of lines of at most `longest` bytes from `input`; `path` is for messages.
    pub(crate) fn over(path: PathBuf, input: R, longest: u64) -> Lines<R> {
        Lines {
            path,
            input: BufReader::with_capacity(1 << 20, input),
            number: 0,
            longest,
        }
    }

    /// Appends the next line that is not empty to `buffer`, without its line ending (LF or CRLF),
    /// the first line without a byte order mark. Returns `None` at the end of the file.
    ///
    /// # Errors
    /// The file cannot be read, or the line is too long.
    pub(crate) fn next(&mut self, buffer: &mut Vec<u8>) -> Result<Option<Line>> {
        let start = buffer.len();
        loop {
            let mark = if self.number == 0 { MARK } else { 0 };
            let mut bounded = (&mut self.input).take(self.longest + 2 + mark);
            let taken = bounded
                .read_until(b'\n', buffer)
                .map_err(unreadable(&self.path))?;
            if taken == 0 {
                return Ok(None);
            }
            self.number += 1;
            let ended = buffer.last() == Some(&b'\n');
            for end in [b'\n', b'\r'] {
                if buffer.len() > start && buffer.last() == Some(&end) {
                    buffer.pop();
                }
            }
            if self.number == 1 {
                let line = &buffer[start..];
                if let Some(problem) = wide(line) {
                    return Err(self.wrong(1, problem.to_owned()));
                }
                let mark = line.len() - without_mark(line).len();
                buffer.drain(start..start + mark);
            }
            if (buffer.len() - start) as u64 > self.longest {
                return Err(self.wrong(
                    self.number,
                    format!("the line is longer than {} bytes", self.longest),
                ));
            }
            // Empty lines are the rest of CR CR LF, or the end of the file.
            if buffer.len() > start {
                let number = self.number;
                return Ok(Some(Line { number, ended }));
            }
        }
    }

    /// Returns an error about one line.
    pub(crate) fn wrong(&self, line: u64, problem: String) -> Error {
        Error::Row {
            file: self.path.clone(),
            line,
            problem,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_numbered_and_bounded() {
        let read = |text: &str| {
            let mut lines = Lines::over(PathBuf::from("a.tsv"), text.as_bytes(), 4);
            let mut read = Vec::new();
            loop {
                let mut line = Vec::new();
                match lines.next(&mut line) {
                    Ok(Some(Line { number, ended })) => {
                        read.push((number, String::from_utf8(line).unwrap(), ended));
                    }
                    Ok(None) => return Ok(read),
                    Err(error) => return Err(error.to_string()),
                }
            }
        };
        let lines = read("four\r\n\n\r\n \nend").unwrap();
        let expected = [(1, "four", true), (4, " ", true), (5, "end", false)];
        assert_eq!(lines.len(), expected.len());
        for (line, (number, text, ended)) in lines.iter().zip(expected) {
            assert_eq!(line, &(number, text.to_owned(), ended));
        }
        let marked = read("\u{feff}four\r\nfour").unwrap();
        assert_eq!(marked[0], (1, "four".to_owned(), true));
        assert_eq!(marked[1], (2, "four".to_owned(), false));
        for (text, line) in [
            ("\nfour\nfives\n", 3),
            ("\u{feff}fives", 1),
            ("fives\r\n", 1),
        ] {
            let told = format!("a.tsv:{line}: the line is longer than 4 bytes");
            assert_eq!(read(text).unwrap_err(), told);
        }
    }

    #[test]
    fn wide_text_is_told_by_its_form() {
        let words = "Sourc\u{e9} \u{1f600}";
        let marked = format!("\u{feff}{words}");
        for text in [words, &marked] {
            let wide_by = |bytes: Vec<u8>| wide(&bytes).unwrap_or("plain");
            let long = || text.chars().map(u32::from);
            for bytes in [
                long().flat_map(u32::to_le_bytes).collect(),
                long().flat_map(u32::to_be_bytes).collect(),
            ] {
                assert!(wide_by(bytes).starts_with("text in UTF-32"), "{text}");
            }
            for bytes in [
                text.encode_utf16().flat_map(u16::to_le_bytes).collect(),
                text.encode_utf16().flat_map(u16::to_be_bytes).collect(),
            ] {
                assert!(wide_by(bytes).starts_with("text in UTF-16"), "{text}");
            }
            assert_eq!(wide(text.as_bytes()), None);
        }
        assert_eq!(wide(b""), None);
        assert_eq!(wide(&[0; 8]), Some("zero bytes instead of text"));
    }
}
