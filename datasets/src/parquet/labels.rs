//! Meaning of the stored values of a column of labels: a decimal is stored as a whole number, and a
//! time as well.

use parquet::basic::{ConvertedType, LogicalType, Type};
use parquet::schema::types::ColumnDescriptor;

use crate::lines::whole;

/// Maximum number of digits of a decimal, and number of bytes that hold as many.
pub(super) const MOST_DIGITS: u32 = 38;
const MOST_BYTES: usize = 16;

/// Meaning of the stored values of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// Numbers, truth values or words as they are.
    Plain,
    /// Whole numbers without a sign.
    Unsigned,
    /// Whole numbers, to be divided by ten to the power of `scale`.
    Decimal { scale: u32 },
    /// Floats of two bytes.
    Half,
}

impl Meaning {
    /// Returns the meaning of a column's values.
    ///
    /// # Errors
    /// They are no labels: the reason.
    pub(super) fn of(column: &ColumnDescriptor) -> Result<Meaning, String> {
        let (logical, converted) = (column.logical_type_ref(), column.converted_type());
        let wrong = |holds: &str| {
            Err(format!(
                "column `{}` holds {holds}, and labels are whole numbers, truth values or words",
                column.path().string()
            ))
        };
        match (logical, converted) {
            (Some(LogicalType::Decimal(decimal)), _) => of_scale(column, decimal.scale),
            (None, ConvertedType::DECIMAL) => of_scale(column, column.type_scale()),
            (Some(LogicalType::Integer(integer)), _) if !integer.is_signed => Ok(Meaning::Unsigned),
            (
                None,
                ConvertedType::UINT_8
                | ConvertedType::UINT_16
                | ConvertedType::UINT_32
                | ConvertedType::UINT_64,
            ) => Ok(Meaning::Unsigned),
            (Some(LogicalType::Float16), _) => match column.type_length() {
                2 => Ok(Meaning::Half),
                bytes => wrong(&format!("floats of two bytes in {bytes}")),
            },
            (Some(LogicalType::Date), _) | (None, ConvertedType::DATE) => wrong("dates"),
            (Some(LogicalType::Time(_) | LogicalType::Timestamp(_)), _)
            | (
                None,
                ConvertedType::TIME_MILLIS
                | ConvertedType::TIME_MICROS
                | ConvertedType::TIMESTAMP_MILLIS
                | ConvertedType::TIMESTAMP_MICROS,
            ) => wrong("times"),
            (None, ConvertedType::INTERVAL) => wrong("durations"),
            _ => match column.physical_type() {
                // Used for times alone.
                Type::INT96 => wrong("times"),
                Type::FIXED_LEN_BYTE_ARRAY => wrong("bytes of a fixed length"),
                _ => Ok(Meaning::Plain),
            },
        }
    }
}

impl Meaning {
    /// Returns the meaning of a column of texts or numbers that are no labels.
    ///
    /// # Errors
    /// They are neither: the reason.
    pub(super) fn of_values(column: &ColumnDescriptor) -> Result<Meaning, String> {
        let wrong = |holds: &str| {
            let name = column.path().string();
            Err(format!(
                "column `{name}` holds {holds}, and texts or numbers are read"
            ))
        };
        match Meaning::of(column) {
            Ok(Meaning::Decimal { .. }) => wrong("decimals"),
            Ok(meaning) => Ok(meaning),
            Err(_) => wrong("values of another type"),
        }
    }
}

fn of_scale(column: &ColumnDescriptor, scale: i32) -> Result<Meaning, String> {
    let name = column.path().string();
    match u32::try_from(scale) {
        Ok(scale @ 0..=MOST_DIGITS) => Ok(Meaning::Decimal { scale }),
        _ => Err(format!(
            "column `{name}` holds decimals with {scale} digits after the point; read are those \
             with 0 to {MOST_DIGITS}"
        )),
    }
}

/// A number that is no label.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Unfit {
    /// The number in words.
    pub(super) number: String,
    /// Its fault, such as `is out of range`.
    pub(super) problem: &'static str,
}

impl Unfit {
    fn fraction(number: f64) -> Unfit {
        Unfit {
            number: number.to_string(),
            problem: "is not a whole number",
        }
    }

    fn large(number: impl ToString) -> Unfit {
        Unfit {
            number: number.to_string(),
            problem: "is out of range",
        }
    }
}

/// Returns a stored number without a sign.
///
/// # Errors
/// It is too large.
pub(super) fn of_unsigned(number: u64) -> Result<i64, Unfit> {
    i64::try_from(number).map_err(|_| Unfit::large(number))
}

/// Returns a decimal as an integer.
///
/// # Errors
/// It has a fraction, or is too large.
pub(super) fn of_decimal(unscaled: i128, scale: u32) -> Result<i64, Unfit> {
    let unit = 10_i128.pow(scale);
    match (unscaled / unit, unscaled % unit) {
        (number, 0) => i64::try_from(number).map_err(|_| Unfit::large(number)),
        _ => Err(Unfit::fraction(unscaled as f64 / unit as f64)),
    }
}

/// Returns a float as an integer.
///
/// # Errors
/// It has a fraction, or is too large.
pub(super) fn of_float(number: f64) -> Result<i64, Unfit> {
    whole(number).ok_or_else(|| match number.fract() == 0.0 {
        true => Unfit::large(number),
        false => Unfit::fraction(number),
    })
}

/// Returns the number that these bytes hold, the highest first, in two's complement; `None` if
/// there are none, or the number does not fit into 16 bytes.
pub(super) fn big_endian(bytes: &[u8]) -> Option<i128> {
    let is_negative = *bytes.first()? >= 128;
    let (start, filling) = if is_negative { (-1, 0xff) } else { (0, 0) };
    // A column of long decimals has as many bytes in every value.
    let (above, bytes) = bytes.split_at(bytes.len().saturating_sub(MOST_BYTES));
    let fits = above.iter().all(|&byte| byte == filling);
    let has_sign = bytes
        .first()
        .is_some_and(|&first| (first >= 128) == is_negative);
    (fits && has_sign).then(|| {
        let append = |number: i128, &byte: &u8| number << 8 | i128::from(byte);
        bytes.iter().fold(start, append)
    })
}

/// Returns the value of a float of two bytes.
pub(super) fn half(bits: u16) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023) / 1024.0);
    let size = match exponent {
        0 => fraction * 2_f64.powi(-14),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        exponent => (1.0 + fraction) * 2_f64.powi(exponent - 15),
    };
    if bits >> 15 == 0 { size } else { -size }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_have_their_values() {
        for (bits, value) in [
            (0x0000, 0.0),
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x3800, 0.5),
            (0x7bff, 65504.0),
            (0x0001, 2_f64.powi(-24)),
            (0xfc00, f64::NEG_INFINITY),
        ] {
            assert_eq!(half(bits), value, "{bits:#06x}");
        }
        assert!(half(0x7e00).is_nan());
    }

    #[test]
    fn decimals_are_whole_or_refused() {
        assert_eq!(of_decimal(50, 1), Ok(5));
        assert_eq!(of_decimal(-300, 2), Ok(-3));
        assert_eq!(of_decimal(5, 1), Err(Unfit::fraction(0.5)));
        assert_eq!(of_decimal(7, 0), Ok(7));
        assert_eq!(of_decimal(0, MOST_DIGITS), Ok(0));
        assert_eq!(of_decimal(1 << 64, 0), Err(Unfit::large(1_i128 << 64)));
    }

    #[test]
    fn floats_are_whole_or_refused() {
        assert_eq!(of_float(-3.0), Ok(-3));
        assert_eq!(of_float(0.5), Err(Unfit::fraction(0.5)));
        assert_eq!(of_float(1e20), Err(Unfit::large(1e20)));
        let infinite = of_float(f64::INFINITY);
        assert_eq!(infinite, Err(Unfit::fraction(f64::INFINITY)));
    }

    #[test]
    fn numbers_are_read_from_their_highest_byte() {
        assert_eq!(big_endian(&[1, 0]), Some(256));
        assert_eq!(big_endian(&[0xff; 16]), Some(-1));
        assert_eq!(big_endian(&[0xff, 0x38]), Some(-200));
        assert_eq!(big_endian(&[0x80]), Some(-128));
        assert_eq!(big_endian(&[]), None);
        assert_eq!(big_endian(&[0; 32]), Some(0));
        assert_eq!(big_endian(&[0xff; 21]), Some(-1));
        assert_eq!(big_endian(&[&[0; 20][..], &[1, 0]].concat()), Some(256));
        for first in [0x01, 0x80] {
            assert_eq!(big_endian(&[&[first][..], &[0; 16]].concat()), None);
        }
        // The sign would be another one without the first byte.
        assert_eq!(big_endian(&[&[0x00][..], &[0xff; 16]].concat()), None);
    }
}
