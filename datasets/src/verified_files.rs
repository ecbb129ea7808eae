//! `checked.json`: the stamps of an entry's files when their SHA-256 was last verified.
//!
//! Hashing gigabytes each time an entry is opened would take seconds, and without hashing an edited
//! file would go unnoticed. So, like the index of a version-control system, an entry records the
//! stamps of its files when they are hashed: size, modification time and, on Unix, inode and time
//! of the last change of the inode, which no program can set. Files with another stamp (edited, or
//! copied from elsewhere) are hashed again when opened.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

use crate::Digest;
use crate::error::{Error, Result, io};
use crate::files;
use crate::manifest::{PerSplit, SplitName};

const FILE_NAME: &str = "checked.json";

/// Stamp of a file, as `stat` returns it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileStat {
    /// Size in bytes.
    pub bytes: u64,
    /// Modification time in nanoseconds since 1970.
    pub modified: u64,
    /// Inode, and the time of its last change in nanoseconds since 1970; absent where there are
    /// none, and in records of older versions.
    #[serde(default)]
    pub inode: Option<(u64, i64)>,
}

impl FileStat {
    /// Returns the present state of the file at `path`.
    pub(crate) fn of(path: &Path) -> Result<FileStat> {
        let metadata = fs::metadata(path).map_err(io("read", path))?;
        Ok(FileStat::from(&metadata))
    }
}

impl From<&fs::Metadata> for FileStat {
    fn from(metadata: &fs::Metadata) -> Self {
        // A time before 1970 or none becomes 0, which only means that the file is hashed.
        let modified = metadata.modified().unwrap_or(UNIX_EPOCH);
        let modified = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
        FileStat {
            bytes: metadata.len(),
            modified: u64::try_from(modified.as_nanos()).unwrap_or(u64::MAX),
            inode: inode(metadata),
        }
    }
}

/// A file of an entry, open, and its stamp when it was opened.
#[derive(Debug)]
pub(crate) struct OpenedFile {
    /// The split that it holds.
    pub(crate) split: SplitName,
    path: PathBuf,
    file: File,
    stat: FileStat,
}

impl OpenedFile {
    /// Opens the file at `path`, whose stamp is `stat`.
    pub(crate) fn open(split: SplitName, path: &Path, stat: FileStat) -> Result<Self> {
        Ok(Self {
            split,
            path: path.to_owned(),
            file: files::open(path)?,
            stat,
        })
    }

    /// Checks that the file has its stamp, or if the inode alone has changed, by links, names or
    /// permissions, that its `contents` have this SHA-256.
    pub(crate) fn check_unchanged(&self, contents: &[u8], sha256: &str) -> Result<()> {
        let metadata = self.file.metadata().map_err(io("read", &self.path))?;
        let now = FileStat::from(&metadata);
        let written = (now.bytes, now.modified) != (self.stat.bytes, self.stat.modified);
        match !written && (now == self.stat || Digest::of(contents) == sha256) {
            true => Ok(()),
            false => Err(Error::Corrupt {
                file: self.path.clone(),
                problem: "another program has changed it since the run opened it, so nothing is scored"
                    .to_owned(),
                remedy: "`lra data verify` says whether the data is complete; runs that saw the change start over with --force"
                    .to_owned(),
            }),
        }
    }
}

#[cfg(unix)]
fn inode(metadata: &fs::Metadata) -> Option<(u64, i64)> {
    use std::os::unix::fs::MetadataExt;
    let seconds = metadata.ctime().saturating_mul(1_000_000_000);
    Some((
        metadata.ino(),
        seconds.saturating_add(metadata.ctime_nsec()),
    ))
}

#[cfg(not(unix))]
fn inode(_metadata: &fs::Metadata) -> Option<(u64, i64)> {
    None
}

/// Reads the record of an entry's files; where it is missing or unreadable all values are zero, so
/// that files are hashed.
pub(crate) fn read(folder: &Path) -> PerSplit<FileStat> {
    let text = files::read(&folder.join(FILE_NAME)).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

/// Records the present state of the files: the caller has just hashed or written them.
pub(crate) fn write(folder: &Path) -> Result<()> {
    let stats =
        PerSplit::try_new(|split: SplitName| FileStat::of(&folder.join(split.file_name())))?;
    let path = folder.join(FILE_NAME);
    let text = serde_json::to_string(&stats).map_err(|error| io("write", &path)(error.into()))?;
    files::replace(&path, text.as_bytes()).map_err(io("write", &path))
}
