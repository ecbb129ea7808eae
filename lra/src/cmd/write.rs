//! Files that the command line names for results.

use std::path::Path;

use results::{Format, own_file};

use crate::error::{Error, Result};
use crate::output::of_writing;
use crate::run_folder;

/// Replaces a file that the command line names. A file that the program reads back is not replaced:
/// one of a run, a table of records, a baseline, imported accuracies or a session of `lra bench`.
///
/// # Errors
/// The file is one of those, or cannot be written. On a full disk the command failed, as if it was
/// a run.
pub fn write_file(path: &Path, bytes: &[u8]) -> Result<()> {
    refuse_own(path)?;
    results::write(path, bytes).map_err(of_writing)
}

/// Kind of a file of results.
pub struct Kind {
    /// Its name in messages.
    name: &'static str,
    /// Endings of the names of such files; the first is recommended.
    endings: &'static [&'static str],
    /// True if `--format` chose it.
    is_chosen: bool,
}

impl Kind {
    pub const TEXT: Kind = Kind::new("text", &["txt", "log"]);
    pub const MARKDOWN: Kind = Kind::new("Markdown", &["md", "markdown"]);
    pub const CSV: Kind = Kind::new("CSV", &["csv"]);
    pub const JSON: Kind = Kind::new("JSON", &["json"]);
    pub const JSON_LINES: Kind = Kind::new("JSON lines", &["jsonl"]);
    pub const LATEX: Kind = Kind::new("LaTeX", &["tex"]);
    pub const HTML: Kind = Kind::new("HTML", &["html", "htm"]);
    pub const XML: Kind = Kind::new("XML", &["xml"]);
    pub const PNG: Kind = Kind::new("PNG", &["png"]);

    const fn new(name: &'static str, endings: &'static [&'static str]) -> Kind {
        Kind {
            name,
            endings,
            is_chosen: false,
        }
    }

    /// Returns the kind of a file of tables in the format that `--format` chose.
    pub fn of(format: Format) -> Kind {
        let kind = match format {
            Format::Text => Kind::TEXT,
            Format::Markdown => Kind::MARKDOWN,
            Format::Csv => Kind::CSV,
            Format::Json => Kind::JSON,
            Format::Latex => Kind::LATEX,
            Format::Html => Kind::HTML,
        };
        Kind {
            is_chosen: true,
            ..kind
        }
    }

    /// Returns whether a file is named like one of this kind.
    pub fn is_of(&self, path: &Path) -> bool {
        self.has(&ending(path))
    }

    fn has(&self, ending: &str) -> bool {
        self.endings.contains(&ending)
    }
}

/// Endings of files of other kinds than any that a command writes.
const OTHERS: [&str; 28] = [
    "avif", "bmp", "bz2", "doc", "docx", "gif", "gz", "jpeg", "jpg", "ndjson", "npy", "npz", "ods",
    "parquet", "pdf", "pickle", "pkl", "svg", "tif", "tiff", "toml", "tsv", "webp", "xls", "xlsx",
    "yaml", "zip", "zst",
];

/// Checks the name of a file that [`write_file`] will write, before the work whose result it is.
/// `option` is the one that names it, and the file is of one of `kinds`.
///
/// # Errors
/// The file is not to be replaced, its name ends like that of a file of another kind, or its folder
/// is missing.
pub fn check_file(option: &str, path: &Path, kinds: &[Kind]) -> Result<()> {
    refuse_own(path)?;
    check_ending(option, path, kinds)?;
    results::check_folder(path).map_err(of_writing)
}

/// Checks the end of the name of a file. Endings that are of no kind, and none, say nothing.
///
/// # Errors
/// The name ends like that of a file of another kind than `kinds`.
pub fn check_ending(option: &str, path: &Path, kinds: &[Kind]) -> Result<()> {
    let ending = ending(path);
    let mut formats = Format::ALL.into_iter();
    let meant = formats.find(|format| Kind::of(*format).has(&ending));
    let is_known = meant.is_some()
        || OTHERS.contains(&ending.as_str())
        || [Kind::JSON_LINES, Kind::XML, Kind::PNG]
            .iter()
            .any(|kind| kind.has(&ending));
    if !is_known || kinds.iter().any(|kind| kind.has(&ending)) {
        return Ok(());
    }
    let names: Vec<&str> = kinds.iter().map(|kind| kind.name).collect();
    let endings = kinds.iter().filter_map(|kind| kind.endings.first());
    let endings: Vec<String> = endings.map(|ending| format!(".{ending}")).collect();
    let remedy = match meant {
        Some(format) if kinds.iter().any(|kind| kind.is_chosen) => {
            format!(", or add --format {format}")
        }
        _ => String::new(),
    };
    Err(Error::usage(format!(
        "{option} {}: the file is written as {}: choose a name that ends in {}{remedy}",
        disk::escape(&path.display().to_string()),
        names.join(" or "),
        endings.join(" or ")
    )))
}

/// Returns the ending of the name of a file, in lower case; empty if it has none.
fn ending(path: &Path) -> String {
    let ending = path.extension().unwrap_or_default();
    ending.to_string_lossy().to_lowercase()
}

fn refuse_own(path: &Path) -> Result<()> {
    match kind(path) {
        Some(kind) => Err(Error::usage(format!(
            "{} is {kind}, which this would replace: choose another name",
            disk::escape(&path.display().to_string())
        ))),
        None => Ok(()),
    }
}

/// Returns what a file is that is not to be replaced, in words.
fn kind(path: &Path) -> Option<&'static str> {
    let of_run = run_folder::is_file_of_run(path).then_some("a file of a run");
    of_run.or_else(|| own_file::kind(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the message about a name, empty if it may be had.
    fn told(name: &str, kinds: &[Kind]) -> String {
        let checked = check_ending("--to", Path::new(name), kinds);
        checked.map_or_else(|error| error.to_string(), |()| String::new())
    }

    #[test]
    fn endings_of_other_kinds_are_refused() {
        let predictions = [Kind::CSV, Kind::JSON_LINES];
        for name in ["x.json", "x.PNG", "x.csv.gz", "x.txt", "x.html"] {
            assert_eq!(
                told(name, &predictions),
                format!(
                    "--to {name}: the file is written as CSV or JSON lines: \
                     choose a name that ends in .csv or .jsonl"
                )
            );
        }
        for name in ["x", "x.csv", "x.CSV", "x.jsonl", "x.v2", ".csv"] {
            assert_eq!(told(name, &predictions), "", "{name}");
        }
        assert!(told("x.jpg", &[Kind::PNG]).ends_with("as PNG: choose a name that ends in .png"));
        assert_eq!(told("x.png", &[Kind::PNG]), "");
        for format in Format::ALL {
            let kind = [Kind::of(format)];
            let name = format!("x.{}", kind[0].endings[0]);
            assert_eq!(told(&name, &kind), "");
            assert_ne!(told("x.svg", &kind), "");
        }
    }

    #[test]
    fn an_ending_of_another_format_names_that_format() {
        // Of a file of one kind no other can be chosen.
        let fixed = told("page.html", &[Kind::MARKDOWN]);
        assert!(fixed.ends_with("a name that ends in .md"), "{fixed}");
        let told = |name: &str, format: Format| told(name, &[Kind::of(format)]);
        let remedy = "choose a name that ends in .txt, or add --format html";
        assert!(told("page.html", Format::Text).ends_with(remedy));
        assert!(told("page.pdf", Format::Html).ends_with("a name that ends in .html"));
        for (name, format) in [("page.html", Format::Html), ("page", Format::Latex)] {
            assert_eq!(told(name, format), "");
        }
    }
}
