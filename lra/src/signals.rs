//! Requests to stop, by signals or by the end of standard input, as a flag that long work polls.

use std::io::{self, ErrorKind, Read};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts;
use signal_hook::low_level;

use crate::error::Class;

/// The flag of the handlers of this process, once they are installed.
static INSTALLED: OnceLock<Stop> = OnceLock::new();

/// Flag that is set when a stop of this process is requested.
#[derive(Clone)]
pub struct Stop(Arc<Flag>);

struct Flag {
    requested: Arc<AtomicBool>,
    since: Instant,
    /// Milliseconds after `since` at which the first signal came, or [`NEVER`].
    first: AtomicU64,
}

const NEVER: u64 = u64::MAX;

/// Time within which signals count as one request. A batch system or a terminal that stops a whole
/// job signals every process of it, and some of these pass the signal on.
const ONE_REQUEST: Duration = Duration::from_secs(2);

/// Signals that request a stop: an interrupt from the keyboard, a batch system's or a shell's
/// request, and, on Unix, a batch system's warning before its time limit.
#[cfg(unix)]
const REQUESTS: [i32; 3] = [consts::SIGINT, consts::SIGTERM, consts::SIGUSR1];
#[cfg(not(unix))]
const REQUESTS: [i32; 2] = [consts::SIGINT, consts::SIGTERM];

impl Stop {
    /// Returns a flag that nothing sets.
    #[cfg(test)]
    pub fn never() -> Self {
        Stop(Arc::new(Flag {
            requested: Arc::default(),
            since: Instant::now(),
            first: AtomicU64::new(NEVER),
        }))
    }

    /// Installs the handlers: the first signal sets the flag, and one that comes after
    /// [`ONE_REQUEST`] ends the process at once. On Unix a closing terminal is a request too,
    /// unless this process ignores it, as under `nohup`, and so is the soft limit on processor
    /// time.
    pub fn on_signals() -> io::Result<Self> {
        let stop = Stop(Arc::new(Flag {
            requested: Arc::new(AtomicBool::new(false)),
            since: Instant::now(),
            first: AtomicU64::new(NEVER),
        }));
        for signal in REQUESTS {
            stop.register(signal)?;
        }
        #[cfg(unix)]
        if !ignored(consts::SIGHUP) {
            stop.register(consts::SIGHUP)?;
        }
        // The system repeats this one each second of processor time until the hard limit, so that
        // a second one is no other request.
        #[cfg(unix)]
        signal_hook::flag::register(consts::SIGXCPU, Arc::clone(&stop.0.requested))?;
        // A process installs them once.
        let _ = INSTALLED.set(stop.clone());
        Ok(stop)
    }

    /// Also treats the end of standard input as a request. A parent that holds the other end of the
    /// pipe closes it to stop this process, and its death closes it too, on any system.
    pub fn on_end_of_input(&self) -> io::Result<()> {
        let (stop, mut input) = (self.clone(), io::stdin());
        let wait = move || {
            let mut bytes = [0; 64];
            loop {
                match input.read(&mut bytes) {
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Ok(count) if count > 0 => {}
                    _ => return stop.0.requested.store(true, SeqCst),
                }
            }
        };
        thread::Builder::new()
            .name("input".to_owned())
            .spawn(wait)?;
        Ok(())
    }

    /// Returns whether a stop has been requested.
    pub fn requested(&self) -> bool {
        self.0.requested.load(SeqCst)
    }

    fn register(&self, signal: i32) -> io::Result<()> {
        let flag = Arc::clone(&self.0);
        // SAFETY: the handler reads a clock, changes atomics or exits the process. All of this is
        // allowed at any point of the program, and nothing in it allocates, locks or panics.
        unsafe { low_level::register(signal, move || flag.signalled()) }?;
        Ok(())
    }
}

impl Flag {
    fn signalled(&self) {
        let now = self.since.elapsed().as_millis() as u64;
        match self.first.compare_exchange(NEVER, now, SeqCst, SeqCst) {
            Err(first) if is_repeated(first, now) => {
                low_level::exit(i32::from(Class::Interrupted.code()))
            }
            _ => self.requested.store(true, SeqCst),
        }
    }
}

/// Progress that is not shown, of work that ends when a stop of this process is requested. Without
/// handlers, a signal ends the process itself.
pub struct Unshown;

impl datasets::Progress for Unshown {
    fn begin(&self, _what: &str, _total: Option<u64>) {}
    fn advance(&self, _by: u64) {}
    fn finish(&self) {}

    fn stopped(&self) -> bool {
        INSTALLED.get().is_some_and(Stop::requested)
    }
}

/// Returns whether a signal at `now` is another request than the one at `first`, both in
/// milliseconds.
fn is_repeated(first: u64, now: u64) -> bool {
    now.saturating_sub(first) > ONE_REQUEST.as_millis() as u64
}

/// Makes writing beyond the limit on the size of files (`ulimit -f`) an error of that write, as on
/// a full disk. By default the signal about it ends the process.
pub fn survive_file_limit() {
    // SAFETY: ignoring a signal installs no handler; nothing else in this program handles this one.
    #[cfg(unix)]
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

/// Turns a bus error into an error message and an exit code. It comes when a mapped file is read
/// beyond its end: another program has cut a file of data short.
pub fn explain_bus_errors() -> io::Result<()> {
    #[cfg(unix)]
    {
        const MESSAGE: &[u8] =
            b"error: a file of data was cut short while it was read, by another \
            program or a failing disk; `lra data verify` tells which one\n";
        // SAFETY: the handler writes constant bytes and exits the process, both of which are
        // allowed at any point of the program.
        unsafe {
            low_level::register(consts::SIGBUS, || {
                libc::write(libc::STDERR_FILENO, MESSAGE.as_ptr().cast(), MESSAGE.len());
                low_level::exit(i32::from(Class::Data.code()));
            })
        }?;
    }
    Ok(())
}

#[cfg(unix)]
fn ignored(signal: i32) -> bool {
    // SAFETY: without a new action `sigaction` only fills in the old one, for which all zeros are a
    // valid value.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_that_follow_at_once_are_one_request() {
        for (first, now, another) in [(0, 0, false), (70, 2_070, false), (70, 2_071, true)] {
            assert_eq!(is_repeated(first, now), another, "{first} and {now}");
        }
        // Threads may see slightly different times.
        assert!(!is_repeated(71, 70));
    }
}
