//! Scores that depend only on distance: z_ij += t_h[j - i].
//!
//! | value | t_h[δ] | source |
//! |---|---|---|
//! | `t5` | a learned number for each head and bucket of distances, all buckets being for earlier keys where attention is causal; products are not divided by √E, and query weights start E^-½ times as large instead | Raffel et al., 2019, arXiv:1910.10683 |
//! | `alibi` | -s_h abs(δ), s_h = 2^(-8 h / H), both ways in time | Press et al., 2021, arXiv:2108.12409 |
//! | `gauss` | -abs(w_h δ² + b_h), learned w_h >= 0 and b_h <= 0 | Guo, Zhang, Liu, 2019, "Gaussian Transformer", AAAI |
//!
//! No number is stored per pair: O(L·H) memory, and one addition for each score.

use std::ops::Range;

use candle_core::{DType, Device, Tensor};
use candle_nn::Init;

use crate::{
    LayerContext, Result, VarBuilder,
    ops::{
        activation::softplus,
        attention::{AttentionOptions, RelativeScores},
    },
    options::BlockOptions,
    params::{Attributes, inverse_softplus},
};

/// A bias by distance, as defined above.
pub(super) enum ByDistance {
    /// Numbers by bucket (32, H), which all layers share, and whether no query sees a later key.
    T5 { buckets: Tensor, causal: bool },
    /// s (H).
    Alibi { slopes: Tensor },
    /// Parameters, each (H), whose softplus are w and b.
    Gauss { width: Tensor, offset: Tensor },
}

/// T5's buckets: half for each sign, or all for earlier keys.
const BUCKETS: usize = 32;
/// The distance from which on all distances share one of T5's buckets.
const FARTHEST: usize = 128;

impl ByDistance {
    /// Creates parameter `bias.t5` (32, H) of the model, N(0, 1/D).
    pub(super) fn t5(layer: &LayerContext) -> Result<Self> {
        let init = Init::Randn {
            mean: 0.0,
            stdev: (layer.block.dim as f64).powf(-0.5),
        };
        let vb = layer.shared.pp("bias");
        Ok(Self::T5 {
            buckets: vb.get_with_attributes(
                (BUCKETS, layer.block.heads),
                "t5",
                init,
                Attributes::NO_DECAY,
            )?,
            causal: false,
        })
    }

    /// Builds ALiBi, which has no parameters.
    pub(super) fn alibi(layer: &LayerContext) -> Result<Self> {
        let slopes = tensor(
            slopes(layer.block.heads),
            layer.vb.dtype(),
            layer.vb.device(),
        )?;
        Ok(Self::Alibi { slopes })
    }

    /// Creates parameters `width` and `offset` (H); w is 0.01 at first and b -0.001.
    pub(super) fn gauss(vb: &VarBuilder, block: &BlockOptions) -> Result<Self> {
        let parameter = |name, y| {
            let value = Init::Const(inverse_softplus(y));
            vb.get_with_hints(block.heads, name, value)
        };
        Ok(Self::Gauss {
            width: parameter("width", 1e-2)?,
            offset: parameter("offset", 1e-3)?,
        })
    }

    /// Returns the bias of attention in which no query sees a later key. Only T5's differs.
    pub(super) fn causal(self) -> Self {
        match self {
            Self::T5 { buckets, .. } => Self::T5 {
                buckets,
                causal: true,
            },
            other => other,
        }
    }

    /// Returns `options` with the scores of `queries` on keys that have `positions`.
    pub(super) fn options(
        &self,
        options: AttentionOptions,
        queries: usize,
        positions: Range<usize>,
    ) -> Result<AttentionOptions> {
        let farthest = queries.max(positions.len()).saturating_sub(1);
        let (reach, scale) = match self {
            Self::T5 { .. } => (farthest.min(FARTHEST), Some(1.0)),
            _ => (farthest, options.scale),
        };
        let relative = RelativeScores {
            reach,
            keys: positions,
            of_heads: Some(self.table(reach)?),
            of_queries: None,
            of_keys: None,
        };
        Ok(AttentionOptions {
            scale,
            relative: Some(relative),
            ..options
        })
    }

    /// Returns t for distances of up to `reach`, (H, 2 reach + 1).
    fn table(&self, reach: usize) -> Result<Tensor> {
        let reach = reach as i64;
        let outer = |column: &Tensor, row: Vec<f64>| -> Result<Tensor> {
            let row = tensor(row, column.dtype(), column.device())?.unsqueeze(0)?;
            Ok(column.unsqueeze(1)?.broadcast_mul(&row)?)
        };
        match self {
            Self::T5 { buckets, causal } => {
                let rows: Vec<u32> = (-reach..=reach)
                    .map(|distance| bucket(distance, *causal) as u32)
                    .collect();
                let rows = Tensor::new(rows, buckets.device())?;
                Ok(buckets.index_select(&rows, 0)?.t()?.contiguous()?)
            }
            Self::Alibi { slopes } => outer(
                slopes,
                (-reach..=reach).map(|d| -(d.abs() as f64)).collect(),
            ),
            Self::Gauss { width, offset } => {
                let squares = (-reach..=reach).map(|d| (d * d) as f64).collect();
                let sum = outer(&softplus(width)?, squares)?;
                let sum = sum.broadcast_sub(&softplus(offset)?.unsqueeze(1)?)?;
                Ok(sum.abs()?.neg()?)
            }
        }
    }
}

/// Converts values to a tensor's device and type.
fn tensor(values: Vec<f64>, dtype: DType, device: &Device) -> Result<Tensor> {
    Ok(Tensor::new(values, &Device::Cpu)?
        .to_dtype(dtype)?
        .to_device(device)?)
}

/// Returns T5's bucket of `distance`, key minus query. Of the n = 16 buckets of each sign, or 32 of
/// earlier keys if `causal`, the first half has one distance each, and the others have distances up
/// to 128 in logarithmic steps. The bucket of later keys is 0 if `causal`.
fn bucket(distance: i64, causal: bool) -> usize {
    let (first, count, apart) = match (causal, distance > 0) {
        (true, _) => (0, BUCKETS, -distance.min(0)),
        (false, later) => (
            usize::from(later) * BUCKETS / 2,
            BUCKETS / 2,
            distance.abs(),
        ),
    };
    let (exact, apart) = ((count / 2) as f64, apart as f64);
    let bucket = match apart < exact {
        true => apart,
        false => {
            let share = (apart / exact).ln() / (FARTHEST as f64 / exact).ln();
            (exact + (share * exact).floor()).min(2.0 * exact - 1.0)
        }
    };
    first + bucket as usize
}

/// Returns ALiBi's slopes: a geometric sequence from 2^(-8 / H), for H a power of two; else those
/// of the power of two below H, and then every second of the one above.
fn slopes(heads: usize) -> Vec<f64> {
    let of_power =
        |heads: usize| (1..=heads).map(move |h| 2f64.powf(-8.0 * h as f64 / heads as f64));
    let below = match heads.is_power_of_two() {
        true => heads,
        false => heads.next_power_of_two() / 2,
    };
    of_power(below)
        .chain(of_power(2 * below).step_by(2))
        .take(heads)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::parameters;

    /// Expected values by transformers 4.40.2, `T5Attention._relative_position_bucket`,
    /// bidirectional.
    #[test]
    fn buckets_are_those_of_t5() {
        for (distance, expected) in [
            (0, 0),
            (-1, 1),
            (-7, 7),
            (-8, 8),
            (-11, 8),
            (-12, 9),
            (-127, 15),
            (-128, 15),
            (-5000, 15),
            (1, 17),
            (7, 23),
            (8, 24),
            (300, 31),
        ] {
            assert_eq!(bucket(distance, false), expected, "{distance}");
        }
    }

    /// Expected values by transformers 4.40.2, `T5Attention._relative_position_bucket`, of a
    /// decoder.
    #[test]
    fn buckets_of_causal_attention_are_those_of_the_decoder() {
        for (distance, expected) in [
            (5000, 0),
            (1, 0),
            (0, 0),
            (-1, 1),
            (-15, 15),
            (-16, 16),
            (-18, 16),
            (-19, 17),
            (-31, 21),
            (-64, 26),
            (-113, 31),
            (-127, 31),
            (-5000, 31),
        ] {
            assert_eq!(bucket(distance, true), expected, "{distance}");
        }
    }

    /// Attention takes the last score of the table for all distances beyond it.
    #[test]
    fn scores_of_t5_reach_as_far_as_its_buckets() {
        let parameters = parameters();
        let block = BlockOptions::default();
        let layer = LayerContext::new(parameters.builder(), &block, 300);
        let both_ways = ByDistance::t5(&layer).unwrap();
        let ahead = ByDistance::t5(&layer).unwrap().causal();
        for (scores, causal) in [(both_ways, false), (ahead, true)] {
            let options = scores.options(AttentionOptions::default(), 300, 0..300);
            let reach = options.unwrap().relative.unwrap().reach as i64;
            for distance in -299..300 {
                let taken = bucket(distance.clamp(-reach, reach), causal);
                assert_eq!(taken, bucket(distance, causal), "{distance}");
            }
        }
    }

    #[test]
    fn slopes_are_those_of_the_paper() {
        assert_eq!(slopes(2), [1.0 / 16.0, 1.0 / 256.0]);
        assert_eq!(slopes(8)[0], 0.5);
        let six = slopes(6);
        assert_eq!(six[..4], slopes(4));
        assert_eq!(six[4..], [slopes(8)[0], slopes(8)[2]]);
    }

    /// 1 + eˣ has few digits of a small width, which squared distances make large.
    #[test]
    fn small_widths_keep_their_digits_at_long_distances() {
        let width = inverse_softplus(5e-7);
        let table = |dtype| {
            let number = |x: f64| tensor(vec![x], dtype, &Device::Cpu).unwrap();
            let gauss = ByDistance::Gauss {
                width: number(width),
                offset: number(width),
            };
            let table = gauss.table(1_000).unwrap().flatten_all().unwrap();
            let table = table.to_dtype(DType::F64).unwrap();
            table.to_vec1::<f64>().unwrap()
        };
        let (got, expected) = (table(DType::F32), table(DType::F64));
        assert!((expected[0] + 0.5).abs() < 1e-3, "{}", expected[0]);
        for (got, expected) in got.iter().zip(&expected) {
            assert!((got - expected).abs() < 1e-5, "{got} {expected}");
        }
    }
}
