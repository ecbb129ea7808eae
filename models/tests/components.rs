//! Every value of every component, around mixers of four kinds: softmax attention, linear attention, a
//! sparse pattern, sorted blocks.

#![allow(clippy::unwrap_used)]

use candle_core::{DType, Device, Tensor};
use lra_models::{
    COMPONENTS, Classifier, Inputs, MODELS, Model, Options, Parameters, Pass, RngKey, Shape,
    Tokens,
    loss::{self, AuxLosses},
    mixers,
    options::{ChannelKind, Choice, Component, Layers, NormKind, NormPlace, Pooling, Positions},
    params::Updates,
};
use serde_json::json;

const KINDS: [&str; 4] = ["transformer", "performer", "local", "sinkhorn"];

fn small(model: &Model) -> Options {
    let mut options = Options::of(model);
    options.block.dim = 16;
    options.block.qkv_dim = 16;
    options.block.mlp_dim = 24;
    options.head.hidden = 12;
    options
}

fn shape() -> Shape {
    Shape {
        vocabulary: 11,
        classes: 5,
        towers: 1,
        max_length: 23,
        padding: true,
        grid: None,
    }
}

fn inputs(lengths: &[usize], width: usize) -> Inputs {
    let (mut ids, mut valid) = (Vec::new(), Vec::new());
    for (row, &length) in lengths.iter().enumerate() {
        for position in 0..width {
            let inside = position < length;
            let id = 1 + (row * 7 + position * position * 3 + position) % 10;
            ids.push(if inside { id as u32 } else { 0 });
            valid.push(f32::from(u8::from(inside)));
        }
    }
    let shape = (lengths.len(), width);
    Inputs {
        towers: vec![Tokens {
            ids: Tensor::from_vec(ids, shape, &Device::Cpu).unwrap(),
            mask: Some(Tensor::from_vec(valid, shape, &Device::Cpu).unwrap()),
        }],
    }
}

fn each(check: impl Fn(&str, &Component, &Choice, &Model, &Options)) {
    for component in COMPONENTS {
        for choice in component.values {
            for name in KINDS {
                let model = mixers::find(name).unwrap();
                let options = component.set(&small(model), choice).unwrap();
                let place = format!("{name}, {} = {}", component.key, choice.value);
                if component.try_around(model, choice).is_ok() {
                    check(&place, component, choice, model, &options);
                }
            }
        }
    }
}

fn classifier(model: &Model, options: &Options, dtype: DType) -> (Classifier, Parameters) {
    let parameters = Parameters::new(17, &Device::Cpu, dtype);
    let classifier = Classifier::new(model, &shape(), options, &parameters).unwrap();
    (classifier, parameters)
}

fn values(tensor: &Tensor) -> Vec<f64> {
    let tensor = tensor.to_dtype(DType::F64).unwrap();
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

#[test]
fn defaults_are_the_first_values() {
    for component in COMPONENTS {
        let model = mixers::find("transformer").unwrap();
        let options = Options::of(model);
        assert_eq!(
            component.set(&options, &component.values[0]).unwrap(),
            options,
            "{}",
            component.key
        );
    }
}

/// Listings, settings and messages get the names from one place.
#[test]
fn a_value_is_called_the_same_in_lists_settings_and_messages() {
    use lra_models::options::{Choices, PairBias};
    let names: Vec<&str> = PairBias::CHOICES.iter().map(|it| it.value).collect();
    assert_eq!(
        names,
        [
            "none",
            "t5",
            "alibi",
            "gauss",
            "shaw",
            "xl",
            "deberta",
            "deberta_paper"
        ]
    );
    for choice in PairBias::CHOICES {
        let bias: PairBias = serde_json::from_value(choice.value.into()).unwrap();
        assert_eq!(bias.to_string(), choice.value);
    }
    let rows = COMPONENTS.iter().flat_map(|component| {
        let values = component.values.iter();
        values.map(|it| {
            format!(
                "{} = {}: {} {:?}",
                component.key, it.value, it.summary, it.wants
            )
        })
    });
    let rows: Vec<String> = rows.collect();
    for row in [
        "block.norm = scale: ScaleNorm: one gain for the row's length []",
        "block.residual = rezero: x + α y, α = 0 at first (ReZero) [(\"block.norm\", \"none\")]",
        "block.dropout_tied = true: of a channel at all positions (S4) [(\"block.ffn\", \"none\")]",
        "block.memory = 0: every key is a token's []",
        "embed.positions = none: no position embedding []",
        "head.layers = mix: a weighted sum of all blocks' (transparent attention) []",
    ] {
        assert!(rows.iter().any(|it| it == row), "{row} in {rows:#?}");
    }
}

#[test]
fn every_parameter_gets_a_gradient() {
    each(|place, _, _, model, options| {
        let (classifier, parameters) = classifier(model, options, DType::F32);
        let pass = Pass::new(true, RngKey::new(17, 3, 0));
        let labels = Tensor::new(&[0u32, 3, 4], &Device::Cpu).unwrap();
        let backward = || {
            let logits = classifier.forward(&inputs(&[23, 9, 1], 23), &pass).unwrap();
            let loss = loss::cross_entropy(&logits, &labels).unwrap();
            loss.backward().unwrap()
        };
        let mut gradients = backward();
        if options.block.residual == lra_models::options::Residual::Rezero {
            // Values of the second step.
            for (_, var) in parameters.all() {
                let step = gradients.get(&var).unwrap().affine(0.1, 0.0).unwrap();
                var.set(&(var.as_detached_tensor() - step).unwrap())
                    .unwrap();
            }
            gradients = backward();
        }
        for (path, var) in parameters.all() {
            let gradient = gradients
                .get(&var)
                .unwrap_or_else(|| panic!("{place}: {path} has none"));
            let gradient = values(gradient);
            assert!(gradient.iter().all(|x| x.is_finite()), "{place}: {path}");
            assert!(
                gradient.iter().any(|x| *x != 0.0),
                "{place}: {path} has zeros"
            );
        }
    });
}

#[test]
fn padding_changes_no_logit() {
    each(|place, _, _, model, options| {
        let (classifier, _) = classifier(model, options, DType::F32);
        let pass = Pass::new(false, RngKey::new(17, 0, 0));
        let lengths = [13, 5];
        let [short, long] = [13, 23]
            .map(|width| values(&classifier.forward(&inputs(&lengths, width), &pass).unwrap()));
        for (short, long) in short.iter().zip(&long) {
            assert!((short - long).abs() < 1e-5, "{place}: {short} {long}");
        }
    });
}

#[test]
fn fused_and_composed_forms_agree() {
    each(|place, _, _, model, options| {
        // Dropout of attention weights is no matter of the components.
        let mut options = options.clone();
        options.block.attention_dropout = 0.0;
        let [fused, composed] = [DType::F32, DType::F64].map(|dtype| {
            let (classifier, _) = classifier(model, &options, dtype);
            let pass = Pass::new(true, RngKey::new(17, 3, 0));
            values(&classifier.forward(&inputs(&[23, 9], 23), &pass).unwrap())
        });
        let scale = composed.iter().fold(1.0f64, |most, x| most.max(x.abs()));
        for (fused, composed) in fused.iter().zip(&composed) {
            assert!(
                (fused - composed).abs() < 1e-4 * scale,
                "{place}: {fused} {composed}"
            );
        }
    });
}

#[test]
fn shared_blocks_have_one_blocks_parameters_and_masks_of_their_own() {
    let model = mixers::find("transformer").unwrap();
    let mut options = small(model);
    options.block.share = true;
    let size = |layers: usize| {
        let mut options = options.clone();
        options.block.layers = layers;
        classifier(model, &options, DType::F32).1.elements()
    };
    assert_eq!(size(1), size(5));
    // With one set of dropout masks for all blocks, two passes that differ in the number of blocks
    // would drop alike.
    let rng = RngKey::new(1, 2, 3);
    assert_ne!(rng.repetition(1), rng);
    assert_ne!(rng.with_branch(1).repetition(1), rng.repetition(1));
}

#[test]
fn combinations_without_a_meaning_are_refused() {
    let model = mixers::find("transformer").unwrap();
    let refused = |change: fn(&mut Options), words: &str| {
        let mut options = small(model);
        change(&mut options);
        let error = options.validate().unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    };
    use lra_models::options::{Gate, Residual};
    refused(
        |options| options.block.residual = Residual::Rezero,
        "block.norm = none",
    );
    refused(
        |options| options.block.residual = Residual::Admin,
        "norm_place = post",
    );
    refused(
        |options| {
            options.block.gate = Gate::Glu;
            options.block.ffn = ChannelKind::None;
        },
        "block.ffn = none",
    );
    refused(
        |options| {
            options.block.residual = Residual::Reversible;
            options.block.norm_place = NormPlace::Post;
        },
        "block.norm_place = post",
    );
    refused(
        |options| {
            options.embed.positions = Positions::None;
            options.embed.every_layer = true;
        },
        "unless embed.positions is sinusoid or learned",
    );
    refused(
        |options| {
            options.block.norm = NormKind::Batch;
            options.block.norm_place = NormPlace::Pre;
            options.block.last_norm = true;
            options.head.layers = Layers::Mix;
        },
        "running statistics are of one layer",
    );
    refused(
        |options| options.block.soft_cap = 1e-9,
        "0, or at least 0.001",
    );
    refused(
        |options| options.block.soft_cap = 1e9,
        "0, or at least 0.001",
    );
    refused(
        |options| {
            options.block.residual = Residual::Reversible;
            options.block.share = true;
        },
        "block.share = true",
    );
    refused(
        |options| {
            options.block.residual = Residual::Reversible;
            options.block.norm = NormKind::Batch;
        },
        "block.norm = power, batch",
    );
    refused(
        |options| {
            options.block.residual = Residual::Reversible;
            options.embed.positions = Positions::Conditional;
        },
        "embed.positions = conditional",
    );
    refused(
        |options| {
            options.block.norm_place = NormPlace::Post;
            options.block.last_norm = false;
        },
        "none to leave out",
    );
    refused(
        |options| options.block.dropout_tied = true,
        "unless block.ffn = none",
    );
}

/// Running statistics are of one depth: after many updates with the same weights and rows, an
/// evaluation computes with them what training computes with the batch's own.
#[test]
fn blocks_that_share_weights_have_running_statistics_of_their_own() {
    for name in [
        "transformer",
        "universal",
        "mega",
        "megalodon",
        "chordmixer",
        "seqboat",
        "funnel",
    ] {
        let mut options = small(mixers::find(name).unwrap());
        options.block.norm = NormKind::BatchMasked;
        options.block.norm_momentum = 0.9;
        (options.block.dropout, options.embed.dropout) = (0.0, 0.0);
        options.block.attention_dropout = 0.0;
        options.block.layers = 3;
        options.block.share = true;
        let parameters = Parameters::new(17, &Device::Cpu, DType::F32);
        let model = mixers::find(name).unwrap();
        let classifier = Classifier::new(model, &shape(), &options, &parameters).unwrap();
        let inputs = inputs(&[23; 64], 23);
        let logits = |train: bool| {
            let updates = Updates::default();
            let pass = Pass::new(train, RngKey::new(1, 0, 0)).with_updates(&updates);
            let logits = classifier.forward(&inputs, &pass).unwrap();
            updates.commit(&parameters).unwrap();
            logits
        };
        for _ in 0..8 {
            logits(true);
        }
        let apart = (logits(true) - logits(false)).unwrap().abs().unwrap();
        let apart: f32 = apart.max_all().unwrap().to_scalar().unwrap();
        assert!(apart < 0.02, "{name}: {apart}");
    }
}

#[test]
fn the_cls_token_of_a_causal_model_sees_all_tokens() {
    for (name, option, value) in [
        ("transformer", "attention", json!("causal")),
        ("gru", "direction", json!("forward")),
        ("s4d", "direction", json!("forward")),
    ] {
        let model = mixers::find(name).unwrap();
        let mut options = small(model);
        options.embed.positions = Positions::None;
        options.head.pooling = Pooling::Cls;
        options.model[option] = value;
        let parameters = Parameters::new(17, &Device::Cpu, DType::F32);
        let classifier = Classifier::new(model, &shape(), &options, &parameters).unwrap();
        let logits = |last: u32| {
            let ids = Tensor::new(&[[1u32, 2, 3, 4, last], [1, last, 0, 0, 0]], &Device::Cpu);
            let mask = Tensor::new(&[[1f32; 5], [1.0, 1.0, 0.0, 0.0, 0.0]], &Device::Cpu);
            let towers = vec![Tokens {
                ids: ids.unwrap(),
                mask: Some(mask.unwrap()),
            }];
            let pass = Pass::new(false, RngKey::new(1, 5, 0));
            let logits = classifier.forward(&Inputs { towers }, &pass).unwrap();
            logits.to_vec2::<f32>().unwrap()
        };
        for (seen, other) in logits(5).iter().zip(&logits(6)) {
            assert_ne!(seen, other, "{name}");
        }
    }
    for (name, pooling, alone) in [
        ("gru", Pooling::First, true),
        ("gru", Pooling::Mean, false),
        ("gru", Pooling::Cls, false),
        ("linear", Pooling::First, false),
    ] {
        let mut options = small(mixers::find(name).unwrap());
        options.head.pooling = pooling;
        let meta = Parameters::meta(&Device::Cpu, DType::F32);
        let model = mixers::find(name).unwrap();
        let classifier = Classifier::new(model, &shape(), &options, &meta).unwrap();
        assert_eq!(classifier.reads_first_token_alone(), alone, "{name}");
    }
    let mut options = small(mixers::find("bag").unwrap());
    options.head.pooling = Pooling::Cls;
    let parameters = Parameters::new(17, &Device::Cpu, DType::F32);
    let bag = mixers::find("bag").unwrap();
    let error = Classifier::new(bag, &shape(), &options, &parameters).err();
    let error = error.unwrap().to_string();
    assert!(error.starts_with("head.pooling = cls"), "{error}");
}

/// Layers in which information only moves forward see the CLS token last. Positions that are
/// marked within the encoder would be those of its neighbours.
#[test]
fn a_cls_token_that_moves_refuses_positions_marked_on_the_way() {
    for name in ["transformer_xl", "compressive", "hierarchical", "mamba"] {
        let model = mixers::find(name).unwrap();
        let built = |every_layer: bool, positions, pooling| {
            let mut options = small(model);
            options.embed.positions = positions;
            options.embed.every_layer = every_layer;
            options.head.pooling = pooling;
            let parameters = Parameters::new(17, &Device::Cpu, DType::F32);
            let built = Classifier::new(model, &shape(), &options, &parameters);
            built.err().map(|error| error.to_string())
        };
        let refused = built(false, Positions::Conditional, Pooling::Cls).unwrap();
        assert!(refused.contains("where head.pooling = cls"), "{refused}");
        assert_eq!(built(false, Positions::Conditional, Pooling::Mean), None);
        assert_eq!(built(false, Positions::Learned, Pooling::Cls), None);
        let refused = built(true, Positions::Learned, Pooling::Cls).unwrap();
        assert!(refused.contains("embed.every_layer"), "{refused}");
    }
}

/// Every model of the registry supports a component about queries, keys and scores, or refuses it by
/// name of the component and with a reason; with the component it computes another function than without.
#[test]
fn every_model_takes_a_component_about_scores_or_says_why_not() {
    let all = [
        "block.bias",
        "block.soft_cap",
        "block.rotary",
        "block.memory",
    ];
    let logits = |model: &Model, options: &Options| -> lra_models::Result<Vec<f64>> {
        let parameters = Parameters::new(17, &Device::Cpu, DType::F32);
        let classifier = Classifier::new(model, &shape(), options, &parameters)?;
        // ReZero's factors are 0 at first, and mixers without influence.
        for (_, var) in parameters
            .all()
            .iter()
            .filter(|(path, _)| path.ends_with("alpha"))
        {
            var.set(&var.ones_like()?)?;
        }
        let pass = Pass::new(false, RngKey::new(17, 0, 0));
        Ok(values(&classifier.forward(&inputs(&[23, 9], 23), &pass)?))
    };
    for model in MODELS {
        for component in COMPONENTS
            .iter()
            .filter(|component| all.contains(&component.key))
        {
            // A model may have the component as a setting of its own.
            let plain = component.set(&small(model), &component.values[0]).unwrap();
            let plain = logits(model, &plain).unwrap();
            for choice in &component.values[1..] {
                let place = format!("{}, {} = {}", model.name, component.key, choice.value);
                let options = component.set(&small(model), choice).unwrap();
                match logits(model, &options) {
                    Ok(found) => {
                        assert!(found.iter().all(|x| x.is_finite()), "{place}");
                        assert_ne!(found, plain, "{place}");
                    }
                    Err(error) => {
                        let error = error.to_string();
                        assert!(
                            error.contains(component.key) && error.contains("because"),
                            "{error}"
                        );
                    }
                }
            }
        }
    }
}

/// Settings are checked on a model without weights, before training starts.
#[test]
fn a_model_without_weights_refuses_what_one_with_weights_does() {
    for model in MODELS {
        for component in COMPONENTS {
            for choice in component.values {
                let Ok(options) = component.set(&small(model), choice) else {
                    continue;
                };
                let refused = |parameters: Parameters| {
                    let built = Classifier::new(model, &shape(), &options, &parameters);
                    built.err().map(|error| error.to_string())
                };
                let meta = refused(Parameters::meta(&Device::Cpu, DType::F32));
                let drawn = refused(Parameters::new(17, &Device::Cpu, DType::F32));
                let place = format!("{}, {} = {}", model.name, component.key, choice.value);
                assert_eq!(meta, drawn, "{place}");
            }
        }
    }
}

#[test]
fn rotation_leaves_what_depends_on_distance() {
    // Without other positions a bag of equal tokens in another order is the same to a Transformer;
    // not with a rotation or a bias.
    let model = mixers::find("transformer").unwrap();
    let mut options = small(model);
    options.embed.positions = Positions::None;
    let logits = |options: &Options, backwards: bool| {
        let (classifier, _) = classifier(model, options, DType::F64);
        let mut ids: Vec<u32> = vec![1, 5, 2, 7, 3];
        if backwards {
            ids.reverse();
        }
        let inputs = Inputs {
            towers: vec![Tokens {
                ids: Tensor::from_vec(ids, (1, 5), &Device::Cpu).unwrap(),
                mask: None,
            }],
        };
        let pass = Pass::new(false, RngKey::new(17, 0, 0));
        values(&classifier.forward(&inputs, &pass).unwrap())
    };
    let differs = |options: &Options| {
        let (one, other) = (logits(options, false), logits(options, true));
        one.iter().zip(&other).any(|(a, b)| (a - b).abs() > 1e-9)
    };
    assert!(!differs(&options));
    options.block.rotary = true;
    assert!(differs(&options));
}

/// A norm that counts padding wants the same there of kernels as of composed layers: blocks of
/// queries that are all padding are not left out then, and a query that sees no valid key gets
/// zeros.
#[test]
fn kernels_and_composed_layers_agree_where_a_norm_counts_padding() {
    let lengths = [150, 9, 70];
    let mut tried = 0;
    for model in MODELS {
        let mut options = small(model);
        options.block.norm = NormKind::Batch;
        let shape = Shape {
            max_length: 150,
            ..shape()
        };
        let logits = |dtype| {
            let parameters = Parameters::new(17, &Device::Cpu, dtype);
            let classifier = Classifier::new(model, &shape, &options, &parameters).ok()?;
            let pass = Pass::new(true, RngKey::new(17, 3, 0));
            let logits = classifier.forward(&inputs(&lengths, 150), &pass).unwrap();
            Some(values(&logits))
        };
        let (Some(single), Some(double)) = (logits(DType::F32), logits(DType::F64)) else {
            continue;
        };
        tried += 1;
        let scale = double.iter().fold(1.0f64, |most, x| most.max(x.abs()));
        for (single, double) in single.iter().zip(&double) {
            let apart = (single - double).abs();
            assert!(apart < 1e-3 * scale, "{}: {single} {double}", model.name);
        }
    }
    assert!(tried > 50, "{tried}");
}

/// The form of the paper's third term is a variant of DeBERTa, and a bias of the Transformer.
#[test]
fn deberta_has_the_form_of_its_code_and_that_of_its_paper() {
    let deberta = mixers::find("deberta").unwrap();
    let logits = |model: &'static Model, options: &Options| {
        let parameters = Parameters::new(17, &Device::Cpu, DType::F64);
        let classifier = Classifier::new(model, &shape(), options, &parameters).unwrap();
        let pass = Pass::new(false, RngKey::new(17, 0, 0));
        values(&classifier.forward(&inputs(&[23, 9], 23), &pass).unwrap())
    };
    let code = small(deberta);
    let mut paper = code.clone();
    paper.model["variant"] = "paper".into();
    let transformer = mixers::find("transformer").unwrap();
    let mut bias = small(transformer);
    bias.embed = code.embed.clone();
    bias.block = code.block.clone();
    bias.block.bias = lra_models::options::PairBias::DebertaPaper;
    let [code, paper] = [code, paper].map(|options| logits(deberta, &options));
    assert_ne!(code, paper);
    assert_eq!(paper, logits(transformer, &bias));
}

/// Means over valid positions are means over all where there is no mask.
#[test]
fn without_a_mask_losses_are_those_of_a_mask_of_ones() {
    for (name, own) in [
        ("adaptive_span", json!({"span": "dynamic"})),
        ("compressive", json!({"segment": 4})),
        ("primal", json!({})),
        ("routing", json!({})),
        ("switch", json!({})),
        (
            "transformer",
            json!({"attention": "materialised", "span": true}),
        ),
        ("universal", json!({"halting": "act"})),
    ] {
        let model = mixers::find(name).unwrap();
        let mut options = small(model);
        for (key, value) in own.as_object().unwrap() {
            options.model[key] = value.clone();
        }
        let (classifier, _) = classifier(model, &options, DType::F64);
        let losses = |masked: bool| -> Vec<(&'static str, f64)> {
            let mut inputs = inputs(&[23, 23], 23);
            if !masked {
                inputs.towers[0].mask = None;
            }
            let losses = AuxLosses::default();
            let pass = Pass::new(true, RngKey::new(17, 3, 0));
            let pass = pass.with_losses(&losses);
            classifier.forward(&inputs, &pass).unwrap();
            let means = losses.means().unwrap().into_iter();
            means.map(|(name, mean)| (name, values(&mean)[0])).collect()
        };
        let (masked, whole) = (losses(true), losses(false));
        assert!(!whole.is_empty() && whole.len() == masked.len(), "{name}");
        for ((loss, masked), (other, whole)) in masked.iter().zip(&whole) {
            let place = format!("{name}: {loss} {masked}, {other} {whole}");
            assert!(loss == other && (masked - whole).abs() < 1e-9, "{place}");
        }
    }
}

/// A model that takes `block.dropout_tied` drops whole channels by it, not single elements, also by
/// a dropout of its own.
#[test]
fn tied_dropout_is_another_one_in_every_model_that_takes_it() {
    let mut taken = 0;
    let own = ["flash", "gau", "mega", "mega_chunk"];
    let own = own.map(|name| (mixers::find(name).unwrap(), true));
    let all = MODELS.iter().map(|model| (*model, false)).chain(own);
    for (model, own) in all {
        let logits = |tied: bool| {
            let mut options = small(model);
            options.block.ffn = ChannelKind::None;
            options.block.dropout = 0.4;
            if own {
                options.block.dropout = 0.0;
                options.model["hidden_dropout"] = json!(0.4);
            }
            options.block.dropout_tied = tied;
            let parameters = Parameters::new(17, &Device::Cpu, DType::F32);
            let classifier = Classifier::new(model, &shape(), &options, &parameters).ok()?;
            // Away from gains of zero, which hide a mixer.
            for (_, var) in parameters.all() {
                let moved = var.as_detached_tensor().affine(1.0, 0.05).unwrap();
                var.set(&moved).unwrap();
            }
            let pass = Pass::new(true, RngKey::new(3, 1, 0));
            let output = classifier.forward(&inputs(&[23, 9], 23), &pass);
            Some(values(&output.unwrap()))
        };
        if let (Some(single), Some(tied)) = (logits(false), logits(true)) {
            assert_ne!(single, tied, "{}, own dropout: {own}", model.name);
            taken += 1;
        }
    }
    assert!(taken > 40, "{taken}");
}
