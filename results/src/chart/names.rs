//! Names of the series of a chart, the look of each, and the names of files.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::Chart;
use crate::published::{model_rank, models};

/// The names of the series of one chart: the model, and its settings that differ from the default
/// and are not shared by all series.
pub(super) struct Names {
    /// Words that the names leave out because all series of the chart share them.
    pub(super) shared: Vec<String>,
}

impl Names {
    /// Returns the names of series with these words, of which the model is the first.
    pub(super) fn new(series: impl Iterator<Item = Vec<String>>) -> Names {
        Names {
            shared: shared(&series.collect()),
        }
    }

    /// Returns the name of a series of these words.
    pub(super) fn of(&self, words: &[String]) -> String {
        without(words, &self.shared)
    }
}

/// Returns the words that all of several names have in common after their first words. A single
/// name has nothing in common with others.
fn shared(names: &BTreeSet<Vec<String>>) -> Vec<String> {
    let Some(first) = names.first().filter(|_| names.len() > 1) else {
        return Vec::new();
    };
    let in_all = |word: &&String| {
        names
            .iter()
            .all(|name| name.iter().skip(1).any(|one| one == *word))
    };
    first.iter().skip(1).filter(in_all).cloned().collect()
}

/// Returns a name without the given words.
fn without(name: &[String], words: &[String]) -> String {
    let kept = name.iter().enumerate();
    let kept = kept.filter(|(index, word)| *index == 0 || !words.contains(word));
    let kept: Vec<&str> = kept.map(|(_, word)| word.as_str()).collect();
    kept.join(" ")
}

/// The ranks of series. Published models always have their place in the order of the tables; other
/// names come after them.
pub(super) struct Ranks(BTreeMap<String, usize>);

impl Ranks {
    /// Returns the ranks of all names that any chart may have.
    pub(super) fn new(names: impl Iterator<Item = String>) -> Ranks {
        let published = models().len();
        let others: BTreeSet<String> = names.filter(|name| model_rank(name) == published).collect();
        let others = others.into_iter().enumerate();
        Ranks(
            others
                .map(|(index, name)| (name, published + index))
                .collect(),
        )
    }

    /// Returns the rank of a name.
    pub(super) fn of(&self, name: &str) -> usize {
        self.0
            .get(name)
            .copied()
            .unwrap_or_else(|| model_rank(name))
    }
}

/// Returns a title as part of a file name.
pub(crate) fn slug(title: &str) -> String {
    let words = title.split(|c: char| !(c.is_ascii_alphanumeric() || c == '@' || c == '.'));
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    words.join("-")
}

/// Numbers charts whose titles give the same file name.
pub(super) fn with_names_of_their_own(mut charts: Vec<Chart>) -> Vec<Chart> {
    let mut taken: HashSet<String> = HashSet::new();
    for chart in &mut charts {
        let mut name = chart.name.clone();
        let mut count = 1;
        while !taken.insert(name.clone()) {
            count += 1;
            name = format!("{}-{count}", chart.name);
        }
        chart.name = name;
    }
    charts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(names: &[&str]) -> BTreeSet<Vec<String>> {
        let names = names.iter();
        names
            .map(|name| name.split(' ').map(str::to_owned).collect())
            .collect()
    }

    #[test]
    fn what_all_share_is_not_repeated() {
        let names = words(&["linear a=1 b=2", "linear b=2 c=3", "bag b=2"]);
        let common = shared(&names);
        assert_eq!(common, ["b=2"]);
        let shown: Vec<_> = names.iter().map(|name| without(name, &common)).collect();
        assert_eq!(shown, ["bag", "linear a=1", "linear c=3"]);
    }

    #[test]
    fn one_alone_keeps_its_name() {
        assert!(shared(&words(&["linear b=2"])).is_empty());
        assert!(shared(&words(&[])).is_empty());
    }

    #[test]
    fn ranks_are_those_of_the_tables_and_never_shared() {
        let names = ["transformer", "zebra", "bag", "linear lr=1"].map(str::to_owned);
        let ranks = Ranks::new(names.iter().cloned());
        assert_eq!(ranks.of("transformer"), 0);
        let all: BTreeSet<usize> = names.iter().map(|name| ranks.of(name)).collect();
        assert_eq!(all.len(), names.len());
        assert_eq!(all.last(), Some(&(models().len() + 2)));
    }
}
