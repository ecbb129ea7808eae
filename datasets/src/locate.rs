//! Finds a task's published files under the path that a person gave.

use std::path::{Path, PathBuf};

use crate::About;
use crate::archive::{Raw, files_below};
use crate::error::{Error, Result};
use crate::parquet::files_of;

/// The form that the files are in.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Files in a folder or an archive, read by [`Raw::members`].
    Members(Raw),
    /// Parquet files of train and test.
    Parquet {
        /// The files of train, by name.
        train: Vec<PathBuf>,
        /// The files of test, by name.
        test: Vec<PathBuf>,
    },
}

/// What a task is looking for.
pub(crate) struct Wanted<'a> {
    /// The task.
    pub(crate) about: &'static About,
    /// Its files in words.
    pub(crate) what: &'static str,
    /// The name of the published archive.
    pub(crate) archive: &'static str,
    /// Whether this file of a folder or archive is one of them.
    pub(crate) fits: &'a dyn Fn(&str) -> bool,
    /// Whether the task reads parquet files too.
    pub(crate) parquet: bool,
}

/// Finds it: `raw` is an archive, or a folder with the files themselves, else with parquet files, else with an archive.
///
/// # Errors
/// [`Error::Missing`], naming what was looked for and the command that gets it; [`Error::File`] for something else.
pub(crate) fn locate(raw: &Path, wanted: &Wanted<'_>) -> Result<Form> {
    let folder = match Raw::at(raw)? {
        None => return Err(missing(raw, wanted)),
        Some(archive @ Raw::Archive(_)) => return Ok(Form::Members(archive)),
        Some(Raw::Folder(folder)) => folder,
        Some(Raw::Parquet(file)) if wanted.parquet => {
            let problem = "one parquet file: name the folder that has those of train and of test";
            let problem = problem.to_owned();
            return Err(Error::File { file, problem });
        }
        Some(Raw::Parquet(file) | Raw::File(file)) => {
            let problem = format!(
                "neither a folder nor a tar archive (.tar, .tar.gz, .tar.zst) with {}",
                wanted.what
            );
            return Err(Error::File { file, problem });
        }
    };
    let files = files_below(&folder)?;
    let relative = |path: &PathBuf| {
        let below = path.strip_prefix(&folder).unwrap_or(path);
        let parts: Vec<_> = below.iter().map(|part| part.to_string_lossy()).collect();
        parts.join("/")
    };
    if files.iter().any(|path| (wanted.fits)(&relative(path))) {
        return Ok(Form::Members(Raw::Folder(folder)));
    }
    let train = files_of("train", &files);
    let test = files_of("test", &files);
    if wanted.parquet && !train.is_empty() && !test.is_empty() {
        return Ok(Form::Parquet { train, test });
    }
    archive_in(&folder, &files, wanted)
}

/// The archive in a folder: the one with the published name, else the only one.
fn archive_in(folder: &Path, files: &[PathBuf], wanted: &Wanted<'_>) -> Result<Form> {
    let mut archives = Vec::new();
    for path in files {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let ends = [".tar", ".gz", ".tgz", ".zst"];
        if !ends.iter().any(|end| name.ends_with(end)) {
            continue;
        }
        if let Some(archive @ Raw::Archive(_)) = Raw::at(path)? {
            if name == wanted.archive {
                return Ok(Form::Members(archive));
            }
            archives.push(archive);
        }
    }
    match archives.len() {
        0 => Err(missing(&folder.join(wanted.archive), wanted)),
        1 => Ok(Form::Members(archives.remove(0))),
        count => {
            let problem = format!(
                "{count} archives, none of them called {}: name the one to read with --from",
                wanted.archive
            );
            let file = folder.to_owned();
            Err(Error::File { file, problem })
        }
    }
}

fn missing(path: &Path, wanted: &Wanted<'_>) -> Error {
    let name = wanted.about.name;
    Error::Missing {
        what: wanted.what.to_owned(),
        path: path.to_owned(),
        command: format!(
            "lra data fetch {name} (or name a copy: lra data make {name} --from FOLDER or ARCHIVE)"
        ),
        stand_in: Some("--source synthetic".to_owned()),
    }
}
