//! Arithmetic on slices of f32 for CPUs: vector instructions chosen at run time, matrix products,
//! and their building blocks. It does not depend on tensors or models.
//!
//! | module | content |
//! |---|---|
//! | [`simd`] | vector registers, and loops written once for all instruction sets |
//! | [`isa`] | the instruction sets of the machine, and the one in use |
//! | [`math`] | exponentials and functions based on them, on registers |
//! | [`philox`] | a counter-based generator of random numbers |
//! | [`format`](mod@format) | number formats of the operands of products: f32, bf16, and f32 as three bf16 |
//! | [`gemm`] | products of matrices in memory |
//! | [`tile`] | products of tiles that stay in the L1 cache |
//! | [`fft`] | Fourier transforms of any length |
//! | [`buffers`] | new buffers, splits and sums |
//! | [`scratch`], [`workspaces`] | working memory of tasks, the same for every schedule |
//! | [`transpose`], [`zero_rows`] | transposes in registers; rows of zeros, which products skip |
//!
//! Results have the same bits on any number of threads: a split that determines the order of a sum
//! depends only on the shapes. Instruction sets sum in different orders, so results agree bit for
//! bit only on the same one ([`isa::instruction_set`]).
//!
//! Loops on registers are `#[inline(always)]` functions. A closure in them may be compiled for the
//! baseline instruction set, and then every operation on a register is a call.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod buffers;
pub mod fft;
pub mod format;
pub mod gemm;
pub mod isa;
pub mod math;
pub mod philox;
pub mod scratch;
mod shelf;
pub mod simd;
pub mod testing;
pub mod tile;
#[cfg(target_arch = "x86_64")]
pub mod transpose;
pub mod workspaces;
pub mod zero_rows;

/// Allocates the buffers that this thread keeps for kernels, unless they exist: 2.3 MiB, or 3.5 MiB
/// with AMX.
pub fn fetch_buffers() {
    scratch::fetch_buffers();
    gemm::fetch_buffers();
}

/// Runs the example of the README as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
