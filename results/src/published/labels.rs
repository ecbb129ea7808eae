//! Names, and the order of tasks and models in tables.

use std::sync::LazyLock;

use super::{distinct, figures};

/// The benchmark's tasks, with the names and order of published tables.
pub const TASKS: &[&str] = &[
    "listops",
    "text",
    "retrieval",
    "image",
    "pathfinder",
    "pathx",
    "pathx256",
];

/// Returns our models with published figures, in the order of the file.
pub fn models() -> &'static [&'static str] {
    static MODELS: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
        let entries = figures().iter().map(|figure| figure.entry.as_str());
        distinct(entries.filter(|entry| !entry.is_empty()))
    });
    &MODELS
}

/// Returns whether published tables have figures of a task of this name, however it is spelt.
#[must_use]
pub fn is_published_task(name: &str) -> bool {
    TASKS.contains(&task_name(name).as_str())
}

/// Returns the position of a model in the order of the tables: as published, ours after that.
pub(crate) fn model_rank(model: &str) -> usize {
    let place = models().iter().position(|name| *name == model);
    place.unwrap_or(models().len())
}

/// Returns the position of a task in the order of the tables: as published, ours after that.
pub(crate) fn task_rank(task: &str) -> usize {
    let name = task_name(task);
    let place = TASKS.iter().position(|task| *task == name);
    place.unwrap_or(TASKS.len())
}

/// Returns a task's name as published tables spell it: `path-x` is their `pathx`.
pub(crate) fn task_name(task: &str) -> String {
    task.replace(['-', '_'], "")
}

/// Returns whether a task is Path-X, where published tables print chance as a failure.
pub(crate) fn is_path_x(task: &str) -> bool {
    task_name(task) == "pathx"
}

/// Tasks whose texts published recipes cut, and the lengths they cut them to.
const CUT: [(&str, &[&str]); 2] = [("text", &["1000", "4000"]), ("retrieval", &["4000"])];

/// Returns whether a label is that of a task as published recipes train it: its name, or its name
/// with a length to which they cut its texts.
#[must_use]
pub fn is_published_label(label: &str, task: &str) -> bool {
    if task_name(label) == task_name(task) {
        return true;
    }
    CUT.iter().any(|(name, lengths)| {
        let length = label.split_once('@').map(|(_, length)| length);
        *name == task && length.is_some_and(|length| lengths.contains(&length))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published::sources;

    #[test]
    fn a_source_has_one_label_for_each_of_our_models() {
        for source in sources() {
            for model in models() {
                let own = source
                    .figures
                    .iter()
                    .filter(|figure| figure.entry == *model);
                let mut labels: Vec<&str> = own.map(|figure| figure.model.as_str()).collect();
                labels.dedup();
                assert!(labels.len() <= 1, "{}: {model} is {labels:?}", source.key);
            }
        }
        assert_eq!(models()[..2], ["transformer", "local"]);
    }

    #[test]
    fn a_published_task_is_known_in_any_spelling() {
        assert!(is_published_task("path_x") && is_published_task("pathx256"));
        assert!(!is_published_task("mine:/listops") && !is_published_task("toy"));
    }
}
