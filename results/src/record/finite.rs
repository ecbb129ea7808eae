//! Removal of non-finite scores, which are not scores, and of names that older versions gave.

use super::{Baseline, Outcome, Record};

impl Record {
    /// Returns the record with every score finite or absent. A scored run with a score that is not
    /// finite, as older versions wrote them, becomes a diverged one without scores. Trivial
    /// predictors have their names of today.
    pub(crate) fn settled(mut self) -> Record {
        let baselines = self.baselines.into_iter();
        self.baselines = baselines.map(Baseline::renamed).collect();
        let mut wrong = None;
        let mut settle = |figure: &mut Option<f64>, name: &'static str| {
            if figure.is_some_and(|figure| !figure.is_finite()) {
                *figure = None;
                wrong = wrong.or(Some(name));
            }
        };
        if let Some(learned) = &mut self.pretraining {
            settle(&mut learned.val_loss, "validation loss of pretraining");
            settle(
                &mut learned.val_accuracy,
                "validation accuracy of pretraining",
            );
        }
        if let Some(scores) = &mut self.scores {
            settle(&mut scores.val_loss, "validation loss");
            settle(&mut scores.val_accuracy, "validation accuracy");
            settle(&mut scores.test_loss, "test loss");
            settle(&mut scores.test_accuracy, "test accuracy");
        }
        let wrong = wrong;
        // Training losses are not considered: a run ends at the first non-finite one.
        let losses = [
            self.scores.as_mut().map(|it| &mut it.train_loss),
            self.pretraining.as_mut().map(|it| &mut it.train_loss),
        ];
        for loss in losses.into_iter().flatten() {
            *loss = loss.filter(|loss| loss.is_finite());
        }
        if let (Outcome::Scored, Some(name)) = (&self.outcome, wrong) {
            let step = self.scores.as_ref();
            let step = step.map_or(0, |scores| scores.best_step.unwrap_or(scores.steps));
            self.outcome = Outcome::Diverged {
                step,
                reason: format!("the {name} is not finite"),
            };
            if let Some(scores) = &mut self.scores {
                (scores.val_loss, scores.val_accuracy) = (None, None);
                (scores.test_loss, scores.test_accuracy) = (None, None);
                scores.best_step = None;
            }
        }
        self
    }
}
