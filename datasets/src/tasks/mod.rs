//! Registry of tasks: one `mod` line and one entry each.

use std::sync::OnceLock;

use crate::Task;
use crate::error::{Error, Result};

mod image;
pub mod listops;
pub mod mine;
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

/// The tasks of this crate, in the order in which tables list them.
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

static REGISTRY: OnceLock<Vec<&'static dyn Task>> = OnceLock::new();

/// Returns every task that a program knows by name: [`TASKS`], and behind them those that it has
/// [`register`]ed.
#[must_use]
pub fn registry() -> &'static [&'static dyn Task] {
    REGISTRY.get_or_init(|| TASKS.to_vec())
}

/// Adds a program's own tasks behind [`TASKS`], so that all users of the [`registry`] know them. It
/// can be called once, before the registry is first read.
///
/// # Errors
/// [`Error::Registry`] if the registry has been read or filled before; if a name is taken or is not
/// made of `a` to `z`, `0` to `9` and `_`; or if a task does not return its source code.
pub fn register(tasks: &[&'static dyn Task]) -> Result<()> {
    let refuse = |reason: String| Err(Error::Registry { reason });
    let mut all = TASKS.to_vec();
    for task in tasks {
        let info = task.info();
        let (name, plain) = (info.name, |c: char| {
            c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'
        });
        if name.is_empty() || !name.chars().all(plain) {
            return refuse(format!("{name:?} is not made of a to z, 0 to 9 and _"));
        }
        if all.iter().any(|other| other.info().name == name) {
            return refuse(format!("there is a task called {name}"));
        }
        if task.source().is_empty() {
            return refuse(format!(
                "{name} does not return its source code: let `source` return \
                 include_str! of the file that it is in"
            ));
        }
        all.push(*task);
    }
    match REGISTRY.set(all) {
        Ok(()) => Ok(()),
        Err(_) => refuse("the registry is in use".to_owned()),
    }
}

/// Returns whether this task is one of a program's own.
#[must_use]
pub fn is_own(task: &dyn Task) -> bool {
    !task.source().is_empty()
}

/// Returns the task of this name: one of the [`registry`], or a [folder](mine) that can be read.
pub fn find(name: &str) -> Option<&'static dyn Task> {
    let known = registry().iter().copied();
    let mut named = known.filter(|task| task.info().name == name);
    named.next().or_else(|| match mine::is_folder(name) {
        true => mine::open(name).ok(),
        false => None,
    })
}
