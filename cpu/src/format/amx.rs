//! Products of bfloat16 by AMX, whose registers are tiles of 16 rows by 64 bytes.
//!
//! An instruction multiplies 16 rows of 32 terms by 32 terms of 16 columns, and adds to 16 x 16
//! sums. It sums the first and the second terms of pairs separately, each in order, and adds both
//! to the accumulator (Intel, Architecture Instruction Set Extensions, TDPBF16PS). So a sum depends
//! only on its terms and their positions.

use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count};
use std::cell::Cell;
use std::sync::OnceLock;

use super::amx_packing;
pub use crate::transpose::SIDE;

/// Bytes of a row of a tile: [`SIDE`] words. A tile has [`SIDE`] rows.
const ROW: usize = 64;

/// Returns whether the processor has AMX and the operating system lets this process use it.
pub(super) fn is_available() -> bool {
    static AVAILABLE: OnceLock<bool> = OnceLock::new();
    *AVAILABLE.get_or_init(|| is_there() && is_permitted())
}

/// Returns whether the processor has AMX-TILE and AMX-BF16, which the standard library does not
/// detect yet.
fn is_there() -> bool {
    /// The leaf of structured extended features. The two bits are in its EDX.
    const FEATURES: u32 = 7;
    const BOTH: u32 = 1 << 24 | 1 << 22;
    __cpuid(0).eax >= FEATURES && __cpuid_count(FEATURES, 0).edx & BOTH == BOTH
}

/// Requests the tiles from Linux. Without this request, a process is killed at its first AMX
/// instruction.
#[cfg(target_os = "linux")]
fn is_permitted() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_long = 18;
    // SAFETY: a system call with two numbers, which fails if the kernel does not know it.
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

/// The operand of LDTILECFG.
#[repr(C, align(64))]
struct Configuration {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

thread_local! {
    static CONFIGURED: Cell<bool> = const { Cell::new(false) };
}

/// Configures the eight tiles of this thread as 16 rows of 64 bytes.
///
/// # Safety
/// The tiles must be available.
#[inline(always)]
unsafe fn configure() {
    if !CONFIGURED.get() {
        // SAFETY: by this function's contract.
        unsafe { load_configuration() };
    }
}

#[cold]
unsafe fn load_configuration() {
    const TILES: usize = 8;
    let mut configuration = Configuration {
        palette: 1,
        start_row: 0,
        reserved: [0; 14],
        row_bytes: [0; 16],
        rows: [0; 16],
    };
    configuration.row_bytes[..TILES].fill(ROW as u16);
    configuration.rows[..TILES].fill(SIDE as u8);
    // SAFETY: the configuration is whole and valid, and no tile is in use between calls of this
    // module.
    unsafe {
        asm!("ldtilecfg [{0}]", in(reg) &raw const configuration, options(nostack, readonly));
    }
    CONFIGURED.set(true);
}

/// The location of tiles of sums in memory, or zeros.
#[derive(Clone, Copy)]
pub struct Sums<T> {
    /// The first sum; null for zeros.
    pub start: T,
    /// Elements from one row to the next; 0 if all rows are the same.
    pub row: usize,
    /// Elements from one column to the next: 1, or 0 for zeros.
    pub column: usize,
}

impl<T> Sums<T> {
    /// Returns sums in rows that are `row` apart.
    pub fn rows(start: T, row: usize) -> Self {
        let column = 1;
        Sums { start, row, column }
    }
}

impl Sums<*mut f32> {
    /// Returns the same location, for reading.
    pub fn read(self) -> Sums<*const f32> {
        Sums::rows(self.start.cast_const(), self.row)
    }
}

impl Sums<*const f32> {
    /// Sums that begin at zero, and are not read from memory.
    pub const ZEROS: Self = Sums {
        start: std::ptr::null(),
        row: 0,
        column: 0,
    };
}

/// Computes `to = from + a b` for operands of [`super::amx_packing`]. `rows` and `columns` count
/// groups of 16. `from` may be `to`.
///
/// Each instruction adds 32 terms. For bf16x3 the six largest of the nine products are added,
/// before the next 32 terms.
///
/// # Safety
/// AMX must be available, and operands must be as large as their shapes.
pub unsafe fn multiply_tiles<const PARTS: usize>(
    a: *const f32,
    b: *const f32,
    from: Sums<*const f32>,
    to: Sums<*mut f32>,
    (rows, columns, terms): (usize, usize, usize),
) {
    let step = amx_packing::step(PARTS, terms);
    let steps = terms.div_ceil(amx_packing::TERMS);
    // SAFETY: by this function's contract.
    unsafe {
        configure();
        for j in (0..columns).step_by(2) {
            for i in (0..rows).step_by(2) {
                let place = |i: usize, j: usize| {
                    let (a, b) = (a.add(i * step), b.add(j * step));
                    let from = from
                        .start
                        .wrapping_add(SIDE * (i * from.row + j * from.column));
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

/// The six products of numbers in three parts: the left part, the right part, and their offsets in
/// bytes. Only one side changes from each product to the next.
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

/// Adds the products of tiles loaded from these parts to four tiles of sums.
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

/// Like `four_products`, with right operands that are loaded already.
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

/// Like `four_products`, with left operands that are loaded already.
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

/// Computes two by two tiles of sums, in steps of 32 terms.
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
                "test {from}, {from}",
                "jz 3f",
                "tileloadd tmm0, [{from} + {from_row}]",
                "tileloadd tmm1, [{from} + {from_row} + 64]",
                "tileloadd tmm2, [{from_next} + {from_row}]",
                "tileloadd tmm3, [{from_next} + {from_row} + 64]",
                "jmp 2f",
                "3:",
                "tilezero tmm0",
                "tilezero tmm1",
                "tilezero tmm2",
                "tilezero tmm3",
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
                step = const 4 * PARTS * amx_packing::TILE,
                line = in(reg) ROW,
                a = inout(reg) a => _,
                a_next = inout(reg) a_next => _,
                b = inout(reg) b => _,
                b_next = inout(reg) b_next => _,
                from = in(reg) from,
                from_next = in(reg) from.wrapping_add(SIDE * from_row),
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

/// Adds the products of tiles loaded from these parts to a tile of sums.
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

/// Like `one_product`, with a right operand that is loaded already.
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

/// Like `one_product`, with a left operand that is loaded already.
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

/// Computes one tile of sums.
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
                "tilezero tmm0",
                "test {from}, {from}",
                "jz 2f",
                "tileloadd tmm0, [{from} + {from_row}]",
                "2:",
                $products,
                "add {a}, {step}",
                "add {b}, {step}",
                "dec {steps}",
                "jnz 2b",
                "tilestored [{to} + {to_row}], tmm0",
                step = const 4 * PARTS * amx_packing::TILE,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_meet_the_definition_and_stay_within_their_operands() {
        if !is_available() {
            return;
        }
        meet::<1>();
        meet::<3>();
    }

    fn meet<const PARTS: usize>() {
        // Integers, so that every sum is exact.
        let number = |i: usize, j: usize| ((7 * i + 3 * j) % 11) as f32 - 5.0;
        for (rows, columns) in [(1, 1), (1, 3), (2, 2), (3, 1), (4, 4)] {
            for k in [1, 31, 32, 33, 100] {
                let (m, n) = (SIDE * rows, SIDE * columns);
                let a: Vec<f32> = (0..m * k).map(|at| number(at / k, at % k)).collect();
                let b: Vec<f32> = (0..k * n).map(|at| number(at / n, at % n)).collect();
                let [mut left, mut right] =
                    [m, n].map(|side| vec![f32::NAN; amx_packing::words(PARTS, side, k)]);
                amx_packing::pack::<PARTS, false>(&a, (k, 1), (m, k), &mut left);
                amx_packing::pack::<PARTS, true>(&b, (1, n), (n, k), &mut right);
                let row = n + 3;
                let mut out = vec![1.0; (m - 1) * row + n];
                let line: Vec<f32> = (0..n).map(|j| j as f32).collect();
                let to = Sums::rows(out.as_mut_ptr(), row);
                let starts = [to.read(), Sums::ZEROS, Sums::rows(line.as_ptr(), 0)];
                for (start, from) in starts.into_iter().enumerate() {
                    let (a, b) = (left.as_ptr(), right.as_ptr());
                    // SAFETY: operands and result have these sizes.
                    unsafe { multiply_tiles::<PARTS>(a, b, from, to, (rows, columns, k)) };
                    // Memory between rows is not written.
                    for (at, found) in out.iter().enumerate() {
                        let (i, j) = (at / row, at % row);
                        let sum: f32 = (0..k).map(|t| number(i, t) * number(t, j)).sum();
                        let expected = match start {
                            _ if j >= n => 1.0,
                            0 => sum + 1.0,
                            1 => sum,
                            _ => sum + j as f32,
                        };
                        assert_eq!(*found, expected, "{m} {n} {k}");
                    }
                }
            }
        }
    }
}
