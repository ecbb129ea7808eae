//! Comparison of the raw files that stored data was made from with those that are raw now.
//!
//! A start compares stamps, and the contents of small files whose stamps differ: reading gigabytes
//! at every start would take minutes. Contents of large ones are compared by a build with `--from`.

use std::fmt;
use std::path::PathBuf;

use super::Store;
use crate::error::shown;
use crate::origin::{self, Origin};
use crate::{Key, Task};

/// Raw files of a task, as they are now.
#[derive(Debug, Clone)]
pub struct RawFiles(Origin);

/// Difference between the raw files that stored data was made from and those that are raw for its
/// task now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherRawFiles {
    /// Folder of the stored data.
    pub folder: PathBuf,
    /// Path of the files that it was made from; `None` if the record of them is damaged.
    pub made_from: Option<PathBuf>,
    /// Path of the files that are raw now.
    pub raw: PathBuf,
    /// Command that compares the contents; with `--force` it makes the data anew.
    pub command: String,
    /// True if the contents were compared, and differ.
    pub compared: bool,
}

/// Formats one sentence, with the way out.
impl fmt::Display for OtherRawFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (folder, raw) = (shown(&self.folder), shown(&self.raw));
        write!(f, "the stored data {folder} ")?;
        match &self.made_from {
            Some(made_from) if *made_from == self.raw => {
                write!(f, "were made before the raw files in {raw} changed")?;
            }
            Some(made_from) => {
                let made_from = shown(made_from);
                write!(
                    f,
                    "were made from the raw files in {made_from}, and now those in {raw} are the task's"
                )?;
            }
            None => write!(
                f,
                "do not say whether they were made from the raw files in {raw}: their record of them, {}, is damaged",
                origin::FILE_NAME
            )?,
        }
        match self.compared {
            true => write!(
                f,
                " (contents differ): `{}` compares the examples, with --force it makes the data anew",
                self.command
            ),
            false => write!(
                f,
                " (names, sizes or times differ; contents were not compared): `{}` compares the contents, \
                 with --force it makes the data anew",
                self.command
            ),
        }
    }
}

impl Store {
    /// Returns the raw files that data of `task` would be built from now. `None` if there are none,
    /// or they cannot be listed.
    pub fn raw_files(&self, task: &dyn Task) -> Option<RawFiles> {
        Origin::of_task(task, &self.found(task)?).map(RawFiles)
    }

    /// Returns the difference between the raw files that the entry of `key` was made from and those
    /// that are raw `now`; without these, the files where it was made from. `None` if there is no
    /// difference, if there are no raw files, if the entry is not there or has no record of what it
    /// was made from, and for data that is drawn here.
    pub fn other_raw_files(
        &self,
        task: &dyn Task,
        key: &Key,
        now: Option<&RawFiles>,
    ) -> Option<OtherRawFiles> {
        if !key.source.reads_files() {
            return None;
        }
        let folder = self.folder(task, key);
        let made = Origin::read(&folder).transpose()?.ok();
        let where_made = || Origin::of_task(task, &made.as_ref()?.path);
        let now = now.map(|RawFiles(now)| now.clone()).or_else(where_made)?;
        let compared = made.as_ref().and_then(|made| made.is_same_as(&now));
        if let Some(made) = made.as_ref().filter(|_| compared == Some(true)) {
            made.renew(&now, &folder);
        }
        (compared != Some(true)).then(|| OtherRawFiles {
            folder,
            command: key.make_command_from(task, &now.path),
            made_from: made.map(|made| made.path),
            raw: now.path,
            compared: compared.is_some(),
        })
    }
}
