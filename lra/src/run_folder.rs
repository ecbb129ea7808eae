//! The folder of one run: its settings, logs, checkpoints and record, held by one process at a time.
//!
//! ```text
//! <out>/<run id>/spec.toml                the frozen settings
//!                metrics.jsonl            losses and scores: equal byte for byte for equal settings
//!                timings.jsonl            seconds per step and phase
//!                checkpoint.safetensors   everything needed to go on
//!                best.safetensors         the weights with the best validation score
//!                tensorboard/             the same for TensorBoard, where asked for
//!                record.json              the outcome, written last
//!                run.lock                 held while a process works here
//! ```

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::error::{Class, Classify, Error, Result};
use crate::spec::Spec;
use crate::tensorboard;

/// A run's folder, locked for this process until dropped.
pub struct RunFolder {
    path: PathBuf,
    _lock: File,
}

/// What a folder holds when it is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// No trace of a run.
    Nothing,
    /// A run that was started and not finished.
    Unfinished,
    /// A run with a final record.
    Finished,
}

impl RunFolder {
    /// Creates or opens the folder `<out>/<id>` and takes its lock.
    pub fn open(out: &Path, id: &str) -> Result<Self> {
        let path = out.join(id);
        let doing = || format!("creating the run folder {}", path.display());
        fs::create_dir_all(&path).during(Class::Usage, doing())?;
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path.join(LOCK));
        let lock = lock.during(Class::Usage, doing())?;
        match lock.try_lock() {
            Ok(()) => Ok(RunFolder { path, _lock: lock }),
            Err(TryLockError::WouldBlock) => {
                let place = path.display();
                Err(Error::usage(format!(
                    "another process is at work in {place}; wait for it or choose another --out"
                )))
            }
            Err(TryLockError::Error(error)) => {
                Err(error).during(Class::Usage, format!("locking {}", path.display()))
            }
        }
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of one of its files.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// What is in it.
    pub fn found(&self) -> Result<Found> {
        if self.record().exists() {
            let record = results::store::read(&self.record()).class(Class::Data)?;
            let unfinished = matches!(record.outcome, results::Outcome::Interrupted { .. });
            return Ok(if unfinished {
                Found::Unfinished
            } else {
                Found::Finished
            });
        }
        Ok(if self.file("spec.toml").exists() {
            Found::Unfinished
        } else {
            Found::Nothing
        })
    }

    /// Removes what an earlier run left.
    pub fn clear(&self) -> Result<()> {
        for name in [
            results::store::FILE,
            "spec.toml",
            results::metrics::FILE,
            "timings.jsonl",
            CHECKPOINT,
            BEST,
        ] {
            match fs::remove_file(self.file(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(error).during(
                        Class::Usage,
                        format!("removing {}", self.file(name).display()),
                    );
                }
                _ => {}
            }
        }
        let events = self.file(tensorboard::FOLDER);
        match fs::remove_dir_all(&events) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(error).during(Class::Usage, format!("removing {}", events.display()))
            }
            _ => Ok(()),
        }
    }

    /// Saves the settings.
    pub fn save_spec(&self, spec: &Spec) -> Result<()> {
        let path = self.file("spec.toml");
        results::write(&path, spec.to_toml()?.as_bytes()).class(Class::Run)
    }

    /// Checks that the settings on file are those of `spec`.
    pub fn expect_spec(&self, spec: &Spec) -> Result<()> {
        let path = self.file("spec.toml");
        let doing = || format!("reading {}", path.display());
        let text = fs::read_to_string(&path).during(Class::Usage, doing())?;
        let on_file: Spec = toml::from_str(&text).during(Class::Usage, doing())?;
        if on_file.digest() == spec.digest() {
            return Ok(());
        }
        let place = path.display();
        Err(Error::usage(format!(
            "{place} holds other settings than the ones asked for; start over with --force"
        )))
    }

    /// The path of the record.
    pub fn record(&self) -> PathBuf {
        self.file(results::store::FILE)
    }

    /// The path of the checkpoint.
    pub fn checkpoint(&self) -> PathBuf {
        self.file(CHECKPOINT)
    }

    /// The path of the best weights.
    pub fn best(&self) -> PathBuf {
        self.file(BEST)
    }
}

/// Name of the lock that a process at work in a run folder holds.
pub const LOCK: &str = "run.lock";
const CHECKPOINT: &str = "checkpoint.safetensors";
const BEST: &str = "best.safetensors";

/// A log of JSON lines that can be cut back to where a checkpoint stood.
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
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .read(true)
            .open(&path)
            .with_context(context)?;
        let length = file.metadata().with_context(context)?.len();
        anyhow::ensure!(
            length >= bytes,
            "{} is shorter than its checkpoint says; start over with --force",
            path.display()
        );
        file.set_len(bytes).with_context(context)?;
        Ok(Log { file, path, bytes })
    }

    /// Appends one line.
    pub fn line(&mut self, value: &impl Serialize) -> anyhow::Result<()> {
        use anyhow::Context;
        let mut line = serde_json::to_vec(value)?;
        line.push(b'\n');
        self.file
            .write_all(&line)
            .with_context(|| format!("writing {}", self.path.display()))?;
        self.bytes += line.len() as u64;
        Ok(())
    }

    /// Makes sure that all lines are on disk, and returns the length in bytes.
    pub fn sync(&mut self) -> io::Result<u64> {
        self.file.sync_data()?;
        Ok(self.bytes)
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }
}
