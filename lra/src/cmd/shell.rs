//! `lra completions` and `lra man`: shell completions and manual pages of the command line.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use clap::builder::PossibleValuesParser;
use clap::{Arg, Command, CommandFactory};
use clap_complete::Shell;
use results::published;

use crate::cli::Cli;
use crate::cmd;
use crate::error::{Class, Classify, Result, in_writing};
use crate::recipe::RECIPES;
use crate::sweep::plan;

/// Prints completions. They know the names of tasks, models, recipes and published sources.
pub fn completions(shell: Shell) -> Result<ExitCode> {
    let mut text = Vec::new();
    let mut command = with_names(Cli::command());
    clap_complete::generate(shell, &mut command, "lra", &mut text);
    cmd::print(String::from_utf8_lossy(&text))?;
    Ok(ExitCode::SUCCESS)
}

/// Gives the arguments of a command and of its subcommands the names that they may have.
fn with_names(command: Command) -> Command {
    // A source of imported figures has any name.
    let is_free = command.get_name() == "import";
    let named = move |arg: Arg| match names(&arg) {
        Some(names) if !is_free => arg.value_parser(PossibleValuesParser::new(names)),
        _ => arg,
    };
    command.mut_args(named).mut_subcommands(with_names)
}

/// Returns the names that an argument may have, if it takes those of a registry.
fn names(arg: &Arg) -> Option<Vec<&'static str>> {
    let tasks = || datasets::tasks::registry().iter();
    let models = || models::registry().iter();
    Some(match arg.get_id().as_str() {
        "task" | "tasks" => tasks().map(|task| task.info().name).collect(),
        "model" => models().map(|model| model.name).collect(),
        "models" => {
            let names = models().map(|model| model.name);
            std::iter::once(plan::EVERY_MODEL).chain(names).collect()
        }
        "recipe" => RECIPES.iter().map(|(name, _)| *name).collect(),
        "against" => published::sources().iter().map(|it| it.alias).collect(),
        // Where it is the source of data, clap knows its values.
        "source" if arg.get_possible_values().is_empty() => {
            published::sources().iter().map(|it| it.alias).collect()
        }
        _ => return None,
    })
}

/// Writes manual pages.
pub fn man(folder: &Path) -> Result<ExitCode> {
    let place = folder.display();
    let writing = || format!("writing manual pages into {place}");
    fs::create_dir_all(folder).map_err(in_writing(format!("making {place}")))?;
    // The pages are made in another folder, because the library writes through links.
    let made = tempfile::tempdir().during(Class::Data, writing())?;
    clap_mangen::generate_to(Cli::command(), made.path()).during(Class::Data, writing())?;
    for page in fs::read_dir(made.path()).during(Class::Data, writing())? {
        let page = page.during(Class::Data, writing())?;
        let text = disk::read(&page.path()).during(Class::Data, writing())?;
        cmd::write_file(&folder.join(page.file_name()), &text)?;
    }
    Ok(ExitCode::SUCCESS)
}
