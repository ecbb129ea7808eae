//! The rows of one sequence and head, in the order in which states follow each other.

use lra_cpu::buffers::Shared;

/// One sequence and head.
#[derive(Clone, Copy)]
pub(super) struct ScanOrder {
    /// The sequence's first row among all.
    pub(super) start: usize,
    /// Rows of the sequence.
    pub(super) rows: usize,
    /// From the last row to the first.
    pub(super) reverse: bool,
    /// Rows that queries and outputs lie ahead of keys and values.
    pub(super) ahead: usize,
    pub(super) heads: usize,
    pub(super) head: usize,
    /// Number of the first state that is kept.
    pub(super) kept: usize,
}

impl ScanOrder {
    /// Returns the place of step `t` among rows of all heads.
    #[inline(always)]
    pub(super) fn place(&self, t: usize) -> usize {
        let row = if self.reverse { self.rows - 1 - t } else { t };
        (self.start + row) * self.heads + self.head
    }

    /// Copies the rows of `width` numbers of `count` steps from `first` on to rows `wide` apart;
    /// zeros beyond the sequence, behind each row and in the rest of `to`.
    #[inline(always)]
    pub(super) fn load(
        &self,
        from: &[f32],
        (first, count): (usize, usize),
        (width, wide): (usize, usize),
        to: &mut [f32],
    ) {
        for (i, to) in to.chunks_exact_mut(wide).enumerate() {
            if i < count && first + i < self.rows {
                let at = self.place(first + i) * width;
                to[..width].copy_from_slice(&from[at..at + width]);
                to[width..].fill(0.0);
            } else {
                to.fill(0.0);
            }
        }
    }

    /// Copies rows that are `wide` apart to the rows of `width` numbers of `count` steps from
    /// `first` on; none beyond the sequence.
    #[inline(always)]
    pub(super) fn store(
        &self,
        from: &[f32],
        (first, count): (usize, usize),
        (width, wide): (usize, usize),
        to: &Shared,
    ) {
        for (i, from) in from.chunks_exact(wide).take(count).enumerate() {
            if first + i < self.rows {
                // SAFETY: the rows of a sequence and head belong to one task.
                let to = unsafe { to.slice(self.place(first + i) * width, width) };
                to.copy_from_slice(&from[..width]);
            }
        }
    }

    /// Fills the rows of `width` numbers of the first steps, which no query lies ahead of, with
    /// zeros.
    #[inline(always)]
    pub(super) fn clear(&self, width: usize, to: &Shared) {
        for t in 0..self.ahead.min(self.rows) {
            // SAFETY: as above.
            unsafe { to.slice(self.place(t) * width, width) }.fill(0.0);
        }
    }
}
