//! Errors by class; the class is the exit code. Libraries return errors, and this program prints
//! them here.

use std::process::ExitCode;
use std::{fmt, io};

/// The class of a failure, which determines the exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A check failed: exit code 1.
    Check,
    /// The command line or a setting is wrong: exit code 2.
    Usage,
    /// Data is missing, damaged or unsuitable: exit code 3.
    Data,
    /// The run failed: exit code 4.
    Run,
    /// SIGINT or SIGTERM: exit code 130.
    Interrupted,
}

impl Class {
    /// Returns the process exit code of this class.
    pub fn code(self) -> u8 {
        match self {
            Class::Check => 1,
            Class::Usage => 2,
            Class::Data => 3,
            Class::Run => 4,
            Class::Interrupted => 130,
        }
    }

    /// Returns the class of a file that cannot be written: the files are at fault, or a full disk,
    /// which fails a command as it fails a run.
    pub fn of_writing(error: &io::Error) -> Class {
        match error.kind() {
            io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::FileTooLarge => Class::Run,
            _ => Class::Data,
        }
    }
}

impl From<Class> for ExitCode {
    fn from(class: Class) -> Self {
        ExitCode::from(class.code())
    }
}

/// An error with its class.
#[derive(Debug)]
pub struct Error {
    /// Class, which determines the exit code.
    pub class: Class,
    /// Chain of causes, outermost context first.
    pub cause: anyhow::Error,
}

/// Result of every command.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Returns an error of `class` from a message.
    pub fn new(class: Class, message: impl fmt::Display) -> Self {
        Error {
            class,
            cause: anyhow::anyhow!("{message}"),
        }
    }

    /// Returns an error about a mistake on the command line or in a setting.
    pub fn usage(message: impl fmt::Display) -> Self {
        Error::new(Class::Usage, message)
    }

    /// Returns an error with the class and the message of this one.
    pub fn again(&self) -> Self {
        Error::new(self.class, self)
    }

    /// Returns this error with a description of the operation that failed in front.
    pub fn during(self, doing: impl fmt::Display) -> Self {
        Error {
            cause: self.cause.context(doing.to_string()),
            ..self
        }
    }
}

impl fmt::Display for Error {
    /// Writes the chain of contexts joined with colons: one line for the user if every message is
    /// one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let causes: Vec<String> = self.cause.chain().map(message).collect();
        let text = causes.join(": ");
        let hint = match text.contains("ulimit") {
            true => "",
            false => hint(&self.cause),
        };
        f.write_str(&as_message(&(text + hint)))
    }
}

/// Returns the way out of a limit of the system that an error tells of.
fn hint(error: &anyhow::Error) -> &'static str {
    let mut causes = error.chain();
    let found = causes.find_map(|cause| cause.downcast_ref::<io::Error>());
    match found {
        Some(error) if error.kind() == io::ErrorKind::FileTooLarge => {
            "; no file may be as large here: raise the limit (`ulimit -f`)"
        }
        #[cfg(unix)]
        Some(error) if error.raw_os_error() == Some(libc::EMFILE) => {
            "; raise the limit on open files (`ulimit -n`)"
        }
        #[cfg(unix)]
        Some(error) if error.raw_os_error() == Some(libc::EAGAIN) => {
            "; the limit on processes may be too low (`ulimit -u`)"
        }
        _ => "",
    }
}

/// Returns the message of an error. Errors of candle append a backtrace, and put each context on
/// its own line.
fn message(cause: &(dyn std::error::Error + 'static)) -> String {
    let text = cause.to_string();
    let first_call = |line: &&str| line.trim_start().starts_with("0: ");
    let lines: Vec<&str> = text.lines().take_while(|line| !first_call(line)).collect();
    match cause.is::<candle_core::Error>() {
        true => lines.join(": "),
        false => lines.join("\n"),
    }
}

/// Returns a message that is safe for a terminal: of the control characters only tabs and the line
/// ends of this program stay, after which it indents by two blanks. So a name with a line feed
/// cannot look like another message.
pub fn as_message(text: &str) -> String {
    let (mut safe, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(place) = rest.find(['\n', '\t']) {
        let (before, from) = rest.split_at(place);
        safe += &disk::escape(before);
        rest = &from[1..];
        match from.starts_with('\t') || rest.starts_with("  ") {
            true => safe += &from[..1],
            false => safe += &disk::escape(&from[..1]),
        }
    }
    safe + &disk::escape(rest)
}

/// Gives a library's error its class, and optionally a context.
pub trait Classify<T> {
    /// Assigns the error to `class`.
    fn class(self, class: Class) -> Result<T>;
    /// Assigns the error to `class` and adds the operation that failed.
    fn during(self, class: Class, doing: impl fmt::Display) -> Result<T>;
}

impl<T, E: Into<anyhow::Error>> Classify<T> for std::result::Result<T, E> {
    fn class(self, class: Class) -> Result<T> {
        self.map_err(|error| Error {
            class,
            cause: error.into(),
        })
    }

    fn during(self, class: Class, doing: impl fmt::Display) -> Result<T> {
        self.map_err(|error| Error {
            class,
            cause: error.into().context(doing.to_string()),
        })
    }
}

/// Returns a function for `map_err` that adds what was written to the error.
pub fn in_writing(doing: String) -> impl FnOnce(io::Error) -> Error {
    move |error| Error {
        class: Class::of_writing(&error),
        cause: anyhow::Error::new(error).context(doing),
    }
}

// Errors of known origin carry their class, so that `?` is sufficient.
impl From<datasets::Error> for Error {
    fn from(error: datasets::Error) -> Self {
        let class = match error.class() {
            datasets::Class::Usage => Class::Usage,
            datasets::Class::Data => Class::Data,
            datasets::Class::System => match &error {
                datasets::Error::Io { cause, .. } => Class::of_writing(cause),
                _ => Class::Data,
            },
            datasets::Class::Memory => Class::Run,
            datasets::Class::Interrupted => Class::Interrupted,
        };
        Error {
            class,
            cause: error.into(),
        }
    }
}

impl From<candle_core::Error> for Error {
    fn from(error: candle_core::Error) -> Self {
        Error {
            class: Class::Run,
            cause: error.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_feed_of_a_name_begins_no_message() {
        let text = "cannot read a\nerror: b\u{1b}:\tno such file\n  to get it: lra data make toy\n";
        let safe =
            "cannot read a\\nerror: b\\u{1b}:\tno such file\n  to get it: lra data make toy\\n";
        assert_eq!(as_message(text), safe);
        assert_eq!(Error::usage(text.trim_end()).to_string() + "\\n", safe);
    }

    #[test]
    fn a_backtrace_is_no_part_of_the_message() {
        let inner = Box::new(candle_core::Error::Msg("no such index".to_owned()));
        let backtrace = Box::new(std::backtrace::Backtrace::force_capture());
        let error = candle_core::Error::WithBacktrace { inner, backtrace };
        let error = Error::from(error.context("step 7"));
        assert_eq!(error.to_string(), "step 7: no such index");
    }
}
