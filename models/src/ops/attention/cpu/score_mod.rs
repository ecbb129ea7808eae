//! Score modifications: the steps from the products of a tile to the scores of its softmax.
//!
//! A term is added to each score, of its pair ([`Bias`]) or by its distance ([`Tables`]). A soft
//! cap then bounds the sum. Tiles are (keys, queries), in units of the base-2 logarithm. Hidden
//! pairs are hidden afterwards.
//!
//! ```text
//! forward    z ← z + term        y = c tanh(z / c)
//! backward   dz = (1 - (y / c)²) dy
//! ```
//!
//! A further modification is a variant of [`Term`] if it is added, or a function of each score
//! beside [`SoftCap`], also named in [`ScoreMods::have_slopes`]. Both passes, dense and under block
//! masks, know no modification by name.

use std::f64::consts::LOG2_E;

use lra_cpu::math::exp;
use lra_cpu::simd::Lanes;
use lra_cpu::tile::{SIDE, Tile64};

use super::args::Head;
use super::bias::{Bias, BiasGradient};
use super::relative::{Places, TableGradients, Tables};
use crate::ops::attention::score_functions::ScoreFunctions;

/// Modifications of the scores of one call.
#[derive(Clone, Copy, Default)]
pub(super) struct ScoreMods<'a> {
    pub(super) term: Option<Term<'a>>,
    pub(super) cap: Option<SoftCap>,
}

/// Term that is added to scores.
#[derive(Clone, Copy)]
pub(super) enum Term<'a> {
    ByPair(Bias<'a>),
    ByDistance(Tables<'a>),
}

/// Destination of the gradients of a term.
#[derive(Clone, Copy)]
pub(super) enum TermGradients<'a> {
    ByPair(BiasGradient<'a>),
    ByDistance(&'a TableGradients<'a>),
}

impl From<ScoreFunctions> for ScoreMods<'_> {
    fn from(functions: ScoreFunctions) -> Self {
        ScoreMods {
            term: None,
            cap: functions.soft_cap.map(SoftCap::new),
        }
    }
}

impl ScoreMods<'_> {
    /// Returns whether a function of each score follows the additions, so that the backward pass
    /// needs its slopes.
    pub(super) fn have_slopes(&self) -> bool {
        self.cap.is_some()
    }

    /// Returns whether a head's work must be done by one task, because its parts add to the same
    /// rows of gradients.
    pub(super) fn undivided(&self) -> bool {
        match &self.term {
            Some(Term::ByDistance(tables)) => tables.have_rows(),
            Some(Term::ByPair(_)) | None => false,
        }
    }
}

/// The modifications of one head, at one tile of it after the other.
pub(super) struct TileMods<'a> {
    mods: ScoreMods<'a>,
    head: Head,
    /// Places of the tile, for a term by distance.
    places: Option<Places>,
    /// First query and first key of the tile, and how many there are, for a term by pair.
    block: [(usize, usize); 2],
    /// Numbers of the tile, for a term by pair.
    numbers: Tile64,
}

impl<'a> TileMods<'a> {
    pub(super) fn new(mods: ScoreMods<'a>, head: Head) -> Self {
        TileMods {
            mods,
            head,
            places: None,
            block: [(0, 0); 2],
            numbers: Tile64::filled(0.0),
        }
    }

    /// Moves on to the tile of the queries and keys at these positions.
    #[inline(always)]
    pub(super) fn load(
        &mut self,
        mut queries: impl ExactSizeIterator<Item = usize>,
        mut keys: impl ExactSizeIterator<Item = usize>,
    ) {
        match &self.mods.term {
            None => {}
            Some(Term::ByDistance(tables)) => {
                self.places = Some(Places::new(tables, queries, keys));
            }
            // Its tiles are contiguous: there are no block masks beside it.
            Some(Term::ByPair(bias)) => {
                let sizes = (queries.len(), keys.len());
                let first = (
                    queries.next().unwrap_or_default(),
                    keys.next().unwrap_or_default(),
                );
                bias.load(self.head.number, first, sizes, &mut self.numbers);
                self.block = [first, sizes];
            }
        }
    }

    /// Turns products into scores, for the first `keys` rows of the tile. Writes the derivatives of
    /// scores by the sums that are capped, if there is a cap and `slopes` are given.
    #[inline(always)]
    pub(super) fn apply<S: Lanes>(
        &self,
        s: S,
        keys: usize,
        scores: &mut [f32; SIDE * SIDE],
        slopes: Option<&mut Tile64>,
    ) {
        match (&self.mods.term, &self.places) {
            (Some(Term::ByDistance(tables)), Some(places)) => {
                tables.add(places, self.head, scores);
            }
            (Some(Term::ByPair(bias)), _) => bias.add(&self.numbers, keys, scores),
            _ => {}
        }
        if let Some(cap) = self.mods.cap {
            cap.apply(s, &mut scores[..keys * SIDE]);
            if let Some(slopes) = slopes {
                cap.slopes(s, &scores[..keys * SIDE], &mut slopes[..keys * SIDE]);
            }
        }
    }

    /// Adds the gradients of the tile's terms, which are those of its scores before the cap.
    /// Returns the share of the tile in the gradient of the bias's factor; `part` of the head's
    /// work is at hand.
    ///
    /// # Safety
    /// A task must have its part of its head alone, and all of it if the modifications are
    /// [`ScoreMods::undivided`]. For a term by pair it has the tile's keys of this head of all
    /// examples.
    #[inline(always)]
    pub(super) unsafe fn add_gradients(
        &self,
        to: Option<&TermGradients>,
        part: usize,
        gradients: &[f32; SIDE * SIDE],
    ) -> f64 {
        match (to, &self.mods.term, &self.places) {
            (Some(TermGradients::ByDistance(to)), Some(Term::ByDistance(tables)), Some(places)) => {
                // SAFETY: by this function's contract.
                unsafe { to.add(tables, places, (self.head, part), gradients) };
                0.0
            }
            (Some(TermGradients::ByPair(to)), _, _) => {
                let [first, sizes] = self.block;
                // SAFETY: by this function's contract.
                unsafe { to.add(self.head.number, first, sizes, [&self.numbers, gradients]) }
            }
            _ => 0.0,
        }
    }
}

/// Factors of x, x³, x⁵ and x⁷ in tanh x.
const SERIES: [f32; 4] = [1.0, -1.0 / 3.0, 2.0 / 15.0, -17.0 / 315.0];
/// The x below which the series is exact to a unit in the last place.
const NEAR: f32 = 0.15;

/// c of y = c tanh(z / c), in units of the base-2 logarithm.
#[derive(Clone, Copy)]
pub(super) struct SoftCap(f32);

impl SoftCap {
    /// Creates the cap of scores in units of the natural logarithm.
    fn new(cap: f64) -> Self {
        SoftCap((cap * LOG2_E) as f32)
    }

    #[inline(always)]
    fn apply<S: Lanes>(self, s: S, scores: &mut [f32]) {
        let (one, cap) = (s.splat_f32s(1.0), s.splat_f32s(self.0));
        let factor = s.splat_f32s(-2.0 / self.0);
        let inverse = s.splat_f32s(self.0.recip());
        let (scores, _) = S::as_mut_simd_f32s(scores);
        for score in scores {
            // tanh |x| = (1 - e) / (1 + e) with e = exp(-2 |x|), which cannot overflow. Where 1 - e
            // would lose digits, it is the series x - x³/3 + 2x⁵/15 - 17x⁷/315.
            let size = s.abs_f32s(*score);
            let e = exp(s, s.mul_f32s(size, factor));
            let far = s.div_f32s(s.sub_f32s(one, e), s.add_f32s(one, e));
            let x = s.mul_f32s(size, inverse);
            let square = s.mul_f32s(x, x);
            let mut series = s.splat_f32s(SERIES[3]);
            for factor in [SERIES[2], SERIES[1], SERIES[0]] {
                series = s.fma(series, square, s.splat_f32s(factor));
            }
            let near = s.mul_f32s(x, series);
            let tanh = s.select_f32s(s.less_than_f32s(x, s.splat_f32s(NEAR)), near, far);
            let bounded = s.mul_f32s(cap, tanh);
            let negative = s.less_than_f32s(*score, s.splat_f32s(0.0));
            *score = s.select_f32s(negative, s.neg_f32s(bounded), bounded);
        }
    }

    /// Writes dy / dz for scores y.
    #[inline(always)]
    fn slopes<S: Lanes>(self, s: S, scores: &[f32], slopes: &mut [f32]) {
        let (one, inverse) = (s.splat_f32s(1.0), s.splat_f32s(self.0.recip()));
        let (scores, _) = S::as_simd_f32s(scores);
        let (slopes, _) = S::as_mut_simd_f32s(slopes);
        for (score, slope) in scores.iter().zip(slopes) {
            let ratio = s.mul_f32s(*score, inverse);
            *slope = s.sub_f32s(one, s.mul_f32s(ratio, ratio));
        }
    }
}
