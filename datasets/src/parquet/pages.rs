//! Checks of the page headers of a column: the `parquet` crate allocates the sizes that they state
//! without a check.
//!
//! A column chunk is a run of pages, each a header in Thrift's compact protocol followed by its
//! packed bytes. Of the header's fields these matter: 1 page type, 2 size unpacked, 3 size packed,
//! and the structure of that type of page (5, 7 or 8), with the number of values and their
//! encoding.

use std::io::{self, BufReader, ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use parquet::basic::{Compression, Type};
use parquet::file::metadata::ColumnChunkMetaData;

use super::fault::Fault;

/// Maximum unpacked size of a page. Writers aim at one megabyte or less; a single value may be
/// larger than that.
const LARGEST_PAGE: i64 = 64 << 20;

/// Maximum nesting of a header's fields; real headers are far below it.
const DEEPEST: u32 = 16;

/// Checks that the pages of a column follow each other within the file and unpack to a sensible
/// size.
pub(super) fn check(
    path: &Path,
    column: &ColumnChunkMetaData,
    file_bytes: u64,
) -> Result<(), Fault> {
    let start = column
        .dictionary_page_offset()
        .unwrap_or(column.data_page_offset());
    let inside = |value: i64| {
        u64::try_from(value)
            .ok()
            .filter(|&value| value <= file_bytes)
    };
    let outside = || Err("a column lies outside of the file".to_owned().into());
    let (Some(start), Some(length)) = (inside(start), inside(column.compressed_size())) else {
        return outside();
    };
    let end = start + length;
    if end > file_bytes {
        return outside();
    }
    walk(path, start, end, column).map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => "a page ends behind its column".to_owned().into(),
        _ => error.into(),
    })
}

fn walk(path: &Path, start: u64, end: u64, column: &ColumnChunkMetaData) -> io::Result<()> {
    let packing = column.compression();
    let is_boolean = column.column_type() == Type::BOOLEAN;
    // Other values take four bytes for their length, or four at least as a number.
    let least = match column.column_type() {
        Type::FIXED_LEN_BYTE_ARRAY => i64::from(column.column_descr().type_length()),
        _ => 4,
    };
    if least < 1 {
        return Err(invalid("values of no bytes"));
    }
    let mut file = disk::open(path)?;
    let mut place = start;
    let mut dictionary = false;
    while place < end {
        file.seek(SeekFrom::Start(place))?;
        let mut input = Input {
            bytes: BufReader::with_capacity(512, (&file).take(end - place)),
            read: 0,
        };
        let header = Header::read(&mut input)?;
        header.check_size()?;
        match header.page {
            Page::Dictionary { values } if place == start => {
                if !(0..=header.unpacked / least).contains(&values) {
                    return Err(invalid("a dictionary of more values than bytes"));
                }
                dictionary = true;
            }
            Page::Dictionary { .. } => return Err(invalid("a dictionary behind other pages")),
            Page::Data {
                encoding: PLAIN, ..
            } => {}
            Page::Data { encoding: RUNS, .. } if is_boolean => {}
            Page::Data { encoding, .. } if DICTIONARY.contains(&encoding) => {
                if !dictionary {
                    return Err(invalid("a page needs a dictionary, but there is none"));
                }
            }
            Page::Data { encoding, .. } => {
                let problem =
                    format!("values in encoding {encoding}; read are plain and dictionary");
                return Err(invalid(problem));
            }
        }
        let packed =
            u64::try_from(header.packed).map_err(|_| invalid("a page of negative size"))?;
        let content = place + input.read;
        place = content + packed;
        if place > end {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let levels = match header.page {
            Page::Data { levels, .. } => u64::try_from(levels).unwrap_or_default().min(packed),
            Page::Dictionary { .. } => 0,
        };
        file.seek(SeekFrom::Start(content + levels))?;
        measure(packing, (&file).take(packed - levels), header.unpacked)?;
    }
    Ok(())
}

/// Unpacks a page without keeping it, where the crate would unpack it to memory without a bound,
/// and refuses a page larger than stated.
fn measure(packing: Compression, packed: impl Read, stated: i64) -> io::Result<()> {
    let packed = BufReader::new(packed);
    let unpacked: &mut dyn Read = match packing {
        Compression::GZIP(_) => &mut MultiGzDecoder::new(packed),
        Compression::BROTLI(_) => &mut brotli_decompressor::Decompressor::new(packed, 1 << 12),
        // One of the three formats with this name; the sizes of the others are stated.
        Compression::LZ4 => &mut lz4_flex::frame::FrameDecoder::new(packed),
        _ => return Ok(()),
    };
    let most = u64::try_from(stated).unwrap_or_default();
    let mut count = 0;
    let mut buffer = [0; 1 << 13];
    loop {
        match unpacked.read(&mut buffer) {
            // Damage is reported by the crate.
            Ok(0) | Err(_) => return Ok(()),
            Ok(bytes) => count += bytes as u64,
        }
        if count > most {
            return Err(invalid(format!(
                "a page unpacks to more than the {most} bytes it states"
            )));
        }
    }
}

fn invalid(problem: impl Into<String>) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, problem.into())
}

/// Encoding of values one after the other.
const PLAIN: i64 = 0;
/// Encoding as runs of equal values, in which some writers keep booleans.
const RUNS: i64 = 3;
/// Encodings as indices into the column's dictionary page: the format's old and new number.
const DICTIONARY: [i64; 2] = [2, 8];

enum Page {
    Data {
        encoding: i64,
        /// Number of bytes before the packed ones.
        levels: i64,
    },
    Dictionary {
        values: i64,
    },
}

struct Header {
    unpacked: i64,
    packed: i64,
    page: Page,
}

impl Header {
    fn read(input: &mut Input<impl Read>) -> io::Result<Header> {
        let mut numbers = Numbers::default();
        let mut inner: [Numbers; FIELDS] = Default::default();
        input.fields(&mut |input, field, kind| match (field, kind) {
            (1..FIELDS, 12) => {
                inner[field] = input.numbers()?;
                Ok(())
            }
            _ => input.number(field, kind, &mut numbers),
        })?;
        let page = match numbers[1] {
            Some(0) => inner[5][2].map(|encoding| Page::Data {
                encoding,
                levels: 0,
            }),
            Some(2) => inner[7][1].map(|values| Page::Dictionary { values }),
            Some(3) => inner[8][4].map(|encoding| Page::Data {
                encoding,
                levels: inner[8][5]
                    .unwrap_or_default()
                    .saturating_add(inner[8][6].unwrap_or_default()),
            }),
            _ => None,
        };
        match (numbers[2], numbers[3], page) {
            (Some(unpacked), Some(packed), Some(page)) => Ok(Header {
                unpacked,
                packed,
                page,
            }),
            _ => Err(invalid(
                "a page header lacks its type, its sizes or its encoding",
            )),
        }
    }

    fn check_size(&self) -> io::Result<()> {
        match self.unpacked {
            0..=LARGEST_PAGE => Ok(()),
            bytes => Err(invalid(format!(
                "a page of {bytes} bytes, more than {LARGEST_PAGE}"
            ))),
        }
    }
}

/// Bound on field numbers, which run from 1 to 8.
const FIELDS: usize = 9;

/// Whole numbers of a structure, by field.
type Numbers = [Option<i64>; FIELDS];

struct Input<R> {
    bytes: R,
    read: u64,
}

impl<R: Read> Input<R> {
    /// Passes every field of a structure, with its type, to `each`, which reads the value.
    fn fields(
        &mut self,
        each: &mut dyn FnMut(&mut Self, usize, u8) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut field = 0;
        loop {
            let (kind, delta) = match self.byte()? {
                0 => return Ok(()),
                head => (head & 15, head >> 4),
            };
            field = match delta {
                0 => self.zigzag()?,
                delta => field.wrapping_add(i64::from(delta)),
            };
            each(self, usize::try_from(field).unwrap_or(FIELDS), kind)?;
        }
    }

    /// Reads the whole numbers of a structure.
    fn numbers(&mut self) -> io::Result<Numbers> {
        let mut numbers = Numbers::default();
        self.fields(&mut |input, field, kind| input.number(field, kind, &mut numbers))?;
        Ok(numbers)
    }

    /// Stores a field's value if it is a whole number, and skips any other.
    fn number(&mut self, field: usize, kind: u8, numbers: &mut Numbers) -> io::Result<()> {
        match (field, kind) {
            (1..FIELDS, 4..=6) => numbers[field] = Some(self.zigzag()?),
            _ => self.skip(kind, 0)?,
        }
        Ok(())
    }

    /// Skips a value of this type: 1 and 2 booleans, 3 a byte, 4 to 6 integers, 7 a float, 8 bytes,
    /// 9 and 10 lists, 12 a structure.
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
                // In a list, a boolean takes a byte. Every other value takes one at least, so the
                // input bounds the loop.
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
        self.bytes.read_exact(&mut byte)?;
        self.read += 1;
        Ok(byte[0])
    }

    fn pass(&mut self, count: u64) -> io::Result<()> {
        let passed = io::copy(&mut (&mut self.bytes).take(count), &mut io::sink())?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_bounded() {
        let fits = |unpacked: i64| {
            let page = Page::Dictionary { values: 0 };
            let header = Header {
                unpacked,
                packed: 0,
                page,
            };
            header.check_size().is_ok()
        };
        assert!(fits(0) && fits(LARGEST_PAGE));
        assert!(!fits(LARGEST_PAGE + 1) && !fits(-1) && !fits(i64::MAX));
    }
}
