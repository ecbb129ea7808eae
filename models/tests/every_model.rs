//! One test per model and promise, such as `fnet::padding_changes_no_logit`, run in parallel like
//! any others.

use libtest_mimic::{Arguments, Trial};
use lra_models::{
    MODELS,
    conformance::{CHECKS, Check},
};

fn main() {
    let trials = MODELS.iter().copied().flat_map(|model| {
        // The heap is counted in `planted_bugs`, a program with one thread of tests.
        let elsewhere = [
            "peak_memory_grows_as_the_card_says",
            "passes_leave_no_memory_behind",
        ];
        let here = move |promise: &&Check| !elsewhere.contains(&promise.name);
        CHECKS.iter().filter(here).map(move |promise| {
            Trial::test(format!("{}::{}", model.name, promise.name), move || {
                (promise.check)(model);
                Ok(())
            })
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit();
}
