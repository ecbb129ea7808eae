//! The linear recurrence h_t = a_t h_{t-1} + x_t along a sequence, element by element, for real and
//! complex numbers.
//!
//! x and h are (B, L, W); a is (B, L, W), or (W) where it does not change along the sequence. Of
//! complex numbers, the real parts are the first W/2 columns and the imaginary parts the rest. One
//! pass per direction: with the gradient g_t = dh_t + ā_{t+1} g_{t+1} of h_t as a whole, dx_t = g_t
//! and da_t = g_t h̄_{t-1}. The bar is the complex conjugate; gradients are those of the real plus
//! i times those of the imaginary part.

use std::ops::Range;
use std::sync::Arc;

use candle_core::{Result, Shape, Tensor, bail};
use lra_cpu::buffers::{Shared, sum_partials, unspecified};
use lra_cpu::isa::Isa;
use lra_cpu::simd::{Kernel, Lanes};
use rayon::prelude::*;

use crate::autograd::{BackwardPass, CustomOp, Gradient, View, apply};

const NAME: &str = "scan";
/// Columns of one task: a cache line of each row.
const COLUMNS: usize = 16;

/// Options of [`scan`].
#[derive(Clone, Debug)]
pub(crate) struct Scan {
    /// True if elements are complex.
    pub(crate) complex: bool,
    /// True for a scan from the last row to the first.
    pub(crate) reverse: bool,
    /// Offsets of packed sequences, x being (1, T, W): the row where each begins, and the end of
    /// the last one.
    pub(crate) offsets: Option<Arc<[usize]>>,
}

/// Returns h (B, L, W) of x (B, L, W) and a (W) or (B, L, W).
///
/// # Errors
/// If shapes do not fit.
pub(crate) fn scan(x: &Tensor, a: &Tensor, options: Scan) -> Result<Tensor> {
    apply(options, [x, a])
}

/// Layout of a tensor for the scan.
#[derive(Clone)]
pub(in crate::ops) struct Sizes {
    /// Rows of each sequence.
    sequences: Vec<Range<usize>>,
    width: usize,
    /// Columns of the real parts.
    columns: usize,
    /// True if a is (B, L, W).
    varies: bool,
}

impl Scan {
    /// Returns the layout of x.
    ///
    /// # Errors
    /// If shapes do not fit.
    pub(in crate::ops) fn sizes(&self, x: &Shape, a: &Shape) -> Result<Sizes> {
        let (batch, length, width) = x.dims3()?;
        let sequences: Vec<Range<usize>> = match &self.offsets {
            Some(offsets) => offsets.windows(2).map(|pair| pair[0]..pair[1]).collect(),
            None => (0..batch).map(|b| b * length..(b + 1) * length).collect(),
        };
        let rows: usize = sequences.iter().map(Range::len).sum();
        if rows != batch * length || sequences.iter().any(|rows| rows.end > batch * length) {
            bail!("{NAME}: x {x:?} is not packed as offsets say");
        }
        let varies = a.dims() == x.dims();
        if !varies && a.dims() != [width] || self.complex && width % 2 != 0 {
            bail!("{NAME}: x {x:?} and coefficients {a:?} do not fit");
        }
        let columns = if self.complex { width / 2 } else { width };
        Ok(Sizes {
            sequences,
            width,
            columns,
            varies,
        })
    }

    /// Runs `task` for every example and every group of columns.
    fn tasks(&self, sizes: &Sizes, task: impl Fn(ScanOrder) + Sync) {
        let groups = sizes.columns.div_ceil(COLUMNS);
        let tasks = (0..sizes.sequences.len() * groups).into_par_iter();
        tasks.for_each(|index| {
            let first = index % groups * COLUMNS;
            task(ScanOrder {
                sizes,
                example: index / groups,
                columns: first..(first + COLUMNS).min(sizes.columns),
                reverse: self.reverse,
            });
        });
    }

    /// Returns h of x and a.
    pub(in crate::ops) fn states(&self, sizes: &Sizes, x: &[f32], a: &[f32]) -> Vec<f32> {
        let isa = Isa::current();
        let mut h = unspecified(x.len());
        let out = Shared::new(&mut h);
        self.tasks(sizes, |order| match self.complex {
            true => isa.run(Forward::<true> {
                order,
                x,
                a,
                h: &out,
            }),
            false => isa.run(Forward::<false> {
                order,
                x,
                a,
                h: &out,
            }),
        });
        h
    }

    /// Returns gradients of x and a, given that of h.
    pub(in crate::ops) fn gradients(
        &self,
        sizes: &Sizes,
        a: &[f32],
        h: &[f32],
        dh: &[f32],
    ) -> [Vec<f32>; 2] {
        let isa = Isa::current();
        let mut dx = unspecified(h.len());
        // If a does not vary, there is one partial sum for each example.
        let mut da = match sizes.varies {
            true => unspecified(h.len()),
            false => vec![0.0; sizes.sequences.len() * sizes.width],
        };
        let (dx_out, da_out) = (Shared::new(&mut dx), Shared::new(&mut da));
        self.tasks(sizes, |order| {
            let (dx, da) = (&dx_out, &da_out);
            match self.complex {
                true => isa.run(Backward::<true> {
                    order,
                    a,
                    h,
                    dh,
                    dx,
                    da,
                }),
                false => isa.run(Backward::<false> {
                    order,
                    a,
                    h,
                    dh,
                    dx,
                    da,
                }),
            }
        });
        if !sizes.varies {
            da = sum_partials(&da, sizes.width);
        }
        [dx, da]
    }
}

impl CustomOp<2> for Scan {
    const NAME: &'static str = NAME;
    type Saved = ();
    const READS_OUTPUT: bool = true;

    fn forward(&self, [x, a]: [View; 2], _: bool) -> Result<(Vec<f32>, Shape, ())> {
        let sizes = self.sizes(&x.shape, &a.shape)?;
        Ok((self.states(&sizes, x.data, a.data), x.shape, ()))
    }

    fn backward(&self, [x, a]: [View; 2], pass: BackwardPass<(), 2>) -> Result<[Gradient; 2]> {
        let sizes = self.sizes(&x.shape, &a.shape)?;
        Ok(self
            .gradients(&sizes, a.data, pass.y, pass.dy)
            .map(Gradient::Of))
    }
}

/// The way of one task through the rows of an example.
#[derive(Clone)]
struct ScanOrder<'a> {
    sizes: &'a Sizes,
    example: usize,
    columns: Range<usize>,
    reverse: bool,
}

impl ScanOrder<'_> {
    /// Groups of at most `lanes` columns: where they start, and how many they are.
    fn groups(&self, lanes: usize) -> impl Iterator<Item = (usize, usize)> + use<> {
        let end = self.columns.end;
        let starts = self.columns.clone().step_by(lanes);
        starts.map(move |start| (start, lanes.min(end - start)))
    }

    /// Returns the start of row number `step` of the walk.
    #[inline(always)]
    fn row(&self, step: usize) -> usize {
        let Range { start, end } = self.sizes.sequences[self.example];
        let row = if self.reverse {
            end - 1 - step
        } else {
            start + step
        };
        row * self.sizes.width
    }

    /// Returns the number of rows.
    fn length(&self) -> usize {
        self.sizes.sequences[self.example].len()
    }
}

/// Real and imaginary parts of one group of columns; real numbers have no others.
type Pair<S> = [<S as lra_cpu::simd::Simd>::f32s; 2];

#[inline(always)]
fn load<S: Lanes, const COMPLEX: bool>(
    s: S,
    from: &[f32],
    at: usize,
    columns: usize,
    count: usize,
) -> Pair<S> {
    let re = s.load(&from[at..at + count]);
    match COMPLEX {
        true => [re, s.load(&from[at + columns..][..count])],
        false => [re, s.splat_f32s(0.0)],
    }
}

#[inline(always)]
fn store<S: Lanes, const COMPLEX: bool>(
    s: S,
    to: &Shared,
    at: usize,
    columns: usize,
    count: usize,
    value: Pair<S>,
) {
    // SAFETY: the columns of an example belong to one task.
    s.store(unsafe { to.slice(at, count) }, value[0]);
    if COMPLEX {
        // SAFETY: as above.
        s.store(unsafe { to.slice(at + columns, count) }, value[1]);
    }
}

/// Returns a b + c.
#[inline(always)]
fn multiply_add<S: Lanes, const COMPLEX: bool>(
    s: S,
    a: Pair<S>,
    b: Pair<S>,
    c: Pair<S>,
) -> Pair<S> {
    let re = s.fma(a[0], b[0], c[0]);
    match COMPLEX {
        true => [
            s.fma(s.neg_f32s(a[1]), b[1], re),
            s.fma(a[1], b[0], s.fma(a[0], b[1], c[1])),
        ],
        false => [re, c[1]],
    }
}

/// Returns ā.
#[inline(always)]
fn conjugate<S: Lanes, const COMPLEX: bool>(s: S, a: Pair<S>) -> Pair<S> {
    match COMPLEX {
        true => [a[0], s.neg_f32s(a[1])],
        false => a,
    }
}

struct Forward<'a, const COMPLEX: bool> {
    order: ScanOrder<'a>,
    x: &'a [f32],
    a: &'a [f32],
    h: &'a Shared<'a>,
}

impl<const COMPLEX: bool> Kernel for Forward<'_, COMPLEX> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let Sizes {
            columns, varies, ..
        } = *self.order.sizes;
        let length = self.order.length();
        for (first, count) in self.order.groups(S::F32_LANES) {
            let mut h = [s.splat_f32s(0.0); 2];
            let constant = load::<S, COMPLEX>(s, self.a, first, columns, count);
            for step in 0..length {
                let at = self.order.row(step) + first;
                let a = match varies {
                    true => load::<S, COMPLEX>(s, self.a, at, columns, count),
                    false => constant,
                };
                let x = load::<S, COMPLEX>(s, self.x, at, columns, count);
                h = multiply_add::<S, COMPLEX>(s, a, h, x);
                store::<S, COMPLEX>(s, self.h, at, columns, count, h);
            }
        }
    }
}

struct Backward<'a, const COMPLEX: bool> {
    order: ScanOrder<'a>,
    a: &'a [f32],
    h: &'a [f32],
    dh: &'a [f32],
    dx: &'a Shared<'a>,
    /// Like a, with an axis of examples before it if it has none.
    da: &'a Shared<'a>,
}

impl<const COMPLEX: bool> Kernel for Backward<'_, COMPLEX> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let Sizes {
            columns,
            varies,
            width,
            ..
        } = *self.order.sizes;
        let length = self.order.length();
        let zero = [s.splat_f32s(0.0); 2];
        for (first, count) in self.order.groups(S::F32_LANES) {
            let constant = load::<S, COMPLEX>(s, self.a, first, columns, count);
            // ā g of the row that comes later in the walk.
            let mut carried = zero;
            let mut sum = zero;
            for step in (0..length).rev() {
                let at = self.order.row(step) + first;
                let a = match varies {
                    true => load::<S, COMPLEX>(s, self.a, at, columns, count),
                    false => constant,
                };
                let before = match step {
                    0 => zero,
                    _ => {
                        let at = self.order.row(step - 1) + first;
                        load::<S, COMPLEX>(s, self.h, at, columns, count)
                    }
                };
                let dh = load::<S, COMPLEX>(s, self.dh, at, columns, count);
                let g = [s.add_f32s(dh[0], carried[0]), s.add_f32s(dh[1], carried[1])];
                store::<S, COMPLEX>(s, self.dx, at, columns, count, g);
                let before = conjugate::<S, COMPLEX>(s, before);
                if varies {
                    let da = multiply_add::<S, COMPLEX>(s, before, g, zero);
                    store::<S, COMPLEX>(s, self.da, at, columns, count, da);
                } else {
                    sum = multiply_add::<S, COMPLEX>(s, before, g, sum);
                }
                carried = multiply_add::<S, COMPLEX>(s, conjugate::<S, COMPLEX>(s, a), g, zero);
            }
            if !varies {
                let at = self.order.example * width + first;
                store::<S, COMPLEX>(s, self.da, at, columns, count, sum);
            }
        }
    }
}
