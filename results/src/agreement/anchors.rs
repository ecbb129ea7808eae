//! The anchors: models with published figures on all five tasks, split into a half for tuning and a
//! sealed half.
//!
//! `anchors.csv` lists them. A half is the last bit of the SHA-256 of the name: odd is for tuning,
//! even is sealed.

use std::sync::LazyLock;

use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::published::{self, ACCURACY, TASKS, rows};

/// Number of [`TASKS`] in an average; Path-X is left out.
pub const AVERAGED: usize = 5;

/// Lowest published average of the strong cluster, in percent. Between 70 and 75 lies one average,
/// that of RWKV-4.
const STRONG: f64 = 72.5;

/// A model with published figures.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Anchor {
    /// Registry name.
    pub model: String,
    /// Cluster of its published average.
    pub cluster: Cluster,
    /// Whether the protocol was tuned on it.
    pub half: Half,
    /// The day on which it was listed, as `YYYY-MM-DD`.
    pub listed: String,
}

/// The clusters of the published averages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cluster {
    /// Above 72.5: state spaces, long convolutions, and models that contain them.
    Strong,
    /// Below 72.5: the X-formers, Mamba, Griffin and RWKV-4.
    Weak,
}

/// The halves of the anchors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Half {
    /// Used for tuning.
    Tuning,
    /// Not run before the protocol is frozen.
    Sealed,
}

impl Half {
    /// Returns the half that a name belongs to.
    #[must_use]
    pub fn of(model: &str) -> Half {
        let odd = Sha256::digest(model.as_bytes())[31] & 1 == 1;
        if odd { Half::Tuning } else { Half::Sealed }
    }

    /// Returns the word for it in the file.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Half::Tuning => "tuning",
            Half::Sealed => "sealed",
        }
    }
}

/// The published accuracies of a model, in percent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Published {
    /// Mean over the sources, for each of the first [`AVERAGED`] of [`TASKS`].
    pub tasks: [f64; AVERAGED],
}

impl Published {
    /// Returns the mean over the sources that print all five tasks of a model; none if no source
    /// does.
    ///
    /// A source that repeats all five figures of another one counts once with it.
    #[must_use]
    pub fn of(model: &str) -> Option<Published> {
        let mut sources: Vec<[f64; AVERAGED]> = Vec::new();
        for source in published::sources() {
            let mut figures = [0.0; AVERAGED];
            let whole = figures.iter_mut().zip(TASKS).all(|(figure, task)| {
                let value = source.cell(model, task, ACCURACY).and_then(|it| it.value);
                value.map(|value| *figure = value).is_some()
            });
            if whole && !sources.contains(&figures) {
                sources.push(figures);
            }
        }
        if sources.is_empty() {
            return None;
        }
        let mut tasks = [0.0; AVERAGED];
        for (index, mean) in tasks.iter_mut().enumerate() {
            let sum: f64 = sources.iter().map(|figures| figures[index]).sum();
            *mean = sum / sources.len() as f64;
        }
        Some(Published { tasks })
    }

    /// Returns the average over the five tasks.
    #[must_use]
    pub fn average(&self) -> f64 {
        self.tasks.iter().sum::<f64>() / AVERAGED as f64
    }

    /// Returns the cluster that the average lies in.
    #[must_use]
    pub fn cluster(&self) -> Cluster {
        match self.average() >= STRONG {
            true => Cluster::Strong,
            false => Cluster::Weak,
        }
    }
}

/// Returns all anchors, in the order of the file.
pub fn anchors() -> &'static [Anchor] {
    static ANCHORS: LazyLock<Vec<Anchor>> =
        LazyLock::new(|| rows(include_str!("../../anchors.csv")));
    &ANCHORS
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_list_is_what_published_figures_and_names_say() {
        for anchor in anchors() {
            let name = anchor.model.as_str();
            assert_eq!(anchor.half, Half::of(name), "{name}");
            let published = Published::of(name).unwrap();
            assert_eq!(anchor.cluster, published.cluster(), "{name}");
            let between = (70.0..75.0).contains(&published.average());
            assert_eq!(between, name == "rwkv4", "{name}");
            let digits = anchor.listed.split('-').map(str::len);
            assert!(digits.eq([4, 2, 2]), "{name}: {}", anchor.listed);
        }
        let listed: BTreeSet<&str> = anchors().iter().map(|it| it.model.as_str()).collect();
        assert_eq!(listed.len(), anchors().len(), "a model is listed twice");
    }

    #[test]
    fn every_model_with_five_published_figures_is_listed() {
        let entries: BTreeSet<&str> = published::figures()
            .iter()
            .map(|figure| figure.entry.as_str())
            .filter(|entry| !entry.is_empty() && Published::of(entry).is_some())
            .collect();
        let listed: BTreeSet<&str> = anchors().iter().map(|it| it.model.as_str()).collect();
        assert_eq!(entries, listed, "results/anchors.csv");
    }

    /// The Transformer has several sources, one of which repeats the figures of 2021 for other
    /// models.
    #[test]
    fn several_sources_count_as_their_mean_and_copies_once() {
        let average = |model: &str| Published::of(model).unwrap().average();
        let transformer = [54.388, 58.766, 57.368, 59.246, 55.832, 59.24];
        let mean = transformer.iter().sum::<f64>() / 6.0;
        assert!((average("transformer") - mean).abs() < 1e-9);
        assert!((average("bigbird") - (55.012 + 59.054) / 2.0).abs() < 1e-9);
        assert_eq!(Published::of("bag"), None);
    }
}
