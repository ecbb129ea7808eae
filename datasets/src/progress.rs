//! Progress reports of long work, and requests to stop it, independent of terminals and signals.

use crate::error::{Error, Result};

/// Receiver of progress reports. Calls may come from any thread.
pub trait Progress: Sync {
    /// Begins a stage; `total` is in the units of [`advance`](Self::advance), where known.
    fn begin(&self, what: &str, total: Option<u64>);
    /// Reports `by` more units as done.
    fn advance(&self, by: u64);
    /// Reports `by` units that an earlier attempt has done already; they do not count for the
    /// speed.
    fn found(&self, by: u64) {
        self.advance(by);
    }
    /// Ends the stage.
    fn finish(&self);
    /// Returns whether the work should end early.
    fn stopped(&self) -> bool {
        false
    }
    /// Fails if the work should end early. Work calls it between its steps.
    ///
    /// # Errors
    /// [`Error::Interrupted`] if the work is [`stopped`](Self::stopped).
    fn check(&self) -> Result<()> {
        match self.stopped() {
            true => Err(Error::Interrupted),
            false => Ok(()),
        }
    }
}

/// Discards all reports.
impl Progress for () {
    fn begin(&self, _what: &str, _total: Option<u64>) {}
    fn advance(&self, _by: u64) {}
    fn finish(&self) {}
}
