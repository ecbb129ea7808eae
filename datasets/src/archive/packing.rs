//! Packed files, read from front to back, with a bound on their unpacked size.

use std::fs::File;
use std::io::{self, BufReader, Cursor, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::read::MultiGzDecoder;

/// Maximum ratio of unpacked to packed size (text packs to a fifth or so, deflate can reach a
/// thousandth).
pub(super) const MOST_GROWTH: u64 = 200;

/// Unpacked size that is always allowed: a small archive may well hold a long run of equal bytes.
const FREE_GROWTH: u64 = 64 << 20;

/// Returns the maximum unpacked size of an archive of this size.
pub(super) fn most_unpacked(bytes: u64) -> u64 {
    bytes.saturating_mul(MOST_GROWTH).max(FREE_GROWTH)
}

/// Compression format of a file.
pub(super) enum Packing {
    None,
    Gzip,
    Zstd,
}

impl Packing {
    /// Detects the format from a file's first bytes.
    pub(super) fn of(start: &[u8]) -> Packing {
        match start {
            [0x1f, 0x8b, ..] => Packing::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Packing::Zstd,
            _ => Packing::None,
        }
    }
}

/// Returns the name of the format in which a file with these first bytes is packed, and the ending
/// of its name where the format is read.
pub(crate) fn packed_by(start: &[u8]) -> Option<(&'static str, Option<&'static str>)> {
    const UNREAD: [(&[u8], &str); 3] = [
        (b"\xfd7zXZ\0", "xz"),
        (b"7z\xbc\xaf\x27\x1c", "7z"),
        (b"PK\x03\x04", "zip"),
    ];
    // A text may well begin with the letters alone.
    let is_bzip2 = start.starts_with(b"BZh") && start.get(4..10) == Some(b"1AY&SY");
    let unread = UNREAD.iter().find(|(bytes, _)| start.starts_with(bytes));
    match Packing::of(start) {
        // The third byte says how it is packed: always by deflate.
        Packing::Gzip if start.get(2) == Some(&8) => Some(("gzip", Some(".gz"))),
        Packing::Zstd => Some(("zstd", Some(".zst"))),
        _ if is_bzip2 => Some(("bzip2", None)),
        _ => unread.map(|(_, name)| (*name, None)),
    }
}

/// Returns the unpacked content of `bytes` packed bytes, with a bound on its size.
pub(crate) fn unpacked<'a>(
    mut input: impl Read + 'a,
    bytes: u64,
) -> io::Result<Box<dyn Read + 'a>> {
    let mut start = Vec::new();
    (&mut input).take(4).read_to_end(&mut start)?;
    let packing = Packing::of(&start);
    let input = BufReader::with_capacity(1 << 18, Cursor::new(start).chain(input));
    let unpacked: Box<dyn Read + 'a> = match packing {
        Packing::Gzip => Box::new(MultiGzDecoder::new(input)),
        // The decoder itself refuses windows of more than 128 MiB.
        Packing::Zstd => Box::new(zstd::Decoder::with_buffer(input)?),
        Packing::None => return Ok(Box::new(input)),
    };
    let left = most_unpacked(bytes);
    // Tar reads headers of 512 bytes.
    let bounded = Bounded { unpacked, left };
    Ok(Box::new(BufReader::with_capacity(1 << 16, bounded)))
}

/// Returns the first unpacked bytes of a file that begins with `start` and goes on with `rest`,
/// enough for a tar header; `None` where it is not packed, or is empty or damaged.
pub(super) fn beginning(start: &[u8], rest: impl Read) -> Option<Vec<u8>> {
    if let Packing::None = Packing::of(start) {
        return None;
    }
    let mut plain = Vec::new();
    let read =
        unpacked(start.chain(rest), 0).and_then(|input| input.take(512).read_to_end(&mut plain));
    read.ok().filter(|count| *count > 0).map(|_| plain)
}

/// Wraps a file so that its bytes are counted as they are read.
pub(super) fn counted(file: File, consumed: Arc<AtomicU64>) -> impl Read {
    Counted { file, consumed }
}

struct Counted {
    file: File,
    consumed: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.consumed.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

struct Bounded<'a> {
    unpacked: Box<dyn Read + 'a>,
    left: u64,
}

impl Read for Bounded<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.unpacked.read(buffer)?;
        self.left = self.left.checked_sub(count as u64).ok_or_else(|| {
            io::Error::other(format!(
                "it unpacks to more than {MOST_GROWTH} times its size"
            ))
        })?;
        Ok(count)
    }
}
