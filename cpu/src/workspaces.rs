//! Working memory of the tasks of a parallel loop, allocated before the loop.
//!
//! If each task allocated its own, the memory peak would depend on the number of tasks that happen
//! to run at once.

use std::sync::{Arc, Mutex};

use crate::shelf::{Shelf, lock};

/// Working memory `W` for each of the tasks that can run at once, and their [`Scratch`] memory
/// beyond the blocks that threads keep.
///
/// [`Scratch`]: crate::scratch::Scratch
pub struct Workspaces<W, F> {
    make: F,
    /// Places and workspaces that no task has.
    free: Mutex<Vec<(usize, W)>>,
    shelf: Arc<Shelf>,
}

impl<W, F: Fn() -> W> Workspaces<W, F> {
    /// Makes a workspace for each of `tasks`, or for each thread if there are fewer of them.
    pub fn new(tasks: usize, make: F) -> Self {
        let places = tasks.min(rayon::current_num_threads());
        let free = (0..places).map(|place| (place, make())).collect();
        Workspaces {
            make,
            free: Mutex::new(free),
            shelf: Arc::new(Shelf::new(places)),
        }
    }

    /// Runs a task with a workspace, which has the contents that another task left.
    pub fn lend<R>(&self, task: impl FnOnce(&mut W) -> R) -> R {
        let free = lock(&self.free).pop();
        let Some((place, mut workspace)) = free else {
            // A thread whose task waits for others runs one more.
            return task(&mut (self.make)());
        };
        let result = self.shelf.enter(place, || task(&mut workspace));
        lock(&self.free).push((place, workspace));
        result
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use rayon::prelude::*;

    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn there_are_as_many_workspaces_as_tasks_can_run_at_once() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build();
        let (pool, made) = (pool.unwrap(), AtomicUsize::new(0));
        let run = |tasks: usize| {
            made.store(0, Relaxed);
            let workspaces = Workspaces::new(tasks, || {
                made.fetch_add(1, Relaxed);
                vec![0.0; 100]
            });
            let sums = (0..tasks).into_par_iter().map(|task| {
                workspaces.lend(|numbers| {
                    numbers.fill(task as f64);
                    std::thread::yield_now();
                    assert!(Scratch::zeros(100_000).iter().all(|x| *x == 0.0));
                    numbers.iter().sum::<f64>()
                })
            });
            let sums: Vec<f64> = sums.collect();
            assert!((0..tasks).all(|task| sums[task] == 100.0 * task as f64));
            made.load(Relaxed)
        };
        assert_eq!(pool.install(|| [0, 1, 2, 3, 50].map(run)), [0, 1, 2, 3, 3]);
    }

    #[test]
    fn a_task_in_a_task_has_a_workspace_of_its_own() {
        let workspaces = Workspaces::new(1, || [0; 2]);
        workspaces.lend(|outer| {
            outer[0] = 1;
            workspaces.lend(|inner| assert_eq!(*inner, [0; 2]));
        });
        workspaces.lend(|again| assert_eq!(*again, [1, 0]));
    }
}
