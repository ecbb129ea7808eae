//! Rules for all files among a task's data, the same in a folder and in an archive: each is read,
//! or known by name, or refused.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::Wanted;
use super::known::{is_documentation, is_of_another};
use crate::archive::{Contents, Member, Raw, few};
use crate::error::{Error, Result};
use crate::words::listed;

/// Role of a file for one task, by its name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Role<'a> {
    /// It is data.
    Data(Place<'a>),
    /// It takes the place of data without being any, for this reason: refused wherever it lies.
    Stray(String),
    /// It has the form of data without its name, for this reason: refused where the data lies.
    Loose(&'static str),
    /// It belongs to the published files, and the task does not read it.
    Unwanted,
    /// It is none of these.
    Other,
}

/// Place of a file of data.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Place<'a> {
    /// Form of the data; a task that has several forms reads each from one folder.
    pub(crate) form: &'static str,
    /// Folder with all data of this form; empty for the searched folder or archive itself.
    pub(crate) folder: &'a str,
    /// Part of the data that the file is of, such as `train/pos`, however its folder is spelt.
    pub(crate) part: String,
    /// Folder of the part.
    pub(crate) part_folder: &'a str,
}

impl<'a> Place<'a> {
    /// Returns the place of a file in a folder that has all data of a form.
    pub(crate) fn beside(form: &'static str, name: &'a str) -> Place<'a> {
        let folder = folder_of(name);
        Place {
            form,
            folder,
            part: String::new(),
            part_folder: folder,
        }
    }
}

/// Returns the folder of a file; empty without one.
pub(crate) fn folder_of(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// Maximum number of folders with files of the form of data outside of their place.
const MOST_FOLDERS: usize = 1_000_000;

/// Maximum number of names that are kept to be told in notes.
const MOST_TOLD: usize = 4096;

/// Files of a folder or archive that are not read, until it is known where the data lies.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// Folder of the data of each form.
    folders: BTreeMap<&'static str, String>,
    /// Folder of each part.
    parts: BTreeMap<(&'static str, String), String>,
    /// All folders of data: several only where the reader chooses among copies.
    places: BTreeSet<String>,
    /// First file of the form of data in each folder, with the reason for which it is none.
    loose: BTreeMap<String, (String, &'static str)>,
    /// True if more than [`MOST_FOLDERS`] have such files.
    too_many: bool,
    /// Files of no known name.
    others: BTreeSet<String>,
    /// Files of another form of the same data.
    instead: BTreeSet<String>,
    /// Links of no known name, which were not followed.
    links: BTreeSet<String>,
}

impl Survey {
    /// Takes note of a file.
    pub(crate) fn see(&mut self, wanted: &Wanted<'_>, name: &str) {
        let role = wanted.role_of(name);
        if !matches!(role, Role::Loose(_) | Role::Other)
            || is_documentation(name)
            || is_of_another(wanted.info.name, name)
        {
            return;
        }
        let (folder, file) = name.rsplit_once('/').unwrap_or(("", name));
        if wanted.is_other_form(name) {
            keep(&mut self.instead, name);
        } else if let Role::Loose(reason) = role {
            let full = self.loose.len() == MOST_FOLDERS;
            match self.loose.get_mut(folder) {
                Some((first, _)) if first.as_str() <= file => {}
                Some(first) => *first = (file.to_owned(), reason),
                None if full => self.too_many = true,
                None => {
                    let first = (file.to_owned(), reason);
                    self.loose.insert(folder.to_owned(), first);
                }
            }
        } else {
            keep(&mut self.others, name);
        }
    }

    /// Takes note of a file beside the archive that is read.
    pub(super) fn see_beside(&mut self, wanted: &Wanted<'_>, name: &str) {
        if wanted.is_other_form(name) && !is_of_another(wanted.info.name, name) {
            keep(&mut self.instead, name);
        }
    }

    /// Takes note of a link that is not followed.
    pub(super) fn see_link(&mut self, wanted: &Wanted<'_>, name: &str) {
        let is_known = wanted.role_of(name) == Role::Unwanted
            || is_documentation(name)
            || is_of_another(wanted.info.name, &format!("{name}/file"));
        if !is_known {
            keep(&mut self.links, name);
        }
    }

    /// Takes note of the links in a folder or archive that were not followed.
    ///
    /// # Errors
    /// A link lies where it could lead to files that would be refused.
    pub(super) fn check_links(
        &mut self,
        wanted: &Wanted<'_>,
        raw: &Raw,
        contents: &Contents,
    ) -> Result<()> {
        let ends = contents.ends(&|name| wanted.takes(name));
        let places: Vec<&str> = self.places.iter().map(String::as_str).collect();
        let is_loose = |name: &str| {
            matches!(wanted.role_of(name), Role::Loose(_))
                && !is_documentation(name)
                && !is_of_another(wanted.info.name, name)
                && is_among(folder_of(name), &places, wanted.flat)
        };
        let mut others = Vec::new();
        for link in contents.links() {
            let below: Vec<String> = ends.iter().map(|end| format!("{link}/{end}")).collect();
            let is_unwanted = |name: &String| wanted.role_of(name) == Role::Unwanted;
            if below.iter().any(is_unwanted) {
                continue;
            }
            if is_loose(link) || below.iter().any(|name| is_loose(name)) {
                return Err(raw.link(link));
            }
            others.push(link);
        }
        for link in others {
            self.see_link(wanted, link);
        }
        Ok(())
    }

    /// Admits a file that is to be read.
    ///
    /// # Errors
    /// It is no data, or data of the same form was found in another folder.
    pub(super) fn admit(&mut self, wanted: &Wanted<'_>, member: &Member<'_>) -> Result<()> {
        let place = match (wanted.role)(member.name) {
            Role::Data(place) => place,
            Role::Stray(problem) => {
                return Err(member.wrong(format!("{problem}; {MOVE}")));
            }
            _ => return Ok(()),
        };
        if !self.places.contains(place.folder) {
            self.places.insert(place.folder.to_owned());
        }
        if wanted.copies {
            return Ok(());
        }
        let folder = self.folders.entry(place.form);
        let folder = folder.or_insert_with(|| place.folder.to_owned());
        if folder != place.folder {
            let problem = format!(
                "a second place of {}, beside {}: move one of them away, or name the folder to read with --from",
                place.form,
                folder_in_words(folder)
            );
            return Err(member.wrong(problem));
        }
        let part = self.parts.entry((place.form, place.part));
        let part = part.or_insert_with(|| place.part_folder.to_owned());
        if part != place.part_folder {
            let problem = format!(
                "a second folder of the same {}, beside {}: move one of them away",
                place.form,
                folder_in_words(part)
            );
            return Err(member.wrong(problem));
        }
        Ok(())
    }

    /// Checks that all files where data was read are data, or known by name.
    ///
    /// # Errors
    /// A file has the form of data, and is none.
    pub(super) fn check(&self, wanted: &Wanted<'_>, raw: &Raw) -> Result<()> {
        let places: Vec<&str> = self.places.iter().map(String::as_str).collect();
        self.check_in(&places, wanted.flat, raw)
    }

    /// Checks the files in these folders: in them alone if `flat`, else below them too.
    ///
    /// # Errors
    /// A file has the form of data, and is none.
    pub(crate) fn check_in(&self, places: &[&str], flat: bool, raw: &Raw) -> Result<()> {
        let among = |folder: &str| is_among(folder, places, flat);
        match self.loose.iter().find(|(folder, _)| among(folder)) {
            None if self.too_many => Err(Error::File {
                file: raw.path().to_owned(),
                problem: format!(
                    "more than {MOST_FOLDERS} folders with files that look like data and are none: \
                     name the folder that has the published files with --from"
                ),
            }),
            None => Ok(()),
            Some((folder, (file, reason))) => Err(Error::File {
                file: path_of(raw, folder, file),
                problem: format!("{reason}; {MOVE}"),
            }),
        }
    }

    /// Returns notes about files that were passed over and are not known by name.
    pub(crate) fn notes(&self) -> Vec<String> {
        let places: Vec<&str> = self.places.iter().map(String::as_str).collect();
        self.notes_in(&places)
    }

    /// Returns notes about such files in these folders and below them, and about links anywhere.
    pub(crate) fn notes_in(&self, places: &[&str]) -> Vec<String> {
        let mut files: BTreeSet<String> = BTreeSet::new();
        for name in &self.others {
            if is_below(folder_of(name), places) {
                files.insert(name.clone());
            }
        }
        for (folder, (file, _)) in &self.loose {
            if is_below(folder, places) {
                files.insert(match folder.as_str() {
                    "" => file.clone(),
                    folder => format!("{folder}/{file}"),
                });
            }
        }
        let mut notes = Vec::new();
        let about = |names: &BTreeSet<String>, one: &str, several: &str| {
            let what = if names.len() == 1 { one } else { several };
            // No more names were kept.
            let or_more = if names.len() < MOST_TOLD {
                ""
            } else {
                " or more"
            };
            (!names.is_empty()).then(|| format!("{what}: {}{or_more}", few(names)))
        };
        notes.extend(about(
            &files,
            "lies among the data, has no name of a data file, and was not read",
            "lie among the data, have no names of data files, and were not read",
        ));
        notes.extend(about(
            &self.links,
            "is a link, which is not followed, and was not read",
            "are links, which are not followed, and were not read",
        ));
        notes.extend(self.instead());
        notes
    }

    /// Returns an error with the files of another form that could be read instead, if there are
    /// some: what was read may be an archive that was unpacked in part.
    pub(crate) fn with_others(&self, error: Error) -> Error {
        match (error, self.instead()) {
            (Error::File { file, problem }, Some(instead)) => Error::File {
                file,
                problem: format!("{problem}; {instead}"),
            },
            (error, _) => error,
        }
    }

    fn instead(&self) -> Option<String> {
        let shown: Vec<&String> = self.instead.iter().take(4).collect();
        let verb = match self.instead.len() {
            0 => return None,
            1 => "lies there too and was not read",
            _ => "lie there too and were not read",
        };
        let ellipsis = if self.instead.len() > shown.len() {
            " ..."
        } else {
            ""
        };
        Some(format!(
            "{}{ellipsis} {verb}: --from names the one to read",
            listed(shown)
        ))
    }
}

/// Remedy for a file that is no data.
const MOVE: &str = "move it away, or name a folder or archive without it with --from";

fn keep(names: &mut BTreeSet<String>, name: &str) {
    if names.len() < MOST_TOLD {
        names.insert(name.to_owned());
    }
}

/// Returns whether a folder is one of these, or lies below one unless `flat`.
fn is_among(folder: &str, places: &[&str], flat: bool) -> bool {
    match flat {
        true => places.contains(&folder),
        false => is_below(folder, places),
    }
}

/// Returns whether a folder is one of these or lies below one.
fn is_below(folder: &str, places: &[&str]) -> bool {
    places.iter().any(|place| {
        let rest = folder.strip_prefix(place);
        place.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

/// Returns a folder for messages.
pub(crate) fn folder_in_words(folder: &str) -> String {
    match folder {
        "" => "the top folder".to_owned(),
        folder => format!("`{folder}`"),
    }
}

fn path_of(raw: &Raw, folder: &str, file: &str) -> PathBuf {
    let top: &Path = raw.path();
    match folder {
        "" => top.join(file),
        folder => top.join(folder).join(file),
    }
}
