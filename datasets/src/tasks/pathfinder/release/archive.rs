//! Reading a set out of a tar archive, compressed or not, in one pass and without unpacking it.
//!
//! Only images and metadata of the wanted set are looked at. Images are copied, still compressed, to an unnamed
//! file beside the store, because the archive's order is not the metadata's and memory would not hold them all.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Component, Path};

use flate2::read::MultiGzDecoder;

use super::deepest;
use super::pictures::{LARGEST, Metadata, Pictures, batch_key};
use crate::error::{self, Error, Result};
use crate::tasks::pathfinder::parameters::Difficulty;
use crate::{Progress, Request};

/// Unpacked bytes at most; the whole release has a third of it.
const UNPACKED: u64 = 64 << 30;
/// Images and metadata files of one set at most; the release has 200,200.
const MEMBERS: usize = 2_000_000;

/// One copy of the set in the archive.
#[derive(Default)]
struct Copy {
    metadata: Metadata,
    places: HashMap<String, (u64, u64)>,
}

/// Metadata and images of `set` in an archive; nothing if it has none.
pub(super) fn copy(
    path: &Path,
    set: &str,
    difficulty: Difficulty,
    request: &Request<'_>,
) -> Result<Option<(Metadata, Pictures)>> {
    let wrong = |problem: String| Error::File {
        file: path.to_owned(),
        problem,
    };
    let broken = |cause: io::Error| wrong(format!("not a readable tar archive: {cause}"));
    let file = File::open(path).map_err(error::io("read", path))?;
    let size = file.metadata().map_err(error::io("read", path))?.len();
    request.progress.begin("reading the archive", Some(size));
    let mut packed = BufReader::with_capacity(
        1 << 20,
        Counted {
            inner: file,
            progress: request.progress,
        },
    );
    let gzip = io::BufRead::fill_buf(&mut packed)
        .map_err(error::io("read", path))?
        .starts_with(&[0x1f, 0x8b]);
    let unpacked: Box<dyn Read> = if gzip {
        Box::new(MultiGzDecoder::new(packed))
    } else {
        Box::new(packed)
    };
    let mut archive = tar::Archive::new(Limited {
        inner: unpacked,
        left: UNPACKED,
    });

    let mut spool = BufWriter::with_capacity(1 << 20, request.parts.scratch()?);
    let mut end = 0u64;
    let mut copies: HashMap<String, Copy> = HashMap::new();
    let mut members = 0;
    for entry in archive.entries().map_err(broken)? {
        let mut entry = entry.map_err(broken)?;
        let name = entry.path_bytes().into_owned();
        let Ok(name) = std::str::from_utf8(&name) else {
            continue;
        };
        let name = name.to_owned();
        if Path::new(&name)
            .components()
            .any(|part| part == Component::ParentDir)
        {
            return Err(wrong(format!(
                "the member {name:?} points out of the archive"
            )));
        }
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let Some((prefix, member)) = within(&name, set, difficulty) else {
            continue;
        };
        members += 1;
        if members > MEMBERS {
            return Err(wrong(format!("more than {MEMBERS} files of one set")));
        }
        if entry.size() > LARGEST {
            return Err(wrong(format!(
                "{name} has {} bytes, more than any file of the release",
                entry.size()
            )));
        }
        let copy = copies.entry(prefix.to_owned()).or_default();
        if let Some(batch) = member
            .strip_prefix("metadata/")
            .and_then(|rest| rest.strip_suffix(".npy"))
        {
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).map_err(broken)?;
            copy.metadata.insert(batch_key(batch), bytes);
        } else if member.starts_with("imgs/") {
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).map_err(broken)?;
            spool
                .write_all(&bytes)
                .map_err(error::io("copy images from", path))?;
            copy.places
                .insert(member.to_owned(), (end, bytes.len() as u64));
            end += bytes.len() as u64;
        }
    }
    request.progress.finish();
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

/// Reports the bytes that go through it.
struct Counted<'a> {
    inner: File,
    progress: &'a dyn Progress,
}

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.progress.advance(count as u64);
        Ok(count)
    }
}

/// Refuses to go on for ever.
struct Limited<R> {
    inner: R,
    left: u64,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.left = self
            .left
            .checked_sub(count as u64)
            .ok_or_else(|| io::Error::other(format!("it unpacks to more than {UNPACKED} bytes")))?;
        Ok(count)
    }
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

    #[test]
    fn limits_are_kept() {
        let mut limited = Limited {
            inner: io::repeat(0),
            left: 100,
        };
        assert!(limited.read_exact(&mut [0; 100]).is_ok());
        assert!(limited.read_exact(&mut [0; 1]).is_err());
    }
}
