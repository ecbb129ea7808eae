//! Writes an out-of-memory record for the current run, if there is one, and exits with the code of
//! a failed run, when an allocation exceeds the memory limit or the system refuses one.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use results::{Outcome, Record};

use crate::error::{Class, Error, Result};
use crate::memory::{self, OutOfMemory};
use crate::run_folder::RunFolder;
use crate::{host, limits, resident, stderr};

/// The current run: the path of its record, and the record as far as it is known.
static CURRENT_RUN: Mutex<Option<(PathBuf, Record)>> = Mutex::new(None);

/// Least number of bytes that a limit must leave beyond those held before a run starts.
const LEAST_HEADROOM: usize = 1 << 20;
const MIB: usize = 1 << 20;
/// Fraction of the allowed memory that is used; the rest is for the kernel, and for growth that is
/// not counted.
const SHARE: f64 = 0.95;

/// Words of a reason before the limit that would be exceeded.
const EXCEEDS: &str = "would exceed the limit of";
/// Words behind it, if no limit was given.
const DEFAULT: &str = ", 95 % of the memory that the machine, its control group and `ulimit` allow, less what lies outside the heap";

/// Guard of a run: while it lives, an allocation that fails ends the process with an out-of-memory
/// record of the run.
pub struct OomGuard {
    path: PathBuf,
}

impl OomGuard {
    /// Returns a guard. While it lives, running out of memory writes `draft` with the outcome
    /// `out_of_memory` into `folder`, or no record before a draft is given.
    ///
    /// `limit` is the limit on live bytes of the process, those
    /// already held included. The default is 95 % of the memory that the system allows, minus the
    /// memory of the process outside its heap: code, stacks, fragmentation.
    ///
    /// # Errors
    /// The limit leaves no room for any run.
    pub fn record_oom_for(
        folder: &RunFolder,
        draft: Option<&Record>,
        limit: Option<usize>,
    ) -> Result<Self> {
        if let Some(limit) = limit {
            check(limit)?;
        }
        let path = folder.record();
        let guard = OomGuard { path };
        match draft {
            Some(draft) => guard.update(draft),
            None => set_current_run(None),
        }
        let most_of_it = || {
            let most = limits::total_memory()? as f64 * SHARE;
            Some((most as usize).saturating_sub(memory::beside()))
        };
        let is_own = limit.is_none();
        set(
            limit.or_else(most_of_it).unwrap_or(usize::MAX),
            move |mut reason| {
                if is_own && reason.contains(EXCEEDS) {
                    reason += DEFAULT;
                }
                exit_with_record(reason);
            },
        );
        Ok(guard)
    }

    /// Replaces the draft of the record.
    pub fn update(&self, draft: &Record) {
        // Cloned before the lock is taken: if the clone runs out of memory, the handler needs the
        // lock.
        let run = Some((self.path.clone(), draft.clone()));
        set_current_run(run);
    }
}

impl Drop for OomGuard {
    fn drop(&mut self) {
        set_current_run(None);
        end_when_refused();
    }
}

/// Ends the process with a message, instead of an abort, when the system refuses an allocation or
/// the control group leaves too little. Runs set limits of their own later ([`OomGuard`]).
pub fn end_when_refused() {
    set(usize::MAX, exit_with_record);
}

fn set_current_run(run: Option<(PathBuf, Record)>) {
    *CURRENT_RUN.lock().unwrap_or_else(PoisonError::into_inner) = run;
}

/// Writes the record of the current run and ends the process.
fn exit_with_record(reason: String) {
    let run = CURRENT_RUN.try_lock().ok().and_then(|mut run| run.take());
    let remedy = match run {
        Some(_) => "try --micro-batch, a smaller model, or more memory (--memory-limit)",
        None if limits::most_resident(0, SHARE).is_some() => {
            "raise the limit of the control group (or `ulimit -v`), or free some memory"
        }
        None => "raise the limit (ulimit -v) or free some memory",
    };
    if let Some((path, mut record)) = run {
        record.outcome = Outcome::OutOfMemory {
            reason: reason.clone(),
        };
        record.provenance.created = host::now();
        if let Err(error) = results::store::write(&path, &record) {
            stderr::error(error);
        }
    }
    stderr::error(format!("out of memory: {reason}; {remedy}"));
    std::process::exit(i32::from(Class::Run.code()));
}

/// Checks that `limit` live bytes leave room for a run.
///
/// # Errors
/// The limit is too small; the message says how large it must be.
pub fn check(limit: usize) -> Result<()> {
    leaves_room(limit, memory::live())
}

/// Checks that `limit` leaves room for a run in addition to the bytes `held` now.
fn leaves_room(limit: usize, held: usize) -> Result<()> {
    if limit >= held + LEAST_HEADROOM {
        return Ok(());
    }
    let mib = |bytes: usize| bytes as f64 / MIB as f64;
    let asked = match limit {
        few if few < MIB / 100 => results::counted(few as u64, "byte"),
        _ => format!("{:.2} MiB", mib(limit)),
    };
    // The bytes held differ a little from process to process.
    let least = (held + LEAST_HEADROOM + LEAST_HEADROOM / 16).div_ceil(MIB);
    Err(Error::usage(format!(
        "a memory limit of {asked} is too low: with --threads {} the program holds {:.2} MiB before a run begins, mostly \
         buffers of its threads; give --memory-limit {least}M at the least, or fewer threads",
        rayon::current_num_threads(),
        mib(held),
    )))
}

/// Calls `handler` with a message when an allocation would raise the live bytes above `limit` or
/// the resident size above the limit of the control group, or when the system refuses it. The
/// handler is expected to end the process.
pub fn set(limit: usize, handler: impl Fn(String) + Send + Sync + 'static) {
    memory::set_limit(limit, move |cause| handler(describe(cause)));
    let own = resident::bytes().unwrap_or(0) as u64;
    if let Some(most) = limits::most_resident(own, SHARE) {
        memory::set_resident_limit(usize::try_from(most).unwrap_or(usize::MAX));
    }
}

fn describe(cause: OutOfMemory) -> String {
    let largest = cause.limit.unwrap_or(cause.live.max(cause.requested));
    let (unit, size) = match largest {
        small if small < 1 << 30 => ("MiB", MIB),
        _ => ("GiB", 1 << 30),
    };
    let sized = |bytes: usize| format!("{:.2} {unit}", bytes as f64 / size as f64);
    let (more, had) = (sized(cause.requested), sized(cause.live));
    if let (Some(resident), Some(limit)) = (cause.resident, cause.limit) {
        return format!(
            "{more} more than the resident {} would exceed the {} that the control group leaves, where the system would kill \
             the run",
            sized(resident),
            sized(limit)
        );
    }
    match (cause.limit, limits::address_space()) {
        (Some(bytes), _) => {
            let limit = sized(bytes);
            format!("{more} more than the {had} in use {EXCEEDS} {limit}")
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
    fn running_out_of_memory_in_words() {
        let cause = |limit| OutOfMemory {
            requested: 3 << 20,
            live: 10 << 20,
            limit,
            resident: None,
        };
        assert_eq!(
            describe(cause(Some(12 << 20))),
            "3.00 MiB more than the 10.00 MiB in use would exceed the limit of 12.00 MiB"
        );
        let words = describe(cause(None));
        let begins = "the system has no 3.00 MiB more than the 10.00 MiB in use";
        assert!(words.starts_with(begins), "{words}");
        let words = describe(OutOfMemory {
            resident: Some(11 << 20),
            ..cause(Some(12 << 20))
        });
        let begins = "3.00 MiB more than the resident 11.00 MiB would exceed the 12.00 MiB";
        assert!(words.starts_with(begins), "{words}");
    }

    #[test]
    fn a_limit_below_what_is_held_is_refused_with_one_that_is_not() {
        // A fixed number: the bytes really held change with the other tests that run meanwhile.
        let held = 20 << 20;
        let error = leaves_room(held, held).unwrap_err();
        assert_eq!(error.class, Class::Usage);
        let text = error.to_string();
        let least = text.split("--memory-limit ").nth(1).unwrap();
        let least: usize = least.split('M').next().unwrap().parse().unwrap();
        assert!(leaves_room(least << 20, held).is_ok(), "{text}");
        assert!(leaves_room((least - 2) << 20, held).is_err(), "{text}");
        let text = check(1).unwrap_err().to_string();
        assert!(
            text.starts_with("a memory limit of 1 byte is too low"),
            "{text}"
        );
        assert!(check(usize::MAX).is_ok());
    }
}
