//! Linear attention. Katharopoulos et al., 2020, "Transformers are RNNs", arXiv:2006.16236.
//!     y_i = φ(q_i) S / (φ(q_i)·z),  S = Σ_j φ(k_j) v_jᵀ,  z = Σ_j φ(k_j),  φ(x) = elu(x) + 1
//! B batch, H heads, L length, E width of a head; q, k, v (B, H, L, E), S (B, H, E, E), z (B, H,
//! E). Time O(L·E²) per head, memory O(L·E + E²). As in the 2021 code, there is no dropout on
//! weights (there are none), no scaling of queries and no bias.
//!
//! # Options
//!
//! None.
//!
//! # Padding
//!
//! Padded keys are left out of both sums.
//!
//! # Departures
//!
//! Not here: the causal form, since the benchmark classifies whole sequences. Initial values and
//! the norms' ε are those of the benchmark's 2021 code: weights begin Xavier-uniform, biases of the
//! feed-forward network N(0, 1e-6²), and ε is `block.norm_epsilon` = 1e-6. In the authors' code
//! weights begin uniform within inputs^-½, biases, of projections too, likewise, and ε is 1e-5
//! (torch.nn.LayerNorm; idiap/fast-transformers@2ad36b9
//! fast_transformers/attention/attention_layer.py:54-57, fast_transformers/transformers.py:47-50).
//! 1e-6 is added to the denominator φ(q_i)·z there and here
//! (fast_transformers/attention/linear_attention.py:75).

use crate::{
    mixers::tay2021,
    ops::linear_attention::{self, FeatureMap},
    prelude::*,
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
    family: Family::Xformer,
    variants: &[
        Variant::mixer::<Linear>(include_str!("linear.rs")),
        tay2021::linear::VARIANT,
    ],
    ..Model::mixer::<Linear>()
};

pub(super) struct Linear {
    projections: Projections,
    masks: bool,
    heads: usize,
    width: usize,
}

impl MixerModel for Linear {
    type Options = NoOptions;

    fn new(layer: &LayerContext, _: &NoOptions) -> Result<Self> {
        Ok(Self {
            projections: Projections::new(layer)?,
            masks: true,
            heads: layer.block.heads,
            width: layer.block.head_dim(),
        })
    }
}

impl Linear {
    /// Returns this mixer with padding summed up like any token.
    pub(super) fn without_mask(self) -> Self {
        Self {
            masks: false,
            ..self
        }
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
