//! Registry of tasks: one `mod` line and one entry each.

use crate::Task;

mod image;
pub mod listops;
pub mod pathfinder;
pub mod probes;
mod retrieval;
mod text;
mod toy;

pub use image::Image;
pub use listops::ListOps;
pub use retrieval::Retrieval;
pub use text::Text;
pub use toy::Toy;

/// All tasks, in the order in which tables list them.
pub static TASKS: &[&dyn Task] = &[
    &ListOps,
    &Text,
    &Retrieval,
    &Image,
    &pathfinder::PATHFINDER,
    &pathfinder::PATHX,
    &probes::MQAR,
    &probes::SELECTIVE_COPY,
    &probes::STATE_TRACKING,
    &probes::NEEDLE,
    &Toy,
];

/// Returns the task of this name.
pub fn find(name: &str) -> Option<&'static dyn Task> {
    TASKS.iter().copied().find(|task| task.info().name == name)
}
