//! Attention whose weights are products of features, in time linear in the length: y_i = φ(q_i) S /
//! (φ(q_i)·z + ε) with S = Σ_j φ(k_j) v_jᵀ and z = Σ_j φ(k_j) per head (arXiv 2006.16236).
//!
//! Features exist only for 64 positions at a time. Of the forward pass, S and z are kept. Positions
//! are split into parts by shape alone, and the sums of the parts are added in order.

mod args;
mod blocks;
mod features;
mod passes;

use candle_core::{Result, Shape, Tensor, bail};
use lra_cpu::buffers::unspecified;
use lra_cpu::tile::StridedRowsMut;

use self::args::{LinearAttentionArgs, Part};
use self::blocks::Sizes;
use self::features::{Directions, Elementwise, Favor, Shift};
use crate::autograd::read;
use crate::autograd::{BackwardPass, CustomOp, Gradient, GradientRows, Input, View, apply};
use crate::ops::activation::cpu::{EluPlusOne, Identity, Relu};

const NAME: &str = "kernel attention";
/// Features and columns of values from which on f32 is cut into parts.
const SPLIT_WIDTH: usize = 32;

/// Map φ from a query or key x of width E to its features, which must not be negative.
#[derive(Clone, Debug)]
pub enum FeatureMap {
    /// Features are x itself: queries and keys have been mapped already.
    Given,
    /// Features are elu(x) + 1: x + 1 above zero, exp(x) below.
    EluPlusOne,
    /// Features are max(x, 0) + floor.
    Relu {
        /// Number that is added to every feature, not negative.
        floor: f32,
    },
    /// Features are exp(w_r·x - |x|² / (2 √E) - shift) + epsilon, the FAVOR+ of Performer
    /// (arXiv:2009.14794). The shift of a query is its largest w_r·x. The shift of keys is the
    /// largest w_r·x of all valid keys of an example and head, or 0 if there is none.
    Favor {
        /// Rows w_r (M, E), for M features of a query or key of width E: random directions times
        /// E^-¼. They get no gradient.
        directions: Tensor,
        /// Number that is added to every feature, not negative.
        epsilon: f32,
    },
}

/// Options of kernel attention besides queries, keys and values.
#[derive(Clone, Debug)]
pub struct LinearAttentionOptions {
    /// Number of heads H; head h owns columns h M to (h + 1) M of queries and keys (or as many as
    /// the map takes), h E to (h + 1) E of values.
    pub heads: usize,
    /// Feature map of queries and keys.
    pub map: FeatureMap,
    /// Added to the denominator, so that an example without a valid key yields zeros.
    pub eps: f64,
    /// (B, keys), 1 for a valid key and 0 for padding.
    pub mask: Option<Tensor>,
}

/// Returns the kernel attention of queries (B, Lq, H M) on keys (B, Lk, H M) and values (B, Lk, H
/// E); yields (B, Lq, H E).
pub fn linear_attention(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    options: &LinearAttentionOptions,
) -> Result<Tensor> {
    let ((batch, _, features), (_, keys, values)) = (q.dims3()?, v.dims3()?);
    if k.dims() != [batch, keys, features] || v.dim(0)? != batch {
        bail!(
            "{NAME}: queries {:?}, keys {:?}, values {:?}",
            q.shape(),
            k.shape(),
            v.shape()
        );
    }
    let op = LinearAttention::new(options, (batch, keys), (features, values), false)?;
    apply(op, [q, k, v])
}

/// Returns the kernel attention within a sequence from packed projections (B, L, 3 H E), queries
/// first, then keys, then values; yields (B, L, H E). Blocks of 64 positions that are all padding
/// yield zeros.
pub fn linear_attention_packed(qkv: &Tensor, options: &LinearAttentionOptions) -> Result<Tensor> {
    let (batch, length, width) = qkv.dims3()?;
    if width % 3 != 0 {
        bail!("{NAME}: width {width} is not three times that of the heads");
    }
    let op = LinearAttention::new(options, (batch, length), (width / 3, width / 3), true)?;
    apply(op, Input::side_by_side(qkv))
}

/// A [`FeatureMap`], made ready.
enum Map {
    Given,
    EluPlusOne,
    Relu { floor: f32 },
    Favor(Box<Directions>),
}

struct LinearAttention {
    heads: usize,
    map: Map,
    eps: f32,
    /// (B, Lk), not zero for a valid key.
    valid: Option<Vec<f32>>,
    /// True if queries and keys are those of one sequence, so that `valid` tells of both.
    self_attention: bool,
}

impl LinearAttention {
    /// Builds the operation for rows of `features` elements of queries and keys and `values`
    /// elements of values.
    fn new(
        options: &LinearAttentionOptions,
        (batch, keys): (usize, usize),
        (features, values): (usize, usize),
        self_attention: bool,
    ) -> Result<Self> {
        let heads = options.heads;
        if heads == 0 || features * values == 0 || features % heads + values % heads != 0 {
            bail!("{NAME}: widths {features} and {values} cannot be split into {heads} heads");
        }
        let valid = match &options.mask {
            Some(mask) if mask.dims() != [batch, keys] => {
                bail!(
                    "{NAME}: mask {:?} for {batch} examples of {keys} keys",
                    mask.shape()
                )
            }
            Some(mask) => Some(read(NAME, &mask.contiguous()?)?.to_vec()),
            None => None,
        };
        let map = match &options.map {
            FeatureMap::Given => Map::Given,
            FeatureMap::EluPlusOne => Map::EluPlusOne,
            FeatureMap::Relu { floor } => Map::Relu { floor: *floor },
            FeatureMap::Favor {
                directions,
                epsilon,
            } => {
                let (count, width) = directions.dims2()?;
                if count == 0 || width * heads != features {
                    bail!(
                        "{NAME}: directions {:?} for {heads} heads of {features}",
                        directions.shape()
                    );
                }
                let w = directions.contiguous()?;
                let w = Directions::new(&read(NAME, &w)?, (count, width), *epsilon);
                Map::Favor(Box::new(w))
            }
        };
        Ok(LinearAttention {
            heads,
            map,
            eps: options.eps as f32,
            valid,
            self_attention,
        })
    }

    fn args<'a>(&'a self, operands: &[View<'a>; 3]) -> Result<LinearAttentionArgs<'a>> {
        let [q, k, v] = operands.each_ref().map(View::rows);
        let (batch, queries_len, features) = operands[0].shape.dims3()?;
        let (_, keys_len, values) = operands[2].shape.dims3()?;
        let inputs = features / self.heads;
        let sizes = Sizes {
            features: match &self.map {
                Map::Favor(directions) => directions.count(),
                _ => inputs,
            },
            values: values / self.heads,
        };
        Ok(LinearAttentionArgs {
            inputs,
            op: self,
            batch,
            queries_len,
            keys_len,
            sizes,
            q,
            k,
            v,
        })
    }
}

impl CustomOp<3> for LinearAttention {
    const NAME: &'static str = NAME;
    /// S and z of each head, and the shift of its keys where the map has one.
    type Saved = (Vec<f32>, Vec<f32>);
    const READS_OUTPUT: bool = true;

    fn forward(&self, operands: [View; 3], _: bool) -> Result<(Vec<f32>, Shape, Self::Saved)> {
        let args = self.args(&operands)?;
        let (output, states, shifts) = match &self.map {
            Map::Given => args.forward_by(Elementwise(Identity)),
            Map::EluPlusOne => args.forward_by(Elementwise(EluPlusOne)),
            Map::Relu { floor } => args.forward_by(Elementwise(Relu { floor: *floor })),
            Map::Favor(directions) => {
                let shifts = args.shifts(directions);
                let key = |part| favor_key(directions, self.heads, &shifts, part);
                let (output, states) = args.forward(favor_query(directions), key);
                (output, states, shifts)
            }
        };
        let row = operands[2].shape.dims3()?.2;
        let shape = (args.batch, args.queries_len, row).into();
        Ok((output, shape, (states, shifts)))
    }

    fn backward(
        &self,
        operands: [View; 3],
        pass: BackwardPass<Self::Saved, 3>,
    ) -> Result<[Gradient; 3]> {
        let args = self.args(&operands)?;
        let mut gradients = GradientRows::new(&operands, unspecified);
        gradients.write(|targets| self.write_gradients(&args, &pass, targets));
        Ok(gradients.into_gradients())
    }
}

impl LinearAttention {
    /// Writes the gradients of queries, keys and values.
    fn write_gradients(
        &self,
        args: &LinearAttentionArgs,
        pass: &BackwardPass<(Vec<f32>, Vec<f32>), 3>,
        targets: [StridedRowsMut; 3],
    ) {
        let ((states, shifts), outputs) = (&pass.saved, [pass.y, pass.dy]);
        match &self.map {
            Map::Given => args.backward_by(Elementwise(Identity), states, outputs, targets),
            Map::EluPlusOne => args.backward_by(Elementwise(EluPlusOne), states, outputs, targets),
            Map::Relu { floor } => {
                args.backward_by(
                    Elementwise(Relu { floor: *floor }),
                    states,
                    outputs,
                    targets,
                );
            }
            Map::Favor(directions) => {
                let key = |part| favor_key(directions, self.heads, shifts, part);
                args.backward(favor_query(directions), key, states, outputs, targets);
            }
        }
    }
}

fn favor_query(directions: &Directions) -> Favor<'_> {
    Favor {
        directions,
        shift: Shift::Row,
    }
}

fn favor_key<'a>(
    directions: &'a Directions,
    heads: usize,
    shifts: &[f32],
    part: Part,
) -> Favor<'a> {
    Favor {
        directions,
        shift: Shift::Given(shifts[part.example * heads + part.head]),
    }
}

#[cfg(test)]
mod tests;
