//! The settings of a run, `spec.toml`, as a recipe.

use std::collections::BTreeMap;

use serde_json::json;

use super::{Body, PER_MODEL, SOURCE};
use crate::spec::Spec;

/// Name of the section that a run's settings have and a recipe has not.
pub(super) const MARK: &str = "cell";

/// Returns the recipe that gives the run's task and model the settings of the run. Its seed and the
/// weights that it started from are no settings of a recipe.
pub(super) fn body(spec: &Spec) -> Body {
    let cell = &spec.cell;
    let mut settings = json!({
        SOURCE: cell.source,
        "data": spec.data,
        "embed": spec.embed,
        "block": spec.block,
        "head": spec.head,
        "train": spec.train,
        PER_MODEL: { cell.model.as_str(): { "model": spec.model } },
    });
    if !spec.pretrain.is_off() {
        settings["pretrain"] = json!(spec.pretrain);
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
