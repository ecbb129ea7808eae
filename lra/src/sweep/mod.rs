//! The matrix of tasks, models, seeds and recipes, each cell an `lra run` of its own.
//!
//! ```text
//! plan       the cells, in an order that depends on the command line alone; shards of it
//! forecast   what a cell will take: from a twin on file, else from two small steps
//! claim      one sweep per cell at a time, by lock files
//! job        the process of a cell, its log, what became of it
//! conductor  starts jobs, reaps them, stops them
//! board      what a person sees meanwhile
//! slurm      the same as an array job
//! ```

pub mod board;
pub mod claim;
pub mod conductor;
pub mod forecast;
pub mod job;
pub mod plan;
pub mod slurm;
