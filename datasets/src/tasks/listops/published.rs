//! The published files: `basic_train.tsv`, `basic_val.tsv`, `basic_test.tsv`.
//!
//! The first line names the columns, `Source` and `Target` among them; then one expression and its answer a line,
//! separated by a tab. Lines may end in CRLF or LF, parentheses (which the published generator writes around every
//! pair) may be there or not, `]` may be spelt `X`. Every answer is checked.

use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use tokenizers::{Model, Tokenizer};

use super::{ABOUT, Options, evaluate, vocabulary};
use crate::error::{Error, Result, io};
use crate::lines::Lines;
use crate::repeats::{Repeats, row_hash};
use crate::{Part, Progress, Sink};

/// Where the files may lie below the raw folder: at its top, or as the published archive unpacks.
const FOLDERS: [&str; 4] = [
    "",
    "listops-1000",
    "lra_release/listops-1000",
    "lra_release/lra_release/listops-1000",
];

/// Bytes of lines that are read before they are parsed in parallel.
const BATCH: usize = 1 << 23;

/// Reads the three files into `sink`.
pub(super) fn read(
    raw: &Path,
    max_length: usize,
    progress: &dyn Progress,
    sink: &mut Sink,
) -> Result<()> {
    let tokenizer = vocabulary::tokenizer().map_err(|error| Error::Builder {
        task: ABOUT.name,
        problem: format!("its vocabulary: {error}"),
    })?;
    let folder = find(raw)?;
    let paths = Part::ALL.map(|part| folder.join(file_name(part)));
    let mut bytes = 0;
    for path in &paths {
        bytes += fs::metadata(path).map_err(io("read", path))?.len();
    }
    progress.begin("reading expressions", Some(bytes));
    let mut repeats = Repeats::default();
    let published = Options::published();
    let wanted = [published.train, published.val, published.test];
    for ((part, path), wanted) in Part::ALL.into_iter().zip(&paths).zip(wanted) {
        let reader = Reader {
            tokenizer: &tokenizer,
            max_length,
        };
        let rows = reader.read_file(path, progress, |tokens, label| {
            repeats.add(part, row_hash([tokens]));
            sink.row(part, &[tokens], label)
        })?;
        if rows == 0 {
            let problem = "it has no examples".to_owned();
            return Err(Error::File {
                file: path.clone(),
                problem,
            });
        }
        if rows != wanted {
            sink.mark_partial();
            sink.note(format!(
                "{} has {rows} examples, the published file {wanted}",
                file_name(part)
            ));
        }
    }
    progress.finish();
    sink.note(repeats.text());
    Ok(())
}

fn file_name(part: Part) -> String {
    format!("basic_{}.tsv", part.name())
}

/// The folder that has all three files.
fn find(raw: &Path) -> Result<PathBuf> {
    let folders = FOLDERS.map(|folder| {
        if folder.is_empty() {
            raw.to_owned()
        } else {
            raw.join(folder)
        }
    });
    let some = |folder: &&PathBuf| {
        Part::ALL
            .into_iter()
            .any(|part| folder.join(file_name(part)).is_file())
    };
    // A folder that has some of the files is the one meant; where there is none, the simplest place is named.
    let folder = folders.iter().find(some).unwrap_or(&folders[0]);
    for part in Part::ALL {
        let path = folder.join(file_name(part));
        if !path.is_file() {
            return Err(Error::Missing {
                what: "a published file of listops".to_owned(),
                path,
                command: "lra data make listops --from FOLDER that has it".to_owned(),
                stand_in: Some("--source generated, the same task drawn here".to_owned()),
            });
        }
    }
    Ok(folder.clone())
}

struct Reader<'a> {
    tokenizer: &'a Tokenizer,
    max_length: usize,
}

impl Reader<'_> {
    /// Gives every row of a file to `keep`, in order; returns their number.
    fn read_file(
        &self,
        path: &Path,
        progress: &dyn Progress,
        mut keep: impl FnMut(&[u8], u8) -> Result<()>,
    ) -> Result<usize> {
        // A token has at most four bytes and a space, and an operator one more pair of parentheses than arguments.
        let mut lines = Lines::open(path, 16 * self.max_length as u64 + 256)?;
        let columns = Columns::read(&mut lines)?;
        let mut rows = 0;
        loop {
            let batch = Batch::read(&mut lines)?;
            if batch.lines.is_empty() {
                return Ok(rows);
            }
            let parse =
                |(_, place): &(u64, Range<usize>)| self.parse(&columns, &batch.text[place.clone()]);
            let parsed: Vec<_> = batch.lines.par_iter().map(parse).collect();
            for ((line, _), parsed) in batch.lines.iter().zip(parsed) {
                let (tokens, label) = parsed.map_err(|problem| lines.wrong(*line, problem))?;
                keep(&tokens, label)?;
                rows += 1;
            }
            progress.advance(batch.bytes);
        }
    }

    /// Tokens and label of one line, or what is wrong with it.
    fn parse(&self, columns: &Columns, line: &[u8]) -> Result<(Vec<u8>, u8), String> {
        let line = std::str::from_utf8(line).map_err(|_| "not text in UTF-8".to_owned())?;
        let field = |column: usize, name: &str| {
            let field = line
                .split('\t')
                .nth(column)
                .ok_or_else(|| format!("the column {name} is missing"))?;
            Ok::<_, String>(unquote(field))
        };
        let target = field(columns.target, "Target")?.trim();
        let label = match target.parse::<i64>() {
            Ok(label @ 0..=9) => label as u8,
            Ok(label) => return Err(format!("the answer {label} is not 0 to 9")),
            Err(_) => {
                return Err(format!(
                    "the answer `{}` is not a number",
                    shortened(target)
                ));
            }
        };
        let tokens = self.encode(field(columns.source, "Source")?)?;
        match evaluate(&tokens) {
            Ok(value) if value == label => Ok((tokens, label)),
            Ok(value) => Err(format!(
                "the expression is {value}, but the answer given is {label}"
            )),
            Err(problem) => Err(format!("not an expression: {problem}")),
        }
    }

    /// Stored bytes of an expression. Looks words up in the tokenizer's vocabulary, which gives what its `encode`
    /// gives in a sixtieth of the time (`encode` keeps the place of every token in the text).
    fn encode(&self, expression: &str) -> Result<Vec<u8>, String> {
        let mut tokens = Vec::new();
        for word in expression.split_ascii_whitespace() {
            let word = match word {
                "(" | ")" => continue,
                "X" => "]",
                word => word,
            };
            let id = self.tokenizer.get_model().token_to_id(word);
            match id.and_then(|id| id.checked_sub(ABOUT.first_id)) {
                Some(stored) if (stored as usize) < vocabulary::TOKENS.len() => {
                    tokens.push(stored as u8)
                }
                _ => return Err(format!("unknown token `{}`", shortened(word))),
            }
            if tokens.len() > self.max_length {
                return Err(format!("more than max_length = {} tokens", self.max_length));
            }
        }
        Ok(tokens)
    }
}

/// Some lines of a file.
struct Batch {
    text: Vec<u8>,
    /// Number of each line, and where it lies in `text`.
    lines: Vec<(u64, Range<usize>)>,
    /// Bytes that the lines take in the file.
    bytes: u64,
}

impl Batch {
    /// The next lines, about `BATCH` bytes of them; none at the end of the file.
    fn read(lines: &mut Lines) -> Result<Batch> {
        let mut batch = Batch {
            text: Vec::new(),
            lines: Vec::new(),
            bytes: 0,
        };
        while batch.text.len() < BATCH {
            let start = batch.text.len();
            let Some((number, taken)) = lines.next(&mut batch.text)? else {
                break;
            };
            batch.bytes += taken;
            // Empty lines are what is left of CR CR LF, or the end of the file.
            if batch.text.len() > start {
                batch.lines.push((number, start..batch.text.len()));
            }
        }
        Ok(batch)
    }
}

/// Places of the two columns.
struct Columns {
    source: usize,
    target: usize,
}

impl Columns {
    fn read(lines: &mut Lines) -> Result<Columns> {
        let mut header = Vec::new();
        lines.next(&mut header)?;
        let text = String::from_utf8_lossy(&header);
        let text = text.trim_start_matches('\u{feff}');
        let place = |name: &str| {
            text.split('\t')
                .position(|column| unquote(column).trim() == name)
                .ok_or_else(|| {
                    lines.wrong(
                        1,
                        format!("the header `{}` has no column {name}", shortened(text)),
                    )
                })
        };
        Ok(Columns {
            source: place("Source")?,
            target: place("Target")?,
        })
    }
}

/// A field without the quotes that a CSV writer may put around it; nothing in an expression needs escaping.
fn unquote(field: &str) -> &str {
    field
        .strip_prefix('"')
        .and_then(|field| field.strip_suffix('"'))
        .unwrap_or(field)
}

/// At most 40 characters, for messages.
fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(40).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}
