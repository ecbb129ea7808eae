//! Training: every parameter has a gradient, batches may be split, and every loss is declared.

use super::*;

pub(super) fn matrices_decay_and_biases_norms_and_embeddings_do_not(model: &'static Model) {
    let subject = initial(DType::F32, model, &shape(1), &small(model), SEED);
    for (path, var, attributes) in subject.parameters.with_attributes() {
        let looked_up = path.starts_with("embed.");
        let added = path.ends_with("bias") || path.contains("norm.");
        let matrix = var.rank() >= 2 && !looked_up && !added;
        let place = format!("{}: {path} of shape {:?}", model.name, var.shape());
        // A model may exempt matrices that make the states of a recurrence, but no layer's weights.
        assert!(
            matrix || !attributes.decay,
            "{place} has weight decay, but is no matrix, or is a bias, norm or embedding"
        );
        assert!(
            attributes.decay || !matrix || !path.ends_with("weight"),
            "{place} is a layer's weight and has no weight decay"
        );
    }
}

pub(super) fn every_parameter_has_a_finite_gradient_that_is_not_zero(model: &'static Model) {
    for (positions, pooling) in [
        (Positions::Sinusoid, Pooling::Mean),
        (Positions::Learned, Pooling::Attention),
    ] {
        let mut options = small(model);
        options.embed.positions = positions;
        options.head.pooling = pooling;
        let subject = initial(DType::F32, model, &shape(1), &options, 2);
        let inputs = one(tokens(&[37, 20, 1, 8], 37, 0));
        let gradients = gradients(model, &subject.parameters, || {
            whole_loss(&subject.classifier, &inputs, &labels(0..4), &training(0, 0))
        });
        all_are_trained(model.name, &subject.parameters, &gradients);
    }
}

/// Returns how many times further a first loss may lie from that of guessing: without norms the
/// hidden states grow from block to block.
fn growth(options: &Options) -> f32 {
    match options.block.norm {
        NormKind::None => 3.0,
        _ => 1.0,
    }
}

pub(super) fn the_first_loss_is_near_that_of_guessing(model: &'static Model) {
    let options = by_rows(Options::of(model));
    let subject = initial(DType::F32, model, &shape(1), &options, 8);
    let lengths: Vec<usize> = (0..64).map(|row| 1 + row % 37).collect();
    let inputs = one(tokens(&lengths, 37, 0));
    let logits = subject.classifier.forward(&inputs, &evaluation()).kept();
    let loss = scalar(&loss::cross_entropy(&logits, &labels(0..64)).kept());
    let guess = (CLASSES as f32).ln();
    assert!(
        (-0.5..0.5 * growth(&options)).contains(&(loss - guess)),
        "{}: the first loss is {loss}, and that of guessing is {guess}: initial weights are too large?",
        model.name
    );
}

/// Trains blocks of every form. A model that a form contradicts says so when it is built.
pub(super) fn blocks_of_every_form_train_every_parameter(model: &'static Model) {
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
            Err(error) if error.is_of_options() && !model.settings.is_empty() => continue,
            Err(error) => panic!("{}: {error}", model.name),
        };
        let inputs = one(tokens(&[37, 20, 1, 8], 37, 0));
        let pass = training(0, 0);
        let gradients = gradients(model, &parameters, || {
            whole_loss(&classifier, &inputs, &labels(0..4), &pass)
        });
        let place = format!(
            "{} with norm {norm_place:?}, residual {residual:?}",
            model.name
        );
        all_are_trained(&place, &parameters, &gradients);
    }
}

pub(super) fn micro_batches_draw_what_the_whole_batch_draws(model: &'static Model) {
    let subject = subject(model, &shape(1), &small_by_rows(model), 9);
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
        "{}: the loss of four rows is {whole} as one batch and {parts} as two of two: a draw is not of its row (`per_example`)",
        model.name
    );
}

pub(super) fn two_towers_share_weights_but_not_masks(model: &'static Model) {
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
        let gradients = gradients(model, &subject.parameters, || {
            whole_loss(&subject.classifier, &inputs, &labels(0..2), &pass)
        });
        let place = format!("{} with two towers, {features:?}", model.name);
        all_are_trained(&place, &subject.parameters, &gradients);
    }
    assert!(
        subject(model, &shape(2), &small(model), 10)
            .classifier
            .forward(&one(tokens(&[3], 3, 0)), &evaluation())
            .is_err()
    );
}

/// Models that are no plain stack of blocks, or that shorten the sequence, refuse these losses when
/// they are built.
pub(super) fn auxiliary_losses_are_of_each_row_and_train_their_heads_or_are_refused(
    model: &'static Model,
) {
    let (shape, options) = (shape(2), small_by_rows(model));
    let mut refused = Vec::new();
    for loss in ["layers", "positions", "masked"] {
        let parameters = Parameters::new(2, &Device::Cpu, DType::F32);
        let expected = Auxiliary::new(|name| f64::from(u8::from(name == loss)));
        let classifier = Classifier::new(model, &shape, &options, &parameters).kept();
        let built = classifier.with_auxiliary(&expected, &shape, &options, &parameters);
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
                assert!(
                    !path.starts_with("aux."),
                    "{}: no gradient of the loss {loss} reaches {path}",
                    model.name
                );
                continue;
            };
            let gradient = values(gradient);
            assert!(
                gradient.iter().all(|x| x.is_finite()),
                "{}: the gradient of {path} by the loss {loss} is not finite",
                model.name
            );
            let some = gradient.iter().any(|x| *x != 0.0);
            assert!(
                some || !path.starts_with("aux."),
                "{}: the gradient of {path} by the loss {loss} is zero everywhere",
                model.name
            );
        }
        let (whole, parts) = (
            scalar(&whole),
            (scalar(&mean(0..2, 30)) + scalar(&mean(2..4, 30))) / 2.0,
        );
        let place = format!("{}: the loss {loss}", model.name);
        assert!(
            (whole - parts).abs() < 1e-5,
            "{place} of four rows is {whole} as one batch and {parts} as two of two"
        );
        let guess = if loss == "masked" { 11f32 } else { 5f32 }.ln();
        let above = whole - guess;
        let most = 1.5 * growth(&options);
        assert!(
            (-1.5..most).contains(&above),
            "{place} is {whole} at first, and that of guessing is {guess}"
        );
    }
    // Both are losses of every position: a model has one hidden state for each, or not.
    let [positions, masked] = ["positions", "masked"].map(|loss| refused.contains(&loss));
    assert_eq!(
        positions, masked,
        "{}: of `positions` and `masked`, both losses of every position, it refuses only {refused:?}",
        model.name
    );
}
