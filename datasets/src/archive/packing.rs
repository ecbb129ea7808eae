//! Packed files, read from front to back, with a bound on what they may unpack to.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::read::MultiGzDecoder;

/// An archive may unpack to this many times its size (text packs to a fifth or so, deflate can reach a thousandth)...
pub(super) const MOST_GROWTH: u64 = 200;

/// ... and to this many bytes in any case: small archives may well hold a long run of equal bytes.
const FREE_GROWTH: u64 = 64 << 20;

/// Most bytes that an archive of this size may unpack to.
pub(super) fn most_unpacked(bytes: u64) -> u64 {
    bytes.saturating_mul(MOST_GROWTH).max(FREE_GROWTH)
}

/// How a file is packed.
pub(super) enum Packing {
    None,
    Gzip,
    Zstd,
}

impl Packing {
    /// Judged by its first bytes.
    pub(super) fn of(start: &[u8]) -> Packing {
        match start {
            [0x1f, 0x8b, ..] => Packing::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd, ..] => Packing::Zstd,
            _ => Packing::None,
        }
    }
}

/// What a file holds when unpacked, with a bound on how much that may be. `consumed` counts the file's own bytes.
pub(super) fn unpacked(
    mut file: File,
    bytes: u64,
    consumed: Arc<AtomicU64>,
) -> io::Result<Box<dyn Read>> {
    let mut start = [0; 4];
    let count = file.read(&mut start)?;
    file.rewind()?;
    let counted = BufReader::with_capacity(1 << 18, Counted { file, consumed });
    let unpacked: Box<dyn Read> = match Packing::of(&start[..count]) {
        Packing::Gzip => Box::new(MultiGzDecoder::new(counted)),
        // Refuses by itself windows of more than 128 MiB.
        Packing::Zstd => Box::new(zstd::Decoder::with_buffer(counted)?),
        Packing::None => return Ok(Box::new(counted)),
    };
    let left = most_unpacked(bytes);
    // Tar reads headers of 512 bytes.
    let bounded = Bounded { unpacked, left };
    Ok(Box::new(BufReader::with_capacity(1 << 16, bounded)))
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

struct Bounded {
    unpacked: Box<dyn Read>,
    left: u64,
}

impl Read for Bounded {
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
