//! The seam: the trait of all mixers.

use candle_core::Tensor;

use crate::{Pass, Result, loss::Loss, supports::Supports};

/// Lets the positions of a sequence exchange information: (B, L, D) -> (B, L, D).
///
/// The block around it adds normalisation, residual and residual dropout.
pub trait Mixer: Send + Sync {
    /// Mixes `x` (B, L, D). Padded positions must not influence valid ones, unless the model is
    /// listed as not masking; outputs at padded positions are any finite numbers.
    ///
    /// # Errors
    /// If a tensor operation fails, or the length is not one that this mixer can take.
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor>;

    /// Returns the axes about queries, keys and scores that it computes; any other is refused when
    /// it is asked for.
    fn supports(&self) -> Supports {
        Supports::none("no form of this mixer is defined with it")
    }

    /// Returns whether it understands packed sequences ([`Pass::packing`]) as well as padded ones.
    fn supports_varlen(&self) -> bool {
        false
    }

    /// Returns the option of this mixer that violates the benchmark's rules, in words, if there is
    /// one. Its scores are then not comparable with others.
    fn rule_violation(&self) -> Option<&'static str> {
        None
    }

    /// Returns whether the output at a position depends on no later position.
    fn is_causal(&self) -> bool {
        false
    }

    /// Names the values that this mixer holds constant in the backward pass on purpose, in words;
    /// none if its gradients are exact.
    fn stops_gradients(&self) -> Option<&'static str> {
        None
    }

    /// Returns the losses that it adds to the cross-entropy, of those that its variant declares
    /// ([`crate::Variant::losses`]).
    fn losses(&self) -> &'static [Loss] {
        &[]
    }

    /// Counts the floating-point operations of a forward pass over one sequence of `length`: matrix
    /// products, a multiply-add being two.
    fn flops(&self, length: usize) -> u64;
}
