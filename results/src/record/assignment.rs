//! One spelling of each assignment `key=value` of a command line, so that runs with equal settings
//! share a row.

use serde::{Deserialize, Deserializer};

use super::StartedFrom;

/// Smallest size of a real number that is written without an exponent.
const SMALL: f64 = 0.01;
/// Size from which on a real number is written with an exponent.
const LARGE: f64 = 1e15;

/// Returns an assignment without spaces around key and value, a number in its usual notation
/// (`0.002`, `2e-3` and `2.0e-3` are `2e-3`), and a word without quotes. Text that assigns nothing
/// stays as it is.
#[must_use]
pub fn canonical(assignment: &str) -> String {
    let Some((key, value)) = assignment.split_once('=') else {
        return assignment.to_owned();
    };
    let (key, value) = (key.trim(), value.trim());
    let is_of_key = |it: char| it.is_ascii_alphanumeric() || "_.".contains(it);
    // Digits of a digest are no number.
    let is_digest = key == StartedFrom::KEY;
    if key.is_empty() || is_digest || !key.chars().all(is_of_key) {
        return assignment.to_owned();
    }
    let number = number(value);
    let word = ['"', '\''].into_iter().find_map(|quote| {
        let inner = value.strip_prefix(quote)?.strip_suffix(quote)?;
        is_word(inner).then(|| inner.to_owned())
    });
    let value = number.or(word).unwrap_or_else(|| value.to_owned());
    format!("{key}={value}")
}

/// Returns a number of TOML in its usual notation; `None` if the text is none.
fn number(text: &str) -> Option<String> {
    if !is_number(text) {
        return None;
    }
    let digits = text.replace('_', "");
    if let Ok(whole) = digits.parse::<i128>() {
        return Some(whole.to_string());
    }
    let real = digits.parse::<f64>().ok().filter(|real| real.is_finite())?;
    Some(match real.abs() {
        0.0 => "0".to_owned(),
        size if (SMALL..LARGE).contains(&size) => format!("{real}"),
        _ => format!("{real:e}"),
    })
}

/// Returns whether a text is a decimal number of TOML: digits before the dot, without a zero in
/// front, and behind it; digits in the exponent.
fn is_number(text: &str) -> bool {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let (whole, fraction) = match mantissa.split_once('.') {
        Some((whole, fraction)) => (whole, Some(fraction)),
        None => (mantissa, None),
    };
    let digits = |text: &str| {
        let is_digit = |it: char| it.is_ascii_digit() || it == '_';
        let ends = text.ends_with(|it: char| it.is_ascii_digit());
        ends && text.starts_with(|it: char| it.is_ascii_digit()) && text.chars().all(is_digit)
    };
    let exponent = exponent.map(|it| it.strip_prefix(['+', '-']).unwrap_or(it));
    digits(whole)
        && (whole == "0" || !whole.starts_with('0'))
        && fraction.is_none_or(digits)
        && exponent.is_none_or(digits)
}

/// Returns whether a text is the same value with and without quotes.
fn is_word(text: &str) -> bool {
    let is_letter = |it: char| it.is_ascii_alphanumeric() || "_-".contains(it);
    text.starts_with(|first: char| first.is_ascii_alphabetic())
        && text.chars().all(is_letter)
        && !["true", "false", "inf", "nan"].contains(&text)
}

/// Reads assignments, each in its one spelling.
pub(crate) fn read<'de, D: Deserializer<'de>>(reader: D) -> Result<Vec<String>, D::Error> {
    let read = Vec::<String>::deserialize(reader)?;
    Ok(read.iter().map(|it| canonical(it)).collect())
}

#[cfg(test)]
mod tests {
    use super::canonical;

    #[test]
    fn equal_values_have_one_spelling() {
        for (spellings, expected) in [
            (&["a.b=0.002", "a.b=2e-3", "a.b = 2.0E-3"][..], "a.b=2e-3"),
            (&["a=0.01", "a=1e-2", "a=+0.010"], "a=0.01"),
            (&["a=0.05", "a=5e-2"], "a=0.05"),
            (&["a=1000", "a=1_000", "a=1e3", "a=1000.0"], "a=1000"),
            (&["a=-3", "a= -3.0"], "a=-3"),
            (&["a=0", "a=0.0", "a=-0.0", "a=-0", "a=0e0"], "a=0"),
            (&["a=1e38"], "a=1e38"),
            (&["a=word", "a=\"word\"", "a='word'"], "a=word"),
            (&["a=18446744073709551615"], "a=18446744073709551615"),
        ] {
            for spelling in spellings {
                assert_eq!(canonical(spelling), expected);
            }
        }
    }

    #[test]
    fn other_values_stay() {
        for assignment in [
            "a=true",
            "a=\"true\"",
            "a=\"7\"",
            "a=\"two words\"",
            "a=[1, 2]",
            "a=2h",
            "a=1.5.2",
            "a=nan",
            "a=",
            "a",
            "",
            "= 1",
            "a,b=\"c\"",
            "a=007",
            "a=.5",
            "a=5.",
            "a=1e",
            "a=_1",
            "a=0x10",
            "from=00e379237760",
            "from=012345678901",
            "from=12345e678901",
            "from=123456e00001",
        ] {
            assert_eq!(canonical(assignment), assignment);
        }
    }
}
