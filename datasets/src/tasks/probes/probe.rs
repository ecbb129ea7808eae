//! The trait of a probe, and the task that is made of it.

use std::collections::HashSet;
use std::ops::Range;

use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::common::Common;
use crate::baseline::{Baseline, bag_of_tokens, majority, score};
use crate::duplicates::row_hash;
use crate::error::{Error, Result};
use crate::options::parse;
use crate::rng::stream;
use crate::{
    Check, Dense, DenseRow, Progress, Request, Shape, Split, SplitName, SplitWriter, Splits, Task,
    TaskInfo,
};

/// Number of draws of one row after which the options are taken to allow too few different rows.
const DRAWS: usize = 1000;

/// Answers of a row.
pub struct Answers {
    /// Label of the whole row.
    pub(super) label: u8,
    /// Positions that have an answer, in order, with the answers.
    pub(super) positions: Vec<(usize, u8)>,
}

/// A row to be drawn.
pub struct Place {
    /// Split of the row.
    pub(super) split: SplitName,
    /// Number of the row in its split.
    pub(super) row: u64,
}

impl Place {
    /// Returns the value for the training and validation splits, or that for the test split.
    pub(super) fn choose<T>(&self, training: T, test: T) -> T {
        match self.split {
            SplitName::Train | SplitName::Val => training,
            SplitName::Test => test,
        }
    }
}

/// A test of one ability. Its options include [`Common`].
pub trait Probe: Sync {
    /// Options with their serialized names.
    type Options: Serialize + DeserializeOwned + AsRef<Common> + Sync;

    /// Returns the description of the task.
    fn info(&self) -> &'static TaskInfo;

    /// Returns the default options.
    fn defaults(&self) -> Self::Options;

    /// Checks options.
    ///
    /// # Errors
    /// [`Error::Option`] naming the option that is impossible.
    fn check(&self, options: &Self::Options) -> Result<()>;

    /// Returns the option that has a part of the label of its own, and the part; `None` if it has
    /// its default, or if there is no such option.
    fn departure(&self, _options: &Self::Options) -> Option<(&'static str, String)> {
        None
    }

    /// Returns the number of classes with these options.
    fn classes(&self, _options: &Self::Options) -> usize {
        self.info().classes
    }

    /// Returns the names of the groups of labels at positions.
    fn groups(&self, options: &Self::Options) -> Vec<String>;

    /// Returns the group of an answer at `position` of a row of `length` tokens.
    fn group(&self, options: &Self::Options, length: usize, position: usize) -> usize;

    /// Draws the tokens of a row.
    fn draw(&self, options: &Self::Options, place: &Place, rng: &mut ChaCha8Rng) -> Vec<u8>;

    /// Returns the answers of a row.
    ///
    /// # Errors
    /// A description of the problem, if the tokens are not a row of this task.
    fn answers(&self, options: &Self::Options, tokens: &[u8]) -> Result<Answers, String>;

    /// Returns the tokens and the label as readable text, for any bytes.
    fn to_text(&self, tokens: &[u8], label: u8) -> String;

    /// Returns the name of a trivial rule, and its answer for a row.
    fn rule(&self) -> (&'static str, fn(&[u8]) -> u8);
}

/// The task of a probe.
pub struct ProbeTask<P>(pub(super) P);

impl<P: Probe> ProbeTask<P> {
    fn read(&self, options: &Value) -> Result<P::Options> {
        let read: P::Options = parse(self.0.info(), &self.0.defaults(), options)?;
        self.0.check(&read)?;
        Ok(read)
    }

    /// Returns the parts of the label by which data with these options differ from the defaults:
    /// the probe's own part, then the maximum length, with a star where that alone does not give
    /// the options, then `whole` for data without labels at positions.
    fn departures(&self, options: &P::Options) -> [Option<String>; 3] {
        let (defaults, mut rest) = (json!(self.0.defaults()), json!(options));
        let (key, own) = self.0.departure(options).unzip();
        for key in ["seed", "dense"].into_iter().chain(key) {
            rest[key] = defaults[key].clone();
        }
        let common = options.as_ref();
        let length = common.max_length;
        let unlike = rest != defaults;
        rest["max_length"] = defaults["max_length"].clone();
        let star = if rest == defaults { "" } else { "*" };
        let whole = (!common.dense).then(|| "whole".to_owned());
        [own, unlike.then(|| format!("{length}{star}")), whole]
    }

    /// Returns the tokens, the label and the labels at positions of a row.
    fn row(
        &self,
        options: &P::Options,
        place: &Place,
        seen: &mut HashSet<[u8; 16]>,
    ) -> Result<(Vec<u8>, u8, DenseRow)> {
        let info = self.0.info();
        let seed = options.as_ref().drawn.seed;
        // A million rows at most: the streams of the splits are 2^32 apart.
        let number = (place.split as u64) << 32 | place.row;
        let mut rng = stream(info.name, seed, number);
        let drawn = (0..DRAWS).find_map(|_| {
            let tokens = self.0.draw(options, place, &mut rng);
            seen.insert(row_hash([&tokens[..]])).then_some(tokens)
        });
        let Some(tokens) = drawn else {
            return Err(Error::Infeasible {
                task: info.name,
                reason: format!(
                    "row {} of {} repeats another one, however often it is drawn: there are too few different rows of these lengths; \
                     ask for fewer rows (train, val, test) or longer ones",
                    place.row, place.split
                ),
            });
        };
        let answers = self.0.answers(options, &tokens);
        let answers = answers.map_err(|problem| Error::Builder {
            task: info.name,
            problem,
        })?;
        let labels = self.labels(options, tokens.len(), &answers);
        Ok((tokens, answers.label, labels))
    }

    fn labels(&self, options: &P::Options, length: usize, answers: &Answers) -> DenseRow {
        let mut labels = DenseRow::unlabelled(length);
        for &(position, target) in &answers.positions {
            let group = self.0.group(options, length, position);
            labels.label(position, target, group as u8);
        }
        labels
    }

    /// Computes the answers of every row of a split again.
    fn check_split(&self, options: &P::Options, split: &Split, name: String) -> Check {
        let problem = |row: usize| {
            let tokens = split.tokens(0, row);
            let answers = match self.0.answers(options, tokens) {
                Ok(answers) => answers,
                Err(problem) => return Some(problem),
            };
            if answers.label != split.label(row) {
                let (wanted, found) = (answers.label, split.label(row));
                return Some(format!("its answer is {wanted}, but its label is {found}"));
            }
            let wanted = self.labels(options, tokens.len(), &answers);
            let found = split.dense(row)?;
            (found != wanted.labels()).then(|| "other answers at its positions".to_owned())
        };
        let rows = (0..split.len()).into_par_iter();
        let wrong = rows.find_map_first(|row| Some((row, problem(row)?)));
        match wrong {
            Some((row, problem)) => Check::new(name, false, format!("row {row}: {problem}")),
            None => Check::new(name, true, "every label follows from the tokens"),
        }
    }
}

impl<P: Probe> Task for ProbeTask<P> {
    fn info(&self) -> &'static TaskInfo {
        self.0.info()
    }

    fn defaults(&self) -> Value {
        json!(self.0.defaults())
    }

    fn shape(&self, options: &Value) -> Result<Shape> {
        let read = self.read(options)?;
        let classes = self.0.classes(&read);
        let groups = self.0.groups(&read);
        let departures = self.departures(&read);
        let common = read.as_ref();
        let shape = Shape::new(self.0.info(), common.max_length as usize, departures);
        Ok(Shape {
            train_length: common.train_length as usize,
            classes,
            dense: common.dense.then_some(Dense { classes, groups }),
            ..shape
        })
    }

    fn build(&self, request: &Request<'_>, writer: &mut SplitWriter) -> Result<()> {
        let options = self.read(request.options)?;
        let Common { drawn, dense, .. } = options.as_ref();
        let sizes = [drawn.train, drawn.val, drawn.test].map(u64::from);
        let mut seen = HashSet::with_capacity(sizes.iter().sum::<u64>() as usize);
        let total = Some(sizes.iter().sum());
        request.progress.begin("drawing examples", total);
        for (split, rows) in SplitName::ALL.into_iter().zip(sizes) {
            for row in 0..rows {
                let place = Place { split, row };
                let (tokens, label, labels) = self.row(&options, &place, &mut seen)?;
                match *dense {
                    true => writer.dense_row(split, &tokens, label, &labels)?,
                    false => writer.row(split, &[&tokens], label)?,
                }
                request.progress.advance(1);
            }
        }
        request.progress.finish();
        writer.promise_distinct();
        Ok(())
    }

    fn to_text(&self, towers: &[&[u8]], label: u8) -> String {
        let tokens = towers.first().copied().unwrap_or_default();
        self.0.to_text(tokens, label)
    }

    fn baselines(&self, splits: &Splits) -> Vec<Baseline> {
        let info = self.0.info();
        let (name, answer) = self.0.rule();
        let rule = score(name, &splits.test, |row| {
            usize::from(answer(splits.test.tokens(0, row)))
        });
        vec![majority(splits, info), bag_of_tokens(splits, info), rule]
    }

    /// Computes every label again from the stored tokens.
    fn verify(&self, splits: &Splits, progress: &dyn Progress) -> Vec<Check> {
        let Ok(options) = self.read(&splits.manifest.options) else {
            return Vec::new();
        };
        progress.begin("computing answers", None);
        let checks = SplitName::ALL.map(|name| {
            let split = splits.get(name);
            self.check_split(&options, split, format!("{name}: answers"))
        });
        progress.finish();
        checks.into()
    }
}

/// Returns the most frequent of the tokens in `range`, counted from its start; the first of equals.
pub(super) fn most_frequent(tokens: &[u8], range: Range<u8>) -> u8 {
    let mut counts = [0_u32; 256];
    for &token in tokens.iter().filter(|token| range.contains(token)) {
        counts[usize::from(token)] += 1;
    }
    let best = range
        .clone()
        .rev()
        .max_by_key(|&token| counts[usize::from(token)]);
    best.map_or(0, |token| token - range.start)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::probes::{MQAR, NEEDLE, SELECTIVE_COPY, STATE_TRACKING};

    fn answered<P: Probe>(task: &ProbeTask<P>, tokens: &[u8]) -> Result<(u8, usize), String> {
        let answers = task.0.answers(&task.0.defaults(), tokens)?;
        Ok((answers.label, answers.positions.len()))
    }

    #[test]
    fn rows_that_are_none_have_no_answers() {
        // Two pairs and two queries.
        let mut pairs = [200; 32];
        pairs[..4].copy_from_slice(&[3, 130, 5, 140]);
        (pairs[6], pairs[20]) = (5, 3);
        let with = |at: usize, token: u8| {
            let mut tokens = pairs;
            tokens[at] = token;
            answered(&MQAR, &tokens)
        };
        assert_eq!(answered(&MQAR, &pairs), Ok((2, 2)));
        for (at, token, told) in [
            (0, 200, "pairs of different keys"),
            (1, 7, "pairs of different keys"),
            (2, 3, "pairs of different keys"),
            (6, 200, "1 queries for 2 pairs"),
            (8, 5, "3 queries for 2 pairs"),
        ] {
            let problem = with(at, token).unwrap_err();
            assert!(problem.contains(told), "{at} {token}: {problem}");
        }

        assert_eq!(
            answered(&SELECTIVE_COPY, &[16, 4, 9, 16, 17, 17]),
            Ok((4, 2))
        );
        for row in [
            &[16, 4, 9, 16, 17, 16][..],
            &[16, 4, 9, 17],
            &[16, 4, 9, 16, 17, 18],
            &[16, 16],
            &[],
        ] {
            assert!(answered(&SELECTIVE_COPY, row).is_err(), "{row:?}");
        }

        assert_eq!(answered(&STATE_TRACKING, &[59]), Ok((59, 1)));
        assert!(answered(&STATE_TRACKING, &[60]).is_err());
        assert!(answered(&STATE_TRACKING, &[]).is_err());

        assert_eq!(answered(&NEEDLE, &[1, 96, 70, 12, 97, 70]), Ok((12, 1)));
        for row in [
            &[1, 96, 70, 12, 97, 71][..],
            &[1, 96, 70, 64, 97, 70],
            &[1, 96, 70, 12, 96, 70],
            &[1, 2, 70, 12, 97, 70],
            &[96, 70],
        ] {
            assert!(answered(&NEEDLE, row).is_err(), "{row:?}");
        }
    }

    #[test]
    fn the_most_frequent_token_is_counted_from_the_start_of_its_range() {
        assert_eq!(most_frequent(&[9, 9, 9, 3, 5, 5, 3], 3..8), 0);
        assert_eq!(most_frequent(&[9, 9, 9, 3, 5, 5], 3..8), 2);
        assert_eq!(most_frequent(&[], 3..8), 0);
    }
}
