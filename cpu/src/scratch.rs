//! Scratch memory of tasks, kept by each thread from one task to the next.
//!
//! If each task allocated its own, the memory peak would depend on the number of tasks that happen
//! to run at once. [`fetch_buffers`] allocates the memory of a thread before measuring starts.
//! Blocks that threads do not keep belong to the parallel loop, if its tasks have [`Workspaces`].
//!
//! [`Workspaces`]: crate::workspaces::Workspaces

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

use crate::buffers::Aligned;
use crate::shelf;
use crate::simd::Lanes;

/// Floats in a block that a thread keeps: 128 KiB.
const BLOCK: usize = 32 * 1024;
/// Number of blocks that a thread keeps, more than any task needs.
const BLOCKS: usize = 16;

thread_local! {
    /// Free blocks of this thread.
    static FREE: RefCell<Vec<Aligned>> =
        RefCell::new((0..BLOCKS).map(|_| Aligned::zeros(BLOCK)).collect());
}

/// Allocates the blocks of this thread, unless they exist.
pub fn fetch_buffers() {
    FREE.with_borrow(|_| {});
}

/// Scratch memory of a task: a block of the thread or, if none is free or large enough, one of the
/// loop, or new memory where the task has no workspace. Aligned to a cache line; empty by default.
#[derive(Default)]
pub struct Scratch {
    floats: Aligned,
    len: usize,
}

impl Scratch {
    /// Returns `len` zeros.
    pub fn zeros(len: usize) -> Self {
        let mut scratch = Scratch::unspecified(len);
        scratch.fill(0.0);
        scratch
    }

    /// Returns `len` floats of unspecified values (see [`Aligned::unspecified`]).
    pub fn unspecified(len: usize) -> Self {
        let block = match len {
            0 => Some(Aligned::default()),
            1..=BLOCK => FREE.with_borrow_mut(Vec::pop),
            _ => None,
        };
        // Tasks whose lengths differ a little have blocks of one length.
        let block = block.or_else(|| shelf::take(len.next_multiple_of(BLOCK)));
        let mut floats = block.unwrap_or_else(|| Aligned::unspecified(len));
        if cfg!(debug_assertions) {
            floats[..len].fill(f32::NAN);
        }
        Scratch { floats, len }
    }

    /// Returns the floats as registers, without an incomplete last one.
    #[inline(always)]
    pub fn registers<S: Lanes>(&mut self) -> &mut [S::f32s] {
        S::as_mut_simd_f32s(self).0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let mut block = std::mem::take(&mut self.floats);
        if block.len() == BLOCK {
            // A thread that is ending keeps no blocks.
            let _ = FREE.try_with(|free| {
                let mut free = free.borrow_mut();
                if free.len() < BLOCKS {
                    free.push(std::mem::take(&mut block));
                }
            });
        }
        if block.len() >= BLOCK {
            shelf::give(block);
        }
    }
}

impl Deref for Scratch {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        &self.floats[..self.len]
    }
}

impl DerefMut for Scratch {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.floats[..self.len]
    }
}

/// Output of tiles of rows, which keeps all tiles or only the last one.
pub struct Tiles<'a> {
    /// Empty if only the last tile is kept.
    all: &'a mut [f32],
    tile: Scratch,
    width: usize,
}

impl<'a> Tiles<'a> {
    /// Creates an output for tiles of at most `rows` rows of `width` floats. They are kept in `all`
    /// unless that is empty.
    pub fn new(all: &'a mut [f32], rows: usize, width: usize) -> Self {
        let held = if all.is_empty() { rows * width } else { 0 };
        Tiles {
            all,
            tile: Scratch::unspecified(held),
            width,
        }
    }

    /// Returns the tile of `count` rows that starts at row `start`.
    pub fn at(&mut self, start: usize, count: usize) -> &mut [f32] {
        let len = count * self.width;
        match self.all.is_empty() {
            true => &mut self.tile[..len],
            false => &mut self.all[start * self.width..][..len],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn free() -> usize {
        FREE.with_borrow(Vec::len)
    }

    #[test]
    fn blocks_go_back_to_their_thread_and_come_as_zeros_again() {
        let mut first = Scratch::zeros(100);
        first.fill(f32::NAN);
        let place = first.as_ptr();
        drop(first);
        let second = Scratch::zeros(BLOCK);
        assert_eq!(second.as_ptr(), place);
        assert!(second.len() == BLOCK && second.iter().all(|x| *x == 0.0));
        assert_eq!(free(), BLOCKS - 1);
    }

    #[test]
    fn more_than_a_thread_keeps_is_fetched_and_given_back() {
        let large = Scratch::zeros(BLOCK + 1);
        assert_eq!((large.len(), free()), (BLOCK + 1, BLOCKS));
        let mut many: Vec<Scratch> = (0..2 * BLOCKS).map(|_| Scratch::zeros(BLOCK)).collect();
        assert_eq!(free(), 0);
        many.iter_mut().for_each(|scratch| scratch.fill(1.0));
        drop(many);
        assert_eq!(free(), BLOCKS);
        // Another thread may drop the memory.
        let sent = Scratch::zeros(1);
        std::thread::spawn(move || drop(sent)).join().unwrap();
        assert_eq!(free(), BLOCKS - 1);
    }
}
