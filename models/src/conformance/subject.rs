//! Small classifiers and inputs that checks run on, and errors of tensor operations as breaches.

use super::*;

pub(super) const CLASSES: usize = 5;
pub(super) const SEED: u64 = 17;

/// A classifier, small enough to run many times, with its parameters.
pub(super) struct Subject {
    pub(super) classifier: Classifier,
    pub(super) parameters: Parameters,
}

pub(super) fn shape(towers: usize) -> Shape {
    Shape {
        vocabulary: 11,
        classes: CLASSES,
        towers,
        max_length: 37,
        padding: true,
        grid: None,
    }
}

pub(super) fn small(model: &Model) -> Options {
    let mut options = Options::of(model);
    options.block.dim = 16;
    options.block.qkv_dim = 16;
    options.block.mlp_dim = 24;
    options.head.hidden = 12;
    options
}

/// Returns every variant of a model, with blocks so small that a short sequence has many.
pub(super) fn variants(model: &'static Model) -> impl Iterator<Item = (&'static Variant, Options)> {
    model.variants.iter().map(move |variant| {
        let mut options = small(model);
        if model.variants.len() > 1 {
            options.model["variant"] = variant.name.into();
        }
        if !options.model["block"].is_null() {
            options.model["block"] = 4.into();
        }
        (variant, options)
    })
}

pub(super) fn subject(model: &Model, shape: &Shape, options: &Options, seed: u64) -> Subject {
    subject_of(DType::F32, model, shape, options, seed)
}

pub(super) fn subject_of(
    dtype: DType,
    model: &Model,
    shape: &Shape,
    options: &Options,
    seed: u64,
) -> Subject {
    let parameters = Parameters::new(seed, &Device::Cpu, dtype);
    let classifier = Classifier::new(model, shape, options, &parameters).kept();
    Subject {
        classifier,
        parameters,
    }
}

/// Returns rows of the given lengths, padded to `width` with id 0; ids depend on row and position
/// only.
pub(super) fn tokens(lengths: &[usize], width: usize, salt: usize) -> Tokens {
    let (mut ids, mut valid) = (Vec::new(), Vec::new());
    for (row, &length) in lengths.iter().enumerate() {
        for position in 0..width {
            let id = 1 + (row * 7 + position * position * 3 + position + salt) % 10;
            ids.push(if position < length { id as u32 } else { 0 });
            valid.push(f32::from(u8::from(position < length)));
        }
    }
    let shape = (lengths.len(), width);
    Tokens {
        ids: Tensor::from_vec(ids, shape, &Device::Cpu).kept(),
        mask: Some(Tensor::from_vec(valid, shape, &Device::Cpu).kept()),
    }
}

pub(super) fn one(tokens: Tokens) -> Inputs {
    Inputs {
        towers: vec![tokens],
    }
}

pub(super) fn labels(rows: std::ops::Range<usize>) -> Tensor {
    let labels: Vec<u32> = rows.map(|row| (row % CLASSES) as u32).collect();
    Tensor::new(labels, &Device::Cpu).kept()
}

pub(super) fn training(step: u64, first_row: u64) -> Pass<'static> {
    Pass::new(true, RngKey::new(SEED, step, first_row))
}

pub(super) fn evaluation() -> Pass<'static> {
    Pass::new(false, RngKey::new(SEED, 0, 0))
}

pub(super) fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().kept().to_vec1().kept()
}

/// Returns cross-entropy, and the model's losses with their usual weights, of one pass.
pub(super) fn whole_loss(
    classifier: &Classifier,
    inputs: &Inputs,
    labels: &Tensor,
    pass: &Pass,
) -> Tensor {
    let aux = loss::AuxLosses::default();
    let logits = classifier.forward(inputs, &pass.with_losses(&aux)).kept();
    let mut sum = loss::cross_entropy(&logits, labels).kept();
    let declared = classifier.losses();
    for (name, mean) in aux.means().kept() {
        let loss = declared.iter().find(|loss| loss.name == name);
        let loss = loss.unwrap_or_else(|| panic!("the loss {name} is added and not declared"));
        assert!(registry::losses().contains(loss), "{loss:?}");
        let mean = mean.to_dtype(sum.dtype()).kept();
        sum = (sum + (mean * loss.weight).kept()).kept();
    }
    sum
}

/// Unwraps the result of a tensor operation; an error is a breach of the promise at hand.
pub(super) trait Kept<T> {
    fn kept(self) -> T;
}

impl<T, E: Into<Error>> Kept<T> for Result<T, E> {
    #[track_caller]
    fn kept(self) -> T {
        self.unwrap_or_else(|error| refuse(error.into()))
    }
}

#[track_caller]
pub(super) fn refuse(error: Error) -> ! {
    let Error::Tensor(candle_core::Error::WithBacktrace { inner, backtrace }) = &error else {
        panic!("{error}")
    };
    match caller(&backtrace.to_string()) {
        Some(place) => panic!("{place}: {inner}"),
        None => panic!("{inner}"),
    }
}

/// Returns file, line and column of the innermost call of a printed backtrace that is neither a
/// library's nor this program's.
pub(super) fn caller(trace: &str) -> Option<&str> {
    const OTHERS: [&str; 3] = ["/registry/", "/rustc/", "/library/"];
    // Files of these crates, by paths from the workspace or absolute ones.
    let ours = |place: &str| {
        let models = env!("CARGO_MANIFEST_DIR");
        let workspace = models.trim_end_matches("models");
        let lra = format!("{workspace}lra");
        let crates = [models, &lra, "models", "lra"];
        let file = place.trim_start_matches("./");
        crates.iter().any(|root| {
            let within = file.strip_prefix(root);
            within.is_some_and(|rest| rest.starts_with("/src/"))
        })
    };
    let mut places = trace
        .lines()
        .filter_map(|line| line.trim().strip_prefix("at "));
    places.find(|place| !ours(place) && !OTHERS.iter().any(|other| place.contains(other)))
}

/// Returns the gradient of the parameter at `path`.
#[track_caller]
pub(super) fn gradient_of<'a>(gradients: &'a GradStore, path: &str, var: &Var) -> &'a Tensor {
    let gradient = gradients.get(var);
    gradient
        .unwrap_or_else(|| panic!("no gradient reaches {path}: unused, or detached on the way?"))
}

/// Sets every rate of dropout to 0.
pub(super) fn silence(options: &mut Options) {
    options.embed.dropout = 0.0;
    options.block.dropout = 0.0;
    options.block.attention_dropout = 0.0;
    if let Some(own) = options.model.as_object_mut() {
        for (_, value) in own.iter_mut().filter(|(key, _)| key.contains("dropout")) {
            *value = 0.0.into();
        }
    }
}

pub(super) fn scalar(tensor: &Tensor) -> f32 {
    tensor.to_scalar().kept()
}

/// Returns gradients of the first step; of the second one for blocks whose branches start at zero.
pub(super) fn gradients(
    subject: &Subject,
    options: &Options,
    loss: impl Fn() -> Tensor,
) -> GradStore {
    let gradients = ops::backward(&loss()).kept();
    if !options.block.residual.starts_at_zero() {
        return gradients;
    }
    for (path, var) in subject.parameters.all() {
        let step = gradient_of(&gradients, &path, &var).affine(0.1, 0.0).kept();
        var.set(&(var.as_detached_tensor() - step).kept()).kept();
    }
    ops::backward(&loss()).kept()
}

pub(super) fn largest_difference(one: &[f32], other: &[f32]) -> f32 {
    assert_eq!(one.len(), other.len());
    let pairs = one.iter().zip(other);
    pairs.fold(0.0, |most, (a, b)| most.max((a - b).abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_innermost_call_outside_libraries_is_named() {
        let trace = "   0: candle_core::error::Error::bt\n             at /home/me/.cargo/registry/src/x/candle-core/src/error.rs:264:25\n   \
                     1: lra_models::ops::matmul\n             at ./models/src/ops/matmul.rs:40:9\n   2: <mine as Mixer>::forward\n             \
                     at ./src/main.rs:80:17\n   3: main\n             at ./src/main.rs:99:1";
        assert_eq!(caller(trace), Some("./src/main.rs:80:17"));
        assert_eq!(caller("   0: main"), None);
        // A crate whose name ends as one of these is a stranger's.
        let own = "   0: f\n   at ./my_models/src/lib.rs:3:1\n   at /home/me/lra/src/main.rs:4:1";
        assert_eq!(caller(own), Some("./my_models/src/lib.rs:3:1"));
        let rest = own.replace("./my_models", "models");
        assert_eq!(caller(&rest), Some("/home/me/lra/src/main.rs:4:1"));
    }
}
