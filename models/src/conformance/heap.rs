//! The heap during a pass: constants and intermediate tensors, which no graph keeps; and what
//! remains of it afterwards.

use std::sync::OnceLock;

use super::*;

/// Function that runs the given work. It returns the largest number of bytes of heap in use at
/// once, beyond those in use at its start.
pub type HeapPeak = fn(&mut dyn FnMut()) -> usize;

static HEAP_PEAK: OnceLock<HeapPeak> = OnceLock::new();

/// Sets the function `peak` by which the checks measure the use of the heap. It is for programs
/// whose allocator counts bytes. Without it, the checks do not measure the heap. Only the first
/// call has an effect.
pub fn count_heap_by(peak: HeapPeak) {
    HEAP_PEAK.get_or_init(|| peak);
}

/// Checks that the peak of the heap in an evaluation at L, 2L and 4L grows no faster than
/// [`Model::memory`] says, with the kernels of f32. It finds what neither products nor the graph of
/// a training pass show: a constant of all pairs, or a sum along the sequence as a product with a
/// triangle (candle's `cumsum`).
pub(super) fn peak_memory_grows_as_the_card_says(model: &'static Model) {
    let Some(peak) = HEAP_PEAK.get() else {
        return;
    };
    let most = match model.memory {
        Cost::Linear(_) => 2.6,
        Cost::Sqrt(_) => 3.1,
        Cost::Mixed(_) | Cost::Quadratic(_) => return,
    };
    let mut said = String::new();
    // The longer lengths decide if a window is wider than the shorter ones.
    for lengths in [[512, 1024, 2048], [1024, 2048, 4096]] {
        let [short, long, longest] = lengths.map(|length| peak_at(*peak, model, length));
        // Differences cancel the memory that does not depend on the length.
        let [less, more] = [long as f64 - short as f64, longest as f64 - long as f64];
        if more <= most * less.max(0.0) {
            return;
        }
        let growth = more / less;
        said = format!(
            "{short}, {long} and {longest} B at {lengths:?} tokens: each doubling adds {growth:.1} times the one before"
        );
    }
    panic!(
        "{}: the card says memory {}, but an evaluation takes {said}, where {most} times is the most",
        model.name, model.memory
    );
}

/// Returns the peak of an evaluation of one sequence of `length` tokens. It is run twice: the first
/// run allocates what threads keep.
fn peak_at(peak: HeapPeak, model: &'static Model, length: usize) -> usize {
    let shape = of_length(length);
    let parameters = Parameters::new(1, &Device::Cpu, DType::F32);
    let built = |parameters| Classifier::new(model, &shape, &small(model), parameters).kept();
    // The first draws the parameters; the second keeps no graph.
    built(&parameters);
    let classifier = built(&parameters.detached());
    let inputs = one(tokens(&[length], length, 0));
    let mut run = || {
        classifier.forward(&inputs, &evaluation()).kept();
    };
    // With one thread: how many tasks hold scratch memory at once is chance.
    on_threads(1, || {
        run();
        peak(&mut run)
    })
}

/// Checks that passes leave no memory behind: the peak of the heap over many is that over a few.
pub(super) fn passes_leave_no_memory_behind(model: &'static Model) {
    const FEW: usize = 4;
    const MANY: usize = 32;
    const ATTEMPTS: u64 = 10;
    let Some(peak) = HEAP_PEAK.get() else {
        return;
    };
    let parameters = Parameters::new(1, &Device::Cpu, DType::F32);
    let options = small(model);
    let built = |it: &Parameters| Classifier::new(model, &shape(1), &options, it).kept();
    let (trained, scored) = (built(&parameters), built(&parameters.detached()));
    let inputs = one(tokens(&[37], 37, 0));
    let train = || {
        let loss = whole_loss(&trained, &inputs, &labels(0..1), &training(0, 0));
        ops::backward(&loss).kept();
    };
    let evaluate = || {
        scored.forward(&inputs, &evaluation()).kept();
    };
    let passes: [(&str, &(dyn Fn() + Sync)); 2] = [("training", &train), ("evaluation", &evaluate)];
    for (kind, pass) in passes {
        // The order of a backward pass moves its peak a little, and on a busy machine other threads
        // of the process allocate and free meanwhile: what is kept shows every time.
        let mut peaks = [0, 0];
        let kept = (0..ATTEMPTS).all(|attempt| {
            std::thread::sleep(std::time::Duration::from_millis(50 * attempt));
            peaks = on_threads(1, || {
                // The first pass allocates what threads keep.
                pass();
                [FEW, MANY].map(|count| peak(&mut || (0..count).for_each(|_| pass())))
            });
            let [few, many] = peaks;
            many > few + few / 8 + 1024
        });
        let [few, many] = peaks;
        assert!(
            !kept,
            "{}: {FEW} passes of {kind} take {few} B at their peak, and {MANY} take {many} B: each leaves memory behind",
            model.name
        );
    }
}
