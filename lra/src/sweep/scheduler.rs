//! Scheduler of the runs of a sweep: starts up to `jobs` at a time, reaps them, and stops them on
//! request.

use std::collections::{HashMap, VecDeque};
use std::thread;
use std::time::{Duration, Instant};

use results::{Outcome, Record};

use crate::error::{Class, Result};
use crate::run_folder::{self, RunFolder};
use crate::signals::Stop;
use crate::sweep::cell_lock::CellLock;
use crate::sweep::comparison::{Comparer, Comparison};
use crate::sweep::job::{Ended, Failure, Job, JobOptions};
use crate::sweep::plan::Cell;
use crate::sweep::progress_display::ProgressDisplay;

/// State of a cell.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// No process has begun it.
    Pending,
    /// Running here.
    Running,
    /// Running in another process.
    Elsewhere,
    /// Scored, in this sweep or before.
    Scored {
        /// The record.
        record: Box<Record>,
        /// False if the record was stored before.
        fresh: bool,
        /// Reason why the score is not compared with what would be made here.
        not_compared: Option<String>,
    },
    /// Not scored.
    Failed(Failure),
    /// On file, but different from what would be made here; the differences.
    Changed(String),
    /// Stopped; it can be resumed.
    Interrupted,
}

impl State {
    /// Returns the state of a cell with this record on file; `None` if the run can be resumed.
    fn on_file(record: Record, not_compared: Option<String>) -> Option<State> {
        match Ended::of(record) {
            Ended::Scored(record) => Some(State::Scored {
                record,
                fresh: false,
                not_compared,
            }),
            Ended::Failed(failure) => Some(State::Failed(failure)),
            Ended::Interrupted | Ended::Elsewhere => None,
        }
    }

    /// Returns the record that stands for the cell. A record that differs from what would be made
    /// here stands for nothing.
    pub fn record(&self) -> Option<&Record> {
        match self {
            State::Scored { record, .. } => Some(record),
            State::Failed(failure) => failure.record.as_deref(),
            _ => None,
        }
    }

    /// Returns the record if it has a score that counts. One of a run that was resumed after
    /// changes is comparable with no other.
    pub fn score(&self) -> Option<&Record> {
        match self {
            State::Scored { record, .. } => {
                Some(&**record).filter(|record| record.changed_on_the_way().is_none())
            }
            _ => None,
        }
    }

    /// Returns the reason in a word why a cell has no score that counts; `None` if it has one.
    pub fn unscored(&self) -> Option<&'static str> {
        match self {
            State::Scored { .. } if self.score().is_none() => Some("changed"),
            State::Scored { .. } => None,
            State::Failed(failure) => Some(match &failure.record {
                Some(record) if matches!(record.outcome, Outcome::Diverged { .. }) => "diverged",
                _ => "failed",
            }),
            State::Changed(_) => Some("changed"),
            _ => Some("not run"),
        }
    }

    /// Returns whether nothing is left to do.
    pub fn is_over(&self) -> bool {
        matches!(
            self,
            State::Scored { .. } | State::Failed(..) | State::Changed(_)
        )
    }
}

/// Returns the class of the worst state, `None` if every cell is scored. From best to worst: wrong
/// usage, which includes changed cells; damaged or missing data; any other state without a score,
/// which is a failed run.
pub fn worst(states: &[State]) -> Option<Class> {
    let class = |state: &State| match state {
        State::Scored { .. } => None,
        State::Changed(_) => Some(Class::Usage),
        State::Failed(failure) if [Class::Usage, Class::Data].contains(&failure.class) => {
            Some(failure.class)
        }
        _ => Some(Class::Run),
    };
    let classes = states.iter().filter_map(class);
    classes.max_by_key(|class| class.code())
}

/// A sweep in progress.
pub struct Scheduler<'a> {
    /// The cells.
    pub cells: &'a [Cell],
    /// Options of every run.
    pub options: &'a JobOptions,
    /// Number of simultaneous runs.
    pub jobs: usize,
    /// Devices of the runs, at least one.
    pub devices: &'a [String],
    /// Judge of the records on file.
    pub judge: Judge<'a>,
    /// Flag that requests a stop of the sweep.
    pub stop: &'a Stop,
    /// Display of progress on standard error.
    pub display: &'a mut ProgressDisplay,
}

/// Time between two polls of the running jobs.
const POLL_PERIOD: Duration = Duration::from_millis(50);
/// Time between two attempts at cells that other processes work on.
const RETRY_PERIOD: Duration = Duration::from_secs(1);

impl Scheduler<'_> {
    /// Runs every cell that is not stored. Returns the final state of each.
    pub fn run(&mut self, on_file: HashMap<String, Record>) -> Result<Vec<State>> {
        let mut states: Vec<State> = Vec::new();
        for cell in self.cells {
            states.push(match on_file.get(&cell.digest) {
                Some(record) => match self.judge.standing(cell, record.clone())? {
                    Standing::Over(state) => state,
                    Standing::ToRun { .. } => State::Pending,
                },
                None => State::Pending,
            });
        }
        self.display.begin(self.cells, &states, self.jobs);
        let mut queue: VecDeque<usize> = (0..states.len())
            .filter(|index| states[*index] == State::Pending)
            .collect();
        let mut elsewhere: VecDeque<usize> = VecDeque::new();
        let mut retried = Instant::now();
        let mut running: Vec<Job> = Vec::new();
        while !self.stop.requested() {
            elsewhere.extend(self.reap(&mut running, &mut states)?);
            if retried.elapsed() >= RETRY_PERIOD {
                retried = Instant::now();
                queue.extend(elsewhere.drain(..));
            }
            while running.len() < self.jobs
                && let Some(index) = queue.pop_front()
            {
                let device = self.free_device(&running);
                match self.start(index, device)? {
                    Start::Job(job) => {
                        states[index] = State::Running;
                        running.push(*job);
                    }
                    Start::Taken => {
                        self.taken(&mut states, index);
                        elsewhere.push_back(index);
                    }
                    Start::OnFile(state) => {
                        states[index] = state;
                        self.display.ended(self.cells, &states, index, None);
                    }
                }
            }
            if running.is_empty() && queue.is_empty() && elsewhere.is_empty() {
                break;
            }
            self.display.show(self.cells, &states, &running);
            thread::sleep(POLL_PERIOD);
        }
        self.stop_all(running, &mut states)?;
        self.display.end();
        Ok(states)
    }

    /// Returns the device with the fewest runs, the first of equals.
    fn free_device(&self, running: &[Job]) -> &str {
        let used = running.iter().map(|job| job.device.as_str());
        least_used(self.devices, used).unwrap_or(&self.options.device)
    }

    /// Starts a cell. What lies in the way in its folder fails this cell alone.
    fn start(&self, index: usize, device: &str) -> Result<Start> {
        match self.begin(index, device) {
            Err(error) if run_folder::is_damage(&error) => {
                Ok(Start::OnFile(State::Failed(Failure::of(&error))))
            }
            other => other,
        }
    }

    fn begin(&self, index: usize, device: &str) -> Result<Start> {
        let cell = &self.cells[index];
        let folder = self.options.folder(cell);
        let Some(lock) = CellLock::try_acquire(&folder)? else {
            return Ok(Start::Taken);
        };
        // Another sweep may have finished it since this one began.
        let begun = RunFolder::begun(&folder, &cell.resolved.spec);
        match self.judge.standing_of_begun(cell, begun)? {
            Standing::Over(state) => Ok(Start::OnFile(state)),
            Standing::ToRun { force } => {
                let job = Job::start(index, cell, self.options, device, lock, force)?;
                Ok(Start::Job(Box::new(job)))
            }
        }
    }

    /// Notes that another process is working on a cell.
    fn taken(&mut self, states: &mut [State], cell: usize) {
        if states[cell] != State::Elsewhere {
            self.display.waits(&self.cells[cell]);
        }
        states[cell] = State::Elsewhere;
    }

    /// Reaps the jobs that have ended and keeps their states. Returns the cells that other
    /// processes began first.
    fn reap(&mut self, running: &mut Vec<Job>, states: &mut [State]) -> Result<Vec<usize>> {
        let mut taken = Vec::new();
        let mut index = 0;
        while let Some(job) = running.get_mut(index) {
            let Some(ended) = job.poll()? else {
                index += 1;
                continue;
            };
            let job = running.swap_remove(index);
            states[job.cell] = match ended {
                Ended::Scored(record) => State::Scored {
                    not_compared: record
                        .changed_on_the_way()
                        .map(|changes| format!("resumed although {changes}")),
                    record,
                    fresh: true,
                },
                Ended::Failed(failure) => State::Failed(failure),
                Ended::Interrupted => State::Interrupted,
                Ended::Elsewhere => {
                    self.taken(states, job.cell);
                    taken.push(job.cell);
                    continue;
                }
            };
            self.display
                .ended(self.cells, states, job.cell, Some(job.elapsed()));
        }
        Ok(taken)
    }

    /// Stops all jobs: each saves its state. Waits for all of them.
    fn stop_all(&mut self, mut running: Vec<Job>, states: &mut [State]) -> Result<()> {
        if !running.is_empty() {
            self.display.stopping(running.len());
        }
        running.iter_mut().for_each(Job::interrupt);
        while !running.is_empty() {
            self.reap(&mut running, states)?;
            self.display.show(self.cells, states, &running);
            thread::sleep(POLL_PERIOD);
        }
        Ok(())
    }
}

/// Returns the device that occurs in `used` the least often, the first of equals.
fn least_used<'a, 'u>(
    devices: &'a [String],
    used: impl Iterator<Item = &'u str> + Clone,
) -> Option<&'a str> {
    let runs = |device: &&String| used.clone().filter(|it| it == device).count();
    devices.iter().min_by_key(runs).map(String::as_str)
}

/// Decides what records on file are worth in a sweep.
#[derive(Clone, Copy)]
pub struct Judge<'a> {
    /// Options of every run.
    pub options: &'a JobOptions,
    /// Comparer of records on file with what would be made here.
    pub comparer: &'a Comparer<'a>,
    /// True if failures on file are resumed from their last checkpoints.
    pub retry: bool,
    /// True if cells whose inputs have changed are run again.
    pub redo_changed: bool,
}

impl Judge<'_> {
    /// Decides the standing of a record on file of a cell.
    pub fn standing(&self, cell: &Cell, record: Record) -> Result<Standing> {
        if let Some(what) = run_folder::other_run(&record, &cell.resolved.spec) {
            let reason = format!(
                "its record on file is of another run: {what}; start over with `lra run --force`"
            );
            return Ok(self.standing_of_damaged(cell, &reason));
        }
        let is_final = record.outcome.is_final();
        let resumes = self.retry || matches!(record.outcome, Outcome::Interrupted { .. });
        let goes_on = resumes && RunFolder::has_weights(&self.options.folder(cell));
        let compared = match self.comparer.compare(cell, &record) {
            Err(error) if error.class == Class::Data && (is_final || goes_on) => {
                return Ok(Standing::Over(State::Failed(Failure::of(&error))));
            }
            // No score of these data is shown, and no run on them goes on.
            Err(error) if error.class == Class::Data => Comparison::default(),
            compared => compared?,
        };
        let Comparison {
            mut changes,
            mut not_compared,
        } = compared;
        if self.options.accept_changes && !changes.is_empty() {
            not_compared = Some(format!("accepted although {}", changes.join("; ")));
            changes.clear();
        }
        Ok(match (changes.is_empty(), self.redo_changed) {
            (false, true) => Standing::ToRun { force: true },
            (false, false) if is_final || goes_on => {
                Standing::Over(State::Changed(changes.join("; ")))
            }
            _ if self.retry && !is_final => Standing::ToRun { force: false },
            _ => match State::on_file(record, not_compared) {
                Some(state) => Standing::Over(state),
                None => Standing::ToRun { force: false },
            },
        })
    }

    /// Decides the standing of a cell by the record in its folder, if there is one.
    pub fn standing_of_begun(
        &self,
        cell: &Cell,
        begun: Result<Option<Record>>,
    ) -> Result<Standing> {
        match begun {
            Ok(Some(record)) => self.standing(cell, record),
            Ok(None) => Ok(Standing::ToRun { force: false }),
            // Only damage is a reason to start over, and says so.
            Err(error) if run_folder::is_damage(&error) => {
                Ok(self.standing_of_damaged(cell, &error.to_string()))
            }
            Err(error) => Ok(Standing::Over(State::Failed(Failure::of(&error)))),
        }
    }

    /// Decides the standing of a cell whose record on file is damaged or of another run, for a
    /// reason that ends with the way to start over. A sweep discards no weights.
    fn standing_of_damaged(&self, cell: &Cell, reason: &str) -> Standing {
        let has_weights = RunFolder::has_weights(&self.options.folder(cell));
        let remedy = match (has_weights, self.retry) {
            (true, _) => {
                ", or move the file away and continue from the weights beside it with --retry-failed"
            }
            (false, false) => ", in a sweep with --retry-failed",
            (false, true) => return Standing::ToRun { force: true },
        };
        let reason = format!("{reason}{remedy}");
        Standing::Over(State::Failed(Failure::new(Class::Data, reason)))
    }
}

/// Standing of a record on file in a sweep.
pub enum Standing {
    /// The cell is over.
    Over(State),
    /// The run is resumed, or starts over with `force`.
    ToRun { force: bool },
}

/// The outcome of starting a cell.
enum Start {
    Job(Box<Job>),
    Taken,
    OnFile(State),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::testing::{diverged, scored};

    #[test]
    fn a_run_gets_the_device_with_the_fewest_runs() {
        let devices = ["cuda:0", "cuda:1", "cpu"].map(str::to_owned);
        for (used, wanted) in [
            (&[][..], "cuda:0"),
            (&["cuda:0"], "cuda:1"),
            (&["cuda:1", "cuda:0"], "cpu"),
            (&["cuda:0", "cuda:1", "cpu"], "cuda:0"),
            (&["cuda:0", "cuda:0", "cpu"], "cuda:1"),
            (&["cuda:0", "cuda:1", "cuda:1", "cpu", "cpu"], "cuda:0"),
        ] {
            let found = least_used(&devices, used.iter().copied());
            assert_eq!(found, Some(wanted), "{used:?}");
        }
        assert_eq!(least_used(&[], std::iter::empty()), None);
    }

    #[test]
    fn the_worst_state_is_the_class_of_a_sweep() {
        let failed = |class| State::Failed(Failure::new(class, "for a reason"));
        let (done, changed) = (scored(0.5, 1.0), State::Changed("other data".to_owned()));
        let (usage, data, run) = (Class::Usage, Class::Data, Class::Run);
        for (states, wanted) in [
            (&[][..], None),
            (&[done.clone(), done.clone()], None),
            (&[done.clone(), changed.clone()], Some(usage)),
            (&[failed(usage), done.clone()], Some(usage)),
            (&[failed(data), changed.clone()], Some(data)),
            (&[failed(data), failed(run), failed(usage)], Some(run)),
            // A run that was refused by its memory limit, say.
            (&[failed(Class::Check)], Some(run)),
            (&[failed(data), diverged(0.5, 1.0)], Some(run)),
            (&[State::Pending], Some(run)),
            (&[State::Interrupted, changed.clone()], Some(run)),
            (&[State::Elsewhere, done.clone()], Some(run)),
        ] {
            assert_eq!(worst(states), wanted, "{states:?}");
        }
        let words = [
            (done.clone(), None, true),
            (changed, Some("changed"), true),
            (failed(data), Some("failed"), true),
            (diverged(0.5, 1.0), Some("diverged"), true),
            (State::Pending, Some("not run"), false),
            (State::Running, Some("not run"), false),
            (State::Interrupted, Some("not run"), false),
        ];
        for (state, word, is_over) in words {
            assert_eq!(
                (state.unscored(), state.is_over()),
                (word, is_over),
                "{state:?}"
            );
        }
    }

    #[test]
    fn a_score_of_a_run_that_was_resumed_after_changes_counts_for_nothing() {
        let State::Scored { mut record, .. } = scored(0.5, 1.0) else {
            panic!("a score");
        };
        record.provenance.accepted_changes = vec!["other data".to_owned()];
        let state = State::Scored {
            record,
            fresh: true,
            not_compared: None,
        };
        assert!(state.record().is_some() && state.score().is_none());
        assert_eq!(
            (state.unscored(), worst(std::slice::from_ref(&state))),
            (Some("changed"), None)
        );
        assert!(diverged(0.5, 1.0).score().is_none());
    }
}
