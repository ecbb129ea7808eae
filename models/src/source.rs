//! A model's own source ([`Variant::source`]), read as text to find the line of a fault.

use std::{fmt, ops::Range};

use crate::{Model, Variant};

/// Line of a model's source code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Path of the file, as the compiler was given it.
    file: &'static str,
    /// Number of the line, from 1.
    line: usize,
    /// Text of the line, without the blanks around it.
    code: &'static str,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file, self.line, self.code)
    }
}

/// Calls and layers that multiply matrices by candle, past [`crate::ops::matmul`]. candle's sums
/// along a dimension (`cumsum`) are products with a triangle of ones.
const PRODUCTS: [&str; 20] = [
    ".matmul(",
    "::matmul",
    ".broadcast_matmul(",
    "::broadcast_matmul",
    ".conv1d(",
    "Tensor::conv1d",
    ".conv1d_with_algo(",
    ".conv_transpose1d(",
    ".conv2d(",
    "Tensor::conv2d",
    ".mv(",
    "Tensor::mv",
    ".dot(",
    "Tensor::dot",
    ".cumsum(",
    "Tensor::cumsum",
    "candle_nn::linear",
    "candle_nn::Linear",
    "candle_nn::conv",
    "candle_nn::Conv",
];
/// Layers of `candle_nn` that multiply, where several names are imported at once.
const LAYERS: [&str; 6] = ["Linear", "linear", "Conv1d", "conv1d", "Conv2d", "conv2d"];
/// Paths of [`crate::ops`] and of the prelude, whose products are counted and rounded.
const OURS: [&str; 3] = ["ops::matmul", "ops::conv", "prelude::matmul"];

impl Variant {
    /// Returns its [`code`] as places.
    fn code(&self) -> impl Iterator<Item = Place> + use<> {
        let file = self.declared.file();
        code(self.source).map(move |(line, code)| Place { file, line, code })
    }

    /// Returns the first line of code in the variant's source that has one of `words`, which are
    /// tried in order. If the file has several mixers, lines of the variant's own mixer come first.
    /// `None` if no line has any of them.
    #[must_use]
    pub(crate) fn place_of(&self, words: &[&str]) -> Option<Place> {
        let own = self.lines_of_mixer();
        let found = |word: &str, of_mixer: bool| {
            let mut lines = self.code();
            lines.find(|place| {
                let is_own = own.iter().any(|lines| lines.contains(&place.line));
                (is_own || !of_mixer) && place.code.contains(word)
            })
        };
        let mut words = words.iter();
        words.find_map(|word| found(word, true).or_else(|| found(word, false)))
    }

    /// Returns the numbers of the lines of each item at the top of the file that the type of its
    /// mixer heads, as `impl Mixer for Bag {` does, or that builds the variant.
    fn lines_of_mixer(&self) -> Vec<Range<usize>> {
        let Some(name) = self.mixer else {
            return Vec::new();
        };
        // `mine::Planted<1>` is `Planted` in its file.
        let name = name().split('<').next().unwrap_or_default();
        let name = name.rsplit("::").next().unwrap_or_default();
        let names = |code: &str| code.split(|it| !is_part(it)).any(|word| word == name);
        let mut items = Vec::new();
        let mut item: Option<(usize, bool)> = None;
        for (index, line) in self.source.lines().enumerate() {
            let code = without_comment(line);
            let at_margin = code.starts_with(|letter: char| !letter.is_whitespace());
            if item.is_none() && (!at_margin || code.starts_with('#')) {
                continue;
            }
            let (start, own) = item.get_or_insert((index + 1, names(code)));
            *own |= code.contains("Variant::mixer") && names(code);
            if at_margin && code.trim_end().ends_with(['}', ';', ']']) {
                if *own {
                    items.push(*start..index + 2);
                }
                item = None;
            }
        }
        items
    }

    /// Returns the lines of the variant's source that multiply matrices by candle and not by
    /// [`crate::ops::matmul()`], as the function [`direct_products`] finds them.
    #[must_use]
    pub(crate) fn direct_products(&self) -> Vec<Place> {
        let file = self.declared.file();
        let lines = direct_products(self.source).into_iter();
        let lines = lines.map(|(line, code)| Place { file, line, code });
        lines.collect()
    }
}

/// Returns the lines of code of a source file in order, with their numbers from 1, without comments
/// and without items under `#[cfg(test)]`.
fn code(source: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut tests = Tests::default();
    let lines = source.lines().enumerate();
    let lines = lines.filter(move |(_, line)| !tests.hold(without_comment(line)));
    let lines = lines.map(|(index, line)| (index + 1, without_comment(line).trim()));
    lines.filter(|(_, code)| !code.is_empty())
}

/// Returns the lines of `source`, with their numbers from 1, that multiply matrices by candle and
/// not by [`crate::ops::matmul()`]. `--precision bf16` does not round their factors, and their
/// operations are not counted.
#[must_use]
pub fn direct_products(source: &str) -> Vec<(usize, &str)> {
    // A method of the file's own may have the name of one of candle's.
    let is_own = |word: &str| {
        let method = word.strip_prefix('.');
        method.is_some_and(|name| source.contains(&format!("fn {name}")))
    };
    let products: Vec<&str> = PRODUCTS.into_iter().filter(|word| !is_own(word)).collect();
    let direct = |(_, code): &(usize, &str)| {
        let is_imported = code.contains("candle_nn::{")
            && LAYERS
                .iter()
                .any(|layer| code.split(|it| !is_part(it)).any(|word| word == *layer));
        let code = OURS
            .iter()
            .fold((*code).to_owned(), |code, own| code.replace(own, ""));
        is_imported || products.iter().any(|word| code.contains(word))
    };
    code(source).filter(direct).collect()
}

/// Returns whether `letter` may be part of a name.
fn is_part(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || letter == '_'
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
    /// Returns the lines of all variants' sources that multiply matrices by candle and not by
    /// [`crate::ops::matmul()`]. Each line is there once.
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
use candle_nn::{Init, Linear as Dense};
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
        assert_eq!(lines, [4, 7, 9, 10, 11, 12, 13, 21]);
        let place = variant.place_of(&["nowhere", "let z"]).unwrap();
        assert!(place.file.ends_with("source.rs"), "{place}");
        assert!(place.to_string().ends_with(":6: let z = matmul(&x, &w)?;"));
        assert_eq!(variant.place_of(&["fn f"]), None);
    }

    /// Sums of products of the mixer's own, and those of [`crate::ops`] by their paths.
    const OWN: &str = r#"
struct Bag;
impl Mixer for Before {
    fn forward(x: &Tensor) {
        self.dot(x)
    }
}

impl Mixer for Bag {
    fn forward(x: &Tensor) {
        prelude::matmul(x, x)
    }
}
const CARD: Model = Model {
    time: Cost::Linear("O(L)"),
    variants: &[Variant::mixer::<Before>("")],
};

const OTHER: Model = Model {
    time: Cost::Linear("O(L)"),
    variants: &[Variant::mixer::<Bag>("")],
};
fn dot(x: &Tensor) {
    let product = Tensor::broadcast_matmul;
}
"#;

    #[test]
    fn methods_of_its_own_and_paths_of_ours_are_no_products_of_candle() {
        let bag = mixers::find("bag").unwrap().variants[0].build;
        let variant = Variant::paper(bag, OWN);
        let lines: Vec<usize> = variant.direct_products().iter().map(|it| it.line).collect();
        assert_eq!(lines, [24]);
    }

    #[test]
    fn lines_of_the_mixer_itself_come_first() {
        let bag = mixers::find("bag").unwrap().variants[0].build;
        let variant = Variant {
            mixer: Some(|| "mine::Bag<3>"),
            ..Variant::paper(bag, OWN)
        };
        let line = |word: &str| variant.place_of(&[word]).unwrap().line;
        assert_eq!(line("fn forward"), 10);
        assert_eq!(line("time: Cost"), 20);
        assert_eq!(line("self.dot"), 5);
    }
}
