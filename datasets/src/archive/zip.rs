//! Zip archives: members by the directory at the end of the file.
//!
//! The `zip` crate finds members and hands out their packed bytes. They are unpacked here, by the
//! same decoder as other files, which counts and checks the output.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use flate2::Crc;
use flate2::read::DeflateDecoder;
use zip::read::ZipFile;
use zip::result::ZipError;
use zip::{CompressionMethod, ZipArchive};

use super::packing::{MOST_GROWTH, most_unpacked};
use super::{LONGEST_NAME, Member, Offer, PACK_FILES, Seen, Visit, safe_name, unreadable};
use crate::Progress;
use crate::error::{Error, Result};
use crate::files;
use crate::words::quoted;

/// First bytes of a zip archive, with members or without.
const BEGINNINGS: [&[u8]; 2] = [b"PK\x03\x04", b"PK\x05\x06"];

/// Returns whether these are the first bytes of a zip archive.
pub(super) fn begins(start: &[u8]) -> bool {
    BEGINNINGS.iter().any(|bytes| start.starts_with(bytes))
}

/// Passes every wanted member to `visit`, in the order of the archive's directory.
pub(super) fn each(
    path: &Path,
    bytes: u64,
    progress: &dyn Progress,
    wanted: &Offer<'_>,
    visit: &mut Visit<'_>,
) -> Result<()> {
    let wrong = |problem: String| wrong(path, problem);
    let mut archive = open(path)?;
    let mut left = most_unpacked(bytes);
    for index in 0..archive.len() {
        let member = archive.by_index_raw(index).map_err(damaged(path))?;
        if is_folder(member.name_raw()) {
            continue;
        }
        if member.name_raw().len() as u64 > LONGEST_NAME {
            return Err(wrong(format!(
                "a name of more than {LONGEST_NAME} bytes in the archive"
            )));
        }
        let given = String::from_utf8_lossy(member.name_raw()).into_owned();
        let name = safe_name(&given).ok_or_else(|| {
            wrong(format!(
                "{} would lie outside of the archive",
                quoted(&given)
            ))
        })?;
        let seen = match member.is_symlink() {
            true => Seen::link(&name),
            false => Seen::file(&name),
        };
        if !wanted(&seen) {
            continue;
        }
        if !member.is_file() {
            return Err(wrong(format!("`{given}` is a link: {PACK_FILES}")));
        }
        if member.encrypted() {
            return Err(wrong(format!("`{given}` is encrypted")));
        }
        let packed = member.compressed_size();
        let mut content = Content::of(member).map_err(|other| {
            wrong(format!(
                "`{given}` is packed by {other}; read are deflate and none"
            ))
        })?;
        let size = content.size;
        left = take(left, size, path)?;
        let place = path.join(&name);
        let next = visit(Member {
            name: &name,
            size: Some(size),
            path: place.clone(),
            content: &mut content,
        })?;
        if next.is_break() {
            return Ok(());
        }
        content.check(&place)?;
        progress.advance(packed);
    }
    Ok(())
}

/// Reads every member that can be unpacked to its end, and keeps nothing.
///
/// # Errors
/// The archive or a member is damaged.
pub(super) fn check(path: &Path, bytes: u64, progress: &dyn Progress) -> Result<u64> {
    let mut archive = open(path)?;
    let (mut left, mut count) = (most_unpacked(bytes), 0);
    for index in 0..archive.len() {
        let member = archive.by_index_raw(index).map_err(damaged(path))?;
        count += u64::from(member.is_file());
        if !member.is_file() || member.encrypted() {
            continue;
        }
        let place = path.join(String::from_utf8_lossy(member.name_raw()).as_ref());
        let packed = member.compressed_size();
        if let Ok(content) = Content::of(member) {
            left = take(left, content.size, path)?;
            content.check(&place)?;
        }
        progress.advance(packed);
    }
    Ok(count)
}

/// Opens an archive and reads its directory.
///
/// # Errors
/// The archive is damaged, has two files of one name, or follows another one in the same file.
fn open(path: &Path) -> Result<ZipArchive<BufReader<File>>> {
    let archive = ZipArchive::new(BufReader::new(files::open(path)?)).map_err(damaged(path))?;
    if archive.offset() > 0 {
        let problem = "several archives joined in one file, of which only the last could be read: \
                       unpack each, and name the folder with the files";
        return Err(wrong(path, problem.to_owned()));
    }
    // The crate keeps the last one of the members of one name.
    if archive.has_duplicate_names() {
        let start = archive.central_directory_start();
        let repeated = first_repeated(path, start).map_err(unreadable(path))?;
        if let Some(name) = repeated {
            let name = quoted(&String::from_utf8_lossy(&name));
            let problem = format!("{name} is in the archive twice: pack only the one to be read");
            return Err(wrong(path, problem));
        }
    }
    Ok(archive)
}

/// Returns the name of the first file that the directory at this place lists a second time.
fn first_repeated(path: &Path, start: u64) -> io::Result<Option<Vec<u8>>> {
    /// Number of bytes of an entry before its name.
    const FIXED: usize = 46;
    let mut directory = BufReader::new(disk::open(path)?);
    directory.seek(SeekFrom::Start(start))?;
    let mut seen = HashSet::new();
    loop {
        let mut fixed = [0; FIXED];
        directory.read_exact(&mut fixed[..4])?;
        if !fixed.starts_with(b"PK\x01\x02") {
            return Ok(None);
        }
        directory.read_exact(&mut fixed[4..])?;
        let length = |place: usize| u16::from_le_bytes([fixed[place], fixed[place + 1]]);
        let mut name = vec![0; usize::from(length(28))];
        directory.read_exact(&mut name)?;
        directory.seek_relative(i64::from(length(30)) + i64::from(length(32)))?;
        if is_folder(&name) {
            continue;
        }
        if !seen.insert(name.clone()) {
            return Ok(Some(name));
        }
    }
}

/// Returns whether a member is a folder, by its name. Writers on Windows may end it with a
/// backslash, which the crate does not recognize.
fn is_folder(name: &[u8]) -> bool {
    name.ends_with(b"/") || name.ends_with(b"\\")
}

/// Returns the bytes that may still be unpacked after a member of this size.
fn take(left: u64, size: u64, path: &Path) -> Result<u64> {
    left.checked_sub(size).ok_or_else(|| {
        let problem = format!("it unpacks to more than {MOST_GROWTH} times its size");
        wrong(path, problem)
    })
}

fn wrong(path: &Path, problem: String) -> Error {
    let file = path.to_owned();
    Error::File { file, problem }
}

fn damaged(path: &Path) -> impl Fn(ZipError) -> Error {
    move |error| match error {
        ZipError::Io(cause) => unreadable(path)(cause),
        error => wrong(path, format!("damaged or incomplete: {error}")),
    }
}

/// Unpacked content of a member, whose bytes are summed up as they are read.
struct Content<'a> {
    unpacked: io::Take<Box<dyn Read + 'a>>,
    sum: Crc,
    /// Size and checksum that the archive states.
    size: u64,
    stated: u32,
}

impl<'a> Content<'a> {
    /// Returns the content of a member.
    ///
    /// # Errors
    /// It is packed by this other method.
    fn of<R: Read>(member: ZipFile<'a, R>) -> Result<Content<'a>, CompressionMethod> {
        let (size, stated) = (member.size(), member.crc32());
        let unpacked: Box<dyn Read + 'a> = match member.compression() {
            CompressionMethod::Stored => Box::new(member),
            CompressionMethod::DEFLATE => Box::new(DeflateDecoder::new(member)),
            other => return Err(other),
        };
        Ok(Content {
            // One byte more than stated shows that there are too many.
            unpacked: unpacked.take(size.saturating_add(1)),
            sum: Crc::new(),
            size,
            stated,
        })
    }

    /// Reads the rest, and checks the size and the checksum of the whole.
    fn check(mut self, place: &Path) -> Result<()> {
        io::copy(&mut self, &mut io::sink()).map_err(unreadable(place))?;
        let is_whole = u64::from(self.sum.amount()) == self.size & 0xffff_ffff;
        match is_whole && self.sum.sum() == self.stated {
            true => Ok(()),
            false => {
                let problem = "damaged or incomplete: its size or its checksum is another one";
                Err(wrong(place, problem.to_owned()))
            }
        }
    }
}

impl Read for Content<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.unpacked.read(buffer)?;
        self.sum.update(&buffer[..count]);
        Ok(count)
    }
}

/// Returns whether the file is a zip archive.
pub(super) fn is(path: &Path) -> Result<bool> {
    let mut start = Vec::new();
    let mut bounded = files::open(path)?.take(4);
    bounded.read_to_end(&mut start).map_err(unreadable(path))?;
    Ok(begins(&start))
}
