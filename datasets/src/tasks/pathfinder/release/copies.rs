//! Copies of a set in a folder or an archive, and the choice among them.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use super::set::{File, Set};
use crate::archive::{Contents, Raw};
use crate::error::{Error, Result};
use crate::locate::{Survey, Wanted, folder_in_words};
use crate::words::listed;

/// Metadata files by batch.
pub(super) type Metadata = BTreeMap<(u64, String), Vec<u8>>;

/// One copy of a set, with the places `P` of its images.
#[derive(Debug)]
pub(super) struct Copy<P> {
    pub(super) metadata: Metadata,
    /// Images by their path inside the set.
    pub(super) images: HashMap<String, P>,
}

impl<P> Default for Copy<P> {
    fn default() -> Copy<P> {
        Copy {
            metadata: Metadata::new(),
            images: HashMap::new(),
        }
    }
}

impl<P> Copy<P> {
    /// Adds the list of a batch, which was read from `path`.
    ///
    /// # Errors
    /// The batch has a list already.
    pub(super) fn add_list(&mut self, batch: &str, bytes: Vec<u8>, path: &Path) -> Result<()> {
        // The key puts `3` before `20`.
        let key = (batch.parse().unwrap_or(u64::MAX), batch.to_owned());
        once(self.metadata.insert(key, bytes).is_none(), path)
    }

    /// Adds an image, which was found at `path`.
    ///
    /// # Errors
    /// There is an image of this name already.
    pub(super) fn add_image(&mut self, inside: &str, place: P, path: &Path) -> Result<()> {
        once(self.images.insert(inside.to_owned(), place).is_none(), path)
    }
}

fn once(is_first: bool, path: &Path) -> Result<()> {
    match is_first {
        true => Ok(()),
        false => Err(Error::File {
            file: path.to_owned(),
            problem: "a second file of this name: move one of them away".to_owned(),
        }),
    }
}

/// A copy that was chosen.
#[derive(Debug)]
pub(super) struct Found<P> {
    /// Path of the set in the folder or archive.
    pub(super) prefix: String,
    pub(super) copy: Copy<P>,
    /// Notes about what was not read.
    pub(super) notes: Vec<String>,
}

/// Search for a set among the files of a folder or archive.
pub(super) struct Search<'a> {
    pub(super) set: &'a Set,
    pub(super) wanted: &'a Wanted<'a>,
    survey: RefCell<Survey>,
}

impl<'a> Search<'a> {
    pub(super) fn new(set: &'a Set, wanted: &'a Wanted<'a>, survey: Survey) -> Search<'a> {
        Search {
            set,
            wanted,
            survey: RefCell::new(survey),
        }
    }

    /// Takes note of a file by its name.
    pub(super) fn see(&self, name: &str) {
        self.survey.borrow_mut().see(self.wanted, name);
    }

    /// Returns the path of the set, the path inside the set, and the kind of a file of the set;
    /// `None` for other files.
    pub(super) fn file<'n>(&self, name: &'n str) -> Option<(&'n str, &'n str, File<'n>)> {
        let (prefix, inside) = self.set.within(name)?;
        Some((prefix, inside, File::of(inside).ok()?))
    }

    /// Chooses the copy to read, and checks the files around its own.
    ///
    /// # Errors
    /// No copy has lists, two may be meant, or a file among those of the set belongs to none.
    pub(super) fn choose<P>(
        &self,
        mut copies: BTreeMap<String, Copy<P>>,
        raw: &Raw,
        contents: &Contents,
    ) -> Result<Found<P>> {
        copies.retain(|_, copy| !copy.metadata.is_empty());
        let mut others: Vec<String> = copies.keys().cloned().collect();
        let chosen = innermost(copies.into_iter().collect()).map_err(|problem| Error::File {
            file: raw.path().to_owned(),
            problem,
        })?;
        let Some((prefix, copy)) = chosen else {
            return Err(self.wanted.missing(raw.path(), Some(contents)));
        };
        let mut places = vec![prefix.trim_end_matches('/')];
        places.extend(self.set.size_folder(&prefix));
        let survey = self.survey.borrow();
        survey.check_in(&places, false, raw)?;
        let mut notes = survey.notes_in(&places);
        others.retain(|other| *other != prefix);
        if !others.is_empty() {
            let others = others.iter().map(|other| folder_in_words(other));
            notes.push(format!(
                "read from {}, the innermost copy of the set; not read: {}",
                folder_in_words(&prefix),
                listed(others)
            ));
        }
        Ok(Found {
            prefix,
            copy,
            notes,
        })
    }
}

/// Returns the innermost of several copies of a set, each with the path of its folder. The release
/// has them at several depths, and the inner one is good.
///
/// # Errors
/// A description with the paths of two copies at the same depth: either may be meant.
fn innermost<T>(mut copies: Vec<(String, T)>) -> Result<Option<(String, T)>, String> {
    let depth = |prefix: &str| prefix.matches('/').count();
    copies.sort_by(|(one, _), (other, _)| one.cmp(other));
    let Some(deepest) = copies.iter().map(|(prefix, _)| depth(prefix)).max() else {
        return Ok(None);
    };
    let mut inner = copies
        .into_iter()
        .filter(|(prefix, _)| depth(prefix) == deepest);
    match (inner.next(), inner.next()) {
        (Some((one, _)), Some((other, _))) => Err(format!(
            "the set is there twice, in `{one}` and in `{other}`: name the folder to read with --from"
        )),
        (found, _) => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_in_the_order_of_their_numbers() {
        let mut copy: Copy<()> = Copy::default();
        for batch in ["20", "3", "x", "100"] {
            copy.add_list(batch, Vec::new(), Path::new(batch)).unwrap();
        }
        let batches: Vec<&str> = copy
            .metadata
            .keys()
            .map(|(_, batch)| batch.as_str())
            .collect();
        assert_eq!(batches, ["3", "20", "100", "x"]);
        assert!(copy.add_list("3", Vec::new(), Path::new("3")).is_err());
    }
}
