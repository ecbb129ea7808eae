//! Large scratch memory of the tasks of a parallel loop.
//!
//! The first task that asks for a block of some length has it allocated for all tasks that can run
//! at once. All blocks stay until the loop ends. The peak depends on what tasks ask for, and not on
//! the number of tasks that happen to run at once.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::buffers::Aligned;

thread_local! {
    /// The shelf of the task that this thread runs, and the task's place.
    static CURRENT: RefCell<Option<(Arc<Shelf>, usize)>> = const { RefCell::new(None) };
}

/// Blocks of the tasks of one loop, each of which has a place of its own while it runs.
pub(crate) struct Shelf {
    places: usize,
    lengths: Mutex<Vec<Blocks>>,
}

/// Blocks of one length.
struct Blocks {
    len: usize,
    free: Vec<Aligned>,
    /// Number of blocks that each place holds.
    held: Vec<usize>,
    /// Number of blocks that there are for each place.
    per_place: usize,
}

impl Shelf {
    /// Returns an empty shelf for at most `places` tasks at once.
    pub(crate) fn new(places: usize) -> Self {
        Shelf {
            places,
            lengths: Mutex::new(Vec::new()),
        }
    }

    /// Runs a task, whose calls of [`take`] and [`give`] are about this shelf.
    pub(crate) fn enter<R>(self: &Arc<Self>, place: usize, task: impl FnOnce() -> R) -> R {
        /// Puts back what was there before, in a panic too.
        struct Before(Option<(Arc<Shelf>, usize)>);

        impl Drop for Before {
            fn drop(&mut self) {
                let before = self.0.take();
                let _ = CURRENT.try_with(|current| current.replace(before));
            }
        }

        let _before = Before(CURRENT.replace(Some((self.clone(), place))));
        task()
    }

    fn take(&self, place: usize, len: usize) -> Aligned {
        let mut lengths = lock(&self.lengths);
        let known = lengths.iter().position(|blocks| blocks.len == len);
        let index = known.unwrap_or_else(|| {
            lengths.push(Blocks {
                len,
                free: Vec::new(),
                held: vec![0; self.places],
                per_place: 0,
            });
            lengths.len() - 1
        });
        let blocks = &mut lengths[index];
        blocks.held[place] += 1;
        if blocks.held[place] > blocks.per_place {
            blocks.per_place += 1;
            let all = blocks.per_place * self.places;
            blocks.free.reserve_exact(all - blocks.free.len());
            let more = (0..self.places).map(|_| Aligned::unspecified(len));
            blocks.free.extend(more);
        }
        let block = blocks.free.pop();
        block.unwrap_or_else(|| Aligned::unspecified(len))
    }

    fn give(&self, place: usize, block: Aligned) {
        let mut lengths = lock(&self.lengths);
        let blocks = lengths
            .iter_mut()
            .find(|blocks| blocks.len == block.len() && blocks.held[place] > 0);
        if let Some(blocks) = blocks {
            blocks.held[place] -= 1;
            blocks.free.push(block);
        }
    }
}

/// Returns a block of `len` floats of unspecified values for the task that this thread runs; none
/// outside the tasks of a shelf.
pub(crate) fn take(len: usize) -> Option<Aligned> {
    CURRENT.with_borrow(|current| {
        let (shelf, place) = current.as_ref()?;
        Some(shelf.take(*place, len))
    })
}

/// Gives back a block of [`take`]; frees any other.
pub(crate) fn give(block: Aligned) {
    // A thread that is ending runs no task.
    let _ = CURRENT.try_with(|current| {
        if let Some((shelf, place)) = &*current.borrow() {
            shelf.give(*place, block);
        }
    });
}

/// Locks what no panic leaves half done.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    /// Returns the numbers of blocks that there are for each place, and that are free.
    fn counts(shelf: &Shelf) -> Vec<(usize, usize, usize)> {
        let lengths = lock(&shelf.lengths);
        let counts = |blocks: &Blocks| (blocks.len, blocks.per_place, blocks.free.len());
        lengths.iter().map(counts).collect()
    }

    #[test]
    fn what_one_task_asks_for_is_there_for_all_places() {
        let shelf = Arc::new(Shelf::new(3));
        shelf.enter(1, || {
            let [a, b] = [10, 20].map(|len| take(len).unwrap());
            assert_eq!(counts(&shelf), [(10, 1, 2), (20, 1, 2)]);
            give(a);
            let (a, c) = (take(10).unwrap(), take(10).unwrap());
            assert_eq!(counts(&shelf), [(10, 2, 4), (20, 1, 2)]);
            [a, b, c].into_iter().for_each(give);
        });
        let all = [(10, 2, 6), (20, 1, 3)];
        assert_eq!(counts(&shelf), all);
        // Other places have theirs.
        for place in [0, 2] {
            shelf.enter(place, || {
                let taken = [10, 20, 10].map(|len| take(len).unwrap());
                taken.into_iter().for_each(give);
            });
            assert_eq!(counts(&shelf), all);
        }
    }

    #[test]
    fn tasks_that_ask_for_almost_the_same_use_one_block_again() {
        let shelf = Arc::new(Shelf::new(1));
        for len in [100_000, 99_990, 100_000, 98_400] {
            shelf.enter(0, || drop(Scratch::zeros(len)));
        }
        assert_eq!(counts(&shelf), [(4 * 32 * 1024, 1, 1)]);
    }

    #[test]
    fn loops_inside_tasks_have_shelves_of_their_own() {
        assert!(take(10).is_none());
        let (outer, inner) = (Arc::new(Shelf::new(1)), Arc::new(Shelf::new(1)));
        outer.enter(0, || {
            let block = take(10).unwrap();
            inner.enter(0, || give(take(20).unwrap()));
            give(block);
            // It is of no shelf.
            give(Aligned::zeros(30));
        });
        assert_eq!(counts(&outer), [(10, 1, 1)]);
        assert_eq!(counts(&inner), [(20, 1, 1)]);
        assert!(take(10).is_none());
    }
}
