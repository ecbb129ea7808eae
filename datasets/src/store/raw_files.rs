//! Comparison of the raw files that stored data was made from with those that are raw now.
//!
//! A start compares stamps, and the contents of small files whose stamps differ: reading gigabytes
//! at every start would take minutes. Contents of large ones are compared by a build with `--from`.

use std::fmt;
use std::path::PathBuf;

use super::Store;
use crate::error::shown;
use crate::origin::Origin;
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
    /// Path of the files that it was made from.
    pub made_from: PathBuf,
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
        write!(f, "the stored data {folder} were made ")?;
        match self.made_from == self.raw {
            true => write!(f, "before the raw files in {raw} changed")?,
            false => {
                let made_from = shown(&self.made_from);
                write!(
                    f,
                    "from the raw files in {made_from}, and now those in {raw} are the task's"
                )?;
            }
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
    /// that are raw `now`. `None` if there is none, if the entry is not there or does not say what
    /// it was made from, and for data that is drawn here.
    pub fn other_raw_files(
        &self,
        task: &dyn Task,
        key: &Key,
        RawFiles(now): &RawFiles,
    ) -> Option<OtherRawFiles> {
        if !key.source.reads_files() {
            return None;
        }
        let folder = self.folder(task, key);
        let made = Origin::read(&folder)?;
        let compared = made.is_same_as(now);
        if compared == Some(true) {
            made.renew(now, &folder);
        }
        (compared != Some(true)).then(|| OtherRawFiles {
            folder,
            command: key.make_command_from(task, &now.path),
            made_from: made.path,
            raw: now.path.clone(),
            compared: compared.is_some(),
        })
    }
}
