//! The commands, one file each.

pub mod agree;
pub mod bench;
pub mod check;
pub mod check_model;
pub mod check_task;
pub mod compare;
pub mod data;
pub mod diff;
pub mod explain;
pub mod import;
pub mod list;
pub mod merge;
pub mod mini;
pub mod new;
pub mod parity;
pub mod publish;
pub mod replay;
pub mod report;
pub mod repro;
pub mod run;
pub mod score;
pub mod shell;
pub mod sweep;
pub mod tour;
mod write;

use std::path::Path;

use datasets::{Source, Task};
use results::store::Loaded;

use crate::error::{Class, Classify, Error, Result};
pub use crate::output::{of_writing, print, print_json, print_judged, print_prose, print_tables};
use crate::{recipe, stderr};
pub use write::{Kind, check_ending, check_file, write_file};

/// Returns the setting of `--allow-partial`.
///
/// # Errors
/// The task has no such setting; the message names the tasks that have.
pub fn allow_partial(task: &str) -> Result<&'static str> {
    let has = |task: &&dyn Task| task.defaults().get("allow_partial").is_some();
    let having: Vec<_> = datasets::tasks::registry()
        .iter()
        .copied()
        .filter(has)
        .collect();
    let having: Vec<_> = having.iter().map(|task| task.info().name).collect();
    let found = datasets::tasks::find(task);
    if let Some(found) = found.filter(|_| !having.contains(&task)) {
        let reads = found.info().sources.contains(&Source::Official);
        let instead = match reads {
            true => "takes incomplete files without it and marks the data as partial",
            false => "has no published files",
        };
        return Err(Error::usage(format!(
            "--allow-partial: the flag is for {}; {task} {instead}",
            results::listed(having)
        )));
    }
    Ok("data.allow_partial=true")
}

/// Loads the records below a folder, with a warning for each that is damaged.
///
/// # Errors
/// The folder cannot be read or holds no record; under `strict`, also if one is damaged.
pub fn load(folder: &Path, strict: bool) -> Result<Loaded> {
    let loaded = load_any(folder, strict)?;
    if loaded.records.is_empty() {
        let place = folder.display();
        let remedy = match loaded.unfinished.is_empty() {
            true => "make one with `lra run`",
            false => {
                "its runs are unfinished, or could not begin: see log.txt in their folders, and continue them with the same command"
            }
        };
        return Err(Error::new(
            Class::Data,
            format!("no records under {place}; {remedy}"),
        ));
    }
    Ok(loaded)
}

/// Loads the records below a folder like [`load`], even if it holds none.
///
/// # Errors
/// The folder cannot be read; under `strict`, also if a record is damaged.
pub fn load_any(folder: &Path, strict: bool) -> Result<Loaded> {
    let loaded = results::store::load(folder).class(Class::Data)?;
    for (path, reason) in &loaded.skipped {
        stderr::warning(format!("{} left out: {reason}", path.display()));
    }
    if let Some(first) = loaded.unfinished.first() {
        let (first, count) = (first.display(), loaded.unfinished.len());
        stderr::warning(match count {
            1 => format!("{first} left out: an unfinished run, which has no record yet"),
            _ => format!(
                "{count} unfinished runs left out, which have no record yet, such as {first}"
            ),
        });
    }
    let recipes = loaded.records.iter().map(|it| it.recipe.name.as_str());
    for line in recipe::absent(recipes) {
        stderr::line(&line);
    }
    if strict && loaded.damaged() > 0 {
        return Err(damaged(loaded.damaged()));
    }
    Ok(loaded)
}

/// Returns the error for files that hold no record, of which warnings have told.
pub fn damaged(count: usize) -> Error {
    let records = results::counted(count as u64, "damaged or foreign record");
    Error::new(Class::Data, format!("{records} (see the warnings)"))
}
