//! Counter-based random streams: a number is a pure function of (seed, step, path, row, element).
//!
//! No stream has a state, so results depend neither on threads nor on device nor on the order of
//! calls. A *row* is one example of the batch: a micro-batch that starts at row `first_row` of its
//! batch draws exactly the numbers of those rows in the whole batch.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, PoisonError},
};

use candle_core::{DType, Device, Shape, Tensor, cpu::erf::erf_inv};
use lra_cpu::philox;
use rayon::prelude::*;
use sha2::{Digest, Sha256};

use crate::{Error, Result};

/// Words that one thread draws at a time; a multiple of [`philox::GROUP`].
const SEGMENT: usize = 8192;
/// The counter's last word for parameters; a [`RngKey`] never reaches it.
const PARAMETERS: u32 = u32::MAX;

/// Name of a random stream: the first eight bytes of the SHA-256 of a path such as
/// `encoder.0.drop`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamKey(u64);

impl StreamKey {
    /// Returns the key of the stream for the layer at `path`.
    #[must_use]
    pub fn new(path: &str) -> Self {
        let digest = Sha256::digest(path.as_bytes());
        let mut first = [0; 8];
        first.copy_from_slice(&digest[..8]);
        Self(u64::from_le_bytes(first))
    }

    /// Returns the generator's key for this stream under `seed`.
    fn with_seed(self, seed: u64) -> [u32; 2] {
        // Multiplication by an odd number and the shifts are one-to-one: no two seeds share a key.
        let mut mixed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^= mixed >> 31;
        let key = mixed ^ self.0;
        [key as u32, (key >> 32) as u32]
    }
}

/// Key of a forward pass: everything that its random numbers depend on, except the layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RngKey {
    seed: u64,
    step: u64,
    first_row: u64,
    branch: u16,
}

impl RngKey {
    /// Returns the key of a batch in a run with `seed`, at optimizer step `step`, which is below
    /// 2^48. The batch's first example is row `first_row` of the whole batch of the step, below
    /// 2^32. It is 0 unless this is a later micro-batch.
    #[must_use]
    pub fn new(seed: u64, step: u64, first_row: u64) -> Self {
        Self {
            seed,
            step,
            first_row,
            branch: 0,
        }
    }

    /// Returns the run's seed.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the optimizer step.
    #[must_use]
    pub fn step(&self) -> u64 {
        self.step
    }

    /// Returns this key at optimizer step `step`. Numbers that are drawn anew every n steps use a
    /// step rounded to a multiple of n.
    #[must_use]
    pub(crate) fn at_step(&self, step: u64) -> Self {
        Self { step, ..*self }
    }

    /// Returns this key with its branch replaced by `branch`, below 65,535. Branches give a layer
    /// that runs more than once in a pass (second tower, shared block) independent numbers.
    ///
    /// Unlike `fold_in` of JAX, two calls do not compose: the last one decides.
    #[must_use]
    pub fn with_branch(&self, branch: u16) -> Self {
        Self { branch, ..*self }
    }

    /// Returns the key for a block that has already run `index` times in its tower, so that it
    /// draws other numbers each time.
    ///
    /// # Panics
    /// If `index` is 8,192 or more. Models run a block at most 1,000 times.
    #[must_use]
    pub fn repetition(&self, index: usize) -> Self {
        assert!(index < 8_192, "a block ran {index} times");
        // There are two towers at most.
        self.with_branch(self.branch + 2 * index as u16)
    }

    /// Returns the key for the way back of a layer that also runs from the last position to the
    /// first, so that it draws other numbers there.
    #[must_use]
    pub(crate) fn way_back(&self) -> Self {
        // Repetitions take the branches below.
        self.with_branch(self.branch | 1 << 14)
    }

    /// Returns this key for a batch in which each example is cut into `count` consecutive rows.
    #[must_use]
    pub(crate) fn of_parts(&self, count: usize) -> Self {
        Self {
            first_row: self.first_row * count as u64,
            ..*self
        }
    }

    /// Returns the random stream called `key` with one row of numbers per example. It is for
    /// tensors whose first dimension is the batch.
    #[must_use]
    pub fn per_example(&self, key: StreamKey) -> Stream {
        Stream {
            key: key.with_seed(self.seed),
            first_row: self.first_row as u32,
            tail: [
                self.step as u32,
                (self.step >> 32) as u32 & 0xFFFF | u32::from(self.branch) << 16,
            ],
        }
    }

    /// Returns the random stream called `key` that all examples and towers share. It is for random
    /// features, rotations and choices of blocks.
    #[must_use]
    pub fn shared(&self, key: StreamKey) -> Stream {
        Self {
            first_row: 0,
            branch: 0,
            ..*self
        }
        .per_example(key)
    }
}

/// Random tensors from elsewhere, by the names under which mixers ask for them: for runs that must
/// use the draws of another implementation.
#[derive(Default)]
pub(crate) struct FixedDraws {
    tensors: BTreeMap<String, Tensor>,
    names_read: Mutex<BTreeSet<String>>,
}

impl FixedDraws {
    /// Builds the draws from tensors by name.
    #[must_use]
    pub fn new(tensors: BTreeMap<String, Tensor>) -> Self {
        Self {
            tensors,
            names_read: Mutex::default(),
        }
    }

    /// Returns the random tensor called `name`, if there is one.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Tensor> {
        let mut read = self
            .names_read
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        read.insert(name.to_owned());
        self.tensors.get(name)
    }

    /// Returns the names that were never read.
    #[must_use]
    pub fn unread(&self) -> Vec<String> {
        let read = self
            .names_read
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let names = self.tensors.keys();
        names
            .filter(|name| !read.contains(*name))
            .cloned()
            .collect()
    }
}

/// Stream of random numbers in rows. It returns the same numbers each time. In its methods, `width`
/// is the number of elements of a row.
#[derive(Clone, Copy, Debug)]
pub struct Stream {
    key: [u32; 2],
    first_row: u32,
    tail: [u32; 2],
}

impl Stream {
    /// Returns the stream that initialises the parameter at `path`.
    pub(crate) fn of_parameter(seed: u64, path: &str) -> Self {
        Self {
            key: StreamKey::new(path).with_seed(seed),
            first_row: 0,
            tail: [0, PARAMETERS],
        }
    }

    /// Returns the key of the Philox generator behind this stream, for kernels that draw in place.
    #[must_use]
    pub fn key(&self) -> [u32; 2] {
        self.key
    }

    /// Returns the last three words of the Philox counter for row `row`. The layout of a row is in
    /// [`lra_cpu::philox`].
    #[must_use]
    pub fn counter(&self, row: usize) -> [u32; 3] {
        [
            self.first_row.wrapping_add(row as u32),
            self.tail[0],
            self.tail[1],
        ]
    }

    /// Returns `rows * width` uniform numbers in (0, 1), row by row.
    #[must_use]
    pub fn uniform(&self, rows: usize, width: usize) -> Vec<f64> {
        self.map(rows, width, unit)
    }

    /// Returns `rows * width` standard normal numbers, row by row. They are the inverse of the
    /// distribution function at uniform numbers of 32 bits, so they lie within ±6.4.
    #[must_use]
    pub fn normal(&self, rows: usize, width: usize) -> Vec<f64> {
        self.map(rows, width, |word| {
            std::f64::consts::SQRT_2 * erf_inv(2.0 * unit(word) - 1.0)
        })
    }

    /// Returns normal numbers of unit variance that were cut at two standard deviations *before*
    /// being scaled to it.
    pub(crate) fn truncated_normal(&self, rows: usize, width: usize) -> Vec<f64> {
        // erf(2 / sqrt 2): the part of a normal distribution within two standard deviations.
        const WITHIN: f64 = 0.954_499_736_103_641_6;
        // Standard deviation of a standard normal cut at +-2.
        const DEVIATION: f64 = 0.879_625_661_034_239_8;
        self.map(rows, width, |word| {
            std::f64::consts::SQRT_2 * erf_inv(WITHIN * (2.0 * unit(word) - 1.0)) / DEVIATION
        })
    }

    /// Returns a dropout mask of `rows * width` numbers, row by row: 0 with probability `rate`,
    /// else `1 / (1 - rate)`.
    #[must_use]
    pub fn mask(&self, rows: usize, width: usize, rate: f64) -> Vec<f32> {
        let (threshold, keep) = mask_constants(rate);
        self.map(
            rows,
            width,
            |word| if word < threshold { 0.0 } else { keep },
        )
    }

    /// Returns [`Stream::mask`] as a tensor of `shape`, whose first dimension is the batch.
    ///
    /// # Errors
    /// If the device refuses the tensor, or `shape` has no dimension.
    pub fn mask_tensor(
        &self,
        shape: &Shape,
        rate: f64,
        dtype: DType,
        device: &Device,
    ) -> Result<Tensor> {
        let rows = *shape
            .dims()
            .first()
            .ok_or_else(|| Error::Input("a dropout mask needs a batch dimension".to_owned()))?;
        let width = shape.elem_count().checked_div(rows).unwrap_or(0);
        let mask = self.mask(rows, width, rate);
        Ok(Tensor::from_vec(mask, shape, device)?.to_dtype(dtype)?)
    }

    fn map<T: Copy + Default + Send>(
        &self,
        rows: usize,
        width: usize,
        convert: impl Fn(u32) -> T + Sync,
    ) -> Vec<T> {
        let mut values = vec![T::default(); rows * width];
        let draw = |row: usize, first: usize, out: &mut [T]| {
            let mut words = [0; 1024];
            for (index, out) in out.chunks_mut(words.len()).enumerate() {
                let first = first + index * words.len();
                let words = &mut words[..out.len()];
                philox::fill(self.key, self.counter(row), first, words);
                for (value, &mut word) in out.iter_mut().zip(words) {
                    *value = convert(word);
                }
            }
        };
        if width > 0 {
            values
                .par_chunks_mut(width)
                .with_min_len(SEGMENT.div_ceil(width))
                .enumerate()
                .for_each(|(row, out)| {
                    out.par_chunks_mut(SEGMENT)
                        .enumerate()
                        .for_each(|(segment, out)| draw(row, segment * SEGMENT, out));
                });
        }
        values
    }
}

/// Returns the two constants of a dropout mask: random words below the first are dropped, the
/// others become the second.
#[must_use]
pub(crate) fn mask_constants(rate: f64) -> (u32, f32) {
    // 2^32 * rate; a rate in [0, 1) stays below 2^32.
    ((rate * 4_294_967_296.0) as u32, (1.0 / (1.0 - rate)) as f32)
}

/// Returns the middle of the `word`-th of 2^32 equal parts of (0, 1).
fn unit(word: u32) -> f64 {
    (f64::from(word) + 0.5) / 4_294_967_296.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(step: u64, first_row: u64) -> Stream {
        RngKey::new(11, step, first_row).per_example(StreamKey::new("encoder.0.drop"))
    }

    #[test]
    fn a_later_micro_batch_draws_the_rows_of_the_whole() {
        let width = 3 * SEGMENT + 77;
        let whole = stream(5, 0).uniform(4, width);
        assert_eq!(stream(5, 2).uniform(2, width), whole[2 * width..]);
        assert_ne!(stream(6, 0).uniform(4, width), whole);
    }

    #[test]
    fn parts_of_examples_draw_the_same_in_a_later_micro_batch() {
        let parts = |first_row: u64, rows| {
            let rng = RngKey::new(11, 5, first_row).of_parts(3);
            rng.per_example(StreamKey::new("drop")).uniform(rows, 8)
        };
        assert_eq!(parts(2, 6), parts(0, 12)[6 * 8..]);
    }

    #[test]
    fn rows_steps_branches_seeds_and_paths_differ() {
        let key = StreamKey::new("a");
        let rng = RngKey::new(1, 2, 0);
        let base = rng.per_example(key).uniform(2, 64);
        assert_ne!(base[..64], base[64..]);
        for other in [
            rng.with_branch(1).per_example(key),
            rng.at_step(3).per_example(key),
            rng.at_step(2 + (1 << 32)).per_example(key),
            RngKey::new(2, 2, 0).per_example(key),
            rng.per_example(StreamKey::new("b")),
        ] {
            assert_ne!(other.uniform(2, 64), base);
        }
        assert_eq!(
            rng.with_branch(1).shared(key).uniform(1, 64),
            rng.shared(key).uniform(1, 64)
        );
    }

    #[test]
    fn towers_repetitions_and_ways_back_differ() {
        let rng = RngKey::new(1, 2, 0);
        let keys = (0..8).map(|index| rng.with_branch(index % 2).repetition(index as usize / 2));
        let keys: Vec<RngKey> = keys.flat_map(|key| [key, key.way_back()]).collect();
        for (place, key) in keys.iter().enumerate() {
            assert!(!keys[..place].contains(key), "{key:?} in {keys:?}");
        }
    }

    /// A uniform number of 0 would be an infinite normal one.
    #[test]
    fn uniform_numbers_lie_in_the_middle_of_their_parts() {
        let (least, most) = (unit(0), unit(u32::MAX));
        assert!(least > 0.0 && least == 1.0 - most, "{least} {most}");
    }

    #[test]
    fn moments_are_those_of_the_distributions() {
        // 400,000 numbers: three standard errors of the mean of a unit variance are 0.0047.
        let (rows, width) = (4, 100_000);
        let moments = |values: &[f64]| {
            let n = values.len() as f64;
            let mean = values.iter().sum::<f64>() / n;
            let variance = values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
            (mean, variance)
        };
        let stream = stream(0, 0);
        let (mean, variance) = moments(&stream.uniform(rows, width));
        assert!((mean - 0.5).abs() < 0.002 && (variance - 1.0 / 12.0).abs() < 0.001);
        let normal = stream.normal(rows, width);
        let (mean, variance) = moments(&normal);
        assert!(mean.abs() < 0.005 && (variance - 1.0).abs() < 0.01);
        let beyond_two = normal.iter().filter(|z| z.abs() > 2.0).count() as f64;
        assert!((beyond_two / normal.len() as f64 - 0.0455).abs() < 0.001);
        let truncated = stream.truncated_normal(rows, width);
        let (mean, variance) = moments(&truncated);
        assert!(mean.abs() < 0.005 && (variance - 1.0).abs() < 0.01);
        assert!(truncated.iter().all(|z| z.abs() <= 2.0 / 0.879_625));
        let mask = stream.mask(rows, width, 0.1);
        let dropped = mask.iter().filter(|&&x| x == 0.0).count() as f64;
        assert!((dropped / mask.len() as f64 - 0.1).abs() < 0.002);
        assert!(mask.iter().all(|&x| x == 0.0 || x == 1.0 / 0.9));
    }

    #[test]
    fn the_number_of_threads_changes_nothing() {
        let draw = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
            pool.unwrap().install(|| stream(3, 0).mask(7, 20_011, 0.3))
        };
        assert_eq!(draw(1), draw(3));
    }
}
