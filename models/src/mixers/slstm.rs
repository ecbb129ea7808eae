//! xLSTM, its layer with scalar memory (sLSTM). Beck et al., 2024, "xLSTM: Extended Long Short-Term
//! Memory", arXiv:2405.04517.
//!     [i | f | z | o]_t = [c W_i, c W_f, x W_z, x W_o]_t + R h_(t-1) + b,  c = SiLU(conv(x))
//!     c_t = σ(f_t) c_(t-1) + e^(i_t) tanh(z_t),  n_t = σ(f_t) n_(t-1) + e^(i_t),  h_t = σ(o_t) c_t / n_t,  out = LayerNorm(h)
//! B batch, L length, D width in H heads of E columns; x, c, out (B, L, D), i, f, z, o, h, c_t, n_t
//! (B, L, H, E), W_i, W_f, W_z, W_o (H, E, E), R (H, 4 E, E), b (H, 4 E). conv is a depthwise
//! causal convolution of `taps` taps with a bias; LayerNorm is that of each head, with a gain. All
//! is computed divided by e^m for m_t = max(m_(t-1) + ln σ(f_t), i_t). Gates read the state, so
//! that no scan computes them. All is causal. Time O(L·E·D), one position after the other; memory
//! O(L·D). A gated feed-forward network with GELU follows, as in the package. Sizes and initial
//! values were read in the package xlstm 2.0.6, xlstm/blocks/slstm: W of variance 2 / (5 D), R
//! zeros, b zeros but of f, which is 5 - 12 (k / (E - 1))^(0.3 + 1.3 l / (n - 1)) for column k of a
//! head and layer l of n; conv as PyTorch's. `xlstm` is the layer with matrix memory; layers of
//! both kinds in one stack are left out. Its authors have not run this layer on this benchmark.
//!
//! # Options
//!
//! `taps` (4). `direction`: `forward`; `sum` adds a second pass from the end with the same weights,
//! `two` with weights of its own.
//!
//! # Padding
//!
//! Padding is zeros to conv, and leaves the states as they were.
//!
//! # Departures
//!
//! The feed-forward network is as wide as `block.mlp_dim` says, in the package 1.3 D, rounded up to
//! a multiple of 64; it has biases, and begins Xavier-uniform, as all feed-forward networks here;
//! in the package its first matrix has variance 2 / (5 D), its second deviation 2 / (blocks · D^½).
//! The package's norms have no shift (xlstm/blocks/xlstm_block.py:58, 68); the block's norms here
//! have one, which begins as 0. They have ε = `block.norm_epsilon` = 1e-6, in the package 1e-5
//! (xlstm/components/ln.py); that of the heads' norm is 1e-5 in both. The package drops outputs of
//! the cell in front of the heads' norm (xlstm/blocks/slstm/layer.py), and none of the feed-forward
//! network; here `block.dropout` acts behind that norm and in the network. R decays as all matrices
//! do; the package's does not, as its name has no `weight` (xlstm/utils.py).

use crate::{
    encoder::{Ways, blocks_both_ways},
    layers::{BlockLinear, HeadNorm, ShortConv, by_head},
    ops::slstm,
    prelude::*,
    rng::Stream,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "slstm",
    title: "xLSTM (sLSTM)",
    paper: "xLSTM: Extended Long Short-Term Memory",
    year: 2024,
    arxiv: "2405.04517",
    time: Cost::Linear("O(L·D)"),
    memory: Cost::Linear("O(L)"),
    reference: Reference::Package,
    family: Family::Gated,
    settings: r#"{"embed": {"positions": "none"}, "block": {"gate": "glu", "activation": "gelu_erf"}}"#,
    variants: &[Variant::paper(build, include_str!("slstm.rs"))],
    ..Model::with_options::<Options>()
};

/// Gates, in order.
const GATES: [&str; 4] = ["input", "forget", "cell", "output"];
/// Number of gate f.
const FORGET: usize = 1;

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    #[option(default = 4, range = int(1, 1024))]
    taps: usize,
    direction: Ways,
}

fn build(context: &ModelContext) -> Result<Box<dyn Encoder>> {
    let options: Options = context.options()?;
    blocks_both_ways(context, options.direction, |layer| {
        Ok(Box::new(Slstm::new(layer, &options)?))
    })
}

struct Slstm {
    conv: ShortConv,
    /// W_i, W_f, W_z and W_o.
    gates: Vec<BlockLinear>,
    /// R (H, 4 E, E).
    state: Tensor,
    /// b (H, 4 E).
    bias: Tensor,
    norm: HeadNorm,
    heads: usize,
}

impl Slstm {
    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let (vb, block) = (&layer.vb, layer.block);
        let (dim, heads) = (block.dim, block.heads);
        require(
            dim.is_multiple_of(heads),
            "block.heads",
            heads,
            format!("a divisor of block.dim = {dim}"),
        )?;
        let width = dim / heads;
        let small = Init::Randn {
            mean: 0.0,
            stdev: (0.4 / dim as f64).sqrt(),
        };
        let depth = layer.index as f64 / (block.layers as f64 - 1.0).max(1.0);
        let open = |column: usize| {
            let place = column as f64 / (width as f64 - 1.0).max(1.0);
            5.0 - 12.0 * place.powf(0.3 + 1.3 * depth)
        };
        let value = |index: usize| match index / width % GATES.len() {
            FORGET => open(index % width),
            _ => 0.0,
        };
        let biases = |_: &Stream| (0..GATES.len() * dim).map(value).collect();
        let gate = |name| BlockLinear::new(&vb.pp(name), heads, width, small, None);
        let rows = GATES.len() * width;
        Ok(Self {
            conv: ShortConv::new(&vb.pp("conv"), dim, options.taps, true)?,
            gates: GATES.into_iter().map(gate).collect::<Result<_>>()?,
            state: vb.get_with_hints((heads, rows, width), "state.weight", Init::Const(0.0))?,
            bias: vb.get_with_values((heads, rows), "bias", Attributes::NO_DECAY, biases)?,
            norm: HeadNorm::new(&vb.pp("norm"), heads, width, 1e-5, false)?,
            heads,
        })
    }
}

impl Mixer for Slstm {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let c = self.conv.forward(x, pass)?;
        let inputs = [&c, &c, x, x];
        let gates = self.gates.iter().zip(inputs);
        let gates = gates.map(|(gate, x)| by_head(&gate.forward(x)?, self.heads));
        let gates: Vec<Tensor> = gates.collect::<Result<_>>()?;
        let gates = cat(&gates.iter().collect::<Vec<_>>(), 3)?; // (B, L, H, 4 E)
        let gates = gates.broadcast_add(&self.bias)?;
        let h = slstm(&gates, &self.state, pass.mask().map(Mask::valid))?;
        self.norm.forward(&h)
    }

    fn is_causal(&self) -> bool {
        true
    }

    fn flops(&self, length: usize) -> u64 {
        let gates: u64 = self.gates.iter().map(|gate| gate.flops(length)).sum();
        gates + 2 * (length * self.state.elem_count()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{check_layer, normal, parameters, pass};

    /// The exponent is 0.3 in the first layer, also if there is no other, and 1.6 in the last.
    #[test]
    fn forget_gates_begin_open_in_the_first_columns_and_closed_in_the_last() {
        for (index, layers, power) in [(0, 1, 0.3), (0, 2, 0.3), (1, 2, 1.6)] {
            let parameters = parameters();
            let block = BlockOptions {
                dim: 3,
                heads: 1,
                layers,
                ..BlockOptions::default()
            };
            let layer = LayerContext {
                index,
                ..LayerContext::new(parameters.builder(), &block, 5)
            };
            let mixer = Slstm::new(&layer, &Options::default()).unwrap();
            let bias: Vec<f64> = mixer.bias.flatten_all().unwrap().to_vec1().unwrap();
            let forget = [5.0, 5.0 - 12.0 * 0.5f64.powf(power), -7.0];
            for (column, bias) in bias.into_iter().enumerate() {
                let expected = match column / 3 {
                    1 => forget[column % 3],
                    _ => 0.0,
                };
                assert!(
                    (bias - expected).abs() < 1e-12,
                    "{layers}: {bias} {expected}"
                );
            }
        }
    }

    #[test]
    fn gradients_agree_with_differences() {
        let parameters = parameters();
        let block = BlockOptions {
            dim: 6,
            heads: 2,
            ..BlockOptions::default()
        };
        let layer = LayerContext::new(parameters.builder(), &block, 5);
        let mixer = Slstm::new(&layer, &Options::default()).unwrap();
        let (_, state) = parameters
            .all()
            .into_iter()
            .find(|(path, _)| path.ends_with("state.weight"))
            .unwrap();
        state.set(&normal("state", state.dims())).unwrap();
        check_layer("sLSTM", &parameters, &[2, 4, 6], |x| {
            mixer.forward(x, &pass())
        });
    }
}
