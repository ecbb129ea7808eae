//! xLSTM, its layer with matrix memory (mLSTM). Beck et al., 2024, "xLSTM: Extended Long Short-Term
//! Memory", arXiv:2405.04517.
//!     C_t = f_t C_(t-1) + i_t k_t v_tᵀ K^-½,  n_t = f_t n_(t-1) + i_t k_t K^-½,  h_t = C_tᵀ q_t / max(|n_t·q_t|, 1)
//!     [u | z] = x W_up,  c = SiLU(conv(u)),  q = c W_q,  k = c W_k,  v = u W_v,  f = σ([q, k, v] W_f + b_f),  i = e^([q, k, v] W_i + b_i)
//!     out = ((LayerNorm(h) + s ⊙ c) ⊙ SiLU(z)) W_down
//! B batch, L length, D width, D' = `expand` D in H heads of K columns; x, out (B, L, D), u, z, c
//! (B, L, D'), q, k, v, h (B, L, H, K), f, i (B, L, H), C (H, K, K), n (H, K), s (D'). conv is a
//! depthwise causal convolution of `taps` taps with a bias; W_q, W_k and W_v are block-diagonal
//! with blocks of `group` columns; LayerNorm is that of each head, with a gain. All is computed
//! divided by e^m for m_t = max(m_(t-1) + ln f_t, ln i_t), as the authors do. All is causal. Time
//! O(L·K·D') in chunks, memory O(L·D'). No feed-forward network: the layer replaces both sublayers.
//! Sizes and initial values were read in the package xlstm 2.0.6, xlstm/blocks/mlstm: W_up, W_q,
//! W_k and W_v normal of variance 2 / (5 D), W_down of deviation 2 / (blocks · D^½), W_f and W_i
//! zeros, b_f even from 3 to 6 over the heads, b_i of deviation 0.1, s ones, conv as PyTorch's.
//! Layers with scalar memory (sLSTM) are left out: this is xLSTM[1:0]. Its authors' figures on this
//! benchmark are second-hand.
//!
//! # Options
//!
//! `expand`, `taps`, `group`. `direction`: `forward`; `sum` adds a second pass from the end with
//! the same weights, `two` with weights of its own.
//!
//! # Padding
//!
//! At padding, u = 0 before conv, f = 1 and k = 0, so states pass through unchanged.
//!
//! # Departures
//!
//! The package rounds D' up to a multiple of 64. m gets no gradient: it matters only to the 1e-6
//! that the package and this layer add to the divided denominator. The package's norms have no
//! shift (xlstm/blocks/xlstm_block.py:58, 68); the block's norms here have one, which begins as 0.
//! They have ε = `block.norm_epsilon` = 1e-6, in the package 1e-5 (xlstm/components/ln.py); that of
//! the heads' norm is 1e-5 in both.

use crate::{
    encoder::{Ways, blocks_both_ways},
    layers::{BlockLinear, HeadNorm, ShortConv, by_head},
    ops::{
        GatedLinearAttentionOptions,
        activation::{silu, softplus},
        columns,
        gated_linear_attention::{self, gated_linear_attention, with_ones},
        running_max,
    },
    prelude::*,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "xlstm",
    title: "xLSTM (mLSTM)",
    paper: "xLSTM: Extended Long Short-Term Memory",
    year: 2024,
    arxiv: "2405.04517",
    time: Cost::Linear("O(L·K²)"),
    memory: Cost::Linear("O(L·K)"),
    reference: Reference::Package,
    family: Family::Gated,
    settings: r#"{"embed": {"positions": "none"}, "block": {"ffn": "none"}}"#,
    variants: &[Variant::paper(build, include_str!("xlstm.rs"))],
    ..Model::with_options::<Options>()
};

/// Added to denominators.
const EPSILON: f64 = 1e-6;
/// ln i of padding, for m alone.
const CLOSED: f64 = 30.0;

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    #[option(default = 2, range = int(1, 64))]
    expand: usize,
    #[option(default = 4, range = int(1, 1024))]
    taps: usize,
    #[option(default = 4, range = int(1, WIDEST))]
    group: usize,
    direction: Ways,
}

fn build(context: &ModelContext) -> Result<Box<dyn Encoder>> {
    let options: Options = context.options()?;
    blocks_both_ways(context, options.direction, |layer| {
        Ok(Box::new(Xlstm::new(layer, &options)?))
    })
}

struct Xlstm {
    /// W_up.
    inner: Linear,
    conv: ShortConv,
    query: BlockLinear,
    key: BlockLinear,
    value: BlockLinear,
    /// W_f and b_f.
    forget: Linear,
    /// W_i and b_i.
    input: Linear,
    norm: HeadNorm,
    /// s.
    skip: Tensor,
    /// W_down.
    outer: Linear,
    heads: usize,
    /// D'.
    width: usize,
}

impl Xlstm {
    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let (vb, block) = (&layer.vb, layer.block);
        let (dim, heads, width) = (block.dim, block.heads, options.expand * block.dim);
        for (key, divisor) in [("block.heads", heads), ("model.group", options.group)] {
            require(
                width.is_multiple_of(divisor),
                key,
                divisor,
                format!("a divisor of {width}, model.expand times block.dim"),
            )?;
        }
        let normal = |stdev: f64| Init::Randn { mean: 0.0, stdev };
        let small = normal((0.4 / dim as f64).sqrt());
        let deep = normal(2.0 / (block.layers as f64 * (dim as f64).sqrt()));
        let groups = width / options.group;
        let inward = |name| BlockLinear::new(&vb.pp(name), groups, options.group, small, None);
        let gate = |name| {
            let init = Init::Const(0.0);
            Linear::new(&vb.pp(name), 3 * width, heads, init, Some(normal(0.1)))
        };
        let last = (heads - 1).max(1) as f64;
        let open = (0..heads).map(|head| 3.0 + 3.0 * head as f64 / last);
        let open: Vec<f64> = open.collect();
        let forget = vb.pp("forget");
        forget.get_with_values(heads, "bias", Attributes::NO_DECAY, |_| open)?;
        Ok(Self {
            inner: Linear::new(&vb.pp("inner"), dim, 2 * width, small, None)?,
            conv: ShortConv::new(&vb.pp("conv"), width, options.taps, true)?,
            query: inward("query")?,
            key: inward("key")?,
            value: inward("value")?,
            forget: gate("forget")?,
            input: gate("input")?,
            norm: HeadNorm::new(&vb.pp("norm"), heads, width / heads, 1e-5, false)?,
            skip: vb.get_with_hints(width, "skip", Init::Const(1.0))?,
            outer: Linear::new(&vb.pp("outer"), width, dim, deep, None)?,
            heads,
            width,
        })
    }

    /// Returns h (B, L, H, K) of q, k and v (B, L, D').
    fn remember(&self, [q, k, v]: [&Tensor; 3], pass: &Pass) -> Result<Tensor> {
        let gates = cat(&[q, k, v], 2)?;
        let log_forget = softplus(&self.forget.forward(&gates)?.neg()?)?.neg()?;
        let log_forget = zero_padding(&log_forget, pass.mask())?; // (B, L, H)
        let log_input = zero_padding(&self.input.forward(&gates)?, pass.mask())?;
        let closed = match pass.mask() {
            Some(mask) => {
                let padding = mask.valid().affine(CLOSED, -CLOSED)?.unsqueeze(2)?;
                log_input.broadcast_add(&padding)?
            }
            None => log_input,
        };
        let m = running_max(&closed, &log_forget)?;
        let first = m.narrow(1, 0, 1)?;
        let before = Tensor::cat(&[&first, &m], 1)?.narrow(1, 0, m.dim(1)?)?;
        let log_decay = (log_forget + (before - &m)?)?;
        let key_width = self.width / self.heads;
        let scale = (closed - &m)?
            .exp()?
            .affine((key_width as f64).powf(-0.5), 0.0)?;
        let k = zero_padding(k, pass.mask())?;
        let [q, k, v] = [q, &k, v].map(|x| by_head(x, self.heads));
        let k = k?.broadcast_mul(&scale.unsqueeze(3)?)?;
        let options = GatedLinearAttentionOptions {
            log_decay: Some(&log_decay),
            ..Default::default()
        };
        let y = gated_linear_attention(&q?, &k, &with_ones(&v?)?, &options)?;
        let size = y.narrow(3, key_width, 1)?.abs()?;
        let size = size.maximum(&m.neg()?.exp()?.unsqueeze(3)?)?;
        let sums = y.narrow(3, 0, key_width)?;
        Ok(sums.broadcast_div(&size.affine(1.0, EPSILON)?)?)
    }
}

impl Mixer for Xlstm {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let both = self.inner.forward(x)?;
        let half = |start| columns(&both, start, self.width);
        let (u, z) = (half(0)?, half(self.width)?);
        let c = self.conv.forward(&u, pass)?;
        let (q, k) = (self.query.forward(&c)?, self.key.forward(&c)?);
        let h = self.remember([&q, &k, &self.value.forward(&u)?], pass)?;
        let h = (self.norm.forward(&h)? + c.broadcast_mul(&self.skip)?)?;
        self.outer.forward(&(h * silu(&z)?)?)
    }

    fn is_causal(&self) -> bool {
        true
    }

    fn flops(&self, length: usize) -> u64 {
        let linears = [&self.inner, &self.forget, &self.input, &self.outer];
        let linears: u64 = linears.map(|linear| linear.flops(length)).iter().sum();
        let blocks = [&self.query, &self.key, &self.value];
        let blocks: u64 = blocks.map(|linear| linear.flops(length)).iter().sum();
        let width = self.width / self.heads;
        let memory = gated_linear_attention::flops(length, self.heads, width, width + 1);
        linears + blocks + memory
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{close, normal, parameters, pass};

    /// The least denominator, 1, is far below both, of which one is far beyond f64's exponentials.
    #[test]
    fn large_gates_overflow_nothing() {
        let parameters = parameters();
        let block = BlockOptions {
            dim: 8,
            heads: 2,
            ..BlockOptions::default()
        };
        let layer = LayerContext::new(parameters.builder(), &block, 9);
        let mut mixer = Xlstm::new(&layer, &Options::default()).unwrap();
        let x = normal("x", &[1, 9, 8]);
        let [large, larger] = [50.0, 4000.0].map(|bias| {
            let (vb, zeros) = (layer.vb.pp(bias), Init::Const(0.0));
            mixer.input = Linear::new(&vb, 48, 2, zeros, Some(Init::Const(bias))).unwrap();
            mixer.forward(&x, &pass()).unwrap()
        });
        close(&larger, &large, 1e-10, "gates");
    }
}
