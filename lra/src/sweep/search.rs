//! Search over settings: all points of a grid, or random draws from it.
//!
//! A point is a list of assignments. A model with these among its options is an ordinary model
//! choice.

use std::str::FromStr;

use models::RngKey;
use models::rng::StreamKey;

use crate::error::{Error, Result};
use crate::model_choice::ModelChoice;
use crate::overlay;

/// One setting with the values to try: `train.learning_rate=1e-3,3e-4`, or
/// `train.learning_rate=1e-4..1e-2`.
#[derive(Clone, Debug, PartialEq)]
pub struct Dimension {
    key: String,
    values: Values,
}

#[derive(Clone, Debug, PartialEq)]
enum Values {
    List(Vec<String>),
    /// From the first to the second, both positive; draws are log-uniform.
    Range(f64, f64),
}

/// Largest number of points of a search.
const MOST_POINTS: usize = 10_000;

impl FromStr for Dimension {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected =
            || format!("'{text}' is not KEY=VALUE,VALUE,... such as train.learning_rate=1e-3,3e-4");
        let (key, values) = text.split_once('=').ok_or_else(expected)?;
        if key.is_empty() || values.is_empty() {
            return Err(expected());
        }
        let values = match values.split_once("..") {
            Some((low, high)) => {
                let number = |text: &str| text.parse::<f64>().ok().filter(|x| x.is_finite());
                match (number(low), number(high)) {
                    (Some(low), Some(high)) if 0.0 < low && low < high => Values::Range(low, high),
                    _ => {
                        return Err(format!(
                            "'{text}': a range is LOW..HIGH with numbers above 0, the lower one first"
                        ));
                    }
                }
            }
            None => {
                let values: Vec<String> = values.split(',').map(str::to_owned).collect();
                if values.iter().any(String::is_empty) {
                    return Err(expected());
                }
                Values::List(values)
            }
        };
        Ok(Dimension {
            key: key.trim().to_owned(),
            values,
        })
    }
}

/// Checks that each dimension is of a setting of its own, to which `fixed` assigns no value.
///
/// # Errors
/// A setting is searched twice, or is searched and fixed.
pub fn check_free(dimensions: &[Dimension], fixed: &[String]) -> Result<()> {
    for (place, dimension) in dimensions.iter().enumerate() {
        let key = &dimension.key;
        let whole = in_section(key);
        let others = &mut dimensions[..place].iter();
        if others.any(|other| in_section(&other.key) == whole) {
            return Err(Error::usage(format!(
                "--grid {key}: the setting is searched twice; give all of its values in one --grid"
            )));
        }
        if let Some(value) = fixed.iter().find(|it| overlay::key(it) == whole) {
            return Err(Error::usage(format!(
                "--grid {key}: {value} fixes the setting; search it or fix it"
            )));
        }
    }
    Ok(())
}

/// Returns the key of a setting with its section, which is `model` if none is named.
fn in_section(key: &str) -> String {
    match key.contains('.') {
        true => key.to_owned(),
        false => format!("model.{key}"),
    }
}

impl Dimension {
    fn assign(&self, value: &str) -> String {
        format!("{}={value}", self.key)
    }

    /// Returns the value for trial number `trial`, which does not depend on the number of trials.
    fn draw(&self, trial: usize) -> String {
        let rng = RngKey::new(0, trial as u64, 0);
        let uniform = rng.shared(StreamKey::new(&self.key)).uniform(1, 1)[0];
        match &self.values {
            Values::List(values) => {
                let index = (uniform * values.len() as f64) as usize;
                self.assign(&values[index.min(values.len() - 1)])
            }
            Values::Range(low, high) => {
                let value = (low.ln() + uniform * (high.ln() - low.ln())).exp();
                self.assign(&format!("{value:.2e}"))
            }
        }
    }
}

/// Returns all points of a grid, or `trials` draws from it, each point once.
pub fn points(dimensions: &[Dimension], trials: Option<usize>) -> Result<Vec<Vec<String>>> {
    if let Some(trials) = trials {
        let mut points: Vec<Vec<String>> = Vec::new();
        for trial in 0..trials {
            let point = dimensions.iter().map(|it| it.draw(trial)).collect();
            if !points.contains(&point) {
                points.push(point);
            }
        }
        return Ok(points);
    }
    let mut points = vec![Vec::new()];
    for dimension in dimensions {
        let Values::List(values) = &dimension.values else {
            return Err(Error::usage(format!(
                "--grid {}: a range is drawn from, so --trials must say how often",
                dimension.key
            )));
        };
        if points.len() * values.len() > MOST_POINTS {
            return Err(Error::usage(format!(
                "--grid has more than {MOST_POINTS} points; --trials N draws N of them"
            )));
        }
        let with = |point: &Vec<String>, value| {
            let mut longer = point.clone();
            longer.push(dimension.assign(value));
            longer
        };
        let each = points
            .iter()
            .flat_map(|point| values.iter().map(move |value| with(point, value)));
        points = each.collect();
    }
    Ok(points)
}

/// Returns the assignments of all points, each once.
pub fn assignments(points: &[Vec<String>]) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    for assignment in points.iter().flatten() {
        if !all.contains(assignment) {
            all.push(assignment.clone());
        }
    }
    all
}

/// Returns every model at every point.
pub fn at_each(models: &[ModelChoice], points: &[Vec<String>]) -> Vec<ModelChoice> {
    let at = |model: &ModelChoice, point: &Vec<String>| ModelChoice {
        model: model.model,
        options: model.options.iter().chain(point).cloned().collect(),
    };
    let each = models
        .iter()
        .flat_map(|model| points.iter().map(move |point| at(model, point)));
    each.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dimension(text: &str) -> Dimension {
        text.parse().unwrap()
    }

    #[test]
    fn a_grid_is_the_product_of_its_dimensions() {
        let grid = [dimension("a.b=1,2"), dimension("c=x,y,z")];
        let all = points(&grid, None).unwrap();
        assert_eq!(all.len(), 6);
        assert_eq!(all[1], ["a.b=1", "c=y"]);
        assert_eq!(points(&[], None).unwrap(), [Vec::<String>::new()]);
    }

    #[test]
    fn trials_are_drawn_within_their_ranges_and_more_of_them_begin_alike() {
        let grid = [dimension("rate=1e-4..1e-2"), dimension("layers=2,4")];
        let (few, many) = (
            points(&grid, Some(3)).unwrap(),
            points(&grid, Some(50)).unwrap(),
        );
        assert_eq!(few, many[..3]);
        let rates = many
            .iter()
            .map(|point| point[0].strip_prefix("rate=").unwrap());
        let rates: Vec<f64> = rates.map(|rate| rate.parse().unwrap()).collect();
        assert!(rates.iter().all(|rate| (1e-4..=1e-2).contains(rate)));
        assert!(rates.iter().any(|rate| *rate < 5e-4) && rates.iter().any(|rate| *rate > 2e-3));
        assert!(points(&grid, None).is_err(), "a range has no points");
    }

    #[test]
    fn mistakes_are_named() {
        for wrong in ["", "a", "a=", "=1", "a=1,,2", "a=2..1", "a=0..1", "a=1..x"] {
            assert!(wrong.parse::<Dimension>().is_err(), "{wrong}");
        }
        let huge: Vec<Dimension> = (0..14).map(|_| dimension("a=1,2")).collect();
        assert!(points(&huge, None).is_err());
    }

    #[test]
    fn a_setting_is_searched_once_or_fixed() {
        let (rate, layers) = (
            dimension("train.learning_rate=1,2"),
            dimension("block.layers=1"),
        );
        let fixed = |text: &str| vec![text.to_owned()];
        assert!(check_free(&[rate.clone(), layers.clone()], &fixed("train.steps=3")).is_ok());
        let error = check_free(&[rate.clone(), layers.clone(), rate.clone()], &[]);
        assert!(error.unwrap_err().to_string().contains("searched twice"));
        // A setting without a section is one of the model.
        let [short, whole] = ["variant=a,b", "model.variant=a,c"].map(dimension);
        let error = check_free(&[short.clone(), whole], &[]);
        assert!(error.unwrap_err().to_string().contains("searched twice"));
        let error = check_free(&[short], &fixed("model.variant=a")).unwrap_err();
        assert!(error.to_string().contains("fixes the setting"), "{error}");
        let error = check_free(&[rate, layers], &fixed("block.layers = 2")).unwrap_err();
        assert!(
            error.to_string().contains("block.layers = 2 fixes"),
            "{error}"
        );
    }

    /// A quarter of the draws of a log-uniform value is below the fourth root of the way.
    #[test]
    fn draws_differ_by_trial_and_by_setting_and_are_log_uniform() {
        let grid = [dimension("a=1e-4..1"), dimension("b=1e-4..1")];
        let all = points(&grid, Some(400)).unwrap();
        let number = |text: &String| text.split_once('=').unwrap().1.parse::<f64>().unwrap();
        for place in 0..2 {
            let of = all.iter().map(|point| number(&point[place]));
            for (border, share) in [(1e-3, 0.25), (1e-2, 0.5), (1e-1, 0.75)] {
                let below = of.clone().filter(|x| *x < border).count() as f64;
                assert!(
                    (below / all.len() as f64 - share).abs() < 0.1,
                    "{border}: {below}"
                );
            }
        }
        assert!(
            all.iter()
                .any(|point| number(&point[0]) < 0.1 * number(&point[1]))
        );
        // Of two values at most four points are different.
        let few = [dimension("a=1,2"), dimension("b=x,y")];
        let few = points(&few, Some(60)).unwrap();
        assert_eq!(few.len(), 4);
    }
}
