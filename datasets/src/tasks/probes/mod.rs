//! Probes: generated tasks that each test one ability of a model, beside the tasks of the arena.
//!
//! `mqar` tests recall, `selective_copy` copying, `state_tracking` states that depend on every
//! token, and `needle` recall over a long distance. Positions with an answer are labelled
//! (`dense.rs`), and scores are grouped by length, so that lengths beyond those of training stand
//! beside them: the test split may hold longer rows than the other two.
//!
//! A row is a pure function of (options, split, row number). Its answers are computed from its
//! tokens alone, when it is written and again when it is verified.

mod common;
mod mqar;
mod needle;
mod probe;
mod selective_copy;
mod state_tracking;
mod text;

pub use mqar::Mqar;
pub use needle::Needle;
pub use probe::ProbeTask;
pub use selective_copy::SelectiveCopy;
pub use state_tracking::StateTracking;
pub(super) use text::wrap;

/// Multi-query associative recall.
pub static MQAR: ProbeTask<Mqar> = ProbeTask(Mqar);

/// Selective copying.
pub static SELECTIVE_COPY: ProbeTask<SelectiveCopy> = ProbeTask(SelectiveCopy);

/// Products of prefixes of a word over a finite group.
pub static STATE_TRACKING: ProbeTask<StateTracking> = ProbeTask(StateTracking);

/// A marked pair of key and value in noise.
pub static NEEDLE: ProbeTask<Needle> = ProbeTask(Needle);
