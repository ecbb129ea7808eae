//! From raw files, whichever of the two forms they have, to rows.

use std::path::Path;

use super::corpus::{self, Corpus};
use super::pairs::{self, Read, Reader};
use super::{ABOUT, Options};
use crate::archive::Raw;
use crate::error::{Error, Result};
use crate::facts::UNPROVED;
use crate::locate::{Form, Wanted, locate};
use crate::{Known, Part, PerPart, Protocol, Request, Sink, remote};

/// Lines of the published files.
const ROWS: PerPart<u64> = PerPart {
    train: 147_086,
    val: 18_090,
    test: 17_437,
};

/// What the published files give.
pub(super) fn known() -> Vec<Known> {
    Part::ALL
        .iter()
        .map(|&part| Known::whole(fact_name(part), ROWS.get(part)))
        .collect()
}

fn fact_name(part: Part) -> String {
    format!("{}: pairs", part.name())
}

/// Reads the pairs, or makes them from a corpus.
pub(super) fn build(options: &Options, request: &Request<'_>, sink: &mut Sink) -> Result<()> {
    let wanted = Wanted {
        about: &ABOUT,
        what: "the AAN pairs (new_aan_pairs.{train,eval,test}.tsv) or a corpus (papers.tsv and edges.tsv)",
        archive: remote::LRA_RELEASE,
        fits: &fits,
        parquet: false,
    };
    let Form::Members(raw) = locate(request.raw, &wanted)? else {
        return Ok(()); // Parquet was not asked for.
    };
    let max_length = options.max_length as usize;
    let reader = Reader {
        max_length,
        decode: options.decode,
    };
    let mut read: PerPart<Option<Read>> = PerPart::default();
    let mut corpus = Corpus::default();
    raw.members("reading papers", request.progress, &fits, &mut |member| {
        if let Some(part) = pairs::placed(member.name) {
            if read.get(part).is_some() {
                return Err(member.wrong("a second file of this name"));
            }
            *read.get_mut(part) = Some(reader.read(member, part, sink)?);
            return Ok(());
        }
        match corpus::placed(member.name) {
            Some(corpus::File::Papers) => corpus.read_papers(member, max_length),
            Some(corpus::File::Edges) => corpus.read_edges(member),
            None => Ok(()),
        }
    })?;
    match read {
        PerPart {
            train: Some(train),
            val: Some(val),
            test: Some(test),
        } => {
            describe(&PerPart { train, val, test }, sink);
            Ok(())
        }
        PerPart {
            train: None,
            val: None,
            test: None,
        } => from_corpus(&corpus, options, request.protocol, &raw, sink),
        _ => {
            let missing = Part::ALL
                .into_iter()
                .filter(|&part| read.get(part).is_none());
            let missing: Vec<_> = missing.map(|part| part.name()).collect();
            Err(incomplete(
                raw.path(),
                format!("no pairs of {}", missing.join(" and ")),
            ))
        }
    }
}

fn fits(name: &str) -> bool {
    pairs::placed(name).is_some() || corpus::placed(name).is_some()
}

/// What is known after reading the published form.
fn describe(read: &PerPart<Read>, sink: &mut Sink) {
    for part in Part::ALL {
        let Read { labels, empty, .. } = read.get(part);
        let rows = labels.iter().sum::<u64>();
        sink.fact(fact_name(part), rows);
        sink.fact(
            format!("{}: labels", part.name()),
            format!("{} not linked, {} linked", labels[0], labels[1]),
        );
        if rows != *ROWS.get(part) {
            sink.mark_partial();
            sink.note(format!(
                "{rows} pairs of {} instead of {}",
                part.name(),
                ROWS.get(part)
            ));
        }
        if rows > *ROWS.get(part) {
            sink.mark_altered(format!(
                "{rows} pairs of {}, more than the {} that were published",
                part.name(),
                ROWS.get(part)
            ));
        }
        if *empty > 0 {
            sink.note(format!(
                "{empty} empty texts of {} stored as one space",
                part.name()
            ));
        }
    }
    sink.note(UNPROVED);
    let test = &read.test.ids;
    sink.note(format!(
        "{} of {} papers of test also occur in train, as in the published files",
        test.intersection(&read.train.ids).count(),
        test.len()
    ));
}

fn from_corpus(
    corpus: &Corpus,
    options: &Options,
    protocol: Protocol,
    raw: &Raw,
    sink: &mut Sink,
) -> Result<()> {
    let pairs = corpus.pairs(protocol, options.drawn.seed);
    for part in Part::ALL {
        if !pairs.all.iter().any(|pair| pair.part == part) {
            let problem = format!(
                "{} papers with {} citations between them are too few for pairs of {}",
                corpus.papers(),
                pairs.all.len() / 2 + pairs.across,
                part.name()
            );
            return Err(incomplete(raw.path(), problem));
        }
    }
    for pair in &pairs.all {
        sink.row(pair.part, &pair.texts, pair.label)?;
    }
    sink.mark_partial();
    sink.note(format!(
        "not the published pairs: made here from {} papers, one pair without a citation for every one with",
        corpus.papers()
    ));
    sink.note(format!(
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
