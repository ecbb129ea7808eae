//! Rows as text for people.

/// Width of the text, in columns.
const WIDTH: usize = 98;

/// Number of words that are written; the middle of a longer row is left out.
const WORDS: usize = 400;

/// Joins words with spaces into lines; leaves out the middle of a long list, and says so.
pub(in crate::tasks) fn wrap(words: &[String]) -> String {
    let left_out = words.len().saturating_sub(WORDS);
    let note = format!("... {left_out} left out ...");
    let (first, last) = match left_out {
        0 => (words, &[][..]),
        _ => (&words[..WORDS / 2], &words[words.len() - WORDS / 2..]),
    };
    let note = (left_out > 0).then_some(&note);
    let mut text = String::new();
    let mut column = 0;
    for word in first.iter().chain(note).chain(last) {
        let length = word.chars().count();
        match column {
            0 => column = length,
            _ if column + 1 + length > WIDTH => {
                text.push('\n');
                column = length;
            }
            _ => {
                text.push(' ');
                column += 1 + length;
            }
        }
        text.push_str(word);
    }
    text
}

/// Replaces each run of at least four equal words `dot` by its length, such as `(12)`.
pub(super) fn shorten(words: impl IntoIterator<Item = String>, dot: &str) -> Vec<String> {
    let mut short: Vec<String> = Vec::new();
    let mut run = 0;
    let flush = |short: &mut Vec<String>, run: usize| match run {
        0..4 => short.extend(std::iter::repeat_n(dot.to_owned(), run)),
        _ => short.push(format!("({run})")),
    };
    for word in words {
        if word == dot {
            run += 1;
            continue;
        }
        flush(&mut short, run);
        run = 0;
        short.push(word);
    }
    flush(&mut short, run);
    short
}
