//! Reading a set out of an archive in one pass and without unpacking it.
//!
//! Only images and metadata of the wanted set are looked at. Images are copied, still packed, to an unnamed
//! file beside the store, because the archive's order is not the metadata's and memory would not hold them all.

use std::collections::HashMap;
use std::io::{BufWriter, Write};

use super::deepest;
use super::pictures::{LARGEST_IMAGE, LARGEST_LIST, Metadata, Pictures, batch_key};
use crate::Request;
use crate::archive::Raw;
use crate::error::{self, Error, Result};
use crate::tasks::pathfinder::parameters::Difficulty;

/// Images and metadata files of one set at most; the release has 200,200.
const MEMBERS: usize = 2_000_000;

/// Bytes of metadata at most; the release has 12 million in a set.
const LISTS: usize = 256 << 20;

/// One copy of the set in the archive.
#[derive(Default)]
struct Copy {
    metadata: Metadata,
    places: HashMap<String, (u64, u64)>,
}

/// Metadata and images of `set` in an archive; nothing if it has none.
pub(super) fn copy(
    raw: &Raw,
    set: &str,
    difficulty: Difficulty,
    request: &Request<'_>,
) -> Result<Option<(Metadata, Pictures)>> {
    let path = raw.path();
    let wrong = |problem: String| Error::File {
        file: path.to_owned(),
        problem,
    };
    let mut spool = BufWriter::with_capacity(1 << 20, request.checkpoint.scratch()?);
    let mut end = 0u64;
    let mut copies: HashMap<String, Copy> = HashMap::new();
    let (mut members, mut lists) = (0, 0);
    let is_wanted = |name: &str| within(name, set, difficulty).is_some();
    raw.members(
        "reading the archive",
        request.progress,
        &is_wanted,
        &mut |mut member| {
            let Some((prefix, inside)) = within(member.name, set, difficulty) else {
                return Ok(());
            };
            members += 1;
            if members > MEMBERS {
                return Err(wrong(format!("more than {MEMBERS} files of one set")));
            }
            let copy = copies.entry(prefix.to_owned()).or_default();
            let mut bytes = Vec::new();
            if let Some(batch) = inside
                .strip_prefix("metadata/")
                .and_then(|rest| rest.strip_suffix(".npy"))
            {
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
    Ok(deepest(copies).map(|(prefix, copy)| {
        let pictures = Pictures::Copied {
            archive: path.to_owned(),
            prefix,
            spool,
            places: copy.places,
        };
        (copy.metadata, pictures)
    }))
}

/// Path of the set and path inside the set of a member that belongs to it.
fn within<'a>(name: &'a str, set: &str, difficulty: Difficulty) -> Option<(&'a str, &'a str)> {
    let folder = format!("{set}/{}/", difficulty.folder());
    let start = name
        .rfind(&folder)
        .filter(|start| *start == 0 || name.as_bytes()[start - 1] == b'/')?;
    let inside = start + folder.len();
    Some((&name[..inside], &name[inside..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_told_by_their_path() {
        let hard = |name| within(name, "pathfinder32", Difficulty::Hard);
        assert_eq!(
            hard("lra_release/lra_release/pathfinder32/curv_contour_length_14/imgs/0/sample_0.png"),
            Some((
                "lra_release/lra_release/pathfinder32/curv_contour_length_14/",
                "imgs/0/sample_0.png"
            ))
        );
        assert!(hard("pathfinder32/curv_contour_length_14/metadata/0.npy").is_some());
        assert_eq!(
            hard("xpathfinder32/curv_contour_length_14/metadata/0.npy"),
            None
        );
        assert_eq!(hard("pathfinder32/curv_baseline/metadata/0.npy"), None);
        assert_eq!(hard("pathfinder32/curv_contour_length_14"), None);
    }
}
