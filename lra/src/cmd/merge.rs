//! `lra merge`: combines the records of folders and files into one file.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use results::store::record_file::{self, Merged};

use crate::cli::agree::MergeArgs;
use crate::cmd;
use crate::error::{Class, Classify, Error, Result};
use crate::{run_folder, stderr};

/// Runs the command.
pub fn run(arguments: &MergeArgs) -> Result<ExitCode> {
    let output = &arguments.output;
    if output.extension().is_none_or(|it| it != "csv") {
        return Err(Error::usage(format!(
            "--output {}: the name of a file of records ends in .csv",
            output.display()
        )));
    }
    let _lock = OutputLock::acquire(output)?;
    if output.exists() && !arguments.sources.iter().any(|it| is_same(it, output)) {
        return Err(Error::usage(format!(
            "{0} is there already: name it among the sources too, or remove it",
            output.display()
        )));
    }
    let merged = record_file::merge(&arguments.sources).class(Class::Data)?;
    warn(&merged);
    if arguments.strict && !merged.skipped.is_empty() {
        return Err(cmd::damaged(merged.skipped.len()));
    }
    if merged.records.is_empty() {
        let message = "no record of a run that ended is among the sources";
        return Err(Error::new(Class::Data, message));
    }
    record_file::write(output, &merged.records).map_err(cmd::of_writing)?;
    let cells = results::counted(merged.records.len() as u64, "cell");
    let mut line = format!("{cells} written to {}", output.display());
    for (number, what) in [
        (merged.repeats, "repeated"),
        (merged.unfinished, "unfinished, left out"),
    ] {
        if number > 0 {
            line += &format!("; {number} {what}");
        }
    }
    stderr::line(&line);
    Ok(ExitCode::SUCCESS)
}

/// Time between attempts to take a lock that another process holds.
const PERIOD: Duration = Duration::from_millis(50);

/// Lock beside an output, held from before the sources are read until the output is written.
/// Without it, two merges into one file would each drop the records that the other adds. The file
/// of the lock is removed when the lock is dropped.
struct OutputLock {
    path: PathBuf,
    #[expect(dead_code, reason = "the lock lives as long as the file")]
    file: File,
}

impl OutputLock {
    /// Waits for the lock.
    ///
    /// # Errors
    /// The folder cannot be written, or its file system has no locks.
    fn acquire(output: &Path) -> Result<OutputLock> {
        let mut name = std::ffi::OsString::from(".");
        name.push(output.file_name().unwrap_or_default());
        name.push(".lock");
        let path = output.with_file_name(name);
        let mut waits = false;
        loop {
            match run_folder::lock(&path)? {
                // The process that held it before may have removed the file in between.
                Some(file) if is_at(&file, &path) => return Ok(OutputLock { path, file }),
                Some(_) => {}
                None => {
                    if !waits {
                        stderr::line(&format!(
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

/// Returns whether `path` is still the name of an open file.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let number = |it: std::fs::Metadata| (it.dev(), it.ino());
    let there = std::fs::symlink_metadata(path).map(number);
    matches!((file.metadata().map(number), there), (Ok(open), Ok(there)) if open == there)
}

/// Returns whether `path` is still the name of an open file, which cannot be removed here.
#[cfg(not(unix))]
fn is_at(_file: &File, _path: &Path) -> bool {
    true
}

/// Warns of the files that hold no record, by name.
pub fn warn(merged: &Merged) {
    for (path, reason) in &merged.skipped {
        stderr::one(&format!("warning: {} left out: {reason}", path.display()));
    }
}

/// Returns whether two paths lead to the same file.
fn is_same(one: &Path, other: &Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}
