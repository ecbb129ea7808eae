//! The loss over logits, and what a model adds to it.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
};

use candle_core::Tensor;

use crate::Result;
pub use crate::ops::{cross_entropies, cross_entropy};

/// A loss beside the cross-entropy, declared by the model, the axis or the head that adds it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loss {
    /// What settings (`train.aux.<name>`) and logs call it.
    pub name: &'static str,
    /// The weight that it usually has.
    pub weight: f64,
}

impl Loss {
    /// A loss of this name and usual weight.
    #[must_use]
    pub const fn new(name: &'static str, weight: f64) -> Self {
        Self { name, weight }
    }
}

/// Losses beside the cross-entropy, gathered from one forward pass (see [`crate::Pass::add_loss`]).
#[derive(Default)]
pub struct AuxLosses(Mutex<BTreeMap<&'static str, Tensor>>);

impl AuxLosses {
    pub(crate) fn add(&self, loss: &Loss, per_row: &Tensor) -> Result<()> {
        let mut sums = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sum = match sums.get(loss.name) {
            Some(sum) => (sum + per_row)?,
            None => per_row.clone(),
        };
        sums.insert(loss.name, sum);
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

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;
    use crate::{Pass, RngKey};

    #[test]
    fn losses_of_layers_add_up_and_towers_share_an_example() {
        const BALANCE: Loss = Loss::new("balance", 1.0);
        let losses = AuxLosses::default();
        let pass = Pass::new(true, RngKey::new(0, 0, 0));
        let gathering = pass.with_losses(&losses);
        let per_row = |values: &[f64]| Tensor::new(values, &Device::Cpu).unwrap();
        for tower in 0..2 {
            let tower = gathering.of_tower(tower, 2);
            tower.add_loss(&BALANCE, &per_row(&[1.0, 3.0])).unwrap();
            tower.add_loss(&BALANCE, &per_row(&[0.0, 2.0])).unwrap();
        }
        pass.add_loss(&BALANCE, &per_row(&[100.0, 100.0])).unwrap();
        let means = losses.means().unwrap();
        assert_eq!(means.len(), 1);
        assert_eq!(means[0].0, "balance");
        assert_eq!(means[0].1.to_scalar::<f64>().unwrap(), 3.0);
    }
}
