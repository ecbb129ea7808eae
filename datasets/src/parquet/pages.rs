//! The sizes that a column's pages state, before anybody allocates them.
//!
//! A column chunk is a run of pages, each a header in Thrift's compact protocol followed by its packed bytes. Of the
//! header's fields only the first three matter here (page type, size unpacked, size packed); the rest is skipped.

use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;

use parquet::file::metadata::ColumnChunkMetaData;

/// Largest page, unpacked. Writers aim at one megabyte or less; one value may be larger than that.
const LARGEST_PAGE: i64 = 64 << 20;

/// Deepest nesting of a header's fields, which real ones do not come near.
const DEEPEST: u32 = 16;

/// Checks that the pages of a column lie one after the other within the file and unpack to a sensible size.
pub(super) fn check(
    path: &Path,
    column: &ColumnChunkMetaData,
    file_bytes: u64,
) -> Result<(), String> {
    let start = column
        .dictionary_page_offset()
        .unwrap_or(column.data_page_offset());
    let inside = |value: i64| {
        u64::try_from(value)
            .ok()
            .filter(|&value| value <= file_bytes)
    };
    let (Some(start), Some(length)) = (inside(start), inside(column.compressed_size())) else {
        return Err("a column lies outside of the file".to_owned());
    };
    let end = start + length;
    if end > file_bytes {
        return Err("a column lies outside of the file".to_owned());
    }
    walk(path, start, end).map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => "a page ends behind its column".to_owned(),
        _ => error.to_string(),
    })
}

fn walk(path: &Path, start: u64, end: u64) -> io::Result<()> {
    let mut file = File::open(path)?;
    let mut place = start;
    while place < end {
        file.seek(SeekFrom::Start(place))?;
        let mut header = Header {
            input: BufReader::with_capacity(512, (&file).take(end - place)),
            read: 0,
        };
        let [_, unpacked, packed] = header.sizes()?;
        if !(0..=LARGEST_PAGE).contains(&unpacked) {
            return Err(invalid(format!(
                "a page of {unpacked} bytes, more than {LARGEST_PAGE}"
            )));
        }
        let packed = u64::try_from(packed).map_err(|_| invalid("a page of negative size"))?;
        place += header.read + packed;
        if place > end {
            return Err(ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(())
}

fn invalid(problem: impl Into<String>) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, problem.into())
}

struct Header<R> {
    input: R,
    read: u64,
}

impl<R: Read> Header<R> {
    /// Reads a whole header; gives its fields 1 to 3.
    fn sizes(&mut self) -> io::Result<[i64; 3]> {
        let mut sizes = [None; 3];
        let mut field = 0;
        loop {
            let (kind, delta) = match self.byte()? {
                0 => break,
                head => (head & 15, head >> 4),
            };
            field = match delta {
                0 => self.zigzag()?,
                delta => field.wrapping_add(i64::from(delta)),
            };
            match (field, kind) {
                (1..=3, 5) => sizes[field as usize - 1] = Some(self.zigzag()?),
                _ => self.skip(kind, 0)?,
            }
        }
        match sizes {
            [Some(kind), Some(unpacked), Some(packed)] => Ok([kind, unpacked, packed]),
            _ => Err(invalid("a page header lacks its sizes")),
        }
    }

    /// Skips a value of this type: 1 and 2 booleans, 3 a byte, 4 to 6 integers, 7 a float, 8 bytes, 9 and 10 lists,
    /// 12 a structure.
    fn skip(&mut self, kind: u8, depth: u32) -> io::Result<()> {
        if depth > DEEPEST {
            return Err(invalid("a page header is nested too deeply"));
        }
        match kind {
            1 | 2 => Ok(()),
            3 => self.pass(1),
            4..=6 => self.varint().map(drop),
            7 => self.pass(8),
            8 => {
                let count = self.varint()?;
                self.pass(count)
            }
            9 | 10 => {
                let head = self.byte()?;
                let count = match head >> 4 {
                    15 => self.varint()?,
                    count => u64::from(count),
                };
                // In a list, a boolean takes a byte. Every other value takes one at least, so the input bounds the loop.
                let kind = match head & 15 {
                    1 | 2 => 3,
                    kind => kind,
                };
                (0..count).try_for_each(|_| self.skip(kind, depth + 1))
            }
            12 => loop {
                match self.byte()? {
                    0 => return Ok(()),
                    head => {
                        if head >> 4 == 0 {
                            self.varint()?;
                        }
                        self.skip(head & 15, depth + 1)?;
                    }
                }
            },
            other => Err(invalid(format!(
                "a page header has a field of type {other}"
            ))),
        }
    }

    fn byte(&mut self) -> io::Result<u8> {
        let mut byte = [0];
        self.input.read_exact(&mut byte)?;
        self.read += 1;
        Ok(byte[0])
    }

    fn pass(&mut self, count: u64) -> io::Result<()> {
        let passed = io::copy(&mut (&mut self.input).take(count), &mut io::sink())?;
        self.read += passed;
        if passed < count {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }

    fn varint(&mut self) -> io::Result<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 127) << shift;
            if byte < 128 {
                return Ok(value);
            }
        }
        Err(invalid("a page header has an endless number"))
    }

    fn zigzag(&mut self) -> io::Result<i64> {
        let value = self.varint()?;
        Ok((value >> 1) as i64 ^ -((value & 1) as i64))
    }
}
