//! Running out of memory as an outcome: the allocator's ceiling ends the process with a record.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use results::{Outcome, Record};

use crate::error::Class;
use crate::run_folder::RunFolder;
use crate::{host, memory};

/// The run to blame if memory runs out.
static ON_TRIAL: Mutex<Option<(PathBuf, Record)>> = Mutex::new(None);

/// While it lives, reaching the memory ceiling records the run as out of memory.
pub struct CeilingGuard;

impl CeilingGuard {
    /// Blames the run in `folder`.
    pub fn arm(folder: &RunFolder, draft: &Record) -> Self {
        *ON_TRIAL.lock().unwrap_or_else(PoisonError::into_inner) =
            Some((folder.record(), draft.clone()));
        CeilingGuard
    }
}

impl Drop for CeilingGuard {
    fn drop(&mut self) {
        *ON_TRIAL.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// Ends the process with a record when an allocation would exceed `ceiling` bytes.
#[expect(clippy::print_stderr, reason = "the process ends here")]
pub fn enforce(ceiling: usize) {
    watch(ceiling, |reason| {
        if let Ok(mut on_trial) = ON_TRIAL.try_lock()
            && let Some((path, record)) = on_trial.take()
        {
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
        eprintln!("error: out of memory: {reason}; try --micro-batch or a smaller model");
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
