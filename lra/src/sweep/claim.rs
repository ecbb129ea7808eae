//! One sweep per cell at a time: a lock file beside each run folder's own.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::Path;

use crate::error::{Class, Classify, Result};
use crate::run_folder;

/// Held while a sweep sees to a cell; given up when dropped, or when the process ends, however it does.
pub struct Claim(#[expect(dead_code, reason = "the lock lives as long as the file")] File);

/// Name of the lock file. The run itself holds another one, so that a cell whose sweep was killed is not run twice.
const FILE: &str = "sweep.lock";

impl Claim {
    /// Claims the cell in `folder`, creating the folder. `None`: another process is at work there.
    pub fn take(folder: &Path) -> Result<Option<Claim>> {
        let doing = || format!("claiming {}", folder.display());
        fs::create_dir_all(folder).during(Class::Usage, doing())?;
        let Some(claim) = lock(&folder.join(FILE)).during(Class::Usage, doing())? else {
            return Ok(None);
        };
        // Taken only to see that nobody has it; the run will take it again.
        let running = lock(&folder.join(run_folder::LOCK)).during(Class::Usage, doing())?;
        Ok(running.map(|_| Claim(claim)))
    }
}

fn lock(path: &Path) -> io::Result<Option<File>> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_claimed_once() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("cell");
        let claim = Claim::take(&folder).unwrap();
        assert!(claim.is_some());
        assert!(Claim::take(&folder).unwrap().is_none(), "by one sweep");
        drop(claim);
        let run = lock(&folder.join(run_folder::LOCK)).unwrap();
        assert!(Claim::take(&folder).unwrap().is_none(), "not during a run");
        drop(run);
        assert!(Claim::take(&folder).unwrap().is_some());
    }
}
