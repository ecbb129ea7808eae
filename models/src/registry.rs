//! Functions over all models, block options and auxiliary heads.
//!
//! This module stands above all modules with registered items, and none of them imports it.

use std::collections::BTreeMap;

use crate::{auxiliary, block::channel, loss::Loss, registry};

/// Returns every loss that a registered model, an option of the block or an auxiliary head can
/// add, sorted by name.
#[must_use]
pub fn losses() -> Vec<Loss> {
    let variants = registry().iter().flat_map(|model| model.variants);
    let losses = variants
        .flat_map(|variant| variant.losses)
        .chain(channel::LOSSES)
        .chain(auxiliary::LOSSES);
    let by_name: BTreeMap<_, _> = losses.map(|loss| (loss.name, *loss)).collect();
    by_name.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loss_has_one_weight_whoever_declares_it() {
        let all = losses();
        assert!(!all.is_empty());
        let of_variants = registry().iter().flat_map(|model| model.variants);
        let declared = of_variants
            .flat_map(|variant| variant.losses)
            .chain(channel::LOSSES)
            .chain(auxiliary::LOSSES);
        for loss in declared {
            assert!(all.contains(loss), "{}", loss.name);
        }
    }
}
