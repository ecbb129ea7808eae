//! `lra report`: tables from records.

use std::path::Path;
use std::process::ExitCode;

use results::chart::{self, Chart};
use results::page::Page;
use results::store::Loaded;
use results::table::Table;
use results::tables::{Kind, table};
use results::{Format, Record, published, splice};

use crate::cli::ReportArgs;
use crate::error::{Class, Classify, Result};
use crate::{cmd, host};

/// Runs the command.
pub fn run(arguments: &ReportArgs) -> Result<ExitCode> {
    let loaded = cmd::load(&arguments.dir, arguments.strict)?;
    let kinds = match (arguments.table, &arguments.splice) {
        (Some(kind), _) => vec![kind],
        (None, Some(file)) => marked(file)?,
        (None, None) => Kind::USUAL.to_vec(),
    };
    let tables = make(&kinds, &loaded.records, &arguments.against)?;
    if let Some(folder) = &arguments.charts {
        draw(&charts(&loaded), folder)?;
    }
    if let Some(file) = &arguments.splice {
        for table in tables {
            let name = table.name.clone();
            splice::splice_file(file, &name, &Format::Markdown.render(&[table]))
                .class(Class::Data)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let text = match arguments.format {
        Format::Html => {
            let mut tables = tables;
            if arguments.table.is_none() {
                let more = [Kind::Averages, Kind::Comparison];
                tables.extend(make(&more, &loaded.records, &arguments.against)?);
                tables.retain(|table| !table.rows.is_empty());
            }
            let page = Page {
                title: "Long Range Arena".to_owned(),
                made: format!(
                    "{} runs, lra {}, {}",
                    loaded.records.len(),
                    env!("CARGO_PKG_VERSION"),
                    host::now()
                ),
                tables,
                charts: charts(&loaded),
                records: &loaded.records,
            };
            page.render().class(Class::Run)?
        }
        format => format.render(&tables),
    };
    match &arguments.output {
        None => cmd::print(&text)?,
        Some(file) => results::write(file, text.as_bytes()).class(Class::Data)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The tables that a file has markers for. Without any, the usual ones: the missing marker will be named.
fn marked(file: &Path) -> Result<Vec<Kind>> {
    let names = splice::marked(file).class(Class::Data)?;
    let mut kinds = Kind::ALL.to_vec();
    kinds.retain(|kind| names.contains(&kind.to_string()));
    Ok(match kinds.is_empty() {
        true => Kind::USUAL.to_vec(),
        false => kinds,
    })
}

/// All charts that the records make.
fn charts(loaded: &Loaded) -> Vec<Chart> {
    let mut charts = chart::bubbles(&loaded.records);
    charts.extend(chart::curves(loaded));
    charts
}

/// Writes charts as SVG and PNG.
fn draw(charts: &[Chart], folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).during(Class::Data, format!("making {}", folder.display()))?;
    for chart in charts {
        let path = |ending: &str| folder.join(format!("{}.{ending}", chart.name));
        let svg = chart.svg().class(Class::Run)?;
        results::write(&path("svg"), svg.as_bytes()).class(Class::Data)?;
        let png = chart.png().class(Class::Run)?;
        results::write(&path("png"), &png).class(Class::Data)?;
    }
    Ok(())
}

/// The tables of these kinds, beside the published figures of `against`.
pub fn make(kinds: &[Kind], records: &[Record], against: &str) -> Result<Vec<Table>> {
    let source = published::source(against).class(Class::Usage)?;
    Ok(kinds
        .iter()
        .map(|kind| table(*kind, records, Some(source)))
        .collect())
}
