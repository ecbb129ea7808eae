//! Raw files, read one after the other from a folder, a tar archive (plain, gzip or zstd) or a zip
//! archive.
//!
//! Nothing is ever unpacked to disk: an archive is read once from front to back, and the members
//! that a task needs go directly to its reader. So no member can be written outside a folder. A
//! member whose name would lead outside is still refused, because such an archive is suspicious.
//! The cost of reading an archive is bounded: extended headers by [`LONGEST_NAME`], members by
//! their reader ([`Member::bytes`]), the whole archive by [`packing::MOST_GROWTH`].

mod contents;
pub(crate) mod folder;
mod identify;
mod litter;
mod packing;
mod tar;
mod zip;

use std::cell::RefCell;
use std::fs;
use std::io::{self, Cursor, Read};
use std::ops::{ControlFlow, Deref};
use std::path::{Path, PathBuf};

use self::packing::Packing;
use crate::Progress;
use crate::error::{Error, Result, io as io_error};
use crate::files;
use crate::words::counted;

pub(crate) use self::contents::{Contents, few};
use self::identify::is_archive;
pub(crate) use self::identify::{POINTED, POINTER_BYTES, is_pointer, kind_of};
pub use self::identify::{unlike_archive, unlike_archive_beginning};
pub(crate) use self::litter::is_litter;
pub(crate) use self::packing::{packed_by, unpacked};

/// Longest name of a member, in bytes.
const LONGEST_NAME: u64 = 4096;

/// A raw input as found on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Raw {
    /// A folder of files.
    Folder(PathBuf),
    /// A tar archive, packed or not, or a zip archive.
    Archive(PathBuf),
    /// A parquet file.
    Parquet(PathBuf),
    /// One file, packed by gzip or zstd, that is not an archive.
    Packed(PathBuf),
    /// Any other file.
    File(PathBuf),
}

impl Raw {
    /// Returns the kind of input at `path`, judged by its first bytes and not by its name; `None`
    /// if the path does not exist.
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
        let mut start = Vec::new();
        let mut file = files::open(path)?;
        let mut bounded = (&mut file).take(512);
        bounded
            .read_to_end(&mut start)
            .map_err(io_error("read", path))?;
        let unpacked = packing::beginning(&start, file);
        let owned = path.to_owned();

        Ok(Some(match Packing::of(&start) {
            _ if start.starts_with(b"PAR1") => Raw::Parquet(owned),
            _ if is_archive(&start, unpacked.as_deref()) => Raw::Archive(owned),
            Packing::None => Raw::File(owned),
            _ => Raw::Packed(owned),
        }))
    }

    /// Returns the path at which the input was found.
    pub(crate) fn path(&self) -> &Path {
        match self {
            Raw::Folder(path)
            | Raw::Archive(path)
            | Raw::Parquet(path)
            | Raw::Packed(path)
            | Raw::File(path) => path,
        }
    }

    /// Passes the name of every file (relative to the folder or archive, with forward slashes) to
    /// `see`, and every file whose name `wanted` accepts to `visit`: from a folder in the order of
    /// names, from an archive in its own order. A file that is packed by itself (`.gz`, `.zst`) is
    /// offered and passed as the file that it unpacks to. Files that operating systems leave are
    /// passed over. Links in an archive, and those in a folder that lead nowhere, are seen and not
    /// followed. Progress counts bytes on disk.
    ///
    /// Returns the contents found.
    ///
    /// # Errors
    /// The folder or archive cannot be read or is invalid; a link lies where a folder would hold
    /// files that `wanted` accepts; or `visit` fails.
    pub(crate) fn members(
        &self,
        doing: &str,
        progress: &dyn Progress,
        see: &dyn Fn(&Seen<'_>),
        wanted: &dyn Fn(&str) -> bool,
        visit: &mut dyn FnMut(Member<'_>) -> Result<()>,
    ) -> Result<Contents> {
        let mut visit = |member: Member<'_>| visit(member).map(ControlFlow::Continue);
        let contents = self.each(doing, progress, see, wanted, &mut visit)?;
        if contents.too_many_links {
            return Err(Error::File {
                file: self.path().to_owned(),
                problem: format!("it has too many links: {PACK_FILES}"),
            });
        }
        let fits = |name: &str| fits(name, wanted);
        let ends = contents.ends(&fits);
        let holds = |link: &&String| ends.iter().any(|end| fits(&format!("{link}/{end}")));
        match contents.links().iter().find(holds) {
            Some(link) => Err(self.link(link)),
            None => Ok(contents),
        }
    }

    /// Returns the error for a link that is not followed in a place of data.
    pub(crate) fn link(&self, name: &str) -> Error {
        match self {
            Raw::Folder(folder) => Error::File {
                file: folder.join(name),
                problem: "a link to a file or folder that is not there, in a place of data"
                    .to_owned(),
            },
            _ => Error::File {
                file: self.path().to_owned(),
                problem: format!("`{name}` is a link in a place of data: {PACK_FILES}"),
            },
        }
    }

    /// Returns whether there is a file that `wanted` accepts.
    ///
    /// # Errors
    /// The folder or archive cannot be read up to that file.
    pub(crate) fn holds(
        &self,
        progress: &dyn Progress,
        wanted: &dyn Fn(&str) -> bool,
    ) -> Result<bool> {
        let mut found = false;
        self.each(
            "looking into archives",
            progress,
            &|_| {},
            wanted,
            &mut |_| {
                found = true;
                Ok(ControlFlow::Break(()))
            },
        )?;
        Ok(found)
    }

    fn each(
        &self,
        doing: &str,
        progress: &dyn Progress,
        see: &dyn Fn(&Seen<'_>),
        wanted: &dyn Fn(&str) -> bool,
        visit: &mut Visit<'_>,
    ) -> Result<Contents> {
        let contents = RefCell::new(Contents::default());
        let offered = |seen: &Seen<'_>| {
            let mut contents = contents.borrow_mut();
            if is_litter(seen) {
                contents.pass_over(seen);
                return false;
            }
            see(seen);
            let taken = fits(seen, wanted);
            contents.add(seen, taken);
            if seen.is_link {
                contents.add_link(seen);
            }
            taken
        };
        let mut unpack = |member: Member<'_>| {
            let mut start = Vec::new();
            let mut first = (&mut *member.content).take(POINTER_BYTES);
            first
                .read_to_end(&mut start)
                .map_err(unreadable(&member.path))?;
            if is_pointer(&start) {
                return Err(member.wrong(POINTED));
            }
            let unnamed = packed_unnamed(member.name, &start);
            let mut content = Cursor::new(start).chain(member.content);
            match unpacked_name(member.name) {
                Some(name) if wanted(name) => {
                    let packed = member.size.unwrap_or_default();
                    let unpacked = unpacked(&mut content, packed);
                    let mut content = unpacked.map_err(unreadable(&member.path))?;
                    let mut start = Vec::new();
                    let mut first = (&mut content).take(POINTER_BYTES);
                    first
                        .read_to_end(&mut start)
                        .map_err(unreadable(&member.path))?;
                    let problem = packed_unnamed(name, &start);
                    let member = Member {
                        name,
                        size: None,
                        path: member.path,
                        content: &mut Cursor::new(start).chain(content),
                    };
                    match problem {
                        Some(_) => Err(member.wrong("compressed twice: unpack it once")),
                        None => visit(member),
                    }
                }
                _ => {
                    let member = Member {
                        content: &mut content,
                        ..member
                    };
                    match unnamed {
                        Some(problem) => Err(member.wrong(problem)),
                        None => visit(member),
                    }
                }
            }
        };
        let outcome = match self {
            Raw::Folder(folder) => {
                progress.begin(doing, None);
                folder::each(folder, progress, &offered, &mut unpack)
            }
            Raw::Archive(path) => {
                let bytes = fs::metadata(path).map_err(io_error("read", path))?.len();
                progress.begin(doing, Some(bytes));
                match zip::is(path)? {
                    true => zip::each(path, bytes, progress, &offered, &mut unpack),
                    false => tar::each(path, bytes, progress, &offered, &mut unpack),
                }
            }
            Raw::Parquet(path) | Raw::Packed(path) | Raw::File(path) => Err(Error::File {
                file: path.clone(),
                problem: format!("neither a folder nor {ARCHIVES}"),
            }),
        };
        progress.finish();
        outcome.map(|()| contents.into_inner())
    }
}

/// Reads an archive to its end, and keeps nothing.
///
/// # Errors
/// The archive is damaged or incomplete, or is one that no task reads; or the system refuses to
/// read it.
pub fn check_archive(path: &Path, progress: &dyn Progress) -> Result<()> {
    let bytes = fs::metadata(path).map_err(io_error("read", path))?.len();
    progress.begin("reading the archive to its end", Some(bytes));
    let checked = match zip::is(path)? {
        true => zip::check(path, bytes, progress),
        false => tar::check(path, bytes, progress),
    };
    progress.finish();
    match checked? {
        0 => Err(Error::File {
            file: path.to_owned(),
            problem: "an archive without a file in it".to_owned(),
        }),
        _ => Ok(()),
    }
}

/// Remedy for a link in an archive.
const PACK_FILES: &str = "pack the files themselves (tar --dereference --hard-dereference, or zip \
                          without --symlinks)";

/// Name of a file, or of a symbolic link that is not followed.
pub(crate) struct Seen<'a> {
    name: &'a str,
    /// True if it is a link, which may lead to a folder.
    pub(crate) is_link: bool,
}

impl Seen<'_> {
    /// Returns the name of a file.
    fn file(name: &str) -> Seen<'_> {
        let is_link = false;
        Seen { name, is_link }
    }

    /// Returns the name of a link.
    fn link(name: &str) -> Seen<'_> {
        let is_link = true;
        Seen { name, is_link }
    }
}

impl Deref for Seen<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        self.name
    }
}

/// Function that takes a name and decides whether the file is to be read.
type Offer<'a> = dyn Fn(&Seen<'_>) -> bool + 'a;

/// Returns whether `wanted` accepts a file, as it is or once unpacked.
fn fits(name: &str, wanted: &dyn Fn(&str) -> bool) -> bool {
    wanted(name) || unpacked_name(name).is_some_and(wanted)
}

/// Returns the problem of a file with these first bytes that is packed under a name that does not
/// say so; `None` for other files.
fn packed_unnamed(name: &str, start: &[u8]) -> Option<String> {
    let (format, end) = packed_by(start)?;
    let lower = name.to_ascii_lowercase();
    let ends = |end: &&str| lower.ends_with(*end);
    if has_archive_name(name) || [".xz", ".bz2", ".7z"].iter().any(ends) {
        return None;
    }
    // Pictures and lists of Pathfinder are not read in packed form.
    let end = end.filter(|_| ![".png", ".npy"].iter().any(ends));
    let file = name.rsplit('/').next().unwrap_or(name);
    Some(match end {
        Some(end) => format!(
            "compressed by {format}, and its name does not say so: name it `{file}{end}`, or \
             unpack it"
        ),
        None => format!("compressed by {format}: unpack it"),
    })
}

/// Function that takes a member and decides whether to continue reading.
type Visit<'a> = dyn FnMut(Member<'_>) -> Result<ControlFlow<()>> + 'a;

/// One file of a folder or archive.
pub(crate) struct Member<'a> {
    /// Name relative to the folder or archive, with forward slashes.
    pub(crate) name: &'a str,
    /// Size according to the file system or the archive; `None` where the file is packed by itself.
    pub(crate) size: Option<u64>,
    /// Path for messages: the file's own, or the archive's path followed by the member's name.
    pub(crate) path: PathBuf,
    pub(crate) content: &'a mut dyn Read,
}

impl Member<'_> {
    /// Appends the whole content, at most `limit` bytes, to `buffer`. Returns the number of bytes.
    ///
    /// # Errors
    /// The content is larger, ends early, or cannot be read.
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
        if let Some(size) = self.size.filter(|size| (count as u64) < *size) {
            buffer.truncate(start);
            return Err(self.wrong(format!("ends after {count} of {}", counted(size, "byte"))));
        }
        Ok(count)
    }

    /// Returns an error about the file as a whole.
    pub(crate) fn wrong(&self, problem: impl Into<String>) -> Error {
        Error::File {
            file: self.path.clone(),
            problem: problem.into(),
        }
    }
}

/// Returns the error for a failed read. For a packed file it usually means damage, which no retry
/// repairs.
pub(crate) fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> Error {
    move |error| match disk::is_of_content(&error) {
        true => Error::File {
            file: path.to_owned(),
            problem: format!("damaged or incomplete: {}", brief(&error.to_string())),
        },
        false => io_error("read", path)(error),
    }
}

/// Returns the first 100 characters of an unpacker's message, which may quote damaged bytes, as one
/// line that is safe to print.
fn brief(words: &str) -> String {
    let shown: String = words.escape_debug().take(100).collect();
    match words.escape_debug().count() {
        0..=100 => shown,
        _ => shown + "...",
    }
}

/// Accepted forms of an archive, in words.
pub(crate) const ARCHIVES: &str = "an archive (.tar, .tar.gz, .tar.zst, .zip)";

/// File name endings of archives, in lower case.
const ENDS: [&str; 5] = [".tar", ".gz", ".tgz", ".zst", ".zip"];

/// Returns whether a file is named like an archive.
pub(crate) fn has_archive_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ENDS.iter().any(|end| name.ends_with(end))
}

/// Returns the name of a packed file once it is unpacked: `basic_train.tsv` of
/// `basic_train.tsv.gz`.
pub(crate) fn unpacked_name(name: &str) -> Option<&str> {
    let (stem, end) = name.rsplit_once('.')?;
    let packed = ["gz", "zst"]
        .iter()
        .any(|one| end.eq_ignore_ascii_case(one));
    packed.then_some(stem)
}

/// Returns the name with forward slashes and without `.` parts; `None` where it is absolute, empty,
/// or leads upwards.
fn safe_name(name: &str) -> Option<String> {
    if name.starts_with(['/', '\\']) || name.get(1..3) == Some(":\\") {
        return None;
    }
    // Some writers on Windows separate folders by backslashes.
    let parts: Vec<&str> = name
        .split(['/', '\\'])
        .filter(|part| !matches!(*part, "" | "."))
        .collect();
    (!parts.is_empty() && !parts.contains(&"..")).then(|| parts.join("/"))
}
