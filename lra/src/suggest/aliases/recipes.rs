//! Recipes, by their source and their purpose.

use super::{Alias, near, same};

/// Recipes; the names of published sources are in `results`.
pub(in crate::suggest) const RECIPES: &[Alias] = &[
    same(&["mini"], &["default", "small", "cpu"]),
    near(
        &["mini"],
        &["laptop"],
        "mini replaced laptop, with each model in the block of its authors",
    ),
    same(&["smoke"], &["test", "tiny", "quick", "debug", "toy"]),
    near(
        &["tay2021", "tay2021-paper"],
        &[
            "lra",
            "google",
            "official",
            "published",
            "tay2020",
            "base",
            "long-range-arena",
            "lra_benchmarks",
        ],
        "tay2021 is what its code of 2021 computed, tay2021-paper what its appendix says",
    ),
    same(
        &["nystromformer"],
        &["nystrom", "xiong2021", "skyformer", "lra_config"],
    ),
    same(&["s5"], &["run_lra"]),
    same(
        &["s4"],
        &["s4d", "state-spaces", "s4-lra", "state-space", "s4-v2"],
    ),
    same(&["liquid-s4"], &["liquid", "liquid-ssm"]),
    same(&["mega"], &["mega-chunk", "mega-lra"]),
    same(&["long-conv"], &["safari", "long-convs"]),
];
