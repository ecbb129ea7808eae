//! Agreement of a ranking of models with the published tables.
//!
//! A model's score is the mean over the tasks of the normal scores of its ranks. It is compared
//! with the published five-task averages of the [`anchors`]: Spearman's rho with a bootstrap
//! interval over the models, the AUC of the strong cluster against the weak, and the number of
//! pairs at least [`APART`] points apart in print that both rank in the same order. Every figure is
//! given for all tasks, for each task, and for all but one.
//!
//! ```text
//! anchors     the models with published averages, parted into a tuning half and a sealed one
//! selection   which of a folder's records are compared
//! scores      what each run reached, and one score per model
//! statistics  ranks, correlations, areas
//! bootstrap   intervals
//! standing    the place of one model among others
//! ```

mod anchors;
mod bootstrap;
mod scores;
mod selection;
mod standing;
mod statistics;

use self::scores::Reached;
use self::statistics::{auc, ranks, spearman, spearman_brown, told_apart};
use crate::format::counted;
use crate::pivot::mixture;
use crate::record::Record;
use crate::table::{Cell, Column, Row, Schema, Table};

pub use self::anchors::{AVERAGED, Anchor, Cluster, Half, Published, anchors};
pub use self::scores::Measure;
pub(crate) use self::scores::newest;
pub use self::selection::{Selection, select};
pub(crate) use self::selection::{changes, is_rate, mixed_cells, most_frequent_kind};
pub use self::standing::{Ranked, RankedData, Ranking, Standing, TaskStanding};

/// Name of the recipe of the small protocol.
pub const RECIPE: &str = "mini";

/// Least difference of two published averages, in points, for their pair to count.
pub const APART: f64 = 4.0;

/// Least number of anchors whose bootstrap says something.
const LEAST: usize = 8;

/// Largest number of splits of the seeds into halves that a reliability averages.
const SPLITS: usize = 500;

/// Agreement of a ranking with the published one.
#[derive(Clone, Debug, PartialEq)]
pub struct Agreement {
    /// The measure that runs were ranked by.
    pub measure: Measure,
    /// All tasks, each task, and all but each.
    pub rows: Vec<Figures>,
    /// The anchors that were compared.
    pub models: Vec<String>,
    /// Mean of Spearman's rho over all rankings that put the strong cluster above the weak one, in
    /// any order within each.
    pub clusters_alone: Option<f64>,
    /// For each cluster its number of models, and the rho among them alone.
    pub within: [(Cluster, usize, Option<f64>); 2],
    /// Remarks on how runs count, and on what they do not share.
    pub remarks: Vec<String>,
    /// Anchors that lack a task, each with its missing tasks.
    pub incomplete: Vec<(String, Vec<String>)>,
    /// Seeds that every model has on every task.
    pub seeds: Vec<u64>,
    /// Time at which the latest of the compared records was written, RFC 3339.
    pub latest: String,
}

/// The figures of one set of tasks.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// The name of the set of tasks.
    pub tasks: String,
    /// Spearman's correlation with the published averages.
    pub rho: Option<f64>,
    /// Its 95 % interval by bootstrap over the models; absent for fewer than eight.
    pub interval: Option<(f64, f64)>,
    /// For a single task, Spearman's correlation with the published accuracies on it.
    pub same_task: Option<f64>,
    /// The area under the ROC curve of the strong cluster against the weak.
    pub auc: Option<f64>,
    /// Number of pairs at least [`APART`] points apart in print that are in the same order, and
    /// number of all such pairs.
    pub pairs: (usize, usize),
    /// The correlation of scores by half of the seeds with scores by the other half, stepped up to
    /// all seeds; absent if it is not positive.
    pub reliability: Option<f64>,
}

impl Agreement {
    /// Compares records with the published averages of the anchors of a half, or of all.
    #[must_use]
    pub fn of(records: &[&Record], measure: Option<Measure>, half: Option<Half>) -> Agreement {
        let asked = anchors().iter();
        let asked = asked.filter(|anchor| half.is_none_or(|half| anchor.half == half));
        let names: Vec<&str> = asked.map(|anchor| anchor.model.as_str()).collect();
        let of_anchors = |record: &&&Record| names.contains(&record.model.name.as_str());
        let records: Vec<&Record> = records.iter().filter(of_anchors).copied().collect();
        let measure = measure.unwrap_or_else(|| Measure::of(records.iter().copied()));
        let reached = Reached::new(&records, measure, &names);
        let known = |model: &String| {
            let anchor = anchors().iter().find(|anchor| anchor.model == *model)?;
            Some((anchor.cluster, Published::of(model)?))
        };
        let known: Vec<(Cluster, Published)> = reached.models.iter().filter_map(known).collect();
        let compared = |tasks: String, columns: &[usize]| figures(&reached, &known, tasks, columns);
        let count = reached.columns.len();
        let all: Vec<usize> = (0..count).collect();
        let mut rows = vec![compared("all".to_owned(), &all)];
        if count > 1 {
            for (at, column) in reached.columns.iter().enumerate() {
                rows.push(compared(column.name_among(&reached.columns), &[at]));
            }
        }
        // With two tasks, all but one is the other.
        if count > 2 {
            for (at, column) in reached.columns.iter().enumerate() {
                let others: Vec<usize> = all.iter().copied().filter(|it| *it != at).collect();
                let name = column.name_among(&reached.columns);
                rows.push(compared(format!("without {name}"), &others));
            }
        }
        let within = [Cluster::Strong, Cluster::Weak].map(|cluster| {
            let (scores, averages): (Vec<f64>, Vec<f64>) = reached
                .scores(&all, None)
                .into_iter()
                .zip(&known)
                .filter(|(_, (it, _))| *it == cluster)
                .map(|(score, (_, figures))| (score, figures.average()))
                .unzip();
            (cluster, scores.len(), spearman(&scores, &averages))
        });
        let mut remarks = measure.remarks(&records);
        let compared: Vec<&Record> = newest(&records)
            .into_iter()
            .filter(|record| reached.models.contains(&record.model.name))
            .collect();
        remarks.extend(mixture(&compared).map(|mixture| format!("The runs are of {mixture}.")));
        let written = compared
            .iter()
            .map(|record| record.provenance.created.as_str());
        Agreement {
            measure,
            within,
            remarks,
            rows,
            latest: written.max().unwrap_or_default().to_owned(),
            clusters_alone: clusters_alone(&known),
            models: reached.models,
            incomplete: reached.incomplete,
            seeds: reached.seeds,
        }
    }

    /// Returns one line for below a table.
    #[must_use]
    pub fn line(&self) -> String {
        let all = &self.rows[0];
        let number = |value: Option<f64>| value.map_or("-".to_owned(), |x| format!("{x:.2}"));
        let interval = all.interval.map_or(String::new(), |(low, high)| {
            format!(" ({low:.2} to {high:.2})")
        });
        format!(
            "Agreement with the published averages over {}, by {}: rho {}{interval}, AUC of the two clusters {}, \
             {} of the {} whose averages differ by at least {APART} points have the same order here; {}.{}",
            counted(self.models.len() as u64, "anchor"),
            self.measure.words(),
            number(all.rho),
            number(all.auc),
            all.pairs.0,
            counted(all.pairs.1 as u64, "pair"),
            self.date(),
            self.too_few()
                .map_or(String::new(), |words| format!(" {words}")),
        )
    }

    /// Returns a sentence about anchors that are too few for an interval; `None` if they are enough.
    fn too_few(&self) -> Option<String> {
        (self.models.len() < LEAST).then(|| {
            format!("Fewer than {LEAST} anchors: no interval, and the figures say little.")
        })
    }

    /// Returns the day of the latest record.
    fn date(&self) -> &str {
        match self.latest.get(..10) {
            Some(day) => day,
            None => "undated",
        }
    }

    /// Returns the figures as a table.
    #[must_use]
    pub fn table(&self) -> Table {
        let number = |name: &'static str, value: Option<f64>| match value {
            Some(value) => Cell::with(format!("{value:.2}"), name, value),
            None => Cell::default(),
        };
        let row = |figures: &Figures| {
            let (low, high) = figures.interval.unzip();
            let (told, pairs) = figures.pairs;
            Row::new(vec![
                Cell::text(figures.tasks.clone()),
                number("rho", figures.rho),
                number("low", low),
                number("high", high),
                number("same_task", figures.same_task),
                number("auc", figures.auc),
                Cell {
                    text: format!("{told} of {pairs}"),
                    fields: vec![("told", told.into()), ("pairs", pairs.into())],
                    ..Cell::default()
                },
                number("reliability", figures.reliability),
            ])
        };
        Table {
            name: "agreement".to_owned(),
            title: "Agreement with the published averages".to_owned(),
            unit: String::new(),
            columns: vec![
                Column::key("tasks"),
                Column::value("rho").holding(&["rho"]),
                Column::value("low").holding(&["low"]),
                Column::value("high").holding(&["high"]),
                Column::value("same task").holding(&["same_task"]),
                Column::value("AUC").holding(&["auc"]),
                Column::value("pairs told").holding(&["told", "pairs"]),
                Column::value("split half").holding(&["reliability"]),
            ],
            rows: self.rows.iter().map(row).collect(),
            notes: self.notes(),
            schema: Schema {
                info: &["tasks"],
                found: &[
                    "rho",
                    "low",
                    "high",
                    "same_task",
                    "auc",
                    "told",
                    "pairs",
                    "reliability",
                ],
            },
        }
    }

    fn notes(&self) -> Vec<String> {
        let count = |half: Half| {
            let of_half = |model: &&String| Half::of(model) == half;
            self.models.iter().filter(of_half).count()
        };
        let seeds: Vec<String> = self.seeds.iter().map(u64::to_string).collect();
        let mut notes = vec![
            format!(
                "{} ({} tuning, {} sealed) ranked by {}, {}: {}.",
                counted(self.models.len() as u64, "anchor"),
                count(Half::Tuning),
                count(Half::Sealed),
                self.measure.words(),
                self.date(),
                self.models.join(", ")
            ),
            "rho: Spearman's correlation with the published five-task averages, 95 % interval by bootstrap over the models; same task: \
             with the published accuracies on that task."
                .to_owned(),
            format!(
                "AUC: how often a model with a published average above 72.5 scores above one below it. Pairs told: of the pairs whose published averages differ by at least {APART} points, those that have the same order here."
            ),
            match self.seeds.len() {
                0 | 1 => "Split half needs at least two seeds that every model has on every task.".to_owned(),
                _ => format!("Split half: reliability over the seeds {}.", seeds.join(", ")),
            },
        ];
        notes.extend(self.too_few());
        notes.extend(self.clusters_alone.map(|rho| {
            format!("A ranking that only separates the two clusters has a mean rho of {rho:.2} on these anchors.")
        }));
        let [strong, weak] = self.within.map(|(_, count, rho)| {
            let rho = rho.map_or("unknown".to_owned(), |rho| format!("{rho:.2}"));
            (count, rho)
        });
        if self.models.len() >= LEAST {
            notes.push(format!(
                "Among the models of the strong cluster alone ({}), rho is {}; among those of the weak ({}), {}.",
                strong.0, strong.1, weak.0, weak.1
            ));
        }
        notes.extend(self.remarks.iter().cloned());
        notes.extend(
            self.incomplete.iter().map(|(model, lacks)| {
                format!("{model} left out: nothing on {}.", lacks.join(", "))
            }),
        );
        notes
    }
}

/// Returns [`Agreement::clusters_alone`].
fn clusters_alone(known: &[(Cluster, Published)]) -> Option<f64> {
    let averages: Vec<f64> = known.iter().map(|(_, figures)| figures.average()).collect();
    let ranks = ranks(&averages);
    let weak = known.iter().filter(|(it, _)| *it == Cluster::Weak).count();
    let strong = known.len() - weak;
    if weak == 0 || strong == 0 {
        return None;
    }
    let middle = (known.len() as f64 + 1.0) / 2.0;
    // The mean rank of a model whose cluster alone is known.
    let expected = |cluster: Cluster| match cluster {
        Cluster::Weak => (weak as f64 + 1.0) / 2.0,
        Cluster::Strong => weak as f64 + (strong as f64 + 1.0) / 2.0,
    };
    let pairs = ranks.iter().zip(known);
    let both: f64 = pairs
        .map(|(rank, (cluster, _))| (rank - middle) * (expected(*cluster) - middle))
        .sum();
    let own: f64 = ranks.iter().map(|rank| (rank - middle).powi(2)).sum();
    Some(both / own).filter(|it| it.is_finite())
}

/// Compares the scores on some of the tasks.
fn figures(
    reached: &Reached,
    known: &[(Cluster, Published)],
    tasks: String,
    columns: &[usize],
) -> Figures {
    let scores = reached.scores(columns, None);
    let averages: Vec<f64> = known.iter().map(|(_, figures)| figures.average()).collect();
    let strong: Vec<bool> = known
        .iter()
        .map(|(cluster, _)| *cluster == Cluster::Strong)
        .collect();
    let drawn = |indices: &[usize]| {
        let pick = |values: &[f64]| -> Vec<f64> { indices.iter().map(|at| values[*at]).collect() };
        spearman(&pick(&scores), &pick(&averages))
    };
    let same_task = match columns {
        [column] => {
            let task = reached.columns[*column].task.as_str();
            let place = crate::published::TASKS[..AVERAGED]
                .iter()
                .position(|it| *it == task);
            place.and_then(|at| {
                let figures: Vec<f64> = known.iter().map(|(_, it)| it.tasks[at]).collect();
                spearman(&scores, &figures)
            })
        }
        _ => None,
    };
    Figures {
        tasks,
        rho: spearman(&scores, &averages),
        interval: (scores.len() >= LEAST)
            .then(|| bootstrap::interval(scores.len(), drawn))
            .flatten(),
        same_task,
        auc: auc(&scores, &strong),
        pairs: told_apart(&scores, &averages, APART),
        reliability: reliability(reached, columns),
    }
}

/// Returns the correlation between the scores of two halves of the seeds, averaged over splits and
/// stepped up. If the number of seeds is odd, one half has one more.
fn reliability(reached: &Reached, columns: &[usize]) -> Option<f64> {
    let seeds = &reached.seeds;
    let mut correlations = Vec::new();
    for chosen in halves(seeds) {
        let rest: Vec<u64> = seeds
            .iter()
            .copied()
            .filter(|it| !chosen.contains(it))
            .collect();
        let one = reached.scores(columns, Some(&chosen));
        correlations.push(spearman(&one, &reached.scores(columns, Some(&rest)))?);
    }
    if correlations.is_empty() {
        return None;
    }
    let mean = correlations.iter().sum::<f64>() / correlations.len() as f64;
    // The formula assumes halves that measure the same. It says nothing of halves that disagree.
    (mean > 0.0).then(|| spearman_brown(mean))
}

/// Returns the smaller halves of all splits of the seeds, or of [`SPLITS`] random ones if there are
/// more; empty for fewer than two seeds.
fn halves(seeds: &[u64]) -> Vec<Vec<u64>> {
    let size = seeds.len() / 2;
    let mut found = Vec::new();
    if size == 0 {
        return found;
    }
    let mut places: Vec<usize> = (0..size).collect();
    loop {
        found.push(places.iter().map(|at| seeds[*at]).collect());
        // The next combination in lexicographic order: the last place that can move does.
        let movable = (0..size)
            .rev()
            .find(|at| places[*at] < seeds.len() - size + at);
        let Some(at) = movable else {
            return found;
        };
        if found.len() == SPLITS {
            let sets = bootstrap::random_sets(seeds.len(), size, SPLITS);
            let seeds_of = |set: &Vec<usize>| set.iter().map(|at| seeds[*at]).collect();
            return sets.iter().map(seeds_of).collect();
        }
        let first = places[at] + 1;
        for (offset, place) in places[at..].iter_mut().enumerate() {
            *place = first + offset;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The mean over all orders within the clusters, one by one.
    #[test]
    fn the_clusters_alone_have_the_mean_rho_of_all_orders_within_them() {
        let anchor = |cluster, average| {
            let tasks = [average; AVERAGED];
            (cluster, Published { tasks })
        };
        let averages = [50.0, 61.0, 55.0, 80.0, 90.0];
        let known: Vec<_> = averages
            .iter()
            .map(|average| match *average < 72.5 {
                true => anchor(Cluster::Weak, *average),
                false => anchor(Cluster::Strong, *average),
            })
            .collect();
        let weak = [
            [0.0, 1.0, 2.0],
            [0.0, 2.0, 1.0],
            [1.0, 0.0, 2.0],
            [1.0, 2.0, 0.0],
            [2.0, 0.0, 1.0],
            [2.0, 1.0, 0.0],
        ];
        let orders = weak
            .iter()
            .flat_map(|[a, b, c]| [[3.0, 4.0], [4.0, 3.0]].map(|[d, e]| [*a, *b, *c, d, e]));
        let rhos: Vec<f64> = orders
            .map(|scores| spearman(&scores, &averages).unwrap())
            .collect();
        let mean = rhos.iter().sum::<f64>() / rhos.len() as f64;
        assert!((clusters_alone(&known).unwrap() - mean).abs() < 1e-12);
        assert_eq!(clusters_alone(&known[..3]), None, "one cluster");
    }

    #[test]
    fn seeds_are_split_in_every_way() {
        assert!(halves(&[]).is_empty() && halves(&[7]).is_empty());
        assert_eq!(halves(&[0, 1]), [[0], [1]]);
        assert_eq!(halves(&[4, 5, 6]), [[4], [5], [6]]);
        assert_eq!(halves(&[0, 1, 2, 3]).len(), 6);
        // Of more ways, no seed is in one half much more often than in the other.
        let many = halves(&(0..30).collect::<Vec<u64>>());
        assert_eq!(many.len(), SPLITS);
        for seed in 0..30 {
            let count = many.iter().filter(|half| half.contains(&seed)).count();
            assert!((200..=300).contains(&count), "seed {seed} in {count}");
        }
        let mut apart = many.clone();
        apart.sort();
        apart.dedup();
        assert_eq!(apart.len(), SPLITS);
        assert!(many.iter().all(|half| half.len() == 15 && half.is_sorted()));
    }
}
