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

    /// Selects 0 where `x < bound`, x where it is NaN, and `y` elsewhere. `bound` is not positive.
    #[inline(always)]
    fn zero_below(self, x: Self::f32s, bound: f32, y: Self::f32s) -> Self::f32s {
        let below = self.less_than_f32s(x, self.splat_f32s(bound));
        let y = self.select_f32s(below, self.splat_f32s(0.0), y);
        self.select_f32s(self.equal_f32s(x, x), y, x)
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
    // Two instructions; the default needs four. The larger of 0 and NaN is the second of them.
    #[inline(always)]
    fn zero_below(self, x: Self::f32s, bound: f32, y: Self::f32s) -> Self::f32s {
        use std::arch::x86_64::{__m512, _CMP_NGE_UQ};
        let (x, y): (__m512, __m512) = (pulp::cast(x), pulp::cast(y));
        let bound: __m512 = pulp::cast(self.splat_f32s(bound));
        let zero: __m512 = pulp::cast(self.splat_f32s(0.0));
        let replaced = self.avx512f._mm512_cmp_ps_mask::<_CMP_NGE_UQ>(x, bound);
        pulp::cast(self.avx512f._mm512_mask_max_ps(y, replaced, zero, x))
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
    // Three instructions; the default needs four. The larger of 0 and NaN is the second of them.
    #[inline(always)]
    fn zero_below(self, x: Self::f32s, bound: f32, y: Self::f32s) -> Self::f32s {
        use std::arch::x86_64::{__m256, _CMP_GE_OQ};
        let (x, y): (__m256, __m256) = (pulp::cast(x), pulp::cast(y));
        let bound: __m256 = pulp::cast(self.splat_f32s(bound));
        let zero: __m256 = pulp::cast(self.splat_f32s(0.0));
        let stays = self.avx._mm256_cmp_ps::<_CMP_GE_OQ>(x, bound);
        pulp::cast(
            self.avx
                ._mm256_blendv_ps(self.avx._mm256_max_ps(zero, x), y, stays),
        )
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
