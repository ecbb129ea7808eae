use candle_core::{DType, Device};
use serde_json::json;

use super::*;
use crate::{
    Classifier, Inputs, Mask, Parameters, RngKey,
    loss::{AuxLosses, cross_entropy},
    mixers,
    options::{Input, NormKind, Pooling},
    testing::{check_layer, close, normal, parameters, shape},
};

fn options(name: &str) -> Options {
    let mut options = Options::of(mixers::find(name).unwrap());
    options.block.layers = 3;
    options.block.dim = 4;
    options.block.qkv_dim = 4;
    options.block.heads = 2;
    options.block.mlp_dim = 5;
    options.head.hidden = 4;
    options
}

fn causal() -> Options {
    let mut options = options("transformer");
    options.model["attention"] = json!("causal");
    options
}

const ALL: Auxiliary = Auxiliary {
    layers: 1.0,
    positions: 1.0,
    next: 1.0,
    masked: 1.0,
};

fn build(
    name: &str,
    expected: &Auxiliary,
    towers: usize,
    options: &Options,
    parameters: &Parameters,
) -> Result<Classifier> {
    let (model, shape) = (mixers::find(name).unwrap(), shape(towers));
    Classifier::new(model, &shape, options, parameters)?
        .with_auxiliary(expected, &shape, options, parameters)
}

fn refusal(name: &str, expected: &Auxiliary, options: &Options) -> String {
    let meta = Parameters::meta(&Device::Cpu, DType::F32);
    let error = build(name, expected, 1, options, &meta).err().unwrap();
    error.to_string()
}

/// Returns three sequences of up to `ids[0].len()` tokens.
fn tokens(ids: [&[u32]; 3], valid: [usize; 3]) -> Tokens {
    let length = ids[0].len();
    let mask = valid.map(|valid| (0..length).map(move |at| f64::from(u8::from(at < valid))));
    let mask: Vec<f64> = mask.into_iter().flatten().collect();
    Tokens {
        ids: Tensor::new(ids.concat(), &Device::Cpu)
            .unwrap()
            .reshape((3, length))
            .unwrap(),
        mask: Some(Tensor::from_vec(mask, (3, length), &Device::Cpu).unwrap()),
    }
}

fn pair() -> Inputs {
    let one = tokens([&[1, 2, 3, 4], &[4, 1, 0, 0], &[2, 0, 0, 0]], [4, 2, 1]);
    let other = [
        &[3, 3, 1, 2, 4, 1][..],
        &[1, 2, 2, 0, 0, 0],
        &[4, 2, 1, 1, 1, 0],
    ];
    Inputs {
        towers: vec![one, tokens(other, [6, 3, 5])],
    }
}

fn supervision(progress: f64) -> Supervision {
    Supervision {
        labels: Tensor::new(&[0u32, 2, 1], &Device::Cpu).unwrap(),
        progress,
    }
}

/// Returns the cross-entropy and every loss, by name, of the pair.
fn losses(classifier: &Classifier, progress: f64) -> Result<Vec<(&'static str, Tensor)>> {
    let (all, told) = (AuxLosses::default(), supervision(progress));
    let pass = Pass::new(true, RngKey::new(1, 5, 0));
    let pass = pass.with_losses(&all).with_supervision(&told);
    let logits = classifier.forward(&pair(), &pass)?;
    let mut actual = all.means()?;
    actual.push(("class", cross_entropy(&logits, &told.labels)?));
    Ok(actual)
}

#[test]
fn gradients_agree_with_differences() {
    let parameters = parameters();
    let classifier = build("transformer", &ALL, 2, &causal(), &parameters).unwrap();
    assert_eq!(classifier.losses(), [LAYERS, POSITIONS, NEXT, MASKED]);
    check_layer("auxiliary losses", &parameters, &[1], |x| {
        let mut sum = x.clone();
        for (_, loss) in losses(&classifier, 0.0)? {
            sum = (sum + loss.reshape(1)?)?;
        }
        Ok(sum)
    });
}

#[test]
fn layers_stop_one_after_the_other_and_half_of_training_is_without() {
    let parameters = parameters();
    let mut options = options("bag");
    options.block.layers = 4;
    let backbone = Backbone::new(
        mixers::find("bag").unwrap(),
        &shape(1),
        &options,
        &parameters,
    )
    .unwrap();
    let vb = parameters.builder().pp(AUXILIARY);
    let expected = Auxiliary {
        layers: 0.3,
        ..Auxiliary::default()
    };
    let heads = AuxiliaryHeads::new(&expected, &backbone, &shape(1), &options, &vb);
    let heads = heads.unwrap().unwrap();
    let at = |progress| heads.layers_at(progress).collect::<Vec<_>>();
    assert_eq!(at(0.0), [0, 1, 2]);
    assert_eq!(at(0.124), [0, 1, 2]);
    assert_eq!(at(0.125), [1, 2], "layer 1 of 4 is over after an eighth");
    assert_eq!(at(0.25), [2]);
    assert!(at(0.375).is_empty() && at(1.0).is_empty());
}

/// The first head of two puts out zeros: its loss is that of guessing, until it stops after a sixth
/// of training.
#[test]
fn the_loss_of_layers_is_a_mean_over_those_in_use() {
    let parameters = parameters();
    let only = Auxiliary {
        layers: 1.0,
        ..Auxiliary::default()
    };
    let classifier = build("bag", &only, 2, &options("bag"), &parameters).unwrap();
    for (path, var) in parameters.all() {
        if path.starts_with("aux.layers.0.") {
            var.set(&var.zeros_like().unwrap()).unwrap();
        }
    }
    let loss = |progress| {
        let all = losses(&classifier, progress).unwrap();
        let (_, loss) = all.iter().find(|(name, _)| *name == "layers").unwrap();
        loss.to_scalar::<f64>().unwrap()
    };
    let guess = (shape(2).classes as f64).ln();
    let (both, second) = (loss(0.0), loss(0.2));
    assert!(
        (both - (guess + second) / 2.0).abs() < 1e-12,
        "{both} {second}"
    );
}

#[test]
fn what_is_over_or_not_asked_for_costs_nothing() {
    let first = parameters();
    let classifier = build("transformer", &ALL, 2, &causal(), &first).unwrap();
    let names = |progress| {
        let actual = losses(&classifier, progress).unwrap();
        actual.iter().map(|(name, _)| *name).collect::<Vec<_>>()
    };
    assert_eq!(
        names(0.0),
        ["layers", "masked", "next", "positions", "class"]
    );
    assert_eq!(names(0.5), ["masked", "next", "positions", "class"]);
    let none = parameters();
    let plain = build("transformer", &Auxiliary::default(), 2, &causal(), &none).unwrap();
    assert!(plain.losses().is_empty());
    assert!(none.all().iter().all(|(path, _)| !path.starts_with("aux.")));
    // Scoring does not see them.
    let pass = Pass::new(false, RngKey::new(1, 5, 0));
    let [one, other] = [&classifier, &plain].map(|it| it.forward(&pair(), &pass).unwrap());
    close(&one, &other, 1e-12, "logits");
}

#[test]
fn prefixes_are_running_means_over_real_positions() {
    let x = normal("x", &[2, 4, 3]);
    let valid = Tensor::new(&[[1f64, 1.0, 1.0, 1.0], [1.0, 1.0, 0.0, 0.0]], &Device::Cpu).unwrap();
    let encoded = Encoded {
        hidden: x.clone(),
        mask: Some(Mask::new(&valid).unwrap()),
    };
    let (means, all) = prefixes(&x, &encoded, 6).unwrap();
    let counts: Vec<f64> = all.sum(1).unwrap().to_vec1().unwrap();
    assert_eq!((means.dims(), counts), (&[2, 6, 3][..], vec![4.0, 2.0]));
    for (row, last) in [(0, 4), (1, 2)] {
        for at in 0..6 {
            let front = x.get(row).unwrap().narrow(0, 0, last.min(at + 1)).unwrap();
            let actual = means.get(row).unwrap().get(at).unwrap();
            close(&actual, &front.mean(0).unwrap(), 1e-12, "prefix");
        }
    }
}

#[test]
fn a_row_of_padding_alone_has_no_loss_at_positions() {
    let (parameters, options) = (parameters(), options("bag"));
    let model = mixers::find("bag").unwrap();
    let backbone = Backbone::new(model, &shape(1), &options, &parameters).unwrap();
    let vb = parameters.builder().pp(AUXILIARY);
    let expected = Auxiliary {
        positions: 1.0,
        ..Auxiliary::default()
    };
    let heads = AuxiliaryHeads::new(&expected, &backbone, &shape(1), &options, &vb);
    let valid = Tensor::new(&[[1f64, 1.0, 0.0], [0.0, 0.0, 0.0]], &Device::Cpu).unwrap();
    let reading = Reading {
        encoded: Encoded {
            hidden: normal("hidden", &[2, 3, 4]),
            mask: Some(Mask::new(&valid).unwrap()),
        },
        states: Vec::new(),
    };
    let labels = Tensor::new(&[0u32, 2], &Device::Cpu).unwrap();
    let losses = heads.unwrap().unwrap().at_positions(&[reading], &labels);
    let losses: Vec<f64> = losses.unwrap().to_vec1().unwrap();
    assert!(losses[0] > 0.0 && losses[1] == 0.0, "{losses:?}");
}

/// A class is predicted from the front of both towers, up to the end of the longer one.
#[test]
fn the_shorter_tower_stays_at_its_end() {
    let (parameters, options) = (parameters(), options("bag"));
    let model = mixers::find("bag").unwrap();
    let backbone = Backbone::new(model, &shape(2), &options, &parameters).unwrap();
    let vb = parameters.builder().pp(AUXILIARY);
    let only = Auxiliary {
        positions: 1.0,
        ..Auxiliary::default()
    };
    let heads = AuxiliaryHeads::new(&only, &backbone, &shape(2), &options, &vb);
    let heads = heads.unwrap().unwrap();
    let reading = |name: &str, valid: &[f64]| {
        let row = Tensor::new(valid, &Device::Cpu).unwrap();
        let mask = Mask::new(&row.unsqueeze(0).unwrap()).unwrap();
        Reading {
            encoded: Encoded {
                hidden: normal(name, &[1, valid.len(), 4]),
                mask: Some(mask),
            },
            states: Vec::new(),
        }
    };
    let readings = [
        reading("one", &[1.0, 1.0, 0.0]),
        reading("other", &[1.0, 1.0, 1.0, 1.0]),
    ];
    let label = Tensor::new(&[2u32], &Device::Cpu).unwrap();
    let actual = heads.at_positions(&readings, &label).unwrap();
    let logits = |at: usize| {
        let of_towers = [(0, at.min(1)), (1, at)].map(|(tower, last)| {
            let hidden = &readings[tower].encoded.hidden;
            let mean = hidden.narrow(1, 0, last + 1).unwrap().mean(1).unwrap();
            heads.positions[tower].forward(&mean).unwrap()
        });
        (&of_towers[0] + &of_towers[1]).unwrap()
    };
    let logits = Tensor::cat(&[0, 1, 2, 3].map(logits), 0).unwrap();
    let labels = Tensor::new(&[2u32; 4], &Device::Cpu).unwrap();
    let expected = cross_entropy(&logits, &labels).unwrap();
    close(&actual, &expected.reshape(1).unwrap(), 1e-12, "both towers");
}

#[test]
fn causal_states_do_not_see_what_follows() {
    let xl = |causal: bool| {
        let mut options = options("transformer_xl");
        options.model["segment"] = json!(3);
        options.model["causal"] = json!(causal);
        options
    };
    for (name, options, expected) in [
        ("transformer", causal(), true),
        ("roformer", causal(), true),
        ("transformer", options("transformer"), false),
        ("transformer_xl", xl(true), true),
        ("transformer_xl", xl(false), false),
        ("linear", options("linear"), false),
    ] {
        let parameters = parameters();
        let model = mixers::find(name).unwrap();
        let backbone = Backbone::new(model, &shape(1), &options, &parameters).unwrap();
        assert_eq!(backbone.is_causal(), expected, "{name}");
        let states = |last: u32| {
            let ids = Tensor::new(&[[1u32, 2, 3, 4, last]], &Device::Cpu).unwrap();
            let tokens = Tokens { ids, mask: None };
            let pass = Pass::new(false, RngKey::new(1, 5, 0));
            let (encoded, _) = backbone.encode(&tokens, None, false, &pass).unwrap();
            encoded.hidden.narrow(1, 0, 4).unwrap()
        };
        let apart = (states(1) - states(2)).unwrap().abs().unwrap();
        let apart: f64 = apart.max_all().unwrap().to_scalar().unwrap();
        assert_eq!(apart < 1e-12, expected, "{name}: {apart}");
    }
}

#[test]
fn refusals_say_why_and_what_would_do() {
    let only = |name: &str| Auxiliary::new(|it| f64::from(u8::from(it == name)) / 2.0);
    let next = refusal("linear", &only("next"), &options("linear"));
    assert!(
        next.starts_with("train.aux.next = 0.5 ") && next.contains("train.aux.masked"),
        "{next}"
    );
    let mut pooled = causal();
    pooled.head.pooling = Pooling::Cls;
    let pooled = refusal("transformer", &only("next"), &pooled);
    assert!(pooled.contains("with head.pooling = cls, "), "{pooled}");
    let scan = refusal("s4d", &only("next"), &options("s4d"));
    assert!(scan.contains("unless model.direction = forward"), "{scan}");
    let mut scalar = options("transformer");
    scalar.embed.input = Input::Scalar;
    let scalar = refusal("transformer", &only("masked"), &scalar);
    assert!(scalar.contains("embed.input = scalar"), "{scalar}");
    for (name, change, expected) in [
        ("funnel", "", "positions"),
        ("hierarchical", "", "masked"),
        ("universal", "", "layers"),
        ("reformer", "reversible", "layers"),
        ("transformer", "single", "layers"),
        ("transformer", "power", "layers"),
        ("transformer", "batch", "layers"),
        ("transformer", "batch_masked", "layers"),
        ("transformer", "complex", "masked"),
    ] {
        let mut options = options(name);
        match change {
            "reversible" => options.block.residual = Residual::Reversible,
            "single" => options.block.layers = 1,
            "power" => options.block.norm = NormKind::Power,
            "batch" => options.block.norm = NormKind::Batch,
            "batch_masked" => options.block.norm = NormKind::BatchMasked,
            "complex" => options.embed.positions = Positions::Complex,
            _ => {}
        }
        let error = refusal(name, &only(expected), &options);
        let key = format!("train.aux.{expected} = 0.5 is out of range: 0: ");
        assert!(error.starts_with(&key), "{name}: {error}");
    }
}
