//! Formatting of numbers and lines for people.

use crate::markup::visible;
use std::fmt::Display;

/// Returns the number of decimals that show about three significant digits of a number.
pub(crate) fn decimals(value: f64) -> usize {
    match value.abs() {
        size if size >= 99.95 => 0,
        size if size >= 9.995 => 1,
        size if size >= 0.9995 || size == 0.0 => 2,
        size if size >= 0.09995 => 3,
        _ => 4,
    }
}

/// Returns a number with about three significant digits.
pub(crate) fn short(value: f64) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    format!("{value:.*}", decimals(value))
}

/// Returns a fraction as percent with two decimals, as accuracies are published.
pub(crate) fn percent(fraction: f64) -> String {
    if !fraction.is_finite() {
        return "-".to_owned();
    }
    format!("{:.2}", 100.0 * fraction)
}

/// Returns about three significant digits, and a prefix of the SI for the unit: `("24.0", "G")`,
/// `("358", "")`.
#[must_use]
pub fn scaled(value: f64) -> (String, &'static str) {
    let prefixes = [(1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    let found = prefixes
        .into_iter()
        .find(|(size, _)| value.abs() >= 0.9995 * size);
    let (size, prefix) = found.unwrap_or((1.0, ""));
    (short(value / size), prefix)
}

/// A unit of memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ByteUnit {
    /// Its symbol.
    pub(crate) name: &'static str,
    /// Its size in bytes.
    pub(crate) bytes: f64,
    /// Decimals to show.
    pub(crate) decimals: usize,
}

impl ByteUnit {
    /// Returns the unit that suits the largest of the sizes.
    pub(crate) fn of(largest: f64) -> ByteUnit {
        // From 1023.95 on, one decimal would round up to 1024.
        let reaches = |unit: f64| largest >= 1023.95 / 1024.0 * unit;
        let (name, bytes, decimals) = match (reaches(1024f64.powi(3)), reaches(1024f64.powi(2))) {
            (true, _) => ("GiB", 1024f64.powi(3), 2),
            (_, true) => ("MiB", 1024f64.powi(2), 1),
            _ => ("KiB", 1024.0, 1),
        };
        ByteUnit {
            name,
            bytes,
            decimals,
        }
    }
}

/// Returns a size of memory with its unit.
pub(crate) fn bytes(size: u64) -> String {
    let size = size as f64;
    let unit = ByteUnit::of(size);
    format!("{:.*} {}", unit.decimals, size / unit.bytes, unit.name)
}

/// Returns a number with commas between the thousands.
#[must_use]
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns a count with its noun, given in the singular: `1 thread`, `2,000 threads`.
#[must_use]
pub fn counted(count: u64, noun: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{} {noun}{ending}", grouped(count))
}

/// Returns items as an enumeration: `a`, `a and b`, `a, b and c`.
#[must_use]
pub fn listed<T: Display>(items: impl IntoIterator<Item = T>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    match items.split_last() {
        None => String::new(),
        Some((only, [])) => only.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
    }
}

/// Returns two numbers with the same number of decimals: `least`, or as many as it takes for
/// different numbers to look different.
#[must_use]
pub fn apart(one: f64, other: f64, least: usize) -> (String, String) {
    // The digits that a 64-bit float has, and the zeros that may stand before them.
    const MOST: usize = 17 + 20;
    let shown = |decimals: usize| (format!("{one:.decimals$}"), format!("{other:.decimals$}"));
    let mut decimals = least;
    let mut pair = shown(decimals);
    while pair.0 == pair.1 && one != other && decimals < MOST {
        decimals += 1;
        pair = shown(decimals);
    }
    pair
}

/// Breaks words into lines of at most `width` characters. The first line is taken to begin after
/// `first` of them; the others are indented by `indent` spaces. A word that is wider than a line is
/// broken, between names or at least outside numbers where it has such a place, and what a terminal
/// would obey is replaced.
#[must_use]
pub fn wrap(text: &str, width: usize, first: usize, indent: usize) -> String {
    let mut lines = String::new();
    let mut used = first;
    let mut fresh = true;
    let new_line = format!("\n{}", " ".repeat(indent));
    for word in visible(text).split_whitespace() {
        let mut rest: Vec<char> = word.chars().collect();
        if !fresh && used + 1 + rest.len() <= width {
            lines.push(' ');
            used += 1;
        } else if !fresh {
            lines += &new_line;
            used = indent;
        }
        while used + rest.len() > width && width > indent.max(first) {
            lines.extend(rest.drain(..breaking_place(&rest, width - used)));
            lines += &new_line;
            used = indent;
        }
        fresh = false;
        used += rest.len();
        lines.extend(rest);
    }
    lines
}

/// Breaks the lines of a text that are longer than `width` characters, as [`wrap`] does. What
/// follows is indented to the text behind a label and at least two spaces (`model      bag`), or by
/// two more than the line.
#[must_use]
pub fn fold(text: &str, width: usize) -> String {
    let folded = text.split('\n').map(|line| {
        let letters: Vec<char> = line.chars().collect();
        if letters.len() <= width {
            return line.to_owned();
        }
        let start = letters.iter().take_while(|c| **c == ' ').count();
        let gap = letters[start..]
            .windows(2)
            .position(|two| two == [' ', ' ']);
        let behind = gap.map(|gap| {
            let spaces = letters[start + gap..].iter().take_while(|c| **c == ' ');
            start + gap + spaces.count()
        });
        let (head, indent) = match behind.filter(|column| *column <= width / 2) {
            Some(column) => (column, column),
            None => (start, start + 2),
        };
        let (head, rest) = letters.split_at(head);
        let rest: String = rest.iter().collect();
        head.iter().collect::<String>() + &wrap(&rest, width, head.len(), indent)
    });
    folded.collect::<Vec<_>>().join("\n")
}

/// Returns the number of characters, at most `room`, after which a word is broken: behind a
/// separator between names, else between two characters that are not of one number, unless all
/// places are within a number.
fn breaking_place(word: &[char], room: usize) -> usize {
    let is_digit = |at: usize| word.get(at).is_some_and(char::is_ascii_digit);
    // A point, an exponent, or the sign of an exponent, between digits.
    let joins = |at: usize| match word[at] {
        '.' | ',' => at > 0 && is_digit(at - 1) && is_digit(at + 1),
        'e' => at > 0 && is_digit(at - 1) && (is_digit(at + 1) || is_digit(at + 2)),
        '-' | '+' => at > 1 && word[at - 1] == 'e' && is_digit(at - 2) && is_digit(at + 1),
        _ => false,
    };
    let is_of_number = |at: usize| is_digit(at) || joins(at);
    let is_within = |place: usize| is_of_number(place - 1) && is_of_number(place);
    let separates = |place: usize| match word[place - 1] {
        '_' | '=' | '.' | ',' | ':' | ';' | '/' => true,
        // A sign belongs to its number.
        '-' => place > 1 && word[place - 2].is_alphanumeric(),
        _ => false,
    };
    let outside = || (1..=room).rev().filter(|place| !is_within(*place));
    let place = outside().find(|place| separates(*place));
    place.or_else(|| outside().next()).unwrap_or(room)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_folded_under_their_text() {
        let text =
            "run  x\nmodel      a bag of words in a sentence\n  see the long line of words here\n";
        let expected = "run  x\nmodel      a bag of\n           words in a\n           sentence\n  see the long line of\n    words here\n";
        assert_eq!(fold(text, 22), expected);
        assert_eq!(fold(expected, 22), expected);
        // A label that takes more than half of the line is no label.
        assert_eq!(
            fold("a label of words  a text", 20),
            "a label of words a\n  text"
        );
    }

    #[test]
    fn counts_and_enumerations() {
        assert_eq!(counted(1, "thread"), "1 thread");
        assert_eq!(counted(0, "thread"), "0 threads");
        assert_eq!(counted(2_000, "step"), "2,000 steps");
        assert_eq!(listed::<&str>([]), "");
        assert_eq!(listed(["a"]), "a");
        assert_eq!(listed(["a", "b"]), "a and b");
        assert_eq!(listed(["a", "b", "c", "d"]), "a, b, c and d");
    }

    #[test]
    fn different_numbers_look_different() {
        let pair = |one: f64, other: f64| {
            let (one, other) = apart(one, other, 2);
            format!("{one} {other}")
        };
        assert_eq!(pair(1.5, 1.5), "1.50 1.50");
        assert_eq!(pair(1.5, 1.25), "1.50 1.25");
        assert_eq!(pair(1.402_089, 1.402_191), "1.4021 1.4022");
        let next = f64::from_bits(2.5f64.to_bits() + 1);
        let (one, other) = apart(2.5, next, 6);
        assert_ne!(one, other);
    }

    #[test]
    fn words_are_broken_outside_numbers() {
        assert_eq!(
            wrap("model.rate=1.402089", 15, 0, 0),
            "model.rate=\n1.402089"
        );
        assert_eq!(wrap("model.rate=1.5e-3", 15, 0, 0), "model.rate=\n1.5e-3");
        assert_eq!(wrap("model.seed=1,402", 15, 0, 0), "model.seed=\n1,402");
        assert_eq!(wrap("1234567890", 4, 0, 0), "1234\n5678\n90");
        assert_eq!(wrap("ab12345", 4, 0, 0), "ab\n1234\n5");
    }

    #[test]
    fn words_are_broken_between_names() {
        assert_eq!(
            wrap("pathfinder@32-easy-n40000-5to9-dense", 28, 0, 0),
            "pathfinder@32-easy-n40000-\n5to9-dense"
        );
        assert_eq!(
            wrap("block.long_name_of=value", 16, 0, 0),
            "block.long_name_\nof=value"
        );
        assert_eq!(wrap("data.bias=-1.5", 12, 0, 0), "data.bias=\n-1.5");
    }

    #[test]
    fn numbers() {
        let shown: Vec<_> = [1234.5, 99.96, 11.24, 9.999, 0.5, 0.012_34, 0.0, f64::NAN]
            .map(short)
            .to_vec();
        assert_eq!(
            shown,
            [
                "1234", "100", "11.2", "10.0", "0.500", "0.0123", "0.00", "-"
            ]
        );
        assert_eq!(percent(0.384_54), "38.45");
        assert_eq!(scaled(23.97e9), ("24.0".to_owned(), "G"));
        assert_eq!(scaled(358.0), ("358".to_owned(), ""));
        // Where rounding gives four digits, the next prefix gives three.
        assert_eq!(scaled(999.4), ("999".to_owned(), ""));
        assert_eq!(scaled(999.6), ("1.00".to_owned(), "k"));
        assert_eq!(bytes(182_452_224), "174.0 MiB");
        assert_eq!([bytes(1 << 10), bytes(1 << 20)], ["1.0 KiB", "1.0 MiB"]);
        assert_eq!(bytes(1 << 30), "1.00 GiB");
        assert_eq!(
            [bytes((1 << 30) - 1), bytes((1 << 20) - 1)],
            ["1.00 GiB", "1.0 MiB"]
        );
        assert_eq!(bytes(10_179_073_147), "9.48 GiB");
        assert_eq!(grouped(1_104_586), "1,104,586");
        assert_eq!(grouped(96), "96");
    }

    #[test]
    fn lines_are_broken_between_words_and_never_too_wide() {
        assert_eq!(wrap("a bb ccc dddd", 6, 0, 2), "a bb\n  ccc\n  dddd");
        assert_eq!(wrap("abcdefghij", 4, 0, 0), "abcd\nefgh\nij");
        assert_eq!(wrap("aa bb cc", 6, 3, 1), "aa\n bb cc");
        assert_eq!(wrap("", 4, 0, 0), "");
    }
}
