//! From the published pictures to rows.

use std::path::Path;

use super::membership::{TRAIN, VALIDATES};
use super::pictures::{self, Picture, Pictures};
use super::records::{self, BATCHES, RECORDS};
use super::{ABOUT, CLASSES, Options, grey};
use crate::archive::Raw;
use crate::error::{Error, Result};
use crate::locate::{Form, Wanted, locate};
use crate::{Fact, Part, Request, Sink};

/// The name of the published archive.
pub(super) const ARCHIVE: &str = "cifar-10-binary.tar.gz";

/// Pictures of each class in each file of train, 10,000 in the published order.
static LABELS: [[usize; CLASSES.len()]; BATCHES] = [
    [1005, 974, 1032, 1016, 999, 937, 1030, 1001, 1025, 981],
    [984, 1007, 1010, 995, 1010, 988, 1008, 1026, 987, 985],
    [994, 1042, 965, 997, 990, 1029, 978, 1015, 961, 1029],
    [1003, 963, 1041, 976, 1004, 1021, 1004, 981, 1024, 983],
    [1014, 1014, 952, 1016, 997, 1025, 980, 977, 1003, 1022],
];

/// What the published files give.
pub(super) fn known() -> Vec<Fact> {
    let fact = |name: String, labels| Fact::new(name, format!("{labels:?}"));
    let mut known: Vec<Fact> = (0..BATCHES)
        .map(|batch| fact(fact_name(batch), LABELS[batch]))
        .collect();
    known.push(fact(fact_name(BATCHES), [1000; CLASSES.len()]));
    known.push(fact(UNORDERED.to_owned(), [5000; CLASSES.len()]));
    known
}

/// Name of the fact about train where its order is unknown.
const UNORDERED: &str = "train: labels";

fn fact_name(file: usize) -> String {
    let name = records::file_name(file);
    format!("{}: labels", name.trim_end_matches(".bin"))
}

/// The pictures as they were found.
struct Found {
    train: Pictures,
    test: Pictures,
    /// Whether the places of train are those in the published files.
    ordered: bool,
}

/// Reads whatever form of the pictures lies at `request.raw`, and writes them in grey.
pub(super) fn build(options: &Options, request: &Request<'_>, sink: &mut Sink) -> Result<()> {
    let wanted = Wanted {
        about: &ABOUT,
        what: "the CIFAR-10 pictures (data_batch_1.bin and so on, {train,test}/<class>/*.png, or parquet)",
        archive: ARCHIVE,
        fits: &fits,
        parquet: true,
    };
    let mut found = match locate(request.raw, &wanted)? {
        Form::Members(raw) => from_members(&raw, options.allow_partial, request)?,
        Form::Parquet { train, test } => {
            let mut found = Found {
                train: Pictures::default(),
                test: Pictures::default(),
                ordered: true,
            };
            request.progress.begin("reading pictures", None);
            pictures::read_parquet(&train, request.progress, &mut found.train)?;
            pictures::read_parquet(&test, request.progress, &mut found.test)?;
            request.progress.finish();
            found
        }
    };
    check_size(&found, request.raw, options.allow_partial, sink)?;
    if found.ordered {
        for batch in 0..BATCHES {
            let places = batch * RECORDS..(batch + 1) * RECORDS;
            let labels = format!("{:?}", found.train.labels(places));
            sink.fact(fact_name(batch), labels);
        }
    } else {
        sink.fact(
            UNORDERED,
            format!("{:?}", found.train.labels(0..usize::MAX)),
        );
        sink.note(
            "the files do not tell the published order: which pictures of train validate was decided by a hash of each",
        );
    }
    let labels = format!("{:?}", found.test.labels(0..usize::MAX));
    sink.fact(fact_name(BATCHES), labels);
    write(&mut found, options.side(), sink)
}

fn write(found: &mut Found, side: usize, sink: &mut Sink) -> Result<()> {
    let mut row = |part: Part, picture: &Picture| {
        let pixels = grey::smaller(&picture.pixels, side);
        sink.row(part, &[&pixels], picture.label)
    };
    for picture in found.train.sorted() {
        let validates = match found.ordered {
            true => VALIDATES[picture.place],
            false => picture.hash()[..8] < (u64::MAX / 10).to_be_bytes()[..],
        };
        row(if validates { Part::Val } else { Part::Train }, picture)?;
    }
    for picture in found.test.sorted() {
        row(Part::Test, picture)?;
    }
    Ok(())
}

/// Refuses what is not all of the published pictures, or marks it.
fn check_size(found: &Found, raw: &Path, allow_partial: bool, sink: &mut Sink) -> Result<()> {
    let (train, test) = (found.train.len(), found.test.len());
    if (train, test) == (TRAIN, RECORDS) {
        return Ok(());
    }
    let wrong = |problem: String| Error::File {
        file: raw.to_owned(),
        problem,
    };
    let counts =
        format!("{train} pictures of train and {test} of test instead of {TRAIN} and {RECORDS}");
    if train > TRAIN || test > RECORDS {
        return Err(wrong(format!("{counts}: more than were published")));
    }
    if train == 0 || test == 0 {
        return Err(wrong(format!(
            "{counts}; looked for data_batch_1.bin and so on (not the Python pickles) or {{train,test}}/<class>/*.png"
        )));
    }
    if !allow_partial {
        return Err(wrong(format!(
            "{counts}; to read a part of them all the same: --allow-partial"
        )));
    }
    sink.mark_partial();
    sink.note(counts);
    Ok(())
}

fn fits(name: &str) -> bool {
    records::placed(name).is_some() || pictures::placed(name).is_some()
}

fn from_members(raw: &Raw, allow_partial: bool, request: &Request<'_>) -> Result<Found> {
    let mut train = Pictures::default();
    let mut test = Pictures::default();
    let mut seen = [false; BATCHES + 1];
    let mut in_files = false;
    let mut all_numbered = true;
    raw.members(
        "reading pictures",
        request.progress,
        &fits,
        &mut |mut member| {
            if let Some(number) = records::placed(member.name) {
                if std::mem::replace(&mut seen[number], true) {
                    return Err(member.wrong("a second file of this name"));
                }
                let pictures = if number == BATCHES {
                    &mut test
                } else {
                    &mut train
                };
                return records::read(&mut member, number, allow_partial, pictures);
            }
            let Some((of_test, label, place)) = pictures::placed(member.name) else {
                return Ok(());
            };
            let pictures = if of_test { &mut test } else { &mut train };
            if pictures.len() >= TRAIN {
                return Err(member.wrong(format!("more than {TRAIN} pictures in its split")));
            }
            in_files = true;
            all_numbered &= of_test || place.is_some();
            let pixels = pictures::read_member(&mut member)?;
            let place = place.unwrap_or(pictures.len());
            pictures.push(place, label, pixels);
            Ok(())
        },
    )?;
    if !in_files {
        return Ok(Found {
            train,
            test,
            ordered: true,
        });
    }
    if seen.contains(&true) {
        return Err(Error::File {
            file: raw.path().to_owned(),
            problem: "both binary files and PNG files: name a folder that has one kind".to_owned(),
        });
    }
    // Numbers in names are taken for places in the published order only where the classes agree with it.
    let ordered = all_numbered
        && train.len() == TRAIN
        && train.numbered()
        && (0..BATCHES)
            .all(|batch| train.labels(batch * RECORDS..(batch + 1) * RECORDS) == LABELS[batch]);
    if !ordered {
        train.number();
    }
    test.number();
    Ok(Found {
        train,
        test,
        ordered,
    })
}
