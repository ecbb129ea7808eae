//! Parquet files of train and test, told by their names.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::known::is_of_another;
use super::{Form, Survey};
use crate::TaskInfo;
use crate::error::{Error, Result};
use crate::files::relative_name;

/// Returns the parquet files in a folder, if there are some of both splits. `survey` has the folder's
/// files that are neither data nor parquet files.
///
/// # Errors
/// The files of a split lie in two folders or are not complete, or one beside them is of no split.
pub(super) fn forms_in(
    info: &TaskInfo,
    folder: &Path,
    files: &[PathBuf],
    survey: &Survey,
) -> Result<Option<Form>> {
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
        of_one_series(files)?;
        complete(files)?;
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
        None => {
            let notes = survey.notes_in(&[&relative_name(folder, around)]);
            Ok(Some(Form::Parquet { train, test, notes }))
        }
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

/// A file that is one of several, by its name: `train-00001-of-00002.parquet`, perhaps with a hash
/// behind it, which is that of the whole or of the part.
#[derive(Debug, PartialEq, Eq)]
struct Part<'a> {
    /// Name before the number.
    start: &'a str,
    /// Digits of the number.
    digits: &'a str,
    /// Name behind the number, up to a hash.
    end: &'a str,
    /// The hash; empty if there is none.
    hash: &'a str,
    /// Number of files.
    of: u64,
}

impl Part<'_> {
    /// Splits the name of a parquet file; `None` if it names no part.
    fn of(name: &str) -> Option<Part<'_>> {
        let (rest, of) = stem(name)?.rsplit_once("-of-")?;
        let start = rest.trim_end_matches(|symbol: char| symbol.is_ascii_digit());
        let digits = &rest[start.len()..];
        // A hash may follow, as in `train-00000-of-00001-b42a775f407cee45.parquet`.
        let (of, hash) = of.split_once('-').unwrap_or((of, ""));
        if !hash.chars().all(|symbol| symbol.is_ascii_hexdigit()) {
            return None;
        }
        let end = &name[rest.len()..rest.len() + "-of-".len() + of.len()];
        let of = of.parse().ok()?;
        (!digits.is_empty()).then_some(Part {
            start,
            digits,
            end,
            hash,
            of,
        })
    }

    /// Returns the names of all parts but for their numbers and hashes, and whether they have
    /// hashes.
    fn series(&self) -> (String, String, bool) {
        (
            self.start.to_owned(),
            self.end.to_owned(),
            !self.hash.is_empty(),
        )
    }
}

fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Refuses parts of one split beside a file that is no part of the same whole: both may hold the
/// same rows.
fn of_one_series(files: &[PathBuf]) -> Result<()> {
    let part = |path: &PathBuf| {
        let name = file_name(path);
        Part::of(&name).map(|part| (part.series(), part.digits.parse::<u64>()))
    };
    let series = |path: &PathBuf| part(path).map(|(series, _)| series);
    let refused = |file: &Path, other: &Path, problem: &str| {
        Err(Error::File {
            file: file.to_owned(),
            problem: format!(
                "a parquet file of the same split as {}, {problem}: they may hold the same rows; move one away",
                file_name(other)
            ),
        })
    };
    let Some(first) = files.first() else {
        return Ok(());
    };
    if let Some(other) = files.iter().find(|it| series(it) != series(first)) {
        return refused(other, first, "whose name makes them no parts of one whole");
    }
    let mut numbers = BTreeMap::new();
    for file in files {
        if let Some((_, Ok(number))) = part(file)
            && let Some(other) = numbers.insert(number, file)
        {
            return refused(
                file,
                other,
                &format!("and both are part {number} by their names"),
            );
        }
    }
    Ok(())
}

/// Refuses files of one split that are numbered as parts of more files than there are.
fn complete(files: &[PathBuf]) -> Result<()> {
    let named: Vec<_> = files.iter().map(|path| (path, file_name(path))).collect();
    let mut sets: BTreeMap<_, (&PathBuf, Part<'_>, BTreeSet<u64>)> = BTreeMap::new();
    for (path, name) in &named {
        if let Some(part) = Part::of(name)
            && let Ok(number) = part.digits.parse()
        {
            let set = sets.entry(part.series());
            let (_, first, numbers) = set.or_insert_with(|| (path, part, BTreeSet::new()));
            // The hash of a part that is missing is not known.
            if Part::of(name).is_some_and(|part| part.hash != first.hash) {
                first.hash = "*";
            }
            numbers.insert(number);
        }
    }
    for (path, part, numbers) in sets.into_values() {
        // Numbers begin at 0, and at 1 in the names of some writers.
        let first = u64::from(!numbers.contains(&0) && numbers.contains(&part.of));
        let end = part.of.saturating_add(first);
        if let Some(missing) = (first..end).find(|number| !numbers.contains(number)) {
            let Part {
                start,
                digits,
                end,
                hash,
                ..
            } = part;
            let (width, dash) = (digits.len(), if hash.is_empty() { "" } else { "-" });
            let name = file_name(path);
            let extension = name.rsplit_once('.').map_or("parquet", |(_, end)| end);
            return Err(Error::File {
                file: path.with_file_name(format!(
                    "{start}{missing:0width$}{end}{dash}{hash}.{extension}"
                )),
                problem: format!(
                    "not there, and of the {} files that belong together by their names {} are: add \
                     those that are missing",
                    part.of,
                    numbers.len()
                ),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_stand_beside_parts_of_one_whole_alone() {
        let check = |names: &[&str]| {
            let files: Vec<PathBuf> = names.iter().map(PathBuf::from).collect();
            of_one_series(&files).map_err(|error| error.to_string())
        };
        check(&["train-0-of-2.parquet", "train-1-of-2.parquet"]).unwrap();
        check(&["0000.parquet", "0001.parquet"]).unwrap();
        // The hash of each part.
        check(&[
            "train-0-of-2-b42a775f.parquet",
            "train-1-of-2-aaaa775f.parquet",
        ])
        .unwrap();
        for names in [
            ["train-00000-of-00001.parquet", "train.parquet"],
            ["train-0-of-1.parquet", "train-0-of-2.parquet"],
            ["train.parquet", "train-0-of-1.parquet"],
            [
                "train-0-of-1-b42a775f.parquet",
                "train-0-of-1-aaaa775f.parquet",
            ],
        ] {
            let error = check(&names).unwrap_err();
            assert!(
                error.starts_with(names[1]) && error.contains(names[0]),
                "{error}"
            );
        }
    }

    #[test]
    fn parts_are_told_by_their_numbers() {
        let outcome = |names: &[&str]| {
            let files: Vec<PathBuf> = names.iter().map(PathBuf::from).collect();
            complete(&files).map_err(|error| error.to_string())
        };
        for names in [
            &["a/train-00000-of-00001.parquet"][..],
            &["train-1-of-2.parquet", "train-2-of-2.parquet"],
            &["train.parquet", "train-of-2.parquet", "0000.parquet"],
        ] {
            assert_eq!(outcome(names), Ok(()), "{names:?}");
        }
        for (names, missing) in [
            (
                &["a/train-00000-of-00002.parquet"][..],
                "a/train-00001-of-00002.parquet: not there",
            ),
            (
                &["x-0-of-3-b42a.parquet", "x-2-of-3-775f.parquet"],
                "x-1-of-3-*.parquet: not there",
            ),
            (
                &["x-0-of-3-b42a.parquet", "x-2-of-3-b42a.parquet"],
                "x-1-of-3-b42a.parquet: not there",
            ),
            (
                &["x-2-of-3.parquet", "x-3-of-3.parquet"],
                "x-1-of-3.parquet",
            ),
            (
                &["x-5-of-99999999999.PARQUET"],
                "x-0-of-99999999999.PARQUET",
            ),
            (
                &["x-0-of-1.parquet", "x-0-of-2.parquet"],
                "x-1-of-2.parquet",
            ),
        ] {
            let said = outcome(names).unwrap_err();
            assert!(said.contains(missing), "{said}");
        }
    }

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
