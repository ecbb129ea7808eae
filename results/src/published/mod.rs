//! Figures printed in papers, for comparison with ours; the two are never averaged.
//!
//! `published.csv` holds one number per row with the document it was read in, the trust in that
//! document, and known defects of the number. Its column `entry` names our model of the row. It is
//! empty if we have no such model, and for further rows of a model in one source: copies beside the
//! source's own run, other sizes, approximate figures.
//! `published_sources.csv` has a line per source: its short name, our recipes that follow its
//! protocol, separated by spaces, and the title, first author and address of the paper or the
//! repository.

mod compare;
mod labels;
mod listing;

use std::sync::LazyLock;

use serde::{Deserialize, de::DeserializeOwned};

pub(crate) use compare::compare_seeds;
pub use compare::{Comparison, compare};
pub use labels::{TASKS, is_published_label, is_published_task, models};
pub(crate) use labels::{is_path_x, model_rank, task_name, task_rank};
pub use listing::{figures_of, listing};

use crate::table::distinct;
use crate::tone::Tone;
use crate::{Error, Result};

/// Unit of the accuracies in this module: percent. Records hold fractions.
pub const ACCURACY: &str = "accuracy";
/// The metric of the spread of an accuracy over the source's seeds, in points.
const ACCURACY_SPREAD: &str = "accuracy_spread";
/// Prefix of the metric of an accuracy during training; the epoch follows.
const AT_EPOCH: &str = "accuracy@epoch";

/// One printed number.
#[derive(Debug, Deserialize)]
pub struct Figure {
    /// The document it was read in.
    pub source: String,
    /// Year of the source that it is cited by.
    pub year: u16,
    /// Citation key of that source, such as `tay2021long`.
    pub key: String,
    /// The model's name there.
    pub model: String,
    /// Our name for it; empty if we do not have it.
    pub entry: String,
    /// Task, such as `listops`; also averages and tasks outside the benchmark.
    pub task: String,
    /// Name of the measured quantity, such as `accuracy` (percent) or `steps_per_sec@4k`.
    pub metric: String,
    /// The number; absent if none was printed.
    pub value: Option<f64>,
    /// Reason why it is absent.
    pub missing: Option<Missing>,
    /// Trust in the document.
    pub trust: Trust,
    /// The known defect of the number; empty if there is none.
    pub defect: String,
    /// Remarks on its measurement or its reading.
    pub notes: String,
}

/// Reason why a table prints no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Missing {
    /// At chance level, or could not be run.
    #[serde(rename = "FAIL")]
    Fail,
    /// Not reported.
    #[serde(rename = "NR")]
    NotReported,
    /// Not applicable.
    #[serde(rename = "NA")]
    NotApplicable,
}

/// The kind of source in which a figure was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Trust {
    /// The paper's own figure, in the paper.
    Primary,
    /// The authors' repository.
    AuthorRepo,
    /// Another paper's copy.
    Secondary,
    /// A third party's notes about the paper.
    Note,
}

impl Trust {
    /// Returns it in words.
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Trust::Primary => "the source's own figure",
            Trust::AuthorRepo => "from the authors' repository",
            Trust::Secondary => "from another paper's copy",
            Trust::Note => "from notes on the paper",
        }
    }
}

/// An accuracy of a published run during training.
#[derive(Clone, Debug, PartialEq)]
pub struct Milestone {
    /// Number of passes over the training split until then.
    pub epoch: usize,
    /// The accuracy, as a fraction.
    pub accuracy: f64,
    /// Short name of the source.
    pub source: &'static str,
}

/// Returns the accuracies of a task during training, by epoch, as printed by sources that follow
/// `recipe`.
#[must_use]
pub fn milestones(recipe: &str, task: &str) -> Vec<Milestone> {
    let mut milestones = Vec::new();
    for source in sources().iter().filter(|it| it.recipes.contains(&recipe)) {
        let figures = source.figures.iter().filter(|figure| figure.task == task);
        milestones.extend(figures.filter_map(|figure| {
            Some(Milestone {
                epoch: figure.metric.strip_prefix(AT_EPOCH)?.parse().ok()?,
                accuracy: figure.value? / 100.0,
                source: source.alias,
            })
        }));
    }
    milestones.sort_by_key(|milestone| milestone.epoch);
    milestones
}

impl Figure {
    /// Returns whether its source says that it is a copy of another source's figure.
    #[must_use]
    pub(crate) fn is_copy(&self) -> bool {
        ["copied by", "copied from"]
            .iter()
            .any(|words| self.notes.contains(words))
    }

    /// Returns the word that is printed instead of a number; `None` where there is a number.
    #[must_use]
    pub fn missing_word(&self) -> Option<String> {
        self.value.is_none().then(|| self.text())
    }

    /// Returns the tone of a word that is printed instead of a number: bad for a failure.
    #[must_use]
    pub fn tone(&self) -> Option<Tone> {
        let failed = self.value.is_none() && self.missing == Some(Missing::Fail);
        failed.then_some(Tone::Bad)
    }

    /// Returns the number as it was printed, or the word for its absence.
    pub fn text(&self) -> String {
        match (self.value, self.missing) {
            (Some(value), _) if self.metric == ACCURACY => format!("{value:.2}"),
            (Some(value), _) => value.to_string(),
            (None, Some(Missing::Fail)) => "FAIL".to_owned(),
            (None, Some(Missing::NotApplicable)) => "n/a".to_owned(),
            (None, Some(Missing::NotReported) | None) => "not reported".to_owned(),
        }
    }
}

/// A published source: everything under one citation key.
#[derive(Debug)]
pub struct Source {
    /// Citation key.
    pub key: &'static str,
    /// Short name that is easier to type, such as `tay2021`.
    pub alias: &'static str,
    /// Our recipes that follow its protocol.
    pub recipes: Vec<&'static str>,
    /// Title of the paper or the repository; empty if it is unknown.
    pub title: &'static str,
    /// Surname of the first author; empty for a repository.
    pub author: &'static str,
    /// Address of the paper or the repository; empty if it is unknown.
    pub url: &'static str,
    /// Year.
    pub year: u16,
    /// Its figures, in the order of the file.
    pub figures: Vec<&'static Figure>,
}

impl Source {
    /// Returns title, first author, year and address, as far as they are known.
    #[must_use]
    pub fn citation(&self) -> String {
        let by = match self.author {
            "" => self.year.to_string(),
            author => format!("{author}, {}", self.year),
        };
        let words = [format!("{} ({by})", self.title), self.url.to_owned()];
        let known = words.into_iter().filter(|it| !it.is_empty());
        known.collect::<Vec<_>>().join(", ")
    }

    /// Returns the figure for one of our models (registry name) on a task, if this source has it.
    ///
    /// If a source prints two versions of a number, the first counts: that of the paper before that
    /// of its README.
    pub fn cell(&self, model: &str, task: &str, metric: &str) -> Option<&'static Figure> {
        let mut figures = self.figures.iter().copied();
        figures
            .find(|figure| figure.entry == model && figure.task == task && figure.metric == metric)
    }

    /// Returns the spread over seeds that this source prints for one of its accuracies, in points.
    pub fn spread(&self, figure: &Figure) -> Option<f64> {
        let same = |other: &&&Figure| {
            (&other.model, &other.task) == (&figure.model, &figure.task)
                && other.metric == ACCURACY_SPREAD
        };
        self.figures.iter().find(same)?.value
    }

    /// Returns the distinct tasks, in the order of the file.
    pub fn tasks(&self) -> Vec<&'static str> {
        distinct(self.figures.iter().map(|figure| figure.task.as_str()))
    }

    /// Returns the distinct models by their names there, in the order of the file.
    pub fn models(&self) -> Vec<&'static str> {
        distinct(self.figures.iter().map(|figure| figure.model.as_str()))
    }
}

/// Returns all figures, in the order of the file.
pub fn figures() -> &'static [Figure] {
    static FIGURES: LazyLock<Vec<Figure>> =
        LazyLock::new(|| rows(include_str!("../../published.csv")));
    &FIGURES
}

/// Facts about the source of a citation key that the figures do not state.
#[derive(Debug, Deserialize)]
struct SourceLabel {
    key: String,
    alias: String,
    recipes: String,
    title: String,
    author: String,
    url: String,
}

fn source_labels() -> &'static [SourceLabel] {
    static LABELS: LazyLock<Vec<SourceLabel>> =
        LazyLock::new(|| rows(include_str!("../../published_sources.csv")));
    &LABELS
}

/// Returns the rows of a file of this crate.
pub(crate) fn rows<T: DeserializeOwned>(text: &str) -> Vec<T> {
    csv::Reader::from_reader(text.as_bytes())
        .deserialize()
        .collect::<Result<_, _>>()
        .expect("published files are part of this crate and read by its tests")
}

/// Returns all sources, in the order of the file.
pub fn sources() -> &'static [Source] {
    static SOURCES: LazyLock<Vec<Source>> = LazyLock::new(|| {
        let mut sources: Vec<Source> = Vec::new();
        for figure in figures() {
            match sources.iter_mut().find(|source| source.key == figure.key) {
                Some(source) => source.figures.push(figure),
                None => {
                    let label = source_labels().iter().find(|label| label.key == figure.key);
                    let recipes = label.map_or("", |label| &label.recipes);
                    sources.push(Source {
                        key: &figure.key,
                        alias: label.map_or(&figure.key, |label| &label.alias),
                        recipes: recipes.split_whitespace().collect(),
                        title: label.map_or("", |label| &label.title),
                        author: label.map_or("", |label| &label.author),
                        url: label.map_or("", |label| &label.url),
                        year: figure.year,
                        figures: vec![figure],
                    });
                }
            }
        }
        sources
    });
    &SOURCES
}

/// Finds a source by its key or its short name, in any case.
///
/// # Errors
/// [`Error::UnknownSource`].
pub fn source(key: &str) -> Result<&'static Source> {
    let called = |name: &str| name.eq_ignore_ascii_case(key);
    let mut sources = sources().iter();
    let found = sources.find(|source| called(source.key) || called(source.alias));
    found.ok_or_else(|| Error::UnknownSource {
        key: key.to_owned(),
    })
}

/// Returns the figure for one of our models on a task in the source with a key or short name.
pub fn cell(key: &str, model: &str, task: &str, metric: &str) -> Option<&'static Figure> {
    source(key).ok()?.cell(model, task, metric)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_say_that_they_are() {
        let of = |words: &str| {
            figures()
                .iter()
                .filter(|it| it.notes.contains(words))
                .count()
        };
        assert!(of("copied by") > 0 && of("copied from") > 0);
        for figure in figures() {
            let words = figure.notes.as_str();
            let expected = words.contains("copied by") || words.contains("copied from");
            assert_eq!(figure.is_copy(), expected, "{words}");
        }
    }

    #[test]
    fn every_source_has_one_line_of_labels_and_a_short_name_of_its_own() {
        let keys: Vec<&str> = source_labels()
            .iter()
            .map(|label| label.key.as_str())
            .collect();
        let figures: Vec<&str> = sources().iter().map(|source| source.key).collect();
        assert_eq!(keys, figures, "in the order of the figures");
        for source in sources() {
            let alias = source.alias;
            let holders = sources()
                .iter()
                .filter(|other| other.alias == alias || other.key == alias);
            assert_eq!(holders.count(), 1, "{alias}");
            assert!(!source.title.is_empty(), "{alias}");
            let known = [
                "https://arxiv.org/abs/",
                "https://github.com/",
                "https://huggingface.co/",
            ];
            assert!(known.iter().any(|it| source.url.starts_with(it)), "{alias}");
        }
    }
}
