//! Tar archives, packed or not: members in the order in which they lie.
//!
//! The `tar` crate finds members; the extended headers that hold long names are read here, because the crate reads those of
//! any size into memory.

use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tar::{Archive, EntryType};

use super::packing::unpacked;
use super::{LONGEST_NAME, Member, regular, safe_name, unreadable};
use crate::Progress;
use crate::error::{Error, Result};

/// Whether these are the first bytes of one that is not packed.
pub(super) fn begins(start: &[u8]) -> bool {
    start.get(257..262) == Some(b"ustar")
}

/// Gives every wanted member to `visit`, in the order of the archive.
pub(super) fn each(
    path: &Path,
    bytes: u64,
    progress: &dyn Progress,
    wanted: &dyn Fn(&str) -> bool,
    visit: &mut dyn FnMut(Member<'_>) -> Result<()>,
) -> Result<()> {
    let file = regular(path)?;
    let consumed = Arc::new(AtomicU64::new(0));
    let input = unpacked(file, bytes, consumed.clone()).map_err(unreadable(path))?;
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
        if !matches!(kind, EntryType::Regular | EntryType::Continuous) {
            continue; // Folders, links, devices: nothing to read.
        }
        let name = safe_name(&given)
            .ok_or_else(|| wrong(format!("`{given}` would lie outside of the archive")))?;
        if wanted(&name) {
            let size = entry.header().entry_size().map_err(damaged)?;
            visit(Member {
                name: &name,
                size,
                path: path.join(&name),
                content: &mut entry,
            })?;
        }
        let now = consumed.load(Ordering::Relaxed);
        progress.advance(now - reported);
        reported = now;
    }
    // What is behind the last member holds the checksum of the packed stream.
    io::copy(&mut archive.into_inner(), &mut io::sink()).map_err(damaged)?;
    Ok(())
}

fn until_nul(text: &[u8]) -> &[u8] {
    let end = text.iter().position(|&byte| byte == 0);
    &text[..end.unwrap_or(text.len())]
}

/// The `path` record of an extended header, whose records are `<length> <key>=<value>\n`.
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
