//! Dependencies of a row's logits: only its own tokens and the key of the pass.

use super::*;

/// Checks that a pass leaves no state behind that a later one sees.
pub(super) fn a_pass_leaves_nothing_behind(model: &'static Model) {
    let subject = subject(model, &shape(1), &small(model), 4);
    let [first, other] = [0, 5].map(|salt| one(tokens(&[37, 20, 1, 8], 37, salt)));
    for (kind, pass) in [("training", training(2, 0)), ("evaluation", evaluation())] {
        let logits = |inputs: &Inputs| values(&subject.classifier.forward(inputs, &pass).kept());
        let before = logits(&first);
        logits(&other);
        let apart = largest_difference(&before, &logits(&first));
        assert!(
            apart == 0.0,
            "{}: in {kind}, the same batch has logits {apart} apart after another one: something is kept between passes, or \
             drawn from elsewhere than the key of the pass",
            model.name
        );
    }
}

/// Checks that parameters that are set after a pass, as by a step of training or a checkpoint, are
/// those of the next one, and that the classifier that scores without a graph sees them too.
pub(super) fn parameters_set_later_are_seen(model: &'static Model) {
    let options = small(model);
    let parameters = Parameters::new(4, &Device::Cpu, DType::F32);
    let built = |it: &Parameters| Classifier::new(model, &shape(1), &options, it).kept();
    let inputs = one(tokens(&[37, 20, 1, 8], 37, 0));
    let logits = |it: &Classifier| values(&it.forward(&inputs, &evaluation()).kept());
    let both = [
        ("trained", built(&parameters)),
        ("scored without a graph", built(&parameters.detached())),
    ];
    both.iter().for_each(|(_, it)| drop(logits(it)));
    shift(&parameters);
    let expected = logits(&built(&parameters.detached()));
    for (kind, classifier) in &both {
        let apart = largest_difference(&expected, &logits(classifier));
        assert!(
            apart <= 1e-5,
            "{}: after its parameters were set, the model that is {kind} has logits {apart} away from those of a new one with \
             the same parameters: something computed from parameters is kept, from `new` or from an earlier pass",
            model.name
        );
    }
}

/// Checks that rows get the logits that they get alone, beside any other rows, in training too.
pub(super) fn rows_do_not_know_each_other(model: &'static Model) {
    // More rows than a group of 16 has.
    const LENGTHS: [usize; 17] = [30, 17, 4, 37, 9, 37, 1, 22, 36, 8, 29, 2, 37, 16, 5, 11, 33];
    let subject = subject(model, &shape(1), &small_by_rows(model), 5);
    let whole = tokens(&LENGTHS, 37, 0);
    let logits = |row: usize, count: usize, train: bool| {
        let part = |t: &Tensor| t.narrow(0, row, count).kept();
        let inputs = one(Tokens {
            ids: part(&whole.ids),
            mask: whole.mask.as_ref().map(part),
        });
        let pass = Pass::new(train, RngKey::new(SEED, 3, row as u64));
        values(&subject.classifier.forward(&inputs, &pass).kept())
    };
    for train in [false, true] {
        let together = logits(0, LENGTHS.len(), train);
        for row in [0, 2, 7, 16] {
            let beside = &together[row * CLASSES..][..CLASSES];
            let apart = largest_difference(beside, &logits(row, 1, train));
            assert!(
                apart <= 1e-4,
                "{}: row {row} of a batch has logits {apart} away from those that it has alone ({}): rows are mixed, or a draw \
                 is not of its row (`per_example`)",
                model.name,
                if train { "training" } else { "evaluation" }
            );
        }
    }
}

/// Checks that evaluation has no dropout: equal rows have equal logits, and dropout rates do not
/// change any.
pub(super) fn evaluation_drops_nothing(model: &'static Model) {
    let logits = |rate: f64| {
        let mut options = small(model);
        set_dropout(&mut options, rate);
        let subject = subject(model, &shape(1), &options, 7);
        let ids: Vec<u32> = (0..3 * 30).map(|place| 1 + (place % 30) * 7 % 10).collect();
        let inputs = one(Tokens {
            ids: Tensor::from_vec(ids, (3, 30), &Device::Cpu).kept(),
            mask: None,
        });
        values(&subject.classifier.forward(&inputs, &evaluation()).kept())
    };
    let (low, high) = (logits(0.0), logits(0.5));
    let apart = largest_difference(&low, &high);
    let name = model.name;
    assert!(
        apart <= 1e-5,
        "{name}: in evaluation, dropout of 0.5 moves logits by {apart}: ask `pass.train` before anything is dropped"
    );
    for row in 1..3 {
        let apart = largest_difference(&low[..CLASSES], &low[row * CLASSES..][..CLASSES]);
        assert!(
            apart <= 1e-5,
            "{name}: in evaluation, rows of the same tokens have logits {apart} apart: something is drawn or mixed by row"
        );
    }
}
