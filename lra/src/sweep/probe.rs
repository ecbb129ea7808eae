//! `lra sweep --probe`: short runs at each of a recipe's learning rates, and the rate with the
//! lowest validation loss.

use std::collections::{HashMap, HashSet};

use results::table::{Cell as TableCell, Column, Row, Table};

use crate::error::{Error, Result};
use crate::model_choice::ModelChoice;
use crate::overlay;
use crate::recipe::{Probe, Recipe};
use crate::sweep::plan::{Cell, Matrix, Planned, Refused};
use crate::sweep::scheduler::State;
use crate::sweep::seeds::Seeds;

/// Settings that a probe adds to a model's options.
const ADDED: [&str; 4] = ["train.steps", "train.warmup", "train.eval_every", RATE];
/// The setting that is searched.
pub const RATE: &str = "train.learning_rate";

/// Returns the short runs: every model of a matrix on every task at every learning rate of its
/// recipe, in this order.
///
/// # Errors
/// A recipe names no rates, the user gives a rate, or as [`Matrix::planned`].
pub fn cells(matrix: &Matrix, typed: &[String]) -> Result<Planned> {
    let of_models = matrix.models.iter().flat_map(ModelChoice::assignments);
    let mut given = matrix.assignments.iter().cloned().chain(of_models);
    if let Some(rate) = given.find(|it| overlay::key(it) == RATE) {
        return Err(Error::usage(format!(
            "--probe tries the rates of the recipe; leave out {rate}"
        )));
    }
    for name in &matrix.recipes {
        rates_of(name)?;
    }
    let refused = matrix.planned(typed)?.refused;
    let mut cells = Vec::new();
    // A model or a task that is named twice is probed once.
    let mut known = HashSet::new();
    for name in &matrix.recipes {
        let probe = rates_of(name)?;
        for task in &matrix.tasks {
            for model in &matrix.models {
                let of_model = |model: ModelChoice| Matrix {
                    tasks: vec![task.clone()],
                    models: vec![model],
                    recipes: vec![name.clone()],
                    seeds: matrix.seeds.clone(),
                    protocol: matrix.protocol,
                    assignments: matrix.assignments.clone(),
                };
                let of_it = |it: &Refused| (&it.recipe, &it.task, &it.model) == (name, task, model);
                if refused.iter().any(of_it) {
                    continue;
                }
                let whole = of_model(model.clone()).cells()?;
                let train = &whole[0].resolved.spec.train;
                let shortened = |steps: usize| (steps as f64 * probe.share).ceil() as usize;
                for rate in &probe.learning_rates {
                    let values = [
                        shortened(train.steps).to_string(),
                        shortened(train.warmup).to_string(),
                        "0".to_owned(),
                        format!("{rate:e}"),
                    ];
                    let added = ADDED.iter().zip(values);
                    let mut short = model.clone();
                    short
                        .options
                        .extend(added.map(|(key, value)| format!("{key}={value}")));
                    let new = of_model(short).cells()?.into_iter();
                    cells.extend(new.filter(|cell| known.insert(cell.digest.clone())));
                }
            }
        }
    }
    Ok(Planned { cells, refused })
}

/// Returns the search for rates that a recipe describes.
fn rates_of(name: &str) -> Result<Probe> {
    let recipe = Recipe::load(name)?;
    recipe.body.probe.ok_or_else(|| {
        Error::usage(format!(
            "--probe: recipe {} names no rates to try; one that does is mini",
            recipe.name
        ))
    })
}

/// Returns the best learning rate of each task, by its name, from the short runs of one model. A
/// task on which no run was scored has none.
pub fn best(cells: &[Cell], states: &[State]) -> HashMap<String, f64> {
    let probed = probed(cells, states);
    let best = probed.iter().filter_map(|it| {
        let task = it.cell.resolved.spec.cell.task.clone();
        Some((task, it.best()?.0))
    });
    best.collect()
}

/// Results of the short runs of one model on one task.
struct Probed<'a> {
    cell: &'a Cell,
    /// The model with the user's own options, as the user named it.
    model: String,
    /// Learning rates with the validation losses of their seeds.
    rates: Vec<(f64, Seeds)>,
}

impl Probed<'_> {
    /// Returns the learning rate with the lowest mean loss, and that loss. Rates at which a seed
    /// diverged or failed rank below the others. Of equal losses, the smaller rate counts.
    fn best(&self) -> Option<(f64, f64)> {
        let means = self
            .rates
            .iter()
            .filter_map(|(rate, seeds)| Some((seeds.rank(), *rate, seeds.mean()?)));
        let best = means.min_by(|a, b| {
            let by_loss = a.2.total_cmp(&b.2).then(a.1.total_cmp(&b.1));
            a.0.cmp(&b.0).then(by_loss)
        });
        best.map(|(_, rate, loss)| (rate, loss))
    }
}

/// Groups the runs by model and task.
fn probed<'a>(cells: &'a [Cell], states: &[State]) -> Vec<Probed<'a>> {
    let mut all: Vec<Probed> = Vec::new();
    for (cell, state) in cells.iter().zip(states) {
        let options = &cell.model.options;
        let own = &options[..options.len().saturating_sub(ADDED.len())];
        let mut words = vec![cell.model.model.to_owned()];
        words.extend(own.iter().cloned());
        let (model, spec) = (words.join(":"), &cell.resolved.spec);
        let same = |it: &Probed| {
            let other = &it.cell.resolved.spec.cell;
            (it.cell.column(), &it.model, &other.recipe)
                == (cell.column(), &model, &spec.cell.recipe)
        };
        let index = all.iter().position(same).unwrap_or_else(|| {
            all.push(Probed {
                cell,
                model: model.clone(),
                rates: Vec::new(),
            });
            all.len() - 1
        });
        let rates = &mut all[index].rates;
        let rate = spec.train.learning_rate;
        if rates.last().is_none_or(|(last, _)| *last != rate) {
            rates.push((rate, Seeds::default()));
        }
        if let Some((_, seeds)) = rates.last_mut() {
            seeds.add(state, results::record::Scores::deciding_loss);
        }
    }
    all
}

/// Returns the learning rates that were found, as a table and as lines of a recipe.
pub fn report(cells: &[Cell], states: &[State]) -> (Table, String) {
    let all = probed(cells, states);
    let mut rows = Vec::new();
    let mut lines = vec!["rates = [".to_owned()];
    for it in &all {
        let names = &it.cell.resolved.spec.cell;
        let family = it.cell.resolved.family.map_or("", models::Family::name);
        let mut row = vec![
            TableCell::text(it.cell.column()),
            TableCell::text(it.model.clone()),
            TableCell::text(names.recipe.clone()),
            TableCell::text(family),
        ];
        let losses = it.rates.iter().map(|(rate, seeds)| {
            let loss = seeds.mean().map_or("-".to_owned(), |it| format!("{it:.3}"));
            let lacking = seeds.lacking();
            let lacking = lacking.map_or(String::new(), |it| format!(" ({it})"));
            format!("{rate:e}: {loss}{lacking}")
        });
        row.push(TableCell::text(losses.collect::<Vec<_>>().join(", ")));
        row.push(match it.best() {
            Some((rate, _)) => TableCell::with(format!("{rate:e}"), "rate", rate),
            None => TableCell::text("none ended"),
        });
        rows.push(Row::new(row));
        if let Some((rate, _)) = it.best() {
            lines.push(format!(
                "  {{ task = \"{}\", model = \"{}\", family = \"{family}\", learning_rate = {rate:e} }},",
                names.task, names.model
            ));
        }
    }
    lines.push("]".to_owned());
    let table = Table {
        name: "rates".to_owned(),
        title: "Rates with the least validation loss".to_owned(),
        unit: String::new(),
        columns: vec![
            Column::key("task"),
            Column::key("model"),
            Column::key("recipe"),
            Column::text("family"),
            Column::text("losses"),
            Column::value("rate"),
        ],
        rows,
        notes: vec![
            "Validation losses at the end of each short run, means over the seeds. Rates at which a seed diverged or failed rank below all others.".to_owned(),
        ],
        ..Table::default()
    };
    (table, lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::testing::{bag, cells, diverged, matrix, scored, scored_densely};

    /// Returns the best rate of two, each with two seeds.
    fn best_of(states: &[State]) -> Option<f64> {
        let rates = ["0.25", "0.5"].map(|rate| {
            let rate = format!("train.learning_rate={rate}");
            bag(&[
                "train.steps=3",
                "train.warmup=1",
                "train.eval_every=0",
                &rate,
            ])
        });
        let cells = cells(rates.to_vec(), vec![0, 1]);
        best(&cells, states).get("toy").copied()
    }

    #[test]
    fn the_rate_with_the_least_validation_loss_is_chosen_whatever_the_accuracy_says() {
        let of = |losses: [f64; 4]| best_of(&losses.map(|loss| scored(loss / 4.0, loss)));
        assert_eq!(of([1.0, 1.0, 0.5, 1.25]), Some(0.5));
        assert_eq!(of([0.5, 1.25, 1.0, 1.0]), Some(0.25));
        assert_eq!(of([1.0; 4]), Some(0.25), "the smaller of equals");
    }

    #[test]
    fn labels_at_positions_decide_where_there_are_any() {
        let losses = [1.0, 1.0, 0.5, 1.0];
        let states = losses.map(|all| scored_densely((0.5, 2.0 - all), (0.5, all)));
        assert_eq!(best_of(&states), Some(0.5));
    }

    #[test]
    fn a_rate_at_which_a_seed_diverged_ranks_below_all_others() {
        let diverged = diverged(0.75, 0.1);
        let [low, high] = [0.25, 2.0].map(|loss| scored(0.5, loss));
        let states = [low.clone(), diverged.clone(), high.clone(), high];
        assert_eq!(best_of(&states), Some(0.5));
        assert_eq!(
            best_of(&[low, diverged.clone(), diverged.clone(), diverged.clone()]),
            Some(0.25)
        );
        assert_eq!(best_of(&[0; 4].map(|_| diverged.clone())), None);
    }

    #[test]
    fn a_model_that_is_named_twice_is_probed_once() {
        let of = |models: Vec<ModelChoice>| {
            let matrix = Matrix {
                tasks: vec!["listops".parse().unwrap()],
                recipes: vec!["mini".to_owned()],
                ..matrix(models, vec![0])
            };
            cells_of(&matrix).len()
        };
        assert_eq!(of(vec![bag(&[]), bag(&[])]), of(vec![bag(&[])]));
    }

    #[test]
    fn short_runs_have_their_share_of_updates_and_warm_up_and_one_evaluation() {
        let probe = rates_of("mini").unwrap();
        let odd = ["train.steps=1001", "train.warmup=101"].map(str::to_owned);
        let matrix = Matrix {
            tasks: vec!["listops".parse().unwrap()],
            recipes: vec!["mini".to_owned()],
            assignments: odd.to_vec(),
            ..matrix(vec![bag(&[])], vec![0, 1])
        };
        let cells = cells_of(&matrix);
        assert_eq!(cells.len(), 2 * probe.learning_rates.len());
        for (place, cell) in cells.iter().enumerate() {
            let train = &cell.resolved.spec.train;
            let share = |of: f64| (of * probe.share).ceil() as usize;
            assert_eq!((train.steps, train.warmup), (share(1001.0), share(101.0)));
            assert_eq!(train.eval_every, 0);
            assert_eq!(train.learning_rate, probe.learning_rates[place / 2]);
            assert_eq!(cell.resolved.spec.cell.seed, place as u64 % 2);
        }
        let given = Matrix {
            assignments: vec![format!("{RATE}=0.5")],
            ..matrix
        };
        let error = super::cells(&given, &[]).err().unwrap().to_string();
        assert!(
            error.contains("leave out train.learning_rate=0.5"),
            "{error}"
        );
    }

    fn cells_of(matrix: &Matrix) -> Vec<Cell> {
        super::cells(matrix, &[]).unwrap().cells
    }
}
