//! Heap accounting: a global allocator that counts live bytes exactly, keeps their high-water mark, and turns a lack of
//! memory, by a ceiling of its own or because the system has no more to give, into a call that can record it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::time::Duration;

use Ordering::Relaxed;

/// Forwards to the system's allocator and counts.
pub struct CountingAllocator;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static BASE: AtomicUsize = AtomicUsize::new(0);
static CEILING: AtomicUsize = AtomicUsize::new(usize::MAX);
static ON_LACK: OnceLock<Box<dyn Fn(Lack) + Send + Sync>> = OnceLock::new();
static STATE: AtomicUsize = AtomicUsize::new(UNWATCHED);
/// What is given back to the system's allocator when that has no more, so that the lack can be recorded.
static RESERVE: AtomicPtr<u8> = AtomicPtr::new(null_mut());

/// A lack of memory is the caller's affair, is reported, or is being reported.
const UNWATCHED: usize = 0;
const WATCHED: usize = 1;
const REPORTED: usize = 2;

/// Enough to write a record by.
const RESERVE_LAYOUT: Layout = match Layout::from_size_align(1 << 20, 16) {
    Ok(layout) => layout,
    Err(_) => unreachable!(),
};
/// How long other threads without memory wait for the report, which ends the process.
const REPORT_TIME: Duration = Duration::from_secs(60);

thread_local! {
    /// Whether this thread reports a lack of memory.
    static REPORTS: Cell<bool> = const { Cell::new(false) };
}

/// How peaks of this module are described in records.
pub const METHOD: &str = "live heap bytes since the start, counting allocator";

/// Why a request for memory cannot be met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lack {
    /// Bytes asked for.
    pub requested: usize,
    /// Bytes in use without them.
    pub live: usize,
    /// The ceiling, if it is what refuses; else the system has no more.
    pub ceiling: Option<usize>,
}

/// Bytes allocated at this moment.
pub fn live() -> usize {
    LIVE.load(Relaxed)
}

/// Makes what is live now the base that [`peak`] is counted from, and starts a new high-water mark.
pub fn start() {
    let live = live();
    BASE.store(live, Relaxed);
    PEAK.store(live, Relaxed);
}

/// The bytes that were live at the last [`start`].
pub fn base() -> usize {
    BASE.load(Relaxed)
}

/// The most bytes beyond [`base`] that were live at once since the last [`start`].
pub fn peak() -> usize {
    PEAK.load(Relaxed).saturating_sub(base())
}

/// Calls `handler` when an allocation would lift the live bytes above `ceiling`, and when the system has no memory for
/// one. The handler is expected to record the failure and end the process; the ceiling is lifted and a reserve given
/// back first, so that it may allocate. A later call changes the ceiling and keeps the first handler.
pub fn watch(ceiling: usize, handler: impl Fn(Lack) + Send + Sync + 'static) {
    ON_LACK.get_or_init(|| Box::new(handler));
    if RESERVE.load(Relaxed).is_null() {
        // SAFETY: the layout has a size.
        let reserve = unsafe { System.alloc(RESERVE_LAYOUT) };
        RESERVE.store(reserve, Relaxed);
    }
    CEILING.store(ceiling, Relaxed);
    STATE.store(WATCHED, Ordering::Release);
}

/// From here on a lack of memory is the affair of whoever asks for it.
pub fn unwatch() {
    CEILING.store(usize::MAX, Relaxed);
    STATE.store(UNWATCHED, Ordering::Release);
}

/// Calls the handler, once. False if somebody else does or did, or nobody wants to know.
fn report(lack: Lack) -> bool {
    let first = STATE.compare_exchange(WATCHED, REPORTED, Ordering::AcqRel, Relaxed);
    if first.is_err() {
        return false;
    }
    REPORTS.set(true);
    CEILING.store(usize::MAX, Relaxed);
    let reserve = RESERVE.swap(null_mut(), Relaxed);
    if !reserve.is_null() {
        // SAFETY: it came from this allocator with this layout, and nobody else has it any more.
        unsafe { System.dealloc(reserve, RESERVE_LAYOUT) };
    }
    if let Some(handler) = ON_LACK.get() {
        handler(lack);
    }
    true
}

fn grow(bytes: usize) {
    let live = LIVE.fetch_add(bytes, Relaxed) + bytes;
    if live > PEAK.load(Relaxed) {
        PEAK.fetch_max(live, Relaxed);
    }
    if live > CEILING.load(Relaxed) {
        ceiling_reached(bytes, live);
    }
}

#[cold]
fn ceiling_reached(requested: usize, live: usize) {
    report(Lack {
        requested,
        live: live - requested,
        ceiling: Some(CEILING.load(Relaxed)),
    });
}

/// What becomes of a request that the system cannot meet, `counted` bytes of which are among the live ones: it is tried
/// once more when the lack has been reported, which ends the process unless nobody watches.
#[cold]
fn refused(requested: usize, counted: usize, retry: impl Fn() -> *mut u8) -> *mut u8 {
    let lack = Lack {
        requested,
        live: live().saturating_sub(counted),
        ceiling: None,
    };
    if !report(lack) && STATE.load(Ordering::Acquire) == REPORTED && !REPORTS.get() {
        // To go on without memory would abort the process before the record is written.
        std::thread::sleep(REPORT_TIME);
    }
    retry()
}

fn shrink(bytes: usize) {
    LIVE.fetch_sub(bytes, Relaxed);
}

// SAFETY: every call is forwarded unchanged to the system's allocator; counting does not touch the memory.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: the caller's contract is the system allocator's.
        let allocate = || unsafe { System.alloc(layout) };
        or_refused(allocate, layout.size(), layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: as above.
        let allocate = || unsafe { System.alloc_zeroed(layout) };
        or_refused(allocate, layout.size(), layout.size())
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        shrink(layout.size());
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // Old and new block may coexist while bytes are copied; counting the difference keeps the figure exact
        // in requested bytes, which is what can be compared between machines.
        let more = new_size.saturating_sub(layout.size());
        grow(more);
        // SAFETY: as above; a block that could not be resized is still there.
        let allocate = || unsafe { System.realloc(pointer, layout, new_size) };
        let resized = or_refused(allocate, new_size, more);
        if !resized.is_null() {
            shrink(layout.size().saturating_sub(new_size));
        }
        resized
    }
}

/// What `allocate` gives; if that is nothing in the end, `counted` bytes are not live after all.
fn or_refused(allocate: impl Fn() -> *mut u8, requested: usize, counted: usize) -> *mut u8 {
    let mut pointer = allocate();
    if pointer.is_null() {
        pointer = refused(requested, counted, allocate);
    }
    if pointer.is_null() {
        shrink(counted);
    }
    pointer
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;

    use super::*;

    /// One test: the counters are the whole process's.
    #[test]
    fn what_is_counted() {
        what_the_system_refuses_is_not();
        peaks_are_counted_from_what_was_held_at_the_start();
    }

    fn what_the_system_refuses_is_not() {
        const BYTES: usize = 1 << 60;
        let layout = Layout::from_size_align(BYTES, 1).unwrap();
        // SAFETY: the layout has a size; no block comes of it. A block that nobody looks at would be optimised away.
        let refused = black_box(unsafe { CountingAllocator.alloc(black_box(layout)) });
        assert!(refused.is_null());
        assert!(live() < BYTES);
        let mut block = black_box(vec![1u8; 10]);
        assert!(block.try_reserve_exact(black_box(BYTES)).is_err());
        assert!(live() < BYTES && black_box(block) == [1; 10]);
    }

    fn peaks_are_counted_from_what_was_held_at_the_start() {
        const BYTES: usize = 1 << 30;
        // Far more than what the other tests of this process hold meanwhile.
        const OTHERS: usize = 512 << 20;
        // Zeros that nobody touches are counted, but take no memory.
        let zeros = || black_box(vec![0u8; black_box(BYTES)]);
        let held = zeros();
        start();
        assert!(base() >= BYTES);
        let block = zeros();
        assert!(live() >= 2 * BYTES);
        drop((block, held));
        let peak = peak();
        assert!(
            peak.abs_diff(BYTES) < OTHERS,
            "{peak}: the high-water mark stays"
        );
    }
}
