//! Reading of a set from an archive in one pass and without unpacking it.
//!
//! Only images and metadata of the wanted set are read. Images are copied, still packed, to an
//! unnamed file next to the store, because the archive's order is not the metadata's order and they
//! would not fit into memory.

use std::collections::HashMap;
use std::io::{BufWriter, Write};

use super::innermost;
use super::pictures::{LARGEST_IMAGE, LARGEST_LIST, Metadata, Pictures, batch_key};
use super::set::{Set, batch_of};
use crate::Request;
use crate::archive::Raw;
use crate::error::{self, Error, Result};
use crate::locate::Wanted;

/// Maximum number of images and metadata files of one set; the release has 200,200.
const MEMBERS: usize = 2_000_000;

/// Maximum bytes of metadata; the release has 12 million in a set.
const LISTS: usize = 256 << 20;

/// One copy of the set in the archive.
#[derive(Default)]
struct Copy {
    metadata: Metadata,
    places: HashMap<String, (u64, u64)>,
}

/// Copies the images of a set from an archive, and reads its metadata.
///
/// # Errors
/// The set is missing, or the archive cannot be read.
pub(super) fn copy(
    raw: &Raw,
    set: &Set,
    wanted: &Wanted<'_>,
    request: &Request<'_>,
) -> Result<(Metadata, Pictures)> {
    let path = raw.path();
    let wrong = |problem: String| Error::File {
        file: path.to_owned(),
        problem,
    };
    let mut spool = BufWriter::with_capacity(1 << 20, request.checkpoint.scratch()?);
    let mut end = 0u64;
    let mut copies: HashMap<String, Copy> = HashMap::new();
    let (mut members, mut lists) = (0, 0);
    // `wanted` accepts lists only; here the images are needed too.
    let is_wanted = |name: &str| set.within(name).is_some();
    let contents = raw.members(
        "reading the archive",
        request.progress,
        &is_wanted,
        &mut |mut member| {
            let Some((prefix, inside)) = set.within(member.name) else {
                return Ok(());
            };
            members += 1;
            if members > MEMBERS {
                return Err(wrong(format!("more than {MEMBERS} files of one set")));
            }
            let copy = copies.entry(prefix.to_owned()).or_default();
            let mut bytes = Vec::new();
            if let Some(batch) = batch_of(inside).map_err(|problem| member.wrong(problem))? {
                lists += member.bytes(LARGEST_LIST, &mut bytes)?;
                if lists > LISTS {
                    return Err(wrong(format!("more than {LISTS} bytes of metadata")));
                }
                copy.metadata.insert(batch_key(batch), bytes);
            } else if inside.starts_with("imgs/") {
                let length = member.bytes(LARGEST_IMAGE, &mut bytes)? as u64;
                spool
                    .write_all(&bytes)
                    .map_err(error::io("copy images from", path))?;
                copy.places.insert(inside.to_owned(), (end, length));
                end += length;
            }
            Ok(())
        },
    )?;
    let spool = spool
        .into_inner()
        .map_err(|failed| error::io("copy images from", path)(failed.into_error()))?;
    copies.retain(|_, copy| !copy.metadata.is_empty());
    match innermost(copies.into_iter().collect()).map_err(wrong)? {
        None => Err(wanted.missing(path, Some(&contents))),
        Some((prefix, copy)) => {
            let pictures = Pictures::Copied {
                archive: path.to_owned(),
                prefix,
                spool,
                places: copy.places,
            };
            Ok((copy.metadata, pictures))
        }
    }
}
