//! Logits: finite at every length, decided by the seed, independent of the ids in padding, and the
//! same by kernels and by composed layers.

use std::sync::OnceLock;

use super::*;

/// Checks that the model can be built and trained at all; the other checks go into details.
pub(super) fn it_is_built_and_trained(model: &'static Model) {
    for (_, options) in variants(model) {
        let subject = subject(model, &shape(1), &options, SEED);
        let inputs = one(tokens(&[16, 9], 16, 0));
        let loss = whole_loss(&subject.classifier, &inputs, &labels(0..2), &training(0, 0));
        ops::backward(&loss).kept();
        subject.classifier.forward(&inputs, &evaluation()).kept();
    }
}

/// Checks that no product of a model's own source goes past [`ops::matmul`].
pub(super) fn products_are_those_that_can_be_rounded(model: &'static Model) {
    let places = model.direct_products();
    let places: Vec<String> = places.iter().map(Place::to_string).collect();
    assert!(
        places.is_empty(),
        "{}: products by candle, which `--precision bf16` does not round and which are not counted; `lra::models::ops` has `matmul`, \
         `exact_matmul` and `cumsum`: {}",
        model.name,
        places.join("; ")
    );
}

/// Checks logits at a thousand tokens, and at the longest of the tasks' lengths at which the model
/// states no more than 2·10⁸ operations.
pub(super) fn logits_are_finite_up_to_the_longest_task(model: &'static Model) {
    let options = small(model);
    let longest = longest_of(model, &[16384, 4000, 2000], 200_000_000).unwrap_or(1021);
    let thousand = longest_of(model, &[1000], 50_000_000);
    for length in thousand.into_iter().chain([longest]) {
        let subject = subject(model, &of_length(length), &options, 1);
        let inputs = one(tokens(&[length], length, 0));
        let logits = subject.classifier.forward(&inputs, &evaluation()).kept();
        assert!(
            values(&logits).iter().all(|x| x.is_finite()),
            "{}: the logits of a sequence of {length} tokens are not finite",
            model.name
        );
    }
}

/// Checks the gradients of a sequence of a thousand tokens, and of fewer where the model states more
/// than 5·10⁷ operations.
pub(super) fn gradients_are_finite_at_a_thousand_tokens(model: &'static Model) {
    let length = longest_of(model, &[1000, 500], 50_000_000).unwrap_or(250);
    let subject = subject(model, &of_length(length), &small(model), 1);
    let inputs = one(tokens(&[length], length, 0));
    let loss = whole_loss(&subject.classifier, &inputs, &labels(0..1), &training(0, 0));
    let gradients = ops::backward(&loss).kept();
    for (path, var) in subject.parameters.all() {
        // An expert that no token chose has none.
        let values = gradients.get(&var).map(values).unwrap_or_default();
        assert!(
            values.iter().all(|x| x.is_finite()),
            "{}: the gradient of {path} is not finite for a sequence of {length} tokens",
            model.name
        );
    }
}

const POOLINGS: [Pooling; 6] = [
    Pooling::Cls,
    Pooling::First,
    Pooling::Mean,
    Pooling::Sum,
    Pooling::Max,
    Pooling::Attention,
];

pub(super) fn logits_are_finite_at_every_length_for_every_pooling(model: &'static Model) {
    for pooling in POOLINGS {
        let mut options = small(model);
        options.head.pooling = pooling;
        let short = [1, 2, 3, 5, 15, 16, 17, 31, 36, 37];
        // No multiples of blocks, nor of the powers of two that the tasks' lengths are.
        let long: &[usize] = if pooling == Pooling::Mean {
            &[100, 333]
        } else {
            &[]
        };
        let longest = long.iter().copied().max().unwrap_or(0);
        let Some(subject) = subject_unless_refused(model, &of_length(longest), &options, 1) else {
            continue;
        };
        for length in short.into_iter().chain(long.iter().copied()) {
            let inputs = one(tokens(&[length, length.div_ceil(2)], length, 0));
            let logits = subject.classifier.forward(&inputs, &training(0, 0)).kept();
            assert_eq!(logits.dims(), [2, CLASSES]);
            assert!(
                values(&logits).iter().all(|x| x.is_finite()),
                "{}: the logits of a sequence of {length} tokens are not finite, with pooling {pooling:?}",
                model.name
            );
        }
    }
}

/// Checks that other tokens give other logits after three updates of the initial parameters: a
/// state that no token reaches, and one whose path to the tokens gets no gradient, stay the same.
pub(super) fn logits_depend_on_the_tokens_for_every_pooling(model: &'static Model) {
    for pooling in POOLINGS {
        let mut options = small(model);
        options.head.pooling = pooling;
        let parameters = Parameters::new(SEED, &Device::Cpu, DType::F64);
        let classifier = match Classifier::new(model, &shape(1), &options, &parameters) {
            Ok(classifier) => classifier,
            Err(error) if error.is_of_options() => continue,
            Err(error) => refuse(error),
        };
        let lengths = [37; 4];
        let [seen, other] = [0, 3].map(|salt| one(tokens(&lengths, 37, salt)));
        for step in 0..3 {
            let loss = whole_loss(&classifier, &seen, &labels(0..4), &training(step, 0));
            let gradients = ops::backward(&loss).kept();
            for (_, var) in parameters.all() {
                let Some(gradient) = gradients.get(&var) else {
                    continue;
                };
                let update = (gradient.sign().kept() * 1e-2).kept();
                var.set(&(var.as_tensor() - update).kept()).kept();
            }
        }
        let logits = |inputs: &Inputs| {
            let logits = classifier.forward(inputs, &evaluation()).kept();
            logits.flatten_all().kept().to_vec1::<f64>().kept()
        };
        let (seen, other) = (logits(&seen), logits(&other));
        let apart = seen.iter().zip(&other).map(|(a, b)| (a - b).abs());
        let apart = apart.fold(0.0, f64::max);
        assert!(
            apart > 1e-9,
            "{}: after three updates, other tokens move no logit by more than {apart:e}, with pooling {pooling:?}",
            model.name
        );
    }
}

/// Function that returns the [`digest`] of a model as another process computes it. `None` if there
/// is no other process.
pub type DigestElsewhere = fn(&'static Model) -> Option<u64>;

static DIGEST_ELSEWHERE: OnceLock<DigestElsewhere> = OnceLock::new();

/// Sets the function `elsewhere`, which returns the [`digest`] of a model as another process
/// computes it. The checks then compare the digests of both processes. Only the first call has an
/// effect.
pub fn digest_elsewhere_by(elsewhere: DigestElsewhere) {
    DIGEST_ELSEWHERE.get_or_init(|| elsewhere);
}

/// Returns a digest of the logits and gradients of a small classifier with `model`. It is the same
/// in every process and for any number of threads.
#[must_use]
pub fn digest(model: &'static Model) -> u64 {
    digest_of(model, 3, 5)
}

/// Returns a digest of the logits of an evaluation and of a training pass, and of the latter's
/// gradients, for parameters drawn from `seed` and draws of `step`.
fn digest_of(model: &'static Model, seed: u64, step: u64) -> u64 {
    let mut options = small(model);
    // Steps differ if something is drawn in them.
    options.embed.dropout = 0.1;
    options.block.dropout = 0.1;
    let subject = subject(model, &shape(1), &options, seed);
    let inputs = one(tokens(&[37, 20, 1, 8], 37, 0));
    let key = RngKey::new(seed, step, 0);
    let scored = subject.classifier.forward(&inputs, &Pass::new(false, key));
    let logits = subject.classifier.forward(&inputs, &Pass::new(true, key));
    let logits = logits.kept();
    let loss = loss::cross_entropy(&logits, &labels(0..4)).kept();
    let gradients = ops::backward(&loss).kept();
    let mut numbers = values(&scored.kept());
    numbers.extend(values(&logits));
    for (_, var) in subject.parameters.all() {
        numbers.extend(gradients.get(&var).map(values).unwrap_or_default());
    }
    fnv(numbers.iter().map(|number| u64::from(number.to_bits())))
}

/// Checks that logits and gradients are decided by the seed and the step: they are the same when
/// computed again, on one thread and on three, and in another process if there is one
/// ([`digest_elsewhere_by`]).
pub(super) fn the_seed_decides_every_bit(model: &'static Model) {
    let name = model.name;
    let first = digest(model);
    assert!(
        first == digest(model),
        "{name}: the same seed and step have other logits or gradients the second time: something is drawn from elsewhere \
         than the key of the pass, or added in an order that chance decides"
    );
    let [one, three] = [1, 3].map(|count| on_threads(count, || digest(model)));
    assert!(
        one == first && three == first,
        "{name}: the same seed and step have other logits or gradients on 1 thread and on 3: a sum is split by the number of threads"
    );
    if let Some(other) = DIGEST_ELSEWHERE.get().and_then(|other| other(model)) {
        assert!(
            other == first,
            "{name}: the same seed and step have other logits or gradients in another process: an order differs between \
             processes, as that of a `HashMap` does"
        );
    }
    assert!(
        first != digest_of(model, 4, 5),
        "{name}: another seed has the same logits and gradients"
    );
    assert!(
        first != digest_of(model, 3, 6),
        "{name}: another step has the same logits and gradients, though dropout is 0.1"
    );
}

pub(super) fn padding_changes_no_logit(model: &'static Model) {
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
            let Some(subject) = subject_unless_refused(model, &shape(1), &options, 6) else {
                continue;
            };
            let logits = |width: usize| {
                let inputs = one(tokens(&[9, 13], width, 0));
                values(&subject.classifier.forward(&inputs, &evaluation()).kept())
            };
            let apart = largest_difference(&logits(13), &logits(37));
            assert!(
                apart <= 1e-5,
                "{}: padding from 13 to 37 positions moves logits by {apart}, with pooling {pooling:?}",
                model.name
            );
        }
    }
}

pub(super) fn a_row_of_padding_only_is_finite_and_has_finite_gradients(model: &'static Model) {
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
                "{}: beside a row of padding only, the gradient of {path} is not finite",
                model.name
            );
        }
    }
}

/// Returns logits and gradients of one training pass, as f64.
fn pass(model: &Model, dtype: DType) -> Vec<(String, Vec<f64>)> {
    let mut options = small(model);
    options.block.attention_dropout = 0.1;
    let Subject {
        classifier,
        parameters,
    } = subject_of(dtype, model, &shape(1), &options, 12);
    let inputs = one(tokens(&[30, 17, 4, 37], 37, 0));
    let logits = classifier.forward(&inputs, &training(4, 0)).kept();
    let loss = whole_loss(&classifier, &inputs, &labels(0..4), &training(4, 0));
    let gradients = ops::backward(&loss).kept();
    let values = |tensor: &Tensor| {
        let tensor = tensor.to_dtype(DType::F64).kept();
        tensor.flatten_all().kept().to_vec1().kept()
    };
    let scored = classifier.forward(&inputs, &evaluation()).kept();
    let mut all = vec![
        ("the logits of an evaluation".to_owned(), values(&scored)),
        ("the logits of a training pass".to_owned(), values(&logits)),
    ];
    for (path, var) in parameters.all() {
        let gradient = values(gradient_of(&gradients, &path, &var));
        all.push((format!("the gradient of {path}"), gradient));
    }
    all
}

/// Compares kernels with composed layers: in f64 every layer takes its composed form, in f32 its
/// kernel where there is one.
pub(super) fn kernels_and_composed_layers_agree_in_every_model(model: &'static Model) {
    let (single, double) = (pass(model, DType::F32), pass(model, DType::F64));
    for ((path, actual), (_, expected)) in single.iter().zip(&double) {
        let scale = expected.iter().fold(1e-3f64, |most, x| most.max(x.abs()));
        let pairs = actual.iter().zip(expected);
        let apart = pairs.fold(0f64, |most, (a, b)| most.max((a - b).abs()));
        let name = model.name;
        // Gradients of frequencies and steps are sums whose terms cancel.
        let wide = path.ends_with("_im") || path.ends_with("log_dt");
        let most = if wide { 2e-4 } else { 1e-4 };
        assert!(
            apart <= most * scale,
            "{name}: {path} in f32, by kernels, is {apart} away from that in f64, by composed layers; the largest number is {scale}"
        );
    }
}

pub(super) fn padded_tokens_may_be_anything_where_a_variant_masks_them_and_only_there(
    model: &'static Model,
) {
    for (variant, options) in variants(model) {
        // Without dropout, which would hide it that training sees padding where evaluation does not.
        let mut options = by_rows(options);
        set_dropout(&mut options, 0.0);
        let subject = subject(model, &shape(1), &options, 6);
        let padded = tokens(&[9, 13], 37, 0);
        // Equal valid tokens with other ids under the mask.
        let full = tokens(&[37, 37], 37, 0);
        for (kind, pass) in [("evaluation", evaluation()), ("training", training(0, 0))] {
            let forward = |ids: &Tensor| {
                let inputs = one(Tokens {
                    ids: ids.clone(),
                    mask: padded.mask.clone(),
                });
                values(&subject.classifier.forward(&inputs, &pass).kept())
            };
            let apart = largest_difference(&forward(&padded.ids), &forward(&full.ids));
            let place = format!("{} {}: in {kind}", model.name, variant.name);
            match variant.masks_padding {
                true => assert!(
                    apart <= 1e-6,
                    "{place}, other ids in padded positions move logits by {apart}: padding is to be left out (`zero_padding`, `pass.mask()`; in PyTorch multiply by `mask`)"
                ),
                false => assert!(
                    apart > 1e-4,
                    "{place}, other ids in padded positions move no logit, though the variant says that it sees padding"
                ),
            }
        }
    }
}
