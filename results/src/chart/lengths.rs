//! Costs over length, on logarithmic axes: a straight line of slope 1 is linear cost, of slope 2
//! quadratic.

use super::names::Ranks;
use super::{Axis, Chart, Form, Scale, Series};
use crate::bench::Bench;
use crate::format::counted;

/// Returns charts of time and of memory of a training step over length. The fitted slopes are part
/// of the names.
pub fn lengths(cells: &[Bench]) -> Vec<Chart> {
    let seconds = |cell: &Bench| Some(1.0 / cell.steps_per_second()?.median);
    let mebibytes = |cell: &Bench| Some(cell.peak_bytes()? as f64 / f64::from(1 << 20));
    [
        chart("time", "Time of a training step", "seconds", cells, seconds),
        chart("memory", "Peak memory of training", "MiB", cells, mebibytes),
    ]
    .into_iter()
    .filter(|chart| !chart.series.is_empty())
    .collect()
}

fn chart(
    name: &str,
    what: &str,
    unit: &str,
    cells: &[Bench],
    cost: impl Fn(&Bench) -> Option<f64>,
) -> Chart {
    let mut labels: Vec<String> = Vec::new();
    for cell in cells {
        if !labels.contains(&cell.label()) {
            labels.push(cell.label());
        }
    }
    let ranks = Ranks::new(labels.iter().cloned());
    let mut series = Vec::new();
    for label in &labels {
        let same = cells.iter().filter(|cell| cell.label() == *label);
        let mut points: Vec<(f64, f64)> = same
            .filter_map(|cell| Some((cell.length as f64, cost(cell)?)))
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        if points.is_empty() {
            continue;
        }
        let name = match slope(&points) {
            Some(slope) => format!("{label}  {slope:.2}"),
            None => label.clone(),
        };
        series.push(Series {
            name,
            rank: ranks.of(label),
            points,
            band: vec![],
            form: Form::Line,
        });
    }
    let machine = cells.first().map(|cell| {
        format!(
            "{}, {}, batch {}.",
            cell.provenance.host.cpu,
            counted(cell.provenance.threads as u64, "thread"),
            cell.batch
        )
    });
    Chart {
        name: format!("lengths-{name}"),
        title: format!("{what} over length"),
        x: Axis::new("length, tokens", Scale::Doubling),
        y: Axis::new(unit, Scale::Log),
        series,
        baselines: vec![],
        notes: ["Beside each name: the slope fitted on logarithmic axes; 1 is linear in length, 2 quadratic.".to_owned()]
            .into_iter()
            .chain(machine)
            .collect(),
    }
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
