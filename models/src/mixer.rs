//! The seam: what a mixer is, and what it is told about the forward pass it runs in.

use candle_core::{D, Tensor};

use crate::{Result, draws::Draws, parity::Given};

/// Lets the positions of a sequence exchange information: (B, L, D) -> (B, L, D).
///
/// The block around it adds normalisation, residual and residual dropout.
pub trait Mixer: Send + Sync {
    /// Mixes `x` (B, L, D). Padded positions must not influence real ones, unless the model is listed as not masking;
    /// what comes out of them is anything finite.
    ///
    /// # Errors
    /// If a tensor operation fails, or the length is not one that this mixer can take.
    fn forward(&self, x: &Tensor, context: &Context) -> Result<Tensor>;

    /// Floating-point operations of a forward pass over one sequence of `length`: matrix products, a multiply-add being two.
    fn flops(&self, length: usize) -> u64;
}

/// What a forward pass is told beside its input.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// Whether dropout and other training noise apply.
    pub train: bool,
    /// Where the pass stands, for everything random. Evaluation passes the seed and the step of the weights it scores,
    /// so that random features are those of training.
    pub draws: Draws,
    mask: Option<&'a Mask>,
    given: Option<&'a Given>,
}

impl Context<'static> {
    /// A context without mask; [`crate::Classifier`] adds each tower's.
    #[must_use]
    pub fn new(train: bool, draws: Draws) -> Self {
        Self {
            train,
            draws,
            mask: None,
            given: None,
        }
    }
}

impl<'a> Context<'a> {
    /// The mask of the sequences at hand; none where every position is real.
    #[must_use]
    pub fn mask(&self) -> Option<&'a Mask> {
        self.mask
    }

    /// The same pass over sequences with another mask.
    #[must_use]
    pub fn with_mask<'b>(&self, mask: Option<&'b Mask>) -> Context<'b>
    where
        'a: 'b,
    {
        Context { mask, ..*self }
    }

    /// The same pass with random tensors from elsewhere, which mixers use in place of their own draws.
    #[must_use]
    pub fn with_given<'b>(&self, given: &'b Given) -> Context<'b>
    where
        'a: 'b,
    {
        Context {
            given: Some(given),
            ..*self
        }
    }

    /// The random tensor called `name`, if this pass was given one.
    #[must_use]
    pub fn given(&self, name: &str) -> Option<&'a Tensor> {
        self.given.and_then(|given| given.get(name))
    }

    /// The same pass with other draws (see [`Draws::branch`]).
    #[must_use]
    pub fn with_draws(&self, draws: Draws) -> Self {
        Self { draws, ..*self }
    }
}

/// Which positions are real, in the forms that layers need. All of them are constants of B x L numbers or fewer.
#[derive(Clone)]
pub struct Mask {
    real: Tensor,
    additive: Tensor,
    any: Tensor,
}

/// Added to scores of padded keys: far below any score, far above the end of f32's range.
pub(crate) const PADDED: f64 = 1e9;

impl Mask {
    /// From (B, L) with 1 for real and 0 for padding, of the type of the activations.
    ///
    /// # Errors
    /// If a tensor operation fails.
    pub fn new(real: &Tensor) -> Result<Self> {
        let real = real.detach();
        let additive = real.affine(PADDED, -PADDED)?;
        let any = real.max_keepdim(D::Minus1)?;
        Ok(Self {
            real,
            additive,
            any,
        })
    }

    /// (B, L): 1 for real, 0 for padding.
    #[must_use]
    pub fn real(&self) -> &Tensor {
        &self.real
    }

    /// (B, L): 0 for real, a large negative number for padding.
    #[must_use]
    pub fn additive(&self) -> &Tensor {
        &self.additive
    }

    /// (B, 1): 1 where the sequence has a real token at all.
    #[must_use]
    pub fn any(&self) -> &Tensor {
        &self.any
    }
}
