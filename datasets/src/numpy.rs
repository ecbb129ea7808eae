//! NumPy arrays: their types, their memory order, and the file format `.npy`.
//!
//! Format: `numpy.lib.format` of NumPy's documentation, versions 1.0 to 3.0.

use std::borrow::Cow;

use crate::words::counted;

/// First bytes of a `.npy` file.
pub(crate) const MAGIC: &[u8] = b"\x93NUMPY";

/// Maximum number of values of an array.
const MOST: usize = 1 << 31;

/// Type of an array's values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Dtype {
    /// Kind: `u` and `i` are whole numbers, `b` booleans, `S` bytes, `U` text.
    kind: u8,
    /// Size of a value in bytes.
    width: usize,
    big_endian: bool,
}

impl Dtype {
    /// Reads NumPy's name of a type: `u1`, `<i8`, `|S13`; `order` is the byte order where the name
    /// has none.
    pub(crate) fn parse(name: &str, order: Option<&str>) -> Result<Dtype, String> {
        let unknown = || format!("values of the type `{name}`, which is not read");
        let (order, rest) = match name.as_bytes().first() {
            Some(b'<' | b'>' | b'|' | b'=') => name.split_at(1),
            Some(_) => (order.unwrap_or("|"), name),
            None => return Err(unknown()),
        };
        let (kind, width) = rest.split_at_checked(1).ok_or_else(unknown)?;
        let count: usize = width.parse().map_err(|_| unknown())?;
        let kind = kind.as_bytes()[0];
        let width = match (kind, count) {
            (b'u' | b'i', 1 | 2 | 4 | 8) | (b'b', 1) | (b'S', 1..=65_536) => count,
            (b'U', 1..=65_536) => 4 * count,
            _ => return Err(unknown()),
        };
        Ok(Dtype {
            kind,
            width,
            big_endian: order == ">",
        })
    }

    /// Returns a value as a number.
    pub(crate) fn number(&self, value: &[u8]) -> Result<i64, String> {
        if value.len() != self.width || !matches!(self.kind, b'u' | b'i' | b'b') {
            return Err("a value that is not a whole number".to_owned());
        }
        let add = |sum: u64, byte: &u8| sum << 8 | u64::from(*byte);
        let number = match self.big_endian {
            true => value.iter().fold(0, add),
            false => value.iter().rev().fold(0, add),
        };
        let unused = 64 - 8 * self.width as u32;
        match self.kind {
            b'i' => Ok((number << unused) as i64 >> unused),
            _ => i64::try_from(number).map_err(|_| format!("the number {number}")),
        }
    }

    /// Returns a value as text, without trailing zeros.
    fn string(&self, value: &[u8]) -> Result<String, String> {
        let text = match self.kind {
            b'S' => String::from_utf8_lossy(value).into_owned(),
            b'U' => {
                let (symbols, _) = value.as_chunks::<4>();
                let symbol = |bytes: &[u8; 4]| match self.big_endian {
                    true => char::from_u32(u32::from_be_bytes(*bytes)),
                    false => char::from_u32(u32::from_le_bytes(*bytes)),
                };
                let text: Option<String> = symbols.iter().map(symbol).collect();
                text.ok_or("a text with numbers that are no characters")?
            }
            _ => return Err("its values are numbers and not text".to_owned()),
        };
        Ok(text.trim_end_matches('\0').to_owned())
    }
}

/// An array with its values in C order: the last index runs first.
#[derive(Debug)]
pub(crate) struct Array<'a> {
    pub(crate) shape: Vec<usize>,
    dtype: Dtype,
    content: Cow<'a, [u8]>,
}

impl<'a> Array<'a> {
    /// Returns an array of this content, whose values are in C order or, with `by_columns`, in
    /// Fortran order.
    ///
    /// # Errors
    /// The size of the content does not match the shape.
    pub(crate) fn new(
        shape: Vec<usize>,
        dtype: Dtype,
        by_columns: bool,
        content: Cow<'a, [u8]>,
    ) -> Result<Array<'a>, String> {
        let count = shape.iter().try_fold(1_usize, |count, &axis| {
            count.checked_mul(axis).filter(|count| *count <= MOST)
        });
        let bytes = count.and_then(|count| count.checked_mul(dtype.width));
        if bytes != Some(content.len()) || shape.iter().any(|axis| *axis > MOST) {
            return Err(format!(
                "an array of the shape {shape:?} with {}",
                counted(content.len(), "byte")
            ));
        }
        let content = match by_columns {
            true => Cow::Owned(by_rows(&shape, dtype.width, &content)),
            false => content,
        };
        Ok(Array {
            shape,
            dtype,
            content,
        })
    }

    /// Reads a `.npy` file.
    ///
    /// # Errors
    /// A description of the damage, or of the feature that is not supported.
    pub(crate) fn of_file(bytes: &'a [u8]) -> Result<Array<'a>, String> {
        let cut = || "it is cut short".to_owned();
        let rest = bytes.strip_prefix(MAGIC).ok_or("it is no NumPy array")?;
        let (version, rest) = rest.split_at_checked(2).ok_or_else(cut)?;
        let (length, rest) = match version[0] {
            1 => {
                let (length, rest) = rest.split_first_chunk().ok_or_else(cut)?;
                (usize::from(u16::from_le_bytes(*length)), rest)
            }
            2 | 3 => {
                let (length, rest) = rest.split_first_chunk().ok_or_else(cut)?;
                (u32::from_le_bytes(*length) as usize, rest)
            }
            other => return Err(format!("version {other} of the format, which is not read")),
        };
        let (header, content) = rest.split_at_checked(length).ok_or_else(cut)?;
        let header = String::from_utf8_lossy(header);
        let value = |key: &str| {
            let (_, behind) = header.split_once(&format!("'{key}':"))?;
            Some(behind.trim_start())
        };
        let lacks = || "its header lacks descr, fortran_order or shape".to_owned();
        let name = value("descr").ok_or_else(lacks)?;
        let name = name
            .strip_prefix('\'')
            .and_then(|name| name.split('\'').next());
        let name = name.ok_or("it holds records of several types, which are not read")?;
        let by_columns = value("fortran_order")
            .ok_or_else(lacks)?
            .starts_with("True");
        let shape = value("shape").and_then(|text| text.strip_prefix('(')?.split(')').next());
        let axes = shape.ok_or_else(lacks)?.split(',').map(str::trim);
        let axes = axes.filter(|axis| !axis.is_empty());
        let shape: Result<Vec<usize>, _> = axes.map(|axis| axis.parse()).collect();
        let dtype = Dtype::parse(name, None)?;
        Array::new(
            shape.map_err(|_| lacks())?,
            dtype,
            by_columns,
            content.into(),
        )
    }

    /// Returns its content, where the values are bytes (uint8).
    pub(crate) fn bytes(&self) -> Option<&[u8]> {
        (self.dtype.kind == b'u' && self.dtype.width == 1).then_some(&*self.content)
    }

    /// Returns its values as numbers.
    ///
    /// # Errors
    /// The values are not numbers.
    pub(crate) fn numbers(&self) -> Result<Vec<i64>, String> {
        let values = self.content.chunks_exact(self.dtype.width);
        values.map(|value| self.dtype.number(value)).collect()
    }

    /// Returns its rows of text.
    ///
    /// # Errors
    /// The array is not a table, or its values are not text.
    pub(crate) fn rows(&self) -> Result<Vec<Vec<String>>, String> {
        let columns = match self.shape[..] {
            [_, columns] if columns > 0 => columns,
            _ => return Err(format!("its shape is {:?}, which is no table", self.shape)),
        };
        let rows = self.content.chunks_exact(columns * self.dtype.width);
        let strings = |row: &[u8]| {
            let values = row.chunks_exact(self.dtype.width);
            values.map(|value| self.dtype.string(value)).collect()
        };
        rows.map(strings).collect()
    }

    /// Returns its shape and type in words.
    pub(crate) fn text(&self) -> String {
        let kind = match self.dtype.kind {
            b'u' => "unsigned numbers",
            b'i' => "signed numbers",
            b'b' => "booleans",
            _ => "text",
        };
        format!(
            "the shape {:?}, {kind} of {} bytes",
            self.shape, self.dtype.width
        )
    }
}

/// Reorders values from Fortran order, where the first index runs first, to C order.
fn by_rows(shape: &[usize], width: usize, content: &[u8]) -> Vec<u8> {
    // Distances between neighbours along each axis, in values.
    let mut strides = Vec::with_capacity(shape.len());
    let mut stride = 1;
    for axis in shape {
        strides.push(stride);
        stride *= axis;
    }
    let mut index = vec![0; shape.len()];
    let mut place = 0;
    let mut sorted = Vec::with_capacity(content.len());
    while sorted.len() < content.len() {
        sorted.extend_from_slice(&content[place * width..][..width]);
        for axis in (0..shape.len()).rev() {
            index[axis] += 1;
            place += strides[axis];
            if index[axis] < shape[axis] {
                break;
            }
            place -= strides[axis] * shape[axis];
            index[axis] = 0;
        }
    }
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(version: u8, header: &str, content: &[u8]) -> Vec<u8> {
        let mut bytes = [MAGIC, &[version, 0]].concat();
        match version {
            1 => bytes.extend((header.len() as u16).to_le_bytes()),
            _ => bytes.extend((header.len() as u32).to_le_bytes()),
        }
        [&bytes, header.as_bytes(), content].concat()
    }

    #[test]
    fn every_version_and_order_is_read() {
        for version in 1..=3 {
            for (order, content) in [("False", b"a\0bbc\0dd"), ("True", b"a\0c\0bbdd")] {
                let header =
                    format!("{{'descr': '|S2', 'fortran_order': {order}, 'shape': (2, 2), }}\n");
                let bytes = file(version, &header, content);
                let rows = Array::of_file(&bytes).unwrap().rows().unwrap();
                assert_eq!(rows, [["a", "bb"], ["c", "dd"]], "{version} {order}");
            }
        }
        for (name, content) in [("<U2", b"a\0\0\0\0\0\0\0"), (">U2", b"\0\0\0a\0\0\0\0")] {
            let header = format!("{{'descr': '{name}', 'fortran_order': False, 'shape': (1, 1)}}");
            let bytes = file(1, &header, content);
            assert_eq!(Array::of_file(&bytes).unwrap().rows().unwrap(), [["a"]]);
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let header = |descr: &str, shape: &str| {
            format!("{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}}}")
        };
        for (bytes, problem) in [
            (file(9, "", b""), "version 9"),
            (file(1, "", b""), "lacks"),
            (file(1, &header("'|O'", "(1,)"), b""), "`|O`"),
            (
                file(1, &header("[('a', '<i4')]", "(1,)"), b""),
                "several types",
            ),
            (
                file(1, &header("'|S2'", "(3, 2)"), b"abc"),
                "[3, 2] with 3 bytes",
            ),
            (
                file(
                    1,
                    &header("'|S2'", "(9999999999, 9999999999, 9999999999)"),
                    b"",
                ),
                "with 0 bytes",
            ),
            (MAGIC.to_vec(), "cut short"),
            (b"text".to_vec(), "no NumPy array"),
        ] {
            let error = Array::of_file(&bytes).unwrap_err();
            assert!(error.contains(problem), "{error}");
        }
    }

    #[test]
    fn numbers_of_every_type() {
        for (name, value, number) in [
            ("u1", &[200][..], 200),
            ("i1", &[200], -56),
            ("<i8", &[6, 0, 0, 0, 0, 0, 0, 0], 6),
            (">i4", &[255, 255, 255, 254], -2),
            ("<u2", &[1, 1], 257),
            ("|b1", &[1], 1),
        ] {
            assert_eq!(Dtype::parse(name, None).unwrap().number(value), Ok(number));
        }
        assert_eq!(
            Dtype::parse("i2", Some(">")).unwrap().number(&[1, 0]),
            Ok(256)
        );
        for name in ["", "<", "f8", "u3", "i", "ä1", "S0", "M8[ns]"] {
            assert!(Dtype::parse(name, None).is_err(), "{name}");
        }
    }
}
