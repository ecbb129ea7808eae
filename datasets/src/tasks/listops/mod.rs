//! ListOps: the value of a nested expression of MIN, MAX, MED and SM over digits.
//!
//! Nangia and Bowman, 2018, arXiv:1804.06028; lengths and counts as in Tay et al., 2021,
//! arXiv:2011.04006. By default expressions are drawn here with the published parameters, since the
//! published files were drawn without a seed and no generator can reproduce their rows. The source
//! `official` reads the published files. About 17 % of the labels are 9, and as many are 0; the
//! first token alone predicts 36 %.
//!
//! With `dense` every closing bracket has a label too, the value of its list (`dense.rs`).

use rayon::prelude::*;
use serde_json::Value;

use self::evaluate::walk;
use crate::baseline::{Baseline, bag_of_tokens, first_token, majority};
use crate::error::Result;
use crate::{
    Check, Key, Progress, Protocol, Remote, Request, Shape, Source, Split, SplitName, SplitWriter,
    Splits, Task, TaskInfo, remote,
};

mod dense;
mod evaluate;
mod generate;
mod options;
mod published;
mod tree;
mod vocabulary;

pub use evaluate::{Malformed, Operator, evaluate, evaluate_text};
pub use generate::{Effort, generate};
pub use options::Options;
pub use vocabulary::{CLOSE, FIRST_OPERATOR, TOKENS, Token, tokenizer};

static INFO: TaskInfo = TaskInfo {
    name: "listops",
    title: "ListOps",
    summary: "The value of a nested expression of MIN, MAX, MED and SM over digits.",
    paper: "Nangia and Bowman, 2018, arXiv:1804.06028; Tay et al., 2021, arXiv:2011.04006",
    version: 1,
    vocabulary: vocabulary::IDS,
    first_id: 1,
    classes: 10,
    towers: 1,
    mask_ratio: 0.1,
    sources: &[Source::Generated, Source::Official],
    probe: false,
};

/// The ListOps task.
pub struct ListOps;

impl Task for ListOps {
    fn info(&self) -> &'static TaskInfo {
        &INFO
    }

    fn defaults(&self) -> Value {
        Options::defaults()
    }

    fn shape(&self, options: &Value) -> Result<Shape> {
        let options = Options::read(options)?;
        let departures = [
            options.departure(),
            options.dense.then(|| "dense".to_owned()),
        ];
        let shape = Shape::new(&INFO, options.max_length, departures);
        Ok(shape.with_dense(options.dense.then(dense::kind)))
    }

    /// Returns a key in which both protocols are equal, as they have the same splits, and in which
    /// of the options only `max_length` and `dense` apply to published files.
    fn identity(&self, key: &Key) -> Key {
        let mut options = key.options.clone();
        if key.source == Source::Official {
            options = Options::defaults();
            for kept in ["max_length", "dense"] {
                if let Some(value) = key.options.get(kept) {
                    options[kept] = value.clone();
                }
            }
            // The published lower bound, so that published files keep their label; less where that
            // would leave no room under max_length. The reader takes expressions of any length up
            // to max_length.
            let room = key.options["max_length"]
                .as_u64()
                .unwrap_or_default()
                .saturating_sub(2);
            options["min_length"] = room.min(Options::published().min_length as u64).into();
        }
        Key {
            source: key.source,
            protocol: Protocol::Clean,
            options,
        }
    }

    fn reads(&self, name: &str) -> bool {
        published::reads(name)
    }

    fn remote(&self) -> &'static [Remote] {
        &remote::RELEASE
    }

    fn build(&self, request: &Request<'_>, writer: &mut SplitWriter) -> Result<()> {
        let options = Options::read(request.options)?;
        if request.source == Source::Official {
            return published::read(request.raw, &options, request.progress, writer);
        }
        let effort = generate(&options, request.progress, |split_name, tokens, label| {
            dense::write(&options, writer, split_name, tokens, label)
        })?;
        writer.promise_distinct();
        writer.note(format!(
            "{} trees drawn, {:.2} % of them of the right length, {} repeated and dropped",
            effort.attempts,
            100.0 * effort.accepted as f64 / effort.attempts as f64,
            effort.repeated,
        ));
        if 100 * effort.repeated > effort.accepted {
            writer.note(
                "short expressions repeat, and their first copies lie in train: val and test have longer ones on average",
            );
        }
        Ok(())
    }

    fn to_text(&self, towers: &[&[u8]], label: u8) -> String {
        tree::to_text(towers.first().copied().unwrap_or_default(), label)
    }

    /// Returns the length, the depth of the deepest list (1 for a list of digits) and the number of
    /// lists.
    fn traits(&self, towers: &[&[u8]]) -> Vec<(&'static str, u64)> {
        let tokens = towers.first().copied().unwrap_or_default();
        let (mut depth, mut lists) = (0, 0);
        let stored = tokens.iter().map(|&stored| Token::new(stored));
        // What is no expression has the lists that are read before the fault.
        let _ = walk(stored, |list| {
            depth = depth.max(list.depth as u64);
            lists += 1;
        });
        let length = tokens.len() as u64;
        vec![("length", length), ("depth", depth), ("lists", lists)]
    }

    fn baselines(&self, splits: &Splits) -> Vec<Baseline> {
        vec![
            majority(splits, &INFO),
            first_token(splits, &INFO),
            bag_of_tokens(splits, &INFO),
        ]
    }

    /// Evaluates every stored expression again.
    fn verify(&self, splits: &Splits, progress: &dyn Progress) -> Vec<Check> {
        let total = SplitName::ALL
            .into_iter()
            .map(|split_name| splits.get(split_name).len() as u64)
            .sum();
        progress.begin("evaluating expressions", Some(total));
        let checks = SplitName::ALL.map(|split_name| {
            let split = splits.get(split_name);
            let check = check_answers(split, format!("{}: answers", split_name.name()));
            progress.advance(split.len() as u64);
            let name = format!("{}: values at brackets", split_name.name());
            [Some(check), dense::check(split, name)]
        });
        progress.finish();
        checks.into_iter().flatten().flatten().collect()
    }
}

fn check_answers(split: &Split, name: String) -> Check {
    let wrong = (0..split.len()).into_par_iter().find_map_first(|row| {
        let label = split.label(row);
        match evaluate(split.tokens(0, row)) {
            Ok(value) if value == label => None,
            Ok(value) => Some(format!("row {row} is {value}, but its label is {label}")),
            Err(problem) => Some(format!("row {row}: {problem}")),
        }
    });
    match wrong {
        Some(problem) => Check::new(name, false, problem),
        None => Check::new(name, true, "every expression evaluates to its label"),
    }
}
