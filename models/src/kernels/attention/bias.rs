//! A learned bias of the scores, factor · S with S (H, N, N) shared by all examples; N may exceed the length.
//!
//! Gradients dS = factor Σ_b dscores and dfactor = Σ dscores S: only the gradient itself has the size of S.

use candle_core::{CpuStorage, CustomOp3, Layout, Result, Shape, Tensor, bail};

use super::{Attention, AttentionOptions, NAME};
use crate::kernels::buffers::{Shared, StridedRowsMut, floats, read, tensor};
use crate::kernels::tile::{PAD, Rows, SIDE, pack_columns};
use crate::kernels::triple::packed;

/// Attention within a sequence from packed projections (B, L, 3 H E) with scores q·k · scale + factor · bias, for `bias` (H, N, N) with
/// N at least L and a single number `factor`; yields (B, L, H E).
/// Blocks of 64 queries that are all padding yield zeros.
pub fn attention_biased(
    qkv: &Tensor,
    bias: &Tensor,
    factor: &Tensor,
    options: &AttentionOptions,
) -> Result<Tensor> {
    let (batch, length, width) = qkv.dims3()?;
    let (heads, rows, columns) = bias.dims3()?;
    let fits = heads == options.heads && rows == columns && rows >= length;
    if width % 3 != 0 || !fits || factor.elem_count() != 1 || options.block_masks.is_some() {
        let (qkv, bias, factor) = (qkv.shape(), bias.shape(), factor.shape());
        bail!("{NAME}: projections {qkv:?}, bias {bias:?} and factor {factor:?} do not fit");
    }
    let op = Attention::new(options, batch, (length, length), width / 3)?.within();
    let (bias, factor) = (bias.contiguous()?, factor.contiguous()?);
    qkv.contiguous()?.apply_op3(&bias, &factor, Biased(op))
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

    /// Copies the numbers of `count` queries and `keys` keys from `first` on to a tile (keys, queries).
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

/// Where the gradient of the bias goes.
#[derive(Clone, Copy)]
pub(super) struct BiasGradient<'a> {
    pub(super) bias: Bias<'a>,
    pub(super) to: &'a Shared<'a>,
}

impl BiasGradient<'_> {
    /// Adds the gradients of a tile of scores (keys, queries), and returns their share of the factor's gradient.
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

impl CustomOp3 for Biased {
    fn name(&self) -> &'static str {
        NAME
    }

    fn cpu_fwd(
        &self,
        qkv: &CpuStorage,
        qkv_layout: &Layout,
        bias: &CpuStorage,
        bias_layout: &Layout,
        factor: &CpuStorage,
        factor_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let (sizes, operands) = packed(qkv_layout.shape(), floats(NAME, qkv, qkv_layout)?)?;
        let mut problem = self.0.problem(sizes, operands);
        problem.bias = Some(Bias {
            data: floats(NAME, bias, bias_layout)?,
            length: bias_layout.shape().dims3()?.1,
            factor: floats(NAME, factor, factor_layout)?[0],
        });
        let shape = (problem.batch, problem.queries_len, problem.row()).into();
        Ok((CpuStorage::F32(self.0.attend(&problem)), shape))
    }

    fn bwd(
        &self,
        qkv: &Tensor,
        bias: &Tensor,
        factor: &Tensor,
        output: &Tensor,
        doutput: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let doutput = doutput.contiguous()?;
        let (shape, bias_shape, factor_shape) = (qkv.shape(), bias.shape(), factor.shape());
        let (qkv, bias, factor) = (read(NAME, qkv)?, read(NAME, bias)?, read(NAME, factor)?);
        let (output, doutput) = (read(NAME, output)?, read(NAME, &doutput)?);
        let (sizes, operands) = packed(shape, &qkv)?;
        let mut problem = self.0.problem(sizes, operands);
        let bias = Bias {
            data: &bias,
            length: bias_shape.dims3()?.1,
            factor: factor[0],
        };
        problem.bias = Some(bias);
        let (mut gradient, mut dbias) = (vec![0.0; qkv.len()], vec![0.0; bias.data.len()]);
        let (shared, to) = (Shared::new(&mut gradient), Shared::new(&mut dbias));
        let targets = operands.map(|operand| StridedRowsMut {
            buffer: &shared,
            start: operand.start,
            stride: operand.row,
        });
        let gradient_of_bias = Some(BiasGradient { bias, to: &to });
        let sums = self.0.sums()?;
        let dfactor =
            problem.dense_backward(sums, [&output, &doutput], targets, (gradient_of_bias, None));
        Ok((
            Some(tensor(gradient, shape)?),
            Some(tensor(dbias, bias_shape)?),
            Some(tensor(vec![dfactor as f32], factor_shape)?),
        ))
    }
}
