//! Operations: the number that a model states against the number that it computes, and against its
//! card.

use std::sync::OnceLock;

use super::{graph, *};
use crate::backbone::Backbone;

fn stated(model: &Model, length: usize) -> u64 {
    let shape = of_length(length);
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
    // At the longest, which blocks of any power of two divide, transforms and scans are not a small
    // share: it is checked for products that are not stated only.
    for (length, most) in [(24, MOST), (37, MOST), (256, f64::INFINITY)] {
        let subject = subject_of(DType::F64, model, &of_length(length), &small(model), 1);
        let inputs = one(tokens(&[length], length, 0));
        let (_, counted) = ops::count_products(|| {
            subject.classifier.forward(&inputs, &evaluation()).kept();
        });
        let stated = subject.classifier.flops(1, length);
        let ratio = stated as f64 / counted as f64;
        assert!(
            (EPS..=most).contains(&ratio),
            "{}: `flops` states {stated} operations at {length} tokens, {counted} are counted in products: {ratio:.2} times these, \
             where {EPS} to {most} is allowed",
            model.name
        );
    }
    a_mixer_states_no_more_than_it_computes(model);
}

/// Operations that a mixer may state for each element of a tensor of its graph, as in scans.
const PER_ELEMENT: u64 = 4;
/// Operations that a mixer may state for each element of its input beside products, as in Fourier
/// transforms, of which no graph shows the steps.
const PER_INPUT: u64 = 60;

/// Checks the first mixer of a stack by itself, so wide that products outweigh the rest: it states at
/// most 1.3 times its products, and some operations for transforms and scans.
fn a_mixer_states_no_more_than_it_computes(model: &'static Model) {
    const LENGTH: usize = 128;
    const DIM: usize = 64;
    let mut options = small(model);
    options.block.dim = DIM;
    options.block.qkv_dim = DIM;
    let parameters = Parameters::new(1, &Device::Cpu, DType::F64);
    let backbone = Backbone::new(model, &of_length(LENGTH), &options, &parameters).kept();
    let mixers = backbone.encoder.mixers();
    let Some(mixer) = mixers.first() else {
        return;
    };
    let x: Vec<f64> = (0..LENGTH * DIM).map(|i| (1.7 * i as f64).sin()).collect();
    let x = Tensor::from_vec(x, (1, LENGTH, DIM), &Device::Cpu).kept();
    let (y, counted) = ops::count_products(|| mixer.forward(&x, &evaluation()).kept());
    let elements = graph::elements(&y) as u64;
    let most = 13 * counted / 10 + PER_ELEMENT * elements + PER_INPUT * (LENGTH * DIM) as u64;
    let stated = mixer.flops(LENGTH);
    assert!(
        stated <= most,
        "{}: `flops` of the mixer states {stated} operations at {LENGTH} tokens and width {DIM}, {counted} are counted in products, \
         and its other tensors have {elements} elements: {most} is the most",
        model.name
    );
}

/// Function that returns the seconds of processor time that this thread or process has used. `None`
/// if the system does not tell.
pub type ProcessorSeconds = fn() -> Option<f64>;

static PROCESSOR_SECONDS: OnceLock<ProcessorSeconds> = OnceLock::new();

/// Sets the clock, `seconds`, by which the checks measure time. Without a clock, they do not
/// measure it. Only the first call has an effect.
pub fn time_passes_by(seconds: ProcessorSeconds) {
    PROCESSOR_SECONDS.get_or_init(|| seconds);
}

/// Checks for a card of linear time that no work grows faster that is no product: neither the
/// tensors of a training pass nor, if there is a clock ([`time_passes_by`]), the processor time of
/// an evaluation, which includes loops on the host.
pub(super) fn time_grows_as_the_card_says(model: &'static Model) {
    if !matches!(model.time, Cost::Linear(_)) {
        return;
    }
    tensors_grow_no_faster(model, 2.5);
    if let Some(seconds) = PROCESSOR_SECONDS.get() {
        time_grows_no_faster(model, *seconds);
    }
}

/// Checks that the elements of all tensors at L, 2L and 4L grow at most by `most` times with each
/// doubling.
fn tensors_grow_no_faster(model: &'static Model, most: f64) {
    // The longer lengths decide if a window is wider than the shorter ones.
    let mut said = String::new();
    for lengths in [[128, 256, 512], [512, 1024, 2048]] {
        let counts = lengths.map(|length| graph::elements(&graph::trained(model, length)));
        let [short, long, longest] = counts.map(|count| count as f64);
        let growth = (longest - long) / (long - short);
        if growth <= most {
            return;
        }
        said = format!(
            "{counts:?} elements at {lengths:?} tokens: each doubling adds {growth:.1} times the one before"
        );
    }
    panic!(
        "{}: the card says time {}, but the tensors of a training pass have {said}, where {most} times is the most",
        model.name, model.time
    );
}

/// Checks that an evaluation of four times the tokens takes less than 4^1.6 times the processor
/// time. Linear time is four times, quadratic time sixteen; the least of some tries is what other
/// programs slow down least. Not asked of models that state more than 2·10⁸ operations at
/// 16,384 tokens: shorter passes fit into caches, and products hide other work.
fn time_grows_no_faster(model: &'static Model, seconds: ProcessorSeconds) {
    const MOST: f64 = 9.2;
    const TRIES: usize = 4;
    let Some(longest) = longest_of(model, &[16384], 200_000_000) else {
        return;
    };
    let lengths = [longest / 4, longest];
    let subjects = lengths.map(|length| {
        let parameters = Parameters::new(1, &Device::Cpu, DType::F32);
        let built = |it| Classifier::new(model, &of_length(length), &small(model), it).kept();
        // The first draws the parameters; the second keeps no graph.
        built(&parameters);
        let classifier = built(&parameters.detached());
        (classifier, one(tokens(&[length], length, 0)))
    });
    let mut least = [f64::INFINITY; 2];
    for _ in 0..TRIES {
        for ((classifier, inputs), least) in subjects.iter().zip(&mut least) {
            let pass = || drop(classifier.forward(inputs, &evaluation()).kept());
            let Some(taken) = on_threads(1, || seconds_of(seconds, pass)) else {
                return;
            };
            *least = least.min(taken);
        }
    }
    if least[1] <= MOST * least[0] {
        return;
    }
    let [short, long] = least.map(|seconds| 1e3 * seconds);
    panic!(
        "{}: the card says time {}, but an evaluation of {lengths:?} tokens takes {short:.1} and {long:.1} ms of processor time at \
         least: {:.1} times, where {MOST} is the most",
        model.name,
        model.time,
        long / short
    );
}

/// Returns the mean seconds of `work`, over so many runs that a clock which only a tick of the
/// scheduler advances is precise enough.
fn seconds_of(seconds: ProcessorSeconds, work: impl Fn()) -> Option<f64> {
    const ENOUGH: f64 = 0.04;
    const MOST_RUNS: usize = 1000;
    let start = seconds()?;
    for runs in 1..MOST_RUNS {
        work();
        let taken = seconds()? - start;
        if taken >= ENOUGH {
            return Some(taken / runs as f64);
        }
    }
    None
}
