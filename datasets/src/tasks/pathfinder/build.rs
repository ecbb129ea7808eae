//! Writing of an entry's rows with images of the generator, in chunks from which an interrupted
//! build can resume.
//!
//! A chunk stores an image as its label and its pixels, followed by the targets and the groups of
//! the pixels, if they have labels.

use super::generator::Generator;
use super::options::Options;
use super::parameters::{Difficulty, Size};
use crate::error::Result;
use crate::{DenseRow, Request, SplitName, SplitWriter};

/// Bytes of images per part of the build: a fraction of a second of work.
const PART_BYTES: usize = 1 << 20;

/// Images of one split that are drawn together.
struct Batch {
    split: SplitName,
    rows: std::ops::Range<usize>,
}

/// Draws all rows, in parallel; image `row` of a split depends only on (options, split, row).
pub(super) fn build(
    options: &Options,
    request: &Request<'_>,
    writer: &mut SplitWriter,
) -> Result<()> {
    let generator = Generator::new(options.parameters(), options.pixels);
    let length = options.length();
    let size = 1 + length * if options.dense { 3 } else { 1 };
    let batches = batches(options);
    let total: usize = batches.iter().map(|batch| batch.rows.len()).sum();
    let progress = request.progress;
    let what = match request.checkpoint.exists() {
        true => "drawing images, continuing an interrupted build",
        false => "drawing images",
    };
    progress.begin(what, Some(total as u64));
    let make = |number: usize| {
        let batch = &batches[number];
        let mut workspaces = generator.workspaces();
        let mut bytes = Vec::with_capacity(batch.rows.len() * size);
        for row in batch.rows.clone() {
            progress.check()?;
            let image = (batch.split as u64) << 48 | row as u64;
            let (scene, pixels) = generator.image(&mut workspaces, options.seed, image);
            bytes.push(scene.label);
            bytes.extend(pixels);
            if options.dense {
                let DenseRow { targets, groups } = generator.dense(&scene);
                bytes.extend(targets);
                bytes.extend(groups);
            }
            progress.advance(1);
        }
        Ok(bytes)
    };
    let found = |number: usize| progress.found(batches[number].rows.len() as u64);
    request
        .checkpoint
        .in_order(batches.len(), make, found, |number, bytes| {
            let split = batches[number].split;
            for image in bytes.chunks_exact(size) {
                let (label, pixels) = (image[0], &image[1..=length]);
                match options.dense {
                    true => {
                        let (targets, groups) = image[1 + length..].split_at(length);
                        let row = DenseRow {
                            targets: targets.to_vec(),
                            groups: groups.to_vec(),
                        };
                        writer.dense_row(split, pixels, label, &row)?;
                    }
                    false => writer.row(split, &[pixels], label)?,
                }
            }
            Ok(())
        })?;
    progress.finish();
    writer.note(
        "drawn by this program's generator with the release's parameters, not the release's images",
    );
    if let Some([least, most]) = options.dashes {
        writer.note(format!(
            "contours of {least} to {most} dashes, which no published set has"
        ));
    }
    // Images of the other sizes and of this difficulty were decoded: see `parameters.rs`.
    let is_proved =
        matches!(options.size, Size::S64 | Size::S128) && options.difficulty == Difficulty::Hard;
    if !is_proved {
        writer.note(format!(
            "{} distractors attempted per image: from the release's documentation, not proved on its images",
            generator.parameters().distractors
        ));
    }
    Ok(())
}

fn batches(options: &Options) -> Vec<Batch> {
    let step = (PART_BYTES / options.length()).max(1);
    SplitName::ALL
        .into_iter()
        .flat_map(|split| {
            let rows = options.rows_of(split);
            (0..rows).step_by(step).map(move |start| Batch {
                split,
                rows: start..(start + step).min(rows),
            })
        })
        .collect()
}
