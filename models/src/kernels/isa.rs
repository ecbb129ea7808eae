//! Which vector instructions a kernel runs on, chosen at run time.
//!
//! A kernel's loops are written once, generic over [`Lanes`], and compiled three times: for AVX-512,
//! for AVX2 with fused multiply-add, and for whatever the target always has. [`Isa::run`] enters the
//! copy that was chosen.

#[cfg(target_arch = "x86_64")]
use pulp::x86::{V3, V4};
use pulp::{NullaryFnOnce, Scalar128b, Simd};

use super::factors::Factors;

/// Registers of several numbers, with the one operation that instruction sets disagree about.
pub(super) trait Lanes: Simd {
    /// `a * b + c`: rounded once where the machine has such an instruction, twice elsewhere.
    /// (Emulating the single rounding in software would cost fifty times as much.)
    fn fma(self, a: Self::f32s, b: Self::f32s, c: Self::f32s) -> Self::f32s;

    /// The same of f64.
    fn fma_f64s(self, a: Self::f64s, b: Self::f64s, c: Self::f64s) -> Self::f64s;

    /// Zeros where `x < bound`, and `y` elsewhere, also where x is none.
    #[inline(always)]
    fn zero_below(self, x: Self::f32s, bound: f32, y: Self::f32s) -> Self::f32s {
        let below = self.less_than_f32s(x, self.splat_f32s(bound));
        self.select_f32s(below, self.splat_f32s(0.0), y)
    }

    /// As many elements as `from` has, at most a register, and zeros behind them. A whole register is one instruction;
    /// pulp's partial load is a call of a function whatever it loads.
    #[inline(always)]
    fn load(self, from: &[f32]) -> Self::f32s {
        match Self::as_simd_f32s(from) {
            ([whole], []) => *whole,
            _ => self.partial_load_f32s(from),
        }
    }

    /// As many elements of `x` as `to` has, at most a register.
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
    /// One comparison that is true of no number too, where the general one has to be turned round.
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
/// they are compiled inside the function that turns the instructions on.
pub(super) trait Kernel {
    /// What the loops return.
    type Output;
    /// Runs the loops on the registers of `simd`.
    fn run<S: Lanes>(self, simd: S) -> Self::Output;
}

struct Entry<S, K> {
    simd: S,
    kernel: K,
}

impl<S: Lanes, K: Kernel> NullaryFnOnce for Entry<S, K> {
    type Output = K::Output;

    #[inline(always)]
    fn call(self) -> K::Output {
        self.kernel.run(self.simd)
    }
}

/// An instruction set that this machine has, and how it takes the factors of matrix products.
#[derive(Clone, Copy)]
pub(super) struct Isa {
    set: Set,
    factors: Factors,
}

#[derive(Clone, Copy)]
enum Set {
    /// AVX-512 (F, BW, CD, DQ, VL): 16 floats, 32 registers.
    #[cfg(target_arch = "x86_64")]
    Avx512(V4),
    /// AVX2 and FMA: 8 floats, 16 registers.
    #[cfg(target_arch = "x86_64")]
    Avx2(V3),
    /// Four floats at a time, in whatever the compiler makes of them.
    Portable,
}

impl Isa {
    /// The widest set of this machine, or the one that a test has forced on this thread.
    ///
    /// Kernels ask once, on the thread that calls them, and hand the answer to their workers.
    pub(super) fn current() -> Isa {
        #[cfg(test)]
        if let Some(forced) = FORCED.get() {
            return forced;
        }
        let set = Set::widest();
        Isa {
            factors: Factors::current(set.is_avx512()),
            set,
        }
    }

    /// How the factors of products are taken.
    pub(super) fn factors(self) -> Factors {
        self.factors
    }

    /// Runs a kernel compiled for this instruction set.
    #[inline]
    pub(super) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self.set {
            #[cfg(target_arch = "x86_64")]
            Set::Avx512(simd) => simd.vectorize(Entry { simd, kernel }),
            #[cfg(target_arch = "x86_64")]
            Set::Avx2(simd) => simd.vectorize(Entry { simd, kernel }),
            Set::Portable => kernel.run(Scalar128b),
        }
    }
}

impl Set {
    /// The widest set of this machine.
    fn widest() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            if let Some(simd) = V4::try_new() {
                return Set::Avx512(simd);
            }
            if let Some(simd) = V3::try_new() {
                return Set::Avx2(simd);
            }
        }
        Set::Portable
    }

    fn is_avx512(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        if let Set::Avx512(_) = self {
            return true;
        }
        false
    }
}

/// The instruction set that kernels called from this thread run on: `AVX-512`, the same with AMX where that multiplies,
/// `AVX2`, or `portable` with the architecture.
/// It decides how sums are rounded, so only runs on the same one agree bit for bit.
pub fn instruction_set() -> String {
    let isa = Isa::current();
    match isa.set {
        #[cfg(target_arch = "x86_64")]
        Set::Avx512(_) if !isa.factors.sum_in_order() => "AVX-512 and AMX".to_owned(),
        #[cfg(target_arch = "x86_64")]
        Set::Avx512(_) => "AVX-512".to_owned(),
        #[cfg(target_arch = "x86_64")]
        Set::Avx2(_) => "AVX2".to_owned(),
        Set::Portable => format!("portable ({})", std::env::consts::ARCH),
    }
}

/// Whether kernels called from this thread round the factors of products to bfloat16.
pub fn rounds_factors() -> bool {
    Isa::current().factors.are_rounded()
}

#[cfg(test)]
thread_local! {
    static FORCED: std::cell::Cell<Option<Isa>> = const { std::cell::Cell::new(None) };
}

#[cfg(test)]
impl std::fmt::Debug for Isa {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?}", self.force(instruction_set), self.factors)
    }
}

#[cfg(test)]
impl Isa {
    /// Every instruction set of this machine, widest first, and way to multiply factors as they are on it.
    pub(super) fn all() -> Vec<Isa> {
        let mut all = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            all.extend(V4::try_new().map(Set::Avx512));
            all.extend(V3::try_new().map(Set::Avx2));
        }
        all.push(Set::Portable);
        let ways = |set: Set| {
            let whole = Factors::whole(set.is_avx512());
            let split = (whole != Factors::F32).then_some(whole);
            let ways = split.into_iter().chain([Factors::F32]);
            ways.map(move |factors| Isa { set, factors })
        };
        all.into_iter().flat_map(ways).collect()
    }

    /// Whether sums run in registers of the same length and in the same order.
    pub(super) fn sums_as(self, other: Isa) -> bool {
        std::mem::discriminant(&self.set) == std::mem::discriminant(&other.set)
            && self.factors.sum_in_order() == other.factors.sum_in_order()
    }

    /// Every way of this machine to round factors to bfloat16 on every instruction set.
    pub(super) fn all_rounded() -> Vec<Isa> {
        let ways = |isa: Isa| {
            let ways = Factors::all_rounded(isa.set.is_avx512()).into_iter();
            ways.map(move |factors| Isa { factors, ..isa })
        };
        let sets = Isa::all().into_iter();
        sets.filter(|isa| isa.factors == Factors::F32)
            .flat_map(ways)
            .collect()
    }

    /// Runs `work` with every kernel called from this thread forced onto this instruction set.
    pub(super) fn force<T>(self, work: impl FnOnce() -> T) -> T {
        let before = FORCED.replace(Some(self));
        let result = work();
        FORCED.set(before);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_instruction_set_has_a_name_of_its_own() {
        let names: Vec<String> = Isa::all()
            .into_iter()
            .map(|isa| isa.force(instruction_set))
            .collect();
        for (place, name) in names.iter().enumerate() {
            assert!(
                !name.is_empty() && !names[..place].contains(name),
                "{names:?}"
            );
        }
        assert_eq!(names[0], instruction_set(), "the widest one is taken");
    }
}
