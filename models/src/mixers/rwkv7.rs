//! RWKV-7, its time mixing. Peng et al., 2025, "RWKV-7 'Goose' with Expressive Dynamic State
//! Evolution", arXiv:2503.14456.
//!     S_t = diag(w_t) S_(t-1) - (α_t ⊙ κ_t) (S_(t-1)ᵀ κ_t)ᵀ + k_t v_tᵀ,  y_t = S_tᵀ r_t,  out = W_o ((LayerNorm(y) + (r ⊙ ρ)·k v) ⊙ g)
//!     r, k', v' = W_r x', W_k x', W_v x',  w = e^(-e^-½ σ(ω₀ + tanh(x' D₁) D₂)),  α = σ(α₀ + x' A₁ A₂),  g = σ(x' G₁) G₂
//!     κ = unit(k' ⊙ ξ),  k = k' ⊙ (1 + (α - 1) ⊙ ζ),  v = v' + (v₁ - v') ⊙ σ(ν₀ + x' V₁ V₂),  x' = x_t + μ ⊙ (x_(t-1) - x_t)
//! B batch, L length, D width in H heads of E; x, out, g (B, L, D), r, k, v, w, α, κ, y (B, L, H,
//! E), S (H, E, E), ρ (H, E), ξ, ζ, ω₀, α₀, ν₀ (D); each of r, w, k, v, α and g has an x' of its
//! own, with μ (D); v₁ is the first block's v', and the first block has v = v'. D₁ (D, R), D₂ (R,
//! D) and so on with ranks R of their own. LayerNorm is that of each head, with gain and shift. All
//! is causal. Time O(L·E·D), one position after the other; memory O(L·D). Read in
//! BlinkDL/RWKV-LM@d4a6c3b RWKV-v7/train_temp/src/model.py, RWKV_Tmix_x070, sizes and initial
//! values as of the layer alone: for layer l of n, s = l / (n - 1), b = 1 - l / n, channel c, q = c
//! / (D - 1), and z = u |u| for the place u of a channel in its head, from -1 to 1: ω₀ = -5.5 + 6
//! q^(1 + s^0.3) + 2.5 z, α₀ = -0.39 + 0.3 z + 0.4 q, ν₀ = 0.93 - 0.4 q, ξ = 0.76 - 0.1 q, ζ =
//! 1.02, ρ = -0.04, μ = 1 - (c / D)^(p b) with p = 0.2 of r and g, 0.9 of w and α, 0.7 of k and v;
//! W_r and W_v uniform within ½ D^-½, W_k within a tenth of that; second matrices of ranks
//! orthogonal, times 0.1; ω₀ has twice the rate. Its authors have not run this benchmark.
//!
//! # Options
//!
//! `decay_rank`, `rate_rank`, `value_rank`, `gate_rank`: R of D, A, V and G; 0 for the authors' 1.8
//! D^½, 1.8 D^½, 1.3 D^½ and 0.6 D^0.8, as the nearest multiple of 32, and no less.
//!
//! # Padding
//!
//! Padding has k = κ = 0 and w = 1, and is zeros to the position behind it.
//!
//! # Departures
//!
//! Matrices of ranks decay as all matrices do, where the authors' do not (lines 310-315). The first
//! ones begin within 1e-4 rather than with zeros, of which the second ones would have no gradient;
//! W_o begins as PyTorch's linear layers rather than with zeros. The published language model draws
//! some of them again before training (`RWKV.generate_init_weight`, lines 380-451): W_r and W_v
//! orthogonal with gain 1, W_k orthogonal with gain 0.1, W_o as 0, and the gain of the heads'
//! LayerNorm as ((l + 1) / n)^0.7, here 1. Heads are as many as the block's, where the authors'
//! have 64 columns. The block's feed-forward network with squared ReLU stands for channel mixing,
//! which mixes inputs with those before, too. It begins Xavier-uniform with biases N(0, 1e-6²); the
//! published one has no biases, and its first matrix begins uniform within ½ D^-½, drawn again as
//! orthogonal with gain 1, the second as 0 (lines 220-224). A norm of the embedding before the
//! first block (line 251) is left out. A second direction is left out: it would need first values
//! of its own. The block's norms have ε = `block.norm_epsilon` = 1e-6, in the published code 1e-5
//! (torch.nn.LayerNorm); that of the heads' LayerNorm is 6.4e-4 in both (line 157).

use crate::{
    layers::{HeadNorm, by_head, token_shift::previous},
    ops::{DplrScan, activation::sigmoid, dplr_scan, l2_normalize},
    params::{fan_in_uniform, orthonormal, uniform_within},
    prelude::*,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "rwkv7",
    title: "RWKV-7",
    paper: "RWKV-7 \"Goose\" with Expressive Dynamic State Evolution",
    year: 2025,
    arxiv: "2503.14456",
    time: Cost::Linear("O(L·E²)"),
    memory: Cost::Linear("O(L·E)"),
    reference: Reference::Equations,
    family: Family::Gated,
    settings: r#"{"embed": {"positions": "none"}, "block": {"activation": "relu_squared"}}"#,
    variants: &[Variant::mixer::<Rwkv7>(include_str!("rwkv7.rs"))],
    ..Model::mixer::<Rwkv7>()
};

/// Added to the variance of a head.
const EPSILON: f64 = 64e-5;
/// Inputs with a μ of their own.
const INPUTS: [&str; 6] = ["receptance", "decay", "key", "value", "rate", "gate"];

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    #[option(range = int(0, WIDEST))]
    decay_rank: usize,
    #[option(range = int(0, WIDEST))]
    rate_rank: usize,
    #[option(range = int(0, WIDEST))]
    value_rank: usize,
    #[option(range = int(0, WIDEST))]
    gate_rank: usize,
}

struct Rwkv7 {
    /// μ of each input.
    shares: [Tensor; 6],
    receptance: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    /// D₁, and D₂ with ω₀.
    decay: [Linear; 2],
    /// A₁, and A₂ with α₀.
    rate: [Linear; 2],
    /// V₁, and V₂ with ν₀; none in the first block.
    mix: Option<[Linear; 2]>,
    /// G₁ and G₂.
    gate: [Linear; 2],
    /// ξ.
    read: Tensor,
    /// ζ.
    write: Tensor,
    /// ρ (H, E).
    bonus: Tensor,
    norm: HeadNorm,
    heads: usize,
    /// E.
    width: usize,
}

impl MixerModel for Rwkv7 {
    type Options = Options;

    fn check(_: &Options, context: &ModelContext) -> Result<()> {
        let block = context.block;
        require(
            block.dim.is_multiple_of(block.heads),
            "block.heads",
            block.heads,
            format!("a divisor of block.dim = {}", block.dim),
        )?;
        require(
            block.residual != Residual::Reversible,
            "block.residual",
            "reversible",
            "another one, because the first block's values go from block to block and are not recomputed",
        )
    }

    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let (vb, block, dim) = (&layer.vb, layer.block, layer.block.dim);
        let (heads, width) = (block.heads, dim / block.heads);
        let rise = layer.index as f64 / (block.layers as f64 - 1.0).max(1.0);
        let fall = 1.0 - layer.index as f64 / block.layers as f64;
        let place = |channel: usize| channel as f64 / (dim - 1).max(1) as f64;
        let zigzag = |channel: usize| {
            let middle = 0.5 * (width - 1) as f64;
            let from = (channel % width) as f64 - middle;
            let share = from / middle.max(0.5);
            share * share.abs()
        };
        let vector = |name: &str, value: &dyn Fn(usize) -> f64| {
            let values = (0..dim).map(value).collect();
            vb.get_with_values(dim, name, Attributes::NO_DECAY, |_| values)
        };
        let low_rank =
            |name: &str, rank: usize, bias: Option<&dyn Fn(usize) -> f64>| -> Result<[Linear; 2]> {
                let inner = Linear::new(
                    &vb.pp(name).pp("inner"),
                    dim,
                    rank,
                    uniform_within(1e-4),
                    None,
                )?;
                let outer = vb.pp(name).pp("outer");
                outer.get_with_values((dim, rank), "weight", Attributes::MATRIX, |stream| {
                    // R orthonormal rows of D numbers, turned; or D rows of R, so much longer.
                    let columns = rank <= dim;
                    let longer = (rank as f64 / dim as f64).max(1.0).sqrt();
                    let (rows, row) = (rank.min(dim), rank.max(dim));
                    let drawn = orthonormal(stream, rows, row);
                    let index = |at: usize| match columns {
                        true => at % rank * dim + at / rank,
                        false => at,
                    };
                    (0..dim * rank)
                        .map(|at| 0.1 * longer * drawn[index(at)])
                        .collect()
                })?;
                if let Some(value) = bias {
                    let values = (0..dim).map(value).collect();
                    let twice = Attributes {
                        rate_factor: 2.0,
                        ..Attributes::NO_DECAY
                    };
                    let attributes = match name {
                        "decay" => twice,
                        _ => Attributes::NO_DECAY,
                    };
                    outer.get_with_values(dim, "bias", attributes, |_| values)?;
                }
                let any = Init::Const(0.0);
                Ok([
                    inner,
                    Linear::new(&outer, rank, dim, any, bias.map(|_| any))?,
                ])
            };
        let rank = |asked: usize, factor: f64, power: f64| match asked {
            0 => {
                let blocks = (factor * (dim as f64).powf(power) / 32.0).round_ties_even();
                32 * (blocks as usize).max(1)
            }
            rank => rank,
        };
        let decay = |channel: usize| {
            let curve = place(channel).powf(1.0 + rise.powf(0.3));
            -5.5 + 6.0 * curve + 2.5 * zigzag(channel)
        };
        let rate = |c: usize| -0.19 + 0.3 * zigzag(c) + 0.4 * (place(c) - 0.5);
        let mix = |channel: usize| 0.73 - 0.4 * (place(channel) - 0.5);
        let share = |name: &str| {
            let power = match name {
                "receptance" | "gate" => 0.2,
                "decay" | "rate" => 0.9,
                _ => 0.7,
            };
            let value = |c: usize| 1.0 - (c as f64 / dim as f64).powf(power * fall);
            vector(&format!("share.{name}"), &value)
        };
        let linear = |name: &str, init| Linear::new(&vb.pp(name), dim, dim, init, None);
        let bound = (dim as f64).powf(-0.5);
        let [receptance, decays, key, value, rates, gate] = INPUTS.map(share);
        let value_rank = rank(options.value_rank, 1.3, 0.5);
        let later = layer.index > 0;
        Ok(Self {
            shares: [receptance?, decays?, key?, value?, rates?, gate?],
            receptance: linear("receptance", uniform_within(0.5 * bound))?,
            key: linear("key", uniform_within(0.05 * bound))?,
            value: linear("value", uniform_within(0.5 * bound))?,
            output: linear("output", fan_in_uniform(dim))?,
            decay: low_rank("decay", rank(options.decay_rank, 1.8, 0.5), Some(&decay))?,
            rate: low_rank("rate", rank(options.rate_rank, 1.8, 0.5), Some(&rate))?,
            mix: later
                .then(|| low_rank("mix", value_rank, Some(&mix)))
                .transpose()?,
            gate: low_rank("gate", rank(options.gate_rank, 0.6, 0.8), None)?,
            read: vector("read", &|channel| 0.71 - 0.1 * (place(channel) - 0.5))?,
            write: vector("write", &|_| 1.02)?,
            bonus: vb.get_with_attributes(
                (heads, width),
                "bonus",
                Init::Const(-0.04),
                Attributes::NO_DECAY,
            )?,
            norm: HeadNorm::new(&vb.pp("norm"), heads, width, EPSILON, true)?,
            heads,
            width,
        })
    }
}

impl Rwkv7 {
    /// Returns v of the projected values v' and their input, and leaves those of the first block.
    fn values(&self, projected: Tensor, input: &Tensor, pass: &Pass) -> Result<Tensor> {
        let Some([inner, outer]) = &self.mix else {
            pass.carry(&projected);
            return Ok(projected);
        };
        // A block that runs alone has no first block.
        let Some(first) = pass.carried() else {
            return Ok(projected);
        };
        let share = sigmoid(&outer.forward(&inner.forward(input)?)?)?;
        Ok((&projected + ((first - &projected)? * share)?)?)
    }
}

impl Mixer for Rwkv7 {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let change = (previous(x, pass.mask())? - x)?;
        let input = |index: usize| -> Result<Tensor> {
            Ok((x + change.broadcast_mul(&self.shares[index])?)?)
        };
        let r = self.receptance.forward(&input(0)?)?;
        let [inner, outer] = &self.decay;
        let decay = outer.forward(&inner.forward(&input(1)?)?.tanh()?)?;
        let log_decay = sigmoid(&decay)?.affine(-(-0.5f64).exp(), 0.0)?;
        let decay = zero_padding(&log_decay, pass.mask())?.exp()?;
        let k = zero_padding(&self.key.forward(&input(2)?)?, pass.mask())?;
        let of_values = input(3)?;
        let v = self.values(self.value.forward(&of_values)?, &of_values, pass)?;
        let [inner, outer] = &self.rate;
        let rate = sigmoid(&outer.forward(&inner.forward(&input(4)?)?)?)?;
        let [inner, outer] = &self.gate;
        let gate = outer.forward(&sigmoid(&inner.forward(&input(5)?)?)?)?;
        let read = l2_normalize(&k.broadcast_mul(&self.read)?, self.width)?;
        let less = rate.affine(1.0, -1.0)?.broadcast_mul(&self.write)?;
        let k = (&k + (&k * less)?)?;
        let write = (&read * &rate)?;
        let heads = |x: &Tensor| by_head(x, self.heads);
        let (queries, keys, values) = (heads(&r)?, heads(&k)?, heads(&v)?);
        let y = dplr_scan(&DplrScan {
            queries: &queries,
            decays: &heads(&decay)?,
            keys: &keys,
            values: &values,
            reads: &heads(&read.neg()?)?,
            writes: &heads(&write)?,
        })?;
        let own = (queries * keys)?
            .broadcast_mul(&self.bonus)?
            .sum_keepdim(D::Minus1)?;
        let own = values.broadcast_mul(&own)?.flatten_from(2)?;
        let y = (self.norm.forward(&y)? + own)?;
        self.output.forward(&(y * gate)?)
    }

    fn is_causal(&self) -> bool {
        true
    }

    fn flops(&self, length: usize) -> u64 {
        let low = self.decay.iter().chain(&self.rate).chain(&self.gate);
        let low = low.chain(self.mix.iter().flatten());
        let linears = low.chain([&self.receptance, &self.key, &self.value, &self.output]);
        let linears: u64 = linears.map(|linear| linear.flops(length)).sum();
        linears + dplr_scan::flops(length, self.heads, self.width, self.width)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_layer, parameters, pass};

    #[test]
    fn gradients_agree_with_differences() {
        let parameters = parameters();
        let block = BlockOptions {
            dim: 12,
            heads: 2,
            ..BlockOptions::default()
        };
        let layer = LayerContext::new(parameters.builder(), &block, 5);
        let options = Options {
            decay_rank: 3,
            rate_rank: 5,
            value_rank: 1,
            gate_rank: 2,
        };
        let mixer = Rwkv7::new(&layer, &options).unwrap();
        check_layer("rwkv7", &parameters, &[2, 4, 12], |x| {
            mixer.forward(x, &pass())
        });
    }
}
