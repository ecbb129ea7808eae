//! RWKV-4, its time mixing. Peng et al., 2023, "RWKV: Reinventing RNNs for the Transformer Era",
//! arXiv:2305.13048.
//!     y_t = (Σ_(i<t) e^(-(t-1-i) w + k_i) v_i + e^(u + k_t) v_t) / (Σ_(i<t) e^(-(t-1-i) w + k_i) + e^(u + k_t)),  out = W_o (σ(r) ⊙ y)
//!     r, k and v = W (μ ⊙ x_t + (1 - μ) ⊙ x_(t-1)), each with its own W and μ;  w = e^ω
//! B batch, L length, D width; x, r, k, v, y, out (B, L, D), μ, ω, u (D). An average of the values
//! before, weighted by keys and by distance, per channel. Sums are computed divided by e^m for the
//! largest exponent m so far. All is causal. Time and memory O(L·D). Initial values were read in
//! BlinkDL's code as SSamDav/rwkv-long-range-arena@18932a4 src/models/sequence/rwkv/rwkv.py, which
//! ran on this benchmark, has it: for layer l of n, a = l / (n - 1), b = 1 - l / n and channel c, ω
//! = -5 + 8 (c / (D - 1))^(0.7 + 1.3 a), u = ln 0.3 + ½ ((c + 1) mod 3 - 1), μ = (c / D)^b of keys,
//! the same + 0.3 a of values, (c / D)^(b / 2) of receptances; matrices as PyTorch's linear layers.
//!
//! # Options
//!
//! `direction`: `forward`; `sum` adds a second pass from the end with the same weights, `two` with
//! weights of its own.
//!
//! # Padding
//!
//! Padding weighs nothing, and is zeros to the position behind it.
//!
//! # Departures
//!
//! The block's feed-forward network with squared ReLU stands for channel mixing, which mixes inputs
//! with those before, too, and has a receptance. It begins Xavier-uniform with biases N(0, 1e-6²);
//! that of the published code has no biases and begins uniform within inputs^-½ (lines 388-390). A
//! norm of the embedding before the first block (line 446) is left out. The norms' ε is
//! `block.norm_epsilon` = 1e-6, in the published code 1e-5 (torch.nn.LayerNorm). There, dropout is
//! on the sum of a sublayer and its input, here on the sublayer alone. BlinkDL's own RWKV-4 begins
//! W_k, W_r and W_o as 0.

use crate::{
    encoder::{Ways, blocks_both_ways},
    layers::token_shift::previous,
    ops::{ScanOptions, activation::sigmoid, running_max, scan},
    params::fan_in_uniform,
    prelude::*,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "rwkv4",
    title: "RWKV-4",
    paper: "RWKV: Reinventing RNNs for the Transformer Era",
    year: 2023,
    arxiv: "2305.13048",
    time: Cost::Linear("O(L)"),
    memory: Cost::Linear("O(L)"),
    reference: Reference::Package,
    family: Family::Gated,
    settings: r#"{"embed": {"positions": "none"}, "block": {"activation": "relu_squared"}}"#,
    variants: &[Variant::paper(build, include_str!("rwkv4.rs"))],
    ..Model::with_options::<Options>()
};

/// Key of padding, below all others, so that no shift is that of padding.
const PADDED_KEY: f64 = -1e4;

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    direction: Ways,
}

fn build(context: &ModelContext) -> Result<Box<dyn Encoder>> {
    let options: Options = context.options()?;
    blocks_both_ways(context, options.direction, |layer| {
        Ok(Box::new(Rwkv4::new(layer)?))
    })
}

/// A linear layer on inputs mixed with those before.
struct Mixed {
    /// μ (D).
    share: Tensor,
    linear: Linear,
}

impl Mixed {
    /// Maps x and the inputs before (B, L, D) to (B, L, D).
    fn forward(&self, x: &Tensor, before: &Tensor) -> Result<Tensor> {
        let mixed = (before + (x - before)?.broadcast_mul(&self.share)?)?;
        self.linear.forward(&mixed)
    }
}

struct Rwkv4 {
    receptance: Mixed,
    key: Mixed,
    value: Mixed,
    /// ω (D).
    decay: Tensor,
    /// u (D).
    bonus: Tensor,
    /// W_o.
    output: Linear,
}

impl Rwkv4 {
    fn new(layer: &LayerContext) -> Result<Self> {
        let (vb, dim) = (&layer.vb, layer.block.dim);
        let (index, layers) = (layer.index as f64, layer.block.layers as f64);
        let rise = index / (layers - 1.0).max(1.0);
        let fall = 1.0 - index / layers;
        let init = fan_in_uniform(dim);
        let vector = |vb: &VarBuilder, name: &str, value: &dyn Fn(f64) -> f64| {
            let values = (0..dim).map(|channel| value(channel as f64)).collect();
            vb.get_with_values(dim, name, Attributes::NO_DECAY, |_| values)
        };
        let mixed = |name: &str, power: f64, more: f64| -> Result<Mixed> {
            let vb = vb.pp(name);
            let share = |channel: f64| (channel / dim as f64).powf(power) + more;
            Ok(Mixed {
                share: vector(&vb, "share", &share)?,
                linear: Linear::new(&vb, dim, dim, init, None)?,
            })
        };
        let last = (dim - 1).max(1) as f64;
        let decay = |channel: f64| -5.0 + 8.0 * (channel / last).powf(0.7 + 1.3 * rise);
        let bonus = |channel: f64| 0.3f64.ln() + 0.5 * ((channel + 1.0) % 3.0 - 1.0);
        Ok(Self {
            receptance: mixed("receptance", 0.5 * fall, 0.0)?,
            key: mixed("key", fall, 0.0)?,
            value: mixed("value", fall, 0.3 * rise)?,
            decay: vector(vb, "decay", &decay)?,
            bonus: vector(vb, "bonus", &bonus)?,
            output: Linear::new(&vb.pp("output"), dim, dim, init, None)?,
        })
    }

    /// Returns y (B, L, D) of keys and values (B, L, D).
    fn average(&self, k: &Tensor, v: &Tensor, mask: Option<&Mask>) -> Result<Tensor> {
        let length = k.dim(1)?;
        let k = match mask {
            Some(mask) => {
                let far = mask.valid().affine(-PADDED_KEY, PADDED_KEY)?.unsqueeze(2)?;
                zero_padding(k, Some(mask))?.broadcast_add(&far.to_dtype(k.dtype())?)?
            }
            None => k.clone(),
        };
        let log_decay = self.decay.exp()?.neg()?;
        // All shifts are constants: they cancel.
        let m = running_max(&k, &log_decay)?;
        let before = |x: &Tensor, first: &Tensor| -> Result<Tensor> {
            Ok(Tensor::cat(&[first, x], 1)?
                .narrow(1, 0, length)?
                .contiguous()?)
        };
        let m_before = before(&m, &m.narrow(1, 0, 1)?)?;
        let decay = (&m_before - &m)?.broadcast_add(&log_decay)?.exp()?;
        let weight = zero_padding(&(&k - &m)?.exp()?, mask)?;
        let sums = |x: &Tensor| -> Result<Tensor> {
            let all = scan(x, &decay, ScanOptions::default())?;
            before(&all, &x.narrow(1, 0, 1)?.zeros_like()?)
        };
        let (values, weights) = (sums(&(&weight * v)?)?, sums(&weight)?);
        let own = k.broadcast_add(&self.bonus)?;
        let max = m_before.maximum(&own.detach())?;
        let (old, own) = ((m_before - &max)?.exp()?, (own - max)?.exp()?);
        let above = ((values * &old)? + (&own * v)?)?;
        let below = ((weights * old)? + own)?;
        Ok((above / below)?)
    }
}

impl Mixer for Rwkv4 {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let before = previous(x, pass.mask())?;
        let mixed = |linear: &Mixed| linear.forward(x, &before);
        let (k, v) = (mixed(&self.key)?, mixed(&self.value)?);
        let y = self.average(&k, &v, pass.mask())?;
        let open = sigmoid(&mixed(&self.receptance)?)?;
        self.output.forward(&(open * y)?)
    }

    fn is_causal(&self) -> bool {
        true
    }

    fn flops(&self, length: usize) -> u64 {
        let mixed = [&self.receptance, &self.key, &self.value];
        let mixed: u64 = mixed.map(|it| it.linear.flops(length)).iter().sum();
        mixed + self.output.flops(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{close, normal, parameters};

    fn mixer(dim: usize) -> Rwkv4 {
        let block = BlockOptions {
            dim,
            ..BlockOptions::default()
        };
        Rwkv4::new(&LayerContext::new(parameters().builder(), &block, 9)).unwrap()
    }

    /// ω of the first layer is -5 + 8 (c / (D - 1))^0.7, with the first value for a single channel.
    #[test]
    fn decays_begin_between_minus_5_and_3() {
        for (dim, expected) in [(1, vec![-5.0]), (2, vec![-5.0, 3.0])] {
            let actual = mixer(dim).decay.to_vec1::<f64>().unwrap();
            assert_eq!(actual, expected);
        }
        let middle = mixer(3).decay.to_vec1::<f64>().unwrap()[1];
        assert!((middle - (8.0 * 0.5f64.powf(0.7) - 5.0)).abs() < 1e-12);
    }

    /// Keys that differ by a constant weigh the same, however large it is.
    #[test]
    fn large_keys_overflow_nothing() {
        let mixer = mixer(4);
        let (k, v) = (normal("k", &[2, 9, 4]), normal("v", &[2, 9, 4]));
        let y = mixer.average(&k, &v, None).unwrap();
        for shift in [-2000.0, 2000.0] {
            let k = k.affine(1.0, shift).unwrap();
            close(&mixer.average(&k, &v, None).unwrap(), &y, 1e-9, "shifted");
        }
    }

    #[test]
    fn an_average_of_the_same_value_is_that_value() {
        let mixer = mixer(4);
        let k = normal("k", &[1, 12, 4]);
        let ones = k.ones_like().unwrap();
        close(
            &mixer.average(&k, &ones, None).unwrap(),
            &ones,
            1e-12,
            "average",
        );
    }
}
