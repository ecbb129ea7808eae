//! Names of the files of a site, and links to them.

use super::{Evidence, Site};
use crate::chart::slug;
use crate::published::{self, task_name};
use crate::table::Cell;

/// Name of the page with every figure.
pub(super) const EVIDENCE: &str = "evidence.html";
/// Longest part of a file's name that comes from a model or a task, in characters.
const LONGEST: usize = 60;

/// The files of models, tasks and sources.
pub(super) struct Names {
    models: Vec<(String, String)>,
    tasks: Vec<(String, String)>,
    sources: Vec<(String, String)>,
    predictions: Vec<(String, String)>,
}

impl Names {
    /// Names the files of all models and tasks that are known or have a figure.
    pub(super) fn new(site: &Site, evidence: &[Evidence]) -> Names {
        let mut models: Vec<&str> = site.models.iter().map(|card| card.name.as_str()).collect();
        let mut tasks: Vec<&str> = site.tasks.iter().map(|card| card.name.as_str()).collect();
        for one in evidence {
            if !one.model.is_empty() && !models.contains(&one.model) {
                models.push(one.model);
            }
            let is_known = tasks
                .iter()
                .any(|task| task_name(task) == task_name(one.task));
            if one.is_on_a_task() && !is_known {
                tasks.push(one.task);
            }
        }
        let sources = published::sources().iter().map(|source| source.alias);
        let runs = site.predictions.iter().map(|it| it.run.as_str());
        Names {
            models: files("model", &models),
            tasks: files("task", &tasks),
            sources: files("source", &sources.collect::<Vec<_>>()),
            predictions: files("predictions", &runs.collect::<Vec<_>>()),
        }
    }

    /// Returns all models, each with its file.
    pub(super) fn models(&self) -> impl Iterator<Item = (&str, &str)> {
        pairs(&self.models)
    }

    /// Returns all tasks, each with its file.
    pub(super) fn tasks(&self) -> impl Iterator<Item = (&str, &str)> {
        pairs(&self.tasks)
    }

    /// Returns the file of a model.
    pub(super) fn model(&self, model: &str) -> Option<String> {
        find(&self.models, |name| name == model)
    }

    /// Returns the file with the predictions of a run, if they are known.
    pub(super) fn predictions(&self, run: &str) -> Option<String> {
        find(&self.predictions, |name| name == run)
    }

    /// Returns the file of a source.
    pub(super) fn source(&self, alias: &str) -> String {
        find(&self.sources, |name| name == alias).unwrap_or_default()
    }

    /// Returns the cell with a link to the page of a model, if it has one.
    pub(super) fn to_model(&self, cell: Cell, model: &str) -> Cell {
        link(cell, self.model(model))
    }

    /// Returns the cell with a link to the page of a task, if it has one.
    pub(super) fn to_task(&self, cell: Cell, task: &str) -> Cell {
        link(cell, self.task(task))
    }

    /// Returns the cell with a link to the page of a source.
    pub(super) fn to_source(&self, cell: Cell, alias: &str) -> Cell {
        link(cell, find(&self.sources, |name| name == alias))
    }

    /// Returns the cell with a link to the part of a model's page that is about a task.
    pub(super) fn to_cell(&self, cell: Cell, model: &str, task: &str) -> Cell {
        let page = self.model(model);
        link(cell, page.map(|page| format!("{page}#{}", anchor(task))))
    }

    /// Returns the file of a task, by any spelling of its name.
    pub(super) fn task(&self, task: &str) -> Option<String> {
        find(&self.tasks, |name| task_name(name) == task_name(task))
    }
}

/// Returns the name of the part of a model's page that is about a task.
pub(super) fn anchor(task: &str) -> String {
    format!("cell-{}", short(&task_name(task)))
}

/// Returns names with files, no two of which are equal on any file system.
fn files(kind: &str, names: &[&str]) -> Vec<(String, String)> {
    let mut files: Vec<(String, String)> = Vec::new();
    for name in names {
        let stem = format!("{kind}-{}", short(name));
        let (mut file, mut count) = (format!("{stem}.html"), 1);
        while files.iter().any(|(_, taken)| *taken == file) {
            count += 1;
            file = format!("{stem}-no-{count}.html");
        }
        files.push(((*name).to_owned(), file));
    }
    files
}

/// Returns a name in small letters, digits and dashes, cut to a length that file systems accept.
fn short(name: &str) -> String {
    let slug = slug(&name.replace('@', " at ")).to_lowercase();
    slug.chars().take(LONGEST).collect()
}

fn pairs(files: &[(String, String)]) -> impl Iterator<Item = (&str, &str)> {
    files
        .iter()
        .map(|(name, file)| (name.as_str(), file.as_str()))
}

fn find(files: &[(String, String)], is: impl Fn(&str) -> bool) -> Option<String> {
    let found = files.iter().find(|(name, _)| is(name));
    found.map(|(_, file)| file.clone())
}

fn link(cell: Cell, page: Option<String>) -> Cell {
    match page {
        Some(page) => cell.linked(page),
        None => cell,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_files_of_their_own() {
        let long = "x".repeat(300);
        let names = [
            "mega_chunk",
            "mega-chunk-no-2",
            "Mega chunk",
            "../../etc",
            "",
            "a@1",
            &long,
        ];
        let files: Vec<String> = files("model", &names)
            .into_iter()
            .map(|(_, file)| file)
            .collect();
        assert_eq!(
            files[..6],
            [
                "model-mega-chunk.html",
                "model-mega-chunk-no-2.html",
                "model-mega-chunk-no-3.html",
                "model-..-..-etc.html",
                "model-.html",
                "model-a-at-1.html",
            ]
        );
        assert!(files[6].len() < 80, "{}", files[6]);
    }
}
