//! The recurrence of pairs in f32, one position after the other. With the gradient g_t = dh_t + Mᵀ
//! g_(t+1) of the pair h_t, dx_t = g_t and dM = Σ_t g_t h_(t-1)ᵀ.
//!
//! The loops are plain, and compiled for each instruction set: no sum is split, nothing is fused.

use candle_core::{Result, Shape, Tensor};
use lra_cpu::buffers::{Shared, sum_partials};
use lra_cpu::isa::Isa;
use lra_cpu::simd::{Kernel, Lanes};
use rayon::prelude::*;

use crate::autograd::{BackwardPass, CustomOp, Gradient, View, apply};

/// Columns of one task.
const COLUMNS: usize = 32;

/// Returns pairs (B, L, 2 W) of x (B, L, 2 W) and m (4, W).
///
/// # Errors
/// If a tensor is not in main memory or of another type.
pub(crate) fn pair_scan(x: &Tensor, m: &Tensor) -> Result<Tensor> {
    apply(PairScan, [x, m])
}

struct PairScan;

/// Sizes of a scan.
#[derive(Clone, Copy)]
struct Sizes {
    batch: usize,
    length: usize,
    /// W.
    width: usize,
}

impl Sizes {
    fn of(x: &Shape) -> Result<Self> {
        let (batch, length, row) = x.dims3()?;
        Ok(Self {
            batch,
            length,
            width: row / 2,
        })
    }

    /// Runs `task` for every sequence and group of columns.
    fn tasks(self, task: impl Fn(Task) + Sync) {
        let groups = self.width.div_ceil(COLUMNS);
        let tasks = (0..self.batch * groups).into_par_iter();
        tasks.for_each(|index| {
            let first = index % groups * COLUMNS;
            task(Task {
                sizes: self,
                sequence: index / groups,
                first,
                count: COLUMNS.min(self.width - first),
            });
        });
    }
}

/// A group of columns of a sequence.
#[derive(Clone, Copy)]
struct Task {
    sizes: Sizes,
    sequence: usize,
    first: usize,
    count: usize,
}

impl Task {
    /// Returns where p and q of position t begin.
    #[inline(always)]
    fn places(self, t: usize) -> [usize; 2] {
        let Sizes { length, width, .. } = self.sizes;
        let start = (self.sequence * length + t) * 2 * width + self.first;
        [start, start + width]
    }

    /// Returns p and q of position t.
    #[inline(always)]
    fn pair(self, from: &[f32], t: usize) -> [&[f32]; 2] {
        self.places(t).map(|place| &from[place..][..self.count])
    }

    /// Returns the rows of the matrices.
    #[inline(always)]
    fn matrices(self, m: &[f32]) -> [&[f32]; 4] {
        let Task { first, count, .. } = self;
        [0, 1, 2, 3].map(|row| &m[row * self.sizes.width + first..][..count])
    }
}

impl CustomOp<2> for PairScan {
    const NAME: &'static str = "scan of pairs";
    type Saved = ();
    const READS_OUTPUT: bool = true;

    fn forward(&self, [x, m]: [View; 2], _: bool) -> Result<(Vec<f32>, Shape, ())> {
        let (sizes, isa) = (Sizes::of(&x.shape)?, Isa::current());
        let mut h = vec![0.0; x.data.len()];
        let out = Shared::new(&mut h);
        sizes.tasks(|task| {
            isa.run(Forward {
                task,
                x: x.data,
                m: m.data,
                h: &out,
            });
        });
        Ok((h, x.shape, ()))
    }

    fn backward(&self, [x, m]: [View; 2], pass: BackwardPass<(), 2>) -> Result<[Gradient; 2]> {
        let (sizes, isa) = (Sizes::of(&x.shape)?, Isa::current());
        let mut dx = vec![0.0; pass.dy.len()];
        // A partial sum for each sequence.
        let mut dm = vec![0.0; sizes.batch * 4 * sizes.width];
        let (dx_out, dm_out) = (Shared::new(&mut dx), Shared::new(&mut dm));
        sizes.tasks(|task| {
            isa.run(Backward {
                task,
                m: m.data,
                h: pass.y,
                dh: pass.dy,
                dx: &dx_out,
                dm: &dm_out,
            });
        });
        Ok([dx.into(), sum_partials(&dm, 4 * sizes.width).into()])
    }
}

struct Forward<'a> {
    task: Task,
    x: &'a [f32],
    m: &'a [f32],
    h: &'a Shared<'a>,
}

impl Kernel for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, _: S) {
        let task = self.task;
        let [pp, pq, qp, qq] = task.matrices(self.m);
        let mut h = [[0.0; COLUMNS]; 2];
        for t in 0..task.sizes.length {
            let [x, y] = task.pair(self.x, t);
            // SAFETY: the columns of a sequence belong to one task.
            let [p, q] = task
                .places(t)
                .map(|place| unsafe { self.h.slice(place, task.count) });
            for j in 0..task.count {
                let [a, b] = [h[0][j], h[1][j]];
                h[0][j] = pp[j] * a + pq[j] * b + x[j];
                h[1][j] = qp[j] * a + qq[j] * b + y[j];
                (p[j], q[j]) = (h[0][j], h[1][j]);
            }
        }
    }
}

struct Backward<'a> {
    task: Task,
    m: &'a [f32],
    h: &'a [f32],
    dh: &'a [f32],
    dx: &'a Shared<'a>,
    /// (B, 4, W).
    dm: &'a Shared<'a>,
}

impl Kernel for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, _: S) {
        let task = self.task;
        let [pp, pq, qp, qq] = task.matrices(self.m);
        let mut g = [[0.0; COLUMNS]; 2];
        let mut sums = [[0.0; COLUMNS]; 4];
        for t in (0..task.sizes.length).rev() {
            let [x, y] = task.pair(self.dh, t);
            // SAFETY: the columns of a sequence belong to one task.
            let [dp, dq] = task
                .places(t)
                .map(|place| unsafe { self.dx.slice(place, task.count) });
            for j in 0..task.count {
                let [a, b] = [g[0][j], g[1][j]];
                // Of the pair behind, through the matrix; none at the last position.
                g[0][j] = x[j] + pp[j] * a + qp[j] * b;
                g[1][j] = y[j] + pq[j] * a + qq[j] * b;
                (dp[j], dq[j]) = (g[0][j], g[1][j]);
            }
            let Some(before) = t.checked_sub(1) else {
                continue;
            };
            let [p, q] = task.pair(self.h, before);
            for j in 0..task.count {
                sums[0][j] += g[0][j] * p[j];
                sums[1][j] += g[0][j] * q[j];
                sums[2][j] += g[1][j] * p[j];
                sums[3][j] += g[1][j] * q[j];
            }
        }
        for (row, sum) in sums.iter().enumerate() {
            let place = (4 * task.sequence + row) * task.sizes.width + task.first;
            // SAFETY: as above.
            let out = unsafe { self.dm.slice(place, task.count) };
            out.copy_from_slice(&sum[..task.count]);
        }
    }
}
