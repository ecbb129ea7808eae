//! `raw.json`: the state of the published files from which an entry was built.
//!
//! Reading gigabytes again at every start would take minutes. Files with the stamps of the build
//! are the same: names, sizes, modification times and, on Unix, inodes and the times of their last
//! change, which no program can set. If the stamps differ, contents are compared where the files
//! are small, and elsewhere by a build with `--from`.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, io};
use crate::files;
use crate::locate::sources_below;
use crate::verified_files::FileStat;
use crate::{Digest, Task};

/// Name of the record in the folder of an entry.
pub(crate) const FILE_NAME: &str = "raw.json";

/// Total size in bytes up to which contents are compared at a start where stamps differ.
const LARGEST: u64 = 256 << 20;

/// Location of the files, and digests of their stamps and contents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Origin {
    /// Path of the file or folder.
    pub(crate) path: PathBuf,
    /// SHA-256 over name, size and modification time of every file.
    look: String,
    /// SHA-256 over inode and time of the last change of every file; empty where there are none,
    /// and in records of older versions.
    #[serde(default)]
    stamp: String,
    /// SHA-256 over name and content of every file; `None` if they are large, or not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    content: Option<String>,
    /// The files, and their names in the digests.
    #[serde(skip)]
    files: Vec<(PathBuf, PathBuf)>,
    /// Their total size in bytes.
    #[serde(skip)]
    bytes: u64,
}

impl Origin {
    /// Returns the present state of the files that data of `task` are made from: its own ones, or
    /// those at `raw`. `None` if there are none, or they cannot be read.
    pub(crate) fn of_task(task: &dyn Task, raw: &Path) -> Option<Origin> {
        let path = raw.canonicalize().ok()?;
        let files = match task.own_files() {
            [] if path.is_dir() => sources_below(&path, task).ok()?,
            [] => vec![path.clone()],
            own => own.to_vec(),
        };
        match files.is_empty() {
            true => None,
            false => Origin::of_files(path, files),
        }
    }

    /// Returns the present state of these files in the folder `path`.
    pub(crate) fn of_files(path: PathBuf, files: Vec<PathBuf>) -> Option<Origin> {
        let (mut look, mut stamp) = (Digest::default(), Digest::default());
        let (mut named, mut total, mut has_stamps) = (Vec::new(), 0u64, true);
        for file in files {
            let FileStat {
                bytes,
                modified,
                inode,
            } = match FileStat::of(&file) {
                // A dangling link.
                Err(Error::Io { cause, .. }) if cause.kind() == ErrorKind::NotFound => continue,
                found => found.ok()?,
            };
            let name = file.strip_prefix(&path).unwrap_or(&file).to_owned();
            look.update(name.as_os_str().as_encoded_bytes());
            look.update(format!("\0{bytes} {modified}\n").as_bytes());
            stamp.update(format!("{inode:?}\n").as_bytes());
            has_stamps &= inode.is_some();
            total = total.saturating_add(bytes);
            named.push((file, name));
        }
        Some(Origin {
            path,
            look: look.hex(),
            stamp: if has_stamps {
                stamp.hex()
            } else {
                String::new()
            },
            content: None,
            files: named,
            bytes: total,
        })
    }

    /// Returns the origin with the SHA-256 of its contents, which are read if the files are small.
    pub(crate) fn with_content(mut self) -> Origin {
        self.content = self.read_content();
        self
    }

    fn read_content(&self) -> Option<String> {
        if self.bytes > LARGEST {
            return None;
        }
        let mut digest = Digest::default();
        for (file, name) in &self.files {
            let content = files::read(file).ok()?;
            digest.update(name.as_os_str().as_encoded_bytes());
            digest.update(format!("\0{}\n", content.len()).as_bytes());
            digest.update(&content);
        }
        Some(digest.hex())
    }

    /// Returns whether the files `now` are those of this record, wherever they lie: by their
    /// stamps, or if these differ, by their contents. `None` if contents would have to be compared,
    /// and are not known or too large.
    pub(crate) fn is_same_as(&self, now: &Origin) -> Option<bool> {
        let looks_same = self.look == now.look;
        if looks_same && (self.stamp == now.stamp || self.stamp.is_empty()) {
            return Some(true);
        }
        let content = self.content.as_ref()?;
        Some(*content == now.read_content()?)
    }

    /// Records the stamps of the files `now`, whose contents are those of this record, so that they
    /// need not be read again. Files elsewhere, and a store that cannot be written, are left alone.
    pub(crate) fn renew(&self, now: &Origin, folder: &Path) {
        if self.path == now.path && (&self.look, &self.stamp) != (&now.look, &now.stamp) {
            let renewed = Origin {
                content: self.content.clone(),
                ..now.clone()
            };
            let _ = renewed.write(folder);
        }
    }

    /// Reads the record of an entry; `None` where it is missing.
    ///
    /// # Errors
    /// It cannot be read, or is no such record.
    pub(crate) fn read(folder: &Path) -> Result<Option<Origin>> {
        let path = folder.join(FILE_NAME);
        match files::read(&path) {
            Ok(text) => match serde_json::from_slice(&text) {
                Ok(origin) => Ok(Some(origin)),
                Err(cause) => Err(io("read", &path)(cause.into())),
            },
            Err(Error::Io { cause, .. }) if cause.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renamed_file_is_another_content() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        std::fs::write(at("train"), "text").unwrap();
        let state = |name: &str| {
            let path = place.path().to_owned();
            Origin::of_files(path, vec![at(name)]).unwrap()
        };
        let made = state("train").with_content();
        std::fs::rename(at("train"), at("other")).unwrap();
        let now = state("other");
        assert_eq!(made.is_same_as(&now), Some(false));
    }
}
