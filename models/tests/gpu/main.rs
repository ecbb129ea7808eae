//! Operations and models on a GPU beside the same on the CPU: outputs, gradients, and equal bits in
//! two runs. One test each, such as `ops::scan` and `models::performer`, and the memory of a
//! training step; without a GPU all are ignored.
//!
//! `cargo test --release -p lra-models --features cuda --test gpu`; `make cuda` builds it as well.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

mod attention;
#[cfg(feature = "cuda")]
mod memory;
mod operations;
mod registry;

use std::panic::{AssertUnwindSafe, catch_unwind};

use candle_core::{DType, Device, Tensor};
use libtest_mimic::{Arguments, Trial};

fn main() {
    let arguments = Arguments::from_args();
    let device = catch_unwind(|| Device::new_cuda_with_stream(0).ok()).unwrap_or(None);
    if let Some(Device::Cuda(device)) = &device {
        // SAFETY: all work goes to the one stream of this device, so nothing needs events to wait
        // for.
        unsafe { device.disable_event_tracking() };
    }
    let (names, is_here) = (cases(), device.is_some());
    let trials = names.into_iter().map(|(name, case)| {
        let device = device.clone();
        Trial::test(name, move || {
            let Some(device) = device else { return Ok(()) };
            match catch_unwind(AssertUnwindSafe(|| case(&device))) {
                Ok(Ok(())) => Ok(()),
                Ok(Err(report)) => Err(report.into()),
                Err(panic) => Err(words(&*panic).into()),
            }
        })
        .with_ignored_flag(!is_here)
    });
    if !is_here {
        eprintln!("no GPU is here, so nothing is compared");
    }
    libtest_mimic::run(&arguments, trials.collect()).exit();
}

/// A comparison on a device; an error says how it fails.
type Case = Box<dyn FnOnce(&Device) -> Result<(), String> + Send>;

fn cases() -> Vec<(String, Case)> {
    let mut cases = operations::cases();
    cases.extend(registry::cases());
    #[cfg(feature = "cuda")]
    cases.extend(memory::cases());
    cases
}

fn words(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without a message").to_owned()
}

/// Returns the numbers of a tensor.
fn numbers(x: &Tensor) -> Vec<f64> {
    let flat = x.flatten_all().unwrap().to_device(&Device::Cpu).unwrap();
    flat.to_dtype(DType::F64).unwrap().to_vec1().unwrap()
}

/// Returns the largest difference of two tensors as a share of the largest number of the second; of
/// `least`, if that is larger.
fn error(actual: &[f64], expected: &[f64], least: f64) -> f64 {
    assert_eq!(actual.len(), expected.len());
    let size = expected.iter().fold(least, |most, x| most.max(x.abs()));
    let pairs = actual.iter().zip(expected);
    pairs.fold(0.0, |most: f64, (a, b)| {
        let difference = (a - b).abs() / size;
        if difference.is_finite() {
            most.max(difference)
        } else {
            f64::INFINITY
        }
    })
}
