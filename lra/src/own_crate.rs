//! The crate that a program with custom models is built from, for records to name.

use std::sync::OnceLock;

/// A crate, as [`this_crate!`](crate::this_crate) describes the one that calls it.
#[derive(Clone, Copy, Debug)]
pub struct Crate {
    /// Its name.
    pub name: &'static str,
    /// Its version.
    pub version: &'static str,
    /// Its git commit; `None` outside git, or if its build script does not report it.
    pub commit: Option<&'static str>,
    /// True if files differed from that commit.
    pub dirty: bool,
}

/// Describes the crate that calls it as a [`Crate`]. The commit is taken from `LRA_COMMIT` and
/// `LRA_DIRTY`, which the build script sets; the one of `lra new model` does.
#[macro_export]
macro_rules! this_crate {
    () => {
        $crate::Crate {
            name: env!("CARGO_PKG_NAME"),
            version: env!("CARGO_PKG_VERSION"),
            commit: option_env!("LRA_COMMIT"),
            dirty: option_env!("LRA_DIRTY").is_some(),
        }
    };
}

static BUILT_FROM: OnceLock<Crate> = OnceLock::new();

/// Sets the crate of this program; later calls have no effect.
pub(crate) fn set(built_from: Crate) {
    BUILT_FROM.get_or_init(|| built_from);
}

/// Returns the crate of this program; `None` if it was not set.
pub(crate) fn built_from() -> Option<&'static Crate> {
    BUILT_FROM.get()
}
