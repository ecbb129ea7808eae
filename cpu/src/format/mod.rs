//! Number formats of the operands of matrix products.
//!
//! Operands are f32, or bfloat16: 8 bits of exponent as in f32, 7 bits of fraction, rounded to
//! nearest, ties to even. A product of two bfloat16 is exact in f32, and sums are f32. So bfloat16
//! changes a result only by the rounding of the operands, with two exceptions: instructions for
//! bfloat16 flush numbers below 2⁻¹²⁶ to zero, and AMX sums even and odd terms of 32 separately.
//!
//! AMX is so fast that multiplying f32 as sums of three bfloat16, with six products in all
//! ("bf16x3"; Henry, Tang and Heinecke, 2019, arXiv 1904.06376), takes less time than a product of
//! f32 by AVX-512.

#[cfg(target_arch = "x86_64")]
pub mod amx;
#[cfg(target_arch = "x86_64")]
pub mod amx_packing;
#[cfg(target_arch = "x86_64")]
pub mod bf16_vnni;

use std::sync::atomic::{AtomicBool, Ordering};

static ROUNDED: AtomicBool = AtomicBool::new(false);

/// Sets whether operands of matrix products are rounded to bfloat16, in the whole process.
pub fn round_to_bfloat16(on: bool) {
    ROUNDED.store(on, Ordering::Relaxed);
}

/// A number format of operands, and the instructions that multiply it.
///
/// Code outside this crate cannot name a format whose instructions a processor may lack. It gets
/// one from [`Format::current`] and the functions like it, which ask the processor.
///
/// ```compile_fail
/// let format = lra_cpu::format::Format::Bf16Vnni;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// f32, multiplied as f32.
    F32,
    /// bfloat16, multiplied as f32.
    Bf16Emulated,
    /// bfloat16, multiplied by AVX512-BF16: two terms in a word, the first in the upper half, which
    /// the instruction adds first.
    #[cfg(target_arch = "x86_64")]
    #[non_exhaustive]
    Bf16Vnni,
    /// bfloat16 in tiles, multiplied by AMX.
    #[cfg(target_arch = "x86_64")]
    #[non_exhaustive]
    Bf16Amx,
    /// f32 as the sum of three bfloat16 in tiles, multiplied by AMX.
    #[cfg(target_arch = "x86_64")]
    #[non_exhaustive]
    Bf16x3Amx,
}

impl Format {
    /// Returns the format that this process uses on a processor with or without AVX-512.
    pub fn current(avx512: bool) -> Self {
        match ROUNDED.load(Ordering::Relaxed) {
            false => Format::full(avx512),
            true => Format::rounded(avx512),
        }
    }

    /// Returns the fastest format of full precision.
    pub fn full(avx512: bool) -> Self {
        #[cfg(target_arch = "x86_64")]
        if avx512 && is_x86_feature_detected!("avx512bf16") && amx::is_available() {
            return Format::Bf16x3Amx;
        }
        let _ = avx512;
        Format::F32
    }

    /// Returns the fastest format of bfloat16.
    fn rounded(avx512: bool) -> Self {
        #[cfg(target_arch = "x86_64")]
        if avx512 && is_x86_feature_detected!("avx512bf16") {
            return match amx::is_available() {
                true => Format::Bf16Amx,
                false => Format::Bf16Vnni,
            };
        }
        let _ = avx512;
        Format::Bf16Emulated
    }

    /// Returns the number of bfloat16 parts of a number in the formats of AMX: 1, or 3 for bf16x3.
    /// `None` for other formats.
    #[cfg(target_arch = "x86_64")]
    pub fn split_terms(self) -> Option<usize> {
        match self {
            Format::Bf16Amx => Some(1),
            Format::Bf16x3Amx => Some(3),
            _ => None,
        }
    }

    /// Returns the format for products whose narrowest side is `width` wide. Below `least`, bf16x3
    /// costs more than f32, because tiles are padded and numbers have to be split.
    pub fn for_width(self, width: usize, least: usize) -> Self {
        #[cfg(target_arch = "x86_64")]
        if self == Format::Bf16x3Amx && width < least {
            return Format::F32;
        }
        let _ = (width, least);
        self
    }

    /// Returns whether operands are tiles for AMX.
    pub fn is_amx(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        if self.split_terms().is_some() {
            return true;
        }
        false
    }

    /// Returns the number of 32-bit words of a packed operand with `sides` rows of a (or columns of
    /// b) and `terms` terms.
    pub fn packed_len(self, sides: usize, terms: usize) -> usize {
        #[cfg(target_arch = "x86_64")]
        if let Some(parts) = self.split_terms() {
            return amx_packing::words(parts, sides, terms);
        }
        sides * terms
    }

    /// Packs an operand into tiles for AMX. Element (side, term) is at `side * strides.0 + term *
    /// strides.1`. In other formats it packs nothing and returns false.
    ///
    /// # Panics
    /// If operands are smaller than their shapes.
    pub fn pack_tiles(
        self,
        x: &[f32],
        strides: (usize, usize),
        sizes: (usize, usize),
        right: bool,
        to: &mut [f32],
    ) -> bool {
        #[cfg(target_arch = "x86_64")]
        if let Some(parts) = self.split_terms() {
            match (parts, right) {
                (1, false) => amx_packing::pack::<1, false>(x, strides, sizes, to),
                (1, true) => amx_packing::pack::<1, true>(x, strides, sizes, to),
                (_, false) => amx_packing::pack::<3, false>(x, strides, sizes, to),
                (_, true) => amx_packing::pack::<3, true>(x, strides, sizes, to),
            }
            return true;
        }
        let _ = (x, strides, sizes, right, to);
        false
    }

    /// Returns whether operands are rounded to bfloat16.
    pub fn is_rounded(self) -> bool {
        match self {
            Format::F32 => false,
            #[cfg(target_arch = "x86_64")]
            Format::Bf16x3Amx => false,
            _ => true,
        }
    }

    /// Returns whether terms are summed in order. AMX sums even and odd ones separately.
    pub fn sums_in_order(self) -> bool {
        !self.is_amx()
    }

    /// Returns every format of bfloat16, fastest first.
    pub fn all_rounded(avx512: bool) -> Vec<Self> {
        let fastest = Format::rounded(avx512);
        #[cfg(target_arch = "x86_64")]
        let ways = [Format::Bf16Amx, Format::Bf16Vnni, Format::Bf16Emulated];
        #[cfg(not(target_arch = "x86_64"))]
        let ways = [Format::Bf16Emulated];
        ways.into_iter().skip_while(|way| *way != fastest).collect()
    }

    /// Converts rows of `width` f32, one row per term, in place. Rows of pairs keep the stride of
    /// the rows. Not for AMX.
    pub fn convert_rows(self, x: &mut [f32], width: usize) {
        debug_assert!(!self.is_amx(), "tiles lie elsewhere");
        match self {
            Format::Bf16Emulated => round(x),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: this format exists only on processors with these instructions.
            Format::Bf16Vnni => unsafe { bf16_vnni::rows(x, width) },
            _ => {}
        }
    }

    /// Converts panels, each of `terms` rows of `width` f32, as
    /// [`convert_rows`](Self::convert_rows) does.
    pub fn convert_panels(self, x: &mut [f32], (terms, width): (usize, usize)) {
        if self != Format::F32 {
            x.chunks_exact_mut(terms * width)
                .for_each(|panel| self.convert_rows(panel, width));
        }
    }

    /// Converts rows of `width` f32 whose columns are terms, in place. Pairs are at the starts of
    /// the rows. Not for AMX.
    pub fn convert_columns(self, x: &mut [f32], width: usize) {
        debug_assert!(!self.is_amx(), "tiles lie elsewhere");
        match self {
            Format::Bf16Emulated => round(x),
            #[cfg(target_arch = "x86_64")]
            Format::Bf16Vnni => {
                for row in x.chunks_exact_mut(width) {
                    // SAFETY: this format exists only on processors with these instructions; source
                    // and target are the same row.
                    unsafe { bf16_vnni::terms(row.as_ptr(), row.as_mut_ptr(), width) };
                }
            }
            _ => {}
        }
    }

    /// Returns the number of 32-bit words of a row of `terms` terms. Not for AMX.
    pub fn len(self, terms: usize) -> usize {
        match self {
            #[cfg(target_arch = "x86_64")]
            Format::Bf16Vnni => terms.div_ceil(2),
            _ => terms,
        }
    }

    /// Converts a row of terms.
    ///
    /// # Panics
    /// If `to` has no room for it ([`Format::len`]).
    #[inline(always)]
    pub fn convert_row(self, x: &[f32], to: &mut [f32]) {
        let to = &mut to[..self.len(x.len())];
        match self {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: this format exists only on processors with these instructions, and there is
            // room for the pairs.
            Format::Bf16Vnni => unsafe { bf16_vnni::terms(x.as_ptr(), to.as_mut_ptr(), x.len()) },
            _ => {
                to.copy_from_slice(x);
                if self == Format::Bf16Emulated {
                    round(to);
                }
            }
        }
    }

    /// Packs pairs of terms of a matrix (rows, columns) into panels of `N` columns. Missing columns
    /// of the last panel become zero. One of the strides is 1. In other formats it packs nothing
    /// and returns false.
    ///
    /// # Panics
    /// If operands are smaller than their shapes.
    #[inline(always)]
    #[cfg_attr(
        not(target_arch = "x86_64"),
        expect(unused_variables, reason = "no pairs")
    )]
    pub fn pack_pairs<const N: usize>(
        self,
        (x, row, column): (&[f32], usize, usize),
        (rows, columns): (usize, usize),
        to: &mut [f32],
    ) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Format::Bf16Vnni => {
                if rows * columns == 0 {
                    to.fill(0.0);
                    return true;
                }
                assert!((rows - 1) * row + (columns - 1) * column < x.len(), "terms");
                let room = rows.div_ceil(2) * columns.next_multiple_of(N);
                assert!(room <= to.len(), "room for pairs");
                let (sizes, to) = ((rows, columns), to.as_mut_ptr());
                // SAFETY: this format exists only on processors with these instructions; the
                // assertions bound both operands.
                unsafe {
                    match column {
                        1 => bf16_vnni::pack_rows::<N>((x.as_ptr(), row), sizes, to),
                        _ => bf16_vnni::pack_columns::<N>((x.as_ptr(), column), sizes, to),
                    }
                }
                true
            }
            _ => false,
        }
    }
}

/// Rounds to bfloat16, to nearest, ties to even. NaN stays NaN.
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
    use crate::isa::Isa;
    use crate::testing::Sampler;

    #[test]
    fn operands_are_rounded_to_the_nearest_and_ties_to_even() {
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
            let format = isa.format();
            if format == Format::Bf16Emulated || format.is_amx() {
                continue;
            }
            let halves = |pair: f32| {
                let bits = pair.to_bits();
                [bits & 0xffff_0000, bits << 16].map(f32::from_bits)
            };
            for (terms, width) in [(1, 8), (6, 8), (7, 8), (5, 16), (4, 64), (9, 32)] {
                let x = Sampler::new(91).normal(terms * width, 1.0);
                let mut rounded = x.clone();
                round(&mut rounded);
                let mut pairs = x.clone();
                format.convert_rows(&mut pairs, width);
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
                let x = Sampler::new(92).normal(rows * width, 1.0);
                let mut rounded = x.clone();
                round(&mut rounded);
                let mut space = vec![f32::NAN; x.len() + 1];
                for (x, space) in x.chunks(width).zip(space.chunks_mut(width)) {
                    format.convert_row(x, space);
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
                format.convert_columns(&mut inside, width);
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
