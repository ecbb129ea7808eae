//! `lra import`: collects accuracies that others measured.

use std::path::Path;
use std::process::ExitCode;

use results::imported::{self, Field, Given, Imported};
use results::own_file;

use crate::cli::import::ImportArgs;
use crate::error::{Class, Classify, Error, Result, in_writing};
use crate::output_lock::OutputLock;
use crate::{cmd, stderr, suggest};

/// Runs the command.
pub fn run(arguments: &ImportArgs) -> Result<ExitCode> {
    let given = given(arguments)?;
    let output = arguments.output.display();
    let ending = arguments.output.extension();
    if ending.is_none_or(|it| !it.eq_ignore_ascii_case("csv")) {
        return Err(Error::usage(format!(
            "--output {output}: the name of a file of imported accuracies ends in .csv"
        )));
    }
    if let Some(folder) = arguments.output.parent() {
        std::fs::create_dir_all(folder)
            .map_err(in_writing(format!("making {}", folder.display())))?;
    }
    let _lock = OutputLock::acquire(&arguments.output)?;
    let is_new = match arguments.output.metadata() {
        Ok(file) => file.is_file() && file.len() == 0,
        Err(_) => !arguments.output.exists(),
    };
    let mut cells = match is_new {
        true => Vec::new(),
        false => on_file(&arguments.output)?,
    };
    if !is_new && own_file::kind(&arguments.output) != Some(own_file::IMPORTED) {
        return Err(Error::usage(format!(
            "--output {output}: this file has other columns than those that `lra import` writes, and would lose them: choose another name"
        )));
    }
    let before = cells.len();
    let mut without = 0;
    for file in &arguments.files {
        let contents = imported::read(file, &given).class(Class::Data)?;
        without += contents.without_accuracy;
        let small = |cell: &Imported| cell.percent > 0.0 && cell.percent <= 1.0;
        if !contents.cells.is_empty() && contents.cells.iter().all(small) {
            stderr::line(format!(
                "note: {}: no accuracy is above 1 %: if they are fractions, name their column by --column accuracy=HEADER, or pass --fractions if tasks have columns",
                file.display()
            ));
        }
        cells = imported::merge(cells, contents.cells).during(Class::Data, file.display())?;
    }
    imported::write(&arguments.output, &cells).map_err(cmd::of_writing)?;
    let added = results::counted((cells.len() - before) as u64, "cell");
    let mut line = format!("{added} added to {output}");
    if without > 0 {
        let lines = results::counted(without as u64, "line");
        line += &format!("; {lines} without an accuracy left out");
    }
    stderr::line(&line);
    Ok(ExitCode::SUCCESS)
}

/// Reads a file written by this command.
pub fn on_file(path: &Path) -> Result<Vec<Imported>> {
    let contents = imported::read(path, &Given::default()).class(Class::Data)?;
    Ok(contents.cells)
}

/// Returns the values and columns of the command line.
fn given(arguments: &ImportArgs) -> Result<Given> {
    let mut given = Given {
        is_task: Some(|header| suggest::called("task", header).is_some()),
        fractions: arguments.fractions,
        rename: Some(in_our_names),
        ..Given::default()
    };
    for (field, value) in [
        (Field::Source, &arguments.source),
        (Field::Task, &arguments.task),
        (Field::Model, &arguments.model),
    ] {
        given
            .values
            .extend(value.clone().map(|value| (field, value)));
    }
    for column in &arguments.columns {
        let (name, header) = column.split_once('=').ok_or_else(|| {
            Error::usage(format!(
                "--column {column}: expected FIELD=HEADER, such as accuracy=test/acc"
            ))
        })?;
        let field = Field::called(name).ok_or_else(|| {
            Error::usage(suggest::unknown("field", name, Field::names().into_iter()))
        })?;
        given.columns.push((field, header.to_owned()));
    }
    Ok(given)
}

/// Returns a cell with the names that task and model have here. Names that are unknown here stay.
fn in_our_names(cell: Imported) -> Imported {
    let (name, parameters) = match cell.task.split_once('@') {
        Some((name, parameters)) => (name, format!("@{parameters}")),
        None => (cell.task.as_str(), String::new()),
    };
    let task = suggest::called("task", name).map(|name| format!("{name}{parameters}"));
    let model = suggest::called("model", &cell.model).map(str::to_owned);
    Imported {
        task: task.unwrap_or(cell.task),
        model: model.unwrap_or(cell.model),
        ..cell
    }
}
