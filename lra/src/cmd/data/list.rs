//! `lra data list`: the stored data of every task, and the commands that make missing data.

use std::process::ExitCode;

use datasets::{Entry, Key, Manifest, Source, SplitName, Store, Task, tasks};
use serde_json::{Value, json};

use crate::cli::data::DataPlace;
use crate::error::Result;
use crate::{cmd, shell};

/// Runs the command.
pub(super) fn run(place: &DataPlace, as_json: bool) -> Result<ExitCode> {
    let root = place.path();
    let store = Store::new(&root);
    let entries = store.list()?;
    if as_json {
        let missing: Vec<Value> = tasks::registry()
            .iter()
            .flat_map(|&task| missing(&store, task, &entries))
            .map(
                |Missing {
                     task,
                     source,
                     state,
                     command,
                 }| {
                    json!({ "task": task, "source": source, "state": state, "command": command })
                },
            )
            .collect();
        let entries: Vec<Value> = entries.iter().map(as_value).collect();
        cmd::print_json(
            &json!({ "folder": root.to_string_lossy(), "entries": entries, "missing": missing }),
        )?;
        return Ok(ExitCode::SUCCESS);
    }
    let labels = entries.iter().flat_map(|entry| &entry.manifest);
    let names = tasks::registry().iter().map(|task| task.info().name);
    let width = labels
        .map(|manifest| manifest.label.as_str())
        .chain(names)
        .map(str::len)
        .max()
        .unwrap_or_default();
    let mut text = format!(
        "data in {}\n\n{:<width$}  {:<10} {:<8}{:>23}{:>9}  digest\n",
        root.display(),
        "data",
        "source",
        "protocol",
        "train / val / test",
        "MB"
    );
    for &task in tasks::registry() {
        let raw = store.raw_files(task);
        for (manifest, entry) in of_task(task, &entries) {
            let other = store.other_raw_files(task, &manifest.key(), raw.as_ref());
            text += &line(manifest, entry, other.is_some(), width);
        }
        for absent in missing(&store, task, &entries) {
            let Missing {
                task,
                source,
                state,
                command,
            } = absent;
            text += &format!("{task:<width$}  {source:<10} {state}: {command}\n");
        }
    }
    let is_known = |name: &str| tasks::registry().iter().any(|it| it.info().name == name);
    for entry in &entries {
        // Of a folder, or of a task that another program has.
        if let Ok(manifest) = &entry.manifest
            && !is_known(&manifest.task)
        {
            text += &line(manifest, entry, is_of_other_files(&store, manifest), width);
        }
    }
    for entry in &entries {
        if let Err(error) = &entry.manifest {
            let state = match error.class() {
                datasets::Class::Data => "damaged: ",
                // The message says all that is known: nothing about the file.
                _ => "",
            };
            text += &format!("\n{state}{error}\n");
        }
    }
    cmd::print_prose(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns whether the files of a folder are not those that its entry was made from.
fn is_of_other_files(store: &Store, manifest: &Manifest) -> bool {
    let task = tasks::find(&manifest.task);
    let other = task.and_then(|task| {
        let now = store.raw_files(task);
        store.other_raw_files(task, &manifest.key(), now.as_ref())
    });
    other.is_some()
}

/// Returns the line of an entry; `other_raw_files` is whether those that are raw now are not those
/// that it was made from.
fn line(manifest: &Manifest, entry: &Entry, other_raw_files: bool, width: usize) -> String {
    let rows = SplitName::ALL.map(|part| manifest.splits.get(part).rows.to_string());
    format!(
        "{:<width$}  {:<10} {:<8}{:>23}{:>9.1}  {}{}\n",
        manifest.label,
        manifest.source,
        manifest.protocol,
        rows.join(" / "),
        entry.bytes as f64 / 1e6,
        &manifest.digest[..manifest.digest.len().min(8)],
        marks(manifest, other_raw_files),
    )
}

/// Returns the remarks that a reader of a line must not miss.
fn marks(manifest: &Manifest, other_raw_files: bool) -> String {
    let marks = [
        (manifest.partial, "  partial"),
        (!manifest.altered.is_empty(), "  altered"),
        (other_raw_files, "  of other raw files"),
    ];
    let holding = marks.iter().filter(|(holds, _)| *holds);
    holding.map(|(_, mark)| *mark).collect()
}

fn as_value(entry: &Entry) -> Value {
    let folder = entry.folder.to_string_lossy();
    match &entry.manifest {
        Ok(manifest) => {
            json!({ "folder": folder, "bytes": entry.bytes, "manifest": manifest })
        }
        Err(error) => {
            json!({ "folder": folder, "bytes": entry.bytes, "error": error.to_string() })
        }
    }
}

/// Returns the entries of a task whose manifest can be read.
fn of_task<'a>(
    task: &dyn Task,
    entries: &'a [Entry],
) -> impl Iterator<Item = (&'a Manifest, &'a Entry)> {
    let name = task.info().name;
    entries
        .iter()
        .filter_map(|entry| Some((entry.manifest.as_ref().ok()?, entry)))
        .filter(move |(manifest, _)| manifest.task == name)
}

/// A source of a task that has no data here.
struct Missing {
    task: &'static str,
    source: Source,
    state: &'static str,
    command: String,
}

fn missing(store: &Store, task: &'static dyn Task, entries: &[Entry]) -> Vec<Missing> {
    let info = task.info();
    let absent =
        |source: &&Source| of_task(task, entries).all(|(manifest, _)| manifest.source != **source);
    let missing = info.sources.iter().filter(absent);
    missing
        .map(|&source| {
            let key = Key {
                source,
                ..Key::default_of(task)
            };
            let make = key.make_command(task);
            let (state, command) = match source {
                Source::Official if store.found(task).is_some() => ("not built yet", make),
                Source::Official if task.remote().is_empty() => {
                    let flag = shell::data_flag();
                    let make = format!("lra data make {}{flag} --from PATH", info.name);
                    ("not here", make)
                }
                Source::Official => {
                    let flag = shell::data_flag();
                    ("not here", format!("lra data fetch {}{flag}", info.name))
                }
                _ if store.begun(task, &key) => ("interrupted, continues with", make),
                _ => ("not made yet", make),
            };
            Missing {
                task: info.name,
                source,
                state,
                command,
            }
        })
        .collect()
}
