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

use super::packing;
use super::pairs::mask;
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
    /// 16 rows of 16 pairs.
    const WHOLE: Shape = Shape {
        rows: SIDE,
        pairs: SIDE,
    };

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

/// Where tiles of sums begin.
#[derive(Clone, Copy)]
pub(in crate::kernels) struct Sums<T> {
    pub(in crate::kernels) start: T,
    /// From one row to the next; 0 where all rows are the same.
    pub(in crate::kernels) row: usize,
    /// From one column to the next: 1, or 0 where all tiles but two side by side are the same.
    pub(in crate::kernels) column: usize,
}

/// `to = from + a b` for operands of [`super::packing`] with as many terms: as many rows and columns as groups of 16 of them.
/// `from` may be `to`.
///
/// A sum is one instruction after the other, each of 32 terms: those of near terms and of far ones apart, each in their order,
/// and then both. Of numbers in three parts the six largest products are summed, each before the next 32 terms.
///
/// # Safety
/// AMX must be available, and operands must be as large as their shapes.
pub(in crate::kernels) unsafe fn multiply_tiles<const PARTS: usize>(
    a: *const f32,
    b: *const f32,
    from: Sums<*const f32>,
    to: Sums<*mut f32>,
    (rows, columns, terms): (usize, usize, usize),
) {
    let step = packing::step(PARTS, terms);
    let steps = terms.div_ceil(packing::TERMS);
    // SAFETY: by this function's contract.
    unsafe {
        Shape::WHOLE.configure();
        for j in (0..columns).step_by(2) {
            for i in (0..rows).step_by(2) {
                let place = |i: usize, j: usize| {
                    let (a, b) = (a.add(i * step), b.add(j * step));
                    let from = from.start.add(SIDE * (i * from.row + j * from.column));
                    let to = to.start.add(SIDE * (i * to.row + j * to.column));
                    (a, b, from, to)
                };
                let (a, b, start, sums) = place(i, j);
                if i + 1 < rows && j + 1 < columns {
                    let (a, b) = ([a, a.add(step)], [b, b.add(step)]);
                    four_tiles::<PARTS>(a, b, (start, from.row), (sums, to.row), steps);
                    continue;
                }
                for i in i..rows.min(i + 2) {
                    for j in j..columns.min(j + 2) {
                        let (a, b, start, sums) = place(i, j);
                        one_tile::<PARTS>(a, b, (start, from.row), (sums, to.row), steps);
                    }
                }
            }
        }
    }
}

/// The six products of numbers in three parts: left, right and how far on each part lies, in bytes. From one to the next only one side
/// changes.
macro_rules! products_of_parts {
    ($both:ident, $left:ident, $right:ident) => {
        concat!(
            $both!("2048", "0"),
            $left!("1024"),
            $right!("1024"),
            $left!("0"),
            $right!("2048"),
            $right!("0"),
        )
    };
}

/// Adds to four tiles of sums the products of two tiles that are loaded from these parts.
macro_rules! four_products {
    ($left:literal, $right:literal) => {
        concat!(
            "tileloadd tmm4, [{a} + {line} + ",
            $left,
            "]\n",
            "tileloadd tmm6, [{b} + {line} + ",
            $right,
            "]\n",
            "tdpbf16ps tmm0, tmm4, tmm6\n",
            "tileloadd tmm7, [{b_next} + {line} + ",
            $right,
            "]\n",
            "tdpbf16ps tmm1, tmm4, tmm7\n",
            "tileloadd tmm5, [{a_next} + {line} + ",
            $left,
            "]\n",
            "tdpbf16ps tmm2, tmm5, tmm6\n",
            "tdpbf16ps tmm3, tmm5, tmm7\n",
        )
    };
}

/// The same of right operands that are there.
macro_rules! four_products_left {
    ($left:literal) => {
        concat!(
            "tileloadd tmm4, [{a} + {line} + ",
            $left,
            "]\n",
            "tdpbf16ps tmm0, tmm4, tmm6\n",
            "tdpbf16ps tmm1, tmm4, tmm7\n",
            "tileloadd tmm5, [{a_next} + {line} + ",
            $left,
            "]\n",
            "tdpbf16ps tmm2, tmm5, tmm6\n",
            "tdpbf16ps tmm3, tmm5, tmm7\n",
        )
    };
}

/// The same of left operands that are there.
macro_rules! four_products_right {
    ($right:literal) => {
        concat!(
            "tileloadd tmm6, [{b} + {line} + ",
            $right,
            "]\n",
            "tdpbf16ps tmm0, tmm4, tmm6\n",
            "tdpbf16ps tmm2, tmm5, tmm6\n",
            "tileloadd tmm7, [{b_next} + {line} + ",
            $right,
            "]\n",
            "tdpbf16ps tmm1, tmm4, tmm7\n",
            "tdpbf16ps tmm3, tmm5, tmm7\n",
        )
    };
}

/// Two by two tiles of sums, their terms step by step of 32.
///
/// # Safety
/// That of [`multiply_tiles`].
#[inline(always)]
unsafe fn four_tiles<const PARTS: usize>(
    [a, a_next]: [*const f32; 2],
    [b, b_next]: [*const f32; 2],
    (from, from_row): (*const f32, usize),
    (to, to_row): (*mut f32, usize),
    steps: usize,
) {
    macro_rules! sum {
        ($products:expr) => {
            asm!(
                "tileloadd tmm0, [{from} + {from_row}]",
                "tileloadd tmm1, [{from} + {from_row} + 64]",
                "tileloadd tmm2, [{from_next} + {from_row}]",
                "tileloadd tmm3, [{from_next} + {from_row} + 64]",
                "2:",
                $products,
                "add {a}, {step}",
                "add {a_next}, {step}",
                "add {b}, {step}",
                "add {b_next}, {step}",
                "dec {steps}",
                "jnz 2b",
                "tilestored [{to} + {to_row}], tmm0",
                "tilestored [{to} + {to_row} + 64], tmm1",
                "tilestored [{to_next} + {to_row}], tmm2",
                "tilestored [{to_next} + {to_row} + 64], tmm3",
                step = const 4 * PARTS * packing::TILE,
                line = in(reg) ROW,
                a = inout(reg) a => _,
                a_next = inout(reg) a_next => _,
                b = inout(reg) b => _,
                b_next = inout(reg) b_next => _,
                from = in(reg) from,
                from_next = in(reg) from.add(SIDE * from_row),
                from_row = in(reg) 4 * from_row,
                to = in(reg) to,
                to_next = in(reg) to.add(SIDE * to_row),
                to_row = in(reg) 4 * to_row,
                steps = inout(reg) steps => _,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack),
            )
        };
    }
    // SAFETY: by this function's contract; rows are in bytes.
    unsafe {
        match PARTS {
            1 => sum!(four_products!("0", "0")),
            _ => sum!(products_of_parts!(
                four_products,
                four_products_left,
                four_products_right
            )),
        }
    }
}

/// Adds to a tile of sums the products of tiles that are loaded from these parts.
macro_rules! one_product {
    ($left:literal, $right:literal) => {
        concat!(
            "tileloadd tmm4, [{a} + {line} + ",
            $left,
            "]\n",
            "tileloadd tmm6, [{b} + {line} + ",
            $right,
            "]\n",
            "tdpbf16ps tmm0, tmm4, tmm6\n",
        )
    };
}

/// The same of a right operand that is there.
macro_rules! one_product_left {
    ($left:literal) => {
        concat!(
            "tileloadd tmm4, [{a} + {line} + ",
            $left,
            "]\n",
            "tdpbf16ps tmm0, tmm4, tmm6\n",
        )
    };
}

/// The same of a left operand that is there.
macro_rules! one_product_right {
    ($right:literal) => {
        concat!(
            "tileloadd tmm6, [{b} + {line} + ",
            $right,
            "]\n",
            "tdpbf16ps tmm0, tmm4, tmm6\n",
        )
    };
}

/// One tile of sums.
///
/// # Safety
/// That of [`multiply_tiles`].
#[inline(always)]
unsafe fn one_tile<const PARTS: usize>(
    a: *const f32,
    b: *const f32,
    (from, from_row): (*const f32, usize),
    (to, to_row): (*mut f32, usize),
    steps: usize,
) {
    macro_rules! sum {
        ($products:expr) => {
            asm!(
                "tileloadd tmm0, [{from} + {from_row}]",
                "2:",
                $products,
                "add {a}, {step}",
                "add {b}, {step}",
                "dec {steps}",
                "jnz 2b",
                "tilestored [{to} + {to_row}], tmm0",
                step = const 4 * PARTS * packing::TILE,
                line = in(reg) ROW,
                a = inout(reg) a => _,
                b = inout(reg) b => _,
                from = in(reg) from,
                from_row = in(reg) 4 * from_row,
                to = in(reg) to,
                to_row = in(reg) 4 * to_row,
                steps = inout(reg) steps => _,
                out("tmm0") _, out("tmm4") _, out("tmm6") _,
                options(nostack),
            )
        };
    }
    // SAFETY: by this function's contract; rows are in bytes.
    unsafe {
        match PARTS {
            1 => sum!(one_product!("0", "0")),
            _ => sum!(products_of_parts!(
                one_product,
                one_product_left,
                one_product_right
            )),
        }
    }
}

/// [`product`] of slices.
///
/// # Panics
/// If the tiles are not available, or an operand is smaller than its shape.
#[cfg(test)]
fn multiply(
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
        for (m, k) in [(8_usize, 1_usize), (16, 16), (24, 7), (40, 33), (64, 32)] {
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
