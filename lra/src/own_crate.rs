//! Additions of a user's own program to `lra`: models, tasks, and the crate that it is built from,
//! which records name.

use std::sync::OnceLock;

use datasets::Task;
use models::{Model, Options};
use results::published;

use crate::error::{Class, Classify, Result};
use crate::{overlay, spec, suggest};

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

/// Checks the settings of a program's own models ([`Model::settings()`]), which are in the registry
/// by now.
///
/// # Errors
/// They name a setting that no model has, or give one a value that it cannot have.
pub(crate) fn check_settings(own: &[&Model]) -> Result<()> {
    for model in own {
        let origin = format!("model {}", model.name);
        let mut all = spec::general_defaults();
        all["model"] = model.defaults();
        overlay::merge(&mut all, &model.settings().class(Class::Usage)?, &origin)?;
        let options = Options::try_of(model);
        options.map_err(|error| suggest::of_model(error).during(origin))?;
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_settings_of_an_own_model_are_errors_that_name_the_nearest_ones() {
        let checked = |settings: &'static str| {
            let model = Model {
                settings,
                ..*models::MODELS[0]
            };
            check_settings(&[&model]).map_err(|error| error.to_string())
        };
        let name = models::MODELS[0].name;
        let told = checked(r#"{"block": {"layres": 3}}"#).unwrap_err();
        let expected = "unknown setting 'block.layres'; did you mean 'block.layers'?";
        assert_eq!(told, format!("model {name}: {expected}"));
        let told = checked(r#"{"trian": {"steps": 3}}"#).unwrap_err();
        assert!(told.contains("or 'train.steps'?"), "{told}");
        let told = checked(r#"{"block": {"norm": "layr"}}"#).unwrap_err();
        let expected = "unknown value of block.norm 'layr'; did you mean 'layer'?";
        assert_eq!(told, format!("model {name}: {expected}"));
        let told = checked(r#"{"block": {"dropout": 2.0}}"#).unwrap_err();
        assert!(
            told.contains("block.dropout = 2.0 is out of range"),
            "{told}"
        );
        assert!(checked("{").is_err());
        assert_eq!(checked(r#"{"train": {"steps": 3}}"#), Ok(()));
        assert!(check_settings(models::MODELS).is_ok());
    }
}
