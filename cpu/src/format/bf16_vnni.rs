//! Pairs of bfloat16 terms, and their products by AVX512-BF16 (VDPBF16PS).

use std::arch::x86_64::{
    __m256bh, __m256i, __m512bh, __m512i, _mm512_castsi512_si256, _mm512_cvtne2ps_pbh,
    _mm512_cvtneps_pbh, _mm512_dpbf16_ps, _mm512_loadu_ps, _mm512_loadu_si512,
    _mm512_mask_storeu_epi32, _mm512_maskz_loadu_ps, _mm512_permutexvar_epi16, _mm512_rol_epi32,
    _mm512_set1_epi32, _mm512_setzero_ps, _mm512_setzero_si512, _mm512_storeu_ps,
    _mm512_storeu_si512, _mm512_zextsi256_si512,
};
use std::mem::transmute;

use crate::transpose::transpose;

/// The f32 of a register.
const LANES: usize = 16;

/// The permutation that interleaves two rows: the later row gives the lower halves.
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

/// The permutation that interleaves two contiguous rows of eight.
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

/// Rounds rows of `width` numbers to bfloat16 and interleaves them two by two, in place: rows 2 p
/// and 2 p + 1 become row p, of `width` pairs. An odd last row is paired with zeros.
///
/// # Safety
/// The processor must have AVX512-BF16.
///
/// # Panics
/// If `width` is neither 8 nor a multiple of 16.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub unsafe fn rows(x: &mut [f32], width: usize) {
    assert!(
        width == LANES / 2 || width.is_multiple_of(LANES),
        "rows of whole registers"
    );
    let count = x.len() / width;
    let data = x.as_mut_ptr();
    // SAFETY: rows 2 p and 2 p + 1 lie within x where they are read, row p is at or before them,
    // and of it only columns that have been read are written.
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

/// Rounds a row of `count` numbers to bfloat16, and pairs neighbours. An odd last one is paired
/// with zero.
///
/// # Safety
/// The processor must have AVX512-BF16. `row` must be valid for `count` numbers, and `to` for half
/// as many. `to` must be equal to `row` or not overlap it.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub unsafe fn terms(row: *const f32, to: *mut f32, count: usize) {
    for done in (0..count).step_by(2 * LANES) {
        let left = count - done;
        // SAFETY: only remaining numbers are read, and half as many pairs are written, before
        // numbers that have not been read yet.
        unsafe {
            let pairs = of_neighbours(row.add(done), left);
            _mm512_mask_storeu_epi32(to.add(done / 2).cast(), mask(left.div_ceil(2)), pairs);
        }
    }
}

/// Returns pairs of the first `count` numbers of a row, at most 32, then zeros.
///
/// # Safety
/// The processor must have AVX512-BF16, and the row must have `count` numbers, of which at most 32
/// are read.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
#[inline]
unsafe fn of_neighbours(row: *const f32, count: usize) -> __m512i {
    let (first, second) = (mask(count), mask(count.saturating_sub(LANES)));
    // SAFETY: only lanes of the masks are read.
    unsafe {
        let x = _mm512_maskz_loadu_ps(first, row);
        let y = _mm512_maskz_loadu_ps(second, row.wrapping_add(LANES));
        let two: __m512i = transmute(_mm512_cvtne2ps_pbh(y, x));
        _mm512_rol_epi32::<16>(two)
    }
}

/// Packs a row-major matrix with rows `row` apart into panels of `N` columns of pairs. Missing
/// columns of the last panel become zero.
///
/// # Safety
/// The processor must have AVX512-BF16, and operands must be as large as their shapes.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub unsafe fn pack_rows<const N: usize>(
    (x, row): (*const f32, usize),
    (rows, columns): (usize, usize),
    to: *mut f32,
) {
    let len = rows.div_ceil(2);
    for p in 0..len {
        let first = x.wrapping_add(2 * p * row);
        let second = (2 * p + 1 < rows).then(|| first.wrapping_add(row));
        for c in (0..columns.next_multiple_of(N)).step_by(LANES) {
            let count = columns.saturating_sub(c);
            let second = second.map(|second| second.wrapping_add(c));
            // SAFETY: by this function's contract; columns that are missing are not read.
            unsafe {
                let pairs = interleaved(first.wrapping_add(c), second, count);
                let to = to.add(c / N * N * len + p * N + c % N);
                _mm512_storeu_si512(to.cast(), pairs);
            }
        }
    }
}

/// Packs a column-major matrix with columns `column` apart, as [`pack_rows`] does.
///
/// # Safety
/// As for [`pack_rows`].
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub unsafe fn pack_columns<const N: usize>(
    (x, column): (*const f32, usize),
    (rows, columns): (usize, usize),
    to: *mut f32,
) {
    let len = rows.div_ceil(2);
    for c in (0..columns.next_multiple_of(N)).step_by(LANES) {
        for term in (0..rows).step_by(2 * LANES) {
            let count = rows - term;
            let mut block = [_mm512_setzero_si512(); LANES];
            let columns = columns.saturating_sub(c);
            for (i, block) in block.iter_mut().enumerate().take(columns) {
                // SAFETY: by this function's contract.
                *block = unsafe { of_neighbours(x.add((c + i) * column + term), count) };
            }
            let to = to.wrapping_add(c / N * N * len + term / 2 * N + c % N);
            let pairs = transpose(block).into_iter().take(count.div_ceil(2));
            for (p, pairs) in pairs.enumerate() {
                // SAFETY: as above.
                unsafe { _mm512_storeu_si512(to.add(p * N).cast(), pairs) };
            }
        }
    }
}

/// Returns pairs of the first `count` columns of two rows, then zeros. The second row may be
/// missing.
///
/// # Safety
/// The processor must have AVX512-BF16, and the rows must have `count` numbers, of which at most 16
/// are read.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
#[inline]
pub(super) unsafe fn interleaved(
    first: *const f32,
    second: Option<*const f32>,
    count: usize,
) -> __m512i {
    // SAFETY: only lanes of the mask are read.
    unsafe {
        let first = _mm512_maskz_loadu_ps(mask(count), first);
        let second = second.map_or(_mm512_setzero_ps(), |second| {
            _mm512_maskz_loadu_ps(mask(count), second)
        });
        let two: __m512i = transmute(_mm512_cvtne2ps_pbh(second, first));
        _mm512_permutexvar_epi16(_mm512_loadu_si512(INTERLEAVED.as_ptr().cast()), two)
    }
}

/// Returns the mask of the first `count` lanes of a register.
pub(super) fn mask(count: usize) -> u16 {
    (1_u32 << count.min(LANES)).wrapping_sub(1) as u16
}

/// Multiplies a block of M rows by N registers over k pairs of terms, with the sums in registers.
///
/// # Safety
/// The processor must have AVX512-BF16; `a`, `b` and `out` must be valid for those rows, registers
/// and k.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub unsafe fn block<const M: usize, const N: usize, const ADD: bool>(
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
