//! Running out of memory as an outcome: the allocator's ceiling ends the process with a record.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use results::{Outcome, Record};

use crate::error::Class;
use crate::run_folder::RunFolder;
use crate::{host, memory};

/// The run to blame if memory runs out, with its record's path.
static ON_TRIAL: Mutex<Option<(PathBuf, Record)>> = Mutex::new(None);

/// While it lives, reaching the memory ceiling records the run as out of memory.
pub struct CeilingGuard {
    path: PathBuf,
}

impl CeilingGuard {
    /// Blames the run in `folder`, of which so much is known.
    pub fn arm(folder: &RunFolder, draft: &Record) -> Self {
        let path = folder.record();
        let guard = CeilingGuard { path };
        guard.update(draft);
        guard
    }

    /// Blames the same run, of which more is known now.
    pub fn update(&self, draft: &Record) {
        // Made before the lock is taken: who reaches the ceiling meanwhile finds the lock free.
        let blamed = Some((self.path.clone(), draft.clone()));
        put_on_trial(blamed);
    }
}

impl Drop for CeilingGuard {
    fn drop(&mut self) {
        put_on_trial(None);
    }
}

fn put_on_trial(run: Option<(PathBuf, Record)>) {
    *ON_TRIAL.lock().unwrap_or_else(PoisonError::into_inner) = run;
}

/// Ends the process with a record when an allocation would exceed `ceiling` bytes.
#[expect(clippy::print_stderr, reason = "the process ends here")]
pub fn enforce(ceiling: usize) {
    watch(ceiling, |reason| {
        let on_trial = ON_TRIAL.try_lock().ok().and_then(|mut run| run.take());
        let remedy = match on_trial {
            Some(_) => "try --micro-batch or a smaller model",
            // The data was being made.
            None => "raise --memory-limit",
        };
        if let Some((path, record)) = on_trial {
            let outcome = Outcome::OutOfMemory {
                reason: reason.clone(),
            };
            let record = Record {
                outcome,
                created: host::now(),
                ..record
            };
            if let Err(error) = results::store::write(&path, &record) {
                eprintln!("error: {error}");
            }
        }
        eprintln!("error: out of memory: {reason}; {remedy}");
        std::process::exit(i32::from(Class::Run.code()));
    });
}

/// Calls `handler` with a sentence when an allocation would exceed `ceiling` bytes; it is expected to end the process.
pub fn watch(ceiling: usize, handler: impl Fn(String) + Send + Sync + 'static) {
    memory::set_ceiling(ceiling, move |requested| {
        let (unit, size) = match ceiling {
            small if small < 1 << 30 => ("MiB", 1u64 << 20),
            _ => ("GiB", 1 << 30),
        };
        let sized = |bytes: usize| format!("{:.2} {unit}", bytes as f64 / size as f64);
        // The live bytes count the request in.
        let had = memory::live().saturating_sub(requested);
        handler(format!(
            "{} more than the {} in use would exceed the limit of {}",
            sized(requested),
            sized(had),
            sized(ceiling)
        ));
    });
}
