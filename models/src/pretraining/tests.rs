use candle_core::{DType, Device};
use serde_json::json;

use super::*;
use crate::{
    Classifier, RngKey, mixers,
    options::{Input, Pooling, Positions},
    testing::{check_layer, close, parameters, shape},
};

const MASKED: Objective = Objective::Masked { share: 0.4 };

fn options(name: &str) -> Options {
    let mut options = Options::of(mixers::find(name).unwrap());
    options.block.dim = 4;
    options.block.qkv_dim = 4;
    options.block.heads = 2;
    options.block.mlp_dim = 5;
    if name == "transformer" {
        options.model["attention"] = json!("causal");
    }
    options
}

fn build(name: &str, towers: usize, objective: Objective, parameters: &Parameters) -> TokenModel {
    let model = mixers::find(name).unwrap();
    TokenModel::new(model, &shape(towers), &options(name), objective, parameters).unwrap()
}

/// Returns rows of 6, 3 and 0 valid tokens.
fn tokens(salt: u32) -> Tokens {
    let ids: Vec<u32> = (0..18).map(|at| (at * at + salt) % 5).collect();
    let valid = [6, 3, 0].map(|valid| (0..6).map(move |at| f64::from(u8::from(at < valid))));
    let valid: Vec<f64> = valid.into_iter().flatten().collect();
    Tokens {
        ids: Tensor::from_vec(ids, (3, 6), &Device::Cpu).unwrap(),
        mask: Some(Tensor::from_vec(valid, (3, 6), &Device::Cpu).unwrap()),
    }
}

fn inputs(towers: u32) -> Inputs {
    Inputs {
        towers: (0..towers).map(tokens).collect(),
    }
}

fn pass(train: bool, step: u64, first: u64) -> Pass<'static> {
    Pass::new(train, RngKey::new(1, step, first))
}

#[test]
fn gradients_agree_with_differences() {
    for (name, towers, objective) in [
        ("linear", 1, MASKED),
        ("linear", 2, MASKED),
        ("transformer", 1, Objective::Next),
        ("transformer", 2, Objective::Next),
    ] {
        let parameters = parameters();
        let model = build(name, towers, objective, &parameters);
        check_layer(name, &parameters, &[3], |x| {
            let predictions = model.forward(&inputs(towers as u32), &pass(true, 3, 0))?;
            Ok((predictions.losses + x)?)
        });
    }
}

/// Builds a model without positions whose state at a token depends on that token alone.
fn by_token(name: &str, objective: Objective, pooling: Pooling) -> TokenModel {
    let parameters = parameters();
    let mut options = options(name);
    options.embed.positions = Positions::None;
    options.head.pooling = pooling;
    let model = mixers::find(name).unwrap();
    let model = TokenModel::new(model, &shape(1), &options, objective, &parameters).unwrap();
    for (path, var) in parameters.all() {
        if path.starts_with("encoder.") && var.rank() == 2 {
            var.set(&var.zeros_like().unwrap()).unwrap();
        }
    }
    model
}

/// Returns the loss of one sequence.
fn loss_of(model: &TokenModel, ids: &[u32]) -> f64 {
    let ids = Tensor::new(ids, &Device::Cpu).unwrap();
    let inputs = Inputs {
        towers: vec![Tokens {
            ids: ids.unsqueeze(0).unwrap(),
            mask: None,
        }],
    };
    let predictions = model.forward(&inputs, &pass(false, 3, 0)).unwrap();
    predictions.losses.to_vec1::<f64>().unwrap()[0]
}

/// All hidden tokens have one state, so those of one id have the same loss wherever they stand.
#[test]
fn a_cls_token_moves_the_states_that_are_read() {
    let loss = |pooling| loss_of(&by_token("linear", MASKED, pooling), &[2; 6]);
    let (behind, alone) = (loss(Pooling::Cls), loss(Pooling::Mean));
    assert!((behind - alone).abs() < 1e-12, "{behind} {alone}");
}

#[test]
fn each_token_is_asked_for_the_one_behind_it() {
    let model = by_token("transformer", Objective::Next, Pooling::Mean);
    let [first, second, both] = [&[1, 3][..], &[3, 2], &[1, 3, 2]].map(|ids| loss_of(&model, ids));
    assert!(first > 0.0 && second > 0.0 && first != second);
    assert!((both - (first + second) / 2.0).abs() < 1e-12);
}

#[test]
fn losses_and_shares_of_right_predictions_are_means_over_towers() {
    for towers in [1, 2] {
        let parameters = parameters();
        let model = build("transformer", towers, Objective::Next, &parameters);
        // Id 4 is predicted everywhere.
        for (path, var) in parameters.all() {
            let value = match path.as_str() {
                "pretrain.decoder.weight" => var.zeros_like().unwrap(),
                "pretrain.decoder.bias" => {
                    Tensor::new(&[0.0, 0.0, 0.0, 0.0, 9.0], &Device::Cpu).unwrap()
                }
                _ => continue,
            };
            var.set(&value).unwrap();
        }
        let inputs = Inputs {
            towers: (0..towers).map(|_| tokens(0)).collect(),
        };
        let predictions = model.forward(&inputs, &pass(false, 3, 0)).unwrap();
        // Behind the first token follow 1, 4, 4, 1, 0 in one sequence, and 4, 4 in the other.
        let expected = Tensor::new(&[0.4, 1.0, 0.0], &Device::Cpu).unwrap();
        close(&predictions.right, &expected, 1e-12, "right");
        let all = (4.0 + 9f64.exp()).ln();
        let expected = Tensor::new(&[all - 9.0 * 0.4, all - 9.0, 0.0], &Device::Cpu).unwrap();
        close(&predictions.losses, &expected, 1e-12, "losses");
    }
}

/// With the same tokens hidden in both, two equal towers would have the loss of one.
#[test]
fn towers_hide_tokens_of_their_own() {
    let parameters = parameters();
    let [one, two] = [1, 2].map(|towers| {
        let model = build("linear", towers, MASKED, &parameters);
        let inputs = Inputs {
            towers: (0..towers).map(|_| tokens(0)).collect(),
        };
        let predictions = model.forward(&inputs, &pass(false, 3, 0)).unwrap();
        predictions.losses.to_vec1::<f64>().unwrap()
    });
    let mut pairs = one.iter().zip(&two);
    assert!(pairs.any(|(a, b)| (a - b).abs() > 1e-9), "{one:?} {two:?}");
}

#[test]
fn what_stays_is_what_a_classifier_begins_with() {
    let (tokens, classes) = (parameters(), parameters());
    build("linear", 1, MASKED, &tokens);
    let (model, options) = (mixers::find("linear").unwrap(), options("linear"));
    Classifier::new(model, &shape(1), &options, &classes).unwrap();
    let shared = |parameters: &Parameters| {
        let all = parameters.all().into_iter();
        let values = |tensor: &Tensor| tensor.flatten_all().unwrap().to_vec1::<f64>().unwrap();
        all.filter(|(path, _)| path.starts_with("embed.") || path.starts_with("encoder."))
            .map(|(path, var)| (path, values(&var)))
            .collect::<Vec<_>>()
    };
    assert_eq!(shared(&tokens), shared(&classes));
    let own: Vec<_> = tokens.all().into_iter().map(|(path, _)| path).collect();
    let own: Vec<_> = own
        .iter()
        .filter(|path| path.starts_with("pretrain."))
        .collect();
    assert_eq!(
        own,
        [
            "pretrain.decoder.bias",
            "pretrain.decoder.weight",
            "pretrain.token"
        ]
    );
}

#[test]
fn a_batch_may_be_cut_anywhere_and_scoring_hides_the_same_at_any_step() {
    let parameters = parameters();
    let model = build("linear", 2, MASKED, &parameters);
    let losses = |train: bool, step: u64, rows: std::ops::Range<usize>| {
        let part = |t: &Tensor| t.narrow(0, rows.start, rows.len()).unwrap();
        let towers = inputs(2).towers.into_iter().map(|it| Tokens {
            ids: part(&it.ids),
            mask: it.mask.as_ref().map(part),
        });
        let inputs = Inputs {
            towers: towers.collect(),
        };
        let pass = pass(train, step, rows.start as u64);
        model.forward(&inputs, &pass).unwrap().losses
    };
    for train in [true, false] {
        let parts = Tensor::cat(&[losses(train, 4, 0..1), losses(train, 4, 1..3)], 0).unwrap();
        close(&losses(train, 4, 0..3), &parts, 1e-12, "parts");
    }
    close(
        &losses(false, 4, 0..3),
        &losses(false, 9, 0..3),
        1e-12,
        "scored",
    );
    let apart = (losses(true, 4, 0..3) - losses(true, 9, 0..3)).unwrap();
    let apart: f64 = apart.abs().unwrap().max_all().unwrap().to_scalar().unwrap();
    assert!(apart > 1e-6, "every step hides others");
    // A sequence of padding has no targets.
    let none = losses(true, 4, 2..3).to_vec1::<f64>().unwrap();
    assert_eq!(none, [0.0]);
}

#[test]
fn what_cannot_predict_is_refused() {
    let refusal = |name: &str, objective, change: fn(&mut Options)| {
        let mut options = options(name);
        change(&mut options);
        let meta = Parameters::meta(&Device::Cpu, DType::F32);
        let model = mixers::find(name).unwrap();
        let built = TokenModel::new(model, &shape(1), &options, objective, &meta);
        built.err().map(|error| error.to_string())
    };
    for (name, objective, change, why) in [
        (
            "funnel",
            MASKED,
            (|_| ()) as fn(&mut Options),
            "one per token",
        ),
        ("hierarchical", Objective::Next, |_| (), "one per token"),
        (
            "performer",
            Objective::Next,
            |_| (),
            "no option that makes it causal",
        ),
        (
            "transformer",
            Objective::Next,
            |it| it.model["attention"] = json!("fused"),
            "sees the tokens that it would predict, unless model.attention = causal",
        ),
        (
            "linear",
            MASKED,
            |it| it.embed.positions = Positions::Complex,
            "embed.positions",
        ),
        (
            "linear",
            MASKED,
            |it| it.embed.input = Input::Scalar,
            "embed.input = scalar",
        ),
        (
            "gru",
            Objective::Next,
            |it| it.head.pooling = Pooling::Cls,
            "with head.pooling = cls",
        ),
    ] {
        let error = refusal(name, objective, change).unwrap();
        assert!(
            error.starts_with("pretrain.kind = ") && error.contains(why),
            "{name}: {error}"
        );
    }
    let cls = refusal("linear", MASKED, |it| it.head.pooling = Pooling::Cls);
    assert_eq!(cls, None);
}
