//! Reading of a set from an archive in one pass and without unpacking it.
//!
//! Only images and metadata of the wanted set are read. Images are copied, still packed, to an
//! unnamed file next to the store, because the archive's order is not the metadata's order and they
//! would not fit into memory.

use std::collections::BTreeMap;
use std::fs::File as Spool;
use std::io::{BufWriter, Write};

use super::copies::{Copy, Found, Search};
use super::pictures::{LARGEST_IMAGE, LARGEST_LIST};
use super::set::File;
use crate::Request;
use crate::archive::Raw;
use crate::error::{self, Error, Result};

/// Maximum number of images and metadata files of one set; the release has 200,200.
const MEMBERS: usize = 2_000_000;

/// Maximum bytes of metadata; the release has 12 million in a set.
const LISTS: usize = 256 << 20;

/// Start and length of an image in the file of copied images.
pub(super) type Extent = (u64, u64);

/// Copies the images of a set from an archive, and reads its metadata. Returns the set and the file
/// of images.
///
/// # Errors
/// The set is missing, or the archive cannot be read.
pub(super) fn copy(
    raw: &Raw,
    search: &Search<'_>,
    request: &Request<'_>,
) -> Result<(Found<Extent>, Spool)> {
    let path = raw.path();
    let wrong = |problem: String| Error::File {
        file: path.to_owned(),
        problem,
    };
    let mut spool = BufWriter::with_capacity(1 << 20, request.checkpoint.scratch()?);
    let mut end = 0u64;
    let mut copies: BTreeMap<String, Copy<Extent>> = BTreeMap::new();
    let (mut members, mut lists) = (0, 0);
    let contents = raw.members(
        "reading the archive",
        request.progress,
        &|name| search.see(name),
        &|name| search.file(name).is_some(),
        &mut |mut member| {
            let Some((prefix, inside, file)) = search.file(member.name) else {
                return Ok(());
            };
            members += 1;
            if members > MEMBERS {
                return Err(wrong(format!("more than {MEMBERS} files of one set")));
            }
            let copy = copies.entry(prefix.to_owned()).or_default();
            let mut bytes = Vec::new();
            match file {
                File::List(batch) => {
                    lists += member.bytes(LARGEST_LIST, &mut bytes)?;
                    if lists > LISTS {
                        return Err(wrong(format!("more than {LISTS} bytes of metadata")));
                    }
                    copy.add_list(batch, bytes, &member.path)
                }
                File::Image => {
                    let length = member.bytes(LARGEST_IMAGE, &mut bytes)? as u64;
                    spool
                        .write_all(&bytes)
                        .map_err(error::io("copy images from", path))?;
                    let extent = (end, length);
                    end += length;
                    copy.add_image(inside, extent, &member.path)
                }
            }
        },
    )?;
    let spool = spool
        .into_inner()
        .map_err(|failed| error::io("copy images from", path)(failed.into_error()))?;
    Ok((search.choose(copies, raw, &contents)?, spool))
}
