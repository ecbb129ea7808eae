//! `lra diff`: differences between two runs, from their files alone.

use std::path::Path;
use std::process::ExitCode;

use results::{Outcome, Record};
use serde_json::{Value, json};

use crate::cli::score::DiffArgs;
use crate::error::{Class, Classify, Error, Result};
use crate::run_folder::RunFolder;
use crate::spec::{Spec, in_words};
use crate::{cmd, run_folder, stderr};

/// Runs the command.
pub fn run(arguments: &DiffArgs) -> Result<ExitCode> {
    let first = Side::read(&arguments.first)?;
    let second = Side::read(&arguments.second)?;
    let settings = first.spec.differences(&second.spec);
    let facts = facts(&first.record, &second.record);
    match arguments.json {
        true => {
            let settings = settings
                .iter()
                .map(|it| json!({ "setting": it.setting, "first": it.first, "second": it.second }));
            let facts = facts.iter().map(|fact| {
                json!({ "fact": fact.name, "first": fact.values[0], "second": fact.values[1] })
            });
            cmd::print_json(&json!({
                "first": first.record.id,
                "second": second.record.id,
                "settings": settings.collect::<Vec<Value>>(),
                "facts": facts.collect::<Vec<Value>>(),
            }))?;
        }
        false => {
            let mut lines = vec![
                format!("A  {}", first.record.id),
                format!("B  {}", second.record.id),
            ];
            lines.extend(settings.iter().map(|it| {
                let values = [&it.first, &it.second].map(in_words);
                line(&it.setting, &values)
            }));
            lines.extend(facts.iter().map(|fact| line(fact.name, &fact.values)));
            if settings.is_empty() {
                lines.push("  equal settings".to_owned());
            }
            cmd::print(format!("{}\n", lines.join("\n")))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

struct Side {
    spec: Spec,
    record: Record,
}

impl Side {
    fn read(path: &Path) -> Result<Side> {
        let nothing = || {
            Error::usage(format!(
                "{} holds no run: name a run folder",
                path.display()
            ))
        };
        let spec = run_folder::read_spec(path)?.ok_or_else(nothing)?;
        let file = path.join(results::store::FILE);
        if !file.exists() {
            let record = RunFolder::begun(path, &spec)?.ok_or_else(nothing)?;
            return Ok(Side { spec, record });
        }
        // Nothing is trained here, so records of other versions of this program are welcome.
        let record = results::store::read(&file).class(Class::Data)?;
        if let Some(what) = run_folder::other_run(&record, &spec) {
            stderr::line(format!("note: {}: {what}", path.display()));
        }
        Ok(Side { spec, record })
    }
}

/// A fact in which two runs differ.
struct Fact {
    name: &'static str,
    values: [String; 2],
}

/// Returns the lines of something in which two runs differ, with the value of each.
fn line(name: &str, values: &[String; 2]) -> String {
    let [first, second] = values.each_ref().map(|value| disk::escape(value));
    let name = disk::escape(name);
    match name.len() {
        0..=11 => format!("  {name:<11} A: {first}\n              B: {second}"),
        _ => format!("  {name}\n              A: {first}\n              B: {second}"),
    }
}

/// Returns two figures with their unit and as many decimals, at least `least`, as tell them apart;
/// `none` for a record without one.
fn figures(values: [Option<f64>; 2], least: usize, unit: &str) -> [String; 2] {
    if let [Some(one), Some(other)] = values {
        let (one, other) = results::apart(one, other, least);
        return [one, other].map(|it| it + unit);
    }
    values.map(|it| it.map_or("none".to_owned(), |it| format!("{it:.least$}{unit}")))
}

/// Returns the facts in which two records differ, settings aside.
fn facts(first: &Record, second: &Record) -> Vec<Fact> {
    let scores = [first, second].map(|record| record.scores.as_ref());
    let accuracies = scores.map(|it| it.and_then(|it| it.test_accuracy));
    let percent = figures(accuracies.map(|it| it.map(|it| 100.0 * it)), 2, " %");
    let losses = figures(scores.map(|it| it.and_then(|it| it.test_loss)), 4, "");
    let read = |record: &Record, score: usize| {
        let (of, own) = (&record.provenance, record.model.own.as_ref());
        let task = record.task.own.as_ref();
        let changes = of.accepted_changes.join("; ");
        let machine = [
            of.host.cpu.clone(),
            of.device.clone(),
            of.host.instructions.clone(),
        ];
        [
            (
                "outcome",
                match record.outcome {
                    // A killed run has no record that says how far it came.
                    Outcome::Interrupted { step: 0 } => "unfinished".to_owned(),
                    ref outcome => outcome.to_string(),
                },
            ),
            ("test", percent[score].clone()),
            ("test loss", losses[score].clone()),
            (
                "data",
                format!("{} {}", record.task.label, record.task.data_digest),
            ),
            (
                "program",
                format!("lra {} {}", of.versions.lra, of.versions.sources),
            ),
            (
                "built with",
                format!("candle {}, rustc {}", of.versions.candle, of.versions.rustc),
            ),
            (
                "own model",
                own.map_or("none".to_owned(), |own| {
                    let words = [
                        &own.origin(),
                        &own.source,
                        &own.program_digest,
                        &own.process,
                    ];
                    words.map(String::as_str).join(" ").trim_end().to_owned()
                }),
            ),
            (
                "own task",
                task.map_or("none".to_owned(), |own| {
                    format!("{} {}", own.origin(), own.source)
                }),
            ),
            ("machine", machine.join(", ")),
            ("threads", of.threads.to_string()),
            (
                "accepted",
                if changes.is_empty() {
                    "no changes".to_owned()
                } else {
                    changes
                },
            ),
        ]
    };
    let pairs = read(first, 0).into_iter().zip(read(second, 1));
    let differing = pairs.filter(|((_, one), (_, other))| one != other);
    let fact = differing.map(|((name, one), (_, other))| Fact {
        name,
        values: [one, other],
    });
    fact.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::testing::timed;

    /// Changes one fact of a record.
    type Change = fn(&mut Record);

    #[test]
    fn every_fact_that_differs_is_named_with_both_values() {
        let first = timed(1.0);
        let differ = |change: Change| {
            let mut second = first.clone();
            change(&mut second);
            let found = facts(&first, &second).into_iter();
            let found = found.map(|it| (it.name, it.values[0].clone(), it.values[1].clone()));
            found.collect::<Vec<_>>()
        };
        assert_eq!(differ(|_| ()), []);
        assert_eq!(differ(|it| it.speed = None), []);
        let accuracy = |it: &mut Record| it.scores.as_mut().unwrap().test_accuracy = Some(0.50001);
        let fact = |name, one: &str, other: &str| vec![(name, one.to_owned(), other.to_owned())];
        assert_eq!(differ(accuracy), fact("test", "50.000 %", "50.001 %"));
        assert_eq!(
            differ(|it| it.scores.as_mut().unwrap().test_loss = None),
            fact("test loss", "1.0000", "none")
        );
        let changes: [(&str, Change); 8] = [
            ("outcome", |it| {
                it.outcome = Outcome::Interrupted { step: 0 };
            }),
            ("data", |it| it.task.data_digest += "0"),
            ("program", |it| it.provenance.versions.sources += "0"),
            ("built with", |it| it.provenance.versions.rustc += "0"),
            ("machine", |it| it.provenance.host.instructions += "AVX2"),
            ("machine", |it| it.provenance.device += "cuda:0"),
            ("threads", |it| it.provenance.threads = 1),
            ("accepted", |it| {
                it.provenance.accepted_changes.push("data".to_owned());
            }),
        ];
        for (name, change) in changes {
            let names: Vec<&str> = differ(change).iter().map(|it| it.0).collect();
            assert_eq!(names, [name]);
        }
        let unfinished = differ(|it| it.outcome = Outcome::Interrupted { step: 0 });
        assert_eq!(unfinished[0].2, "unfinished");
        assert_eq!(
            differ(|it| it.provenance.threads = 1),
            fact("threads", "3", "1")
        );
    }

    #[test]
    fn a_long_name_has_a_line_of_its_own() {
        let values = ["1".to_owned(), "2\n".to_owned()];
        assert_eq!(
            line("train.steps", &values),
            "  train.steps A: 1\n              B: 2\\n"
        );
        assert_eq!(
            line("train.warmups", &values),
            "  train.warmups\n              A: 1\n              B: 2\\n"
        );
    }
}
