//! Published sources, by the names of their methods, authors and preprints.

use super::{Alias, near, same};

/// Published sources, by their short names.
pub(in crate::suggest) const SOURCES: &[Alias] = &[
    same(
        &["tay2021"],
        &[
            "lra",
            "long-range-arena",
            "google",
            "tay",
            "tay2020",
            "tay2020long",
            "original",
            "paper",
        ],
    ),
    same(
        &["nystromformer"],
        &["nystrom", "xiong2021", "xiong", "nyströmformer", "nyström"],
    ),
    same(&["skyformer"], &["chen2021", "chen2021sky"]),
    same(
        &["mega"],
        &["ma2022", "mega-chunk", "mega-lra", "ma2023mega"],
    ),
    same(&["megalodon"], &["ma2024"]),
    same(
        &["s4"],
        &[
            "s4-lra",
            "gu2021s4",
            "gu2022s4",
            "s4-v2",
            "gu2021efficiently",
        ],
    ),
    same(&["httyh"], &["how-to-train-your-hippo", "hippo"]),
    same(&["s4d"], &["s4d-lin", "s4d-inv", "s4d-legs"]),
    same(&["dss"], &["gupta2022", "dss-exp", "dss-softmax"]),
    same(
        &["s5"],
        &[
            "smith2022",
            "smith2022s5",
            "smith2022simplified",
            "smith2023",
        ],
    ),
    same(
        &["lru"],
        &["orvieto", "orvieto2023", "linear-recurrent-unit"],
    ),
    same(&["cosformer"], &["qin2022"]),
    same(&["flash"], &["gau", "hua2022", "flash-quad"]),
    same(&["fnet"], &["lee-thorp2021", "lee-thorp"]),
    same(&["luna"], &["ma2021", "luna-256"]),
    same(
        &["h-transformer"],
        &["h-transformer-1d", "h1d", "zhu2021", "zhu2021h"],
    ),
    same(&["ccnn"], &["knigge2023"]),
    same(&["tnn"], &["toeplitz", "toeplitz-neural-network"]),
    same(&["sgconv"], &["gconv", "li2022"]),
    same(&["liquid-s4"], &["liquid", "liquid-ssm", "hasani2022"]),
    same(&["rwkv"], &["peng2023"]),
    same(&["hrrformer"], &["alam2023"]),
    same(&["flashattention"], &["flash-attn", "dao2022"]),
    same(
        &["pretraining"],
        &[
            "never-train-from-scratch",
            "amos2024",
            "amos2023never",
            "spt",
        ],
    ),
    same(&["locality"], &["miralles2025"]),
    same(&["cab"], &["zhang2023"]),
    same(&["chordmixer"], &["khalitov2023", "khalitov2022chordmixer"]),
    same(&["rtf"], &["parnichkun2024", "transfer-function"]),
    near(
        &["nystromformer", "tay2021"],
        &[
            "transformer",
            "vanilla",
            "performer",
            "linformer",
            "reformer",
        ],
        "they print figures of this model; a source is a paper, not a model",
    ),
];
