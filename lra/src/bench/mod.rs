//! Measures training steps without data, each measurement in a process of its own: a crash, an
//! out-of-memory error or a time-out then ends one cell of the table, not the session.
//!
//! ```text
//! lra bench ──► session: rounds over lengths over models
//!                 preflight:       skips lengths that cannot fit, judged by shorter ones
//!                 measure_process: a Request to a fresh process, its Reply or its other outcome
//!                                    └─► lra measure: worker, the same training step as `lra run`
//! ```

pub mod measure_process;
pub mod preflight;
pub mod session;
pub mod worker;
