//! Compressive Transformer. Rae et al., 2019, "Compressive Transformers for Long-Range Sequence
//! Modelling", arXiv:1911.05507: Transformer-XL, see there, with a second, coarser memory.
//!     y_i = attention of position i on [z_τ ; x of the M positions before i's segment τ ; x of segment τ],  z_τ = the last C rows of f(o_1), f(o_2), ..
//! After each segment of S positions, the S rows that leave the memory, o (S, D), are compressed to
//! f(o) (⌈S/c⌉, D). B batch, L length, H heads, E width of a head, D width. Rows of z have the
//! distances they would have if each were one position before the memory, as in the paper. Time
//! O(L·(S + M + C)·D) per head, memory O(L·(E + D)·(2 + C/S)).
//!
//! # Options
//!
//! `segment` S, `memory` M, `causal`, `detach` and `untie` as in Transformer-XL; `compressed` C (0:
//! S); `rate` c, at most S; `compression` f: `conv` of width and stride c, `mean` or `max` of c
//! rows, `most_used`, the ⌈S/c⌉ rows with the largest mean attention from the last segment that had
//! them in memory, `dilated`: x ← x + relu(conv₃(x)) at distances 1, 2, 4, .. below c, then `conv` (the
//! paper does not specify its stack), or `none`, which is Transformer-XL. Loss `reconstruct`,
//! weight 1, in each layer whose f has weights: the mean over positions of the squared difference
//! per channel between attention on o and attention on f(o), with scores without positions, from
//! the segment that pushed o out. W_Q, W_K, W_V, x and o are constants in this loss
//! (`stop_gradient` in the paper's algorithm 2), for any `detach`. Elsewhere z is a constant, so f
//! learns from this loss only (`detach` = false: from both losses, our addition).
//!
//! # Padding
//!
//! Padding enters f as zeros and is in no mean. A row of z made of padding only is hidden.
//!
//! # Departures
//!
//! The paper's other loss, a decoder of f(o), performed worse and is left out. No code of the
//! authors was found: initial values are those of Transformer-XL here, and f of width c begins
//! Xavier-uniform (±0.137 at D = 64 and c = 4) with biases 0. In the code of lucidrains/
//! compressive-transformer-pytorch, the loss is divided by the number of layers.

mod compression;
mod most_used;

use std::ops::Range;

use self::compression::Compression;
use self::compression::Kind;
use super::transformer_xl;
use super::transformer_xl::Older;
use super::transformer_xl::Recurrence;
use super::transformer_xl::TAKES;
use crate::prelude::*;

/// Loss of attention by the compression.
const RECONSTRUCT: Loss = Loss::new("reconstruct", 1.0);

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "compressive",
    title: "Compressive Transformer",
    paper: "Compressive Transformers for Long-Range Sequence Modelling",
    year: 2019,
    arxiv: "1911.05507",
    time: Cost::Linear("O(L·(S + M + C)·D)"),
    memory: Cost::Linear("O(L·D)"),
    reference: Reference::Equations,
    family: Family::Xformer,
    settings: transformer_xl::SETTINGS,
    variants: &[Variant::paper(build, include_str!("mod.rs")).with_losses(&[RECONSTRUCT])],
    ..Model::with_options::<Options>()
};

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// S.
    #[option(range = int(0, LONGEST))]
    segment: usize,
    /// M.
    #[option(range = int(0, LONGEST))]
    memory: usize,
    /// C.
    #[option(range = int(0, LONGEST))]
    compressed: usize,
    /// c.
    #[option(default = 4, range = int(1, LONGEST))]
    rate: usize,
    /// f.
    #[option(default = Kind::Conv)]
    compression: Kind,
    causal: bool,
    #[option(default = true)]
    detach: bool,
    untie: bool,
}

fn build(context: &ModelContext) -> Result<Box<dyn Encoder>> {
    let options: Options = context.options()?;
    require(
        context.block.residual != Residual::Reversible || !options.compression.learns(),
        "block.residual",
        "reversible",
        "another one, because the loss that model.compression learns from needs every block's state",
    )?;
    let stack = encoder::blocks(context, |layer| {
        Ok(Box::new(Compressive::new(layer, &options)?))
    })?;
    encoder::with_cls_last(stack, context)
}

struct Compressive {
    recurrence: Recurrence,
    compression: Compression,
    /// C.
    slots: usize,
    /// c.
    rate: usize,
    /// Dropout of rate 0, for attention that is compared.
    undropped: Dropout,
}

/// Positions that fall out of the memory of a sequence: segment `first` is the first that pushes
/// some out, the S positions that begin `lead` before the sequence; each later segment pushes out
/// the next S.
struct Evictions {
    first: usize,
    lead: usize,
    count: usize,
}

/// Rows in parts of S, with the mask of the valid ones.
struct Parts {
    /// (B n, S, D).
    rows: Tensor,
    /// (B n, S).
    valid: Mask,
}

impl Compressive {
    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let shared = transformer_xl::Options {
            segment: options.segment,
            memory: options.memory,
            causal: options.causal,
            detach: options.detach,
            untie: options.untie,
        };
        let recurrence = Recurrence::new(layer, &shared)?;
        let rate = options.rate.min(recurrence.segment);
        let vb = layer.vb.pp("compress");
        Ok(Self {
            compression: Compression::new(&vb, options.compression, layer.block.dim, rate)?,
            slots: match options.compressed {
                0 => recurrence.segment,
                slots => slots,
            },
            rate,
            undropped: Dropout::new(&vb, 0.0),
            recurrence,
        })
    }

    /// Returns the positions that a sequence of `length` pushes out of memory, if there are any.
    fn evictions(&self, length: usize) -> Option<Evictions> {
        let Recurrence {
            segment, memory, ..
        } = self.recurrence;
        let first = memory / segment;
        let count = self.recurrence.segments(length).saturating_sub(first);
        let some = count > 0 && self.compression.kind() != Kind::None;
        some.then_some(Evictions {
            first,
            lead: memory % segment,
            count,
        })
    }

    /// Returns for each segment of a sequence of `length` the rows of f(o_1), f(o_2), .. that it
    /// sees.
    fn seen(&self, length: usize) -> Vec<Range<usize>> {
        let Some(Evictions { first, .. }) = self.evictions(length) else {
            return Vec::new();
        };
        let rows = self.recurrence.segment.div_ceil(self.rate);
        let segments = 0..self.recurrence.segments(length);
        let seen = segments.map(|segment| {
            let there = segment.saturating_sub(first) * rows;
            there.saturating_sub(self.slots)..there
        });
        seen.collect()
    }

    /// Returns x (B, L, D), with `lead` rows of zeros before it and zeros behind it if it is too
    /// short, in `count` parts of S.
    fn parts(&self, x: &Tensor, valid: &Tensor, lead: usize, count: usize) -> Result<Parts> {
        let (size, (batch, length, dim)) = (self.recurrence.segment, x.dims3()?);
        let all = count * size;
        let cut = |x: &Tensor| -> Result<Tensor> {
            let missing = all.saturating_sub(lead + length);
            Ok(x.pad_with_zeros(1, lead, missing)?.narrow(1, 0, all)?)
        };
        Ok(Parts {
            rows: cut(x)?.reshape((batch * count, size, dim))?,
            valid: Mask::new(&cut(valid)?.reshape((batch * count, size))?)?,
        })
    }

    /// Returns the rows that segments see beside positions; adds the loss that f learns from.
    fn older(&self, x: &Tensor, pass: &Pass) -> Result<Option<Older>> {
        let (batch, length, dim) = x.dims3()?;
        let Some(evictions) = self.evictions(length) else {
            return Ok(None);
        };
        let seen = self.seen(length);
        let valid = match pass.mask() {
            Some(mask) => mask.valid().clone(),
            None => Tensor::ones((batch, length), x.dtype(), x.device())?,
        };
        let past = zero_padding(&self.recurrence.append_memory(x), pass.mask())?;
        if self.compression.kind() == Kind::MostUsed {
            if evictions.count == 1 {
                return Ok(None);
            }
            let chosen = self.most_used(x, &valid, &evictions, &seen)?;
            return Ok(Some(Older {
                rows: take(&past, &chosen)?,
                valid: take(&valid.unsqueeze(2)?, &chosen)?.squeeze(2)?,
                seen,
            }));
        }
        let Evictions { first, lead, count } = evictions;
        let old = self.parts(&past, &valid, lead, count)?;
        let new = self.compression.forward(&old.rows, &old.valid)?;
        if pass.wants_losses() && self.compression.kind().learns() {
            // The compressed positions are a constant to the loss, even where the memory is none.
            let constant = Parts {
                rows: old.rows.detach(),
                valid: old.valid.clone(),
            };
            let compressed = match self.recurrence.detach {
                true => None,
                false => Some(self.compression.forward(&constant.rows, &constant.valid)?),
            };
            let actual = compressed.as_ref().unwrap_or(&new);
            let start = first * self.recurrence.segment;
            let rest = |x: &Tensor| x.narrow(1, start, length - start);
            let segments = self.parts(&rest(&x.detach())?, &rest(&valid)?, 0, count)?;
            pass.add_loss(
                &RECONSTRUCT,
                &self.reconstruct(&segments, &constant, actual, batch, pass)?,
            )?;
        }
        // The positions that the last segment pushes out are never seen.
        let there = seen.last().map_or(0, |seen| seen.end);
        if there == 0 {
            return Ok(None);
        }
        let rows = match self.recurrence.detach {
            true => new.rows.detach(),
            false => new.rows,
        };
        let valid = new.valid.valid().reshape((batch, ()))?;
        Ok(Some(Older {
            rows: rows.reshape((batch, (), dim))?.narrow(1, 0, there)?,
            valid: valid.narrow(1, 0, there)?,
            seen,
        }))
    }

    /// Returns the loss of each sequence, (B), for the constants `segments` and `old`.
    fn reconstruct(
        &self,
        segments: &Parts,
        old: &Parts,
        new: &Parts,
        batch: usize,
        pass: &Pass,
    ) -> Result<Tensor> {
        let projections = self.recurrence.projections.detached();
        let attend = |to: &Parts| {
            let pass = pass.with_mask(Some(&to.valid));
            projections.attend_to(
                &segments.rows,
                &to.rows.contiguous()?,
                &pass,
                &self.undropped,
            )
        };
        let expected = attend(old)?;
        let difference = (attend(new)? - expected.detach())?;
        let valid = segments.valid.valid().reshape((batch, ()))?; // (B, n S)
        let square = difference.sqr()?.mean(2)?.reshape((batch, ()))?;
        let count = valid.sum(1)?;
        let count = count.maximum(&count.ones_like()?)?;
        Ok(((square * valid)?.sum(1)? / count)?)
    }
}

impl Mixer for Compressive {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let older = self.older(x, pass)?;
        self.recurrence.attend(x, pass, older.as_ref())
    }

    fn supports(&self) -> Supports {
        TAKES
    }

    fn is_causal(&self) -> bool {
        self.recurrence.causal
    }

    fn losses(&self) -> &'static [Loss] {
        match self.compression.kind().learns() {
            true => &[RECONSTRUCT],
            false => &[],
        }
    }

    fn stops_gradients(&self) -> Option<&'static str> {
        Some("the loss of the compression reaches nothing but the compression")
    }

    /// Counts operations without the loss, and without the search for the rows that are most used.
    fn flops(&self, length: usize) -> u64 {
        let count = self
            .evictions(length)
            .map_or(0, |evictions| evictions.count);
        let parts = count as u64 * self.compression.flops(self.recurrence.segment);
        self.recurrence.flops(length, &self.seen(length)) + parts
    }
}

#[cfg(test)]
mod tests;
