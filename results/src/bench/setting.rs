//! Facts that the figures of a cell depend on besides model and length: recipe, sizes, machine,
//! session.

use serde_json::{Value, json};

use super::Bench;
use crate::format::counted;
use crate::table::{Fact, or_null};

/// A dimension of the setting of a cell.
pub(super) struct Dimension {
    /// Its name, the header of its column.
    pub(super) name: &'static str,
    /// Its value for machines.
    of: fn(&Bench) -> Value,
}

/// The session, which tells cells apart that are alike in all else.
pub(super) const SESSION: &str = "session";

pub(super) const DIMENSIONS: [Dimension; 9] = [
    Dimension {
        name: "recipe",
        of: |cell| or_null(&cell.recipe.name),
    },
    Dimension {
        name: "set",
        of: |cell| or_null(&changes(cell).join(" ")),
    },
    Dimension {
        name: "batch",
        of: |cell| json!((cell.batch > 0).then_some(cell.batch)),
    },
    Dimension {
        name: "precision",
        of: |cell| or_null(&cell.provenance.precision),
    },
    Dimension {
        name: "device",
        of: |cell| or_null(&cell.provenance.device),
    },
    Dimension {
        name: "processor",
        of: |cell| or_null(&cell.provenance.host.cpu),
    },
    Dimension {
        name: "accelerator",
        of: |cell| or_null(cell.provenance.accelerator()),
    },
    Dimension {
        name: "threads",
        // 0 stands for what an older file does not say.
        of: |cell| json!((cell.provenance.threads > 0).then_some(cell.provenance.threads)),
    },
    Dimension {
        name: SESSION,
        of: |cell| or_null(&cell.session),
    },
];

/// Names of the facts that identify a row of a table of cells: those given, then the setting.
macro_rules! info {
    ($($own:literal),*) => {
        &[
            $($own,)* "recipe", "set", "batch", "precision", "device", "processor",
            "accelerator", "threads", "session",
        ]
    };
}
pub(super) use info;

/// Returns the changes to the recipe that neither the length, nor the batch, nor the options of the
/// model tell.
fn changes(cell: &Bench) -> Vec<&str> {
    let told = |change: &str| {
        let option = change.strip_prefix("model.").unwrap_or(change);
        ["data.max_length=", "train.batch="]
            .iter()
            .any(|key| change.starts_with(key))
            || cell
                .options
                .iter()
                .any(|own| own == option || own == change)
    };
    let mut changes: Vec<&str> = cell.recipe.overrides.iter().map(String::as_str).collect();
    changes.retain(|change| !told(change));
    changes.sort_unstable();
    changes
}

/// Returns the setting of a cell, for machines.
pub(super) fn facts(cell: &Bench) -> Vec<Fact> {
    DIMENSIONS
        .iter()
        .map(|dimension| (dimension.name, (dimension.of)(cell)))
        .collect()
}

/// Returns a value of the setting for people; empty if it is not known.
pub(super) fn shown(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Returns the names and values that all cells share, in words.
pub(super) fn shared(cell: &Bench, varying: &[&str]) -> Vec<String> {
    let facts = facts(cell).into_iter();
    let constant = facts
        .filter(|(name, value)| *name != SESSION && !varying.contains(name) && !value.is_null());
    constant.map(|(name, value)| words(name, &value)).collect()
}

/// Returns a value of the setting in words that say of which dimension it is.
pub(super) fn words(name: &str, value: &Value) -> String {
    match (name, value.as_u64()) {
        ("threads", Some(count)) => counted(count, "thread"),
        ("recipe" | "batch" | "set", _) => format!("{name} {}", shown(value)),
        _ => shown(value),
    }
}
