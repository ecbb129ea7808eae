//! One line per model and task: what was printed, what was run here, what it costs.

use serde_json::{Value, json};

use super::evidence::{Evidence, Origin, Tier};
use super::names::{Names, anchor};
use super::ours::Group;
use super::pretrained::Pretrained;
use super::tuning::Tuning;
use super::{Offer, Site, floors};
use crate::published::{ACCURACY, model_rank, task_name, task_rank};
use crate::table::{Cell, Column, Row, Table};

/// The accuracies of a model on a task.
pub(super) struct Summary<'a> {
    /// The model.
    pub(super) model: &'a str,
    /// The task.
    pub(super) task: &'a str,
    /// The printed accuracies that differ and have no known defect, lowest first.
    printed: Vec<f64>,
    /// Those with a known defect, lowest first.
    doubtful: Vec<f64>,
    /// The printed words in place of numbers, such as `FAIL`.
    missing: Vec<String>,
    /// The accuracies of re-runs by others, lowest first.
    by_others: Vec<f64>,
    /// Number of imported accuracies.
    imported: usize,
    /// The group of runs here on the task as published that has the highest validation accuracy,
    /// among those that can be compared with a source if there are any.
    best: Option<&'a Group<'a>>,
    /// Number of groups of runs here, on any data of the task.
    groups: usize,
    /// The settings tried with that group.
    tuning: Option<Tuning>,
    /// The groups of runs here on the task as published.
    of_the_task: Vec<&'a Group<'a>>,
    /// The pretrained ones of them beside the others.
    pretrained: Option<Pretrained>,
    /// The cheapest way to reproduce a printed accuracy.
    offer: Option<&'a Offer>,
}

/// Returns the summaries of all models on all tasks with an accuracy, in the order of the tables.
pub(super) fn all<'a>(
    site: &'a Site,
    evidence: &[Evidence<'a>],
    groups: &'a [Group<'a>],
) -> Vec<Summary<'a>> {
    let mut all: Vec<Summary> = Vec::new();
    for one in evidence {
        if one.metric != ACCURACY || one.model.is_empty() || !one.is_on_a_task() {
            continue;
        }
        let same =
            |it: &Summary| it.model == one.model && task_name(it.task) == task_name(one.task);
        let place = match all.iter().position(same) {
            Some(place) => place,
            None => {
                all.push(Summary::new(one.model, site.spelt(one.task)));
                all.len() - 1
            }
        };
        all[place].add(one, groups);
    }
    for summary in &mut all {
        for figures in [
            &mut summary.printed,
            &mut summary.doubtful,
            &mut summary.by_others,
        ] {
            figures.sort_by(f64::total_cmp);
        }
        // A figure that several sources print is one figure.
        summary.printed.dedup();
        summary.doubtful.dedup();
        summary.tuning = summary.best.map(|group| Tuning::of(group, groups));
        summary.pretrained = Pretrained::among(summary.of_the_task.iter().copied());
    }
    all.sort_by(|a, b| {
        let rank = |it: &Summary| (model_rank(it.model), task_rank(it.task));
        rank(a)
            .0
            .cmp(&rank(b).0)
            .then(a.model.cmp(b.model))
            .then(rank(a).1.cmp(&rank(b).1))
    });
    all
}

impl<'a> Summary<'a> {
    fn new(model: &'a str, task: &'a str) -> Summary<'a> {
        Summary {
            model,
            task,
            printed: Vec::new(),
            doubtful: Vec::new(),
            missing: Vec::new(),
            by_others: Vec::new(),
            imported: 0,
            best: None,
            groups: 0,
            tuning: None,
            of_the_task: Vec::new(),
            pretrained: None,
            offer: None,
        }
    }

    fn add(&mut self, one: &Evidence<'a>, groups: &'a [Group<'a>]) {
        match one.origin {
            Origin::Printed(_, figure, offer) => {
                match one.tier() {
                    Tier::ByOthers => self.by_others.extend(figure.value),
                    _ if figure.is_copy() => {}
                    _ => {
                        let figures = match figure.defect.is_empty() {
                            true => &mut self.printed,
                            false => &mut self.doubtful,
                        };
                        figures.extend(figure.value);
                        let word = figure.missing_word();
                        let new = word.filter(|word| !self.missing.contains(word));
                        self.missing.extend(new);
                    }
                }
                let offer = offer.and_then(|offer| offer.as_ref().ok());
                let cheaper = |offer: &&Offer| self.offer.is_none_or(|it| offer.flops < it.flops);
                self.offer = offer.filter(cheaper).or(self.offer);
            }
            Origin::Imported(_) => self.imported += 1,
            Origin::Runs(index) => {
                let Some(group) = groups.get(index) else {
                    return;
                };
                self.groups += 1;
                // Chosen by what the setting was chosen by: its test score would be flattered.
                let rank = |group: &Group| {
                    let validation = group.validation().unwrap_or(f64::MIN);
                    (group.is_comparable(), validation, group.seeds())
                };
                let better = self.best.is_none_or(|best| rank(group) > rank(best));
                if group.is_of_the_task() {
                    self.of_the_task.push(group);
                    if better {
                        self.best = Some(group);
                    }
                }
            }
        }
    }

    /// Returns the highest accuracy of a tier, if it has any.
    pub(super) fn highest(&self, tier: Tier) -> Option<f64> {
        match tier {
            Tier::Printed => self.figures().last().copied(),
            Tier::ByOthers => self.by_others.last().copied(),
            Tier::Imported => None,
            Tier::Here => Some(self.best?.score()?.mean),
        }
    }

    /// Returns the printed accuracies without a known defect; if all have one, those.
    fn figures(&self) -> &[f64] {
        if self.printed.is_empty() {
            &self.doubtful
        } else {
            &self.printed
        }
    }

    /// Returns the printed accuracies in words: `36.4 to 63.8`, with a star if one that is left out
    /// has a defect, or all have.
    pub(super) fn printed_words(&self) -> String {
        let star = if self.doubtful.is_empty() { "" } else { " *" };
        match (self.figures(), self.missing.first()) {
            ([], None) => String::new(),
            ([], Some(word)) => word.clone(),
            ([one], _) => format!("{one:.2}{star}"),
            ([low, .., high], _) => format!("{low:.1} to {high:.1}{star}"),
        }
    }

    /// Returns its facts for programs, in a fixed order.
    pub(super) fn facts(&self, names: &Names) -> Vec<(&'static str, Value)> {
        let best = self.best;
        let floor = floors::best(self.task);
        let tuning = self.tuning.as_ref();
        let pretrained = self.pretrained.as_ref();
        let spread = tuning.and_then(|tuning| tuning.spread);
        let expected = tuning.and_then(|tuning| tuning.expected.last());
        let page = names.models().find(|(name, _)| *name == self.model);
        let page = page.map(|(_, file)| format!("{file}#{}", anchor(self.task)));
        vec![
            ("model", self.model.into()),
            ("task", self.task.into()),
            ("printed", (self.printed.len() + self.doubtful.len()).into()),
            ("printed_low", json!(self.figures().first())),
            ("printed_high", json!(self.figures().last())),
            ("printed_with_defect", self.doubtful.len().into()),
            ("floor", json!(floor.map(|floor| floor.accuracy))),
            (
                "floor_predictor",
                json!(floor.map(|floor| &floor.predictor)),
            ),
            ("by_others", self.by_others.len().into()),
            ("by_others_high", json!(self.by_others.last())),
            ("imported", self.imported.into()),
            ("here", self.groups.into()),
            ("here_mean", json!(self.highest(Tier::Here))),
            ("here_comparable", json!(best.map(Group::is_comparable))),
            ("here_setting", json!(best.map(Group::setting_words))),
            ("seeds", json!(best.map(Group::seeds))),
            (
                "status",
                json!(best.map(Group::endings).filter(|it| !it.is_empty())),
            ),
            ("seeds_trained", json!(best.map(|group| group.trained().0))),
            ("seeds_known", json!(best.map(|group| group.trained().1))),
            ("hours", json!(best.and_then(Group::hours))),
            ("settings_tried", json!(tuning.map(|it| it.tried))),
            ("validation_low", json!(spread.map(|(low, _)| rounded(low)))),
            (
                "validation_high",
                json!(spread.map(|(_, high)| rounded(high))),
            ),
            ("draws", json!(expected.map(|(draws, _)| draws))),
            (
                "expected_best",
                json!(expected.map(|(_, best)| rounded(*best))),
            ),
            (
                "pretrained_mean",
                json!(pretrained.map(|it| rounded(it.mean))),
            ),
            (
                "pretrained_examples",
                json!(pretrained.map(|it| it.examples)),
            ),
            (
                "alone_mean",
                json!(pretrained.and_then(|it| it.alone).map(rounded)),
            ),
            ("latest", json!(best.map(|group| group.day()))),
            ("command", json!(self.offer.map(|offer| &offer.command))),
            ("petaflop", json!(self.offer.map(Offer::petaflop))),
            ("page", json!(page)),
        ]
    }
}

/// Returns a table of some summaries, with a column for the model or without.
pub(super) fn table<'a>(names: &Names, shown: impl IntoIterator<Item = &'a Summary<'a>>) -> Table {
    let mut columns = ["model", "task"].map(Column::text).to_vec();
    columns.extend(["printed", "figures", "floor"].map(Column::value));
    columns.extend(["re-run by others", "re-run here"].map(Column::value));
    columns.extend(["seeds", "trained"].map(Column::value));
    columns.extend(["hours", "PFLOP a seed", "settings tried"].map(Column::value));
    columns.extend(["their spread", "expected best", "pretrained"].map(Column::text));
    columns.extend(["latest", "setting"].map(Column::text));
    let rows = shown.into_iter().map(|it| row(names, it));
    Table {
        name: "cells".to_owned(),
        title: "Cells: a model on a task".to_owned(),
        columns,
        rows: rows.collect(),
        notes: NOTES.map(str::to_owned).to_vec(),
        ..Table::default()
    }
}

/// Explanations of the columns.
const NOTES: [&str; 6] = [
    "printed: test accuracies in percent, from the lowest to the highest. Copies of another source's figure and figures with a known \
     defect (*) are left out, unless there are no others. The figures come from different recipes and are never averaged. A word such \
     as FAIL is what the source prints in place of a number. figures: how many different ones there are. floor: the accuracy of the \
     best trivial predictor, if it was measured.",
    "re-run here: the mean over the seeds of the setting with the highest validation accuracy, among runs that can be compared with a \
     published figure; † there are no such runs, and the mean is that of another setting. trained: seeds that ended more than 2 % \
     below the loss of the class shares, out of those for which this is known.",
    "hours: of one of these runs, from its start to its record, on the machine that its record names. PFLOP a seed: floating point \
     operations, in units of 10¹⁵, of the cheapest recipe that follows a source, with every sequence at its full length.",
    "settings tried: settings of the same model, recipe and data among the runs here; their spread: lowest and highest validation \
     accuracy in percent; expected best: the expected highest of that many settings drawn at random.",
    "pretrained: the mean of runs here that first predicted tokens of the training inputs. After it, if there are any, comes the mean \
     of runs without pretraining that saw as many examples (5 % more or fewer). Of several settings, those with the highest validation \
     accuracy count.",
    "An empty cell means that nothing is known, not that the score is bad.",
];

fn row(names: &Names, it: &Summary) -> Row {
    let number = |value: Option<f64>, digits: usize| {
        value.map_or_else(Cell::default, |value| {
            Cell::with(format!("{value:.digits$}"), "value", value)
        })
    };
    let count = |count: usize| match count {
        0 => Cell::default(),
        count => Cell::with(count.to_string(), "value", count),
    };
    let best = it.best;
    let floor = floors::best(it.task);
    let tuning = it.tuning.as_ref();
    Row::new(vec![
        names.to_cell(Cell::text(it.model), it.model, it.task),
        names.to_task(Cell::text(it.task), it.task),
        Cell::with(it.printed_words(), "value", json!(it.figures().last())),
        count(it.figures().len() + it.missing.len()),
        number(floor.map(|floor| floor.accuracy), 2),
        number(it.by_others.last().copied(), 2),
        best.map_or_else(Cell::default, |group| {
            let mark = if group.is_comparable() { "" } else { " †" };
            let words = group.score_words() + mark;
            Cell::with(words, "value", json!(it.highest(Tier::Here)))
        }),
        count(best.map_or(0, Group::seeds)),
        Cell::text(best.map_or_else(String::new, Group::trained_words)),
        number(best.and_then(Group::hours), 2),
        it.offer.map_or_else(Cell::default, |offer| {
            Cell::with(in_petaflop(offer), "value", offer.petaflop())
        }),
        count(tuning.map_or(0, |tuning| tuning.tried)),
        Cell::text(tuning.map_or_else(String::new, Tuning::spread_words)),
        Cell::text(tuning.map_or_else(String::new, Tuning::expected_words)),
        it.pretrained.as_ref().map_or_else(Cell::default, |found| {
            Cell::with(found.words(), "value", found.mean)
        }),
        Cell::text(best.map_or("", |group| group.day())),
        Cell::text(best.map_or_else(String::new, Group::setting_words)),
    ])
}

/// Returns an accuracy in percent without the digits that a mean of fractions adds.
fn rounded(percent: f64) -> f64 {
    (1e6 * percent).round() / 1e6
}

/// Returns the operations of a seed in words, with a sign if evaluations are not counted.
pub(super) fn in_petaflop(offer: &Offer) -> String {
    let sign = if offer.complete { "" } else { "> " };
    let number = match offer.petaflop() {
        number if number < 10.0 => format!("{number:.2}"),
        number if number < 100.0 => format!("{number:.1}"),
        number => crate::format::grouped(number.round() as u64),
    };
    format!("{sign}{number}")
}

#[cfg(test)]
mod tests {
    use super::super::evidence;
    use super::super::ours::testing::{group, run};
    use super::*;
    use crate::published;

    /// Every cell of the published figures, computed again from the file.
    #[test]
    fn cells_have_the_figures_that_are_printed_without_copies() {
        let site = Site::default();
        let evidence = evidence::all(&site, &[]);
        let cells = all(&site, &evidence, &[]);
        assert!(cells.len() > 50);
        let (mut starred, mut shared) = (0, 0);
        for cell in &cells {
            let own = || {
                published::figures().iter().filter(|it| {
                    let is_re_run = ["re-run", "reproduction"].map(|word| it.model.contains(word));
                    it.entry == cell.model
                        && task_name(&it.task) == task_name(cell.task)
                        && it.metric == ACCURACY
                        && is_re_run == [false; 2]
                        && !it.notes.contains("copied by")
                        && !it.notes.contains("copied from")
                })
            };
            let values = |defect: bool| {
                let own = own().filter(|it| it.defect.is_empty() != defect);
                let mut values: Vec<f64> = own.filter_map(|it| it.value).collect();
                let count = values.len();
                values.sort_by(f64::total_cmp);
                values.dedup();
                (count > values.len(), values)
            };
            let (repeated, printed) = values(false);
            assert_eq!(cell.printed, printed, "{} on {}", cell.model, cell.task);
            assert_eq!(cell.doubtful, values(true).1);
            starred += usize::from(!cell.doubtful.is_empty());
            shared += usize::from(repeated);
        }
        assert!(starred > 0 && shared > 0);
        // What is no accuracy stands above no floor.
        let others = evidence.iter().filter(|one| one.metric != ACCURACY);
        let mut remarks = others.flat_map(|one| &one.remarks);
        assert!(!remarks.any(|words| words.starts_with("no better than a trivial")));
    }

    /// The group is chosen by validation, as its setting was, among those that a source can be
    /// compared with.
    #[test]
    fn the_best_group_is_chosen_without_its_test_score() {
        let of = |test: f64, validation: f64, alter: fn(&mut crate::Record)| {
            [run(1, test, |it| {
                it.model.name = "s4".to_owned();
                it.scores.as_mut().unwrap().val_accuracy = Some(validation);
                alter(it);
            })]
        };
        let set = |it: &mut crate::Record| it.recipe.overrides = vec!["train.steps=2".to_owned()];
        let low = of(0.9, 0.3, |_| ());
        let high = of(0.5, 0.4, |_| ());
        let changed = of(0.6, 0.8, set);
        let partial = of(0.7, 0.9, |it| it.task.partial = true);
        let best = |runs: &[&[crate::Record; 1]]| {
            let groups: Vec<Group> = runs.iter().map(|runs| group(*runs, "")).collect();
            let site = Site::default();
            let evidence = evidence::all(&site, &groups);
            let cells = all(&site, &evidence, &groups);
            let mut cells = cells.iter();
            let cell = cells.find(|it| it.model == "s4" && it.task == "listops");
            let cell = cell.unwrap();
            assert_eq!(cell.groups, runs.len());
            cell.highest(Tier::Here).map(f64::round)
        };
        assert_eq!(best(&[&low, &high]), Some(50.0));
        assert_eq!(best(&[&high, &low, &changed, &partial]), Some(50.0));
        assert_eq!(best(&[&changed, &partial]), Some(60.0));
        assert_eq!(best(&[&partial]), None);
    }

    #[test]
    fn the_cheapest_way_is_offered() {
        let source = published::source("s4").unwrap();
        let figure = source.cell("s4", "listops", ACCURACY).unwrap();
        let way = |petaflop: f64| {
            Ok(Offer {
                command: format!("lra repro at {petaflop}"),
                flops: petaflop * 1e15,
                complete: true,
                differences: Vec::new(),
            })
        };
        let ways = [way(3.0), way(2.0), way(5.0), Err("none".to_owned())];
        let mut summary = Summary::new("s4", "listops");
        for way in &ways {
            let one = Evidence {
                model: "s4",
                task: "listops",
                data: "listops".to_owned(),
                metric: ACCURACY,
                value: figure.value,
                text: figure.text(),
                date: String::new(),
                remarks: Vec::new(),
                origin: Origin::Printed(source, figure, Some(way)),
            };
            summary.add(&one, &[]);
        }
        assert_eq!(summary.offer.map(Offer::petaflop), Some(2.0));
        let shown = [2.345, 23.45, 2_345.6].map(|petaflop| in_petaflop(&way(petaflop).unwrap()));
        assert_eq!(shown, ["2.35", "23.4", "2,346"]);
    }
}
