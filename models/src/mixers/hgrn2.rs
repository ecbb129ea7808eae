//! HGRN2. Qin et al., 2024, "HGRN2: Gated Linear RNNs with State Expansion", arXiv:2404.07904.
//!     [v | q | f] = x W + b,  a = γ + (1 - γ) σ(f),  S_t = diag(a_t) S_(t-1) + (1 - a_t) SiLU(v_t)ᵀ,  y_t = S_tᵀ σ(q_t),  out = W_o LayerNorm(y) + b_o
//! B batch, L length, D width in H heads of e = `head_width` channels; v, q, f, a, y (B, L, H, e),
//! S (H, e, e), γ (D) the layer's lower bound of decays. γ of layer l, counted from 0, is the sum
//! of softmax(Γ) over layers 1 to l, for Γ (layers, D) that all layers share, zeros at first: 0 in
//! the first layer, near 1 in the last. `direction = both` (the default, and the published form
//! here) adds the outputs of a second walk from the end, with the same weights: a position counts
//! itself twice. `forward` is causal. Time O(L·e·D), in chunks; memory O(L·D). Read in
//! Doraemonzzz/hgru2-pytorch@caf92f0 hgru2_pytorch/modules/bihgru2_1d.py: activations, biases, the
//! norm over all heads at once, no scale of queries; its `expand_ratio` is e. The lower bounds are
//! those of flash-linear-attention@bc3b101 fla/models/hgrn2/modeling_hgrn2.py. The block's SwiGLU
//! is (SiLU(x W₁) ⊙ x W₂) W₃. Weights and biases begin uniform within inputs^-½.
//!
//! # Options
//!
//! `head_width` e (0: 8, or the largest power of two below it that divides D); `direction` both or
//! forward.
//!
//! # Padding
//!
//! Padding has a = 1 and 1 - a = 0, so states pass through unchanged.
//!
//! # Departures
//!
//! The published figures of images on this benchmark come from operators over two dimensions, which
//! the rules forbid and which are left out. The SwiGLU begins Xavier-uniform (±0.177 at D = 64 and
//! a width of 128) with biases N(0, 1e-6²); there uniform within inputs^-½ (±0.125 and ±0.088),
//! biases too (OpenNLPLab/lra@dd871ef src/models/sequence/glu.py:21-23, the code of its authors'
//! runs on this benchmark). The norms' ε of the block is `block.norm_epsilon` = 1e-6, there 1e-5
//! (PyTorch's norms, src/models/nn/components.py:194); that of the mixer's own LayerNorm is 1e-5.

use candle_core::Tensor;
use lra_derive::Options;
use serde::{Deserialize, Serialize};

use crate::{
    Encoder, Mixer, Pass, Result,
    context::{LayerContext, ModelContext},
    encoder,
    error::require,
    layers::{DecayBound, Direction, LayerNorm, Linear, by_head},
    mask::zero_padding,
    model::{Cost, Model, Reference, Variant},
    ops::{
        GatedLinearAttentionOptions,
        activation::{sigmoid, silu, softplus},
        columns,
        gated_linear_attention::{self, gated_linear_attention},
    },
    options::WIDEST,
    params::fan_in_uniform,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "hgrn2",
    title: "HGRN2",
    paper: "HGRN2: Gated Linear RNNs with State Expansion",
    year: 2024,
    arxiv: "2404.07904",
    time: Cost::Linear("O(L·e)"),
    memory: Cost::Linear("O(L)"),
    reference: Reference::Equations,
    family: crate::Family::Gated,
    settings: r#"{"block": {"gate": "glu", "activation": "silu"}}"#,
    variants: &[Variant::paper(build, include_str!("hgrn2.rs"))],
    ..Model::with_options::<Options>()
};

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// e.
    #[option(range = int(0, WIDEST))]
    head_width: usize,
    #[option(default = Direction::Both)]
    direction: Direction,
}

fn build(context: &ModelContext) -> Result<Box<dyn Encoder>> {
    let options: Options = context.options()?;
    encoder::blocks(context, |layer| Ok(Box::new(Hgrn2::new(layer, &options)?)))
}

struct Hgrn2 {
    inner: Linear,
    /// γ.
    bound: DecayBound,
    norm: LayerNorm,
    outer: Linear,
    direction: Direction,
    width: usize,
    heads: usize,
}

impl Hgrn2 {
    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let (vb, width) = (&layer.vb, layer.block.dim);
        let head = match options.head_width {
            0 => 1 << width.trailing_zeros().min(3),
            head => head,
        };
        require(
            width.is_multiple_of(head),
            "model.head_width",
            head,
            format!("a divisor of block.dim = {width}"),
        )?;
        let init = fan_in_uniform(width);
        let linear = |name, outputs| Linear::new(&vb.pp(name), width, outputs, init, Some(init));
        Ok(Self {
            inner: linear("inner", 3 * width)?,
            bound: DecayBound::new(layer, width)?,
            norm: LayerNorm::new(&vb.pp("norm"), width, 1e-5)?,
            outer: linear("outer", width)?,
            direction: options.direction,
            width,
            heads: width / head,
        })
    }

    /// Returns 1 - a and ln a (B, L, D) of gates f (B, L, D): 1 - a = (1 - γ) σ(-f).
    fn gates(&self, gates: &Tensor) -> Result<[Tensor; 2]> {
        let gates = gates.neg()?;
        let open = sigmoid(&gates)?;
        let Some(room) = self.bound.room()? else {
            // The logarithm of a number that may be 0 in f32.
            return Ok([open, softplus(&gates)?.neg()?]);
        };
        let open = open.broadcast_mul(&room)?;
        let log_decay = open.affine(-1.0, 1.0)?.log()?;
        Ok([open, log_decay])
    }
}

impl Mixer for Hgrn2 {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let all = self.inner.forward(x)?;
        let part = |index: usize| columns(&all, index * self.width, self.width);
        let (v, q) = (silu(&part(0)?)?, sigmoid(&part(1)?)?);
        let gates = self.gates(&part(2)?)?;
        let [k, log_decay] = gates.map(|gate| zero_padding(&gate, pass.mask()));
        let (k, log_decay) = (k?, log_decay?);
        let [q, k, v, log_decay] = [q, k, v, log_decay].map(|x| by_head(&x, self.heads));
        let (q, k, v, log_decay) = (q?, k?, v?, log_decay?);
        let walk = |reverse| {
            let options = GatedLinearAttentionOptions {
                log_decay: Some(&log_decay),
                reverse,
                packing: pass.packing(),
                ..Default::default()
            };
            gated_linear_attention(&q, &k, &v, &options)
        };
        let y = match self.direction {
            Direction::Forward => walk(false)?,
            Direction::Both => (walk(false)? + walk(true)?)?,
        };
        self.outer.forward(&self.norm.forward(&y.flatten_from(2)?)?)
    }

    fn supports_varlen(&self) -> bool {
        true
    }

    fn is_causal(&self) -> bool {
        self.direction == Direction::Forward
    }

    fn flops(&self, length: usize) -> u64 {
        let head = self.width / self.heads;
        let walk = gated_linear_attention::flops(length, self.heads, head, head);
        let linears = self.inner.flops(length) + self.outer.flops(length);
        linears + self.direction.count() as u64 * walk
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;
    use crate::{
        RngKey,
        options::BlockOptions,
        testing::{close, normal, parameters},
    };

    #[test]
    fn decays_of_later_layers_have_a_bound_that_grows() {
        let parameters = parameters();
        let block = BlockOptions {
            dim: 4,
            layers: 3,
            ..BlockOptions::default()
        };
        let gates = normal("gates", &[2, 5, 4]);
        let open = sigmoid(&gates.neg().unwrap()).unwrap();
        for (index, bound) in [0.0, 1.0 / 3.0, 2.0 / 3.0].into_iter().enumerate() {
            let shared = parameters.builder();
            let layer = LayerContext {
                index,
                ..LayerContext::new(shared.pp(index), &block, 9)
            };
            let layer = LayerContext { shared, ..layer };
            let mixer = Hgrn2::new(&layer, &Options::default()).unwrap();
            let expected = (&open * (1.0 - bound)).unwrap();
            let [forgets, log_decay] = mixer.gates(&gates).unwrap();
            close(&forgets, &expected, 1e-12, "bound");
            let decay = (1.0 - &expected).unwrap().log().unwrap();
            close(&log_decay, &decay, 1e-10, "logarithm");
        }
        let paths = parameters.paths();
        assert_eq!(paths.iter().filter(|path| *path == "bias.bound").count(), 1);
    }

    #[test]
    fn heads_are_8_wide_or_as_wide_as_the_largest_smaller_power_of_two_that_fits() {
        for (dim, heads) in [(3, 3), (12, 3), (16, 2), (64, 8)] {
            let parameters = parameters();
            let block = BlockOptions {
                dim,
                ..BlockOptions::default()
            };
            let layer = LayerContext::new(parameters.builder(), &block, 9);
            let mixer = Hgrn2::new(&layer, &Options::default()).unwrap();
            assert_eq!(mixer.heads, heads, "{dim}");
        }
    }

    /// A gate so far closed that its decay is 0 in f32 still has a logarithm.
    #[test]
    fn decays_of_closed_gates_have_finite_logarithms() {
        let parameters = parameters();
        let block = BlockOptions {
            dim: 4,
            ..BlockOptions::default()
        };
        let layer = LayerContext::new(parameters.builder(), &block, 9);
        let mixer = Hgrn2::new(&layer, &Options::default()).unwrap();
        let gates = Tensor::new(&[[[-150f32, -40.0, 0.0, 40.0]]], &Device::Cpu).unwrap();
        let [_, log_decay] = mixer.gates(&gates).unwrap();
        let expected = [[[-150f32, -40.0, 0.5f32.ln(), 0.0]]];
        let expected = Tensor::new(&expected, &Device::Cpu).unwrap();
        close(&log_decay, &expected, 1e-4, "logarithm");
    }

    #[test]
    fn both_directions_are_the_sum_of_two_walks_with_the_same_weights() {
        let parameters = parameters();
        let block = BlockOptions {
            dim: 4,
            ..BlockOptions::default()
        };
        let layer = LayerContext::new(parameters.builder(), &block, 9);
        let both = Hgrn2::new(&layer, &Options::default()).unwrap();
        let x = normal("x", &[1, 7, 4]);
        let pass = Pass::new(false, RngKey::new(1, 0, 0));
        let flip = |x: &Tensor| {
            let rows: Vec<Tensor> = (0..7).rev().map(|t| x.narrow(1, t, 1).unwrap()).collect();
            Tensor::cat(&rows, 1).unwrap()
        };
        let y = both.forward(&x, &pass).unwrap();
        let turned = both.forward(&flip(&x), &pass).unwrap();
        close(&flip(&turned), &y, 1e-12, "symmetric");
    }
}
