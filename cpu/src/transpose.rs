//! Transposes in AVX-512 registers.

use std::arch::x86_64::{
    __m512i, _mm512_castps_si512, _mm512_loadu_ps, _mm512_mul_ps, _mm512_set1_ps,
    _mm512_setzero_si512, _mm512_shuffle_i32x4, _mm512_storeu_si512, _mm512_unpackhi_epi32,
    _mm512_unpackhi_epi64, _mm512_unpacklo_epi32, _mm512_unpacklo_epi64,
};

/// Words of a register and registers of a block.
pub const SIDE: usize = 16;

/// Copies the first `width` numbers of 16 rows, times `scale`, into the first columns of a matrix
/// whose rows are `to_row` apart. `width` is a multiple of 16.
///
/// # Safety
/// The processor must have AVX-512.
///
/// # Panics
/// If an operand is too small.
#[target_feature(enable = "avx512f")]
pub unsafe fn rows_to_columns(
    rows: [&[f32]; SIDE],
    width: usize,
    scale: f32,
    (to, to_row): (&mut [f32], usize),
) {
    if width == 0 {
        return;
    }
    assert!(rows.iter().all(|row| row.len() >= width), "rows too short");
    assert!((width - 1) * to_row + SIDE <= to.len(), "columns too short");
    assert!(width.is_multiple_of(SIDE), "whole blocks");
    let scale = _mm512_set1_ps(scale);
    for first in (0..width).step_by(SIDE) {
        let mut block = [_mm512_setzero_si512(); SIDE];
        for (block, row) in block.iter_mut().zip(rows) {
            // SAFETY: the rows have `width` numbers.
            let numbers = unsafe { _mm512_loadu_ps(row.as_ptr().add(first)) };
            *block = _mm512_castps_si512(_mm512_mul_ps(numbers, scale));
        }
        for (i, column) in transpose(block).into_iter().enumerate() {
            // SAFETY: the last row has room by the second assertion.
            unsafe {
                _mm512_storeu_si512(to.as_mut_ptr().add((first + i) * to_row).cast(), column);
            }
        }
    }
}

/// Transposes 16 x 16 words, in blocks of two by two, then four by four.
///
/// # Safety
/// The processor must have AVX-512.
#[target_feature(enable = "avx512f")]
#[inline]
pub fn transpose(x: [__m512i; SIDE]) -> [__m512i; SIDE] {
    let mut two = x;
    for i in (0..SIDE).step_by(2) {
        two[i] = _mm512_unpacklo_epi32(x[i], x[i + 1]);
        two[i + 1] = _mm512_unpackhi_epi32(x[i], x[i + 1]);
    }
    // Lane l of register 4 g + j has column 4 l + j of the rows from 4 g on.
    let mut four = two;
    for i in (0..SIDE).step_by(4) {
        four[i] = _mm512_unpacklo_epi64(two[i], two[i + 2]);
        four[i + 1] = _mm512_unpackhi_epi64(two[i], two[i + 2]);
        four[i + 2] = _mm512_unpacklo_epi64(two[i + 1], two[i + 3]);
        four[i + 3] = _mm512_unpackhi_epi64(two[i + 1], two[i + 3]);
    }
    let mut all = four;
    for j in 0..4 {
        let [a, b, c, d] = [four[j], four[4 + j], four[8 + j], four[12 + j]];
        let even = [
            _mm512_shuffle_i32x4::<0x88>(a, b),
            _mm512_shuffle_i32x4::<0x88>(c, d),
        ];
        let odd = [
            _mm512_shuffle_i32x4::<0xdd>(a, b),
            _mm512_shuffle_i32x4::<0xdd>(c, d),
        ];
        all[j] = _mm512_shuffle_i32x4::<0x88>(even[0], even[1]);
        all[4 + j] = _mm512_shuffle_i32x4::<0x88>(odd[0], odd[1]);
        all[8 + j] = _mm512_shuffle_i32x4::<0xdd>(even[0], even[1]);
        all[12 + j] = _mm512_shuffle_i32x4::<0xdd>(odd[0], odd[1]);
    }
    all
}
