//! Causality, where it is claimed ([`crate::Mixer::is_causal`]), tested by other tokens behind a
//! position.

use super::*;
use crate::backbone::Backbone;

/// Returns the options of all variants, and these with the option that makes a model causal, where
/// it has one.
fn forms(model: &'static Model) -> Vec<Options> {
    let mut forms = Vec::new();
    for (_, options) in variants(model) {
        for (key, value) in [("causal", true.into()), ("attention", "causal".into())] {
            if !options.model[key].is_null() {
                let mut causal = options.clone();
                causal.model[key] = value;
                forms.push(causal);
            }
        }
        forms.push(options);
    }
    forms
}

/// Checks for a model that claims to be causal that no hidden state depends on a later token.
pub(super) fn no_position_sees_what_follows_where_that_is_claimed(model: &'static Model) {
    const LENGTH: usize = 23;
    for mut options in forms(model) {
        options.head.pooling = Pooling::Mean;
        for dtype in [DType::F32, DType::F64] {
            let parameters = Parameters::new(SEED, &Device::Cpu, dtype);
            let backbone = match Backbone::new(model, &shape(1), &options, &parameters) {
                Ok(backbone) => backbone,
                // A variant need not have every form.
                Err(Error::Option { .. } | Error::Word { .. }) => continue,
                Err(error) => refuse(error),
            };
            if !backbone.is_causal() {
                continue;
            }
            let states = |tokens: &Tokens, pass: &Pass| {
                let (encoded, _) = backbone.encode(tokens, None, false, pass).kept();
                let hidden = encoded.hidden.to_dtype(DType::F64).kept();
                hidden.flatten_from(1).kept().to_vec2::<f64>().kept()
            };
            let [first, other] = [0, 3].map(|salt| tokens(&[LENGTH], LENGTH, salt));
            let width = options.block.dim;
            for (cut, pass) in [1, 8, 13, LENGTH - 1]
                .into_iter()
                .flat_map(|cut| [(cut, training(1, 0)), (cut, evaluation())])
            {
                let ids = [
                    first.ids.narrow(1, 0, cut).kept(),
                    other.ids.narrow(1, cut, LENGTH - cut).kept(),
                ];
                let changed = Tokens {
                    ids: Tensor::cat(&ids, 1).kept(),
                    mask: first.mask.clone(),
                };
                let (before, after) = (states(&first, &pass), states(&changed, &pass));
                let pairs = before[0].iter().zip(&after[0]).enumerate();
                let moved = pairs.filter(|(_, (a, b))| (**a - **b).abs() > 1e-4);
                let moved: Vec<usize> = moved.map(|(place, _)| place / width).collect();
                let first_moved = moved.first().copied().unwrap_or(LENGTH);
                assert!(
                    first_moved >= cut,
                    "{}: the hidden state at position {first_moved} changes with tokens from position {cut} on, but `is_causal` \
                     says that none depends on what follows",
                    model.name
                );
            }
        }
    }
}
