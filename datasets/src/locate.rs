//! Finds a task's published files under the path that a person gave.

use std::path::{Path, PathBuf};

use crate::archive::{ARCHIVES, Raw, archives_of, files_below};
use crate::error::{Error, Result};
use crate::files::relative_name;
use crate::{About, Source};

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
            let problem = format!("neither a folder nor {ARCHIVES} with {}", wanted.what);
            return Err(Error::File { file, problem });
        }
    };
    let files = files_below(&folder)?;
    let relative = |path: &PathBuf| relative_name(&folder, path);
    if files.iter().any(|path| (wanted.fits)(&relative(path))) {
        return Ok(Form::Members(Raw::Folder(folder)));
    }
    if wanted.parquet {
        let of_split = |split: &str| {
            let holds = |path: &&PathBuf| split_of(&relative(path)) == Some(split);
            files.iter().filter(holds).cloned().collect()
        };
        let (train, test): (Vec<_>, Vec<_>) = (of_split("train"), of_split("test"));
        if !train.is_empty() && !test.is_empty() {
            for files in [&train, &test] {
                in_one_folder(&folder, files)?;
            }
            return Ok(Form::Parquet { train, test });
        }
    }
    archive_in(&folder, &files, wanted)
}

/// Which split a parquet file holds: the one that its name or, failing that, its nearest folder names as a word of its own, or
/// at its beginning: `train-00000-of-00001.parquet`, `imdb-train.parquet`, `plain_text/train/0000.parquet`.
fn split_of(name: &str) -> Option<&'static str> {
    const SPLITS: [&str; 2] = ["train", "test"];
    let name = name.strip_suffix(".parquet")?;
    name.rsplit('/').find_map(|part| {
        let named = |split: &&str| {
            let mut words = part.split(|symbol: char| !symbol.is_ascii_alphanumeric());
            part.starts_with(*split) || words.any(|word| word == *split)
        };
        let mut named = SPLITS.into_iter().filter(named);
        // A name with both words tells nothing.
        named.next().filter(|_| named.next().is_none())
    })
}

/// Refuses the files of one split in several folders: they may well be the same rows again.
fn in_one_folder(folder: &Path, files: &[PathBuf]) -> Result<()> {
    let first = files.first().and_then(|file| file.parent());
    match files.iter().find(|file| file.parent() != first) {
        None => Ok(()),
        Some(other) => Err(Error::File {
            file: folder.to_owned(),
            problem: format!(
                "parquet files of one split in two folders, {} and {}: name the folder to read with --from",
                first.unwrap_or(folder).display(),
                other.parent().unwrap_or(folder).display()
            ),
        }),
    }
}

/// The archive in a folder: the one with the published name, else the only one.
fn archive_in(folder: &Path, files: &[PathBuf], wanted: &Wanted<'_>) -> Result<Form> {
    let mut archives = archives_of(files)?;
    let named = |archive: &Raw| archive.path().ends_with(wanted.archive);
    if let Some(place) = archives.iter().position(named) {
        return Ok(Form::Members(archives.swap_remove(place)));
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
        stand_in: stand_in(wanted.about),
    }
}

/// The flag for a source that needs no files.
pub(crate) fn stand_in(about: &About) -> Option<String> {
    let mut sources = about.sources.iter();
    match sources.find(|&&source| source != Source::Official)? {
        Source::Generated => Some("--source generated, the same task drawn here".to_owned()),
        other => Some(format!("--source {other}")),
    }
}

#[cfg(test)]
mod tests {
    use super::split_of;

    #[test]
    fn parquet_files_are_told_by_their_names_and_folders() {
        for name in [
            "train.parquet",
            "train-00000-of-00001.parquet",
            "plain_text/train-00000-of-00001.parquet",
            "plain_text/train/0000.parquet",
            "plain_text/partial-train/0000.parquet",
            "imdb-train.parquet",
            "test/imdb_train.parquet",
        ] {
            assert_eq!(split_of(name), Some("train"), "{name}");
        }
        assert_eq!(split_of("plain_text/test/0000.parquet"), Some("test"));
        for name in [
            "unsupervised-00000-of-00001.parquet",
            "plain_text/unsupervised/0000.parquet",
            "train-test.parquet",
            "latest.parquet",
            "train.csv",
        ] {
            assert_eq!(split_of(name), None, "{name}");
        }
    }
}
