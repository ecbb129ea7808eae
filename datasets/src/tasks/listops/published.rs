//! Published files: `basic_train.tsv`, `basic_val.tsv`, `basic_test.tsv`, in a folder or in the
//! archive as downloaded.
//!
//! The first line names the columns, `Source` and `Target` among them. Then each line holds one
//! expression and its answer, separated by a tab. Lines may end in CRLF or LF, parentheses (which
//! the published generator writes around every pair) may be present or not, and `]` may be spelt
//! `X`. Every answer is checked. The published archive has the files twice: those of the folder
//! that comes first are read, and a note names the others.

use std::collections::BTreeSet;
use std::io::Read;
use std::ops::Range;

use rayon::prelude::*;
use tokenizers::{Model, Tokenizer};

use super::{INFO, Options, dense, evaluate, vocabulary};
use crate::archive::Member;
use crate::command::data_flag;
use crate::duplicates::{Duplicates, FEW, LEAST_DISTINCT, row_hash};
use crate::error::{Error, Result};
use crate::lines::{Line, Lines, whole_number};
use crate::locate::{Form, Place, Role, Wanted, folder_in_words, is_data, locate, stand_in};
use crate::source_checks::UNPROVED;
use crate::words::{counted, listed};
use crate::{PerSplit, Progress, SplitName, SplitWriter, remote, words};

/// Number of bytes of lines that are read and then parsed in parallel.
const BATCH: usize = 1 << 23;

/// Reads the three files into `writer`.
pub(super) fn read(
    raw: &std::path::Path,
    options: &Options,
    progress: &dyn Progress,
    writer: &mut SplitWriter,
) -> Result<()> {
    let tokenizer = vocabulary::tokenizer().map_err(|error| Error::Builder {
        task: INFO.name,
        problem: format!("its vocabulary: {error}"),
    })?;
    let reader = Reader {
        tokenizer: &tokenizer,
        max_length: options.max_length,
    };
    let wanted = Wanted {
        info: &INFO,
        what: "the published files of listops (basic_train.tsv, basic_val.tsv, basic_test.tsv)",
        archive: remote::LRA_RELEASE,
        other_archives: &[],
        role: &role,
        flat: true,
        copies: true,
        packed: true,
        parquet: false,
    };
    let Form::Members(raw, survey) = locate(raw, &wanted, progress)? else {
        return Ok(()); // Parquet was not requested.
    };
    let mut duplicates = Duplicates::default();
    let mut rows: PerSplit<Option<usize>> = PerSplit::default();
    // Number of expressions shorter than any published one.
    let mut short: PerSplit<u64> = PerSplit::default();
    let mut folder: Option<String> = None;
    let mut passed_over = BTreeSet::new();
    let published = Options::published();
    let survey = wanted.members(
        &raw,
        survey,
        "reading expressions",
        progress,
        &mut |member| {
            let Some((below, split)) = placed(member.name) else {
                return Ok(());
            };
            if folder.get_or_insert_with(|| below.to_owned()) != below {
                passed_over.insert(below.to_owned());
                return Ok(());
            }
            if rows.get(split).is_some() {
                return Err(member.wrong("a second file of this name"));
            }
            let file = member.path.clone();
            let count = reader.read_file(member, |tokens, label| {
                duplicates.add(split, row_hash([tokens]));
                *short.get_mut(split) += u64::from(tokens.len() <= published.min_length);
                dense::write(options, writer, split, tokens, label)
            })?;
            if count == 0 {
                let problem = "it has no examples".to_owned();
                return Err(Error::File { file, problem });
            }
            *rows.get_mut(split) = Some(count);
            Ok(())
        },
    )?;
    for (split, wanted) in
        SplitName::ALL
            .into_iter()
            .zip([published.train, published.val, published.test])
    {
        let Some(rows) = *rows.get(split) else {
            let below = folder.unwrap_or_default();
            let there = SplitName::ALL
                .into_iter()
                .filter(|split| rows.get(*split).is_some());
            let there: Vec<_> = there.map(file_name).collect();
            return Err(Error::Missing {
                what: "a published file of listops".to_owned(),
                path: raw.path().join(below).join(file_name(split)),
                there: Some(there.join(", ")),
                command: format!(
                    "lra data make listops{} --from FOLDER or ARCHIVE that has it",
                    data_flag()
                ),
                stand_in: stand_in(&INFO),
            });
        };
        if rows > wanted {
            writer.mark_altered(format!(
                "{} has {rows} examples, more than the {wanted} that were published",
                file_name(split)
            ));
        }
        if rows != wanted {
            writer.mark_partial();
            writer.note(format!(
                "{} has {}, the published file {wanted}",
                file_name(split),
                counted(rows, "example")
            ));
        }
    }
    // Under another limit on the length the expressions may be the user's own.
    if options.departure().is_none() {
        for split in SplitName::ALL {
            let (short, rows) = (*short.get(split), rows.get(split).unwrap_or_default());
            if short >= FEW {
                writer.mark_altered(format!(
                    "{short} of {rows} expressions of {split} have {} tokens or fewer, and the published ones have more",
                    published.min_length
                ));
            }
        }
    }
    for sentence in duplicates.implausible("expressions", LEAST_DISTINCT) {
        writer.mark_altered(sentence);
    }
    if !passed_over.is_empty() {
        let others: Vec<_> = passed_over.into_iter().collect();
        writer.note(format!(
            "read from {}; files of the same names in {} were not read",
            folder_in_words(&folder.unwrap_or_default()),
            listed(others.iter().map(|folder| folder_in_words(folder)))
        ));
    }
    survey
        .notes()
        .into_iter()
        .for_each(|note| writer.note(note));
    writer.note(UNPROVED);
    writer.note(duplicates.text());
    Ok(())
}

/// Returns whether a file is data by its name.
pub(super) fn reads(name: &str) -> bool {
    is_data(name, role)
}

/// Returns the role of a file by its name.
fn role(name: &str) -> Role<'_> {
    match placed(name) {
        Some(_) => Role::Data(Place::beside("expressions", name)),
        None if name.to_ascii_lowercase().ends_with(".tsv") => Role::Loose(
            "none of the tables that are read, which are basic_train.tsv, basic_val.tsv and basic_test.tsv",
        ),
        None => Role::Other,
    }
}

fn file_name(split: SplitName) -> String {
    format!("basic_{}.tsv", split.name())
}

/// Returns the split of the file with this name, and its folder.
fn placed(name: &str) -> Option<(&str, SplitName)> {
    let (folder, file) = name.rsplit_once('/').unwrap_or(("", name));
    let split = SplitName::ALL
        .into_iter()
        .find(|&split| file_name(split).eq_ignore_ascii_case(file))?;
    Some((folder, split))
}

struct Reader<'a> {
    tokenizer: &'a Tokenizer,
    max_length: usize,
}

impl Reader<'_> {
    /// Passes every row of a file to `keep`, in order; returns their number.
    fn read_file(
        &self,
        member: Member<'_>,
        mut keep: impl FnMut(&[u8], u8) -> Result<()>,
    ) -> Result<usize> {
        // A token has at most four bytes and a space, and an operator one more pair of parentheses
        // than arguments.
        let longest = 16 * self.max_length as u64 + 256;
        let mut lines = Lines::over(member.path, member.content, longest);
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
        }
    }

    /// Returns tokens and label of one line, or a description of the problem.
    fn parse(&self, columns: &Columns, line: &[u8]) -> Result<(Vec<u8>, u8), String> {
        let line = std::str::from_utf8(line).map_err(|_| "not text in UTF-8".to_owned())?;
        if let Some(more) = line.split('\t').nth(columns.all) {
            let more = words::quoted(&shortened(more));
            return Err(format!("{more} behind the last column of the header"));
        }
        let field = |column: usize, name: &str| {
            let field = line
                .split('\t')
                .nth(column)
                .ok_or_else(|| format!("the column {name} is missing"))?;
            Ok::<_, String>(unquote(field))
        };
        let target = field(columns.target, "Target")?.trim();
        let label = match whole_number(target) {
            Some(label @ 0..=9) => label as u8,
            Some(label) => return Err(format!("the answer {label} is not 0 to 9")),
            None => {
                let shown = words::quoted(&shortened(target));
                return Err(format!("the answer {shown} is not a whole number"));
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

    /// Returns the stored bytes of an expression. It looks words up in the tokenizer's vocabulary,
    /// which gives the result of its `encode` in a sixtieth of the time (`encode` keeps the place
    /// of every token in the text).
    fn encode(&self, expression: &str) -> Result<Vec<u8>, String> {
        let mut tokens = Vec::new();
        for word in expression.split_ascii_whitespace() {
            let word = match word {
                "(" | ")" => continue,
                "X" => "]",
                word => word,
            };
            let id = self.tokenizer.get_model().token_to_id(word);
            match id.and_then(|id| id.checked_sub(INFO.first_id)) {
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
    /// Number of each line, and its range in `text`.
    lines: Vec<(u64, Range<usize>)>,
}

impl Batch {
    /// Reads the next lines, about `BATCH` bytes of them; empty at the end of the file.
    fn read(lines: &mut Lines<impl Read>) -> Result<Batch> {
        let mut batch = Batch {
            text: Vec::new(),
            lines: Vec::new(),
        };
        while batch.text.len() < BATCH {
            let start = batch.text.len();
            let Some(Line { number, .. }) = lines.next(&mut batch.text)? else {
                break;
            };
            batch.lines.push((number, start..batch.text.len()));
        }
        Ok(batch)
    }
}

/// Indices of the two columns, and the number of all.
struct Columns {
    source: usize,
    target: usize,
    all: usize,
}

impl Columns {
    fn read(lines: &mut Lines<impl Read>) -> Result<Columns> {
        let mut header = Vec::new();
        if lines.next(&mut header)?.is_none() {
            return Err(lines.wrong(1, "the file is empty".to_owned()));
        }
        let text = String::from_utf8_lossy(&header);
        let place = |name: &str| {
            text.split('\t')
                .position(|column| unquote(column).trim().eq_ignore_ascii_case(name))
                .ok_or_else(|| {
                    lines.wrong(
                        1,
                        format!("the header `{}` has no column {name}", shortened(&text)),
                    )
                })
        };
        Ok(Columns {
            source: place("Source")?,
            target: place("Target")?,
            all: text.split('\t').count(),
        })
    }
}

/// Returns a field without the quotes that a CSV writer may put around it; an expression contains
/// no character that needs escaping.
fn unquote(field: &str) -> &str {
    field
        .strip_prefix('"')
        .and_then(|field| field.strip_suffix('"'))
        .unwrap_or(field)
}

/// Returns at most 40 characters, for messages.
fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(40).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}
