//! `lra compare`: two runs on the same examples.

use std::process::ExitCode;

use results::paired::Paired;
use serde_json::json;

use super::score::{Scored, Scoring};
use crate::cli::score::CompareArgs;
use crate::cmd;
use crate::error::{Error, Result};

/// Runs the command.
pub fn run(arguments: &CompareArgs) -> Result<ExitCode> {
    let scoring = Scoring::new(&arguments.computing, &arguments.place, arguments.quiet)?;
    let first = scoring.score(&arguments.first, &arguments.on)?;
    let second = scoring.score(&arguments.second, &arguments.on)?;
    let [one, other] = [&first, &second].map(|it| &it.splits.manifest);
    if one.digest != other.digest {
        return Err(Error::usage(format!(
            "the runs are of different data, {} and {}: only predictions for the same examples can be compared",
            one.label, other.label
        )));
    }
    let pairs = first.predictions.iter().zip(&second.predictions);
    let counts = Paired::of(pairs.map(|(one, other)| (one.is_right(), other.is_right())));
    match arguments.json {
        true => cmd::print_json(&to_json(&first, &second, &counts))?,
        false => cmd::print_prose(&text(&first, &second, &counts))?,
    }
    Ok(ExitCode::SUCCESS)
}

fn text(first: &Scored, second: &Scored, counts: &Paired) -> String {
    let (low, high) = counts.interval();
    let percent = |share: f64| 100.0 * share;
    // Permuted positions are other inputs of the same examples.
    let examples = match first.run.label() == second.run.label() {
        true => first.examples(),
        false => format!("A: {}; B: {}", first.examples(), second.examples()),
    };
    let verdict = match (low > 0.0, high < 0.0) {
        (true, _) => "A is better on these examples",
        (_, true) => "B is better on these examples",
        _ => "these examples do not tell them apart",
    };
    format!(
        "{}\n  A           {:6.2} %  {}\n  B           {:6.2} %  {}\n  A - B       {:+.2} points, 95 % interval {:+.2} to {:+.2}: {verdict}\n  \
         right       both {}, A alone {}, B alone {}, neither {}\n  McNemar     p {}, exact\n\
         Other seeds can differ by more: the interval is about the examples, not about training.\n",
        examples,
        percent(first.score.accuracy),
        first.run.record.id,
        percent(second.score.accuracy),
        second.run.record.id,
        percent(counts.difference()),
        percent(low),
        percent(high),
        counts.both,
        counts.first,
        counts.second,
        counts.neither,
        probability(counts.mcnemar()),
    )
}

/// Returns the value of a probability with two digits that matter, after a sign of relation: one
/// too small for 64 bits is below the least that is shown.
fn probability(p: f64) -> String {
    match p {
        p if p >= 0.001 => format!("= {p:.3}"),
        p if p >= 1e-300 => format!("= {p:.1e}"),
        _ => "< 1e-300".to_owned(),
    }
}

fn to_json(first: &Scored, second: &Scored, counts: &Paired) -> serde_json::Value {
    let (low, high) = counts.interval();
    let side = |it: &Scored| json!({ "id": it.run.record.id, "accuracy": it.score.accuracy });
    json!({
        "data": first.splits.manifest.label,
        "data_digest": first.splits.manifest.digest,
        "split": first.split.name(),
        "examples": counts.examples(),
        "first": side(first),
        "second": side(second),
        "difference": counts.difference(),
        "low": low,
        "high": high,
        "both_right": counts.both,
        "first_alone_right": counts.first,
        "second_alone_right": counts.second,
        "neither_right": counts.neither,
        "mcnemar_p": counts.mcnemar(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_probability_is_zero() {
        let of = [1.0, 0.0432, 0.00012, 1e-300, 0.0].map(probability);
        assert_eq!(
            of,
            ["= 1.000", "= 0.043", "= 1.2e-4", "= 1.0e-300", "< 1e-300"]
        );
    }
}
