//! Cause of a failed operation: the content of the file, or the system.

use std::error::Error;
use std::io::{self, ErrorKind};

/// Returns whether an error tells of the content of a file, or of what lies in its place, such as
/// a folder. Every other error tells of the system, and says nothing about the file: too many open
/// files, no permission, a failing or full disk, no memory.
pub fn is_of_content(error: &io::Error) -> bool {
    match error.kind() {
        ErrorKind::InvalidData | ErrorKind::UnexpectedEof | ErrorKind::IsADirectory => true,
        // Of these kinds are errors that a reader words itself, and numbers of the system.
        ErrorKind::InvalidInput | ErrorKind::Other => !is_of_system(error),
        _ => false,
    }
}

/// Returns whether an error is one of the system, or was made from one.
fn is_of_system(error: &io::Error) -> bool {
    let mut next: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(cause) = next {
        let here = cause.downcast_ref::<io::Error>();
        if here.is_some_and(|error| error.raw_os_error().is_some()) {
            return true;
        }
        // The source of such an error is that of the one within.
        next = match here.and_then(io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => cause.source(),
        };
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_system_say_nothing_of_a_file() {
        // Input/output error, permission denied, invalid argument, too many open files, no space:
        // the same numbers on all Unix systems.
        for number in [5, 13, 22, 24, 28] {
            let error = || io::Error::from_raw_os_error(number);
            assert!(!is_of_content(&error()), "{}", error());
            let passed_on = io::Error::other(error());
            assert!(!is_of_content(&passed_on), "{passed_on}");
        }
        for kind in [
            ErrorKind::InvalidData,
            ErrorKind::InvalidInput,
            ErrorKind::Other,
        ] {
            assert!(is_of_content(&io::Error::new(kind, "not a gzip file")));
        }
        for kind in [ErrorKind::UnexpectedEof, ErrorKind::IsADirectory] {
            assert!(is_of_content(&kind.into()), "{kind}");
        }
        assert!(!is_of_content(&ErrorKind::NotFound.into()));
    }

    #[test]
    fn an_error_of_the_system_is_found_behind_those_of_readers() {
        #[derive(Debug)]
        struct Reader(io::Error);
        impl std::fmt::Display for Reader {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("cannot unpack")
            }
        }
        impl Error for Reader {
            fn source(&self) -> Option<&(dyn Error + 'static)> {
                Some(&self.0)
            }
        }
        let of = |cause: io::Error| io::Error::other(Reader(cause));
        assert!(!is_of_content(&of(io::Error::from_raw_os_error(28))));
        assert!(is_of_content(&of(ErrorKind::InvalidData.into())));
    }
}
