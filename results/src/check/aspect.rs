//! The aspects in which a cell is compared: accuracy, losses, gradients, memory, speed.

use super::baseline::Row;
use super::judge::{Cells, Thresholds};
use crate::equivalence::{LEVEL, MARGIN};
use crate::format::{apart, counted};
use crate::record::SEVERAL;
use crate::stats::{Sample, Uncertainty, t_below, t_quantile};

/// The aspects that are judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aspect {
    /// Mean test accuracy over the seeds.
    Accuracy,
    /// Every logged training loss.
    Loss,
    /// Every logged norm of the gradient.
    Gradient,
    /// Peak memory.
    Memory,
    /// Steps per second, as a ratio to the reference model.
    Speed,
}

impl Aspect {
    /// All aspects, in the order of display.
    pub const ALL: [Aspect; 5] = [
        Aspect::Accuracy,
        Aspect::Loss,
        Aspect::Gradient,
        Aspect::Memory,
        Aspect::Speed,
    ];

    /// Returns its name.
    pub fn word(self) -> &'static str {
        match self {
            Aspect::Accuracy => "accuracy",
            Aspect::Loss => "loss",
            Aspect::Gradient => "gradient",
            Aspect::Memory => "memory",
            Aspect::Speed => "speed",
        }
    }

    /// Returns the unit of [`Aspect::figure`].
    pub fn unit(self) -> &'static str {
        match self {
            Aspect::Accuracy => "%",
            Aspect::Loss => "nats",
            Aspect::Gradient => "norm",
            Aspect::Memory => "bytes",
            Aspect::Speed => "steps/s",
        }
    }

    /// Returns the figure of a cell that summarises the aspect.
    pub fn figure(self, row: &Row) -> Option<f64> {
        match self {
            Aspect::Accuracy => row.accuracy.map(|accuracy| 100.0 * accuracy),
            Aspect::Loss => row.loss,
            Aspect::Gradient => row.gradient_norm,
            Aspect::Memory => row.peak_bytes.map(|bytes| bytes as f64),
            Aspect::Speed => row.steps_per_second,
        }
    }
}

/// Finding in one aspect, with the words for its cell of the table.
#[derive(Clone, Debug, PartialEq)]
pub enum Finding {
    /// Within the thresholds.
    Same(String),
    /// Better beyond the thresholds: no failure, but the baseline is out of date.
    Better(String),
    /// Worse beyond the thresholds.
    Worse(String),
    /// Cannot be judged, with the reason.
    Unjudged(String),
}

impl Finding {
    /// Returns the words.
    pub fn words(&self) -> &str {
        match self {
            Finding::Same(words)
            | Finding::Better(words)
            | Finding::Worse(words)
            | Finding::Unjudged(words) => words,
        }
    }

    /// Returns the kind of finding.
    pub fn word(&self) -> &'static str {
        match self {
            Finding::Same(_) => "same",
            Finding::Better(_) => "better",
            Finding::Worse(_) => "worse",
            Finding::Unjudged(_) => "unjudged",
        }
    }
}

/// Compares two rows of a cell in every aspect, in the order of [`Aspect::ALL`]. `cells` are the
/// two sets that the rows belong to; they hold the reference models for speed. If not all seeds
/// were scored in both, `same_seeds` is false, and their losses and norms are other ones.
pub(super) fn findings(
    before: &Row,
    row: &Row,
    same_seeds: bool,
    cells: (&Cells, &Cells),
    thresholds: &Thresholds,
) -> Vec<Finding> {
    let compare = |aspect: Aspect| match aspect {
        Aspect::Accuracy => accuracy(before, row, thresholds),
        Aspect::Loss | Aspect::Gradient if !same_seeds => {
            Finding::Unjudged("other seeds".to_owned())
        }
        Aspect::Loss => loss(before, row, thresholds),
        Aspect::Gradient => gradient(before, row, thresholds),
        Aspect::Memory => memory(before, row, thresholds),
        Aspect::Speed => speed(before, row, cells, thresholds),
    };
    Aspect::ALL.map(compare).into()
}

/// Returns both figures, or the finding if one is missing. A figure that the baseline has must be
/// present.
fn both<T>(before: Option<T>, now: Option<T>) -> Result<(T, T), Finding> {
    match (before, now) {
        (Some(was), Some(is)) => Ok((was, is)),
        (Some(_), None) => Err(Finding::Worse("missing".to_owned())),
        (None, Some(_)) => Err(Finding::Unjudged("not in the baseline".to_owned())),
        (None, None) => Err(Finding::Unjudged("not measured".to_owned())),
    }
}

/// Returns a digest, unless it is empty.
fn known(digest: &str) -> Option<&str> {
    (!digest.is_empty()).then_some(digest)
}

/// Returns whether two cells must agree bit for bit: on a CPU with the same instruction set, with
/// any number of threads.
fn exact(before: &Row, row: &Row) -> bool {
    let instructions = known(&before.instructions);
    row.key.device == "cpu" && instructions.is_some_and(|known| known == row.instructions)
}

/// Returns whether two cells are known to have run on CPUs with different instruction sets.
fn other_instructions(before: &Row, row: &Row) -> bool {
    let both = known(&before.instructions).zip(known(&row.instructions));
    row.key.device == "cpu" && both.is_some_and(|(was, is)| was != is)
}

/// Applies Welch's test over the seeds, with the uncertainty that all verdicts on accuracies have.
/// Where the change is too uncertain for "the same" to mean anything, nothing is judged.
fn accuracy(before: &Row, row: &Row, thresholds: &Thresholds) -> Finding {
    let (was, is) = match both(before.accuracy, row.accuracy) {
        Ok(pair) => pair,
        Err(finding) => return finding,
    };
    let words = match was == is {
        true => format!("{:.2}", 100.0 * is),
        false => changed(100.0 * was, 100.0 * is, 2),
    };
    // Runs with the same losses at every step are the same, however uncertain their scores are.
    // So another score is one of another evaluation.
    let repeated = known(&before.trace).is_some_and(|trace| trace == row.trace);
    if repeated {
        // Other vector instructions may round an evaluation otherwise, even where no loss shows it.
        let rounded_alike = !other_instructions(before, row);
        let other = |of: fn(&Row) -> &str| {
            let both = known(of(before)).zip(known(of(row)));
            rounded_alike && both.is_some_and(|(was, is)| was != is)
        };
        let same = was == is
            && before.accuracy_deviation == row.accuracy_deviation
            && !other(|row| &row.scores)
            && !other(|row| &row.further_scores);
        match (same, rounded_alike) {
            (true, _) => return Finding::Same(words),
            (false, true) => return Finding::Worse(format!("{words} {OTHER_SCORES}")),
            (false, false) => {}
        }
    }
    let (Some(a), Some(b)) = (uncertainty(before, was), uncertainty(row, is)) else {
        return Finding::Unjudged(format!("{words}, unknown test rows"));
    };
    let (var_a, var_b) = (a.error.powi(2), b.error.powi(2));
    let variance = var_a + var_b;
    // Welch and Satterthwaite's degrees of freedom.
    let weight = |variance: f64, freedom: u32| variance.powi(2) / f64::from(freedom);
    let freedom = variance.powi(2) / (weight(var_a, a.freedom) + weight(var_b, b.freedom));
    let freedom = freedom.clamp(1.0, f64::from(Uncertainty::MOST_FREEDOM));
    let share = t_below((is - was) / variance.sqrt(), freedom);
    let reach = 100.0 * t_quantile(0.5 + LEVEL / 2.0, freedom) * variance.sqrt();
    // No change of an accuracy is larger.
    let reach = reach.min(100.0);
    if share < 1.0 - thresholds.level {
        Finding::Worse(words)
    } else if share > thresholds.level {
        Finding::Better(words)
    } else if reach > MARGIN {
        Finding::Unjudged(format!("{words} {UNCERTAIN}{reach:.1}"))
    } else {
        Finding::Same(words)
    }
}

/// Mark of scores that changed although every loss of the training is the same.
pub(super) const OTHER_SCORES: &str = "(other scores)";

/// Prefix of an uncertainty that is too large for a verdict.
pub(super) const UNCERTAIN: &str = "±";

/// Returns the uncertainty of the mean accuracy of a row.
fn uncertainty(row: &Row, accuracy: f64) -> Option<Uncertainty> {
    let sample = Sample {
        count: row.scored().max(1),
        mean: accuracy,
        deviation: row.accuracy_deviation,
    };
    Uncertainty::of(&sample, row.test_rows)
}

fn loss(before: &Row, row: &Row, thresholds: &Thresholds) -> Finding {
    let trace = |row: &Row| (known(&row.trace).map(str::to_owned), row.loss);
    let exact = exact(before, row);
    let decimals = if exact { 6 } else { 4 };
    let words = |was: f64, is: f64| changed(was, is, decimals);
    same_trace(trace(before), trace(row), exact, thresholds.loss, words)
}

fn gradient(before: &Row, row: &Row, thresholds: &Thresholds) -> Finding {
    let trace = |row: &Row| (known(&row.gradients).map(str::to_owned), row.gradient_norm);
    let exact = exact(before, row);
    let words = |was: f64, is: f64| match was == 0.0 {
        // There is no share of nothing.
        true => changed(was, is, 4),
        false => format!("{} %", signed(100.0 * (is / was - 1.0))),
    };
    same_trace(trace(before), trace(row), exact, thresholds.gradient, words)
}

/// The digest over all figures of a kind in a log, and one figure that summarises them.
type Trace = (Option<String>, Option<f64>);

/// Compares digests if runs are `exact`. Otherwise rounding differs, and the one figure may change
/// by the fraction `share`.
fn same_trace(
    before: Trace,
    now: Trace,
    exact: bool,
    share: f64,
    words: impl Fn(f64, f64) -> String,
) -> Finding {
    let digests = both(before.0, now.0);
    let figures = both(before.1, now.1);
    match (digests, figures) {
        (Err(lost @ Finding::Worse(_)), _) | (_, Err(lost)) => lost,
        (Ok((was, is)), _) if exact && was == is => Finding::Same("exact".to_owned()),
        (Ok(_), Ok((was, is))) if exact && was == is => {
            Finding::Worse("differs during training".to_owned())
        }
        (Ok(_), Ok((was, is))) if exact => Finding::Worse(words(was, is)),
        (digests, Ok((was, is))) if (is - was).abs() <= share * was.abs() => {
            let words = words(was, is);
            Finding::Same(match exact && digests.is_err() {
                true => format!("{words} {LAST_ONLY}"),
                false => words,
            })
        }
        (_, Ok((was, is))) => Finding::Worse(words(was, is)),
    }
}

/// Mark of a loss whose predecessors were not compared.
pub(super) const LAST_ONLY: &str = "(last only)";

/// Words for memory that was measured on another kind of processor.
pub(super) const ANOTHER_PROCESSOR: &str = "another processor";

/// Bytes by which the peaks of equal runs may differ: 16 KiB. Equal runs of S5 at 466 kB differed by
/// 7 kB.
pub(super) const LEAST_BYTES: u64 = 16 << 10;

fn memory(before: &Row, row: &Row, thresholds: &Thresholds) -> Finding {
    let (was, is) = match both(before.peak_bytes, row.peak_bytes) {
        Ok(pair) => pair,
        Err(finding) => return finding,
    };
    if before.memory_method != row.memory_method {
        return Finding::Unjudged("another method".to_owned());
    }
    // Matrix products pack blocks on each thread, whose sizes depend on the caches.
    if !same_processor(before, row) {
        return Finding::Unjudged(ANOTHER_PROCESSOR.to_owned());
    }
    if [before.threads, row.threads].contains(&0) {
        return Finding::Unjudged("threads differ or are unknown".to_owned());
    }
    if before.threads != row.threads {
        return Finding::Unjudged(format!(
            "{}, was {}",
            counted(row.threads as u64, "thread"),
            before.threads
        ));
    }
    let ratio = is as f64 / was.max(1) as f64;
    let words = match was == is {
        true => "+0.0 %".to_owned(),
        false => format!("{} %", signed(100.0 * (ratio - 1.0))),
    };
    // Queues of threads grow by chance.
    let growth = match is.abs_diff(was) <= LEAST_BYTES {
        true => 0.0,
        false => ratio - 1.0,
    };
    graded(growth, thresholds.memory, words)
}

/// Returns whether two rows are of one kind of processor: its name, and its vector instructions,
/// which one name may have several of. Older baselines do not have them.
fn same_processor(before: &Row, row: &Row) -> bool {
    let instructions = &before.instructions;
    let same = instructions.is_empty() || *instructions == row.instructions;
    before.processor == row.processor && same
}

/// Returns two figures with so many decimals, or as many as show that they differ.
fn changed(was: f64, is: f64, decimals: usize) -> String {
    let (from, to) = apart(was, is, decimals);
    format!("{from} → {to}")
}

/// Returns a change with its sign and one decimal, or as many as show that it is no zero.
fn signed(change: f64) -> String {
    let (_, shown) = apart(0.0, change.abs(), 1);
    let sign = if change < 0.0 { '-' } else { '+' };
    format!("{sign}{shown}")
}

/// Words for a reference model that did not run.
pub(super) const NOT_BESIDE: &str = "beside it";

/// Words for the number of simultaneous runs.
pub(super) const AT_A_TIME: &str = "at a time";

fn speed(
    before: &Row,
    row: &Row,
    (baseline, now): (&Cells, &Cells),
    thresholds: &Thresholds,
) -> Finding {
    let Some(allowed) = thresholds.speed else {
        return Finding::Unjudged("not asked".to_owned());
    };
    if let Err(finding) = both(before.steps_per_second, row.steps_per_second) {
        return finding;
    }
    if row.key.model == thresholds.reference {
        return Finding::Unjudged("reference".to_owned());
    }
    let threads = [before.threads, row.threads];
    if !same_processor(before, row) || threads[0] != threads[1] || threads.contains(&0) {
        return Finding::Unjudged("another machine".to_owned());
    }
    if [before.jobs, row.jobs].contains(&Some(SEVERAL)) {
        return Finding::Unjudged(format!("runs of several numbers {AT_A_TIME}"));
    }
    if let (Some(was), Some(is)) = (before.jobs, row.jobs)
        && was != is
    {
        return Finding::Unjudged(format!("{is} {AT_A_TIME}, was {was}"));
    }
    let sides = [(before, baseline), (row, now)];
    let beside = sides.map(|(row, cells)| cells.reference(&row.key));
    if let [Some(was), Some(is)] = beside
        && [before, row, was, is]
            .iter()
            .any(|row| row.speed_error.is_none())
    {
        return Finding::Unjudged("error unknown".to_owned());
    }
    let (Some(was), Some(is)) = (Ratio::of(before, baseline), Ratio::of(row, now)) else {
        return Finding::Unjudged(format!("no {} {NOT_BESIDE}", thresholds.reference));
    };
    if !(was.alike && is.alike) {
        let reference = &thresholds.reference;
        return Finding::Unjudged(format!("{reference} ran under other conditions"));
    }
    let noise = (was.error.powi(2) + is.error.powi(2)).sqrt();
    // In logarithms, since errors of timings multiply. Slower is worse, so the sign is reversed for
    // the grading.
    let slowdown = (was.value / is.value).ln();
    let threshold = -(1.0 - allowed).ln() + 3.0 * noise;
    let change = is.value / was.value - 1.0;
    graded(slowdown, threshold, format!("{:+.0} %", 100.0 * change))
}

/// Returns worse if `growth` exceeds the threshold, better if it falls below it by as much.
fn graded(growth: f64, threshold: f64, words: String) -> Finding {
    match growth {
        growth if growth > threshold => Finding::Worse(words),
        growth if growth < -threshold => Finding::Better(words),
        _ => Finding::Same(words),
    }
}

/// A cell's speed as a multiple of the reference model's, with its relative error.
struct Ratio {
    value: f64,
    error: f64,
    /// True if both ran on one kind of processor with as many threads, and as many at a time.
    alike: bool,
}

impl Ratio {
    fn of(row: &Row, cells: &Cells) -> Option<Ratio> {
        let reference = cells.reference(&row.key)?;
        let error = (row.speed_error?.powi(2) + reference.speed_error?.powi(2)).sqrt();
        let value = row.steps_per_second? / reference.steps_per_second?;
        let alike = same_processor(reference, row)
            && reference.threads == row.threads
            && reference.jobs == row.jobs;
        (value.is_finite() && value > 0.0).then_some(Ratio {
            value,
            error,
            alike,
        })
    }
}
