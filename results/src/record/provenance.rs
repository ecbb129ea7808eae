//! Origin of figures: the command, the settings, the machine, the programs, the source code.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Origin of the figures of a run, or of a cell of the benchmark. On disk its fields are flattened
/// into the object that contains it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Provenance {
    /// Time at which the figures were stored, RFC 3339 in UTC.
    pub created: String,
    /// The command line of the run.
    pub command: String,
    /// Digest of the frozen spec.
    pub spec_digest: String,
    /// Number format of the training arithmetic, such as `f32`.
    pub precision: String,
    /// Device of the tensors, such as `cpu` or `cuda:0 NVIDIA H100`.
    pub device: String,
    /// CPU threads that the process was allowed to use.
    pub threads: usize,
    /// Number of simultaneous runs of the same sweep; 1 for a single run. Absent if unknown,
    /// [`SEVERAL`] if it was resumed among more or fewer runs or with another number of threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jobs: Option<usize>,
    /// The machine.
    pub host: Host,
    /// The programs.
    pub versions: Versions,
    /// The source code's commit, if known.
    pub revision: Option<Revision>,
    /// Differences from the start of the run that were accepted when it was resumed: data, program,
    /// instructions, a sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub accepted_changes: Vec<String>,
}

/// Value of [`Provenance::jobs`] for a run whose parts ran among other numbers of runs.
pub const SEVERAL: usize = 0;

impl Provenance {
    /// Returns the name of the accelerator where `device` does not include it; empty otherwise.
    #[must_use]
    pub fn accelerator(&self) -> &str {
        match self.device.contains(&self.host.device) {
            true => "",
            false => &self.host.device,
        }
    }
}

/// The machine a run took place on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Host {
    /// Name of the processor.
    pub cpu: String,
    /// The vector instructions that kernels ran on, such as `AVX-512 and AMX`, `AVX2` or
    /// `portable (aarch64)`. They determine the rounding of sums, so only runs on the same ones
    /// agree bit for bit. Empty if unknown.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub instructions: String,
    /// Logical cores.
    pub cores: usize,
    /// Memory available to the run: that of the machine, or less by the limits of its container or
    /// `ulimit`.
    pub memory_bytes: u64,
    /// Operating system and its version.
    pub os: String,
    /// Name of the accelerator, empty on CPU.
    pub device: String,
    /// Version of its driver, empty on CPU.
    pub driver: String,
}

/// Versions of the programs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Versions {
    /// This harness.
    pub lra: String,
    /// The tensor library.
    pub candle: String,
    /// The compiler.
    pub rustc: String,
    /// SHA-256 over the source files of this harness; empty if unknown.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub sources: String,
}

/// State of the source code.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Revision {
    /// Git commit.
    pub commit: String,
    /// True if files differed from the commit.
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
