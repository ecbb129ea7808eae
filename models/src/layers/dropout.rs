//! Dropout with a mask that is a function of (seed, step, path, row, element).

use candle_core::Tensor;
use candle_nn::VarBuilder;

use crate::{Context, Result, draws::StreamKey, kernels::AttentionDropout};

/// Zeroes each element with probability `rate` in training and scales the others by `1 / (1 - rate)`.
pub struct Dropout {
    rate: f64,
    key: StreamKey,
}

impl Dropout {
    /// Draws from the stream named by `vb`'s path; `rate` is in [0, 1).
    #[must_use]
    pub fn new(vb: &VarBuilder, rate: f64) -> Self {
        Self {
            rate,
            key: StreamKey::new(&vb.prefix()),
        }
    }

    /// The dropout of attention weights in this pass; none in evaluation or at rate 0.
    #[must_use]
    pub fn of_attention(&self, batch: usize, context: &Context) -> Option<AttentionDropout> {
        let stream = context.draws.per_example(self.key);
        (context.train && self.rate > 0.0).then(|| AttentionDropout::new(&stream, batch, self.rate))
    }

    /// Same shape as `x`, whose first dimension is the batch.
    ///
    /// # Errors
    /// If a tensor operation fails.
    pub fn forward(&self, x: &Tensor, context: &Context) -> Result<Tensor> {
        if !context.train || self.rate == 0.0 {
            return Ok(x.clone());
        }
        let stream = context.draws.per_example(self.key);
        let mask = stream.mask_tensor(x.shape(), self.rate, x.dtype(), x.device())?;
        Ok((x * mask)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Draws,
        layers::testing::{check_gradient, normal, parameters},
    };

    #[test]
    fn gradients_agree_with_differences() {
        let dropout = Dropout::new(&parameters().builder().pp("drop"), 0.4);
        let context = Context::new(true, Draws::new(1, 2, 0));
        check_gradient("dropout", &[&[3, 5]], |inputs| {
            dropout.forward(&inputs[0], &context)
        });
    }

    #[test]
    fn evaluation_and_rate_zero_change_nothing() {
        let x = normal("x", &[3, 5]);
        let vb = parameters().builder();
        let values = |x: &Tensor| x.to_vec2::<f64>().unwrap();
        for (rate, train) in [(0.4, false), (0.0, true)] {
            let context = Context::new(train, Draws::new(1, 2, 0));
            let y = Dropout::new(&vb, rate).forward(&x, &context).unwrap();
            assert_eq!(values(&y), values(&x));
        }
    }
}
