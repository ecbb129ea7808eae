//! The folder of one run: its settings, logs, checkpoints and record, held by one process at a
//! time.
//!
//! ```text
//! <out>/<run id>/spec.toml                the frozen settings
//!                metrics.jsonl            losses and scores: equal byte for byte for equal settings
//!                timings.jsonl            seconds per step and phase
//!                checkpoint.safetensors   everything needed to resume
//!                best.safetensors         the weights with the best validation score
//!                pretrain-*               the previous four files, for a pretraining
//!                tensorboard/             the metrics for TensorBoard, if requested
//!                draft.json               the record as known when training began: data, program, machine
//!                record.json              the outcome, written last
//!                error.log                the full error of a failed run, if longer than a line
//!                run.lock                 held while a process works in the folder
//! ```

mod inventory;

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use disk::Append;
use results::{Outcome, Record};
use serde::Serialize;

pub use self::inventory::Missing;
use crate::damaged::Damaged;
use crate::error::{Class, Classify, Error, Result};
use crate::spec::Spec;
use crate::tensorboard;

/// A run's folder, locked for this process until dropped.
pub struct RunFolder {
    path: PathBuf,
    _lock: File,
}

/// Contents of a folder when it is opened.
#[derive(Debug)]
pub enum Found {
    /// No trace of a run.
    Nothing,
    /// A run that was started, and stopped or killed.
    Unfinished,
    /// A failed run that may succeed when it is resumed: the disk was full, or the memory was not
    /// sufficient.
    Failed(Box<Record>),
    /// A run whose record is final: it would end in the same way again.
    Finished(Box<Record>),
}

impl RunFolder {
    /// Creates or opens the folder `<out>/<id>`, takes its lock, and removes the half-written files
    /// of killed processes.
    pub fn open(out: &Path, id: &str) -> Result<Self> {
        let path = out.join(id);
        make(&path)?;
        let Some(lock) = lock(&path.join(LOCK))? else {
            let place = path.display();
            return Err(Error::usage(format!(
                "another process is at work in {place}; wait for it or choose another --out"
            )));
        };
        results::clear_unfinished(&path).class(Class::Usage)?;
        Ok(RunFolder { path, _lock: lock })
    }

    /// Removes an object in place of the lock that cannot be a lock, such as a folder, before the
    /// folder is opened to start over.
    pub fn clear_lock(out: &Path, id: &str) -> Result<()> {
        let folder = out.join(id);
        refuse_link(&folder)?;
        let path = folder.join(LOCK);
        match fs::symlink_metadata(&path) {
            Ok(found) if !found.is_file() => remove(&path),
            _ => Ok(()),
        }
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of one of its files.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Returns the contents of the folder.
    ///
    /// # Errors
    /// One of its files is a symbolic link; the record is damaged.
    pub fn found(&self) -> Result<Found> {
        disk::refuse_links(&self.path).map_err(|(path, error)| {
            Error::usage(format!(
                "{}: {error}; or start over with --force",
                path.display()
            ))
        })?;
        if self.record().exists() {
            let record = results::store::read(&self.record()).map_err(unusable)?;
            let record = Box::new(record);
            return Ok(match &record.outcome {
                Outcome::Interrupted { .. } => Found::Unfinished,
                outcome if outcome.is_final() => Found::Finished(record),
                _ => Found::Failed(record),
            });
        }
        Ok(match RunFolder::is_begun(&self.path) {
            true => Found::Unfinished,
            false => Found::Nothing,
        })
    }

    /// Returns the record of the run in the folder at `path` as far as it is known: the last one
    /// written, else the draft.
    ///
    /// # Errors
    /// The record is damaged.
    pub fn begun(path: &Path) -> Result<Option<Record>> {
        let files = [results::store::FILE, DRAFT].map(|name| path.join(name));
        let Some(path) = files.iter().find(|path| path.exists()) else {
            return Ok(None);
        };
        results::store::read(path).map(Some).map_err(unusable)
    }

    /// Removes the record of an earlier attempt.
    pub fn remove_record(&self) -> Result<()> {
        self.remove(results::store::FILE)
    }

    /// Saves the record as far as it is known.
    pub fn save_draft(&self, draft: &Record) -> Result<()> {
        results::store::write(&self.draft(), draft).class(Class::Run)
    }

    /// Removes the files that an earlier run left.
    pub fn clear(&self) -> Result<()> {
        for name in [
            results::store::FILE,
            SPEC,
            DRAFT,
            results::metrics::FILE,
            TIMINGS,
            CHECKPOINT,
            BEST,
            ERROR,
            tensorboard::FOLDER,
        ] {
            self.remove(name)?;
        }
        for name in [results::metrics::FILE, TIMINGS, CHECKPOINT, BEST] {
            self.remove(&format!("{PRETRAIN}{name}"))?;
        }
        Ok(())
    }

    fn remove(&self, name: &str) -> Result<()> {
        remove(&self.file(name))
    }

    /// Keeps the full text of an error, to find its cause later; `None` removes that of an earlier
    /// attempt.
    pub fn keep_error(&self, error: Option<&str>) -> Result<()> {
        match error {
            Some(text) => results::write(&self.file(ERROR), text.as_bytes()).class(Class::Run),
            None => self.remove(ERROR),
        }
    }

    /// Saves the settings.
    pub fn save_spec(&self, spec: &Spec) -> Result<()> {
        let path = self.file(SPEC);
        results::write(&path, spec.to_toml()?.as_bytes()).class(Class::Run)
    }

    /// Returns whether settings are stored, since a run may fail before it has any.
    ///
    /// # Errors
    /// The stored settings are damaged, or they differ from `spec`.
    pub fn holds(&self, spec: &Spec) -> Result<bool> {
        let path = self.file(SPEC);
        let damaged = |problem: String| Damaged {
            path: path.clone(),
            problem,
        };
        let on_file: Spec = match disk::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => Err(Damaged::or_io(&path, "reading", error)).class(Class::Data)?,
            Ok(text) => toml::from_str(&text)
                .map_err(|error| damaged(error.message().to_owned()))
                .class(Class::Data)?,
        };
        let differences = on_file.differences(spec);
        if differences.is_empty() {
            return Ok(true);
        }
        Err(Error::usage(format!(
            "{} holds other settings than the ones asked for: {}; start over with --force",
            path.display(),
            differences.join(", ")
        )))
    }

    /// Returns the other run folders in the same folder, each with its settings. Those without
    /// readable settings are left out.
    pub fn siblings(&self) -> Vec<(PathBuf, Spec)> {
        let beside = self.path.parent().map(fs::read_dir);
        let entries = beside.into_iter().flatten().flatten().flatten();
        let mut folders: Vec<_> = entries
            .map(|entry| entry.path())
            .filter(|path| *path != self.path)
            .collect();
        folders.sort();
        let read = |path: PathBuf| {
            let text = disk::read_to_string(&path.join(SPEC)).ok()?;
            Some((path, toml::from_str(&text).ok()?))
        };
        folders.into_iter().filter_map(read).collect()
    }

    /// Returns the path of the draft of the record.
    pub fn draft(&self) -> PathBuf {
        self.file(DRAFT)
    }

    /// Returns the path of the record.
    pub fn record(&self) -> PathBuf {
        self.file(results::store::FILE)
    }

    /// Returns the files of training.
    pub fn training(&self) -> PhaseFiles {
        self.phase("")
    }

    /// Returns the files of a pretraining.
    pub fn pretraining(&self) -> PhaseFiles {
        self.phase(PRETRAIN)
    }

    fn phase(&self, prefix: &str) -> PhaseFiles {
        phase_of(&self.path, prefix)
    }
}

/// Returns the paths of the files of a phase in the folder at `path`.
fn phase_of(path: &Path, prefix: &str) -> PhaseFiles {
    let file = |name: &str| path.join(format!("{prefix}{name}"));
    PhaseFiles {
        metrics: file(results::metrics::FILE),
        timings: file(TIMINGS),
        checkpoint: file(CHECKPOINT),
        best: file(BEST),
    }
}

/// The files of one phase of a run.
pub struct PhaseFiles {
    /// The log of losses and scores.
    pub metrics: PathBuf,
    /// The log of times.
    pub timings: PathBuf,
    /// Everything needed to resume.
    pub checkpoint: PathBuf,
    /// The best weights.
    pub best: PathBuf,
}

/// Returns the error for a file of a run that cannot be used. Only what tells of the file itself is
/// a reason to start over.
pub fn unusable(error: results::Error) -> Error {
    match error.is_of_content() {
        // Not added as a context, since the problem comes first.
        true => Error::new(Class::Data, format!("{error}; start over with --force")),
        false => Error::new(Class::Data, error),
    }
}

/// Makes the folder of a run, if it is not there.
///
/// # Errors
/// It is a symbolic link, or cannot be made.
pub fn make(path: &Path) -> Result<()> {
    refuse_link(path)?;
    fs::create_dir_all(path).during(
        Class::Usage,
        format!("creating the run folder {}", path.display()),
    )
}

/// Refuses a run folder that is a symbolic link. Links above it, such as `--out`, are the user's.
fn refuse_link(path: &Path) -> Result<()> {
    disk::refuse_link(path).during(Class::Usage, format!("the run folder {}", path.display()))
}

/// Locks a file in one of the program's own folders, creating it. Returns `None` if another process
/// holds the lock.
///
/// # Errors
/// The file cannot be opened, is a symbolic link or is not a regular file; or the file system has
/// no locks.
pub fn lock(path: &Path) -> Result<Option<File>> {
    let doing = || format!("locking {}", path.display());
    let mut options = File::options();
    let file = disk::own(path, options.create(true).truncate(false).write(true));
    let file = file.map_err(|error| {
        let remedy = match error.kind() {
            io::ErrorKind::InvalidInput | io::ErrorKind::IsADirectory => {
                "; --force of `lra run` removes it"
            }
            _ => "",
        };
        Error::usage(format!("{}: {error}{remedy}", doing()))
    })?;
    match disk::try_lock(&file) {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error).during(Class::Usage, doing()),
    }
}

/// Removes a file or a folder, if it exists.
fn remove(path: &Path) -> Result<()> {
    match disk::remove(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).during(Class::Usage, format!("removing {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// Name of the lock that a running process holds in a run folder.
pub const LOCK: &str = "run.lock";
/// Name of the file with the error of a failed run.
pub const ERROR: &str = "error.log";
const SPEC: &str = "spec.toml";
const DRAFT: &str = "draft.json";
const TIMINGS: &str = "timings.jsonl";
const CHECKPOINT: &str = "checkpoint.safetensors";
const BEST: &str = "best.safetensors";
const PRETRAIN: &str = "pretrain-";

/// A log of JSON lines that can be truncated to its length at a checkpoint.
pub struct Log {
    file: File,
    path: PathBuf,
    bytes: u64,
}

impl Log {
    /// Opens the log, dropping everything after the first `bytes` bytes.
    pub fn open(path: PathBuf, bytes: u64) -> anyhow::Result<Self> {
        use anyhow::Context;
        let context = || format!("opening {}", path.display());
        let mut options = File::options();
        let file = disk::own_alone(&path, options.create(true).append(true).read(true));
        let file = file.map_err(|error| Damaged::or_io(&path, "opening", error))?;
        let length = file.metadata().with_context(context)?.len();
        if length < bytes {
            let problem = "it is shorter than its checkpoint says".to_owned();
            return Err(Damaged { path, problem }.into());
        }
        file.set_len(bytes).with_context(context)?;
        Ok(Log { file, path, bytes })
    }

    /// Appends one line, or nothing if the disk is full.
    pub fn line(&mut self, value: &impl Serialize) -> anyhow::Result<()> {
        use anyhow::Context;
        let mut line = serde_json::to_vec(value)?;
        line.push(b'\n');
        if let Err(error) = self.file.append(&line) {
            // Half a line would make the log unreadable. The first error is the one to report.
            let _ = self.file.set_len(self.bytes);
            return Err(error).with_context(|| format!("writing {}", self.path.display()));
        }
        self.bytes += line.len() as u64;
        Ok(())
    }

    /// Syncs all lines to disk, and returns the length in bytes.
    pub fn sync(&mut self) -> io::Result<u64> {
        disk::sync(&self.file)?;
        Ok(self.bytes)
    }

    /// Returns the path of the log.
    pub fn path(&self) -> &Path {
        &self.path
    }
}
