//! The rows of a baseline: figures of each cell, combined from the records of its seeds.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::ErrorKind;

use serde::{Deserialize, Serialize};

use crate::equivalence::test_rows;
use crate::format::counted;
use crate::markup::{shown, visible};
use crate::pivot::mixture;
use crate::published::{model_rank, task_rank};
use crate::record::{Outcome, Record, SEVERAL, Scores};
use crate::stats::{Sample, largest_deviation};
use crate::store::{self, Loaded};
use crate::{Error, Result, metrics};

/// The cells of one state of the code, in the order of the tables.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Baseline {
    /// One row per cell.
    pub rows: Vec<Row>,
}

/// Settings that identify a cell: cells with equal keys can be compared.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Key {
    /// Label of the task, such as `listops@256`.
    pub task: String,
    /// Source of its data.
    pub source: String,
    /// Protocol of its splits.
    pub protocol: String,
    /// Registry name of the model.
    pub model: String,
    /// Its variant.
    pub variant: String,
    /// Recipe.
    pub recipe: String,
    /// Changes made by the command line to values of the recipe, separated by spaces.
    pub set: String,
    /// Number format of the arithmetic.
    pub precision: String,
    /// Device.
    pub device: String,
}

/// One cell.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// Identity of the cell.
    pub key: Key,
    /// Digest of the data.
    pub data: String,
    /// Name of the processor that ran it; of several among its seeds, all.
    pub processor: String,
    /// The vector instructions it ran on, which determine the rounding of sums; empty if unknown.
    pub instructions: String,
    /// Threads it was allowed; 0 if unknown, or if they differ between its seeds.
    pub threads: usize,
    /// Number of simultaneous runs of its sweep, which shared the machine; absent if unknown, and 0
    /// if it differs between its seeds.
    pub jobs: Option<usize>,
    /// The first characters of the digests of its settings, one per seed, separated by spaces.
    pub spec: String,
    /// Trained parameters.
    pub parameters: Option<u64>,
    /// Outcome of its runs: one word if they ended alike, such as `scored`, else how many ended
    /// how, such as `2 scored, 1 diverged`. Older files have the first word that is not `scored`.
    pub outcome: String,
    /// Its seeds, separated by spaces.
    pub seeds: String,
    /// Rows of the test split.
    pub test_rows: usize,
    /// Mean test accuracy over the seeds, a fraction.
    pub accuracy: Option<f64>,
    /// Its sample standard deviation over the seeds.
    pub accuracy_deviation: Option<f64>,
    /// Mean of the last training losses, in nats.
    pub loss: Option<f64>,
    /// Digest over all scores of all seeds, on validation and test; empty if a log was missing, and
    /// in older files.
    pub scores: String,
    /// Digest over what is computed from these scores for all seeds, such as the bits gained and the
    /// best step; empty if `scores` is, and in older files.
    pub further_scores: String,
    /// Digest over all losses of all seeds; empty if a log was missing or held no step.
    pub trace: String,
    /// Digest over all norms of gradients of all seeds; empty if `trace` is.
    pub gradients: String,
    /// Mean of these norms.
    pub gradient_norm: Option<f64>,
    /// The highest peak of its runs.
    pub peak_bytes: Option<u64>,
    /// Method by which the peak was measured; of several among its seeds, all.
    pub memory_method: String,
    /// Mean over the seeds of the median steps per second.
    pub steps_per_second: Option<f64>,
    /// Relative standard error of that speed: from the spread of the steps or of the seeds,
    /// whichever is larger.
    pub speed_error: Option<f64>,
    /// Reason why its logs cannot be judged; never stored.
    pub damaged: Option<String>,
    /// Builds, instruction sets or programs that its seeds do not share, in words.
    pub mixture: Option<String>,
    /// The log of a scored run that is missing, in words, so that losses on the way cannot be
    /// compared; never stored.
    pub unlogged: Option<String>,
}

impl Baseline {
    /// Combines the records of a folder into cells. Of runs with the same seed, the latest counts.
    /// [`Row::damaged`] of a cell is set if it has an impossible figure or a damaged log.
    ///
    /// # Errors
    /// The system refuses to read a log, which says nothing about it.
    pub fn of(loaded: &Loaded) -> Result<Baseline> {
        let mut cells: BTreeMap<(usize, usize, Key), BTreeMap<u64, usize>> = BTreeMap::new();
        let mut contradicted: HashMap<Key, String> = HashMap::new();
        // All runs of a cell and a seed.
        let mut alike: HashMap<(Key, u64), Vec<usize>> = HashMap::new();
        for (index, record) in loaded.records.iter().enumerate() {
            let ranks = (task_rank(&record.task.name), model_rank(&record.model.name));
            let key = Key::of(record);
            let seeds = cells.entry((ranks.0, ranks.1, key.clone())).or_default();
            let earlier = seeds.get(&record.seed).copied();
            let same = alike.entry((key.clone(), record.seed)).or_default();
            let other = same
                .iter()
                .find(|at| contradict(&loaded.records[**at], record));
            if let Some(at) = other.copied() {
                let folders = [at, index].map(|at| shown(&loaded.folders[at]));
                let [one, other] = folders;
                contradicted.entry(key).or_insert_with(|| {
                    format!("{one} and {other} are runs with the same settings and seed, and differ in scores: keep one of them")
                });
            }
            same.push(index);
            let earlier = earlier.map(|at| &loaded.records[at].provenance.created);
            if earlier.is_none_or(|created| *created <= record.provenance.created) {
                seeds.insert(record.seed, index);
            }
        }
        let rows = cells.into_iter().map(|((_, _, key), seeds)| {
            let runs: Vec<usize> = seeds.into_values().collect();
            let mut row = Row::of(key, loaded, &runs)?;
            let record = loaded.folders[runs[0]].join(store::FILE);
            let impossible = row.check().err();
            let impossible = impossible.map(|reason| format!("{}: {reason}", shown(&record)));
            let contradicted = contradicted.remove(&row.key);
            row.damaged = row.damaged.take().or(impossible).or(contradicted);
            Ok(row)
        });
        Ok(Baseline {
            rows: rows.collect::<Result<_>>()?,
        })
    }
}

impl Key {
    /// Returns the cell that a record belongs to.
    pub fn of(record: &Record) -> Key {
        let set = record.recipe.changing_overrides();
        Key {
            task: visible(&record.task.label),
            source: visible(&record.task.source),
            protocol: visible(&record.task.protocol),
            model: visible(&record.model.name),
            variant: visible(&record.model.variant),
            recipe: visible(&record.recipe.name),
            set: visible(&set.join(" ")),
            precision: visible(&record.provenance.precision),
            device: visible(&record.provenance.device),
        }
    }

    /// Returns the task, and the mark for synthetic data.
    pub(super) fn question(&self) -> String {
        match self.source.as_str() {
            "synthetic" => format!("{} (synthetic)", self.task),
            _ => self.task.clone(),
        }
    }

    /// Returns whether two cells have the same model and task. Their settings may differ.
    pub(super) fn same_model_and_task(&self, other: &Key) -> bool {
        (&self.task, &self.source, &self.model) == (&other.task, &other.source, &other.model)
    }

    /// Returns all of the key but the model. The ratio of two cells' speeds is meaningful if they
    /// agree in it.
    pub(super) fn but_for_the_model(&self) -> [&str; 7] {
        [
            &self.task,
            &self.source,
            &self.protocol,
            &self.recipe,
            &self.set,
            &self.precision,
            &self.device,
        ]
    }
}

impl Row {
    /// Combines the runs of one cell, given by their indices in the order of their seeds.
    ///
    /// # Errors
    /// The system refuses to read a log.
    fn of(key: Key, loaded: &Loaded, runs: &[usize]) -> Result<Row> {
        let records: Vec<&Record> = runs.iter().map(|at| &loaded.records[*at]).collect();
        let first = records[0];
        let speed = mean(&records, speed_of);
        let error_of_steps = mean(&records, |record| {
            let timed = record.speed.as_ref()?.timed_steps;
            let rate = record.speed.as_ref()?.steps_per_second;
            // A normal distribution has eight tenths of its mass within 2.56 standard deviations,
            // and the error of its median is 1.25 times that of its mean.
            let deviation = (rate.p90 - rate.p10) / 2.56;
            Some(1.25 * deviation / rate.median / (timed.max(1) as f64).sqrt())
        });
        // Runs that follow each other find the machine under another load each, which the steps of
        // one run do not show.
        let error_of_seeds = speed.as_ref().and_then(|it| Some(it.deviation? / it.mean));
        let speed_error = error_of_steps.map(|steps| {
            let largest = steps.mean.max(error_of_seeds.unwrap_or(0.0));
            largest / (steps.count as f64).sqrt()
        });
        let accuracy = mean(&records, Record::test_accuracy);
        let peaks = mean(&records, |record| Some(peak_of(record)? as f64));
        let peaks = peaks.and_then(|_| records.iter().filter_map(|record| peak_of(record)).max());
        let (logs, damaged) = match Logs::read(loaded, runs) {
            Ok(logs) => (logs, None),
            Err(error) if error.is_of_content() => (Logs::default(), Some(error.to_string())),
            Err(error) => return Err(error),
        };
        let changed = records.iter().find_map(|record| {
            let (id, changes) = (&record.id, record.changed_on_the_way()?);
            Some(format!(
                "{id} was resumed after changes, so its figures are those of no program: {changes}"
            ))
        });
        let unlike = unlike(&records);
        let joined = |of: fn(&Record) -> String| {
            let words: Vec<String> = records.iter().map(|record| of(record)).collect();
            words.join(" ")
        };
        let unknown = |record: &&&Record| {
            record.provenance.host.instructions != first.provenance.host.instructions
        };
        // No seed speaks for others that ran elsewhere or otherwise.
        let all = |of: fn(&Record) -> Option<&str>| {
            let values: BTreeSet<&str> = records.iter().filter_map(|record| of(record)).collect();
            visible(&values.into_iter().collect::<Vec<_>>().join(" | "))
        };
        let made: Vec<_> = records.iter().map(|record| &record.provenance).collect();
        let threads = first.provenance.threads;
        let known: Option<Vec<usize>> = made.iter().map(|made| made.jobs).collect();
        Ok(Row {
            key,
            data: visible(&first.task.data_digest),
            processor: all(|record| Some(&record.provenance.host.cpu)),
            instructions: match records.iter().find(unknown) {
                Some(_) => String::new(),
                None => visible(&first.provenance.host.instructions),
            },
            threads: match made.iter().all(|made| made.threads == threads) {
                true => threads,
                false => 0,
            },
            jobs: known.map(|jobs| match jobs.iter().all(|one| *one == jobs[0]) {
                true => jobs[0],
                false => SEVERAL,
            }),
            spec: visible(
                joined(|record| record.provenance.spec_digest.chars().take(16).collect()).trim(),
            ),
            parameters: Some(first.model.parameters).filter(|count| *count > 0),
            outcome: ended(&records),
            seeds: joined(|record| record.seed.to_string()),
            test_rows: test_rows(&records),
            accuracy: accuracy.map(|sample| sample.mean),
            accuracy_deviation: accuracy.and_then(|sample| sample.deviation),
            loss: mean(&records, |record| record.scores.as_ref()?.train_loss)
                .map(|sample| sample.mean),
            scores: logs.scores,
            further_scores: logs.further_scores,
            trace: logs.trace,
            unlogged: logs.missing,
            gradients: logs.gradients,
            gradient_norm: logs.gradient_norm,
            peak_bytes: peaks,
            memory_method: all(|record| Some(&record.memory.as_ref()?.method)),
            steps_per_second: speed.map(|sample| sample.mean),
            speed_error,
            damaged: damaged.or(changed).or(unlike),
            mixture: mixture(&records),
        })
    }
}

/// Returns whether two runs with one specification on one kind of processor were scored
/// differently, so that neither can stand for the cell.
fn contradict(a: &Record, b: &Record) -> bool {
    let scored = |record: &Record| record.outcome == Outcome::Scored;
    let alike = |of: fn(&Record) -> &str| of(a) == of(b);
    scored(a)
        && scored(b)
        && alike(|record| &record.provenance.spec_digest)
        && alike(|record| &record.task.data_digest)
        && alike(|record| &record.provenance.versions.sources)
        && alike(|record| &record.provenance.host.instructions)
        && a.scores != b.scores
}

/// Returns the reason why runs are no seeds of one cell: other data, or another source of their
/// model.
fn unlike(records: &[&Record]) -> Option<String> {
    let first = records[0];
    let source = |record: &Record| record.model.own.as_ref().map(|own| own.source.clone());
    records.iter().find_map(|record| {
        let what = match record.task.data_digest == first.task.data_digest {
            false => "data",
            true if source(record) != source(first) => "source of the model",
            true => return None,
        };
        Some(format!(
            "{} and {} are not seeds of one cell: the {what} changed in between; keep the runs of one version",
            first.id, record.id
        ))
    })
}

/// Largest number of test rows of a baseline.
const MOST_ROWS: usize = 1 << 40;

impl Row {
    /// Returns whether every seed was scored.
    #[must_use]
    pub fn all_scored(&self) -> bool {
        self.outcome == Outcome::Scored.word()
    }

    /// Returns the number of seeds that were scored.
    pub(super) fn scored(&self) -> usize {
        let mut counts = self.outcome.split(", ");
        let scored = counts.find_map(|count| count.strip_suffix(" scored")?.parse().ok());
        scored.unwrap_or_else(|| self.seeds.split_whitespace().count())
    }

    /// Refuses impossible figures, with the reason.
    pub(super) fn check(&self) -> Result<(), String> {
        let share = |value: f64| (0.0..=1.0).contains(&value);
        let size = |value: f64| value.is_finite() && value >= 0.0;
        let rate = |value: f64| value.is_finite() && value > 0.0;
        type Rule<'a> = (&'a str, Option<f64>, fn(f64) -> bool, &'a str);
        const SHARE: &str = "a share from 0 to 1";
        const SIZE: &str = "a number from 0 on";
        const RATE: &str = "a number above 0";
        let whole = |count: Option<u64>| count.map(|count| count as f64);
        let rules: [Rule; 9] = [
            ("accuracy", self.accuracy, share, SHARE),
            ("accuracy_deviation", self.accuracy_deviation, share, SHARE),
            ("loss", self.loss, size, SIZE),
            ("gradient_norm", self.gradient_norm, size, SIZE),
            ("peak_bytes", whole(self.peak_bytes), rate, RATE),
            ("parameters", whole(self.parameters), rate, RATE),
            ("jobs", whole(self.jobs.map(|jobs| jobs as u64)), size, SIZE),
            ("steps_per_second", self.steps_per_second, rate, RATE),
            ("speed_error", self.speed_error, size, SIZE),
        ];
        for (name, value, is_possible, expected) in rules {
            if let Some(value) = value.filter(|value| !is_possible(*value)) {
                return Err(format!("{name} is {value}, which is not {expected}"));
            }
        }
        if self.outcome.trim().is_empty() {
            return Err(
                "outcome is empty: it says how the runs ended, such as `scored`".to_owned(),
            );
        }
        let is_word = |word: &str| Outcome::WORDS.contains(&word);
        let is_count = |part: &str| {
            part.split_once(' ')
                .is_some_and(|(count, word)| count.parse::<usize>().is_ok() && is_word(word))
        };
        if !is_word(&self.outcome) && !self.outcome.split(", ").all(is_count) {
            return Err(format!(
                "outcome is '{}': it says how the runs ended ({})",
                self.outcome,
                Outcome::WORDS.join(", ")
            ));
        }
        for (name, word) in [("task", &self.key.task), ("model", &self.key.model)] {
            if word.is_empty() {
                return Err(format!("{name} is empty"));
            }
        }
        for (name, digest) in [
            ("scores", &self.scores),
            ("further_scores", &self.further_scores),
            ("trace", &self.trace),
            ("gradients", &self.gradients),
        ] {
            let is_whole = digest.len() == 64 && digest.bytes().all(|it| it.is_ascii_hexdigit());
            if !digest.is_empty() && !is_whole {
                return Err(format!("{name} is '{digest}', which is not a SHA-256"));
            }
        }
        if self.test_rows > MOST_ROWS {
            return Err(format!(
                "test_rows is {}, more than any file has",
                self.test_rows
            ));
        }
        if self.accuracy.is_some() && self.test_rows == 0 {
            return Err("test_rows is 0, although there is an accuracy".to_owned());
        }
        let mut seeds = BTreeSet::new();
        for seed in self.seeds.split_whitespace() {
            let number: u64 = seed
                .parse()
                .map_err(|_| format!("the seed `{seed}` is not a whole number"))?;
            if !seeds.insert(number) {
                return Err(format!("the seed {number} occurs twice"));
            }
        }
        if seeds.is_empty() {
            return Err("it has no seeds".to_owned());
        }
        let counts: Vec<usize> = match is_word(&self.outcome) {
            true => vec![seeds.len()],
            false => {
                let parts = self.outcome.split(", ");
                parts
                    .filter_map(|it| it.split_once(' ')?.0.parse().ok())
                    .collect()
            }
        };
        if counts.contains(&0) || counts.iter().sum::<usize>() != seeds.len() {
            return Err(format!(
                "outcome is '{}', which does not fit the {}",
                self.outcome,
                counted(seeds.len() as u64, "seed")
            ));
        }
        let mut endings = self.outcome.split(", ");
        let scored = endings.any(|it| it.ends_with(Outcome::Scored.word()));
        if scored != self.accuracy.is_some() {
            let accuracy = if scored { "no accuracy" } else { "an accuracy" };
            return Err(format!(
                "outcome is {}, but there is {accuracy}",
                self.outcome
            ));
        }
        match (self.scored(), self.accuracy, self.accuracy_deviation) {
            (1, _, Some(_)) => Err("accuracy_deviation is given, but one seed has none".to_owned()),
            (count, Some(mean), Some(deviation)) => {
                let most = largest_deviation(count, mean);
                match deviation > most + 1e-9 {
                    true => Err(format!(
                        "accuracy_deviation is {deviation}, more than {most:.3}, the most that {count} seeds with this mean have"
                    )),
                    false => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }
}

/// Returns how runs ended, in words: the scored ones first.
fn ended(records: &[&Record]) -> String {
    let mut words: Vec<&str> = records.iter().map(|record| record.outcome.word()).collect();
    words.sort_by_key(|word| (*word != Outcome::Scored.word(), *word));
    let mut groups = words.chunk_by(|a, b| a == b);
    match (groups.next(), groups.next()) {
        (Some(all), None) => all[0].to_owned(),
        _ => {
            let groups = words.chunk_by(|a, b| a == b);
            let counts = groups.map(|group| format!("{} {}", group.len(), group[0]));
            counts.collect::<Vec<_>>().join(", ")
        }
    }
}

/// Returns the median speed of a run, if it was measured.
fn speed_of(record: &Record) -> Option<f64> {
    let rate = record.speed.as_ref()?.steps_per_second.median;
    (rate > 0.0).then_some(rate)
}

/// Returns the peak memory of a run, if it was measured.
fn peak_of(record: &Record) -> Option<u64> {
    let peak = record.memory.as_ref()?.peak_bytes;
    (peak > 0).then_some(peak)
}

/// Returns the mean of a figure over the scored runs, or over all runs if none was scored. `None`
/// if one of them lacks it, since a mean over the others would hide that.
fn mean(records: &[&Record], of: fn(&Record) -> Option<f64>) -> Option<Sample> {
    let scored = |record: &&&Record| record.outcome == Outcome::Scored;
    let any = records.iter().any(|record| scored(&record));
    let asked = records.iter().filter(|record| !any || scored(record));
    let figure = |record: &&Record| of(record).filter(|figure| figure.is_finite());
    let values: Option<Vec<f64>> = asked.map(figure).collect();
    Sample::of(&values?)
}

/// Contents of the logs of a cell's runs; empty if a log is missing or holds no step.
#[derive(Default)]
struct Logs {
    scores: String,
    further_scores: String,
    trace: String,
    gradients: String,
    gradient_norm: Option<f64>,
    /// The first log that a scored run lacks, in words.
    missing: Option<String>,
}

impl Logs {
    /// Reads the logs of a cell's runs.
    ///
    /// # Errors
    /// One is damaged, or lacks steps of a scored run.
    fn read(loaded: &Loaded, runs: &[usize]) -> Result<Logs> {
        let mut lines = Vec::new();
        let mut scores = Vec::new();
        let mut further_scores = Vec::new();
        let mut norms = Vec::new();
        let mut whole = true;
        let mut missing = None;
        for &at in runs {
            let (record, folder) = (&loaded.records[at], &loaded.folders[at]);
            let path = folder.join(metrics::FILE);
            let made = record.scores.as_ref().is_some_and(|it| it.steps > 0);
            let scored = made && record.outcome == Outcome::Scored;
            let log = match metrics::read(folder) {
                Err(Error::Io { cause, .. }) if cause.kind() == ErrorKind::NotFound => {
                    whole = false;
                    if scored && missing.is_none() {
                        missing = Some(format!("{} is missing", shown(&path)));
                    }
                    continue;
                }
                log => log?,
            };
            let steps = metrics::gradient_norms(&log);
            if steps.is_empty() {
                if scored {
                    return Err(Error::NotALog {
                        path,
                        line: 1,
                        reason: "the log of a scored run holds no training step".to_owned(),
                    });
                }
                whole = false;
            }
            if let Some((line, reason)) = metrics::fault(folder, &log, record) {
                return Err(Error::NotALog { path, line, reason });
            }
            norms.extend(steps);
            scores.extend(metrics::scores(&log, record));
            further_scores.extend(record.scores.iter().flat_map(Scores::further));
            lines.extend(log);
        }
        if !whole {
            return Ok(Logs {
                missing,
                ..Logs::default()
            });
        }
        Ok(Logs {
            scores: metrics::digest(scores.into_iter()),
            further_scores: metrics::digest(further_scores.into_iter()),
            trace: metrics::trace(&lines),
            gradients: metrics::digest(norms.iter().copied()),
            gradient_norm: Sample::of(&norms)
                .map(|sample| sample.mean)
                .filter(|mean| mean.is_finite()),
            missing: None,
        })
    }
}
