//! A forward pass: all that every layer gets beside its input.

use std::sync::{Mutex, PoisonError};

use candle_core::Tensor;

use crate::{
    Mask, Packing, Result,
    loss::{AuxLosses, Loss},
    packing::Sequences,
    params::{Buffer, Updates},
    rng::{FixedDraws, RngKey},
};

/// Context of a forward pass: all that a layer gets beside its input, such as the mask and the
/// random numbers.
#[derive(Clone, Copy)]
pub struct Pass<'a> {
    /// True in training, when dropout and other noise apply.
    pub train: bool,
    /// Key of all random numbers of the pass. Evaluation uses the seed and the step of the weights
    /// that it scores, so that random features are those of training.
    pub rng: RngKey,
    sequences: Sequences<'a>,
    fixed: Option<&'a FixedDraws>,
    losses: Option<&'a AuxLosses>,
    /// Share of this pass in a loss that the example's towers have in common.
    loss_share: f64,
    updates: Option<&'a Updates>,
    carried: Option<&'a Carried>,
    supervision: Option<&'a Supervision>,
}

/// Labels of a batch and progress of training, for the losses that need them.
pub struct Supervision {
    /// Classes (B) of the B examples, of type u32.
    pub labels: Tensor,
    /// Share of training that is over, from 0 to 1.
    pub progress: f64,
}

impl Pass<'static> {
    /// Returns a pass over sequences without padding. `train` is true in training, and `rng` is the
    /// key of all random numbers. [`crate::Classifier`] adds the mask of each tower.
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
    /// Returns the layout of the sequences: all positions valid, padded, or packed without padding.
    #[must_use]
    pub(crate) fn sequences(&self) -> Sequences<'a> {
        self.sequences
    }

    /// Returns the mask (B, L) of B padded sequences of length L. `None` if every position is
    /// valid, as in packed sequences.
    #[must_use]
    pub fn mask(&self) -> Option<&'a Mask> {
        match self.sequences {
            Sequences::Padded(mask) => Some(mask),
            Sequences::Full | Sequences::Packed(_) => None,
        }
    }

    /// Returns the packing of the sequences. `None` if they are not packed.
    #[must_use]
    pub fn packing(&self) -> Option<&'a Packing> {
        match self.sequences {
            Sequences::Packed(packing) => Some(packing),
            Sequences::Full | Sequences::Padded(_) => None,
        }
    }

    /// Returns this pass over sequences with another mask.
    #[must_use]
    pub(crate) fn with_mask<'b>(&self, mask: Option<&'b Mask>) -> Pass<'b>
    where
        'a: 'b,
    {
        Pass {
            sequences: mask.map_or(Sequences::Full, Sequences::Padded),
            ..*self
        }
    }

    /// Returns this pass over sequences that are packed.
    #[must_use]
    pub(crate) fn with_packing<'b>(&self, packing: &'b Packing) -> Pass<'b>
    where
        'a: 'b,
    {
        Pass {
            sequences: Sequences::Packed(packing),
            ..*self
        }
    }

    /// Runs `layer`, which does not support packed sequences, on x (B, L, D). Packed x (1, T, D),
    /// with T valid positions in all, is padded to (B, L, D) for it, and the result is packed
    /// again.
    ///
    /// # Errors
    /// Errors of `layer`, which must keep the length.
    pub(crate) fn padded(
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

    /// Returns this pass with these random tensors where mixers ask for them by name, in place of
    /// their own draws.
    #[must_use]
    pub(crate) fn with_fixed_draws<'b>(&self, fixed: &'b FixedDraws) -> Pass<'b>
    where
        'a: 'b,
    {
        Pass {
            fixed: Some(fixed),
            ..*self
        }
    }

    /// Returns the tensor that replaces the random numbers called `name` in this pass, as in the
    /// run of a parity case. It has the shape in which the layer draws them. `None` if the layer
    /// has to draw them.
    #[must_use]
    pub fn fixed(&self, name: &str) -> Option<&'a Tensor> {
        self.fixed.and_then(|fixed| fixed.get(name))
    }

    /// Returns this pass with `losses` as the collector of losses beside the cross-entropy.
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

    /// Adds `per_row` (B), one number for each of B sequences, to the loss `loss` beside the
    /// cross-entropy. The model or the component declares this loss. All additions to it are
    /// summed, and averaged over the rows of the batch. So each number must depend on its row
    /// alone. In a pass that does not collect losses, the call has no effect.
    ///
    /// # Errors
    /// If a tensor operation fails.
    pub fn add_loss(&self, loss: &Loss, per_row: &Tensor) -> Result<()> {
        match self.losses {
            Some(losses) => losses.add(loss, &(per_row * self.loss_share)?),
            None => Ok(()),
        }
    }

    /// Returns whether this pass collects losses. If it does not, layers need not compute them.
    #[must_use]
    pub fn wants_losses(&self) -> bool {
        self.losses.is_some()
    }

    /// Returns this pass with `supervision`: the labels of its examples, and the progress of
    /// training. Auxiliary losses need them.
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

    /// Returns this pass with `updates` as the collector of additions to buffers (see
    /// [`crate::params::Buffer`]).
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

    /// Returns this pass through a stack whose blocks hand `carried` on.
    #[must_use]
    pub(crate) fn with_carried<'b>(&self, carried: &'b Carried) -> Pass<'b>
    where
        'a: 'b,
    {
        Pass {
            carried: Some(carried),
            ..*self
        }
    }

    /// Returns the tensor that the block before this one left, such as its attention scores. None
    /// in the first block.
    #[must_use]
    pub(crate) fn carried(&self) -> Option<Tensor> {
        let carried = self.carried?.0.lock();
        carried.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Hands `tensor`, of any shape, to the next block of the stack. The next block's mixer can
    /// read it, for example attention scores of the block before. In a pass outside a stack of
    /// blocks the call has no effect.
    pub(crate) fn carry(&self, tensor: &Tensor) {
        if let Some(carried) = self.carried {
            let mut slot = carried.0.lock().unwrap_or_else(PoisonError::into_inner);
            *slot = Some(tensor.clone());
        }
    }

    /// Returns the pass over the sequences number `tower`, from 0, of the `towers` in each example.
    /// Towers share weights, but no dropout masks. They have equal shares in losses beside the
    /// cross-entropy.
    #[must_use]
    pub(crate) fn of_tower(&self, tower: usize, towers: usize) -> Self {
        Self {
            rng: self.rng.with_branch(tower as u16),
            loss_share: self.loss_share / towers as f64,
            ..*self
        }
    }

    /// Returns the pass of a block that has run `index` times before in it, with the same weights
    /// but draws of its own.
    #[must_use]
    pub(crate) fn of_repetition(&self, index: usize) -> Self {
        self.with_rng(self.rng.repetition(index))
    }

    /// Returns this pass with other draws (see [`RngKey::with_branch`]).
    #[must_use]
    pub(crate) fn with_rng(&self, rng: RngKey) -> Self {
        Self { rng, ..*self }
    }
}

/// Tensor that one block of a stack leaves for the next one.
#[derive(Default)]
pub(crate) struct Carried(Mutex<Option<Tensor>>);

impl Buffer {
    /// Adds `seen` to the sum of this training step, from which the buffer's next value is
    /// computed. `seen` has the same shape in every pass. The call has no effect in evaluation and
    /// in passes that are run again, which have no [`Pass::with_updates`].
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
