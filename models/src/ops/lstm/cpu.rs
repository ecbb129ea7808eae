//! The recurrence of an LSTM, [`ROWS`] sequences at a time from the first position to the last: a
//! product of their h with W at each, and the gates.
//!
//! σ(i), σ(f), tanh(g), σ(o) and c are kept. With dz the gradient of the gates' inputs, which is
//! that of x: dh_(t-1) = Wᵀ dz_t, dc_(t-1) = σ(f_t) dc_t, dW = Σ_t dz_t h_(t-1)ᵀ.

use candle_core::{Result, Shape, Tensor, bail};
use lra_cpu::buffers::{Shared, add, sum_partials, unspecified};
use lra_cpu::gemm::{Matrix, PackedMatrix, multiply, multiply_packed};
use lra_cpu::isa::Isa;
use lra_cpu::math::sigmoid;
use lra_cpu::scratch::Scratch;
use lra_cpu::simd::{Kernel, Lanes};
use rayon::prelude::*;

use crate::autograd::{BackwardPass, CustomOp, Gradient, Input, View, apply};

const NAME: &str = "lstm";
/// Sequences of one task.
const ROWS: usize = 8;

/// Returns all h (B, L, H) of x (B, L, 4 H) and W (4 H, H); `real` (B, L) is 0 where there is
/// padding.
/// # Errors
/// If shapes do not fit.
pub(crate) fn lstm(
    x: &Tensor,
    weight: &Tensor,
    reverse: bool,
    real: Option<&Tensor>,
) -> Result<Tensor> {
    let operands: [Input; 3] = [x.into(), weight.into(), real.into()];
    apply(Lstm { reverse }, operands)
}

struct Lstm {
    reverse: bool,
}

#[derive(Clone, Copy)]
struct Sizes {
    batch: usize,
    length: usize,
    /// H.
    width: usize,
}

impl Sizes {
    fn new([x, weight, _]: &[View; 3]) -> Result<Self> {
        let ((batch, length, row), (rows, width)) = (x.shape.dims3()?, weight.shape.dims2()?);
        if width == 0 || rows != 4 * width || row != rows {
            bail!("{NAME}: {:?} and {:?} do not fit", x.shape, weight.shape);
        }
        Ok(Self {
            batch,
            length,
            width,
        })
    }

    /// Returns the first sequence of each task, and how many they are.
    fn tasks(self) -> Vec<(usize, usize)> {
        let starts = (0..self.batch).step_by(ROWS);
        starts
            .map(|start| (start, ROWS.min(self.batch - start)))
            .collect()
    }

    /// Returns the numbers that are kept of a position: four gates and c.
    fn kept(self) -> usize {
        5 * self.width
    }
}

impl Lstm {
    /// Returns positions in the order of the recurrence.
    fn positions(&self, length: usize) -> impl DoubleEndedIterator<Item = usize> + use<> {
        let reverse = self.reverse;
        (0..length).map(move |step| if reverse { length - 1 - step } else { step })
    }

    /// Returns the position before `t`, if there is one.
    fn before(&self, t: usize, length: usize) -> Option<usize> {
        match self.reverse {
            true => Some(t + 1).filter(|t| *t < length),
            false => t.checked_sub(1),
        }
    }
}

/// Writes gates and c, and the new h, of inputs z (4 H) and the c before.
struct Step<'a> {
    width: usize,
    z: &'a [f32],
    c: &'a mut [f32],
    h: &'a mut [f32],
    /// (5 H).
    kept: &'a mut [f32],
}

#[inline(always)]
fn tanh<S: Lanes>(s: S, x: S::f32s) -> S::f32s {
    let double = sigmoid(s, s.add_f32s(x, x));
    s.sub_f32s(s.add_f32s(double, double), s.splat_f32s(1.0))
}

impl Kernel for Step<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let width = self.width;
        for first in (0..width).step_by(S::F32_LANES) {
            let count = S::F32_LANES.min(width - first);
            let at = |part: usize| part * width + first..part * width + first + count;
            let i = sigmoid(s, s.load(&self.z[at(0)]));
            let f = sigmoid(s, s.load(&self.z[at(1)]));
            let g = tanh(s, s.load(&self.z[at(2)]));
            let o = sigmoid(s, s.load(&self.z[at(3)]));
            let c = s.fma(f, s.load(&self.c[at(0)]), s.mul_f32s(i, g));
            s.store(&mut self.c[at(0)], c);
            s.store(&mut self.h[at(0)], s.mul_f32s(o, tanh(s, c)));
            for (part, number) in [i, f, g, o, c].into_iter().enumerate() {
                s.store(&mut self.kept[at(part)], number);
            }
        }
    }
}

/// Writes dz (4 H) of dh and dc, which becomes that of the c before.
struct StepBackward<'a> {
    width: usize,
    /// (5 H).
    kept: &'a [f32],
    /// The c before, zeros if empty.
    before: &'a [f32],
    dh: &'a [f32],
    dc: &'a mut [f32],
    dz: &'a mut [f32],
}

impl Kernel for StepBackward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let (width, one) = (self.width, s.splat_f32s(1.0));
        for first in (0..width).step_by(S::F32_LANES) {
            let count = S::F32_LANES.min(width - first);
            let at = |part: usize| part * width + first..part * width + first + count;
            let i = s.load(&self.kept[at(0)]);
            let f = s.load(&self.kept[at(1)]);
            let g = s.load(&self.kept[at(2)]);
            let o = s.load(&self.kept[at(3)]);
            let squashed = tanh(s, s.load(&self.kept[at(4)]));
            let before = match self.before.is_empty() {
                true => s.splat_f32s(0.0),
                false => s.load(&self.before[at(0)]),
            };
            let dh = s.load(&self.dh[at(0)]);
            let through = s.mul_f32s(dh, o);
            let flat = s.sub_f32s(one, s.mul_f32s(squashed, squashed));
            let dc = s.fma(through, flat, s.load(&self.dc[at(0)]));
            let of_gate = |gradient, gate| {
                let slope = s.mul_f32s(gate, s.sub_f32s(one, gate));
                s.mul_f32s(gradient, slope)
            };
            let slope = s.sub_f32s(one, s.mul_f32s(g, g));
            let dz = [
                of_gate(s.mul_f32s(dc, g), i),
                of_gate(s.mul_f32s(dc, before), f),
                s.mul_f32s(s.mul_f32s(dc, i), slope),
                of_gate(s.mul_f32s(dh, squashed), o),
            ];
            for (part, number) in dz.into_iter().enumerate() {
                s.store(&mut self.dz[at(part)], number);
            }
            s.store(&mut self.dc[at(0)], s.mul_f32s(dc, f));
        }
    }
}

impl CustomOp<3> for Lstm {
    const NAME: &'static str = NAME;
    const READS_OUTPUT: bool = true;
    /// (B, L, 5 H): the gates and c.
    type Saved = Vec<f32>;

    fn forward(&self, operands: [View; 3], keeps: bool) -> Result<(Vec<f32>, Shape, Vec<f32>)> {
        let sizes = Sizes::new(&operands)?;
        let Sizes {
            batch,
            length,
            width,
        } = sizes;
        let [x, weight, real] = &operands;
        let isa = Isa::current();
        let packed =
            PackedMatrix::new(isa, Matrix::columns(weight.data, width), (width, 4 * width));
        let mut y = unspecified(batch * length * width);
        let mut saved = unspecified(if keeps {
            batch * length * sizes.kept()
        } else {
            0
        });
        let (y_out, saved_out) = (Shared::new(&mut y), Shared::new(&mut saved));
        sizes.tasks().into_par_iter().for_each(|(start, rows)| {
            let mut h = Scratch::zeros(rows * width);
            let mut c = Scratch::zeros(rows * width);
            let mut z = Scratch::unspecified(rows * 4 * width);
            let mut unsaved = Scratch::unspecified(sizes.kept());
            for t in self.positions(length) {
                for (row, z) in z.chunks_exact_mut(4 * width).enumerate() {
                    let at = ((start + row) * length + t) * 4 * width;
                    z.copy_from_slice(&x.data[at..at + 4 * width]);
                }
                multiply_packed(isa, rows, Matrix::rows(&h, width), &packed, &mut z, true);
                for (row, z) in z.chunks_exact(4 * width).enumerate() {
                    let place = (start + row) * length + t;
                    let of_row = row * width..(row + 1) * width;
                    let kept = match keeps {
                        // SAFETY: sequences belong to one task.
                        true => unsafe { saved_out.slice(place * sizes.kept(), sizes.kept()) },
                        false => &mut unsaved[..],
                    };
                    let (h, c) = (&mut h[of_row.clone()], &mut c[of_row]);
                    if real.given().is_none_or(|real| real[place] != 0.0) {
                        isa.run(Step {
                            width,
                            z,
                            c,
                            h,
                            kept,
                        });
                    } else {
                        let (gates, cell) = kept.split_at_mut(4 * width);
                        gates.fill(0.0);
                        cell.copy_from_slice(c);
                    }
                    // SAFETY: as above.
                    unsafe { y_out.slice(place * width, width) }.copy_from_slice(h);
                }
            }
        });
        Ok((y, Shape::from((batch, length, width)), saved))
    }

    fn backward(
        &self,
        operands: [View; 3],
        pass: BackwardPass<Vec<f32>, 3>,
    ) -> Result<[Gradient; 3]> {
        let sizes = Sizes::new(&operands)?;
        let Sizes {
            batch,
            length,
            width,
        } = sizes;
        let [_, weight, real] = &operands;
        let isa = Isa::current();
        let packed = PackedMatrix::new(isa, Matrix::rows(weight.data, width), (4 * width, width));
        let mut dx = unspecified(batch * length * 4 * width);
        let tasks = sizes.tasks();
        let mut partials = vec![0.0; tasks.len() * 4 * width * width];
        let dx_out = Shared::new(&mut dx);
        let of_weight = partials.par_chunks_mut((4 * width * width).max(1));
        tasks
            .into_par_iter()
            .zip(of_weight)
            .for_each(|((start, rows), dweight)| {
                let mut dh = Scratch::zeros(rows * width);
                let mut dc = Scratch::zeros(rows * width);
                let mut passed = Scratch::unspecified(rows * width);
                let mut dz = Scratch::unspecified(rows * 4 * width);
                for t in self.positions(length).rev() {
                    let place = |row: usize| (start + row) * length + t;
                    let is_real =
                        |row: usize| real.given().is_none_or(|real| real[place(row)] != 0.0);
                    let before = self.before(t, length);
                    for (row, dz) in dz.chunks_exact_mut(4 * width).enumerate() {
                        let of_row = row * width..(row + 1) * width;
                        let (dh, dc) = (&mut dh[of_row.clone()], &mut dc[of_row]);
                        add(&pass.dy[place(row) * width..][..width], dh);
                        let kept = |t: usize| {
                            let at = ((start + row) * length + t) * sizes.kept();
                            &pass.saved[at..at + sizes.kept()]
                        };
                        if is_real(row) {
                            isa.run(StepBackward {
                                width,
                                kept: kept(t),
                                before: before.map_or(&[][..], |t| &kept(t)[4 * width..]),
                                dh,
                                dc,
                                dz,
                            });
                        } else {
                            dz.fill(0.0);
                        }
                        // SAFETY: sequences belong to one task.
                        let dx = unsafe { dx_out.slice(place(row) * 4 * width, 4 * width) };
                        dx.copy_from_slice(dz);
                    }
                    multiply_packed(
                        isa,
                        rows,
                        Matrix::rows(&dz, 4 * width),
                        &packed,
                        &mut passed,
                        false,
                    );
                    for (row, passed) in passed.chunks_exact(width).enumerate() {
                        if is_real(row) {
                            dh[row * width..(row + 1) * width].copy_from_slice(passed);
                        }
                    }
                }
                if length < 2 {
                    return;
                }
                // Rows of dz beside those of h at the position before.
                let (of_z, of_h) = if self.reverse { (0, 1) } else { (1, 0) };
                for sequence in start..start + rows {
                    // SAFETY: as above.
                    let dz = unsafe {
                        let first = (sequence * length + of_z) * 4 * width;
                        dx_out.slice(first, (length - 1) * 4 * width)
                    };
                    let h = &pass.y[(sequence * length + of_h) * width..][..(length - 1) * width];
                    let (dz, h) = (Matrix::columns(dz, 4 * width), Matrix::rows(h, width));
                    multiply(isa, (4 * width, width, length - 1), dz, h, dweight, true);
                }
            });
        let dweight = sum_partials(&partials, 4 * width * width);
        Ok([dx.into(), dweight.into(), Gradient::Nothing])
    }
}
