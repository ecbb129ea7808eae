//! Panics as errors: a bug in this program or in a library fails one run and leaves a record.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::fmt;
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::sync::{Mutex, PoisonError};

use crate::error::{Class, Error, Result};

/// A panic, with its location.
#[derive(Debug)]
pub struct Panic {
    /// Its message.
    said: String,
    /// The file, and the file with line and column.
    place: Option<(String, String)>,
    backtrace: Backtrace,
}

impl fmt::Display for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Some((_, place)) => write!(f, "panicked at {place}: {}", self.said),
            None => write!(f, "panicked: {}", self.said),
        }
    }
}

impl std::error::Error for Panic {}

impl Panic {
    /// Returns the message of the panic.
    pub fn said(&self) -> &str {
        &self.said
    }

    /// Returns the source file of the panic, as it was named to the compiler.
    pub fn file(&self) -> Option<&str> {
        self.place.as_ref().map(|(file, _)| file.as_str())
    }
}

/// The first panic since [`caught`] began, on any thread.
static FIRST: Mutex<Option<Panic>> = Mutex::new(None);

/// Runs `work`. If it panics, the panic is its error; if it fails and another thread has panicked,
/// the panic is reported as the cause.
pub fn caught<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    take();
    let usual = panic::take_hook();
    panic::set_hook(Box::new(keep));
    // Partially changed state of `work` is not used again, since the run is over.
    let outcome = panic::catch_unwind(AssertUnwindSafe(work));
    panic::set_hook(usual);
    let class = Class::Run;
    match (outcome, take()) {
        (Ok(Err(error)), Some(panic)) => {
            let cause = anyhow::Error::new(panic).context(error.to_string());
            Err(Error { class, cause })
        }
        (Ok(result), _) => result,
        (Err(_), Some(panic)) => Err(Error {
            class,
            cause: panic.into(),
        }),
        (Err(_), None) => Err(Error::new(class, "panicked")),
    }
}

/// Returns the full text of an error: the chain of causes, and the backtrace if `RUST_BACKTRACE`
/// requests it.
pub fn in_full(error: &Error) -> String {
    let mut text = format!("{:?}\n", error.cause);
    if let Some(panic) = error.cause.downcast_ref::<Panic>()
        && panic.backtrace.status() == BacktraceStatus::Captured
    {
        text += &format!("\n{}", panic.backtrace);
    }
    text
}

fn keep(info: &PanicHookInfo<'_>) {
    let said = info.payload_as_str().unwrap_or("no message");
    let place = info.location();
    let panic = Panic {
        said: said.to_owned(),
        place: place.map(|at| (at.file().to_owned(), at.to_string())),
        backtrace: Backtrace::capture(),
    };
    let mut first = FIRST.lock().unwrap_or_else(PoisonError::into_inner);
    first.get_or_insert(panic);
}

fn take() -> Option<Panic> {
    FIRST.lock().unwrap_or_else(PoisonError::into_inner).take()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_wherever_it_happens() {
        let message = |work: fn() -> Result<()>| caught(work).unwrap_err().to_string();
        let here = message(|| panic!("no bread"));
        assert!(here.starts_with("panicked at "), "{here}");
        assert!(
            here.contains("panics.rs:") && here.ends_with(": no bread"),
            "{here}"
        );
        let elsewhere = message(|| {
            let baker = std::thread::spawn(|| panic!("no flour"));
            let baked: Result<()> = baker.join().map_err(|_| Error::new(Class::Run, "no bread"));
            baked
        });
        assert!(
            elsewhere.starts_with("no bread: panicked at "),
            "{elsewhere}"
        );
        assert!(elsewhere.ends_with("no flour"), "{elsewhere}");
        assert_eq!(message(|| Err(Error::usage("no money"))), "no money");
    }
}
