//! Rows as they lie in a memory-mapped file.

use std::fs::File;
use std::ops::Range;
use std::path::Path;

use memmap2::Mmap;
use safetensors::{Dtype, SafeTensors};

use crate::sink::column_names;
use crate::{Manifest, Part};

/// The three splits of a stored entry.
#[derive(Debug)]
pub struct Splits {
    /// What a model is fitted on.
    pub train: Split,
    /// What picks the checkpoint.
    pub val: Split,
    /// What is scored once.
    pub test: Split,
    /// What they are and how they came about.
    pub manifest: Manifest,
}

impl Splits {
    /// The split of `part`.
    pub fn get(&self, part: Part) -> &Split {
        match part {
            Part::Train => &self.train,
            Part::Val => &self.val,
            Part::Test => &self.test,
        }
    }
}

/// One split: tokens and labels, memory-mapped. Costs no heap to speak of, and is shared between processes.
#[derive(Debug)]
pub struct Split {
    map: Mmap,
    rows: usize,
    towers: Vec<Tower>,
    labels: Range<usize>,
}

#[derive(Debug)]
struct Tower {
    offsets: Range<usize>,
    tokens: Range<usize>,
}

impl Split {
    /// Number of examples.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Whether there is no example.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Sequences per example.
    pub fn towers(&self) -> usize {
        self.towers.len()
    }

    /// The stored bytes of one example, without padding; byte `s` is model id `s + first_id`.
    ///
    /// # Panics
    /// When `tower` or `row` does not exist, like indexing a slice.
    pub fn tokens(&self, tower: usize, row: usize) -> &[u8] {
        let tower = &self.towers[tower];
        let offsets: &[u64] = bytemuck::cast_slice(&self.map[tower.offsets.clone()]);
        let tokens = &self.map[tower.tokens.clone()];
        &tokens[u64::from_le(offsets[row]) as usize..u64::from_le(offsets[row + 1]) as usize]
    }

    /// The label of one example.
    ///
    /// # Panics
    /// When `row` does not exist, like indexing a slice.
    pub fn label(&self, row: usize) -> u8 {
        self.labels()[row]
    }

    /// All labels, in row order.
    pub fn labels(&self) -> &[u8] {
        &self.map[self.labels.clone()]
    }

    /// Maps a file and checks everything that can be checked without reading its tokens.
    ///
    /// # Errors
    /// What is wrong, in words: not a safetensors file, other columns, offsets out of order or bounds,
    /// labels out of range.
    pub(crate) fn open(path: &Path, towers: usize, classes: usize) -> Result<Split, String> {
        let file = File::open(path).map_err(|error| error.to_string())?;
        // SAFETY: stored files are written once, in another folder, and only ever replaced by renaming, so nothing
        // of ours changes or shortens a mapped file. Who does so from outside gets a fault, as with any mapping.
        let map = unsafe { Mmap::map(&file) }.map_err(|error| error.to_string())?;
        let header =
            SafeTensors::deserialize(&map).map_err(|error| format!("not a store file: {error}"))?;
        let start = map.as_ptr() as usize;
        let column = |name: &str, dtype: Dtype| {
            let tensor = header
                .tensor(name)
                .map_err(|_| format!("it has no column `{name}`"))?;
            if tensor.dtype() != dtype || tensor.shape().len() != 1 {
                return Err(format!("column `{name}` has another type"));
            }
            let begin = tensor.data().as_ptr() as usize - start;
            Ok(begin..begin + tensor.data().len())
        };

        let labels = column("labels", Dtype::U8)?;
        let rows = labels.len();
        if let Some(label) = map[labels.clone()]
            .iter()
            .find(|&&label| usize::from(label) >= classes)
        {
            return Err(format!("label {label} of {classes} classes"));
        }
        let mut columns = Vec::with_capacity(towers);
        for tower in 0..towers {
            let (tokens, offsets) = column_names(tower);
            let tower = Tower {
                tokens: column(&tokens, Dtype::U8)?,
                offsets: column(&offsets, Dtype::U64)?,
            };
            check_offsets(&map[tower.offsets.clone()], rows, tower.tokens.len())?;
            columns.push(tower);
        }
        Ok(Split {
            rows,
            labels,
            towers: columns,
            map,
        })
    }
}

/// Offsets are aligned, one more than rows, start at 0, never fall, and end with the tokens.
fn check_offsets(bytes: &[u8], rows: usize, tokens: usize) -> Result<(), String> {
    let offsets: &[u64] = bytemuck::try_cast_slice(bytes)
        .map_err(|_| "its offsets are not aligned to 8 bytes".to_owned())?;
    if offsets.len() != rows + 1 {
        return Err(format!("{} offsets for {rows} rows", offsets.len()));
    }
    let mut last = 0;
    for (row, offset) in offsets
        .iter()
        .map(|&offset| u64::from_le(offset))
        .enumerate()
    {
        if offset < last || (row == 0 && offset != 0) {
            return Err(format!("the offset of row {row} is out of order"));
        }
        last = offset;
    }
    if last != tokens as u64 {
        return Err(format!("offsets end at {last}, tokens at {tokens}"));
    }
    Ok(())
}
