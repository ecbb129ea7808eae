//! Numbers and lists as words of a sentence.

use std::fmt::Display;

/// Returns a number with what is counted: `1 thread`, `2 threads`. `one` is the word for a single
/// one, whose plural ends in s.
pub fn counted(number: impl Display, one: &str) -> String {
    let number = number.to_string();
    match number.as_str() {
        "1" => format!("1 {one}"),
        _ => format!("{number} {one}s"),
    }
}

/// Returns the items of a list: `a`, `a and b`, `a, b and c`.
pub fn listed<T: Display>(items: impl IntoIterator<Item = T>) -> String {
    let items: Vec<String> = items.into_iter().map(|item| item.to_string()).collect();
    match items.split_last() {
        None => String::new(),
        Some((only, [])) => only.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_singular() {
        let of = |number: usize| counted(number, "thread");
        assert_eq!(
            [of(0), of(1), of(2)],
            ["0 threads", "1 thread", "2 threads"]
        );
    }

    #[test]
    fn lists_end_with_and() {
        let of = |items: &[&str]| listed(items);
        assert_eq!(
            [of(&[]), of(&["a"]), of(&["a", "b"]), of(&["a", "b", "c"])],
            ["", "a", "a and b", "a, b and c"]
        );
    }
}
