//! Encoders: the layers between embedding and pooling, and the residual stack that turns a mixer
//! into an encoder.
//!
//! A stack runs its blocks one after the other, with a last norm where blocks are
//! pre-norm; or it keeps two streams of pre-norm steps that can be undone
//! ([`Residual::Reversible`]).

mod both_ways;
mod cls_last;
mod reversible;

use std::sync::Arc;

use candle_core::Tensor;
use candle_nn::Init;

pub(crate) use self::{
    both_ways::{Ways, blocks_both_ways},
    cls_last::with_cls_last,
};
use crate::{
    LayerContext, Mask, Mixer, ModelContext, Pass, Result,
    block::{Block, norm::Norm},
    loss::Loss,
    ops::softmax,
    options::{Layers, NormPlace, Residual},
    pass::Carried,
};

/// Layers between embedding and pooling. They map B embedded sequences (B, L, D) to hidden states
/// (B, L', D). L' may be less than L.
pub trait Encoder: Send + Sync {
    /// Maps x (B, L, D) to hidden states (B, L', D) and their mask (B, L'). The number L' of states
    /// may be less than the length L.
    ///
    /// # Errors
    /// If a tensor operation fails, or the length is not one that this model can take.
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Encoded>;

    /// Computes [`Encoder::forward`] for x (B, L, D), and also returns the hidden states behind
    /// every block but the last. Each is (B, L, D) and normalised like the last. An encoder that is
    /// no plain stack of blocks returns none.
    ///
    /// # Errors
    /// Errors of [`Encoder::forward`].
    fn forward_with_states(&self, x: &Tensor, pass: &Pass) -> Result<(Encoded, Vec<Tensor>)> {
        Ok((self.forward(x, pass)?, Vec::new()))
    }

    /// Returns the number of tensors of states that [`Encoder::forward_with_states`] returns beside
    /// the last.
    fn states_between(&self) -> usize {
        0
    }

    /// Returns whether there is one hidden state for each position of the input.
    fn keeps_length(&self) -> bool {
        true
    }

    /// Returns the index of the hidden state that stands for `position` of the input. A CLS slot
    /// counts as position 0. The index is `position` itself if there is a hidden state for each
    /// position.
    fn slot_of(&self, position: usize) -> usize {
        position
    }

    /// Returns whether [`Encoder::forward`] understands packed sequences ([`Pass::packing`]) as
    /// well as padded ones.
    fn supports_varlen(&self) -> bool {
        false
    }

    /// Returns whether no hidden state depends on a later position. It looks at the mixers alone,
    /// not at other layers of a block.
    fn is_causal(&self) -> bool {
        let mixers = self.mixers();
        !mixers.is_empty() && mixers.iter().all(|mixer| mixer.is_causal())
    }

    /// Counts the floating-point operations of a forward pass over one sequence of `length`
    /// positions. Matrix products are counted, and a multiply-add is two operations.
    fn flops(&self, length: usize) -> u64;

    /// Returns the mixers of a residual stack, one for each block, for callers that run one alone.
    /// An encoder that is no such stack returns none.
    fn mixers(&self) -> Vec<&dyn Mixer> {
        Vec::new()
    }

    /// Returns a description of the encoder's violation of the benchmark's rules. `None` if it
    /// keeps them (see [`Mixer::rule_violation`]).
    fn rule_violation(&self) -> Option<&'static str> {
        self.mixers()
            .iter()
            .find_map(|mixer| mixer.rule_violation())
    }

    /// Returns a description of the values that this encoder holds constant in the backward pass on
    /// purpose. `None` if its gradients are exact (see [`Mixer::stops_gradients`]).
    fn stops_gradients(&self) -> Option<&'static str> {
        self.mixers()
            .iter()
            .find_map(|mixer| mixer.stops_gradients())
    }

    /// Returns the losses that the encoder's mixers add to the cross-entropy. Those of the block's
    /// options are not among them.
    fn losses(&self) -> &'static [Loss] {
        let mixers = self.mixers();
        mixers.first().map_or(&[], |mixer| mixer.losses())
    }
}

/// Output of an encoder, for a batch of B sequences.
pub struct Encoded {
    /// Hidden states (B, L', D): L' vectors of width D for each sequence.
    pub hidden: Tensor,
    /// Mask (B, L') of the hidden states, 1 for valid ones. `None` if all of them are valid.
    pub mask: Option<Mask>,
}

/// Returns a stack of residual blocks around mixers. `mixer` creates the mixer of each layer.
///
/// # Errors
/// Errors of `mixer`; [`crate::Error::ShapeConflict`] if a path is taken by a parameter of another
/// shape; [`crate::Error::Option`] for an option of the block that a mixer does not support.
pub fn blocks(
    context: &ModelContext,
    mixer: impl Fn(&LayerContext) -> Result<Box<dyn Mixer>>,
) -> Result<Box<dyn Encoder>> {
    Ok(Box::new(stack(context, &mixer)?))
}

/// Returns the blocks of a stack, not yet in one: for encoders that run them in their own way.
///
/// # Errors
/// Errors of [`blocks`].
pub(crate) fn residual_blocks(
    context: &ModelContext,
    mixer: impl Fn(&LayerContext) -> Result<Box<dyn Mixer>>,
) -> Result<Vec<Block>> {
    blocks_around(context, &mixer)
}

/// Makes the mixer of a layer.
type MakeMixer<'a> = dyn Fn(&LayerContext) -> Result<Box<dyn Mixer>> + 'a;

/// Returns what [`residual_blocks`] does. One copy serves all mixers.
fn blocks_around(context: &ModelContext, mixer: &MakeMixer) -> Result<Vec<Block>> {
    let block = context.block;
    (0..block.layers)
        .map(|index| {
            // Blocks that share weights are built at one place.
            let vb = context.vb.layer(index, block.share);
            let layer = LayerContext {
                vb: vb.pp("mixer"),
                shared: context.vb.clone(),
                block,
                max_length: context.max_length,
                cls: context.cls,
                geometry: context.geometry,
                index,
            };
            let mixer = mixer(&layer)?;
            mixer.supports().check(block)?;
            let block = Block::new(&vb, block, index, mixer)?;
            if context.conditional && index == 0 {
                return block.followed_by_positions(&vb, context);
            }
            Ok(block)
        })
        .collect()
}

/// Returns the norm behind the last block. `None` if blocks are post-norm, or `block.last_norm` is
/// false.
///
/// # Errors
/// If a path is taken by a parameter of another shape.
pub(crate) fn last_norm(context: &ModelContext) -> Result<Option<Norm>> {
    Ok(match context.block.norm_place {
        NormPlace::Pre if context.block.last_norm => {
            Some(Norm::new(&context.vb.pp("last_norm"), context.block)?)
        }
        NormPlace::Pre | NormPlace::Post => None,
    })
}

fn stack(context: &ModelContext, mixer: &MakeMixer) -> Result<Blocks> {
    let block = context.block;
    let blocks = blocks_around(context, mixer)?;
    let mix = match context.layers {
        Layers::Mix => Some(context.vb.get_with_hints(
            block.layers + 1,
            "layer_scores",
            Init::Const(0.0),
        )?),
        Layers::Last => None,
    };
    Ok(Blocks {
        blocks: Arc::new(blocks),
        last_norm: last_norm(context)?,
        residual: block.residual,
        shared: block.share,
        positions: context.positions.clone(),
        mix,
    })
}

struct Blocks {
    blocks: Arc<Vec<Block>>,
    last_norm: Option<Norm>,
    residual: Residual,
    /// True if all blocks have the same weights.
    shared: bool,
    /// Added to the input of every block but the first, (slots, D).
    positions: Option<Tensor>,
    /// Scores (layers + 1) whose softmax weights all hidden states, where their weighted sum is
    /// pooled.
    mix: Option<Tensor>,
}

impl Blocks {
    /// Returns the hidden states before and after every block, each (B, L, D); none but the last
    /// unless they are to be kept.
    fn states(&self, x: &Tensor, pass: &Pass, keep: bool) -> Result<Vec<Tensor>> {
        let carried = Carried::default();
        let pass = pass.with_carried(&carried);
        let mut states = vec![x.clone()];
        for (index, block) in self.blocks.iter().enumerate() {
            let pass = match self.shared {
                true => pass.of_repetition(index),
                false => pass,
            };
            let x = &states[states.len() - 1];
            let y = match &self.positions {
                Some(table) if index > 0 => {
                    let positions = table.narrow(0, 0, x.dim(1)?)?;
                    block.forward(&x.broadcast_add(&positions)?, &pass)?
                }
                _ => block.forward(x, &pass)?,
            };
            if !keep {
                states.clear();
            }
            states.push(y);
        }
        Ok(states)
    }

    fn normalise(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        match &self.last_norm {
            Some(norm) => norm.forward(x, pass),
            None => Ok(x.clone()),
        }
    }
}

impl Blocks {
    /// Turns the states that [`Blocks::states`] returns into those that are pooled.
    fn encoded(&self, x: &Tensor, states: &[Tensor], pass: &Pass) -> Result<Encoded> {
        let hidden = match &self.mix {
            Some(scores) => {
                let weights = softmax::masked(scores, None)?;
                let mut sum: Option<Tensor> = None;
                for (layer, state) in states.iter().enumerate() {
                    let term = self
                        .normalise(state, pass)?
                        .broadcast_mul(&weights.narrow(0, layer, 1)?)?;
                    sum = Some(match sum {
                        Some(sum) => (sum + term)?,
                        None => term,
                    });
                }
                sum.unwrap_or_else(|| x.clone())
            }
            None => self.normalise(&states[states.len() - 1], pass)?,
        };
        Ok(Encoded {
            hidden,
            mask: pass.mask().cloned(),
        })
    }
}

impl Encoder for Blocks {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Encoded> {
        let states = match self.residual {
            Residual::Reversible => vec![reversible::forward(&self.blocks, x, pass)?],
            _ => self.states(x, pass, self.mix.is_some())?,
        };
        self.encoded(x, &states, pass)
    }

    fn forward_with_states(&self, x: &Tensor, pass: &Pass) -> Result<(Encoded, Vec<Tensor>)> {
        if self.states_between() == 0 {
            return Ok((self.forward(x, pass)?, Vec::new()));
        }
        let states = self.states(x, pass, true)?;
        let between = states[1..states.len() - 1].iter();
        let between = between.map(|state| self.normalise(state, pass));
        let between = between.collect::<Result<_>>()?;
        Ok((self.encoded(x, &states, pass)?, between))
    }

    fn supports_varlen(&self) -> bool {
        self.positions.is_none()
            && self.residual != Residual::Reversible
            && self.blocks.iter().all(Block::supports_varlen)
            && self.last_norm.as_ref().is_none_or(Norm::supports_varlen)
    }

    fn states_between(&self) -> usize {
        match self.residual {
            Residual::Reversible => 0,
            _ => self.blocks.len() - 1,
        }
    }

    fn flops(&self, length: usize) -> u64 {
        self.blocks
            .iter()
            .map(|block| block.flops(length))
            .fold(0, u64::saturating_add)
    }

    fn mixers(&self) -> Vec<&dyn Mixer> {
        self.blocks.iter().map(Block::mixer).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        mixers,
        options::BlockOptions,
        testing::{normal, parameters, pass},
    };

    /// A mixer that puts out its input.
    struct Same;

    impl Mixer for Same {
        fn forward(&self, x: &Tensor, _: &Pass) -> Result<Tensor> {
            Ok(x.clone())
        }

        fn flops(&self, _: usize) -> u64 {
            0
        }
    }

    #[test]
    fn states_between_blocks_are_in_memory_only_if_they_are_wanted() {
        let block = BlockOptions {
            layers: 3,
            dim: 4,
            mlp_dim: 4,
            ..BlockOptions::default()
        };
        let (parameters, model) = (parameters(), mixers::find("bag").unwrap());
        let own = model.defaults();
        let context = ModelContext::new(parameters.builder(), &block, model, &own, 5);
        let blocks = stack(&context, &|_| Ok(Box::new(Same))).unwrap();
        let x = normal("x", &[1, 5, 4]);
        for (keep, count) in [(false, 1), (true, 4)] {
            let states = blocks.states(&x, &pass(), keep).unwrap();
            assert_eq!(states.len(), count);
        }
    }
}
