//! Resident memory of this process, as counted by the kernel. It is read within the allocator, so
//! nothing here allocates.

/// Returns the resident bytes without file-backed ones, which the system could drop; `None` if the
/// system does not report them.
#[cfg(target_os = "linux")]
pub fn bytes() -> Option<usize> {
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::sync::OnceLock;

    static SIZES: OnceLock<Option<File>> = OnceLock::new();
    let open = || File::open("/proc/self/statm").ok();
    let mut text = [0; 128];
    let file = SIZES.get_or_init(open).as_ref()?;
    let count = file.read_at(&mut text, 0).ok()?;
    let text = std::str::from_utf8(text.get(..count)?).ok()?;
    // Fields, in pages: all addresses, the resident ones, and the file-backed ones among the
    // latter.
    let mut pages = text.split(' ').skip(1).map_while(|it| it.parse().ok());
    let (resident, of_files): (usize, usize) = (pages.next()?, pages.next()?);
    Some(page() * resident.saturating_sub(of_files))
}

/// Returns `None`: the system does not report it.
#[cfg(not(target_os = "linux"))]
pub fn bytes() -> Option<usize> {
    None
}

/// Returns the bytes of a page, which differ between processors and systems.
#[cfg(target_os = "linux")]
fn page() -> usize {
    use std::sync::OnceLock;

    static BYTES: OnceLock<usize> = OnceLock::new();
    // SAFETY: the call reads a system constant.
    let ask = || usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) });
    *BYTES.get_or_init(|| ask().ok().filter(|bytes| *bytes > 0).unwrap_or(4096))
}

/// Blocks of at least this size are checked for pages that are in memory; smaller ones are assumed
/// to be new.
pub const LARGE: usize = 128 << 10;

/// Returns the number of bytes of a block that are not in memory yet, and will be once it is
/// written.
#[cfg(target_os = "linux")]
pub fn missing(block: *mut u8, size: usize) -> usize {
    const AT_ONCE: usize = 1024;
    if size < LARGE || block.is_null() {
        return size;
    }
    let mut present = [0u8; AT_ONCE];
    let page = page();
    let begin = block.addr() / page * page;
    let end = (block.addr() + size).next_multiple_of(page);
    let mut missing = 0;
    for at in (begin..end).step_by(AT_ONCE * page) {
        let pages = ((end - at) / page).min(AT_ONCE);
        let place = block.with_addr(at).cast();
        // SAFETY: the call reads no memory and writes a byte per page, for which there is room.
        let status = unsafe { libc::mincore(place, pages * page, present.as_mut_ptr()) };
        let is_there = |present: &&u8| **present & 1 == 1;
        missing += match status {
            0 => pages - present[..pages].iter().filter(is_there).count(),
            // Unmapped addresses.
            _ => pages,
        };
    }
    missing * page
}

/// Returns the whole size: the system does not report which pages are in memory.
#[cfg(not(target_os = "linux"))]
pub fn missing(_block: *mut u8, size: usize) -> usize {
    size
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::hint::black_box;

    use super::*;

    #[test]
    fn a_block_is_in_memory_once_it_is_written() {
        const SIZE: usize = 256 << 20;
        let before = bytes().unwrap();
        let mut block: Vec<u8> = Vec::with_capacity(SIZE);
        assert!(missing(block.as_mut_ptr(), SIZE) > SIZE / 2);
        block.resize(SIZE, 1);
        assert!(missing(black_box(&mut block).as_mut_ptr(), SIZE) < SIZE / 2);
        // Other tests of this process free memory at the same time, but not that much.
        assert!(bytes().unwrap() > before + SIZE / 2);
    }
}
