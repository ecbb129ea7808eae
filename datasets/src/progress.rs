//! Progress reports of long work, and requests to stop it, without knowing about terminals or signals.

use crate::error::{Error, Result};

/// Receives the steps of long work. Calls may come from any thread.
pub trait Progress: Sync {
    /// A stage begins; `total` is in the units of [`advance`](Self::advance), where known.
    fn begin(&self, what: &str, total: Option<u64>);
    /// `by` more units are done.
    fn advance(&self, by: u64);
    /// `by` units need not be done, because an earlier attempt did them: they say nothing about speed.
    fn found(&self, by: u64) {
        self.advance(by);
    }
    /// The stage is over.
    fn finish(&self);
    /// Whether somebody wants the work to end before it is done.
    fn stopped(&self) -> bool {
        false
    }
    /// Asked by the work between its steps.
    ///
    /// # Errors
    /// [`Error::Interrupted`] if it is [`stopped`](Self::stopped).
    fn check(&self) -> Result<()> {
        match self.stopped() {
            true => Err(Error::Interrupted),
            false => Ok(()),
        }
    }
}

/// Reports to nobody.
impl Progress for () {
    fn begin(&self, _what: &str, _total: Option<u64>) {}
    fn advance(&self, _by: u64) {}
    fn finish(&self) {}
}
