//! Pairs made from a corpus: papers and the citations between them.
//!
//! A positive pair is a paper and one that it cites. A negative pair is the same citing paper and
//! another one, drawn evenly from those that neither cite it nor are cited by it. There is one
//! negative for every positive pair. The method by which the published negatives were drawn is not
//! known.

use std::collections::{BTreeMap, HashSet};

use rand_chacha::ChaCha8Rng;
use sha2::{Digest as _, Sha256};

use super::pairs::is_blank;
use crate::archive::Member;
use crate::error::Result;
use crate::lines::{Line, Lines};
use crate::rng::{below, stream};
use crate::{Protocol, SplitName};

/// Maximum length of a line of papers; the longest published paper has a few megabytes.
const LONGEST_LINE: u64 = 64 << 20;

/// Maximum number of papers and of citations; the whole Anthology has 100,000 and a million or so.
const MOST: usize = 20_000_000;

/// Maximum number of bytes of text that are kept.
const MOST_BYTES: usize = 4 << 30;

/// Number of draws of a paper before a negative pair is given up.
const TRIES: usize = 1000;

/// Papers out of ten that go to train and to validation under the clean protocol; the rest go to
/// test. A pair needs both of its papers in one split, so the small splits get the square of their
/// share: two tenths leave one pair in 25.
const PAPERS: [u8; 2] = [6, 2];

/// Pairs out of ten that go to train and to validation under the published protocol.
const PAIRS: [u8; 2] = [8, 1];

/// Returns the corpus file with this name, if it is one.
pub(super) fn placed(name: &str) -> Option<File> {
    match name.rsplit('/').next()?.to_ascii_lowercase().as_str() {
        "papers.tsv" => Some(File::Papers),
        "edges.tsv" => Some(File::Edges),
        _ => None,
    }
}

/// One of the two files of a corpus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum File {
    Papers,
    Edges,
}

/// Papers by id, and the citations between them.
#[derive(Debug, Default)]
pub(super) struct Corpus {
    papers: BTreeMap<Vec<u8>, Vec<u8>>,
    edges: Vec<[Vec<u8>; 2]>,
    bytes: usize,
}

/// A pair that was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pair<'a> {
    pub(super) split: SplitName,
    pub(super) label: u8,
    pub(super) ids: [&'a [u8]; 2],
    pub(super) texts: [&'a [u8]; 2],
}

/// All pairs of a corpus.
#[derive(Debug)]
pub(super) struct Pairs<'a> {
    pub(super) all: Vec<Pair<'a>>,
    /// Number of citations that are not used: of papers that the corpus does not have, of a paper
    /// by itself, and repeated ones.
    pub(super) unused: usize,
    /// Number of citations between papers of different splits.
    pub(super) across: usize,
}

impl Corpus {
    /// Reads `id, text` lines, keeping the first `max_length` bytes of each text.
    pub(super) fn read_papers(&mut self, member: Member<'_>, max_length: usize) -> Result<()> {
        let mut lines = Lines::over(member.path, member.content, LONGEST_LINE);
        let mut line = Vec::new();
        while let Some(Line { number, .. }) = lines.next(&mut line)? {
            let wrong = |problem: &str| Err(lines.wrong(number, problem.to_owned()));
            let Some(tab) = line.iter().position(|&byte| byte == b'\t') else {
                return wrong("no tab between id and text");
            };
            let (id, text) = (&line[..tab], &line[tab + 1..]);
            if number == 1 && is_header([id, text]) {
                return wrong(HEADER);
            }
            if id.is_empty() || is_blank(text) {
                return wrong("an empty id or text");
            }
            let text = text[..text.len().min(max_length)].to_vec();
            self.bytes += id.len() + text.len();
            if self.papers.len() >= MOST || self.bytes > MOST_BYTES {
                return wrong("more papers than a corpus may have");
            }
            if self.papers.insert(id.to_vec(), text).is_some() {
                return wrong("a second paper of this id");
            }
            line.clear();
        }
        Ok(())
    }

    /// Reads `citing, cited` lines; further columns are ignored.
    pub(super) fn read_edges(&mut self, member: Member<'_>) -> Result<()> {
        let mut lines = Lines::over(member.path, member.content, 1 << 16);
        let mut line = Vec::new();
        while let Some(Line { number, .. }) = lines.next(&mut line)? {
            let mut fields = line.split(|&byte| byte == b'\t').map(<[u8]>::to_vec);
            let edge = match (fields.next(), fields.next()) {
                (Some(citing), Some(cited)) if !citing.is_empty() && !cited.is_empty() => {
                    [citing, cited]
                }
                _ => {
                    let problem = "not two ids with a tab between them".to_owned();
                    return Err(lines.wrong(number, problem));
                }
            };
            if number == 1 && is_header([&edge[0], &edge[1]]) {
                return Err(lines.wrong(number, HEADER.to_owned()));
            }
            self.bytes += edge[0].len() + edge[1].len();
            if self.edges.len() >= MOST || self.bytes > MOST_BYTES {
                let problem = "more citations than a corpus may have".to_owned();
                return Err(lines.wrong(number, problem));
            }
            self.edges.push(edge);
            line.clear();
        }
        Ok(())
    }

    /// Returns the number of citations.
    pub(super) fn citations(&self) -> usize {
        self.edges.len()
    }

    /// Returns the number of papers.
    pub(super) fn papers(&self) -> usize {
        self.papers.len()
    }

    /// Makes the pairs: a function of papers, citations, protocol and seed, regardless of the order
    /// of lines.
    pub(super) fn pairs(&self, protocol: Protocol, seed: u64) -> Pairs<'_> {
        let ids: Vec<&[u8]> = self.papers.keys().map(Vec::as_slice).collect();
        let texts: Vec<&[u8]> = self.papers.values().map(Vec::as_slice).collect();
        let index = |id: &Vec<u8>| ids.binary_search(&id.as_slice()).ok();
        let mut edges: Vec<[usize; 2]> = self
            .edges
            .iter()
            .filter_map(|[citing, cited]| Some([index(citing)?, index(cited)?]))
            .filter(|[citing, cited]| citing != cited)
            .collect();
        edges.sort_unstable();
        edges.dedup();
        let unused = self.edges.len() - edges.len();
        let linked: HashSet<[usize; 2]> = edges.iter().copied().collect();

        // Under the clean protocol negatives are drawn from the citing paper's split, else from all
        // papers.
        let side_of: Vec<SplitName> = match protocol {
            Protocol::Clean => ids.iter().map(|id| deal(seed, &[id], PAPERS)).collect(),
            Protocol::Tay2021 => vec![SplitName::Train; ids.len()],
        };
        let mut rng = stream("retrieval negatives", seed, 0);
        let mut taken = HashSet::new();
        let mut all = Vec::new();
        let mut across = 0;
        for [citing, cited] in edges {
            let side = side_of[citing];
            if side_of[cited] != side {
                across += 1;
                continue;
            }
            let free = |other: usize| {
                other != citing
                    && side_of[other] == side
                    && !linked.contains(&[citing, other])
                    && !linked.contains(&[other, citing])
                    && !taken.contains(&[citing, other])
            };
            let Some(other) = draw(&mut rng, ids.len(), free) else {
                // A paper linked with nearly all others: leaving the positive out too keeps the
                // balance.
                continue;
            };
            taken.insert([citing, other]);
            for (label, second) in [(1, cited), (0, other)] {
                let pair = [ids[citing], ids[second]];
                let split = match protocol {
                    Protocol::Clean => side,
                    Protocol::Tay2021 => deal(seed, &pair, PAIRS),
                };
                all.push(Pair {
                    split,
                    label,
                    ids: pair,
                    texts: [texts[citing], texts[second]],
                });
            }
        }
        Pairs {
            all,
            unused,
            across,
        }
    }
}

/// Error message for a table with a header.
const HEADER: &str = "a header, which this table has none of: remove the line";

/// Usual names of the columns of both tables, in lower case.
const COLUMNS: [&str; 13] = [
    "id", "paper", "paper_id", "paperid", "text", "abstract", "title", "citing", "cited", "source",
    "target", "from", "to",
];

/// Returns whether the fields of a line name its columns.
fn is_header(fields: [&[u8]; 2]) -> bool {
    fields.iter().all(|field| {
        let field = field.trim_ascii();
        COLUMNS
            .iter()
            .any(|name| field.eq_ignore_ascii_case(name.as_bytes()))
    })
}

fn draw(rng: &mut ChaCha8Rng, papers: usize, free: impl Fn(usize) -> bool) -> Option<usize> {
    (0..TRIES)
        .map(|_| below(rng, papers as u32) as usize)
        .find(|&other| free(other))
}

/// Returns the split drawn for these ids: `tenths` of train and of validation, the rest of test.
fn deal(seed: u64, ids: &[&[u8]], tenths: [u8; 2]) -> SplitName {
    let mut hash = Sha256::new_with_prefix(seed.to_le_bytes());
    for id in ids {
        hash.update((id.len() as u64).to_le_bytes());
        hash.update(id);
    }
    let mut first = [0; 8];
    first.copy_from_slice(&hash.finalize()[..8]);
    let place = u64::from_le_bytes(first) / (u64::MAX / 10 + 1);
    match place as u8 {
        place if place < tenths[0] => SplitName::Train,
        place if place < tenths[0] + tenths[1] => SplitName::Val,
        _ => SplitName::Test,
    }
}
