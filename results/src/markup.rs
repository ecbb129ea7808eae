//! Escaping of strings for HTML and XML, CSV, and the terminal. A string may come from an untrusted
//! record.

use std::path::Path;

/// Returns whether a terminal obeys the character, line feeds and tabs aside.
pub(crate) fn is_obeyed(c: char) -> bool {
    !matches!(c, '\n' | '\t') && disk::is_obeyed(c)
}

/// Returns a JSON document with every character that a terminal would obey spelt out, such as
/// U+009B, which JSON itself leaves as it is. Its strings stay the same.
pub(crate) fn spelt(json: &str) -> String {
    let mut spelt = String::with_capacity(json.len());
    for c in json.chars() {
        match is_obeyed(c) {
            true => spelt += &format!("\\u{:04x}", u32::from(c)),
            false => spelt.push(c),
        }
    }
    spelt
}

/// Returns the text with U+FFFD in the place of what a terminal would obey, and of what XML 1.0
/// cannot hold.
pub(crate) fn visible(text: &str) -> String {
    let is_bad = |c: char| is_obeyed(c) || matches!(c, '\u{fffe}' | '\u{ffff}');
    text.replace(is_bad, "\u{fffd}")
}

/// Returns the text as one line, [`visible`], with blanks in the place of line feeds and tabs: in a
/// list of lines, a string of a file cannot look like another line.
pub(crate) fn one_line(text: &str) -> String {
    visible(text).replace(['\n', '\t'], " ")
}

/// Returns a path as [`one_line`].
pub(crate) fn shown(path: &Path) -> String {
    one_line(&path.to_string_lossy())
}

/// Returns text that is safe between tags and in attributes.
pub(crate) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in visible(text).chars() {
        match c {
            '<' => safe += "&lt;",
            '>' => safe += "&gt;",
            '&' => safe += "&amp;",
            '"' => safe += "&quot;",
            c => safe.push(c),
        }
    }
    safe
}

/// Returns text for a field of a CSV file. Text that a spreadsheet would read as a formula, or that
/// starts with a quote, is prefixed with a quote, so that [`unguarded`] restores it.
pub(crate) fn guarded(text: &str) -> String {
    match is_guardable(text) {
        true => format!("'{text}"),
        false => text.to_owned(),
    }
}

/// Returns the text passed to [`guarded`].
pub(crate) fn unguarded(field: &str) -> &str {
    match field.strip_prefix('\'') {
        Some(text) if is_guardable(text) => text,
        _ => field,
    }
}

fn is_guardable(text: &str) -> bool {
    const FORMULA: [char; 8] = ['=', '+', '-', '@', '＝', '＋', '－', '＠'];
    // Characters without a width, which some programs drop before they read the text.
    const UNSEEN: [char; 5] = ['\u{feff}', '\u{200b}', '\u{200c}', '\u{200d}', '\u{2060}'];
    let unseen = |c: char| c.is_whitespace() || UNSEEN.contains(&c);
    text.starts_with(['\'', '\t', '\r']) || text.trim_start_matches(unseen).starts_with(FORMULA)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_is_taken_out_and_layout_stays() {
        assert_eq!(
            visible("a\u{1b}[2J\u{9b}b\r\n\tc\u{202e}"),
            "a\u{fffd}[2J\u{fffd}b\u{fffd}\n\tc\u{fffd}"
        );
        assert_eq!(visible("\u{61c}1"), "\u{fffd}1");
        assert_eq!(
            visible("\u{fffe}\u{ffff}\u{fffc}"),
            "\u{fffd}\u{fffd}\u{fffc}"
        );
        assert_eq!(one_line("a\nerror: b\tc"), "a error: b c");
        assert_eq!(
            escaped("<a href=\"\u{7}\">&"),
            "&lt;a href=&quot;\u{fffd}&quot;&gt;&amp;"
        );
    }

    #[test]
    fn formulas_are_guarded_and_come_back() {
        for formula in [
            "=1+1",
            "+1",
            "-1",
            "@SUM(A1)",
            "\t=1",
            "\r1",
            " =1",
            "\u{feff}=1",
            "\u{200b} +1",
            "＝1",
            "'",
            "'=1",
        ] {
            let field = guarded(formula);
            assert_eq!(field, format!("'{formula}"));
            assert_eq!(unguarded(&field), formula);
        }
        for plain in ["", "a=1", "1-2", "block.layers=2 train.steps=4"] {
            assert_eq!((guarded(plain).as_str(), unguarded(plain)), (plain, plain));
        }
        // Files from before the guard.
        assert_eq!(unguarded("'s"), "'s");
    }
}
