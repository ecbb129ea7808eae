//! `checked.json`: size and modification time of the files whose SHA-256 is known to be right.
//!
//! Hashing gigabytes each time an entry is opened would cost seconds, and not hashing would let an edited file
//! through. So, like a version-control index, an entry remembers what its files looked like when they were last
//! hashed; files that look otherwise (edited, or copied from elsewhere) are hashed again when opened.

use std::fs;
use std::path::Path;
use std::time::UNIX_EPOCH;

use serde::{Deserialize, Serialize};

use crate::error::{Result, io};
use crate::manifest::{Part, PerPart};

const FILE_NAME: &str = "checked.json";

/// How a file looks from outside.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Look {
    /// Size in bytes.
    pub bytes: u64,
    /// Modification time in nanoseconds since 1970.
    pub modified: u64,
}

impl Look {
    /// How `path` looks now.
    pub(crate) fn at(path: &Path) -> Result<Look> {
        let metadata = fs::metadata(path).map_err(io("read", path))?;
        let modified = metadata.modified().map_err(io("read", path))?;
        // A time before 1970 becomes 0, which only means that the file is hashed.
        let modified = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Look {
            bytes: metadata.len(),
            modified: u64::try_from(modified.as_nanos()).unwrap_or(u64::MAX),
        })
    }
}

/// What is remembered of an entry's files; nothing, where the record is missing or unreadable.
pub(crate) fn read(folder: &Path) -> PerPart<Look> {
    let text = fs::read(folder.join(FILE_NAME)).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

/// Remembers how the files look now.
pub(crate) fn write(folder: &Path) -> Result<()> {
    let looks = PerPart::try_new(|part: Part| Look::at(&folder.join(part.file_name())))?;
    let path = folder.join(FILE_NAME);
    let text = serde_json::to_string(&looks).map_err(|error| io("write", &path)(error.into()))?;
    // Beside and renamed: another process may be reading it.
    let beside = folder.join(format!(".{FILE_NAME}.{}", std::process::id()));
    fs::write(&beside, text).map_err(io("write", &beside))?;
    fs::rename(&beside, &path).map_err(io("write", &path))
}
