//! Figures that no run can have, such as an accuracy of 1.5, and names that every run has. A record
//! with such a figure, or without such a name, is damaged.

use super::{Dense, Outcome, Pretraining, Record, Scores, Speed};

/// Range of a kind of figure: its words, and whether it holds a number. A number that is not known
/// (NaN) is in every range.
type Range = (&'static str, fn(f64) -> bool);

const SHARE: Range = ("a share from 0 to 1", |it| {
    it.is_nan() || (0.0..=1.0).contains(&it)
});
const SIZE: Range = ("a number from 0 on", |it| {
    it.is_nan() || (0.0..f64::INFINITY).contains(&it)
});

/// First figure found that cannot be, in words.
#[derive(Default)]
struct Findings(Option<String>);

impl Findings {
    /// Checks a figure, if it is there, against its range. `field` is its path in `record.json`.
    fn figure(&mut self, field: &str, figure: impl Into<Option<f64>>, (words, holds): Range) {
        if let Some(figure) = figure.into().filter(|figure| !holds(*figure)) {
            self.add(|| format!("{field} is {figure}, which is not {words}"));
        }
    }

    fn add(&mut self, finding: impl FnOnce() -> String) {
        self.0.get_or_insert_with(finding);
    }

    fn scores(&mut self, scores: &Scores) {
        for (name, accuracy) in [
            ("test_accuracy", scores.test_accuracy),
            ("val_accuracy", scores.val_accuracy),
            ("bits_gained", scores.bits_gained),
        ] {
            self.figure(&format!("scores.{name}"), accuracy, SHARE);
        }
        for (name, loss) in [
            ("test_loss", scores.test_loss),
            ("val_loss", scores.val_loss),
            ("train_loss", scores.train_loss),
            ("prior_loss", scores.prior_loss),
        ] {
            self.figure(&format!("scores.{name}"), loss, SIZE);
        }
        for (name, dense) in [
            ("test_dense", &scores.test_dense),
            ("val_dense", &scores.val_dense),
        ] {
            if let Some(dense) = dense {
                self.dense(&format!("scores.{name}"), dense);
            }
        }
    }

    fn dense(&mut self, place: &str, dense: &Dense) {
        let weighted = (dense.weighted_accuracy, dense.weighted_loss);
        self.figure(&format!("{place}.accuracy"), dense.accuracy, SHARE);
        self.figure(&format!("{place}.loss"), dense.loss, SIZE);
        self.figure(&format!("{place}.weighted_accuracy"), weighted.0, SHARE);
        self.figure(&format!("{place}.weighted_loss"), weighted.1, SIZE);
        for (index, group) in dense.groups.iter().enumerate() {
            let place = format!("{place}.groups[{index}]");
            self.figure(&format!("{place}.accuracy"), group.accuracy, SHARE);
            self.figure(&format!("{place}.loss"), group.loss, SIZE);
            self.figure(&format!("{place}.majority"), group.majority, SHARE);
        }
    }

    fn pretraining(&mut self, learned: &Pretraining) {
        self.figure("pretraining.share", learned.share, SHARE);
        self.figure("pretraining.val_accuracy", learned.val_accuracy, SHARE);
        self.figure("pretraining.val_loss", learned.val_loss, SIZE);
        self.figure("pretraining.train_loss", learned.train_loss, SIZE);
        self.figure("pretraining.wall_seconds", learned.wall_seconds, SIZE);
    }

    fn speed(&mut self, speed: &Speed) {
        let (rate, phases) = (speed.steps_per_second, speed.phases);
        for (name, size) in [
            ("steps_per_second.median", rate.median),
            ("steps_per_second.p10", rate.p10),
            ("steps_per_second.p90", rate.p90),
            ("examples_per_second", speed.examples_per_second),
            ("tokens_per_second", speed.tokens_per_second),
            ("achieved_flops_per_second", speed.achieved_flops_per_second),
            ("phases.transfer", phases.transfer),
            ("phases.forward", phases.forward),
            ("phases.backward", phases.backward),
            ("phases.optimizer", phases.optimizer),
            ("training_seconds", speed.training_seconds),
            ("wall_seconds", speed.wall_seconds),
        ] {
            self.figure(&format!("speed.{name}"), size, SIZE);
        }
        self.figure("speed.overhead_share", speed.overhead_share, SHARE);
    }
}

impl Record {
    /// Checks that every figure is one that a run can have, and that names and times are there.
    ///
    /// # Errors
    /// One is not; the message has the path of its field and its value.
    pub(crate) fn check(&self) -> Result<(), String> {
        let mut found = Findings::default();
        for (field, name) in [
            ("task.name", &self.task.name),
            ("task.label", &self.task.label),
            ("task.source", &self.task.source),
            ("model.name", &self.model.name),
            ("recipe.name", &self.recipe.name),
        ] {
            if name.is_empty() {
                found.add(|| format!("{field} is missing"));
            }
        }
        let created = &self.provenance.created;
        // Of two runs the later counts.
        if !created.is_empty() && humantime::parse_rfc3339(created).is_err() {
            found.add(|| {
                format!(
                    "created is {created:?}, which is not a date and time such as 2026-01-31T12:00:00Z"
                )
            });
        }
        if let Some(scores) = &self.scores {
            found.scores(scores);
        }
        for (index, baseline) in self.baselines.iter().enumerate() {
            let field = format!("baselines[{index}].accuracy");
            found.figure(&field, baseline.accuracy, SHARE);
        }
        if let Some(learned) = &self.pretraining {
            found.pretraining(learned);
        }
        if let Some(speed) = &self.speed {
            found.speed(speed);
        }
        if self.outcome == Outcome::Scored && self.test_accuracy().is_none() {
            found.add(|| {
                "scores.test_accuracy is missing, although the outcome is scored".to_owned()
            });
        }
        let rows = &self.task.rows;
        // A record that does not say how many rows there were has none of any split.
        if self.test_accuracy().is_some() && rows.test == 0 && rows.train + rows.val > 0 {
            found.add(|| "task.rows.test is 0, although the test split was scored".to_owned());
        }
        let measured = self.memory.as_ref().map(|memory| memory.peak_bytes);
        if measured == Some(0) && self.outcome == Outcome::Scored {
            found.add(|| "memory.peak_bytes is 0, which no run that was scored takes".to_owned());
        }
        found.0.map_or(Ok(()), Err)
    }
}
