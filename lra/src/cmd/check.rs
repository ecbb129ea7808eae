//! `lra check`: comparison of the runs of a folder with a baseline.

use std::path::Path;
use std::process::ExitCode;

use results::Tone;
use results::check::{Baseline, State, Thresholds, judge, junit, table};

use crate::cli::CheckArgs;
use crate::cmd;
use crate::colour::Text;
use crate::error::{Class, Classify, Error, Result};
use crate::{stderr, suggest};

/// Runs the command.
pub fn run(arguments: &CheckArgs) -> Result<ExitCode> {
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
                     go on with it by `lra run --resume`, or move it away",
                    folder.display()
                ),
            ));
        }
        if let Some(damaged) = now.rows.iter().find_map(|row| row.damaged.as_ref()) {
            return Err(Error::new(
                Class::Data,
                format!("{damaged}; no baseline is written: run it again with `lra run --force`"),
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
        let lost = lost(&arguments.baseline, &now);
        now.write(&arguments.baseline).map_err(cmd::of_writing)?;
        let cells = results::counted(now.rows.len() as u64, "cell");
        let file = arguments.baseline.display();
        stderr::line(format!("{cells} written to {file}"));
        for cell in lost {
            stderr::line(format!(
                "note: no longer in {file}, because no run has it here: {cell}"
            ));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let baseline = Baseline::read(&arguments.baseline).class(Class::Data)?;
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

/// Returns the cells of the baseline in a file that a new one lacks, such as `linear on listops`;
/// none if there is no such file, or no baseline can be read from it.
fn lost(file: &Path, new: &Baseline) -> Vec<String> {
    let Ok(old) = Baseline::read(file) else {
        return Vec::new();
    };
    let check = judge(&old, new, &Thresholds::default());
    let lost = check
        .cells
        .iter()
        .filter(|cell| cell.state == State::Missing);
    lost.map(|cell| format!("{} on {}", cell.key.model, cell.key.task))
        .collect()
}
