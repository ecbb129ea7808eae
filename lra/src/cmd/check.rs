//! `lra check`: comparison of the runs of a folder with a baseline.

use std::path::Path;
use std::process::ExitCode;

use results::Tone;
use results::check::{Baseline, State, Thresholds, judge, junit, table};

use crate::cli::CheckArgs;
use crate::cmd::{self, Kind};
use crate::colour::Text;
use crate::error::{Class, Classify, Error, Result};
use crate::{stderr, suggest};

/// Runs the command.
pub fn run(arguments: &CheckArgs) -> Result<ExitCode> {
    check_names(arguments)?;
    let reference = &arguments.reference;
    let reference = *suggest::find("model", reference, models::registry(), |model| model.name)?;
    if arguments.dir.is_file() {
        return Err(Error::usage(format!(
            "{} is a file of records; `lra check` also compares the logs of the runs, so it needs the folder that holds them",
            arguments.dir.display()
        )));
    }
    let loaded = cmd::load(&arguments.dir, arguments.strict)?;
    let now = Baseline::of(&loaded).class(Class::Data)?;
    for row in &now.rows {
        if let Some(mixture) = &row.mixture {
            let (model, task) = (&row.key.model, &row.key.task);
            stderr::line(format!("note: {model} on {task}: seeds of {mixture}"));
        }
    }
    if arguments.update {
        let damaged = loaded.damaged();
        if damaged > 0 {
            let records = results::counted(damaged as u64, "damaged or foreign record");
            return Err(Error::new(
                Class::Data,
                format!(
                    "{records} (see the warnings); no baseline is written: \
                     run them again with `lra run --force`, or move them away"
                ),
            ));
        }
        if let Some(folder) = loaded.unfinished.first() {
            return Err(Error::new(
                Class::Data,
                format!(
                    "{} holds an unfinished run, which would be missing from the baseline; no baseline is written: \
                     continue it with `lra run --resume`, or move it away",
                    folder.display()
                ),
            ));
        }
        if let Some(damaged) = now.rows.iter().find_map(|row| row.damaged.as_ref()) {
            return Err(Error::new(
                Class::Data,
                format!(
                    "{damaged}; no baseline is written: run it again with `lra run --force`, or move it away"
                ),
            ));
        }
        if let Some(missing) = now.rows.iter().find_map(|row| row.unlogged.as_ref()) {
            return Err(Error::new(
                Class::Data,
                format!(
                    "{missing}, so no later loss could be compared with those on its way; no baseline is written: \
                     put the log back, or run it again with `lra run --force`"
                ),
            ));
        }
        if !arguments.allow_failed
            && let Some(row) = now.rows.iter().find(|row| !row.all_scored())
        {
            return Err(Error::new(
                Class::Check,
                format!(
                    "{} on {} ended as {}; no baseline is written: \
                     run it again with `lra run --force`, move it away, or keep its outcome with --allow-failed",
                    row.key.model, row.key.task, row.outcome
                ),
            ));
        }
        let lost = lost(&arguments.baseline, &now)?;
        now.write(&arguments.baseline).map_err(cmd::of_writing)?;
        let cells = results::counted(now.rows.len() as u64, "cell");
        let file = arguments.baseline.display();
        stderr::line(format!("{cells} written to {file}"));
        for note in lost {
            stderr::line(format!("note: {note}"));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let file = &arguments.baseline;
    if !file.exists() {
        return Err(Error::new(
            Class::Data,
            format!(
                "there is no baseline {}: --update makes one of the runs under {}",
                disk::escape(&file.display().to_string()),
                disk::escape(&arguments.dir.display().to_string()),
            ),
        ));
    }
    let baseline = Baseline::read(file).class(Class::Data)?;
    let thresholds = Thresholds {
        level: arguments.level,
        loss: arguments.loss_threshold,
        gradient: arguments.gradient_threshold,
        memory: arguments.memory_threshold,
        speed: (!arguments.no_speed).then_some(arguments.speed_threshold),
        reference: reference.name.to_owned(),
    };
    let check = judge(&baseline, &now, &thresholds);
    for damaged in now.rows.iter().filter_map(|row| row.damaged.as_ref()) {
        stderr::error(disk::escape(damaged));
    }
    for missing in now.rows.iter().filter_map(|row| row.unlogged.as_ref()) {
        stderr::warning(format!("{missing}, so losses on the way are not compared"));
    }
    if let Some(file) = &arguments.junit {
        cmd::write_file(file, junit(&check).as_bytes())?;
    }
    let mut table = table(&check);
    if loaded.damaged() > 0 {
        let records = results::counted(loaded.damaged() as u64, "damaged or foreign record");
        table.notes.push(format!(
            "{records}, named in the warnings: a seed or a cell that it held is absent here (--strict ends with exit code 3)."
        ));
    }
    let (verdict, tone) = match check.passed() {
        true => ("passed", Tone::Good),
        false => ("FAILED", Tone::Bad),
    };
    match &arguments.output {
        Some(file) => {
            cmd::write_file(file, arguments.format.render(&[table]).as_bytes())?;
            stderr::line(Text::from("regression check ").and(Text::toned(tone, verdict)));
        }
        None => cmd::print_judged(arguments.format, &[table], Some(tone))?,
    }
    Ok(match check.passed() {
        true => ExitCode::SUCCESS,
        false => Class::Check.into(),
    })
}

/// Checks the names of the files that the command writes.
fn check_names(arguments: &CheckArgs) -> Result<()> {
    if arguments.update {
        return cmd::check_ending("--baseline", &arguments.baseline, &[Kind::CSV]);
    }
    if let Some(file) = &arguments.output {
        cmd::check_file("--output", file, &[Kind::of(arguments.format)])?;
    }
    if let Some(file) = &arguments.junit {
        cmd::check_file("--junit", file, &[Kind::XML])?;
    }
    Ok(())
}

/// Returns a sentence for each cell of the baseline in a file that a new one lacks, or has with
/// fewer seeds; none if there is no such file.
///
/// # Errors
/// The file is no baseline, or a damaged one: it may be another file, or hold cells that cannot be
/// named.
fn lost(file: &Path, new: &Baseline) -> Result<Vec<String>> {
    if !file.exists() {
        return Ok(Vec::new());
    }
    let old = Baseline::read(file).map_err(|error| {
        let told = match error {
            results::Error::NotABaseline { path, reason } => {
                format!("{} is not a baseline: {reason}", path.display())
            }
            other => other.to_string(),
        };
        let remedy = "restore it, remove it, or name another file with --baseline";
        let told = disk::escape(&told);
        Error::new(Class::Data, format!("{told}; it is not replaced: {remedy}"))
    })?;
    let check = judge(&old, new, &Thresholds::default());
    let mut notes = Vec::new();
    for cell in check
        .cells
        .iter()
        .filter(|cell| cell.state == State::Missing)
    {
        let (model, task, place) = (&cell.key.model, &cell.key.task, file.display());
        notes.push(format!(
            "no longer in {place}, because no run has it here: {model} on {task}"
        ));
    }
    for row in &new.rows {
        let Some(before) = old.rows.iter().find(|it| it.key == row.key) else {
            continue;
        };
        let mut seeds = before.seeds.split_whitespace();
        let kept = |seed: &str| row.seeds.split_whitespace().any(|it| it == seed);
        if seeds.any(|seed| !kept(seed)) {
            notes.push(format!(
                "{} on {} has seeds {} now, and had {}",
                row.key.model, row.key.task, row.seeds, before.seeds
            ));
        }
    }
    Ok(notes)
}
