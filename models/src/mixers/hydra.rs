//! Hydra. Hwang, Lahoti, Puduppully, Dao, Gu, 2024, "Hydra: Bidirectional State Space Models
//! Through Generalized Matrix Mixers", arXiv:2407.09941.
//!     [z | u | b | c | b' | c' | s | s'] = x W_in,  [u | b | c | b' | c'] ← SiLU(conv([u | b | c | b' | c'])),  δ = softplus(s + β),  a = e^(-δ e^α)
//!     S_t = a_t S_(t-1) + δ_t b_t u_tᵀ,  f_t = S_tᵀ c_t,  y_t = f_(t-1) + f'_(t+1) + (u_t W_d + skip) ⊙ u_t,  out = (RMSNorm(y) ⊙ SiLU(z)) W_out
//! A matrix between positions that is quasi-separable: states f from the first position and f' from
//! the last, which are made of b', c' and δ' = softplus(s' + β) by the same decays, each moved by
//! one position, and a diagonal. B batch, L length, D width, D' = `expand` D in H heads of P =
//! `head_width` channels, N = `state`; x, out (B, L, D), z, u, y (B, L, D'), b, c (B, L, N), which
//! all heads share, s, δ, a (B, L, H), S (H, N, P), β, α, skip (H), W_d (D', H); conv a convolution
//! of each channel over W = `taps` positions to both sides, with a bias. Time O(L·N·P) per head, in
//! chunks; memory O(L·D'). No feed-forward (`block.ffn` = none). Read in goombalab/hydra@55bef74
//! hydra/modules/hydra.py: N = 64, P = 64, W = 7 and D' = 2D, the norm before the gate, α = 0, skip
//! = 1 and β softplus⁻¹ of numbers between 0.001 and 0.1, even in their logarithm, none of which
//! decays; all else begins as PyTorch's layers. Its authors have not run this benchmark.
//!
//! # Options
//!
//! `state` N (64), `expand` (2), `taps` W (7), an odd number, `head_width` P (0: 64, or the largest
//! divisor of D' that divides 64).
//!
//! # Padding
//!
//! Padding has u = b = c = 0 before conv and δ = 0, so states pass through unchanged.
//!
//! # Departures
//!
//! The published block has LayerNorm with ε = 1e-5 (hydra/bert/src/bert_layers.py:146), behind the
//! sum (`is_prenorm` = False); the family's is RMSNorm, before the layer, with the same ε; the
//! inner norm has that of the block's, `block.norm_epsilon`. The published language model begins
//! all linear maps N(0, 0.02²) (bert_layers.py:414, 547, transformers' BertPreTrainedModel); here
//! they begin as in the layer alone, uniform within inputs^-½ (±0.125 at D = 64, W_d and W_out
//! ±0.088). States do not begin with values of their own (`learnable_init_states`, off there).

use candle_core::Tensor;
use candle_nn::Init;
use lra_derive::Options;
use serde::{Deserialize, Serialize};

use crate::{
    LayerContext, Mixer, MixerModel, ModelContext, Pass, Result,
    error::require,
    layers::{
        Linear, ShortConv, by_head, head_width,
        token_shift::{following, previous},
    },
    mask::zero_padding,
    model::{Cost, Model, Reference, Variant},
    ops::{
        GatedLinearAttentionOptions,
        activation::{silu, softplus},
        columns,
        gated_linear_attention::{self, gated_linear_attention},
        rms_norm,
    },
    options::WIDEST,
    params::{Attributes, fan_in_uniform, inverse_softplus_of_steps},
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "hydra",
    title: "Hydra",
    paper: "Hydra: Bidirectional State Space Models Through Generalized Matrix Mixers",
    year: 2024,
    arxiv: "2407.09941",
    time: Cost::Linear("O(L·N·P)"),
    memory: Cost::Linear("O(L·D)"),
    reference: Reference::Equations,
    family: crate::Family::Gated,
    settings: r#"{
        "embed": {"positions": "none"},
        "block": {"ffn": "none", "norm": "rms", "norm_epsilon": 1e-5}
    }"#,
    variants: &[Variant::mixer::<Hydra>(include_str!("hydra.rs"))],
    ..Model::mixer::<Hydra>()
};

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    #[option(default = 64, range = int(1, 1024))]
    state: usize,
    #[option(default = 2, range = int(1, 64))]
    expand: usize,
    #[option(default = 7, range = int(1, 1023))]
    taps: usize,
    #[option(range = int(0, WIDEST))]
    head_width: usize,
}

struct Hydra {
    /// W_in.
    inner: Linear,
    conv: ShortConv,
    /// β.
    step: Tensor,
    /// α.
    a_log: Tensor,
    /// W_d.
    diagonal: Linear,
    skip: Tensor,
    /// Of the norm, (D').
    gain: Tensor,
    epsilon: f64,
    /// W_out.
    outer: Linear,
    /// D'.
    width: usize,
    heads: usize,
    /// N.
    state: usize,
}

impl MixerModel for Hydra {
    type Options = Options;

    fn check(options: &Options, _: &ModelContext) -> Result<()> {
        require(
            !options.taps.is_multiple_of(2),
            "model.taps",
            options.taps,
            "an odd number: as many positions behind one as before it",
        )
    }

    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let (vb, dim) = (&layer.vb, layer.block.dim);
        let (width, state) = (options.expand * dim, options.state);
        let heads = width / head_width(options.head_width, width)?;
        let step = vb.get_with_values(heads, "step", Attributes::NO_DECAY, |stream| {
            inverse_softplus_of_steps(stream, heads)
        });
        let own = |name, value| vb.get_with_hints(heads, name, Init::Const(value));
        let linear = |name: &str, inputs: usize, outputs: usize| {
            Linear::new(&vb.pp(name), inputs, outputs, fan_in_uniform(inputs), None)
        };
        let mixed = width + 4 * state;
        let conv = ShortConv::new(&vb.pp("conv"), mixed, options.taps, true)?;
        Ok(Self {
            inner: linear("inner", dim, width + mixed + 2 * heads)?,
            conv: conv.centred(),
            step: step?,
            a_log: own("a_log", 0.0)?,
            diagonal: linear("diagonal", width, heads)?,
            skip: own("skip", 1.0)?,
            gain: vb.get_with_hints(width, "gain", Init::Const(1.0))?,
            epsilon: layer.block.norm_epsilon,
            outer: linear("outer", width, dim)?,
            width,
            heads,
            state,
        })
    }
}

impl Mixer for Hydra {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let (width, state, heads) = (self.width, self.state, self.heads);
        let all = self.inner.forward(x)?;
        let z = columns(&all, 0, width)?;
        let mixed = columns(&all, width, width + 4 * state)?;
        let mixed = self.conv.forward(&mixed, pass)?;
        let u = columns(&mixed, 0, width)?;
        let by_heads = by_head(&u, heads)?;
        let decay = self.a_log.exp()?.neg()?;
        // f or f', (B, L, D').
        let read = |reverse: bool| -> Result<Tensor> {
            let from = usize::from(reverse);
            // (B, L, 1, N).
            let shared = |place| by_head(&columns(&mixed, width + place * state, state)?, 1);
            let (b, c) = (shared(2 * from)?, shared(2 * from + 1)?);
            let step = columns(&all, 2 * width + 4 * state + from * heads, heads)?;
            let step = softplus(&step.broadcast_add(&self.step)?)?;
            let step = zero_padding(&step, pass.mask())?; // (B, L, H)
            let k = step.unsqueeze(3)?.broadcast_mul(&b)?; // (B, L, H, N)
            let q = c.broadcast_as(k.shape())?.contiguous()?;
            let options = GatedLinearAttentionOptions {
                log_decay: Some(&step.broadcast_mul(&decay)?),
                reverse,
                ..Default::default()
            };
            Ok(gated_linear_attention(&q, &k, &by_heads, &options)?.flatten_from(2)?)
        };
        let before = previous(&read(false)?, pass.mask())?;
        let behind = following(&read(true)?, pass.mask())?;
        let diagonal = self.diagonal.forward(&u)?.broadcast_add(&self.skip)?;
        let own = by_heads.broadcast_mul(&diagonal.unsqueeze(3)?)?;
        let y = ((before + behind)? + own.flatten_from(2)?)?;
        let y = (rms_norm(&y, &self.gain, self.epsilon)? * silu(&z)?)?;
        self.outer.forward(&y)
    }

    fn flops(&self, length: usize) -> u64 {
        let (heads, head) = (self.heads, self.width / self.heads);
        let attention = gated_linear_attention::flops(length, heads, self.state, head);
        let linear = [&self.inner, &self.diagonal, &self.outer];
        2 * attention
            + linear
                .map(|linear| linear.flops(length))
                .iter()
                .sum::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        options::BlockOptions,
        testing::{check_layer, close, normal, parameters, pass},
    };

    fn mixer(parameters: &crate::Parameters) -> Hydra {
        let block = BlockOptions {
            dim: 2,
            ..BlockOptions::default()
        };
        let layer = LayerContext::new(parameters.builder(), &block, 5);
        let options = Options {
            state: 3,
            taps: 3,
            head_width: 2,
            ..Options::default()
        };
        Hydra::new(&layer, &options).unwrap()
    }

    #[test]
    fn a_change_of_one_position_reaches_all() {
        let mixer = mixer(&parameters());
        let x = normal("x", &[1, 5, 2]);
        let y = mixer.forward(&x, &pass()).unwrap();
        for position in 0..5 {
            let one = normal("change", &[1, 1, 2]);
            let change = one.pad_with_zeros(1, position, 4 - position).unwrap();
            let changed = mixer.forward(&(&x + change).unwrap(), &pass()).unwrap();
            let apart = (changed - &y).unwrap().abs().unwrap().min(2).unwrap();
            let apart = apart.flatten_all().unwrap().to_vec1::<f64>().unwrap();
            assert!(
                apart.iter().all(|apart| *apart > 1e-9),
                "{position}: {apart:?}"
            );
        }
    }

    /// Returns rows of x in parts of these sizes, in another order.
    fn reordered(x: &Tensor, sizes: &[usize], order: &[usize]) -> Tensor {
        let start = |part: usize| sizes[..part].iter().sum();
        let part = |&part: &usize| x.narrow(0, start(part), sizes[part]).unwrap();
        let parts: Vec<Tensor> = order.iter().map(part).collect();
        Tensor::cat(&parts, 0).unwrap()
    }

    /// A sequence turned round has the output turned round, once the directions' weights are
    /// exchanged.
    #[test]
    fn directions_are_mirror_images() {
        let (here, there) = (parameters(), parameters());
        let (mixer, mirrored) = (mixer(&here), mixer(&there));
        let channels = |x: &Tensor| reordered(x, &[4, 6, 6], &[0, 2, 1]);
        for ((path, ours), (_, theirs)) in here.all().iter().zip(there.all()) {
            let ours = ours.as_tensor();
            let value = match path.as_str() {
                "inner.weight" => reordered(ours, &[8, 6, 6, 2, 2], &[0, 2, 1, 4, 3]),
                "conv.bias" => channels(ours),
                "conv.weight" => {
                    let taps = channels(ours).t().unwrap();
                    reordered(&taps, &[1; 3], &[2, 1, 0]).t().unwrap()
                }
                _ => ours.copy().unwrap(),
            };
            theirs.set(&value).unwrap();
        }
        let x = normal("x", &[2, 5, 2]);
        let turned = |x: &Tensor| crate::ops::flip(x).unwrap();
        let expected = turned(&mirrored.forward(&turned(&x), &pass()).unwrap());
        let actual = mixer.forward(&x, &pass()).unwrap();
        close(&actual, &expected, 1e-12, "mirror");
    }

    #[test]
    fn gradients_agree_with_differences() {
        let parameters = parameters();
        let mixer = mixer(&parameters);
        check_layer("hydra", &parameters, &[2, 4, 2], |x| {
            mixer.forward(x, &pass())
        });
    }
}
