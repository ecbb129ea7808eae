//! Search for a published set in a folder or archive, and reading of its files.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::archive::{self, Extent};
use super::copies::{Copy, Found, Metadata, Search};
use super::metadata::{self, Listed};
use super::set::{self, Set};
use crate::archive::folder::files_below;
use crate::archive::{Contents, Raw};
use crate::error::{Error, Result, io};
use crate::files::{self, relative_name};
use crate::locate::{Form, Wanted, locate};
use crate::remote::LRA_RELEASE;
use crate::tasks::pathfinder::parameters::{Difficulty, Size};
use crate::words::counted;
use crate::{Request, TaskInfo};

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
        /// Place of each image in the spool.
        places: HashMap<String, Extent>,
    },
}

/// Finds a set at `request.raw`: a folder of the release at any of its levels or around it, an
/// archive, or a folder with one. Returns its lists, its images, and notes about other files.
///
/// # Errors
/// The set is missing, or a file among its own is none of its lists and listed images.
pub(super) fn find(
    info: &'static TaskInfo,
    size: Size,
    difficulty: Difficulty,
    request: &Request<'_>,
) -> Result<(Vec<Listed>, Pictures, Vec<String>)> {
    let set = Set::new(size, difficulty);
    let what = set.text();
    let wanted = Wanted {
        info,
        what: &what,
        archive: LRA_RELEASE,
        other_archives: &[],
        role: &|name| set.role(name),
        flat: false,
        copies: true,
        packed: false,
        parquet: false,
    };
    let Form::Members(raw, survey) = locate(request.raw, &wanted, request.progress)? else {
        return Err(wanted.missing(request.raw, None)); // Parquet was not requested.
    };
    let search = Search::new(&set, &wanted, survey);
    let (metadata, images, pictures, notes) = match &raw {
        Raw::Folder(folder) => {
            let found = in_folder(folder, &raw, &search)?;
            let pictures = Pictures::Folder(folder.join(found.prefix));
            let Copy { metadata, images } = found.copy;
            (
                metadata,
                images.into_keys().collect(),
                pictures,
                found.notes,
            )
        }
        archive => {
            let (found, spool) = archive::copy(archive, &search, request)?;
            let Copy { metadata, images } = found.copy;
            let names: Vec<String> = images.keys().cloned().collect();
            let pictures = Pictures::Copied {
                archive: archive.path().to_owned(),
                prefix: found.prefix,
                spool,
                places: images,
            };
            (metadata, names, pictures, found.notes)
        }
    };
    let listed = list(&metadata, &pictures)?;
    if listed.is_empty() {
        return Err(wanted.missing(&pictures.origin(), None));
    }
    refuse_unlisted(&images, &listed, &pictures)?;
    Ok((listed, pictures, notes))
}

/// Refuses images that no list has.
fn refuse_unlisted(images: &[String], listed: &[Listed], pictures: &Pictures) -> Result<()> {
    let known: HashSet<&str> = listed.iter().map(|image| image.path.as_str()).collect();
    let unlisted = || {
        images
            .iter()
            .filter(|image| !known.contains(image.as_str()))
    };
    let Some(first) = unlisted().min() else {
        return Ok(());
    };
    let others = match unlisted().count() - 1 {
        0 => String::new(),
        1 => ", nor has 1 other".to_owned(),
        more => format!(", nor have {}", counted(more, "other")),
    };
    Err(Error::File {
        file: pictures.name_of(first),
        problem: format!(
            "in none of the lists, metadata/*.npy, so it has no label{others}: add the list that has it, \
             or move it away"
        ),
    })
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
fn in_folder(folder: &Path, raw: &Raw, search: &Search<'_>) -> Result<Found<()>> {
    let mut copies: BTreeMap<String, Copy<()>> = BTreeMap::new();
    let mut contents = Contents::default();
    let files = files_below(folder, &mut |name| {
        let is_of_set = search.file(name).is_some();
        contents.add(name, is_of_set);
        search.see(name);
        is_of_set
    })?;
    for path in files {
        let name = relative_name(folder, &path);
        let Some((prefix, inside, file)) = search.file(&name) else {
            continue;
        };
        let copy = copies.entry(prefix.to_owned()).or_default();
        match file {
            set::File::List(batch) => {
                let bytes = whole(&path, LARGEST_LIST)?.unwrap_or_default();
                copy.add_list(batch, bytes, &path)?;
            }
            set::File::Image => copy.add_image(inside, (), &path)?,
        }
    }
    search.choose(copies, raw, &contents)
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
