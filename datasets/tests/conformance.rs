//! The promises of every task: kept by those here, and broken by planted faults.

use std::sync::atomic::{AtomicU64, Ordering};

use lra_datasets::conformance::{self, Outcome, Subject};
use lra_datasets::prelude::*;
use lra_datasets::tasks;

/// A fault of a task.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    Clock,
    NoSeed,
    /// Splits share an example, but for this one.
    Overlap(SplitName),
    Class,
    Empty,
    /// Examples of this split have twice the length of training.
    Long(SplitName),
    Unread,
    Text,
    Builds,
    Disk,
    Shape,
    Solved,
}

/// A task of four tokens whose label is its second one.
struct Planted(Fault);

static INFO: TaskInfo = TaskInfo {
    name: "planted",
    title: "Planted",
    summary: "A task with a fault.",
    paper: "none",
    version: 1,
    vocabulary: 256,
    first_id: 1,
    classes: 3,
    towers: 1,
    mask_ratio: 0.15,
    sources: &[Source::Generated],
    probe: true,
};

#[derive(Serialize, Deserialize)]
struct Options {
    #[serde(flatten)]
    drawn: DrawOptions,
}

const DEFAULTS: Options = Options {
    drawn: DrawOptions {
        seed: 0,
        train: 5000,
        val: 30,
        test: 30,
    },
};

impl Task for Planted {
    fn info(&self) -> &'static TaskInfo {
        &INFO
    }

    fn defaults(&self) -> Value {
        json!(DEFAULTS)
    }

    fn shape(&self, options: &Value) -> Result<Shape> {
        if self.0 != Fault::Unread {
            let _: Options = parse(&INFO, &DEFAULTS, options)?;
        }
        let length = if self.0 == Fault::Shape { 20 } else { 8 };
        let shape = Shape::drawn(&INFO, length, &DEFAULTS, options);
        Ok(match self.0 {
            Fault::Long(_) => Shape {
                max_length: 16,
                ..shape
            },
            _ => shape,
        })
    }

    fn build(&self, request: &Request<'_>, writer: &mut SplitWriter) -> Result<()> {
        static CLOCK: AtomicU64 = AtomicU64::new(0);
        let mut options: Options = serde_json::from_value(request.options.clone()).unwrap();
        match self.0 {
            Fault::Disk => {
                return Err(Error::Io {
                    action: "write",
                    path: "train".into(),
                    cause: std::io::ErrorKind::StorageFull.into(),
                });
            }
            Fault::Clock => options.drawn.seed = CLOCK.fetch_add(1, Ordering::Relaxed),
            Fault::NoSeed => options.drawn.seed = 0,
            _ => {}
        }
        let fault = self.0;
        let mut row = 0;
        options
            .drawn
            .draw(&INFO, request.progress, |split, rng, label| {
                row += 1;
                let mut tokens: Vec<u8> = (0..8).map(|_| below(rng, 200) as u8).collect();
                let label = match fault {
                    Fault::Class if label == 2 => 1,
                    Fault::Builds => 7,
                    _ => label,
                };
                if fault == Fault::Solved {
                    tokens = tokens.iter().map(|token| token % 200).collect();
                    tokens[3] = 250 + label;
                }
                match fault {
                    Fault::Overlap(other) if split != other && row % 10 == 0 => {
                        tokens = vec![1, 2, 3];
                    }
                    Fault::Long(long) if split == long => tokens.extend_from_within(..),
                    _ => {}
                }
                if fault == Fault::Empty && row == 5 {
                    tokens.clear();
                }
                writer.row(split, &[&tokens], label)
            })
    }

    fn to_text(&self, towers: &[&[u8]], label: u8) -> String {
        let text = String::from_utf8_lossy(towers[0]);
        match self.0 {
            Fault::Text => format!("{text} {label}"),
            _ => format!("{} {label}", text.escape_debug()),
        }
    }
}

fn asked(task: &'static dyn Task) -> Vec<(&'static str, Outcome)> {
    let subject = Subject::new(task).unwrap();
    let tried = |promise: &'static conformance::ConformanceCheck, subject: &Subject| {
        (promise.check)(subject)
    };
    let asked = conformance::ask(&subject, tried, |_, _| Ok::<(), Error>(()));
    let asked = asked.unwrap().into_iter();
    asked
        .map(|(promise, outcome)| (promise.name, outcome))
        .collect()
}

#[test]
fn a_full_disk_breaks_no_promise() {
    let subject = Subject::new(&Planted(Fault::Disk)).unwrap();
    let mut told = Vec::new();
    let asked = conformance::ask(
        &subject,
        |promise, subject| (promise.check)(subject),
        |promise, _| {
            told.push(promise.name);
            Ok::<(), Error>(())
        },
    );
    let error = asked.unwrap_err().to_string();
    assert!(error.starts_with("cannot write train"), "{error}");
    assert_eq!(told.len(), 2, "{told:?}");
}

#[test]
fn each_fault_breaks_one_promise() {
    static PLANTED: &[(Planted, &str, &str)] = &[
        (
            Planted(Fault::Clock),
            "equal_seeds_give_equal_bytes",
            "differ in train, val and test",
        ),
        (
            Planted(Fault::NoSeed),
            "other_seeds_give_other_bytes",
            "gives the same train, val and test",
        ),
        (
            Planted(Fault::Overlap(SplitName::Val)),
            "no_example_is_in_two_splits",
            "of test also in train",
        ),
        (
            Planted(Fault::Overlap(SplitName::Test)),
            "no_example_is_in_two_splits",
            "of val also in train",
        ),
        (
            Planted(Fault::Overlap(SplitName::Train)),
            "no_example_is_in_two_splits",
            "of test also in val",
        ),
        (
            Planted(Fault::Long(SplitName::Train)),
            "lengths_are_within_max_length",
            "row 0 of train has 16 tokens, more than 8",
        ),
        (
            Planted(Fault::Long(SplitName::Val)),
            "lengths_are_within_max_length",
            "row 0 of val has 16 tokens, more than 8",
        ),
        (
            Planted(Fault::Class),
            "every_class_occurs",
            "no example of train has the label 2 of 3",
        ),
        (
            Planted(Fault::Empty),
            "lengths_are_within_max_length",
            "row 4 of train is empty",
        ),
        (
            Planted(Fault::Unread),
            "options_are_read_and_others_refused",
            "data.surprise",
        ),
        (
            Planted(Fault::Text),
            "any_bytes_are_shown_as_text",
            "control characters",
        ),
        (
            Planted(Fault::Builds),
            "the_data_are_built",
            "label 7 of 3 classes",
        ),
    ];
    for (task, promise, told) in PLANTED {
        let outcomes = asked(task);
        let broken: Vec<_> = outcomes
            .iter()
            .filter_map(|(name, outcome)| match outcome {
                Outcome::Broken(why) => Some((*name, why)),
                _ => None,
            })
            .collect();
        assert_eq!(broken.len(), 1, "{promise}: {broken:?}");
        assert_eq!(broken[0].0, *promise);
        assert!(broken[0].1.contains(told), "{}", broken[0].1);
    }
}

#[test]
fn what_is_no_breach_is_remarked() {
    static FINE: Planted = Planted(Fault::None);
    static SOLVED: Planted = Planted(Fault::Solved);
    static SHORT: Planted = Planted(Fault::Shape);
    static BEYOND: Planted = Planted(Fault::Long(SplitName::Test));
    let remark = |task: &'static dyn Task, promise: &str| {
        let found = asked(task).into_iter().find(|(name, _)| *name == promise);
        match found.unwrap().1 {
            Outcome::Kept(remark) => remark.unwrap_or_default(),
            other => panic!("{promise}: {other:?}"),
        }
    };
    for task in [&FINE, &BEYOND] {
        let asked = asked(task);
        assert!(asked.iter().all(|(_, it)| matches!(it, Outcome::Kept(_))));
    }
    assert_eq!(
        remark(&FINE, "the_data_are_built"),
        "examples: 2000 train, 30 val, 30 test"
    );
    assert!(!remark(&FINE, "trivial_predictors_are_scored").contains("SOLVES"));
    let told = remark(&SOLVED, "trivial_predictors_are_scored");
    assert!(told.contains("bag of tokens SOLVES it"), "{told}");
    let told = remark(&SHORT, "lengths_are_within_max_length");
    assert!(told.contains("8 of 20 tokens"), "{told}");
}

#[test]
fn tasks_here_keep_them() {
    for name in ["toy", "mqar", "retrieval"] {
        conformance::assert_kept(tasks::find(name).unwrap());
    }
}

#[test]
fn own_tasks_are_refused_by_name_and_without_source() {
    static NAMELESS: Planted = Planted(Fault::None);
    let error = tasks::register(&[&NAMELESS]).unwrap_err().to_string();
    assert!(
        error.contains("planted does not return its source code"),
        "{error}"
    );
    let error = tasks::register(&[&tasks::Toy]).unwrap_err().to_string();
    assert!(error.contains("there is a task called toy"), "{error}");
}
