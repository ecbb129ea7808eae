//! The lock of a file that collects results.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use disk::Locked;

use crate::error::Result;
use crate::{run_folder, stderr};

/// Time between attempts to take a lock that another process holds.
const PERIOD: Duration = Duration::from_millis(50);

/// Lock beside a file that collects results, held from before it is read until it is written.
/// Without it, two commands that add to one file would each drop what the other adds. The file of
/// the lock is removed when the lock is dropped.
pub struct OutputLock {
    path: PathBuf,
    #[expect(dead_code, reason = "the lock lives as long as the file")]
    file: Locked,
}

impl OutputLock {
    /// Waits for the lock.
    ///
    /// # Errors
    /// The folder cannot be written, or its file system has no locks.
    pub fn acquire(output: &Path) -> Result<OutputLock> {
        let mut name = std::ffi::OsString::from(".");
        name.push(output.file_name().unwrap_or_default());
        name.push(".lock");
        let path = output.with_file_name(name);
        let mut waits = false;
        loop {
            match run_folder::lock(&path)? {
                // The process that held it before may have removed the file in between.
                Some(file) if disk::is_at(&file, &path) => return Ok(OutputLock { path, file }),
                Some(_) => {}
                None => {
                    if !waits {
                        stderr::line(format!(
                            "waiting for another process that writes {}",
                            output.display()
                        ));
                    }
                    waits = true;
                    thread::sleep(PERIOD);
                }
            }
        }
    }
}

impl Drop for OutputLock {
    fn drop(&mut self) {
        // If it cannot be removed, an empty file stays behind.
        let _ = std::fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn one_command_at_a_time_adds_to_a_file_and_no_lock_stays() {
        let place = tempfile::tempdir().unwrap();
        let output = place.path().join("all.csv");
        let beside = place.path().join(".all.csv.lock");
        let order = Mutex::new(Vec::new());
        let note = |word: &'static str| order.lock().unwrap().push(word);
        thread::scope(|scope| {
            let first = OutputLock::acquire(&output).unwrap();
            assert!(beside.is_file() && !output.exists());
            let second = scope.spawn(|| {
                let _lock = OutputLock::acquire(&output).unwrap();
                note("second");
            });
            thread::sleep(2 * PERIOD);
            note("first");
            drop(first);
            second.join().unwrap();
        });
        assert_eq!(order.into_inner().unwrap(), ["first", "second"]);
        assert!(!beside.exists());
        // Another file has another lock.
        let _one = OutputLock::acquire(&output).unwrap();
        let _other = OutputLock::acquire(&place.path().join("other.csv")).unwrap();
    }
}
