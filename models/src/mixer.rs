//! The trait of all mixers, through which positions exchange information.

use candle_core::Tensor;

use crate::{Pass, Result, loss::Loss, supports::Supports};

/// Layer that lets the positions of a sequence exchange information: (B, L, D) -> (B, L, D).
///
/// The block around it adds norm, residual connection and dropout.
pub trait Mixer: Send + Sync {
    /// Maps x (B, L, D) to (B, L, D). Padded positions must not influence valid ones, unless the
    /// variant does not mask them ([`crate::Variant::masks_padding`]). Outputs at padded positions
    /// may be any finite numbers.
    ///
    /// # Errors
    /// If a tensor operation fails, or the length is not one that this mixer can take.
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor>;

    /// Returns the options for queries, keys and scores that this mixer supports. Any other is
    /// refused when it is asked for.
    fn supports(&self) -> Supports {
        Supports::none("no form of this mixer is defined with it")
    }

    /// Returns whether this mixer takes packed sequences ([`Pass::packing`]) as well as padded
    /// ones.
    fn supports_varlen(&self) -> bool {
        false
    }

    /// Returns a description of the option of this mixer that violates the benchmark's rules.
    /// `None` if it keeps them. Scores of a mixer that violates them cannot be compared with
    /// others.
    fn rule_violation(&self) -> Option<&'static str> {
        None
    }

    /// Returns whether the output at a position depends on no later position.
    fn is_causal(&self) -> bool {
        false
    }

    /// Returns a description of the values that this mixer holds constant in the backward pass on
    /// purpose. `None` if its gradients are exact.
    fn stops_gradients(&self) -> Option<&'static str> {
        None
    }

    /// Returns the losses that this mixer, with its options, adds to the cross-entropy. They are
    /// among those that its variant declares ([`crate::Variant::losses`]).
    fn losses(&self) -> &'static [Loss] {
        &[]
    }

    /// Counts the floating-point operations of a forward pass over one sequence of `length`
    /// positions. Matrix products are counted, and a multiply-add is two operations.
    fn flops(&self, length: usize) -> u64;
}
