//! Text files that list images and labels.
//!
//! Each line describes an image by fields separated by spaces: folder (`imgs/<batch>`), file name,
//! number, label, then parameters of the generator that a reader does not need. The name ends in
//! `.npy`, but the content is text; an array of the same fields is read too.

use std::path::Path;

use crate::error::{Error, Result};
use crate::lines::whole_number;
use crate::numpy::{self, Array};

/// One image of a set.
#[derive(Debug, PartialEq)]
pub(super) struct Listed {
    /// Path relative to the set's folder, such as `imgs/3/sample_17.png`.
    pub(super) path: String,
    pub(super) label: u8,
}

/// Reads one metadata file; `file` is its name in messages.
pub(super) fn parse(file: &Path, bytes: &[u8]) -> Result<Vec<Listed>> {
    let wrong = |problem: &str| Error::File {
        file: file.to_owned(),
        problem: problem.to_owned(),
    };
    if bytes.starts_with(numpy::MAGIC) {
        let lines = lines_of_array(bytes).map_err(|problem| {
            wrong(&format!(
                "this is a NumPy array, and not one of the Long Range Arena's lists, which say folder, name, number and \
                 label of each image: {problem}"
            ))
        })?;
        return Ok(lines);
    }
    let text =
        std::str::from_utf8(disk::without_mark(bytes)).map_err(|_| wrong("not text (UTF-8)"))?;
    text.lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(index, line)| {
            line_of(line).map_err(|problem| Error::Row {
                file: file.to_owned(),
                line: index as u64 + 1,
                problem,
            })
        })
        .collect()
}

/// Reads the images of a list that was saved again as an array of text: a row each, with the fields
/// of a line.
fn lines_of_array(bytes: &[u8]) -> Result<Vec<Listed>, String> {
    let rows = Array::of_file(bytes)?.rows()?;
    let numbered = rows.iter().enumerate();
    numbered
        .map(|(index, row)| {
            line_of(&row.join(" ")).map_err(|problem| format!("row {}: {problem}", index + 1))
        })
        .collect()
}

fn line_of(line: &str) -> Result<Listed, String> {
    let mut fields = line.split_ascii_whitespace();
    let (Some(folder), Some(name), Some(_), Some(label)) =
        (fields.next(), fields.next(), fields.next(), fields.next())
    else {
        return Err(
            "fewer than four fields; wanted: imgs/<batch> <name>.png <number> <label> ..."
                .to_owned(),
        );
    };
    let label = match whole_number(label) {
        Some(0) => 0,
        Some(1) => 1,
        _ => {
            return Err(format!(
                "the label (fourth field) is {}, not 0 or 1",
                shortened(label)
            ));
        }
    };
    let batch = folder.strip_prefix("imgs/").filter(|batch| plain(batch));
    let name = name.strip_suffix(".png").filter(|name| plain(name));
    match (batch, name) {
        (Some(batch), Some(name)) => Ok(Listed {
            path: format!("imgs/{batch}/{name}.png"),
            label,
        }),
        _ => Err(format!(
            "{} is not an image of this set; expected: imgs/<batch> <name>.png",
            shortened(line)
        )),
    }
}

/// Returns whether a path component is plain, so that it cannot lead outside.
fn plain(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    !name.is_empty() && name.bytes().all(allowed)
}

/// Returns the part of a line that a message quotes, regardless of the line's length.
fn shortened(text: &str) -> String {
    match text.char_indices().nth(80) {
        Some((end, _)) => format!("{:?}...", &text[..end]),
        None => format!("{text:?}"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::cases;
    use super::*;

    const GOOD: &str = "imgs/43 sample_0.png 0 0 1.8 6 2.0 5 1.5 2 1\nimgs/43 sample_1.png 1 1 1.8 6 2.0 5 1.5 2 1\n";

    fn problem(text: &[u8]) -> String {
        parse(Path::new("metadata/43.npy"), text)
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn a_published_row_is_read() {
        let listed = parse(Path::new("43.npy"), GOOD.as_bytes()).unwrap();
        assert_eq!(
            listed[1],
            Listed {
                path: "imgs/43/sample_1.png".to_owned(),
                label: 1
            }
        );
        assert_eq!(listed.len(), 2);
    }

    #[test]
    fn wrong_lines_are_named() {
        for (text, expected) in [
            ("imgs/0 sample_0.png 0", "43.npy:1: fewer than four fields"),
            (
                "imgs/0 a.png 0 1\nimgs/0 b.png 0 2",
                "43.npy:2: the label (fourth field) is \"2\"",
            ),
            (
                "imgs/.. a.png 0 1",
                "43.npy:1: \"imgs/.. a.png 0 1\" is not an image",
            ),
            ("../imgs a.png 0 1", "is not an image"),
            ("/etc passwd.png 0 1", "is not an image"),
            ("imgs/0 ../../a.png 0 1", "is not an image"),
            ("imgs/0 a.npy 0 1", "is not an image"),
        ] {
            let problem = problem(text.as_bytes());
            assert!(problem.contains(expected), "{problem}");
        }
        assert!(problem(&[0xff, 0xfe]).contains("not text"));
        assert!(problem(b"\x93NUMPY\x01\x00").contains("NumPy array"));
        let long = format!("imgs/0 a.png 0 {}", "x".repeat(100_000));
        assert!(problem(long.as_bytes()).len() < 300);
    }

    proptest! {
        #![proptest_config(cases(2000))]
        #[test]
        fn no_bytes_make_it_panic(changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..20)) {
            let mut bytes = GOOD.as_bytes().to_vec();
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            if let Ok(listed) = parse(Path::new("0.npy"), &bytes) {
                prop_assert!(listed.iter().all(|image| image.label < 2 && !image.path.contains("..")));
            }
        }
    }
}
