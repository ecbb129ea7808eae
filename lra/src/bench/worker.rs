//! The measuring process: reads a [`Request`] from standard input, makes training steps on random
//! tokens of the task's shape, and prints a [`Reply`].

use std::io::{Read, stdin};
use std::time::Instant;

use candle_core::{DType, Device, Tensor};
use datasets::{Protocol, Source};
use models::rng::StreamKey;
use models::{Parameters, RngKey};
use results::record::Phases;
use serde::{Deserialize, Serialize};

use crate::batch::HostBatch;
use crate::error::{Class, Classify, Error, Result};
use crate::optim::Updater;
use crate::spec::{Resolved, RunRequest};
use crate::step::{Network, Trainer};
use crate::timing::Timings;
use crate::{device, host, memory_limit, output, runtime};

/// A measurement to make, with its device and limits.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Request {
    /// Device, as `--device` takes it.
    pub device: String,
    /// Worker threads.
    pub threads: usize,
    /// Most live heap bytes, those at the start included.
    pub memory_limit: usize,
    /// The measurement. It is called `work` in the JSON, because a request may go to an older
    /// build.
    #[serde(rename = "work")]
    pub measurement: Measurement,
}

/// Kind of measurement that a process makes.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Measurement {
    /// Training steps.
    Steps(Box<Steps>),
    /// Floating point operations per second that products of square matrices reach.
    Products {
        /// Rows and columns.
        size: usize,
        /// Seconds to keep measuring.
        seconds: f64,
    },
}

/// Training steps of one cell.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Steps {
    /// Task that gives the shape.
    pub task: String,
    /// Source of the data that would be trained on.
    pub source: Source,
    /// Model.
    pub model: String,
    /// Recipe.
    pub recipe: String,
    /// Assignments to settings.
    pub assignments: Vec<String>,
    /// Steps that are not timed.
    pub warmup: usize,
    /// Fewest steps to time.
    pub least: usize,
    /// Seconds to keep timing steps once the fewest are made.
    pub seconds: f64,
    /// Most steps to time.
    pub most: usize,
}

impl Steps {
    /// Resolves the settings that these steps follow.
    pub fn resolve(&self) -> Result<Resolved> {
        let request = RunRequest {
            task: &self.task,
            model: &self.model,
            recipe: &self.recipe,
            source: Some(self.source),
            protocol: Protocol::Clean,
            seed: 0,
            assignments: &self.assignments,
        };
        request.resolve()
    }
}

/// The answer to a [`Request`].
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Reply {
    /// Steps were timed.
    Steps(Measured),
    /// Products were timed.
    Products {
        /// Highest rate reached.
        flops_per_second: f64,
    },
    /// The memory limit was reached.
    OutOfMemory {
        /// The allocation that failed.
        reason: String,
    },
    /// An error occurred.
    Failed {
        /// The error message.
        reason: String,
    },
}

/// Times and memory of some steps. Another build of the program may reply: fields that it does not
/// know are empty.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Measured {
    /// Seconds of each timed step.
    pub seconds: Vec<f64>,
    /// Processor seconds of each timed step, all threads together; empty on a GPU, and where the
    /// system does not report them.
    pub processor_seconds: Vec<f64>,
    /// Time of the steps by phase.
    pub phases: Phases,
    /// High-water mark of memory in bytes, beyond what was held at the start.
    pub peak_bytes: u64,
    /// Bytes held at the start.
    pub base_bytes: u64,
    /// Resident size at the end, in bytes.
    pub resident_bytes: u64,
    /// Resident size before the model was built, in bytes; 0 where the system does not report it.
    pub resident_base_bytes: u64,
    /// High-water mark of the resident size from then on, in bytes; 0 where the system does not
    /// report it.
    pub resident_peak_bytes: u64,
}

/// Answers one request.
pub fn run() -> Result<()> {
    let mut text = String::new();
    stdin()
        .read_to_string(&mut text)
        .during(Class::Usage, "reading the request")?;
    let request: Request = serde_json::from_str(&text).during(Class::Usage, "the request")?;
    runtime::set_up(Some(request.threads))?;
    output::print_json(&answer(&request).unwrap_or_else(|error| {
        let reason = error.to_string();
        match device::is_out_of_memory(&error.cause) {
            true => Reply::OutOfMemory { reason },
            false => Reply::Failed { reason },
        }
    }))
}

fn answer(request: &Request) -> Result<Reply> {
    memory_limit::check(request.memory_limit)?;
    memory_limit::set(request.memory_limit, |reason| {
        // The process ends here; if the parent is gone, no reply is needed.
        let _ = output::print_json(&Reply::OutOfMemory { reason });
        std::process::exit(i32::from(Class::Run.code()));
    });
    let device = device::select(&request.device)?;
    match &request.measurement {
        Measurement::Steps(steps) => measure(steps, &device).map(Reply::Steps),
        Measurement::Products { size, seconds } => products(*size, *seconds, &device)
            .map(|flops_per_second| Reply::Products { flops_per_second }),
    }
}

/// Steps queued on a GPU before it is waited for.
const GROUP: usize = 5;
/// Number of batches that are used in turn.
const BATCHES: u64 = 2;

/// Makes the steps and times them.
pub fn measure(steps: &Steps, device: &Device) -> Result<Measured> {
    let resolved = steps.resolve()?;
    let (info, options) = (resolved.task.info(), &resolved.spec.train);
    let shape = resolved.data_shape()?;
    let [layout, _] = resolved.spec.layouts(resolved.task, &shape);
    let symbols = info.vocabulary - info.first_id as usize;
    let batches: Vec<HostBatch> = (0..BATCHES)
        .map(|index| {
            let rng = RngKey::new(0, index, 0).shared(StreamKey::new("bench"));
            HostBatch::random(layout, options.batch, symbols, shape.classes, rng)
        })
        .collect();
    device::set_precision(device, options.precision)?;
    device::reset_peak(device);
    let resident_base_bytes = host::resident_bytes().unwrap_or(0);
    host::reset_resident_peak();
    let parameters = Parameters::new(resolved.spec.cell.seed, device, DType::F32);
    let classifier = resolved
        .classifier(&resolved.model_shape(&shape), &parameters)
        .class(Class::Usage)?;
    let mut trainer = Trainer {
        network: Network::Classes(&classifier),
        parameters: &parameters,
        updater: Updater::new(&parameters, options)?,
        options,
        seed: resolved.spec.cell.seed,
        device,
    };
    // A GPU keeps working while the next steps are queued, so it is waited for after a group of
    // steps.
    let group = if device.is_cpu() { 1 } else { GROUP };
    let mut timings = Timings::default();
    let mut processor_seconds = Vec::new();
    let (mut step, mut timed) = (0, 0.0);
    let mut batches = batches.iter().cycle();
    loop {
        let done = timings.steps.len();
        if done >= steps.most || done >= steps.least && timed >= steps.seconds {
            break;
        }
        let warms_up = step < steps.warmup;
        let count = if warms_up { 1 } else { group };
        let began = host::processor_seconds().filter(|_| device.is_cpu() && !warms_up);
        let mut pending = Vec::new();
        for batch in batches.by_ref().take(count) {
            let made = trainer.step(step, warms_up, || Ok(batch.clone()));
            pending.push(made.class(Class::Run)?);
            step += 1;
        }
        for made in trainer.collect(&pending).class(Class::Run)? {
            if !made.loss.is_finite() {
                let message = format!("the loss of a step up to {step} is not finite");
                return Err(Error::new(Class::Run, message));
            }
            timings.add(made.time, warms_up);
            if !warms_up {
                timed += made.time.seconds;
            }
        }
        let spent = began.and_then(|began| Some(host::processor_seconds()? - began));
        processor_seconds.extend(spent);
    }
    let peak = device::peak(device);
    Ok(Measured {
        seconds: timings.steps,
        processor_seconds,
        phases: timings.phases,
        peak_bytes: peak.bytes,
        base_bytes: peak.base_bytes,
        resident_bytes: host::resident_bytes().unwrap_or(0),
        resident_base_bytes,
        resident_peak_bytes: host::resident_peak_bytes().unwrap_or(0),
    })
}

/// Products that are made at least.
const LEAST_PRODUCTS: usize = 3;

/// Returns the most floating point operations per second over products of two square matrices, one
/// after the other.
fn products(size: usize, seconds: f64, device: &Device) -> Result<f64> {
    let matrix = |key: &str| {
        let numbers = RngKey::new(0, 0, 0)
            .shared(StreamKey::new(key))
            .normal(size, size);
        Tensor::from_vec(numbers, (size, size), device)?.to_dtype(DType::F32)
    };
    let (a, b) = (matrix("a")?, matrix("b")?);
    let (began, mut best, mut count) = (Instant::now(), f64::INFINITY, 0);
    // The first product also starts threads and touches new memory.
    while count < LEAST_PRODUCTS || began.elapsed().as_secs_f64() < seconds {
        count += 1;
        let start = Instant::now();
        a.matmul(&b)?;
        device.synchronize()?;
        best = best.min(start.elapsed().as_secs_f64());
    }
    Ok(flops_of_product(size) / best)
}

/// Returns the floating point operations of the product of two square matrices: a multiplication
/// and an addition for each of `size` terms of each number.
fn flops_of_product(size: usize) -> f64 {
    2.0 * (size as f64).powi(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_of_matrices_is_counted_and_timed() {
        assert_eq!(flops_of_product(10), 2000.0);
        let rate = products(16, 0.0, &Device::Cpu).unwrap();
        assert!(rate.is_finite() && rate > 0.0, "{rate}");
    }
}
