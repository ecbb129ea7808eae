//! Every model of the registry: one training step in f32 on the GPU beside the same on the CPU.

use candle_core::{DType, Device, Tensor};
use lra_models::{
    Classifier, Inputs, MODELS, Model, Options, Parameters, Pass, RngKey, Shape, Tokens, loss, ops,
};

use super::{Case, error, numbers};

/// Differences as a share of the largest number of a tensor. Kernels add in another order than the
/// CPU, and a choice of the largest or a rounding to a bucket may fall the other way.
const TOLERANCE: f64 = 2e-3;

pub(super) fn cases() -> Vec<(String, Case)> {
    let case = |model: &'static Model| {
        let run: Case = Box::new(move |device| compare(model, device));
        (format!("models::{}", model.name), run)
    };
    MODELS.iter().copied().map(case).collect()
}

const LENGTH: usize = 70;
const BATCH: usize = 4;

fn compare(model: &'static Model, device: &Device) -> Result<(), String> {
    let step = |device: &Device| step(model, device).map_err(|error| error.to_string());
    let expected = step(&Device::Cpu)?;
    let (actual, again) = (step(device)?, step(device)?);
    let mut failed = Vec::new();
    for ((name, actual), (_, expected)) in actual.iter().zip(&expected) {
        let error = error(actual, expected, 1e-4);
        if error > TOLERANCE {
            failed.push(format!(
                "{name} differs by {error:.1e} of its largest number"
            ));
        }
    }
    let unequal = actual.iter().zip(&again).find(|(one, other)| one != other);
    if let Some(((name, _), _)) = unequal {
        failed.push(format!("{name}: two runs give different bits"));
    }
    match failed.len() {
        0 => Ok(()),
        1..=3 => Err(failed.join("; ")),
        more => Err(format!("{}; {} more", failed[..3].join("; "), more - 3)),
    }
}

/// Returns logits and gradients of a training step of a small classifier.
fn step(model: &'static Model, device: &Device) -> lra_models::Result<Vec<(String, Vec<f64>)>> {
    let shape = Shape {
        vocabulary: 11,
        classes: 5,
        towers: 1,
        max_length: LENGTH,
        padding: true,
        grid: None,
    };
    let mut options = Options::of(model);
    options.block.dim = 16;
    options.block.qkv_dim = 16;
    options.block.mlp_dim = 24;
    options.block.dropout = 0.1;
    let parameters = Parameters::new(17, device, DType::F32);
    let classifier = Classifier::new(model, &shape, &options, &parameters)?;
    let (mut ids, mut valid) = (Vec::new(), Vec::new());
    for row in 0..BATCH {
        for position in 0..LENGTH {
            let is_valid = position < LENGTH - 9 * row;
            let id = 1 + (row * 7 + position * position * 3 + position) % 10;
            ids.push(if is_valid { id as u32 } else { 0 });
            valid.push(f32::from(u8::from(is_valid)));
        }
    }
    let inputs = Inputs {
        towers: vec![Tokens {
            ids: Tensor::from_vec(ids, (BATCH, LENGTH), device)?,
            mask: Some(Tensor::from_vec(valid, (BATCH, LENGTH), device)?),
        }],
    };
    let labels: Vec<u32> = (0..BATCH as u32).collect();
    let labels = Tensor::new(labels, device)?;
    let pass = Pass::new(true, RngKey::new(17, 1, 0));
    let logits = classifier.forward(&inputs, &pass)?;
    let gradients = ops::backward(&loss::cross_entropy(&logits, &labels)?)?;
    let mut all = vec![("the logits".to_owned(), numbers(&logits))];
    for (path, parameter) in parameters.all() {
        let gradient = match gradients.get(&parameter) {
            Some(gradient) => numbers(gradient),
            None => vec![0.0; parameter.elem_count()],
        };
        all.push((format!("the gradient of {path}"), gradient));
    }
    Ok(all)
}
