//! Products of pairs of bfloat16 by AMX, whose registers are tiles of 16 rows by 64 bytes.
//!
//! An instruction adds to 16 x 16 sums the products of 16 rows of 32 terms with 32 terms of 16 columns. It sums terms at
//! even and at odd places apart, each in their order, and adds both sums to what was there (Intel, Architecture Instruction
//! Set Extensions, TDPBF16PS), so that a sum depends on nothing but its terms and where in their row they stand.

use std::arch::asm;
use std::arch::x86_64::{
    __cpuid, __cpuid_count, __m512i, _mm256_loadu_si256, _mm512_castsi256_si512,
    _mm512_inserti64x4, _mm512_mask_storeu_epi32, _mm512_setzero_si512,
};
use std::cell::Cell;
use std::sync::OnceLock;

use super::pairs::{self, mask};
pub(in crate::kernels) use crate::kernels::transpose::SIDE;
use crate::kernels::transpose::transpose;

/// Bytes of a tile's row: [`SIDE`] pairs of terms or f32. It has as many rows.
const ROW: usize = 64;

/// Whether the processor has these instructions, and the operating system lets this process use them.
pub(super) fn is_available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(|| is_there() && is_permitted())
}

/// Whether the processor has AMX-TILE and AMX-BF16, which the standard library's detection does not know yet.
fn is_there() -> bool {
    /// Leaf of structured extended features, and two bits of its EDX.
    const FEATURES: u32 = 7;
    const BOTH: u32 = 1 << 24 | 1 << 22;
    __cpuid(0).eax >= FEATURES && __cpuid_count(FEATURES, 0).edx & BOTH == BOTH
}

/// Asks Linux for the tiles: a process that has not asked is killed by its first such instruction.
#[cfg(target_os = "linux")]
fn is_permitted() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_long = 18;
    // SAFETY: a call with two numbers, refused where it is not known.
    unsafe {
        libc::syscall(
            libc::SYS_arch_prctl,
            ARCH_REQ_XCOMP_PERM,
            XFEATURE_XTILEDATA,
        ) == 0
    }
}

#[cfg(not(target_os = "linux"))]
fn is_permitted() -> bool {
    false
}

/// What LDTILECFG reads.
#[repr(C, align(64))]
struct Configuration {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

/// Tiles 0 to 3 hold sums, 4 and 5 left operands, 6 and 7 right ones.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Shape {
    /// Of left operands and sums.
    rows: usize,
    /// Pairs of terms.
    pairs: usize,
}

thread_local! {
    static SHAPE: Cell<Shape> = const { Cell::new(Shape { rows: 0, pairs: 0 }) };
}

impl Shape {
    /// Has this thread's tiles take the shape, and forget what they hold if they had another.
    ///
    /// # Safety
    /// The tiles must be available.
    #[inline(always)]
    unsafe fn configure(self) {
        if SHAPE.get() != self {
            // SAFETY: by this function's contract.
            unsafe { self.load() };
        }
    }

    #[cold]
    unsafe fn load(self) {
        let mut configuration = Configuration {
            palette: 1,
            start_row: 0,
            reserved: [0; 14],
            row_bytes: [0; 16],
            rows: [0; 16],
        };
        let sums = [(self.rows, ROW); 4];
        let left = [(self.rows, 4 * self.pairs); 2];
        let right = [(self.pairs, ROW); 2];
        let tiles = sums.into_iter().chain(left).chain(right);
        for (tile, (rows, bytes)) in tiles.enumerate() {
            configuration.rows[tile] = rows as u8;
            configuration.row_bytes[tile] = bytes as u16;
        }
        // SAFETY: the configuration is whole and valid, and no tile is in use between calls of this module.
        unsafe {
            asm!("ldtilecfg [{0}]", in(reg) &raw const configuration, options(nostack, readonly));
        }
        SHAPE.set(self);
    }
}

/// [`product`] of slices.
///
/// # Panics
/// If the tiles are not available, or an operand is smaller than its shape.
pub(in crate::kernels) fn multiply(
    (a, a_row): (&[f32], usize),
    (b, b_row): (&[f32], usize),
    (out, out_row): (&mut [f32], usize),
    (m, n, k): (usize, usize, usize),
    add: bool,
) {
    assert!(is_available() && m * n * k > 0, "products of nothing");
    assert!((m - 1) * a_row + k <= a.len(), "left operand");
    assert!((k - 1) * b_row + n <= b.len(), "right operand");
    assert!((m - 1) * out_row + n <= out.len(), "result");
    assert!(
        m.is_multiple_of(8) && n.is_multiple_of(SIDE),
        "sides are not padded"
    );
    let (a, b, out) = (
        (a.as_ptr(), a_row),
        (b.as_ptr(), b_row),
        (out.as_mut_ptr(), out_row),
    );
    // SAFETY: the assertions bound the operands, and the tiles are available.
    unsafe { product(a, b, out, (m, n, k), add) }
}

/// `out = a b`, or `out += a b`, with m rows (a multiple of 8), n columns (a multiple of 16) and k pairs of terms.
///
/// Rows of `a` have the pairs of a row one after the other, rows of `b` those of all columns; rows are as far apart as the
/// number beside the operand says.
///
/// # Safety
/// The tiles must be available, and operands as large as their shapes.
pub(in crate::kernels) unsafe fn product(
    (a, a_row): (*const f32, usize),
    (b, b_row): (*const f32, usize),
    (out, out_row): (*mut f32, usize),
    (m, n, k): (usize, usize, usize),
    add: bool,
) {
    let pairs = k / SIDE * SIDE;
    // Whole tiles, and then the pairs and rows that are left.
    // SAFETY: by this function's contract.
    unsafe {
        if pairs > 0 {
            let steps = k / SIDE;
            columns(
                (a, a_row),
                (b, b_row),
                (out, out_row),
                (m, n, steps),
                SIDE,
                add,
            );
        }
        if pairs < k {
            let (a, b) = (a.add(pairs), b.add(pairs * b_row));
            let add = add || pairs > 0;
            columns(
                (a, a_row),
                (b, b_row),
                (out, out_row),
                (m, n, 1),
                k - pairs,
                add,
            );
        }
    }
}

/// [`product`] of rows of as many times so many pairs as there are `steps`.
#[inline(always)]
unsafe fn columns(
    (a, a_row): (*const f32, usize),
    (b, b_row): (*const f32, usize),
    (out, out_row): (*mut f32, usize),
    (m, n, steps): (usize, usize, usize),
    pairs: usize,
    add: bool,
) {
    let whole = m / SIDE * SIDE;
    // SAFETY: by the contract of `product`.
    unsafe {
        if whole > 0 {
            let sizes = (whole, n, steps);
            let shape = Shape { rows: SIDE, pairs };
            blocks((a, a_row), (b, b_row), (out, out_row), sizes, shape, add);
        }
        if whole < m {
            let (a, out) = (a.add(whole * a_row), out.add(whole * out_row));
            let sizes = (m - whole, n, steps);
            let shape = Shape {
                rows: m - whole,
                pairs,
            };
            blocks((a, a_row), (b, b_row), (out, out_row), sizes, shape, add);
        }
    }
}

/// [`product`] of whole tiles of a shape, each a sum of as many products as there are `steps`.
#[inline(always)]
unsafe fn blocks(
    (a, a_row): (*const f32, usize),
    (b, b_row): (*const f32, usize),
    (out, out_row): (*mut f32, usize),
    (m, n, steps): (usize, usize, usize),
    shape: Shape,
    add: bool,
) {
    let side = shape.rows;
    let (two_rows, two_columns) = (m / (2 * SIDE) * (2 * SIDE), n / (2 * SIDE) * (2 * SIDE));
    // SAFETY: by the contract of `product`.
    unsafe {
        shape.configure();
        for j in (0..n).step_by(2 * SIDE) {
            for i in (0..m).step_by(2 * SIDE) {
                let left = (a.add(i * a_row), a_row);
                let right = (b.add(j), b_row);
                let sums = (out.add(i * out_row + j), out_row);
                if i < two_rows && j < two_columns {
                    four(left, right, sums, steps, add);
                    continue;
                }
                for i in (0..(m - i).min(2 * SIDE)).step_by(side) {
                    for j in (0..(n - j).min(2 * SIDE)).step_by(SIDE) {
                        let left = (left.0.add(i * a_row), a_row);
                        let sums = (sums.0.add(i * out_row + j), out_row);
                        one(left, (right.0.add(j), b_row), sums, steps, add);
                    }
                }
            }
        }
    }
}

/// Two by two tiles of sums.
///
/// # Safety
/// That of [`product`], and tiles must have 16 rows.
#[inline(always)]
unsafe fn four(
    (a, a_row): (*const f32, usize),
    (b, b_row): (*const f32, usize),
    (out, out_row): (*mut f32, usize),
    steps: usize,
    add: bool,
) {
    // SAFETY: by this function's contract; strides are in bytes.
    unsafe {
        asm!(
            "test {add:e}, {add:e}",
            "jz 2f",
            "tileloadd tmm0, [{out} + {out_row}]",
            "tileloadd tmm1, [{out} + {out_row} + 64]",
            "tileloadd tmm2, [{low} + {out_row}]",
            "tileloadd tmm3, [{low} + {out_row} + 64]",
            "jmp 3f",
            "2:",
            "tilezero tmm0",
            "tilezero tmm1",
            "tilezero tmm2",
            "tilezero tmm3",
            "3:",
            "tileloadd tmm4, [{a} + {a_row}]",
            "tileloadd tmm6, [{b} + {b_row}]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tileloadd tmm7, [{b} + {b_row} + 64]",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "tileloadd tmm5, [{a_low} + {a_row}]",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "tdpbf16ps tmm3, tmm5, tmm7",
            "add {a}, 64",
            "add {a_low}, 64",
            "add {b}, {b_step}",
            "dec {steps}",
            "jnz 3b",
            "tilestored [{out} + {out_row}], tmm0",
            "tilestored [{out} + {out_row} + 64], tmm1",
            "tilestored [{low} + {out_row}], tmm2",
            "tilestored [{low} + {out_row} + 64], tmm3",
            add = in(reg) u32::from(add),
            out = in(reg) out,
            low = in(reg) out.add(SIDE * out_row),
            out_row = in(reg) 4 * out_row,
            a = inout(reg) a => _,
            a_low = inout(reg) a.add(SIDE * a_row) => _,
            a_row = in(reg) 4 * a_row,
            b = inout(reg) b => _,
            b_row = in(reg) 4 * b_row,
            b_step = in(reg) 4 * SIDE * b_row,
            steps = inout(reg) steps => _,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        );
    }
}

/// One tile of sums.
///
/// # Safety
/// That of [`product`].
#[inline(always)]
unsafe fn one(
    (a, a_row): (*const f32, usize),
    (b, b_row): (*const f32, usize),
    (out, out_row): (*mut f32, usize),
    steps: usize,
    add: bool,
) {
    // SAFETY: by this function's contract; strides are in bytes.
    unsafe {
        asm!(
            "tilezero tmm0",
            "test {add:e}, {add:e}",
            "jz 3f",
            "tileloadd tmm0, [{out} + {out_row}]",
            "3:",
            "tileloadd tmm4, [{a} + {a_row}]",
            "tileloadd tmm6, [{b} + {b_row}]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "add {a}, 64",
            "add {b}, {b_step}",
            "dec {steps}",
            "jnz 3b",
            "tilestored [{out} + {out_row}], tmm0",
            add = in(reg) u32::from(add),
            out = in(reg) out,
            out_row = in(reg) 4 * out_row,
            a = inout(reg) a => _,
            a_row = in(reg) 4 * a_row,
            b = inout(reg) b => _,
            b_row = in(reg) 4 * b_row,
            b_step = in(reg) 4 * SIDE * b_row,
            steps = inout(reg) steps => _,
            out("tmm0") _, out("tmm4") _, out("tmm6") _,
            options(nostack),
        );
    }
}

/// Makes rows of pairs one after the other, `to_row` apart, of m rows (a multiple of 8) of k pairs that lie in columns:
/// rows side by side, the next eight `step` further on, and pairs `column` apart.
///
/// # Safety
/// The processor must have AVX-512, and both must be as large as their shapes.
#[target_feature(enable = "avx512f")]
pub(in crate::kernels) unsafe fn transpose_pairs(
    (x, step, column): (*const f32, usize, usize),
    (m, k): (usize, usize),
    (to, to_row): (*mut f32, usize),
) {
    for i in (0..m).step_by(SIDE) {
        for p in (0..k).step_by(SIDE) {
            let (rows, count) = (SIDE.min(m - i), SIDE.min(k - p));
            // SAFETY: by this function's contract: `rows` is 8 or 16.
            unsafe {
                let x = x.add(i / 8 * step + p * column);
                let mut block = [_mm512_setzero_si512(); SIDE];
                for (p, block) in block.iter_mut().enumerate().take(count) {
                    let line = x.add(p * column);
                    let upper = if rows == SIDE { line.add(step) } else { line };
                    let [line, upper] = [line, upper].map(|eight| _mm256_loadu_si256(eight.cast()));
                    *block = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(line), upper);
                }
                store(
                    transpose(block),
                    (rows, count),
                    (to.add(i * to_row + p), to_row),
                );
            }
        }
    }
}

/// Makes rows of pairs one after the other, `to_row` apart, of m rows of k terms that lie in columns, `column` apart; a zero
/// follows an odd last term.
///
/// # Panics
/// If the tiles are not available, or an operand is smaller than its shape.
pub(in crate::kernels) fn transpose_terms(
    (x, column): (&[f32], usize),
    (m, k): (usize, usize),
    (to, to_row): (&mut [f32], usize),
) {
    assert!(is_available() && m * k > 0, "terms of nothing");
    assert!((k - 1) * column + m <= x.len(), "terms");
    assert!(
        (m - 1) * to_row + k.div_ceil(2) <= to.len(),
        "room for pairs"
    );
    let (x, to) = ((x.as_ptr(), column), (to.as_mut_ptr(), to_row));
    // SAFETY: where there are tiles there is AVX512-BF16, and the assertions bound both operands.
    unsafe { pairs_of_columns(x, (m, k), to) }
}

/// [`transpose_terms`].
///
/// # Safety
/// The processor must have AVX512-BF16, and both must be as large as their shapes.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
unsafe fn pairs_of_columns(
    (x, column): (*const f32, usize),
    (m, k): (usize, usize),
    (to, to_row): (*mut f32, usize),
) {
    for i in (0..m).step_by(SIDE) {
        for term in (0..k).step_by(2 * SIDE) {
            let (rows, count) = (SIDE.min(m - i), (2 * SIDE).min(k - term));
            // SAFETY: by this function's contract.
            unsafe {
                let x = x.add(term * column + i);
                let mut block = [_mm512_setzero_si512(); SIDE];
                for (p, block) in block.iter_mut().enumerate().take(count.div_ceil(2)) {
                    let first = x.add(2 * p * column);
                    let second = (2 * p + 1 < count).then(|| first.add(column));
                    *block = pairs::interleaved(first, second, rows);
                }
                let to = to.add(i * to_row + term / 2);
                store(transpose(block), (rows, count.div_ceil(2)), (to, to_row));
            }
        }
    }
}

/// Writes the first rows and pairs of a block.
#[target_feature(enable = "avx512f")]
unsafe fn store(
    block: [__m512i; SIDE],
    (rows, pairs): (usize, usize),
    (to, to_row): (*mut f32, usize),
) {
    for (i, row) in block.into_iter().enumerate().take(rows) {
        // SAFETY: the caller has room for these rows and pairs.
        unsafe { _mm512_mask_storeu_epi32(to.add(i * to_row).cast(), mask(pairs), row) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pair whose first number is the upper half.
    fn pair(first: f32, second: f32) -> f32 {
        f32::from_bits(first.to_bits() & 0xffff_0000 | second.to_bits() >> 16)
    }

    #[test]
    fn products_meet_the_definition_and_stay_within_their_operands() {
        if !is_available() {
            return;
        }
        // Whole numbers, of which every sum is exact.
        let number = |i: usize, j: usize| ((7 * i + 3 * j) % 11) as f32 - 5.0;
        for m in [8, 16, 24, 32, 40, 64] {
            for n in [16, 32, 48, 80] {
                for k in [1, 5, 16, 17, 32, 50] {
                    let (a_row, b_row, out_row) = (k + 3, n + 5, n + 1);
                    let mut a = vec![f32::NAN; (m - 1) * a_row + k];
                    let mut b = vec![f32::NAN; (k - 1) * b_row + n];
                    for p in 0..k {
                        for i in 0..m {
                            a[i * a_row + p] = pair(number(i, 2 * p), number(i, 2 * p + 1));
                        }
                        for j in 0..n {
                            b[p * b_row + j] = pair(number(2 * p, j), number(2 * p + 1, j));
                        }
                    }
                    let mut out = vec![1.0; (m - 1) * out_row + n];
                    for add in [true, false] {
                        let operands = ((&a[..], a_row), (&b[..], b_row));
                        let to = (&mut out[..], out_row);
                        multiply(operands.0, operands.1, to, (m, n, k), add);
                        for i in 0..m {
                            for j in 0..n {
                                let term = |t| number(i, t) * number(t, j);
                                let sum: f32 = (0..2 * k).map(term).sum();
                                let expected = sum + f32::from(u8::from(add));
                                assert_eq!(out[i * out_row + j], expected, "{m} {n} {k}");
                            }
                        }
                        assert!((1..m).all(|i| out[i * out_row - 1] == 1.0));
                    }
                }
            }
        }
    }

    #[test]
    fn transposes_meet_the_definition() {
        if !is_available() {
            return;
        }
        for (m, k) in [
            (8_usize, 1_usize),
            (16, 16),
            (24, 7),
            (40, 33),
            (64, 32),
            (5, 9),
            (19, 64),
        ] {
            let (column, to_row) = (m + 3, k.div_ceil(2) + 2);
            let x: Vec<f32> = (0..k * column).map(|i| (i % 251) as f32).collect();
            let mut to = vec![-1.0; m * to_row];
            transpose_terms((&x, column), (m, k), (&mut to, to_row));
            for i in 0..m {
                for p in 0..to_row {
                    let term = |t: usize| if t < k { x[t * column + i] } else { 0.0 };
                    let expected = match p < k.div_ceil(2) {
                        true => pair(term(2 * p), term(2 * p + 1)),
                        false => -1.0,
                    };
                    assert_eq!(to[i * to_row + p].to_bits(), expected.to_bits(), "{m} {k}");
                }
            }
            if !m.is_multiple_of(8) {
                continue;
            }
            // Words that lie in panels of eight rows: (panel, pair, row).
            let panels: Vec<f32> = (0..m * k).map(|i| i as f32).collect();
            let mut to = vec![-1.0; m * (k + 1)];
            // SAFETY: where there are tiles there is AVX-512, and both have m rows of k words.
            unsafe {
                transpose_pairs(
                    (panels.as_ptr(), 8 * k, 8),
                    (m, k),
                    (to.as_mut_ptr(), k + 1),
                );
            }
            for i in 0..m {
                for p in 0..k {
                    assert_eq!(to[i * (k + 1) + p], panels[i / 8 * 8 * k + p * 8 + i % 8]);
                }
                assert_eq!(to[i * (k + 1) + k], -1.0);
            }
        }
    }
}
