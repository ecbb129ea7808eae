//! Large blocks that may not be in memory as a whole yet. The system counts a page once it is
//! written, which may be long after its block was allocated.
//!
//! Everything here runs within the allocator, so nothing allocates.

use std::cell::UnsafeCell;
use std::hint;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::resident;

/// Number of blocks that are remembered; of more, the newest ones are.
const COUNT: usize = 64;

/// A block: address and size in bytes. An empty place has a null pointer.
type Block = (*mut u8, usize);

struct Blocks {
    is_locked: AtomicBool,
    blocks: UnsafeCell<[Block; COUNT]>,
    /// Place of the next block, where all are taken.
    next: UnsafeCell<usize>,
}

// SAFETY: the cells are reached by `with` alone, one thread at a time; pointers are not followed.
unsafe impl Sync for Blocks {}

static BLOCKS: Blocks = Blocks {
    is_locked: AtomicBool::new(false),
    blocks: UnsafeCell::new([(null_mut(), 0); COUNT]),
    next: UnsafeCell::new(0),
};

impl Blocks {
    fn with<R>(&self, work: impl FnOnce(&mut [Block; COUNT], &mut usize) -> R) -> R {
        while self.is_locked.swap(true, Ordering::Acquire) {
            hint::spin_loop();
        }
        // SAFETY: the lock is held, so no other thread has a reference; `work` does not call `with`.
        let (blocks, next) = unsafe { (&mut *self.blocks.get(), &mut *self.next.get()) };
        let result = work(blocks, next);
        self.is_locked.store(false, Ordering::Release);
        result
    }
}

/// Remembers a new block, if it is large.
pub(super) fn add(block: *mut u8, size: usize) {
    if size < resident::LARGE || block.is_null() {
        return;
    }
    BLOCKS.with(|blocks, next| {
        let empty = blocks.iter().position(|(block, _)| block.is_null());
        let place = empty.unwrap_or_else(|| {
            *next = (*next + 1) % COUNT;
            *next
        });
        blocks[place] = (block, size);
    });
}

/// Forgets a block, which may be freed or moved afterwards.
pub(super) fn remove(block: *mut u8, size: usize) {
    if size < resident::LARGE {
        return;
    }
    BLOCKS.with(|blocks, _| {
        let found = blocks.iter_mut().find(|(other, _)| *other == block);
        if let Some(place) = found {
            *place = (null_mut(), 0);
        }
    });
}

/// Returns the bytes of the remembered blocks that are not in memory yet. Forgets blocks that are
/// there as a whole.
pub(super) fn bytes() -> usize {
    BLOCKS.with(|blocks, _| {
        let mut sum = 0;
        for place in blocks.iter_mut().filter(|(block, _)| !block.is_null()) {
            // No other thread frees the block meanwhile: it would have to remove it first.
            let missing = resident::missing(place.0, place.1);
            if missing == 0 {
                *place = (null_mut(), 0);
            }
            sum += missing;
        }
        sum
    })
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::hint::black_box;

    use super::*;

    #[test]
    fn a_block_counts_until_it_is_written() {
        const SIZE: usize = 64 << 20;
        let mut block: Vec<u8> = Vec::with_capacity(SIZE);
        let place = block.as_mut_ptr();
        add(place, SIZE);
        assert!(bytes() > SIZE / 2, "nothing of it is written");
        block.resize(SIZE, 1);
        let block = black_box(block);
        assert!(bytes() < SIZE / 2, "all of it is");
        remove(place, SIZE);
        drop(block);
        let small: Vec<u8> = Vec::with_capacity(16);
        add(small.as_ptr().cast_mut(), 16);
        assert!(bytes() < SIZE / 2);
    }
}
