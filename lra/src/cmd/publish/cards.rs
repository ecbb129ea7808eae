//! Cards of models and tasks for a site, from the registries.

use datasets::Task;
use models::Model;
use results::site::{ModelCard, TaskCard};

use crate::cmd::list;
use crate::error::{Class, Classify, Result};

/// Returns the cards of all models.
pub(super) fn models() -> Vec<ModelCard> {
    let models = models::registry().iter();
    models.map(|model| card(model)).collect()
}

fn card(model: &Model) -> ModelCard {
    let texts = list::variants(model).into_iter();
    ModelCard {
        name: model.name.to_owned(),
        title: model.title.to_owned(),
        paper: model.paper.to_owned(),
        year: model.year,
        arxiv: model.arxiv.to_owned(),
        costs: [model.time.to_string(), model.memory.to_string()],
        family: model.family.name().to_owned(),
        reference: model.reference.name().to_owned(),
        texts: texts
            .map(|(names, text)| (format!("Variant {names}"), text))
            .collect(),
        options: list::settings_of(model),
    }
}

/// Returns the cards of all tasks.
pub(super) fn tasks() -> Result<Vec<TaskCard>> {
    let tasks = datasets::tasks::registry().iter();
    tasks.map(|task| task_card(*task)).collect()
}

fn task_card(task: &dyn Task) -> Result<TaskCard> {
    let info = task.info();
    let shape = task.shape(&task.defaults()).class(Class::Run)?;
    let sources: Vec<String> = info.sources.iter().map(ToString::to_string).collect();
    let towers = if info.towers == 2 { "2 x " } else { "" };
    let facts = [
        ("length", format!("{towers}{}", shape.max_length)),
        ("classes", info.classes.to_string()),
        ("token ids", info.vocabulary.to_string()),
        ("sources of data", sources.join(", ")),
        ("data options", task.defaults().to_string()),
    ];
    let facts = facts.into_iter();
    Ok(TaskCard {
        name: info.name.to_owned(),
        title: info.title.to_owned(),
        summary: info.summary.to_owned(),
        paper: info.paper.to_owned(),
        facts: facts
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
        classes: info.classes,
        probe: info.probe,
    })
}
