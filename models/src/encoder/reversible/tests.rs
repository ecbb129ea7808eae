use candle_core::{DType, Device, backprop::GradStore};

use super::*;
use crate::{
    Mixer, Parameters,
    context::ModelContext,
    encoder::{Encoder, stack},
    mixers,
    options::{BlockOptions, Residual},
    testing::normal,
};

const LENGTH: usize = 21;

/// A mixer of an encoder from the registry.
struct Borrowed {
    encoder: Arc<dyn Encoder>,
    layer: usize,
}

impl Mixer for Borrowed {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        self.encoder.mixers()[self.layer].forward(x, pass)
    }

    fn flops(&self, length: usize) -> u64 {
        self.encoder.mixers()[self.layer].flops(length)
    }
}

/// Computes the two streams by ordinary operations.
fn composed(blocks: &[Block], x: &Tensor, pass: &Pass) -> Result<Tensor> {
    let mut streams = [x.clone(), x.clone()];
    for step in steps(blocks) {
        let change = step.forward(&streams[step.from], pass)?;
        streams[step.to] = (&streams[step.to] + change)?;
    }
    halfway(&streams[0], &streams[1])
}

fn numbers(x: &Tensor) -> Vec<f64> {
    let x = x.to_dtype(DType::F64).unwrap();
    x.flatten_all().unwrap().to_vec1().unwrap()
}

fn agree(place: &str, actual: &Tensor, expected: &Tensor, tolerance: f64) {
    let (actual, expected) = (numbers(actual), numbers(expected));
    let scale = expected.iter().fold(1e-3f64, |most, x| most.max(x.abs()));
    for (actual, expected) in actual.iter().zip(&expected) {
        let apart = (actual - expected).abs();
        assert!(apart <= tolerance * scale, "{place}: {actual} {expected}");
    }
}

/// Runs two inputs through the same blocks, so that gradients of one variable come from two passes.
fn meets_composed(name: &str, dtype: DType, tolerance: f64, train: bool) {
    let parameters = Parameters::new(4, &Device::Cpu, dtype);
    let block = BlockOptions {
        layers: 3,
        dim: 8,
        qkv_dim: 8,
        mlp_dim: 12,
        residual: Residual::Reversible,
        ..BlockOptions::default()
    };
    let model = mixers::find(name).unwrap();
    let defaults = model.defaults();
    let build = ModelContext::new(parameters.builder(), &block, model, &defaults, LENGTH);
    let encoder: Arc<dyn Encoder> = model.build(&build).unwrap().into();
    let blocks = stack(&build, &|at| {
        Ok(Box::new(Borrowed {
            encoder: encoder.clone(),
            layer: at.index,
        }))
    });
    let blocks = blocks.unwrap().blocks;

    let valid: Vec<f32> = (0..2 * LENGTH).map(|i| f32::from(i < 30)).collect();
    let valid = Tensor::from_vec(valid, (2, LENGTH), &Device::Cpu).unwrap();
    let mask = Mask::new(&valid.to_dtype(dtype).unwrap()).unwrap();
    let pass = Pass::new(train, RngKey::new(1, 2, 3));
    let pass = pass.with_mask(Some(&mask));
    let draw = |name: &str| normal(name, &[2, LENGTH, 8]).to_dtype(dtype).unwrap();
    let inputs = ["one", "other"].map(|name| Var::from_tensor(&draw(name)).unwrap());
    let run = |forward: &dyn Fn(&Tensor) -> Result<Tensor>| -> ([Tensor; 2], GradStore) {
        let outputs = inputs.each_ref().map(|x| forward(x).unwrap());
        let sum = (&outputs[0] - &outputs[1]).unwrap();
        (outputs, backward_from(&sum, &draw("weights")).unwrap())
    };
    let (outputs, actual) = run(&|x| forward(&blocks, x, &pass));
    let (wanted_outputs, expected) = run(&|x| composed(&blocks, x, &pass));
    for (output, expected) in outputs.iter().zip(&wanted_outputs) {
        agree(&format!("{name}: output"), output, expected, tolerance);
    }
    let variables = parameters.all();
    assert!(variables.len() > 20);
    let inputs = inputs.iter().map(|x| ("x".to_owned(), x.clone()));
    for (path, var) in variables.into_iter().chain(inputs) {
        if path.contains("last_norm") {
            continue; // after the blocks
        }
        let place = format!("{name}: {path}");
        agree(
            &place,
            actual.get(&var).unwrap(),
            expected.get(&var).unwrap(),
            tolerance,
        );
    }
}

#[test]
fn outputs_and_gradients_are_those_of_two_composed_streams() {
    for name in ["reformer", "transformer", "performer", "bag"] {
        meets_composed(name, DType::F64, 1e-10, true);
        meets_composed(name, DType::F32, 1e-4, true);
    }
    meets_composed("bag", DType::F64, 1e-10, false);
}

#[test]
fn evaluation_keeps_no_history() {
    let parameters = Parameters::new(4, &Device::Cpu, DType::F64);
    let block = BlockOptions {
        residual: Residual::Reversible,
        ..BlockOptions::default()
    };
    let encoder = |parameters: &Parameters| {
        let model = mixers::find("linear").unwrap();
        model
            .build(&ModelContext::new(
                parameters.builder(),
                &block,
                model,
                &model.defaults(),
                5,
            ))
            .unwrap()
    };
    let x = normal("x", &[1, 5, 64]);
    let pass = Pass::new(false, RngKey::new(1, 0, 0));
    let run = |parameters: &Parameters| encoder(parameters).forward(&x, &pass).unwrap().hidden;
    let (trained, scored) = (run(&parameters), run(&parameters.detached()));
    assert!(trained.track_op() && !scored.track_op());
    assert_eq!(numbers(&trained), numbers(&scored));
}
