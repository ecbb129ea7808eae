//! Damage to a file that a run left.

use std::path::{Path, PathBuf};
use std::{fmt, io};

/// Error about a file that a run cannot resume from.
#[derive(Debug)]
pub struct Damaged {
    /// The file.
    pub path: PathBuf,
    /// Description of the damage.
    pub problem: String,
}

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, problem) = (self.path.display(), &self.problem);
        write!(
            f,
            "{file} is damaged: {problem}; restore it, or start its run over with `lra run --force`"
        )
    }
}

impl std::error::Error for Damaged {}

impl Damaged {
    /// Returns the error for a file of a run that could not be read or opened: damage if that is
    /// due to what lies in its place, such as a folder or a pipe; else the system's error, with
    /// `doing` before the path.
    pub fn or_io(path: &Path, doing: &str, error: io::Error) -> anyhow::Error {
        match disk::is_of_content(&error) {
            true => Damaged {
                path: path.to_owned(),
                problem: error.to_string(),
            }
            .into(),
            false => anyhow::Error::new(error).context(format!("{doing} {}", path.display())),
        }
    }
}
