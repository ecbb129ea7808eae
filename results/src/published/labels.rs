//! Names: short ones for sources, and what each source calls our models.

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

/// Our models in the order of the 2021 tables, each with its label per source.
/// Where a source prints a copied and a re-run row, its own re-run is meant.
pub const MODELS: &[(&str, &[(&str, &str)])] = &[
    (
        "transformer",
        &[
            ("tay2021long", "Transformer"),
            ("xiong2021nystromformer", "Standard (softmax)"),
            ("chen2021skyformer", "Self-Attention"),
            ("ma2022mega", "XFM (Mega authors' re-run)"),
            ("dao2022flashattention", "Transformer"),
        ],
    ),
    (
        "local",
        &[
            ("tay2021long", "Local Attention"),
            ("dao2022flashattention", "Local Attention"),
        ],
    ),
    ("sparse", &[("tay2021long", "Sparse Trans.")]),
    ("longformer", &[("tay2021long", "Longformer")]),
    (
        "linformer",
        &[
            ("tay2021long", "Linformer"),
            ("xiong2021nystromformer", "Linformer"),
            ("chen2021skyformer", "Linformer"),
            ("ma2022mega", "Linformer"),
            ("dao2022flashattention", "Linformer"),
            ("msssm", "Linformer (as copied there)"),
        ],
    ),
    (
        "reformer",
        &[
            ("tay2021long", "Reformer"),
            ("xiong2021nystromformer", "Reformer"),
            ("chen2021skyformer", "Reformer"),
            ("ma2022mega", "Reformer"),
            ("dao2022flashattention", "Reformer"),
        ],
    ),
    ("sinkhorn", &[("tay2021long", "Sinkhorn Trans.")]),
    ("synthesizer", &[("tay2021long", "Synthesizer")]),
    (
        "bigbird",
        &[
            ("tay2021long", "BigBird"),
            ("chen2021skyformer", "BigBird"),
            ("ma2022mega", "BigBird"),
        ],
    ),
    (
        "linear",
        &[
            ("tay2021long", "Linear Trans."),
            ("dao2022flashattention", "Linear Attention"),
        ],
    ),
    (
        "performer",
        &[
            ("tay2021long", "Performer"),
            ("xiong2021nystromformer", "Performer"),
            ("chen2021skyformer", "Performer"),
            ("ma2022mega", "Performer"),
            ("dao2022flashattention", "Performer"),
        ],
    ),
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

/// What a source calls one of our models.
pub(super) fn label(model: &str, key: &str) -> Option<&'static str> {
    let (_, labels) = MODELS.iter().find(|(name, _)| *name == model)?;
    lookup(labels, key)
}

/// The source whose protocol a recipe follows.
pub(super) fn protocol_of(recipe: &str) -> Option<&'static str> {
    lookup(RECIPES, recipe)
}

fn lookup(pairs: &[(&str, &'static str)], key: &str) -> Option<&'static str> {
    let pair = pairs.iter().find(|(name, _)| *name == key);
    pair.map(|(_, value)| *value)
}

/// Where a model stands in the order of the tables: as published, ours after that.
pub(crate) fn model_rank(model: &str) -> usize {
    let place = MODELS.iter().position(|(name, _)| *name == model);
    place.unwrap_or(MODELS.len())
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
    use crate::published::{figures, sources};

    #[test]
    fn every_label_stands_in_the_file() {
        for (model, labels) in MODELS {
            for (key, label) in *labels {
                let known = figures()
                    .iter()
                    .any(|figure| figure.key == *key && figure.model == *label);
                assert!(known, "{model}: {key} has no {label}");
            }
        }
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
