//! Starts the runs of a sweep, reaps them, and stops them when asked to.

use std::collections::{HashMap, VecDeque};
use std::thread;
use std::time::{Duration, Instant};

use results::Record;

use crate::error::Result;
use crate::signals::Stop;
use crate::sweep::board::Board;
use crate::sweep::claim::Claim;
use crate::sweep::job::{Common, Ended, Job};
use crate::sweep::plan::Cell;

/// Where a cell stands.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// Nobody has begun.
    Pending,
    /// At work here.
    Running,
    /// At work in another process.
    Elsewhere,
    /// Scored, in this sweep or before.
    Scored {
        /// Accuracy on the test split.
        accuracy: Option<f64>,
        /// False if the record was on file before.
        fresh: bool,
    },
    /// Not scored, and why.
    Failed(String),
    /// Stopped; it can go on.
    Interrupted,
}

impl State {
    /// What a record on file makes of a cell; none if it can go on.
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

    /// Whether nothing is left to do.
    pub fn is_over(&self) -> bool {
        matches!(self, State::Scored { .. } | State::Failed(_))
    }
}

/// A sweep at work.
pub struct Conductor<'a> {
    /// The cells.
    pub cells: &'a [Cell],
    /// What every run is given.
    pub common: &'a Common,
    /// Runs at a time.
    pub jobs: usize,
    /// Whether failures on file are taken up again, from their last checkpoints.
    pub retry: bool,
    /// Whether to stop.
    pub stop: &'a Stop,
    /// What a person sees.
    pub board: &'a mut Board,
}

/// How often running jobs are looked at.
const PERIOD: Duration = Duration::from_millis(50);
/// How often cells at work elsewhere are.
const PATIENCE: Duration = Duration::from_secs(1);

impl Conductor<'_> {
    /// Runs every cell that is not on file. Returns where each one stands in the end.
    pub fn run(&mut self, on_file: HashMap<String, Record>) -> Result<Vec<State>> {
        let mut states: Vec<State> = Vec::new();
        let mut again = vec![false; self.cells.len()];
        for (index, cell) in self.cells.iter().enumerate() {
            let known = on_file.get(&cell.digest);
            again[index] = self.retry && known.is_some_and(|record| !record.outcome.is_final());
            let state = known.filter(|_| !again[index]).cloned();
            let state = state.and_then(|record| State::of(record, false));
            states.push(state.unwrap_or(State::Pending));
        }
        self.board.begin(self.cells, &states);
        let mut queue: VecDeque<usize> = (0..states.len())
            .filter(|index| states[*index] == State::Pending)
            .collect();
        let mut elsewhere: VecDeque<usize> = VecDeque::new();
        let mut asked = Instant::now();
        let mut running: Vec<Job> = Vec::new();
        while !self.stop.requested() {
            self.reap(&mut running, &mut states)?;
            if asked.elapsed() >= PATIENCE {
                asked = Instant::now();
                queue.extend(elsewhere.drain(..));
            }
            while running.len() < self.jobs
                && let Some(index) = queue.pop_front()
            {
                match self.start(index, again[index])? {
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
                        self.board.ended(self.cells, &states, index, None);
                    }
                }
            }
            if running.is_empty() && queue.is_empty() && elsewhere.is_empty() {
                break;
            }
            self.board.show(self.cells, &states, &running);
            thread::sleep(PERIOD);
        }
        self.wind_up(running, &mut states)?;
        self.board.end();
        Ok(states)
    }

    fn start(&self, index: usize, again: bool) -> Result<Start> {
        let cell = &self.cells[index];
        let folder = self.common.folder(cell);
        let Some(claim) = Claim::take(&folder)? else {
            return Ok(Start::Taken);
        };
        // Since the sweep began, another one may have finished it.
        let path = folder.join(results::store::FILE);
        let (mut known, mut force) = (None, false);
        if path.exists() {
            match results::store::read(&path) {
                Ok(record) if again && !record.outcome.is_final() => {}
                Ok(record) => known = State::of(record, false),
                Err(_) if self.retry => force = true,
                Err(error) => known = Some(State::Failed(error.to_string())),
            }
        }
        if let Some(state) = known {
            return Ok(Start::OnFile(state));
        }
        let job = Job::start(index, cell, self.common, claim, force)?;
        Ok(Start::Job(Box::new(job)))
    }

    /// Takes leave of the jobs that have ended.
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
            self.board
                .ended(self.cells, states, job.cell, Some(job.elapsed()));
        }
        Ok(())
    }

    /// Asks what still runs to save its state, and waits for it.
    fn wind_up(&mut self, mut running: Vec<Job>, states: &mut [State]) -> Result<()> {
        if !running.is_empty() {
            self.board.stopping(running.len());
        }
        running.iter_mut().for_each(Job::interrupt);
        while !running.is_empty() {
            self.reap(&mut running, states)?;
            self.board.show(self.cells, states, &running);
            thread::sleep(PERIOD);
        }
        Ok(())
    }
}

/// What became of the attempt to start a cell.
enum Start {
    Job(Box<Job>),
    Taken,
    OnFile(State),
}
