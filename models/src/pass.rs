//! A forward pass: what every layer is told beside its input.

use std::sync::{Mutex, PoisonError};

use candle_core::Tensor;

use crate::{
    Mask, Packing, Result,
    loss::{AuxLosses, Loss},
    packing::Sequences,
    params::{Buffer, Updates},
    rng::{FixedDraws, RngKey},
};

/// What a forward pass is told beside its input.
#[derive(Clone, Copy)]
pub struct Pass<'a> {
    /// Whether dropout and other training noise apply.
    pub train: bool,
    /// Where the pass stands, for everything random. Evaluation passes the seed and the step of the weights it scores,
    /// so that random features are those of training.
    pub rng: RngKey,
    sequences: Sequences<'a>,
    fixed: Option<&'a FixedDraws>,
    losses: Option<&'a AuxLosses>,
    /// What a loss of this pass counts beside those of the example's other towers.
    loss_share: f64,
    updates: Option<&'a Updates>,
    carried: Option<&'a Carried>,
    supervision: Option<&'a Supervision>,
}

/// What training tells a pass for the losses that need it.
pub struct Supervision {
    /// (B) classes, u32.
    pub labels: Tensor,
    /// The share of training that is over, from 0 to 1.
    pub progress: f64,
}

impl Pass<'static> {
    /// A context without mask; [`crate::Classifier`] adds each tower's.
    #[must_use]
    pub fn new(train: bool, rng: RngKey) -> Self {
        Self {
            train,
            rng,
            sequences: Sequences::Full,
            fixed: None,
            losses: None,
            loss_share: 1.0,
            updates: None,
            carried: None,
            supervision: None,
        }
    }
}

impl<'a> Pass<'a> {
    /// How the sequences at hand lie.
    #[must_use]
    pub fn sequences(&self) -> Sequences<'a> {
        self.sequences
    }

    /// The mask of the sequences at hand; none where every position is real, as in those that are packed.
    #[must_use]
    pub fn mask(&self) -> Option<&'a Mask> {
        match self.sequences {
            Sequences::Padded(mask) => Some(mask),
            Sequences::Full | Sequences::Packed(_) => None,
        }
    }

    /// How the sequences at hand are packed, if they are.
    #[must_use]
    pub fn packing(&self) -> Option<&'a Packing> {
        match self.sequences {
            Sequences::Packed(packing) => Some(packing),
            Sequences::Full | Sequences::Padded(_) => None,
        }
    }

    /// The same pass over sequences with another mask.
    #[must_use]
    pub fn with_mask<'b>(&self, mask: Option<&'b Mask>) -> Pass<'b>
    where
        'a: 'b,
    {
        Pass {
            sequences: mask.map_or(Sequences::Full, Sequences::Padded),
            ..*self
        }
    }

    /// The same pass over sequences that are packed.
    #[must_use]
    pub fn with_packing<'b>(&self, packing: &'b Packing) -> Pass<'b>
    where
        'a: 'b,
    {
        Pass {
            sequences: Sequences::Packed(packing),
            ..*self
        }
    }

    /// `layer` of x, for one that understands no packed sequences: these are padded for it, and packed again.
    ///
    /// # Errors
    /// Those of `layer`, which keeps the length.
    pub fn padded(
        &self,
        x: &Tensor,
        layer: impl FnOnce(&Tensor, &Pass) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let Some(packing) = self.packing() else {
            return layer(x, self);
        };
        let y = layer(&packing.unpack(x)?, &self.with_mask(Some(packing.mask())))?;
        packing.pack(&y)
    }

    /// The same pass with these random tensors where mixers ask for them by name, in place of their own draws.
    #[must_use]
    pub fn with_fixed_draws<'b>(&self, fixed: &'b FixedDraws) -> Pass<'b>
    where
        'a: 'b,
    {
        Pass {
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
    pub fn with_losses<'b>(&self, losses: &'b AuxLosses) -> Pass<'b>
    where
        'a: 'b,
    {
        Pass {
            losses: Some(losses),
            ..*self
        }
    }

    /// Adds a loss beside the cross-entropy: `per_row` (B), one number per sequence. The model or the axis declares it. What
    /// layers add to one loss is summed, and averaged over the rows of the batch; so it may depend on nothing but the row.
    ///
    /// # Errors
    /// If a tensor operation fails.
    pub fn add_loss(&self, loss: &Loss, per_row: &Tensor) -> Result<()> {
        match self.losses {
            Some(losses) => losses.add(loss, &(per_row * self.loss_share)?),
            None => Ok(()),
        }
    }

    /// Whether somebody wants losses: where nobody does, computing them is of no use.
    #[must_use]
    pub fn wants_losses(&self) -> bool {
        self.losses.is_some()
    }

    /// The same pass over examples of which this is known.
    #[must_use]
    pub fn with_supervision<'b>(&self, supervision: &'b Supervision) -> Pass<'b>
    where
        'a: 'b,
    {
        Pass {
            supervision: Some(supervision),
            ..*self
        }
    }

    pub(crate) fn supervision(&self) -> Option<&'a Supervision> {
        self.supervision
    }

    /// The same pass with somebody who gathers what it adds to buffers (see [`crate::params::Buffer`]).
    #[must_use]
    pub fn with_updates<'b>(&self, updates: &'b Updates) -> Pass<'b>
    where
        'a: 'b,
    {
        Pass {
            updates: Some(updates),
            ..*self
        }
    }

    pub(crate) fn updates(&self) -> Option<&'a Updates> {
        self.updates
    }

    /// The same pass through a stack whose blocks hand `carried` on.
    #[must_use]
    pub fn with_carried<'b>(&self, carried: &'b Carried) -> Pass<'b>
    where
        'a: 'b,
    {
        Pass {
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
            rng: self.rng.with_branch(tower as u16),
            loss_share: self.loss_share / towers as f64,
            ..*self
        }
    }

    /// The pass of a block that has run `index` times before in it, with the same weights but draws of its own.
    #[must_use]
    pub fn of_repetition(&self, index: usize) -> Self {
        self.with_rng(self.rng.repetition(index as u16))
    }

    /// The same pass with other draws (see [`RngKey::with_branch`]).
    #[must_use]
    pub fn with_rng(&self, rng: RngKey) -> Self {
        Self { rng, ..*self }
    }
}

/// What one block of a stack leaves for the next one.
#[derive(Default)]
pub struct Carried(Mutex<Option<Tensor>>);

impl Buffer {
    /// Adds `seen`, of the same shape in every pass, to the sum of this training step. Nothing happens in evaluation and in
    /// passes that are run again.
    ///
    /// # Errors
    /// If `seen` has another shape than before.
    pub fn add(&self, seen: &Tensor, pass: &Pass) -> Result<()> {
        match pass.updates() {
            Some(updates) => updates.add(self, seen),
            None => Ok(()),
        }
    }
}
