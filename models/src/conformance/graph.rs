//! The graph of a pass: types and sizes of the tensors that it keeps for the gradient.

use std::collections::HashMap;

use candle_core::{CpuStorage, Storage};

use super::*;

/// Returns the bytes that the graph keeps between parameters and `tensor`: each storage once, for
/// any number of views.
fn kept_bytes(tensor: &Tensor) -> usize {
    let mut sizes = HashMap::new();
    for node in tensor.sorted_nodes() {
        if node.is_variable() {
            continue;
        }
        let (storage, _) = node.storage_and_layout();
        let count = match &*storage {
            Storage::Cpu(CpuStorage::F32(x)) => x.len(),
            Storage::Cpu(CpuStorage::F64(x)) => x.len(),
            Storage::Cpu(CpuStorage::F16(x)) => x.len(),
            Storage::Cpu(CpuStorage::BF16(x)) => x.len(),
            _ => node.elem_count(),
        };
        let place: *const Storage = &*storage;
        sizes.insert(place as usize, count * node.dtype().size_in_bytes());
    }
    sizes.values().sum()
}

/// Returns the elements of all tensors that the graph names between parameters and `tensor`, views
/// included: with a sum over a view goes work in proportion to its size.
pub(super) fn elements(tensor: &Tensor) -> usize {
    let nodes = tensor.sorted_nodes().into_iter();
    let nodes = nodes.filter(|node| !node.is_variable());
    nodes.map(|node| node.elem_count()).sum()
}

/// Code that makes tensors of fewer bits than f32.
const HALF: [&str; 7] = [
    "to_dtype(DType::F16",
    "to_dtype(DType::BF16",
    "to_dtype(DType::F8",
    ", DType::F16,",
    ", DType::BF16,",
    "half::f16",
    "half::bf16",
];

/// Checks that no tensor on the way to the loss, and to the logits of an evaluation, has fewer bits
/// than the parameters. In f64, where no kernel hides the tensors behind it. Constants are not part
/// of the graph: the model's own source may make none of such a type.
pub(super) fn no_number_is_kept_with_fewer_bits_than_the_parameters_have(model: &'static Model) {
    for (variant, options) in variants(model) {
        let subject = subject_of(DType::F64, model, &shape(1), &options, 1);
        let inputs = one(tokens(&[11, 4], 11, 0));
        let loss = whole_loss(&subject.classifier, &inputs, &labels(0..2), &training(0, 0));
        let logits = subject.classifier.forward(&inputs, &evaluation()).kept();
        for (kind, outcome) in [("training", loss), ("evaluation", logits)] {
            let mut nodes = outcome.sorted_nodes().into_iter();
            // The stand-in for operands that a kernel has released is a single number in f32.
            let narrow = nodes.find(|node| {
                node.rank() > 0 && node.dtype().is_float() && node.dtype() != DType::F64
            });
            if let Some(node) = narrow {
                let (actual, shape) = (node.dtype(), node.shape());
                panic!(
                    "{} {}: in {kind}, a tensor {shape:?} of type {actual:?} where parameters are f64: `to_dtype(x.dtype())` keeps the type",
                    model.name, variant.name
                );
            }
        }
        if let Some(place) = variant.place_of(&HALF) {
            panic!(
                "{} {}: a type of fewer bits than the parameters have, which constants may be rounded to: {place}",
                model.name, variant.name
            );
        }
    }
}

/// Checks that the memory that the graph of a training pass keeps at L, 2L and 4L grows no faster
/// than [`Model::memory`] says. In f64, where layers are composed and every tensor shows. Attention
/// of quadratic time keeps its weights there, so that such models are not checked.
pub(super) fn memory_grows_as_the_card_says(model: &'static Model) {
    let most = match (model.memory, model.time) {
        (_, Cost::Quadratic(_) | Cost::Mixed(_)) | (Cost::Mixed(_) | Cost::Quadratic(_), _) => {
            return;
        }
        (Cost::Linear(_), Cost::Linear(_)) => 2.5,
        _ => 3.1,
    };
    // The longer lengths decide if a window is wider than the shorter ones.
    let mut said = String::new();
    for lengths in [[128, 256, 512], [512, 1024, 2048]] {
        let [short, long, longest] = lengths.map(|length| kept_bytes_at(model, length));
        // Differences cancel the memory that does not depend on the length.
        let [less, more] = [long as f64 - short as f64, longest as f64 - long as f64];
        let growth = more / less;
        if growth <= most {
            return;
        }
        said = format!(
            "{short}, {long} and {longest} B at {lengths:?} tokens: each doubling adds {growth:.1} times the one before"
        );
    }
    panic!(
        "{}: the card says memory {}, but a training pass keeps {said}, where {most} times is the most",
        model.name, model.memory
    );
}

/// Returns [`kept_bytes`] of a training pass over one sequence of `length`.
fn kept_bytes_at(model: &'static Model, length: usize) -> usize {
    kept_bytes(&trained(model, length))
}

/// Returns the logits of a training pass in f64 over one sequence of `length` tokens, with one layer
/// where the model can have so few.
pub(super) fn trained(model: &'static Model, length: usize) -> Tensor {
    let shape = Shape {
        max_length: length,
        ..shape(1)
    };
    let mut options = small(model);
    options.block.layers = 1;
    let parameters = Parameters::new(1, &Device::Cpu, DType::F64);
    let classifier = match Classifier::new(model, &shape, &options, &parameters) {
        Err(error) if error.is_of_options() => {
            subject_of(DType::F64, model, &shape, &small(model), 1).classifier
        }
        other => other.kept(),
    };
    let inputs = one(tokens(&[length], length, 0));
    classifier.forward(&inputs, &training(0, 0)).kept()
}
