//! Conversion of raw files, in either of the two forms, to rows.

use std::path::Path;

use super::corpus::{self, Corpus};
use super::pairs::{self, Read, Reader};
use super::{INFO, Options};
use crate::archive::Raw;
use crate::duplicates::{Duplicates, LEAST_DISTINCT};
use crate::error::{Error, Result};
use crate::locate::{Form, Place, Role, Wanted, is_data, locate};
use crate::source_checks::UNPROVED;
use crate::words::{counted, listed};
use crate::{Known, PerSplit, Protocol, Request, SplitName, SplitWriter, remote};

/// Number of lines of the published files.
const ROWS: PerSplit<u64> = PerSplit {
    train: 147_086,
    val: 18_090,
    test: 17_437,
};

/// Returns the facts that the published files have.
pub(super) fn known() -> Vec<Known> {
    SplitName::ALL
        .iter()
        .map(|&split| Known::whole(fact_name(split), ROWS.get(split)))
        .collect()
}

/// Maximum fraction of empty texts of a split; with more of them texts are missing.
const MOST_EMPTY: f64 = 0.01;

fn fact_name(split: SplitName) -> String {
    format!("{}: pairs", split.name())
}

/// Reads the pairs, or makes them from a corpus.
pub(super) fn build(
    options: &Options,
    request: &Request<'_>,
    writer: &mut SplitWriter,
) -> Result<()> {
    let wanted = Wanted {
        info: &INFO,
        what: "the AAN pairs (new_aan_pairs.{train,eval,test}.tsv) or a corpus (papers.tsv and edges.tsv)",
        archive: remote::LRA_RELEASE,
        other_archives: &[],
        role: &role,
        flat: true,
        copies: false,
        packed: true,
        parquet: false,
    };
    let progress = request.progress;
    let Form::Members(raw, survey) = locate(request.raw, &wanted, progress)? else {
        return Ok(()); // Parquet was not requested.
    };
    let max_length = options.max_length as usize;
    let reader = Reader {
        max_length,
        decode: options.decode,
    };
    let mut read: PerSplit<Option<Read>> = PerSplit::default();
    let mut duplicates = Duplicates::default();
    let mut corpus = Corpus::default();
    let survey = wanted.members(&raw, survey, "reading papers", progress, &mut |member| {
        if let Some(split) = pairs::placed(member.name) {
            if read.get(split).is_some() {
                return Err(member.wrong("a second file of this name"));
            }
            *read.get_mut(split) = Some(reader.read(member, split, &mut duplicates, writer)?);
            return Ok(());
        }
        match corpus::placed(member.name) {
            Some(corpus::File::Papers) => corpus.read_papers(member, max_length),
            Some(corpus::File::Edges) => corpus.read_edges(member),
            None => Ok(()),
        }
    })?;
    survey
        .notes()
        .into_iter()
        .for_each(|note| writer.note(note));
    match read {
        PerSplit {
            train: Some(train),
            val: Some(val),
            test: Some(test),
        } => {
            describe(&PerSplit { train, val, test }, writer);
            for sentence in duplicates.implausible("pairs", LEAST_DISTINCT) {
                writer.mark_altered(sentence);
            }
            let tables = [
                ("papers.tsv", corpus.papers()),
                ("edges.tsv", corpus.citations()),
            ];
            for (table, _) in tables.iter().filter(|(_, lines)| *lines > 0) {
                writer.note(format!(
                    "{table} lies there too; no pairs were made from it"
                ));
            }
            Ok(())
        }
        PerSplit {
            train: None,
            val: None,
            test: None,
        } => from_corpus(&corpus, options, request.protocol, &raw, writer),
        _ => {
            let missing: Vec<SplitName> = SplitName::ALL
                .into_iter()
                .filter(|&split| read.get(split).is_none())
                .collect();
            let problem = format!(
                "no pairs of {}: {} {} missing",
                listed(missing.iter().map(|split| split.name())),
                listed(missing.iter().map(|split| pairs::file_name(*split))),
                if missing.len() == 1 { "is" } else { "are" }
            );
            Err(survey.with_others(incomplete(raw.path(), problem)))
        }
    }
}

/// Returns whether a file is data by its name.
pub(super) fn reads(name: &str) -> bool {
    is_data(name, role)
}

/// Returns the role of a file by its name.
fn role(name: &str) -> Role<'_> {
    if pairs::placed(name).is_some() {
        return Role::Data(Place::beside("pairs", name));
    }
    if corpus::placed(name).is_some() {
        return Role::Data(Place::beside("papers with citations", name));
    }
    let file = name.rsplit('/').next().unwrap_or(name).to_ascii_lowercase();
    if file.starts_with("new_aan_pairs") {
        Role::Loose(
            "none of the files of pairs, which are new_aan_pairs.train.tsv, new_aan_pairs.eval.tsv \
             and new_aan_pairs.test.tsv",
        )
    } else {
        Role::Other
    }
}

/// Records the facts of the published form after reading it.
fn describe(read: &PerSplit<Read>, writer: &mut SplitWriter) {
    for split in SplitName::ALL {
        let Read { labels, empty, .. } = read.get(split);
        let rows = labels.iter().sum::<u64>();
        writer.fact(fact_name(split), rows);
        writer.fact(
            format!("{}: labels", split.name()),
            format!("{} not linked, {} linked", labels[0], labels[1]),
        );
        if rows != *ROWS.get(split) {
            writer.mark_partial();
            writer.note(format!(
                "{} of {} instead of {}",
                counted(rows, "pair"),
                split.name(),
                ROWS.get(split)
            ));
        }
        if rows > *ROWS.get(split) {
            writer.mark_altered(format!(
                "{rows} pairs of {}, more than the {} that were published",
                split.name(),
                ROWS.get(split)
            ));
        }
        if *empty > 0 {
            writer.note(format!(
                "{empty} of {} of {split} without content",
                counted(2 * rows, "text")
            ));
        }
        if *empty as f64 > MOST_EMPTY * (2 * rows) as f64 {
            writer.mark_partial();
        }
    }
    writer.note(UNPROVED);
    let test = &read.test.ids;
    writer.note(format!(
        "{} of {} of test also occur in train, as in the published files",
        test.intersection(&read.train.ids).count(),
        counted(test.len(), "paper")
    ));
}

fn from_corpus(
    corpus: &Corpus,
    options: &Options,
    protocol: Protocol,
    raw: &Raw,
    writer: &mut SplitWriter,
) -> Result<()> {
    let pairs = corpus.pairs(protocol, options.drawn.seed);
    for split in SplitName::ALL {
        if !pairs.all.iter().any(|pair| pair.split == split) {
            let problem = format!(
                "{} with {} between them are too few for pairs of {}",
                counted(corpus.papers(), "paper"),
                counted(pairs.all.len() / 2 + pairs.across, "citation"),
                split.name()
            );
            return Err(incomplete(raw.path(), problem));
        }
    }
    for pair in &pairs.all {
        writer.row(pair.split, &pair.texts, pair.label)?;
    }
    writer.mark_partial();
    writer.note(format!(
        "not the published pairs: made here from {}, one pair without a citation for every one with",
        counted(corpus.papers(), "paper")
    ));
    writer.note(format!(
        "citations: {} used, {} between papers of different splits, {} repeated or of papers that are not here",
        pairs.all.len() / 2,
        pairs.across,
        pairs.unused
    ));
    Ok(())
}

fn incomplete(path: &Path, problem: String) -> Error {
    Error::File {
        file: path.to_owned(),
        problem,
    }
}
