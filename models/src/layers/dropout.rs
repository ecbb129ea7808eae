//! Dropout with a mask that is a function of (seed, step, path, row, element).

use candle_core::Tensor;

use crate::{
    Pass, Result, VarBuilder,
    ops::{
        DropoutMask, add, add_dropped,
        attention::{AttentionDropout, WeightDropout},
        dropout,
    },
    rng::{Stream, StreamKey},
};

/// Dropout of elements. In training it zeroes each of them with probability `rate`, and scales the
/// others by `1 / (1 - rate)`.
pub struct Dropout {
    rate: f64,
    key: StreamKey,
    tied: bool,
}

impl Dropout {
    /// Creates a dropout with `rate`, in [0, 1). The path of `vb` names its random stream.
    #[must_use]
    pub fn new(vb: &VarBuilder, rate: f64) -> Self {
        Self {
            rate,
            key: StreamKey::new(&vb.prefix()),
            tied: false,
        }
    }

    /// Returns this dropout, with one mask for all positions of a sequence if `tied` (Gal and
    /// Ghahramani, 2015, arXiv:1512.05287). It is then for x (B, L, D), whose elements (b, d) are
    /// dropped for every l or for none.
    #[must_use]
    pub fn tied(self, tied: bool) -> Self {
        Self { tied, ..self }
    }

    /// Returns the dropout of attention weights in this pass, for `batch` examples. `None` in
    /// evaluation or at rate 0.
    #[must_use]
    pub fn of_attention(&self, batch: usize, pass: &Pass) -> Option<AttentionDropout> {
        let (stream, rate) = self.rng(pass)?;
        Some(AttentionDropout::new(&stream, batch, rate))
    }

    /// Returns the dropout of attention weights in this pass, for attention that is computed in
    /// parts and a batch of `examples`. Each part needs a `Dropout` of its own. Nothing is dropped
    /// in evaluation or at rate 0.
    #[must_use]
    pub(crate) fn of_weights(&self, examples: usize, pass: &Pass) -> WeightDropout {
        WeightDropout::new(self.rng(pass), examples)
    }

    /// Returns the stream and rate in this pass; none in evaluation or at rate 0.
    pub(crate) fn rng(&self, pass: &Pass) -> Option<(Stream, f64)> {
        (pass.train && self.rate > 0.0).then(|| (pass.rng.per_example(self.key), self.rate))
    }

    /// Returns the dropout mask of this pass; none in evaluation or at rate 0.
    pub(crate) fn mask<'a>(&self, pass: &Pass<'a>) -> Option<DropoutMask<'a>> {
        let (stream, rate) = self.rng(pass)?;
        Some(DropoutMask {
            stream,
            rate,
            tied: self.tied,
            packing: pass.packing(),
        })
    }

    /// Returns x after dropout, in the same shape: (B, ..) with an example in each row, or
    /// (1, T, D) in a pass over packed sequences with T valid positions in all. In evaluation it
    /// returns x.
    ///
    /// # Errors
    /// If a tensor operation fails.
    pub fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        match self.mask(pass) {
            Some(mask) => dropout(x, &mask),
            None => Ok(x.clone()),
        }
    }

    /// Returns `residual` plus x after dropout, for two tensors of one shape. Shapes are (B, ..),
    /// or (1, T, D) in a pass over packed sequences, as in [`Dropout::forward`].
    ///
    /// # Errors
    /// If the shapes differ or a tensor operation fails.
    pub fn add(&self, residual: &Tensor, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        match self.mask(pass) {
            Some(mask) => add_dropped(residual, x, &mask),
            None => add(residual, x),
        }
    }
}

#[cfg(test)]
mod tests {
    use candle_core::DType;

    use super::*;
    use crate::{
        RngKey,
        testing::{check_gradient, close, normal, parameters},
    };

    #[test]
    fn gradients_agree_with_differences() {
        let dropout = Dropout::new(&parameters().builder().pp("drop"), 0.4);
        let pass = Pass::new(true, RngKey::new(1, 2, 0));
        check_gradient("dropout", &[&[3, 5]], |inputs| {
            dropout.forward(&inputs[0], &pass)
        });
    }

    #[test]
    fn the_kernel_and_the_composed_form_drop_the_same_elements() {
        let (x, residual) = (normal("x", &[3, 5, 9]), normal("residual", &[3, 5, 9]));
        let dropout = Dropout::new(&parameters().builder().pp("drop"), 0.4);
        let pass = Pass::new(true, RngKey::new(1, 2, 7));
        let composed = dropout.add(&residual, &x, &pass).unwrap();
        let single = |x: &Tensor| x.to_dtype(DType::F32).unwrap();
        let fused = dropout.add(&single(&residual), &single(&x), &pass);
        close(&fused.unwrap(), &single(&composed), 1e-6, "fused");
    }

    #[test]
    fn a_tied_mask_is_one_for_all_positions() {
        let x = normal("x", &[3, 40, 5]).ones_like().unwrap();
        let dropout = Dropout::new(&parameters().builder().pp("drop"), 0.4).tied(true);
        let pass = Pass::new(true, RngKey::new(1, 2, 0));
        let y = dropout.forward(&x, &pass).unwrap();
        let y: Vec<Vec<Vec<f64>>> = y.to_vec3().unwrap();
        assert!(y.iter().all(|row| row.iter().all(|y| *y == row[0])));
        let first: Vec<f64> = y.iter().flat_map(|row| row[0].clone()).collect();
        assert!(first.contains(&0.0) && first.iter().any(|y| *y > 1.0));
        check_gradient("tied dropout", &[&[2, 3, 5], &[2, 3, 5]], |inputs| {
            dropout.add(&inputs[0], &inputs[1], &pass)
        });
    }

    #[test]
    fn evaluation_and_rate_zero_change_nothing() {
        let x = normal("x", &[3, 5]);
        let vb = parameters().builder();
        let values = |x: &Tensor| x.to_vec2::<f64>().unwrap();
        for (rate, train) in [(0.4, false), (0.0, true)] {
            let pass = Pass::new(train, RngKey::new(1, 2, 0));
            let y = Dropout::new(&vb, rate).forward(&x, &pass).unwrap();
            assert_eq!(values(&y), values(&x));
        }
    }
}
