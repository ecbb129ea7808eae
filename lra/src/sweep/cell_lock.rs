//! A lock file per cell, in addition to the lock of the run itself, so that only one sweep works on
//! a cell at a time.

use std::path::Path;

use disk::Locked;

use crate::error::Result;
use crate::run_folder;

/// Lock held while a sweep works on a cell; released when dropped, or when the process ends in any
/// way.
pub struct CellLock(#[expect(dead_code, reason = "the lock lives as long as the file")] Locked);

impl CellLock {
    /// Locks the cell in `folder`, creating the folder. Returns `None` if another process is
    /// working there.
    pub fn try_acquire(folder: &Path) -> Result<Option<CellLock>> {
        run_folder::make(folder)?;
        let Some(cell) = run_folder::lock(&folder.join(results::store::SWEEP_LOCK))? else {
            return Ok(None);
        };
        // Taken only to check that no process holds it; the run will take it again.
        let running = run_folder::lock(&folder.join(run_folder::LOCK))?;
        Ok(running.map(|_| CellLock(cell)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_locked_once() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("cell");
        let held = CellLock::try_acquire(&folder).unwrap();
        assert!(held.is_some());
        assert!(
            CellLock::try_acquire(&folder).unwrap().is_none(),
            "by one sweep"
        );
        drop(held);
        let run = run_folder::lock(&folder.join(run_folder::LOCK)).unwrap();
        assert!(
            CellLock::try_acquire(&folder).unwrap().is_none(),
            "not during a run"
        );
        drop(run);
        assert!(CellLock::try_acquire(&folder).unwrap().is_some());
    }
}
