//! `lra report`: tables from records.

use std::process::ExitCode;

use results::table::Table;
use results::tables::{Kind, table};
use results::{Format, Record, published, splice};

use crate::cli::ReportArgs;
use crate::cmd;
use crate::error::{Class, Classify, Error, Result};

/// Runs the command.
#[expect(clippy::print_stderr, reason = "warnings about damaged records")]
pub fn run(arguments: &ReportArgs) -> Result<ExitCode> {
    let loaded = results::store::load(&arguments.dir).class(Class::Data)?;
    for (path, reason) in &loaded.skipped {
        eprintln!("warning: {} left out: {reason}", path.display());
    }
    if arguments.strict && !loaded.skipped.is_empty() {
        let count = loaded.skipped.len();
        return Err(Error::new(
            Class::Data,
            format!("{count} damaged or foreign records (see the warnings)"),
        ));
    }
    if loaded.records.is_empty() {
        let place = arguments.dir.display();
        return Err(Error::new(
            Class::Data,
            format!("no records under {place}; make one with `lra run`"),
        ));
    }
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
