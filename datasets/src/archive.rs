//! Raw files, whether they lie in a folder, in a tar archive (plain, gzip or zstd) or in a zip archive, one after the other.
//!
//! Nothing is ever unpacked to disk: an archive is read once from front to back, and what a task wants of it goes
//! straight to its reader. So no member can land outside of a folder; one whose name would is refused all the same,
//! because an archive that has it is not what it says. What an archive may cost is bounded: extended headers by
//! [`LONGEST_NAME`], members by whoever reads them ([`Member::bytes`]), the whole by [`packing::MOST_GROWTH`].

mod packing;
mod tar;
mod zip;

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use self::packing::Packing;
use crate::Progress;
use crate::error::{Error, Result, io as io_error};
use crate::files::relative_name;

/// Longest name of a member, in bytes.
const LONGEST_NAME: u64 = 4096;

/// How deep folders are searched for raw files, below the one given.
const DEEPEST: usize = 4;

/// Most entries that folders are searched through; the published tasks have 200,000 files at most.
const MOST_ENTRIES: usize = 2_000_000;

/// A raw input as found on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Raw {
    /// A folder of files.
    Folder(PathBuf),
    /// A tar archive, packed or not, or a zip archive.
    Archive(PathBuf),
    /// A parquet file.
    Parquet(PathBuf),
    /// Any other file.
    File(PathBuf),
}

impl Raw {
    /// What lies at `path`, judged by its first bytes and not by its name; nothing where nothing is.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(crate) fn at(path: &Path) -> Result<Option<Raw>> {
        match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(io_error("read", path)(error)),
            Ok(found) if found.is_dir() => return Ok(Some(Raw::Folder(path.to_owned()))),
            Ok(_) => {}
        }
        let mut file = regular(path)?;
        let mut start = Vec::new();
        let mut bounded = (&mut file).take(512);
        bounded
            .read_to_end(&mut start)
            .map_err(io_error("read", path))?;
        let path = path.to_owned();

        Ok(Some(match Packing::of(&start) {
            _ if start.starts_with(b"PAR1") => Raw::Parquet(path),
            Packing::None if !tar::begins(&start) && !zip::begins(&start) => Raw::File(path),
            _ => Raw::Archive(path),
        }))
    }

    /// The path that it was found at.
    pub(crate) fn path(&self) -> &Path {
        match self {
            Raw::Folder(path) | Raw::Archive(path) | Raw::Parquet(path) | Raw::File(path) => path,
        }
    }

    /// Gives every file that `wanted` says yes to (by its name: slashes forward, relative to the folder or archive) to
    /// `visit`; from a folder in the order of names, from an archive in its own order. Progress counts bytes on disk.
    ///
    /// # Errors
    /// The folder or archive cannot be read or is not what it should be; and those of `visit`.
    pub(crate) fn members(
        &self,
        what: &str,
        progress: &dyn Progress,
        wanted: &dyn Fn(&str) -> bool,
        visit: &mut dyn FnMut(Member<'_>) -> Result<()>,
    ) -> Result<()> {
        let outcome = match self {
            Raw::Folder(folder) => {
                progress.begin(what, None);
                each_in_folder(folder, progress, wanted, visit)
            }
            Raw::Archive(path) => {
                let bytes = fs::metadata(path).map_err(io_error("read", path))?.len();
                progress.begin(what, Some(bytes));
                match zip::is(path)? {
                    true => zip::each(path, bytes, progress, wanted, visit),
                    false => tar::each(path, bytes, progress, wanted, visit),
                }
            }
            Raw::Parquet(path) | Raw::File(path) => Err(Error::File {
                file: path.clone(),
                problem: format!("neither a folder nor {ARCHIVES}"),
            }),
        };
        progress.finish();
        outcome
    }
}

/// One file of a folder or archive.
pub(crate) struct Member<'a> {
    /// Its name, relative, with forward slashes.
    pub(crate) name: &'a str,
    /// Its size, as far as the file system or the archive says.
    pub(crate) size: u64,
    /// For messages: its path, or the archive's path with its name below.
    pub(crate) path: PathBuf,
    pub(crate) content: &'a mut dyn Read,
}

impl Member<'_> {
    /// All of it, at most `limit` bytes, behind what `buffer` has already. Gives the number of bytes.
    ///
    /// # Errors
    /// It is larger, ends early, or cannot be read.
    pub(crate) fn bytes(&mut self, limit: u64, buffer: &mut Vec<u8>) -> Result<usize> {
        let start = buffer.len();
        let count = (&mut self.content)
            .take(limit + 1)
            .read_to_end(buffer)
            .map_err(unreadable(&self.path))?;
        if count as u64 > limit {
            buffer.truncate(start);
            return Err(self.wrong(format!("larger than {limit} bytes")));
        }
        if (count as u64) < self.size {
            buffer.truncate(start);
            return Err(self.wrong(format!("ends after {count} of {} bytes", self.size)));
        }
        Ok(count)
    }

    /// An error about the file as a whole.
    pub(crate) fn wrong(&self, problem: impl Into<String>) -> Error {
        Error::File {
            file: self.path.clone(),
            problem: problem.into(),
        }
    }
}

/// Opens a regular file, since a pipe or a device might never end.
///
/// # Errors
/// It is none, or cannot be opened.
pub(crate) fn regular(path: &Path) -> Result<File> {
    let found = fs::metadata(path).map_err(io_error("read", path))?;
    if !found.is_file() {
        let problem = match found.is_dir() {
            true => "a folder where a file is wanted",
            false => {
                "not a regular file but a pipe, a socket or a device; copy its content to a file first"
            }
        };
        return Err(Error::File {
            file: path.to_owned(),
            problem: problem.to_owned(),
        });
    }
    File::open(path).map_err(io_error("read", path))
}

/// What a read error means: of a packed file mostly that the file is damaged, which no retry mends.
pub(crate) fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> Error {
    move |error| {
        use io::ErrorKind::{InvalidData, InvalidInput, Other, UnexpectedEof};
        match error.kind() {
            InvalidData | InvalidInput | Other | UnexpectedEof => Error::File {
                file: path.to_owned(),
                problem: format!("damaged or incomplete: {}", brief(&error.to_string())),
            },
            _ => io_error("read", path)(error),
        }
    }
}

/// The first of what an unpacker says, which may quote the damaged bytes, as one line that is safe to print.
fn brief(words: &str) -> String {
    let shown: String = words.escape_debug().take(100).collect();
    match words.escape_debug().count() {
        0..=100 => shown,
        _ => shown + "...",
    }
}

/// The forms of an archive, in words.
pub(crate) const ARCHIVES: &str = "an archive (.tar, .tar.gz, .tar.zst, .zip)";

/// How names of archives end.
const ENDS: [&str; 5] = [".tar", ".gz", ".tgz", ".zst", ".zip"];

/// The archives among some files, told by their names first and then by their content.
///
/// # Errors
/// One of them cannot be read.
pub(crate) fn archives_of(files: &[PathBuf]) -> Result<Vec<Raw>> {
    let mut archives = Vec::new();
    for path in files {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if ENDS.iter().any(|end| name.ends_with(end))
            && let Some(archive @ Raw::Archive(_)) = Raw::at(path)?
        {
            archives.push(archive);
        }
    }
    Ok(archives)
}

/// The archives that lie in a folder itself, by name.
///
/// # Errors
/// The folder or one of them cannot be read.
pub(crate) fn archives_in(folder: &Path) -> Result<Vec<Raw>> {
    let mut files = Vec::new();
    for item in fs::read_dir(folder).map_err(io_error("read", folder))? {
        let path = item.map_err(io_error("read", folder))?.path();
        if path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    archives_of(&files)
}

/// The paths below a folder, as deep as raw files may lie, in the order of names. Hidden ones are left out.
pub(crate) fn files_below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut entries = 0;
    let mut open = vec![(folder.to_owned(), 0)];
    while let Some((folder, depth)) = open.pop() {
        for item in fs::read_dir(&folder).map_err(io_error("read", &folder))? {
            let item = item.map_err(io_error("read", &folder))?;
            entries += 1;
            if entries > MOST_ENTRIES {
                let problem = format!(
                    "more than {MOST_ENTRIES} files: name the folder that has the published ones"
                );
                return Err(Error::File {
                    file: folder,
                    problem,
                });
            }
            if item.file_name().as_encoded_bytes().starts_with(b".") {
                continue;
            }
            let path = item.path();
            // Follows links, since raw data may well be linked; the depth bounds a cycle.
            match fs::metadata(&path) {
                Ok(found) if found.is_dir() && depth < DEEPEST => open.push((path, depth + 1)),
                Ok(found) if found.is_file() => files.push(path),
                _ => {}
            }
        }
    }
    files.sort();
    Ok(files)
}

fn each_in_folder(
    folder: &Path,
    progress: &dyn Progress,
    wanted: &dyn Fn(&str) -> bool,
    visit: &mut dyn FnMut(Member<'_>) -> Result<()>,
) -> Result<()> {
    for path in files_below(folder)? {
        let name = relative_name(folder, &path);
        if !wanted(&name) {
            continue;
        }
        let mut file = regular(&path)?;
        let size = file.metadata().map_err(io_error("read", &path))?.len();
        visit(Member {
            name: &name,
            size,
            path,
            content: &mut file,
        })?;
        progress.advance(size);
    }
    Ok(())
}

/// The name with `.` parts left out; nothing where it is absolute, empty, or leads upwards.
fn safe_name(name: &str) -> Option<String> {
    if name.starts_with(['/', '\\']) || name.get(1..3) == Some(":\\") {
        return None;
    }
    let parts: Vec<&str> = name
        .split('/')
        .filter(|part| !matches!(*part, "" | "."))
        .collect();
    let upwards = |part: &&str| *part == ".." || part.split('\\').any(|part| part == "..");
    (!parts.is_empty() && !parts.iter().any(upwards)).then(|| parts.join("/"))
}
