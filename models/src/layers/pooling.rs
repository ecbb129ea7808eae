//! Pooling of a sequence of hidden states to one vector, without padding.

use candle_core::Tensor;

use crate::{
    Mask, Pass, Result, VarBuilder,
    layers::Mab,
    ops::pooling::{max, weighted_sum},
    options::{BlockOptions, Pooling},
};

/// A way of pooling, with its parameters.
pub enum Pool {
    /// Position 0, be it a CLS token or the first valid one.
    First,
    /// Mean over valid positions.
    Mean,
    /// Sum over valid positions, divided by the length with padding.
    PaddedMean,
    /// Sum over valid positions.
    Sum,
    /// Largest value of each channel over valid positions.
    Max,
    /// Attention of a learned query over the states.
    Attention(Box<Mab>),
}

impl Pool {
    /// Returns the pooling of hidden states as wide as `block` says.
    ///
    /// # Errors
    /// If a path is taken by a parameter of another shape.
    pub fn new(vb: &VarBuilder, pooling: Pooling, block: &BlockOptions) -> Result<Self> {
        Ok(match pooling {
            Pooling::Cls | Pooling::First => Self::First,
            Pooling::Mean => Self::Mean,
            Pooling::PaddedMean => Self::PaddedMean,
            Pooling::Sum => Self::Sum,
            Pooling::Max => Self::Max,
            Pooling::Attention => Self::Attention(Box::new(Mab::new(vb, block, 1, 0.0)?)),
        })
    }

    /// Returns the width of the pooled vector.
    #[must_use]
    pub fn width(&self, block: &BlockOptions) -> usize {
        match self {
            Self::Attention(_) => block.qkv_dim,
            _ => block.dim,
        }
    }

    /// Maps (B, L, D) to (B, width). A sequence with no valid token gives zeros. With CLS and
    /// first, it gives the state at position 0; with attention, the output of the query alone.
    ///
    /// # Errors
    /// If a tensor operation fails.
    pub fn forward(&self, hidden: &Tensor, mask: Option<&Mask>, pass: &Pass) -> Result<Tensor> {
        match self {
            Self::First => Ok(hidden.narrow(1, 0, 1)?.squeeze(1)?),
            Self::Sum => weighted_sum(hidden, &valid(hidden, mask)?),
            Self::Mean => {
                let valid = valid(hidden, mask)?; // (B, L)
                let count = valid.sum_keepdim(1)?; // (B, 1)
                let count = count.maximum(&count.ones_like()?)?;
                weighted_sum(hidden, &valid.broadcast_div(&count)?)
            }
            Self::PaddedMean => {
                let share = 1.0 / hidden.dim(1)? as f64;
                weighted_sum(hidden, &valid(hidden, mask)?.affine(share, 0.0)?)
            }
            Self::Max => match mask {
                Some(mask) => {
                    let additive = mask.additive().unsqueeze(2)?; // (B, L, 1)
                    let most = max(&hidden.broadcast_add(&additive)?, 1)?; // (B, D)
                    Ok(most.broadcast_mul(mask.has_valid())?)
                }
                None => max(hidden, 1),
            },
            Self::Attention(mab) => {
                let gathered = mab.forward(hidden, &pass.with_mask(mask))?; // (B, 1, width)
                Ok(gathered.squeeze(1)?)
            }
        }
    }

    /// Counts the operations for one sequence of `length` hidden states, if they are products.
    #[must_use]
    pub fn flops(&self, length: usize) -> u64 {
        match self {
            Self::Attention(mab) => mab.flops(length),
            _ => 0,
        }
    }
}

/// Returns the mask (B, L), all ones if there is none.
fn valid(hidden: &Tensor, mask: Option<&Mask>) -> Result<Tensor> {
    if let Some(mask) = mask {
        return Ok(mask.valid().clone());
    }
    let (batch, length, _) = hidden.dims3()?;
    Ok(Tensor::ones(
        (batch, length),
        hidden.dtype(),
        hidden.device(),
    )?)
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;
    use crate::{
        RngKey,
        testing::{check_gradient, normal, parameters},
    };

    const ALL: [Pool; 5] = [
        Pool::First,
        Pool::Mean,
        Pool::PaddedMean,
        Pool::Sum,
        Pool::Max,
    ];

    const NAMES: [&str; 5] = ["first", "mean", "padded_mean", "sum", "max"];

    fn pool(pool: &Pool, hidden: &Tensor, mask: Option<&Mask>) -> Result<Tensor> {
        pool.forward(hidden, mask, &Pass::new(false, RngKey::new(1, 0, 0)))
    }

    fn mask() -> Mask {
        let valid = [[1.0, 1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0f64]];
        Mask::new(&Tensor::new(&valid, &Device::Cpu).unwrap()).unwrap()
    }

    #[test]
    fn gradients_agree_with_differences() {
        let mask = mask();
        for (pooling, name) in ALL.iter().zip(NAMES) {
            for mask in [None, Some(&mask)] {
                check_gradient(name, &[&[3, 3, 2]], |inputs| {
                    pool(pooling, &inputs[0], mask)
                });
            }
        }
    }

    #[test]
    fn vectors_are_as_wide_as_is_said() {
        let block = BlockOptions {
            dim: 2,
            qkv_dim: 6,
            ..BlockOptions::default()
        };
        let hidden = normal("hidden", &[3, 3, 2]);
        for pooling in [Pooling::Mean, Pooling::Attention] {
            let layer = Pool::new(&parameters().builder(), pooling, &block).unwrap();
            let pooled = pool(&layer, &hidden, Some(&mask())).unwrap();
            assert_eq!(pooled.dims(), [3, layer.width(&block)]);
        }
    }

    #[test]
    fn values_are_those_over_real_positions() {
        let hidden = normal("hidden", &[3, 3, 2]);
        let h: Vec<Vec<Vec<f64>>> = hidden.to_vec3().unwrap();
        for (pooling, name) in ALL.iter().zip(NAMES) {
            let pooled = pool(pooling, &hidden, Some(&mask())).unwrap();
            let pooled: Vec<Vec<f64>> = pooled.to_vec2().unwrap();
            for channel in 0..2 {
                let (a, b) = (h[0][0][channel], h[0][1][channel]);
                let (two, none) = match pooling {
                    Pool::First => (a, h[2][0][channel]),
                    Pool::Mean => ((a + b) / 2.0, 0.0),
                    Pool::PaddedMean => ((a + b) / 3.0, 0.0),
                    Pool::Sum => (a + b, 0.0),
                    Pool::Max | Pool::Attention(_) => (a.max(b), 0.0),
                };
                let one = match pooling {
                    Pool::PaddedMean => h[1][0][channel] / 3.0,
                    _ => h[1][0][channel],
                };
                let expected = [two, one, none];
                for (row, expected) in expected.iter().enumerate() {
                    // Adding the large number of the padding costs some of an f64's digits.
                    let apart = (pooled[row][channel] - expected).abs();
                    assert!(apart < 1e-6, "{name} row {row}: {apart}");
                }
            }
        }
    }
}
