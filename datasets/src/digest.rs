//! SHA-256 as lower-case hexadecimal text, of bytes and of files.

use std::fmt::Write as _;
use std::io::{ErrorKind, Read};
use std::path::Path;

use sha2::{Digest as _, Sha256};

use crate::error::{Result, io};
use crate::files;

/// Running SHA-256.
#[derive(Default)]
pub struct Digest(Sha256);

impl Digest {
    /// Adds bytes to the hash.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the 64 hexadecimal digits.
    pub fn hex(self) -> String {
        hexadecimal(&self.0.finalize())
    }

    /// Returns the digest of bytes in memory.
    pub fn of(bytes: &[u8]) -> String {
        let mut digest = Digest::default();
        digest.update(bytes);
        digest.hex()
    }

    /// Returns the digest of a file, read once from end to end; `read` is called with the number of
    /// bytes of each piece.
    ///
    /// # Errors
    /// The file cannot be opened or read.
    pub fn of_file(path: &Path, mut read: impl FnMut(u64)) -> Result<String> {
        let mut file = files::open(path)?;
        let mut digest = Digest::default();
        let mut buffer = vec![0; 1 << 20];
        loop {
            match file.read(&mut buffer) {
                Ok(0) => return Ok(digest.hex()),
                Ok(count) => {
                    digest.update(&buffer[..count]);
                    read(count as u64);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(io("read", path)(error)),
            }
        }
    }
}

/// Returns two lower-case hexadecimal digits for each byte.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Returns whether an example with this hash is held out for validation: one in ten, depending only
/// on its content.
pub(crate) fn is_held_out(hash: &[u8; 32]) -> bool {
    hash[..8] < (u64::MAX / 10).to_be_bytes()[..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standard_vector() {
        // FIPS 180-2, appendix B.1.
        assert_eq!(
            Digest::of(b"abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }

    #[test]
    fn one_in_ten_is_held_out() {
        let held_out = (0..10_000_u32)
            .filter(|number| is_held_out(&Sha256::digest(number.to_le_bytes()).into()))
            .count();
        // Standard deviation 30: five of them either side.
        assert!(held_out.abs_diff(1000) < 150, "{held_out}");
    }

    /// Which examples are held out must not change: scores on them would be of other ones.
    #[test]
    fn the_first_eight_bytes_decide_what_is_held_out() {
        let hash = |first: u64, rest: u8| {
            let mut hash = [rest; 32];
            hash[..8].copy_from_slice(&first.to_be_bytes());
            hash
        };
        for rest in [0, 255] {
            assert!(is_held_out(&hash(u64::MAX / 10 - 1, rest)));
            assert!(!is_held_out(&hash(u64::MAX / 10, rest)));
        }
    }
}
