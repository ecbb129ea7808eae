//! Logits: finite at every length, decided by the seed, independent of the ids in padding, and the
//! same by kernels and by composed layers.

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
        "{}: products by candle, which `--precision bf16` does not round and which are not counted; `lra::models::ops` has `matmul` and \
         `exact_matmul`: {}",
        model.name,
        places.join("; ")
    );
}

/// Checks logits up to the longest of the tasks' lengths at which the model states no more than
/// 2·10⁸ operations.
pub(super) fn logits_are_finite_up_to_the_longest_task(model: &'static Model) {
    let options = small(model);
    let of = |length: usize| Shape {
        max_length: length,
        ..shape(1)
    };
    let fits = |length: &usize| {
        let meta = Parameters::meta(&Device::Cpu, DType::F32);
        let classifier = Classifier::new(model, &of(*length), &options, &meta).kept();
        classifier.flops(1, *length) <= 200_000_000
    };
    let length = [16384, 4000, 2000].into_iter().find(fits).unwrap_or(1021);
    let subject = subject(model, &of(length), &options, 1);
    let inputs = one(tokens(&[length], length, 0));
    let logits = subject.classifier.forward(&inputs, &evaluation()).kept();
    let finite = values(&logits).iter().all(|x| x.is_finite());
    assert!(finite, "{}: logits at {length} tokens", model.name);
}

pub(super) fn logits_are_finite_at_every_length_for_every_pooling(model: &'static Model) {
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

pub(super) fn the_seed_decides_every_bit(model: &'static Model) {
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
                "{}: {path}",
                model.name
            );
        }
    }
}

/// Returns logits and gradients of one training pass, as f64.
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
        assert!(apart <= most * scale, "{name}: {path}: {apart} of {scale}");
    }
}

pub(super) fn padded_tokens_may_be_anything_where_a_variant_masks_them_and_only_there(
    model: &'static Model,
) {
    for (variant, options) in variants(model) {
        let subject = subject(model, &shape(1), &options, 6);
        let padded = tokens(&[9, 13], 37, 0);
        // Equal valid tokens with other ids under the mask.
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
