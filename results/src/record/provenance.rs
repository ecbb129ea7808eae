//! Where figures come from: the machine, the programs, the source code.

use serde::{Deserialize, Serialize};

/// The machine a run took place on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Host {
    /// Name of the processor.
    pub cpu: String,
    /// The vector instructions that kernels ran on, such as `AVX-512`, `AVX2` or `portable (aarch64)`. They decide how sums are
    /// rounded: only runs on the same ones agree bit for bit. Empty where it is not known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub instructions: String,
    /// Logical cores.
    pub cores: usize,
    /// Memory that the run might use: the machine's, or what its container or `ulimit` left of it.
    pub memory_bytes: u64,
    /// Operating system and its version.
    pub os: String,
    /// Name of the accelerator, empty on CPU.
    pub device: String,
    /// Version of its driver, empty on CPU.
    pub driver: String,
}

/// Versions of the programs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Versions {
    /// This harness.
    pub lra: String,
    /// The tensor library.
    pub candle: String,
    /// The compiler.
    pub rustc: String,
}

/// State of the source code.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Revision {
    /// Git commit.
    pub commit: String,
    /// Whether files differed from it.
    pub dirty: bool,
}
