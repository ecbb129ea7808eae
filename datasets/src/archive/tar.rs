//! Tar archives, packed or not: members in archive order.
//!
//! The `tar` crate finds members. The extended headers that hold long names are read here, because
//! the crate reads headers of any size into memory.

use std::cell::Cell;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tar::{Archive, EntryType};

use super::packing::{counted, unpacked};
use super::{LONGEST_NAME, Member, Offer, PACK_FILES, Seen, Visit, safe_name, unreadable};
use crate::Progress;
use crate::error::{Error, Result};
use crate::files;
use crate::words::quoted;

/// Returns whether these are the first bytes of an unpacked tar archive: a header with the `ustar`
/// magic or, from the oldest writers, one whose checksum is right.
pub(super) fn begins(start: &[u8]) -> bool {
    start.get(257..262) == Some(b"ustar") || start.get(..512).is_some_and(has_own_sum)
}

/// Returns whether a header's bytes, with spaces in place of the checksum, add up to the checksum.
fn has_own_sum(header: &[u8]) -> bool {
    let digits = String::from_utf8_lossy(&header[148..156]);
    let stated = u32::from_str_radix(digits.trim_matches(['\0', ' ']), 8);
    let bytes = header[..148]
        .iter()
        .chain(b"        ")
        .chain(&header[156..]);
    stated == Ok(bytes.map(|&byte| u32::from(byte)).sum())
}

/// Reads an archive to its end, and returns the number of its files.
pub(super) fn check(path: &Path, bytes: u64, progress: &dyn Progress) -> Result<u64> {
    let count = Cell::new(0);
    // The rest of a member that is not wanted is read and passed over.
    let unwanted = |_: &Seen<'_>| {
        count.set(count.get() + 1);
        false
    };
    each(path, bytes, progress, &unwanted, &mut |_| {
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(count.get())
}

/// Passes every wanted member to `visit`, in archive order.
pub(super) fn each(
    path: &Path,
    bytes: u64,
    progress: &dyn Progress,
    wanted: &Offer<'_>,
    visit: &mut Visit<'_>,
) -> Result<()> {
    let consumed = Arc::new(AtomicU64::new(0));
    let file = counted(files::open(path)?, consumed.clone());
    let input = unpacked(file, bytes).map_err(unreadable(path))?;
    let mut archive = Archive::new(input);
    let damaged = |error: io::Error| unreadable(path)(error);
    let wrong = |problem: String| Error::File {
        file: path.to_owned(),
        problem,
    };
    // `raw` keeps the crate from reading extended headers of any size into memory.
    let entries = archive.entries().map_err(damaged)?.raw(true);
    let mut long_name: Option<Vec<u8>> = None;
    let mut reported = 0;
    for entry in entries {
        let mut entry = entry.map_err(damaged)?;
        let kind = entry.header().entry_type();
        if kind.is_gnu_longname() || kind.is_pax_local_extensions() {
            let mut text = Vec::new();
            (&mut entry)
                .take(LONGEST_NAME + 1)
                .read_to_end(&mut text)
                .map_err(damaged)?;
            if text.len() as u64 > LONGEST_NAME {
                return Err(wrong(format!(
                    "a name of more than {LONGEST_NAME} bytes in the archive"
                )));
            }
            long_name = match kind {
                EntryType::GNULongName => Some(until_nul(&text).to_vec()),
                _ => pax_path(&text).or(long_name),
            };
            continue;
        }
        let given = match long_name.take() {
            Some(name) => name,
            None => entry.header().path_bytes().into_owned(),
        };
        let given = String::from_utf8_lossy(&given);
        if kind == EntryType::GNUSparse {
            return Err(wrong(format!(
                "`{given}` is stored sparsely, which no published archive is"
            )));
        }
        let is_file = matches!(kind, EntryType::Regular | EntryType::Continuous);
        // The oldest writers store folders as files whose names end in a slash.
        if matches!(kind, EntryType::Directory | EntryType::XGlobalHeader)
            || is_file && given.ends_with('/')
        {
            continue;
        }
        let name = match safe_name(&given) {
            Some(name) => name,
            None if is_file => {
                return Err(wrong(format!(
                    "{} would lie outside of the archive",
                    quoted(&given)
                )));
            }
            None => continue,
        };
        let seen = match kind {
            EntryType::Symlink => Seen::link(&name),
            _ => Seen::file(&name),
        };
        if wanted(&seen) {
            if !is_file {
                return Err(wrong(format!(
                    "`{given}` is a link or a device: {PACK_FILES}"
                )));
            }
            let size = entry.header().entry_size().map_err(damaged)?;
            let next = visit(Member {
                name: &name,
                size: Some(size),
                path: path.join(&name),
                content: &mut entry,
            })?;
            if next.is_break() {
                return Ok(());
            }
        }
        let now = consumed.load(Ordering::Relaxed);
        progress.advance(now - reported);
        reported = now;
    }
    // The end of a packed stream holds its checksum.
    if !is_padding(archive.into_inner()).map_err(damaged)? {
        return Err(wrong(
            "more follows the end of the archive, such as a second one joined to it (cat), and \
             would not be read: unpack all of it (tar --ignore-zeros), and name the folder"
                .to_owned(),
        ));
    }
    Ok(())
}

/// Reads the rest of an archive. Returns whether it is all zeros, with which writers fill the last
/// record.
fn is_padding(mut rest: impl Read) -> io::Result<bool> {
    let mut buffer = vec![0; 1 << 16];
    let mut is_padding = true;
    loop {
        match rest.read(&mut buffer) {
            Ok(0) => return Ok(is_padding),
            Ok(count) => is_padding &= buffer[..count].iter().all(|&byte| byte == 0),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn until_nul(text: &[u8]) -> &[u8] {
    let end = text.iter().position(|&byte| byte == 0);
    &text[..end.unwrap_or(text.len())]
}

/// Returns the `path` record of an extended header, whose records are `<length> <key>=<value>\n`.
fn pax_path(mut text: &[u8]) -> Option<Vec<u8>> {
    let mut found = None;
    while let Some(space) = text.iter().position(|&byte| byte == b' ') {
        let length: usize = std::str::from_utf8(&text[..space]).ok()?.parse().ok()?;
        let record = text.get(space + 1..length.checked_sub(1)?)?;
        if let Some(path) = record.strip_prefix(b"path=") {
            found = Some(path.to_vec());
        }
        text = text.get(length..)?;
    }
    found
}
