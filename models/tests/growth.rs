//! Memory grows with the length as each paper says, measured by counting allocations.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod counting;

use std::env;
use std::process::{Command, Stdio};

use candle_core::{DType, Device, Tensor};
use lra_models::{
    Cost, Encoder, MODELS, Parameters, Pass, RngKey,
    context::ModelContext,
    mixers,
    options::{BlockOptions, Options, Residual},
};
use serde_json::json;

fn blocks(layers: usize, residual: Residual) -> BlockOptions {
    BlockOptions {
        layers,
        residual,
        dim: 32,
        qkv_dim: 32,
        mlp_dim: 32,
        ..BlockOptions::default()
    }
}

fn encoder(
    name: &str,
    options: &str,
    block: &BlockOptions,
    vb: lra_models::VarBuilder,
    length: usize,
) -> Box<dyn Encoder> {
    let model = mixers::find(name).unwrap();
    let mut values = Options::of(model).model;
    let changes: serde_json::Value = serde_json::from_str(options).unwrap();
    for (key, value) in changes.as_object().unwrap() {
        assert!(values.get(key).is_some(), "{name} has no option {key}");
        values[key] = json!(value);
    }
    let block = BlockOptions {
        ffn: Options::of(model).block.ffn,
        ..block.clone()
    };
    let build = ModelContext::new(vb, &block, model, &values, length);
    model.build(&build).unwrap()
}

/// Bytes at the peak of a forward and backward pass of one sequence, parameters and input aside.
fn peak(name: &str, options: &str, block: &BlockOptions, length: usize) -> f64 {
    peak_of(DType::F32, name, options, block, length)
}

fn peak_of(dtype: DType, name: &str, options: &str, block: &BlockOptions, length: usize) -> f64 {
    let parameters = Parameters::new(1, &Device::Cpu, dtype);
    let encoder = encoder(name, options, block, parameters.builder(), length);
    let x: Vec<f32> = (0..length * 32).map(|i| (i as f32).sin()).collect();
    let x = Tensor::from_vec(x, (1, length, 32), &Device::Cpu).unwrap();
    let x = x.to_dtype(dtype).unwrap();
    let pass = Pass::new(true, RngKey::new(1, 0, 0));
    let step = || {
        let y = encoder.forward(&x, &pass).unwrap().hidden;
        y.sum_all().unwrap().backward().unwrap()
    };
    counting::peak_of(step) as f64
}

/// Names the number format in the processes that measure one of them.
const FORMAT: &str = "LRA_TEST_FORMAT";

/// One test: the counter is for all threads. Fused forms (f32) and composed ones (f64) are measured
/// in processes of their own at the same time.
#[test]
fn memory_grows_as_claimed() {
    match env::var(FORMAT).as_deref() {
        Ok("f32") => {
            set_up();
            memory_grows_as_each_card_says(DType::F32);
            memory_of_reversible_blocks_does_not_grow_with_their_number();
        }
        Ok("f64") => {
            set_up();
            memory_grows_as_each_card_says(DType::F64);
        }
        _ => {
            let children = ["f32", "f64"].map(|format| {
                let mut command = Command::new(env::current_exe().unwrap());
                command.args(["memory_grows_as_claimed", "--exact", "--nocapture"]);
                // The heap keeps what is freed, which saves most calls of the system.
                command.envs([
                    ("MALLOC_MMAP_MAX_", "0"),
                    ("MALLOC_TRIM_THRESHOLD_", "4000000000"),
                ]);
                let command = command.env(FORMAT, format).stdout(Stdio::piped());
                command.spawn().unwrap()
            });
            let outputs = children.map(|child| child.wait_with_output().unwrap());
            for (format, output) in ["f32", "f64"].iter().zip(outputs) {
                let told = String::from_utf8_lossy(&output.stdout);
                println!("{told}");
                // A child that finds no test of this name succeeds, too.
                let passed = output.status.success() && told.contains("1 passed");
                assert!(passed, "{format}");
            }
        }
    }
}

fn set_up() {
    // Two threads on every machine: each task at work has scratch of its own, which grows with the
    // length too.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2);
    pool.build_global().unwrap();
    // Buffers that threads keep are no part of a pass; any threads may take part in it.
    rayon::broadcast(|_| lra_models::ops::fetch_buffers());
    lra_models::ops::fetch_buffers();
}

fn memory_grows_as_each_card_says(dtype: DType) {
    let block = blocks(1, Residual::Plain);
    for model in MODELS {
        // In f64 and on GPUs, attention keeps its weights unless a block mask thins them out.
        let claimed = match (model.memory, model.time, dtype) {
            (_, time @ Cost::Quadratic(_), DType::F64) => time,
            (memory, ..) => memory,
        };
        // Composed forms, which are computed in f64, take most of the time.
        let lengths = match dtype {
            DType::F64 => [320, 1280],
            _ => [512, 2048],
        };
        // The first pass also fills buffers that stay with their threads.
        peak_of(dtype, model.name, "{}", &block, lengths[0]);
        let [short, long] = lengths.map(|length| peak_of(dtype, model.name, "{}", &block, length));
        let (name, growth) = (model.name, long / short);
        println!(
            "{name}, {dtype:?}: {:.0} kB at {}, {growth:.2}x at {}",
            short / 1e3,
            lengths[0],
            lengths[1]
        );
        // Four times the length: 4 times the memory if it is linear, 8 if it is L √L, 16 if it
        // is quadratic.
        match claimed {
            // A model may compute its weights block by block in any type.
            Cost::Quadratic(_) => {
                let kept = matches!(model.memory, Cost::Quadratic(_));
                assert!(
                    !kept || growth > 9.0,
                    "{name}, {dtype:?}: only {growth:.2}x"
                );
                assert!(growth < 17.0, "{name}, {dtype:?}: {growth:.2}x");
            }
            Cost::Linear(_) if dtype == DType::F32 => {
                assert!(growth < 4.0 * 1.5, "{name}, {dtype:?}: {growth:.2}x");
            }
            _ => assert!(growth < 9.0, "{name}, {dtype:?}: {growth:.2}x"),
        }
    }
    // The counter recognises a quadratic computation.
    let materialised = r#"{"attention": "materialised"}"#;
    let [short, long] = [512, 1024].map(|length| peak("transformer", materialised, &block, length));
    assert!(long / short > 3.0, "{short} {long}");
}

fn memory_of_reversible_blocks_does_not_grow_with_their_number() {
    for name in ["reformer", "linear"] {
        let growth = |residual| {
            let [few, many] =
                [2, 8].map(|layers| peak(name, "{}", &blocks(layers, residual), 1024));
            println!(
                "{name}, {residual:?}: {:.0} kB, {:.0} kB",
                few / 1e3,
                many / 1e3
            );
            many / few
        };
        growth(Residual::Reversible);
        // Parameters have gradients, four times as many here.
        let (plain, reversible) = (growth(Residual::Plain), growth(Residual::Reversible));
        assert!(
            plain > 2.5 && reversible < 1.25,
            "{name}: {plain} {reversible}"
        );
    }
}
