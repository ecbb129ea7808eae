//! Small classifiers and inputs that checks run on, and errors of tensor operations as breaches.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    thread,
};

use super::*;
use crate::rng::StreamKey;

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

/// Returns the shape of sequences of up to `length` tokens, or of [`shape`] if these are longer.
pub(super) fn of_length(length: usize) -> Shape {
    let shape = shape(1);
    Shape {
        max_length: length.max(shape.max_length),
        ..shape
    }
}

/// Returns the first of `lengths` at which the model states no more than `most` operations.
pub(super) fn longest_of(model: &Model, lengths: &[usize], most: u64) -> Option<usize> {
    let fits = |length: &usize| {
        let meta = Parameters::meta(&Device::Cpu, DType::F32);
        let shape = of_length(*length);
        let classifier = Classifier::new(model, &shape, &small(model), &meta).kept();
        classifier.flops(1, *length) <= most
    };
    lengths.iter().copied().find(fits)
}

pub(super) fn small(model: &Model) -> Options {
    let mut options = Options::of(model);
    options.block.dim = 16;
    options.block.qkv_dim = 16;
    options.block.mlp_dim = 24;
    options.head.hidden = 12;
    // Fewer than there are tokens, so that they stand for several, and a matrix of all of them is
    // soon inverted.
    if let Some(landmarks) = options.model["landmarks"].as_u64() {
        options.model["landmarks"] = landmarks.min(16).into();
    }
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

/// Returns the options of [`small`] with a norm of each row in place of one over a batch, under
/// which rows know each other on purpose.
pub(super) fn small_by_rows(model: &Model) -> Options {
    by_rows(small(model))
}

/// Returns `options` with LayerNorm in place of a norm over a batch.
pub(super) fn by_rows(mut options: Options) -> Options {
    match options.block.norm {
        NormKind::Batch | NormKind::BatchMasked | NormKind::Power => {
            options.block.norm = NormKind::Layer;
        }
        NormKind::Layer | NormKind::Rms | NormKind::Scale | NormKind::Ada | NormKind::None => {}
    }
    options
}

/// Returns a classifier in f32, as [`subject_of`] does.
pub(super) fn subject(model: &Model, shape: &Shape, options: &Options, seed: u64) -> Subject {
    subject_of(DType::F32, model, shape, options, seed)
}

/// Returns a classifier whose parameters are the initial ones, but for those that are all zero:
/// these are moved a little, since a layer that starts at zero hides all that comes before it.
pub(super) fn subject_of(
    dtype: DType,
    model: &Model,
    shape: &Shape,
    options: &Options,
    seed: u64,
) -> Subject {
    let subject = initial(dtype, model, shape, options, seed);
    shift_zeros(&subject.parameters);
    subject
}

/// Returns a classifier, as [`subject`] does. `None` if the model refuses these options.
pub(super) fn subject_unless_refused(
    model: &Model,
    shape: &Shape,
    options: &Options,
    seed: u64,
) -> Option<Subject> {
    let blank = Parameters::meta(&Device::Cpu, DType::F32);
    match Classifier::new(model, shape, options, &blank) {
        Err(error) if error.is_of_options() => None,
        _ => Some(subject(model, shape, options, seed)),
    }
}

/// Returns a classifier with its initial parameters.
pub(super) fn initial(
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

/// Moves every parameter by a fiftieth of a normal draw, within the interval that it is kept in:
/// away from the zeros and ones of initialisation, which hide mistakes.
pub(super) fn shift(parameters: &Parameters) {
    shift_those(parameters, |_| true);
}

/// Moves the parameters that are all zero as [`shift`] does.
pub(super) fn shift_zeros(parameters: &Parameters) {
    shift_those(parameters, |var| {
        let sum = var.abs().kept().sum_all().kept();
        sum.to_dtype(DType::F64).kept().to_scalar::<f64>().kept() == 0.0
    });
}

fn shift_those(parameters: &Parameters, moves: impl Fn(&Tensor) -> bool) {
    for (path, var, attributes) in parameters.with_attributes() {
        if !moves(var.as_tensor()) {
            continue;
        }
        let stream = RngKey::new(SEED, 1, 0).shared(StreamKey::new(&path));
        let mut shift = stream.normal(1, var.elem_count());
        if attributes.projection.is_some() {
            // Inside the interval: at its lower end there may be a kink.
            shift.iter_mut().for_each(|x| *x = x.abs());
        }
        let shift = Tensor::from_vec(shift, var.shape(), &Device::Cpu).kept();
        let shift = shift.affine(0.02, 0.0).kept().to_dtype(var.dtype()).kept();
        let moved = (var.as_detached_tensor() + shift).kept();
        let moved = match attributes.projection {
            Some(projection) => projection.apply(&moved).kept(),
            None => moved,
        };
        var.set(&moved).kept();
    }
}

/// Runs `work` in a pool of `count` threads.
pub(super) fn on_threads<T: Send>(count: usize, work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let mut workers = Vec::new();
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(count)
            .spawn_handler(|worker| {
                let started = thread::Builder::new().spawn_scoped(scope, || worker.run())?;
                workers.push(started);
                Ok(())
            })
            .build();
        let pool = pool.unwrap_or_else(|error| panic!("{count} threads: {error}"));
        let outcome = catch_unwind(AssertUnwindSafe(|| pool.install(work)));
        drop(pool);
        // A thread frees the buffers that it keeps when it ends, after its work and after the end
        // of its scope. That must not be counted in another measurement of the heap: `join` waits
        // for it.
        for worker in workers {
            worker.join().unwrap_or_else(|panic| resume_unwind(panic));
        }
        outcome.unwrap_or_else(|panic| resume_unwind(panic))
    })
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

/// Returns the FNV-1a hash of `words`.
pub(super) fn fnv(words: impl Iterator<Item = u64>) -> u64 {
    words.fold(0xcbf2_9ce4_8422_2325, |hash, word| {
        (hash ^ word).wrapping_mul(0x0100_0000_01b3)
    })
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

/// Sets every rate of dropout, the model's own included.
pub(super) fn set_dropout(options: &mut Options, rate: f64) {
    options.embed.dropout = rate;
    options.block.dropout = rate;
    options.block.attention_dropout = rate;
    if let Some(own) = options.model.as_object_mut() {
        let rates = own
            .iter_mut()
            .filter(|(key, value)| key.contains("dropout") && value.is_f64());
        for (_, value) in rates {
            *value = rate.into();
        }
    }
}

pub(super) fn scalar(tensor: &Tensor) -> f32 {
    tensor.to_scalar().kept()
}

/// Returns the gradients of `loss`, none of which may have a number that is not finite. If one is
/// zero, they are those after a [`shift`]: what lies before a layer that starts at zero has none at
/// first.
pub(super) fn gradients(
    model: &Model,
    parameters: &Parameters,
    loss: impl Fn() -> Tensor,
) -> GradStore {
    let gradients = ops::backward(&loss()).kept();
    let mut some_is_zero = false;
    for (path, var) in parameters.all() {
        let values = gradients.get(&var).map(values).unwrap_or_default();
        assert!(
            values.iter().all(|x| x.is_finite()),
            "{}: the gradient of {path} is not finite",
            model.name
        );
        some_is_zero |= values.iter().all(|x| *x == 0.0);
    }
    if !some_is_zero {
        return gradients;
    }
    shift(parameters);
    ops::backward(&loss()).kept()
}

/// Checks that every parameter has a gradient that is not zero.
pub(super) fn all_are_trained(place: &str, parameters: &Parameters, gradients: &GradStore) {
    for (path, var) in parameters.all() {
        let gradient = values(gradient_of(gradients, &path, &var));
        assert!(
            gradient.iter().all(|x| x.is_finite()),
            "{place}: the gradient of {path} is not finite"
        );
        assert!(
            gradient.iter().any(|x| *x != 0.0),
            "{place}: the gradient of {path} is zero everywhere: unused, or detached on the way?"
        );
    }
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
