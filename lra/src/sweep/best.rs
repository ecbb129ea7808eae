//! Settings with the best validation accuracy of a search.

use results::stats::Sample;
use results::table::{Cell as TableCell, Column, Row, Table};

use crate::sweep::plan::Cell;
use crate::sweep::scheduler::State;
use crate::sweep::seeds::Seeds;

/// Returns one row for each task, recipe and model: the point of the search with the highest mean
/// validation accuracy over the seeds. Points of which a seed diverged or failed rank below those
/// of which all seeds were scored. The last `searched` options of a cell's model are its point.
pub fn table(cells: &[Cell], states: &[State], searched: usize) -> Table {
    let mut groups: Vec<Group> = Vec::new();
    let mut records = Vec::new();
    for (cell, state) in cells.iter().zip(states) {
        let options = &cell.model.options;
        let (own, point) = options.split_at(options.len().saturating_sub(searched));
        let key = [
            cell.column(),
            cell.resolved.spec.cell.recipe.clone(),
            std::iter::once(cell.model.model.to_owned())
                .chain(own.iter().cloned())
                .collect::<Vec<_>>()
                .join(":"),
        ];
        let point = point.join(" ");
        let group = match groups
            .iter_mut()
            .find(|it| it.key == key && it.point == point)
        {
            Some(group) => group,
            None => {
                groups.push(Group {
                    key,
                    point,
                    seeds: Seeds::default(),
                    test: Vec::new(),
                });
                let last = groups.len() - 1;
                &mut groups[last]
            }
        };
        group
            .seeds
            .add(state, results::record::Scores::deciding_accuracy);
        let record = state.score();
        group
            .test
            .extend(record.and_then(results::Record::test_accuracy));
        records.extend(record);
    }
    let mean = |values: &[f64]| Sample::of(values).map(|sample| sample.mean);
    let mut rows = Vec::new();
    let mut keys: Vec<&[String; 3]> = Vec::new();
    let mut notes = vec![
        "Means over the seeds. The test accuracy of settings that were not chosen played no part."
            .to_owned(),
    ];
    notes.extend(results::mixture(&records).map(|mixture| format!("The runs are of {mixture}.")));
    for group in &groups {
        if keys.contains(&&group.key) {
            continue;
        }
        keys.push(&group.key);
        let rivals = groups.iter().filter(|it| it.key == group.key);
        let scored = rivals.clone().filter_map(|it| Some((it, it.seeds.mean()?)));
        // The first of equals wins: the order is that of the command line.
        let best = scored.reduce(|best, it| {
            let better = match it.0.seeds.rank().cmp(&best.0.seeds.rank()) {
                std::cmp::Ordering::Equal => it.1 > best.1,
                other => other.is_lt(),
            };
            if better { it } else { best }
        });
        let tried = rivals.clone().count();
        let [task, recipe, model] = group.key.clone();
        let lacking: Vec<String> = rivals
            .filter_map(|it| Some(format!("{} ({})", it.point, it.seeds.lacking()?)))
            .collect();
        if !lacking.is_empty() {
            notes.push(format!(
                "{task}, {model}: settings with seeds that have no score: {}.",
                lacking.join(", ")
            ));
        }
        let mut row = vec![
            TableCell::text(task),
            TableCell::text(model),
            TableCell::text(recipe),
        ];
        row.extend(match best {
            Some((it, val)) => [
                TableCell::text(it.point.clone()),
                TableCell::text(tried.to_string()),
                TableCell::text(it.seeds.scored_of_all()),
                TableCell::text(format!("{:.2}", 100.0 * val)),
                TableCell::text(
                    mean(&it.test).map_or(String::new(), |x| format!("{:.2}", 100.0 * x)),
                ),
            ],
            None => [
                TableCell::text("none was scored"),
                TableCell::text(tried.to_string()),
                TableCell::text("0"),
                TableCell::default(),
                TableCell::default(),
            ],
        });
        rows.push(Row::new(row));
    }
    if groups.iter().any(|it| it.seeds.lacking().is_some()) {
        notes.push(
            "Settings with a seed that diverged or failed rank below all others, whatever the mean of the rest."
                .to_owned(),
        );
    }
    Table {
        name: "best".to_owned(),
        title: "Best settings by validation accuracy, %".to_owned(),
        unit: "%".to_owned(),
        columns: vec![
            Column::key("task"),
            Column::key("model"),
            Column::key("recipe"),
            Column::text("settings"),
            Column::value("tried"),
            Column::value("seeds"),
            Column::value("val"),
            Column::value("test"),
        ],
        rows,
        notes,
        ..Table::default()
    }
}

/// The runs of one point.
struct Group {
    /// Task, recipe, and the model with options of its own.
    key: [String; 3],
    point: String,
    /// Validation accuracies.
    seeds: Seeds,
    /// Test accuracies of the seeds whose runs ended with a score.
    test: Vec<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::testing::{bag, cells, diverged, scored, scored_densely};

    /// Returns the settings, the seeds and the accuracies of the first row.
    fn first(states: &[State]) -> Vec<String> {
        let points = ["train.steps=3", "train.steps=4"].map(|it| bag(&[it]));
        let cells = cells(points.to_vec(), vec![0, 1]);
        let table = table(&cells, states, 1);
        let cells = table.rows[0].cells.iter().skip(3);
        cells.map(|cell| cell.text.clone()).collect()
    }

    #[test]
    fn the_point_with_the_best_validation_accuracy_is_chosen_whatever_the_test_says() {
        let states = [(0.5, 1.0), (0.5, 1.0), (0.4, 1.0), (0.8, 1.0)];
        let states = states.map(|(accuracy, loss)| scored(accuracy, loss));
        assert_eq!(
            first(&states),
            ["train.steps=4", "2", "2", "60.00", "40.00"]
        );
    }

    #[test]
    fn labels_at_positions_decide_where_there_are_any() {
        let [low, high] = [0.5, 0.75].map(|all| scored_densely((1.0 - all, 1.0), (all, 1.0)));
        let states = [low.clone(), low, high.clone(), high];
        assert_eq!(first(&states)[0], "train.steps=4");
    }

    #[test]
    fn the_first_of_equal_points_is_chosen() {
        let states = [0.5, 0.5, 0.25, 0.75].map(|accuracy| scored(accuracy, 1.0));
        assert_eq!(first(&states)[0], "train.steps=3");
    }

    #[test]
    fn a_point_with_a_diverged_seed_ranks_below_all_others() {
        let states = [
            scored(0.25, 1.0),
            scored(0.25, 1.0),
            scored(0.75, 1.0),
            diverged(0.75, 1.0),
        ];
        assert_eq!(first(&states)[..3], ["train.steps=3", "2", "2"]);
        // A point with a seed that is still to be run ranks between them.
        let open = [
            states[3].clone(),
            scored(0.75, 1.0),
            scored(0.25, 1.0),
            State::Pending,
        ];
        assert_eq!(first(&open)[..3], ["train.steps=4", "2", "1 of 2"]);
        let none = [
            State::Pending,
            State::Pending,
            diverged(0.5, 1.0),
            State::Pending,
        ];
        assert_eq!(first(&none)[..3], ["none was scored", "2", "0"]);
    }
}
