//! Identification of an unexpected file by its first bytes.

use std::io::{self, Read};
use std::path::Path;

use super::packing::{self, Packing};
use super::{Raw, tar, zip};
use crate::error::{Result, io as io_error};
use crate::files;

/// Number of bytes inspected.
const LOOKED_AT: usize = 256;

/// Number of characters of text quoted.
const QUOTED: usize = 60;

/// First bytes of a pointer of Git LFS, which stands for a file that was not brought.
const POINTER: &[u8] = b"version https://git-lfs";

/// Description of such a pointer.
pub(crate) const POINTED: &str = "a pointer of Git LFS: git lfs pull brings the file";

/// Number of first bytes by which a pointer is told.
pub(crate) const POINTER_BYTES: u64 = POINTER.len() as u64;

/// Returns whether a file with these first bytes is a pointer of Git LFS.
pub(crate) fn is_pointer(start: &[u8]) -> bool {
    start.starts_with(POINTER)
}

/// First bytes of files that are mistaken for archives, and the name of each kind.
const KINDS: [(&[u8], &str); 12] = [
    (b"PAR1", "a parquet file"),
    (b"\x93NUMPY", "a NumPy array"),
    (b"\x89PNG", "a PNG picture"),
    (b"\xff\xd8\xff", "a JPEG picture"),
    (b"%PDF", "a PDF document"),
    (
        b"\xfd7zXZ\0",
        "packed by xz, which is not read: pack it as .tar.gz",
    ),
    (
        b"BZh",
        "packed by bzip2, which is not read: pack it as .tar.gz",
    ),
    (
        b"7z\xbc\xaf\x27\x1c",
        "a 7z archive, which is not read: pack it as .tar.gz",
    ),
    (
        b"Rar!",
        "a RAR archive, which is not read: pack it as .tar.gz",
    ),
    (b"\x89HDF", "an HDF5 file"),
    (POINTER, POINTED),
    (b"\x80", "a Python pickle"),
];

/// Describes a file by its first bytes: `a web page (<html>...)`.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn kind_of(path: &Path) -> Result<String> {
    let mut start = Vec::new();
    let mut file = files::open(path)?;
    let mut bounded = (&mut file).take(LOOKED_AT as u64);
    bounded
        .read_to_end(&mut start)
        .map_err(io_error("read", path))?;
    let unpacked = packing::beginning(&start, file);
    Ok(described(&start, unpacked.as_deref()))
}

/// Describes a file that begins with `start`, and with `unpacked` if it is packed.
fn described(start: &[u8], unpacked: Option<&[u8]>) -> String {
    let kind = |start: &[u8]| kind(&start[..start.len().min(LOOKED_AT)]);
    match unpacked {
        None => kind(start),
        Some(start) => format!("one packed file with {} in it", kind(start)),
    }
}

/// Returns whether a file that begins with `start`, and with `unpacked` if it is packed, is an
/// archive.
pub(super) fn is_archive(start: &[u8], unpacked: Option<&[u8]>) -> bool {
    match (Packing::of(start), unpacked) {
        (Packing::None, _) => tar::begins(start) || zip::begins(start),
        (_, Some(start)) => tar::begins(start),
        // An empty or damaged archive fails when it is read.
        (_, None) => true,
    }
}

fn kind(start: &[u8]) -> String {
    if start.is_empty() {
        return "an empty file".to_owned();
    }
    if let Some((_, kind)) = KINDS.iter().find(|(bytes, _)| start.starts_with(bytes)) {
        return (*kind).to_owned();
    }
    let text = match std::str::from_utf8(start) {
        Ok(text) => text,
        // The text is cut within a character.
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&start[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => {
            let first = &start[..start.len().min(8)];
            return format!("a file of no known kind (its first bytes are {first:02x?})");
        }
    };
    let text = text.trim_start_matches('\u{feff}').trim();
    let lower = text.to_ascii_lowercase();
    let kind = if lower.starts_with("<!doctype html") || lower.contains("<html") {
        "a web page"
    } else if text.starts_with('<') {
        "XML"
    } else if text.starts_with(['{', '[']) {
        "JSON"
    } else if text.contains('\0') {
        return "a file of no known kind (zero bytes)".to_owned();
    } else {
        "text"
    };
    if text.is_empty() {
        return "blank text".to_owned();
    }
    let mut quoted: String = text.chars().take(QUOTED).collect();
    if quoted.len() < text.len() {
        quoted += "...";
    }
    format!("{kind} (`{quoted}`)")
}

/// Describes a file that is not an archive: `a web page (<html>...)`. Returns `None` for an
/// archive.
///
/// # Errors
/// The file cannot be read, or is not a regular file.
pub fn unlike_archive(path: &Path) -> Result<Option<String>> {
    match Raw::at(path)? {
        Some(Raw::Archive(_)) => Ok(None),
        _ => kind_of(path).map(Some),
    }
}

/// Describes a file that begins with these bytes and is not an archive, as [`unlike_archive`] does.
/// Returns `None` for an archive, and where more bytes are needed to tell whether a packed file is
/// one.
#[must_use]
pub fn unlike_archive_beginning(start: &[u8]) -> Option<String> {
    let unpacked = packing::beginning(start, io::empty());
    let unpacked = unpacked.as_deref();
    (!is_archive(start, unpacked)).then(|| described(start, unpacked))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_get_instead() {
        for (start, told) in [
            (&b""[..], "an empty file"),
            (
                b"<html>please sign in</html>",
                "a web page (`<html>please sign in</html>`)",
            ),
            (b"\xef\xbb\xbf\r\n<!DOCTYPE html><p>", "a web page"),
            (b"<?xml version='1.0'?><Error>NoSuchKey", "XML (`<?xml"),
            (b"{\"error\": 403}", "JSON"),
            (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS"),
            (b"PAR1\x15\x04", "a parquet file"),
            (b" \r\n", "blank text"),
            (b"BZh91AY", "bzip2"),
            (b"Not found", "text (`Not found`)"),
            (
                &[7, 200, 1],
                "a file of no known kind (its first bytes are [07, c8, 01])",
            ),
            (&[b'a', 0xc3], "text (`a`)"),
        ] {
            assert!(kind(start).contains(told), "{}", kind(start));
        }
        assert!(kind("ä".repeat(128).as_bytes()).len() < 200);
    }
}
