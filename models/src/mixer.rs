//! The seam: what a mixer is.

use candle_core::Tensor;

use crate::{Pass, Result, loss::Loss, supports::Supports};

/// Lets the positions of a sequence exchange information: (B, L, D) -> (B, L, D).
///
/// The block around it adds normalisation, residual and residual dropout.
pub trait Mixer: Send + Sync {
    /// Mixes `x` (B, L, D). Padded positions must not influence real ones, unless the model is listed as not masking;
    /// what comes out of them is anything finite.
    ///
    /// # Errors
    /// If a tensor operation fails, or the length is not one that this mixer can take.
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor>;

    /// Which of the axes about queries, keys and scores it computes; what it cannot is refused where it is asked for.
    fn supports(&self) -> Supports {
        Supports::none("no form of this mixer is defined with it")
    }

    /// Whether it understands packed sequences ([`Pass::packing`]) as well as padded ones.
    fn supports_varlen(&self) -> bool {
        false
    }

    /// What this mixer is told that the benchmark's rules forbid, in words; none where it keeps to them. Scores then stand beside no others.
    fn rule_violation(&self) -> Option<&'static str> {
        None
    }

    /// Whether what comes out at a position depends on nothing behind it.
    fn is_causal(&self) -> bool {
        false
    }

    /// Names the values that this mixer holds constant in the backward pass on purpose, in words;
    /// none where gradients are those of what it computes.
    fn stops_gradients(&self) -> Option<&'static str> {
        None
    }

    /// The losses that it adds to the cross-entropy, of those that its variant declares ([`crate::Variant::losses`]).
    fn losses(&self) -> &'static [Loss] {
        &[]
    }

    /// Floating-point operations of a forward pass over one sequence of `length`: matrix products, a multiply-add being two.
    fn flops(&self, length: usize) -> u64;
}
