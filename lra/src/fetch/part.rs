//! What has arrived of a file, and where it came from.

use std::fs::{self, File};
use std::io::{ErrorKind, Seek, SeekFrom, Write};
use std::path::PathBuf;

use ureq::Body;
use ureq::http::{Response, header};

use super::download::text;
use super::wrong;
use crate::error::{Error, Result};

/// A file that is not complete.
pub(super) struct Part {
    pub(super) file: File,
    pub(super) path: PathBuf,
    pub(super) origin: PathBuf,
    url: String,
    /// The server's word for the version of the file: its ETag, or when it was changed last. May be empty.
    pub(super) version: String,
    pub(super) bytes: u64,
}

impl Part {
    /// Goes on with a part of the same file; of any other, empties it.
    pub(super) fn open(file: File, path: PathBuf, origin: PathBuf, url: &str) -> Result<Part> {
        let said = fs::read_to_string(&origin).unwrap_or_default();
        let mut part = Part {
            file,
            path,
            origin,
            url: url.to_owned(),
            version: String::new(),
            bytes: 0,
        };
        match said.split_once('\n') {
            // Without a version nothing tells whether the rest would be of the same file.
            Some((from, version)) if from == url && !version.trim().is_empty() => {
                part.version = version.trim().to_owned();
                let end = part.file.seek(SeekFrom::End(0));
                part.bytes = end.map_err(|error| part.unwritable(&error))?;
            }
            _ => part.restart()?,
        }
        Ok(part)
    }

    /// Empties it.
    pub(super) fn restart(&mut self) -> Result<()> {
        self.version.clear();
        self.bytes = 0;
        // Its word for the version goes first: it must not be taken for that of what comes next.
        match fs::remove_file(&self.origin) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(self.unwritable(&error));
            }
            _ => {}
        }
        self.file
            .set_len(0)
            .and_then(|()| self.file.rewind())
            .map_err(|error| self.unwritable(&error))
    }

    /// Keeps the server's word for the version of what it sends.
    pub(super) fn note_version(&mut self, response: &Response<Body>) -> Result<()> {
        let tag = text(response, header::ETAG);
        // A weak tag promises the same meaning, not the same bytes.
        let version = match tag.starts_with('"') {
            true => tag,
            false => text(response, header::LAST_MODIFIED),
        };
        if version != self.version {
            self.version = version.to_owned();
            fs::write(&self.origin, format!("{}\n{version}\n", self.url))
                .map_err(|error| self.unwritable(&error))?;
        }
        Ok(())
    }

    /// Adds what has arrived.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.file
            .write_all(bytes)
            .map_err(|error| self.unwritable(&error))?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Takes it away.
    pub(super) fn remove(&self) {
        // What cannot be removed is emptied by the next attempt.
        let _ = fs::remove_file(&self.path);
        let _ = fs::remove_file(&self.origin);
    }

    /// An error about writing it.
    pub(super) fn unwritable(&self, error: &std::io::Error) -> Error {
        wrong(format!("cannot write {}: {error}", self.path.display()))
    }
}
