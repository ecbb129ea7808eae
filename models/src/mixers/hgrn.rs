//! HGRN. Qin et al., 2023, "Hierarchically Gated Recurrent Neural Network for Sequence Modeling",
//! arXiv:2311.04823.
//!     h_t = λ_t e^(iθ) h_(t-1) + (1 - λ_t) u_t,  λ = γ + (1 - γ) σ(x W_λ + b),  [Re u | Im u] = SiLU(x W_u + b)
//!     out = W_o (LayerNorm([Re h | Im h]) ⊙ SiLU(x W_g + b)) + b
//! B batch, L length, D width; x, λ, out (B, L, D), u, h (B, L, D) complex, θ (D) learned, γ (D)
//! the layer's lower bound of decays: that of layer l is the sum of softmax(Γ) over layers 1 to l,
//! for Γ (layers, D) that all layers share, zeros at first: γ is then l/n in layer l of n, counted
//! from 0. θ begins with 10000^(-2i / D) in column i, from 0. Weights and biases begin uniform
//! within inputs^-½. Time and memory O(L·D). All was read in Doraemonzzz/hgru-pytorch@09f4ed2
//! hgru/hgru1d.py and hgru/bihgru1d.py, but Γ, which is that of flash-linear-attention@bc3b101
//! fla/models/hgrn/modeling_hgrn.py. The block's SwiGLU is (SiLU(x W₁) ⊙ x W₂) W₃.
//!
//! # Options
//!
//! `direction`: `both` (the default) adds the states of a second walk from the end, with the same
//! weights but a θ of its own, as the authors' runs on this benchmark have it (`param_share` is
//! False in OpenNLPLab/HGRN@52fa1b1 script_lra.py); a position counts itself twice. `forward` is
//! causal.
//!
//! # Padding
//!
//! Padding has u = 0: it adds nothing to the states, from either end.
//!
//! # Departures
//!
//! The published code has no mask: padding enters the states, the walk from the end begins with it
//! (Doraemonzzz/hgru-pytorch@09f4ed2 hgru/bihgru1d.py:44-82), and BatchNorm, which its
//! configuration for Text has, counts it. Real and imaginary parts of u are halves of the columns
//! rather than neighbours, an order of the rows of W_u. The published figures of images come from
//! an operator over two dimensions, which the rules forbid and which is left out. The SwiGLU begins
//! Xavier-uniform (±0.177 at D = 64 and a width of 128) with biases N(0, 1e-6²); there uniform
//! within inputs^-½ (±0.125 and ±0.088), biases too (OpenNLPLab/lra@dd871ef
//! src/models/sequence/glu.py:21-23, the code of its authors' runs on this benchmark). The norms' ε
//! of the block is `block.norm_epsilon` = 1e-6, there 1e-5 (PyTorch's norms,
//! src/models/nn/components.py:194); that of the mixer's own LayerNorm is 1e-5. Rows of Γ stand in
//! another order there (`layers/decay_bound.rs`).

use crate::{
    layers::{DecayBound, Direction, LayerNorm},
    ops::{
        Complex, ScanOptions,
        activation::{sigmoid, silu},
        scan_packed,
    },
    params::fan_in_uniform,
    prelude::*,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "hgrn",
    title: "HGRN",
    paper: "Hierarchically Gated Recurrent Neural Network for Sequence Modeling",
    year: 2023,
    arxiv: "2311.04823",
    time: Cost::Linear("O(L)"),
    memory: Cost::Linear("O(L)"),
    reference: Reference::Equations,
    family: Family::Gated,
    settings: r#"{"block": {"gate": "glu", "activation": "silu"}}"#,
    variants: &[Variant::mixer::<Hgrn>(include_str!("hgrn.rs"))],
    ..Model::mixer::<Hgrn>()
};

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    #[option(default = Direction::Both)]
    direction: Direction,
}

struct Hgrn {
    /// W_u.
    inner: Linear,
    /// W_λ.
    decay: Linear,
    /// γ.
    bound: DecayBound,
    /// θ (D) of each direction.
    angles: Vec<Tensor>,
    norm: LayerNorm,
    /// W_g.
    gate: Linear,
    /// W_o.
    outer: Linear,
}

impl MixerModel for Hgrn {
    type Options = Options;

    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let (vb, width) = (&layer.vb, layer.block.dim);
        let linear = |name, inputs: usize, outputs| {
            let init = fan_in_uniform(inputs);
            Linear::new(&vb.pp(name), inputs, outputs, init, Some(init))
        };
        let rate = |column| 10000f64.powf(-2.0 * column as f64 / width as f64);
        let angle = |name: &&str| {
            vb.get_with_values(width, name, Attributes::NO_DECAY, |_| {
                (0..width).map(rate).collect()
            })
        };
        let names = &["theta", "theta_back"][..options.direction.count()];
        Ok(Self {
            inner: linear("inner", width, 2 * width)?,
            decay: linear("decay", width, width)?,
            bound: DecayBound::new(layer, width)?,
            angles: names.iter().map(angle).collect::<Result<_>>()?,
            norm: LayerNorm::new(&vb.pp("norm"), 2 * width, 1e-5)?,
            gate: linear("gate", width, 2 * width)?,
            outer: linear("outer", 2 * width, width)?,
        })
    }
}

impl Mixer for Hgrn {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let open = sigmoid(&self.decay.forward(x)?.neg()?)?;
        let open = match self.bound.room()? {
            Some(room) => open.broadcast_mul(&room)?,
            None => open,
        };
        let decay = open.affine(-1.0, 1.0)?;
        let input = silu(&self.inner.forward(x)?)?;
        let input = (input * cat(&[&open, &open], 2)?)?;
        let input = zero_padding(&input, pass.mask())?;
        let walk = |(index, angle): (usize, &Tensor)| {
            let turn = Complex::new(angle.cos()?, angle.sin()?);
            let (re, im) = (
                decay.broadcast_mul(&turn.re)?,
                decay.broadcast_mul(&turn.im)?,
            );
            let options = ScanOptions {
                complex: true,
                reverse: index > 0,
            };
            scan_packed(&input, &cat(&[&re, &im], 2)?, options, pass.packing())
        };
        let states = self.angles.iter().enumerate().map(walk);
        let states: Vec<Tensor> = states.collect::<Result<_>>()?;
        let h = match &states[..] {
            [ahead, back] => (ahead + back)?,
            _ => states[0].clone(),
        };
        let gate = silu(&self.gate.forward(x)?)?;
        self.outer.forward(&(self.norm.forward(&h)? * gate)?)
    }

    fn supports_varlen(&self) -> bool {
        true
    }

    fn is_causal(&self) -> bool {
        self.angles.len() == 1
    }

    fn flops(&self, length: usize) -> u64 {
        let linears = [&self.inner, &self.decay, &self.gate, &self.outer];
        linears.map(|linear| linear.flops(length)).iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{close, normal, parameters, pass};

    /// A flipped sequence has flipped outputs while θ is the same in both directions.
    #[test]
    fn both_directions_are_alike_while_their_angles_are() {
        let parameters = parameters();
        let block = BlockOptions {
            dim: 4,
            ..BlockOptions::default()
        };
        let layer = LayerContext::new(parameters.builder(), &block, 9);
        let options = |direction| Options { direction };
        let both = Hgrn::new(&layer, &options(Direction::Both)).unwrap();
        assert!(!both.is_causal());
        let x = normal("x", &[2, 7, 4]);
        let y = both.forward(&x, &pass()).unwrap();
        let turned = both.forward(&ops::flip(&x).unwrap(), &pass()).unwrap();
        close(&ops::flip(&turned).unwrap(), &y, 1e-12, "flipped");
        let ahead = Hgrn::new(&layer, &options(Direction::Forward)).unwrap();
        assert!(ahead.is_causal());
        let first = ahead.forward(&x.narrow(1, 0, 3).unwrap(), &pass()).unwrap();
        let all = ahead.forward(&x, &pass()).unwrap();
        close(&all.narrow(1, 0, 3).unwrap(), &first, 1e-12, "causal");
    }
}
