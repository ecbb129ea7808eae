//! `lra agree`: agreement between the ranking of models by runs and by published tables.

use std::process::ExitCode;

use results::Format;
use results::agreement::{Agreement, Selection, select};

use crate::cli::agree::AgreeArgs;
use crate::cmd;
use crate::error::{Class, Classify, Error, Result};

/// Runs the command.
pub fn run(arguments: &AgreeArgs) -> Result<ExitCode> {
    if arguments.format == Format::Html {
        return Err(Error::usage(
            "--format html: a page is made by `lra report`",
        ));
    }
    let loaded = cmd::load(&arguments.path, arguments.strict)?;
    let asked = Selection {
        recipe: arguments.recipe.clone(),
        set: arguments.assignments.clone(),
    };
    let chosen = select(&loaded.records, &asked).class(Class::Usage)?;
    let (measure, half) = (arguments.by.map(Into::into), arguments.half.map(Into::into));
    let agreement = Agreement::of(&chosen, measure, half);
    if agreement.models.is_empty() {
        let place = arguments.path.display();
        return Err(Error::new(
            Class::Data,
            format!(
                "no anchor under {place} has a score on every task; anchors are the models of results/anchors.csv, \
                 such as transformer and s4d"
            ),
        ));
    }
    let text = arguments.format.render(&[agreement.table()]);
    match &arguments.output {
        None => cmd::print(&text)?,
        Some(file) => results::write(file, text.as_bytes()).class(Class::Data)?,
    }
    Ok(ExitCode::SUCCESS)
}
