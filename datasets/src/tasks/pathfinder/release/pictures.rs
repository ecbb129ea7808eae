//! Finds a published set in a folder or archive, and reads its files.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::archive;
use super::metadata::{self, Listed};
use super::missing;
use crate::archive::{ARCHIVES, Raw, archives_in, regular};
use crate::error::{Error, Result, io};
use crate::tasks::pathfinder::parameters::{Difficulty, Size};
use crate::{About, Request};

/// Largest image that is read; one of 256 x 256 pixels has 64 KiB when it is not packed at all.
pub(super) const LARGEST_IMAGE: u64 = 1 << 18;

/// Largest metadata file that is read; the release's are a hundredth of it.
pub(super) const LARGEST_LIST: u64 = 64 << 20;

/// Files of a set by their path inside it.
pub(super) enum Pictures {
    /// A folder.
    Folder(PathBuf),
    /// Images copied out of an archive, one after the other.
    Copied {
        archive: PathBuf,
        /// Path of the set inside the archive.
        prefix: String,
        spool: File,
        /// Start and length in the spool.
        places: HashMap<String, (u64, u64)>,
    },
}

/// Finds a set at `request.raw`: a folder of the release at any of its levels, an archive, or a folder with one.
pub(super) fn find(
    about: &'static About,
    size: Size,
    difficulty: Difficulty,
    request: &Request<'_>,
) -> Result<(Vec<Listed>, Pictures)> {
    let raw = request.raw;
    let missing = || missing(about, size, difficulty, raw);
    let set = format!("pathfinder{}", size.side());
    let found = match Raw::at(raw)? {
        Some(Raw::Folder(_)) => {
            let inner = ["lra_release/lra_release", "lra_release", ""]
                .map(|level| raw.join(level).join(&set).join(difficulty.folder()));
            let mut folders = inner
                .into_iter()
                .chain([raw.join(difficulty.folder()), raw.to_owned()]);
            match folders.find(|folder| folder.join("metadata").is_dir()) {
                Some(folder) => Some((folder_metadata(&folder)?, Pictures::Folder(folder))),
                None => archives_in(raw)?
                    .iter()
                    .find_map(|found| archive::copy(found, &set, difficulty, request).transpose())
                    .transpose()?,
            }
        }
        Some(found @ Raw::Archive(_)) => archive::copy(&found, &set, difficulty, request)?,
        Some(Raw::Parquet(file) | Raw::File(file)) => {
            let problem = format!(
                "neither a folder nor {ARCHIVES} with the published set {set}/{}",
                difficulty.folder()
            );
            return Err(Error::File { file, problem });
        }
        None => None,
    };
    let (files, pictures) = found.ok_or_else(missing)?;
    let listed = list(&files, &pictures)?;
    if listed.is_empty() {
        return Err(missing());
    }
    Ok((listed, pictures))
}

/// Metadata files by batch.
pub(super) type Metadata = BTreeMap<(u64, String), Vec<u8>>;

/// The key that sorts `3` before `20`.
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

fn folder_metadata(folder: &Path) -> Result<Metadata> {
    let folder = folder.join("metadata");
    let mut files = Metadata::new();
    for entry in fs::read_dir(&folder).map_err(io("read", &folder))? {
        let path = entry.map_err(io("read", &folder))?.path();
        let batch = path
            .file_name()
            .and_then(|name| name.to_str()?.strip_suffix(".npy"));
        if let Some(batch) = batch {
            let bytes = whole(&path, LARGEST_LIST)?.unwrap_or_default();
            files.insert(batch_key(batch), bytes);
        }
    }
    Ok(files)
}

/// A whole file; nothing if it does not exist.
fn whole(path: &Path, largest: u64) -> Result<Option<Vec<u8>>> {
    let file = match regular(path) {
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
    /// An image file; nothing if it is missing or empty.
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

    /// How messages name a file of the set.
    pub(super) fn name_of(&self, file: &str) -> PathBuf {
        match self {
            Pictures::Folder(folder) => folder.join(file),
            Pictures::Copied {
                archive, prefix, ..
            } => archive.join(prefix).join(file),
        }
    }

    /// How messages name the whole.
    pub(super) fn origin(&self) -> PathBuf {
        match self {
            Pictures::Folder(folder) => folder.clone(),
            Pictures::Copied { archive, .. } => archive.clone(),
        }
    }
}
