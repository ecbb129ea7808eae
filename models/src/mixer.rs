//! The seam: what a mixer is, and what it is told about the forward pass it runs in.

use std::sync::{Mutex, PoisonError};

use candle_core::{D, Tensor};

use crate::{
    Result,
    draws::{Draws, FixedDraws},
    loss::AuxLosses,
    params::Updates,
};

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
    fixed: Option<&'a FixedDraws>,
    losses: Option<&'a AuxLosses>,
    /// What a loss of this pass counts beside those of the example's other towers.
    loss_share: f64,
    updates: Option<&'a Updates>,
    carried: Option<&'a Carried>,
}

impl Context<'static> {
    /// A context without mask; [`crate::Classifier`] adds each tower's.
    #[must_use]
    pub fn new(train: bool, draws: Draws) -> Self {
        Self {
            train,
            draws,
            mask: None,
            fixed: None,
            losses: None,
            loss_share: 1.0,
            updates: None,
            carried: None,
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

    /// The same pass with these random tensors where mixers ask for them by name, in place of their own draws.
    #[must_use]
    pub fn with_fixed_draws<'b>(&self, fixed: &'b FixedDraws) -> Context<'b>
    where
        'a: 'b,
    {
        Context {
            fixed: Some(fixed),
            ..*self
        }
    }

    /// The random tensor called `name`, if it is fixed in this pass.
    #[must_use]
    pub fn fixed(&self, name: &str) -> Option<&'a Tensor> {
        self.fixed.and_then(|fixed| fixed.get(name))
    }

    /// The same pass with somebody who wants its losses.
    #[must_use]
    pub fn with_losses<'b>(&self, losses: &'b AuxLosses) -> Context<'b>
    where
        'a: 'b,
    {
        Context {
            losses: Some(losses),
            ..*self
        }
    }

    /// Adds a loss beside the cross-entropy: `per_row` (B), one number per sequence, of a name that the model declares. What
    /// layers add under one name is summed, and averaged over the rows of the batch; so it may depend on nothing but the row.
    ///
    /// # Errors
    /// If a tensor operation fails.
    pub fn add_loss(&self, name: &'static str, per_row: &Tensor) -> Result<()> {
        match self.losses {
            Some(losses) => losses.add(name, &(per_row * self.loss_share)?),
            None => Ok(()),
        }
    }

    /// Whether somebody wants losses: where nobody does, computing them is of no use.
    #[must_use]
    pub fn wants_losses(&self) -> bool {
        self.losses.is_some()
    }

    /// The same pass with somebody who gathers what it adds to buffers (see [`crate::params::Buffer`]).
    #[must_use]
    pub fn with_updates<'b>(&self, updates: &'b Updates) -> Context<'b>
    where
        'a: 'b,
    {
        Context {
            updates: Some(updates),
            ..*self
        }
    }

    pub(crate) fn updates(&self) -> Option<&'a Updates> {
        self.updates
    }

    /// The same pass through a stack whose blocks hand `carried` on.
    #[must_use]
    pub fn with_carried<'b>(&self, carried: &'b Carried) -> Context<'b>
    where
        'a: 'b,
    {
        Context {
            carried: Some(carried),
            ..*self
        }
    }

    /// What the block before this one left, such as its attention scores. None in the first block.
    #[must_use]
    pub fn carried(&self) -> Option<Tensor> {
        let carried = self.carried?.0.lock();
        carried.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Leaves `tensor` for the next block.
    pub fn carry(&self, tensor: &Tensor) {
        if let Some(carried) = self.carried {
            let mut slot = carried.0.lock().unwrap_or_else(PoisonError::into_inner);
            *slot = Some(tensor.clone());
        }
    }

    /// The pass of one of an example's `towers`: they share weights, not dropout masks.
    #[must_use]
    pub fn of_tower(&self, tower: usize, towers: usize) -> Self {
        Self {
            draws: self.draws.branch(tower as u16),
            loss_share: self.loss_share / towers as f64,
            ..*self
        }
    }

    /// The pass of a block that has run `index` times before in it, with the same weights but draws of its own.
    #[must_use]
    pub fn of_repetition(&self, index: usize) -> Self {
        self.with_draws(self.draws.repetition(index as u16))
    }

    /// The same pass with other draws (see [`Draws::branch`]).
    #[must_use]
    pub fn with_draws(&self, draws: Draws) -> Self {
        Self { draws, ..*self }
    }
}

/// What one block of a stack leaves for the next one.
#[derive(Default)]
pub struct Carried(Mutex<Option<Tensor>>);

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
