//! Sweeps: the matrix of tasks, models, seeds and recipes, with a separate `lra run` for each cell.
//!
//! ```text
//! plan              the cells, in an order that depends on the command line alone; shards of it
//! search            the points of a grid, or draws from it
//! estimator         a cell's time and memory: from a run with another seed on file, else measured in two small steps
//! forecast          the time of many runs of a model, from one estimate for each data set and block
//! probe             short runs at each of a recipe's learning rates
//! seeds             the figures of one setting's seeds, and what became of those without
//! best              the settings with the best validation accuracy of a search
//! comparison        records on file compared with what would be made here
//! cell_lock         one sweep per cell at a time, by lock files
//! job               the process of a cell, its log and its outcome
//! scheduler         starts jobs, reaps them, stops them
//! time_left         the time until all cells have ended, planned or by those that have
//! progress_display  the table of states on a terminal, lines elsewhere
//! batch_job         the sweep as a job of a batch system
//! ```

pub mod batch_job;
pub mod best;
pub mod cell_lock;
pub mod comparison;
pub mod estimator;
pub mod forecast;
pub mod job;
pub mod plan;
pub mod probe;
pub mod progress_display;
pub mod scheduler;
pub mod search;
pub mod seeds;
#[cfg(test)]
pub mod testing;
pub mod time_left;
