//! Generator of expressions: random trees, kept when their length is within bounds and they are
//! new.
//!
//! As published, a tree grows from the root: a node above the greatest depth is an operator with
//! probability 1/4, else a digit. Most trees are a single digit or far too long, so about one in
//! twelve is kept. Lengths count tokens, closing brackets included. There are three differences,
//! none of which changes the distribution: the operator is drawn before its arguments (so that
//! tokens can be written immediately), a tree is dropped as soon as it must become too long, and
//! numbers come from ChaCha8.
//!
//! Repeated trees are dropped in the order of drawing, and train is filled first. If trees repeat,
//! which those of published length hardly do, the frequent short ones lie in train, so train has
//! shorter expressions than val and test. The published generator deals its different trees in no
//! particular order.
//!
//! Attempts are numbered. Chunk c is attempts c·CHUNK to (c+1)·CHUNK - 1 and draws from stream c,
//! so chunks can be made by any number of threads. They are merged by number, so the rows depend
//! only on the options.

use std::collections::HashSet;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::Rng;
use rayon::prelude::*;

use super::evaluate::{Arguments, Operator};
use super::options::Options;
use super::vocabulary::{CLOSE, FIRST_OPERATOR};
use crate::duplicates::{RowHash, row_hash};
use crate::error::{Error, Result};
use crate::rng::{below, stream};
use crate::{Progress, SplitName};

/// Attempts per random stream.
const CHUNK: u64 = 1024;

/// Number of chunks made in parallel before they are merged; about six megabytes of published
/// expressions.
const WAVE: u64 = 64;

/// Length of a stretch of attempts over which progress is judged.
const PATIENCE: u64 = 1 << 22;
/// Minimum number of new expressions in a stretch, below which the generator gives up.
const LEAST: usize = 64;

/// Effort that drawing a data set took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Effort {
    /// Number of trees begun, up to the one that became the last row.
    pub attempts: u64,
    /// Number of trees among them whose length was within bounds.
    pub accepted: u64,
    /// Number of accepted trees that had been drawn before, and were dropped.
    pub repeated: u64,
}

/// Draws the rows of train, val and test, and passes them to `keep` in that order.
///
/// # Errors
/// [`Error::Infeasible`] if new expressions become too rare, or the error of `keep`.
pub fn generate(
    options: &Options,
    progress: &dyn Progress,
    mut keep: impl FnMut(SplitName, &[u8], u8) -> Result<()> + Send,
) -> Result<Effort> {
    let wanted = options.rows();
    progress.begin("drawing expressions", Some(wanted as u64));
    let mut merge = Merge::new(options);
    let mut size = 4;
    let mut ready = wave(options, 0, size);
    let mut next = size;
    loop {
        progress.check()?;
        // The next wave is drawn while this one is merged, unless this one should be enough.
        size = (2 * size).min(WAVE);
        let rows: usize = ready.iter().map(|chunk| chunk.rows.len()).sum();
        let enough = merge.kept + rows >= wanted;
        let before = merge.kept;
        let (merged, following) = rayon::join(
            || merge.chunks(&ready, &mut keep),
            || {
                if enough {
                    Vec::new()
                } else {
                    wave(options, next, size)
                }
            },
        );
        merged?;
        progress.advance((merge.kept - before) as u64);
        if merge.kept == wanted {
            progress.finish();
            return Ok(merge.effort);
        }
        ready = if enough {
            wave(options, next, size)
        } else {
            following
        };
        next += size;
    }
}

/// Draws the chunks `first` to `first + count - 1`, in order.
fn wave(options: &Options, first: u64, count: u64) -> Vec<Chunk> {
    (first..first + count)
        .into_par_iter()
        .map(|number| Chunk::draw(options, number))
        .collect()
}

/// Accepted trees of `CHUNK` attempts.
struct Chunk {
    first_attempt: u64,
    tokens: Vec<u8>,
    rows: Vec<Row>,
}

struct Row {
    attempt: u64,
    /// End of its tokens; they start where the previous row ends.
    end: usize,
    label: u8,
    hash: RowHash,
}

impl Chunk {
    fn draw(options: &Options, number: u64) -> Chunk {
        let mut tree = Tree::new(options, stream("listops", options.seed, number));
        let mut rows = Vec::new();
        let first_attempt = number * CHUNK;
        let mut start = 0;
        for attempt in first_attempt..first_attempt + CHUNK {
            let label = tree.grow(start);
            let length = tree.tokens.len() - start;
            match label {
                Some(label) if length > options.min_length => {
                    let hash = row_hash([&tree.tokens[start..]]);
                    start = tree.tokens.len();
                    rows.push(Row {
                        attempt,
                        end: start,
                        label,
                        hash,
                    });
                }
                _ => tree.tokens.truncate(start),
            }
        }
        Chunk {
            first_attempt,
            tokens: tree.tokens,
            rows,
        }
    }
}

/// Merger of chunks, in order: it drops repeated trees, fills the splits, counts, and detects a
/// lack of progress.
struct Merge<'a> {
    options: &'a Options,
    seen: HashSet<RowHash>,
    kept: usize,
    effort: Effort,
    /// Number of rows kept when the present stretch of attempts began.
    stretch_kept: usize,
    stretch_end: u64,
}

impl<'a> Merge<'a> {
    fn new(options: &'a Options) -> Self {
        Merge {
            options,
            seen: HashSet::with_capacity(options.rows()),
            kept: 0,
            effort: Effort::default(),
            stretch_kept: 0,
            stretch_end: PATIENCE,
        }
    }

    fn chunks(
        &mut self,
        chunks: &[Chunk],
        keep: &mut impl FnMut(SplitName, &[u8], u8) -> Result<()>,
    ) -> Result<()> {
        let Options { train, val, .. } = *self.options;
        for chunk in chunks {
            let mut start = 0;
            for row in &chunk.rows {
                if self.kept == self.options.rows() {
                    return Ok(());
                }
                let tokens = &chunk.tokens[start..row.end];
                start = row.end;
                self.effort.accepted += 1;
                self.effort.attempts = row.attempt + 1;
                if !self.seen.insert(row.hash) {
                    self.effort.repeated += 1;
                    continue;
                }
                let split = match self.kept {
                    kept if kept < train => SplitName::Train,
                    kept if kept < train + val => SplitName::Val,
                    _ => SplitName::Test,
                };
                keep(split, tokens, row.label)?;
                self.kept += 1;
            }
            self.check_patience(chunk.first_attempt + CHUNK)?;
        }
        Ok(())
    }

    fn check_patience(&mut self, attempts: u64) -> Result<()> {
        if attempts < self.stretch_end || self.kept == self.options.rows() {
            return Ok(());
        }
        let new = self.kept - self.stretch_kept;
        if new < LEAST {
            let Options {
                min_length,
                max_length,
                ..
            } = *self.options;
            return Err(Error::Infeasible {
                task: super::INFO.name,
                reason: format!(
                    "gave up with {} of {} different expressions longer than {min_length} and shorter than {max_length} \
                     tokens: the last {PATIENCE} attempts brought {new}; ask for fewer rows, or change min_length, \
                     max_length, max_depth, max_args or operator_probability",
                    self.kept,
                    self.options.rows(),
                ),
            });
        }
        self.stretch_kept = self.kept;
        self.stretch_end += PATIENCE;
        Ok(())
    }
}

/// State of the growth of trees, as tokens at the end of a buffer.
struct Tree {
    rng: ChaCha8Rng,
    tokens: Vec<u8>,
    /// Bound on random words: a node is an operator when its word is below it.
    operator_below: u32,
    /// Scale that maps the other words onto the digits: digit =
    /// (word - operator_below) · scale / 2^60.
    digit_scale: u64,
    arities: u32,
    max_depth: usize,
    max_length: usize,
    /// Size that the buffer may not reach while the present tree grows.
    limit: usize,
    /// Minimum number of tokens that open operators still need: one per missing argument, and the
    /// closing brackets.
    owed: usize,
}

impl Tree {
    fn new(options: &Options, rng: ChaCha8Rng) -> Tree {
        let words = 2_f64.powi(32);
        let operator_below = (options.operator_probability * words) as u32;
        Tree {
            rng,
            tokens: Vec::new(),
            operator_below,
            digit_scale: scale(operator_below),
            arities: options.max_args - 1,
            max_depth: options.max_depth,
            max_length: options.max_length,
            limit: 0,
            owed: 0,
        }
    }

    /// Grows one tree from `start`, the end of the buffer. Returns its value, or `None` when it
    /// must become too long; the caller removes the tokens written until then.
    fn grow(&mut self, start: usize) -> Option<u8> {
        self.limit = start + self.max_length;
        self.owed = 1;
        self.node(1)
    }

    /// Grows one node. Recursion is as deep as the tree: at most 64.
    fn node(&mut self, depth: usize) -> Option<u8> {
        self.owed -= 1;
        let word = self.rng.next_u32();
        if depth == self.max_depth {
            let digit = ((u64::from(word) * 10) >> 32) as u8;
            self.tokens.push(digit);
            return Some(digit);
        }
        if word >= self.operator_below {
            let digit = ((u64::from(word - self.operator_below) * self.digit_scale) >> 60) as u8;
            self.tokens.push(digit);
            return Some(digit);
        }
        let choice = below(&mut self.rng, 4 * self.arities);
        let operator = Operator::PUBLISHED[(choice % 4) as usize];
        let arity = choice / 4 + 2;
        self.tokens.push(FIRST_OPERATOR + (choice % 4) as u8);
        self.owed += arity as usize + 1;
        if self.tokens.len() + self.owed >= self.limit {
            return None;
        }
        let mut arguments = Arguments::default();
        for _ in 0..arity {
            arguments.push(self.node(depth + 1)?);
        }
        self.tokens.push(CLOSE);
        self.owed -= 1;
        arguments.apply(operator)
    }
}

/// Returns `scale` such that (word - below) · scale / 2^60 runs evenly over 0 to 9 for the words
/// from `below` up. No product reaches 10 · 2^60, and digits differ in probability by less than one
/// in ten million.
fn scale(below: u32) -> u64 {
    (10 << 60) / ((1 << 32) - u64::from(below))
}
