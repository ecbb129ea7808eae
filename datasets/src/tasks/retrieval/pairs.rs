//! Published form: label, id, id, text, text, separated by tabs; no header, and quotes have no
//! special meaning.

use std::collections::HashSet;

use crate::archive::Member;
use crate::duplicates::{Duplicates, row_hash};
use crate::error::Result;
use crate::lines::{Line, Lines, whole_number};
use crate::literal::decode;
use crate::words::{counted, quoted};
use crate::{SplitName, SplitWriter};

/// Maximum length of a line; two papers have 60 KB or so.
const LONGEST_LINE: u64 = 64 << 20;

/// Maximum length of a paper's id.
const LONGEST_ID: usize = 256;

/// Number of bytes at the beginning of each text by which pairs are told apart.
const TELLING: usize = 4096;

/// Returns the split of the file with this name.
pub(super) fn placed(name: &str) -> Option<SplitName> {
    let file = name.rsplit('/').next()?;
    let named = |split: &SplitName| file_name(*split).eq_ignore_ascii_case(file);
    SplitName::ALL.into_iter().find(named)
}

/// Returns the name of the file of a split.
pub(super) fn file_name(split: SplitName) -> &'static str {
    match split {
        SplitName::Train => "new_aan_pairs.train.tsv",
        SplitName::Val => "new_aan_pairs.eval.tsv",
        SplitName::Test => "new_aan_pairs.test.tsv",
    }
}

/// Reader that truncates texts, and takes them as they are or as literals.
pub(super) struct Reader {
    pub(super) max_length: usize,
    pub(super) decode: bool,
}

/// Counts over one file.
#[derive(Debug, Default)]
pub(super) struct Read {
    /// Number of pairs with label 0 and with label 1.
    pub(super) labels: [u64; 2],
    /// Ids of the papers.
    pub(super) ids: HashSet<Vec<u8>>,
    /// Number of texts without content.
    pub(super) empty: u64,
}

impl Reader {
    /// Writes the pairs of one file as rows of `split`, and counts those that are alike.
    pub(super) fn read(
        &self,
        member: Member<'_>,
        split: SplitName,
        duplicates: &mut Duplicates,
        writer: &mut SplitWriter,
    ) -> Result<Read> {
        let mut lines = Lines::over(member.path, member.content, LONGEST_LINE);
        let mut read = Read::default();
        let mut line = Vec::new();
        while let Some(Line { number, ended }) = lines.next(&mut line)? {
            // Only the last line can lack its line feed; a text that also lacks its closing quote
            // was cut.
            if !ended && is_open(&line) {
                let problem = "the file ends within a text: it is cut short";
                return Err(lines.wrong(number, problem.to_owned()));
            }
            let pair = self
                .parse(&line)
                .map_err(|problem| lines.wrong(number, problem))?;
            for id in pair.ids {
                if !read.ids.contains(id) {
                    read.ids.insert(id.to_vec());
                }
            }
            read.labels[usize::from(pair.label)] += 1;
            // A tower needs a token: an empty text is stored as one space.
            let stored = pair.texts.each_ref().map(|text| match text.is_empty() {
                true => &b" "[..],
                false => text,
            });
            read.empty += pair
                .fields
                .into_iter()
                .filter(|text| is_blank(text))
                .count() as u64;
            let starts = pair.fields.map(|text| &text[..text.len().min(TELLING)]);
            duplicates.add(split, row_hash(starts));
            writer.row(split, &stored, pair.label)?;
            line.clear();
        }
        if read.labels == [0, 0] {
            return Err(lines.wrong(1, "the file is empty".to_owned()));
        }
        Ok(read)
    }

    fn parse<'a>(&self, line: &'a [u8]) -> Result<Pair<'a>, String> {
        let mut fields = line.split(|&byte| byte == b'\t');
        let columns: [Option<&[u8]>; 5] = std::array::from_fn(|_| fields.next());
        let ([Some(label), Some(id1), Some(id2), Some(text1), Some(text2)], None) =
            (columns, fields.next())
        else {
            let count = line.split(|&byte| byte == b'\t').count();
            return Err(format!(
                "{} instead of 5 (label, id, id, text, text)",
                counted(count, "column")
            ));
        };
        let number = std::str::from_utf8(label).ok();
        let label = match number.and_then(whole_number) {
            Some(0) => 0,
            Some(1) => 1,
            _ => {
                let shown = label[..label.len().min(40)].escape_ascii().to_string();
                return Err(format!("the label {} is neither 0 nor 1", quoted(&shown)));
            }
        };
        for id in [id1, id2] {
            if id.is_empty() || id.len() > LONGEST_ID {
                return Err(format!(
                    "an id of {}, instead of 1 to {LONGEST_ID}",
                    counted(id.len(), "byte")
                ));
            }
        }
        let text = |field: &[u8]| match self.decode {
            true => decode(field, self.max_length),
            false => Ok(field[..field.len().min(self.max_length)].to_vec()),
        };
        Ok(Pair {
            label,
            ids: [id1, id2],
            fields: [text1, text2],
            texts: [text(text1)?, text(text2)?],
        })
    }
}

/// Returns whether a text has no content: nothing, or white space alone, plain or as a literal.
pub(super) fn is_blank(text: &[u8]) -> bool {
    // A literal without content has a few escapes at most.
    const SHORT: usize = 64;
    let literal = match text.len() <= SHORT {
        true => decode(text, SHORT).unwrap_or_default(),
        false => Vec::new(),
    };
    match literal.is_empty() {
        true => matches!(text.trim_ascii(), b"" | b"b''" | b"b\"\""),
        false => literal.trim_ascii().is_empty(),
    }
}

/// Returns whether the last field begins as a bytes literal and does not end as one. A quote behind
/// a backslash ends nothing, but the backslash may be one that another one escapes.
fn is_open(line: &[u8]) -> bool {
    let text = line.rsplit(|&byte| byte == b'\t').next();
    match text {
        Some([b'b', quote @ (b'\'' | b'"'), rest @ ..]) => match rest {
            [body @ .., last] if last == quote => {
                let slashes = body.iter().rev().take_while(|byte| **byte == b'\\');
                slashes.count() % 2 == 1
            }
            _ => true,
        },
        _ => false,
    }
}

#[derive(Debug)]
struct Pair<'a> {
    label: u8,
    ids: [&'a [u8]; 2],
    /// The texts as they stand in the file.
    fields: [&'a [u8]; 2],
    texts: [Vec<u8>; 2],
}
