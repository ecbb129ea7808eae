//! Parquet files of train and test, told by their names.

use std::path::{Path, PathBuf};

use super::Form;
use super::known::is_of_another;
use crate::TaskInfo;
use crate::error::{Error, Result};
use crate::files::relative_name;

/// Returns the parquet files in a folder, if there are some of both splits.
pub(super) fn forms_in(info: &TaskInfo, folder: &Path, files: &[PathBuf]) -> Result<Option<Form>> {
    let relative = |path: &PathBuf| relative_name(folder, path);
    let files: Vec<&PathBuf> = files
        .iter()
        .filter(|path| !is_of_another(info.name, &relative(path)))
        .collect();
    let of_split = |split: &str| -> Vec<PathBuf> {
        let holds = |path: &&&PathBuf| split_of(&relative(path)) == Some(split);
        files
            .iter()
            .filter(holds)
            .map(|path| (*path).clone())
            .collect()
    };
    let (train, test) = (of_split("train"), of_split("test"));
    if train.is_empty() || test.is_empty() {
        return Ok(None);
    }
    for files in [&train, &test] {
        in_one_folder(folder, files)?;
    }
    // Files without labels are known to belong to no split.
    let is_stray = |path: &PathBuf| {
        let name = relative(path).to_ascii_lowercase();
        let known = |name: &str| ["unsup", "unlabel"].iter().any(|word| name.contains(word));
        split_of(&name).is_none() && stem(&name).is_some_and(|stem| !known(stem))
    };
    let around = around(train.iter().chain(&test)).unwrap_or(folder);
    match files
        .into_iter()
        .find(|path| path.starts_with(around) && is_stray(path))
    {
        None => Ok(Some(Form::Parquet { train, test })),
        Some(file) => Err(Error::File {
            file: file.clone(),
            problem: "a parquet file beside those of train and test whose name says neither: \
                      move it elsewhere if it is not to be read"
                .to_owned(),
        }),
    }
}

/// Returns the innermost folder around all of these files.
fn around<'a>(files: impl Iterator<Item = &'a PathBuf>) -> Option<&'a Path> {
    let mut folders = files.filter_map(|file| file.parent());
    let first = folders.next()?;
    folders.try_fold(first, |around, folder| {
        around.ancestors().find(|around| folder.starts_with(around))
    })
}

/// Returns the name of a parquet file without its extension.
pub(super) fn stem(name: &str) -> Option<&str> {
    let (stem, end) = name.rsplit_once('.')?;
    end.eq_ignore_ascii_case("parquet").then_some(stem)
}

/// Returns the split that a parquet file holds: the one that its name or, failing that, its nearest
/// folder names as a word of its own, or at its beginning: `train-00000-of-00001.parquet`,
/// `imdb-train.parquet`, `plain_text/train/0000.parquet`.
pub(super) fn split_of(name: &str) -> Option<&'static str> {
    const SPLITS: [&str; 2] = ["train", "test"];
    let name = stem(name)?.to_ascii_lowercase();
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
