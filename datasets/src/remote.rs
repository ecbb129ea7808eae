//! Addresses of published files. Data only: this crate has no network.

use serde::Serialize;

/// Address of one published file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Remote {
    /// URL of the file.
    pub url: &'static str,
    /// Name of the file under `<data>/raw/<task>/`.
    pub file: &'static str,
    /// Size in bytes, where published.
    pub bytes: Option<u64>,
    /// SHA-256 in lower-case hexadecimal, where published.
    pub sha256: Option<&'static str>,
    /// Remark for the user before a download; may be empty.
    pub note: &'static str,
}

/// Name of the archive in which ListOps, Retrieval and Pathfinder were published.
pub(crate) const LRA_RELEASE: &str = "lra_release.gz";

/// Former address of that archive.
pub(crate) static RELEASE: [Remote; 1] = [Remote {
    url: "https://storage.googleapis.com/long-range-arena/lra_release.gz",
    file: LRA_RELEASE,
    bytes: None,
    sha256: None,
    note: "about 8 GB, holds ListOps, Retrieval and Pathfinder; reported gone since 2026",
}];
