//! `lra publish`: a static site of published figures and records.

mod cards;
mod folder;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use datasets::{Protocol, SplitName};
use results::committed::{MINI, PROBES};
use results::site::{INDEX, Offer, Predictions, Site, Way};
use results::{Outcome, Record, imported};

use self::folder::Folder;
use crate::cli::parse::Seeds;
use crate::cli::publish::PublishArgs;
use crate::cli::score::ScoredData;
use crate::cmd::agree::drop_rates_of_the_recipe;
use crate::cmd::explain::{self, SHOWN_ON_A_PAGE};
use crate::cmd::score::Scoring;
use crate::error::{Class, Classify, Error, Result};
use crate::progress::Reporter;
use crate::repro::cell::{self, PublishedCell};
use crate::repro::plan::Plan;
use crate::repro::unoffered;
use crate::{cmd, runtime, stderr};

/// Runs the command.
pub fn run(arguments: &PublishArgs) -> Result<ExitCode> {
    runtime::set_up(None)?;
    // Refused before anything is computed.
    refuse_own_source(arguments)?;
    let folder = Folder::new(&arguments.folder, arguments.force)?;
    let mut site = Site {
        made_by: format!("lra {}", env!("CARGO_PKG_VERSION")),
        models: cards::models(),
        tasks: cards::tasks()?,
        ..Site::default()
    };
    add_records(&mut site, arguments)?;
    if arguments.predictions {
        site.predictions = predictions(&site, arguments)?;
    }
    site.ways = ways(folder.staging())?;
    let mut unread = Vec::new();
    let files = site.files(&mut unread);
    for reason in unread {
        stderr::warning(format!("no learning curve: {reason}"));
    }
    let (count, bytes) = (
        files.len(),
        files.iter().map(|file| file.text.len()).sum::<usize>(),
    );
    let kept = folder.write(&files)?;
    let place = arguments.folder.display();
    if let Some(kept) = kept {
        stderr::line(format!("what was in {place} is in {}", kept.display()));
    }
    cmd::print(format!(
        "wrote {}: {}, {:.1} MB; open {}",
        place,
        results::counted(count as u64, "file"),
        bytes as f64 / 1e6,
        arguments.folder.join(INDEX).display()
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Refuses a folder with a source in it: it is moved aside when the site is written.
fn refuse_own_source(arguments: &PublishArgs) -> Result<()> {
    let Ok(folder) = arguments.folder.canonicalize() else {
        return Ok(());
    };
    let is_within = |source: &&PathBuf| {
        let source = source.canonicalize();
        source.is_ok_and(|source| source.starts_with(&folder))
    };
    match arguments.sources.iter().find(is_within) {
        None => Ok(()),
        Some(source) => Err(Error::usage(format!(
            "{} has the source {} in it: name another folder for the site",
            arguments.folder.display(),
            source.display()
        ))),
    }
}

/// Adds the tables of the small protocol and of the probes, and the records and imported accuracies
/// of the sources. A record that is in several of them counts once.
fn add_records(site: &mut Site, arguments: &PublishArgs) -> Result<()> {
    let mut known = HashSet::new();
    let mut add = |record: Record, folder: PathBuf| {
        if known.insert((record.id.clone(), record.provenance.created.clone())) {
            site.runs.records.push(record);
            site.runs.folders.push(folder);
        }
    };
    for source in &arguments.sources {
        let loaded = cmd::load_any(source, arguments.strict)?;
        let pairs = loaded.records.into_iter().zip(loaded.folders);
        pairs.for_each(|(record, folder)| add(record, folder));
        let file = source.join(imported::FILE);
        if file.exists() {
            for cell in cmd::import::on_file(&file)? {
                if !site.imported.contains(&cell) {
                    site.imported.push(cell);
                }
            }
        }
    }
    if let (true, true, Some(first)) = (
        site.runs.records.is_empty(),
        site.imported.is_empty(),
        arguments.sources.first(),
    ) {
        // With the reason.
        cmd::load(first, arguments.strict)?;
    }
    // Last, so that a record with a log comes before its copy in the table, which has none.
    drop_rates_of_the_recipe(&mut site.runs.records);
    for committed in [&MINI, &PROBES] {
        let mut table = committed.records().class(Class::Run)?;
        drop_rates_of_the_recipe(&mut table);
        for record in table {
            let mut own = site.runs.records.iter();
            if !own.any(|own| replaces(own, &record)) {
                site.runs.records.push(record);
                site.runs.folders.push(committed.path.into());
            }
        }
    }
    Ok(())
}

/// Returns whether a run of the sources is the same cell as one of a bundled table, trained again to
/// its end. One that diverged replaces no score.
fn replaces(own: &Record, bundled: &Record) -> bool {
    let is_as_good = own.outcome == Outcome::Scored || bundled.outcome != Outcome::Scored;
    own.outcome.is_final() && is_as_good && settings(own) == settings(bundled)
}

/// Returns what tells the cell of a run from others.
fn settings(record: &Record) -> ([&str; 7], &[String], u64) {
    let (task, model, recipe) = (&record.task, &record.model, &record.recipe);
    let origin = &record.provenance;
    let words = [
        &task.label,
        &task.data_digest,
        &model.name,
        &model.variant,
        &recipe.name,
        &origin.precision,
        &origin.device,
    ];
    (words.map(String::as_str), &recipe.overrides, record.seed)
}

/// Returns the predictions of all runs whose weights are in their folders. A run that cannot be
/// scored is left out with a warning.
fn predictions(site: &Site, arguments: &PublishArgs) -> Result<Vec<Predictions>> {
    let scoring = Scoring::of_set_up("auto", &arguments.place, false)?;
    let all = ScoredData {
        split: SplitName::Test,
        limit: 0,
        assignments: Vec::new(),
        accept_changes: false,
    };
    let mut found: Vec<Predictions> = Vec::new();
    let pairs = site.runs.records.iter().zip(&site.runs.folders);
    // A file of records has no weights.
    for (record, folder) in
        pairs.filter(|(record, folder)| record.outcome == Outcome::Scored && folder.is_dir())
    {
        // A run that was made twice has one name.
        if found.iter().any(|it| it.run == record.id) {
            let place = folder.display();
            stderr::warning(format!(
                "no predictions of {place}: the site has those of another run with the same settings"
            ));
            continue;
        }
        let made = scoring.score(folder, &all).and_then(|scored| {
            let (tables, pictures) = explain::parts_of_a_page(&scored, SHOWN_ON_A_PAGE)?;
            Ok(Predictions {
                run: record.id.clone(),
                examples: scored.accuracy(),
                tables,
                pictures,
            })
        });
        match made {
            Ok(made) => found.push(made),
            Err(error) => stderr::warning(format!("no predictions of {}: {error}", record.id)),
        }
    }
    Ok(found)
}

/// Returns the way to reproduce each published accuracy of a model that is here, or the reason why
/// there is none. `data` is a folder without data: what a cost is computed from must not depend on
/// what is on the disk.
fn ways(data: &Path) -> Result<Vec<Way>> {
    let mut ways = Vec::new();
    let cells = cell::all()?;
    let reporter = Reporter::new(false);
    let total = cells.len() as u64;
    reporter.start("costs of published cells", 0, Some(total));
    for (done, cell) in cells.into_iter().enumerate() {
        reporter.at(done as u64, cell.figure.entry.as_str());
        ways.push(Way {
            figure: cell.figure,
            offer: Ok(offer(cell, data)?),
        });
    }
    reporter.stop();
    let sources: Vec<_> = results::published::sources().iter().collect();
    for left in unoffered::of(&sources)? {
        ways.push(Way {
            figure: left.figure,
            offer: Err(left.reason.to_string()),
        });
    }
    Ok(ways)
}

fn offer(cell: PublishedCell, data: &Path) -> Result<Offer> {
    let resolved = cell.resolve(Protocol::Tay2021, &[])?;
    let (flops, complete) = cell::flops(&resolved, data)?;
    let command = format!(
        "lra repro {} {} {}",
        cell.source.alias, cell.figure.task, cell.figure.entry
    );
    let plan = Plan {
        resolved,
        estimate: Err("not measured".to_owned()),
        seeds: Seeds(vec![0]),
        data: data.to_owned(),
        memory: None,
        cell,
    };
    Ok(Offer {
        command,
        flops,
        complete,
        differences: plan.differences(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::testing::timed;

    #[test]
    fn a_run_replaces_a_bundled_one_of_the_same_settings_alone() {
        let bundled = timed(60.0);
        let mut own = timed(50.0);
        own.provenance.created = "2026-01-02T03:04:05Z".to_owned();
        own.provenance.threads = 8;
        assert!(replaces(&own, &bundled));
        let changes: [fn(&mut Record); 9] = [
            |it| it.task.label += "@64",
            |it| it.task.data_digest += "0",
            |it| it.model.name += "2",
            |it| it.model.variant += "+norm",
            |it| it.recipe.name += "2",
            |it| it.recipe.overrides.push("train.steps=3".to_owned()),
            |it| it.provenance.precision += "bf16",
            |it| it.provenance.device += "cuda:0",
            |it| it.seed += 1,
        ];
        for (number, change) in changes.iter().enumerate() {
            let mut other = own.clone();
            change(&mut other);
            assert!(!replaces(&other, &bundled), "change {number}");
        }
    }

    #[test]
    fn a_run_without_a_score_replaces_no_score() {
        let with = |outcome: Outcome| Record {
            outcome,
            ..timed(60.0)
        };
        let diverged = || Outcome::Diverged {
            step: 9,
            reason: String::new(),
        };
        let interrupted = || Outcome::Interrupted { step: 9 };
        for (own, bundled, expected) in [
            (Outcome::Scored, Outcome::Scored, true),
            (Outcome::Scored, diverged(), true),
            (diverged(), diverged(), true),
            (diverged(), Outcome::Scored, false),
            (interrupted(), diverged(), false),
        ] {
            let told = format!("{own:?} for {bundled:?}");
            assert_eq!(replaces(&with(own), &with(bundled)), expected, "{told}");
        }
    }
}
