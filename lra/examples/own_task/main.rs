//! Your own tasks, in a program of your own: one for each `--kind` of `lra new task`.
//!
//! # Use
//!
//! `cargo run --release --example own_task -- run --task last_marker --model s4d`

mod labels;
mod pairs;
mod positions;

use std::process::ExitCode;

fn main() -> ExitCode {
    let own = lra::Own {
        tasks: &[
            &labels::LastMarker,
            &positions::MarkersSoFar,
            &pairs::EqualMarkers,
        ],
        ..lra::Own::default()
    };
    lra::main_of(lra::this_crate!(), own)
}
