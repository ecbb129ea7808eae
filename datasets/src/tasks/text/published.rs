//! Conversion of the published reviews to rows.

use std::collections::HashSet;
use std::path::Path;

use super::INFO;
use super::reviews::{self, Hash, Review, Reviews};
use crate::digest::is_held_out;
use crate::duplicates::{Duplicates, LEAST_DISTINCT, row_hash};
use crate::error::{Error, Result};
use crate::locate::{Form, Wanted, is_data, locate};
use crate::source_checks::without_examples;
use crate::words::counted;
use crate::{Known, Protocol, Request, SplitName, SplitWriter};

/// Name of the published archive.
pub(super) const ARCHIVE: &str = "aclImdb_v1.tar.gz";

/// Number of reviews of each class in each published split.
const PER_CLASS: usize = 12_500;

/// Facts that the published files have. Counts and byte totals are also stated by the Hugging Face
/// copy (without its overhead of 12 bytes per example); the digests are of a copy that agrees with
/// a second one file by file.
static KNOWN: [(&str, &str); 13] = [
    ("train: reviews", "12500 negative, 12500 positive"),
    (
        "train: ratings",
        "1:5100 2:2284 3:2420 4:2696 7:2496 8:3009 9:2263 10:4732",
    ),
    ("train: bytes", "33132823"),
    (
        "train: digest by path",
        "d31e49fe4b1ec203e1b38ca48afb8bfb13b841ba9191733dab5da25bc929566f",
    ),
    (
        "train: digest by content",
        "a9d47e0f568cefbe1c58530d0c9a46fb7cf1fca0b9fee722ab97214997a9d828",
    ),
    ("train: distinct texts", "24904"),
    ("test: reviews", "12500 negative, 12500 positive"),
    (
        "test: ratings",
        "1:5022 2:2302 3:2541 4:2635 7:2307 8:2850 9:2344 10:4999",
    ),
    ("test: bytes", "32350685"),
    (
        "test: digest by path",
        "a0e5123c2b1dd44a033a0b9e7f730325292c16a8ccd299286bbf546d93b2065b",
    ),
    (
        "test: digest by content",
        "859c6d610c2375672961e408262dfda46b2e0d1aab2d10f6a7b6977ee9005306",
    ),
    ("test: distinct texts", "24801"),
    ("texts in both", "123"),
];

/// Returns these facts for [`Task::known`](crate::Task::known).
pub(super) fn known() -> Vec<Known> {
    KNOWN
        .map(|(name, value)| Known::whole(name, value))
        .to_vec()
}

/// Returns whether a file is data by its name.
pub(super) fn reads(name: &str) -> bool {
    is_data(name, reviews::role)
}

/// Reads the reviews at `request.raw`, in any of their forms, and writes them truncated to
/// `max_length`.
pub(super) fn build(
    max_length: usize,
    request: &Request<'_>,
    writer: &mut SplitWriter,
) -> Result<()> {
    let wanted = Wanted {
        info: &INFO,
        what: "the labelled IMDb reviews (aclImdb)",
        archive: ARCHIVE,
        other_archives: &[],
        role: &reviews::role,
        flat: false,
        copies: false,
        packed: true,
        parquet: true,
    };
    let ([train, test], notes) = match locate(request.raw, &wanted, request.progress)? {
        Form::Members(raw, survey) => {
            reviews::from_members(&raw, survey, &wanted, request.progress)?
        }
        Form::Parquet { train, test, notes } => {
            let both = reviews::from_parquet(&train, &test, request.progress)?;
            (both, notes)
        }
    };
    notes.into_iter().for_each(|note| writer.note(note));
    let in_test = test.hashes();
    let in_train = train.hashes();
    record(&train, "train", &in_train, writer);
    record(&test, "test", &in_test, writer);
    writer.fact("texts in both", in_train.intersection(&in_test).count());
    let complete = |reviews: &Reviews| {
        [0, 1]
            .iter()
            .all(|&label| reviews.count(label) == PER_CLASS)
    };
    for reviews in [&train, &test] {
        for (label, class) in ["negative", "positive"].into_iter().enumerate() {
            let count = reviews.count(label as u8);
            if count > PER_CLASS {
                writer.mark_altered(format!(
                    "{count} {class} reviews of {}, more than the {PER_CLASS} that were published",
                    reviews.split
                ));
            }
        }
    }
    let mut duplicates = Duplicates::default();
    for (reviews, split_name) in [(&train, SplitName::Train), (&test, SplitName::Test)] {
        for review in &reviews.all {
            duplicates.add(split_name, row_hash([&review.hash[..]]));
        }
    }
    for sentence in duplicates.implausible("reviews", LEAST_DISTINCT) {
        writer.mark_altered(sentence);
    }
    if !complete(&train) || !complete(&test) {
        writer.mark_partial();
        writer.note(format!(
            "{} of train and {} of test instead of 25000 each",
            counted(train.all.len(), "review"),
            test.all.len()
        ));
    }

    let row =
        |writer: &mut SplitWriter, split_name: SplitName, reviews: &Reviews, review: &Review| {
            let text = reviews.text(review);
            let kept = &text[..text.len().min(max_length)];
            writer.row(split_name, &[kept], review.label)
        };
    let (mut held_out, mut left_out) = (0_usize, 0_usize);
    for review in &train.all {
        let split_name = match request.protocol {
            Protocol::Tay2021 => SplitName::Train,
            Protocol::Clean if in_test.contains(&review.hash) => {
                left_out += 1;
                continue;
            }
            Protocol::Clean if is_held_out(&review.hash) => {
                held_out += 1;
                SplitName::Val
            }
            Protocol::Clean => SplitName::Train,
        };
        row(writer, split_name, &train, review)?;
    }
    if request.protocol == Protocol::Clean {
        let counts = [train.all.len(), left_out, held_out];
        refuse_empty(request.raw, counts)?;
    }
    for review in &test.all {
        row(writer, SplitName::Test, &test, review)?;
        if request.protocol == Protocol::Tay2021 {
            row(writer, SplitName::Val, &test, review)?;
        }
    }
    writer.note(match request.protocol {
        Protocol::Clean => format!(
            "{} of train held out for validation; {left_out} left out because test has the same text",
            counted(held_out, "review")
        ),
        Protocol::Tay2021 => "validation is the test split, as in the 2021 code".to_owned(),
    });
    Ok(())
}

/// Refuses reviews of train that leave nothing for train or for validation: so many in all, left
/// out because test has their text, and held out.
fn refuse_empty(raw: &Path, [all, left_out, held_out]: [usize; 3]) -> Result<()> {
    let rest = all - left_out;
    let Some(nothing_for) = without_examples(rest, held_out) else {
        return Ok(());
    };
    let counts = match (left_out, rest) {
        (0, _) => format!("{held_out} held out for validation by hash"),
        (_, 0) => "all left out because test has the same texts".to_owned(),
        _ => format!(
            "{left_out} left out because test has the same text, {held_out} of the others held out for validation by hash"
        ),
    };
    Err(Error::File {
        file: raw.to_owned(),
        problem: format!(
            "{} of train, {counts}: none remain for {nothing_for}",
            counted(all, "review")
        ),
    })
}

fn record(reviews: &Reviews, split: &str, distinct: &HashSet<Hash>, writer: &mut SplitWriter) {
    let [negative, positive] = [0, 1].map(|label| reviews.count(label));
    let mut fact = |name: &str, value: String| writer.fact(format!("{split}: {name}"), value);
    fact(
        "reviews",
        format!("{negative} negative, {positive} positive"),
    );
    if let Some(ratings) = reviews.ratings() {
        fact("ratings", ratings);
    }
    fact("bytes", reviews.bytes().to_string());
    if let Some(digest) = reviews.digest_by_path() {
        fact("digest by path", digest);
    }
    fact("digest by content", reviews.digest_by_content());
    fact("distinct texts", distinct.len().to_string());
}
