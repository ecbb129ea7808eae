//! A learned bias of the scores, factor · S with S (H, N, N) shared by all examples; N may exceed
//! the length.
//!
//! Gradients dS = factor Σ_b dscores and dfactor = Σ dscores S: only the gradient itself has the
//! size of S.

use candle_core::{Result, Shape, Tensor, bail};
use lra_cpu::buffers::Shared;
use lra_cpu::tile::{PAD, Rows, SIDE, pack_columns};

use super::args::AttentionArgs;
use super::score_mod::{Term, TermGradients};
use super::{Attention, AttentionOptions, NAME};
use crate::autograd::{BackwardPass, CustomOp, Gradient, GradientRows, Input, View, apply};

/// Returns attention within a sequence from packed projections (B, L, 3 H E) with scores q·k ·
/// scale + factor · bias, for `bias` (H, N, N) with N at least L and a single number `factor`;
/// yields (B, L, H E). Blocks of 64 queries that are all padding yield zeros.
pub fn attention_biased(
    qkv: &Tensor,
    bias: &Tensor,
    factor: &Tensor,
    options: &AttentionOptions,
) -> Result<Tensor> {
    let (batch, length, width) = qkv.dims3()?;
    let (heads, rows, columns) = bias.dims3()?;
    let fits = heads == options.heads && rows == columns && rows >= length;
    if !fits || factor.elem_count() != 1 || options.block_masks.is_some() {
        let (qkv, bias, factor) = (qkv.shape(), bias.shape(), factor.shape());
        bail!("{NAME}: projections {qkv:?}, bias {bias:?} and factor {factor:?} do not fit");
    }
    let op = Attention::new(options, batch, (length, length), [width / 3; 3])?.self_attention();
    let [q, k, v] = Input::side_by_side(qkv);
    apply(Biased(op), [q, k, v, bias.into(), factor.into()])
}

struct Biased(Attention);

/// S with its factor.
#[derive(Clone, Copy)]
pub(super) struct Bias<'a> {
    data: &'a [f32],
    /// N.
    length: usize,
    factor: f32,
}

impl Bias<'_> {
    fn start(self, head: usize, (query, key): (usize, usize)) -> usize {
        (head * self.length + query) * self.length + key
    }

    /// Copies the numbers of `count` queries and `keys` keys from `first` on to a tile (keys,
    /// queries).
    pub(super) fn load(
        self,
        head: usize,
        first: (usize, usize),
        (count, keys): (usize, usize),
        tile: &mut [f32; SIDE * SIDE],
    ) {
        let rows = Rows {
            data: self.data,
            start: self.start(head, first),
            stride: self.length,
            width: keys,
        };
        pack_columns(rows, count, 1.0, tile);
    }

    /// Adds a tile of the bias to one of scores, which are in units of the base-2 logarithm.
    #[inline(always)]
    pub(super) fn add(
        self,
        tile: &[f32; SIDE * SIDE],
        keys: usize,
        scores: &mut [f32; SIDE * SIDE],
    ) {
        let factor = self.factor * std::f32::consts::LOG2_E;
        for (score, bias) in scores[..keys * SIDE].iter_mut().zip(tile) {
            *score += factor * bias;
        }
    }
}

/// Destination of the gradient of the bias.
#[derive(Clone, Copy)]
pub(super) struct BiasGradient<'a> {
    pub(super) bias: Bias<'a>,
    pub(super) to: &'a Shared<'a>,
}

impl BiasGradient<'_> {
    /// Adds the gradients of a tile of scores (keys, queries), and returns their share of the
    /// factor's gradient.
    ///
    /// # Safety
    /// No other task may touch the columns of these keys.
    pub(super) unsafe fn add(
        self,
        head: usize,
        (query, key): (usize, usize),
        (count, keys): (usize, usize),
        [tile, gradients]: [&[f32; SIDE * SIDE]; 2],
    ) -> f64 {
        for i in 0..count {
            let start = self.bias.start(head, (query + i, key));
            // SAFETY: by this function's contract.
            let row = unsafe { self.to.slice(start, keys) };
            for (x, gradients) in row.iter_mut().zip(gradients.chunks_exact(SIDE)) {
                *x += self.bias.factor * gradients[i];
            }
        }
        let rows = gradients.chunks_exact(SIDE).zip(tile.chunks_exact(SIDE));
        let sum = |(gradients, tile): (&[f32], &[f32])| {
            // Sixteen sums, so that they can be registers.
            let mut sums = [0.0f32; PAD];
            let columns = count.next_multiple_of(PAD);
            let groups = gradients[..columns].chunks_exact(PAD);
            for (gradients, tile) in groups.zip(tile.chunks_exact(PAD)) {
                for ((sum, gradient), bias) in sums.iter_mut().zip(gradients).zip(tile) {
                    *sum += gradient * bias;
                }
            }
            f64::from(sums.iter().sum::<f32>())
        };
        rows.take(keys).map(sum).sum()
    }
}

/// The operands are queries, keys, values, S and its factor.
impl CustomOp<5> for Biased {
    const NAME: &'static str = NAME;
    /// Base-2 logarithm of the sum of weights of each query, (B, H, L).
    type Saved = Vec<f32>;
    const READS_OUTPUT: bool = true;

    fn forward(&self, operands: [View; 5], _: bool) -> Result<(Vec<f32>, Shape, Self::Saved)> {
        let (args, _) = self.args(&operands)?;
        let (output, sums) = args.forward();
        Ok((output, args.output_shape(), sums))
    }

    fn backward(
        &self,
        operands: [View; 5],
        pass: BackwardPass<Self::Saved, 5>,
    ) -> Result<[Gradient; 5]> {
        let (args, bias) = self.args(&operands)?;
        let [q, k, v, ..] = operands;
        let mut gradients = GradientRows::new(&[q, k, v], |len| vec![0.0; len]);
        let mut dbias = vec![0.0; bias.data.len()];
        let to = Shared::new(&mut dbias);
        let dfactor = gradients.write(|targets| {
            let terms = TermGradients::ByPair(BiasGradient { bias, to: &to });
            args.dense_backward(&pass.saved, [pass.y, pass.dy], targets, Some(terms))
        });
        let [dq, dk, dv] = gradients.into_gradients();
        Ok([dq, dk, dv, dbias.into(), vec![dfactor as f32].into()])
    }
}

impl Biased {
    fn args<'a>(
        &'a self,
        [q, k, v, bias, factor]: &[View<'a>; 5],
    ) -> Result<(AttentionArgs<'a>, Bias<'a>)> {
        let bias = Bias {
            data: bias.data,
            length: bias.shape.dims3()?.1,
            factor: factor.data[0],
        };
        let mut args = self.0.args([q, k, v])?;
        args.score_mods.term = Some(Term::ByPair(bias));
        Ok((args, bias))
    }
}
