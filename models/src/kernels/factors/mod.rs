//! What the factors of matrix products are rounded to.
//!
//! Factors are f32, or bfloat16: 8 bits of exponent as f32 has, 7 behind the point, rounded to nearest, ties to even.
//! A product of two bfloat16 is exact in f32, and sums are f32 in any case, so that rounding of factors is all that
//! bfloat16 changes. The terms of a sum run in the same order either way, but for AMX, which sums near and far terms of 32
//! apart. Instructions for bfloat16 take numbers below 2⁻¹²⁶ for zero; but for these and that order the
//! results are those of the same factors as f32.
//!
//! AMX multiplies bfloat16 so fast that six products of parts of f32 take less time than one product of f32 by AVX-512.

#[cfg(target_arch = "x86_64")]
pub(super) mod amx;
#[cfg(target_arch = "x86_64")]
pub(super) mod packing;
#[cfg(target_arch = "x86_64")]
pub(super) mod pairs;

use std::sync::atomic::{AtomicBool, Ordering};

static ROUNDED: AtomicBool = AtomicBool::new(false);

/// Whether the factors of matrix products are rounded to bfloat16 from now on, in the whole process.
pub fn round_to_bfloat16(on: bool) {
    ROUNDED.store(on, Ordering::Relaxed);
}

/// How the factors of products are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Factors {
    /// As they are.
    F32,
    /// Rounded to bfloat16 and multiplied as f32.
    Rounded,
    /// Rounded to bfloat16, two terms in the place of an f32: the first in the upper half, which the instruction adds first.
    #[cfg(target_arch = "x86_64")]
    Pairs,
    /// Rounded to bfloat16, in tiles that AMX multiplies.
    #[cfg(target_arch = "x86_64")]
    Tiles,
    /// As they are, each as the sum of three bfloat16, in tiles that AMX multiplies.
    #[cfg(target_arch = "x86_64")]
    Split,
}

impl Factors {
    /// What this process asks for, by what a processor with AVX-512 (or another) has.
    pub(super) fn current(avx512: bool) -> Self {
        match ROUNDED.load(Ordering::Relaxed) {
            false => Factors::whole(avx512),
            true => Factors::rounded(avx512),
        }
    }

    /// The fastest way to take them as they are.
    pub(super) fn whole(avx512: bool) -> Self {
        #[cfg(target_arch = "x86_64")]
        if avx512 && is_x86_feature_detected!("avx512bf16") && amx::is_available() {
            return Factors::Split;
        }
        let _ = avx512;
        Factors::F32
    }

    /// The fastest way to round.
    fn rounded(avx512: bool) -> Self {
        #[cfg(target_arch = "x86_64")]
        if avx512 && is_x86_feature_detected!("avx512bf16") {
            return match amx::is_available() {
                true => Factors::Tiles,
                false => Factors::Pairs,
            };
        }
        let _ = avx512;
        Factors::Rounded
    }

    /// How many bfloat16 become of a number, where AMX multiplies them.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn parts(self) -> Option<usize> {
        match self {
            Factors::Tiles => Some(1),
            Factors::Split => Some(3),
            _ => None,
        }
    }

    /// For products of which the narrowest side is `width` wide: below `least` parts of f32 do not pay, since tiles are padded and
    /// numbers have to be cut.
    pub(super) fn for_width(self, width: usize, least: usize) -> Self {
        #[cfg(target_arch = "x86_64")]
        if self == Factors::Split && width < least {
            return Factors::F32;
        }
        let _ = (width, least);
        self
    }

    /// Whether AMX multiplies them, in tiles.
    pub(super) fn are_tiles(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        if self.parts().is_some() {
            return true;
        }
        false
    }

    /// Floats that so many rows of a left operand, or columns of a right one, take with so many terms each.
    pub(super) fn words(self, sides: usize, terms: usize) -> usize {
        #[cfg(target_arch = "x86_64")]
        if let Some(parts) = self.parts() {
            return packing::words(parts, sides, terms);
        }
        sides * terms
    }

    /// Makes tiles of an operand, whose element (side, term) lies at `side * strides.0 + term * strides.1`. False where products take
    /// something else.
    ///
    /// # Panics
    /// If operands are smaller than their shapes.
    pub(super) fn pack_tiles(
        self,
        x: &[f32],
        strides: (usize, usize),
        sizes: (usize, usize),
        right: bool,
        to: &mut [f32],
    ) -> bool {
        #[cfg(target_arch = "x86_64")]
        if let Some(parts) = self.parts() {
            match (parts, right) {
                (1, false) => packing::pack::<1, false>(x, strides, sizes, to),
                (1, true) => packing::pack::<1, true>(x, strides, sizes, to),
                (_, false) => packing::pack::<3, false>(x, strides, sizes, to),
                (_, true) => packing::pack::<3, true>(x, strides, sizes, to),
            }
            return true;
        }
        let _ = (x, strides, sizes, right, to);
        false
    }

    /// Whether they are rounded to bfloat16.
    pub(super) fn are_rounded(self) -> bool {
        match self {
            Factors::F32 => false,
            #[cfg(target_arch = "x86_64")]
            Factors::Split => false,
            _ => true,
        }
    }

    /// Whether products sum their terms in order; AMX sums near and far ones apart.
    pub(super) fn sum_in_order(self) -> bool {
        !self.are_tiles()
    }

    /// Every way to round, fastest first.
    #[cfg(test)]
    pub(super) fn all_rounded(avx512: bool) -> Vec<Self> {
        let fastest = Factors::rounded(avx512);
        #[cfg(target_arch = "x86_64")]
        let ways = [Factors::Tiles, Factors::Pairs, Factors::Rounded];
        #[cfg(not(target_arch = "x86_64"))]
        let ways = [Factors::Rounded];
        ways.into_iter().skip_while(|way| *way != fastest).collect()
    }

    /// Makes of rows of `width` numbers, one row per term, what products take that are not of tiles: in place, and rows of pairs as far
    /// apart as rows were.
    pub(super) fn rows(self, x: &mut [f32], width: usize) {
        debug_assert!(!self.are_tiles(), "tiles lie elsewhere");
        match self {
            Factors::Rounded => round(x),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: there are pairs only where there are these instructions.
            Factors::Pairs => unsafe { pairs::rows(x, width) },
            _ => {}
        }
    }

    /// The same of panels, each `terms` rows of `width` numbers.
    pub(super) fn panels(self, x: &mut [f32], (terms, width): (usize, usize)) {
        if self != Factors::F32 {
            x.chunks_exact_mut(terms * width)
                .for_each(|panel| self.rows(panel, width));
        }
    }

    /// The same of rows of `width` numbers with terms along the rows, at the beginnings of the rows.
    pub(super) fn columns(self, x: &mut [f32], width: usize) {
        debug_assert!(!self.are_tiles(), "tiles lie elsewhere");
        match self {
            Factors::Rounded => round(x),
            #[cfg(target_arch = "x86_64")]
            Factors::Pairs => {
                for row in x.chunks_exact_mut(width) {
                    // SAFETY: there are pairs only where there are these instructions; a row lies where it goes.
                    unsafe { pairs::terms(row.as_ptr(), row.as_mut_ptr(), width) };
                }
            }
            _ => {}
        }
    }

    /// Elements that a row of so many terms takes, in tiles aside.
    pub(super) fn len(self, terms: usize) -> usize {
        match self {
            #[cfg(target_arch = "x86_64")]
            Factors::Pairs => terms.div_ceil(2),
            _ => terms,
        }
    }

    /// What products take of a row of terms.
    ///
    /// # Panics
    /// If `to` has no room for it ([`Factors::len`]).
    #[inline(always)]
    pub(super) fn terms(self, x: &[f32], to: &mut [f32]) {
        let to = &mut to[..self.len(x.len())];
        match self {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: there are pairs only where there are these instructions, and there is room for them.
            Factors::Pairs => unsafe { pairs::terms(x.as_ptr(), to.as_mut_ptr(), x.len()) },
            _ => {
                to.copy_from_slice(x);
                if self == Factors::Rounded {
                    round(to);
                }
            }
        }
    }

    /// Packs pairs of a matrix (rows, columns) into panels of `N` columns, rows of pairs one after the other; zeros fill
    /// what the last panel lacks. Of the strides of rows and columns one is 1. False where products take something else.
    ///
    /// # Panics
    /// If operands are smaller than their shapes.
    #[inline(always)]
    #[cfg_attr(
        not(target_arch = "x86_64"),
        expect(unused_variables, reason = "no pairs")
    )]
    pub(super) fn pack_pairs<const N: usize>(
        self,
        (x, row, column): (&[f32], usize, usize),
        (rows, columns): (usize, usize),
        to: &mut [f32],
    ) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Factors::Pairs => {
                if rows * columns == 0 {
                    to.fill(0.0);
                    return true;
                }
                assert!((rows - 1) * row + (columns - 1) * column < x.len(), "terms");
                let room = rows.div_ceil(2) * columns.next_multiple_of(N);
                assert!(room <= to.len(), "room for pairs");
                let (sizes, to) = ((rows, columns), to.as_mut_ptr());
                // SAFETY: there are pairs only where there are these instructions; the assertions bound both operands.
                unsafe {
                    match column {
                        1 => pairs::pack_rows::<N>((x.as_ptr(), row), sizes, to),
                        _ => pairs::pack_columns::<N>((x.as_ptr(), column), sizes, to),
                    }
                }
                true
            }
            _ => false,
        }
    }
}

/// Rounds to bfloat16, to nearest, ties to even.
fn round(x: &mut [f32]) {
    for x in x {
        let bits = x.to_bits();
        let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) & 0xffff_0000;
        if !x.is_nan() {
            *x = f32::from_bits(rounded);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::isa::Isa;
    use crate::kernels::reference::Sampler;

    #[test]
    fn factors_are_rounded_to_the_nearest_and_ties_to_even() {
        let of = |bits: u32| {
            let mut x = [f32::from_bits(bits)];
            round(&mut x);
            x[0].to_bits()
        };
        assert_eq!(of(0x3f80_7fff), 0x3f80_0000);
        assert_eq!(of(0x3f80_8001), 0x3f81_0000);
        assert_eq!(of(0x3f80_8000), 0x3f80_0000, "a tie, and even");
        assert_eq!(of(0x3f81_8000), 0x3f82_0000, "a tie, and odd");
        assert_eq!(of(0xbf80_8001), 0xbf81_0000);
        assert_eq!(of(0x7f7f_ffff), 0x7f80_0000, "beyond the largest");
        assert_eq!(of(0xff80_0000), 0xff80_0000);
        assert!(f32::from_bits(of(0x7f80_0001)).is_nan());
    }

    #[test]
    fn pairs_hold_the_rounded_numbers_the_first_one_above() {
        for isa in Isa::all_rounded() {
            let factors = isa.factors();
            if factors == Factors::Rounded || factors.are_tiles() {
                continue;
            }
            let halves = |pair: f32| {
                let bits = pair.to_bits();
                [bits & 0xffff_0000, bits << 16].map(f32::from_bits)
            };
            for (terms, width) in [(1, 8), (6, 8), (7, 8), (5, 16), (4, 64), (9, 32)] {
                let x: Vec<f32> = Sampler::new(91)
                    .normal(&[terms * width], 1.0)
                    .to_vec1()
                    .unwrap();
                let mut rounded = x.clone();
                round(&mut rounded);
                let mut pairs = x.clone();
                factors.rows(&mut pairs, width);
                for term in (0..terms).step_by(2) {
                    for column in 0..width {
                        let first = rounded[term * width + column];
                        let second = rounded.get((term + 1) * width + column);
                        let pair = halves(pairs[term / 2 * width + column]);
                        assert_eq!(pair, [first, second.copied().unwrap_or(0.0)]);
                    }
                }
            }
            for (rows, width) in [(1, 1), (2, 7), (3, 16), (1, 17), (2, 32), (2, 33), (1, 100)] {
                let x: Vec<f32> = Sampler::new(92)
                    .normal(&[rows * width], 1.0)
                    .to_vec1()
                    .unwrap();
                let mut rounded = x.clone();
                round(&mut rounded);
                let mut space = vec![f32::NAN; x.len() + 1];
                for (x, space) in x.chunks(width).zip(space.chunks_mut(width)) {
                    factors.terms(x, space);
                }
                let pairs = &space[..x.len()];
                let rows = pairs.chunks(width).zip(rounded.chunks(width));
                for (pairs, rounded) in rows {
                    for (pair, two) in pairs.iter().zip(rounded.chunks(2)) {
                        assert_eq!(halves(*pair)[..two.len()], *two);
                    }
                    if width % 2 == 1 {
                        assert_eq!(halves(pairs[width / 2])[1], 0.0);
                    }
                    assert!(pairs[width.div_ceil(2)..].iter().all(|x| x.is_nan()));
                }
                assert!(space[x.len()].is_nan());
                let mut inside = x.clone();
                factors.columns(&mut inside, width);
                let rows = inside.chunks(width).zip(space.chunks(width));
                for (inside, copied) in rows {
                    let count = width.div_ceil(2);
                    let bits =
                        |x: &[f32]| x[..count].iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                    assert_eq!(bits(inside), bits(copied));
                }
            }
        }
    }
}
