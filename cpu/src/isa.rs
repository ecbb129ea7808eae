//! Instruction sets, chosen at run time.
//!
//! The loops of a [`Kernel`] are compiled three times: for AVX-512, for AVX2 with fused
//! multiply-add, and for the baseline of the target. [`Isa::run`] enters the chosen copy.

#[cfg(target_arch = "x86_64")]
use pulp::x86::{V3, V4};
use pulp::{NullaryFnOnce, Scalar128b};

use crate::format::Format;
use crate::simd::{Kernel, Lanes};

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

/// An instruction set of this machine, and the format of the operands of its matrix products.
#[derive(Clone, Copy)]
pub struct Isa {
    set: Set,
    format: Format,
}

#[derive(Clone, Copy)]
enum Set {
    /// AVX-512 (F, BW, CD, DQ, VL): 16 floats, 32 registers.
    #[cfg(target_arch = "x86_64")]
    Avx512(V4),
    /// AVX2 and FMA: 8 floats, 16 registers.
    #[cfg(target_arch = "x86_64")]
    Avx2(V3),
    /// Four floats at a time, as the compiler vectorises them.
    Portable,
}

impl Isa {
    /// Returns the widest set of this machine, or the one that [`force`](Self::force) has set on
    /// this thread.
    ///
    /// Kernels call this once, on the calling thread, and pass the result to their workers.
    pub fn current() -> Isa {
        if let Some(forced) = FORCED.get() {
            return forced;
        }
        let set = Set::widest();
        Isa {
            format: Format::current(set.is_avx512()),
            set,
        }
    }

    /// Returns the format of the operands of products.
    pub fn format(self) -> Format {
        self.format
    }

    /// Runs a kernel compiled for this instruction set. It is never inlined, so that each kernel
    /// is compiled once per crate rather than once in each codegen unit that runs it.
    #[inline(never)]
    pub fn run<K: Kernel>(self, kernel: K) -> K::Output {
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
    /// Returns the widest set of this machine.
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

/// Returns the instruction set of kernels called from this thread: `AVX-512 and AMX`, `AVX-512`,
/// `AVX2`, or `portable` with the architecture.
///
/// It determines the rounding of sums, so only runs on the same one agree bit for bit.
pub fn instruction_set() -> String {
    let isa = Isa::current();
    match isa.set {
        #[cfg(target_arch = "x86_64")]
        Set::Avx512(_) if !isa.format.sums_in_order() => "AVX-512 and AMX".to_owned(),
        #[cfg(target_arch = "x86_64")]
        Set::Avx512(_) => "AVX-512".to_owned(),
        #[cfg(target_arch = "x86_64")]
        Set::Avx2(_) => "AVX2".to_owned(),
        Set::Portable => format!("portable ({})", std::env::consts::ARCH),
    }
}

/// Returns whether kernels called from this thread round the operands of products to bfloat16.
pub fn rounds_to_bfloat16() -> bool {
    Isa::current().format.is_rounded()
}

thread_local! {
    static FORCED: std::cell::Cell<Option<Isa>> = const { std::cell::Cell::new(None) };
}

impl std::fmt::Debug for Isa {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?}", self.force(instruction_set), self.format)
    }
}

impl Isa {
    /// Returns every instruction set of this machine, widest first, with every format of full
    /// precision.
    pub fn all() -> Vec<Isa> {
        let mut all = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            all.extend(V4::try_new().map(Set::Avx512));
            all.extend(V3::try_new().map(Set::Avx2));
        }
        all.push(Set::Portable);
        let ways = |set: Set| {
            let whole = Format::full(set.is_avx512());
            let split = (whole != Format::F32).then_some(whole);
            let ways = split.into_iter().chain([Format::F32]);
            ways.map(move |format| Isa { set, format })
        };
        all.into_iter().flat_map(ways).collect()
    }

    /// Returns whether both sum in registers of the same length and in the same order.
    pub fn sums_as(self, other: Isa) -> bool {
        std::mem::discriminant(&self.set) == std::mem::discriminant(&other.set)
            && self.format.sums_in_order() == other.format.sums_in_order()
    }

    /// Returns every instruction set of this machine with every format of bfloat16.
    pub fn all_rounded() -> Vec<Isa> {
        let ways = |isa: Isa| {
            let ways = Format::all_rounded(isa.set.is_avx512()).into_iter();
            ways.map(move |format| Isa { format, ..isa })
        };
        let sets = Isa::all().into_iter();
        sets.filter(|isa| isa.format == Format::F32)
            .flat_map(ways)
            .collect()
    }

    /// Runs `work`. Every kernel that this thread calls in it runs on this instruction set.
    pub fn force<T>(self, work: impl FnOnce() -> T) -> T {
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
