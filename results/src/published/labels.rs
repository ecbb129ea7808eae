//! Names: short ones for sources, and the order of tasks and models in tables.

use std::sync::LazyLock;

use super::{distinct, figures};

/// The benchmark's tasks as published tables name and order them.
pub const TASKS: &[&str] = &[
    "listops",
    "text",
    "retrieval",
    "image",
    "pathfinder",
    "pathx",
    "pathx256",
];

/// Short names of sources by citation key.
const ALIASES: &[(&str, &str)] = &[
    ("tay2021long", "tay2021"),
    ("lra_external", "external"),
    ("xiong2021nystromformer", "nystromformer"),
    ("chen2021skyformer", "skyformer"),
    ("ma2022mega", "mega"),
    ("ma2024megalodon", "megalodon"),
    ("gu2022efficiently", "s4"),
    ("gu2022httyh", "httyh"),
    ("gu2022s4d", "s4d"),
    ("s4d_dfout", "dfout"),
    ("gupta2022dss", "dss"),
    ("smith2023s5", "s5"),
    ("orvieto2023lru", "lru"),
    ("qin2022cosformer", "cosformer"),
    ("hua2022flash", "flash"),
    ("leethorp2021fnet", "fnet"),
    ("ma2021luna", "luna"),
    ("zhu2021htransformer", "h-transformer"),
    ("knigge2023ccnn", "ccnn"),
    ("qin2023tnn", "tnn"),
    ("qin2023hgrn", "hgrn"),
    ("li2022sgconv", "sgconv"),
    ("hasani2022liquid", "liquid-s4"),
    ("peng2023rwkv", "rwkv"),
    ("alam2023hrrformer", "hrrformer"),
    ("dao2022flashattention", "flashattention"),
    ("fractal_ssm", "fractal"),
    ("amos2024never", "pretraining"),
    ("miralles2025locality", "locality"),
    ("s4repo_mega_ablation", "mega-ablation"),
    ("zhang2023cab", "cab"),
];

/// Recipes that follow a published protocol, with the source that published it.
const RECIPES: &[(&str, &str)] = &[
    ("tay2021", "tay2021long"),
    ("tay2021-paper", "tay2021long"),
    ("nystromformer", "xiong2021nystromformer"),
];

/// The short name of a source; its key where it has none.
pub(super) fn alias(key: &'static str) -> &'static str {
    lookup(ALIASES, key).unwrap_or(key)
}

/// The source whose protocol a recipe follows.
pub(super) fn protocol_of(recipe: &str) -> Option<&'static str> {
    lookup(RECIPES, recipe)
}

fn lookup(pairs: &[(&str, &'static str)], key: &str) -> Option<&'static str> {
    let pair = pairs.iter().find(|(name, _)| *name == key);
    pair.map(|(_, value)| *value)
}

/// Our models that published figures exist for, in the order of the file.
pub fn models() -> &'static [&'static str] {
    static MODELS: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
        let entries = figures().iter().map(|figure| figure.entry.as_str());
        distinct(entries.filter(|entry| !entry.is_empty()))
    });
    &MODELS
}

/// Where a model stands in the order of the tables: as published, ours after that.
pub(crate) fn model_rank(model: &str) -> usize {
    let place = models().iter().position(|name| *name == model);
    place.unwrap_or(models().len())
}

/// Where a task stands in the order of the tables: as published, ours after that.
pub(crate) fn task_rank(task: &str) -> usize {
    let name = task_name(task);
    let place = TASKS.iter().position(|task| *task == name);
    place.unwrap_or(TASKS.len())
}

/// A task's name as published tables spell it: `path-x` is their `pathx`.
pub(crate) fn task_name(task: &str) -> String {
    task.replace(['-', '_'], "")
}

/// Whether a task is Path-X, where published tables print chance as a failure.
pub(crate) fn is_path_x(task: &str) -> bool {
    task_name(task) == "pathx"
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
    fn every_source_has_one_short_name_of_its_own() {
        for (key, alias) in ALIASES {
            assert!(sources().iter().any(|source| source.key == *key), "{key}");
            let holders = sources()
                .iter()
                .filter(|source| source.alias == *alias || source.key == *alias);
            assert_eq!(holders.count(), 1, "{alias}");
        }
        for (recipe, key) in RECIPES {
            assert!(
                sources().iter().any(|source| source.key == *key),
                "{recipe}"
            );
        }
    }
}
