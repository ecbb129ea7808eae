//! `lra agree`: agreement between the ranking of models by runs and by published tables.

use std::process::ExitCode;

use datasets::Protocol;
use results::agreement::{Agreement, Selection, select};
use results::record::StartedFrom;
use results::{Format, Record, committed};

use crate::cli::agree::AgreeArgs;
use crate::cmd::{self, Kind};
use crate::error::{Class, Classify, Error, Result};
use crate::spec::RunRequest;
use crate::{overlay, stderr};

/// Runs the command.
pub fn run(arguments: &AgreeArgs) -> Result<ExitCode> {
    if arguments.format == Format::Html {
        return Err(Error::usage(
            "--format html: a page is made by `lra report`",
        ));
    }
    if let Some(file) = &arguments.output {
        cmd::check_file("--output", file, &[Kind::of(arguments.format)])?;
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
        without_flags: false,
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
    let table = agreement.table();
    match &arguments.output {
        None => cmd::print_tables(arguments.format, &[table])?,
        Some(file) => cmd::write_file(file, arguments.format.render(&[table]).as_bytes())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Leaves out the learning rates of command lines that the recipe has, too: a run that was made
/// before its rate was found is a seed of one cell with those made later. The recipe's rate is the
/// one for all other settings of the run, such as its block's family.
pub fn drop_rates_of_the_recipe(records: &mut [Record]) {
    const RATE: &str = "train.learning_rate=";
    for record in records {
        // The weights that a run started from are no setting.
        let mut settings = record.recipe.overrides.clone();
        settings.retain(|it| overlay::key(it) != StartedFrom::KEY);
        if !settings.iter().any(|it| it.starts_with(RATE)) {
            continue;
        }
        let resolved = RunRequest {
            task: &record.task.name,
            model: &record.model.name,
            recipe: &record.recipe.name,
            source: record.task.source.parse().ok(),
            protocol: Protocol::default(),
            seed: record.seed,
            assignments: &settings,
        }
        .resolve();
        // Another program may know the recipe.
        let repeated = resolved.map_or(Vec::new(), |resolved| resolved.repeated);
        let is_of_recipe = |it: &String| it.starts_with(RATE) && repeated.contains(it);
        record.recipe.overrides.retain(|it| !is_of_recipe(it));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The rate of the recipe is that of the block that the run has.
    #[test]
    fn a_rate_is_compared_with_that_of_the_block_of_the_run() {
        let left = |set: &[&str]| {
            let record = json!({
                "schema": 1,
                "id": "listops@64-s4d-mini-s0-0a1b2c3d",
                "outcome": { "status": "scored" },
                "task": { "name": "listops", "label": "listops@64", "source": "generated" },
                "model": { "name": "s4d" },
                "recipe": { "name": "mini", "overrides": set },
            });
            let mut records: Vec<Record> = vec![serde_json::from_value(record).unwrap()];
            drop_rates_of_the_recipe(&mut records);
            records.remove(0).recipe.overrides
        };
        let (own, others) = ("train.learning_rate=1e-2", "train.learning_rate=1.5e-3");
        let family = "block.family=xformer";
        assert!(left(&[own]).is_empty());
        assert_eq!(left(&[others]), [others]);
        assert_eq!(left(&[family, own]), [family, "train.learning_rate=0.01"]);
        assert_eq!(left(&[family, others]), [family]);
        let from = "from=00e379237760";
        assert_eq!(left(&[own, from]), [from]);
    }
}
