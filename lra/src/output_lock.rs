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
