//! Temporary folders. A later process removes those of killed processes.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::lock::{Locked, try_lock_strictly};
use crate::write::{remove, rename};

/// Name of the file in the folder that is locked as long as its process lives.
const LOCK: &str = "lock";

/// A folder that is removed when it is dropped. Its name has a random end.
#[derive(Debug)]
pub struct TemporaryFolder {
    folder: tempfile::TempDir,
    _lock: Option<Locked>,
}

impl TemporaryFolder {
    /// Creates a folder in `parent` whose name begins with `prefix`. On a file system without locks
    /// the folder of a killed process stays.
    ///
    /// # Errors
    /// `parent` is missing, read-only or full.
    pub fn create(parent: &Path, prefix: &OsStr) -> io::Result<TemporaryFolder> {
        let folder = tempfile::Builder::new()
            .prefix(prefix)
            .tempdir_in(parent)
            // The error of `tempfile` also names the folder that it did not create.
            .map_err(|error| io::Error::from(error.kind()))?;
        // Locked before it has its name, so that no other process takes the lock.
        let unnamed = folder.path().join("new");
        let lock = try_lock_strictly(crate::create(&unnamed)?).ok();
        match lock {
            Some(_) => rename(&unnamed, &folder.path().join(LOCK))?,
            None => remove(&unnamed)?,
        }
        Ok(TemporaryFolder {
            folder,
            _lock: lock,
        })
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Leaves the folder as it is. Returns its path.
    pub fn keep(self) -> PathBuf {
        self.folder.keep()
    }
}

/// Removes the folders of killed processes in `parent` whose names begin with `prefix`. A folder
/// stays if `rescue` returns false for its path. Errors are ignored, since a leftover only costs
/// space.
pub fn clear_temporary(parent: &Path, prefix: &OsStr, rescue: impl Fn(&Path) -> bool) {
    for item in fs::read_dir(parent).into_iter().flatten().flatten() {
        let begins = item
            .file_name()
            .as_encoded_bytes()
            .starts_with(prefix.as_encoded_bytes());
        if !begins {
            continue;
        }
        // The lock is held until the leftover is removed.
        let lock = crate::own(&item.path().join(LOCK), File::options().write(true));
        if let Ok(lock) = lock
            && let Ok(_held) = try_lock_strictly(lock)
            && rescue(&item.path())
        {
            let _ = fs::remove_dir_all(item.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_folders_of_killed_processes_are_cleared() {
        let place = tempfile::tempdir().unwrap();
        let prefix = OsStr::new(".work-");
        let create = || TemporaryFolder::create(place.path(), prefix).unwrap();
        // A killed process frees its lock and leaves the folder.
        let [killed, rescued] = [create().keep(), create().keep()];
        let busy = create();
        let other = TemporaryFolder::create(place.path(), OsStr::new(".other-"))
            .unwrap()
            .keep();
        // Without its lock, a folder is not known to be of a killed process.
        let foreign = place.path().join(".work-foreign");
        fs::create_dir(&foreign).unwrap();
        clear_temporary(place.path(), prefix, |folder| folder != rescued);
        assert!(!killed.exists());
        for stays in [&rescued, busy.path(), &other, &foreign] {
            assert!(stays.exists(), "{}", stays.display());
        }
        // The name of a folder that was not made says nothing to a reader.
        let missing = TemporaryFolder::create(&place.path().join("missing"), prefix);
        let message = missing.unwrap_err().to_string();
        assert!(!message.contains(".work-"), "{message}");
        let path = busy.path().to_owned();
        drop(busy);
        assert!(!path.exists());
    }
}
