//! One test per model and promise, such as `fnet::padding_changes_no_logit`, run in parallel like
//! any others.

use libtest_mimic::{Arguments, Trial};
use lra_models::{MODELS, conformance::CHECKS};

fn main() {
    let trials = MODELS.iter().copied().flat_map(|model| {
        CHECKS.iter().map(move |promise| {
            Trial::test(format!("{}::{}", model.name, promise.name), move || {
                (promise.check)(model);
                Ok(())
            })
        })
    });
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit();
}
