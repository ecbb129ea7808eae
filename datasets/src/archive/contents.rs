//! Contents of a folder or archive, for messages.

use std::collections::BTreeSet;

/// Maximum number of names that are kept.
const KEPT: usize = 256;

/// Maximum number of names that are shown.
const SHOWN: usize = 8;

/// Names in a folder or archive, as many as fit into a message.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    /// First two parts of each file's name; a trailing slash marks a longer name.
    names: BTreeSet<String>,
    /// Number of files.
    files: usize,
    /// Number of wanted files.
    pub(crate) wanted: usize,
}

impl Contents {
    /// Adds a file by its relative name.
    pub(crate) fn add(&mut self, name: &str, wanted: bool) {
        self.files += 1;
        self.wanted += usize::from(wanted);
        if self.names.len() < KEPT {
            self.names.insert(beginning(name, 2));
        }
    }

    /// Returns whether one of the kept names has this ending.
    pub(crate) fn has_ending(&self, ending: &str) -> bool {
        let ends = |name: &String| name.to_ascii_lowercase().ends_with(ending);
        self.names.iter().any(ends)
    }

    /// Returns whether there are no files.
    pub(crate) fn is_empty(&self) -> bool {
        self.files == 0
    }

    /// Returns the names in words: `a/, notes.txt and 3 more`.
    pub(crate) fn text(&self) -> String {
        if self.files == 0 {
            return "nothing".to_owned();
        }
        let tops: BTreeSet<String> = self.names.iter().map(|name| beginning(name, 1)).collect();
        // A single folder around everything is not informative.
        let names = match tops.len() {
            1 => &self.names,
            _ => &tops,
        };
        let shown: Vec<&str> = names.iter().take(SHOWN).map(String::as_str).collect();
        let text = shown.join(", ");
        match names.len() - shown.len() {
            0 => text,
            more => format!("{text} and {more} more"),
        }
    }
}

/// Returns the first parts of a name, with a trailing slash if the name is longer.
fn beginning(name: &str, parts: usize) -> String {
    let end = name.match_indices('/').nth(parts - 1);
    end.map_or(name, |(place, _)| &name[..=place]).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_in_few_words() {
        let of = |names: &[&str]| {
            let mut contents = Contents::default();
            names.iter().for_each(|name| contents.add(name, false));
            contents.text()
        };
        assert_eq!(of(&[]), "nothing");
        assert_eq!(of(&["notes.txt", "a/b/c", "a/d"]), "a/, notes.txt");
        assert_eq!(of(&["a/b/c", "a/b/d", "a/e"]), "a/b/, a/e");
        let many: Vec<String> = (0..12).map(|number| format!("{number:02}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert!(of(&many).ends_with("06, 07 and 4 more"));
    }
}
