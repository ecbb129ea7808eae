//! Parameters of the generator, with the published ones as defaults.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::INFO;
use crate::error::{Error, Result};
use crate::options::{parse, refused, within};

/// Parameters of the generator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// Seed of the data set; the published one was drawn without a fixed seed.
    pub seed: u64,
    /// Number of rows of the training split.
    pub train: usize,
    /// Number of rows of the validation split.
    pub val: usize,
    /// Number of rows of the test split.
    pub test: usize,
    /// Depth at which nodes are digits; the root has depth 1.
    pub max_depth: usize,
    /// Maximum number of arguments of an operator: each number from 2 to this one is equally
    /// likely.
    pub max_args: u32,
    /// Exclusive lower bound on the number of tokens.
    pub min_length: usize,
    /// Exclusive upper bound on the number of tokens.
    pub max_length: usize,
    /// Probability that a node above `max_depth` is an operator rather than a digit. The published
    /// generator calls the same number, 0.25, the probability of a value, but uses it as that of an
    /// operator.
    pub operator_probability: f64,
    /// True if each closing bracket is labelled with the value of its list.
    pub dense: bool,
}

impl Options {
    /// Returns the published parameters, with seed 0.
    pub fn published() -> Options {
        Options {
            seed: 0,
            train: 96_000,
            val: 2_000,
            test: 2_000,
            max_depth: 10,
            max_args: 10,
            min_length: 500,
            max_length: 2000,
            operator_probability: 0.25,
            dense: false,
        }
    }

    /// Returns [`published`](Self::published) as JSON.
    pub fn defaults() -> Value {
        json!(Options::published())
    }

    /// Reads and checks options.
    ///
    /// # Errors
    /// The invalid option, or the reason why there are no such expressions.
    pub fn read(options: &Value) -> Result<Options> {
        let read: Options = parse(&INFO, &Options::published(), options)?;
        within(&INFO, "train", read.train, 1..=10_000_000)?;
        within(&INFO, "val", read.val, 1..=10_000_000)?;
        within(&INFO, "test", read.test, 1..=10_000_000)?;
        within(&INFO, "max_depth", read.max_depth, 2..=64)?;
        within(&INFO, "max_args", read.max_args, 2..=100)?;
        within(&INFO, "max_length", read.max_length, 2..=65_536)?;
        if read.min_length > read.max_length - 2 {
            let allowed = format!("0 to {} (max_length - 2)", read.max_length - 2);
            return Err(refused(&INFO, "min_length", read.min_length, allowed));
        }
        within(
            &INFO,
            "operator_probability",
            read.operator_probability,
            0.01..=0.9,
        )?;
        let longest = read.longest_tree();
        if longest <= read.min_length {
            return Err(Error::Infeasible {
                task: INFO.name,
                reason: format!(
                    "no expression is longer than min_length = {}: max_depth = {} with max_args = {} reaches {longest} tokens",
                    read.min_length, read.max_depth, read.max_args
                ),
            });
        }
        Ok(read)
    }

    /// Returns the number of rows of all splits.
    pub fn rows(&self) -> usize {
        self.train + self.val + self.test
    }

    /// Returns `None` for the published parameters, regardless of the seed and the labels; else the
    /// maximum length, with a star where that is the published one.
    pub(super) fn departure(&self) -> Option<String> {
        let published = Options {
            seed: self.seed,
            dense: self.dense,
            ..Options::published()
        };
        let star = if self.max_length == published.max_length {
            "*"
        } else {
            ""
        };
        (*self != published).then(|| format!("{}{star}", self.max_length))
    }

    /// Returns the number of tokens of the full tree: every node an operator with all its
    /// arguments, digits at the last depth.
    fn longest_tree(&self) -> usize {
        (1..self.max_depth).fold(1_usize, |below, _| {
            below
                .saturating_mul(self.max_args as usize)
                .saturating_add(2)
        })
    }
}
