//! Whether a score of ours may stand beside a printed one, and if not, why not.

use super::labels::task_name;
use super::{ACCURACY, Figure, Source};
use crate::record::{Batching, Record};

/// The verdict on one record and one source.
#[derive(Debug)]
pub enum Comparison {
    /// The two may stand side by side.
    Beside {
        /// The printed figure.
        figure: &'static Figure,
        /// Whether the recipe is the source's own, so that the same was done on both sides.
        same_recipe: bool,
        /// Notes that the reader must know all the same.
        caveats: Vec<String>,
    },
    /// They may not.
    Apart {
        /// The printed figure.
        figure: &'static Figure,
        /// Why not, such as `listops@256 is not listops`.
        reasons: Vec<String>,
    },
    /// The source has no such figure.
    Absent,
}

/// Compares what a record was run on with what a source printed: the same task at the published
/// parameters, real, complete and unaltered data, and a published recipe that nothing was changed
/// in.
pub fn compare(record: &Record, source: &Source) -> Comparison {
    let task = task_name(&record.task.name);
    let Some(figure) = source.cell(&record.model.name, &task, ACCURACY) else {
        return Comparison::Absent;
    };
    let mut reasons = Vec::new();
    let set = record.recipe.decisive_overrides();
    // A published recipe trains the task at its source's own length, unless something was set
    // otherwise.
    let as_published = record.recipe.published && set.is_empty();
    let other_label = task_name(&record.task.label) != task;
    if other_label && !as_published {
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
    if let Some(what) = &record.model.against_rules {
        reasons.push(what.clone());
    }
    if !record.recipe.published {
        reasons.push(format!("recipe {} is not published", record.recipe.name));
    }
    if !set.is_empty() {
        reasons.push(format!("set {}", set.join(" ")));
        let batching = record.recipe.batching.as_ref();
        reasons.extend(batching.and_then(Batching::split_statistics));
    }
    if !reasons.is_empty() {
        return Comparison::Apart { figure, reasons };
    }

    let mut caveats = Vec::new();
    let same_recipe = source.recipes.contains(&record.recipe.name.as_str());
    if !same_recipe {
        caveats.push(format!(
            "recipe {} is not the one of {}",
            record.recipe.name, source.alias
        ));
        if other_label {
            caveats.push(format!("{}, there maybe otherwise", record.task.label));
        }
    }
    if record.task.protocol != "tay2021" {
        caveats.push(format!("protocol {}", record.task.protocol));
    }
    // A variant named after the source (author and year, with which its key begins) computes what
    // the source computed.
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
