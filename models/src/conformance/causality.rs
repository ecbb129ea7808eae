//! Causality, as [`crate::Mixer::is_causal`] states it, tested by other tokens behind a position.

use super::*;
use crate::backbone::Backbone;

/// Returns the options of all variants, and these with the option that makes a model causal, where
/// it has one.
fn forms(model: &'static Model) -> Vec<Options> {
    let mut forms = Vec::new();
    for (_, options) in variants(model) {
        for (key, value) in [
            ("causal", true.into()),
            ("attention", "causal".into()),
            ("direction", "forward".into()),
        ] {
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

const LENGTHS: [(usize, &[usize]); 3] = [(23, &[1, 8, 13, 22]), (70, &[33, 64]), (150, &[97])];

/// Checks that no hidden state of a model that claims to be causal depends on a later token, and
/// that some state of any other model does.
pub(super) fn a_position_sees_what_follows_unless_the_model_is_causal(model: &'static Model) {
    for options in forms(model) {
        let mut options = by_rows(options);
        options.head.pooling = Pooling::Mean;
        for dtype in [DType::F32, DType::F64] {
            judge(model, &options, dtype);
        }
    }
}

/// Checks the hidden states of one form of a model.
fn judge(model: &'static Model, options: &Options, dtype: DType) {
    let mut blind = false;
    for (length, cuts) in LENGTHS {
        let parameters = Parameters::new(SEED, &Device::Cpu, dtype);
        let backbone = match Backbone::new(model, &of_length(length), options, &parameters) {
            Ok(backbone) => backbone,
            // A variant need not have every form.
            Err(error) if error.is_of_options() => return,
            Err(error) => refuse(error),
        };
        shift_zeros(&parameters);
        if !backbone.is_causal() {
            // Rounding alone moves states of f32, and layers around a mixer may see what follows.
            if dtype == DType::F32 || backbone.sees_later().is_some() {
                return;
            }
            let moved = |cut| first_moved(&backbone, length, cut, options, &evaluation(), 1e-9);
            if cuts.iter().any(|&cut| moved(cut) < cut) {
                return;
            }
            blind = true;
            continue;
        }
        for pass in [training(1, 0), evaluation()] {
            for &cut in cuts {
                let moved = first_moved(&backbone, length, cut, options, &pass, 1e-4);
                assert!(
                    moved >= cut,
                    "{}: the hidden state at position {moved} of {length} changes with tokens from position {cut} on, but \
                     `is_causal` says that none depends on what follows",
                    model.name
                );
            }
        }
    }
    assert!(
        !blind,
        "{}: no hidden state depends on what follows, but `is_causal` is false",
        model.name
    );
}

/// Returns the first position whose hidden state moves by more than `tolerance` if the tokens from
/// `cut` on are others; `length` if there is none.
fn first_moved(
    backbone: &Backbone,
    length: usize,
    cut: usize,
    options: &Options,
    pass: &Pass,
    tolerance: f64,
) -> usize {
    let [first, other] = [0, 3].map(|salt| tokens(&[length], length, salt));
    let states = |tokens: &Tokens| {
        let (encoded, _) = backbone.encode(tokens, None, false, pass).kept();
        let hidden = encoded.hidden.to_dtype(DType::F64).kept();
        hidden.flatten_all().kept().to_vec1::<f64>().kept()
    };
    let ids = [
        first.ids.narrow(1, 0, cut).kept(),
        other.ids.narrow(1, cut, length - cut).kept(),
    ];
    let after = states(&Tokens {
        ids: Tensor::cat(&ids, 1).kept(),
        mask: first.mask.clone(),
    });
    let before = states(&first);
    let mut pairs = before.iter().zip(&after);
    let moved = pairs.position(|(a, b)| (a - b).abs() > tolerance);
    // A model with fewer states than positions has no place to compare.
    moved.map_or(length, |place| place / options.block.dim)
}
