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

/// Calls that multiply matrices by candle, past [`crate::ops::matmul`].
const PRODUCTS: [&str; 6] = [
    ".matmul(",
    ".broadcast_matmul(",
    ".conv1d(",
    ".conv2d(",
    ".mv(",
    ".dot(",
];

impl Variant {
    /// Returns the lines of code in order, without comments and without everything after
    /// `#[cfg(test)]`.
    fn code(&self) -> impl Iterator<Item = Place> + use<> {
        let file = self.declared.file();
        let lines = self.source.lines().enumerate();
        let lines = lines.map(move |(index, code)| Place {
            file,
            line: index + 1,
            code: code.trim(),
        });
        lines
            .take_while(|place| place.code != "#[cfg(test)]")
            .filter(|place| !place.code.starts_with("//"))
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
        let direct = |place: &Place| PRODUCTS.iter().any(|word| place.code.contains(word));
        self.code().filter(direct).collect()
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

    const SOURCE: &str = "//! x.matmul(w)\nlet y = x.matmul(&w)?;\n  // y.mv(x)\nlet z = matmul(&x, &w)?;\n\
                          z.broadcast_matmul(&y)\n#[cfg(test)]\nx.dot(y)";

    #[test]
    fn products_of_candle_are_found_by_line() {
        let bag = mixers::find("bag").unwrap().variants[0].build;
        let variant = Variant::paper(bag, SOURCE);
        let lines: Vec<usize> = variant.direct_products().iter().map(|it| it.line).collect();
        assert_eq!(lines, [2, 5]);
        let place = variant.place_of(&["nowhere", "let z"]).unwrap();
        assert!(place.file.ends_with("source.rs"), "{place}");
        assert!(place.to_string().ends_with(":4: let z = matmul(&x, &w)?;"));
        assert_eq!(variant.place_of(&["dot"]), None);
    }
}
