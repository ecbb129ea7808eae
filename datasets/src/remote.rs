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

/// The name of the archive that ListOps, Retrieval and Pathfinder were published in.
pub(crate) const LRA_RELEASE: &str = "lra_release.gz";

/// Where that archive was.
pub(crate) static RELEASE: [Remote; 1] = [Remote {
    url: "https://storage.googleapis.com/long-range-arena/lra_release.gz",
    file: LRA_RELEASE,
    bytes: None,
    sha256: None,
    note: "about 8 GB, holds ListOps, Retrieval and Pathfinder; reported gone since 2026",
}];
