//! Commands in messages: quoted for a shell, and for the data directory in use, so that they can be
//! pasted.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Data directory that commands name; unset for the default one, which they find by themselves.
static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();

/// Lets every command in a message name this data directory, as the user did. The first call of a
/// process counts.
pub fn name_directory(path: &Path) {
    let _ = DIRECTORY.set(path.to_owned());
}

/// Returns the flag, behind a blank, that gives a command the data directory in use; empty for the
/// default one.
#[must_use]
pub fn data_flag() -> String {
    let named = DIRECTORY.get();
    named.map_or(String::new(), |path| {
        format!(" --data {}", quoted_path(path))
    })
}

/// Returns a word as a POSIX shell reads it back: in single quotes, unless it is plain.
#[must_use]
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=.,:/@+".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// Returns a path as a command gets it from a POSIX shell. A path that begins with a dash gets `./`
/// in front, so that it is no flag.
#[must_use]
pub fn quoted_path(path: &Path) -> String {
    match path.as_os_str().as_encoded_bytes().starts_with(b"-") {
        true => quoted_word(Path::new(".").join(path).as_os_str()),
        false => quoted_word(path.as_os_str()),
    }
}

/// Returns a word that may be no text as a POSIX shell reads it back. Control characters and bytes
/// that are no text are written as `$'\n'`, which bash, zsh and ksh read.
#[must_use]
pub fn quoted_word(word: &OsStr) -> String {
    let bytes = word.as_encoded_bytes();
    match word
        .to_str()
        .filter(|text| !text.chars().any(char::is_control))
    {
        Some(text) => quoted(text),
        None => {
            let escaped = bytes.iter().map(|byte| match byte {
                b'\\' | b'\'' => format!("\\{}", char::from(*byte)),
                b' '..=b'~' => char::from(*byte).to_string(),
                other => format!("\\x{other:02x}"),
            });
            format!("$'{}'", escaped.collect::<String>())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_where_they_must_be() {
        assert_eq!(
            quoted("train.learning_rate=1e-3"),
            "train.learning_rate=1e-3"
        );
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted_path(Path::new("my data/A")), "'my data/A'");
        assert_eq!(quoted_path(Path::new("a\nb's")), r"$'a\x0ab\'s'");
        assert_eq!(quoted_path(Path::new("-runs")), "./-runs");
        assert_eq!(quoted_word("-runs".as_ref()), "-runs");
    }
}
