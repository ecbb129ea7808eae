//! Checks that every model passes, whatever it computes: [`PROMISES`]. A check panics with what is
//! wrong.
//!
//! A test over the registry runs them for the models here, and `lra check-model` for a model of
//! one's own.

mod causality;
mod costs;
mod gradients;
mod graph;
mod independence;

use self::{
    causality::no_position_sees_what_follows_where_that_is_claimed,
    costs::{operations_are_those_counted, operations_grow_as_the_card_says},
    gradients::gradients_are_difference_quotients,
    graph::{
        memory_grows_as_the_card_says, no_number_is_kept_with_fewer_bits_than_the_parameters_have,
    },
    independence::{
        a_pass_leaves_nothing_behind, evaluation_drops_nothing, rows_do_not_know_each_other,
    },
};

use candle_core::{DType, Device, Tensor, Var, backprop::GradStore};

use crate::{
    Auxiliary, Axis, Classifier, Cost, Error, Inputs, Model, Options, Parameters, Pass, Place,
    RngKey, Shape, Tokens, Variant,
    axes::Choice,
    loss, ops,
    options::{Activation, Features, NormPlace, Pooling, Positions, Residual},
    pass::Supervision,
    registry,
};

/// Something that is asked of every model.
#[derive(Clone, Copy, Debug)]
pub struct Promise {
    /// The promise in words, such as `padding_changes_no_logit`.
    pub name: &'static str,
    /// Panics with what is wrong.
    pub check: fn(&'static Model),
    /// Promises that come first: where one of them is broken, this one would say the same again.
    pub rests_on: &'static [&'static str],
    /// Words of a model's source that stand near the cause of a breach, the likeliest first.
    words: &'static [&'static str],
}

/// What became of a promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is kept.
    Kept,
    /// It is not, and this is wrong.
    Broken(String),
    /// It was not tried, because this one is broken.
    NotTried(&'static str),
}

/// Asks for the [`PROMISES`] in their order, and tries none that rests on a broken one: one cause
/// is told once. `broken` says what is wrong with one, if anything is; `told` hears of each as soon
/// as it is known.
///
/// # Errors
/// Those of `told`.
pub fn ask<E>(
    mut broken: impl FnMut(&'static Promise) -> Option<String>,
    mut told: impl FnMut(&'static Promise, &Outcome) -> Result<(), E>,
) -> Result<Vec<(&'static Promise, Outcome)>, E> {
    let mut all: Vec<(&'static Promise, Outcome)> = Vec::new();
    for promise in PROMISES {
        let cause = all.iter().find_map(|(before, outcome)| match outcome {
            _ if !promise.rests_on.contains(&before.name) => None,
            Outcome::Kept => None,
            Outcome::Broken(_) => Some(before.name),
            Outcome::NotTried(cause) => Some(*cause),
        });
        let outcome = match cause {
            Some(cause) => Outcome::NotTried(cause),
            None => broken(promise).map_or(Outcome::Kept, Outcome::Broken),
        };
        told(promise, &outcome)?;
        all.push((promise, outcome));
    }
    Ok(all)
}

impl Promise {
    /// Returns the line of `model`'s source that a breach points at: where the parameter is made
    /// that `said` names, or what the promise is about.
    #[must_use]
    pub fn place(&self, model: &Model, said: &str) -> Option<Place> {
        let parts = |c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.');
        let mut words = said.split(parts);
        let path = words.find(|word| word.starts_with("encoder."));
        let names = path.iter().flat_map(|path| path.rsplit('.'));
        let names = names.filter(|name| !name.is_empty());
        let names: Vec<String> = names.map(|name| format!("\"{name}\"")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let found = |words: &[&str]| {
            let mut variants = model.variants.iter();
            variants.find_map(|variant| variant.place_of(words))
        };
        found(&names).or_else(|| found(self.words))
    }
}

macro_rules! promises {
    ($($name:ident: [$($before:ident),*], $words:expr;)*) => {
        &[$(Promise {
            name: stringify!($name),
            check: $name,
            rests_on: &[$(stringify!($before)),*],
            words: $words,
        }),*]
    };
}

const FORWARD: &[&str] = &["fn forward"];
const NEW: &[&str] = &["fn new", "fn build"];

/// All of them, each behind those that it rests on.
pub const PROMISES: &[Promise] = promises![
    it_is_built_and_trained: [], FORWARD;
    matrices_decay_and_biases_norms_and_embeddings_do_not: [it_is_built_and_trained], NEW;
    products_are_those_that_can_be_rounded: [it_is_built_and_trained], FORWARD;
    logits_are_finite_at_every_length_for_every_pooling: [it_is_built_and_trained], FORWARD;
    a_row_of_padding_only_is_finite_and_has_finite_gradients:
        [logits_are_finite_at_every_length_for_every_pooling], FORWARD;
    no_number_is_kept_with_fewer_bits_than_the_parameters_have:
        [logits_are_finite_at_every_length_for_every_pooling],
        &["BF16", "F16", "to_dtype", "fn forward"];
    operations_are_those_counted: [
        products_are_those_that_can_be_rounded, logits_are_finite_at_every_length_for_every_pooling
    ], &["fn flops"];
    operations_grow_as_the_card_says: [operations_are_those_counted], &["time: Cost", "fn flops"];
    memory_grows_as_the_card_says: [operations_grow_as_the_card_says],
        &["memory: Cost", "fn forward"];
    logits_are_finite_up_to_the_longest_task: [memory_grows_as_the_card_says], FORWARD;
    the_seed_decides_every_bit:
        [no_number_is_kept_with_fewer_bits_than_the_parameters_have], FORWARD;
    a_pass_leaves_nothing_behind: [the_seed_decides_every_bit], FORWARD;
    rows_do_not_know_each_other: [a_pass_leaves_nothing_behind], FORWARD;
    evaluation_drops_nothing: [rows_do_not_know_each_other], FORWARD;
    micro_batches_draw_what_the_whole_batch_draws: [rows_do_not_know_each_other], FORWARD;
    padded_tokens_may_be_anything_where_a_variant_masks_them_and_only_there:
        [evaluation_drops_nothing], FORWARD;
    padding_changes_no_logit: [
        padded_tokens_may_be_anything_where_a_variant_masks_them_and_only_there,
        a_row_of_padding_only_is_finite_and_has_finite_gradients
    ], FORWARD;
    no_position_sees_what_follows_where_that_is_claimed: [
        padded_tokens_may_be_anything_where_a_variant_masks_them_and_only_there
    ], &["fn is_causal"];
    every_parameter_has_a_finite_gradient_that_is_not_zero:
        [a_row_of_padding_only_is_finite_and_has_finite_gradients], NEW;
    blocks_of_every_form_train_every_parameter:
        [every_parameter_has_a_finite_gradient_that_is_not_zero], NEW;
    two_towers_share_weights_but_not_masks:
        [every_parameter_has_a_finite_gradient_that_is_not_zero], NEW;
    gradients_are_difference_quotients: [
        every_parameter_has_a_finite_gradient_that_is_not_zero, a_pass_leaves_nothing_behind,
        no_number_is_kept_with_fewer_bits_than_the_parameters_have
    ], NEW;
    kernels_and_composed_layers_agree_in_every_model: [gradients_are_difference_quotients], FORWARD;
    the_first_loss_is_near_that_of_guessing: [the_seed_decides_every_bit], NEW;
    auxiliary_losses_are_of_each_row_and_train_their_heads_or_are_refused: [
        micro_batches_draw_what_the_whole_batch_draws,
        every_parameter_has_a_finite_gradient_that_is_not_zero
    ], FORWARD;
];

const CLASSES: usize = 5;
const SEED: u64 = 17;

/// A classifier, small enough to run many times, with its parameters.
struct Subject {
    classifier: Classifier,
    parameters: Parameters,
}

fn shape(towers: usize) -> Shape {
    Shape {
        vocabulary: 11,
        classes: CLASSES,
        towers,
        max_length: 37,
        padding: true,
        grid: None,
    }
}

fn small(model: &Model) -> Options {
    let mut options = Options::of(model);
    options.block.dim = 16;
    options.block.qkv_dim = 16;
    options.block.mlp_dim = 24;
    options.head.hidden = 12;
    options
}

/// Every variant of a model, with blocks so small that a short sequence has many.
fn variants(model: &'static Model) -> impl Iterator<Item = (&'static Variant, Options)> {
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

fn subject(model: &Model, shape: &Shape, options: &Options, seed: u64) -> Subject {
    subject_of(DType::F32, model, shape, options, seed)
}

fn subject_of(dtype: DType, model: &Model, shape: &Shape, options: &Options, seed: u64) -> Subject {
    let parameters = Parameters::new(seed, &Device::Cpu, dtype);
    let classifier = Classifier::new(model, shape, options, &parameters).kept();
    Subject {
        classifier,
        parameters,
    }
}

/// Rows of the given lengths, padded to `width` with id 0; ids depend on row and position only.
fn tokens(lengths: &[usize], width: usize, salt: usize) -> Tokens {
    let (mut ids, mut real) = (Vec::new(), Vec::new());
    for (row, &length) in lengths.iter().enumerate() {
        for position in 0..width {
            let id = 1 + (row * 7 + position * position * 3 + position + salt) % 10;
            ids.push(if position < length { id as u32 } else { 0 });
            real.push(f32::from(u8::from(position < length)));
        }
    }
    let shape = (lengths.len(), width);
    Tokens {
        ids: Tensor::from_vec(ids, shape, &Device::Cpu).kept(),
        mask: Some(Tensor::from_vec(real, shape, &Device::Cpu).kept()),
    }
}

fn one(tokens: Tokens) -> Inputs {
    Inputs {
        towers: vec![tokens],
    }
}

fn labels(rows: std::ops::Range<usize>) -> Tensor {
    let labels: Vec<u32> = rows.map(|row| (row % CLASSES) as u32).collect();
    Tensor::new(labels, &Device::Cpu).kept()
}

fn training(step: u64, first_row: u64) -> Pass<'static> {
    Pass::new(true, RngKey::new(SEED, step, first_row))
}

fn evaluation() -> Pass<'static> {
    Pass::new(false, RngKey::new(SEED, 0, 0))
}

fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().kept().to_vec1().kept()
}

/// Cross-entropy, and the model's losses with their usual weights, of one pass.
fn whole_loss(classifier: &Classifier, inputs: &Inputs, labels: &Tensor, pass: &Pass) -> Tensor {
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

/// Takes what a tensor operation returned; an error is a breach of the promise at hand.
trait Kept<T> {
    fn kept(self) -> T;
}

impl<T, E: Into<Error>> Kept<T> for Result<T, E> {
    #[track_caller]
    fn kept(self) -> T {
        self.unwrap_or_else(|error| refuse(error.into()))
    }
}

#[track_caller]
fn refuse(error: Error) -> ! {
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
fn caller(trace: &str) -> Option<&str> {
    const OTHERS: [&str; 5] = [
        "/registry/",
        "/rustc/",
        "/library/",
        "models/src/",
        "lra/src/",
    ];
    let mut places = trace
        .lines()
        .filter_map(|line| line.trim().strip_prefix("at "));
    places.find(|place| !OTHERS.iter().any(|other| place.contains(other)))
}

/// The gradient of the parameter at `path`.
#[track_caller]
fn gradient_of<'a>(gradients: &'a GradStore, path: &str, var: &Var) -> &'a Tensor {
    let gradient = gradients.get(var);
    gradient
        .unwrap_or_else(|| panic!("no gradient reaches {path}: unused, or detached on the way?"))
}

/// Sets every rate of dropout to 0.
fn silence(options: &mut Options) {
    options.embed.dropout = 0.0;
    options.block.dropout = 0.0;
    options.block.attention_dropout = 0.0;
    if let Some(own) = options.model.as_object_mut() {
        for (_, value) in own.iter_mut().filter(|(key, _)| key.contains("dropout")) {
            *value = 0.0.into();
        }
    }
}

fn scalar(tensor: &Tensor) -> f32 {
    tensor.to_scalar().kept()
}

/// Gradients of the first step; of the second one for blocks whose branches start at zero.
fn gradients(subject: &Subject, options: &Options, loss: impl Fn() -> Tensor) -> GradStore {
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

fn largest_difference(one: &[f32], other: &[f32]) -> f32 {
    assert_eq!(one.len(), other.len());
    let pairs = one.iter().zip(other);
    pairs.fold(0.0, |most, (a, b)| most.max((a - b).abs()))
}

/// The rest asks for details of what this one asks for at all.
fn it_is_built_and_trained(model: &'static Model) {
    for (_, options) in variants(model) {
        let subject = subject(model, &shape(1), &options, SEED);
        let inputs = one(tokens(&[16, 9], 16, 0));
        let loss = whole_loss(&subject.classifier, &inputs, &labels(0..2), &training(0, 0));
        ops::backward(&loss).kept();
        subject.classifier.forward(&inputs, &evaluation()).kept();
    }
}

/// No product of a model's own source goes past [`ops::matmul`].
fn products_are_those_that_can_be_rounded(model: &'static Model) {
    let places = model.direct_products();
    let places: Vec<String> = places.iter().map(Place::to_string).collect();
    assert!(
        places.is_empty(),
        "{}: products by candle, which `--precision bf16` does not round and which are not counted; `lra::models::ops` has `matmul` and \
         `exact_matmul`: {}",
        model.name,
        places.join("; ")
    );
}

/// The longest of the tasks' lengths at which the model states no more than 2·10⁸ operations.
fn logits_are_finite_up_to_the_longest_task(model: &'static Model) {
    let options = small(model);
    let of = |length: usize| Shape {
        max_length: length,
        ..shape(1)
    };
    let fits = |length: &usize| {
        let blank = Parameters::blank(&Device::Cpu, DType::F32);
        let classifier = Classifier::new(model, &of(*length), &options, &blank).kept();
        classifier.flops(1, *length) <= 200_000_000
    };
    let length = [16384, 4000, 2000].into_iter().find(fits).unwrap_or(1021);
    let subject = subject(model, &of(length), &options, 1);
    let inputs = one(tokens(&[length], length, 0));
    let logits = subject.classifier.forward(&inputs, &evaluation()).kept();
    let finite = values(&logits).iter().all(|x| x.is_finite());
    assert!(finite, "{}: logits at {length} tokens", model.name);
}

fn matrices_decay_and_biases_norms_and_embeddings_do_not(model: &'static Model) {
    let subject = subject(model, &shape(1), &small(model), SEED);
    for (path, var, attributes) in subject.parameters.with_attributes() {
        let looked_up = path.starts_with("embed.");
        let added = path.ends_with("bias") || path.contains("norm.");
        let matrix = var.rank() >= 2 && !looked_up && !added;
        let place = format!("{}: {path}", model.name);
        // A model may exempt matrices that make the states of a recurrence, but no layer's weights.
        assert!(matrix || !attributes.decay, "{place}");
        assert!(
            attributes.decay || !matrix || !path.ends_with("weight"),
            "{place}"
        );
    }
}

fn logits_are_finite_at_every_length_for_every_pooling(model: &'static Model) {
    for pooling in [
        Pooling::Cls,
        Pooling::First,
        Pooling::Mean,
        Pooling::Sum,
        Pooling::Max,
        Pooling::Attention,
    ] {
        let mut options = small(model);
        options.head.pooling = pooling;
        let subject = subject(model, &shape(1), &options, 1);
        for length in [1, 2, 3, 5, 15, 16, 17, 31, 36, 37] {
            let inputs = one(tokens(&[length, length.div_ceil(2)], length, 0));
            let logits = subject.classifier.forward(&inputs, &training(0, 0)).kept();
            assert_eq!(logits.dims(), [2, CLASSES]);
            assert!(
                values(&logits).iter().all(|x| x.is_finite()),
                "{} {pooling:?} length {length}",
                model.name
            );
        }
    }
}

fn every_parameter_has_a_finite_gradient_that_is_not_zero(model: &'static Model) {
    for (positions, pooling) in [
        (Positions::Sinusoid, Pooling::Mean),
        (Positions::Learned, Pooling::Attention),
    ] {
        let mut options = small(model);
        options.embed.positions = positions;
        options.head.pooling = pooling;
        let subject = subject(model, &shape(1), &options, 2);
        let inputs = one(tokens(&[37, 20, 1, 8], 37, 0));
        let gradients = gradients(&subject, &options, || {
            whole_loss(&subject.classifier, &inputs, &labels(0..4), &training(0, 0))
        });
        for (path, var) in subject.parameters.all() {
            let gradient = values(gradient_of(&gradients, &path, &var));
            assert!(
                gradient.iter().all(|x| x.is_finite()) && gradient.iter().any(|&x| x != 0.0),
                "{}: gradient of {path}",
                model.name
            );
        }
    }
}

fn the_seed_decides_every_bit(model: &'static Model) {
    let loss = |seed: u64, step: u64| {
        let subject = subject(model, &shape(1), &small(model), seed);
        let inputs = one(tokens(&[37, 20, 1, 8], 37, 0));
        let pass = Pass::new(true, RngKey::new(seed, step, 0));
        let logits = subject.classifier.forward(&inputs, &pass).kept();
        scalar(&loss::cross_entropy(&logits, &labels(0..4)).kept()).to_bits()
    };
    assert_eq!(loss(3, 5), loss(3, 5), "{}", model.name);
    assert_ne!(loss(3, 5), loss(4, 5), "{}: other seed", model.name);
    assert_ne!(loss(3, 5), loss(3, 6), "{}: other step", model.name);
}

fn padding_changes_no_logit(model: &'static Model) {
    for (_, options) in variants(model).filter(|(variant, _)| variant.masks_padding) {
        for pooling in [
            Pooling::Cls,
            Pooling::Mean,
            Pooling::Sum,
            Pooling::Max,
            Pooling::Attention,
        ] {
            let mut options = options.clone();
            options.head.pooling = pooling;
            let subject = subject(model, &shape(1), &options, 6);
            let logits = |width: usize| {
                let inputs = one(tokens(&[9, 13], width, 0));
                values(&subject.classifier.forward(&inputs, &evaluation()).kept())
            };
            let apart = largest_difference(&logits(13), &logits(37));
            assert!(apart <= 1e-5, "{} {pooling:?}: {apart}", model.name);
        }
    }
}

fn a_row_of_padding_only_is_finite_and_has_finite_gradients(model: &'static Model) {
    for pooling in [Pooling::Mean, Pooling::Max, Pooling::Attention] {
        let mut options = small(model);
        options.head.pooling = pooling;
        let subject = subject(model, &shape(1), &options, 6);
        let inputs = one(tokens(&[0, 9], 12, 0));
        let logits = subject.classifier.forward(&inputs, &training(0, 0)).kept();
        let gradients = logits.sum_all().kept().backward().kept();
        for (path, var) in subject.parameters.all() {
            // An expert that none of nine tokens chose has none.
            let Some(gradient) = gradients.get(&var) else {
                continue;
            };
            assert!(
                values(gradient).iter().all(|x| x.is_finite()),
                "{}: {path}",
                model.name
            );
        }
    }
}

fn the_first_loss_is_near_that_of_guessing(model: &'static Model) {
    let subject = subject(model, &shape(1), &Options::of(model), 8);
    let lengths: Vec<usize> = (0..64).map(|row| 1 + row % 37).collect();
    let inputs = one(tokens(&lengths, 37, 0));
    let logits = subject.classifier.forward(&inputs, &evaluation()).kept();
    let loss = scalar(&loss::cross_entropy(&logits, &labels(0..64)).kept());
    let guess = (CLASSES as f32).ln();
    assert!(
        (loss - guess).abs() < 0.5,
        "{}: {loss} vs {guess}",
        model.name
    );
}

/// Logits and gradients of one training pass, as f64.
fn pass(model: &Model, dtype: DType) -> Vec<(String, Vec<f64>)> {
    let parameters = Parameters::new(12, &Device::Cpu, dtype);
    let options = small(model);
    assert!(options.block.attention_dropout > 0.0);
    let classifier = Classifier::new(model, &shape(1), &options, &parameters).kept();
    let inputs = one(tokens(&[30, 17, 4, 37], 37, 0));
    let logits = classifier.forward(&inputs, &training(4, 0)).kept();
    let loss = whole_loss(&classifier, &inputs, &labels(0..4), &training(4, 0));
    let gradients = ops::backward(&loss).kept();
    let values = |tensor: &Tensor| {
        let tensor = tensor.to_dtype(DType::F64).kept();
        tensor.flatten_all().kept().to_vec1().kept()
    };
    let mut all = vec![("logits".to_owned(), values(&logits))];
    for (path, var) in parameters.all() {
        let gradient = values(gradient_of(&gradients, &path, &var));
        all.push((path, gradient));
    }
    all
}

/// In f64 every layer takes its composed form, in f32 its kernel where there is one.
fn kernels_and_composed_layers_agree_in_every_model(model: &'static Model) {
    let (single, double) = (pass(model, DType::F32), pass(model, DType::F64));
    for ((path, found), (_, wanted)) in single.iter().zip(&double) {
        let scale = wanted.iter().fold(1e-3f64, |most, x| most.max(x.abs()));
        let pairs = found.iter().zip(wanted);
        let apart = pairs.fold(0f64, |most, (a, b)| most.max((a - b).abs()));
        let name = model.name;
        assert!(apart <= 1e-4 * scale, "{name}: {path}: {apart} of {scale}");
    }
}

/// A model that a form contradicts says so when it is built.
fn blocks_of_every_form_train_every_parameter(model: &'static Model) {
    for (norm_place, activation, residual) in [
        (NormPlace::Post, Activation::Relu, Residual::Plain),
        (NormPlace::Pre, Activation::GeluErf, Residual::Plain),
        (NormPlace::Pre, Activation::Gelu, Residual::Reversible),
    ] {
        let mut options = small(model);
        options.block.norm_place = norm_place;
        options.block.residual = residual;
        options.block.activation = activation;
        let parameters = Parameters::new(2, &Device::Cpu, DType::F32);
        let classifier = match Classifier::new(model, &shape(1), &options, &parameters) {
            Ok(classifier) => classifier,
            Err(Error::Option { .. }) if !model.settings.is_empty() => continue,
            Err(error) => panic!("{}: {error}", model.name),
        };
        let subject = Subject {
            classifier,
            parameters,
        };
        let inputs = one(tokens(&[37, 20, 1, 8], 37, 0));
        let pass = training(0, 0);
        let loss = whole_loss(&subject.classifier, &inputs, &labels(0..4), &pass);
        let gradients = ops::backward(&loss).kept();
        for (path, var) in subject.parameters.all() {
            let gradient = values(gradient_of(&gradients, &path, &var));
            let some = gradient.iter().any(|&x| x != 0.0);
            let form = (norm_place, residual);
            assert!(some, "{} {form:?}: {path}", model.name);
        }
    }
}

fn padded_tokens_may_be_anything_where_a_variant_masks_them_and_only_there(model: &'static Model) {
    for (variant, options) in variants(model) {
        let subject = subject(model, &shape(1), &options, 6);
        let padded = tokens(&[9, 13], 37, 0);
        // The same real tokens with other ids under the mask.
        let full = tokens(&[37, 37], 37, 0);
        let forward = |ids: &Tensor| {
            let inputs = one(Tokens {
                ids: ids.clone(),
                mask: padded.mask.clone(),
            });
            values(&subject.classifier.forward(&inputs, &evaluation()).kept())
        };
        let apart = largest_difference(&forward(&padded.ids), &forward(&full.ids));
        let place = format!("{} {}: {apart}", model.name, variant.name);
        match variant.masks_padding {
            true => assert!(apart <= 1e-6, "{place}"),
            false => assert!(apart > 1e-4, "{place}"),
        }
    }
}

fn micro_batches_draw_what_the_whole_batch_draws(model: &'static Model) {
    let subject = subject(model, &shape(1), &small(model), 9);
    let loss = |rows: std::ops::Range<usize>| {
        let whole = tokens(&[30, 17, 4, 37], 37, 0);
        let part = |t: &Tensor| t.narrow(0, rows.start, rows.len()).kept();
        let inputs = one(Tokens {
            ids: part(&whole.ids),
            mask: whole.mask.as_ref().map(part),
        });
        let pass = training(4, rows.start as u64);
        let logits = subject.classifier.forward(&inputs, &pass).kept();
        scalar(&loss::cross_entropy(&logits, &labels(rows.clone())).kept())
    };
    let (whole, parts) = (loss(0..4), (loss(0..2) + loss(2..4)) / 2.0);
    assert!(
        (whole - parts).abs() < 1e-6,
        "{}: {whole} {parts}",
        model.name
    );
}

fn two_towers_share_weights_but_not_masks(model: &'static Model) {
    for features in [Features::Concat, Features::Nli] {
        let mut options = small(model);
        options.head.features = features;
        let subject = subject(model, &shape(2), &options, 10);
        let inputs = Inputs {
            towers: vec![tokens(&[12, 30], 37, 0), tokens(&[25, 3], 25, 4)],
        };
        let pass = training(0, 0);
        let logits = subject.classifier.forward(&inputs, &pass).kept();
        assert_eq!(logits.dims(), [2, CLASSES]);
        let gradients = gradients(&subject, &options, || {
            whole_loss(&subject.classifier, &inputs, &labels(0..2), &pass)
        });
        for (path, var) in subject.parameters.all() {
            let gradient = values(gradient_of(&gradients, &path, &var));
            let name = model.name;
            assert!(gradient.iter().any(|&x| x != 0.0), "{name}: {path}");
        }
    }
    assert!(
        subject(model, &shape(2), &small(model), 10)
            .classifier
            .forward(&one(tokens(&[3], 3, 0)), &evaluation())
            .is_err()
    );
}

/// Those that are no plain stack of blocks, or shorten the sequence, say so when they are built.
fn auxiliary_losses_are_of_each_row_and_train_their_heads_or_are_refused(model: &'static Model) {
    let (shape, options) = (shape(2), small(model));
    let mut refused = Vec::new();
    for loss in ["layers", "positions", "masked"] {
        let parameters = Parameters::new(2, &Device::Cpu, DType::F32);
        let wanted = Auxiliary::new(|name| f64::from(u8::from(name == loss)));
        let classifier = Classifier::new(model, &shape, &options, &parameters).kept();
        let built = classifier.with_auxiliary(&wanted, &shape, &options, &parameters);
        let classifier = match built {
            Ok(classifier) => classifier,
            Err(Error::Option { key, .. }) => {
                assert_eq!(key, format!("train.aux.{loss}"));
                refused.push(loss);
                continue;
            }
            Err(error) => panic!("{}: {error}", model.name),
        };
        let declared = classifier.losses();
        assert!(declared.iter().any(|it| it.name == loss), "{}", model.name);
        let mean = |rows: std::ops::Range<usize>, width: usize| {
            let part = |t: &Tensor| t.narrow(0, rows.start, rows.len()).kept();
            let towers = [
                tokens(&[12, 2, 30, 28], width, 0),
                tokens(&[3, 9, 25, 26], width, 4),
            ];
            let towers = towers.map(|it| Tokens {
                ids: part(&it.ids),
                mask: it.mask.as_ref().map(part),
            });
            let supervision = Supervision {
                labels: labels(rows.clone()),
                progress: 0.0,
            };
            let (aux, pass) = (loss::AuxLosses::default(), training(4, rows.start as u64));
            let pass = pass.with_losses(&aux).with_supervision(&supervision);
            let inputs = Inputs {
                towers: towers.into(),
            };
            classifier.forward(&inputs, &pass).kept();
            let means = aux.means().kept();
            let mean = means.iter().find(|(name, _)| *name == loss);
            let (_, mean) = mean.unwrap_or_else(|| panic!("{}: {loss} is never added", model.name));
            mean.clone()
        };
        let whole = mean(0..4, 30);
        let gradients = ops::backward(&whole).kept();
        for (path, var) in parameters.all() {
            let Some(gradient) = gradients.get(&var) else {
                assert!(!path.starts_with("aux."), "{}: {path}", model.name);
                continue;
            };
            let gradient = values(gradient);
            assert!(gradient.iter().all(|x| x.is_finite()), "{path}");
            let some = gradient.iter().any(|x| *x != 0.0);
            assert!(some || !path.starts_with("aux."), "{}: {path}", model.name);
        }
        let (whole, parts) = (
            scalar(&whole),
            (scalar(&mean(0..2, 30)) + scalar(&mean(2..4, 30))) / 2.0,
        );
        let place = format!("{} {loss}", model.name);
        assert!((whole - parts).abs() < 1e-5, "{place}: {whole} {parts}");
        let guess = if loss == "masked" { 11f32 } else { 5f32 }.ln();
        assert!((whole - guess).abs() < 1.5, "{place}: {whole} vs {guess}");
    }
    // Both are of every position: a model has one for each, or has not.
    let [positions, masked] = ["positions", "masked"].map(|loss| refused.contains(&loss));
    assert_eq!(positions, masked, "{}: {refused:?}", model.name);
}

impl Axis {
    /// Whether `model` can take `choice`: builds it, without memory for its weights.
    ///
    /// # Errors
    /// [`Error::Option`] with the reason why it cannot.
    pub fn try_around(&self, model: &Model, choice: &Choice) -> crate::Result<()> {
        let options = self.set(&Options::of(model), choice)?;
        let shape = Shape {
            vocabulary: 16,
            classes: 2,
            towers: 1,
            max_length: 64,
            padding: true,
            grid: None,
        };
        let parameters = Parameters::blank(&Device::Cpu, DType::F32);
        Classifier::new(model, &shape, &options, &parameters).map(drop)
    }
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
    }

    #[test]
    fn promises_stand_behind_those_that_they_rest_on() {
        for (index, promise) in PROMISES.iter().enumerate() {
            let before = &PROMISES[..index];
            for name in promise.rests_on {
                assert!(before.iter().any(|it| it.name == *name), "{name}");
            }
        }
    }
}
