//! `raw.json`: the state of the published files from which an entry was built.
//!
//! Reading gigabytes again on every build with the same path would take minutes. Files of the same
//! names, sizes and modification times in the same place are assumed to be the same; others are
//! read and compared.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::archive::folder::files_below;
use crate::error::{Error, Result, io};
use crate::files;
use crate::verified_files::FileStat;
use crate::{Digest, Task};

const FILE_NAME: &str = "raw.json";

/// Location of the files, and a digest of their metadata.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Origin {
    /// Path of the file or folder.
    pub(crate) path: PathBuf,
    /// SHA-256 over name, size and modification time of every file.
    look: String,
}

impl Origin {
    /// Returns the present state of the files at `raw`; `None` where it cannot be read.
    pub(crate) fn of(raw: &Path) -> Option<Origin> {
        let path = raw.canonicalize().ok()?;
        let files = match path.is_dir() {
            true => files_below(&path, &mut |_| true).ok()?,
            false => vec![path.clone()],
        };
        Origin::of_files(path, files)
    }

    /// Returns the present state of the files that data of `task` are made from: its own ones, or
    /// those at `raw`.
    pub(crate) fn of_task(task: &dyn Task, raw: &Path) -> Option<Origin> {
        match task.own_files() {
            [] => Origin::of(raw),
            files => Origin::of_files(raw.canonicalize().ok()?, files.to_vec()),
        }
    }

    /// Returns the present state of these files in the folder `path`.
    pub(crate) fn of_files(path: PathBuf, files: Vec<PathBuf>) -> Option<Origin> {
        let mut digest = Digest::default();
        for file in files {
            let FileStat {
                bytes, modified, ..
            } = match FileStat::of(&file) {
                // A dangling link.
                Err(Error::Io { cause, .. }) if cause.kind() == ErrorKind::NotFound => continue,
                found => found.ok()?,
            };
            let name = file.strip_prefix(&path).unwrap_or(&file);
            digest.update(name.as_os_str().as_encoded_bytes());
            digest.update(format!("\0{bytes} {modified}\n").as_bytes());
        }
        Some(Origin {
            path,
            look: digest.hex(),
        })
    }

    /// Returns whether the files have the same names, sizes and modification times, wherever they
    /// lie.
    pub(crate) fn looks_like(&self, other: &Origin) -> bool {
        self.look == other.look
    }

    /// Reads the record of an entry; `None` where it is missing or unreadable.
    pub(crate) fn read(folder: &Path) -> Option<Origin> {
        let text = files::read(&folder.join(FILE_NAME)).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Stores the record in an entry.
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        let path = folder.join(FILE_NAME);
        let text = match serde_json::to_string(self) {
            Ok(text) => text,
            // A path that is not text: no record is kept, and the files are read again.
            Err(_) => return Ok(()),
        };
        // Flushed: without the record, a change of the raw files is not noticed.
        disk::write(&path, text.as_bytes()).map_err(io("write", &path))
    }
}
