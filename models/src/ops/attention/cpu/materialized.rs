//! Softmax attention that keeps its L x L weights, as it was published, to measure the cost of
//! keeping them.
//!
//! Scores live only as long as a block of queries is at work; the weights before dropout are kept
//! for the backward pass, and the dropout mask is drawn again. With A the weights after dropout: dV
//! = Aᵀ dY, and dS = P ⊙ (dP - Σ_j dP_j P_j), dP = (dY Vᵀ) ⊙ factors.

use candle_core::{Result, Shape, Tensor, bail};
use lra_cpu::buffers::{multiply_by, unspecified};
use lra_cpu::gemm::{Matrix, multiply, multiply_into};
use lra_cpu::isa::Isa;
use lra_cpu::scratch::Scratch;
use lra_cpu::workspaces::Workspaces;
use rayon::prelude::*;

use super::dropout::row_length;
use super::{AttentionDropout, AttentionOptions, NAME};
use crate::autograd::read;
use crate::autograd::{BackwardPass, CustomOp, Gradient, View, apply};
use crate::ops::softmax::cpu::{Backward, Forward, hidden};

/// Queries of a block.
const ROWS: usize = 64;

/// Returns attention of queries (B, Lq, H E) on keys (B, Lk, H E) and values (B, Lk, H Ev); yields
/// (B, Lq, H Ev).
///
/// # Errors
/// If shapes do not fit, an operand is not f32 in main memory, or the options have block masks,
/// scores by distance, a soft cap or columns of all keys.
pub fn attention_materialized(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    options: &AttentionOptions,
) -> Result<Tensor> {
    let ((batch, queries, row), keys, values) = (q.dims3()?, k.dim(1)?, v.dims3()?.2);
    options.check(batch, (queries, keys), [row, row, values])?;
    if k.dims() != [batch, keys, row]
        || v.dims() != [batch, keys, values]
        || batch * queries * keys == 0
    {
        let (q, k, v) = (q.shape(), k.shape(), v.shape());
        bail!("{NAME}: queries {q:?}, keys {k:?}, values {v:?}");
    }
    if !options.is_plain() || options.key_columns.is_some() {
        bail!(
            "{NAME}: weights are kept without block masks, scores by distance, soft cap and columns of all keys"
        );
    }
    let valid = options.mask.as_ref().map(Tensor::contiguous).transpose()?;
    let hidden = match &valid {
        Some(valid) if valid.dims() != [batch, keys] => {
            bail!("{NAME}: mask {:?} of {keys} keys", valid.shape())
        }
        Some(valid) => hidden(&read(NAME, valid)?),
        None => vec![0.0; batch * keys],
    };
    let width = row / options.heads;
    let scale = options.scale.unwrap_or((width as f64).powf(-0.5));
    let op = Kept {
        sizes: Sizes {
            queries,
            keys,
            heads: options.heads,
            width,
            value_width: values / options.heads,
        },
        scale: scale as f32,
        hidden,
        dropout: options.dropout.clone(),
    };
    apply(op, [q, k, v])
}

#[derive(Clone, Copy)]
struct Sizes {
    queries: usize,
    keys: usize,
    heads: usize,
    /// E.
    width: usize,
    /// Ev.
    value_width: usize,
}

impl Sizes {
    /// Returns a head's columns of x (.., H `width`), from a row on.
    fn head(self, x: &[f32], width: usize, (row, head): (usize, usize)) -> Matrix<'_> {
        let stride = self.heads * width;
        Matrix::rows(&x[row * stride + head * width..], stride)
    }

    /// Returns the same columns, transposed.
    fn head_transposed(self, x: &[f32], width: usize, (row, head): (usize, usize)) -> Matrix<'_> {
        let stride = self.heads * width;
        Matrix::columns(&x[row * stride + head * width..], stride)
    }

    /// Returns the number of weights of an example.
    fn weights(self) -> usize {
        self.heads * self.queries * self.keys
    }

    /// Returns the first query and the number of queries of each block.
    fn blocks(self) -> impl Iterator<Item = (usize, usize)> {
        let starts = (0..self.queries).step_by(ROWS);
        starts.map(move |first| (first, ROWS.min(self.queries - first)))
    }
}

struct Kept {
    sizes: Sizes,
    scale: f32,
    /// (B, Lk): 0, or minus infinity for a hidden key.
    hidden: Vec<f32>,
    dropout: Option<AttentionDropout>,
}

impl Kept {
    /// Writes the dropout factors of the weights of a head's queries from `first` on, (.., Lk).
    /// Returns false without dropout, and then writes none.
    fn factors(&self, (example, head, first): (usize, usize, usize), factors: &mut [f32]) -> bool {
        let Some(dropout) = &self.dropout else {
            return false;
        };
        let Sizes { queries, keys, .. } = self.sizes;
        for (row, factors) in factors.chunks_exact_mut(keys).enumerate() {
            let number = (head * queries + first + row) * row_length(keys);
            dropout.fill(example, number, factors);
        }
        true
    }

    /// Returns gradients of q, k and v of one head, (Lq, E), (Lk, E) and (Lk, Ev) one after the
    /// other.
    fn head_gradients(
        &self,
        isa: Isa,
        (example, head): (usize, usize),
        [q, k, v, dy, weights]: [&[f32]; 5],
        gradients: &mut [f32],
    ) {
        let sizes = self.sizes;
        let Sizes {
            queries,
            keys,
            width,
            value_width,
            ..
        } = sizes;
        let (dq, others) = gradients.split_at_mut(queries * width);
        let (dk, dv) = others.split_at_mut(keys * width);
        let [mut factors, mut dropped, mut dp, mut ds] =
            [(); 4].map(|()| Scratch::zeros(ROWS.min(queries) * keys));
        let of_example = &weights[example * sizes.weights()..][..sizes.weights()];
        for (first, count) in sizes.blocks() {
            let query = example * queries + first;
            let start = (first * sizes.heads + head * count) * keys;
            let p = &of_example[start..][..count * keys];
            let [factors, dropped, dp, ds] =
                [&mut factors, &mut dropped, &mut dp, &mut ds].map(|it| &mut it[..count * keys]);
            // Drawn once for both of its uses.
            let drops = self.factors((example, head, first), factors);
            let a = if drops {
                dropped.copy_from_slice(p);
                multiply_by(factors, dropped);
                &*dropped
            } else {
                p
            };
            let dy_head = sizes.head(dy, value_width, (query, head));
            let accumulate = first > 0;
            multiply(
                isa,
                (keys, value_width, count),
                Matrix::columns(a, keys),
                dy_head,
                dv,
                accumulate,
            );
            let values = sizes.head_transposed(v, value_width, (example * keys, head));
            multiply(isa, (count, keys, value_width), dy_head, values, dp, false);
            if drops {
                multiply_by(factors, dp);
            }
            isa.run(Backward {
                keys,
                y: p,
                dy: dp,
                dx: ds,
            });
            ds.iter_mut().for_each(|ds| *ds *= self.scale);
            let dq = &mut dq[first * width..][..count * width];
            let keys_of_head = sizes.head(k, width, (example * keys, head));
            let rows = Matrix::rows(ds, keys);
            multiply(isa, (count, width, keys), rows, keys_of_head, dq, false);
            multiply(
                isa,
                (keys, width, count),
                Matrix::columns(ds, keys),
                sizes.head(q, width, (query, head)),
                dk,
                accumulate,
            );
        }
    }
}

/// Operands: q, k and v.
impl CustomOp<3> for Kept {
    const NAME: &'static str = NAME;
    /// The weights before dropout: of each example and block of queries (H, ROWS, Lk).
    type Saved = Vec<f32>;

    fn forward(&self, [q, k, v]: [View; 3], keeps: bool) -> Result<(Vec<f32>, Shape, Self::Saved)> {
        let (isa, sizes) = (Isa::current(), self.sizes);
        let Sizes {
            queries,
            keys,
            heads,
            width,
            value_width,
        } = sizes;
        let (batch, row) = (self.hidden.len() / keys, heads * value_width);
        let mut y = unspecified(batch * queries * row);
        let mut saved = unspecified(if keeps { batch * sizes.weights() } else { 0 });
        let mut rest = &mut saved[..];
        let mut tasks = Vec::new();
        for (example, y) in y.chunks_exact_mut(queries * row).enumerate() {
            for ((first, count), y) in sizes.blocks().zip(y.chunks_mut(ROWS * row)) {
                let len = if keeps { heads * count * keys } else { 0 };
                let (weights, others) = std::mem::take(&mut rest).split_at_mut(len);
                rest = others;
                tasks.push((example, first, count, y, weights));
            }
        }
        let workspaces = Workspaces::new(tasks.len(), || ());
        tasks
            .into_par_iter()
            .for_each(|(example, first, count, y, saved)| {
                workspaces.lend(|()| {
                    let mut scores = Scratch::zeros(count * keys);
                    let mut weights = Scratch::zeros(if keeps { 0 } else { count * keys });
                    for head in 0..heads {
                        let query = example * queries + first;
                        let scores = &mut scores[..];
                        let weights = match keeps {
                            true => &mut saved[head * count * keys..][..count * keys],
                            false => &mut weights[..],
                        };
                        let of_keys = sizes.head_transposed(k.data, width, (example * keys, head));
                        let of_queries = sizes.head(q.data, width, (query, head));
                        multiply(
                            isa,
                            (count, keys, width),
                            of_queries,
                            of_keys,
                            scores,
                            false,
                        );
                        scores.iter_mut().for_each(|score| *score *= self.scale);
                        isa.run(Forward {
                            keys,
                            hidden: &self.hidden[example * keys..][..keys],
                            first: 0,
                            per_example: 1,
                            x: scores,
                            y: weights,
                        });
                        // The scores are read no more: their place takes the weights after dropout.
                        let a = match self.factors((example, head, first), scores) {
                            true => {
                                multiply_by(weights, scores);
                                &*scores
                            }
                            false => &*weights,
                        };
                        let y = (&mut y[head * value_width..], row);
                        let values = sizes.head(v.data, value_width, (example * keys, head));
                        let a = Matrix::rows(a, keys);
                        multiply_into(isa, (count, value_width, keys), a, values, y, false);
                    }
                })
            });
        Ok((y, (batch, queries, row).into(), saved))
    }

    fn backward(
        &self,
        [q, k, v]: [View; 3],
        pass: BackwardPass<Self::Saved, 3>,
    ) -> Result<[Gradient; 3]> {
        let isa = Isa::current();
        let Sizes {
            queries,
            keys,
            heads,
            width,
            value_width,
        } = self.sizes;
        let all = (queries + keys) * width + keys * value_width;
        let mut by_head = unspecified(self.hidden.len() / keys * heads * all);
        let tasks = by_head.par_chunks_exact_mut(all).enumerate();
        let workspaces = Workspaces::new(tasks.len(), || ());
        tasks.for_each(|(index, gradients)| {
            let place = (index / heads, index % heads);
            let data = [q.data, k.data, v.data, pass.dy, &pass.saved];
            workspaces.lend(|()| self.head_gradients(isa, place, data, gradients));
        });
        // (B, H, .., E) to (B, .., H E).
        let by_row = |(length, width): (usize, usize), start: usize| {
            let mut rows = unspecified(self.hidden.len() / keys * length * heads * width);
            let examples = rows.par_chunks_exact_mut(length * heads * width);
            examples.enumerate().for_each(|(example, rows)| {
                for (index, piece) in rows.chunks_exact_mut(width).enumerate() {
                    let (row, head) = (index / heads, index % heads);
                    let from = (example * heads + head) * all + start + row * width;
                    piece.copy_from_slice(&by_head[from..][..width]);
                }
            });
            rows
        };
        let of_keys = queries * width;
        let dq = by_row((queries, width), 0);
        let dk = by_row((keys, width), of_keys);
        let dv = by_row((keys, value_width), of_keys + keys * width);
        Ok([dq, dk, dv].map(Gradient::Of))
    }
}
