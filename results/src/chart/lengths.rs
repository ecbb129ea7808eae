//! Costs over length, on logarithmic axes: a straight line of slope 1 is linear cost, of slope 2
//! quadratic.

use super::names::{Ranks, slug, with_names_of_their_own};
use super::{Axis, Chart, Form, Scale, Series};
use crate::bench::{Alike, Bench, Grid, GridRow};

/// A quantity of a cell, drawn over its length.
struct Quantity {
    /// Word for the name of the file.
    name: &'static str,
    title: &'static str,
    unit: &'static str,
    of: fn(&Bench) -> Option<f64>,
}

const QUANTITIES: [Quantity; 2] = [
    Quantity {
        name: "time",
        title: "Time of a training step",
        unit: "seconds",
        of: |cell| Some(1.0 / cell.steps_per_second()?.median),
    },
    Quantity {
        name: "memory",
        title: "Peak memory of training",
        unit: "MiB",
        of: |cell| Some(cell.peak_bytes()? as f64 / f64::from(1 << 20)),
    },
];

/// Returns charts of time and of memory of a training step over length. The fitted slopes are part
/// of the names. Cells of another setting (recipe, batch, precision, machine, threads) have charts
/// of their own; those of another session have lines of their own.
pub fn lengths(cells: &[Bench]) -> Vec<Chart> {
    let grid = Grid::new(cells);
    let ranks = Ranks::new(grid.rows.iter().map(|row| grid.name(row)));
    let settings = grid.alike();
    let charts = QUANTITIES.iter().flat_map(|quantity| {
        let charts = settings.iter();
        charts.map(|alike| chart(quantity, &grid, alike, &ranks))
    });
    with_names_of_their_own(charts.filter(|chart| !chart.series.is_empty()).collect())
}

fn chart(quantity: &Quantity, grid: &Grid, alike: &Alike, ranks: &Ranks) -> Chart {
    let series = alike.rows.iter().filter_map(|row| {
        let (name, points) = (grid.name(row), points(row, quantity));
        (!points.is_empty()).then(|| Series {
            rank: ranks.of(&name),
            name: match slope(&points) {
                Some(slope) => format!("{name}  {slope:.2}"),
                None => name,
            },
            points,
            band: vec![],
            form: Form::Line,
        })
    });
    let name = [quantity.name].into_iter();
    let name = name.chain(alike.differing.iter().map(String::as_str));
    let name: Vec<String> = name.map(slug).collect();
    let title = format!("{} over length", quantity.title);
    let title = [title].into_iter().chain(alike.differing.iter().cloned());
    let mut notes = vec![
        "Beside each name: the slope fitted on logarithmic axes; 1 is linear in length, 2 quadratic."
            .to_owned(),
    ];
    if !alike.setting.is_empty() {
        notes.push(format!("Every cell: {}.", alike.setting.join(", ")));
    }
    Chart {
        name: format!("lengths-{}", name.join("-")),
        title: title.collect::<Vec<_>>().join(", "),
        x: Axis::new("length, tokens", Scale::Doubling),
        y: Axis::new(quantity.unit, Scale::Log),
        series: series.collect(),
        baselines: vec![],
        notes,
    }
}

/// Returns the lengths of a row with the quantity, from the shortest.
fn points(row: &GridRow, quantity: &Quantity) -> Vec<(f64, f64)> {
    let cells = row.cells.iter();
    let mut points: Vec<(f64, f64)> = cells
        .filter_map(|cell| Some((cell.length as f64, (quantity.of)(cell)?)))
        .collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}

/// Returns the exponent that fits cost = c · length^slope best, by least squares of the logarithms.
pub fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let places: Vec<(f64, f64)> = points.iter().map(|(x, y)| (x.ln(), y.ln())).collect();
    let count = places.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| places.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|place| place.0), mean(|place| place.1));
    let (mut cross, mut square) = (0.0, 0.0);
    for place in &places {
        cross += (place.0 - x) * (place.1 - y);
        square += (place.0 - x).powi(2);
    }
    let slope = cross / square;
    slope.is_finite().then_some(slope)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slopes_of_powers() {
        let power = |exponent: f64| -> Vec<(f64, f64)> {
            [1024.0, 2048.0, 3072.0, 4096.0]
                .map(|length: f64| (length, 0.3 * length.powf(exponent)))
                .to_vec()
        };
        for exponent in [1.0, 1.5, 2.0] {
            assert!((slope(&power(exponent)).unwrap() - exponent).abs() < 1e-12);
        }
        assert_eq!(slope(&power(1.0)[..1]), None);
        assert_eq!(slope(&[]), None);
    }
}
