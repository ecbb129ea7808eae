//! `lra agree`: agreement between the ranking of models by runs and by published tables.

use std::process::ExitCode;

use datasets::Protocol;
use results::agreement::{Agreement, Selection, select};
use results::{Format, Record, committed};

use crate::cli::agree::AgreeArgs;
use crate::error::{Class, Classify, Error, Result};
use crate::spec::RunRequest;
use crate::{cmd, stderr};

/// Runs the command.
pub fn run(arguments: &AgreeArgs) -> Result<ExitCode> {
    if arguments.format == Format::Html {
        return Err(Error::usage(
            "--format html: a page is made by `lra report`",
        ));
    }
    let (place, loaded) = match &arguments.path {
        Some(path) => (
            format!("under {}", path.display()),
            cmd::load(path, arguments.strict)?.records,
        ),
        None => (
            "in the table of this program".to_owned(),
            committed::MINI.records().class(Class::Run)?,
        ),
    };
    // Records hold names as the registry spells them.
    let spelt = |name: &String| {
        let mut known = loaded.iter().map(|record| &record.recipe.name);
        let found = known.find(|known| known.eq_ignore_ascii_case(name));
        found.unwrap_or(name).clone()
    };
    let asked = Selection {
        recipe: arguments.recipe.as_ref().map(spelt),
        set: arguments.assignments.clone(),
        protocol: arguments.protocol.clone(),
        precision: arguments.precision.clone(),
        device: arguments.device.clone(),
    };
    let (changed, mut records): (Vec<_>, Vec<_>) = loaded
        .into_iter()
        .partition(|record| record.changed_on_the_way().is_some());
    if !changed.is_empty() {
        stderr::warning(format!(
            "{} left out: resumed after changes (see accepted_changes in their records)",
            results::counted(changed.len() as u64, "run")
        ));
    }
    drop_rates_of_the_recipe(&mut records);
    let chosen = select(&records, &asked).class(Class::Usage)?;
    let (measure, half) = (arguments.by.map(Into::into), arguments.half.map(Into::into));
    let agreement = Agreement::of(&chosen, measure, half);
    if agreement.models.is_empty() {
        return Err(Error::new(
            Class::Data,
            format!(
                "no anchor {place} has a score on every task; anchors are the models of results/anchors.csv, \
                 such as transformer and s4d"
            ),
        ));
    }
    let mut table = agreement.table();
    let mixture = results::mixture(&chosen);
    table
        .notes
        .extend(mixture.map(|mixture| format!("The runs are of {mixture}.")));
    match &arguments.output {
        None => cmd::print_tables(arguments.format, &[table])?,
        Some(file) => cmd::write_file(file, arguments.format.render(&[table]).as_bytes())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Leaves out the learning rates of command lines that the recipe has, too: a run that was made
/// before its rate was found is a seed of one cell with those made later.
pub fn drop_rates_of_the_recipe(records: &mut [Record]) {
    for record in records {
        let rates: Vec<String> = record
            .recipe
            .overrides
            .iter()
            .filter(|it| it.starts_with("train.learning_rate="))
            .cloned()
            .collect();
        if rates.is_empty() {
            continue;
        }
        let resolved = RunRequest {
            task: &record.task.name,
            model: &record.model.name,
            recipe: &record.recipe.name,
            source: record.task.source.parse().ok(),
            protocol: Protocol::default(),
            seed: record.seed,
            assignments: &rates,
        }
        .resolve();
        // Another program may know the recipe.
        let repeated = resolved.map_or(Vec::new(), |resolved| resolved.repeated);
        record.recipe.overrides.retain(|it| !repeated.contains(it));
    }
}
