//! Origin of initial weights.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Another run whose weights a run started from (`lra run --from`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct StartedFrom {
    /// Id of that run.
    pub run: String,
    /// SHA-256 over its weights, by which runs are told apart.
    pub weights: String,
    /// Number of tensors that were taken.
    pub taken: u64,
    /// The tensors that started from random values, each with the reason in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fresh: Vec<String>,
    /// The other differences from that run, in words: the build, the model's source, settings of
    /// the model that change what the same weights compute.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub differing: Vec<String>,
    /// Names of tensors of that run that the model has no place for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unused: Vec<String>,
}

impl StartedFrom {
    /// Key of the override by which tables tell such runs from those that started from random
    /// weights.
    pub const KEY: &str = "from";

    /// Returns the override: [`StartedFrom::KEY`] and the first digits of the digest.
    #[must_use]
    pub fn assignment(weights: &str) -> String {
        format!("{}={}", Self::KEY, weights.get(..12).unwrap_or(weights))
    }
}
