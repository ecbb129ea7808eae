//! Measuring training steps without data: each measurement in a process of its own, so that a crash, a lack of memory or a
//! time-out is a cell of the table and not its end.
//!
//! ```text
//! lra bench ──► session: rounds over lengths over models
//!                 preflight: what shorter lengths say of the next one
//!                 probe:     a Request to a fresh process, its Reply or what became of it
//!                              └─► lra measure: worker, the same training step as `lra run`
//! ```

pub mod entry;
pub mod preflight;
pub mod probe;
pub mod session;
pub mod worker;
