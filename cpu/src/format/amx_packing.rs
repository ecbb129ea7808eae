//! Packing of operands into tiles of bfloat16 for AMX.
//!
//! A tile holds 32 terms of 16 rows of a, one row per line, or of 16 columns of b, one pair of
//! terms per line. A pair is two terms 16 places apart, the earlier in the lower half. An operand
//! is a sequence of tiles of 1 KiB: by groups of 16 rows or columns, then by terms, then by parts.
//! Missing rows, columns and terms are zeros.
//!
//! With one part a number is rounded to bfloat16, to nearest, ties to even. With three it is split
//! into a sum: the number rounded to 8 bits, the remainder rounded to 8 bits, and the rest, which
//! has at most 7. No bit of an f32 is lost (Henry, Tang and Heinecke, 2019, arXiv 1904.06376). The
//! remainder of an infinity is NaN; parts below 2⁻¹²⁶ count as zero.

use std::arch::x86_64::{
    __m512i, _CMP_UNORD_Q, _mm512_add_epi32, _mm512_and_si512, _mm512_castps_si512,
    _mm512_castsi512_ps, _mm512_cmp_ps_mask, _mm512_loadu_ps, _mm512_mask_mov_epi32,
    _mm512_maskz_loadu_ps, _mm512_set1_epi32, _mm512_setzero_si512, _mm512_srli_epi32,
    _mm512_storeu_si512, _mm512_sub_ps, _mm512_ternarylogic_epi32,
};

use super::bf16_vnni::mask;
use crate::simd::Lanes;
pub use crate::transpose::SIDE;
use crate::transpose::transpose;

/// Terms of a tile.
pub const TERMS: usize = 2 * SIDE;
/// Words of a tile.
pub const TILE: usize = SIDE * SIDE;

/// Returns the number of 32-bit words of a packed operand with `sides` rows or columns of `terms`
/// terms, each in `parts` parts.
pub const fn words(parts: usize, sides: usize, terms: usize) -> usize {
    sides.div_ceil(SIDE) * step(parts, terms)
}

/// Returns the number of 32-bit words of 16 packed rows or columns of `terms` terms.
pub const fn step(parts: usize, terms: usize) -> usize {
    steps(terms) * parts * TILE
}

/// Returns the number of tiles that hold `terms` terms, with one part.
pub const fn steps(terms: usize) -> usize {
    terms.div_ceil(TERMS)
}

/// Packs an operand (sides, terms). Element (side, term) is
/// `x[side * strides.0 + term * strides.1]`; one of the strides is 1.
///
/// # Panics
/// If an operand is smaller than its shape.
pub(crate) fn pack<const PARTS: usize, const RIGHT: bool>(
    x: &[f32],
    strides: (usize, usize),
    (sides, terms): (usize, usize),
    to: &mut [f32],
) {
    if sides * terms == 0 {
        return;
    }
    let last = (sides - 1) * strides.0 + (terms - 1) * strides.1;
    assert!(last < x.len(), "operand too small");
    assert!(words(PARTS, sides, terms) <= to.len(), "room for tiles");
    assert!(strides.0 == 1 || strides.1 == 1, "neither rows nor columns");
    let (x, to) = (x.as_ptr(), to.as_mut_ptr());
    // SAFETY: tiles are only packed on processors with AMX, which have AVX-512; the assertions
    // bound both operands.
    unsafe { pack_tiles::<PARTS, RIGHT>(x, strides, (sides, terms), to) }
}

/// Packs as [`pack`] does.
///
/// # Safety
/// The processor must have AVX-512, and operands must be as large as their shapes.
#[target_feature(enable = "avx512f")]
unsafe fn pack_tiles<const PARTS: usize, const RIGHT: bool>(
    x: *const f32,
    (side, term): (usize, usize),
    (sides, terms): (usize, usize),
    to: *mut f32,
) {
    let step = step(PARTS, terms);
    let (groups, steps) = (sides.div_ceil(SIDE), terms.div_ceil(TERMS));
    // Along contiguous memory, which may be rows or columns.
    let (outer, inner) = if term == 1 {
        (groups, steps)
    } else {
        (steps, groups)
    };
    for outer in 0..outer {
        for inner in 0..inner {
            let (group, place) = if term == 1 {
                (outer, inner)
            } else {
                (inner, outer)
            };
            let (first, from) = (group * SIDE, place * TERMS);
            let near = x.wrapping_add(first * side + from * term);
            let far = near.wrapping_add(SIDE * term);
            let to = to.wrapping_add(group * step + place * PARTS * TILE);
            let sides = SIDE.min(sides - first);
            let near_terms = SIDE.min(terms - from);
            let far_terms = SIDE.min(terms - from - near_terms);
            // SAFETY: by this function's contract.
            unsafe {
                if term == 1 {
                    let halves = [(near, sides, near_terms), (far, sides, far_terms)];
                    write::<PARTS>(halves, side, RIGHT, to);
                } else {
                    let halves = [(near, near_terms, sides), (far, far_terms, sides)];
                    write::<PARTS>(halves, term, !RIGHT, to);
                }
            }
        }
    }
}

/// Lines of memory: the first element, the number of lines, and the numbers in each.
type Half = (*const f32, usize, usize);

// The functions below use no closures, and no methods that take one: some closures would not be
// compiled for these instructions.

/// Writes the tiles of the terms of both halves. Their lines in memory are `line` apart and become
/// columns if `turned`.
#[target_feature(enable = "avx512f")]
#[inline]
unsafe fn write<const PARTS: usize>(
    [near, far]: [Half; 2],
    line: usize,
    turned: bool,
    to: *mut f32,
) {
    // SAFETY: by this function's contract there are that many lines and numbers, and room for the
    // tiles.
    unsafe {
        if turned {
            let near = transpose(load(near, line));
            let far = transpose(load(far, line));
            for i in 0..SIDE {
                store::<PARTS>(near[i], far[i], to.add(i * SIDE));
            }
        } else if near.1 == SIDE && far.1 == SIDE && near.2 == SIDE && far.2 == SIDE {
            for i in 0..SIDE {
                let near = _mm512_loadu_ps(near.0.add(i * line));
                let far = _mm512_loadu_ps(far.0.add(i * line));
                let (near, far) = (_mm512_castps_si512(near), _mm512_castps_si512(far));
                store::<PARTS>(near, far, to.add(i * SIDE));
            }
        } else {
            let (near, far) = (load(near, line), load(far, line));
            for i in 0..SIDE {
                store::<PARTS>(near[i], far[i], to.add(i * SIDE));
            }
        }
    }
}

/// Loads lines of numbers, and zeros for missing ones.
#[target_feature(enable = "avx512f")]
#[inline]
unsafe fn load((x, lines, lanes): Half, line: usize) -> [__m512i; SIDE] {
    let mut block = [_mm512_setzero_si512(); SIDE];
    // SAFETY: by this function's contract there are that many lines, and only lanes of the mask are
    // read.
    unsafe {
        if lines == SIDE && lanes == SIDE {
            for (i, block) in block.iter_mut().enumerate() {
                *block = _mm512_castps_si512(_mm512_loadu_ps(x.add(i * line)));
            }
        } else {
            let mask = mask(lanes);
            for (i, block) in block.iter_mut().enumerate().take(lines) {
                *block = _mm512_castps_si512(_mm512_maskz_loadu_ps(mask, x.add(i * line)));
            }
        }
    }
    block
}

/// Stores a line of the tile of each part.
#[target_feature(enable = "avx512f")]
#[inline]
unsafe fn store<const PARTS: usize>(near: __m512i, far: __m512i, to: *mut f32) {
    // SAFETY: by this function's contract.
    unsafe { Parts::<PARTS>::cut(near).store_beside(Parts::cut(far), to) };
}

/// A register of split numbers, each part in the upper halves of words.
#[derive(Clone, Copy)]
pub struct Parts<const PARTS: usize>([__m512i; PARTS]);

impl<const PARTS: usize> Parts<PARTS> {
    /// Splits the numbers of a register.
    ///
    /// # Safety
    /// The processor must have AVX-512.
    ///
    /// # Panics
    /// If registers are shorter than 16 numbers.
    #[inline(always)]
    pub unsafe fn of<S: Lanes>(x: S::f32s) -> Self {
        assert!(size_of::<S::f32s>() == size_of::<__m512i>(), "registers");
        // SAFETY: both are the same words; the processor by this function's contract.
        unsafe { Self::cut(std::mem::transmute_copy(&x)) }
    }

    #[target_feature(enable = "avx512f")]
    #[inline]
    fn cut(x: __m512i) -> Self {
        if PARTS == 1 {
            return Parts([round_to_even(x); PARTS]);
        }
        let mut parts = [round(x); PARTS];
        let left = rest(x, parts[0]);
        parts[1] = round(left);
        // The rest has at most 7 bits.
        parts[2] = rest(left, parts[1]);
        Parts(parts)
    }

    /// Stores a line of the tile of each part, with these numbers in the lower halves and `far` in
    /// the upper ones.
    ///
    /// # Safety
    /// There must be room for the line in all tiles.
    #[target_feature(enable = "avx512f")]
    #[inline]
    pub unsafe fn store_beside(self, far: Self, to: *mut f32) {
        for part in 0..PARTS {
            let pairs = pair(self.0[part], far.0[part]);
            // SAFETY: by this function's contract.
            unsafe { _mm512_storeu_si512(to.add(part * TILE).cast(), pairs) };
        }
    }
}

/// Returns x minus its rounded value, which is exact.
#[target_feature(enable = "avx512f")]
#[inline]
fn rest(x: __m512i, rounded: __m512i) -> __m512i {
    let (x, rounded) = (_mm512_castsi512_ps(x), _mm512_castsi512_ps(rounded));
    _mm512_castps_si512(_mm512_sub_ps(x, rounded))
}

/// Combines the upper halves of both registers, those of `far` in the upper halves.
#[target_feature(enable = "avx512f")]
#[inline]
fn pair(near: __m512i, far: __m512i) -> __m512i {
    // (far & upper) | near
    const SELECT: i32 = 0xea;
    let near = _mm512_srli_epi32::<16>(near);
    _mm512_ternarylogic_epi32::<SELECT>(far, _mm512_set1_epi32(UPPER), near)
}

const UPPER: i32 = 0xffff_0000_u32 as i32;

/// Rounds to bfloat16, to nearest, ties away from zero. The remainder is kept, so the rule for ties
/// does not matter.
#[target_feature(enable = "avx512f")]
#[inline]
fn round(x: __m512i) -> __m512i {
    let up = _mm512_add_epi32(x, _mm512_set1_epi32(0x8000));
    _mm512_and_si512(up, _mm512_set1_epi32(UPPER))
}

/// Rounds to bfloat16, to nearest, ties to even. NaN stays NaN.
#[target_feature(enable = "avx512f")]
#[inline]
fn round_to_even(x: __m512i) -> __m512i {
    let numbers = _mm512_castsi512_ps(x);
    let none = _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(numbers, numbers);
    let odd = _mm512_and_si512(_mm512_srli_epi32::<16>(x), _mm512_set1_epi32(1));
    let up = _mm512_add_epi32(_mm512_add_epi32(x, _mm512_set1_epi32(0x7fff)), odd);
    let up = _mm512_mask_mov_epi32(up, none, x);
    _mm512_and_si512(up, _mm512_set1_epi32(UPPER))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::amx;
    use crate::testing::Sampler;

    fn numbers(seed: u64, len: usize) -> Vec<f32> {
        Sampler::new(seed).normal(len, 1.0)
    }

    /// Part `part` of element (side, term) of packed tiles.
    fn element(
        tiles: &[f32],
        (parts, right): (usize, bool),
        terms: usize,
        (side, term): (usize, usize),
        part: usize,
    ) -> f32 {
        let tile = side / SIDE * step(parts, terms) + (term / TERMS * parts + part) * TILE;
        let (side, pair, far) = (side % SIDE, term % SIDE, term / SIDE % 2 == 1);
        let word = match right {
            false => side * SIDE + pair,
            true => pair * SIDE + side,
        };
        let bits = tiles[tile + word].to_bits();
        f32::from_bits(if far { bits & 0xffff_0000 } else { bits << 16 })
    }

    fn check<const PARTS: usize, const RIGHT: bool>(x: &[f32], sides: usize, terms: usize) {
        let len = words(PARTS, sides, terms);
        // Contiguous sides, and contiguous terms, both with gaps.
        for strides in [(terms + 3, 1), (1, sides + 5)] {
            let mut tiles = vec![f32::NAN; len + 1];
            pack::<PARTS, RIGHT>(x, strides, (sides, terms), &mut tiles);
            assert!(tiles[len].is_nan());
            for side in 0..sides.next_multiple_of(SIDE) {
                for term in 0..terms.next_multiple_of(TERMS) {
                    let part = |part| element(&tiles, (PARTS, RIGHT), terms, (side, term), part);
                    let expected = match side < sides && term < terms {
                        true => x[side * strides.0 + term * strides.1],
                        false => 0.0,
                    };
                    if PARTS == 1 {
                        let mut rounded = [expected];
                        crate::format::round(&mut rounded);
                        assert_eq!(part(0), rounded[0], "{sides} {terms}");
                        continue;
                    }
                    assert_eq!(part(0) + (part(1) + part(2)), expected, "{sides} {terms}");
                    assert!(part(1).abs() <= expected.abs() / 256.0);
                    assert!(part(2).abs() <= expected.abs() / 65536.0);
                }
            }
        }
    }

    #[test]
    fn tiles_hold_every_number_whole_or_rounded() {
        if !amx::is_available() {
            return;
        }
        for (sides, terms) in [(1, 1), (16, 32), (15, 31), (17, 33), (40, 16), (64, 100)] {
            let x = numbers(93, (sides + 5) * (terms + 3) + 8 * terms);
            check::<1, false>(&x, sides, terms);
            check::<1, true>(&x, sides, terms);
            check::<3, false>(&x, sides, terms);
            check::<3, true>(&x, sides, terms);
        }
    }

    #[test]
    fn numbers_of_all_sizes_are_their_parts_and_others_are_none() {
        if !amx::is_available() {
            return;
        }
        let split = |x: f32| {
            let mut tiles = [0.0; 3 * TILE];
            pack::<3, false>(&[x], (1, 1), (1, 1), &mut tiles);
            [0, 1, 2].map(|part| element(&tiles, (3, false), 1, (0, 0), part))
        };
        for bits in (0x0c00_0000..0x7f00_0000_u32).step_by(65_521) {
            for x in [f32::from_bits(bits), -f32::from_bits(bits)] {
                let [high, middle, low] = split(x);
                assert_eq!(high + (middle + low), x);
            }
        }
        for x in [
            f32::NAN,
            f32::INFINITY,
            -f32::INFINITY,
            f32::from_bits(0x7fff_ffff),
        ] {
            assert!(split(x).iter().sum::<f32>().is_nan());
        }
        let rounded = |x: f32| {
            let mut tiles = [0.0; TILE];
            pack::<1, false>(&[x], (1, 1), (1, 1), &mut tiles);
            element(&tiles, (1, false), 1, (0, 0), 0)
        };
        assert_eq!(rounded(f32::from_bits(0x3f80_8000)), 1.0, "a tie, and even");
        assert_eq!(rounded(f32::INFINITY), f32::INFINITY);
        assert!(rounded(f32::from_bits(0x7fff_ffff)).is_nan());
    }
}
