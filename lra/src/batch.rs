//! Conversion of the rows of a split into tensors: the one place where bytes become tensors.
//! Batches are a pure function of (seed, epoch), and are assembled ahead of time on a thread of
//! their own.

use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use candle_core::{Device, Result, Tensor};
use datasets::shuffle::{Order, permutation, sample};
use datasets::{Source, Split, Splits, TaskInfo};
use models::rng::Stream;
use models::{DenseLabels, Inputs, Tokens};

/// Conversion of rows into ids, the same for every batch of a run.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Sequences per example.
    pub towers: usize,
    /// Length in tokens that every sequence is padded or cut to; see `bucket`.
    pub max_length: usize,
    /// Number added to a stored byte to make its id. If it is 1, id 0 is padding and masks exist.
    pub first_id: u32,
    /// Number of batches whose rows are sorted by length before they are cut, each batch then
    /// padded to its own longest sequence; 0 sorts none.
    pub bucket: usize,
    /// Order of the positions of every row; `None` for that of the data.
    pub order: Option<Order>,
    /// True if rows may be in the order of their classes: those of files of your own.
    pub in_file_order: bool,
}

impl Layout {
    /// Returns the layout of a task at a given length.
    pub fn new(info: &TaskInfo, max_length: usize) -> Self {
        Layout {
            towers: info.towers,
            max_length,
            first_id: info.first_id,
            bucket: 0,
            order: None,
            in_file_order: info.sources == [Source::Folder],
        }
    }

    /// Returns this layout with positions in another order.
    pub fn ordered(self, order: Option<Order>) -> Self {
        Layout { order, ..self }
    }

    /// Returns this layout with rows sorted by length over `bucket` batches at a time.
    pub fn bucketed(self, bucket: usize) -> Self {
        Layout { bucket, ..self }
    }

    /// Returns `rows` rows of a split in the order of scoring: the first, or a fixed sample if
    /// files of your own may have them in the order of their classes.
    pub fn scored(&self, split: &Split, rows: usize) -> Vec<usize> {
        let mut order: Vec<usize> = match self.in_file_order && rows < split.len() {
            true => sample(split.len(), rows),
            false => (0..rows).collect(),
        };
        // Rows that training does not sort are scored in batches of mixed lengths too, because some
        // models compute with the padded length.
        if self.bucket > 1 {
            order.sort_by_key(|row| self.length(split, *row));
        }
        order
    }

    /// Returns the number of tokens of the longest sequence of a row.
    fn length(&self, split: &Split, row: usize) -> usize {
        let towers = (0..self.towers).map(|tower| split.tokens(tower, row).len());
        towers.max().unwrap_or(0).clamp(1, self.max_length)
    }

    /// Returns whether sequences can be shorter than `max_length`.
    pub fn pads(&self) -> bool {
        self.first_id > 0
    }
}

/// A batch in host memory.
#[derive(Clone)]
pub struct HostBatch {
    ids: Vec<Vec<u32>>,
    masks: Vec<Vec<f32>>,
    labels: Vec<u32>,
    /// Labels of single positions, if the data has any.
    dense: Option<Positions>,
    layout: Layout,
}

/// Labels of single positions, with the group of each.
#[derive(Clone, Default)]
pub struct Positions {
    /// Rows, positions and classes.
    pub labels: DenseLabels,
    /// Groups under which scores are reported.
    pub groups: Vec<u8>,
}

/// Part of a batch on the device.
pub struct DeviceBatch {
    /// The model's inputs.
    pub inputs: Inputs,
    /// (B) class indices, u32.
    pub labels: Tensor,
    /// Labels of single positions, in host memory, if the data has any.
    pub dense: Option<Positions>,
}

impl HostBatch {
    /// Assembles a batch of the given rows of a split.
    pub fn assemble(
        split: &Split,
        rows: impl ExactSizeIterator<Item = usize> + Clone,
        layout: Layout,
    ) -> Self {
        let longest = || rows.clone().map(|row| layout.length(split, row)).max();
        let max_length = match layout.bucket {
            0 => layout.max_length,
            _ => longest().unwrap_or(layout.max_length),
        };
        let layout = Layout {
            max_length,
            ..layout
        };
        let size = rows.len() * layout.max_length;
        let mut batch = HostBatch {
            ids: Vec::new(),
            masks: Vec::new(),
            labels: Vec::new(),
            dense: split.all_dense().map(|_| Positions::default()),
            layout,
        };
        let order = layout.order.map(Order::draw);
        for tower in 0..layout.towers {
            let mut ids = Vec::with_capacity(size);
            let mut mask = Vec::with_capacity(if layout.pads() { size } else { 0 });
            for row in rows.clone() {
                let tokens = split.tokens(tower, row);
                let kept = tokens.len().min(layout.max_length);
                let id = |symbol: &u8| u32::from(*symbol) + layout.first_id;
                match &order {
                    None => ids.extend(tokens[..kept].iter().map(id)),
                    Some(order) => ids.extend(order.of_row(kept).map(|at| id(&tokens[at]))),
                }
                ids.resize(ids.len() + layout.max_length - kept, 0);
                if layout.pads() {
                    mask.resize(mask.len() + kept, 1.0);
                    mask.resize(mask.len() + layout.max_length - kept, 0.0);
                }
            }
            batch.ids.push(ids);
            batch.masks.push(mask);
        }
        if let Some(dense) = &mut batch.dense {
            for (index, row) in rows.clone().enumerate() {
                let kept = split.tokens(0, row).len().min(layout.max_length);
                // The new position of each position.
                let places = order.as_ref().map(|order| {
                    let mut places = vec![0; kept];
                    for (place, at) in order.of_row(kept).enumerate() {
                        places[at] = place;
                    }
                    places
                });
                let found = split.dense(row);
                let found = found.into_iter().flat_map(|labels| labels.iter());
                for (position, target, group) in found.filter(|it| it.0 < kept) {
                    let place = places.as_ref().map_or(position, |places| places[position]);
                    dense.labels.rows.push(index as u32);
                    dense.labels.positions.push(place as u32);
                    dense.labels.labels.push(u32::from(target));
                    dense.groups.push(group);
                }
            }
        }
        batch.labels = rows.map(|row| u32::from(split.label(row))).collect();
        batch
    }

    /// Returns the number of positions of each sequence, padding included.
    pub fn length(&self) -> usize {
        self.layout.max_length
    }

    /// Returns sequences of full length drawn from `symbols` symbols, with random labels, since the
    /// cost of a training step does not depend on the content.
    pub fn random(
        layout: Layout,
        rows: usize,
        symbols: usize,
        classes: usize,
        draws: Stream,
    ) -> Self {
        let length = layout.max_length;
        let width = layout.towers * length + 1;
        let below =
            |share: f64, count: usize| ((share * count as f64) as u32).min(count as u32 - 1);
        let drawn = draws.uniform(rows, width); // (B, towers · L + 1), the last one for the label
        let examples = || drawn.chunks_exact(width);
        let ids = (0..layout.towers).map(|tower| {
            let of_tower = tower * length..(tower + 1) * length;
            let shares = examples().flat_map(|example| &example[of_tower.clone()]);
            shares
                .map(|share| below(*share, symbols) + layout.first_id)
                .collect()
        });
        let mask = vec![1.0; if layout.pads() { rows * length } else { 0 }];
        HostBatch {
            ids: ids.collect(),
            masks: vec![mask; layout.towers],
            labels: examples()
                .map(|example| below(example[width - 1], classes))
                .collect(),
            dense: None,
            layout,
        }
    }

    /// Returns the number of examples.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Copies some of the examples to the device.
    pub fn to_device(&self, rows: Range<usize>, device: &Device) -> Result<DeviceBatch> {
        let length = self.layout.max_length;
        let (count, cells) = (rows.len(), rows.start * length..rows.end * length);
        let towers = (0..self.layout.towers)
            .map(|tower| {
                let ids =
                    Tensor::from_slice(&self.ids[tower][cells.clone()], (count, length), device)?;
                let mask = match self.layout.pads() {
                    true => &self.masks[tower][cells.clone()],
                    false => &[],
                };
                // Without padding a mask changes nothing, but costs some models time.
                let padded = mask.contains(&0.0);
                let mask = padded.then(|| Tensor::from_slice(mask, (count, length), device));
                let mask = mask.transpose()?;
                Ok(Tokens { ids, mask })
            })
            .collect::<Result<_>>()?;
        let dense = self.dense.as_ref().map(|dense| part(dense, rows.clone()));
        let labels = Tensor::from_slice(&self.labels[rows], count, device)?;
        Ok(DeviceBatch {
            inputs: Inputs { towers },
            labels,
            dense,
        })
    }
}

/// Returns the labels at positions of some rows of a batch, with rows counted from the first of
/// them.
fn part(dense: &Positions, rows: Range<usize>) -> Positions {
    let Positions { labels, groups } = dense;
    let begin = |row: usize| labels.rows.partition_point(|it| (*it as usize) < row);
    let part = begin(rows.start)..begin(rows.end);
    let of_rows = labels.rows[part.clone()].iter();
    Positions {
        labels: DenseLabels {
            rows: of_rows.map(|row| row - rows.start as u32).collect(),
            positions: labels.positions[part.clone()].to_vec(),
            labels: labels.labels[part.clone()].to_vec(),
        },
        groups: groups[part].to_vec(),
    }
}

/// Cuts the rows of an epoch, in `order`, into batches of `batch`. Of every `bucket` batches, the
/// shortest rows make one and the longest another; their order is drawn at random. A bucket of 0 or
/// 1 leaves the batches as they are.
fn cut(
    mut order: Vec<usize>,
    length: impl Fn(usize) -> usize,
    (batch, bucket): (usize, usize),
    (seed, epoch): (u64, u64),
) -> Vec<Vec<usize>> {
    if bucket <= 1 {
        return order.chunks(batch).map(<[usize]>::to_vec).collect();
    }
    let mut batches = Vec::with_capacity(order.len().div_ceil(batch));
    for (index, rows) in order.chunks_mut(batch * bucket).enumerate() {
        rows.sort_by_key(|row| length(*row));
        let sorted: Vec<&[usize]> = rows.chunks(batch).collect();
        let seed = seed.wrapping_add(index as u64 + 1);
        let turns = permutation(sorted.len(), seed, epoch);
        batches.extend(turns.iter().map(|turn| sorted[*turn as usize].to_vec()));
    }
    batches
}

/// The training batches from a given step on, prepared ahead by a thread that ends when the feed is
/// dropped.
pub struct Prefetcher {
    batches: Receiver<HostBatch>,
}

/// Number of batches kept ready.
const AHEAD: usize = 2;

impl Prefetcher {
    /// Starts with the batch of update `first_step` (counted from 0), in batches of `batch`
    /// examples. The last batch of an epoch may be smaller; the next epoch starts with the next
    /// batch.
    pub fn start(
        splits: Arc<Splits>,
        layout: Layout,
        seed: u64,
        batch: usize,
        first_step: usize,
    ) -> std::io::Result<Self> {
        let (sender, batches) = sync_channel(AHEAD);
        thread::Builder::new()
            .name("batches".to_owned())
            .spawn(move || {
                let rows = splits.train.len();
                let per_epoch = rows.div_ceil(batch);
                let mut skip = first_step % per_epoch;
                for epoch in (first_step / per_epoch) as u64.. {
                    let order = permutation(rows, seed, epoch);
                    let order = order.iter().map(|row| *row as usize).collect();
                    let length = |row| layout.length(&splits.train, row);
                    let sizes = (batch, layout.bucket);
                    let order = cut(order, length, sizes, (seed, epoch));
                    for chunk in order.iter().skip(skip) {
                        let rows = chunk.iter().copied();
                        // A closed channel means that training is over.
                        if sender
                            .send(HostBatch::assemble(&splits.train, rows, layout))
                            .is_err()
                        {
                            return;
                        }
                    }
                    skip = 0;
                }
            })?;
        Ok(Prefetcher { batches })
    }

    /// Returns the next batch; `None` only if the thread was lost.
    pub fn next(&self) -> Option<HostBatch> {
        self.batches.recv().ok()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::{HostBatch, Layout, Prefetcher, Splits};

    /// Checks that labels stay with their tokens, and padding at the end, in every batch.
    #[test]
    fn a_permuted_row_has_the_same_labelled_tokens_in_another_order() {
        use datasets::shuffle::Order;
        use datasets::tasks::probes::MQAR;
        use datasets::{Key, Store, Task};

        let root = tempfile::tempdir().unwrap();
        let mut key = Key::default_of(&MQAR);
        for split in ["train", "val", "test"] {
            key.options[split] = 6.into();
        }
        let splits = Store::new(root.path()).open_or_build(&MQAR, &key, None, &());
        let split = &splits.unwrap().train;
        let plain = Layout::new(MQAR.info(), 256);
        let permuted = plain.ordered(Order::new(3, 256));
        let [one, other] = [plain, permuted].map(|it| HostBatch::assemble(split, 0..6, it));
        let labelled = |batch: &HostBatch| {
            let dense = batch.dense.as_ref().unwrap();
            let places = dense.labels.rows.iter().zip(&dense.labels.positions);
            let ids = places.map(|(row, at)| batch.ids[0][(row * 256 + at) as usize]);
            let of_label = ids.zip(&dense.labels.labels).zip(&dense.groups);
            of_label
                .map(|((id, label), group)| (id, *label, *group))
                .collect::<Vec<_>>()
        };
        assert_eq!(labelled(&one), labelled(&other));
        assert!(
            labelled(&one).iter().all(|(id, ..)| (1..=128).contains(id)),
            "keys are asked"
        );
        assert_eq!(one.masks, other.masks);
        for row in 0..6 {
            let of = |batch: &HostBatch| batch.ids[0][256 * row..256 * (row + 1)].to_vec();
            let (mut before, mut after) = (of(&one), of(&other));
            assert_ne!(before, after);
            before.sort_unstable();
            after.sort_unstable();
            assert_eq!(before, after);
        }
        // The first rows are scored, of files of your own a sample.
        let of_files = Layout {
            in_file_order: true,
            ..plain
        };
        assert_eq!(plain.scored(split, 3), [0, 1, 2]);
        assert_ne!(of_files.scored(split, 3), [0, 1, 2]);
        assert_eq!(of_files.scored(split, split.len()).len(), split.len());
        // Bucketed, row 3 of 64 tokens is padded to its own length alone.
        let alone = HostBatch::assemble(split, 3..4, permuted.bucketed(2));
        assert_eq!(alone.ids[0], other.ids[0][3 * 256..3 * 256 + 64]);
    }

    static PAIRS: datasets::TaskInfo = datasets::TaskInfo {
        name: "pairs",
        title: "Pairs",
        summary: "two sequences",
        paper: "none",
        version: 1,
        vocabulary: 11,
        first_id: 1,
        classes: 2,
        towers: 2,
        mask_ratio: 0.15,
        sources: &[datasets::Source::Synthetic],
        probe: false,
    };

    /// Two rows of two sequences: the second one of the first row is the longer one, and the first
    /// one of the second row.
    struct Pairs;

    impl datasets::Task for Pairs {
        fn info(&self) -> &'static datasets::TaskInfo {
            &PAIRS
        }

        fn defaults(&self) -> serde_json::Value {
            serde_json::json!({})
        }

        fn shape(&self, _: &serde_json::Value) -> datasets::Result<datasets::Shape> {
            Ok(datasets::Shape::new(&PAIRS, 8, []))
        }

        fn build(
            &self,
            _: &datasets::Request<'_>,
            writer: &mut datasets::SplitWriter,
        ) -> datasets::Result<()> {
            for split in datasets::SplitName::ALL {
                writer.row(split, &[&[1, 2], &[3; 5]], 0)?;
                writer.row(split, &[&[4; 4], &[5]], 1)?;
            }
            Ok(())
        }

        fn to_text(&self, _: &[&[u8]], _: u8) -> String {
            String::new()
        }
    }

    #[test]
    fn a_batch_is_as_long_as_the_longest_sequence_of_either_tower() {
        use datasets::{Key, Store};
        let root = tempfile::tempdir().unwrap();
        let key = Key::default_of(&Pairs);
        let splits = Store::new(root.path()).open_or_build(&Pairs, &key, None, &());
        let split = &splits.unwrap().train;
        let layout = Layout::new(&PAIRS, 8).bucketed(2);
        for (row, length) in [(0, 5), (1, 4)] {
            let batch = HostBatch::assemble(split, row..row + 1, layout);
            assert_eq!(batch.length(), length);
            assert!(batch.ids.iter().all(|ids| ids.len() == length));
        }
        assert_eq!(layout.scored(split, 2), [1, 0], "the shorter row first");
    }

    #[test]
    fn rows_are_cut_and_padded_at_their_end() {
        use candle_core::Device;
        use datasets::{Key, Store};
        let root = tempfile::tempdir().unwrap();
        let key = Key::default_of(&Pairs);
        let splits = Store::new(root.path()).open_or_build(&Pairs, &key, None, &());
        let split = &splits.unwrap().train;
        let batch = HostBatch::assemble(split, [1, 0, 1].into_iter(), Layout::new(&PAIRS, 4));
        assert_eq!(batch.ids[0], [5, 5, 5, 5, 2, 3, 0, 0, 5, 5, 5, 5]);
        assert_eq!(batch.ids[1], [6, 0, 0, 0, 4, 4, 4, 4, 6, 0, 0, 0]);
        let [full, half, one] = [[1.0; 4], [1.0, 1.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]];
        assert_eq!(batch.masks[0], [full, half, full].concat());
        assert_eq!(batch.masks[1], [one, full, one].concat());
        assert_eq!(batch.labels, [1, 0, 1]);

        // A part has its rows alone, and a mask where a row is padded.
        let device = batch.to_device(1..3, &Device::Cpu).unwrap();
        assert_eq!(device.labels.to_vec1::<u32>().unwrap(), [0, 1]);
        let [first, second] = &device.inputs.towers[..] else {
            panic!("two towers")
        };
        let ids = [&first.ids, &second.ids].map(|it| it.to_vec2::<u32>().unwrap());
        assert_eq!(ids[0], [[2, 3, 0, 0], [5, 5, 5, 5]]);
        assert_eq!(ids[1], [[4, 4, 4, 4], [6, 0, 0, 0]]);
        let mask = second.mask.as_ref().unwrap().to_vec2::<f32>().unwrap();
        assert_eq!(mask, [full, one]);
        let whole = batch.to_device(0..1, &Device::Cpu).unwrap();
        assert!(whole.inputs.towers[0].mask.is_none());
        assert!(whole.inputs.towers[1].mask.is_some());
    }

    #[test]
    fn a_part_of_a_batch_has_the_labelled_positions_of_its_rows() {
        use super::{DenseLabels, Positions, part};
        let whole = Positions {
            labels: DenseLabels {
                rows: vec![0, 0, 2, 3, 3, 3],
                positions: vec![4, 9, 1, 0, 5, 7],
                labels: vec![10, 11, 12, 13, 14, 15],
            },
            groups: vec![0, 1, 0, 2, 1, 0],
        };
        let of = |rows| {
            let part = part(&whole, rows);
            let DenseLabels {
                rows,
                positions,
                labels,
            } = part.labels;
            (rows, positions, labels, part.groups)
        };
        assert_eq!(of(0..2), (vec![0, 0], vec![4, 9], vec![10, 11], vec![0, 1]));
        assert_eq!(
            of(2..4),
            (
                vec![0, 1, 1, 1],
                vec![1, 0, 5, 7],
                vec![12, 13, 14, 15],
                vec![0, 2, 1, 0]
            )
        );
        assert_eq!(of(1..2), (vec![], vec![], vec![], vec![]));
    }

    #[test]
    fn buckets_hold_every_row_once_and_pad_little() {
        // 53 rows of 1 to 100 tokens.
        let length = |row: usize| 1 + row * 37 % 100;
        let order: Vec<usize> = datasets::shuffle::permutation(53, 7, 0)
            .iter()
            .map(|row| *row as usize)
            .collect();
        let padded = |bucket: usize| {
            let all = super::cut(order.clone(), length, (4, bucket), (7, 0));
            assert_eq!(all.len(), 14);
            assert!(all.iter().filter(|rows| rows.len() < 4).count() == 1);
            let mut rows = all.concat();
            rows.sort_unstable();
            assert_eq!(rows, (0..53).collect::<Vec<_>>());
            let longest = |rows: &Vec<usize>| rows.iter().map(|row| length(*row)).max();
            let sizes = all.iter().map(|rows| rows.len() * longest(rows).unwrap());
            (sizes.sum::<usize>(), all)
        };
        let (plain, as_drawn) = padded(1);
        assert_eq!(as_drawn.concat(), order);
        let (sorted, all) = padded(14);
        let tokens: usize = (0..53).map(length).sum();
        assert!(
            sorted < tokens * 12 / 10 && plain > tokens * 13 / 10,
            "{plain} {sorted} {tokens}"
        );
        assert_eq!(padded(14).1, all, "a function of seed and epoch");
        assert!(
            !all.is_sorted_by_key(|rows| length(rows[0])),
            "in an order that is drawn"
        );
    }

    fn toy(train: u64) -> Arc<Splits> {
        use datasets::{Key, Store};
        let toy = datasets::tasks::find("toy").unwrap();
        let root = tempfile::tempdir().unwrap();
        let mut key = Key::default_of(toy);
        key.options["train"] = train.into();
        let splits = Store::new(root.path()).open_or_build(toy, &key, None, &());
        Arc::new(splits.unwrap())
    }

    /// Four batches of an epoch; the last one has two rows.
    #[test]
    fn batches_from_any_step_on_are_those_from_the_first() {
        let splits = toy(20);
        let info = datasets::tasks::find("toy").unwrap().info();
        for bucket in [0, 1, 3] {
            let layout = Layout::new(info, 32).bucketed(bucket);
            let batches = |seed, first, count: usize| {
                let splits = Arc::clone(&splits);
                let prefetcher = Prefetcher::start(splits, layout, seed, 6, first).unwrap();
                let batches = (0..count).map(|_| prefetcher.next().unwrap());
                batches.map(|it| (it.ids, it.labels)).collect::<Vec<_>>()
            };
            let all = batches(5, 0, 13);
            for first in [1, 3, 4, 7, 8, 11] {
                assert_eq!(
                    batches(5, first, 2),
                    all[first..first + 2],
                    "{bucket} {first}"
                );
            }
            for epoch in all.chunks(4).take(3) {
                let rows: usize = epoch.iter().map(|(_, labels)| labels.len()).sum();
                assert_eq!(rows, 20);
            }
            assert_ne!(all[..4], all[4..8], "another order in each epoch");
            assert_ne!(all[..4], batches(6, 0, 4), "and for each seed");
        }
    }

    #[test]
    fn random_batches_have_every_symbol_and_class_and_no_padding() {
        use models::RngKey;
        use models::rng::StreamKey;
        let info = datasets::tasks::find("toy").unwrap().info();
        let draws = RngKey::new(0, 0, 0).shared(StreamKey::new("bench"));
        let batch = HostBatch::random(Layout::new(info, 50), 40, 3, 4, draws);
        let mut symbols = batch.ids[0].clone();
        assert_eq!(symbols.len(), 40 * 50);
        symbols.sort_unstable();
        symbols.dedup();
        assert_eq!(symbols, [1, 2, 3], "id 0 is padding");
        assert!(batch.masks[0].iter().all(|it| *it == 1.0));
        let mut classes = batch.labels.clone();
        classes.sort_unstable();
        classes.dedup();
        assert_eq!(classes, [0, 1, 2, 3]);
    }

    /// Two windows of equal lengths have their batches in orders of their own.
    #[test]
    fn each_window_of_a_bucket_is_drawn_for_itself() {
        let order: Vec<usize> = (0..64).collect();
        let batches = super::cut(order, |row| row % 32, (2, 16), (7, 0));
        let place = |batch: &Vec<usize>| batch[0] % 32;
        let [one, other] =
            [0..16, 16..32].map(|window| batches[window].iter().map(place).collect::<Vec<usize>>());
        assert_ne!(one, other);
    }
}
