//! Measurements in a fresh process: starts `lra measure`, sends it a [`Request`] and returns its
//! [`Reply`] or the way in which it ended.

use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use crate::bench::worker::{Reply, Request};
use crate::child::{self, Child, Waited};
use crate::error::{Class, Classify, Error, Result};
use crate::signals::Stop;

/// The hidden command that answers requests.
const COMMAND: &str = "measure";

/// Outcome of a request.
pub enum Answer {
    /// The process replied.
    Reply(Reply),
    /// The process took longer than allowed and was killed.
    TimedOut,
    /// A stop was requested, and this process killed the other one.
    Stopped,
    /// The process ended without a reply.
    Crashed(String),
}

/// Starts this program again to answer `request` within `limit`.
pub fn request(request: &Request, limit: Duration, stop: &Stop) -> Result<Answer> {
    request_from(&child::this_program()?, request, limit, stop)
}

/// Starts a build of this program to answer `request` within `limit`.
pub fn request_from(
    program: &Path,
    request: &Request,
    limit: Duration,
    stop: &Stop,
) -> Result<Answer> {
    let text = serde_json::to_string(request).class(Class::Run)?;
    let child = Child::start(
        program,
        &[COMMAND.to_owned()],
        &[],
        Stdio::piped(),
        Stdio::piped(),
    );
    let mut child = child.during(
        Class::Run,
        format_args!("starting {} to measure in", program.display()),
    )?;
    child.feed(text.as_bytes());
    let streams = child
        .read()
        .during(Class::Run, "starting a thread that reads")?;
    let waited = child.wait(limit, stop);
    let waited = waited.during(Class::Run, "waiting for a measurement")?;
    let [output, errors] = streams.map(|stream| stream.join().unwrap_or_default());
    Ok(match waited {
        Waited::TimedOut => Answer::TimedOut,
        Waited::Stopped => Answer::Stopped,
        Waited::Exited(status) => match serde_json::from_str(&output) {
            Ok(reply) => Answer::Reply(reply),
            Err(_) => return crash(status, &errors),
        },
    })
}

/// Text that the standard library prints when an allocation fails and it aborts.
const NO_MEMORY: &str = "memory allocation of";

/// Returns the answer for a process that ended without a reply.
///
/// # Errors
/// It refused to begin, for instance because of a limit on addresses.
fn crash(status: ExitStatus, errors: &str) -> Result<Answer> {
    let last = child::last_line(errors);
    if status.code() == Some(i32::from(Class::Usage.code())) {
        let said = last.unwrap_or("the measuring process refused to begin");
        return Err(Error::usage(said.trim_start_matches("error: ")));
    }
    let last = last.map_or(String::new(), |line| format!(": {line}"));
    if errors.contains(NO_MEMORY) {
        let reason = format!("the system gave no more memory{last}");
        return Ok(Answer::Reply(Reply::OutOfMemory { reason }));
    }
    Ok(Answer::Crashed(format!(
        "the measuring process ended with {status}{last}"
    )))
}
