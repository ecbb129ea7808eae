//! Retrieval: decide whether one paper cites the other, both read byte by byte.
//!
//! The published task is pairs of papers of the ACL Anthology Network (Radev et al. 2013): three
//! files `new_aan_pairs.{train,eval,test}.tsv` of 147,086, 18,090 and 17,437 lines with the columns
//! label, id, id, text, text. Each text is one tower, its first `max_length` bytes (4,000). Model
//! id = byte + 1, 0 is padding. The texts are written as Python's bytes literals (`b'...'`), and
//! the 2021 code reads them so: prefix, quotes and escapes are part of the input. The option
//! `decode` gives the bytes that the literals denote instead, under another label
//! (`retrieval@decoded`).
//!
//! The form read depends on the files at the raw path. [`pairs`]: the three files, or shorter ones
//! in their form. Their splits are kept under both protocols: validation is held out already;
//! papers recur between splits, and a note gives their number. [`corpus`]: failing those,
//! `papers.tsv` (id, text) and `edges.tsv` (citing id, cited id) of any corpus, from which pairs
//! are made here, by `seed`; such data is marked as partial, since it is not the published data.
//! Under `tay2021` its pairs are split at random, so that papers recur as in the published files;
//! under `clean` its papers are split, and no paper is in two splits.
//!
//! Stand-in (`synthetic`): meaningless words, one in eight of them the name of the text's topic.
//! The label says whether both texts have the same topic. Either text alone carries no information
//! about it, and neither does any sum of the two texts' contents. But two texts of one topic have
//! similar counts of bytes. With `topics = anagrams` they do not: all topics have the same bytes,
//! and only their order differs ([`anagrams`]).

mod anagrams;
mod corpus;
mod pairs;
mod published;
mod synthetic;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::text::legible;
use crate::baseline::{Baseline, bag_of_tokens, compared_bags, majority};
use crate::error::Result;
use crate::options::{parse, refused, within};
use crate::synthetic::{DRAW_OPTIONS, DrawOptions};
use crate::{Known, Remote, Request, Shape, Source, SplitWriter, Splits, Task, TaskInfo, remote};

static INFO: TaskInfo = TaskInfo {
    name: "retrieval",
    title: "Retrieval",
    summary: "Does one paper cite the other, both read byte by byte?",
    paper: "Radev et al. 2013 (ACL Anthology Network); as pairs of byte sequences in Tay et al. 2021 (arXiv:2011.04006)",
    version: 1,
    vocabulary: 257,
    first_id: 1,
    classes: 2,
    towers: 2,
    mask_ratio: 0.15,
    sources: &[Source::Official, Source::Synthetic],
    probe: false,
};

/// Length to which the published task truncates.
const PUBLISHED_LENGTH: u32 = 4000;

/// The retrieval task.
pub struct Retrieval;

/// Feature that distinguishes the topics of the stand-in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Topics {
    /// A word that names the topic.
    Names,
    /// Only the order of letters within words.
    Anagrams,
}

#[derive(Debug, Serialize, Deserialize)]
struct Options {
    max_length: u32,
    decode: bool,
    /// Feature that distinguishes the topics of the stand-in.
    topics: Topics,
    /// Seed of pairs made from a corpus and of the stand-in, and numbers of rows of the stand-in.
    #[serde(flatten)]
    drawn: DrawOptions,
}

const DEFAULTS: Options = Options {
    max_length: PUBLISHED_LENGTH,
    decode: false,
    topics: Topics::Names,
    drawn: DrawOptions {
        seed: 0,
        train: 4000,
        val: 500,
        test: 1000,
    },
};

impl Options {
    fn read(options: &Value) -> Result<Options> {
        let read: Options = parse(&INFO, &DEFAULTS, options)?;
        // The 2021 code never reads more than 10,000 bytes of a text.
        within(&INFO, "max_length", read.max_length, 16..=10_000)?;
        read.drawn.check(&INFO)?;
        Ok(read)
    }
}

impl Task for Retrieval {
    fn info(&self) -> &'static TaskInfo {
        &INFO
    }

    fn defaults(&self) -> Value {
        json!(DEFAULTS)
    }

    fn shape(&self, options: &Value) -> Result<Shape> {
        let read = Options::read(options)?;
        let length = read.max_length;
        let departures = [
            (length != PUBLISHED_LENGTH).then(|| length.to_string()),
            read.decode.then(|| "decoded".to_owned()),
            (read.topics == Topics::Anagrams).then(|| "anagrams".to_owned()),
        ];
        Ok(Shape::new(&INFO, length as usize, departures))
    }

    fn unused_options(&self, source: Source) -> &'static [&'static str] {
        match source {
            Source::Official => &DRAW_OPTIONS[1..],
            _ => &["decode"],
        }
    }

    fn reads(&self, name: &str) -> bool {
        published::reads(name)
    }

    fn remote(&self) -> &'static [Remote] {
        &remote::RELEASE
    }

    fn build(&self, request: &Request<'_>, writer: &mut SplitWriter) -> Result<()> {
        let options = Options::read(request.options)?;
        match request.source {
            Source::Synthetic => match options.topics {
                Topics::Names => synthetic::draw(&options, request.progress, writer),
                Topics::Anagrams => anagrams::draw(&options, request.progress, writer),
            },
            _ if options.topics != Topics::Names => Err(refused(
                &INFO,
                "topics",
                "anagrams",
                "names, or the stand-in, which alone has topics: --task retrieval:synthetic",
            )),
            _ => published::build(&options, request, writer),
        }
    }

    fn to_text(&self, towers: &[&[u8]], label: u8) -> String {
        let answer = match label {
            0 => "not linked",
            1 => "linked",
            _ => "neither linked nor not linked",
        };
        let texts: Vec<String> = towers.iter().map(|tokens| legible(tokens)).collect();
        format!("{}\n{answer}\n", texts.join("\n\n"))
    }

    /// Returns the scores; for the stand-in also the score of comparing the two texts' counts of
    /// bytes.
    fn baselines(&self, splits: &Splits) -> Vec<Baseline> {
        let mut all = vec![majority(splits, &INFO), bag_of_tokens(splits, &INFO)];
        if splits.manifest.source == Source::Synthetic {
            all.push(compared_bags(splits, &INFO));
        }
        all
    }

    fn known(&self) -> Vec<Known> {
        published::known()
    }
}
