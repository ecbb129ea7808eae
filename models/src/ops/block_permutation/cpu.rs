//! Blocks of positions as weighted sums of blocks: y_bush = Σ_w P_bhuw x_bwsh for block u of
//! example b, place s within the block and head h. Sinkhorn attention calls this sorting; P may
//! also be far from a permutation.
//!
//! dx_bwsh = Σ_u P_bhuw dy_bush and dP_bhuw = Σ_s dy_bush·x_bwsh.

use candle_core::{Result, Shape, Tensor, bail};
use lra_cpu::buffers::{Shared, add, unspecified};
use lra_cpu::gemm::{Matrix, multiply};
use lra_cpu::isa::Isa;
use lra_cpu::scratch::Scratch;
use lra_cpu::workspaces::Workspaces;
use rayon::prelude::*;

use crate::autograd::{BackwardPass, CustomOp, Gradient, View, apply};

const NAME: &str = "mixing";

/// Maps weights P (B, H, U, W) and x (B, W S, H E), W blocks of `block` positions, to (B, U S, H
/// E).
///
/// # Errors
/// If shapes do not fit.
pub fn permute_blocks(weights: &Tensor, x: &Tensor, block: usize) -> Result<Tensor> {
    mix(weights, x, block, false)
}

/// Returns the mixed blocks, and behind them x itself: (B, (U + W) S, H E).
///
/// # Errors
/// If shapes do not fit.
pub fn permute_blocks_packed(weights: &Tensor, x: &Tensor, block: usize) -> Result<Tensor> {
    mix(weights, x, block, true)
}

fn mix(weights: &Tensor, x: &Tensor, block: usize, beside: bool) -> Result<Tensor> {
    let ((batch, heads, _, blocks), (examples, length, row)) = (weights.dims4()?, x.dims3()?);
    if batch != examples || heads == 0 || blocks * block != length || row % heads != 0 {
        let (weights, x) = (weights.shape(), x.shape());
        bail!("{NAME}: weights {weights:?} and x {x:?} in blocks of {block} do not fit");
    }
    apply(Mixing { block, beside }, [weights, x])
}

struct Mixing {
    block: usize,
    /// True if the result holds x after the mixed blocks.
    beside: bool,
}

#[derive(Clone, Copy)]
struct Sizes {
    batch: usize,
    heads: usize,
    /// U.
    outputs: usize,
    /// W.
    inputs: usize,
    block: usize,
    /// E.
    width: usize,
    /// Blocks that follow those which are mixed: 0 or W.
    beside: usize,
}

impl Mixing {
    fn sizes(&self, weights: &Shape, x: &Shape) -> Result<Sizes> {
        let (batch, heads, outputs, inputs) = weights.dims4()?;
        Ok(Sizes {
            batch,
            heads,
            outputs,
            inputs,
            block: self.block,
            width: x.dims3()?.2 / heads,
            beside: if self.beside { inputs } else { 0 },
        })
    }
}

impl Sizes {
    /// Returns the distance between the same place of neighbouring blocks.
    fn stride(self) -> usize {
        self.block * self.heads * self.width
    }

    /// Returns the start of a place of the first block of one head, in a tensor of `blocks` blocks.
    fn start(self, head: usize, blocks: usize, place: usize) -> usize {
        head / self.heads * blocks * self.stride()
            + place * self.heads * self.width
            + head % self.heads * self.width
    }

    /// Hands blocks of one head, each as one row, to their places: `write(to, from)` for the rows
    /// of places.
    ///
    /// # Safety
    /// No other reference may exist to the head's columns of its example's first blocks.
    unsafe fn scatter(
        self,
        rows: &[f32],
        head: usize,
        (to, total): (&Shared, usize),
        write: impl Fn(&mut [f32], &[f32]),
    ) {
        for (index, x) in rows.chunks_exact(self.width.max(1)).enumerate() {
            let (block, place) = (index / self.block, index % self.block);
            let start = self.start(head, total, place) + block * self.stride();
            // SAFETY: by this function's contract.
            write(unsafe { to.slice(start, self.width) }, x);
        }
    }

    /// Returns the first `count` blocks of one head, each as one row: one large product instead of
    /// one per place.
    fn gather(self, Blocks { data, total }: Blocks, head: usize, count: usize) -> Scratch {
        let mut rows = Scratch::unspecified(count * self.block * self.width);
        for (index, row) in rows.chunks_exact_mut(self.width.max(1)).enumerate() {
            let (block, place) = (index / self.block, index % self.block);
            let start = self.start(head, total, place) + block * self.stride();
            row.copy_from_slice(&data[start..start + self.width]);
        }
        rows
    }
}

/// A tensor with this many blocks in an example.
#[derive(Clone, Copy)]
struct Blocks<'a> {
    data: &'a [f32],
    total: usize,
}

impl CustomOp<2> for Mixing {
    const NAME: &'static str = NAME;
    type Saved = ();

    fn forward(&self, [weights, x]: [View; 2], _: bool) -> Result<(Vec<f32>, Shape, ())> {
        let sizes = self.sizes(&weights.shape, &x.shape)?;
        let (weights, x) = (weights.data, x.data);
        let (outputs, inputs) = (sizes.outputs, sizes.inputs);
        let total = outputs + sizes.beside;
        let mut y = unspecified(sizes.batch * total * sizes.stride());
        if sizes.beside > 0 {
            let examples = y.par_chunks_mut((total * sizes.stride()).max(1));
            let x = x.par_chunks((inputs * sizes.stride()).max(1));
            examples
                .zip(x)
                .for_each(|(y, x)| y[outputs * sizes.stride()..].copy_from_slice(x));
        }
        let x = Blocks {
            data: x,
            total: inputs,
        };
        let (isa, shared) = (Isa::current(), Shared::new(&mut y));
        let row = sizes.block * sizes.width;
        let heads = (0..sizes.batch * sizes.heads).into_par_iter();
        let workspaces = Workspaces::new(heads.len(), || ());
        heads.for_each(|head| {
            workspaces.lend(|()| {
                let weights = &weights[head * outputs * inputs..][..outputs * inputs];
                let weights = Matrix::rows(weights, inputs);
                let x = sizes.gather(x, head, inputs);
                let x = Matrix::rows(&x, row);
                let mut mixed = Scratch::unspecified(outputs * row);
                multiply(isa, (outputs, row, inputs), weights, x, &mut mixed, false);
                // SAFETY: this task alone has its head's columns of its example's rows.
                unsafe { sizes.scatter(&mixed, head, (&shared, total), <[f32]>::copy_from_slice) };
            })
        });
        let row = sizes.heads * sizes.width;
        Ok((y, (sizes.batch, total * sizes.block, row).into(), ()))
    }

    fn backward(
        &self,
        [weights, x]: [View; 2],
        pass: BackwardPass<(), 2>,
    ) -> Result<[Gradient; 2]> {
        let sizes = self.sizes(&weights.shape, &x.shape)?;
        let (weights, x, dy) = (weights.data, x.data, pass.dy);
        let (outputs, inputs, width) = (sizes.outputs, sizes.inputs, sizes.width);
        let total = outputs + sizes.beside;
        let mut dx = vec![0.0; x.len()];
        if sizes.beside > 0 {
            let examples = dx.par_chunks_mut((inputs * sizes.stride()).max(1));
            let dy = dy.par_chunks((total * sizes.stride()).max(1));
            examples
                .zip(dy)
                .for_each(|(dx, dy)| dx.copy_from_slice(&dy[outputs * sizes.stride()..]));
        }
        let dy = Blocks { data: dy, total };
        let x = Blocks {
            data: x,
            total: inputs,
        };
        let mut dweights = unspecified(weights.len());
        let (isa, shared) = (Isa::current(), Shared::new(&mut dx));
        let row = sizes.block * width;
        if outputs * inputs > 0 {
            let heads = dweights.par_chunks_mut(outputs * inputs).enumerate();
            let workspaces = Workspaces::new(heads.len(), || ());
            heads.for_each(|(head, dweights)| {
                workspaces.lend(|()| {
                    let dy = sizes.gather(dy, head, outputs);
                    let x = sizes.gather(x, head, inputs);
                    multiply(
                        isa,
                        (outputs, inputs, row),
                        Matrix::rows(&dy, row),
                        Matrix::columns(&x, row),
                        dweights,
                        false,
                    );
                    let weights = &weights[head * outputs * inputs..][..outputs * inputs];
                    let weights = Matrix::columns(weights, inputs);
                    let dy = Matrix::rows(&dy, row);
                    // The buffer of x is free to be overwritten: its contents have been read.
                    let mut mixed = x;
                    multiply(isa, (inputs, row, outputs), weights, dy, &mut mixed, false);
                    // SAFETY: this task alone has its head's columns of its example's rows.
                    unsafe { sizes.scatter(&mixed, head, (&shared, inputs), |to, x| add(x, to)) };
                })
            });
        }
        Ok([dweights.into(), dx.into()])
    }
}
