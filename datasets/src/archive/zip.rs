//! Zip archives: members by the directory at the end of the file.
//!
//! The `zip` crate finds members and hands out their packed bytes. They are unpacked here, by the
//! same decoder as other files, which counts and checks the output.

use std::io::{self, BufReader, Read};
use std::path::Path;

use flate2::Crc;
use flate2::read::DeflateDecoder;
use zip::result::ZipError;
use zip::{CompressionMethod, ZipArchive};

use super::packing::{MOST_GROWTH, most_unpacked};
use super::{LONGEST_NAME, Member, Visit, safe_name, unreadable};
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
    wanted: &dyn Fn(&str) -> bool,
    visit: &mut Visit<'_>,
) -> Result<()> {
    let wrong = |problem: String| Error::File {
        file: path.to_owned(),
        problem,
    };
    let damaged = |error: ZipError| match error {
        ZipError::Io(cause) => unreadable(path)(cause),
        error => wrong(format!("damaged or incomplete: {error}")),
    };
    let mut archive = ZipArchive::new(BufReader::new(files::open(path)?)).map_err(damaged)?;
    let mut left = most_unpacked(bytes);
    for index in 0..archive.len() {
        let member = archive.by_index_raw(index).map_err(damaged)?;
        // Writers on Windows may end a folder's name with a backslash, which the crate does not
        // recognize.
        if member.is_dir() || member.name_raw().ends_with(b"\\") {
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
        if !wanted(&name) {
            continue;
        }
        if !member.is_file() {
            return Err(wrong(format!("`{given}` is a link: pack the file itself")));
        }
        if member.encrypted() {
            return Err(wrong(format!("`{given}` is encrypted")));
        }
        let (size, packed, sum) = (member.size(), member.compressed_size(), member.crc32());
        left = left.checked_sub(size).ok_or_else(|| {
            wrong(format!(
                "it unpacks to more than {MOST_GROWTH} times its size"
            ))
        })?;
        let place = path.join(&name);
        let unpacked: Box<dyn Read + '_> = match member.compression() {
            CompressionMethod::Stored => Box::new(member),
            CompressionMethod::DEFLATE => Box::new(DeflateDecoder::new(member)),
            other => {
                let problem = format!("`{given}` is packed by {other}; read are deflate and none");
                return Err(wrong(problem));
            }
        };
        let mut content = Summed {
            // One byte more than stated shows that there are too many.
            unpacked: unpacked.take(size + 1),
            sum: Crc::new(),
        };
        let next = visit(Member {
            name: &name,
            size: Some(size),
            path: place.clone(),
            content: &mut content,
        })?;
        if next.is_break() {
            return Ok(());
        }
        io::copy(&mut content, &mut io::sink()).map_err(unreadable(&place))?;
        if u64::from(content.sum.amount()) != size & 0xffff_ffff || content.sum.sum() != sum {
            let file = place;
            let problem = "damaged or incomplete: its size or its checksum is another one";
            let problem = problem.to_owned();
            return Err(Error::File { file, problem });
        }
        progress.advance(packed);
    }
    Ok(())
}

/// Reader that sums up the bytes read.
struct Summed<'a> {
    unpacked: io::Take<Box<dyn Read + 'a>>,
    sum: Crc,
}

impl Read for Summed<'_> {
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
