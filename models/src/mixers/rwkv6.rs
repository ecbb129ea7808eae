//! RWKV-6, its time mixing. Peng et al., 2024, "Eagle and Finch: RWKV with Matrix-Valued States and
//! Dynamic Recurrence", arXiv:2404.05892.
//!     y_t = (S_(t-1) + diag(u) k_t v_tᵀ)ᵀ r_t,  S_t = diag(a_t) S_(t-1) + k_t v_tᵀ,  a = e^(-e^ω),  out = W_o (LayerNorm(y) ⊙ SiLU(g))
//!     r, k, v, g = W x',  ω = ω₀ + tanh(x' D₁) D₂,  x' = x_t + (μ + tanh(x'' M₁) M₂) ⊙ (x_(t-1) - x_t),  x'' = x_t + μ'' ⊙ (x_(t-1) - x_t)
//! B batch, L length, D width in H heads of E; x, out, ω, g (B, L, D), r, k, v, a, y (B, L, H, E),
//! S (H, E, E), u (H, E); each of r, k, v, g and ω has inputs x' of its own, with μ (D) and M₂ (M,
//! D) of its own, for M = `mix_rank` of the 5 M columns of M₁; D₁ (D, R), D₂ (R, D) for R =
//! `decay_rank`. LayerNorm is that of each head, with gain and shift. All is causal. Time O(L·E·D)
//! in chunks, memory O(L·D). Read in BlinkDL/RWKV-LM@033ce84 RWKV-v5/src/model.py, RWKV_Tmix_x060,
//! sizes and initial values as of the layer alone: for layer l of n, s = l / (n - 1), b = 1 - l / n
//! and channel c, ω₀ = -6 + 5 (c / (D - 1))^(0.7 + 1.3 s), u = s (1 - c / (D - 1)) + 0.1 ((c + 1)
//! mod 3 - 1), μ = 1 - (c / D)^b of k, ω and x'', the same - 0.3 s of v, 1 - (c / D)^(b / 2) of r
//! and g; M₂ and D₂ uniform within 0.01; ω₀ has twice the rate (`RWKV.configure_optimizers`). Its
//! authors have not run this benchmark.
//!
//! # Options
//!
//! `mix_rank` M, `decay_rank` R. `direction`: `forward`; `sum` adds a second pass from the end with
//! the same weights, `two` with weights of its own.
//!
//! # Padding
//!
//! Padding has k = 0 and a = 1, and is zeros to the position behind it.
//!
//! # Departures
//!
//! M₁, M₂, D₁ and D₂ decay as all matrices do, where the authors' do not (lines 818-819). M₁ and D₁
//! begin within 1e-4 rather than with zeros, of which M₂ and D₂ would have no gradient; the other
//! matrices begin as PyTorch's linear layers, as those of the layer alone. The published language
//! model draws some of them again before training (`RWKV.generate_init_weight`, lines 978-1065): W
//! of r and v orthogonal with gain 1, W of k and g orthogonal with gain 0.1, W_o as 0, and the gain
//! of the heads' LayerNorm as ((l + 1) / n)^0.7, here 1. Heads are as many as the block's, where
//! the authors' have 64 columns. The block's feed-forward network with squared ReLU stands for
//! channel mixing, which mixes inputs with those before, too, and has a receptance. It begins
//! Xavier-uniform with biases N(0, 1e-6²); the published one has no biases, and its matrices begin
//! uniform within inputs^-½ (lines 628-630), drawn again the first as orthogonal with gain 1 and
//! the others as 0. A norm of the embedding before the first block (line 689) is left out. The
//! block's norms have ε = `block.norm_epsilon` = 1e-6, in the published code 1e-5
//! (torch.nn.LayerNorm, lines 685-686); that of the heads' LayerNorm is 6.4e-4 in both (line 343).

use crate::{
    encoder::{Ways, blocks_both_ways},
    layers::{HeadNorm, by_head, token_shift::previous},
    ops::{
        GatedLinearAttentionOptions,
        activation::silu,
        columns,
        gated_linear_attention::{self, gated_linear_attention},
    },
    params::{fan_in_uniform, uniform_within},
    prelude::*,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "rwkv6",
    title: "RWKV-6",
    paper: "Eagle and Finch: RWKV with Matrix-Valued States and Dynamic Recurrence",
    year: 2024,
    arxiv: "2404.05892",
    time: Cost::Linear("O(L·E²)"),
    memory: Cost::Linear("O(L·E)"),
    reference: Reference::Equations,
    family: Family::Gated,
    settings: r#"{"embed": {"positions": "none"}, "block": {"activation": "relu_squared"}}"#,
    variants: &[Variant::paper(build, include_str!("rwkv6.rs"))],
    ..Model::with_options::<Options>()
};

/// Added to the variance of a head: 1e-5 times the square of 8, by which the authors divide y.
const EPSILON: f64 = 64e-5;
/// Inputs with a μ of their own, in order of the columns of M₁.
const INPUTS: [&str; 5] = ["decay", "key", "value", "receptance", "gate"];

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    #[option(default = 32, range = int(1, WIDEST))]
    mix_rank: usize,
    #[option(default = 64, range = int(1, WIDEST))]
    decay_rank: usize,
    direction: Ways,
}

fn build(context: &ModelContext) -> Result<Box<dyn Encoder>> {
    let options: Options = context.options()?;
    blocks_both_ways(context, options.direction, |layer| {
        Ok(Box::new(Rwkv6::new(layer, &options)?))
    })
}

struct Rwkv6 {
    /// μ'' (D).
    share: Tensor,
    /// M₁ for all inputs.
    mix: Linear,
    /// M₂ and μ of each input.
    mixes: Vec<Linear>,
    /// D₁, and D₂ with ω₀.
    decay: [Linear; 2],
    key: Linear,
    value: Linear,
    receptance: Linear,
    gate: Linear,
    /// u (H, E).
    bonus: Tensor,
    norm: HeadNorm,
    output: Linear,
    heads: usize,
    rank: usize,
}

impl Rwkv6 {
    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let (vb, block, dim) = (&layer.vb, layer.block, layer.block.dim);
        require(
            dim.is_multiple_of(block.heads),
            "block.heads",
            block.heads,
            format!("a divisor of block.dim = {dim}"),
        )?;
        let rise = layer.index as f64 / (block.layers as f64 - 1.0).max(1.0);
        let fall = 1.0 - layer.index as f64 / block.layers as f64;
        let (low, high) = (uniform_within(1e-4), uniform_within(0.01));
        // A layer whose bias is a function of the channel at first.
        let on_top = |name: &str, inputs: usize, rate_factor: f64, value: &dyn Fn(f64) -> f64| {
            let vb = vb.pp(name);
            let values = (0..dim).map(|channel| value(channel as f64)).collect();
            let attributes = Attributes {
                rate_factor,
                ..Attributes::NO_DECAY
            };
            vb.get_with_values(dim, "bias", attributes, |_| values)?;
            Linear::new(&vb, inputs, dim, high, Some(Init::Const(0.0)))
        };
        let mixed = |name: &&str| {
            let (power, less) = match *name {
                "receptance" | "gate" => (0.5 * fall, 0.0),
                "value" => (fall, 0.3 * rise),
                _ => (fall, 0.0),
            };
            let share = |channel: f64| 1.0 - (channel / dim as f64).powf(power) - less;
            on_top(&format!("mix.{name}"), options.mix_rank, 1.0, &share)
        };
        let last = (dim - 1).max(1) as f64;
        let decay = |channel: f64| -6.0 + 5.0 * (channel / last).powf(0.7 + 1.3 * rise);
        let bonus = |channel: usize| {
            let zigzag = 0.1 * ((channel + 1) as f64 % 3.0 - 1.0);
            rise * (1.0 - channel as f64 / last) + zigzag
        };
        let share = |channel: usize| 1.0 - (channel as f64 / dim as f64).powf(fall);
        let vector = |shape: &[usize], name: &str, values: Vec<f64>| {
            vb.get_with_values(shape, name, Attributes::NO_DECAY, |_| values)
        };
        let linear = |name| Linear::new(&vb.pp(name), dim, dim, fan_in_uniform(dim), None);
        let (heads, ranks) = (block.heads, INPUTS.len() * options.mix_rank);
        Ok(Self {
            share: vector(&[dim], "share", (0..dim).map(share).collect())?,
            mix: Linear::new(&vb.pp("mix"), dim, ranks, low, None)?,
            mixes: INPUTS.iter().map(mixed).collect::<Result<_>>()?,
            decay: [
                Linear::new(&vb.pp("decay.inner"), dim, options.decay_rank, low, None)?,
                on_top("decay.outer", options.decay_rank, 2.0, &decay)?,
            ],
            key: linear("key")?,
            value: linear("value")?,
            receptance: linear("receptance")?,
            gate: linear("gate")?,
            bonus: vector(
                &[heads, dim / heads],
                "bonus",
                (0..dim).map(bonus).collect(),
            )?,
            norm: HeadNorm::new(&vb.pp("norm"), heads, dim / heads, EPSILON, true)?,
            output: linear("output")?,
            heads,
            rank: options.mix_rank,
        })
    }

    /// Returns x' (B, L, D) of each input.
    fn inputs(&self, x: &Tensor, mask: Option<&Mask>) -> Result<[Tensor; INPUTS.len()]> {
        let change = (previous(x, mask)? - x)?;
        let mixed = (x + change.broadcast_mul(&self.share)?)?;
        let low = self.mix.forward(&mixed)?.tanh()?;
        let input = |index: usize| -> Result<Tensor> {
            let share = self.mixes[index].forward(&columns(&low, index * self.rank, self.rank)?)?;
            Ok((x + (share * &change)?)?)
        };
        Ok([input(0)?, input(1)?, input(2)?, input(3)?, input(4)?])
    }
}

impl Mixer for Rwkv6 {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let [decay, key, value, receptance, gate] = &self.inputs(x, pass.mask())?;
        let [inner, outer] = &self.decay;
        let log_decay = outer
            .forward(&inner.forward(decay)?.tanh()?)?
            .exp()?
            .neg()?;
        let log_decay = zero_padding(&log_decay, pass.mask())?;
        let k = zero_padding(&self.key.forward(key)?, pass.mask())?;
        let (v, r) = (
            self.value.forward(value)?,
            self.receptance.forward(receptance)?,
        );
        let [r, k, v, log_decay] = [r, k, v, log_decay].map(|x| by_head(&x, self.heads));
        let log_decay = log_decay?;
        let options = GatedLinearAttentionOptions {
            log_decay: Some(&log_decay),
            exclusive: true,
            bonus: Some(&self.bonus),
            ..Default::default()
        };
        let y = gated_linear_attention(&r?, &k?, &v?, &options)?;
        let gate = silu(&self.gate.forward(gate)?)?;
        self.output.forward(&(self.norm.forward(&y)? * gate)?)
    }

    fn is_causal(&self) -> bool {
        true
    }

    fn flops(&self, length: usize) -> u64 {
        let [inner, outer] = &self.decay;
        let linears = [&self.mix, inner, outer, &self.key, &self.value];
        let linears = linears.into_iter().chain(&self.mixes);
        let linears = linears.chain([&self.receptance, &self.gate, &self.output]);
        let linears: u64 = linears.map(|linear| linear.flops(length)).sum();
        let head = self.bonus.elem_count() / self.heads;
        linears + gated_linear_attention::flops(length, self.heads, head, head)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{close, normal, parameters, pass};

    /// A position's own value is read through the bonus alone: without it, the first output is 0
    /// before the norm.
    #[test]
    fn the_bonus_is_all_that_a_first_position_reads() {
        let parameters = parameters();
        let block = BlockOptions {
            dim: 8,
            heads: 2,
            ..BlockOptions::default()
        };
        let layer = LayerContext::new(parameters.builder(), &block, 9);
        let mut mixer = Rwkv6::new(&layer, &Options::default()).unwrap();
        let x = normal("x", &[1, 1, 8]);
        let some = mixer.forward(&x, &pass()).unwrap();
        assert!(
            some.abs()
                .unwrap()
                .max_all()
                .unwrap()
                .to_scalar::<f64>()
                .unwrap()
                > 1e-6
        );
        mixer.bonus = mixer.bonus.zeros_like().unwrap();
        let none = mixer.forward(&x, &pass()).unwrap();
        close(&none, &none.zeros_like().unwrap(), 1e-12, "no bonus");
    }
}
