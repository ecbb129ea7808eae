//! A partial download: its bytes so far, and the address and version that they came from.

use std::fs;
use std::io::{ErrorKind, Seek, SeekFrom, Write};
use std::path::PathBuf;

use disk::Locked;
use ureq::Body;
use ureq::http::{Response, header};

use super::download::text;
use super::unwritable;
use crate::error::{Error, Result};

/// An incomplete file.
pub(super) struct Part {
    pub(super) file: Locked,
    pub(super) path: PathBuf,
    pub(super) origin: PathBuf,
    url: String,
    /// The server's identifier for the version of the file: its ETag, or the date of its last
    /// change. May be empty.
    pub(super) version: String,
    /// Size of the whole file, if the server reported it.
    total: Option<u64>,
    pub(super) bytes: u64,
    /// True if the bytes do not begin the file that is now to come: they are kept until it has
    /// begun to arrive.
    anew: bool,
}

impl Part {
    /// Opens the part. A part of the same file is continued; one of any other is kept until this
    /// file has begun to arrive.
    pub(super) fn open(file: Locked, path: PathBuf, origin: PathBuf, url: &str) -> Result<Part> {
        let said = disk::read_to_string(&origin).unwrap_or_default();
        let mut part = Part {
            file,
            path,
            origin,
            url: url.to_owned(),
            version: String::new(),
            total: None,
            bytes: 0,
            anew: true,
        };
        let end = part.file.seek(SeekFrom::End(0));
        part.bytes = end.map_err(|error| part.unwritable(&error))?;
        let mut lines = said.lines().map(str::trim);
        // Without a version, nothing shows whether the rest would be of the same file.
        if let (Some(from), Some(version)) = (lines.next(), lines.next())
            && from == url
            && !version.is_empty()
        {
            part.version = version.to_owned();
            part.total = lines.next().and_then(|total| total.parse().ok());
            part.anew = false;
        }
        Ok(part)
    }

    /// Returns whether the rest of the file is to be requested, and not all of it.
    pub(super) fn goes_on(&self) -> bool {
        self.bytes > 0 && !self.anew
    }

    /// Returns whether another process can go on from these bytes.
    pub(super) fn is_kept(&self) -> bool {
        self.goes_on() && !self.version.is_empty()
    }

    /// Returns whether all bytes are there, as many as the server said.
    pub(super) fn is_whole(&self) -> bool {
        self.is_kept() && self.total == Some(self.bytes)
    }

    /// Lets the whole file be requested. The bytes are kept until it has begun to arrive.
    pub(super) fn begin_anew(&mut self) {
        self.anew = true;
    }

    /// Empties the file.
    pub(super) fn restart(&mut self) -> Result<()> {
        self.version.clear();
        self.total = None;
        self.bytes = 0;
        self.anew = false;
        // The stored version is removed first, since it must not be mistaken for the version of the
        // next bytes.
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

    /// Returns whether a partial response continues this part with the same version of the file: a
    /// server may have another version by now, and not every server knows `If-Range`.
    pub(super) fn goes_on_with(&self, response: &Response<Body>) -> bool {
        let range = text(response, header::CONTENT_RANGE);
        let Some((first, total)) = range
            .strip_prefix("bytes ")
            .and_then(|range| range.split_once('/'))
        else {
            return false;
        };
        let version = version_of(response);
        // A missing version or size contradicts nothing: the checksum of the whole file decides, if
        // one is published.
        let same_version = version.is_empty() || version == self.version;
        let same_total = match (total.trim().parse::<u64>(), self.total) {
            (Ok(total), Some(known)) => total == known,
            _ => true,
        };
        let same_place = self.goes_on() && first.starts_with(&format!("{}-", self.bytes));
        same_place && same_version && same_total
    }

    /// Stores the server's identifier for the version of the sent file, and the size.
    pub(super) fn note_version(&mut self, version: &str, total: Option<u64>) -> Result<()> {
        let version = match version {
            "" => self.version.clone(),
            version => version.to_owned(),
        };
        if version != self.version || total != self.total {
            let size = total.map_or(String::new(), |total| format!("{total}\n"));
            let text = format!("{}\n{version}\n{size}", self.url);
            disk::write_unsynced(&self.origin, text.as_bytes())
                .map_err(|error| self.unwritable(&error))?;
            (self.version, self.total) = (version, total);
        }
        Ok(())
    }

    /// Appends bytes that have arrived.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.file
            .write_all(bytes)
            .map_err(|error| self.unwritable(&error))?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    /// Removes the part and its notes.
    pub(super) fn remove(&self) {
        // A file that cannot be removed is emptied by the next attempt.
        let _ = fs::remove_file(&self.path);
        let _ = fs::remove_file(&self.origin);
    }

    /// Removes a part without bytes.
    pub(super) fn remove_if_empty(&self) {
        if self.bytes == 0 {
            self.remove();
        }
    }

    /// Returns an error about writing the part.
    pub(super) fn unwritable(&self, error: &std::io::Error) -> Error {
        unwritable(&self.path, error)
    }
}

/// Returns the server's identifier for the version of the sent file: its ETag, else the date of its
/// last change; may be empty.
pub(super) fn version_of(response: &Response<Body>) -> &str {
    let tag = text(response, header::ETAG);
    // A weak tag guarantees the same meaning, not the same bytes.
    match tag.starts_with('"') {
        true => tag,
        false => text(response, header::LAST_MODIFIED),
    }
}
