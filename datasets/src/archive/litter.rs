//! Names of files that operating systems and editors leave in folders and archives: they are not
//! data.

/// Reserved names of files and folders, regardless of their content, in lower case.
const NAMES: [&str; 9] = [
    "__macosx",
    "thumbs.db",
    "ehthumbs.db",
    "desktop.ini",
    "icon\r",
    "$recycle.bin",
    "system volume information",
    "@eadir",
    "lost+found",
];

/// Returns whether a relative name, or a folder in it, is such a name or a hidden one (`.DS_Store`,
/// `._0_9.txt`).
pub(crate) fn is_litter(name: &str) -> bool {
    litter_in(name).is_some()
}

/// Returns the beginning of a relative name up to the first part that is such a name, with the
/// slash behind it: `a/.cache/` of `a/.cache/b.txt`.
pub(super) fn litter_in(name: &str) -> Option<&str> {
    let mut end = 0;
    for part in name.split_inclusive('/') {
        end += part.len();
        let part = part.trim_end_matches('/');
        if part.starts_with('.') || NAMES.contains(&part.to_ascii_lowercase().as_str()) {
            return Some(&name[..end]);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_systems_write() {
        for name in [
            ".DS_Store",
            "aclImdb/train/pos/._0_9.txt",
            "__MACOSX/aclImdb/train/pos/._0_9.txt",
            "__MACOSX/0_9.txt",
            "a/Thumbs.db",
            "a/desktop.ini",
            "a/Desktop.ini",
            ".cache/train.parquet",
            "$RECYCLE.BIN/basic_train.tsv",
        ] {
            assert!(is_litter(name), "{name}");
        }
        for name in ["train/pos/0_9.txt", "thumbs.db.txt", "a.b/c", "MACOSX/a"] {
            assert!(!is_litter(name), "{name}");
        }
        assert_eq!(litter_in("a/.cache/b/.c"), Some("a/.cache/"));
        assert_eq!(litter_in("a/.DS_Store"), Some("a/.DS_Store"));
    }
}
