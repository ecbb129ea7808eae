//! One mistake at a time in a sound model, and the promise that must find it. Other promises that
//! the same mistake breaks are not tried, so that it is reported once, with a line of this file.

#![allow(clippy::unwrap_used)]

mod counting;

use std::{
    panic::{self, AssertUnwindSafe},
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use candle_core::{DType, Device, Tensor};
use candle_nn::Init;
use libtest_mimic::{Arguments, Trial};
use lra_models::{
    Cost, Encoder, Family, LayerContext, MODELS, Mixer, Model, ModelContext, Pass, Reference,
    Result, Variant,
    conformance::{self, Outcome},
    encoder,
    layers::Linear,
    mask::zero_padding,
    ops::matmul,
    params::xavier_uniform,
    rng::StreamKey,
};

const SOURCE: &str = include_str!("planted_bugs.rs");

fn build(context: &ModelContext, bug: Bug) -> Result<Box<dyn Encoder>> {
    encoder::blocks(context, move |layer| {
        Ok(Box::new(Planted::new(layer, bug)?))
    })
}

/// y_i = W (g ⊙ m_i) + b, m_i the mean of x_j over the last three positions j up to i.
struct Planted {
    bug: Bug,
    gain: Tensor,
    output: Linear,
    drop: StreamKey,
    passes: AtomicUsize,
}

static PASSES: AtomicUsize = AtomicUsize::new(0);

impl Planted {
    fn new(layer: &LayerContext, bug: Bug) -> Result<Self> {
        let dim = layer.block.dim;
        let one = Init::Const(1.0);
        if bug == Bug::NeverUsesAWeight {
            layer.vb.get_with_hints(dim, "unused", one)?;
        }
        let (weight, bias) = (xavier_uniform(dim, dim), Some(Init::Const(0.0)));
        Ok(Self {
            bug,
            gain: layer.vb.get_with_hints(dim, "gain", one)?,
            output: Linear::new(&layer.vb.pp("output"), dim, dim, weight, bias)?,
            drop: StreamKey::new(&layer.vb.pp("drop").prefix()),
            passes: AtomicUsize::new(0),
        })
    }

    /// Returns the gain, one way or the other.
    fn gain(&self) -> Result<Tensor> {
        Ok(match self.bug {
            Bug::Detaches => self.gain.detach(),
            Bug::ScalesAGradient => {
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
            Bug::SeesTheFuture => valid.pad_with_zeros(1, 1, 1)?,
            _ => valid.pad_with_zeros(1, 2, 0)?,
        };
        let mut sum = around.narrow(1, 0, length)?;
        for by in 1..3 {
            sum = (sum + around.narrow(1, by, length)?)?;
        }
        let y = (sum / 3.0)?.broadcast_mul(&self.gain()?)?;
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
            Bug::MeansOverPadding => y.broadcast_add(&x.mean_keepdim(1)?)?,
            Bug::ComputesInHalf => y.to_dtype(DType::BF16)?.to_dtype(x.dtype())?,
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
        matches!(self.bug, Bug::Nothing | Bug::SeesTheFuture)
    }

    fn flops(&self, length: usize) -> u64 {
        match self.bug {
            Bug::StatesNoOperations => 0,
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
                settings: "",
                variants: &[Variant {
                    source: match Bug::$bug {
                        Bug::MultipliesByCandle => MULTIPLYING,
                        _ => SOURCE,
                    },
                    ..Variant::paper(|context| build(context, Bug::$bug), SOURCE)
                }],
                options: || serde_json::json!({}),
                ranges: &[],
            },
        )),*];
    };
}

plant![
    Nothing "" "",
    Panics "it_is_built_and_trained" "fn forward",
    BreaksAtOddLengths "logits_are_finite_at_every_length_for_every_pooling" "fn forward",
    BreaksAtOneToken "logits_are_finite_at_every_length_for_every_pooling" "fn forward",
    BreaksAtLongSequences "logits_are_finite_up_to_the_longest_task" "fn forward",
    DividesByNothing "a_row_of_padding_only_is_finite_and_has_finite_gradients" "fn forward",
    DrawsPastTheKey "the_seed_decides_every_bit" "fn forward",
    KeepsState "a_pass_leaves_nothing_behind" "fn forward",
    MixesRows "rows_do_not_know_each_other" "fn forward",
    CentresByTheBatch "rows_do_not_know_each_other" "fn forward",
    DropsByTheBatch "rows_do_not_know_each_other" "fn forward",
    DropsInEvaluation "evaluation_drops_nothing" "fn forward",
    MeansOverPadding "padded_tokens_may_be_anything_where_a_variant_masks_them_and_only_there"
        "fn forward",
    SeesTheFuture "no_position_sees_what_follows_where_that_is_claimed" "fn is_causal",
    Detaches "every_parameter_has_a_finite_gradient_that_is_not_zero" "\"gain\"",
    NeverUsesAWeight "every_parameter_has_a_finite_gradient_that_is_not_zero" "\"unused\"",
    ScalesAGradient "gradients_are_difference_quotients" "\"gain\"",
    ComputesInHalf "no_number_is_kept_with_fewer_bits_than_the_parameters_have" "BF16",
    KeepsPairs "memory_grows_as_the_card_says" "memory: Cost",
    SumsByATriangle "peak_memory_grows_as_the_card_says" "memory: Cost",
    IsQuadratic "operations_grow_as_the_card_says" "time: Cost",
    StatesNoOperations "operations_are_those_counted" "fn flops",
    StatesLinearOperations "operations_are_those_counted" "fn flops",
    MultipliesByCandle "products_are_those_that_can_be_rounded" "fn forward",
];

/// Returns the broken promises, each with its fault.
fn actual(model: &'static Model) -> Vec<(&'static conformance::Check, String)> {
    let broken = |promise: &'static conformance::Check| {
        let outcome = panic::catch_unwind(AssertUnwindSafe(|| (promise.check)(model)));
        outcome.err().map(|said| match said.downcast::<String>() {
            Ok(said) => *said,
            Err(said) => (*said.downcast_ref::<&str>().unwrap_or(&"")).to_owned(),
        })
    };
    let all = conformance::ask(broken, |_, _| Ok::<_, ()>(())).unwrap();
    let broken = all.into_iter().filter_map(|(promise, it)| match it {
        Outcome::Broken(said) => Some((promise, said)),
        Outcome::Kept | Outcome::NotTried(_) => None,
    });
    broken.collect()
}

fn main() {
    // One model at a time: the heap of all threads is counted.
    conformance::count_heap_by(|work| counting::peak_of(work));
    panic::set_hook(Box::new(|_| {}));
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
    let peak = |promise: &&conformance::Check| promise.name == "peak_memory_grows_as_the_card_says";
    let peak = conformance::CHECKS.iter().find(peak).unwrap();
    let heaps = MODELS.iter().copied().map(|model| {
        Trial::test(format!("{}::{}", model.name, peak.name), move || {
            (peak.check)(model);
            Ok(())
        })
    });
    let trials: Vec<Trial> = trials.chain(heaps).collect();
    let mut arguments = Arguments::from_args();
    arguments.test_threads = Some(1);
    libtest_mimic::run(&arguments, trials).exit();
}
