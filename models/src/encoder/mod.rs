//! Encoders: what stands between embedding and pooling, and the residual stack that lifts a mixer to one.
//!
//! ```text
//! pre-norm:   x <- x + drop(mix(norm(x)));   x <- x + drop(feed(norm(x)));   at the end x <- norm(x)
//! post-norm:  x <- norm(x + drop(mix(x)));   x <- norm(x + drop(feed(x)))
//! ```
//! or two streams of pre-norm steps that can be undone ([`Residual::Reversible`]).

mod reversible;

use std::sync::Arc;

use candle_core::Tensor;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    Context, Mask, Mixer, Result, VarBuilder,
    layers::{Around, Dropout, FeedForward, LayerNorm},
    mixers,
    options::{self, BlockOptions, NormPlace, Residual},
};

/// Maps embedded sequences to hidden states.
pub trait Encoder: Send + Sync {
    /// (B, L, D) to hidden states, which may be fewer than L, and their mask.
    ///
    /// # Errors
    /// If a tensor operation fails, or the length is not one that this model can take.
    fn forward(&self, x: &Tensor, context: &Context) -> Result<Encoded>;

    /// Floating-point operations of a forward pass over one sequence of `length`: matrix products, a multiply-add being two.
    fn flops(&self, length: usize) -> u64;

    /// The mixers of a residual stack, one per layer, for whoever wants to run one alone. None where there is no such stack.
    fn mixers(&self) -> Vec<&dyn Mixer> {
        Vec::new()
    }
}

/// What an encoder returns.
pub struct Encoded {
    /// (B, L', D).
    pub hidden: Tensor,
    /// Over L'; none where every position is real.
    pub mask: Option<Mask>,
}

/// What a model is built from.
pub struct Build<'a> {
    /// Where the parameters go.
    pub vb: VarBuilder,
    /// The residual blocks' options, already validated.
    pub block: &'a BlockOptions,
    /// The model's own options, every key present.
    pub model: &'a Value,
    /// Largest length it will meet, with the CLS slot.
    pub max_length: usize,
    /// Whether position 0 is a CLS token.
    pub cls: bool,
    /// Name of the model in the registry.
    pub name: &'static str,
}

impl Build<'_> {
    /// The model's own options, typed; without `variant`, which has said whose `build` this is.
    ///
    /// # Errors
    /// As [`options::read`].
    pub fn options<T: DeserializeOwned>(&self) -> Result<T> {
        let mut own = self.model.clone();
        if let Value::Object(own) = &mut own {
            own.shift_remove("variant");
        }
        let entry = mixers::find(self.name);
        let defaults = entry.map_or(Value::Null, |model| (model.options)());
        let ranges = entry.map_or(&[][..], |model| model.ranges);
        options::read("model", &own, &defaults, ranges)
    }
}

/// Where one mixer of a stack is built.
pub struct Site<'a> {
    /// Where the mixer's parameters go; its path names its random streams.
    pub vb: VarBuilder,
    /// Widths, heads and dropout rates.
    pub block: &'a BlockOptions,
    /// Largest length it will meet, with the CLS slot.
    pub max_length: usize,
    /// Whether position 0 is a CLS token.
    pub cls: bool,
    /// Index of the block, from 0.
    pub layer: usize,
}

/// A stack of residual blocks around the mixers that `mixer` makes, one per layer.
///
/// # Errors
/// Those of `mixer`, and a parameter path taken by another shape.
pub fn blocks(
    build: &Build,
    mixer: impl Fn(&Site) -> Result<Box<dyn Mixer>>,
) -> Result<Box<dyn Encoder>> {
    Ok(Box::new(stack(build, mixer)?))
}

fn stack(build: &Build, mixer: impl Fn(&Site) -> Result<Box<dyn Mixer>>) -> Result<Blocks> {
    let block = build.block;
    let blocks = (0..block.layers)
        .map(|layer| {
            let vb = build.vb.pp(layer);
            let site = Site {
                vb: vb.pp("mixer"),
                block,
                max_length: build.max_length,
                cls: build.cls,
                layer,
            };
            Ok(Block {
                mixer: mixer(&site)?,
                mixer_norm: LayerNorm::new(&vb.pp("mixer_norm"), block.dim, block.norm_epsilon)?,
                mixer_drop: Dropout::new(&vb.pp("mixer_drop"), block.dropout),
                feed: FeedForward::new(&vb.pp("feed"), block)?,
                feed_norm: LayerNorm::new(&vb.pp("feed_norm"), block.dim, block.norm_epsilon)?,
                feed_drop: Dropout::new(&vb.pp("feed_drop"), block.dropout),
                norm_place: block.norm_place,
            })
        })
        .collect::<Result<Vec<_>>>()?;
    let last_norm = match block.norm_place {
        NormPlace::Pre => {
            let vb = build.vb.pp("last_norm");
            Some(LayerNorm::new(&vb, block.dim, block.norm_epsilon)?)
        }
        NormPlace::Post => None,
    };
    Ok(Blocks {
        blocks: Arc::new(blocks),
        last_norm,
        residual: block.residual,
    })
}

struct Block {
    mixer: Box<dyn Mixer>,
    mixer_norm: LayerNorm,
    mixer_drop: Dropout,
    feed: FeedForward,
    feed_norm: LayerNorm,
    feed_drop: Dropout,
    norm_place: NormPlace,
}

impl Block {
    /// drop(mix(norm(x))).
    fn mix(&self, x: &Tensor, context: &Context) -> Result<Tensor> {
        let y = self.mixer.forward(&self.mixer_norm.forward(x)?, context)?;
        self.mixer_drop.forward(&y, context)
    }

    /// drop(feed(norm(x))).
    fn feed(&self, x: &Tensor, context: &Context) -> Result<Tensor> {
        self.feed.forward(x, self.around_feed(false), context)
    }

    fn around_feed(&self, residual: bool) -> Around<'_> {
        let before = self.norm_place == NormPlace::Pre;
        Around {
            norm: before.then_some(&self.feed_norm),
            dropout: &self.feed_drop,
            residual,
        }
    }

    fn forward(&self, x: &Tensor, context: &Context) -> Result<Tensor> {
        let mixed = |residual: &Tensor, x: &Tensor| {
            let y = self.mixer.forward(x, context)?;
            self.mixer_drop.add(residual, &y, context)
        };
        let fed = |x: &Tensor| self.feed.forward(x, self.around_feed(true), context);
        match self.norm_place {
            NormPlace::Pre => {
                let x = mixed(x, &self.mixer_norm.forward(x)?)?;
                fed(&x)
            }
            NormPlace::Post => {
                let x = self.mixer_norm.forward(&mixed(x, x)?)?;
                self.feed_norm.forward(&fed(&x)?)
            }
        }
    }
}

struct Blocks {
    blocks: Arc<Vec<Block>>,
    last_norm: Option<LayerNorm>,
    residual: Residual,
}

impl Encoder for Blocks {
    fn forward(&self, x: &Tensor, context: &Context) -> Result<Encoded> {
        let mut hidden = match self.residual {
            Residual::Plain => {
                let mut blocks = self.blocks.iter();
                blocks.try_fold(x.clone(), |x, block| block.forward(&x, context))?
            }
            Residual::Reversible => reversible::forward(&self.blocks, x, context)?,
        };
        if let Some(norm) = &self.last_norm {
            hidden = norm.forward(&hidden)?;
        }
        Ok(Encoded {
            hidden,
            mask: context.mask().cloned(),
        })
    }

    fn flops(&self, length: usize) -> u64 {
        self.blocks
            .iter()
            .map(|block| block.mixer.flops(length) + block.feed.flops(length))
            .fold(0, u64::saturating_add)
    }

    fn mixers(&self) -> Vec<&dyn Mixer> {
        self.blocks
            .iter()
            .map(|block| block.mixer.as_ref())
            .collect()
    }
}
