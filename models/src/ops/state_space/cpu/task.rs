//! One task: some channels of one example, its modes in registers, and the arithmetic of one row.

use lra_cpu::simd::Lanes;

use super::{CHANNELS, Rows, ScanDirection, Sizes, StateSpace};

/// One walk of a task: some channels of one example.
#[derive(Clone, Copy)]
pub(super) struct Task<'a> {
    pub(super) modes: usize,
    pub(super) walk: ScanDirection,
    /// Index of this walk among the walks.
    pub(super) index: usize,
    /// Number of walks.
    walks: usize,
    /// Mask of the valid rows of the example.
    valid: Option<&'a [f32]>,
    /// Row of x where the example begins.
    start: usize,
    /// Rows of the example.
    pub(super) length: usize,
    pub(super) sizes: Sizes,
    pub(super) example: usize,
    pub(super) first: usize,
    pub(super) end: usize,
    pub(super) parameters: &'a [f32],
}

/// Real and imaginary parts in one register each; real numbers have no others.
pub(super) type Pair<S> = [<S as lra_cpu::simd::Simd>::f32s; 2];

/// a and c of one mode.
#[derive(Clone, Copy)]
pub(super) struct Mode<S: Lanes> {
    pub(super) a: Pair<S>,
    pub(super) c: Pair<S>,
}

impl<'a> Task<'a> {
    pub(super) fn new(
        options: &'a StateSpace,
        index: usize,
        sizes: Sizes,
        task: usize,
        parameters: &'a [f32],
    ) -> Self {
        let first = task % sizes.groups * CHANNELS;
        let example = task / sizes.groups;
        let (start, stop) = match &options.rows {
            Rows::Packed(offsets) => (offsets[example], offsets[example + 1]),
            Rows::Full | Rows::Padded(_) => (example * sizes.length, (example + 1) * sizes.length),
        };
        let valid = match &options.rows {
            Rows::Padded(valid) => Some(&valid[start..stop]),
            Rows::Full | Rows::Packed(_) => None,
        };
        Self {
            modes: options.modes,
            walk: options.walks[index],
            index,
            walks: options.walks.len(),
            valid,
            start,
            length: stop - start,
            sizes,
            example,
            first,
            end: (first + CHANNELS).min(sizes.width),
            parameters,
        }
    }

    /// Registers of channels: where they start, and how many channels they hold.
    pub(super) fn lanes(&self, lanes: usize) -> impl Iterator<Item = (usize, usize)> + use<> {
        let end = self.end;
        let starts = (self.first..end).step_by(lanes);
        starts.map(move |start| (start, lanes.min(end - start)))
    }

    /// Returns the start of row number `step` of the walk.
    #[inline(always)]
    pub(super) fn row(&self, step: usize) -> usize {
        (self.start + self.position(step)) * self.sizes.width
    }

    /// Returns the position that row number `step` of the walk is.
    #[inline(always)]
    fn position(&self, step: usize) -> usize {
        match self.walk.reverse {
            true => self.length - 1 - step,
            false => step,
        }
    }

    /// Returns whether row number `step` of the walk is there.
    #[inline(always)]
    pub(super) fn is_valid(&self, step: usize) -> bool {
        self.valid
            .is_none_or(|valid| valid[self.position(step)] != 0.0)
    }

    /// Returns the row of the skip among the parameters.
    pub(super) fn skip_row(&self, parts: usize) -> usize {
        self.walks * 2 * parts * self.modes
    }

    /// Returns the row of the parameters.
    #[inline(always)]
    pub(super) fn parameter<S: Lanes>(
        &self,
        s: S,
        row: usize,
        first: usize,
        count: usize,
    ) -> S::f32s {
        s.load(&self.parameters[row * self.sizes.width + first..][..count])
    }

    #[inline(always)]
    pub(super) fn mode<S: Lanes, const COMPLEX: bool>(
        &self,
        s: S,
        mode: usize,
        first: usize,
        count: usize,
    ) -> Mode<S> {
        let modes = self.modes;
        let parts = 1 + usize::from(COMPLEX);
        let before = self.index * 2 * parts;
        let row = |row: usize| self.parameter(s, (before + row) * modes + mode, first, count);
        let zero = s.splat_f32s(0.0);
        match COMPLEX {
            true => Mode {
                a: [row(0), row(1)],
                c: [row(2), row(3)],
            },
            false => Mode {
                a: [row(0), zero],
                c: [row(1), zero],
            },
        }
    }
}

/// Returns the place of the kept state of a mode at the start of a tile, for registers that start
/// `offset` channels into a task.
#[inline(always)]
pub(super) fn kept<const COMPLEX: bool>(
    tile: usize,
    modes: usize,
    mode: usize,
    offset: usize,
) -> [usize; 2] {
    let parts = 1 + usize::from(COMPLEX);
    let at = (tile * modes + mode) * parts * CHANNELS + offset;
    [at, at + (parts - 1) * CHANNELS]
}

/// Returns a h + x.
#[inline(always)]
pub(super) fn advance<S: Lanes, const COMPLEX: bool>(
    s: S,
    a: Pair<S>,
    h: Pair<S>,
    x: S::f32s,
) -> Pair<S> {
    let re = s.fma(a[0], h[0], x);
    match COMPLEX {
        true => [
            s.fma(s.neg_f32s(a[1]), h[1], re),
            s.fma(a[1], h[0], s.mul_f32s(a[0], h[1])),
        ],
        false => [re, h[1]],
    }
}

/// Returns Re(c h) + y.
#[inline(always)]
pub(super) fn read_out<S: Lanes, const COMPLEX: bool>(
    s: S,
    c: Pair<S>,
    h: Pair<S>,
    y: S::f32s,
) -> S::f32s {
    let y = s.fma(c[0], h[0], y);
    match COMPLEX {
        true => s.fma(s.neg_f32s(c[1]), h[1], y),
        false => y,
    }
}

/// Returns a state, of which parts that have all but faded become zero: numbers below 2⁻¹²⁶ take
/// some processors a hundred times as long, and after some thousand rows of padding states are such
/// numbers.
#[inline(always)]
pub(super) fn settled<S: Lanes>(s: S, h: Pair<S>) -> Pair<S> {
    const FADED: f32 = 1e-30;
    let (zero, limit) = (s.splat_f32s(0.0), s.splat_f32s(FADED));
    let [re, im] = h;
    let faded = [
        s.less_than_f32s(s.abs_f32s(re), limit),
        s.less_than_f32s(s.abs_f32s(im), limit),
    ];
    [
        s.select_f32s(faded[0], zero, re),
        s.select_f32s(faded[1], zero, im),
    ]
}

/// Returns ā r + c̄ dy.
#[inline(always)]
pub(super) fn retreat<S: Lanes, const COMPLEX: bool>(
    s: S,
    mode: Mode<S>,
    r: Pair<S>,
    dy: S::f32s,
) -> Pair<S> {
    let Mode { a, c } = mode;
    let re = s.fma(a[0], r[0], s.mul_f32s(c[0], dy));
    match COMPLEX {
        true => {
            let im = s.fma(a[0], r[1], s.mul_f32s(s.neg_f32s(c[1]), dy));
            [s.fma(a[1], r[1], re), s.fma(s.neg_f32s(a[1]), r[0], im)]
        }
        false => [re, r[1]],
    }
}

/// Returns dy h̄ + sum.
#[inline(always)]
pub(super) fn add_read_out<S: Lanes, const COMPLEX: bool>(
    s: S,
    dy: S::f32s,
    h: Pair<S>,
    sum: Pair<S>,
) -> Pair<S> {
    let re = s.fma(dy, h[0], sum[0]);
    match COMPLEX {
        true => [re, s.fma(s.neg_f32s(dy), h[1], sum[1])],
        false => [re, sum[1]],
    }
}

/// Returns r h̄ + sum.
#[inline(always)]
pub(super) fn add_product<S: Lanes, const COMPLEX: bool>(
    s: S,
    r: Pair<S>,
    h: Pair<S>,
    sum: Pair<S>,
) -> Pair<S> {
    let re = s.fma(r[0], h[0], sum[0]);
    match COMPLEX {
        true => [
            s.fma(r[1], h[1], re),
            s.fma(s.neg_f32s(r[0]), h[1], s.fma(r[1], h[0], sum[1])),
        ],
        false => [re, sum[1]],
    }
}
