//! What a person sees while a run is at work: bars on a terminal, a line now and then elsewhere. All of it goes to
//! standard error.

use std::io::{IsTerminal, stderr};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::timing::for_people;

/// Shows the course of long work.
pub struct Reporter {
    bar: Mutex<ProgressBar>,
    interactive: bool,
    quiet: bool,
    spoke: Mutex<Instant>,
}

/// Without a terminal, at most one line of progress in this time.
const SILENCE: Duration = Duration::from_secs(15);

impl Reporter {
    /// A reporter for standard error; `quiet` drops everything but errors.
    pub fn new(quiet: bool) -> Self {
        Reporter {
            bar: Mutex::new(ProgressBar::hidden()),
            interactive: stderr().is_terminal() && !quiet,
            quiet,
            spoke: Mutex::new(Instant::now()),
        }
    }

    /// Prints a line that stays.
    #[expect(clippy::print_stderr, reason = "this is where progress is printed")]
    pub fn say(&self, line: &str) {
        if self.quiet {
            return;
        }
        self.bar().suspend(|| eprintln!("{line}"));
    }

    /// Prints what went wrong, quiet or not.
    #[expect(clippy::print_stderr, reason = "this is where progress is printed")]
    pub fn error(&self, line: &str) {
        self.bar().suspend(|| eprintln!("error: {line}"));
    }

    /// Starts a bar of `total` steps at `done`; `what` stands before it.
    pub fn start(&self, what: &str, done: u64, total: Option<u64>) {
        let bar = match (self.interactive, total) {
            (false, total) => ProgressBar::with_draw_target(total, ProgressDrawTarget::hidden()),
            (true, Some(total)) => ProgressBar::new(total)
                .with_style(style("{prefix} {bar:24} {pos}/{len} {msg} ({eta} left)")),
            (true, None) => {
                ProgressBar::new_spinner().with_style(style("{prefix} {spinner} {pos} {msg}"))
            }
        };
        bar.set_prefix(what.to_owned());
        bar.set_position(done);
        bar.reset_eta();
        if self.interactive {
            bar.enable_steady_tick(Duration::from_millis(250));
        }
        *self.bar() = bar;
    }

    /// Moves the bar to `done` and shows `message` behind it.
    pub fn at(&self, done: u64, message: &str) {
        let bar = self.bar();
        bar.set_position(done);
        bar.set_message(message.to_owned());
        drop(bar);
        self.speak_if_silent();
    }

    /// Takes the bar away.
    pub fn stop(&self) {
        self.bar().finish_and_clear();
    }

    fn bar(&self) -> std::sync::MutexGuard<'_, ProgressBar> {
        self.bar
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Where no bar is drawn, says where the work stands every now and then.
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
        let left = match (bar.length(), bar.eta()) {
            (Some(_), left) if !left.is_zero() => format!("({} left)", for_people(left)),
            _ => String::new(),
        };
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
        let bar = self.bar();
        bar.inc(by);
        bar.reset_eta();
    }

    fn finish(&self) {
        self.stop();
    }
}
