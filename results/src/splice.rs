//! Updates of tables in text files: the text between two markers of a Markdown file is replaced.
//!
//! ```text
//! <!-- lra:accuracy -->
//! ...whatever stands here is generated...
//! <!-- /lra:accuracy -->
//! ```

use std::path::Path;

use crate::{Error, Result, atomic};

/// Replaces the text between `<!-- lra:NAME -->` and `<!-- /lra:NAME -->`. The markers stay, each
/// on its own line.
///
/// # Errors
/// [`Error::Marker`]: a marker is missing or repeated, or the closing one comes first.
pub fn splice(text: &str, name: &str, replacement: &str) -> Result<String> {
    let open = format!("<!-- lra:{name} -->");
    let close = format!("<!-- /lra:{name} -->");
    let start = only(text, &open)? + open.len();
    let end = only(text, &close)?;
    if end < start {
        return Err(Error::Marker {
            reason: format!("{close} comes before {open}"),
        });
    }
    let body = replacement.trim_matches('\n');
    let gap = if body.is_empty() { "" } else { "\n" };
    Ok(format!("{}\n{body}{gap}{}", &text[..start], &text[end..]))
}

/// Splices into a file, which is replaced as a whole or not at all. Returns whether the file
/// changed.
///
/// # Errors
/// Errors of [`splice`]; or the file cannot be read or written.
pub fn splice_file(path: &Path, name: &str, replacement: &str) -> Result<bool> {
    let text = disk::read_to_string(path).map_err(Error::io("read", path))?;
    let spliced = splice(&text, name, replacement).map_err(|error| error.at(path))?;
    if spliced == text {
        return Ok(false);
    }
    atomic::write(path, spliced.as_bytes())?;
    Ok(true)
}

/// Returns the names of all opening markers of a file.
///
/// # Errors
/// The file cannot be read.
pub fn marked(path: &Path) -> Result<Vec<String>> {
    let text = disk::read_to_string(path).map_err(Error::io("read", path))?;
    Ok(names(&text).into_iter().map(str::to_owned).collect())
}

/// Returns the parts of a text in Markdown outside fenced code, each with its position.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut parts = Vec::new();
    let (mut place, mut fence) = (0, None);
    for line in text.split_inclusive('\n') {
        let trimmed = line.trim_start();
        let mark = ["```", "~~~"]
            .into_iter()
            .find(|it| trimmed.starts_with(it));
        match (fence, mark) {
            (None, None) => parts.push((place, line)),
            (None, Some(_)) => fence = mark,
            (Some(open), Some(mark)) if open == mark => fence = None,
            (Some(_), _) => {}
        }
        place += line.len();
    }
    parts
}

/// Returns the position of the marker, if it occurs exactly once outside fenced code.
fn only(text: &str, marker: &str) -> Result<usize> {
    let parts = prose(text);
    let mut places = parts.iter().flat_map(|(start, part)| {
        let places = part.match_indices(marker);
        places.map(move |(place, _)| start + place)
    });
    match (places.next(), places.next()) {
        (Some(place), None) => Ok(place),
        (Some(_), Some(second)) => {
            let line = 1 + text[..second].matches('\n').count();
            let reason = format!("{marker} occurs more than once, again on line {line}");
            Err(Error::Marker { reason })
        }
        (None, _) => {
            let known = names(text);
            let hint = match known.is_empty() {
                true => "it has no lra markers".to_owned(),
                false => format!("it has markers for: {}", known.join(", ")),
            };
            let reason = format!("there is no line {marker}; {hint}");
            Err(Error::Marker { reason })
        }
    }
}

/// Returns the names that have an opening marker outside fenced code.
fn names(text: &str) -> Vec<&str> {
    prose(text)
        .into_iter()
        .flat_map(|(_, part)| part.split("<!-- lra:").skip(1))
        .filter_map(|rest| rest.split_once(" -->"))
        .map(|(name, _)| name)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const PAGE: &str = "# Speed\n\n<!-- lra:speed -->\nold\n<!-- /lra:speed -->\n\nend\n<!-- lra:x --><!-- /lra:x -->\n";

    #[test]
    fn replaces_between_its_markers_only() {
        let spliced = splice(PAGE, "speed", "| a |\n| b |\n").unwrap();
        assert_eq!(spliced, PAGE.replace("old", "| a |\n| b |"));
        assert_eq!(splice(&spliced, "speed", "| a |\n| b |").unwrap(), spliced);
        let filled = splice(PAGE, "x", "one").unwrap();
        assert!(filled.ends_with("<!-- lra:x -->\none\n<!-- /lra:x -->\n"));
        let emptied = splice(PAGE, "speed", "").unwrap();
        assert!(emptied.contains("<!-- lra:speed -->\n<!-- /lra:speed -->"));
    }

    #[test]
    fn markers_in_fenced_code_are_examples() {
        let example = "```sh\nprintf '<!-- lra:speed -->\\n<!-- /lra:speed -->\\n'\n```\n";
        let page = format!("{example}{PAGE}");
        let spliced = splice(&page, "speed", "new").unwrap();
        assert_eq!(spliced, format!("{example}{}", PAGE.replace("old", "new")));
        assert_eq!(names(&page), names(PAGE));
        assert!(splice(example, "speed", "new").is_err());
    }

    #[test]
    fn says_which_marker_is_wrong() {
        let wrong = |text: &str, name: &str| splice(text, name, "new").unwrap_err().to_string();
        assert_eq!(
            wrong(PAGE, "memory"),
            "there is no line <!-- lra:memory -->; it has markers for: speed, x"
        );
        assert_eq!(
            wrong("plain", "memory"),
            "there is no line <!-- lra:memory -->; it has no lra markers"
        );
        assert_eq!(
            wrong(&PAGE.replace("<!-- /lra:speed -->", ""), "speed"),
            "there is no line <!-- /lra:speed -->; it has markers for: speed, x"
        );
        assert_eq!(
            wrong(&format!("{PAGE}<!-- lra:speed -->"), "speed"),
            "<!-- lra:speed --> occurs more than once, again on line 9"
        );
        assert_eq!(
            wrong("<!-- /lra:a -->\n<!-- lra:a -->", "a"),
            "<!-- /lra:a --> comes before <!-- lra:a -->"
        );
    }

    #[test]
    fn a_file_is_replaced_whole_and_only_when_it_changes() {
        let folder = tempfile::tempdir().unwrap();
        let page = folder.path().join("README.md");
        fs::write(&page, PAGE).unwrap();
        assert!(splice_file(&page, "speed", "new").unwrap());
        assert!(!splice_file(&page, "speed", "new").unwrap());
        assert_eq!(
            fs::read_to_string(&page).unwrap(),
            PAGE.replace("old", "new")
        );
        let error = splice_file(&page, "memory", "new").unwrap_err().to_string();
        assert!(
            error.contains("README.md: there is no line <!-- lra:memory -->"),
            "{error}"
        );
    }
}
