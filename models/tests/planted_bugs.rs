//! One mistake at a time in a sound model, and the promise that must find it. Other promises that
//! the same mistake breaks are not tried, so that it is reported once, with a line of this file.

#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod counting;

use std::{
    collections::HashMap,
    env, fs,
    panic::{self, AssertUnwindSafe},
    process::{self, Command, Stdio},
    sync::{
        LazyLock, Mutex, OnceLock,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use candle_core::{DType, Device, Tensor};
use candle_nn::Init;
use libtest_mimic::{Arguments, Trial};
use lra_models::{
    Cost, Encoder, Family, LayerContext, MODELS, Mixer, Model, ModelContext, Pass, Reference,
    Result, Variant,
    conformance::{self, Check, Outcome},
    encoder,
    layers::Linear,
    mask::zero_padding,
    ops::matmul,
    options::Range,
    params::xavier_uniform,
    rng::StreamKey,
};

use serde_json::{Value, json};

const SOURCE: &str = include_str!("planted_bugs.rs");

fn build(context: &ModelContext, bug: Bug) -> Result<Box<dyn Encoder>> {
    let rate = context.model["dropout"].as_f64().unwrap_or_default();
    encoder::blocks(context, move |layer| {
        Ok(Box::new(Planted::new(layer, bug, rate)?))
    })
}

/// y_i = W (g ⊙ m_i) + b, m_i the mean of x_j over the last three positions j up to i.
struct Planted {
    bug: Bug,
    gain: Tensor,
    output: Linear,
    drop: StreamKey,
    rate: f64,
    passes: AtomicUsize,
    /// g² from the time when the layer was made.
    squared: Tensor,
    /// g from the first evaluation.
    first: OnceLock<Tensor>,
    seen: Mutex<Vec<Tensor>>,
}

static PASSES: AtomicUsize = AtomicUsize::new(0);
/// Numbers in an order that differs from process to process.
static NUMBERS: LazyLock<HashMap<usize, f64>> =
    LazyLock::new(|| (0..20).map(|it| (it, 0.1 + 0.04 * it as f64)).collect());

impl Planted {
    fn new(layer: &LayerContext, bug: Bug, rate: f64) -> Result<Self> {
        let dim = layer.block.dim;
        let one = Init::Const(1.0);
        if bug == Bug::NeverUsesAWeight {
            layer.vb.get_with_hints(dim, "unused", one)?;
        }
        let weight = match bug {
            Bug::StartsAtZero | Bug::MeansOverPaddingBehindZeros => Init::Const(0.0),
            _ => xavier_uniform(dim, dim),
        };
        let bias = Some(Init::Const(0.0));
        let gain = layer.vb.get_with_hints(dim, "gain", one)?;
        Ok(Self {
            bug,
            squared: gain.sqr()?,
            gain,
            output: Linear::new(&layer.vb.pp("output"), dim, dim, weight, bias)?,
            drop: StreamKey::new(&layer.vb.pp("drop").prefix()),
            rate,
            passes: AtomicUsize::new(0),
            first: OnceLock::new(),
            seen: Mutex::new(Vec::new()),
        })
    }

    /// Returns the gain, one way or the other, for `batch` sequences of `length` positions.
    fn gain(&self, batch: usize, length: usize, pass: &Pass) -> Result<Tensor> {
        let scales = match self.bug {
            Bug::ScalesAGradient => true,
            Bug::ScalesAGradientWithoutMask => pass.mask().is_none(),
            Bug::ScalesAGradientOfLongRows => length > 64,
            Bug::ScalesAGradientOfOneRow => batch == 1,
            _ => false,
        };
        Ok(match self.bug {
            Bug::Detaches => self.gain.detach(),
            Bug::DetachesAtEvenBlocks if length.is_multiple_of(16) => self.gain.detach(),
            Bug::KeepsParametersOfTheFirstEvaluation if !pass.train => {
                let first = self.gain.copy()?;
                self.first.get_or_init(|| first).clone()
            }
            Bug::KeepsWhatNewComputed => self.squared.clone(),
            _ if scales => {
                let more = self.gain.affine(0.1, 0.0)?;
                ((&self.gain + &more)? - more.detach())?
            }
            _ => self.gain.clone(),
        })
    }

    /// Returns the dropout of `y` (B, L, D) in every pass in which it is called.
    fn dropped(&self, y: &Tensor, pass: &Pass, of_rows: bool) -> Result<Tensor> {
        let stream = match of_rows {
            true => pass.rng.per_example(self.drop),
            false => pass.rng.shared(self.drop),
        };
        let mask = stream.mask_tensor(y.shape(), 0.3, y.dtype(), y.device())?;
        Ok((y * mask)?)
    }

    /// Returns `y` (B, L, D) by channels that are dropped at the model's own rate, in all rows alike.
    fn dropped_by_channel(&self, y: &Tensor, pass: &Pass) -> Result<Tensor> {
        let (stream, shape) = (pass.rng.shared(self.drop), (1, 1, y.dim(2)?).into());
        let mask = stream.mask_tensor(&shape, self.rate, y.dtype(), y.device())?;
        Ok(y.broadcast_mul(&mask)?)
    }

    /// Adds a term of every pair of positions to `y`, without a product.
    fn pairs(y: &Tensor) -> Result<Tensor> {
        let first = y.narrow(2, 0, 1)?; // (B, L, 1), zeros where there is padding
        let pairs = first.broadcast_mul(&first.t()?)?.sqr()?;
        Ok(y.broadcast_add(&pairs.sum_keepdim(2)?.affine(0.01, 0.0)?)?)
    }
}

impl Mixer for Planted {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let (batch, length, dim) = x.dims3()?;
        let valid = zero_padding(x, pass.mask())?;
        let around = match self.bug {
            Bug::SeesTheFuture | Bug::HidesTheFront => valid.pad_with_zeros(1, 1, 1)?,
            _ => valid.pad_with_zeros(1, 2, 0)?,
        };
        let mut sum = around.narrow(1, 0, length)?;
        for by in 1..3 {
            sum = (sum + around.narrow(1, by, length)?)?;
        }
        let y = (sum / 3.0)?.broadcast_mul(&self.gain(batch, length, pass)?)?;
        let y = match self.bug {
            Bug::Panics => {
                let names: Vec<usize> = Vec::with_capacity(length);
                (y * names[length] as f64)?
            }
            Bug::BreaksAtOddLengths => y
                .reshape((batch, length / 2, 2, dim))?
                .reshape((batch, length, dim))?,
            Bug::BreaksAtOneToken => y.broadcast_add(&y.narrow(1, 1, 1)?.affine(0.0, 0.0)?)?,
            Bug::BreaksAtLongSequences => {
                let places: Vec<f64> = (0..length).map(|place| 0.1 * place as f64).collect();
                let places = Tensor::from_vec(places, (1, length, 1), &Device::Cpu)?;
                let growth = places.to_dtype(y.dtype())?.exp()?;
                y.broadcast_mul(&growth)?.broadcast_div(&growth)?
            }
            Bug::DividesByNothing => match pass.mask() {
                Some(mask) => y.broadcast_div(&mask.valid().sum_keepdim(1)?.unsqueeze(2)?)?,
                None => (y / length as f64)?,
            },
            Bug::DrawsPastTheKey => (y * (1.0 + PASSES.fetch_add(1, Relaxed) as f64))?,
            Bug::KeepsState => (y * (1.0 + self.passes.fetch_add(1, Relaxed) as f64))?,
            Bug::MixesRows => y
                .transpose(0, 1)?
                .contiguous()?
                .reshape((batch, length, dim))?,
            Bug::CentresByTheBatch => y.broadcast_sub(&y.mean_keepdim(0)?)?,
            Bug::DropsByTheBatch if pass.train => self.dropped(&y, pass, false)?,
            Bug::DropsInEvaluation => self.dropped(&y, pass, true)?,
            Bug::DropsInEvaluationAtItsOwnRate => self.dropped_by_channel(&y, pass)?,
            Bug::MeansOverPaddingInTraining if pass.train => {
                y.broadcast_add(&x.mean_keepdim(1)?)?
            }
            Bug::MeansOverPadding | Bug::MeansOverPaddingBehindZeros => {
                y.broadcast_add(&x.mean_keepdim(1)?)?
            }
            Bug::ComputesInHalf => y.to_dtype("bf16".parse().unwrap())?.to_dtype(x.dtype())?,
            Bug::EvaluatesInHalf if !pass.train => {
                y.to_dtype("bf16".parse().unwrap())?.to_dtype(x.dtype())?
            }
            Bug::BreaksAtBrokenBlocks if length > 64 => y
                .reshape((batch, length / 64, 64, dim))?
                .reshape((batch, length, dim))?,
            Bug::HasNoGradientAtLongSequences => {
                let places: Vec<f64> = (0..length).map(|place| place as f64).collect();
                let places = Tensor::from_vec(places, (1, length, 1), &Device::Cpu)?;
                let log = (self.gain.clamp(0.1, 0.95)?.mean_all()?.log()? - 0.1)?;
                // The root of what underflows has an infinite slope.
                let decay = places
                    .to_dtype(y.dtype())?
                    .broadcast_mul(&log)?
                    .exp()?
                    .sqrt()?;
                y.broadcast_mul(&(decay + 1.0)?)?
            }
            Bug::HidesTheFront => {
                let behind = y.narrow(1, 1, length - 1)?;
                behind.pad_with_zeros(1, 1, 0)?
            }
            // By kernels alone: composed layers of f64 do not.
            Bug::SeesTheFutureOfLongSequences if length > 64 && x.dtype() == DType::F32 => {
                let early = y.narrow(1, 0, 30)?;
                let mean = (valid.sum_keepdim(1)? / 64.0)?;
                let late = y.narrow(1, 30, length - 30)?.broadcast_add(&mean)?;
                Tensor::cat(&[early, late], 1)?
            }
            Bug::CentresByGroupsOfRows => {
                let whole = batch / 8 * 8;
                let groups = y
                    .narrow(0, 0, whole)?
                    .reshape((whole / 8, 8, length, dim))?;
                let centred = groups.broadcast_sub(&groups.mean_keepdim(1)?)?;
                let centred = centred.reshape((whole, length, dim))?;
                match batch - whole {
                    0 => centred,
                    rest => Tensor::cat(&[centred, y.narrow(0, whole, rest)?], 0)?,
                }
            }
            Bug::OrdersByAHash => {
                let orders = NUMBERS.values().enumerate();
                let scale = orders.map(|(place, number)| number * (place + 1) as f64);
                (y * (0.01 * scale.sum::<f64>()))?
            }
            Bug::SumsByThreads => {
                let step = length.div_ceil(rayon::current_num_threads().min(length));
                let mut sum = valid.narrow(1, 0, 1)?.zeros_like()?;
                for start in (0..length).step_by(step) {
                    let part = valid.narrow(1, start, step.min(length - start))?;
                    sum = (sum + part.sum_keepdim(1)?)?;
                }
                y.broadcast_add(&(sum / 64.0)?)?
            }
            Bug::KeepsEveryPass => {
                self.seen.lock().unwrap().push(y.detach().copy()?);
                y
            }
            Bug::SumsEveryPrefix => {
                let sum = |place| Ok((valid.narrow(1, 0, place + 1)?.sum_keepdim(1)? / 100.0)?);
                let sums: Result<Vec<Tensor>> = (0..length).map(sum).collect();
                (y + Tensor::cat(&sums?, 1)?)?
            }
            Bug::LoopsOverPairs => {
                let rows = valid.detach().to_dtype(DType::F32)?;
                let rows = rows.narrow(2, 0, 1)?.squeeze(2)?.to_vec2::<f32>()?;
                let near = rows.iter().flat_map(|row| {
                    let near = |a: f32| row.iter().fold(0.0, |near, b| near + (a * b).abs());
                    row.iter().map(move |a| 1.0 + near(*a).min(0.0))
                });
                let near = Tensor::from_vec(near.collect(), (batch, length, 1), &Device::Cpu)?;
                y.broadcast_mul(&near.to_dtype(y.dtype())?)?
            }
            Bug::MultipliesMoreInLongSequences => {
                let eye = Tensor::eye(dim, x.dtype(), x.device())?;
                (0..length / 64).try_fold(y, |y, _| matmul(&y, &eye.unsqueeze(0)?))?
            }
            // Not seen in this file by its name, as in a second file of a crate.
            Bug::SumsByATriangle => by_triangle(&zero_padding(&y, pass.mask())?)?,
            Bug::KeepsPairs => Self::pairs(&zero_padding(&y, pass.mask())?)?,
            Bug::IsQuadratic | Bug::StatesLinearOperations => {
                let y = zero_padding(&y, pass.mask())?;
                let scores = matmul(&y, &y.t()?)?.affine(0.01, 0.0)?;
                matmul(&scores, &y)?
            }
            _ => y,
        };
        self.output.forward(&y)
    }

    fn is_causal(&self) -> bool {
        !matches!(
            self.bug,
            Bug::SaysNotThatItIsCausal
                | Bug::HidesTheFront
                | Bug::KeepsPairs
                | Bug::IsQuadratic
                | Bug::StatesLinearOperations
        )
    }

    fn flops(&self, length: usize) -> u64 {
        match self.bug {
            Bug::StatesNoOperations => 0,
            Bug::StatesThreeTimesItsOperations => 3 * self.output.flops(length),
            Bug::IsQuadratic => {
                let products = 2 * 2 * length * length * self.gain.elem_count();
                self.output.flops(length) + products as u64
            }
            _ => self.output.flops(length),
        }
    }
}

/// Returns `y` (B, L, D) times a hundredth of the number of positions up to each.
fn by_triangle(y: &Tensor) -> Result<Tensor> {
    let length = y.dim(1)?;
    let ones = Tensor::tril2(length, y.dtype(), y.device())?;
    let ones = ones.broadcast_as((y.dim(0)?, length, length))?;
    // Without an operation that is counted: one pass over a table of all pairs.
    let share = ones.contiguous()?.sum_keepdim(2)?.affine(0.01, 0.0)?;
    Ok(y.broadcast_mul(&share)?)
}

/// In place of the source of one that multiplies past the rounding.
const MULTIPLYING: &str = concat!("fn forward() {\n    x.mat", "mul(&w)\n}\n");
/// In place of the source of one that gives candle's product a name.
const NAMING: &str = concat!(
    "fn forward() {\n    let product = Tensor::broadcast_mat",
    "mul;\n}\n"
);
/// In place of the source of one that rounds a constant.
const ROUNDING: &str = concat!("fn forward() {\n    places.to_dtype(DType::F", "16)?\n}\n");

const RATE: &[Range] = &[Range::probability("dropout")];

impl Bug {
    /// Returns the settings of its card.
    const fn settings(self) -> &'static str {
        match self {
            Bug::NeverDrops => {
                r#"{"embed": {"dropout": 0.0}, "block": {"dropout": 0.0, "attention_dropout": 0.0}}"#
            }
            Bug::NormalisesTheBatch => r#"{"block": {"norm": "batch"}}"#,
            _ => "",
        }
    }

    /// Returns whether the model has a rate of dropout of its own.
    const fn has_a_rate(self) -> bool {
        matches!(
            self,
            Bug::IgnoresAnOption | Bug::DropsInEvaluationAtItsOwnRate
        )
    }

    const fn options(self) -> fn() -> Value {
        match self.has_a_rate() {
            true => || json!({ "dropout": 0.1 }),
            false => || json!({}),
        }
    }

    const fn ranges(self) -> &'static [Range] {
        match self.has_a_rate() {
            true => RATE,
            false => &[],
        }
    }
}

macro_rules! plant {
    ($($bug:ident $promise:literal $place:literal,)*) => {
        /// Planted fault of a model.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        enum Bug { $($bug),* }

        /// Each bug with the promise that it breaks, and with text from the line that it points at.
        static PLANTED: &[(Bug, &str, &str, Model)] = &[$((
            Bug::$bug,
            $promise,
            $place,
            Model {
                name: stringify!($bug),
                title: stringify!($bug),
                paper: "none: a mistake",
                year: 2026,
                arxiv: "",
                time: Cost::Linear("O(L)"),
                memory: Cost::Linear("O(L)"),
                reference: Reference::None,
                family: Family::Xformer,
                settings: Bug::$bug.settings(),
                variants: &[Variant {
                    source: match Bug::$bug {
                        Bug::MultipliesByCandle => MULTIPLYING,
                        Bug::NamesAProductOfCandle => NAMING,
                        Bug::RoundsAConstant => ROUNDING,
                        _ => SOURCE,
                    },
                    ..Variant::paper(|context| build(context, Bug::$bug), SOURCE)
                }],
                options: Bug::$bug.options(),
                ranges: Bug::$bug.ranges(),
            },
        )),*];
    };
}

plant![
    Nothing "" "",
    NeverDrops "" "",
    NormalisesTheBatch "" "",
    StartsAtZero "" "",
    Panics "it_is_built_and_trained" "fn forward",
    BreaksAtOddLengths "logits_are_finite_at_every_length_for_every_pooling" "fn forward",
    BreaksAtOneToken "logits_are_finite_at_every_length_for_every_pooling" "fn forward",
    BreaksAtBrokenBlocks "logits_are_finite_at_every_length_for_every_pooling" "fn forward",
    HasNoGradientAtLongSequences "gradients_are_finite_at_a_thousand_tokens" "\"gain\"",
    BreaksAtLongSequences "logits_are_finite_up_to_the_longest_task" "fn forward",
    DividesByNothing "a_row_of_padding_only_is_finite_and_has_finite_gradients" "fn forward",
    DrawsPastTheKey "the_seed_decides_every_bit" "fn forward",
    OrdersByAHash "the_seed_decides_every_bit" "fn forward",
    SumsByThreads "the_seed_decides_every_bit" "fn forward",
    KeepsEveryPass "passes_leave_no_memory_behind" "fn forward",
    KeepsParametersOfTheFirstEvaluation "parameters_set_later_are_seen" "fn new",
    KeepsWhatNewComputed "parameters_set_later_are_seen" "fn new",
    IgnoresAnOption "every_option_has_an_effect" "fn new",
    KeepsState "a_pass_leaves_nothing_behind" "fn forward",
    MixesRows "rows_do_not_know_each_other" "fn forward",
    CentresByTheBatch "rows_do_not_know_each_other" "fn forward",
    CentresByGroupsOfRows "rows_do_not_know_each_other" "fn forward",
    DropsByTheBatch "rows_do_not_know_each_other" "fn forward",
    DropsInEvaluation "evaluation_drops_nothing" "fn forward",
    DropsInEvaluationAtItsOwnRate "evaluation_drops_nothing" "fn forward",
    MeansOverPaddingInTraining
        "padded_tokens_may_be_anything_where_a_variant_masks_them_and_only_there" "fn forward",
    MeansOverPaddingBehindZeros
        "padded_tokens_may_be_anything_where_a_variant_masks_them_and_only_there" "fn forward",
    MeansOverPadding "padded_tokens_may_be_anything_where_a_variant_masks_them_and_only_there"
        "fn forward",
    SeesTheFuture "a_position_sees_what_follows_unless_the_model_is_causal" "fn is_causal",
    SeesTheFutureOfLongSequences "a_position_sees_what_follows_unless_the_model_is_causal"
        "fn is_causal",
    SaysNotThatItIsCausal "a_position_sees_what_follows_unless_the_model_is_causal"
        "fn is_causal",
    HidesTheFront "logits_depend_on_the_tokens_for_every_pooling" "fn forward",
    Detaches "every_parameter_has_a_finite_gradient_that_is_not_zero" "\"gain\"",
    NeverUsesAWeight "every_parameter_has_a_finite_gradient_that_is_not_zero" "\"unused\"",
    ScalesAGradient "gradients_are_difference_quotients" "\"gain\"",
    ScalesAGradientWithoutMask "gradients_are_difference_quotients" "\"gain\"",
    ScalesAGradientOfLongRows "gradients_are_difference_quotients" "\"gain\"",
    ScalesAGradientOfOneRow "gradients_are_difference_quotients" "\"gain\"",
    DetachesAtEvenBlocks "gradients_are_difference_quotients" "\"gain\"",
    ComputesInHalf "no_number_is_kept_with_fewer_bits_than_the_parameters_have" "to_dtype",
    EvaluatesInHalf "no_number_is_kept_with_fewer_bits_than_the_parameters_have" "to_dtype",
    RoundsAConstant "no_number_is_kept_with_fewer_bits_than_the_parameters_have" "places",
    KeepsPairs "memory_grows_as_the_card_says" "memory: Cost",
    SumsByATriangle "peak_memory_grows_as_the_card_says" "memory: Cost",
    SumsEveryPrefix "time_grows_as_the_card_says" "time: Cost",
    LoopsOverPairs "time_grows_as_the_card_says" "time: Cost",
    IsQuadratic "operations_grow_as_the_card_says" "time: Cost",
    StatesThreeTimesItsOperations "operations_are_those_counted" "fn flops",
    StatesNoOperations "operations_are_those_counted" "fn flops",
    StatesLinearOperations "operations_are_those_counted" "fn flops",
    MultipliesMoreInLongSequences "operations_are_those_counted" "fn flops",
    NamesAProductOfCandle "products_are_those_that_can_be_rounded" "fn forward",
    MultipliesByCandle "products_are_those_that_can_be_rounded" "fn forward",
];

/// Returns the broken promises, each with its fault.
fn actual(model: &'static Model) -> Vec<(&'static Check, String)> {
    let tried = |promise: &'static Check| {
        let outcome = panic::catch_unwind(AssertUnwindSafe(|| (promise.check)(model)));
        let fault = outcome.err().map(|said| match said.downcast::<String>() {
            Ok(said) => *said,
            Err(said) => (*said.downcast_ref::<&str>().unwrap_or(&"")).to_owned(),
        });
        fault.map_or(Outcome::Kept, Outcome::Broken)
    };
    let all = conformance::ask(tried, |_, _| Ok::<_, ()>(())).unwrap();
    let broken = all.into_iter().filter_map(|(promise, it)| match it {
        Outcome::Broken(said) => Some((promise, said)),
        Outcome::Kept | Outcome::NotTried(_) | Outcome::Unchecked(_) => None,
    });
    broken.collect()
}

/// Promises that are checked further where the heap is counted. The clock is tried with the planted
/// bugs and the sound models beside them alone.
const MEASURED: [&str; 2] = [
    "peak_memory_grows_as_the_card_says",
    "passes_leave_no_memory_behind",
];

/// Environment variable by which this program asks another process of itself for a digest.
const DIGEST_OF: &str = "LRA_MODELS_DIGEST_OF";

/// Returns [`conformance::digest`] of a planted model, from another process.
fn digest_in_another_process(model: &'static Model) -> Option<u64> {
    PLANTED.iter().find(|(_, _, _, it)| it.name == model.name)?;
    let mut command = Command::new(env::current_exe().unwrap());
    let output = command.env(DIGEST_OF, model.name).output().unwrap();
    String::from_utf8(output.stdout)
        .unwrap()
        .trim()
        .parse()
        .ok()
}

/// Set in the process that runs the trials of the registry's models, while another runs those of
/// the mistakes: each counts its own heap.
const MODELS_ONLY: &str = "LRA_TEST_MODELS_ONLY";

/// Returns the processor time of this thread, where Linux has it.
fn seconds_of_this_thread() -> Option<f64> {
    let text = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanoseconds: f64 = text.split_whitespace().next()?.parse().ok()?;
    Some(1e-9 * nanoseconds)
}

fn main() {
    // One model at a time: the heap of all threads is counted.
    conformance::count_heap_by(|work| counting::peak_of(work));
    conformance::time_passes_by(seconds_of_this_thread);
    if let Ok(name) = env::var(DIGEST_OF) {
        let mut planted = PLANTED.iter().map(|(_, _, _, model)| model);
        let model = planted.find(|model| model.name == name).unwrap();
        println!("{}", conformance::digest(model));
        return;
    }
    conformance::digest_elsewhere_by(digest_in_another_process);
    panic::set_hook(Box::new(|_| {}));
    let arguments = Arguments {
        test_threads: Some(1),
        ..Arguments::from_args()
    };
    if env::var_os(MODELS_ONLY).is_some() {
        libtest_mimic::run(&arguments, of_models()).exit();
    }
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(env::args_os().skip(1)).env(MODELS_ONLY, "1");
    let other = command.stdout(Stdio::piped()).spawn().unwrap();
    let own = libtest_mimic::run(&arguments, of_bugs());
    let output = other.wait_with_output().unwrap();
    print!("{}", String::from_utf8_lossy(&output.stdout));
    own.exit_if_failed();
    process::exit(output.status.code().unwrap_or(1));
}

/// Returns a trial for each planted mistake.
fn of_bugs() -> Vec<Trial> {
    let trials = PLANTED.iter().map(|(bug, promise, words, model)| {
        Trial::test(format!("{bug:?}"), move || {
            let actual = actual(model);
            let names: Vec<&str> = actual.iter().map(|(promise, _)| promise.name).collect();
            let expected: Vec<&str> = [*promise].into_iter().filter(|it| !it.is_empty()).collect();
            if names != expected {
                return Err(format!("{actual:#?}, not {expected:?}").into());
            }
            for (promise, said) in &actual {
                let place = promise.place(model, said);
                let place = place.map_or_else(String::new, |place| place.to_string());
                if !place.starts_with(file!()) || !place.contains(words) {
                    return Err(format!("{said}\npoints at {place}, not at {words}").into());
                }
            }
            Ok(())
        })
    });
    trials.collect()
}

/// Returns trials of what the counted heap shows of the registry's models.
fn of_models() -> Vec<Trial> {
    let measured = |promise: &&Check| MEASURED.contains(&promise.name);
    let measured = conformance::CHECKS.iter().filter(measured);
    let models = measured.flat_map(|promise| {
        MODELS.iter().copied().map(move |model| {
            Trial::test(format!("{}::{}", model.name, promise.name), move || {
                (promise.check)(model);
                Ok(())
            })
        })
    });
    models.collect()
}
