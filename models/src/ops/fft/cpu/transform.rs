//! Transforms of sequences, and the columns of tensors that they transform.

use std::ops::Range;
use std::sync::Arc;

use candle_core::Result;
use lra_cpu::buffers::Shared;
use lra_cpu::fft::{Complex, ComplexToReal, RealToComplex};

use super::{Real, number};

/// Channels of one task: a cache line of f32 in each row.
pub(super) const CHANNELS: usize = 16;

/// Transforms of real sequences of one length, and the room that they need.
pub(super) struct Transform<T: Real> {
    pub(super) forward: Arc<dyn RealToComplex<T>>,
    pub(super) inverse: Arc<dyn ComplexToReal<T>>,
}

/// Buffers of one thread for [`Transform`].
pub(super) struct Room<T: Real> {
    pub(super) sequence: Vec<T>,
    pub(super) spectrum: Vec<Complex<T>>,
    pub(super) scratch: Vec<Complex<T>>,
}

impl<T: Real> Transform<T> {
    pub(super) fn new(n: usize) -> Self {
        Self {
            forward: T::plan_rfft(n),
            inverse: T::plan_irfft(n),
        }
    }

    /// Returns n/2 + 1.
    pub(super) fn bins(&self) -> usize {
        self.forward.complex_len()
    }

    pub(super) fn room(&self) -> Room<T> {
        let scratch = self.forward.get_scratch_len();
        let scratch = scratch.max(self.inverse.get_scratch_len());
        Room {
            sequence: self.forward.make_input_vec(),
            spectrum: self.forward.make_output_vec(),
            scratch: vec![Complex::default(); scratch],
        }
    }

    /// Transforms `room.sequence`, whose contents are lost, to `room.spectrum`.
    pub(super) fn forward(&self, room: &mut Room<T>) -> Result<()> {
        let Room {
            sequence,
            spectrum,
            scratch,
        } = room;
        let done = self
            .forward
            .process_with_scratch(sequence, spectrum, scratch);
        done.map_err(candle_core::Error::wrap)
    }

    /// Transforms `room.spectrum`, whose contents are lost, to `room.sequence`, n times the
    /// inverse. Imaginary parts where a real sequence has none are left out.
    pub(super) fn inverse(&self, room: &mut Room<T>) -> Result<()> {
        let Room {
            sequence,
            spectrum,
            scratch,
        } = room;
        for end in ends(self.inverse.len()) {
            spectrum[end].im = number(0.0);
        }
        let done = self
            .inverse
            .process_with_scratch(spectrum, sequence, scratch);
        done.map_err(candle_core::Error::wrap)
    }
}

/// Bins of real sequences of length n that are real: the first, and for an even n the last.
pub(super) fn ends(n: usize) -> impl Iterator<Item = usize> {
    let last = n.is_multiple_of(2).then_some(n / 2);
    std::iter::once(0).chain(last)
}

/// Location of the columns of one task in a tensor (B, rows, D).
#[derive(Clone, Copy)]
pub(super) struct Columns {
    pub(super) first: usize,
    pub(super) count: usize,
    /// D.
    pub(super) width: usize,
}

impl Columns {
    /// Tasks of an example.
    pub(super) fn groups(width: usize) -> usize {
        width.div_ceil(CHANNELS)
    }

    pub(super) fn group(width: usize, group: usize) -> Self {
        let first = group * CHANNELS;
        Self {
            first,
            count: CHANNELS.min(width - first),
            width,
        }
    }

    /// Copies rows of an example (rows, D) to one run of numbers for each column, `stride` apart.
    pub(super) fn load<T: Copy>(self, example: &[T], rows: usize, to: &mut [T], stride: usize) {
        let Self {
            first,
            count,
            width,
        } = self;
        for (t, row) in example.chunks_exact(width).take(rows).enumerate() {
            for (column, x) in row[first..first + count].iter().enumerate() {
                to[column * stride + t] = *x;
            }
        }
    }

    /// Copies the runs back to `rows`, the first of which is at `start`.
    ///
    /// # Safety
    /// No other task may use the same columns of these rows at the same time.
    pub(super) unsafe fn store<T: Copy>(
        self,
        out: &Shared<T>,
        start: usize,
        rows: Range<usize>,
        from: impl Fn(usize, usize) -> T,
    ) {
        for t in rows {
            // SAFETY: by this function's contract.
            let row = unsafe { out.slice(start + t * self.width + self.first, self.count) };
            for (column, y) in row.iter_mut().enumerate() {
                *y = from(column, t);
            }
        }
    }
}

/// Room between the runs of numbers of two columns, so that columns of a power of two do not share
/// places of the cache.
pub(super) const APART: usize = 16;
