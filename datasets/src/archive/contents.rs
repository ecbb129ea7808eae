//! Contents of a folder or archive, for messages.

use std::collections::{BTreeMap, BTreeSet};

use super::litter::litter_in;

/// Maximum number of names that are kept.
const KEPT: usize = 256;

/// Maximum number of names that are shown.
const SHOWN: usize = 8;

/// Maximum number of links that are kept.
const MOST_LINKS: usize = 100_000;

/// Maximum number of wanted files that are kept as samples.
const MOST_SAMPLES: usize = 64;

/// Names in a folder or archive, as many as fit into a message.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    /// First two parts of each file's name; a trailing slash marks a longer name.
    names: BTreeSet<String>,
    /// Number of files.
    files: usize,
    /// Number of wanted files.
    pub(crate) wanted: usize,
    /// Names of hidden files and folders and of those that systems leave, which are passed over.
    passed_over: BTreeSet<String>,
    /// True if a file is named like a parquet file.
    pub(crate) has_parquet: bool,
    /// Links that were not followed.
    links: Vec<String>,
    /// True if there are more than [`MOST_LINKS`].
    pub(super) too_many_links: bool,
    /// A wanted file of each ending and depth.
    samples: BTreeMap<(String, usize), String>,
}

impl Contents {
    /// Adds a file by its relative name.
    pub(crate) fn add(&mut self, name: &str, wanted: bool) {
        self.files += 1;
        self.wanted += usize::from(wanted);
        self.has_parquet |= name.to_ascii_lowercase().ends_with(".parquet");
        if self.names.len() < KEPT {
            self.names.insert(beginning(name, 2));
        }
        if wanted && self.samples.len() < MOST_SAMPLES {
            let file = name.rsplit('/').next().unwrap_or(name);
            let end = file.rsplit_once('.').map_or("", |(_, end)| end);
            let kind = (end.to_ascii_lowercase(), name.matches('/').count());
            self.samples.entry(kind).or_insert_with(|| name.to_owned());
        }
    }

    /// Adds a file or folder that is passed over by its name. That of a folder ends in a slash.
    pub(crate) fn pass_over(&mut self, name: &str) {
        if self.passed_over.len() < KEPT {
            let name = litter_in(name).unwrap_or(name);
            self.passed_over.insert(name.to_owned());
        }
    }

    /// Adds a link that is not followed. [`add`](Self::add) counts it as a file.
    pub(crate) fn add_link(&mut self, name: &str) {
        match self.links.len() < MOST_LINKS {
            true => self.links.push(name.to_owned()),
            false => self.too_many_links = true,
        }
    }

    /// Returns the links that were not followed.
    pub(crate) fn links(&self) -> &[String] {
        &self.links
    }

    /// Returns what may follow the name of a folder of data in the names of files: of
    /// `a/train/pos/1_9.txt` these are `1_9.txt` and `pos/1_9.txt`. Ends that `fits` accepts in any
    /// folder are left out: with them, every folder could hold data.
    pub(crate) fn ends(&self, fits: &dyn Fn(&str) -> bool) -> BTreeSet<String> {
        let mut ends = BTreeSet::new();
        for sample in self.samples.values() {
            let own = sample.rmatch_indices('/').map(|(at, _)| &sample[at + 1..]);
            ends.extend(
                own.take_while(|end| !fits(&format!("x/{end}")))
                    .map(str::to_owned),
            );
        }
        ends
    }

    /// Returns the names in words: `a/, notes.txt and 3 more`.
    pub(crate) fn text(&self) -> String {
        if self.files == 0 {
            let is_hidden = |name: &String| name.split('/').any(|part| part.starts_with('.'));
            let kind = match self.passed_over.iter().all(is_hidden) {
                _ if self.passed_over.is_empty() => return "nothing".to_owned(),
                true => "only hidden files",
                false => "only hidden files, or files that systems leave",
            };
            return format!("{kind}, which are passed over: {}", few(&self.passed_over));
        }
        let tops: BTreeSet<String> = self.names.iter().map(|name| beginning(name, 1)).collect();
        // A single folder around everything is not informative.
        let text = match tops.len() {
            1 => few(&self.names),
            _ => few(&tops),
        };
        match self.links.is_empty() {
            true => text,
            false => format!(
                "{text}; links, which are not followed: {}",
                few(&self.links)
            ),
        }
    }
}

/// Returns the first of these names, and the number of the others.
pub(crate) fn few<'a>(names: impl IntoIterator<Item = &'a String>) -> String {
    let mut names = names.into_iter();
    let shown: Vec<&str> = names.by_ref().take(SHOWN).map(String::as_str).collect();
    let text = shown.join(", ");
    match names.count() {
        0 => text,
        more => format!("{text} and {more} more"),
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

    #[test]
    fn what_is_passed_over_is_told_where_nothing_else_is() {
        let mut contents = Contents::default();
        contents.pass_over("a/.cache/b/c.txt");
        contents.pass_over(".cache/");
        assert_eq!(
            contents.text(),
            "only hidden files, which are passed over: .cache/, a/.cache/"
        );
        contents.pass_over("Thumbs.db");
        assert!(
            contents
                .text()
                .starts_with("only hidden files, or files that systems leave")
        );
        contents.add("b", false);
        assert_eq!(contents.text(), "b");
    }

    #[test]
    fn ends_of_names_are_those_below_a_folder_of_data() {
        let mut contents = Contents::default();
        contents.add("top/a/train/pos/1.txt", true);
        contents.add("other/note.md", false);
        let fits = |name: &str| name.contains("/train/");
        let ends: Vec<String> = contents.ends(&fits).into_iter().collect();
        assert_eq!(ends, ["1.txt", "pos/1.txt"]);
        // A file that is data in every folder.
        assert!(contents.ends(&|_| true).is_empty());
    }
}
