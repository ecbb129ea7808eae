//! What the factors of matrix products are rounded to.
//!
//! Factors are f32, or bfloat16: 8 bits of exponent as f32 has, 7 behind the point, rounded to nearest, ties to even.
//! A product of two bfloat16 is exact in f32, and sums are f32 in any case, so that rounding of factors is all that
//! bfloat16 changes. The terms of a sum run in the same order either way. Instructions of AVX512-BF16 add two terms at
//! a time and take numbers below 2⁻¹²⁶ for zero; but for these the results are those of the same factors as f32.

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
}

impl Factors {
    /// What this process asks for, by what a processor with AVX-512 (or another) has.
    pub(super) fn current(avx512: bool) -> Self {
        match ROUNDED.load(Ordering::Relaxed) {
            false => Factors::F32,
            true => Factors::rounded(avx512),
        }
    }

    /// The fastest way to round.
    pub(super) fn rounded(avx512: bool) -> Self {
        #[cfg(target_arch = "x86_64")]
        if avx512 && is_x86_feature_detected!("avx512bf16") {
            return Factors::Pairs;
        }
        let _ = avx512;
        Factors::Rounded
    }

    /// Makes of rows of `width` numbers, one row per term, what products take: in place, and rows of pairs as far apart
    /// as rows were.
    pub(super) fn rows(self, x: &mut [f32], width: usize) {
        match self {
            Factors::F32 => {}
            Factors::Rounded => round(x),
            #[cfg(target_arch = "x86_64")]
            // SAFETY: there are pairs only where there are these instructions.
            Factors::Pairs => unsafe { pairs::rows(x, width) },
        }
    }

    /// The same of panels, each `terms` rows of `width` numbers.
    pub(super) fn panels(self, x: &mut [f32], (terms, width): (usize, usize)) {
        if self != Factors::F32 {
            x.chunks_exact_mut(terms * width)
                .for_each(|panel| self.rows(panel, width));
        }
    }

    /// [`Factors::rows`] of a tile that is needed as it is, too: a copy in `space`, unless nothing is rounded.
    pub(super) fn copied_rows<'a>(
        self,
        x: &'a [f32],
        width: usize,
        space: &'a mut [f32],
    ) -> &'a [f32] {
        if self == Factors::F32 {
            return x;
        }
        let space = &mut space[..x.len()];
        space.copy_from_slice(x);
        self.rows(space, width);
        space
    }

    /// Makes of rows of `width` numbers with terms along the rows what products take, at the beginnings of the rows.
    pub(super) fn columns(self, x: &mut [f32], width: usize) {
        match self {
            Factors::F32 => {}
            Factors::Rounded => round(x),
            #[cfg(target_arch = "x86_64")]
            Factors::Pairs => {
                for row in x.chunks_exact_mut(width) {
                    // SAFETY: there are pairs only where there are these instructions; a row lies where it goes.
                    unsafe { pairs::terms(row.as_ptr(), row.as_mut_ptr(), width) };
                }
            }
        }
    }

    /// What products take of a row of terms, at the beginning of `to`, which is as long.
    #[inline(always)]
    pub(super) fn terms(self, x: &[f32], to: &mut [f32]) {
        assert_eq!(x.len(), to.len(), "as much room as terms");
        match self {
            #[cfg(target_arch = "x86_64")]
            // SAFETY: there are pairs only where there are these instructions, and half the room is enough.
            Factors::Pairs => unsafe { pairs::terms(x.as_ptr(), to.as_mut_ptr(), x.len()) },
            _ => {
                to.copy_from_slice(x);
                if self == Factors::Rounded {
                    round(to);
                }
            }
        }
    }

    /// What products take of rows of `width` numbers with terms along the rows: a copy in `space`, unless nothing is rounded.
    pub(super) fn copied_columns<'a>(
        self,
        x: &'a [f32],
        width: usize,
        space: &'a mut [f32],
    ) -> &'a [f32] {
        if self == Factors::F32 {
            return x;
        }
        let space = &mut space[..x.len()];
        for (x, space) in x.chunks_exact(width).zip(space.chunks_exact_mut(width)) {
            self.terms(x, space);
        }
        space
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

/// Products of pairs by AVX512-BF16.
#[cfg(target_arch = "x86_64")]
pub(super) mod pairs {
    use std::arch::x86_64::{
        __m256bh, __m256i, __m512bh, __m512i, _mm512_castsi512_si256, _mm512_cvtne2ps_pbh,
        _mm512_cvtneps_pbh, _mm512_dpbf16_ps, _mm512_loadu_ps, _mm512_loadu_si512,
        _mm512_mask_storeu_epi32, _mm512_maskz_loadu_ps, _mm512_permutexvar_epi16,
        _mm512_rol_epi32, _mm512_set1_epi32, _mm512_setzero_ps, _mm512_storeu_ps,
        _mm512_storeu_si512, _mm512_zextsi256_si512,
    };
    use std::mem::transmute;

    /// f32 of a register.
    const LANES: usize = 16;

    /// Where the words of interleaved rows come from: those of the later row are the lower halves.
    const INTERLEAVED: [u16; 32] = {
        let mut from = [0; 32];
        let mut i = 0;
        while i < LANES {
            from[2 * i] = (LANES + i) as u16;
            from[2 * i + 1] = i as u16;
            i += 1;
        }
        from
    };

    /// The same for two rows of eight that lie side by side.
    const INTERLEAVED_HALVES: [u16; 32] = {
        let mut from = [0; 32];
        let mut i = 0;
        while i < LANES / 2 {
            from[2 * i] = (LANES / 2 + i) as u16;
            from[2 * i + 1] = i as u16;
            i += 1;
        }
        from
    };

    /// Two rows of `width` numbers each time, a multiple of 16 or 8, become one of pairs; zeros follow an odd last one.
    ///
    /// # Safety
    /// The processor must have AVX512-BF16.
    ///
    /// # Panics
    /// If `width` is another number.
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    pub(in crate::kernels) unsafe fn rows(x: &mut [f32], width: usize) {
        assert!(
            width == LANES / 2 || width.is_multiple_of(LANES),
            "rows of whole registers"
        );
        let count = x.len() / width;
        let data = x.as_mut_ptr();
        // SAFETY: rows 2 p and 2 p + 1 lie within x where they are read, row p is at or before them, and of it only
        // columns that have been read are written.
        unsafe {
            if width == LANES / 2 {
                let from = _mm512_loadu_si512(INTERLEAVED_HALVES.as_ptr().cast());
                for pair in 0..count / 2 {
                    let two = _mm512_cvtneps_pbh(_mm512_loadu_ps(data.add(2 * pair * width)));
                    let two = _mm512_zextsi256_si512(transmute::<__m256bh, __m256i>(two));
                    let two = _mm512_castsi512_si256(_mm512_permutexvar_epi16(from, two));
                    data.add(pair * width)
                        .cast::<__m256i>()
                        .write_unaligned(two);
                }
            } else {
                let from = _mm512_loadu_si512(INTERLEAVED.as_ptr().cast());
                for pair in 0..count / 2 {
                    for column in (0..width).step_by(LANES) {
                        let first = _mm512_loadu_ps(data.add(2 * pair * width + column));
                        let second = _mm512_loadu_ps(data.add((2 * pair + 1) * width + column));
                        let two: __m512i = transmute(_mm512_cvtne2ps_pbh(second, first));
                        let two = _mm512_permutexvar_epi16(from, two);
                        _mm512_storeu_si512(data.add(pair * width + column).cast(), two);
                    }
                }
            }
        }
        if count % 2 == 1 {
            let (to, from) = (count / 2 * width, (count - 1) * width);
            x.copy_within(from..from + width, to);
            // A rounded f32 is a bfloat16 and sixteen bits of zeros.
            super::round(&mut x[to..to + width]);
        }
    }

    /// Neighbours in a row of `count` numbers become pairs; a zero follows an odd last one.
    ///
    /// # Safety
    /// The processor must have AVX512-BF16; `row` must be valid for `count` numbers, and `to`, which may be `row` or lie
    /// apart from it, for half as many.
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    pub(in crate::kernels) unsafe fn terms(row: *const f32, to: *mut f32, count: usize) {
        for done in (0..count).step_by(2 * LANES) {
            let left = count - done;
            let (first, second) = (mask(left), mask(left.saturating_sub(LANES)));
            // SAFETY: only what the masks name is read and written: numbers that are left, and half as many pairs, which
            // lie before numbers that have not been read.
            unsafe {
                let row = row.add(done);
                let x = _mm512_maskz_loadu_ps(first, row);
                let y = _mm512_maskz_loadu_ps(second, row.wrapping_add(LANES));
                let two: __m512i = transmute(_mm512_cvtne2ps_pbh(y, x));
                let to = to.add(done / 2).cast();
                _mm512_mask_storeu_epi32(to, mask(left.div_ceil(2)), _mm512_rol_epi32::<16>(two));
            }
        }
    }

    /// The first lanes of a register, at most all.
    fn mask(count: usize) -> u16 {
        (1_u32 << count.min(LANES)).wrapping_sub(1) as u16
    }

    /// M rows by N registers of a product, held in registers while k pairs of terms run.
    ///
    /// # Safety
    /// The processor must have AVX512-BF16; `a`, `b` and `out` must be valid for those rows, registers and k.
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    pub(in crate::kernels) unsafe fn block<const M: usize, const N: usize, const ADD: bool>(
        (a, (row, column)): (*const f32, (usize, usize)),
        (b, b_row): (*const f32, usize),
        (out, out_row): (*mut f32, usize),
        k: usize,
    ) {
        // SAFETY: by this function's contract.
        unsafe {
            let mut sums = [[_mm512_setzero_ps(); N]; M];
            if ADD {
                for (i, sums) in sums.iter_mut().enumerate() {
                    for (j, sum) in sums.iter_mut().enumerate() {
                        *sum = _mm512_loadu_ps(out.add(i * out_row + j * LANES));
                    }
                }
            }
            for k in 0..k {
                let right: [__m512bh; N] = std::array::from_fn(|j| {
                    transmute(_mm512_loadu_si512(b.add(k * b_row + j * LANES).cast()))
                });
                for (i, sums) in sums.iter_mut().enumerate() {
                    let left = a.add(i * row + k * column).cast::<i32>().read();
                    let left: __m512bh = transmute(_mm512_set1_epi32(left));
                    for (sum, right) in sums.iter_mut().zip(right) {
                        *sum = _mm512_dpbf16_ps(*sum, left, right);
                    }
                }
            }
            for (i, sums) in sums.iter().enumerate() {
                for (j, sum) in sums.iter().enumerate() {
                    _mm512_storeu_ps(out.add(i * out_row + j * LANES), *sum);
                }
            }
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
            if factors == Factors::Rounded {
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
                let pairs = factors.copied_columns(&x, width, &mut space);
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
