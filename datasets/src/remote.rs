//! Where published files can be had. Data only: this crate has no network.

use serde::Serialize;

/// One published file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Remote {
    /// Its address.
    pub url: &'static str,
    /// The name under which `<data>/raw/<task>/` keeps it.
    pub file: &'static str,
    /// Its size, where published.
    pub bytes: Option<u64>,
    /// Its SHA-256 in lower-case hexadecimal, where published.
    pub sha256: Option<&'static str>,
    /// What a person should know before waiting for it; may be empty.
    pub note: &'static str,
}
