//! Scheduler of the runs of a sweep: starts as many at a time as there are jobs, reaps them, and
//! stops them on request.

use std::collections::{HashMap, VecDeque};
use std::thread;
use std::time::{Duration, Instant};

use results::Record;

use crate::error::Result;
use crate::run_folder::RunFolder;
use crate::signals::Stop;
use crate::sweep::cell_lock::CellLock;
use crate::sweep::job::{Ended, Job, JobOptions};
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
        /// Accuracy on the test split.
        accuracy: Option<f64>,
        /// False if the record was on file before.
        fresh: bool,
    },
    /// Not scored, with the reason.
    Failed(String),
    /// On file, but different from what would be made here; the differences.
    Changed(String),
    /// Stopped; it can be resumed.
    Interrupted,
}

impl State {
    /// Returns the state of a cell with this record on file; `None` if the run can be resumed.
    fn of(record: Record, fresh: bool) -> Option<State> {
        match Ended::of(record) {
            Ended::Scored(record) => Some(State::Scored {
                accuracy: record.test_accuracy(),
                fresh,
            }),
            Ended::Failed(reason) => Some(State::Failed(reason)),
            Ended::Interrupted => None,
        }
    }

    /// Returns whether nothing is left to do.
    pub fn is_over(&self) -> bool {
        matches!(
            self,
            State::Scored { .. } | State::Failed(_) | State::Changed(_)
        )
    }
}

/// A sweep in progress.
pub struct Scheduler<'a> {
    /// The cells.
    pub cells: &'a [Cell],
    /// Options of every run.
    pub options: &'a JobOptions,
    /// Runs at a time.
    pub jobs: usize,
    /// Devices of the runs, at least one.
    pub devices: &'a [String],
    /// True if failures on file are resumed from their last checkpoints.
    pub retry: bool,
    /// True if cells that would be made differently now are run again.
    pub redo_changed: bool,
    /// Flag that asks the sweep to stop.
    pub stop: &'a Stop,
    /// Display of progress on standard error.
    pub display: &'a mut ProgressDisplay,
}

/// Time between two polls of the running jobs.
const POLL_PERIOD: Duration = Duration::from_millis(50);
/// Time between two attempts at cells that other processes work on.
const RETRY_PERIOD: Duration = Duration::from_secs(1);

impl Scheduler<'_> {
    /// Runs every cell that is not on file. Returns the final state of each.
    pub fn run(&mut self, on_file: HashMap<String, Record>) -> Result<Vec<State>> {
        let mut states: Vec<State> = Vec::new();
        for cell in self.cells {
            states.push(match on_file.get(&cell.digest) {
                Some(record) => match self.standing(cell, record.clone())? {
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
            self.reap(&mut running, &mut states)?;
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
                        states[index] = State::Elsewhere;
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
        let runs = |device: &String| running.iter().filter(|job| job.device == *device).count();
        let free = self.devices.iter().min_by_key(|device| runs(device));
        free.unwrap_or(&self.options.device)
    }

    fn start(&self, index: usize, device: &str) -> Result<Start> {
        let cell = &self.cells[index];
        let folder = self.options.folder(cell);
        let Some(lock) = CellLock::try_acquire(&folder)? else {
            return Ok(Start::Taken);
        };
        // Another sweep may have finished it since this one began.
        let standing = match RunFolder::begun(&folder) {
            Ok(Some(record)) => self.standing(cell, record)?,
            Ok(None) => Standing::ToRun { force: false },
            Err(_) if self.retry => Standing::ToRun { force: true },
            Err(error) => Standing::Over(State::Failed(error.to_string())),
        };
        match standing {
            Standing::Over(state) => Ok(Start::OnFile(state)),
            Standing::ToRun { force } => {
                let job = Job::start(index, cell, self.options, device, lock, force)?;
                Ok(Start::Job(Box::new(job)))
            }
        }
    }

    /// Decides the standing of a record of a cell in this sweep.
    fn standing(&self, cell: &Cell, record: Record) -> Result<Standing> {
        let changes = match self.options.accept_changes {
            true => Vec::new(),
            false => cell.changes(&record, &self.options.data)?,
        };
        let is_final = record.outcome.is_final();
        Ok(match (changes.is_empty(), self.redo_changed) {
            (false, true) => Standing::ToRun { force: true },
            (false, false) if is_final => Standing::Over(State::Changed(changes.join("; "))),
            _ if self.retry && !is_final => Standing::ToRun { force: false },
            _ => match State::of(record, false) {
                Some(state) => Standing::Over(state),
                None => Standing::ToRun { force: false },
            },
        })
    }

    /// Reaps the jobs that have ended and keeps their states.
    fn reap(&mut self, running: &mut Vec<Job>, states: &mut [State]) -> Result<()> {
        let mut index = 0;
        while let Some(job) = running.get_mut(index) {
            let Some(ended) = job.poll()? else {
                index += 1;
                continue;
            };
            let job = running.swap_remove(index);
            states[job.cell] = match ended {
                Ended::Scored(record) => State::Scored {
                    accuracy: record.test_accuracy(),
                    fresh: true,
                },
                Ended::Failed(reason) => State::Failed(reason),
                Ended::Interrupted => State::Interrupted,
            };
            self.display
                .ended(self.cells, states, job.cell, Some(job.elapsed()));
        }
        Ok(())
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

/// Standing of a record on file in a sweep.
enum Standing {
    /// The cell is over.
    Over(State),
    /// The run is resumed, or starts over if `force` says so.
    ToRun { force: bool },
}

/// The outcome of starting a cell.
enum Start {
    Job(Box<Job>),
    Taken,
    OnFile(State),
}
