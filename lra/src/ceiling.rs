//! Running out of memory as an outcome: by its own limit or the system's, the process ends with a record.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use results::{Outcome, Record};

use crate::error::{Class, Error, Result};
use crate::memory::{self, Lack};
use crate::run_folder::RunFolder;
use crate::{host, limits, stderr};

/// The run to blame if memory runs out, with its record's path.
static ON_TRIAL: Mutex<Option<(PathBuf, Record)>> = Mutex::new(None);

/// What a run is given beyond what is held before it: less is no room for any.
const ROOM: usize = 1 << 20;
const MIB: usize = 1 << 20;

/// While it lives, a lack of memory records the run as out of memory.
pub struct CeilingGuard {
    path: PathBuf,
}

impl CeilingGuard {
    /// Blames the run in `folder`, of which so much is known, from here on. `limit` are the live bytes it may reach,
    /// those held already among them; by default nearly what the system allows.
    ///
    /// # Errors
    /// The limit leaves no room for any run.
    pub fn arm(folder: &RunFolder, draft: &Record, limit: Option<usize>) -> Result<Self> {
        if let Some(limit) = limit {
            check(limit)?;
        }
        let path = folder.record();
        let guard = CeilingGuard { path };
        guard.update(draft);
        let most_of_it = || limits::total_memory().map(|bytes| (bytes as f64 * 0.95) as usize);
        watch(limit.or_else(most_of_it).unwrap_or(usize::MAX), end);
        Ok(guard)
    }

    /// Blames the same run, of which more is known now.
    pub fn update(&self, draft: &Record) {
        // Made before the lock is taken: who runs out of memory meanwhile finds the lock free.
        let blamed = Some((self.path.clone(), draft.clone()));
        put_on_trial(blamed);
    }
}

impl Drop for CeilingGuard {
    fn drop(&mut self) {
        memory::unwatch();
        put_on_trial(None);
    }
}

fn put_on_trial(run: Option<(PathBuf, Record)>) {
    *ON_TRIAL.lock().unwrap_or_else(PoisonError::into_inner) = run;
}

/// Ends the process with a record.
fn end(reason: String) {
    let on_trial = ON_TRIAL.try_lock().ok().and_then(|mut run| run.take());
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
            stderr::line(&format!("error: {error}"));
        }
    }
    let remedy = "try --micro-batch, a smaller model, or more memory (--memory-limit)";
    stderr::line(&format!("error: out of memory: {reason}; {remedy}"));
    std::process::exit(i32::from(Class::Run.code()));
}

/// Whether `limit` live bytes leave room for anything.
///
/// # Errors
/// They do not: says how many would.
pub fn check(limit: usize) -> Result<()> {
    let held = memory::live();
    if limit >= held + ROOM {
        return Ok(());
    }
    let mib = |bytes: usize| bytes as f64 / MIB as f64;
    // What is held differs by some bytes from process to process.
    let least = (held + ROOM + ROOM / 16).div_ceil(MIB);
    Err(Error::usage(format!(
        "a memory limit of {:.2} MiB is too low: with --threads {} the program holds {:.2} MiB before a run begins, mostly \
         buffers of its threads; give --memory-limit {least}M at the least, or fewer threads",
        mib(limit),
        rayon::current_num_threads(),
        mib(held),
    )))
}

/// Calls `handler` with a sentence when an allocation would exceed `ceiling` bytes, or the system has no memory for one;
/// it is expected to end the process.
pub fn watch(ceiling: usize, handler: impl Fn(String) + Send + Sync + 'static) {
    memory::watch(ceiling, move |lack| handler(in_words(lack)));
}

fn in_words(lack: Lack) -> String {
    let largest = lack.ceiling.unwrap_or(lack.live.max(lack.requested));
    let (unit, size) = match largest {
        small if small < 1 << 30 => ("MiB", MIB),
        _ => ("GiB", 1 << 30),
    };
    let sized = |bytes: usize| format!("{:.2} {unit}", bytes as f64 / size as f64);
    let (more, had) = (sized(lack.requested), sized(lack.live));
    match (lack.ceiling, limits::address_space()) {
        (Some(ceiling), _) => {
            let limit = sized(ceiling);
            format!("{more} more than the {had} in use would exceed the limit of {limit}")
        }
        (None, Some(bytes)) => {
            let limit = sized(bytes as usize);
            format!(
                "the system has no {more} more than the {had} in use (ulimit: {limit} of addresses)"
            )
        }
        (None, None) => format!("the system has no {more} more than the {had} in use"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lack_of_memory_in_words() {
        let lack = |ceiling| Lack {
            requested: 3 << 20,
            live: 10 << 20,
            ceiling,
        };
        assert_eq!(
            in_words(lack(Some(12 << 20))),
            "3.00 MiB more than the 10.00 MiB in use would exceed the limit of 12.00 MiB"
        );
        let words = in_words(lack(None));
        let begins = "the system has no 3.00 MiB more than the 10.00 MiB in use";
        assert!(words.starts_with(begins), "{words}");
    }

    #[test]
    fn a_limit_below_what_is_held_is_refused_with_one_that_is_not() {
        let error = check(1).unwrap_err();
        assert_eq!(error.class, Class::Usage);
        let text = error.to_string();
        let least = text.split("--memory-limit ").nth(1).unwrap();
        let least: usize = least.split('M').next().unwrap().parse().unwrap();
        assert!(least << 20 > memory::live() / 2, "{text}");
        assert!(check(usize::MAX).is_ok());
    }
}
