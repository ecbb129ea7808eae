//! `lra agree`: agreement between the ranking of models by runs and by published tables.

use std::process::ExitCode;

use results::Format;
use results::agreement::{Agreement, Selection, select};

use crate::cli::agree::AgreeArgs;
use crate::error::{Class, Classify, Error, Result};
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
            results::card::committed().class(Class::Run)?,
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
    let (changed, records): (Vec<_>, Vec<_>) = loaded
        .into_iter()
        .partition(|record| record.changed_on_the_way().is_some());
    if !changed.is_empty() {
        stderr::line(&format!(
            "warning: {} left out: resumed after changes (see accepted_changes in their records)",
            results::counted(changed.len() as u64, "run")
        ));
    }
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
    let text = arguments.format.render(&[agreement.table()]);
    match &arguments.output {
        None => cmd::print(&text)?,
        Some(file) => cmd::write_file(file, text.as_bytes())?,
    }
    Ok(ExitCode::SUCCESS)
}
