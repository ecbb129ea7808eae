//! Linear attention. Katharopoulos et al., 2020, "Transformers are RNNs", arXiv:2006.16236.
//!     y_i = φ(q_i) S / (φ(q_i)·z),  S = Σ_j φ(k_j) v_jᵀ,  z = Σ_j φ(k_j),  φ(x) = elu(x) + 1
//! B batch, H heads, L length, E width of a head; q, k, v (B, H, L, E), S (B, H, E, E), z (B, H, E).
//! Time O(L·E²) per head, memory O(L·E + E²).
//! Padded keys are left out of both sums. As in the 2021 code, no dropout on weights (there are none),
//! no scaling of queries and no biases. Not here: the causal form; the benchmark classifies whole sequences.

use candle_core::Tensor;
use lra_derive::Options;
use serde::{Deserialize, Serialize};

use crate::{
    Encoder, Mixer, Pass, Result,
    context::{LayerContext, ModelContext},
    encoder,
    layers::{Projections, Supports},
    mixers::tay2021,
    model::{Cost, Model, Reference, Variant},
    ops::linear_attention::{self, FeatureMap},
    options::{OptionSet, to_json},
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "linear",
    title: "Linear Transformer",
    paper: "Transformers are RNNs: Fast Autoregressive Transformers with Linear Attention",
    year: 2020,
    arxiv: "2006.16236",
    time: Cost::Linear("O(L·E²)"),
    memory: Cost::Linear("O(L·E + E²)"),
    reference: Reference::Package,
    family: crate::Family::Xformer,
    settings: "",
    variants: &[
        Variant::paper(build, include_str!("linear.rs")),
        tay2021::linear::VARIANT,
    ],
    options: || to_json(&Options::default()),
    ranges: Options::RANGES,
};

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Options {}

fn build(context: &ModelContext) -> Result<Box<dyn Encoder>> {
    let Options {} = context.options()?;
    encoder::blocks(context, |at| Ok(Box::new(Linear::new(at, true)?)))
}

pub(super) struct Linear {
    projections: Projections,
    masks: bool,
    heads: usize,
    width: usize,
}

impl Linear {
    /// Builds the mixer; `masks` says whether padding is left out.
    pub(super) fn new(at: &LayerContext, masks: bool) -> Result<Self> {
        Ok(Self {
            projections: Projections::new(at)?,
            masks,
            heads: at.block.heads,
            width: at.block.head_dim(),
        })
    }
}

impl Mixer for Linear {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let mask = pass.mask().filter(|_| self.masks);
        let map = FeatureMap::EluPlusOne;
        let y = self.projections.attend_by_features(x, map, GUARD, mask)?;
        self.projections.merge(&y)
    }

    fn supports(&self) -> Supports {
        Supports::BY_FEATURES
    }

    fn flops(&self, length: usize) -> u64 {
        self.projections.flops(length)
            + linear_attention::flops(length, self.heads, self.width, self.width)
            + linear_attention::flops_of_keys(
                self.projections.score_mods().slots(),
                self.heads,
                self.width,
                self.width,
            )
    }
}

/// ε of the authors' and of the 2021 code.
const GUARD: f64 = 1e-6;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{reference, testing::meets_reference};

    #[test]
    fn is_attention_with_the_kernel_of_its_features() {
        meets_reference("linear", 1e-5, reference::elu_plus_one, |q, k, v, mask| {
            linear_attention::attend(q, k, v, FeatureMap::EluPlusOne, GUARD, mask)
        });
    }
}
