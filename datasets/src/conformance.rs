//! Checks the promises that every task must keep: [`CHECKS`].
//!
//! A test over the registry asks them of the tasks here, and `lra check-task` asks them of a
//! program's own tasks and of folders.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::duplicates::{RowHash, row_hash};
use crate::error::{Class, Error, Result, io};
use crate::tasks::mine;
use crate::words::{counted, listed};
use crate::{Key, MAJORITY, Source, Split, SplitName, Splits, Store, Task};

/// Rows of each split that are drawn for the checks, at most.
const ROWS: [(&str, u64); 3] = [("train", 2000), ("val", 500), ("test", 500)];

/// Test accuracy from which a trivial predictor solves a task.
const SOLVED: f64 = 0.95;

/// A task with the data on which its promises are tested.
pub struct Subject {
    task: &'static dyn Task,
    key: Key,
    folder: tempfile::TempDir,
}

/// Check of a promise that every task must keep.
#[derive(Clone, Copy, Debug)]
pub struct ConformanceCheck {
    /// The promise in words, such as `equal_seeds_give_equal_bytes`.
    pub name: &'static str,
    /// The check. It returns a remark, if there is one.
    pub check: fn(&Subject) -> Found,
    /// Check that comes first. If its promise is broken, this check would report the same
    /// fault again.
    pub rests_on: Option<&'static str>,
}

/// Reason why a check did not pass.
#[derive(Debug)]
pub enum Failure {
    /// The task breaks the promise, with a description of the fault.
    Broken(String),
    /// The system failed, or the user requested a stop, so nothing is known of the promise.
    System(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        match error.class() {
            Class::Memory | Class::Interrupted => Failure::System(error),
            _ if error.is_of_system() => Failure::System(error),
            _ => Failure::Broken(error.to_string()),
        }
    }
}

/// Result of a check: a remark, if there is one.
pub type Found = Result<Option<String>, Failure>;

/// Outcome of checking a promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The task keeps it; with a remark, if there is one.
    Kept(Option<String>),
    /// The task breaks it, with a description of the fault.
    Broken(String),
    /// It was not tried, because the named promise is broken.
    NotTried(&'static str),
}

/// All promises, in the order in which they are asked.
pub static CHECKS: &[ConformanceCheck] = &[
    check("the_description_is_complete", description, None),
    check("options_are_read_and_others_refused", options, None),
    check(BUILT, build, Some("options_are_read_and_others_refused")),
    check("equal_seeds_give_equal_bytes", equal_seeds, Some(BUILT)),
    check("other_seeds_give_other_bytes", other_seeds, Some(BUILT)),
    check("no_example_is_in_two_splits", disjoint, Some(BUILT)),
    check("every_class_occurs", classes, Some(BUILT)),
    check("lengths_are_within_max_length", lengths, Some(BUILT)),
    check("stored_data_verify", verify, Some(BUILT)),
    check("any_bytes_are_shown_as_text", shown, Some(BUILT)),
    check("trivial_predictors_are_scored", baselines, Some(BUILT)),
];

/// Name of the promise that most others depend on.
const BUILT: &str = "the_data_are_built";

const fn check(
    name: &'static str,
    check: fn(&Subject) -> Found,
    rests_on: Option<&'static str>,
) -> ConformanceCheck {
    ConformanceCheck {
        name,
        check,
        rests_on,
    }
}

/// Runs the [`CHECKS`] in order, except those that depend on a broken one, so that one cause is
/// reported once. `tried` runs a check, and catches its panics where they must not end the program;
/// `told` receives each outcome as soon as it is known.
///
/// # Errors
/// Errors of `told`, and failures of the system, which are no breach.
pub fn ask<E: From<Error>>(
    subject: &Subject,
    mut tried: impl FnMut(&'static ConformanceCheck, &Subject) -> Found,
    mut told: impl FnMut(&'static ConformanceCheck, &Outcome) -> Result<(), E>,
) -> Result<Vec<(&'static ConformanceCheck, Outcome)>, E> {
    let mut all: Vec<(&'static ConformanceCheck, Outcome)> = Vec::new();
    for promise in CHECKS {
        let before = promise.rests_on;
        let before = before.and_then(|name| all.iter().find(|(before, _)| before.name == name));
        let cause = before.and_then(|(before, outcome)| match outcome {
            Outcome::Kept(_) => None,
            Outcome::Broken(_) => Some(before.name),
            Outcome::NotTried(cause) => Some(*cause),
        });
        let outcome = match cause {
            Some(cause) => Outcome::NotTried(cause),
            None => match tried(promise, subject) {
                Ok(remark) => Outcome::Kept(remark),
                Err(Failure::Broken(wrong)) => Outcome::Broken(wrong),
                Err(Failure::System(error)) => return Err(error.into()),
            },
        };
        told(promise, &outcome)?;
        all.push((promise, outcome));
    }
    Ok(all)
}

/// Checks all promises of a task, for its tests.
///
/// # Panics
/// If a promise is broken; the message names all that are.
pub fn assert_kept(task: &'static dyn Task) {
    let name = task.info().name;
    let subject = Subject::new(task).unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut broken = Vec::new();
    let asked = ask(
        &subject,
        |promise, subject| (promise.check)(subject),
        |promise, outcome| {
            if let Outcome::Broken(why) = outcome {
                broken.push(format!("{}: {why}", promise.name));
            }
            Ok::<(), Error>(())
        },
    );
    assert!(asked.is_ok() && broken.is_empty(), "{name}: {broken:#?}");
}

impl Subject {
    /// Returns the task with few rows of its data, and an empty data directory. Of several sources,
    /// the first that needs no published files is taken.
    ///
    /// # Errors
    /// The task has published files alone, or there is no temporary folder.
    pub fn new(task: &'static dyn Task) -> Result<Subject> {
        let mut sources = task.info().sources.iter();
        let Some(&source) = sources.find(|&&source| source != Source::Official) else {
            return Err(Error::Infeasible {
                task: task.info().name,
                reason: "its data consists of published files only: `lra data verify` checks them"
                    .to_owned(),
            });
        };
        let mut options = task.defaults();
        for (key, most) in ROWS {
            if options[key].as_u64().is_some_and(|rows| rows > most) {
                options[key] = json!(most);
            }
        }
        let temporary = std::env::temp_dir();
        Ok(Subject {
            task,
            key: Key {
                source,
                options,
                ..Key::default_of(task)
            },
            folder: tempfile::tempdir().map_err(io("create a folder in", &temporary))?,
        })
    }

    /// Builds the data with another seed, if there is one, in a store called `name`; data that are
    /// built there already are opened.
    fn built(&self, name: &str, seed: Option<u64>) -> Result<Splits, Failure> {
        let mut key = self.key.clone();
        if let Some(seed) = seed {
            key.options["seed"] = json!(seed);
        }
        let store = Store::new(&self.folder.path().join(name));
        let splits = store.open_or_build(self.task, &key, None, &());
        splits.map_err(Failure::from)
    }

    fn splits(&self) -> Result<Splits, Failure> {
        self.built("data", None)
    }
}

fn broken(fault: impl Into<String>) -> Found {
    Err(Failure::Broken(fault.into()))
}

fn description(subject: &Subject) -> Found {
    let info = subject.task.info();
    if info.title.is_empty() || info.summary.is_empty() {
        return broken("`TaskInfo` has an empty title or summary: lists show them");
    }
    if !(1..=2).contains(&info.towers) {
        return broken(format!("towers = {}: there are 1 or 2", info.towers));
    }
    if !(2..=256).contains(&info.classes) {
        return broken(format!("classes = {}: there are 2 to 256", info.classes));
    }
    let most = 256 + info.first_id as usize;
    if info.first_id > 1 || info.vocabulary > most || info.vocabulary <= info.first_id as usize {
        return broken(format!(
            "vocabulary = {} and first_id = {}: a stored byte b is id b + first_id, first_id is 0 or 1, so there are at most {most} ids",
            info.vocabulary, info.first_id
        ));
    }
    Ok(None)
}

fn options(subject: &Subject) -> Found {
    let task = subject.task;
    let defaults = task.defaults();
    if !defaults.is_object() {
        return broken("`defaults` is no JSON object");
    }
    let shape = task.shape(&defaults);
    let shape = shape.map_err(|error| match Failure::from(error) {
        Failure::Broken(why) => Failure::Broken(format!("`shape` refuses the defaults: {why}")),
        system @ Failure::System(_) => system,
    })?;
    if shape.max_length == 0 || shape.train_length > shape.max_length {
        return broken(format!(
            "`shape` has max_length = {} and train_length = {}: the first is the largest, and more than 0",
            shape.max_length, shape.train_length
        ));
    }
    let (name, label) = (task.info().name, &shape.label);
    if label != name && !label.starts_with(&format!("{name}@")) && !mine::is_folder(label) {
        return broken(format!(
            "the label of the data is {label}: it is {name}, or {name}@ and what differs, so that tables show the task under its own name"
        ));
    }
    if shape.classes > task.info().classes {
        return broken(format!(
            "`shape` has {} classes, `info` {}",
            shape.classes,
            task.info().classes
        ));
    }
    let mut unknown = defaults.clone();
    unknown["surprise"] = json!(1);
    if task.shape(&unknown).is_ok() {
        return broken(
            "an unknown option, data.surprise, is accepted: a typing error would pass unseen (read options with `parse`)"
                .to_owned(),
        );
    }
    if defaults.get("seed").is_some() {
        let mut seeded = defaults.clone();
        seeded["seed"] = json!(12345);
        if task.shape(&seeded).ok().as_ref() != Some(&shape) {
            return broken("another seed changes the shape or the label of the data");
        }
    }
    Ok(None)
}

fn build(subject: &Subject) -> Found {
    let splits = subject.splits()?;
    let rows = SplitName::ALL.map(|split| format!("{} {split}", splits.get(split).len()));
    Ok(Some(format!("examples: {}", rows.join(", "))))
}

fn equal_seeds(subject: &Subject) -> Found {
    let (first, again) = (subject.splits()?, subject.built("again", None)?);
    let digest = &first.manifest.digest;
    match *digest == again.manifest.digest {
        true => Ok(Some(format!("digest {}", &digest[..digest.len().min(12)]))),
        false => broken(format!(
            "built twice, the data differ in {}: draw from `stream(purpose, seed, number)` alone, and iterate over nothing without an order, such as a HashMap",
            differing(&first, &again)
        )),
    }
}

fn differing(first: &Splits, other: &Splits) -> String {
    let differ = |split: &SplitName| {
        let [first, other] = [first, other].map(|it| &it.manifest.splits.get(*split).sha256);
        first != other
    };
    listed(
        SplitName::ALL
            .iter()
            .filter(|it| differ(it))
            .map(|it| it.name()),
    )
}

fn other_seeds(subject: &Subject) -> Found {
    let Some(seed) = subject.key.options.get("seed").and_then(Value::as_u64) else {
        return Ok(Some("nothing is drawn: there is no data.seed".to_owned()));
    };
    let (first, other) = (
        subject.splits()?,
        subject.built("data", Some(seed.wrapping_add(1)))?,
    );
    // A folder draws what is held out of train, and its test split stays as it is.
    let must: &[SplitName] = match subject.key.source {
        Source::Folder => &[SplitName::Train, SplitName::Val],
        _ => &SplitName::ALL,
    };
    let equal = must.iter().filter(|split| {
        let [first, other] = [&first, &other].map(|it| &it.manifest.splits.get(**split).sha256);
        first == other
    });
    let equal: Vec<&str> = equal.map(|split| split.name()).collect();
    match equal.is_empty() {
        true => Ok(None),
        false => broken(format!(
            "data.seed = {} gives the same {}: let every draw depend on the seed",
            seed.wrapping_add(1),
            listed(equal)
        )),
    }
}

fn hashes(split: &Split) -> Vec<RowHash> {
    let towers = |row| row_hash((0..split.towers()).map(move |tower| split.tokens(tower, row)));
    (0..split.len()).map(towers).collect()
}

fn disjoint(subject: &Subject) -> Found {
    let splits = subject.splits()?;
    let [train, val, test] = SplitName::ALL.map(|split| hashes(splits.get(split)));
    for (name, rows, other, of) in [
        ("test", &test, "train", &train),
        ("val", &val, "train", &train),
        ("test", &test, "val", &val),
    ] {
        let known: HashSet<&RowHash> = of.iter().collect();
        let mut met = rows
            .iter()
            .enumerate()
            .filter(|(_, row)| known.contains(row));
        if let Some((first, _)) = met.next() {
            return broken(format!(
                "{} of {name} also in {other}, the first is row {first}: scores would measure memory",
                counted(1 + met.count(), "example")
            ));
        }
    }
    let different: HashSet<&RowHash> = train.iter().collect();
    let repeated = train.len() - different.len();
    Ok((repeated > 0).then(|| format!("{} repeated within train", counted(repeated, "example"))))
}

fn classes(subject: &Subject) -> Found {
    let splits = subject.splits()?;
    let shape = subject.task.shape(&subject.key.options);
    let shape = shape.map_err(Failure::from)?;
    let absent = |counts: &[u64], classes: usize| -> Vec<String> {
        let count = |class: &usize| counts.get(*class).copied().unwrap_or(0) == 0;
        let absent = (0..classes).filter(count);
        absent.map(|class| class.to_string()).collect()
    };
    let of = |split: SplitName| splits.manifest.splits.get(split);
    let missing = absent(&of(SplitName::Train).labels, shape.classes);
    if !missing.is_empty() {
        return broken(format!(
            "no example of train has the label {} of {} classes",
            listed(missing),
            shape.classes
        ));
    }
    if let Some(dense) = &shape.dense {
        let missing = absent(&of(SplitName::Train).dense_labels, dense.classes);
        if !missing.is_empty() {
            return broken(format!(
                "no position of train has the label {} of {} classes",
                listed(missing),
                dense.classes
            ));
        }
    }
    let missing = absent(&of(SplitName::Test).labels, shape.classes);
    Ok((!missing.is_empty()).then(|| {
        format!(
            "no example of test has the label {}: its accuracy says nothing about that class",
            listed(missing)
        )
    }))
}

fn lengths(subject: &Subject) -> Found {
    let splits = subject.splits()?;
    let shape = subject.task.shape(&subject.key.options);
    let shape = shape.map_err(Failure::from)?;
    let mut longest = 0;
    for name in SplitName::ALL {
        let split = splits.get(name);
        let most = match name {
            SplitName::Test => shape.max_length,
            SplitName::Train | SplitName::Val => shape.train_length,
        };
        for row in 0..split.len() {
            for tower in 0..split.towers() {
                let length = split.tokens(tower, row).len();
                if length == 0 {
                    return broken(format!("row {row} of {name} is empty"));
                }
                if length > most {
                    return broken(format!(
                        "row {row} of {name} has {length} tokens, more than {most}"
                    ));
                }
                if subject.task.info().first_id == 0 && length != most {
                    return broken(format!(
                        "row {row} of {name} has {length} tokens instead of {most}, and there is no id for padding"
                    ));
                }
                longest = longest.max(length);
            }
        }
    }
    let most = shape.max_length;
    Ok((2 * longest <= most).then(|| {
        format!("the longest sequence has {longest} of {most} tokens: the rest is padding in every batch")
    }))
}

fn verify(subject: &Subject) -> Found {
    let store = Store::new(&subject.folder.path().join("data"));
    subject.splits()?;
    let verified = store.verify(subject.task, &subject.key, &());
    let verified = verified.map_err(Failure::from)?;
    match verified.checks.iter().find(|check| !check.ok) {
        None => Ok(None),
        Some(check) => broken(format!("{}: {}", check.name, check.detail)),
    }
}

fn shown(subject: &Subject) -> Found {
    let (task, splits) = (subject.task, subject.splits()?);
    let first = (0..splits.train.towers()).map(|tower| splits.train.tokens(tower, 0));
    let text = task.to_text(&first.collect::<Vec<_>>(), splits.train.label(0));
    if text.trim().is_empty() {
        return broken("`to_text` returns nothing for the first example of train");
    }
    let all: Vec<u8> = (0..=255).collect();
    for bytes in [&all[..], &[]] {
        let text = task.to_text(&vec![bytes; task.info().towers], u8::MAX);
        let control = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
        if text.chars().any(control) {
            return broken("`to_text` passes control characters on, which a terminal would obey");
        }
    }
    Ok(None)
}

fn baselines(subject: &Subject) -> Found {
    let found = subject.task.baselines(&subject.splits()?);
    if let Some(wrong) = found.iter().find(|it| !(0.0..=1.0).contains(&it.accuracy)) {
        return broken(format!(
            "{} has the accuracy {}",
            wrong.name, wrong.accuracy
        ));
    }
    if found.iter().all(|it| it.name != MAJORITY) {
        return broken(format!(
            "`baselines` lacks `{MAJORITY}`, beside which tables show scores"
        ));
    }
    let words = found
        .iter()
        .map(|it| format!("{} {:.1} %", it.name, 100.0 * it.accuracy));
    let words = words.collect::<Vec<_>>().join(", ");
    let best = found
        .iter()
        .max_by(|a, b| a.accuracy.total_cmp(&b.accuracy));
    Ok(Some(match best.filter(|it| it.accuracy >= SOLVED) {
        Some(best) => format!("{words}; {} SOLVES it: no model is needed", best.name),
        None => words,
    }))
}
