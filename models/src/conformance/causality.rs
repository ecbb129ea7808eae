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
    for options in forms(model) {
        let mut options = by_rows(options);
        options.head.pooling = Pooling::Mean;
        for (length, cuts) in [(23, &[1, 8, 13, 22][..]), (70, &[33, 64]), (150, &[97])] {
            judge(model, &options, length, cuts);
        }
    }
}

/// Checks the hidden states of `length` tokens, of which those from each of `cuts` on are changed.
fn judge(model: &'static Model, options: &Options, length: usize, cuts: &[usize]) {
    for dtype in [DType::F32, DType::F64] {
        let parameters = Parameters::new(SEED, &Device::Cpu, dtype);
        let backbone = match Backbone::new(model, &of_length(length), options, &parameters) {
            Ok(backbone) => backbone,
            // A variant need not have every form.
            Err(error) if error.is_of_options() => return,
            Err(error) => refuse(error),
        };
        if !backbone.is_causal() {
            return;
        }
        shift_zeros(&parameters);
        let [first, other] = [0, 3].map(|salt| tokens(&[length], length, salt));
        let width = options.block.dim;
        for pass in [training(1, 0), evaluation()] {
            let states = |tokens: &Tokens| {
                let (encoded, _) = backbone.encode(tokens, None, false, &pass).kept();
                let hidden = encoded.hidden.to_dtype(DType::F64).kept();
                hidden.flatten_all().kept().to_vec1::<f64>().kept()
            };
            let before = states(&first);
            for &cut in cuts {
                let ids = [
                    first.ids.narrow(1, 0, cut).kept(),
                    other.ids.narrow(1, cut, length - cut).kept(),
                ];
                let after = states(&Tokens {
                    ids: Tensor::cat(&ids, 1).kept(),
                    mask: first.mask.clone(),
                });
                let mut pairs = before.iter().zip(&after);
                let moved = pairs.position(|(a, b)| (a - b).abs() > 1e-4);
                let moved = moved.map_or(length, |place| place / width);
                assert!(
                    moved >= cut,
                    "{}: the hidden state at position {moved} of {length} changes with tokens from position {cut} on, but \
                     `is_causal` says that none depends on what follows",
                    model.name
                );
            }
        }
    }
}
