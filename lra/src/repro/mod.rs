//! Published cells, reproduced.
//!
//! ```text
//! cell       a printed figure, our model, a recipe that follows the figure's source
//! plan       every known difference, the cost here
//! verdict    the comparison over the seeds, and a block to paste
//! ```

pub mod cell;
pub mod plan;
pub mod verdict;
