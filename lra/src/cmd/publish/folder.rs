//! The folder of a site, which is written whole or not at all.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use disk::TemporaryFolder;
use results::site::{File, MARKER};
use serde_json::Value;

use crate::error::{Error, Result, in_writing};

/// Name of the temporary folder, before that of the site. A random end follows.
const BESIDE: &str = ".lra-publish-";
/// Name of the finished site in it.
const AFTER: &str = "site";
/// Name of the replaced site in it.
const BEFORE: &str = "before";

/// A folder to be replaced, and a temporary folder beside it, which is removed at the end.
pub(super) struct Folder {
    place: PathBuf,
    beside: TemporaryFolder,
    /// True if what is there is kept under another name.
    keep: bool,
}

impl Folder {
    /// Prepares the writing of a site.
    ///
    /// # Errors
    /// The place is not a folder; or it is a folder that holds something other than a site, unless
    /// `force` is given; or nothing can be written beside it.
    pub(super) fn new(place: &Path, force: bool) -> Result<Folder> {
        let shown = place.display();
        if place.file_name().is_none() {
            return Err(Error::usage(format!(
                "{shown} has no name of its own: name a folder that the site becomes, such as {}",
                place.join("site").display()
            )));
        }
        clear_leftovers(place);
        let found = place.symlink_metadata().ok();
        if found.as_ref().is_some_and(|found| !found.is_dir()) {
            return Err(Error::usage(format!(
                "{shown} is not a folder: name another one, or remove it"
            )));
        }
        let foreign = match found {
            Some(_) => foreign(place).map_err(in_writing(format!("reading {shown}")))?,
            None => None,
        };
        if let (Some(reason), false) = (&foreign, force) {
            return Err(Error::usage(format!(
                "{shown} {reason}: name another folder, or add --force, which moves it to {}",
                old(place).display()
            )));
        }
        if foreign.is_some() && old(place).symlink_metadata().is_ok() {
            return Err(Error::usage(format!(
                "--force would move {shown} to {}, which is there already: move it away",
                old(place).display()
            )));
        }
        let parent = disk::folder_of(place);
        let making = || format!("making {shown}");
        fs::create_dir_all(parent).map_err(in_writing(making()))?;
        let beside =
            TemporaryFolder::create(parent, &beside_of(place)).map_err(in_writing(making()))?;
        Ok(Folder {
            place: place.to_owned(),
            beside,
            keep: foreign.is_some(),
        })
    }

    /// Returns the temporary folder.
    pub(super) fn staging(&self) -> &Path {
        self.beside.path()
    }

    /// Writes the files, then puts them in the place of the folder. Returns where the content of a
    /// folder that was no site is now.
    ///
    /// # Errors
    /// A file cannot be written, or the folder cannot be renamed; it is as it was before.
    pub(super) fn write(self, files: &[File]) -> Result<Option<PathBuf>> {
        let place = &self.place;
        let unfinished = self.beside.path().join(AFTER);
        fs::create_dir(&unfinished).map_err(in_writing(format!("making {}", place.display())))?;
        for file in files {
            disk::write(&unfinished.join(&file.name), file.text.as_bytes()).map_err(in_writing(
                format!("writing {}", place.join(&file.name).display()),
            ))?;
        }
        let making = || in_writing(format!("making {}", place.display()));
        let is_there = place.symlink_metadata().is_ok();
        let aside = match self.keep {
            true => old(place),
            false => self.beside.path().join(BEFORE),
        };
        if is_there {
            disk::rename(place, &aside).map_err(making())?;
        }
        if let Err(error) = disk::rename(&unfinished, place) {
            if is_there && disk::rename(&aside, place).is_err() {
                let kept = self.beside.keep();
                let aside = if self.keep { aside } else { kept.join(BEFORE) };
                let what = format!(
                    "making {}, whose old content is in {} now",
                    place.display(),
                    aside.display()
                );
                return Err(in_writing(what)(error));
            }
            return Err(making()(error));
        }
        Ok(self.keep.then_some(aside))
    }
}

/// Returns how the names of temporary folders beside a site begin.
fn beside_of(place: &Path) -> OsString {
    let mut name = OsString::from(BESIDE);
    name.push(place.file_name().unwrap_or_default());
    name.push("-");
    name
}

/// Removes the temporary folders of killed processes beside a site. If such a process had moved the
/// site away, it is moved back first.
fn clear_leftovers(place: &Path) {
    disk::clear_temporary(disk::folder_of(place), &beside_of(place), |folder| {
        let before = folder.join(BEFORE);
        let is_lost = before.is_dir() && place.symlink_metadata().is_err();
        !is_lost || disk::rename(&before, place).is_ok()
    });
}

/// Returns the folder's name for what was in it.
fn old(place: &Path) -> PathBuf {
    let mut name = place.file_name().map_or_else(OsString::new, OsString::from);
    name.push(".old");
    place.with_file_name(name)
}

/// Returns the reason why a folder is not a site alone; `None` if it is one, or empty.
fn foreign(place: &Path) -> io::Result<Option<String>> {
    let mut names = BTreeSet::new();
    for entry in fs::read_dir(place)? {
        names.insert(entry?.file_name().to_string_lossy().into_owned());
    }
    if names.is_empty() {
        return Ok(None);
    }
    if !names.remove(MARKER) {
        return Ok(Some(format!(
            "is there already and is not a site (no {MARKER})"
        )));
    }
    let text = disk::read_to_string(&place.join(MARKER)).unwrap_or_default();
    let marker: Value = serde_json::from_str(&text).unwrap_or_default();
    let listed = marker["files"].as_array().into_iter().flatten();
    let listed: BTreeSet<&str> = listed.filter_map(Value::as_str).collect();
    let other = names.iter().find(|name| !listed.contains(name.as_str()));
    Ok(other.map(|name| {
        format!(
            "holds {}, which is not a file of that site",
            disk::escape(name)
        )
    }))
}
