//! Child processes: another instance of this program, or of another build of it, which this process
//! feeds, watches and stops.

use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::error::{Class, Classify, Result};
use crate::signals::Stop;

/// Time between two polls of a child that is waited for.
const POLL_PERIOD: Duration = Duration::from_millis(10);

/// The program that a process runs, even where its file was replaced since, on Linux.
const RUNNING: &str = "/proc/self/exe";

/// Returns the path by which to start this program again. On Linux it is that of the running
/// program itself: at its own path may be another build by now.
pub fn this_program() -> Result<PathBuf> {
    let running = Path::new(RUNNING);
    match running.exists() {
        true => Ok(running.to_owned()),
        false => std::env::current_exe().during(Class::Run, "finding this program"),
    }
}

/// Returns the name of this program's file without its ending.
pub fn name_of_this_program() -> Result<String> {
    let path = std::env::current_exe().during(Class::Run, "finding this program")?;
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    // So Linux marks a file that was removed or replaced.
    let name = name.strip_suffix(" (deleted)").unwrap_or(&name);
    Ok(name.to_owned())
}

/// Returns a command that starts this program again, by the name by which this one was called:
/// records contain that name, not a path on this machine.
pub fn command_of_this_program() -> Result<Command> {
    Ok(named(Command::new(this_program()?)))
}

/// Returns a command that passes on the name by which this program was called.
fn named(mut command: Command) -> Command {
    #[cfg(unix)]
    if let Some(name) = std::env::args_os().next() {
        std::os::unix::process::CommandExt::arg0(&mut command, name);
    }
    command
}

/// Gives this process the name of its program where it was started as [`RUNNING`], so that lists of
/// processes do not call it `exe`.
pub fn take_name() {
    let file = Path::new("/proc/self/comm");
    if std::fs::read_to_string(file).is_ok_and(|name| name.trim_end() == "exe")
        && let Ok(name) = name_of_this_program()
    {
        // The name is for people: if it cannot be set, nothing depends on it.
        let _ = std::fs::write(file, name);
    }
}

/// A running child process.
pub struct Child {
    process: std::process::Child,
    stdin: Option<ChildStdin>,
    began: Instant,
}

/// Outcome of waiting for a child.
pub enum Waited {
    /// The child exited.
    Exited(ExitStatus),
    /// The child took longer than allowed and was killed.
    TimedOut,
    /// A stop was requested, and this process killed the child.
    Stopped,
}

impl Child {
    /// Starts a program with a pipe as its standard input, and with variables in its environment.
    pub fn start(
        program: &Path,
        arguments: &[impl AsRef<OsStr>],
        environment: &[(&str, String)],
        stdout: impl Into<Stdio>,
        stderr: impl Into<Stdio>,
    ) -> io::Result<Child> {
        let mut process = named(Command::new(program))
            .args(arguments)
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(stdout)
            .stderr(stderr)
            .spawn()?;
        Ok(Child {
            stdin: process.stdin.take(),
            process,
            began: Instant::now(),
        })
    }

    /// Returns the process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Returns the time since the child was started.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Writes all of the child's standard input and closes it. A child that ends without reading it
    /// shows this in its exit status.
    pub fn feed(&mut self, input: &[u8]) {
        if let Some(mut stdin) = self.stdin.take() {
            let _ = stdin.write_all(input);
        }
    }

    /// Closes the child's standard input: a child that was started with `--stop-on-eof` saves its
    /// state and exits. The death of this process has the same effect.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Reads the child's standard output and standard error to their ends, if they are pipes, on
    /// separate threads.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn read(&mut self) -> io::Result<[JoinHandle<String>; 2]> {
        Ok([
            drain(self.process.stdout.take())?,
            drain(self.process.stderr.take())?,
        ])
    }

    /// Returns the exit status once the child has exited.
    pub fn poll(&mut self) -> io::Result<Option<ExitStatus>> {
        self.process.try_wait()
    }

    /// Waits for the child to exit. Kills it after `limit`, or when a stop is requested.
    pub fn wait(&mut self, limit: Duration, stop: &Stop) -> io::Result<Waited> {
        loop {
            if let Some(status) = self.poll()? {
                return Ok(Waited::Exited(status));
            }
            let waited = match (stop.requested(), self.elapsed() > limit) {
                (true, _) => Waited::Stopped,
                (false, true) => Waited::TimedOut,
                (false, false) => {
                    thread::sleep(POLL_PERIOD);
                    continue;
                }
            };
            self.process.kill()?;
            self.process.wait()?;
            return Ok(waited);
        }
    }
}

fn drain(stream: Option<impl Read + Send + 'static>) -> io::Result<JoinHandle<String>> {
    thread::Builder::new().spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stream) = stream {
            // After an error, the bytes read so far are all there are.
            let _ = stream.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// Returns whether a child was ended by a signal that asks it to stop, before it could listen.
#[cfg(unix)]
pub fn was_stopped(status: ExitStatus) -> bool {
    use std::os::unix::process::ExitStatusExt;
    let signal = status.signal();
    [libc::SIGINT, libc::SIGTERM]
        .iter()
        .any(|stop| signal == Some(*stop))
}

/// Returns false: this system has no such signals.
#[cfg(not(unix))]
pub fn was_stopped(_status: ExitStatus) -> bool {
    false
}

/// Returns the last line of a text that is not blank: in a child's log, its progress or the reason
/// why it ended.
pub fn last_line(text: &str) -> Option<&str> {
    let last = text.lines().rev().find(|line| !line.trim().is_empty());
    last.map(str::trim)
}
