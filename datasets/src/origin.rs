//! `raw.json`: how the published files looked that an entry was built from.
//!
//! Reading gigabytes again each time that their place is named would take minutes. Files of the same names, sizes and
//! modification times in the same place are taken for the same; others are read and compared.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::Digest;
use crate::error::{Result, io};
use crate::files;
use crate::verified_files::FileStat;

const FILE_NAME: &str = "raw.json";

/// How deep files are looked for; the published archive nests seven folders.
const DEEPEST: usize = 12;

/// Most files that are looked at; a whole unpacked release has 2.4 million.
const MOST_FILES: usize = 5_000_000;

/// Where files lay, and how they looked from outside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Origin {
    /// The file or folder.
    pub(crate) path: PathBuf,
    /// SHA-256 over name, size and modification time of every file.
    look: String,
}

impl Origin {
    /// How the files at `raw` look now; nothing where that cannot be told.
    pub(crate) fn of(raw: &Path) -> Option<Origin> {
        let path = raw.canonicalize().ok()?;
        let mut files = Vec::new();
        collect(&path, 0, &mut files)?;
        files.sort();
        let mut digest = Digest::default();
        for file in files {
            let FileStat { bytes, modified } = FileStat::of(&file).ok()?;
            let name = file.strip_prefix(&path).unwrap_or(&file);
            digest.update(name.as_os_str().as_encoded_bytes());
            digest.update(format!("\0{bytes} {modified}\n").as_bytes());
        }
        Some(Origin {
            path,
            look: digest.hex(),
        })
    }

    /// What an entry remembers; nothing, where the record is missing or unreadable.
    pub(crate) fn read(folder: &Path) -> Option<Origin> {
        let text = fs::read(folder.join(FILE_NAME)).ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Has an entry remember it.
    pub(crate) fn write(&self, folder: &Path) -> Result<()> {
        let path = folder.join(FILE_NAME);
        let text = match serde_json::to_string(self) {
            Ok(text) => text,
            Err(_) => return Ok(()), // A path that is not text: nothing is remembered, and the files are read again.
        };
        files::replace(&path, text.as_bytes()).map_err(io("write", &path))
    }
}

/// The files at a path, in any order; nothing where there are too many or one cannot be looked at.
fn collect(path: &Path, depth: usize, files: &mut Vec<PathBuf>) -> Option<()> {
    let found = match fs::metadata(path) {
        // A link that leads nowhere.
        Err(error) if error.kind() == ErrorKind::NotFound => return Some(()),
        found => found.ok()?,
    };
    if found.is_file() {
        files.push(path.to_owned());
        return (files.len() <= MOST_FILES).then_some(());
    }
    if !found.is_dir() {
        return Some(());
    }
    if depth == DEEPEST {
        return None;
    }
    let mut items = fs::read_dir(path).ok()?;
    items.try_for_each(|item| collect(&item.ok()?.path(), depth + 1, files))
}
