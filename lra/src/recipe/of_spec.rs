//! The settings of a run, `spec.toml`, as a recipe.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Body, PER_MODEL, SOURCE};

/// Name of the section that a run's settings have and a recipe has not.
pub(super) const MARK: &str = "cell";

/// The settings of a run. Its seed and the weights that it started from are no settings of a recipe.
#[derive(Deserialize)]
pub(super) struct Settings {
    cell: Names,
    data: Value,
    embed: Value,
    block: Value,
    head: Value,
    model: Value,
    train: Value,
    pretrain: Option<Value>,
}

/// The names of the run.
#[derive(Deserialize)]
struct Names {
    task: String,
    model: String,
    recipe: String,
    source: String,
}

impl Settings {
    /// Returns the recipe that gives the run's task and model these settings.
    pub(super) fn into_body(self) -> Body {
        let cell = self.cell;
        let mut settings = json!({
            SOURCE: cell.source,
            "data": self.data,
            "embed": self.embed,
            "block": self.block,
            "head": self.head,
            "train": self.train,
            PER_MODEL: { cell.model.as_str(): { "model": self.model } },
        });
        if let Some(pretrain) = self.pretrain {
            settings["pretrain"] = pretrain;
        }
        let is_known = datasets::TASKS.iter().any(|it| it.info().name == cell.task);
        let (tasks, own) = match is_known {
            true => (BTreeMap::from([(cell.task.clone(), settings)]), None),
            false => (BTreeMap::new(), Some(settings)),
        };
        Body {
            about: format!("the settings of a run of {} on {}", cell.model, cell.task),
            source: format!("the settings of a run with recipe {}", cell.recipe),
            published: false,
            full: None,
            made_for: Vec::new(),
            parameters: None,
            tasks,
            counted: Vec::new(),
            own,
            families: BTreeMap::new(),
            models: BTreeMap::new(),
            probe: None,
            rates: Vec::new(),
            departures: Vec::new(),
        }
    }
}
