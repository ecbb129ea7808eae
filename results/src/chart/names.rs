//! What a chart calls its series, and which look each of them has.

use std::collections::{BTreeMap, BTreeSet};

use crate::published::{model_rank, models};
use crate::record::Record;

/// Task and recipe: what the title of a chart says.
type Place = (String, String);

/// The names of the runs' series in charts: the model, and what makes it another than its default unless it is so of all
/// in the chart.
pub(super) struct Names {
    shared: BTreeMap<Place, Vec<String>>,
    ranks: Ranks,
}

impl Names {
    /// The names that all these runs have beside each other.
    pub(super) fn new(records: &[Record]) -> Names {
        let mut all: BTreeMap<Place, BTreeSet<Vec<String>>> = BTreeMap::new();
        for record in records {
            all.entry(place(record)).or_default().insert(full(record));
        }
        let shared: BTreeMap<Place, Vec<String>> = all
            .iter()
            .map(|(place, names)| (place.clone(), shared(names)))
            .collect();
        let shown = all.iter().flat_map(|(place, names)| {
            let shared = &shared[place];
            names.iter().map(|name| without(name, shared))
        });
        let ranks = Ranks::new(shown);
        Names { shared, ranks }
    }

    /// The name of a run's series.
    pub(super) fn of(&self, record: &Record) -> String {
        without(&full(record), self.shared(record))
    }

    /// What its name leaves out because all in the chart share it.
    pub(super) fn shared(&self, record: &Record) -> &[String] {
        self.shared.get(&place(record)).map_or(&[], Vec::as_slice)
    }

    /// The rank of a name.
    pub(super) fn rank(&self, name: &str) -> usize {
        self.ranks.of(name)
    }
}

fn place(record: &Record) -> Place {
    (record.task.title(), record.recipe.name.clone())
}

/// The model of a run with all that makes it another than its default.
fn full(record: &Record) -> Vec<String> {
    let mut words = vec![record.model.name.clone()];
    words.extend(record.model.departure().map(str::to_owned));
    let mut set = record.recipe.overrides.clone();
    set.sort();
    words.extend(set);
    words
}

/// What all of several names have in common after their first words. One alone has nothing in common with others.
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

/// A name without words that need not be said.
fn without(name: &[String], words: &[String]) -> String {
    let kept = name.iter().enumerate();
    let kept = kept.filter(|(index, word)| *index == 0 || !words.contains(word));
    let kept: Vec<&str> = kept.map(|(_, word)| word.as_str()).collect();
    kept.join(" ")
}

/// The ranks of series: published models have their place in the order of the tables, whatever else is shown; other
/// names come after them.
pub(super) struct Ranks(BTreeMap<String, usize>);

impl Ranks {
    /// The ranks of all names that any chart may have.
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

    /// The rank of a name.
    pub(super) fn of(&self, name: &str) -> usize {
        self.0
            .get(name)
            .copied()
            .unwrap_or_else(|| model_rank(name))
    }
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
