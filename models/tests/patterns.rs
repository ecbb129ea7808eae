//! Promises of the sparse models, with blocks so small that short sequences have many of them, in
//! every form and variant.

#![allow(clippy::unwrap_used)]

use candle_core::{DType, Device, Tensor};
use lra_models::{
    Classifier, Inputs, Options, Parameters, Pass, RngKey, Shape, Tokens, loss, mixers,
    options::Pooling,
};
use serde_json::{Value, json};

const LONGEST: usize = 37;

/// Returns each model with its options.
fn forms() -> Vec<(&'static str, Value)> {
    vec![
        ("image", json!({"block": 4, "memory": 2})),
        ("image", json!({"block": 3, "memory": 0})),
        ("clustered", json!({"clusters": 4, "bits": 7})),
        (
            "clustered",
            json!({"clusters": 4, "improved": true, "topk": 5}),
        ),
        (
            "clustered",
            json!({"clusters": 3, "improved": true, "topk": 100, "iterations": 1, "hash_bias": false}),
        ),
        ("compressed", json!({"factor": 4, "convolve": "all"})),
        ("compressed", json!({"factor": 4, "convolve": "input"})),
        ("compressed", json!({"factor": 5, "local": 4})),
        ("compressed", json!({"factor": 1})),
        ("lite", json!({"conv": "dynamic"})),
        ("lite", json!({"conv": "dynamic", "kernel": 8})),
        ("lite", json!({"conv": "light", "kernel": 31, "groups": 1})),
        ("universal", json!({"halting": "act"})),
        (
            "universal",
            json!({"halting": "act", "accumulate": "basic", "threshold": 0.9}),
        ),
        (
            "universal",
            json!({"halting": "act", "freeze": true, "threshold": 0.8}),
        ),
        (
            "universal",
            json!({"steps": 3, "step_embedding": "learned"}),
        ),
        ("adaptive_span", json!({"start": 0.1, "ramp": 3.5})),
        ("adaptive_span", json!({"span": "dynamic", "ramp": 5.0})),
        ("adaptive_span", json!({"span": "fixed"})),
        ("routing", json!({"clusters": 3, "routed_heads": 2})),
        ("routing", json!({"window": 9, "local_window": 2})),
        ("mega", json!({"attention": "laplace", "taps": 3})),
        ("mega_chunk", json!({"chunk": 4})),
        ("megalodon", json!({"chunk": 4})),
        ("megalodon", json!({"groups": 4})),
        ("seqboat", json!({"window": 3})),
        (
            "seqboat",
            json!({"window": 2, "attention": "relu2", "taps": 4}),
        ),
        ("b2s6", json!({"blocks": 2, "state": 4})),
        ("b2s6", json!({"blocks": 1, "state": 6})),
        ("mega_chunk", json!({"chunk": 4, "attention": "relu2"})),
        ("gau", json!({"attention": "softmax", "chunk": 5})),
        ("flash", json!({"chunk": 4, "hidden_dropout": 0.1})),
        ("informer", json!({"factor": 1})),
        ("informer", json!({"factor": 2, "mean_over": "keys"})),
        ("cosformer", json!({"horizon": "real"})),
        ("luna", json!({"length": 5})),
        ("luna", json!({"length": 20, "dynamic": true})),
        ("mra", json!({"block": 4, "blocks_per_row": 2})),
        (
            "mra",
            json!({"block": 4, "blocks_per_row": 2, "mode": "sparse"}),
        ),
        ("mra", json!({"block": 3, "blocks_per_row": 0, "first": 0})),
        ("h_transformer_1d", json!({"block": 2})),
        ("h_transformer_1d", json!({"block": 6})),
        ("skyformer", json!({"landmarks": 5})),
        ("skyformer", json!({"landmarks": 50, "width": 0})),
        ("tnn", json!({"expand": 2, "gamma": 0.7})),
        ("local", json!({"block": 4})),
        ("local", json!({"block": 4, "neighbours": 1})),
        (
            "local",
            json!({"block": 4, "neighbours": 1, "exact": false}),
        ),
        ("local", json!({"variant": "tay2021", "block": 4})),
        ("sparse", json!({"block": 4, "summary": 2})),
        (
            "sparse",
            json!({"block": 4, "summary": 2, "heads": "split"}),
        ),
        (
            "sparse",
            json!({"block": 4, "summary": 2, "heads": "alternate"}),
        ),
        ("sparse", json!({"pattern": "strided"})),
        ("sparse", json!({"pattern": "strided", "heads": "split"})),
        (
            "sparse",
            json!({"variant": "tay2021", "block": 5, "summary": 2}),
        ),
        (
            "sparse",
            json!({"variant": "tay2021", "block": 5, "summary": 2, "first": true}),
        ),
        ("longformer", json!({"window": 6})),
        (
            "longformer",
            json!({"window": 4, "dilation": 3, "global": 2}),
        ),
        (
            "longformer",
            json!({"window": 4, "dilation": 3, "dilated_heads": 1}),
        ),
        ("longformer", json!({"window": 4, "global": 0})),
        ("longformer", json!({"window": 6, "variant": "tay2021"})),
        ("bigbird", json!({"block": 3})),
        ("bigbird", json!({"block": 3, "global_extra": 2})),
        ("bigbird", json!({"block": 4, "random": 1})),
        ("bigbird", json!({"block": 3, "variant": "tay2021"})),
        ("hydra", json!({"taps": 1, "state": 3, "expand": 1})),
        ("s4", json!({"state": 16, "n_ssm": 0})),
        (
            "s4",
            json!({"state": 2, "n_ssm": 4, "init": "legs_unclipped"}),
        ),
        ("conv", json!({"kernel": 3, "kind": "full"})),
        ("cdil", json!({"kernel": 5})),
        ("cdil", json!({"layers": 2})),
        ("ponet", json!({"segments": 1})),
        ("ponet", json!({"segments": 5})),
        ("yoso", json!({"conv_window": 5})),
    ]
}

fn options(model: &str, changes: &Value, pooling: Pooling) -> Options {
    let mut options = Options::of(mixers::find(model).unwrap());
    options.block.dim = 16;
    options.block.qkv_dim = 16;
    options.block.mlp_dim = 24;
    options.head.hidden = 12;
    options.head.pooling = pooling;
    for (key, value) in changes.as_object().unwrap() {
        assert!(!options.model[key].is_null(), "{model} has no {key}");
        options.model[key] = value.clone();
    }
    options
}

fn build(
    model: &str,
    options: &Options,
    parameters: &Parameters,
) -> lra_models::Result<Classifier> {
    let shape = Shape {
        vocabulary: 11,
        classes: 5,
        towers: 1,
        max_length: LONGEST,
        padding: true,
        grid: None,
    };
    Classifier::new(mixers::find(model).unwrap(), &shape, options, parameters)
}

fn subject(model: &str, options: &Options) -> (Classifier, Parameters) {
    let parameters = Parameters::new(5, &Device::Cpu, DType::F32);
    let classifier = build(model, options, &parameters).unwrap();
    (classifier, parameters)
}

/// Returns rows of the given lengths in `width`; the ids under the mask depend on `salt`.
fn inputs(lengths: &[usize], width: usize, salt: usize) -> Inputs {
    let (mut ids, mut valid) = (Vec::new(), Vec::new());
    for (row, &length) in lengths.iter().enumerate() {
        for position in 0..width {
            let salt = if position < length { 0 } else { salt };
            ids.push((1 + (row * 7 + position * position * 3 + position + salt) % 10) as u32);
            valid.push(f32::from(u8::from(position < length)));
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

fn values(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

fn training(first_row: u64) -> Pass<'static> {
    Pass::new(true, RngKey::new(5, 2, first_row))
}

fn evaluation() -> Pass<'static> {
    Pass::new(false, RngKey::new(5, 2, 0))
}

fn apart(one: &[f32], other: &[f32]) -> f32 {
    assert_eq!(one.len(), other.len());
    let pairs = one.iter().zip(other);
    pairs.fold(0.0, |most, (a, b)| most.max((a - b).abs()))
}

#[test]
fn every_length_gives_finite_logits() {
    for (model, changes) in forms() {
        for pooling in [Pooling::Cls, Pooling::Mean] {
            let (classifier, _) = subject(model, &options(model, &changes, pooling));
            for length in [1usize, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 36, 37] {
                for shortest in [0, length.div_ceil(2)] {
                    let inputs = inputs(&[length, shortest], length, 0);
                    let logits = values(&classifier.forward(&inputs, &training(0)).unwrap());
                    let finite = logits.iter().all(|x| x.is_finite());
                    assert!(finite, "{model} {changes} {pooling:?} {length}");
                }
            }
        }
    }
}

/// Returns the parameters that, by the form's mathematics, have no effect on the outputs that are
/// read: their gradient is zero.
fn unread(model: &str, options: &Options) -> Vec<String> {
    if options.head.pooling != Pooling::Cls {
        return Vec::new();
    }
    let has_global = options.model["variant"] == "paper" && options.model["global"] != 0;
    if model != "longformer" || !has_global {
        return Vec::new();
    }
    // In the last layer only the CLS token is read: a global position, which has other projections.
    let last = options.block.layers - 1;
    let path = |name| format!("encoder.{last}.mixer.{name}.weight");
    ["query", "key", "value"].map(path).to_vec()
}

#[test]
fn every_parameter_that_is_read_learns() {
    for (model, changes) in forms() {
        for pooling in [Pooling::Cls, Pooling::Mean] {
            let options = options(model, &changes, pooling);
            let (classifier, parameters) = subject(model, &options);
            let paths: Vec<String> = parameters.all().into_iter().map(|(path, _)| path).collect();
            let unread = unread(model, &options);
            assert!(unread.iter().all(|path| paths.contains(path)), "{unread:?}");
            let logits = classifier.forward(&inputs(&[37, 20, 1, 0], 37, 0), &training(0));
            let labels = Tensor::new(&[0u32, 1, 2, 3], &Device::Cpu).unwrap();
            let loss = loss::cross_entropy(&logits.unwrap(), &labels).unwrap();
            let gradients = loss.backward().unwrap();
            for (path, var) in parameters.all() {
                let gradient = values(gradients.get(&var).unwrap());
                let finite = gradient.iter().all(|x| x.is_finite());
                let learns = gradient.iter().any(|&x| x != 0.0);
                let place = format!("{model} {changes} {pooling:?}: {path}");
                assert!(finite, "{place}");
                assert_eq!(learns, !unread.contains(&path), "{place}");
            }
        }
    }
}

#[test]
fn padding_changes_nothing_where_it_is_kept_out() {
    for (model, changes) in forms() {
        for pooling in [Pooling::Cls, Pooling::Mean] {
            let options = options(model, &changes, pooling);
            let (classifier, _) = subject(model, &options);
            let logits = |width, salt| {
                let inputs = inputs(&[9, 13], width, salt);
                values(&classifier.forward(&inputs, &evaluation()).unwrap())
            };
            let other_ids = apart(&logits(37, 0), &logits(37, 3));
            let other_width = apart(&logits(37, 0), &logits(13, 0));
            let place = format!("{model} {changes} {pooling:?}: {other_ids} {other_width}");
            let variant = mixers::find(model)
                .unwrap()
                .variant(&options.model)
                .unwrap();
            if variant.masks_padding {
                assert!(other_ids < 1e-6 && other_width < 1e-5, "{place}");
            } else {
                assert!(other_ids > 1e-4, "{place}");
            }
        }
    }
}

#[test]
fn micro_batches_draw_what_the_whole_batch_draws() {
    for (model, changes) in forms() {
        let (classifier, _) = subject(model, &options(model, &changes, Pooling::Mean));
        let whole = inputs(&[30, 17, 4, 37], 37, 0);
        let logits = |start: usize, rows: usize| {
            let tokens = &whole.towers[0];
            let mask = tokens.mask.as_ref().unwrap();
            let inputs = Inputs {
                towers: vec![Tokens {
                    ids: tokens.ids.narrow(0, start, rows).unwrap(),
                    mask: Some(mask.narrow(0, start, rows).unwrap()),
                }],
            };
            values(
                &classifier
                    .forward(&inputs, &training(start as u64))
                    .unwrap(),
            )
        };
        let parts = [logits(0, 2), logits(2, 2)].concat();
        let apart = apart(&logits(0, 4), &parts);
        assert!(apart < 1e-5, "{model} {changes}: {apart}");
    }
}

#[test]
fn forms_of_a_model_differ() {
    let logits: Vec<(String, Vec<f32>)> = forms()
        .into_iter()
        .map(|(model, changes)| {
            let (classifier, _) = subject(model, &options(model, &changes, Pooling::Mean));
            let logits = classifier.forward(&inputs(&[37, 30], 37, 0), &evaluation());
            (format!("{model} {changes}"), values(&logits.unwrap()))
        })
        .collect();
    for (index, (one, found)) in logits.iter().enumerate() {
        for (other, others) in &logits[..index] {
            assert!(apart(found, others) > 1e-5, "{one} and {other}");
        }
    }
}

#[test]
fn options_out_of_range_are_named() {
    let refusal = |model: &str, changes: Value, heads: usize| {
        let mut options = options(model, &changes, Pooling::Mean);
        options.block.heads = heads;
        let parameters = Parameters::meta(&Device::Cpu, DType::F32);
        match build(model, &options, &parameters) {
            Ok(_) => panic!("{model} {changes} was built"),
            Err(error) => error.to_string(),
        }
    };
    for (model, changes, key) in [
        (
            "local",
            json!({"variant": "tay2021", "neighbours": 1}),
            "model.neighbours = 1",
        ),
        (
            "sparse",
            json!({"block": 4, "summary": 5}),
            "model.summary = 5",
        ),
        (
            "sparse",
            json!({"variant": "tay2021", "pattern": "strided"}),
            "model.pattern = strided",
        ),
        (
            "sparse",
            json!({"variant": "tay2021", "heads": "split"}),
            "model.heads = split",
        ),
        ("sparse", json!({"heads": "split"}), "model.heads = split"),
        ("sparse", json!({"first": true}), "model.first = true"),
        (
            "routing",
            json!({"routed_heads": 3}),
            "model.routed_heads = 3",
        ),
        (
            "performer",
            json!({"variant": "tay2021", "kernel": "trig"}),
            "model.kernel = trig",
        ),
        ("longformer", json!({"window": 5}), "model.window = 5"),
        ("longformer", json!({"window": 0}), "model.window = 0"),
        ("longformer", json!({"dilation": 0}), "model.dilation = 0"),
        (
            "longformer",
            json!({"variant": "tay2021", "dilation": 2}),
            "model.dilation = 2",
        ),
        ("bigbird", json!({"block": 0}), "model.block = 0"),
        ("linoss", json!({"theta_max": 1.0}), "model.scheme = \"im\""),
        (
            "linoss",
            json!({"scheme": "imex", "r_min": 0.5}),
            "model.scheme = \"imex\"",
        ),
    ] {
        let error = refusal(model, changes, 1);
        assert!(error.starts_with(key), "{error}");
    }
    let error = refusal("local", json!({"variant": "tay2020"}), 2);
    assert!(
        error.contains("tay2020") && error.contains("tay2021"),
        "{error}"
    );
}
