//! Heap accounting: a global allocator that counts live bytes exactly, keeps their high-water mark, and can
//! enforce a ceiling, so that running out of memory is a recorded outcome instead of a kill by the system.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Forwards to the system's allocator and counts.
pub struct CountingAllocator;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static CEILING: AtomicUsize = AtomicUsize::new(usize::MAX);
static ON_CEILING: OnceLock<Box<dyn Fn(usize) + Send + Sync>> = OnceLock::new();

/// How peaks of this module are described in records.
pub const METHOD: &str = "live heap bytes, counting allocator";

/// Bytes allocated at this moment.
pub fn live() -> usize {
    LIVE.load(Relaxed)
}

/// The most bytes that were live at once since the last [`reset_peak`].
pub fn peak() -> usize {
    PEAK.load(Relaxed)
}

/// Starts a new high-water mark at the present level.
pub fn reset_peak() {
    PEAK.store(live(), Relaxed);
}

/// Calls `handler(requested bytes)` when an allocation would lift the live bytes above `bytes`. The handler is
/// expected to record the failure and end the process; the ceiling is lifted first, so that it may allocate.
/// Returns false if a handler was set before.
pub fn set_ceiling(bytes: usize, handler: impl Fn(usize) + Send + Sync + 'static) -> bool {
    let fresh = ON_CEILING.set(Box::new(handler)).is_ok();
    CEILING.store(bytes, Relaxed);
    fresh
}

fn grow(bytes: usize) {
    let live = LIVE.fetch_add(bytes, Relaxed) + bytes;
    if live > PEAK.load(Relaxed) {
        PEAK.fetch_max(live, Relaxed);
    }
    if live > CEILING.load(Relaxed) {
        ceiling_reached(bytes);
    }
}

#[cold]
fn ceiling_reached(bytes: usize) {
    // Only the thread that lifts the ceiling reports.
    if CEILING.swap(usize::MAX, Relaxed) != usize::MAX
        && let Some(handler) = ON_CEILING.get()
    {
        handler(bytes);
    }
}

fn shrink(bytes: usize) {
    LIVE.fetch_sub(bytes, Relaxed);
}

// SAFETY: every call is forwarded unchanged to the system's allocator; counting does not touch the memory.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: the caller's contract is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        shrink(layout.size());
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // Old and new block may coexist while bytes are copied; counting the difference keeps the figure exact
        // in requested bytes, which is what can be compared between machines.
        if new_size >= layout.size() {
            grow(new_size - layout.size());
        } else {
            shrink(layout.size() - new_size);
        }
        // SAFETY: as above.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_block_shows_in_live_and_peak_bytes() {
        const BYTES: usize = 64 << 20;
        let block = vec![1u8; BYTES];
        assert!(live() >= BYTES);
        assert!(peak() >= BYTES);
        drop(block);
        assert!(peak() >= BYTES, "the high-water mark stays");
    }
}
