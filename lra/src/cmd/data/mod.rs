//! `lra data`: builds, verifies, lists and shows data.

mod list;

use std::path::Path;
use std::process::ExitCode;

use datasets::{Picture, Source, Split, SplitName, Splits, Store, Summary, Task};
use serde_json::json;

use crate::cli::data::{DataChoice, DataPlace, DataVerb};
use crate::cmd::{self, Kind};
use crate::error::{Class, Classify, Error, Result};
use crate::fetch::Origin;
use crate::progress::Reporter;
use crate::recipe::Recipe;
use crate::signals::Stop;
use crate::task_choice::TaskChoice;
use crate::{fetch, overlay, permute, runtime, stderr, suggest};

/// Runs the command.
pub fn run(verb: &DataVerb) -> Result<ExitCode> {
    runtime::set_up(None)?;
    match verb {
        DataVerb::List { place, json } => list::run(place, *json),
        DataVerb::Fetch {
            task,
            from,
            mirror,
            place,
        } => fetch_files(task, from.as_deref(), mirror.clone(), place),
        DataVerb::Make {
            choice,
            from,
            force,
            allow_partial,
        } => {
            let chosen = Chosen::resolve(choice, from.as_deref(), *allow_partial)?;
            make(&chosen, from.as_deref(), *force, choice.json)
        }
        DataVerb::Verify {
            choice,
            from,
            allow_partial,
        } => {
            let chosen = Chosen::resolve(choice, from.as_deref(), *allow_partial)?;
            verify(&chosen, from.as_deref(), choice.json)
        }
        DataVerb::Show {
            choice,
            row,
            split,
            png,
        } => show(choice, *row, *split, png.as_deref()),
    }
}

/// Environment variable with the mirror to use if the command line names none.
const MIRROR: &str = "LRA_MIRROR";

fn fetch_files(
    task: &str,
    from: Option<&str>,
    mirror: Option<String>,
    place: &DataPlace,
) -> Result<ExitCode> {
    let task = suggest::task(task)?;
    if !task.own_files().is_empty() {
        return Err(Error::usage(format!(
            "{}: there is nothing to download; its files are those of the folder",
            task.info().name
        )));
    }
    let store = Store::new(&place.path());
    let mut raw = store.raw(task);
    let mirror = mirror.or_else(|| std::env::var(MIRROR).ok().filter(|base| !base.is_empty()));
    let origin = match (from, &mirror) {
        (Some(from), _) => Origin::From(from),
        (None, Some(base)) => Origin::Mirror(base),
        (None, None) => Origin::Published,
    };
    let (limits, reporter) = (fetch::Limits::default(), Reporter::new(false));
    // A file of its own is read before one of another task, so that one is checked or replaced.
    let is_own = || task.remote().iter().any(|one| raw.join(one.file).exists());
    let shared = store.shared(task).filter(|_| from.is_none() && !is_own());
    if let Some(there) = shared {
        if fetch::damage_of(&there, &reporter)?.is_none() {
            let there = there.display();
            cmd::print(format!(
                "{there}: there already, fetched for another task that is published in it; remove it to fetch it again"
            ))?;
            return Ok(ExitCode::SUCCESS);
        }
        // Both tasks read the one that is fetched in its place.
        raw = there.parent().unwrap_or(&raw).to_owned();
    }
    if origin == Origin::Published {
        for remote in task.remote().iter().filter(|it| !it.note.is_empty()) {
            reporter.say(&format!("{}: {}", remote.file, remote.note));
        }
    }
    let fetched = fetch::fetch(task, &raw, origin, &limits, &reporter)?;
    for file in fetched {
        let proof = match file.published {
            Some(true) => "the published SHA-256",
            Some(false) => "NOT the published SHA-256",
            None => "no SHA-256 is published",
        };
        let path = file.path.display();
        let kept = match (file.kept, file.published) {
            (true, None) => "; it was there already: remove it to fetch it again",
            _ => "",
        };
        cmd::print(format!(
            "{path}: {}, {}, {proof}{kept}",
            results::counted(file.bytes, "byte"),
            file.sha256
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn make(chosen: &Chosen, from: Option<&Path>, force: bool, json: bool) -> Result<ExitCode> {
    let stop = Stop::on_signals().during(Class::Run, "installing signal handlers")?;
    let reporter = Reporter::new(false).with_stop(&stop);
    let (task, key) = (chosen.task, &chosen.key);
    let splits = if force {
        chosen.store.rebuild(task, key, from, &reporter)?
    } else {
        chosen.store.open_or_build(task, key, from, &reporter)?
    };
    let folder = chosen.store.folder(task, key);
    if json {
        cmd::print_json(
            &json!({ "folder": folder.to_string_lossy(), "manifest": splits.manifest }),
        )?;
    } else {
        cmd::print(format!("{}\n{}", folder.display(), overview(&splits)))?;
    }
    tell_other_raw_files(task, &chosen.store)?;
    Ok(ExitCode::SUCCESS)
}

/// Names the stored data of a task that were made from other raw files than those that are raw now.
fn tell_other_raw_files(task: &dyn Task, store: &Store) -> Result<()> {
    let now = store.raw_files(task);
    let entries = store.list()?.into_iter();
    let keys = entries.filter_map(|entry| {
        let manifest = entry.manifest.ok()?;
        let key = (manifest.task == task.info().name).then(|| manifest.key())?;
        // Of options that the task no longer takes, no command makes data.
        task.shape(&key.options).is_ok().then_some(key)
    });
    for other in keys.filter_map(|key| store.other_raw_files(task, &key, now.as_ref())) {
        stderr::warning(other);
    }
    Ok(())
}

/// Names the raw files that are the task's now, if the stored data of `chosen` were made from
/// others.
fn tell_other_raw_files_of(chosen: &Chosen) {
    let (task, store) = (chosen.task, &chosen.store);
    let now = store.raw_files(task);
    if let Some(other) = store.other_raw_files(task, &chosen.key, now.as_ref()) {
        stderr::warning(other);
    }
}

fn verify(chosen: &Chosen, from: Option<&Path>, json: bool) -> Result<ExitCode> {
    let (task, key, reporter) = (chosen.task, &chosen.key, Reporter::new(false));
    let verification = match from {
        Some(raw) => chosen.store.verify_raw(task, key, raw, &reporter)?,
        None => chosen.store.verify(task, key, &reporter)?,
    };
    if json {
        cmd::print_json(&verification)?
    } else {
        cmd::print_prose(&verification.to_string())?
    }
    if from.is_none() {
        tell_other_raw_files_of(chosen);
    }
    // Damaged data is a data error, not a failed comparison.
    Ok(match verification.passed() {
        true => ExitCode::SUCCESS,
        false => {
            reporter.error("the data did not pass; lines with FAIL say why");
            Class::Data.into()
        }
    })
}

/// A task with the key of its data.
struct Chosen {
    task: &'static dyn Task,
    key: datasets::Key,
    store: Store,
}

impl Chosen {
    /// Resolves a choice of data. `from` is the path that raw files are read from; only published
    /// files are read at all.
    fn resolve(choice: &DataChoice, from: Option<&Path>, allow_partial: bool) -> Result<Self> {
        let TaskChoice { name, source } = choice.task.with_source(choice.source)?;
        let task = suggest::task(&name)?;
        let source = match (source, from) {
            (_, Some(from)) if !task.own_files().is_empty() => {
                return Err(Error::usage(format!(
                    "--from {}: the data of {name} are made from its own files; leave --from out",
                    from.display()
                )));
            }
            (None, Some(from)) if !task.info().sources.contains(&Source::Official) => {
                return Err(Error::usage(format!(
                    "--from {}: the data of {name} are drawn here and read no files",
                    from.display()
                )));
            }
            (None, Some(_)) => Source::Official,
            (Some(source), Some(from)) if source != Source::Official => {
                return Err(Error::usage(format!(
                    "--from {}: {source} data is drawn here and reads no files",
                    from.display()
                )));
            }
            (given, _) => given.unwrap_or(task.info().sources[0]),
        };
        let extra = match allow_partial {
            true => Some(cmd::allow_partial(task.info().name)?),
            false => None,
        };
        overlay::check_once(&choice.assignments)?;
        let mut settings = json!({ "data": task.defaults() });
        permute::add_default(&mut settings["data"]);
        if let Some(recipe) = &choice.recipe {
            let recipe = Recipe::load(recipe)?;
            recipe.check_source(&name, source)?;
            let data = recipe.data(&name)?;
            overlay::merge(&mut settings, &data, &format!("recipe {}", recipe.name))?;
        }
        for assignment in choice.assignments.iter().map(String::as_str).chain(extra) {
            overlay::merge(
                &mut settings,
                &overlay::parse_assignment(assignment)?,
                "--set",
            )?;
        }
        // Rows are stored, checked and shown as they are before any permutation.
        let seed = permute::take(&mut settings["data"])?;
        let key = datasets::Key {
            source,
            protocol: choice.protocol,
            options: settings["data"].take(),
        };
        let shape = task.shape(&key.options).map_err(suggest::of_task)?;
        if seed > 0 {
            let label = permute::shape(shape, seed).label;
            stderr::line(format!(
                "note: {label} is permuted when it is read in training; stored rows keep their order"
            ));
        }
        Ok(Chosen {
            task,
            key,
            store: Store::new(&choice.place.path()),
        })
    }
}

fn overview(splits: &Splits) -> String {
    let manifest = &splits.manifest;
    let rows: Vec<String> = SplitName::ALL
        .iter()
        .map(|part| format!("{} {}", splits.get(*part).len(), part.name()))
        .collect();
    let mut text = format!(
        "{}: {}\ndigest {}\n",
        manifest.label,
        rows.join(", "),
        manifest.digest
    );
    for how in &manifest.altered {
        text.push_str(&format!("ALTERED: {how}\n"));
    }
    for note in &manifest.notes {
        text.push_str(&format!("note: {note}\n"));
    }
    text
}

fn show(choice: &DataChoice, row: usize, split: SplitName, png: Option<&Path>) -> Result<ExitCode> {
    if let Some(file) = png {
        cmd::check_file("--png", file, &[Kind::PNG])?;
    }
    let chosen = Chosen::resolve(choice, None, false)?;
    let splits =
        chosen
            .store
            .open_or_build(chosen.task, &chosen.key, None, &Reporter::new(false))?;
    let rows = splits.get(split);
    if row >= rows.len() {
        return Err(Error::usage(format!(
            "--row {row}: {} has {}, counted from 0",
            split.name(),
            results::counted(rows.len() as u64, "row")
        )));
    }
    if let Some(file) = png {
        let sheet = contact_sheet(&chosen, rows, row)?;
        cmd::write_file(file, &sheet)?;
        match choice.json {
            true => cmd::print_json(&json!({ "png": file.to_string_lossy() }))?,
            false => cmd::print(format!("{}", file.display()))?,
        }
        return Ok(ExitCode::SUCCESS);
    }
    let towers: Vec<&[u8]> = (0..chosen.task.info().towers)
        .map(|tower| rows.tokens(tower, row))
        .collect();
    let mut example = chosen.task.to_text(&towers, rows.label(row));
    if let Some(kind) = &splits.manifest.dense {
        example += &labels_at_positions(kind, rows, row);
    }
    let summary = Summary::of(chosen.task, &splits);
    if choice.json {
        let example = json!({ "split": split.name(), "row": row, "label": rows.label(row), "drawing": example });
        cmd::print_json(&json!({ "summary": summary, "example": example }))?;
    } else {
        cmd::print(format!(
            "{} row {row}\n\n{example}\n\n{}",
            split.name(),
            summary.text()
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Number of labels of one example that are listed.
const LISTED: usize = 12;

/// Returns the labels at the positions of an example, counted from 0: position, class, and group in
/// brackets.
fn labels_at_positions(kind: &datasets::Dense, rows: &Split, row: usize) -> String {
    let labels = rows.dense(row).into_iter().flat_map(|labels| labels.iter());
    let labels: Vec<_> = labels.collect();
    let shown = labels.iter().take(LISTED).map(|(position, class, group)| {
        let group = kind.groups.get(usize::from(*group));
        let group = group.map_or("", String::as_str);
        format!("{position}: {class} ({group})")
    });
    let shown = shown.collect::<Vec<_>>().join(", ");
    let more = match labels.len().saturating_sub(LISTED) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    format!("labels at positions: {shown}{more}\n")
}

/// Number of pictures on a contact sheet, and number in a row.
const SHEET: (usize, usize) = (40, 8);

/// Returns the examples from `first` on as pictures with their labels.
fn contact_sheet(chosen: &Chosen, rows: &Split, first: usize) -> Result<Vec<u8>> {
    let info = chosen.task.info();
    let shape = chosen.task.shape(&chosen.key.options);
    let width = shape
        .map_err(suggest::of_task)?
        .grid
        .map(|[_, width]| width);
    // Bytes that are ids themselves are pixels; everything else has a padding id.
    if info.first_id != 0 {
        let message = format!("--png: the examples of {} are not pictures", info.name);
        return Err(Error::usage(message));
    }
    let shown = first..rows.len().min(first + SHEET.0);
    let captions: Vec<String> = shown
        .clone()
        .map(|row| format!("#{row} = {}", rows.label(row)))
        .collect();
    let pictures: Vec<Picture<'_>> = shown
        .zip(&captions)
        .map(|(row, caption)| {
            let pixels = rows.tokens(0, row);
            Picture {
                pixels,
                width: width.unwrap_or_else(|| pixels.len().isqrt()),
                caption,
                label: rows.label(row),
            }
        })
        .collect();
    datasets::contact_sheet(&pictures, SHEET.1).during(Class::Data, "drawing the contact sheet")
}
