//! Memory of the program's own file for the first blocks of a process: under a tight limit on
//! addresses the system refuses even those, and the program could not say so.

use std::alloc::Layout;
use std::cell::UnsafeCell;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Bytes that are enough to check the limits and to print a message.
const BYTES: usize = 64 << 10;

#[repr(align(64))]
struct Spare(UnsafeCell<[u8; BYTES]>);

// SAFETY: each byte is handed out once, and touched by the owner of its block alone.
unsafe impl Sync for Spare {}

static SPARE: Spare = Spare(UnsafeCell::new([0; BYTES]));
/// Bytes that are taken, from the start.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// Returns a block of zeros; null if too little is left. Blocks are never taken back.
pub(super) fn alloc(layout: Layout) -> *mut u8 {
    let end_of = |taken: usize| {
        let start = taken.checked_next_multiple_of(layout.align())?;
        let end = start.checked_add(layout.size())?;
        // The memory is aligned to this.
        (end <= BYTES && layout.align() <= align_of::<Spare>()).then_some((start, end))
    };
    let taken = TAKEN.fetch_update(Relaxed, Relaxed, |taken| end_of(taken).map(|(_, end)| end));
    match taken.ok().and_then(end_of) {
        // SAFETY: the start lies within the memory.
        Some((start, _)) => unsafe { SPARE.0.get().cast::<u8>().add(start) },
        None => null_mut(),
    }
}

/// Returns whether a block lies here.
pub(super) fn holds(block: *mut u8) -> bool {
    let start = SPARE.0.get().addr();
    (start..start + BYTES).contains(&block.addr())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_apart_aligned_and_end() {
        let layout = Layout::from_size_align(100, 64).unwrap();
        let blocks: Vec<*mut u8> = std::iter::repeat_with(|| alloc(layout))
            .take_while(|block| !block.is_null())
            .collect();
        assert_eq!(blocks.len(), BYTES / 128);
        let mut places: Vec<usize> = blocks.iter().map(|block| block.addr()).collect();
        places.dedup();
        assert!(places.windows(2).all(|pair| pair[1] == pair[0] + 128));
        assert!(
            blocks
                .iter()
                .all(|block| block.addr() % 64 == 0 && holds(*block))
        );
        assert!(alloc(Layout::from_size_align(1, 128).unwrap()).is_null());
        assert!(!holds(Box::into_raw(Box::new(0_u8))));
    }
}
