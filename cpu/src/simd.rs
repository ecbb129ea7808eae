//! Vector registers, and loops written once for all instruction sets.
//!
//! [`crate::isa`] compiles a [`Kernel`] for each instruction set and enters the copy that the
//! machine can run.

use pulp::Scalar128b;
pub use pulp::Simd;
#[cfg(target_arch = "x86_64")]
use pulp::x86::{V3, V4};

/// Vector registers, with fused multiply-add on every instruction set.
pub trait Lanes: Simd {
    /// Computes `a * b + c`: rounded once where the machine has the instruction, twice elsewhere.
    /// (Emulating it in software would take fifty times as long.)
    fn fma(self, a: Self::f32s, b: Self::f32s, c: Self::f32s) -> Self::f32s;

    /// Computes `a * b + c` of f64.
    fn fma_f64s(self, a: Self::f64s, b: Self::f64s, c: Self::f64s) -> Self::f64s;

    /// Selects 0 where `x < bound`, and `y` elsewhere, also where x is NaN.
    #[inline(always)]
    fn zero_below(self, x: Self::f32s, bound: f32, y: Self::f32s) -> Self::f32s {
        let below = self.less_than_f32s(x, self.splat_f32s(bound));
        self.select_f32s(below, self.splat_f32s(0.0), y)
    }

    /// Loads the elements of `from`, at most a register, followed by zeros. A whole register is one
    /// instruction, whereas pulp's partial load is always a function call.
    #[inline(always)]
    fn load(self, from: &[f32]) -> Self::f32s {
        match Self::as_simd_f32s(from) {
            ([whole], []) => *whole,
            _ => self.partial_load_f32s(from),
        }
    }

    /// Stores the first elements of `x` in `to`, at most a register.
    #[inline(always)]
    fn store(self, to: &mut [f32], x: Self::f32s) {
        match Self::as_mut_simd_f32s(to) {
            ([whole], []) => *whole = x,
            _ => self.partial_store_f32s(to, x),
        }
    }
}

#[cfg(target_arch = "x86_64")]
impl Lanes for V4 {
    // One comparison that is also true for NaN; the default needs two instructions.
    #[inline(always)]
    fn zero_below(self, x: Self::f32s, bound: f32, y: Self::f32s) -> Self::f32s {
        use std::arch::x86_64::{__m512, _CMP_NLT_UQ};
        let (x, bound): (__m512, __m512) = (pulp::cast(x), pulp::cast(self.splat_f32s(bound)));
        let stays = self.avx512f._mm512_cmp_ps_mask::<_CMP_NLT_UQ>(x, bound);
        pulp::cast(self.avx512f._mm512_maskz_mov_ps(stays, pulp::cast(y)))
    }

    #[inline(always)]
    fn fma(self, a: Self::f32s, b: Self::f32s, c: Self::f32s) -> Self::f32s {
        self.mul_add_f32s(a, b, c)
    }

    #[inline(always)]
    fn fma_f64s(self, a: Self::f64s, b: Self::f64s, c: Self::f64s) -> Self::f64s {
        self.mul_add_f64s(a, b, c)
    }
}

#[cfg(target_arch = "x86_64")]
impl Lanes for V3 {
    #[inline(always)]
    fn fma(self, a: Self::f32s, b: Self::f32s, c: Self::f32s) -> Self::f32s {
        self.mul_add_f32s(a, b, c)
    }

    #[inline(always)]
    fn fma_f64s(self, a: Self::f64s, b: Self::f64s, c: Self::f64s) -> Self::f64s {
        self.mul_add_f64s(a, b, c)
    }
}

impl Lanes for Scalar128b {
    #[inline(always)]
    fn fma(self, a: Self::f32s, b: Self::f32s, c: Self::f32s) -> Self::f32s {
        self.add_f32s(self.mul_f32s(a, b), c)
    }

    #[inline(always)]
    fn fma_f64s(self, a: Self::f64s, b: Self::f64s, c: Self::f64s) -> Self::f64s {
        self.add_f64s(self.mul_f64s(a, b), c)
    }
}

/// Loops written once for every instruction set. Implementations are `#[inline(always)]`, so that
/// they are compiled inside the function that enables the instructions.
pub trait Kernel {
    /// The result of the loops.
    type Output;
    /// Runs the loops on the registers of `simd`.
    fn run<S: Lanes>(self, simd: S) -> Self::Output;
}
