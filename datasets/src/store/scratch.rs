//! Folders and files that a build needs in addition to its entry: its lock, its working folder, and
//! the folders of data that is only built to be compared. All names are hidden. The leftovers of a
//! killed process are recognized by a free lock.

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use disk::{Locked, TemporaryFolder};

use super::{Store, entry};
use crate::archive::is_litter;
use crate::error::{Result, io};
use crate::files;
use crate::{BuildCheckpoint, Progress};

/// Name prefixes of files and folders next to an entry: its lock, the entry while it is built, the
/// entry that is replaced.
const LOCK: &str = ".lock-";
pub(super) const BUILDING: &str = ".building-";
pub(super) const REPLACED: &str = ".replaced-";
/// Name of the entry within the folder that it is moved aside to.
pub(super) const ENTRY: &str = "entry";
/// Name prefix of folders in the data directory for data that is built only to be compared.
const SCRATCH: &str = ".scratch-";

impl Store {
    /// Creates a folder below the data directory that is removed when it is dropped, or by a later
    /// process.
    pub(crate) fn scratch(&self) -> Result<TemporaryFolder> {
        fs::create_dir_all(&self.root).map_err(io("create", &self.root))?;
        clear_scratch(&self.root);
        TemporaryFolder::create(&self.root, SCRATCH.as_ref())
            .map_err(io("create a folder in", &self.root))
    }
}

/// Removes the work of processes that were killed: folders whose lock is free. Checkpoints stay. An
/// entry that was moved aside, and whose replacement never came, is moved back.
pub(super) fn clear_leftovers(store: &Path) {
    let names = fs::read_dir(store).into_iter().flatten().flatten();
    for name in names.map(|item| item.file_name()) {
        let name = name.to_string_lossy();
        let entry = [BUILDING, REPLACED]
            .iter()
            .find_map(|prefix| Some((*prefix, name.strip_prefix(prefix)?)));
        let Some((prefix, entry)) = entry else {
            continue;
        };
        // A builder has its lock before it has a folder: without a lock no process is at work, and
        // none is created here, which nothing would remove.
        let lock = disk::own(
            &store.join(format!("{LOCK}{entry}")),
            File::options().write(true),
        );
        // The lock is held until the leftover is removed.
        let held = match lock.map(disk::try_lock_strictly) {
            Ok(Ok(lock)) => Some(lock),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            _ => continue,
        };
        let folder = store.join(&*name);
        if prefix == BUILDING || restore(&folder, &store.join(entry)).is_ok() {
            // A leftover only costs space.
            let _ = disk::remove(&folder);
        }
        drop(held);
    }
}

/// Moves a whole entry in the folder `replaced`, or that folder if it is one, back to its place
/// `folder`, if nothing is there. Then nothing in `replaced` is needed any longer.
pub(super) fn restore(replaced: &Path, folder: &Path) -> std::io::Result<()> {
    let whole = [replaced.join(ENTRY), replaced.to_owned()];
    let whole = whole.iter().find(|aside| entry::is_whole(aside));
    match whole.filter(|_| !folder.exists()) {
        Some(aside) => disk::rename(aside, folder),
        None => Ok(()),
    }
}

/// Removes the scratch folders of processes that were killed.
fn clear_scratch(root: &Path) {
    disk::clear_temporary(root, SCRATCH.as_ref(), |_| true);
}

/// Time between attempts to take a lock that is held.
const PERIOD: Duration = Duration::from_millis(50);

/// Waits for the lock of an entry, which is freed when the process dies. Removes the leftovers of
/// killed processes for other entries.
pub(super) fn lock(folder: &Path, progress: &dyn Progress) -> Result<Locked> {
    let store = parent(folder);
    fs::create_dir_all(store).map_err(io("create", store))?;
    clear_leftovers(store);
    clear_scratch(parent(store));
    let path = beside(folder, LOCK);
    if let Some(lock) = attempt(&path)? {
        return Ok(lock);
    }
    progress.begin(
        "waiting for another process that builds the same data",
        None,
    );
    let lock = wait(&path, progress);
    progress.finish();
    lock
}

/// Takes a lock; `None` if another process holds it.
fn attempt(path: &Path) -> Result<Option<Locked>> {
    let file = files::lock_file(path).map_err(io("create", path))?;
    match disk::try_lock(file) {
        Ok(lock) => Ok(Some(lock)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(io("lock", path)(error)),
    }
}

/// Polls for a lock until it is free or the user requests a stop, since a blocking call could not
/// be interrupted.
fn wait(path: &Path, progress: &dyn Progress) -> Result<Locked> {
    loop {
        progress.check()?;
        match attempt(path)? {
            Some(lock) => return Ok(lock),
            None => thread::sleep(PERIOD),
        }
    }
}

pub(super) fn parent(folder: &Path) -> &Path {
    folder.parent().unwrap_or(Path::new("."))
}

/// Returns the checkpoint of an unfinished entry.
pub(super) fn checkpoint_of(folder: &Path) -> BuildCheckpoint {
    BuildCheckpoint::new(beside(folder, ".parts-"))
}

/// Returns the path next to `folder` with `prefix` before the name.
pub(super) fn beside(folder: &Path, prefix: &str) -> PathBuf {
    let mut name = OsString::from(prefix);
    name.push(folder.file_name().unwrap_or_default());
    folder.with_file_name(name)
}

/// Returns whether a folder in the store is no entry: one at work, or one that systems write.
pub(super) fn is_foreign(folder: &Path) -> bool {
    let name = folder.file_name();
    name.is_some_and(|name| is_litter(&name.to_string_lossy()))
}

/// Folder that starts empty, even if a killed process left content in it, and is removed in the
/// end.
pub(super) struct WorkFolder(pub(super) PathBuf);

impl WorkFolder {
    /// Leaves the folder as it is.
    pub(super) fn keep(self) {
        std::mem::forget(self);
    }

    pub(super) fn create(path: PathBuf) -> Result<WorkFolder> {
        match disk::remove(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(io("clear", &path)(error));
            }
            _ => {}
        }
        fs::create_dir(&path).map_err(io("create", &path))?;
        Ok(WorkFolder(path))
    }
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        // Already gone after a successful rename; otherwise the next build clears it.
        let _ = fs::remove_dir_all(&self.0);
    }
}
