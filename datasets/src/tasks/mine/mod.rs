//! A folder of your own as a task: `mine:FOLDER`.
//!
//! The folder holds `train` and `test`, and `val` if there is one, as `.jsonl`, `.jsonl.gz` or
//! `.parquet`. A line is an object with a `label` and one of four fields: `text`, `tokens` (whole
//! numbers from 0 to 255), `pixels` (grey levels, in rows or as one list) or `values` (measured
//! numbers). A second sequence is in the field with a 2 at its end, such as `text2`. Tables have the
//! columns `text` and `label`. Labels are words, which are sorted, or whole numbers from 0.
//!
//! Its name is that of the folder with its whole path. Its label is `mine:` with the last part of
//! the path, as is its name in settings' digests and records; it is never the label of a task of
//! the arena. Without `val`, a tenth of the different examples of train is held out, by the hash of
//! their content and `data.seed`, so that equal ones are never in two splits. Measured numbers are
//! stored as 256 levels between the least and the largest of train.

mod files;
mod row;
mod survey;

use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde_json::{Map, Value, json};

use self::files::{Files, wrong};
use self::row::{Field, Row};
use self::survey::{LONGEST, Survey};
use super::probes::wrap;
use super::text::legible;
use crate::duplicates::{Duplicates, RowHash, row_hash};
use crate::error::{Error, Result};
use crate::options::{parse, within};
use crate::origin::Origin;
use crate::words::counted;
use crate::{Progress, Request, Shape, Source, SplitName, SplitWriter, Task, TaskInfo};

/// Beginning of the names of folders.
pub const PREFIX: &str = "mine:";

/// Returns whether a task's name is that of a folder.
#[must_use]
pub fn is_folder(name: &str) -> bool {
    path_of(name).is_some()
}

/// Returns the path behind [`PREFIX`], which may be in any case; `None` if the name has no such
/// prefix.
fn path_of(name: &str) -> Option<&str> {
    let (prefix, path) = name.split_at_checked(PREFIX.len())?;
    prefix.eq_ignore_ascii_case(PREFIX).then_some(path)
}

/// Returns the name of the task of a folder, `mine:FOLDER`, with the whole path of the folder.
#[must_use]
pub fn full_name(name: &str) -> String {
    let path = Path::new(path_of(name).unwrap_or(name));
    let whole = path.canonicalize().or_else(|_| std::path::absolute(path));
    let whole = whole.unwrap_or_else(|_| path.to_owned());
    format!("{PREFIX}{}", whole.display())
}

/// Returns the name of the task of a folder without the path: `mine:` and the last part. Settings
/// and records have it as their task, so that a project can be moved.
#[must_use]
pub fn short_name(name: &str) -> String {
    let path = Path::new(path_of(name).unwrap_or(name));
    match path.file_name() {
        Some(last) => format!("{PREFIX}{}", last.to_string_lossy()),
        None => name.to_owned(),
    }
}

/// Returns the name with a path relative to the working directory, unless they have only the root
/// in common.
#[must_use]
pub fn relative_name(name: &str) -> String {
    let here = std::env::current_dir().and_then(|here| here.canonicalize());
    let path = Path::new(path_of(name).unwrap_or(name));
    let relative = here.ok().and_then(|here| relative_to(path, &here));
    match relative.as_deref().and_then(Path::to_str) {
        Some(relative) => format!("{PREFIX}{relative}"),
        None => name.to_owned(),
    }
}

/// Returns the relative path from `here` to another absolute path, `.` if they are the same; `None`
/// if they have only the root in common.
fn relative_to(path: &Path, here: &Path) -> Option<PathBuf> {
    let common = path.components().zip(here.components());
    let common = common.take_while(|(one, other)| one == other).count();
    let up = here.components().skip(common).map(|_| Component::ParentDir);
    let relative: PathBuf = up.chain(path.components().skip(common)).collect();
    let relative = match relative.as_os_str().is_empty() {
        true => PathBuf::from("."),
        false => relative,
    };
    (common > 1).then_some(relative)
}

/// Returns the name of a folder that the run in the folder `run` recorded. If it is gone, that of
/// the folder of the same name above the run, or in the working directory.
#[must_use]
pub fn found_name(name: &str, run: &Path) -> String {
    let path = Path::new(path_of(name).unwrap_or(name));
    let (Some(last), false) = (path.file_name(), path.is_dir()) else {
        return name.to_owned();
    };
    let above = run.ancestors().take(LEVELS).map(|folder| folder.join(last));
    let found = above.chain([PathBuf::from(last)]);
    let mut found = found.filter(|folder| folder.is_dir());
    found.next().map_or_else(
        || name.to_owned(),
        |folder| full_name(&folder.to_string_lossy()),
    )
}

/// Folders above a run in which a folder that was moved with it is looked for.
const LEVELS: usize = 4;

/// Returns the task of a folder, `mine:FOLDER`, which is read to know its classes and lengths. One
/// that has been read is read again only if its files have changed.
///
/// # Errors
/// The folder cannot be read, or its files are no task: the message names file, line and remedy.
pub fn open(name: &str) -> Result<&'static dyn Task> {
    open_unless_stopped(name, &())
}

/// Returns the task of a folder, as [`open`] does, unless `progress` is
/// [stopped](Progress::stopped) while the folder is read.
///
/// # Errors
/// Errors of [`open`], and [`Error::Interrupted`].
pub fn open_unless_stopped(name: &str, progress: &dyn Progress) -> Result<&'static dyn Task> {
    // Tasks live as long as the program, and each folder is read once.
    static OPENED: Mutex<Vec<&'static Mine>> = Mutex::new(Vec::new());
    let name = full_name(name);
    let folder = PathBuf::from(&name[PREFIX.len()..]);
    if folder.file_name().is_none() {
        return Err(Error::File {
            file: PathBuf::from(&name),
            problem: "no folder with a name; write its path behind the colon, as in mine:birds"
                .to_owned(),
        });
    }
    let is_plain = |c: char| !c.is_control() && c != char::REPLACEMENT_CHARACTER;
    if !name.chars().all(is_plain) {
        return Err(Error::File {
            file: folder,
            problem: "a folder that is a task has a name of plain letters: rename it".to_owned(),
        });
    }
    let files = Files::find(&folder)?;
    let own = files.all();
    let state = Origin::of_files(folder.clone(), own.clone());
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    let known = opened.iter().find(|it| it.info.name == name);
    if let Some(&known) = known.filter(|it| it.state == state && state.is_some()) {
        return Ok(known);
    }
    let survey = Survey::of(&files, progress)?;
    let task: &'static Mine = Box::leak(Box::new(Mine::new(name, files, survey, state)));
    opened.retain(|it| it.info.name != task.info.name);
    opened.push(task);
    Ok(task)
}

/// Function that takes an example: its stored sequences, its label, and whether it was cut.
type Visit<'a> = dyn FnMut(&[&[u8]], u8, bool) -> Result<()> + 'a;

/// The task of a folder.
struct Mine {
    info: &'static TaskInfo,
    label: String,
    files: Files,
    /// The files, as a list.
    own: Vec<PathBuf>,
    survey: Survey,
    /// The files' names, sizes and times when they were read.
    state: Option<Origin>,
}

impl Mine {
    fn new(name: String, files: Files, survey: Survey, state: Option<Origin>) -> Mine {
        let label = short_name(&name);
        // Sequences of one length need no padding, and pixels are ids themselves.
        let first_id = u32::from(survey.kind.field != Field::Pixels);
        Mine {
            info: Box::leak(Box::new(TaskInfo {
                name: name.leak(),
                title: label.clone().leak(),
                summary: "A folder of your own.",
                paper: "a folder of your own",
                version: 1,
                vocabulary: survey.bytes + first_id as usize,
                first_id,
                classes: survey.classes,
                towers: survey.kind.towers,
                mask_ratio: 0.15,
                sources: &[Source::Folder],
                probe: true,
            })),
            label,
            own: files.all(),
            files,
            survey,
            state,
        }
    }

    /// Returns the options, checked: the seed of the held-out part, and the maximum length.
    fn read(&self, options: &Value) -> Result<(u64, usize)> {
        let defaults = self.options();
        let read: Map<String, Value> = parse(self.info, &defaults, options)?;
        let number = |key: &str| read.get(key).and_then(Value::as_u64);
        let length = number("max_length").unwrap_or(self.survey.longest as u64);
        within(self.info, "max_length", length, 1..=LONGEST as u64)?;
        Ok((number("seed").unwrap_or(0), length as usize))
    }

    fn options(&self) -> Map<String, Value> {
        let mut options = Map::new();
        if self.files.val.is_none() {
            options.insert("seed".to_owned(), json!(0));
        }
        // Pictures cannot be cut.
        if self.survey.grid.is_none() {
            options.insert("max_length".to_owned(), json!(self.survey.longest));
        }
        options
    }

    /// Passes every example of a file to `visit`.
    fn rows(&self, path: &Path, longest: usize, visit: &mut Visit<'_>) -> Result<()> {
        files::read(path, &mut |line, row: Row| {
            let Some(label) = self.survey.class(&row.label) else {
                let told = "the file has changed since the program began: start it again";
                return Err(wrong(path, line, told.to_owned()));
            };
            let cut = row.towers.iter().any(|tower| tower.len() > longest);
            let towers = row.towers.into_iter();
            let towers: Vec<Vec<u8>> = towers
                .map(|tower| self.survey.stored(tower, longest))
                .collect();
            let towers: Vec<&[u8]> = towers.iter().map(Vec::as_slice).collect();
            visit(&towers, label, cut)
        })?;
        Ok(())
    }

    /// Returns the largest hash of the examples of train that are held out for validation: a tenth
    /// of the different ones, at least one.
    fn threshold(&self, seed: u64, longest: usize, progress: &dyn Progress) -> Result<RowHash> {
        let path = &self.files.train;
        let mut hashes = Vec::new();
        self.rows(path, longest, &mut |towers, _, _| {
            if hashes.len() % ROWS_PER_CHECK == 0 {
                progress.check()?;
            }
            hashes.push(keyed(seed, towers));
            Ok(())
        })?;
        hashes.sort_unstable();
        hashes.dedup();
        match hashes.len() {
            0 | 1 => Err(Error::File {
                file: path.clone(),
                problem: format!(
                    "all of its examples are equal as far as they are read ({} by data.max_length): none can be held out for validation",
                    counted(longest, "token")
                ),
            }),
            different => Ok(hashes[(different / 10).max(1) - 1]),
        }
    }

    /// Refuses a held-out part that leaves a class without any example in train.
    fn check_held_out(&self, held_out: &[u64], train: &[u64], seed: u64) -> Result<()> {
        let counts = held_out.iter().zip(train);
        let lost = counts
            .enumerate()
            .find(|(_, counts)| matches!(counts, (1.., 0)));
        match lost {
            None => Ok(()),
            Some((label, (count, _))) => Err(Error::File {
                file: self.files.train.clone(),
                problem: format!(
                    "there is no val, and the part that is held out for it by data.seed = {seed} has every example with the label {} ({count}): \
                     add examples of it, add a file val, or choose another part by --set data.seed=N",
                    self.survey.word(label)
                ),
            }),
        }
    }

    fn note_properties(&self, longest: usize, writer: &mut SplitWriter) {
        let survey = &self.survey;
        if let Some((first, rest)) = self.files.unread.split_first() {
            let more = match rest {
                [] => "lies there too and was not read".to_owned(),
                _ => format!(
                    "and {} lie there too and were not read",
                    counted(rest.len(), "other")
                ),
            };
            writer.note(format!("{first} {more}"));
        }
        if !survey.words.is_empty() {
            let shown = survey.words.iter().enumerate().take(SHOWN);
            let shown: Vec<String> = shown
                .map(|(label, word)| format!("{label} {word}"))
                .collect();
            let more = match survey.classes.saturating_sub(SHOWN) {
                0 => String::new(),
                more => format!(", and {more} more"),
            };
            writer.note(format!("classes: {}{more}", shown.join(", ")));
        }
        if survey.kind.field == Field::Values {
            let [least, largest] = survey.range;
            writer.note(format!(
                "values are stored as 256 levels from {least} to {largest}, the least and the largest of train"
            ));
        }
        if longest < survey.longest {
            writer.note(format!(
                "sequences are cut to data.max_length = {longest}; the longest has {}",
                survey.longest
            ));
        }
    }
}

/// Returns the class that all counted examples have; `None` if there are several, or no example.
fn only_class(counts: &[u64]) -> Option<usize> {
    let mut present = (0..counts.len()).filter(|label| counts[*label] > 0);
    present.next().filter(|_| present.next().is_none())
}

/// Number of rows after which a request to stop is looked for.
const ROWS_PER_CHECK: usize = 1024;

/// Number of classes that a note names.
const SHOWN: usize = 20;

/// Returns the hash of an example by which it is held out or not.
fn keyed(seed: u64, towers: &[&[u8]]) -> RowHash {
    let seed = seed.to_le_bytes();
    row_hash([&seed[..]].into_iter().chain(towers.iter().copied()))
}

impl Task for Mine {
    fn info(&self) -> &'static TaskInfo {
        self.info
    }

    fn defaults(&self) -> Value {
        Value::Object(self.options())
    }

    fn shape(&self, options: &Value) -> Result<Shape> {
        let (_, length) = self.read(options)?;
        let departs = length != self.survey.longest;
        let label = match departs {
            true => format!("{}@{length}", self.label),
            false => self.label.clone(),
        };
        let shape = Shape::new(self.info, length, []);
        let shape = Shape { label, ..shape };
        Ok(match self.survey.grid {
            // A line of pixels is no picture.
            Some([height, width]) if height > 1 => shape.of_image(height, width),
            _ => shape,
        })
    }

    fn own_files(&self) -> &[PathBuf] {
        &self.own
    }

    fn build(&self, request: &Request<'_>, writer: &mut SplitWriter) -> Result<()> {
        let (seed, longest) = self.read(request.options)?;
        request.progress.begin("reading the folder", None);
        self.note_properties(longest, writer);
        let threshold = match self.files.val {
            Some(_) => None,
            None => Some(self.threshold(seed, longest, request.progress)?),
        };
        // Examples of each class.
        let mut held_out = vec![0_u64; self.survey.classes];
        let mut train = held_out.clone();
        let mut cut = 0_u64;
        let mut duplicates = Duplicates::default();
        for split in SplitName::ALL {
            let Some(path) = self.files.of(split) else {
                continue;
            };
            self.rows(path, longest, &mut |towers, label, is_cut| {
                let holds = |last: RowHash| keyed(seed, towers) <= last;
                let split = match threshold.filter(|_| split == SplitName::Train) {
                    Some(last) if holds(last) => SplitName::Val,
                    _ => split,
                };
                match split {
                    SplitName::Train => train[usize::from(label)] += 1,
                    SplitName::Val => held_out[usize::from(label)] += 1,
                    SplitName::Test => {}
                }
                cut += u64::from(is_cut);
                duplicates.add(split, row_hash(towers.iter().copied()));
                request.progress.advance(1);
                writer.row(split, towers, label)
            })?;
        }
        request.progress.finish();
        if threshold.is_some() {
            self.check_held_out(&held_out, &train, seed)?;
            let [held_out, train] = [&held_out, &train].map(|counts| counts.iter().sum::<u64>());
            writer.note(format!(
                "there is no val: {held_out} of {} of train, a tenth, are held out for validation, by the hash of their content and data.seed = {seed}",
                counted(held_out + train, "example")
            ));
        }
        if let Some(label) = only_class(&held_out) {
            writer.note(format!(
                "every example of validation has the label {}: its accuracy tells nothing",
                self.survey.word(label)
            ));
        }
        if cut > 0 {
            writer.note(format!("{} cut", counted(cut, "example")));
        }
        if duplicates.between() > 0 {
            writer.note(format!(
                "{} in more than one split: scores on them measure memory",
                counted(duplicates.between(), "example")
            ));
        }
        Ok(())
    }

    fn to_text(&self, towers: &[&[u8]], label: u8) -> String {
        let mut text = String::new();
        for tower in towers {
            text += &self.sequence_text(tower);
            text.push('\n');
        }
        let word = self.survey.words.get(usize::from(label));
        match word {
            Some(word) => text + &format!("label: {label} ({})\n", disk::escape(word)),
            None => text + &format!("label: {label}\n"),
        }
    }
}

/// Characters for grey levels, from black to white.
const GREYS: [char; 10] = [' ', '.', ':', '-', '=', '+', '*', '#', '%', '@'];

/// Largest width of a picture that is drawn in characters.
const WIDEST: usize = 96;

impl Mine {
    fn sequence_text(&self, bytes: &[u8]) -> String {
        match (self.survey.kind.field, self.survey.grid) {
            (Field::Text, _) => legible(bytes),
            (Field::Pixels, Some([_, width])) if (2..=WIDEST).contains(&width) => {
                let grey = |&level: &u8| GREYS[usize::from(level) * GREYS.len() / 256];
                let rows = bytes.chunks(width);
                let rows = rows.map(|row| row.iter().map(grey).collect::<String>());
                rows.collect::<Vec<_>>().join("\n")
            }
            (Field::Values, _) => {
                let words = bytes
                    .iter()
                    .map(|&level| format!("{:.4}", self.survey.number(level)));
                wrap(&words.collect::<Vec<_>>())
            }
            _ => wrap(&bytes.iter().map(u8::to_string).collect::<Vec<_>>()),
        }
    }
}
