//! `lra report`: tables from records.

use std::process::ExitCode;

use results::table::Table;
use results::tables::{Kind, table};
use results::{Format, Record, published, splice};

use crate::cli::ReportArgs;
use crate::cmd;
use crate::error::{Class, Classify, Result};

/// Runs the command.
pub fn run(arguments: &ReportArgs) -> Result<ExitCode> {
    let loaded = cmd::load(&arguments.dir, arguments.strict)?;
    let kinds = arguments
        .table
        .map_or(Kind::ALL.to_vec(), |kind| vec![kind]);
    let tables = make(&kinds, &loaded.records, &arguments.against)?;
    match &arguments.splice {
        None => cmd::print(&arguments.format.render(&tables))?,
        Some(file) => {
            for table in tables {
                let name = table.name.clone();
                splice::splice_file(file, &name, &Format::Markdown.render(&[table]))
                    .class(Class::Data)?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The tables of these kinds, beside the published figures of `against`.
pub fn make(kinds: &[Kind], records: &[Record], against: &str) -> Result<Vec<Table>> {
    let source = published::source(against).class(Class::Usage)?;
    Ok(kinds
        .iter()
        .map(|kind| table(*kind, records, Some(source)))
        .collect())
}
