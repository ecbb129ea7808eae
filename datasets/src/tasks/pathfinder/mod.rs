//! Pathfinder and Path-X: decide whether two discs are on the same dashed contour.
//!
//! The task is Linsley et al., 2018, "Learning long-range spatial dependencies with horizontal
//! gated recurrent units" (arXiv:1805.08315); images and parameters are those of the Long Range
//! Arena's release. [`Generator`] grows two contours and some distractors ([`Scene`]) and draws
//! them. Tiles, growing rules and grey values equal those of the original generator, bit for bit
//! where images of the release allow a comparison. With the option `dense` every pixel of a dash
//! has a label too: whether it is on the path of the first disc (`dense.rs`).

mod build;
mod curvature;
mod dense;
mod disc_baseline;
mod generator;
mod geometry;
mod grow_contours;
mod lanczos;
mod occupancy;
mod options;
mod parameters;
mod picture;
mod raster;
mod release;
mod render;
mod scene;
mod start_points;
mod task;
mod tiles;

pub use disc_baseline::find_discs;
pub use generator::{Generator, Workspaces};
pub use parameters::{Difficulty, Parameters, Pixels, Size};
pub use scene::{Paddle, Scene};
pub use task::{Contours, PATHFINDER, PATHX};

#[cfg(test)]
#[path = "tests/golden.rs"]
mod golden;
