//! Files with further hard links, as in a snapshot of a folder (`cp -al`), whose other links keep
//! their content.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::Path;

use crate::open::{own, read};
use crate::write::write_unsynced;

/// Creates one of the program's own files, or empties it. A file that has further hard links is
/// replaced instead.
///
/// # Errors
/// Errors of [`own`].
pub fn create(path: &Path) -> io::Result<File> {
    if is_shared(path) {
        fs::remove_file(path)?;
    }
    let mut options = OpenOptions::new();
    own(path, options.create(true).truncate(true).write(true))
}

/// Opens one of the program's own files with `options`, to change its content. A file that has
/// further hard links is copied first.
///
/// # Errors
/// Errors of [`own`]; or the copy cannot be written.
pub fn own_alone(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    if is_shared(path) {
        write_unsynced(path, &read(path)?)?;
    }
    own(path, options)
}

/// Returns whether a regular file has further hard links.
#[cfg(unix)]
pub fn is_shared(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    fs::symlink_metadata(path).is_ok_and(|found| found.is_file() && found.nlink() > 1)
}

/// Returns false: the number of links is not known on this system.
#[cfg(not(unix))]
pub fn is_shared(_path: &Path) -> bool {
    false
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;

    #[test]
    fn further_hard_links_keep_their_content() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        let holds = |name: &str| fs::read_to_string(at(name)).unwrap();
        fs::write(at("log"), "text").unwrap();
        fs::hard_link(at("log"), at("snapshot")).unwrap();
        let file = own_alone(&at("log"), OpenOptions::new().append(true)).unwrap();
        file.set_len(2).unwrap();
        assert_eq!(
            (holds("log"), holds("snapshot")),
            ("te".into(), "text".into())
        );
        fs::hard_link(at("snapshot"), at("new")).unwrap();
        create(&at("new")).unwrap();
        assert_eq!(
            (holds("new"), holds("snapshot")),
            (String::new(), "text".into())
        );
        // Nothing is replaced where there is one link only.
        let held = own_alone(&at("log"), OpenOptions::new().append(true)).unwrap();
        create(&at("log")).unwrap();
        assert_eq!(held.metadata().unwrap().len(), 0);
    }
}
