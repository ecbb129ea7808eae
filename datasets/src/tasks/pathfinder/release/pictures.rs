//! Search for a published set in a folder or archive, and reading of its files.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::archive;
use super::innermost;
use super::metadata::{self, Listed};
use super::set::{Set, batch_of};
use crate::archive::Raw;
use crate::archive::folder::files_below;
use crate::error::{Error, Result, io};
use crate::files::{self, relative_name};
use crate::locate::{Form, Wanted, locate};
use crate::remote::LRA_RELEASE;
use crate::tasks::pathfinder::parameters::{Difficulty, Size};
use crate::{About, Request};

/// Maximum size of an image file; one of 256 x 256 pixels has 64 KiB when it is not packed at all.
pub(super) const LARGEST_IMAGE: u64 = 1 << 18;

/// Maximum size of a metadata file; the release's are a hundredth of it.
pub(super) const LARGEST_LIST: u64 = 64 << 20;

/// Images of a set, accessed by their path inside it.
pub(super) enum Pictures {
    /// A folder.
    Folder(PathBuf),
    /// Images copied out of an archive, one after the other.
    Copied {
        archive: PathBuf,
        /// Path of the set inside the archive.
        prefix: String,
        spool: File,
        /// Start and length of each image in the spool.
        places: HashMap<String, (u64, u64)>,
    },
}

/// Finds a set at `request.raw`: a folder of the release at any of its levels or around it, an
/// archive, or a folder with one.
pub(super) fn find(
    about: &'static About,
    size: Size,
    difficulty: Difficulty,
    request: &Request<'_>,
) -> Result<(Vec<Listed>, Pictures)> {
    let set = Set::new(size, difficulty);
    let what = set.text();
    let wanted = Wanted {
        about,
        what: &what,
        archive: LRA_RELEASE,
        fits: &|name| set.has_list(name),
        parquet: false,
    };
    let Form::Members(raw) = locate(request.raw, &wanted, request.progress)? else {
        return Err(wanted.missing(request.raw, None)); // Parquet was not requested.
    };
    let (files, pictures) = match &raw {
        Raw::Folder(folder) => in_folder(folder, &set)?,
        archive => archive::copy(archive, &set, &wanted, request)?,
    };
    let listed = list(&files, &pictures)?;
    if listed.is_empty() {
        return Err(wanted.missing(&pictures.origin(), None));
    }
    Ok((listed, pictures))
}

/// Metadata files by batch.
pub(super) type Metadata = BTreeMap<(u64, String), Vec<u8>>;

/// Returns a sort key that puts `3` before `20`.
pub(super) fn batch_key(name: &str) -> (u64, String) {
    (name.parse().unwrap_or(u64::MAX), name.to_owned())
}

fn list(files: &Metadata, pictures: &Pictures) -> Result<Vec<Listed>> {
    let mut listed = Vec::new();
    let mut seen = HashSet::new();
    for ((_, batch), bytes) in files {
        let name = pictures.name_of(&format!("metadata/{batch}.npy"));
        for image in metadata::parse(&name, bytes)? {
            if !seen.insert(image.path.clone()) {
                return Err(Error::File {
                    file: name,
                    problem: format!("{} is listed twice", image.path),
                });
            }
            listed.push(image);
        }
    }
    Ok(listed)
}

/// Returns metadata and images of a set in a folder or below it, where its lists are.
fn in_folder(folder: &Path, set: &Set) -> Result<(Metadata, Pictures)> {
    let mut copies: BTreeMap<String, Metadata> = BTreeMap::new();
    for path in files_below(folder, &mut |name| set.has_list(name))? {
        let name = relative_name(folder, &path);
        let Some((prefix, inside)) = set.within(&name) else {
            continue;
        };
        let wrong = |problem: String| Error::File {
            file: path.clone(),
            problem,
        };
        if let Some(batch) = batch_of(inside).map_err(wrong)? {
            let bytes = whole(&path, LARGEST_LIST)?.unwrap_or_default();
            let metadata = copies.entry(prefix.to_owned()).or_default();
            metadata.insert(batch_key(batch), bytes);
        }
    }
    let found = innermost(copies.into_iter().collect()).map_err(|problem| Error::File {
        file: folder.to_owned(),
        problem,
    })?;
    let (prefix, metadata) = found.unwrap_or_default();
    Ok((metadata, Pictures::Folder(folder.join(prefix))))
}

/// Reads a whole file; returns `None` if it does not exist.
fn whole(path: &Path, largest: u64) -> Result<Option<Vec<u8>>> {
    let file = match files::open(path) {
        Err(Error::Io { cause, .. }) if cause.kind() == ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    let mut bytes = Vec::new();
    file.take(largest + 1)
        .read_to_end(&mut bytes)
        .map_err(io("read", path))?;
    if bytes.len() as u64 > largest {
        return Err(Error::File {
            file: path.to_owned(),
            problem: format!("more than {largest} bytes, which no file of the release has"),
        });
    }
    Ok(Some(bytes))
}

impl Pictures {
    /// Reads an image file; returns `None` if it is missing or empty.
    pub(super) fn read(&mut self, image: &str) -> Result<Option<Vec<u8>>> {
        match self {
            Pictures::Folder(folder) => {
                Ok(whole(&folder.join(image), LARGEST_IMAGE)?.filter(|bytes| !bytes.is_empty()))
            }
            Pictures::Copied {
                archive,
                spool,
                places,
                ..
            } => {
                let Some(&(start, length)) = places.get(image) else {
                    return Ok(None);
                };
                let mut bytes = vec![0; length as usize];
                spool
                    .seek(SeekFrom::Start(start))
                    .and_then(|_| spool.read_exact(&mut bytes))
                    .map_err(io("read images copied from", archive))?;
                Ok(Some(bytes).filter(|bytes| !bytes.is_empty()))
            }
        }
    }

    /// Returns the number of images that are not in any list.
    pub(super) fn unlisted(&self, listed: &[Listed]) -> Result<usize> {
        let known: HashSet<&str> = listed.iter().map(|image| image.path.as_str()).collect();
        let is_other = |image: &str| image.ends_with(".png") && !known.contains(image);
        match self {
            Pictures::Folder(folder) if folder.join("imgs").is_dir() => {
                let inside = |name: &str| is_other(&format!("imgs/{name}"));
                Ok(files_below(&folder.join("imgs"), &mut |name| inside(name))?.len())
            }
            Pictures::Folder(_) => Ok(0),
            Pictures::Copied { places, .. } => {
                Ok(places.keys().filter(|image| is_other(image)).count())
            }
        }
    }

    /// Returns the name of a file of the set for messages.
    pub(super) fn name_of(&self, file: &str) -> PathBuf {
        match self {
            Pictures::Folder(folder) => folder.join(file),
            Pictures::Copied {
                archive, prefix, ..
            } => archive.join(prefix).join(file),
        }
    }

    /// Returns the name of the whole set for messages.
    pub(super) fn origin(&self) -> PathBuf {
        match self {
            Pictures::Folder(folder) => folder.clone(),
            Pictures::Copied { archive, .. } => archive.clone(),
        }
    }
}
