//! The Python files: dictionaries of 10,000 labels and as many rows of three channels of 1,024
//! bytes.

use super::pictures::Pictures;
use super::records::{BATCHES, RECORDS, first_place};
use super::{CLASSES, PIXELS, SIDE};
use crate::archive::Member;
use crate::error::Result;
use crate::pickle::Pickle;
use crate::words::counted;

/// Maximum size of a file; the published ones have 31 million bytes.
const LARGEST: u64 = 64 << 20;

/// Returns the number of the file with this name: 0 to 4 of train, 5 of test.
pub(super) fn placed(name: &str) -> Option<usize> {
    match name.rsplit('/').next()?.to_ascii_lowercase().as_str() {
        "test_batch" => Some(BATCHES),
        file => (0..BATCHES).find(|number| file == format!("data_batch_{}", number + 1)),
    }
}

/// Reads one file. Its pictures get the file's places in its split.
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
    let item = |key: &str| pickle.item(key).map_err(wrong);
    if item("labels")?.is_none() && item("fine_labels")?.is_some() {
        return Err(wrong(
            "of CIFAR-100 (it has `fine_labels`), and this task is CIFAR-10".to_owned(),
        ));
    }
    let of = |key: &str| {
        let item = item(key)?;
        item.ok_or_else(|| wrong(format!("a Python pickle without `{key}`")))
    };
    let labels = pickle.numbers(of("labels")?);
    let labels = labels.map_err(|problem| wrong(format!("`labels`: {problem}")))?;
    let data = pickle.array(of("data")?);
    let data = data.map_err(|problem| wrong(format!("`data`: {problem}")))?;
    let count = labels.len();
    let shapes = [vec![count, 3 * PIXELS], vec![count, 3, SIDE, SIDE]];
    let (Some(content), true) = (data.bytes(), shapes.contains(&data.shape)) else {
        return Err(wrong(format!(
            "{} with an array `data` of {}, instead of {} of {} bytes (uint8)",
            counted(count, "label"),
            data.text(),
            counted(count, "row"),
            3 * PIXELS
        )));
    };
    let (rows, _) = content.as_chunks::<{ 3 * PIXELS }>();
    if count != RECORDS && !(allow_partial && (1..=RECORDS).contains(&count)) {
        return Err(wrong(format!(
            "{} instead of {RECORDS}; to read a part of them all the same: --allow-partial",
            counted(count, "picture")
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
