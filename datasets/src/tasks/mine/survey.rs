//! First reading of a folder: the properties of its task, and every check of its rows.

use std::collections::BTreeSet;
use std::path::Path;

use super::files::{self, Files, wrong};
use super::row::{Field, Kind, Label, Row, Sequence};
use crate::error::{Error, Result};
use crate::words::counted;
use crate::{Progress, SplitName};

/// Maximum number of tokens of a sequence.
pub(super) const LONGEST: usize = 1 << 20;

/// Number of levels that measured numbers are stored as.
const LEVELS: f64 = 256.0;

/// Properties of a folder's examples.
#[derive(Debug, Clone)]
pub(super) struct Survey {
    pub(super) kind: Kind,
    /// Names of the classes; empty where labels are numbers.
    pub(super) words: Vec<String>,
    /// Number of classes.
    pub(super) classes: usize,
    /// Number of tokens of the longest sequence of any split.
    pub(super) longest: usize,
    /// Number of different bytes that can be stored.
    pub(super) bytes: usize,
    /// Height and width of pictures.
    pub(super) grid: Option<[usize; 2]>,
    /// Least and largest of the numbers of train, where numbers are measured.
    pub(super) range: [f64; 2],
}

impl Survey {
    /// Reads the files of a folder.
    ///
    /// # Errors
    /// A row or a file is wrong: the message names file and line, and the remedy. Or `progress` is
    /// stopped.
    pub(super) fn of(files: &Files, progress: &dyn Progress) -> Result<Survey> {
        let mut seen = Seen::default();
        for split in SplitName::ALL {
            let Some(path) = files.of(split) else {
                continue;
            };
            let rows = files::read(path, &mut |line, row| {
                progress.check()?;
                let checked = seen.check(split, &row);
                checked.map_err(|problem| wrong(path, line, problem))
            })?;
            if rows == 0 {
                return Err(whole(path, "it holds no examples: add some".to_owned()));
            }
            if split == SplitName::Train {
                seen.check_train(path, rows)?;
            }
        }
        let Some(kind) = seen.kind else {
            return Err(whole(&files.train, "it holds no examples".to_owned()));
        };
        let word = |label: Label| match label {
            Label::Word(word) => Some(word),
            Label::Number(_) => None,
        };
        let bytes = match kind.field {
            Field::Text | Field::Pixels | Field::Values => 256,
            Field::Tokens => usize::from(seen.largest) + 1,
        };
        Ok(Survey {
            kind,
            classes: seen.labels.len(),
            words: seen.labels.into_iter().filter_map(word).collect(),
            longest: seen.longest,
            bytes,
            grid: seen.grid,
            range: seen.range,
        })
    }

    /// Returns the stored bytes of a sequence, at most `longest`: measured numbers as levels between
    /// the least and the largest of train, others at the ends of that range.
    pub(super) fn stored(&self, sequence: Sequence, longest: usize) -> Vec<u8> {
        let [least, largest] = self.range;
        let level = |number: &f64| {
            let share = (number - least) / (largest - least);
            // A float outside the range of a byte becomes the nearest byte.
            (share * (LEVELS - 1.0)).round() as u8
        };
        match sequence {
            Sequence::Bytes(mut bytes) => {
                bytes.truncate(longest);
                bytes
            }
            Sequence::Numbers(numbers) => numbers.iter().take(longest).map(level).collect(),
        }
    }

    /// Returns the name of a class, or its number where labels are numbers.
    pub(super) fn word(&self, class: usize) -> String {
        let word = self.words.get(class);
        word.map_or_else(|| class.to_string(), |word| disk::escape(word))
    }

    /// Returns the middle of a level of measured numbers.
    pub(super) fn number(&self, level: u8) -> f64 {
        let [least, largest] = self.range;
        least + (largest - least) * f64::from(level) / (LEVELS - 1.0)
    }

    /// Returns the class of a label; `None` if train had no such label.
    pub(super) fn class(&self, label: &Label) -> Option<u8> {
        match label {
            Label::Number(number) => Some(*number).filter(|&it| usize::from(it) < self.classes),
            Label::Word(word) => {
                let place = self.words.binary_search(word).ok()?;
                u8::try_from(place).ok()
            }
        }
    }
}

/// Properties shared by all rows read so far.
struct Seen {
    kind: Option<Kind>,
    labels: BTreeSet<Label>,
    longest: usize,
    largest: u8,
    grid: Option<[usize; 2]>,
    range: [f64; 2],
}

impl Default for Seen {
    fn default() -> Seen {
        Seen {
            kind: None,
            labels: BTreeSet::new(),
            longest: 0,
            largest: 0,
            grid: None,
            range: [f64::INFINITY, f64::NEG_INFINITY],
        }
    }
}

impl Seen {
    fn check(&mut self, split: SplitName, row: &Row) -> std::result::Result<(), String> {
        let kind = *self.kind.get_or_insert(row.kind);
        if row.kind != kind {
            return Err(format!(
                "it has {}, and the lines before it have {}: all lines of a folder have the same fields",
                row.kind.words(),
                kind.words()
            ));
        }
        let first = self.labels.first();
        let is_word = |label: &Label| matches!(label, Label::Word(_));
        if let Some(first) = first.filter(|first| is_word(first) != is_word(&row.label)) {
            return Err(format!(
                "label {} after labels such as {}: all are words, or all are whole numbers",
                row.label.text(),
                first.text()
            ));
        }
        match split {
            SplitName::Train => {
                self.labels.insert(row.label.clone());
                if self.labels.len() > 256 {
                    return Err(
                        "it has the 257th different label: a task has 256 classes at most"
                            .to_owned(),
                    );
                }
            }
            SplitName::Val | SplitName::Test if !self.labels.contains(&row.label) => {
                return Err(format!(
                    "no example of train has the label {}: add some to train, or leave the line out",
                    row.label.text()
                ));
            }
            SplitName::Val | SplitName::Test => {}
        }
        let grid = row.grid.filter(|_| self.longest > 0);
        if let (Some([height, width]), Some([first, other])) = (grid, self.grid)
            && [height, width] != [first, other]
        {
            return Err(format!(
                "a picture of {height} x {width} pixels, and those before it have {first} x {other}: all have one size"
            ));
        }
        self.grid = row.grid;
        for sequence in &row.towers {
            if sequence.len() > LONGEST {
                return Err(format!(
                    "a sequence of {}, more than {LONGEST}: cut it",
                    counted(sequence.len(), "token")
                ));
            }
            self.longest = self.longest.max(sequence.len());
            match sequence {
                Sequence::Bytes(bytes) => {
                    let largest = bytes.iter().copied().max().unwrap_or(0);
                    self.largest = self.largest.max(largest);
                }
                Sequence::Numbers(numbers) if split == SplitName::Train => {
                    for &number in numbers {
                        self.range[0] = self.range[0].min(number);
                        self.range[1] = self.range[1].max(number);
                    }
                }
                Sequence::Numbers(_) => {}
            }
        }
        Ok(())
    }

    /// Checks what only the whole of train shows.
    fn check_train(&self, path: &Path, rows: u64) -> Result<()> {
        let text = |label: &Label| label.text();
        if self.labels.len() == 1 {
            let label = self.labels.first().map(text).unwrap_or_default();
            return Err(whole(
                path,
                format!(
                    "all of its {} have the label {label}: a task has two classes at least",
                    counted(rows, "example")
                ),
            ));
        }
        let numbers = self.labels.iter().filter_map(|label| match label {
            Label::Number(number) => Some(*number),
            Label::Word(_) => None,
        });
        let numbers: Vec<u8> = numbers.collect();
        let gap = (0..=u8::MAX).zip(&numbers).find(|(at, it)| at != *it);
        if let (Some((missing, _)), Some(last)) = (gap, numbers.last()) {
            return Err(whole(
                path,
                format!(
                    "no example has the label {missing}, and labels count up to {last}: number the classes from 0 without a gap, or name them by words"
                ),
            ));
        }
        let [least, largest] = self.range;
        if self.kind.is_some_and(|kind| kind.field == Field::Values) {
            if least == largest {
                return Err(whole(
                    path,
                    format!("all of its values are {least}: nothing can be learned from them"),
                ));
            }
            if !(largest - least).is_finite() {
                return Err(whole(
                    path,
                    format!("its values go from {least} to {largest}: scale them down"),
                ));
            }
        }
        Ok(())
    }
}

fn whole(path: &Path, problem: String) -> Error {
    Error::File {
        file: path.to_owned(),
        problem,
    }
}
