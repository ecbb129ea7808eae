//! Search for a task's published files under the path that the user gave.

use std::path::{Path, PathBuf};

use crate::archive::folder::files_below;
use crate::archive::{ARCHIVES, Contents, Member, Raw, has_archive_name, kind_of, unpacked_name};
use crate::error::{Error, Result};
use crate::files::relative_name;
use crate::{About, Progress, Source};

/// Form of the published files.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Files in a folder or an archive, read by [`Wanted::members`].
    Members(Raw),
    /// Parquet files of train and test.
    Parquet {
        /// Files of train, in the order of names.
        train: Vec<PathBuf>,
        /// Files of test, in the order of names.
        test: Vec<PathBuf>,
    },
}

/// Files that a task needs.
pub(crate) struct Wanted<'a> {
    /// Description of the task.
    pub(crate) about: &'static About,
    /// Description of the files.
    pub(crate) what: &'a str,
    /// Name of the published archive.
    pub(crate) archive: &'static str,
    /// Function that decides whether a file of a folder or archive is one of them.
    pub(crate) fits: &'a dyn Fn(&str) -> bool,
    /// True if the task reads parquet files too.
    pub(crate) parquet: bool,
}

impl Wanted<'_> {
    /// Passes every file of `raw` that fits to `visit`, as [`Raw::members`] does.
    ///
    /// # Errors
    /// Errors of [`Raw::members`]; [`Error::Missing`] where no file fits.
    pub(crate) fn members(
        &self,
        raw: &Raw,
        doing: &str,
        progress: &dyn Progress,
        visit: &mut dyn FnMut(Member<'_>) -> Result<()>,
    ) -> Result<()> {
        let contents = raw.members(doing, progress, self.fits, visit)?;
        match contents.wanted {
            0 => Err(self.missing(raw.path(), Some(&contents))),
            _ => Ok(()),
        }
    }

    /// Returns whether a file is one of them, either directly or once unpacked.
    fn takes(&self, name: &str) -> bool {
        (self.fits)(name) || unpacked_name(name).is_some_and(self.fits)
    }

    /// Returns the error for missing files.
    pub(crate) fn missing(&self, path: &Path, contents: Option<&Contents>) -> Error {
        let name = self.about.name;
        let there = contents.map(|contents| {
            let unread = match contents.has_ending(".parquet") {
                true => "; parquet files are read from a folder, not from an archive",
                false => "",
            };
            format!("{}{unread}", contents.text())
        });
        Error::Missing {
            what: self.what.to_owned(),
            path: path.to_owned(),
            there,
            command: format!(
                "lra data fetch {name} (or name a copy: lra data make {name} --from FOLDER or ARCHIVE)"
            ),
            stand_in: stand_in(self.about),
        }
    }
}

/// Finds the published files: `raw` is an archive, or a folder with the files themselves in it or
/// below it, else with parquet files, else with an archive.
///
/// # Errors
/// [`Error::Missing`], naming the wanted files, the files found, and the command that gets the
/// wanted ones; [`Error::File`] for any other kind of file.
pub(crate) fn locate(raw: &Path, wanted: &Wanted<'_>, progress: &dyn Progress) -> Result<Form> {
    let folder = match Raw::at(raw)? {
        None => return Err(wanted.missing(raw, None)),
        Some(archive @ Raw::Archive(_)) => return Ok(Form::Members(archive)),
        Some(Raw::Folder(folder)) => folder,
        Some(Raw::Parquet(file)) if wanted.parquet => {
            let problem = "one parquet file: name the folder that has those of train and of test";
            let problem = problem.to_owned();
            return Err(Error::File { file, problem });
        }
        Some(Raw::Packed(file)) => {
            let problem = format!(
                "one packed file and no archive: name the folder or the archive with {}",
                wanted.what
            );
            return Err(Error::File { file, problem });
        }
        Some(Raw::Parquet(file) | Raw::File(file)) => {
            let name = relative_name(raw.parent().unwrap_or(raw), raw);
            let problem = match (wanted.fits)(&name) {
                true => format!(
                    "one of the files alone: name the folder with {}",
                    wanted.what
                ),
                false => format!(
                    "neither a folder nor {ARCHIVES} with {}, but {}",
                    wanted.what,
                    kind_of(&file)?
                ),
            };
            return Err(Error::File { file, problem });
        }
    };
    let mut contents = Contents::default();
    let files = files_below(&folder, &mut |name| {
        let taken = wanted.takes(name);
        contents.add(name, taken);
        taken || has_archive_name(name) || wanted.parquet && parquet_stem(name).is_some()
    })?;
    if contents.wanted > 0 {
        return Ok(Form::Members(Raw::Folder(folder)));
    }
    if wanted.parquet
        && let Some(form) = parquet_in(&folder, &files)?
    {
        return Ok(form);
    }
    archive_in(&folder, &files, wanted, &contents, progress)
}

/// Returns the parquet files in a folder, if there are some of both splits.
fn parquet_in(folder: &Path, files: &[PathBuf]) -> Result<Option<Form>> {
    let relative = |path: &PathBuf| relative_name(folder, path);
    let of_split = |split: &str| -> Vec<PathBuf> {
        let holds = |path: &&PathBuf| split_of(&relative(path)) == Some(split);
        files.iter().filter(holds).cloned().collect()
    };
    let (train, test) = (of_split("train"), of_split("test"));
    if train.is_empty() || test.is_empty() {
        return Ok(None);
    }
    for files in [&train, &test] {
        in_one_folder(folder, files)?;
    }
    // Of the other files, only those without labels are known to belong to no split.
    let folders = [&train, &test].map(|files| files.first().and_then(|file| file.parent()));
    let stray = files.iter().find(|path| {
        let name = relative(path).to_ascii_lowercase();
        parquet_stem(&name).is_some_and(|stem| !stem.contains("unsup") && !stem.contains("unlabel"))
            && split_of(&name).is_none()
            && folders.contains(&path.parent())
    });
    match stray {
        None => Ok(Some(Form::Parquet { train, test })),
        Some(file) => Err(Error::File {
            file: file.clone(),
            problem: "a parquet file beside those of train and test whose name says neither: \
                      move it elsewhere if it is not to be read"
                .to_owned(),
        }),
    }
}

/// Returns the name of a parquet file without its extension.
fn parquet_stem(name: &str) -> Option<&str> {
    let (stem, end) = name.rsplit_once('.')?;
    end.eq_ignore_ascii_case("parquet").then_some(stem)
}

/// Returns the split that a parquet file holds: the one that its name or, failing that, its nearest
/// folder names as a word of its own, or at its beginning: `train-00000-of-00001.parquet`,
/// `imdb-train.parquet`, `plain_text/train/0000.parquet`.
fn split_of(name: &str) -> Option<&'static str> {
    const SPLITS: [&str; 2] = ["train", "test"];
    let name = parquet_stem(name)?.to_ascii_lowercase();
    name.rsplit('/').find_map(|part| {
        let named = |split: &&str| {
            let mut words = part.split(|symbol: char| !symbol.is_ascii_alphanumeric());
            part.starts_with(*split) || words.any(|word| word == *split)
        };
        let mut named = SPLITS.into_iter().filter(named);
        // A name with both words is ambiguous.
        named.next().filter(|_| named.next().is_none())
    })
}

/// Refuses the files of one split in several folders: they may be copies of the same rows.
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

/// Returns the archive in a folder: the one with the published name, else the only one, else the
/// only one that holds the files.
fn archive_in(
    folder: &Path,
    files: &[PathBuf],
    wanted: &Wanted<'_>,
    contents: &Contents,
    progress: &dyn Progress,
) -> Result<Form> {
    let mut archives = Vec::new();
    let mut others = Vec::new();
    for path in files {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        match Raw::at(path)? {
            Some(archive @ Raw::Archive(_)) if name.eq_ignore_ascii_case(wanted.archive) => {
                return Ok(Form::Members(archive));
            }
            Some(archive @ Raw::Archive(_)) => archives.push(archive),
            Some(Raw::File(path)) if has_archive_name(&name) => others.push(path),
            _ => {}
        }
    }
    if archives.len() > 1 {
        let mut having = Vec::new();
        for archive in archives {
            if archive.holds(progress, wanted.fits)? {
                having.push(archive);
            }
        }
        archives = having;
    }
    match (archives.len(), others.pop()) {
        (0, None) => Err(wanted.missing(&folder.join(wanted.archive), Some(contents))),
        (0, Some(file)) => {
            let problem = format!("not {ARCHIVES} but {}: remove it", kind_of(&file)?);
            Err(Error::File { file, problem })
        }
        (1, _) => Ok(Form::Members(archives.remove(0))),
        _ => {
            let names: Vec<_> = archives
                .iter()
                .map(|one| relative_name(folder, one.path()))
                .collect();
            let problem = format!(
                "several archives with {}: {}; name the one to read with --from",
                wanted.what,
                names.join(", ")
            );
            let file = folder.to_owned();
            Err(Error::File { file, problem })
        }
    }
}

/// Returns the flag for a source that needs no files.
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
