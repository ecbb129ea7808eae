//! Values of flags.

use std::ops::Range;
use std::time::Duration;

/// `0..5`: not empty.
pub fn range(text: &str) -> Result<Range<u64>, String> {
    let expected = || format!("'{text}' is not a range such as 0..5");
    let (first, end) = text.split_once("..").ok_or_else(expected)?;
    let range = first.parse().map_err(|_| expected())?..end.parse().map_err(|_| expected())?;
    if range.is_empty() {
        Err(format!("'{text}' is empty"))
    } else {
        Ok(range)
    }
}

/// A number from 0 to 1, 1 not included.
pub fn share(text: &str) -> Result<f64, String> {
    let share = text.parse().ok().filter(|share| (0.0..1.0).contains(share));
    share.ok_or_else(|| format!("'{text}' is not a share from 0 to 1"))
}

/// `8G`, `1.5 MiB`: at least one byte.
pub fn bytes(text: &str) -> Result<usize, String> {
    let expected = || format!("'{text}' is not a size such as 8G or 512M");
    let (digits, unit) = text.split_at(
        text.find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(text.len()),
    );
    let number: f64 = digits.parse().map_err(|_| expected())?;
    let scale = match unit
        .trim()
        .to_ascii_uppercase()
        .trim_end_matches("IB")
        .trim_end_matches('B')
    {
        "" => 1u64,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1 << 30,
        "T" => 1 << 40,
        _ => return Err(expected()),
    };
    let bytes = number * scale as f64;
    if bytes >= 1.0 {
        Ok(bytes as usize)
    } else {
        Err(expected())
    }
}

/// `30s`, `2h`: not zero.
pub fn duration(text: &str) -> Result<Duration, String> {
    let expected = || format!("'{text}' is not a duration such as 30s, 5m or 2h");
    let duration = humantime::parse_duration(text).map_err(|_| expected())?;
    if duration.is_zero() {
        Err(expected())
    } else {
        Ok(duration)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_ranges() {
        assert_eq!(bytes("8G"), Ok(8 << 30));
        assert_eq!(bytes("1.5 MiB"), Ok(3 << 19));
        assert!(bytes("lots").is_err() && bytes("0").is_err() && bytes("8X").is_err());
        assert_eq!(range("2..5"), Ok(2..5));
        assert!(range("5..5").is_err() && range("5").is_err());
    }
}
