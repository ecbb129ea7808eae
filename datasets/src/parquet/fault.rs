//! Errors of reading a parquet file: those of its content, and those of the system.

use std::io;

use parquet::errors::ParquetError;

/// An error without its place in a file.
#[derive(Debug)]
pub(super) enum Fault {
    /// The content is wrong, with the reason.
    Content(String),
    /// The system refused to read.
    System(io::Error),
}

impl From<String> for Fault {
    fn from(problem: String) -> Fault {
        Fault::Content(problem)
    }
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Fault {
        match disk::is_of_content(&error) {
            true => Fault::Content(error.to_string()),
            false => Fault::System(error),
        }
    }
}

impl From<ParquetError> for Fault {
    fn from(error: ParquetError) -> Fault {
        let said = error.to_string();
        let cause = match error {
            ParquetError::External(cause) => cause.downcast::<io::Error>().ok(),
            _ => None,
        };
        match cause {
            Some(cause) if !disk::is_of_content(&cause) => Fault::System(*cause),
            _ => Fault::Content(said),
        }
    }
}
