//! Names in public code bases and papers that differ from the names here.
//!
//! Tasks, models, settings and their values are named as in the configurations of
//! google-research/long-range-arena, state-spaces/s4, mlpen/Nystromformer, facebookresearch/mega,
//! lindermanlab/S5 and HazyResearch/safari, in `lra_release`, and in fairseq, Hugging Face and
//! PyTorch. Case, dashes, underscores and spaces are ignored in comparisons.

mod commands;
mod models;
mod recipes;
mod settings;
mod sources;
mod tasks;
mod words;

pub(super) use self::commands::{COMMANDS, LISTS};
pub(super) use self::models::MODELS;
pub(super) use self::recipes::RECIPES;
pub(super) use self::settings::SETTINGS;
pub(super) use self::sources::SOURCES;
pub(super) use self::tasks::TASKS;
pub(super) use self::words::WORDS;

/// A name here, with other names for it.
pub(super) struct Alias {
    /// The name here; several if the first may be absent; none if nothing here is like it, as the
    /// note then says.
    pub(super) to: &'static [&'static str],
    /// The other names.
    pub(super) names: &'static [&'static str],
    /// A sentence on the difference, without its full stop; empty if there is none.
    pub(super) note: &'static str,
}

const fn same(to: &'static [&'static str], names: &'static [&'static str]) -> Alias {
    Alias {
        to,
        names,
        note: "",
    }
}

const fn near(
    to: &'static [&'static str],
    names: &'static [&'static str],
    note: &'static str,
) -> Alias {
    Alias { to, names, note }
}
