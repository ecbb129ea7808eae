//! Folders, searched from top to bottom.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Member, Offer, Seen, Visit, is_litter};
use crate::Progress;
use crate::error::{Error, Result, io};
use crate::files;

/// Maximum depth of the search below the given folder; the published archive nests seven folders.
pub(crate) const DEEPEST: usize = 12;

/// Maximum number of files and folders visited; a whole unpacked release has 2.4 million.
pub(crate) const MOST_ENTRIES: usize = 5_000_000;

/// Something below a folder, by its relative name with forward slashes.
pub(crate) enum Found<'a> {
    /// A file.
    File(&'a str),
    /// A link to what is not there, or may not be seen.
    BrokenLink(&'a str),
    /// A file or folder that is passed over by its name. That of a folder ends in a slash.
    PassedOver(&'a str),
}

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
    found_below(folder, &mut |found| match found {
        Found::File(name) | Found::BrokenLink(name) => keep(name),
        Found::PassedOver(_) => false,
    })
}

/// Returns the files and broken links below a folder that `keep` accepts, in the order of paths.
/// `keep` also sees each file and folder that is passed over.
///
/// # Errors
/// Errors of [`files_below`].
pub(crate) fn found_below(
    folder: &Path,
    keep: &mut dyn FnMut(Found<'_>) -> bool,
) -> Result<Vec<PathBuf>> {
    let wrong = |problem: String| Error::File {
        file: folder.to_owned(),
        problem: format!("{problem}: name the folder that has the published files"),
    };
    let mut kept = Vec::new();
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
            let inner = item.path();
            let kind = item.file_type().map_err(io("read", &inner))?;
            if is_litter(&name) {
                let slash = if kind.is_dir() { "/" } else { "" };
                keep(Found::PassedOver(&format!("{prefix}{name}{slash}")));
                continue;
            }
            let (is_folder, is_broken) = match kind.is_symlink() {
                // A dangling link, or one to a path without permission, is refused when it is
                // opened.
                true => match fs::metadata(&inner) {
                    Ok(found) => (found.is_dir(), false),
                    Err(_) => (false, true),
                },
                false => (kind.is_dir(), false),
            };
            let name = format!("{prefix}{name}");
            match is_folder {
                true if kind.is_symlink() && leads_up(&path, &inner) => {}
                true if depth == DEEPEST => {
                    return Err(wrong(format!("folders nested more than {DEEPEST} deep")));
                }
                true => open.push((inner, name + "/", depth + 1)),
                false if is_broken && keep(Found::BrokenLink(&name)) => kept.push(inner),
                false if !is_broken && keep(Found::File(&name)) => kept.push(inner),
                false => {}
            }
        }
    }
    kept.sort();
    Ok(kept)
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
    wanted: &Offer<'_>,
    visit: &mut Visit<'_>,
) -> Result<()> {
    let files = found_below(folder, &mut |found| match found {
        Found::File(name) | Found::PassedOver(name) => wanted(&Seen::file(name)),
        Found::BrokenLink(name) => wanted(&Seen::link(name)),
    })?;
    for path in files {
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
