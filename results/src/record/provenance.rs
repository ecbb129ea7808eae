//! Origin of figures: the command, the settings, the machine, the programs, the source code.

use serde::{Deserialize, Serialize};

/// Origin of the figures of a run, or of a cell of the benchmark. On disk its fields stand among
/// those of the object it is part of.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Provenance {
    /// Time at which the figures were written down, RFC 3339 in UTC.
    pub created: String,
    /// The command line that asked for them.
    pub command: String,
    /// Digest of the frozen spec that was followed.
    pub spec_digest: String,
    /// Number format of the training arithmetic, such as `f32`.
    pub precision: String,
    /// Device of the tensors, such as `cpu` or `cuda:0 NVIDIA H100`.
    pub device: String,
    /// CPU threads that the process was allowed.
    pub threads: usize,
    /// Runs of the same sweep that shared the machine at a time; 1 for a run by itself. Absent
    /// where it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jobs: Option<usize>,
    /// The machine.
    pub host: Host,
    /// The programs.
    pub versions: Versions,
    /// The source code's commit, where it is known.
    pub revision: Option<Revision>,
    /// Differences from the start of the run that were accepted when it was resumed: data, program,
    /// instructions, a sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub accepted_changes: Vec<String>,
}

/// The machine a run took place on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Host {
    /// Name of the processor.
    pub cpu: String,
    /// The vector instructions that kernels ran on, such as `AVX-512 and AMX`, `AVX2` or `portable
    /// (aarch64)`. They decide how sums are rounded: only runs on the same ones agree bit for bit.
    /// Empty where it is not known.
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
    /// SHA-256 over the source files that this harness was built from; empty where it is not known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub sources: String,
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

impl Revision {
    /// Returns the first digits of the commit, and whether files differed from it.
    pub fn words(&self) -> String {
        let dirty = if self.dirty { ", modified" } else { "" };
        let commit = self.commit.get(..12).unwrap_or(&self.commit);
        format!("{commit}{dirty}")
    }
}
