//! Published images: `pathfinder<side>/curv_*/imgs/<batch>/sample_<n>.png` and
//! `metadata/<batch>.npy`, in a folder or in the archive as downloaded.
//!
//! Rows are in the order of batches and lines, whether they are read from a folder or an archive.
//! Images that are listed but missing or empty (the release has one) are left out and counted: with
//! them the data is partial. Images that no list has are refused: they have no label.

mod archive;
mod copies;
mod metadata;
mod pictures;
mod png;
mod set;

use rayon::prelude::*;
use sha2::{Digest as _, Sha256};

use self::metadata::Listed;
use super::parameters::{Difficulty, Size};
use crate::duplicates::{Duplicates, FEW, LEAST_DISTINCT, RowHash, row_hash};
use crate::error::{Error, Result};
use crate::source_checks::UNPROVED;
use crate::words::counted;
use crate::{Protocol, Request, SplitName, SplitWriter, TaskInfo};

/// Number of images per published set.
const PUBLISHED: usize = 200_000;
/// The image that is empty in the release.
const EMPTY: (Size, Difficulty, &str) = (Size::S32, Difficulty::Easy, "imgs/0/sample_172.png");
/// Number of images decoded together.
const BATCH: usize = 1024;

/// Returns whether a file is a list or an image by its name.
pub(super) fn reads(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.ends_with(".npy") || name.ends_with(".png")
}

/// Reads one published set into `writer`.
pub(super) fn read(
    info: &'static TaskInfo,
    size: Size,
    difficulty: Difficulty,
    request: &Request<'_>,
    writer: &mut SplitWriter,
) -> Result<()> {
    let (listed, mut pictures, notes) = pictures::find(info, size, difficulty, request)?;
    notes.into_iter().for_each(|note| writer.note(note));
    let splits = assign(&listed, request.protocol);
    let progress = request.progress;
    progress.begin("decoding images", Some(listed.len() as u64));
    let mut counts = [0usize; 3];
    let mut duplicates = Duplicates::default();
    let mut blank = 0;
    let mut left_out = LeftOut::default();
    for (batch, splits) in listed.chunks(BATCH).zip(splits.chunks(BATCH)) {
        let files: Vec<Option<Vec<u8>>> = batch
            .iter()
            .map(|image| pictures.read(&image.path))
            .collect::<Result<_>>()?;
        let decoded: Vec<Option<(Vec<u8>, RowHash)>> = files
            .par_iter()
            .zip(batch)
            .map(|(file, image)| match file {
                None => Ok(None),
                Some(file) => png::grey(file, size.side())
                    .map(|pixels| {
                        let hash = row_hash([&pixels[..]]);
                        Some((pixels, hash))
                    })
                    .map_err(|problem| Error::File {
                        file: pictures.name_of(&image.path),
                        problem,
                    }),
            })
            .collect::<Result<_>>()?;
        for ((decoded, image), split) in decoded.iter().zip(batch).zip(splits) {
            match decoded {
                Some((pixels, hash)) => {
                    duplicates.add(*split, *hash);
                    blank += u64::from(pixels.iter().all(|pixel| *pixel == pixels[0]));
                    writer.row(*split, &[pixels], image.label)?;
                    counts[*split as usize] += 1;
                }
                None => left_out.add(size, difficulty, &image.path),
            }
        }
        progress.advance(batch.len() as u64);
    }
    progress.finish();
    if counts.contains(&0) {
        return Err(Error::File {
            file: pictures.origin(),
            problem: format!(
                "{} of {} are missing or empty; too few remain for three splits",
                left_out.count,
                counted(listed.len(), "listed image")
            ),
        });
    }
    if left_out.count > 0 {
        writer.note(format!(
            "{}, missing or empty, left out",
            counted(left_out.count, "listed image")
        ));
    }
    if listed.len() > PUBLISHED {
        writer.mark_altered(format!(
            "{} images are listed, more than the {PUBLISHED} that were published",
            listed.len()
        ));
    }
    let there = listed.len() - left_out.count;
    if blank >= FEW {
        writer.mark_altered(format!(
            "{blank} of {there} images are of one grey all over, and the published ones show dashes"
        ));
    }
    for sentence in duplicates.implausible("images", LEAST_DISTINCT) {
        writer.mark_altered(sentence);
    }
    writer.note(UNPROVED);
    if left_out.leaves_a_part(listed.len()) {
        writer.mark_partial();
        writer.note(format!("{there} of {PUBLISHED} published images are here"));
    }
    writer.note(match request.protocol {
        Protocol::Clean => "split 80/10/10 by hash of the file name",
        Protocol::Tay2021 => {
            "split 80/10/10 by position in file order; the 2021 split went by the record order of a converted copy, \
             which is not reconstructed"
        }
    });
    Ok(())
}

/// Numbers of images that are listed but missing or empty.
#[derive(Default)]
struct LeftOut {
    count: usize,
    /// Number of those that are empty in the release itself.
    never_there: usize,
}

impl LeftOut {
    /// Counts an image of a set.
    fn add(&mut self, size: Size, difficulty: Difficulty, path: &str) {
        self.count += 1;
        self.never_there += usize::from((size, difficulty, path) == EMPTY);
    }

    /// Returns whether the others are a part of the published images, if so many are listed.
    fn leaves_a_part(&self, listed: usize) -> bool {
        listed - self.count + self.never_there < PUBLISHED
    }
}

/// Assigns the split of each image: the first 80 % of an order, the next 10 %, the rest.
fn assign(listed: &[Listed], protocol: Protocol) -> Vec<SplitName> {
    let mut order: Vec<usize> = (0..listed.len()).collect();
    if protocol == Protocol::Clean {
        order.sort_by_cached_key(|&image| -> [u8; 32] {
            Sha256::new()
                .chain_update(b"pathfinder clean split ")
                .chain_update(listed[image].path.as_bytes())
                .finalize()
                .into()
        });
    }
    let mut splits = vec![SplitName::Train; listed.len()];
    for (rank, image) in order.into_iter().enumerate() {
        let tenth = rank * 10 / listed.len();
        splits[image] = match tenth {
            8 => SplitName::Val,
            9 => SplitName::Test,
            _ => SplitName::Train,
        };
    }
    splits
}

/// Returns the configuration of property tests: at least `least` cases, or more if `PROPTEST_CASES`
/// is larger.
#[cfg(test)]
fn cases(least: u32) -> proptest::prelude::ProptestConfig {
    let config = proptest::prelude::ProptestConfig::default();
    proptest::prelude::ProptestConfig {
        cases: config.cases.max(least),
        ..config
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_have_their_shares_and_do_not_depend_on_other_images_order() {
        let listed: Vec<Listed> = (0..1000)
            .map(|n| Listed {
                path: format!("imgs/0/sample_{n}.png"),
                label: 0,
            })
            .collect();
        for protocol in Protocol::ALL {
            let splits = assign(&listed, protocol);
            let count = |split| splits.iter().filter(|own| **own == split).count();
            assert_eq!(SplitName::ALL.map(count), [800, 100, 100], "{protocol}");
        }
        assert!(assign(&listed, Protocol::Tay2021).is_sorted_by_key(|split| *split as usize));
        let clean = assign(&listed, Protocol::Clean);
        let reversed: Vec<Listed> = listed.into_iter().rev().collect();
        let reversed_splits: Vec<SplitName> = assign(&reversed, Protocol::Clean)
            .into_iter()
            .rev()
            .collect();
        assert_eq!(clean, reversed_splits);
    }

    #[test]
    fn a_set_is_whole_without_the_image_that_is_empty_in_the_release() {
        assert!(!LeftOut::default().leaves_a_part(200_000));
        assert!(LeftOut::default().leaves_a_part(199_999));
        let (size, difficulty, empty) = EMPTY;
        for (size, difficulty, path, is_part) in [
            (size, difficulty, empty, false),
            (Size::S64, difficulty, empty, true),
            (size, Difficulty::Hard, empty, true),
            (size, difficulty, "imgs/0/sample_173.png", true),
        ] {
            let mut left_out = LeftOut::default();
            left_out.add(size, difficulty, path);
            let found = left_out.leaves_a_part(200_000);
            assert_eq!(found, is_part, "{size:?} {difficulty} {path}");
        }
    }
}
