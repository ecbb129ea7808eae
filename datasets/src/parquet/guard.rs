//! Conversion of panics of the `parquet` crate to errors.
//!
//! The crate's decoders slice and assert where a damaged page contradicts their expectations. None
//! of their values is used again after an error, so their state does not matter.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Once;

use parquet::errors::{ParquetError, Result};

thread_local! {
    /// True while this thread is within [`guarded`], where a panic is expected and its message does
    /// not help the user.
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`, which calls the crate's decoders and nothing else; returns a panic as an error.
pub(super) fn guarded<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    static SILENCE: Once = Once::new();
    SILENCE.call_once(|| {
        let others = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !GUARDED.get() {
                others(panic);
            }
        }));
    });
    GUARDED.set(true);
    let outcome = panic::catch_unwind(AssertUnwindSafe(work));
    GUARDED.set(false);
    outcome.unwrap_or_else(|panic| {
        let problem = match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
            (Some(text), _) => text,
            (_, Some(text)) => text.as_str(),
            _ => "no reason given",
        };
        Err(ParquetError::General(format!(
            "its pages contradict themselves: {problem}"
        )))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_and_the_thread_goes_on() {
        let message = |outcome: Result<()>| outcome.unwrap_err().to_string();
        assert!(message(guarded(|| panic!("out of range"))).contains("themselves: out of range"));
        let number = 4;
        assert!(message(guarded(|| panic!("page {number}"))).contains("page 4"));
        assert_eq!(guarded(|| Ok(number)).unwrap(), 4);
        assert!(!GUARDED.get());
    }
}
