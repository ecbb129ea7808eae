//! Reproduction of published cells.
//!
//! ```text
//! cell       a published figure, our model, a recipe that follows the figure's source
//! unoffered  a published figure of one of our models that no recipe reproduces, and the reason
//! hours      the duration of a cell on this machine, estimated from small steps of its model
//! plan       every known difference, and the cost here
//! verdict    the comparison over the seeds, and a block to paste
//! ```

pub mod cell;
pub mod hours;
pub mod plan;
pub mod unoffered;
pub mod verdict;
