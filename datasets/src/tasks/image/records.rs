//! The binary files: records of one label byte and three channels of 1,024 bytes, 10,000 to a file.

use super::pictures::{Pictures, wrong_row};
use super::{CLASSES, PIXELS};
use crate::archive::Member;
use crate::error::Result;
use crate::words::counted;

/// Number of pictures in a file.
pub(super) const RECORDS: usize = 10_000;

/// Number of files of train.
pub(super) const BATCHES: usize = 5;

pub(super) const RECORD_BYTES: usize = 1 + 3 * PIXELS;

/// Returns the number of the file with this name: 0 to 4 of train, 5 of test.
pub(super) fn placed(name: &str) -> Option<usize> {
    let file = name.rsplit('/').next()?;
    (0..=BATCHES).find(|&number| file_name(number).eq_ignore_ascii_case(file))
}

/// Returns the name of a file.
pub(super) fn file_name(number: usize) -> String {
    match number {
        BATCHES => "test_batch.bin".to_owned(),
        train => format!("data_batch_{}.bin", train + 1),
    }
}

/// Reads one file. Its pictures get the file's places in its split.
pub(super) fn read(
    member: &mut Member<'_>,
    number: usize,
    allow_partial: bool,
    pictures: &mut Pictures,
) -> Result<()> {
    let full = RECORDS * RECORD_BYTES;
    let check = |bytes: u64| {
        let whole = bytes.is_multiple_of(RECORD_BYTES as u64) && (1..=full as u64).contains(&bytes);
        if bytes == full as u64 || allow_partial && whole {
            return Ok(());
        }
        let remedy = match (whole, allow_partial) {
            (true, _) => "; to read a part of the pictures all the same: --allow-partial",
            (false, true) => "; a part has to be whole records, at most as many",
            (false, false) => "",
        };
        Err(format!(
            "{} instead of {full} ({RECORDS} records of {RECORD_BYTES} bytes){remedy}",
            counted(bytes, "byte")
        ))
    };
    // Checked before the file is read, where the size is known.
    let stated = member.size.map_or(Ok(()), check);
    stated.map_err(|problem| member.wrong(problem))?;
    let mut bytes = Vec::new();
    member.bytes(full as u64, &mut bytes)?;
    check(bytes.len() as u64).map_err(|problem| member.wrong(problem))?;
    let first = first_place(number);
    let (records, _) = bytes.as_chunks::<RECORD_BYTES>();
    for (index, record) in records.iter().enumerate() {
        let [label, channels @ ..] = record;
        if usize::from(*label) >= CLASSES.len() {
            let problem = format!("record with the label {label}, which is not 0 to 9");
            return Err(wrong_row(&member.path, index as u64 + 1, problem));
        }
        pictures.push(first + index, *label, Box::new(*channels));
    }
    Ok(())
}

/// Returns the place of a file's first picture in its split.
pub(super) fn first_place(number: usize) -> usize {
    match number {
        BATCHES => 0,
        train => train * RECORDS,
    }
}
