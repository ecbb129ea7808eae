//! Measurements in a fresh process: starts `lra measure`, hands it a [`Request`], returns its [`Reply`] or how it ended.

use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::bench::worker::{Reply, Request};
use crate::error::{Class, Classify, Result};
use crate::signals::Stop;

/// The hidden command that answers.
pub const COMMAND: &str = "measure";

/// How a request ended.
pub enum Answer {
    /// The process answered.
    Reply(Reply),
    /// It took longer than allowed and was ended.
    TimedOut,
    /// Somebody asked this process to stop; the other one was ended.
    Stopped,
    /// It ended without an answer.
    Crashed(String),
}

/// How often a process at work is looked at.
const PERIOD: Duration = Duration::from_millis(10);

/// Starts this program again, to answer `request` within `limit`.
pub fn request(request: &Request, limit: Duration, stop: &Stop) -> Result<Answer> {
    let program = std::env::current_exe().during(Class::Run, STARTING)?;
    request_from(&program, request, limit, stop)
}

const STARTING: &str = "starting a process to measure in";

/// Starts a build of this program, to answer `request` within `limit`.
pub fn request_from(
    program: &Path,
    request: &Request,
    limit: Duration,
    stop: &Stop,
) -> Result<Answer> {
    let mut child = Command::new(program)
        .arg(COMMAND)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .during(Class::Run, STARTING)?;
    let text = serde_json::to_string(request).class(Class::Run)?;
    if let Some(mut input) = child.stdin.take() {
        // A process that died before reading is found out below.
        let _ = input.write_all(text.as_bytes());
    }
    let output = drain(child.stdout.take());
    let errors = drain(child.stderr.take());
    let ended = wait(&mut child, limit, stop).during(Class::Run, "waiting for a measurement")?;
    let collect = |reader: thread::JoinHandle<String>| reader.join().unwrap_or_default();
    let (output, errors) = (collect(output), collect(errors));
    Ok(match ended {
        Ended::TimedOut => Answer::TimedOut,
        Ended::Stopped => Answer::Stopped,
        Ended::Exited(status) => match serde_json::from_str(&output) {
            Ok(reply) => Answer::Reply(reply),
            Err(_) => crash(status, &errors),
        },
    })
}

enum Ended {
    Exited(ExitStatus),
    TimedOut,
    Stopped,
}

/// Reads a stream to its end on a thread of its own.
fn drain(stream: Option<impl Read + Send + 'static>) -> thread::JoinHandle<String> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut stream) = stream {
            // What was read before an error is all there is.
            let _ = stream.read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

fn wait(child: &mut Child, limit: Duration, stop: &Stop) -> io::Result<Ended> {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Ended::Exited(status));
        }
        let ended = match (stop.requested(), began.elapsed() > limit) {
            (true, _) => Ended::Stopped,
            (false, true) => Ended::TimedOut,
            (false, false) => {
                thread::sleep(PERIOD);
                continue;
            }
        };
        child.kill()?;
        child.wait()?;
        return Ok(ended);
    }
}

/// What the standard library prints when an allocation fails and it aborts.
const NO_MEMORY: &str = "memory allocation of";

fn crash(status: ExitStatus, errors: &str) -> Answer {
    let last = errors.lines().rev().find(|line| !line.trim().is_empty());
    let last = last.map_or(String::new(), |line| format!(": {}", line.trim()));
    if errors.contains(NO_MEMORY) {
        let reason = format!("the system gave no more memory{last}");
        return Answer::Reply(Reply::OutOfMemory { reason });
    }
    Answer::Crashed(format!("the measuring process ended with {status}{last}"))
}
