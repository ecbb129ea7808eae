//! Conversion of the published pictures to rows.

use std::path::Path;

use super::membership::{TRAIN, VALIDATES};
use super::pictures::{self, Picture, Pictures, Placed};
use super::records::{self, BATCHES, RECORDS};
use super::{CLASSES, INFO, Options, checksums, grey, pickles};
use crate::archive::Raw;
use crate::digest::is_held_out;
use crate::duplicates::{Duplicates, row_hash};
use crate::error::{Error, Result};
use crate::locate::{Form, Place, Role, Survey, Wanted, folder_of, is_data, locate};
use crate::source_checks::without_examples;
use crate::words::counted;
use crate::{Known, Request, SplitName, SplitWriter};

/// Name of the published archive.
pub(super) const ARCHIVE: &str = "cifar-10-binary.tar.gz";

/// Name of the archive with the same pictures as Python pickles.
const PYTHON_ARCHIVE: &str = "cifar-10-python.tar.gz";

/// Returns the facts that the published files have.
pub(super) fn known() -> Vec<Known> {
    let mut known = checksums::known();
    known.push(Known::whole(
        UNORDERED,
        format!("{:?}", [5000; CLASSES.len()]),
    ));
    known
}

/// Name of the fact about train where its order is unknown.
const UNORDERED: &str = "train: labels";

/// Minimum fraction of different pictures in a split. The published ones hardly repeat, so a
/// smaller fraction is not accidental.
const LEAST_DISTINCT: f64 = 0.9;

/// Pictures that were found.
struct Found {
    train: Pictures,
    test: Pictures,
    /// True if the places of train are those in the published files.
    ordered: bool,
    /// True if the places of test are those in the published files.
    test_ordered: bool,
    /// Order of the published batches in the files, if it was another one.
    order: Option<[usize; BATCHES]>,
}

/// Reads the pictures at `request.raw`, in any of their forms, and writes them in grey.
pub(super) fn build(
    options: &Options,
    request: &Request<'_>,
    writer: &mut SplitWriter,
) -> Result<()> {
    let wanted = Wanted {
        info: &INFO,
        what: "the CIFAR-10 pictures (data_batch_1.bin or data_batch_1 and so on, {train,test}/<class>/*.png, or parquet)",
        archive: ARCHIVE,
        other_archives: &[PYTHON_ARCHIVE],
        role: &role,
        flat: false,
        copies: false,
        packed: true,
        parquet: true,
    };
    let mut found = match locate(request.raw, &wanted, request.progress)? {
        Form::Members(raw, survey) => {
            let partial = options.allow_partial;
            from_members(&raw, survey, &wanted, partial, request, writer)?
        }
        Form::Parquet { train, test, notes } => {
            notes.into_iter().for_each(|note| writer.note(note));
            let mut found = Found {
                train: Pictures::default(),
                test: Pictures::default(),
                ordered: true,
                order: None,
                test_ordered: true,
            };
            request.progress.begin("reading pictures", None);
            pictures::read_parquet(&train, request.progress, &mut found.train)?;
            pictures::read_parquet(&test, request.progress, &mut found.test)?;
            found.order = checksums::put_in_order(&mut found.train);
            request.progress.finish();
            found
        }
    };
    let sizes = [found.train.len(), found.test.len()];
    if let Some(counts) = incomplete(sizes, request.raw, options.allow_partial)? {
        writer.mark_partial();
        writer.note(counts);
    }
    describe(&mut found, writer);
    write(&mut found, request.raw, options.side(), writer)
}

/// Records the facts of the pictures, as far as they can be determined.
fn describe(found: &mut Found, writer: &mut SplitWriter) {
    if found.ordered {
        if let Some(order) = found.order {
            let names = order.map(|batch| (batch + 1).to_string());
            writer.note(format!(
                "the files have the published batches in the order {}, told by their first records; put in order",
                names.join(", ")
            ));
        }
        for batch in 0..BATCHES {
            checksums::describe(&mut found.train, batch, writer);
        }
    } else {
        let labels = found.train.labels(0..usize::MAX);
        writer.fact(UNORDERED, format!("{labels:?}"));
        writer.note(
            "the files do not tell the published order: which pictures of train validate was decided by a hash of each",
        );
    }
    checksums::describe(&mut found.test, BATCHES, writer);
    for (ordered, split) in [(found.ordered, "train"), (found.test_ordered, "test")] {
        if ordered {
            continue;
        }
        writer.note(format!(
            "unproved: the pictures of {split} have no published order, which the known checksums need"
        ));
    }
    let mut duplicates = Duplicates::default();
    for (pictures, split) in [
        (&mut found.train, SplitName::Train),
        (&mut found.test, SplitName::Test),
    ] {
        for picture in pictures.sorted() {
            duplicates.add(split, row_hash([&picture.hash()[..]]));
        }
    }
    for sentence in duplicates.implausible("pictures", LEAST_DISTINCT) {
        writer.mark_altered(sentence);
    }
    if !found.test_ordered {
        found.test.number();
    }
}

fn write(found: &mut Found, raw: &Path, side: usize, writer: &mut SplitWriter) -> Result<()> {
    let all = found.train.len();
    let mut held_out = 0;
    let mut row = |split: SplitName, picture: &Picture| {
        let pixels = grey::smaller(&picture.grey(), side);
        writer.row(split, &[&pixels], picture.label)
    };
    for picture in found.train.sorted() {
        let validates = match found.ordered {
            true => VALIDATES[picture.place],
            false => is_held_out(&picture.hash()),
        };
        held_out += usize::from(validates);
        row(
            if validates {
                SplitName::Val
            } else {
                SplitName::Train
            },
            picture,
        )?;
    }
    if let Some(split) = without_examples(all, held_out) {
        let by = if found.ordered { "place" } else { "hash" };
        return Err(Error::File {
            file: raw.to_owned(),
            problem: format!(
                "{} of train, {held_out} held out for validation by {by}: none remain for {split}",
                counted(all, "picture")
            ),
        });
    }
    for picture in found.test.sorted() {
        row(SplitName::Test, picture)?;
    }
    Ok(())
}

/// Returns, in words, how many pictures of train and test there are, if these are a part of the
/// published ones.
///
/// # Errors
/// They are a part, which is not allowed; there are more than were published, or none.
fn incomplete(
    [train, test]: [usize; 2],
    raw: &Path,
    allow_partial: bool,
) -> Result<Option<String>> {
    if (train, test) == (TRAIN, RECORDS) {
        return Ok(None);
    }
    let wrong = |problem: String| Error::File {
        file: raw.to_owned(),
        problem,
    };
    let counts = format!(
        "{} of train and {test} of test instead of {TRAIN} and {RECORDS}",
        counted(train, "picture")
    );
    if train > TRAIN || test > RECORDS {
        return Err(wrong(format!("{counts}: more than were published")));
    }
    if train == 0 || test == 0 {
        return Err(wrong(format!(
            "{counts}; looked for data_batch_1.bin and so on, the Python pickles data_batch_1 and so on, or {{train,test}}/<class>/*.png"
        )));
    }
    if !allow_partial {
        return Err(wrong(format!(
            "{counts}; to read a part of them all the same: --allow-partial"
        )));
    }
    Ok(Some(counts))
}

/// Returns whether a file is data by its name.
pub(super) fn reads(name: &str) -> bool {
    is_data(name, role)
}

/// Returns the role of a file by its name.
fn role(name: &str) -> Role<'_> {
    if records::placed(name).is_some() || pickles::placed(name).is_some() {
        return Role::Data(Place::beside("batches", name));
    }
    match pictures::placed(name) {
        Some(Placed::Picture { of_test, label, .. }) => {
            let part_folder = folder_of(name);
            let split = if of_test { "test" } else { "train" };
            Role::Data(Place {
                form: "class folders",
                folder: folder_of(folder_of(part_folder)),
                part: format!("{split}/{label}"),
                part_folder,
            })
        }
        Some(Placed::Stray(problem)) => Role::Stray(problem),
        None if is_other_batch(name) => Role::Stray(
            "no file of CIFAR-10 that is read: those are data_batch_1 to data_batch_5 and test_batch \
             (Python), or the same with .bin (binary)"
                .to_owned(),
        ),
        None if pictures::is_picture(name) => Role::Loose(
            "a picture that is in none of the folders of pictures, {train,test}/<class>",
        ),
        None if name.to_ascii_lowercase().ends_with(".bin") => {
            Role::Loose("a binary file that is none of data_batch_1.bin to data_batch_5.bin and test_batch.bin")
        }
        None => Role::Other,
    }
}

/// Returns whether a file is named like an unpublished batch, or like one in a format that is not
/// read (`.mat`).
fn is_other_batch(name: &str) -> bool {
    let file = name.rsplit('/').next().unwrap_or(name).to_ascii_lowercase();
    file.starts_with("data_batch") || file.starts_with("test_batch")
}

fn from_members(
    raw: &Raw,
    survey: Survey,
    wanted: &Wanted<'_>,
    allow_partial: bool,
    request: &Request<'_>,
    writer: &mut SplitWriter,
) -> Result<Found> {
    let mut train = Pictures::default();
    let mut test = Pictures::default();
    let mut seen = [false; BATCHES + 1];
    let mut in_files = false;
    let mut all_numbered = [true; 2];
    let survey = wanted.members(
        raw,
        survey,
        "reading pictures",
        request.progress,
        &mut |mut member| {
            let is_pickle = pickles::placed(member.name).is_some();
            if let Some(number) = records::placed(member.name).or(pickles::placed(member.name)) {
                if std::mem::replace(&mut seen[number], true) {
                    return Err(member.wrong("a second file of these pictures"));
                }
                let pictures = if number == BATCHES {
                    &mut test
                } else {
                    &mut train
                };
                return match is_pickle {
                    true => pickles::read(&mut member, number, allow_partial, pictures),
                    false => records::read(&mut member, number, allow_partial, pictures),
                };
            }
            let Some(Placed::Picture {
                of_test,
                label,
                place,
            }) = pictures::placed(member.name)
            else {
                return Ok(());
            };
            let pictures = if of_test { &mut test } else { &mut train };
            if pictures.len() >= TRAIN {
                return Err(member.wrong(format!("more than {TRAIN} pictures in its split")));
            }
            in_files = true;
            all_numbered[usize::from(of_test)] &= place.is_some();
            let channels = pictures::read_member(&mut member)?;
            let place = place.unwrap_or(pictures.len());
            pictures.push(place, label, channels);
            Ok(())
        },
    )?;
    survey
        .notes()
        .into_iter()
        .for_each(|note| writer.note(note));
    if !in_files {
        return Ok(Found {
            train,
            test,
            ordered: true,
            order: None,
            test_ordered: true,
        });
    }
    if seen.contains(&true) {
        return Err(Error::File {
            file: raw.path().to_owned(),
            problem: "both binary files and PNG files: name a folder that has one kind".to_owned(),
        });
    }
    // Numbers in names count as places in the published order only if the classes agree with it.
    let mut ordered = all_numbered[0] && train.len() == TRAIN && train.numbered();
    let mut order = None;
    if ordered {
        order = checksums::put_in_order(&mut train);
        ordered = (0..BATCHES).all(|batch| checksums::has_labels(&train, batch));
    }
    if !ordered {
        train.number();
    }
    // Otherwise rows of test keep the order of their hashes, as for pictures without numbers, so
    // that their names do not matter.
    let test_ordered = all_numbered[1] && test.len() == RECORDS && test.numbered();
    Ok(Found {
        train,
        test,
        ordered,
        order,
        test_ordered,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_published_pictures_are_no_part_of_them() {
        let of = |sizes, allow_partial| incomplete(sizes, Path::new("raw"), allow_partial);
        for allow_partial in [false, true] {
            assert_eq!(of([50_000, 10_000], allow_partial).unwrap(), None);
            for (sizes, problem) in [
                ([50_001, 10_000], "more than were published"),
                ([50_000, 10_001], "more than were published"),
                ([0, 10_000], "0 pictures of train"),
                ([50_000, 0], "and 0 of test"),
            ] {
                let error = of(sizes, allow_partial).unwrap_err().to_string();
                assert!(error.contains(problem), "{error}");
            }
        }
        for sizes in [[49_999, 10_000], [50_000, 9_999]] {
            let [train, test] = sizes;
            let told = format!("{train} pictures of train and {test} of test instead of");
            assert!(of(sizes, true).unwrap().unwrap().starts_with(&told));
            let error = of(sizes, false).unwrap_err().to_string();
            assert!(error.contains("--allow-partial"), "{error}");
        }
    }
}
