//! `checked.json`: the stamps of an entry's files when their SHA-256 was last verified.
//!
//! Hashing gigabytes each time an entry is opened would take seconds, and without hashing an edited
//! file would go unnoticed. So, like the index of a version-control system, an entry records the
//! stamps of its files when they are hashed: size, modification time and, on Unix, inode and time
//! of the last change of the inode, which no program can set. Files with another stamp (edited, or
//! copied from elsewhere) are hashed again when opened.

use std::fs;
use std::path::Path;
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

use crate::error::{Result, io};
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
        let modified = metadata.modified().map_err(io("read", path))?;
        // A time before 1970 becomes 0, which only means that the file is hashed.
        let modified = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(FileStat {
            bytes: metadata.len(),
            modified: u64::try_from(modified.as_nanos()).unwrap_or(u64::MAX),
            inode: inode(&metadata),
        })
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
