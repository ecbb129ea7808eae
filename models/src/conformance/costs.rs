//! Operations: the number that a model states against the number that it computes, and against its
//! card.

use super::*;

fn stated(model: &Model, length: usize) -> u64 {
    let shape = Shape {
        max_length: length,
        ..shape(1)
    };
    let parameters = Parameters::meta(&Device::Cpu, DType::F32);
    let classifier = Classifier::new(model, &shape, &small(model), &parameters).kept();
    classifier.flops(1, length)
}

/// Checks that [`crate::Mixer::flops`] at L, 2L and 4L grows no faster than [`Model::time`] says.
pub(super) fn operations_grow_as_the_card_says(model: &'static Model) {
    let most = match model.time {
        Cost::Linear(_) => 2.3,
        Cost::Sqrt(_) => 2.9,
        Cost::Mixed(_) | Cost::Quadratic(_) => 4.1,
    };
    let [short, long, longest] = [2048, 4096, 8192].map(|length| stated(model, length) as f64);
    let growth = (longest - long) / (long - short);
    assert!(
        growth <= most,
        "{}: the card says time {}, but `flops` states {short} at 2,048 tokens, {long} at 4,096, {longest} at 8,192: each doubling \
         adds {growth:.1} times the one before, where {most} is the most",
        model.name,
        model.time
    );
}

/// Stated operations over counted ones. Fewer are stated where the tensor operations of an
/// attention by blocks fill blocks up; more where a model mostly computes transforms and scans,
/// which are no products.
const EPS: f64 = 0.88;
const MOST: f64 = 3.5;

/// Checks that [`crate::Mixer::flops`] states the products that a pass computes.
pub(super) fn operations_are_those_counted(model: &'static Model) {
    for length in [24, 37] {
        let subject = subject_of(DType::F64, model, &shape(1), &small(model), 1);
        let inputs = one(tokens(&[length], length, 0));
        let (_, counted) = ops::count_products(|| {
            subject.classifier.forward(&inputs, &evaluation()).kept();
        });
        let stated = subject.classifier.flops(1, length);
        let ratio = stated as f64 / counted as f64;
        assert!(
            (EPS..=MOST).contains(&ratio),
            "{}: `flops` states {stated} operations at {length} tokens, {counted} are counted in products: {ratio:.2} times these, \
             where {EPS} to {MOST} is allowed",
            model.name
        );
    }
}
