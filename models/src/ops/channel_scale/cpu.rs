//! Channels times one number each, y = λ ⊙ x, or y = r + λ ⊙ x; λ has a number for each channel, or
//! one for all.
//!
//! dx = λ ⊙ dy and dλ = Σ dy ⊙ x over all rows: over those of a block first, then over blocks in
//! order.

use candle_core::{Result, Shape, Tensor, bail};
use lra_cpu::buffers::{split_mut, sum_partials, unspecified};
use rayon::prelude::*;

use crate::autograd::{BackwardPass, CustomOp, Gradient, View, apply};

/// Rows of a block.
const ROWS: usize = 64;

/// Multiplies x (.., D) by `scale` (D) or (1), and adds `residual` (.., D) if there is one.
pub fn scale_channels(residual: Option<&Tensor>, x: &Tensor, scale: &Tensor) -> Result<Tensor> {
    let width = x.dims().last().copied().unwrap_or(0);
    let fits = residual.is_none_or(|residual| residual.dims() == x.dims());
    if !fits || width == 0 || !matches!(scale.dims(), [count] if *count == 1 || *count == width) {
        let (x, scale, residual) = (x.shape(), scale.shape(), residual.map(Tensor::shape));
        let name = ChannelScale::NAME;
        bail!("{name}: x {x:?}, scale {scale:?} and residual {residual:?} do not fit");
    }
    apply(ChannelScale, [residual, Some(x), Some(scale)])
}

struct ChannelScale;

/// Returns a number for each channel of x.
fn of_channels(x: &View, scale: &View) -> Vec<f32> {
    let width = x.shape.dims().last().copied().unwrap_or(1);
    scale.data.iter().copied().cycle().take(width).collect()
}

/// Writes rows of y, λ ⊙ x.
fn scale_rows(scale: &[f32], x: &[f32], y: &mut [f32]) {
    let width = scale.len();
    for (y, x) in y.chunks_exact_mut(width).zip(x.chunks_exact(width)) {
        let pairs = x.iter().zip(scale);
        y.iter_mut().zip(pairs).for_each(|(y, (x, s))| *y = x * s);
    }
}

/// Operands: a residual, where there is one, x and λ.
impl CustomOp<3> for ChannelScale {
    const NAME: &'static str = "scale_channels";
    type Saved = ();

    fn forward(&self, [residual, x, scale]: [View; 3], _: bool) -> Result<(Vec<f32>, Shape, ())> {
        let scale = of_channels(&x, &scale);
        let size = ROWS * scale.len();
        let mut y = unspecified(x.data.len());
        let blocks = y.par_chunks_mut(size).zip(x.data.par_chunks(size));
        blocks.enumerate().for_each(|(block, (y, x))| {
            scale_rows(&scale, x, y);
            if let Some(residual) = residual.given() {
                let residual = &residual[block * size..][..y.len()];
                y.iter_mut().zip(residual).for_each(|(y, r)| *y += r);
            }
        });
        Ok((y, x.shape, ()))
    }

    fn backward(
        &self,
        [_, x, scale]: [View; 3],
        pass: BackwardPass<(), 3>,
    ) -> Result<[Gradient; 3]> {
        let (scales, dy) = (of_channels(&x, &scale), pass.dy);
        let width = scales.len();
        let size = ROWS * width;
        let [_, of_x, of_scale] = pass.expected;
        let dx = of_x.then(|| {
            let mut dx = unspecified(dy.len());
            let blocks = dx.par_chunks_mut(size).zip(dy.par_chunks(size));
            blocks.for_each(|(dx, dy)| scale_rows(&scales, dy, dx));
            dx
        });
        let dscale = of_scale.then(|| {
            let count = dy.len().div_ceil(size);
            let mut partials = vec![0.0; count * width];
            let sums = split_mut(&mut partials, width, count);
            let blocks = dy.par_chunks(size).zip(x.data.par_chunks(size));
            sums.into_par_iter()
                .zip(blocks)
                .for_each(|(sums, (dy, x))| {
                    for (dy, x) in dy.chunks_exact(width).zip(x.chunks_exact(width)) {
                        let pairs = dy.iter().zip(x);
                        sums.iter_mut()
                            .zip(pairs)
                            .for_each(|(s, (a, b))| *s += a * b);
                    }
                });
            let sums = sum_partials(&partials, width);
            match scale.data.len() {
                1 => vec![sums.iter().copied().map(f64::from).sum::<f64>() as f32],
                _ => sums,
            }
        });
        Ok([Gradient::PassThrough, dx.into(), dscale.into()])
    }
}
