//! Buffers of floats, splits of their rows, and sums over the parts of a split.
//!
//! A split that decides the order of a sum depends on the shape alone. Results are then the same on
//! any number of threads.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};

use rayon::prelude::*;

/// Returns `len` floats of unspecified values, for a caller that writes every element.
///
/// Debug builds fill the buffer with NaN, so that tests detect an element that was not written. On
/// x86-64 and AArch64, release builds leave its pages untouched. This saves a pass over memory,
/// which matters in memory-bound kernels.
pub fn unspecified(len: usize) -> Vec<f32> {
    if cfg!(debug_assertions) {
        return vec![f32::NAN; len];
    }
    let mut buffer = Vec::with_capacity(len);
    initialise(buffer.spare_capacity_mut());
    // SAFETY: the capacity is at least `len`, and `initialise` has given every element a value.
    unsafe {
        buffer.set_len(len);
    }
    buffer
}

/// Makes the values of memory unspecified instead of undefined, without touching it.
///
/// Reading memory that was never written is undefined behaviour, regardless of its type. The
/// compiler must assume that an assembly block with a pointer as its operand writes there. To the
/// compiler, this empty block writes the bytes that the memory already holds, so the memory is
/// initialised from here on.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn initialise(memory: &mut [MaybeUninit<f32>]) {
    let start = memory.as_mut_ptr();
    // SAFETY: no instruction is executed; every bit pattern is an f32.
    unsafe {
        std::arch::asm!("/* {0} */", in(reg) start, options(nostack, preserves_flags));
    }
}

/// Fills memory with zeros, on processors without such an assembly block.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn initialise(memory: &mut [MaybeUninit<f32>]) {
    memory.fill(MaybeUninit::new(0.0));
}

/// Bytes of a cache line and of the widest register.
const LINE: usize = 64;

/// A buffer aligned to a cache line, so that no load of a register crosses two lines.
#[derive(Default)]
pub struct Aligned {
    floats: Vec<f32>,
    start: usize,
    len: usize,
}

impl Aligned {
    /// Returns `len` floats of unspecified values (see [`unspecified`]).
    pub fn unspecified(len: usize) -> Self {
        let floats = unspecified(len + LINE / size_of::<f32>());
        let start = floats.as_ptr().align_offset(LINE);
        Aligned { floats, start, len }
    }

    /// Returns `len` zeros.
    pub fn zeros(len: usize) -> Self {
        let mut zeros = Aligned::unspecified(len);
        zeros.fill(0.0);
        zeros
    }
}

impl Deref for Aligned {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.floats[self.start..][..self.len]
    }
}

impl DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.floats[self.start..][..self.len]
    }
}

/// Returns the rows per chunk when `rows` rows are split into at most `most` chunks of at least
/// `least` rows.
pub fn chunk_rows(rows: usize, least: usize, most: usize) -> usize {
    rows.div_ceil(most).max(least).max(1)
}

/// Returns the rows per task for `rows` rows: a multiple of 64, from 64 to 256. It is for splits
/// that do not affect the result.
///
/// Tasks are large, because each reads the shared operands. With enough rows every thread gets two
/// or more.
pub fn task_rows(rows: usize) -> usize {
    const LEAST: usize = 64;
    const MOST: usize = 256;
    let tasks = 2 * rayon::current_num_threads();
    rows.div_ceil(tasks)
        .next_multiple_of(LEAST)
        .clamp(LEAST, MOST)
}

/// Splits off the first `count` pieces of `len` elements each. Pieces beyond the end of the buffer
/// are shorter or empty.
pub fn split_mut<T>(mut buffer: &mut [T], len: usize, count: usize) -> Vec<&mut [T]> {
    let piece = |_| {
        let len = len.min(buffer.len());
        let (piece, rest) = std::mem::take(&mut buffer).split_at_mut(len);
        buffer = rest;
        piece
    };
    (0..count).map(piece).collect()
}

/// Columns of partial sums that one task adds up.
const COLUMNS: usize = 4096;

/// Returns the sums (`width`) over the rows of `partials` (chunks, `width`), in index order.
pub fn sum_partials(partials: &[f32], width: usize) -> Vec<f32> {
    let mut total = vec![0.0; width];
    if width > 0 {
        let strips = total.par_chunks_mut(COLUMNS).enumerate();
        strips.for_each(|(strip, total)| {
            for partial in partials.chunks_exact(width) {
                let partial = &partial[strip * COLUMNS..][..total.len()];
                total.iter_mut().zip(partial).for_each(|(t, p)| *t += p);
            }
        });
    }
    total
}

/// Computes y += x for slices of one length.
pub fn add(x: &[f32], y: &mut [f32]) {
    y.iter_mut().zip(x).for_each(|(y, x)| *y += x);
}

/// Computes y *= x, element by element, for slices of one length.
pub fn multiply_by(x: &[f32], y: &mut [f32]) {
    y.iter_mut().zip(x).for_each(|(y, x)| *y *= x);
}

/// Adds `rows` (n, W), one after the other, to `sum` (W).
pub fn sum_rows(rows: &[f32], sum: &mut [f32]) {
    let width = sum.len().max(1);
    rows.chunks_exact(width).for_each(|row| add(row, sum));
}

/// An output that several tasks write, each in its own ranges.
pub struct Shared<'a, T = f32> {
    start: *mut T,
    len: usize,
    buffer: PhantomData<&'a mut [T]>,
}

// SAFETY: the only access is through `slice`, whose callers keep their ranges apart.
unsafe impl<T: Send> Sync for Shared<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Shared<'_, T> {}

impl<'a, T> Shared<'a, T> {
    /// Shares a buffer among tasks.
    pub fn new(buffer: &'a mut [T]) -> Self {
        Shared {
            start: buffer.as_mut_ptr(),
            len: buffer.len(),
            buffer: PhantomData,
        }
    }

    /// Returns a range of the buffer.
    ///
    /// # Safety
    /// While the slice is in use, no other slice may overlap it.
    ///
    /// # Panics
    /// If the range is not inside the buffer.
    #[allow(
        clippy::mut_from_ref,
        reason = "disjoint ranges are the point; see the contract"
    )]
    pub unsafe fn slice(&self, start: usize, len: usize) -> &mut [T] {
        assert!(
            start.checked_add(len).is_some_and(|end| end <= self.len),
            "range outside the buffer"
        );
        // SAFETY: inside the buffer by the assertion, exclusive by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(start), len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partial_sums_of_any_width_are_added_column_by_column() {
        for width in [0, 1, COLUMNS - 1, COLUMNS, 2 * COLUMNS + 5] {
            // Whole numbers, so that sums are exact.
            let partials: Vec<f32> = (0..3 * width).map(|i| (i % 1000) as f32).collect();
            let column = |i: usize| (0..3).map(|row| partials[row * width + i]).sum::<f32>();
            let expected: Vec<f32> = (0..width).map(column).collect();
            assert!(sum_partials(&partials, width) == expected, "{width}");
        }
    }
}
