//! Lines of a raw text file, numbered, with a bound on their length: a damaged file cannot fill the memory.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use crate::archive::unreadable;
use crate::error::{Error, Result, io};

/// The lines of one file, or of whatever holds its content.
pub(crate) struct Lines<R = File> {
    path: PathBuf,
    input: BufReader<R>,
    number: u64,
    longest: u64,
}

impl Lines {
    /// Opens a file whose lines have at most `longest` bytes.
    pub(crate) fn open(path: &Path, longest: u64) -> Result<Lines> {
        let file = File::open(path).map_err(io("read", path))?;
        Ok(Lines::over(path.to_owned(), file, longest))
    }
}

impl<R: Read> Lines<R> {
    /// Reads lines of at most `longest` bytes from `input`; `path` is for messages.
    pub(crate) fn over(path: PathBuf, input: R, longest: u64) -> Lines<R> {
        Lines {
            path,
            input: BufReader::with_capacity(1 << 20, input),
            number: 0,
            longest,
        }
    }

    /// Appends the next line to `buffer`, without its line feed or carriage return and line feed.
    /// Gives its number, from 1, and the bytes that it took in the file; nothing at the end of the file.
    ///
    /// # Errors
    /// The file cannot be read, or the line is too long.
    pub(crate) fn next(&mut self, buffer: &mut Vec<u8>) -> Result<Option<(u64, u64)>> {
        let start = buffer.len();
        let mut bounded = (&mut self.input).take(self.longest + 2);
        let taken = bounded
            .read_until(b'\n', buffer)
            .map_err(unreadable(&self.path))?;
        if taken == 0 {
            return Ok(None);
        }
        self.number += 1;
        for end in [b'\n', b'\r'] {
            if buffer.len() > start && buffer.last() == Some(&end) {
                buffer.pop();
            }
        }
        if (buffer.len() - start) as u64 > self.longest {
            return Err(self.wrong(
                self.number,
                format!("the line is longer than {} bytes", self.longest),
            ));
        }
        Ok(Some((self.number, taken as u64)))
    }

    /// An error about one line.
    pub(crate) fn wrong(&self, line: u64, problem: String) -> Error {
        Error::Row {
            file: self.path.clone(),
            line,
            problem,
        }
    }
}
