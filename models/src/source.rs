//! A model's own source ([`Variant::source`]), read as text to find the line of a fault.

use std::fmt;

use crate::{Model, Variant};

/// A line of a model's source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Path of the file, as the compiler was given it.
    pub file: &'static str,
    /// Number of the line, from 1.
    pub line: usize,
    /// The line without the blanks around it.
    pub code: &'static str,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.code)
    }
}

/// Calls and layers that multiply matrices by candle, past [`crate::ops::matmul`]. candle's sums
/// along a dimension (`cumsum`) are products with a triangle of ones.
const PRODUCTS: [&str; 19] = [
    ".matmul(",
    "::matmul(",
    ".broadcast_matmul(",
    "::broadcast_matmul(",
    ".conv1d(",
    "::conv1d(",
    ".conv1d_with_algo(",
    ".conv_transpose1d(",
    ".conv2d(",
    "::conv2d(",
    ".mv(",
    "::mv(",
    ".dot(",
    "::dot(",
    ".cumsum(",
    "candle_nn::linear",
    "candle_nn::Linear",
    "candle_nn::conv",
    "candle_nn::Conv",
];
/// Paths within [`crate::ops`], whose products are counted and rounded.
const OURS: [&str; 2] = ["ops::matmul(", "ops::conv"];

impl Variant {
    /// Returns the lines of code in order, without comments and without items under `#[cfg(test)]`.
    fn code(&self) -> impl Iterator<Item = Place> + use<> {
        let file = self.declared.file();
        let mut tests = Tests::default();
        let lines = self.source.lines().enumerate();
        let lines = lines.filter(move |(_, line)| !tests.hold(without_comment(line)));
        let lines = lines.map(move |(index, line)| Place {
            file,
            line: index + 1,
            code: without_comment(line).trim(),
        });
        lines.filter(|place| !place.code.is_empty())
    }

    /// Returns the first line of code with the first of `words` that any line has.
    #[must_use]
    pub fn place_of(&self, words: &[&str]) -> Option<Place> {
        let mut words = words.iter();
        words.find_map(|word| self.code().find(|place| place.code.contains(word)))
    }

    /// Returns the lines that multiply matrices past [`crate::ops::matmul()`]: factors that
    /// `--precision bf16` does not round, and operations that are not counted.
    #[must_use]
    pub fn direct_products(&self) -> Vec<Place> {
        let direct = |place: &Place| {
            let code = OURS
                .iter()
                .fold(place.code.to_owned(), |code, own| code.replace(own, ""));
            PRODUCTS.iter().any(|word| code.contains(word))
        };
        self.code().filter(direct).collect()
    }
}

/// Returns a line up to the comment at its end.
fn without_comment(line: &str) -> &str {
    let quoted = |before: &str| before.matches('"').count() % 2 == 1;
    let comments = line.match_indices("//");
    let first = comments.map(|(at, _)| at).find(|at| !quoted(&line[..*at]));
    &line[..first.unwrap_or(line.len())]
}

/// The item under `#[cfg(test)]` that lines belong to, as rustfmt lays it out.
#[derive(Default)]
struct Tests {
    /// Column of the attribute, while its item has not ended.
    attribute: Option<usize>,
}

impl Tests {
    /// Returns whether the next line belongs to such an item, or is its attribute.
    fn hold(&mut self, line: &str) -> bool {
        let code = line.trim();
        let column = line.len() - line.trim_start().len();
        match self.attribute {
            None => {
                let item = code.strip_prefix("#[cfg(test)]");
                self.attribute = item.filter(|item| item.is_empty()).map(|_| column);
                item.is_some()
            }
            Some(start) => {
                if column == start && code.ends_with([';', '}']) {
                    self.attribute = None;
                }
                true
            }
        }
    }
}

impl Model {
    /// Returns [`Variant::direct_products`] of all variants, each line once.
    #[must_use]
    pub fn direct_products(&self) -> Vec<Place> {
        let mut places: Vec<Place> = Vec::new();
        for place in self.variants.iter().flat_map(Variant::direct_products) {
            if !places.contains(&place) {
                places.push(place);
            }
        }
        places
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mixers;

    const SOURCE: &str = r#"//! x.matmul(w)
#[cfg(test)]
use candle_core::Device;
let y = x.matmul(&w)?;
  // y.mv(x)
let z = matmul(&x, &w)?; // was x.matmul(&w)
z.broadcast_matmul(&y)
let a = crate::ops::matmul(&x, &w)?;
let a = Tensor::matmul(&x, &w)?;
let layer = candle_nn::Linear::new(w, None);
let mean = x.cumsum(1)?;
let text = "// no comment"; x.mv(&y)?;
#[cfg(test)]
mod tests {
    fn f() {
        x.dot(y) + '{'
    }
}
#[cfg(test)] use x;
x.dot(y)
"#;

    #[test]
    fn products_of_candle_are_found_by_line() {
        let bag = mixers::find("bag").unwrap().variants[0].build;
        let variant = Variant::paper(bag, SOURCE);
        let lines: Vec<usize> = variant.direct_products().iter().map(|it| it.line).collect();
        assert_eq!(lines, [4, 7, 9, 10, 11, 12, 20]);
        let place = variant.place_of(&["nowhere", "let z"]).unwrap();
        assert!(place.file.ends_with("source.rs"), "{place}");
        assert!(place.to_string().ends_with(":6: let z = matmul(&x, &w)?;"));
        assert_eq!(variant.place_of(&["fn f"]), None);
    }
}
