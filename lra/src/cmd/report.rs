//! `lra report`: tables from records.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use results::bench::Bench;
use results::chart::{self, Chart};
use results::imported::{self, Imported};
use results::page::Page;
use results::store::Loaded;
use results::table::Table;
use results::tables::{TABLES, TableKind};
use results::{Format, Record, splice};

use crate::cli::ReportArgs;
use crate::cmd::{self, Kind};
use crate::error::{Class, Classify, Result, in_writing};
use crate::{host, stderr, suggest};

/// Runs the command.
pub fn run(arguments: &ReportArgs) -> Result<ExitCode> {
    if let Some(file) = &arguments.output {
        cmd::check_file("--output", file, &[Kind::of(arguments.format)])?;
    }
    if let Some(file) = &arguments.splice {
        cmd::check_ending("--splice", file, &[Kind::MARKDOWN])?;
    }
    let others = on_file(arguments)?;
    let page = arguments.format == Format::Html;
    let shows_bench = page || arguments.charts.is_some() || arguments.splice.is_some();
    // A session of `lra bench` can be shown alone.
    let alone = shows_bench && arguments.bench.is_some() && arguments.table.is_none();
    let mut loaded = match others.is_empty() && !alone {
        true => cmd::load(&arguments.dir, arguments.strict)?,
        // Without a single run there may be no folder of runs.
        false if alone && !arguments.dir.exists() => Loaded::default(),
        false => cmd::load_any(&arguments.dir, arguments.strict)?,
    };
    cmd::agree::drop_rates_of_the_recipe(&mut loaded.records);
    let bench = match shows_bench || arguments.bench.is_some() {
        true => benchmark(arguments)?,
        false => Vec::new(),
    };
    let shows_charts = arguments.charts.is_some() || (page && arguments.splice.is_none());
    let charts = match shows_charts {
        true => charts(&loaded, &others, &bench),
        false => Vec::new(),
    };
    if let Some(folder) = &arguments.charts {
        draw(&charts, folder)?;
    }
    if let Some(file) = &arguments.splice {
        splice_into(file, arguments, &loaded, &others, &bench)?;
        return Ok(ExitCode::SUCCESS);
    }
    let wanted = |kind: &TableKind| match arguments.table {
        Some(only) => kind.name == only.name,
        None => kind.by_default || page,
    };
    let mut tables = make(wanted, &loaded.records, &arguments.against)?;
    add_imported(&mut tables, &others);
    let text = match arguments.format {
        Format::Html => {
            if arguments.table.is_none() {
                tables.extend(bench_tables(&bench, &arguments.against)?);
                tables.retain(|table| !table.rows.is_empty());
            }
            let page = Page {
                title: "Long Range Arena".to_owned(),
                made: format!(
                    "{}, lra {}, {}",
                    results::counted(loaded.records.len() as u64, "run"),
                    env!("CARGO_PKG_VERSION"),
                    host::now()
                ),
                tables,
                charts,
                pictures: Vec::new(),
                records: &loaded.records,
            };
            page.render()
        }
        format if arguments.output.is_none() => {
            cmd::print_tables(format, &tables)?;
            return Ok(ExitCode::SUCCESS);
        }
        format => format.render(&tables),
    };
    match &arguments.output {
        None => cmd::print(&text)?,
        Some(file) => cmd::write_file(file, text.as_bytes())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Replaces the tables between the markers of a file. If it has no markers, the error names the
/// missing one.
fn splice_into(
    file: &Path,
    arguments: &ReportArgs,
    loaded: &Loaded,
    others: &[Imported],
    bench: &[Bench],
) -> Result<()> {
    let wanted = |kind: &TableKind| arguments.table.is_none_or(|only| kind.name == only.name);
    let mut tables = match loaded.records.is_empty() && others.is_empty() {
        true => Vec::new(),
        false => make(wanted, &loaded.records, &arguments.against)?,
    };
    add_imported(&mut tables, others);
    if arguments.table.is_none() {
        tables.extend(bench_tables(bench, &arguments.against)?);
        let marked = splice::marked(file).class(Class::Data)?;
        if tables.iter().any(|table| marked.contains(&table.name)) {
            tables.retain(|table| marked.contains(&table.name));
        }
    }
    for table in tables {
        let name = table.name.clone();
        let text = Format::Markdown.render(&[table]);
        splice::splice_file(file, &name, &text).map_err(cmd::of_writing)?;
    }
    Ok(())
}

/// Returns the session of `lra bench` to show: the one named, else the latest under the folder of
/// runs, else none.
fn benchmark(arguments: &ReportArgs) -> Result<Vec<Bench>> {
    let latest = || {
        let entries = std::fs::read_dir(arguments.dir.join("bench")).ok()?;
        let files = entries.flatten().map(|entry| entry.path());
        // The name of a session begins with its date.
        let is_session = |file: &PathBuf| {
            // A session has an empty file until its first measurement.
            let has_cells = file.metadata().is_ok_and(|it| it.len() > 0);
            has_cells && file.extension().is_some_and(|ending| ending == "jsonl")
        };
        // The stem, since a number behind the date sorts before the dot.
        let stem = |file: &PathBuf| file.file_stem().map(ToOwned::to_owned);
        files.filter(is_session).max_by_key(stem)
    };
    if let Some(file) = &arguments.bench {
        return results::bench::read(file).class(Class::Data);
    }
    let Some(file) = latest() else {
        return Ok(Vec::new());
    };
    Ok(results::bench::read(&file).unwrap_or_else(|error| {
        stderr::warning(format!("benchmark left out: {error}"));
        Vec::new()
    }))
}

fn bench_tables(bench: &[Bench], against: &str) -> Result<Vec<Table>> {
    if bench.is_empty() {
        return Ok(Vec::new());
    }
    let source = suggest::source(against)?;
    Ok(results::bench::tables(bench, Some(source)))
}

/// Returns all charts of the records and a benchmark, with a warning for each run whose curve is
/// missing.
fn charts(loaded: &Loaded, others: &[Imported], bench: &[Bench]) -> Vec<Chart> {
    let mut charts = chart::bubbles(&loaded.records, others);
    let mut unread = Vec::new();
    charts.extend(chart::curves(loaded, others, &mut unread));
    for reason in unread {
        stderr::warning(format!("no learning curve of {reason}"));
    }
    charts.extend(chart::lengths(bench));
    charts
}

/// Writes charts as SVG and PNG.
fn draw(charts: &[Chart], folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(in_writing(format!("making {}", folder.display())))?;
    for chart in charts {
        let path = |ending: &str| folder.join(format!("{}.{ending}", chart.name));
        let svg = chart.svg();
        cmd::write_file(&path("svg"), svg.as_bytes())?;
        let png = chart.png().class(Class::Run)?;
        cmd::write_file(&path("png"), &png)?;
    }
    Ok(())
}

/// Returns the imported accuracies to show: those of the file that is named, else those in the
/// folder.
fn on_file(arguments: &ReportArgs) -> Result<Vec<Imported>> {
    let file = arguments.dir.join(imported::FILE);
    match &arguments.imported {
        Some(file) => cmd::import::on_file(file),
        None if file.exists() => cmd::import::on_file(&file),
        None => Ok(Vec::new()),
    }
}

/// Adds imported accuracies to the table of accuracies.
fn add_imported(tables: &mut [Table], others: &[Imported]) {
    let accuracies = tables.iter_mut().filter(|table| table.name == "accuracy");
    accuracies.for_each(|table| imported::add_to(table, others));
}

/// Makes the requested tables, with the published figures of `against`.
pub fn make(
    wanted: impl Fn(&TableKind) -> bool,
    records: &[Record],
    against: &str,
) -> Result<Vec<Table>> {
    let source = suggest::source(against)?;
    let kinds = TABLES.iter().filter(|kind| wanted(kind));
    Ok(kinds.map(|kind| kind.make(records, Some(source))).collect())
}
