//! The files of a folder, and their rows.

use std::cell::RefCell;
use std::fs;
use std::path::{Path, PathBuf};

use super::row::{Field, Label, Row};
use crate::SplitName;
use crate::archive::{is_litter, unpacked, unreadable};
use crate::error::{Error, Result, io};
use crate::files;
use crate::lines::Lines;
use crate::locate::is_documentation;
use crate::parquet;

/// Longest line, and longest text of a table, in bytes.
const LONGEST: usize = 64 << 20;

/// Ends of the names of files that are read.
const ENDS: [&str; 3] = [".jsonl", ".jsonl.gz", ".parquet"];

/// Files of a folder by split.
#[derive(Debug, Clone)]
pub(super) struct Files {
    /// File of train.
    pub(super) train: PathBuf,
    /// File of val, if there is one.
    pub(super) val: Option<PathBuf>,
    /// File of test.
    pub(super) test: PathBuf,
    /// Names of what lies there too and is not read.
    pub(super) unread: Vec<String>,
}

impl Files {
    /// Finds the files in a folder.
    ///
    /// # Errors
    /// The folder is not there or is none; a file is missing or has another name than a split's; a
    /// split has two.
    pub(super) fn find(folder: &Path) -> Result<Files> {
        let wrong = |problem: String| Error::File {
            file: folder.to_owned(),
            problem,
        };
        match fs::metadata(folder) {
            Ok(found) if found.is_dir() => {}
            Ok(_) => {
                return Err(wrong(
                    "a file where a folder is wanted: name the folder that holds train and test"
                        .to_owned(),
                ));
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(wrong(format!("there is no such folder; {LAYOUT}")));
            }
            Err(error) => return Err(io("read", folder)(error)),
        }
        let mut found: [Option<PathBuf>; 3] = [None, None, None];
        let mut names = Vec::new();
        for item in fs::read_dir(folder).map_err(io("read", folder))? {
            let name = item.map_err(io("read", folder))?.file_name();
            names.push(name.to_string_lossy().into_owned());
        }
        names.sort();
        let none_of_them = |name: &str| {
            wrong(format!(
                "{name} is none of train, val and test: rename it or move it away"
            ))
        };
        let mut unread = Vec::new();
        for name in names.into_iter().filter(|name| !is_litter(name)) {
            let path = folder.join(&name);
            let stem = ENDS.iter().find_map(|end| name.strip_suffix(end));
            let Some(stem) = stem.filter(|_| !path.is_dir()) else {
                if is_named_after_a_split(&name) {
                    return Err(wrong(format!(
                        "{name} is named after a split and cannot be read: write it as .jsonl, .jsonl.gz or .parquet (in small letters), or move it away"
                    )));
                }
                if is_data(&name) && !path.is_dir() {
                    return Err(none_of_them(&name));
                }
                if let Some(file) = data_below(&path, 0)? {
                    return Err(wrong(format!(
                        "{} lies in a folder of its own, where nothing is read: {LAYOUT}; move it away if it is not to be read",
                        file.strip_prefix(folder).unwrap_or(&file).display()
                    )));
                }
                if !is_documentation(&name) {
                    unread.push(name);
                }
                continue;
            };
            let Some(split) = SplitName::ALL.into_iter().find(|it| it.name() == stem) else {
                return Err(none_of_them(&name));
            };
            let place = &mut found[split as usize];
            if let Some(other) = place {
                let other = other.file_name().unwrap_or_default().to_string_lossy();
                return Err(wrong(format!(
                    "{other} and {name} are both {split}: keep one"
                )));
            }
            *place = Some(path);
        }
        let [train, val, test] = found;
        let missing = |split: &str| wrong(format!("it has no {split}.jsonl; {LAYOUT}"));
        Ok(Files {
            train: train.ok_or_else(|| missing("train"))?,
            val,
            test: test.ok_or_else(|| missing("test"))?,
            unread,
        })
    }

    /// Returns the file of a split.
    pub(super) fn of(&self, split: SplitName) -> Option<&Path> {
        match split {
            SplitName::Train => Some(&self.train),
            SplitName::Val => self.val.as_deref(),
            SplitName::Test => Some(&self.test),
        }
    }

    /// Returns all of them.
    pub(super) fn all(&self) -> Vec<PathBuf> {
        let all = SplitName::ALL
            .into_iter()
            .filter_map(|split| self.of(split));
        all.map(Path::to_owned).collect()
    }
}

/// Returns whether a name without its ends is a word for a split, in any case.
fn is_named_after_a_split(name: &str) -> bool {
    const WORDS: [&str; 10] = [
        "train",
        "training",
        "val",
        "valid",
        "validation",
        "validate",
        "dev",
        "eval",
        "test",
        "testing",
    ];
    let name = name.to_lowercase();
    WORDS.contains(&name.split('.').next().unwrap_or_default())
}

/// Returns whether a name ends like a file that is read, in any case.
fn is_data(name: &str) -> bool {
    let name = name.to_lowercase();
    ENDS.iter().any(|end| name.ends_with(end))
}

/// Depth of folders that are searched.
const DEEPEST: usize = 8;

/// Returns the file of a split below a folder; `None` for what is no folder. Other files may be
/// anybody's, such as the logs of runs.
fn data_below(path: &Path, depth: usize) -> Result<Option<PathBuf>> {
    let kind = fs::symlink_metadata(path).map_err(io("read", path))?;
    if !kind.is_dir() || depth > DEEPEST {
        return Ok(None);
    }
    for item in fs::read_dir(path).map_err(io("read", path))? {
        let inner = item.map_err(io("read", path))?.path();
        let name = inner.file_name().unwrap_or_default().to_string_lossy();
        if is_litter(&name) {
            continue;
        }
        let is_split = is_data(&name) && is_named_after_a_split(&name);
        let found = match is_split && !inner.is_dir() {
            true => Some(inner),
            false => data_below(&inner, depth + 1)?,
        };
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// Layout of a folder of examples, as messages state it.
const LAYOUT: &str =
    "a task's folder has train and test, and val if you have one, as .jsonl, .jsonl.gz or .parquet";

/// Passes every row of a file to `visit`, with its number from 1: that of the line, or of the row of
/// a table. Returns the number of rows.
///
/// # Errors
/// The file cannot be read, a row is wrong, or `visit` fails.
pub(super) fn read(path: &Path, visit: &mut dyn FnMut(u64, Row) -> Result<()>) -> Result<u64> {
    match path.extension().is_some_and(|end| end == "parquet") {
        true => read_table(path, visit),
        false => read_lines(path, visit),
    }
}

/// Returns an error about one row.
pub(super) fn wrong(path: &Path, line: u64, problem: String) -> Error {
    Error::Row {
        file: path.to_owned(),
        line,
        problem,
    }
}

fn read_lines(path: &Path, visit: &mut dyn FnMut(u64, Row) -> Result<()>) -> Result<u64> {
    let file = files::open(path)?;
    let bytes = file.metadata().map_err(io("read", path))?.len();
    let input = unpacked(file, bytes).map_err(unreadable(path))?;
    let mut lines = Lines::over(path.to_owned(), input, LONGEST as u64);
    let (mut buffer, mut rows) = (Vec::new(), 0);
    while let Some(line) = lines.next(&mut buffer)? {
        if !buffer.trim_ascii().is_empty() {
            let row = Row::parse(&buffer);
            let row = row.map_err(|problem| wrong(path, line.number, problem))?;
            visit(line.number, row)?;
            rows += 1;
        }
        buffer.clear();
    }
    Ok(rows)
}

/// Number of the first word among the labels of a table; each further word has the number below.
const FIRST_WORD: i64 = -(1 << 40);

fn read_table(path: &Path, visit: &mut dyn FnMut(u64, Row) -> Result<()>) -> Result<u64> {
    let words: RefCell<Vec<String>> = RefCell::default();
    let label_of = |word: &str| {
        let mut words = words.borrow_mut();
        let known = words.iter().position(|known| known == word);
        let place = known.unwrap_or_else(|| {
            words.push(word.to_owned());
            words.len() - 1
        });
        Some(FIRST_WORD - place as i64)
    };
    let names = Field::names();
    let labels: (&str, &parquet::LabelOf<'_>) = ("label", &label_of);
    parquet::read_fields(path, &names, labels, &mut |line, fields, number| {
        let label = || {
            let place = FIRST_WORD.checked_sub(number);
            let place = place.and_then(|place| usize::try_from(place).ok());
            match place.and_then(|place| words.borrow().get(place).cloned()) {
                Some(word) => Label::of_word(&word),
                None => Label::of_number(number),
            }
        };
        let row = Row::of(&fields, label);
        visit(line, row.map_err(|problem| wrong(path, line, problem))?)
    })
}
