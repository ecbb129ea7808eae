//! The loss over logits, and what a model adds to it.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use candle_core::{D, Tensor};

use crate::{Result, kernels};

/// Losses beside the cross-entropy, gathered from one forward pass (see [`crate::Pass::add_loss`]).
#[derive(Default)]
pub struct AuxLosses(Mutex<BTreeMap<&'static str, Tensor>>);

impl AuxLosses {
    pub(crate) fn add(&self, name: &'static str, per_row: &Tensor) -> Result<()> {
        let mut sums = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sum = match sums.get(name) {
            Some(sum) => (sum + per_row)?,
            None => per_row.clone(),
        };
        sums.insert(name, sum);
        Ok(())
    }

    /// The mean of each over the rows of the batch, a scalar, by name in the order of names.
    ///
    /// # Errors
    /// If a tensor operation fails.
    pub fn means(self) -> Result<Vec<(&'static str, Tensor)>> {
        let sums = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        sums.into_iter()
            .map(|(name, per_row)| Ok((name, per_row.mean_all()?)))
            .collect()
    }
}

/// Mean over the batch of the softmax cross-entropy, in nats: `mean_b(log sum_c exp x_bc - x_b,label)`.
///
/// `logits` is (B, C), `labels` (B) of type u32, each less than C. The result is a scalar.
///
/// # Errors
/// If shapes do not agree, or a tensor operation fails.
pub fn cross_entropy(logits: &Tensor, labels: &Tensor) -> Result<Tensor> {
    match kernels::supports(logits) {
        true => Ok(kernels::cross_entropy(logits, labels)?),
        false => Ok(composed(logits, labels)?),
    }
}

/// The same in candle's operations, for any type and device.
pub(crate) fn composed(logits: &Tensor, labels: &Tensor) -> candle_core::Result<Tensor> {
    let (batch, _) = logits.dims2()?;
    // The maximum is a constant: it cancels, so no gradient has to pass through it.
    let max = logits.detach().max_keepdim(D::Minus1)?; // (B, 1)
    let shifted = logits.broadcast_sub(&max)?; // (B, C)
    let log_sum = shifted.exp()?.sum_keepdim(D::Minus1)?.log()?; // (B, 1)
    let chosen = shifted.gather(&labels.unsqueeze(1)?, 1)?; // (B, 1)
    (log_sum - chosen)?
        .sum_all()?
        .affine(1.0 / batch as f64, 0.0)
}

#[cfg(test)]
mod tests {
    use candle_core::{Device, Var};

    use super::*;
    use crate::{Pass, RngKey};

    #[test]
    fn losses_of_layers_add_up_and_towers_share_an_example() {
        let losses = AuxLosses::default();
        let pass = Pass::new(true, RngKey::new(0, 0, 0));
        let gathering = pass.with_losses(&losses);
        let per_row = |values: &[f64]| Tensor::new(values, &Device::Cpu).unwrap();
        for tower in 0..2 {
            let tower = gathering.of_tower(tower, 2);
            tower.add_loss("balance", &per_row(&[1.0, 3.0])).unwrap();
            tower.add_loss("balance", &per_row(&[0.0, 2.0])).unwrap();
        }
        pass.add_loss("balance", &per_row(&[100.0, 100.0])).unwrap();
        let means = losses.means().unwrap();
        assert_eq!(means.len(), 1);
        assert_eq!(means[0].0, "balance");
        assert_eq!(means[0].1.to_scalar::<f64>().unwrap(), 3.0);
    }

    #[test]
    fn value_and_gradient_are_those_of_the_formula() {
        // Rows far from zero: without the shift, exp would overflow even in f64.
        let rows = [[1000.0, 1001.0, 998.0], [-3.0, 0.5, 2.0f64]];
        let labels = [2u32, 0];
        let logits = Var::new(&rows, &Device::Cpu).unwrap();
        let loss = cross_entropy(&logits, &Tensor::new(&labels, &Device::Cpu).unwrap()).unwrap();
        let gradient = loss
            .backward()
            .unwrap()
            .get(&logits)
            .unwrap()
            .to_vec2()
            .unwrap();
        let mut expected = 0.0;
        for (row, (values, label)) in rows.iter().zip(labels).enumerate() {
            let max = values.iter().fold(f64::MIN, |a, &b| a.max(b));
            let sum: f64 = values.iter().map(|x| (x - max).exp()).sum();
            expected += (sum.ln() + max - values[label as usize]) / 2.0;
            for (class, x) in values.iter().enumerate() {
                let one = f64::from(class == label as usize);
                let wanted: f64 = ((x - max).exp() / sum - one) / 2.0;
                let found: f64 = gradient[row][class];
                assert!((wanted - found).abs() < 1e-12, "{wanted} {found}");
            }
        }
        assert!((loss.to_scalar::<f64>().unwrap() - expected).abs() < 1e-12);
    }
}
