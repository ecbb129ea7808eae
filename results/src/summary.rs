//! The summary of one run on one screen, printed at the end of `lra run`.

use crate::format::{bytes, counted, grouped, percent, scaled, short, wrap};
use crate::markup::one_line;
use crate::meaning::Meaning;
use crate::pivot::brief;
use crate::published::{Comparison, Source, compare};
use crate::record::{Outcome, Pretraining, Record, first_line};
use crate::render::width;
use crate::stats::binomial_error;
use crate::tone::Tone;
use crate::verdict::Verdict;

/// Columns before the text of a line: two for the indent, ten for the name, and a gap.
const INDENT: usize = 14;
/// Columns for the number before its explanation.
const NUMBER: usize = 18;

/// Returns the three table cells of a run, its score among the trivial baselines, the published
/// figure with a word on whether it may be compared, and where it all comes from. The score stands
/// beside those of `table` on the same data, too. At most [`width`] columns wide, in pieces with
/// their meaning.
pub fn summary(
    record: &Record,
    against: Option<&Source>,
    table: &[Record],
) -> Vec<(Option<Tone>, String)> {
    let mut pieces = vec![(None, format!("{}\n\n", wrap(&title(record), width(), 0, 2)))];
    if record.outcome != Outcome::Scored {
        let outcome = line("outcome", record.outcome.word(), &ending(record));
        let tone = match record.outcome {
            Outcome::Interrupted { .. } => Tone::Caution,
            _ => Tone::Bad,
        };
        pieces.push((Some(tone), outcome));
    }
    if let Some(pretraining) = &record.pretraining {
        pieces.push((None, pretrained(pretraining)));
    }
    let accuracy = accuracy(record);
    let fails = record
        .test_accuracy()
        .is_some_and(|accuracy| Verdict::of(accuracy, record).is_some_and(|verdict| verdict.fail));
    pieces.push((fails.then_some(Tone::Bad), accuracy));
    pieces.push((None, rest(record, against, table)));
    pieces
}

/// Returns what follows the accuracy.
fn rest(record: &Record, against: Option<&Source>, table: &[Record]) -> String {
    let mut text = String::new();
    if let Some(Meaning { points, words }) = Meaning::of(record, table) {
        text += &line("meaning", &format!("{points:+.2} points"), &words);
    }
    text += &dense(record);
    text += &speed(record);
    text += &memory(record);
    if let Some(source) = against {
        text += &published(record, source);
    }
    if let Some(scale) = scale(record) {
        text += &format!("\n{scale}");
    }
    text += "\n";
    for (name, words) in provenance(record) {
        let words = wrap(&words, width(), INDENT, INDENT);
        text += &format!("  {name:<width$}{words}\n", width = INDENT - 2);
    }
    text
}

/// Returns a name, a number, and words that explain it.
fn line(name: &str, number: &str, words: &str) -> String {
    let (name, number) = (one_line(name), one_line(number));
    let words = wrap(words, width(), INDENT + NUMBER, INDENT + NUMBER);
    let line = format!(
        "  {name:<width$}{number:<NUMBER$}{words}",
        width = INDENT - 2
    );
    format!("{}\n", line.trim_end())
}

fn title(record: &Record) -> String {
    let mut parts = vec![record.model.name.clone(), record.task.title()];
    if let Some(variant) = record.model.departure() {
        parts[0] += &format!(" ({variant})");
    }
    parts.push(format!("recipe {}", record.recipe.name));
    parts.push(format!("seed {}", record.seed));
    parts.join(" · ")
}

fn ending(record: &Record) -> String {
    match &record.outcome {
        Outcome::Failed { reason } | Outcome::OutOfMemory { reason } => format!(
            "{}; `--resume` continues from the last checkpoint, `--force` starts over",
            first_line(reason)
        ),
        Outcome::Interrupted { step: 0 } if record.pretraining.is_some() => {
            "in pretraining; `--resume` continues from its checkpoint".to_owned()
        }
        Outcome::Diverged { step, reason } => format!("at step {}: {reason}", grouped(*step)),
        Outcome::Interrupted { step } => {
            format!(
                "at step {}; `--resume` continues from its checkpoint",
                grouped(*step)
            )
        }
        Outcome::Scored | Outcome::Unknown => String::new(),
    }
}

fn pretrained(pretraining: &Pretraining) -> String {
    let number = match pretraining.share {
        0.0 => pretraining.kind.clone(),
        share => format!("{} {} %", pretraining.kind, percent(share)),
    };
    let mut words = Vec::new();
    if let (Some(loss), Some(accuracy)) = (pretraining.val_loss, pretraining.val_accuracy) {
        let right = percent(accuracy);
        words.push(format!(
            "validation loss {loss:.3}, {right} % of the tokens right"
        ));
    }
    let steps = pretraining.steps;
    words.push(match pretraining.best_step {
        Some(best) => {
            let (best, steps) = (grouped(best), grouped(steps));
            format!("best checkpoint at step {best} of {steps}")
        }
        None => counted(steps, "step"),
    });
    words.push(format!("{} s", short(pretraining.wall_seconds)));
    line("pretrained", &number, &words.join("; "))
}

fn accuracy(record: &Record) -> String {
    let Some(scores) = &record.scores else {
        return line("accuracy", "-", "nothing was scored");
    };
    let mut words = Vec::new();
    let number = match scores.test_accuracy {
        Some(accuracy) => {
            let verdict = Verdict::of(accuracy, record);
            if let Some(verdict) = verdict.filter(|verdict| verdict.fail) {
                let state = match verdict.plateau {
                    true => "still on the majority plateau",
                    false => "below the majority class",
                };
                words.push(format!(
                    "FAIL: {state} ({} ± {} %)",
                    percent(verdict.majority),
                    percent(verdict.error)
                ));
            }
            let error = binomial_error(accuracy, record.task.rows.test);
            match error > 0.0 {
                true => format!("{} % ± {}", percent(accuracy), percent(error)),
                false => format!("{} %", percent(accuracy)),
            }
        }
        None => {
            words.push("no test score".to_owned());
            "-".to_owned()
        }
    };
    if let Some(accuracy) = scores.val_accuracy {
        words.push(format!("validation {} %", percent(accuracy)));
    }
    let steps = scores.steps;
    words.push(match scores.best_step {
        Some(best) => {
            let (best, steps) = (grouped(best), grouped(steps));
            format!("best checkpoint at step {best} of {steps}")
        }
        None => counted(steps, "step"),
    });
    words.push(format!("{} seen", counted(scores.examples_seen, "example")));
    line("accuracy", &number, &words.join("; "))
}

/// Returns the labels at positions, where there are any: all of them, then by group.
fn dense(record: &Record) -> String {
    let scores = record.scores.as_ref();
    let Some(dense) = scores.and_then(|scores| scores.test_dense.as_ref()) else {
        return String::new();
    };
    let labels = counted(dense.labels, "label");
    let mut words = vec![format!("of {labels} at positions")];
    words.extend(dense.groups.iter().map(|group| {
        let most = group.majority.map(percent);
        let most = most.map_or_else(String::new, |most| format!(" (most frequent {most})"));
        format!("{} {} %{most}", group.name, percent(group.accuracy))
    }));
    let number = format!("{} %", percent(dense.accuracy));
    line("positions", &number, &words.join("; "))
}

fn speed(record: &Record) -> String {
    let Some(speed) = &record.speed else {
        return line("speed", "-", "no steps were timed");
    };
    let steps = &speed.steps_per_second;
    let (examples, examples_prefix) = scaled(speed.examples_per_second);
    let (tokens, tokens_prefix) = scaled(speed.tokens_per_second);
    let (flops, flops_prefix) = scaled(speed.achieved_flops_per_second);
    let harness = match speed.overhead_share.is_nan() {
        true => String::new(),
        false => format!("; the harness takes {} %", percent(speed.overhead_share)),
    };
    let own = record.model.own.as_ref();
    let pipe = match own.filter(|own| own.pipe().is_some()) {
        Some(own) => format!("; through a pipe to {}", own.process),
        None => String::new(),
    };
    let words = format!(
        "p10 {}, p90 {} over {}; {examples}{examples_prefix} examples/s, \
         {tokens}{tokens_prefix} tokens/s, {flops} {flops_prefix}FLOP/s, padding counted{harness}{pipe}",
        short(steps.p10),
        short(steps.p90),
        counted(speed.timed_steps, "step"),
    );
    line("speed", &format!("{} steps/s", short(steps.median)), &words)
}

fn memory(record: &Record) -> String {
    let Some(memory) = &record.memory else {
        return line("memory", "-", "not measured");
    };
    let held = match memory.base_bytes {
        0 => String::new(),
        base => format!("; {} before it", bytes(base)),
    };
    let words = format!(
        "{}{held}; resident {}",
        memory.method,
        bytes(memory.resident_bytes)
    );
    line("memory", &bytes(memory.peak_bytes), &words)
}

fn published(record: &Record, source: &Source) -> String {
    let (figure, verdict) = match compare(record, source) {
        Comparison::Beside { figure, .. } if record.test_accuracy().is_none() => {
            (figure, "no score to compare".to_owned())
        }
        Comparison::Beside {
            figure, caveats, ..
        } if caveats.is_empty() => (figure, "comparable".to_owned()),
        Comparison::Beside {
            figure, caveats, ..
        } => (figure, format!("comparable, but: {}", caveats.join("; "))),
        Comparison::Apart { figure, reasons } => {
            (figure, format!("not comparable: {}", reasons.join(", ")))
        }
        Comparison::Absent => {
            let words = format!(
                "{} has no figure for {} on {}",
                source.key, record.model.name, record.task.name
            );
            return line("published", "-", &words);
        }
    };
    let number = match figure.value {
        // A score on other data has nothing to do with the task, so the figure is not shown.
        _ if !record.task.genuine() => "-".to_owned(),
        Some(_) => format!("{} %", figure.text()),
        None => figure.text(),
    };
    let words = format!(
        "{} on {} in {}; {verdict}",
        figure.model, figure.task, source.key
    );
    line("published", &number, &words)
}

/// Returns the trivial baselines and the score on one line, in order, their distances drawn to
/// scale.
fn scale(record: &Record) -> Option<String> {
    let score = record.test_accuracy()?;
    let mut marks: Vec<(f64, String)> = record
        .baselines
        .iter()
        .map(|baseline| {
            let label = format!("{} {}", baseline.name, percent(baseline.accuracy));
            (baseline.accuracy, label)
        })
        .collect();
    if marks.is_empty() {
        return None;
    }
    marks.push((score, format!("[{} {}]", record.model.name, percent(score))));
    marks.retain(|(place, _)| place.is_finite());
    marks.sort_by(|a, b| a.0.total_cmp(&b.0));

    let gaps = marks.len().saturating_sub(1);
    let labels: usize = marks.iter().map(|(_, label)| label.chars().count()).sum();
    // Two columns for the indent; each gap has a space at either end and at least one dash.
    let dashes = width().saturating_sub(2 + labels + 3 * gaps);
    let reach = marks.last()?.0 - marks.first()?.0;
    let mut text = String::new();
    for (index, (place, label)) in marks.iter().enumerate() {
        if index > 0 {
            let share = (place - marks[index - 1].0) / reach.max(f64::MIN_POSITIVE);
            let more = (share * dashes as f64) as usize;
            text += &format!(" {} ", "-".repeat(1 + more));
        }
        text += &one_line(label);
    }
    Some(format!("  {}\n", wrap(&text, width(), 2, 2)))
}

/// Returns the origin of the numbers.
fn provenance(record: &Record) -> Vec<(&'static str, String)> {
    let recipe = &record.recipe;
    let mut recipe_words = recipe.name.clone();
    if !recipe.source.is_empty() {
        recipe_words += &format!(" ({})", recipe.source);
    }
    for change in &recipe.overrides {
        recipe_words += &format!(", {change}");
    }
    if let Some(split) = recipe.split_statistics() {
        recipe_words += &format!("; {split}");
    }
    let task = &record.task;
    let rows = [task.rows.train, task.rows.val, task.rows.test];
    let rows = rows.map(|rows| grouped(rows as u64)).join(" / ");
    let data = format!(
        "{} from source {}{}, protocol {}, {rows} rows, digest {}{}",
        task.label,
        task.source,
        if task.partial { " (a part of it)" } else { "" },
        task.protocol,
        brief(&task.data_digest),
        if task.altered() {
            format!("; ALTERED: {}", task.altered.join("; "))
        } else {
            String::new()
        },
    );
    let model = format!(
        "{}, padding {}",
        counted(record.model.parameters, "parameter"),
        if record.model.masks_padding {
            "masked"
        } else {
            "not masked"
        },
    );
    let run = format!(
        "seed {}, {}, {}, {}, spec {}, id {}",
        record.seed,
        record.provenance.precision,
        record.provenance.device,
        counted(record.provenance.threads as u64, "thread"),
        brief(&record.provenance.spec_digest),
        record.id,
    );
    let host = &record.provenance.host;
    let machine = format!(
        "{}{}, {}, {}, {}",
        host.cpu,
        match host.instructions.as_str() {
            "" => String::new(),
            instructions => format!(" with {instructions}"),
        },
        counted(host.cores as u64, "core"),
        bytes(host.memory_bytes),
        host.os
    );
    let versions = &record.provenance.versions;
    let revision = record
        .provenance
        .revision
        .as_ref()
        .map_or_else(String::new, |revision| format!(" ({})", revision.words()));
    let own = record.model.own.as_ref();
    let own = own.map_or_else(String::new, |own| format!("; the model: {}", own.origin()));
    let task = record.task.own.as_ref();
    let task = task.map_or_else(String::new, |own| format!("; the task: {}", own.origin()));
    let code = format!(
        "lra {}{revision}, candle {}, rustc {}{own}{task}",
        versions.lra, versions.candle, versions.rustc
    );
    let changed = record.changed_on_the_way();
    let changed = changed.map(|changes| {
        let words = format!("RESUMED AFTER CHANGES, comparable with no other score: {changes}");
        ("changes", words)
    });
    let rest = [
        ("recipe", recipe_words),
        ("data", data),
        ("model", model),
        ("run", run),
        ("machine", machine),
        ("code", code),
    ];
    changed.into_iter().chain(rest).collect()
}
