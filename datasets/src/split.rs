//! Rows of a split in a memory-mapped file.

use std::ops::Range;
use std::path::Path;

use memmap2::Mmap;
use safetensors::{Dtype, SafeTensors};

use crate::error::io;
use crate::files;
use crate::split_writer::{DENSE_COLUMNS, column_names};
use crate::verified_files::OpenedFile;
use crate::words::counted;
use crate::{Dense, DenseLabels, Manifest, SplitName};

/// Splits of a stored entry.
#[derive(Debug)]
pub struct Splits {
    /// Training split, which models are fitted on.
    pub train: Split,
    /// Validation split, by which the checkpoint is chosen.
    pub val: Split,
    /// Test split, which is scored once.
    pub test: Split,
    /// Content and provenance of the splits.
    pub manifest: Manifest,
    /// The mapped files, as they were when they were opened.
    pub(crate) opened: Vec<OpenedFile>,
}

impl Splits {
    /// Checks that no program has written to the files since they were opened. Another entry in their
    /// place is no change, as the open files stay the old ones, and neither are other links, names or
    /// permissions: then the contents are hashed.
    ///
    /// # Errors
    /// [`crate::Error::Corrupt`], with the file.
    pub fn check_unchanged(&self) -> crate::Result<()> {
        self.opened.iter().try_for_each(|file| {
            let sha256 = &self.manifest.splits.get(file.split).sha256;
            file.check_unchanged(&self.get(file.split).map, sha256)
        })
    }

    /// Returns the split of this name.
    pub fn get(&self, name: SplitName) -> &Split {
        match name {
            SplitName::Train => &self.train,
            SplitName::Val => &self.val,
            SplitName::Test => &self.test,
        }
    }
}

/// Tokens and labels of one split, memory-mapped. It takes almost no heap, and is shared between
/// processes.
#[derive(Debug)]
pub struct Split {
    map: Mmap,
    rows: usize,
    towers: Vec<Tower>,
    labels: Range<usize>,
    /// Columns of targets and groups.
    dense: Option<[Range<usize>; 2]>,
}

#[derive(Debug)]
struct Tower {
    offsets: Range<usize>,
    tokens: Range<usize>,
}

impl Split {
    /// Returns the number of examples.
    pub fn len(&self) -> usize {
        self.rows
    }

    /// Returns whether there are no examples.
    pub fn is_empty(&self) -> bool {
        self.rows == 0
    }

    /// Returns the number of sequences per example.
    pub fn towers(&self) -> usize {
        self.towers.len()
    }

    /// Returns the stored bytes of one example, without padding; byte `s` is model id
    /// `s + first_id`.
    ///
    /// # Panics
    /// If `tower` or `row` does not exist, like indexing a slice.
    pub fn tokens(&self, tower: usize, row: usize) -> &[u8] {
        let tower = &self.towers[tower];
        &self.map[tower.tokens.clone()][self.range(tower, row)]
    }

    /// Returns the range of one example's tokens among those of its tower.
    fn range(&self, tower: &Tower, row: usize) -> Range<usize> {
        let offsets: &[u64] = bytemuck::cast_slice(&self.map[tower.offsets.clone()]);
        u64::from_le(offsets[row]) as usize..u64::from_le(offsets[row + 1]) as usize
    }

    /// Returns the labels at the positions of one example; `None` where the data has none.
    ///
    /// # Panics
    /// If `row` does not exist, like indexing a slice.
    pub fn dense(&self, row: usize) -> Option<DenseLabels<'_>> {
        let all = self.all_dense()?;
        let range = self.range(&self.towers[0], row);
        Some(DenseLabels {
            targets: &all.targets[range.clone()],
            groups: &all.groups[range],
        })
    }

    /// Returns the labels at the positions of all examples, one after the other.
    pub fn all_dense(&self) -> Option<DenseLabels<'_>> {
        let [targets, groups] = self.dense.clone()?;
        Some(DenseLabels {
            targets: &self.map[targets],
            groups: &self.map[groups],
        })
    }

    /// Returns the label of one example.
    ///
    /// # Panics
    /// If `row` does not exist, like indexing a slice.
    pub fn label(&self, row: usize) -> u8 {
        self.labels()[row]
    }

    /// Returns all labels, in row order.
    pub fn labels(&self) -> &[u8] {
        &self.map[self.labels.clone()]
    }

    /// Maps a file.
    ///
    /// # Errors
    /// The system refuses it, for example for lack of address space, which says nothing about the
    /// file.
    pub(crate) fn map(path: &Path) -> crate::Result<Mmap> {
        let file = files::open(path)?;
        // SAFETY: stored files are written once, in another folder, and only ever replaced by
        // renaming, so this program never changes or shortens a mapped file. If another program
        // does, the process gets a fault, as with any mapping.
        unsafe { Mmap::map(&file) }.map_err(io("map", path))
    }

    /// Checks everything about a mapped file that can be checked without reading its tokens.
    ///
    /// # Errors
    /// A description of the problem: not a safetensors file, other columns, offsets out of order or
    /// bounds, labels out of range.
    pub(crate) fn new(
        map: Mmap,
        towers: usize,
        classes: usize,
        dense: Option<&Dense>,
    ) -> Result<Split, String> {
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
        let labelled = match dense {
            Some(kind) => {
                let [targets, groups] = DENSE_COLUMNS.map(|name| column(name, Dtype::U8));
                let ranges = [targets?, groups?];
                check_dense(kind, &map, &ranges, columns[0].tokens.len())?;
                Some(ranges)
            }
            None => None,
        };
        Ok(Split {
            rows,
            labels,
            dense: labelled,
            towers: columns,
            map,
        })
    }
}

/// Checks that every token has a target and a group that are in range, or neither.
fn check_dense(
    kind: &Dense,
    map: &[u8],
    [targets, groups]: &[Range<usize>; 2],
    tokens: usize,
) -> Result<(), String> {
    for (name, range) in DENSE_COLUMNS.iter().zip([targets, groups]) {
        if range.len() != tokens {
            let found = range.len();
            return Err(format!(
                "column `{name}` has {} for {}",
                counted(found, "byte"),
                counted(tokens, "token")
            ));
        }
    }
    let labels = DenseLabels {
        targets: &map[targets.clone()],
        groups: &map[groups.clone()],
    };
    kind.problem(labels).map_or(Ok(()), Err)
}

/// Checks that offsets are aligned, one more than rows, start at 0, never fall, and end at the
/// number of tokens.
fn check_offsets(bytes: &[u8], rows: usize, tokens: usize) -> Result<(), String> {
    let offsets: &[u64] = bytemuck::try_cast_slice(bytes)
        .map_err(|_| "its offsets are not aligned to 8 bytes".to_owned())?;
    if offsets.len() != rows + 1 {
        return Err(format!(
            "{} for {}",
            counted(offsets.len(), "offset"),
            counted(rows, "row")
        ));
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;
    use std::sync::LazyLock;

    use proptest::prelude::*;
    use safetensors::Dtype;
    use safetensors::tensor::TensorView;

    use super::Split;
    use crate::{Dense, Key, Store, Task, tasks::Toy};

    static GOOD: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let root = tempfile::tempdir().unwrap();
        let store = Store::new(root.path());
        let mut key = Key::default_of(&Toy);
        for split in ["train", "val", "test"] {
            key.options[split] = 3.into();
        }
        store.open_or_build(&Toy, &key, None, &()).unwrap();
        fs::read(store.folder(&Toy, &key).join("train.safetensors")).unwrap()
    });

    fn open(bytes: &[u8]) -> Result<Split, String> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        let map = Split::map(file.path()).map_err(|error| error.to_string())?;
        Split::new(map, 1, Toy.info().classes, None)
    }

    #[test]
    fn bad_columns() {
        let good = GOOD.clone();
        assert_eq!(open(&good).unwrap().len(), 3);
        let header = u64::from_le_bytes(good[..8].try_into().unwrap()) as usize + 8;
        let change = |position: usize, value: u8| {
            let mut bytes = good.clone();
            bytes[position] = value;
            open(&bytes).unwrap_err()
        };
        // Offsets of four u64, then tokens, then three labels.
        assert_eq!(change(header, 1), "the offset of row 0 is out of order");
        assert_eq!(
            change(header + 8, 255),
            "the offset of row 2 is out of order"
        );
        assert_eq!(change(good.len() - 1, 4), "label 4 of 4 classes");
        assert!(change(header + 3 * 8, 255).starts_with("offsets end at 255, tokens at "));
        // The last token would belong to no row.
        let last = good[header + 3 * 8];
        assert!(change(header + 3 * 8, last - 1).starts_with("offsets end at "));
        assert!(change(7, 255).starts_with("not a store file"));
        assert!(open(&[]).is_err());
        let text = String::from_utf8_lossy(&good[8..header]).replace("offsets\":{", "offsetz\":{");
        let renamed = [&good[..8], text.as_bytes(), &good[header..]].concat();
        assert_eq!(open(&renamed).unwrap_err(), "it has no column `offsets`");
    }

    /// Opens a file of one row of four tokens, with labels at positions of two classes and groups.
    fn open_labelled(targets: &[u8], groups: &[u8]) -> Result<Split, String> {
        let offsets: Vec<u8> = [0_u64, 4].into_iter().flat_map(u64::to_le_bytes).collect();
        let columns = [
            ("offsets", Dtype::U64, 2, &offsets[..]),
            ("tokens", Dtype::U8, 4, &[0; 4]),
            ("labels", Dtype::U8, 1, &[0]),
            ("targets", Dtype::U8, targets.len(), targets),
            ("groups", Dtype::U8, groups.len(), groups),
        ];
        let views = columns.map(|(name, dtype, count, bytes)| {
            (name, TensorView::new(dtype, vec![count], bytes).unwrap())
        });
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(&safetensors::serialize(views, None).unwrap())
            .unwrap();
        let map = Split::map(file.path()).unwrap();
        Split::new(map, 1, 4, Some(&Dense::new(2, &["a", "b"])))
    }

    #[test]
    fn bad_labels_at_positions() {
        let split = open_labelled(&[0, 255, 1, 255], &[1, 255, 0, 255]).unwrap();
        let labels: Vec<_> = split.dense(0).unwrap().iter().collect();
        assert_eq!(labels, [(0, 0, 1), (2, 1, 0)]);
        for (targets, groups, told) in [
            (
                &[0; 3][..],
                &[0; 4][..],
                "`targets` has 3 bytes for 4 tokens",
            ),
            (&[0; 5], &[0; 4], "`targets` has 5 bytes for 4 tokens"),
            (&[0; 4], &[0; 3], "`groups` has 3 bytes for 4 tokens"),
            (&[0; 4], &[0; 5], "`groups` has 5 bytes for 4 tokens"),
            (
                &[0, 2, 0, 0],
                &[0; 4],
                "position 1 has class 2 of 2 in group 0 of 2",
            ),
            (
                &[0; 4],
                &[0, 0, 2, 0],
                "position 2 has class 0 of 2 in group 2 of 2",
            ),
            (&[0, 0, 0, 255], &[0; 4], "position 3 has class 255 of 2"),
            (
                &[0; 4],
                &[255, 0, 0, 0],
                "position 0 has class 0 of 2 in group 255",
            ),
        ] {
            let problem = open_labelled(targets, groups).unwrap_err();
            assert!(problem.contains(told), "{problem}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        /// Opening returns for any bytes, and an opened file can be read to the end.
        #[test]
        fn mutated_files(changes in prop::collection::vec((any::<usize>(), any::<u8>()), 1..8), cut in 0_usize..60) {
            let mut bytes = GOOD.clone();
            for (position, value) in changes {
                // Half of the changes hit the header.
                let limit = if value % 2 == 0 { bytes.len() } else { 300 };
                bytes[position % limit] = value;
            }
            bytes.truncate(bytes.len() - cut / 2);
            if let Ok(split) = open(&bytes) {
                for row in 0..split.len() {
                    prop_assert!(split.tokens(0, row).len() <= bytes.len());
                    prop_assert!(split.label(row) < 4);
                }
            }
        }
    }
}
