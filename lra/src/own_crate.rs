//! The crate that a program with models of its own is built from, for records to name.

use std::sync::OnceLock;

/// A crate: what [`this_crate!`](crate::this_crate) says of the one it stands in.
#[derive(Clone, Copy, Debug)]
pub struct Crate {
    /// Its name.
    pub name: &'static str,
    /// Its version.
    pub version: &'static str,
    /// Its git commit; `None` outside git, or where its build script does not tell it.
    pub commit: Option<&'static str>,
    /// True if files differed from that commit.
    pub dirty: bool,
}

/// Describes the crate that it stands in as a [`Crate`]. The commit is what its build script sets
/// as `LRA_COMMIT` and `LRA_DIRTY`; the one of `lra new model` does.
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

/// Sets the crate of this program; the first one stays.
pub(crate) fn set(built_from: Crate) {
    BUILT_FROM.get_or_init(|| built_from);
}

/// Returns the crate of this program; `None` where it was not told.
pub(crate) fn built_from() -> Option<&'static Crate> {
    BUILT_FROM.get()
}
