//! Rules for comparing one of our scores with a published one, with reasons against it.

use super::labels::{is_published_label, task_name};
use super::{ACCURACY, Figure, Source};
use crate::record::Record;

/// The verdict on one record and one source.
#[derive(Debug)]
pub enum Comparison {
    /// The two may be compared.
    Beside {
        /// The published figure.
        figure: &'static Figure,
        /// True if the recipe is that of the source, so that both sides trained in the same way.
        same_recipe: bool,
        /// Caveats to print with the figure.
        caveats: Vec<String>,
    },
    /// They may not be compared.
    Apart {
        /// The published figure.
        figure: &'static Figure,
        /// The reasons, such as `listops@256 is not listops`.
        reasons: Vec<String>,
    },
    /// The source has no such figure.
    Absent,
}

/// Decides whether the seeds of a cell may be compared with a figure of a source. If one of them
/// may not, none may. The reasons or caveats are those of all seeds, each once.
pub(crate) fn compare_seeds(runs: &[&Record], source: &Source) -> Comparison {
    let join = |mut all: Vec<String>, more: Vec<String>| {
        let new: Vec<String> = more.into_iter().filter(|one| !all.contains(one)).collect();
        all.extend(new);
        all
    };
    let compared = runs.iter().map(|run| compare(run, source));
    let joined = compared.reduce(|all, one| match (all, one) {
        (Comparison::Absent, other) | (other, Comparison::Absent) => other,
        (Comparison::Apart { figure, reasons }, Comparison::Apart { reasons: more, .. }) => {
            let reasons = join(reasons, more);
            Comparison::Apart { figure, reasons }
        }
        (apart @ Comparison::Apart { .. }, _) | (_, apart @ Comparison::Apart { .. }) => apart,
        (
            Comparison::Beside {
                figure,
                same_recipe,
                caveats,
            },
            Comparison::Beside {
                same_recipe: also,
                caveats: more,
                ..
            },
        ) => Comparison::Beside {
            figure,
            same_recipe: same_recipe && also,
            caveats: join(caveats, more),
        },
    });
    joined.unwrap_or(Comparison::Absent)
}

/// Decides whether a record may be compared with a figure of a source. It requires the same task at
/// the published parameters, real, complete and unaltered data, an unchanged published recipe, and
/// one set of data and one program from beginning to end.
pub fn compare(record: &Record, source: &Source) -> Comparison {
    let task = task_name(&record.task.name);
    let Some(figure) = source.cell(&record.model.name, &task, ACCURACY) else {
        return Comparison::Absent;
    };
    let mut reasons = Vec::new();
    let set = record.recipe.decisive_overrides();
    // A published recipe trains on texts of the length of its source, unless a setting changes it.
    let as_published = record.recipe.published && set.is_empty();
    let other_label = task_name(&record.task.label) != task;
    if other_label && !(as_published && is_published_label(&record.task.label, &task)) {
        reasons.push(format!("{} is not {task}", record.task.label));
    }
    if record.task.synthetic() {
        reasons.push("synthetic data".to_owned());
    }
    if record.task.partial {
        reasons.push("a part of the data".to_owned());
    }
    if record.task.altered() {
        reasons.push(format!("altered data: {}", record.task.altered.join("; ")));
    }
    if let Some(changes) = record.changed_on_the_way() {
        reasons.push(format!("resumed after changes: {changes}"));
    }
    if let Some(what) = &record.model.rule_violation {
        reasons.push(what.clone());
    }
    if !record.recipe.published {
        reasons.push(format!("recipe {} is not published", record.recipe.name));
    }
    if !set.is_empty() {
        reasons.push(format!("set {}", set.join(" ")));
        reasons.extend(record.recipe.split_statistics());
    }
    if !reasons.is_empty() {
        return Comparison::Apart { figure, reasons };
    }

    let mut caveats = Vec::new();
    let same_recipe = source.recipes.contains(&record.recipe.name.as_str());
    if !same_recipe {
        caveats.push(format!(
            "recipe {} does not follow source {}",
            record.recipe.name, source.alias
        ));
        if other_label {
            caveats.push(format!("{}, there maybe otherwise", record.task.label));
        }
    }
    if record.task.protocol != "tay2021" {
        caveats.push(format!("protocol {}", record.task.protocol));
    }
    // A variant named after the source (author and year, the start of its key) computes the same as
    // the source.
    let variant = record.model.departure();
    if let Some(variant) = variant.filter(|variant| !source.key.starts_with(variant)) {
        caveats.push(format!("variant {variant}"));
    }
    if !figure.defect.is_empty() {
        caveats.push(format!("the printed figure: {}", figure.defect));
    }
    Comparison::Beside {
        figure,
        same_recipe,
        caveats,
    }
}
