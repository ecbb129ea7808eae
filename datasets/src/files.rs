//! Writing and naming files.

use std::fs;
use std::io;
use std::path::Path;

/// Writes a file as a whole: other processes see the old content or the new one, never a part. The bytes go to a file
/// beside it, which is then renamed; it is not synced, so a power failure may lose them.
///
/// # Errors
/// The file beside it cannot be written or renamed; the one at `path` is unchanged then.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let beside = path.with_file_name(format!(".{name}.{}", std::process::id()));
    fs::write(&beside, bytes)?;
    fs::rename(&beside, path)
}

/// The path of a file in `folder`, relative to it and with forward slashes; all of it where it lies elsewhere.
pub(crate) fn relative_name(folder: &Path, path: &Path) -> String {
    let below = path.strip_prefix(folder).unwrap_or(path);
    let names: Vec<_> = below.iter().map(|name| name.to_string_lossy()).collect();
    names.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replacing_leaves_nothing_beside_and_no_damage_behind() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("checked.json");
        for text in ["one", "two"] {
            replace(&path, text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
        assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);
        assert!(replace(&root.path().join("missing/file"), b"").is_err());
    }
}
