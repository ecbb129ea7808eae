//! The Python files: dictionaries of 10,000 labels and as many rows of three channels of 1,024 bytes.

use super::pictures::Pictures;
use super::records::{BATCHES, RECORDS, first_place};
use super::{CLASSES, PIXELS};
use crate::archive::Member;
use crate::error::Result;
use crate::pickle::Pickle;

/// Largest file; the published ones have 31 million bytes.
const LARGEST: u64 = 64 << 20;

/// Which of the files a name is: 0 to 4 of train, 5 of test.
pub(super) fn placed(name: &str) -> Option<usize> {
    match name.rsplit('/').next()? {
        "test_batch" => Some(BATCHES),
        file => (0..BATCHES).find(|number| file == format!("data_batch_{}", number + 1)),
    }
}

/// Reads one file. Its pictures get the places that it has in its split.
pub(super) fn read(
    member: &mut Member<'_>,
    number: usize,
    allow_partial: bool,
    pictures: &mut Pictures,
) -> Result<()> {
    let mut bytes = Vec::new();
    member.bytes(LARGEST, &mut bytes)?;
    let wrong = |problem: String| member.wrong(problem);
    let pickle = Pickle::read(&bytes)
        .map_err(|problem| wrong(format!("not a readable Python pickle: {problem}")))?;
    let labels = pickle
        .item("labels")
        .and_then(|place| pickle.numbers(place));
    let data = pickle
        .item("data")
        .and_then(|place| pickle.byte_array(place));
    let (Some(labels), Some((shape, data))) = (labels, data) else {
        return Err(wrong(
            "a Python pickle without a list `labels` and an array of bytes `data`".to_owned(),
        ));
    };
    let count = labels.len();
    let (rows, rest) = data.as_chunks::<{ 3 * PIXELS }>();
    if shape != [count as i64, 3 * PIXELS as i64] || rows.len() != count || !rest.is_empty() {
        return Err(wrong(format!(
            "{count} labels with an array of {shape:?} and {} bytes",
            data.len()
        )));
    }
    if count != RECORDS && !(allow_partial && (1..=RECORDS).contains(&count)) {
        return Err(wrong(format!(
            "{count} pictures instead of {RECORDS}; to read a part of them all the same: --allow-partial"
        )));
    }
    for (index, (label, channels)) in labels.iter().zip(rows).enumerate() {
        let known = u8::try_from(*label).ok();
        let Some(label) = known.filter(|label| usize::from(*label) < CLASSES.len()) else {
            return Err(wrong(format!("the label {label}, which is not 0 to 9")));
        };
        pictures.push(first_place(number) + index, label, Box::new(*channels));
    }
    Ok(())
}
