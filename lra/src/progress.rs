//! Progress on standard error: bars on a terminal, occasional lines elsewhere.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

use crate::error::as_message;
use crate::signals::Stop;
use crate::stderr;
use crate::timing::human_duration;

/// Shows the progress of long work.
pub struct Reporter {
    bar: Mutex<ProgressBar>,
    /// Steps of the bar that were done before it started.
    found: Arc<AtomicU64>,
    interactive: bool,
    quiet: bool,
    spoke: Mutex<Instant>,
    /// Notes that are printed once.
    noted: Mutex<BTreeSet<String>>,
    stop: Option<Stop>,
    /// Lines that were said, quiet or not.
    #[cfg(test)]
    said: Mutex<Vec<String>>,
}

/// Columns of a terminal from which on a bar is long.
const WIDE: usize = 110;

/// Least time between two lines of progress without a terminal.
const SILENCE: Duration = Duration::from_secs(15);

impl Reporter {
    /// Returns a reporter for standard error; `quiet` drops everything but errors and notes.
    pub fn new(quiet: bool) -> Self {
        Reporter {
            bar: Mutex::new(ProgressBar::hidden()),
            found: Arc::default(),
            interactive: stderr::is_interactive() && !quiet,
            quiet,
            spoke: Mutex::new(Instant::now()),
            noted: Mutex::default(),
            stop: None,
            #[cfg(test)]
            said: Mutex::default(),
        }
    }

    /// Returns the lines that were said, quiet or not.
    #[cfg(test)]
    pub fn said(&self) -> Vec<String> {
        self.said.lock().unwrap().clone()
    }

    /// Returns this reporter for work that ends on request, which it learns from
    /// [`datasets::Progress::stopped`].
    pub fn with_stop(self, stop: &Stop) -> Self {
        Reporter {
            stop: Some(stop.clone()),
            ..self
        }
    }

    /// Prints a line that stays.
    pub fn say(&self, line: &str) {
        #[cfg(test)]
        self.said.lock().unwrap().push(line.to_owned());
        if self.quiet {
            return;
        }
        self.bar().suspend(|| stderr::prose(line));
    }

    /// Prints a line about the meaning of a figure, also in quiet mode.
    pub fn note(&self, line: &str) {
        self.bar().suspend(|| stderr::line(line));
    }

    /// Prints a note that may be about several runs, unless it was printed before.
    pub fn note_once(&self, line: &str) {
        let mut noted = self
            .noted
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if noted.insert(line.to_owned()) {
            self.note(line);
        }
    }

    /// Prints a warning, unless quiet.
    pub fn warn(&self, message: &str) {
        if !self.quiet {
            self.alert(message);
        }
    }

    /// Prints a warning, quiet or not.
    pub fn alert(&self, message: &str) {
        self.bar().suspend(|| stderr::warning(message));
    }

    /// Prints an error, quiet or not.
    pub fn error(&self, line: &str) {
        self.bar().suspend(|| stderr::error(as_message(line)));
    }

    /// Starts a bar of `total` steps at `done`; `what` is shown in front of it.
    pub fn start(&self, what: &str, done: u64, total: Option<u64>) {
        let bar = match (self.interactive, total) {
            (false, total) => ProgressBar::with_draw_target(total, ProgressDrawTarget::hidden()),
            (true, Some(total)) => {
                let found = self.found.clone();
                let tell = move |state: &ProgressState, out: &mut dyn std::fmt::Write| {
                    let done = (found.load(Relaxed), state.pos());
                    // If this fails, nothing is drawn, and there is no remedy.
                    let _ = out.write_str(&left(state.elapsed(), done, state.len()));
                };
                let columns = if results::width() < WIDE { 8 } else { 24 };
                let style = style(&format!(
                    "{{prefix}} {{bar:{columns}}} {{pos}}/{{len}} {{left}} {{wide_msg}}"
                ));
                ProgressBar::new(total).with_style(style.with_key("left", tell))
            }
            (true, None) => {
                ProgressBar::new_spinner().with_style(style("{prefix} {spinner} {pos} {wide_msg}"))
            }
        };
        bar.set_prefix(what.to_owned());
        bar.set_position(done);
        self.found.store(done, Relaxed);
        if self.interactive {
            bar.enable_steady_tick(Duration::from_millis(250));
        }
        *self.bar() = bar;
    }

    /// Moves the bar to `done` and shows `message` after it.
    pub fn at(&self, done: u64, message: &str) {
        let bar = self.bar();
        bar.set_position(done);
        bar.set_message(message.to_owned());
        drop(bar);
        self.speak_if_silent();
    }

    /// Removes the bar.
    pub fn stop(&self) {
        self.bar().finish_and_clear();
    }

    fn bar(&self) -> std::sync::MutexGuard<'_, ProgressBar> {
        self.bar
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Prints the progress every now and then if no bar is drawn.
    fn speak_if_silent(&self) {
        if self.interactive || self.quiet {
            return;
        }
        let mut spoke = self
            .spoke
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if spoke.elapsed() < SILENCE {
            return;
        }
        *spoke = Instant::now();
        let bar = self.bar();
        let of = bar
            .length()
            .map_or(String::new(), |total| format!("/{total}"));
        let done = (self.found.load(Relaxed), bar.position());
        let left = left(bar.elapsed(), done, bar.length());
        let words = [
            bar.prefix(),
            format!("{}{of}", bar.position()),
            bar.message(),
            left,
        ];
        drop(bar);
        let words: Vec<_> = words.into_iter().filter(|word| !word.is_empty()).collect();
        self.say(&words.join(" "));
    }
}

/// Returns the remaining time at the mean speed since the bar was started, for a bar that was at
/// `found` then and is at `at` now. The mean over the whole time includes evaluations and pauses in
/// proportion, unlike a moving window.
fn left(elapsed: Duration, (found, at): (u64, u64), total: Option<u64>) -> String {
    match total {
        Some(total) if at > found && at < total => {
            let share = (total - at) as f64 / (at - found) as f64;
            format!("({} left)", human_duration(elapsed.mul_f64(share)))
        }
        _ => String::new(),
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("━╸ ")
}

impl datasets::Progress for Reporter {
    fn begin(&self, what: &str, total: Option<u64>) {
        self.start(what, 0, total);
    }

    fn advance(&self, by: u64) {
        self.bar().inc(by);
        self.speak_if_silent();
    }

    fn found(&self, by: u64) {
        self.found.fetch_add(by, Relaxed);
        self.bar().inc(by);
    }

    fn finish(&self) {
        self.stop();
    }

    fn stopped(&self) -> bool {
        self.stop.as_ref().is_some_and(Stop::requested)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_there_already_is_no_speed() {
        let minute = Duration::from_secs(60);
        assert_eq!(left(minute, (0, 10), Some(40)), "(3 min 00 s left)");
        assert_eq!(left(minute, (30, 35), Some(40)), "(1 min 00 s left)");
        for (done, total) in [((5, 5), Some(9)), ((0, 9), Some(9)), ((0, 3), None)] {
            assert_eq!(left(minute, done, total), "");
        }
    }
}
