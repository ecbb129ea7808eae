//! Estimate of the time that is left of a sweep: from the planned times of its cells where all that
//! are left have one, else from the mean of those that ended.

use std::time::Duration;

/// Times of the cells of a sweep, planned and taken.
#[derive(Default)]
pub struct TimeLeft {
    /// Planned time of each cell, by its index; empty if nothing was planned.
    planned: Vec<Option<Duration>>,
    /// Planned time of what follows the sweep, on one core of its own.
    later: Duration,
    /// Number of cells that ran in this sweep.
    ended: u32,
    /// The time that they took.
    took: Duration,
    /// The time that was planned for them.
    foreseen: Duration,
}

impl TimeLeft {
    /// Creates the estimate for cells with these planned times and work after them that takes
    /// `later`.
    pub fn planned(planned: Vec<Option<Duration>>, later: Duration) -> TimeLeft {
        TimeLeft {
            planned,
            later,
            ..TimeLeft::default()
        }
    }

    /// Notes that the cell at `index` ran here in this time.
    pub fn ended(&mut self, index: usize, took: Duration) {
        self.ended += 1;
        self.took += took;
        self.foreseen += self.plan(index).unwrap_or_default();
    }

    /// Returns the time until the cells `left` have ended, `jobs` at a time, and what follows them.
    /// `running` is the time that those among them which run have run for. Returns none if nothing
    /// is known.
    pub fn estimate(&self, left: &[usize], running: Duration, jobs: usize) -> Option<Duration> {
        let at_a_time = |cells: usize| cells.min(jobs).max(1) as f64;
        let plans: Option<Duration> = left.iter().map(|index| self.plan(*index)).sum();
        let seconds = match plans.filter(|_| !self.planned.is_empty()) {
            Some(planned) => {
                // Cells take as much longer than planned as those before them did.
                let slowness = match self.foreseen.is_zero() {
                    true => 1.0,
                    false => self.took.as_secs_f64() / self.foreseen.as_secs_f64(),
                };
                let these = planned.as_secs_f64() * slowness - running.as_secs_f64();
                let later = self.later.as_secs_f64() * slowness;
                these.max(0.0) / at_a_time(left.len()) + later / at_a_time(jobs)
            }
            None if self.ended == 0 => return None,
            None => {
                let each = self.took.as_secs_f64() / f64::from(self.ended);
                let these = each * left.len() as f64 - running.as_secs_f64();
                these.max(0.0) / at_a_time(left.len())
            }
        };
        Duration::try_from_secs_f64(seconds).ok()
    }

    fn plan(&self, index: usize) -> Option<Duration> {
        self.planned.get(index).copied().flatten()
    }
}

/// Returns the time until tasks of these times have ended, `workers` at a time: each begins where
/// one ends first.
pub fn makespan(times: impl IntoIterator<Item = Duration>, workers: usize) -> Duration {
    let mut ends = vec![Duration::ZERO; workers.max(1)];
    for time in times {
        if let Some(first) = ends.iter_mut().min() {
            *first = first.saturating_add(time);
        }
    }
    ends.into_iter().max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_long_task_takes_its_time_however_many_run_beside_it() {
        let makespan =
            |times: &[u64], workers| makespan(times.iter().copied().map(seconds), workers);
        assert_eq!(makespan(&[10, 1, 1, 1], 4), seconds(10));
        assert_eq!(makespan(&[3; 4], 2), seconds(6));
        assert_eq!(makespan(&[1, 1, 2], 1), seconds(4));
        assert_eq!(makespan(&[], 3), seconds(0));
    }

    #[test]
    fn without_a_plan_cells_take_as_long_as_those_before() {
        let mut time = TimeLeft::default();
        assert_eq!(time.estimate(&[0, 1, 2], seconds(0), 1), None);
        time.ended(0, seconds(10));
        time.ended(1, seconds(20));
        assert_eq!(time.estimate(&[2, 3], seconds(0), 1), Some(seconds(30)));
        assert_eq!(time.estimate(&[2, 3], seconds(10), 1), Some(seconds(20)));
        assert_eq!(time.estimate(&[2, 3], seconds(0), 4), Some(seconds(15)));
    }

    #[test]
    fn a_plan_knows_that_the_last_cells_are_long_and_what_follows() {
        let plan = vec![Some(seconds(10)), Some(seconds(100)), Some(seconds(100))];
        let mut time = TimeLeft::planned(plan, seconds(50));
        assert_eq!(time.estimate(&[0, 1, 2], seconds(0), 1), Some(seconds(260)));
        // Twice as slow as planned.
        time.ended(0, seconds(20));
        assert_eq!(time.estimate(&[1, 2], seconds(0), 1), Some(seconds(500)));
        assert_eq!(time.estimate(&[1, 2], seconds(100), 2), Some(seconds(200)));
        assert_eq!(time.estimate(&[], seconds(0), 1), Some(seconds(100)));
        // A cell without a plan leaves the mean.
        let mut time = TimeLeft::planned(vec![Some(seconds(1)), None], seconds(50));
        assert_eq!(time.estimate(&[0, 1], seconds(0), 1), None);
        time.ended(0, seconds(4));
        assert_eq!(time.estimate(&[1], seconds(0), 1), Some(seconds(4)));
    }
}
