//! A static site: a page per model, per task and per published source, tables of all evidence, and
//! feeds.
//!
//! Every page is one file in one folder. It opens offline and asks nothing of a network. Equal
//! inputs give equal bytes: no page holds the time at which it was made.
//!
//! ```text
//! entry     the models, the tasks and the ways to reproduce figures, as the caller knows them
//! names     names of the files, and links
//! ours      groups of runs that differ only in the seed, with verdicts and costs
//! tuning    the settings that were tried, and the expected best of some of them
//! evidence  every figure with its tier: printed, re-run by others, re-run here
//! cells     one line per model and task
//! floors    the scores of trivial predictors
//! feeds     the same for programs
//! prose     documentation as HTML
//! locality  how much of a task needs more than neighbours
//! index, model, task, source, predictions    the pages
//! ```

mod cells;
mod entry;
mod evidence;
mod feeds;
mod floors;
mod index;
mod locality;
mod model;
mod names;
mod ours;
mod predictions;
mod pretrained;
mod prose;
mod source;
mod task;
mod tuning;

use self::cells::Summary;
use self::evidence::Evidence;
use self::names::Names;
use self::ours::Group;
use crate::Record;
use crate::format::counted;
use crate::imported::Imported;
use crate::page::{Document, Link};
use crate::published;
use crate::store::Loaded;

pub use self::entry::{ModelCard, Offer, TaskCard, Way};
pub use self::floors::{Floor, best_at as best_floor};
pub use self::predictions::Predictions;

/// Name of the file that marks a folder as a site, and lists its files.
pub const MARKER: &str = "lra-site.json";
/// Name of the page to open first.
pub const INDEX: &str = "index.html";

/// Rules of all pages of a site, in addition to those of every page.
const STYLE: &str = include_str!("site.css");
/// Name of the site.
const TITLE: &str = "Long Range Arena registry";

/// Contents of a site.
#[derive(Debug, Default)]
pub struct Site {
    /// Name and version of the program.
    pub made_by: String,
    /// The models, in the order of the registry.
    pub models: Vec<ModelCard>,
    /// The tasks, in the order of the registry.
    pub tasks: Vec<TaskCard>,
    /// Commands and costs of reproducing published figures.
    pub ways: Vec<Way>,
    /// Runs, with their folders.
    pub runs: Loaded,
    /// Predictions of some of these runs.
    pub predictions: Vec<Predictions>,
    /// Accuracies that others measured.
    pub imported: Vec<Imported>,
}

/// A file of a site.
#[derive(Clone, Debug, PartialEq)]
pub struct File {
    /// Its name within the folder.
    pub name: String,
    /// Its content.
    pub text: String,
}

impl Site {
    /// Returns the files of the site, by name. Reasons why runs have no learning curve are added to
    /// `unread`.
    #[must_use]
    pub fn files(&self, unread: &mut Vec<String>) -> Vec<File> {
        let groups = ours::groups(&self.runs.records);
        let evidence = evidence::all(self, &groups);
        let book = Book {
            site: self,
            names: Names::new(self, &evidence),
            cells: cells::all(self, &evidence, &groups),
            evidence: &evidence,
            groups: &groups,
        };
        let mut files = vec![
            File {
                name: INDEX.to_owned(),
                text: index::page(&book),
            },
            File {
                name: names::EVIDENCE.to_owned(),
                text: index::evidence(&book),
            },
        ];
        let models = book.names.models();
        files.extend(models.map(|(name, file)| File {
            name: file.to_owned(),
            text: model::page(&book, name, unread),
        }));
        let tasks = book.names.tasks();
        files.extend(tasks.map(|(name, file)| File {
            name: file.to_owned(),
            text: task::page(&book, name),
        }));
        files.extend(published::sources().iter().map(|it| File {
            name: book.names.source(it.alias),
            text: source::page(&book, it),
        }));
        files.extend(self.predictions.iter().filter_map(|it| {
            Some(File {
                name: book.names.predictions(&it.run)?,
                text: predictions::page(&book, it),
            })
        }));
        files.extend(feeds::files(&book));
        files.sort_by(|a, b| a.name.cmp(&b.name));
        files.push(feeds::marker(self, &files));
        files
    }

    /// Returns the day of the latest run; empty if there is none.
    fn latest(&self) -> &str {
        let days = self.runs.records.iter().map(day);
        days.max().unwrap_or_default()
    }

    /// Returns the card of a model, if the caller knows it.
    fn model(&self, name: &str) -> Option<&ModelCard> {
        self.models.iter().find(|card| card.name == name)
    }

    /// Returns the card of a task, if the caller knows it, by any spelling of its name.
    fn task(&self, name: &str) -> Option<&TaskCard> {
        let key = published::task_name(name);
        let mut tasks = self.tasks.iter();
        tasks.find(|card| published::task_name(&card.name) == key)
    }

    /// Returns a task's name as its card spells it; other names stay.
    fn spelt<'a>(&'a self, name: &'a str) -> &'a str {
        self.task(name).map_or(name, |card| &card.name)
    }
}

/// Everything that pages are made of.
struct Book<'a> {
    site: &'a Site,
    names: Names,
    evidence: &'a [Evidence<'a>],
    cells: Vec<Summary<'a>>,
    groups: &'a [Group<'a>],
}

impl Book<'_> {
    /// Returns a page with these links to its parts.
    fn document(&self, title: &str, made: &str, parts: Vec<Link>, main: &str) -> String {
        let pages = [
            (INDEX, "All models, tasks, cells"),
            (names::EVIDENCE, "All figures"),
        ];
        let pages = pages.map(|(to, words)| Link {
            to: to.to_owned(),
            words: words.to_owned(),
        });
        let document = Document {
            title,
            made,
            links: &[pages.to_vec(), parts],
            style: STYLE,
            main,
        };
        document.render()
    }

    /// Returns the line below the title of pages that are about everything.
    fn made(&self) -> String {
        let runs = counted(self.site.runs.records.len() as u64, "run");
        let figures = counted(published::figures().len() as u64, "printed figure");
        let sources = counted(published::sources().len() as u64, "source");
        let latest = match self.site.latest() {
            "" => String::new(),
            day => format!(", the latest of {day}"),
        };
        format!(
            "{figures} of {sources}, {runs}{latest}; {}",
            self.site.made_by
        )
    }
}

/// Returns the day on which a record was written, as far as it is known.
fn day(record: &Record) -> &str {
    let created = record.provenance.created.as_str();
    created.get(..10).unwrap_or(created)
}
