//! One cell of ours beside a published figure: the values and the verdict that tables show.

use serde_json::json;

use super::{endings, status};
use crate::equivalence::{Equivalence, LEVEL, MARGIN, Score, margin};
use crate::pivot::mixture;
use crate::published::{Comparison, Figure, Source, compare_seeds};
use crate::record::Record;
use crate::table::{Cell, Column, Fact, MISSING, Row};
use crate::tone::Tone;

/// Relation between a run of ours and a published figure.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Footing {
    /// Both learned the same task by the same recipe.
    SameRecipe,
    /// Both learned the same task, ours by another published recipe.
    OtherRecipe,
    /// Not the same task, or not a published recipe.
    Apart,
}

pub(super) const OTHER_RECIPE: &str = "other recipe";

/// The verdict on a cell.
enum Verdict {
    /// It cannot be compared with the figure; the reason in words.
    Not(&'static str),
    /// The result of the comparison.
    Judged(Equivalence),
}

impl Verdict {
    /// Judges a score by a figure in percent. Only runs with the source's own recipe are judged.
    fn of(ours: Option<&Score>, theirs: Option<f64>, margin: f64, footing: Footing) -> Verdict {
        match (footing, ours, theirs) {
            (Footing::Apart, _, _) => Verdict::Not("not comparable"),
            (_, None, _) => Verdict::Not("no score of ours"),
            (_, _, None) => Verdict::Not("no number published"),
            (Footing::OtherRecipe, _, _) => Verdict::Not(OTHER_RECIPE),
            (Footing::SameRecipe, Some(ours), Some(theirs)) => {
                Verdict::Judged(Equivalence::of(ours, theirs, margin))
            }
        }
    }

    fn cell(&self, margin: f64) -> Cell {
        match self {
            Verdict::Not(words) => Cell::with(*words, "verdict", *words),
            Verdict::Judged(found) => Cell {
                text: found.words(),
                fields: vec![("verdict", json!(found.word())), ("margin", json!(margin))],
                tone: Some(found.tone()),
                ..Cell::default()
            },
        }
    }
}

/// The runs of one cell, one per seed, beside the figure of a source.
pub(super) struct Judged {
    /// Reasons against any comparison; empty if there are none.
    pub(super) reasons: Vec<String>,
    /// Caveats of the comparison, such as `protocol clean`; empty if there is none.
    pub(super) caveats: Vec<String>,
    /// The score over the seeds; absent if none was scored.
    pub(super) ours: Option<Score>,
    figure: &'static Figure,
    footing: Footing,
    margin: f64,
    /// Endings of the seeds that were not scored.
    endings: Vec<String>,
    /// Sentences on seeds that were left out or differ, without the cell's name.
    seeds: Vec<String>,
    genuine: bool,
}

impl Judged {
    /// Judges the runs of a cell by the figure of a source. Returns `None` if there are no runs or
    /// the source has no such figure.
    pub(super) fn of(runs: &[&Record], source: &Source) -> Option<Judged> {
        let run = runs.first()?;
        let (figure, footing, reasons, caveats) = match compare_seeds(runs, source) {
            Comparison::Absent => return None,
            Comparison::Beside {
                figure,
                same_recipe: true,
                caveats,
            } => (figure, Footing::SameRecipe, vec![], caveats),
            Comparison::Beside {
                figure, caveats, ..
            } => (figure, Footing::OtherRecipe, vec![], caveats),
            Comparison::Apart { figure, reasons } => (figure, Footing::Apart, reasons, vec![]),
        };
        let ours = Score::of(runs);
        let scored = ours.as_ref().map_or(0, |ours| ours.seeds);
        let endings = endings(runs, scored > 0);
        let mut seeds = Vec::new();
        if scored > 0 && scored < runs.len() {
            seeds.push(format!(
                "mean and interval are over {scored} of {} seeds; {}",
                runs.len(),
                endings.join(", ")
            ));
        }
        seeds.extend(mixture(runs).map(|mixture| format!("seeds of {mixture}")));
        let margin = margin(source, figure);
        if margin > MARGIN {
            seeds.push(format!(
                "the margin is {margin} points, the spread that {} prints",
                source.alias
            ));
        }
        Some(Judged {
            reasons,
            caveats,
            ours,
            figure,
            footing,
            margin,
            endings,
            seeds,
            genuine: run.task.genuine(),
        })
    }

    /// Returns sentences on the comparison, each beginning with the name of the cell.
    pub(super) fn remarks(&self, cell: &str) -> Vec<String> {
        let all = self.caveats.iter().chain(&self.seeds);
        all.map(|remark| format!("{cell}: {remark}.")).collect()
    }

    /// Returns all reasons against the comparison, its caveats, and sentences on the seeds.
    pub(super) fn differences(&self) -> Vec<String> {
        [&self.reasons, &self.caveats, &self.seeds]
            .into_iter()
            .flatten()
            .cloned()
            .collect()
    }

    /// Returns the columns of [`Self::cells`].
    pub(super) fn columns() -> [Column; 5] {
        [
            Column::value("ours").holding(&["mean", "seeds", "status"]),
            Column::value("interval").holding(&["low", "high"]),
            Column::value("published").holding(&["mean", MISSING]),
            Column::value("difference").holding(&["difference"]),
            Column::text("verdict").holding(&["verdict", "margin"]),
        ]
    }

    /// Returns our mean, its interval, the figure, the difference and the verdict.
    pub(super) fn cells(&self) -> [Cell; 5] {
        let ours = self.ours.as_ref();
        let mean = ours.map(|ours| format!("{:.2}", ours.mean));
        let endings = (!self.endings.is_empty()).then(|| self.endings.join(", "));
        let shown: Vec<String> = mean.into_iter().chain(endings).collect();
        let interval = ours.and_then(|ours| ours.interval);
        let difference = ours.zip(self.figure.value);
        let difference = difference.filter(|_| self.footing != Footing::Apart);
        [
            Cell {
                text: shown.join(" "),
                fields: vec![
                    ("mean", json!(ours.map(|ours| ours.mean))),
                    ("seeds", json!(ours.map_or(0, |ours| ours.seeds))),
                    ("status", status(&self.endings)),
                ],
                tone: (!self.endings.is_empty()).then_some(Tone::Bad),
                ..Cell::default()
            },
            interval.map_or_else(Cell::default, |(low, high)| Cell {
                text: format!("{low:.2} to {high:.2}"),
                fields: vec![("low", json!(low)), ("high", json!(high))],
                ..Cell::default()
            }),
            match self.figure.value {
                // A score on other data has nothing to do with the task, so the figure is not
                // shown.
                _ if !self.genuine => Cell::default(),
                Some(value) => Cell::with(self.figure.text(), "mean", value),
                None => Cell::with(self.figure.text(), MISSING, self.figure.text())
                    .toned(self.figure.tone()),
            },
            difference.map_or_else(Cell::default, |(ours, theirs)| {
                let points = ours.mean - theirs;
                Cell::with(format!("{points:+.2}"), "difference", points)
            }),
            Verdict::of(ours, self.figure.value, self.margin, self.footing).cell(self.margin),
        ]
    }

    /// Returns the verdict for machines, such as `reproduced`.
    pub(super) fn verdict(&self) -> &'static str {
        match Verdict::of(
            self.ours.as_ref(),
            self.figure.value,
            self.margin,
            self.footing,
        ) {
            Verdict::Not(words) => words,
            Verdict::Judged(found) => found.word(),
        }
    }
}

/// Returns the row of a judged cell: its facts are the source, and those of its setting and data.
pub(super) fn row(cells: Vec<Cell>, source: &Source, setting: &[Fact], data: &[Fact]) -> Row {
    let mut facts: Vec<Fact> = vec![("against", source.alias.into())];
    facts.extend(setting.iter().chain(data).cloned());
    Row {
        facts,
        ..Row::new(cells)
    }
}

/// Names of the facts of [`row`] for machines.
pub(super) const INFO: &[&str] = &[
    "task",
    "model",
    "against",
    "variant",
    "recipe",
    "set",
    "precision",
    "device",
    "source",
    "protocol",
    "data",
];

/// Names of the values of [`Judged::cells`] for machines.
macro_rules! found {
    ($($own:literal),*) => {
        &[
            "ours_mean_percent", "seeds", "status", "low_percent", "high_percent", "published_percent",
            $crate::table::MISSING, "difference_percent", "verdict", "margin_percent", $($own,)*
        ]
    };
}
pub(super) use found;

/// Returns what the verdicts mean.
pub(super) fn legend() -> String {
    format!(
        "reproduced: our {:.0} % interval for the mean over seeds lies within {MARGIN} points of the published figure, or within the \
         spread that the source prints, if that is larger, and no seed diverged; differs: the interval lies wholly outside; cannot \
         tell: it lies partly inside, or seeds diverged. The interval is Student's, with a spread of at least the sampling error of the \
         test split, so seeds with equal scores have an interval, too. More seeds narrow it.",
        100.0 * LEVEL
    )
}

/// Explains the interval of a single seed.
pub(super) const ONE_SEED: &str = "A single seed has only the sampling error of the test split as its interval. This says nothing \
    about other seeds, so there is no verdict.";
