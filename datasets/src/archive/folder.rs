//! Folders, searched from top to bottom.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Member, Visit, is_litter};
use crate::Progress;
use crate::error::{Error, Result, io};
use crate::files;

/// Maximum depth of the search below the given folder; the published archive nests seven folders.
pub(crate) const DEEPEST: usize = 12;

/// Maximum number of files and folders visited; a whole unpacked release has 2.4 million.
pub(crate) const MOST_ENTRIES: usize = 5_000_000;

/// Returns the files below a folder whose names (relative, with forward slashes) `keep` accepts, in
/// the order of paths. Hidden files and files left by operating systems are skipped; links are
/// followed.
///
/// # Errors
/// A folder cannot be read, or the folders are too many or nested too deeply.
pub(crate) fn files_below(
    folder: &Path,
    keep: &mut dyn FnMut(&str) -> bool,
) -> Result<Vec<PathBuf>> {
    let wrong = |problem: String| Error::File {
        file: folder.to_owned(),
        problem: format!("{problem}: name the folder that has the published files"),
    };
    let mut found = Vec::new();
    let mut entries = 0;
    let mut open = vec![(folder.to_owned(), String::new(), 0)];
    while let Some((path, prefix, depth)) = open.pop() {
        for item in fs::read_dir(&path).map_err(io("read", &path))? {
            let item = item.map_err(io("read", &path))?;
            entries += 1;
            if entries > MOST_ENTRIES {
                return Err(wrong(format!("more than {MOST_ENTRIES} files")));
            }
            let name = item.file_name().to_string_lossy().into_owned();
            if is_litter(&name) {
                continue;
            }
            let inner = item.path();
            let kind = item.file_type().map_err(io("read", &inner))?;
            let is_folder = match kind.is_symlink() {
                // A dangling link, or one to a path without permission, is refused when it is
                // opened.
                true => fs::metadata(&inner).is_ok_and(|found| found.is_dir()),
                false => kind.is_dir(),
            };
            let name = format!("{prefix}{name}");
            match is_folder {
                true if kind.is_symlink() && leads_up(&path, &inner) => {}
                true if depth == DEEPEST => {
                    return Err(wrong(format!("folders nested more than {DEEPEST} deep")));
                }
                true => open.push((inner, name + "/", depth + 1)),
                false if keep(&name) => found.push(inner),
                false => {}
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Returns whether a link in a folder leads to that folder or to one around it.
fn leads_up(folder: &Path, link: &Path) -> bool {
    match (folder.canonicalize(), link.canonicalize()) {
        (Ok(folder), Ok(target)) => folder.starts_with(target),
        _ => false,
    }
}

/// Passes every wanted file to `visit`, in the order of names.
pub(super) fn each(
    folder: &Path,
    progress: &dyn Progress,
    wanted: &dyn Fn(&str) -> bool,
    visit: &mut Visit<'_>,
) -> Result<()> {
    for path in files_below(folder, &mut |name| wanted(name))? {
        let name = files::relative_name(folder, &path);
        let mut file = files::open(&path)?;
        let size = file.metadata().map_err(io("read", &path))?.len();
        let next = visit(Member {
            name: &name,
            size: Some(size),
            path,
            content: &mut file,
        })?;
        if next.is_break() {
            break;
        }
        progress.advance(size);
    }
    Ok(())
}
