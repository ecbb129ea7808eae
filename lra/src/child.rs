//! Child processes: another start of this program, or of another build of it, which this one feeds, watches and stops.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::error::{Class, Classify, Result};
use crate::signals::Stop;

/// Time between two looks at a child that is waited for.
const POLL_PERIOD: Duration = Duration::from_millis(10);

/// This program, to be started again.
pub fn this_program() -> Result<PathBuf> {
    std::env::current_exe().during(Class::Run, "finding this program")
}

/// A child at work.
pub struct Child {
    process: std::process::Child,
    stdin: Option<ChildStdin>,
    began: Instant,
}

/// How waiting for a child ended.
pub enum Waited {
    /// It exited.
    Exited(ExitStatus),
    /// It took longer than allowed and was killed.
    TimedOut,
    /// This process was asked to stop, and killed it.
    Stopped,
}

impl Child {
    /// Starts a program with a pipe as its standard input, and with variables in its environment.
    pub fn start(
        program: &Path,
        arguments: &[String],
        environment: &[(&str, String)],
        stdout: impl Into<Stdio>,
        stderr: impl Into<Stdio>,
    ) -> io::Result<Child> {
        let mut process = Command::new(program);
        // Records have the name by which this program was called, not its place on this machine.
        #[cfg(unix)]
        if let Some(name) = std::env::args_os().next() {
            std::os::unix::process::CommandExt::arg0(&mut process, name);
        }
        let mut process = process
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

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// How long it has been at work.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Writes all of its standard input and closes it. That it ends without reading it shows in its exit status.
    pub fn feed(&mut self, input: &[u8]) {
        if let Some(mut stdin) = self.stdin.take() {
            let _ = stdin.write_all(input);
        }
    }

    /// Closes its standard input: a child that was started with `--stop-on-eof` saves its state and exits. The death of this
    /// process has the same effect.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Reads its standard output and standard error to their ends, where they are pipes, on threads of their own.
    pub fn read(&mut self) -> [JoinHandle<String>; 2] {
        [
            drain(self.process.stdout.take()),
            drain(self.process.stderr.take()),
        ]
    }

    /// Its exit status, once it has exited.
    pub fn poll(&mut self) -> io::Result<Option<ExitStatus>> {
        self.process.try_wait()
    }

    /// Waits for its exit, but kills it after `limit`, or when this process is asked to stop.
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

fn drain(stream: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stream) = stream {
            // What was read before an error is all there is.
            let _ = stream.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// The last line of a text that is not blank: of a child's log, how far it is or why it ended.
pub fn last_line(text: &str) -> Option<&str> {
    let last = text.lines().rev().find(|line| !line.trim().is_empty());
    last.map(str::trim)
}
