//! Universal Transformer. Dehghani et al., 2018, "Universal Transformers", arXiv:1807.03819;
//! halting by Graves, 2016, "Adaptive Computation Time for Recurrent Neural Networks",
//! arXiv:1603.08983.
//!     x^t = H^{t-1} + P + S_t,  A = norm(x^t + Attention(x^t)),  H^t = norm(A + FFN(A)),  t = 1 .. T
//! One block, repeated T times; with `block.share = false`, T blocks with weights of their own. B
//! batch, L length, D width; H, x, A (B, L, D), P (L, D) positions, S (T, D) steps. With halting,
//!     p^t = σ(w·x^t + b),  w (D), b = 1 at first;  a position's last step N is the first t with Σ_{s≤t} p^s > `threshold`, T at the latest
//!     weight^t = p^t for t < N,  R = 1 - Σ_{s<N} p^s for t = N,  0 after it;   y = Σ_t weight^t H^t
//! for `accumulate` = mean, which is Graves's; `basic`, as in the paper's code, is y ← weight^t
//! H^t + (1 - weight^t) y from 0, whose weights do not sum to 1. A position that has halted is
//! still transformed and seen by others; with `freeze` it keeps its state, and others see that
//! state. Time O(T·L²·E) per head, memory O(T·L·E). Post-norm, ReLU; LayerNorm's ε is
//! `block.norm_epsilon` = 1e-6, as in tensor2tensor.
//!
//! # Options
//!
//! `halting` none or act, `steps` T (0: `block.layers`, with halting twice as many), `threshold`
//! (1 - ε), `accumulate`, `freeze`, `step_embedding` sinusoid (the table of positions, indexed by
//! steps from 0), learned (N(0, 1) at first) or none. `block.ffn` = conv is the paper's other
//! transition. Loss `ponder`: the mean of N + R over valid positions.
//!
//! # Padding
//!
//! Padding halts at once and is hidden.
//!
//! # Departures
//!
//! The remainder at step T goes to that step, as in Graves, where the paper's code drops it;
//! tensor2tensor stores learned steps as N(0, 1/D) times √D (`get_layer_timing_signal_learned_1d`
//! in layers/common_attention.py), which gives the same numbers at first, but Adam moves them √D
//! times faster. Biases of the feed-forward network begin N(0, 1e-6²), there as 0; weights begin
//! Xavier-uniform there and here (tensorflow/tensor2tensor@bafdc1b
//! tensor2tensor/models/transformer.py:1785-1787). Its configurations have the norm before each
//! sublayer (transformer_base_v2, lines 1846-1847). Other forms of ACT in that code (`act_type` =
//! global, random) are left out.

use crate::{
    Encoded,
    block::{Block, norm::Norm},
    layers::embedding::sinusoid,
    mixers::transformer,
    ops::activation::sigmoid,
    options::Layers,
    prelude::*,
};

/// Cost of the steps: their mean number, with remainders.
const PONDER: Loss = Loss::new("ponder", 0.01);

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "universal",
    title: "Universal Transformer",
    paper: "Universal Transformers",
    year: 2018,
    arxiv: "1807.03819",
    time: Cost::Quadratic("O(T·L²·E)"),
    memory: Cost::Linear("O(T·L·E)"),
    reference: Reference::Equations,
    family: Family::Xformer,
    settings: r#"{
        "embed": {"every_layer": true},
        "block": {"norm_place": "post", "activation": "relu", "share": true}
    }"#,
    variants: &[Variant::paper(build, include_str!("universal.rs")).with_losses(&[PONDER])],
    ..Model::with_options::<Options>()
};

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Halting {
    /// All positions take T steps.
    None,
    /// Each position decides its number of steps.
    Act,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Accumulate {
    Mean,
    Basic,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StepEmbedding {
    Sinusoid,
    Learned,
    None,
}

#[derive(Clone, Copy, Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    #[option(default = Halting::None)]
    halting: Halting,
    #[option(range = int(0, 1000))]
    steps: usize,
    #[option(default = 0.99, range = positive(1.0))]
    threshold: f64,
    #[option(default = Accumulate::Mean)]
    accumulate: Accumulate,
    freeze: bool,
    #[option(default = StepEmbedding::Sinusoid)]
    step_embedding: StepEmbedding,
}

fn build(context: &ModelContext) -> Result<Box<dyn Encoder>> {
    Ok(Box::new(Universal::new(context, context.options()?)?))
}

struct Universal {
    /// A block for each step.
    blocks: Vec<Block>,
    /// True if all blocks have the same weights.
    shared: bool,
    /// T.
    steps: usize,
    /// P, (slots, D): the embedding has added it before the first step.
    positions: Option<Tensor>,
    /// Whether S is a table of sines.
    sines: bool,
    /// S if it is learned.
    learned: Option<Tensor>,
    halt: Option<Halt>,
    last_norm: Option<Norm>,
}

/// Halting of positions.
struct Halt {
    /// w and b.
    linear: Linear,
    options: Options,
}

impl Universal {
    fn new(context: &ModelContext, options: Options) -> Result<Self> {
        let (vb, own) = (&context.vb, context.block);
        require(
            own.residual != Residual::Reversible,
            "block.residual",
            "reversible",
            "plain, because halting weights the states of one stream",
        )?;
        require(
            context.layers == Layers::Last,
            "head.layers",
            "mix",
            "last, because steps are weighted by halting",
        )?;
        let act = options.halting == Halting::Act;
        let steps = match (options.steps, act) {
            (0, false) => own.layers,
            (0, true) => 2 * own.layers,
            (steps, _) => steps,
        };
        // The depth is the number of steps that run; if blocks of some period have experts, the
        // block that is repeated is one of those.
        let block = BlockOptions {
            layers: steps,
            expert_period: if own.share { 1 } else { own.expert_period },
            ..own.clone()
        };
        let repeated = ModelContext {
            vb: vb.clone(),
            block: &block,
            positions: None,
            ..*context
        };
        let blocks = encoder::residual_blocks(&repeated, transformer::mixer)?;
        let learned = match options.step_embedding {
            StepEmbedding::Learned => {
                let normal = Init::Randn {
                    mean: 0.0,
                    stdev: 1.0,
                };
                let shape = (steps, own.dim);
                Some(vb.get_with_attributes(shape, "steps", normal, Attributes::NO_DECAY)?)
            }
            _ => None,
        };
        let halt = match act {
            true => {
                let (weight, bias) = (xavier_uniform(own.dim, 1), Init::Const(1.0));
                let linear = Linear::new(&vb.pp("halt"), own.dim, 1, weight, Some(bias))?;
                Some(Halt { linear, options })
            }
            false => None,
        };
        Ok(Self {
            blocks,
            shared: own.share,
            steps,
            positions: context.positions.clone(),
            sines: options.step_embedding == StepEmbedding::Sinusoid,
            learned,
            halt,
            last_norm: encoder::last_norm(context)?,
        })
    }

    /// Returns S (T, D).
    fn marks(&self, x: &Tensor) -> Result<Option<Tensor>> {
        Ok(match self.sines {
            true => Some(sinusoid(self.steps, x.dim(2)?, x.dtype(), x.device())?),
            false => self.learned.clone(),
        })
    }

    /// Returns x of step number `step`, from 0: the state plus its marks.
    fn marked(&self, state: &Tensor, marks: Option<&Tensor>, step: usize) -> Result<Tensor> {
        let x = match &self.positions {
            Some(table) if step > 0 => {
                state.broadcast_add(&table.narrow(0, 0, state.dim(1)?)?)?
            }
            _ => state.clone(),
        };
        match marks {
            Some(marks) => Ok(x.broadcast_add(&marks.narrow(0, step, 1)?)?),
            None => Ok(x),
        }
    }
}

impl Encoder for Universal {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Encoded> {
        let marks = self.marks(x)?;
        let mut state = x.clone();
        let mut progress = match &self.halt {
            Some(halt) => Some(halt.begin(x, pass)?),
            None => None,
        };
        for step in 0..self.steps {
            let x = self.marked(&state, marks.as_ref(), step)?;
            let of_step = match self.shared {
                true => pass.of_repetition(step),
                false => *pass,
            };
            let next = self.blocks[step].forward(&x, &of_step)?;
            let (Some(halt), Some(before)) = (&self.halt, &progress) else {
                state = next;
                continue;
            };
            let p = sigmoid(&halt.linear.forward(&x)?)?;
            let last = step + 1 == self.steps;
            let after = halt.step(before, &p, &next, last)?;
            state = match halt.options.freeze {
                true => {
                    (next.broadcast_mul(&before.running)?
                        + state.broadcast_mul(&before.running.affine(-1.0, 1.0)?)?)?
                }
                false => next,
            };
            let done = after.running.max_all()?.to_dtype(DType::F32)?;
            progress = Some(after);
            if done.to_scalar::<f32>()? == 0.0 {
                break;
            }
        }
        if let Some(progress) = progress {
            state = progress.output.clone();
            if pass.wants_losses() {
                pass.add_loss(&PONDER, &progress.mean_ponder(pass)?)?;
            }
        }
        let hidden = match &self.last_norm {
            Some(norm) => norm.forward(&state, pass)?,
            None => state,
        };
        Ok(Encoded {
            hidden,
            mask: pass.mask().cloned(),
        })
    }

    fn losses(&self) -> &'static [Loss] {
        match self.halt {
            Some(_) => &[PONDER],
            None => &[],
        }
    }

    fn flops(&self, length: usize) -> u64 {
        let halt = self.halt.as_ref();
        let halt = halt.map_or(0, |halt| halt.linear.flops(length));
        let steps = self
            .blocks
            .iter()
            .map(|block| block.flops(length).saturating_add(halt));
        steps.fold(0, u64::saturating_add)
    }
}

/// Accumulated results of the steps so far.
struct Progress {
    /// 1 where a position has not halted, (B, L, 1).
    running: Tensor,
    /// Σ p of the steps after which the position had not halted, (B, L, 1).
    sum: Tensor,
    /// y, (B, L, D).
    output: Tensor,
    /// Steps taken, and R if it has halted, (B, L, 1).
    ponder: Tensor,
}

impl Halt {
    fn begin(&self, x: &Tensor, pass: &Pass) -> Result<Progress> {
        let (batch, length, _) = x.dims3()?;
        let zeros = Tensor::zeros((batch, length, 1), x.dtype(), x.device())?;
        Ok(Progress {
            running: match pass.mask() {
                Some(mask) => mask.valid().unsqueeze(2)?,
                None => zeros.ones_like()?,
            },
            sum: zeros.clone(),
            output: x.zeros_like()?,
            ponder: zeros,
        })
    }

    /// Adds a step, the `last` one or not, with probabilities p (B, L, 1) and new states (B, L, D).
    fn step(&self, before: &Progress, p: &Tensor, next: &Tensor, last: bool) -> Result<Progress> {
        let dtype = p.dtype();
        let sum = (&before.sum + p)?;
        let over = match last {
            true => before.running.clone(),
            // Decided in f32, so that all number types choose alike.
            false => (sum.detach().to_dtype(DType::F32)?)
                .gt(self.options.threshold as f32)?
                .to_dtype(dtype)?,
        };
        let halts = (&before.running * over)?;
        let running = (&before.running - &halts)?;
        let rest = (before.sum.affine(-1.0, 1.0)? * &halts)?;
        let weight = ((p * &running)? + &rest)?;
        let kept = match self.options.accumulate {
            Accumulate::Mean => before.output.clone(),
            Accumulate::Basic => before.output.broadcast_mul(&weight.affine(-1.0, 1.0)?)?,
        };
        Ok(Progress {
            sum: (&before.sum + (p * &running)?)?,
            output: (kept + next.broadcast_mul(&weight)?)?,
            ponder: ((&before.ponder + &before.running)? + rest)?,
            running,
        })
    }
}

impl Progress {
    /// Returns the mean over each row's valid positions, (B).
    fn mean_ponder(&self, pass: &Pass) -> Result<Tensor> {
        let sum = self.ponder.sum((1, 2))?;
        Ok(match pass.mask() {
            Some(mask) => {
                let valid = mask.valid().sum(1)?;
                (sum / valid.maximum(&valid.ones_like()?)?)?
            }
            None => (sum / self.ponder.dim(1)? as f64)?,
        })
    }
}

#[cfg(test)]
mod tests;
