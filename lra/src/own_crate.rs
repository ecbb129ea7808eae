//! Additions of a user's own program to `lra`: models, tasks, and the crate that it is built from,
//! which records name.

use std::sync::OnceLock;

use datasets::Task;
use models::Model;
use results::published;

/// Models and tasks of a program's own.
#[derive(Clone, Copy, Default)]
pub struct Own<'a> {
    /// Models in addition to those of the registry.
    pub models: &'a [&'static Model],
    /// Tasks in addition to those of the registry.
    pub tasks: &'a [&'static dyn Task],
}

impl<'a, const N: usize> From<&'a [&'static Model; N]> for Own<'a> {
    fn from(models: &'a [&'static Model; N]) -> Self {
        Own::from(&models[..])
    }
}

impl<'a> From<&'a [&'static Model]> for Own<'a> {
    fn from(models: &'a [&'static Model]) -> Self {
        Own { models, tasks: &[] }
    }
}

/// Adds a program's own tasks to the registry.
///
/// # Errors
/// The registry refuses one, or it has the name of a published task, beside whose figures its scores
/// would be shown.
pub(crate) fn register_tasks(tasks: &[&'static dyn Task]) -> Result<(), String> {
    let mut names = tasks.iter().map(|task| task.info().name);
    if let Some(name) = names.find(|name| published::is_published_task(name)) {
        return Err(format!(
            "your own tasks: {name} is the name of a published task; choose another one"
        ));
    }
    datasets::tasks::register(tasks).map_err(|error| error.to_string())
}

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
