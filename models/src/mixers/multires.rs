//! MultiresConv. Shi, Wang, Fox, 2023, "Sequence Modeling with Multiresolution Convolutional
//! Memory", arXiv:2305.01638.
//!     c_0 = x,  (c_j)_t = Σ_i l_i (c_(j-1))_(t - 2^(j-1) i),  (d_j)_t = Σ_i h_i (c_(j-1))_(t - 2^(j-1) i),  y = w_0 c_J + Σ_j w_j d_j + s x
//!     out = a ⊙ σ(g), [a, g] = W f(y) + b
//! A wavelet transform without decimation, whose filters are learned: a channel has one low-pass l
//! and one high-pass filter h of κ taps for all levels j = 1 .. J, J = ⌈log₂((N-1)/(κ-1) + 1)⌉ for
//! the longest length N. B batch, L length, D width; x, c_j, d_j, y (B, L, D), l, h (D, κ), w (D,
//! J+1), s (D), W (2D, D). All is causal. Time and memory O(L·log N). Read in
//! thjashin/multires-conv@828089f layers/multireslayer.py (`tree_select` = `fading`) and
//! classification.py: l and h begin uniform within κ^-½, w and s within (J+2)^-½, W and b within
//! D^-½. Norm behind the sum. scripts/listops.sh: 10 layers of 128, κ 4, BatchNorm, `wide_skip`,
//! batches of 50, rate 0.003, weight decay 0.03, dropout 0.1 of whole channels
//! (`block.dropout_tied`), 100 epochs.
//!
//! # Options
//!
//! `kernel` κ; `levels` J (0: by the longest length); `wide_skip`: s begins uniform within 1, the
//! authors' `indep_res_init`. `direction`: `forward`; `sum` adds a second pass from the end with
//! the same weights, `two` with weights of its own.
//!
//! # Padding
//!
//! Padded positions enter the filters as zeros.
//!
//! # Departures
//!
//! The filters that begin as those of a wavelet, and the trees that keep more coefficients of the
//! finest levels (`tree_select` = `uniform`), are left out. Dropout behind W is that of the block.
//! The published code pads every batch to the task's length, and filters and BatchNorm read the
//! padding (classification.py:130-134, 182-185). Its mean is over valid positions, as here.
//! The norms' ε is `block.norm_epsilon` = 1e-6, in the published code 1e-5, of LayerNorm and of
//! BatchNorm (classification.py:84-87).

use crate::{
    encoder::{Ways, blocks_both_ways},
    layers::{GluOutput, OutputGate, OutputInit},
    ops::{Padding, depthwise_conv1d, scale_channels},
    params::{fan_in_uniform, uniform_within},
    prelude::*,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "multires",
    title: "MultiresConv",
    paper: "Sequence Modeling with Multiresolution Convolutional Memory",
    year: 2023,
    arxiv: "2305.01638",
    time: Cost::Linear("O(L·log L)"),
    memory: Cost::Linear("O(L·log L)"),
    reference: Reference::Equations,
    family: Family::Filter,
    settings: r#"{
        "embed": {"positions": "none"},
        "block": {"ffn": "none", "activation": "gelu_erf", "norm_place": "post"}
    }"#,
    variants: &[Variant::paper(build, include_str!("multires.rs"))],
    ..Model::with_options::<Options>()
};

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// κ.
    #[option(default = 4, range = int(2, 4096))]
    kernel: usize,
    /// J.
    #[option(range = int(0, 32))]
    levels: usize,
    wide_skip: bool,
    direction: Ways,
}

fn build(context: &ModelContext) -> Result<Box<dyn Encoder>> {
    let options: Options = context.options()?;
    blocks_both_ways(context, options.direction, |layer| {
        Ok(Box::new(Multires::new(layer, &options)?))
    })
}

struct Multires {
    /// l and h, (D, κ) each, the tap of the position itself last.
    filters: [Tensor; 2],
    /// w (D, J+1): of the last low-pass level, then of the high-pass levels from the last one.
    levels: Tensor,
    /// s (D).
    skip: Tensor,
    output: GluOutput,
}

/// Returns the least J, at least 1, with (κ-1) (2^J - 1) ≥ N - 1.
fn depth(longest: usize, kernel: usize) -> usize {
    let steps = longest.saturating_sub(1).div_ceil(kernel - 1) + 1;
    (steps.next_power_of_two().ilog2() as usize).max(1)
}

impl Multires {
    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let (vb, dim, kernel) = (&layer.vb, layer.block.dim, options.kernel);
        let depth = match options.levels {
            0 => depth(layer.max_length, kernel),
            levels => levels,
        };
        let filter = |name| {
            let init = fan_in_uniform(kernel);
            vb.get_with_hints((dim, kernel), name, init)
        };
        let narrow = fan_in_uniform(depth + 2);
        let skip = match options.wide_skip {
            true => uniform_within(1.0),
            false => narrow,
        };
        Ok(Self {
            filters: [filter("low")?, filter("high")?],
            levels: vb.get_with_hints((dim, depth + 1), "levels", narrow)?,
            skip: vb.get_with_hints(dim, "skip", skip)?,
            output: GluOutput::new(vb, layer.block, OutputGate::Full, OutputInit::Torch)?,
        })
    }

    fn depth(&self) -> usize {
        self.levels.dims()[1] - 1
    }

    /// Returns y of x (B, L, D), with zeros before the sequence.
    fn filter(&self, x: &Tensor) -> Result<Tensor> {
        let depth = self.depth();
        let weight = |level: usize| Ok::<_, Error>(self.levels.narrow(1, level, 1)?.squeeze(1)?);
        let mut y = scale_channels(x, &self.skip)?;
        let mut low = x.clone();
        for level in 0..depth {
            let [next, high] = &self.filters;
            let high = dilated(&low, high, level)?;
            y = ops::add_scaled_channels(&y, &high, &weight(depth - level)?)?;
            low = dilated(&low, next, level)?;
        }
        ops::add_scaled_channels(&y, &low, &weight(0)?)
    }
}

/// Returns the causal convolution of each channel of x (B, L, D) with its row of `filter` (D, κ),
/// whose taps lie 2^`level` apart. 2^`level` neighbours are so many channels of a shorter sequence.
fn dilated(x: &Tensor, filter: &Tensor, level: usize) -> Result<Tensor> {
    let ((batch, length, dim), taps) = (x.dims3()?, filter.dim(1)?);
    let dilation = 1 << level;
    if dilation >= length {
        let own = filter.narrow(1, taps - 1, 1)?.squeeze(1)?;
        return scale_channels(x, &own);
    }
    let rows = length.div_ceil(dilation);
    let filled = x.pad_with_zeros(1, 0, rows * dilation - length)?;
    let filled = filled.reshape((batch, rows, dilation * dim))?;
    let filter = filter.broadcast_as((dilation, dim, taps))?;
    let filter = filter.reshape((dilation * dim, taps))?.contiguous()?;
    let y = depthwise_conv1d(&filled, &filter, None, Padding::Causal, 1)?;
    let y = y.reshape((batch, rows * dilation, dim))?;
    Ok(match rows * dilation == length {
        true => y,
        false => y.narrow(1, 0, length)?.contiguous()?,
    })
}

impl Mixer for Multires {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let y = pass.padded(x, |x, pass| self.filter(&zero_padding(x, pass.mask())?))?;
        self.output.forward(&y, pass)
    }

    fn supports_varlen(&self) -> bool {
        true
    }

    fn is_causal(&self) -> bool {
        true
    }

    fn flops(&self, length: usize) -> u64 {
        let taps = 2 * self.depth() * self.filters[0].elem_count();
        2 * (length * taps) as u64 + self.output.flops(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{agree, check_layer, close, normal, parameters, pass};

    #[test]
    fn levels_are_as_many_as_the_authors_have() {
        // math.ceil(math.log2((L - 1) / (kernel - 1) + 1)) of their code.
        let cases = [
            (2048, 4, 10),
            (1024, 2, 10),
            (1000, 4, 9),
            (4, 4, 1),
            (5, 4, 2),
        ];
        for (longest, kernel, expected) in cases {
            assert_eq!(depth(longest, kernel), expected, "{longest} {kernel}");
        }
    }

    #[test]
    fn neighbours_as_channels_are_taps_further_apart() {
        let filter = candle_core::Var::from_tensor(&normal("filter", &[2, 3])).unwrap();
        for length in [1, 4, 5, 9] {
            let x = candle_core::Var::from_tensor(&normal("x", &[2, length, 2])).unwrap();
            for level in 0..4 {
                let actual = dilated(&x, &filter, level).unwrap();
                let apart = 1 << level;
                let before = x.pad_with_zeros(1, 2 * apart, 0).unwrap();
                let tap = |tap: usize| {
                    let seen = before.narrow(1, tap * apart, length).unwrap();
                    let weight = filter.narrow(1, tap, 1).unwrap().squeeze(1).unwrap();
                    seen.broadcast_mul(&weight).unwrap()
                };
                let expected = ((tap(0) + tap(1)).unwrap() + tap(2)).unwrap();
                close(&actual, &expected, 1e-12, "dilated");
                if apart * 2 < length {
                    let inputs = [x.clone(), filter.clone()];
                    agree(&actual, &expected, &inputs, 1e-12, "dilated");
                }
            }
        }
    }

    #[test]
    fn gradients_agree_with_differences() {
        let parameters = parameters();
        let block = BlockOptions {
            dim: 3,
            ..BlockOptions::default()
        };
        let layer = LayerContext::new(parameters.builder(), &block, 9);
        let options = Options {
            kernel: 2,
            levels: 3,
            ..Options::default()
        };
        let mixer = Multires::new(&layer, &options).unwrap();
        check_layer("multires", &parameters, &[2, 5, 3], |x| {
            mixer.forward(x, &pass())
        });
    }
}
