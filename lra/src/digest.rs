//! SHA-256 as text.

use sha2::{Digest, Sha256};

/// Returns the SHA-256 of `bytes` as 64 lower-case hexadecimal digits.
pub fn sha256(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

/// SHA-256 of bytes that come in parts.
#[derive(Clone, Default)]
pub struct Running(Sha256);

impl Running {
    /// Adds bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// Returns the digest of all bytes so far, as [`sha256`] does.
    pub fn sha256(&self) -> String {
        hexadecimal(&self.0.clone().finalize())
    }
}

fn hexadecimal(sum: &[u8]) -> String {
    sum.iter().map(|byte| format!("{byte:02x}")).collect()
}
