//! Figures that no measurement can have, such as a step of -1 seconds. A line with one is refused.

use super::{Bench, Round};

/// Range of a kind of figure: its words, and whether it holds a number.
type Range = (&'static str, fn(f64) -> bool);

const ABOVE: Range = ("a number above 0", |it| it.is_finite() && it > 0.0);
const SIZE: Range = ("a number from 0 on", |it| it.is_finite() && it >= 0.0);

impl Bench {
    /// Checks that every figure is one that a measurement can have.
    ///
    /// # Errors
    /// One is not; the message has the path of its field and its value.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.length == 0 {
            return Err("length is 0, which no sequence has".to_owned());
        }
        let matmul = self.matmul_flops_per_second;
        possible("matmul_flops_per_second", matmul, ABOVE)?;
        rounds("rounds", &self.rounds)?;
        match &self.base {
            Some(base) => rounds("base.rounds", &base.rounds),
            None => Ok(()),
        }
    }
}

fn rounds(place: &str, rounds: &[Round]) -> Result<(), String> {
    for (index, round) in rounds.iter().enumerate() {
        let place = format!("{place}[{index}]");
        for (step, seconds) in round.seconds.iter().enumerate() {
            possible(&format!("{place}.seconds[{step}]"), *seconds, ABOVE)?;
        }
        let phases = &round.phases;
        for (name, seconds) in [
            ("transfer", phases.transfer),
            ("forward", phases.forward),
            ("backward", phases.backward),
            ("optimizer", phases.optimizer),
        ] {
            possible(&format!("{place}.phases.{name}"), seconds, SIZE)?;
        }
    }
    Ok(())
}

fn possible(
    field: &str,
    figure: impl Into<Option<f64>>,
    (words, holds): Range,
) -> Result<(), String> {
    match figure.into().filter(|figure| !holds(*figure)) {
        Some(figure) => Err(format!("{field} is {figure}, which is not {words}")),
        None => Ok(()),
    }
}
