//! Heap accounting: a global allocator that counts live bytes exactly and keeps their high-water
//! mark. When an allocation would exceed a limit, or the system refuses it, the allocator calls a
//! handler, which can write a record. It also watches the resident size, which fragmentation makes
//! larger than the heap: beyond its limit the system kills the process without a message.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicIsize, AtomicPtr, AtomicUsize, Ordering};
use std::time::Duration;

use Ordering::Relaxed;

use crate::resident;

mod spare;
mod unwritten;

/// Forwards to the system's allocator and counts.
pub struct CountingAllocator;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static BASE: AtomicUsize = AtomicUsize::new(0);
static LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);
static RESIDENT_LIMIT: AtomicUsize = AtomicUsize::new(usize::MAX);
/// Resident bytes outside the heap when the limit on the resident size was set.
static BESIDE: AtomicUsize = AtomicUsize::new(0);
/// Bytes that may be allocated before the resident size is checked again: at most half of the
/// remaining bytes.
static UNTIL_LOOK: AtomicIsize = AtomicIsize::new(0);
static HANDLER: OnceLock<Box<dyn Fn(OutOfMemory) + Send + Sync>> = OnceLock::new();
static STATE: AtomicUsize = AtomicUsize::new(DISARMED);
/// Freed before the handler is called, so that it has memory to write a record with.
static RESERVE: AtomicPtr<u8> = AtomicPtr::new(null_mut());

/// Least value of [`UNTIL_LOOK`].
const LEAST_UNTIL_LOOK: usize = 256 << 10;

/// Values of [`STATE`]: no handler is called; the handler is called at the next failure; it was
/// called.
const DISARMED: usize = 0;
const ARMED: usize = 1;
const REPORTED: usize = 2;

/// Memory that is enough to write a record.
const RESERVE_LAYOUT: Layout = match Layout::from_size_align(1 << 20, 16) {
    Ok(layout) => layout,
    Err(_) => unreachable!(),
};
/// Time that other threads whose allocations fail wait for the handler, which ends the process.
const REPORT_TIME: Duration = Duration::from_secs(60);

thread_local! {
    /// True if this thread runs the handler.
    static IS_REPORTING: Cell<bool> = const { Cell::new(false) };
}

/// Description in records of how peaks of this module are measured.
pub const METHOD: &str = "live heap bytes since the start, counting allocator";

/// Reason why an allocation cannot be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory {
    /// Bytes requested.
    pub requested: usize,
    /// Bytes in use without the requested ones.
    pub live: usize,
    /// The limit in bytes, if it would be exceeded; `None` if the system refused.
    pub limit: Option<usize>,
    /// The resident size, if it is the one that would exceed the limit.
    pub resident: Option<usize>,
}

/// Returns the bytes allocated at this moment.
pub fn live() -> usize {
    LIVE.load(Relaxed)
}

/// Makes the bytes that are live now the base that [`peak`] is counted from, and starts a new
/// high-water mark.
pub fn start() {
    let live = live();
    BASE.store(live, Relaxed);
    PEAK.store(live, Relaxed);
}

/// Returns the bytes that were live at the last [`start`].
pub fn base() -> usize {
    BASE.load(Relaxed)
}

/// Returns the most bytes beyond [`base`] that were live at once since the last [`start`].
pub fn peak() -> usize {
    PEAK.load(Relaxed).saturating_sub(base())
}

/// Calls `handler` when an allocation would lift the live bytes above `limit`, and when the system
/// refuses one. The handler is expected to record the failure and end the process; before it is
/// called, the limit is lifted and a reserve freed, so that it can allocate. A later call changes
/// the limit and keeps the first handler.
pub fn set_limit(limit: usize, handler: impl Fn(OutOfMemory) + Send + Sync + 'static) {
    HANDLER.get_or_init(|| Box::new(handler));
    if RESERVE.load(Relaxed).is_null() {
        // SAFETY: the layout has a size.
        let reserve = unsafe { System.alloc(RESERVE_LAYOUT) };
        RESERVE.store(reserve, Relaxed);
    }
    LIMIT.store(limit, Relaxed);
    STATE.store(ARMED, Ordering::Release);
}

/// Returns the resident bytes of the process, without file-backed ones, that are not of its heap:
/// stacks, and what the system's allocator keeps.
pub fn beside() -> usize {
    resident::bytes().unwrap_or(0).saturating_sub(live())
}

/// Makes an armed handler also respond to an allocation that would raise the resident size, without
/// file-backed memory, above `limit`, once all live blocks are written.
pub fn set_resident_limit(limit: usize) {
    UNTIL_LOOK.store(0, Relaxed);
    BESIDE.store(beside(), Relaxed);
    RESIDENT_LIMIT.store(limit, Relaxed);
}

/// Calls the handler, once. Returns false if another thread does or did, or no handler is armed.
fn report(cause: OutOfMemory) -> bool {
    let first = STATE.compare_exchange(ARMED, REPORTED, Ordering::AcqRel, Relaxed);
    if first.is_err() {
        return false;
    }
    IS_REPORTING.set(true);
    LIMIT.store(usize::MAX, Relaxed);
    RESIDENT_LIMIT.store(usize::MAX, Relaxed);
    let reserve = RESERVE.swap(null_mut(), Relaxed);
    if !reserve.is_null() {
        // SAFETY: it came from this allocator with this layout, and no other pointer to it exists
        // any more.
        unsafe { System.dealloc(reserve, RESERVE_LAYOUT) };
    }
    if let Some(handler) = HANDLER.get() {
        handler(cause);
    }
    true
}

fn grow(bytes: usize) {
    let live = LIVE.fetch_add(bytes, Relaxed) + bytes;
    if live > PEAK.load(Relaxed) {
        PEAK.fetch_max(live, Relaxed);
    }
    if live > LIMIT.load(Relaxed) {
        limit_exceeded(bytes, live);
    }
}

#[cold]
fn limit_exceeded(requested: usize, live: usize) {
    report(OutOfMemory {
        requested,
        live: live - requested,
        limit: Some(LIMIT.load(Relaxed)),
        resident: None,
    });
}

/// Returns whether the resident size has a limit.
fn is_resident_limited() -> bool {
    RESIDENT_LIMIT.load(Relaxed) != usize::MAX
}

/// Counts a block of `size` bytes towards the next check of the resident size, if that has a limit.
fn guard_resident(block: *mut u8, size: usize) {
    if !is_resident_limited() {
        return;
    }
    unwritten::add(block, size);
    // No block has more bytes than that.
    let bytes = size as isize;
    if UNTIL_LOOK.fetch_sub(bytes, Relaxed) < bytes {
        look(size);
    }
}

/// Forgets a block that is about to be freed or moved.
fn leave_guard(block: *mut u8, size: usize) {
    if is_resident_limited() {
        unwritten::remove(block, size);
    }
}

/// Checks the resident size after a request of `size` bytes, including what that block and the
/// large ones before it will add when they are written.
#[cold]
fn look(size: usize) {
    let limit = RESIDENT_LIMIT.load(Relaxed);
    let Some(resident) = resident::bytes() else {
        return;
    };
    let small = if size < resident::LARGE { size } else { 0 };
    let more = unwritten::bytes() + small;
    let all = (resident + more).max(live() + BESIDE.load(Relaxed));
    match limit.checked_sub(all) {
        Some(left) => {
            let until = (left / 2).max(LEAST_UNTIL_LOOK);
            UNTIL_LOOK.store(isize::try_from(until).unwrap_or(isize::MAX), Relaxed);
        }
        None => {
            report(OutOfMemory {
                requested: more,
                live: live().saturating_sub(size),
                limit: Some(limit),
                resident: Some(all - more),
            });
        }
    }
}

/// Reports an allocation of `requested` bytes that the system refused, `counted` of which are among
/// the live ones, and retries it: the handler ends the process, so it returns only where none is
/// armed.
#[cold]
fn refused(requested: usize, counted: usize, retry: impl Fn() -> *mut u8) -> *mut u8 {
    let cause = OutOfMemory {
        requested,
        live: live().saturating_sub(counted),
        limit: None,
        resident: None,
    };
    if !report(cause) && STATE.load(Ordering::Acquire) == REPORTED && !IS_REPORTING.get() {
        // Returning a null pointer would abort the process before the record is written.
        std::thread::sleep(REPORT_TIME);
    }
    retry()
}

fn shrink(bytes: usize) {
    LIVE.fetch_sub(bytes, Relaxed);
}

/// Returns the layout that serves a request. Blocks of numbers are aligned to a cache line, so that
/// no load of a register crosses two lines. Small blocks would waste too much. Very large blocks
/// are excluded, because their untouched zeros would have to be written, and other factors bound
/// their speed.
fn served(layout: Layout) -> Layout {
    const LINE: usize = 64;
    const SIZES: std::ops::RangeInclusive<usize> = 4 << 10..=64 << 20;
    match SIZES.contains(&layout.size()) {
        true => layout.align_to(LINE).unwrap_or(layout),
        false => layout,
    }
}

// SAFETY: every call is forwarded to the system's allocator with a layout that depends on the
// requested one alone and is no smaller, or to the spare memory; counting and advice on pages do
// not touch the memory.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: the caller's contract is the system allocator's.
        let allocate = || or_spare(unsafe { System.alloc(served(layout)) }, layout);
        let block = or_refused(allocate, layout.size(), layout.size());
        prefer_huge_pages(block, layout.size());
        guard_resident(block, layout.size());
        block
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let served = served(layout);
        grow(layout.size());
        if served == layout {
            // SAFETY: as above.
            let allocate = || or_spare(unsafe { System.alloc_zeroed(layout) }, layout);
            let block = or_refused(allocate, layout.size(), layout.size());
            guard_resident(block, layout.size());
            return block;
        }
        // Blocks that are aligned are zeroed by writing to them, before which the resident size is
        // checked.
        // SAFETY: as above.
        let allocate = || or_spare(unsafe { System.alloc(served) }, layout);
        let block = or_refused(allocate, layout.size(), layout.size());
        guard_resident(block, layout.size());
        if !block.is_null() {
            // SAFETY: the block has that many bytes.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        shrink(layout.size());
        leave_guard(pointer, layout.size());
        // SAFETY: as above; the block was served with this layout.
        unsafe { free(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // Old and new block may coexist while bytes are copied; counting the difference keeps the
        // figure exact in requested bytes, which can be compared between machines.
        let more = new_size.saturating_sub(layout.size());
        grow(more);
        leave_guard(pointer, layout.size());
        // SAFETY: as above; a block that could not be resized is still there.
        let allocate = || unsafe { resize(pointer, layout, new_size) };
        let resized = or_refused(allocate, new_size, more);
        if !resized.is_null() {
            shrink(layout.size().saturating_sub(new_size));
            if more > 0 {
                guard_resident(resized, new_size);
            }
        }
        resized
    }
}

/// Resizes a block, or moves it if the new size is served with another alignment.
///
/// # Safety
/// As for [`GlobalAlloc::realloc`].
unsafe fn resize(pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
    // SAFETY: the caller promises that the new size with this alignment is a layout.
    let new = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
    if served(new).align() == served(layout).align() && !spare::holds(pointer) {
        // SAFETY: the block was served with this layout.
        let resized = unsafe { System.realloc(pointer, served(layout), new_size) };
        if !resized.is_null() {
            return resized;
        }
    }
    // SAFETY: both blocks have the bytes that are copied, and they are distinct.
    unsafe {
        let moved = or_spare(System.alloc(served(new)), new);
        if !moved.is_null() {
            moved.copy_from_nonoverlapping(pointer, new_size.min(layout.size()));
            free(pointer, layout);
        }
        moved
    }
}

/// Returns a block, or one of the spare memory where the system refused it before the program could
/// say so.
fn or_spare(block: *mut u8, layout: Layout) -> *mut u8 {
    match block.is_null() && STATE.load(Relaxed) == DISARMED {
        true => spare::alloc(layout),
        false => block,
    }
}

/// Frees a block. The spare memory keeps its own.
///
/// # Safety
/// As for [`GlobalAlloc::dealloc`].
unsafe fn free(pointer: *mut u8, layout: Layout) {
    if !spare::holds(pointer) {
        // SAFETY: the block was served with this layout.
        unsafe { System.dealloc(pointer, served(layout)) }
    }
}

/// Requests pages of 2 MiB for a large block, whose addresses a processor translates in fewer steps
/// than those of 4 KiB pages. Systems usually provide them only on request.
#[cfg(target_os = "linux")]
fn prefer_huge_pages(block: *mut u8, size: usize) {
    const LARGE: usize = 1 << 20;
    const HUGE: usize = 2 << 20;
    if size < LARGE || block.is_null() {
        return;
    }
    // Whole pages, and thus some memory of the neighbouring blocks.
    let before = block.addr() % HUGE;
    let pages = (before + size).next_multiple_of(HUGE);
    // SAFETY: the call changes how memory is backed, not what it holds; where nothing is mapped, or
    // the system has no such pages, it fails without effect.
    unsafe {
        libc::madvise(
            block.wrapping_sub(before).cast(),
            pages,
            libc::MADV_HUGEPAGE,
        )
    };
}

#[cfg(not(target_os = "linux"))]
fn prefer_huge_pages(_: *mut u8, _: usize) {}

/// Calls `allocate`; reports and retries on failure, and subtracts `counted` bytes from the live
/// ones if the retry fails, too.
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

    /// A single test: the counters belong to the whole process.
    #[test]
    fn what_is_counted() {
        what_the_system_refuses_is_not();
        peaks_are_counted_from_what_was_held_at_the_start();
    }

    fn what_the_system_refuses_is_not() {
        const BYTES: usize = 1 << 60;
        let layout = Layout::from_size_align(BYTES, 1).unwrap();
        // SAFETY: the layout has a size; the allocation fails. A block that is never read would be
        // optimised away.
        let refused = black_box(unsafe { CountingAllocator.alloc(black_box(layout)) });
        assert!(refused.is_null());
        assert!(live() < BYTES);
        let mut block = black_box(vec![1u8; 10]);
        assert!(block.try_reserve_exact(black_box(BYTES)).is_err());
        assert!(live() < BYTES && black_box(block) == [1; 10]);
    }

    fn peaks_are_counted_from_what_was_held_at_the_start() {
        const BYTES: usize = 1 << 30;
        // Far more than the other tests of this process hold at the same time.
        const OTHERS: usize = 512 << 20;
        // Zeros that are never touched are counted, but take no memory.
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
