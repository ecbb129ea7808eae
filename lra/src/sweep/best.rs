//! Settings with the best validation accuracy of a search.

use std::collections::HashMap;

use results::stats::Sample;
use results::table::{Cell as TableCell, Column, Row, Table};
use results::{Outcome, Record};

use crate::sweep::plan::Cell;

/// Returns one row for each task, recipe and model: the point of the search with the highest mean
/// validation accuracy over the seeds. The last `searched` options of a cell's model are its point.
pub fn table(cells: &[Cell], records: &HashMap<String, Record>, searched: usize) -> Table {
    let mut groups: Vec<Group> = Vec::new();
    for cell in cells {
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
                    val: Vec::new(),
                    test: Vec::new(),
                });
                let last = groups.len() - 1;
                &mut groups[last]
            }
        };
        // The score that a run had before it diverged or failed is not a score of these settings.
        let scored = |record: &&Record| record.outcome == Outcome::Scored;
        let record = records.get(&cell.digest).filter(scored);
        let scores = record.and_then(|record| record.scores.as_ref());
        group
            .val
            .extend(scores.and_then(results::record::Scores::deciding_accuracy));
        group.test.extend(scores.and_then(|it| it.test_accuracy));
    }
    let mean = |values: &[f64]| Sample::of(values).map(|sample| sample.mean);
    let mut rows = Vec::new();
    let mut keys: Vec<&[String; 3]> = Vec::new();
    for group in &groups {
        if keys.contains(&&group.key) {
            continue;
        }
        keys.push(&group.key);
        let rivals = groups.iter().filter(|it| it.key == group.key);
        let scored = rivals.clone().filter_map(|it| Some((it, mean(&it.val)?)));
        // The first of equals wins: the order is that of the command line.
        let best = scored.reduce(|best, it| if it.1 > best.1 { it } else { best });
        let tried = rivals.count();
        let [task, recipe, model] = group.key.clone();
        let mut row = vec![
            TableCell::text(task),
            TableCell::text(model),
            TableCell::text(recipe),
        ];
        row.extend(match best {
            Some((it, val)) => [
                TableCell::text(it.point.clone()),
                TableCell::text(tried.to_string()),
                TableCell::text(it.val.len().to_string()),
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
        notes: vec![
            "Means over the seeds. The test accuracy of settings that were not chosen played no part.".to_owned(),
        ],
        ..Table::default()
    }
}

/// The runs of one point.
struct Group {
    /// Task, recipe, and the model with options of its own.
    key: [String; 3],
    point: String,
    /// Accuracies of the seeds whose runs ended with a score.
    val: Vec<f64>,
    test: Vec<f64>,
}
