//! Parameter counts of the 2021 code's configurations, and the analytic cost of a forward pass.

#![allow(clippy::unwrap_used)]

use candle_core::{DType, Device};
use lra_models::{
    COMPONENTS, Classifier, Cost, MODELS, Model, Options, Parameters, Shape, mixers,
    options::{Features, Pooling, Positions},
};

/// Widths of one configuration.
struct Sizes {
    layers: usize,
    dim: usize,
    heads: usize,
    qkv_dim: usize,
    mlp_dim: usize,
}

const LISTOPS: Sizes = sizes(4, 512, 8, 512, 1024);
const TEXT: Sizes = sizes(4, 256, 4, 256, 1024);
const MATCHING: Sizes = sizes(4, 128, 4, 128, 512);
const PAPER: Sizes = sizes(6, 512, 8, 512, 2048);

const fn sizes(layers: usize, dim: usize, heads: usize, qkv_dim: usize, mlp_dim: usize) -> Sizes {
    Sizes {
        layers,
        dim,
        heads,
        qkv_dim,
        mlp_dim,
    }
}

const fn shape(vocabulary: usize, classes: usize, max_length: usize) -> Shape {
    Shape {
        vocabulary,
        classes,
        towers: 1,
        max_length,
        padding: true,
        grid: None,
    }
}

fn options(model: &str, sizes: &Sizes, pooling: Pooling) -> Options {
    let mut options = Options::of(mixers::find(model).unwrap());
    let block = &mut options.block;
    (block.layers, block.dim) = (sizes.layers, sizes.dim);
    (block.heads, block.qkv_dim) = (sizes.heads, sizes.qkv_dim);
    (block.mlp_dim, options.head.hidden) = (sizes.mlp_dim, sizes.mlp_dim);
    options.head.pooling = pooling;
    options
}

fn count(model: &str, shape: &Shape, options: &Options) -> usize {
    let parameters = Parameters::meta(&Device::Cpu, DType::F32);
    Classifier::new(mixers::find(model).unwrap(), shape, options, &parameters).unwrap();
    parameters.elements()
}

/// The counts were derived from the structure of the published code, not from ours.
#[test]
fn parameters_are_as_many_as_in_the_published_configurations() {
    let (listops, text) = (shape(17, 10, 2000), shape(257, 2, 1000));
    let vanilla = |shape: &Shape, options: &Options| count("transformer", shape, options);
    let cls = |sizes| options("transformer", sizes, Pooling::Cls);
    assert_eq!(vanilla(&listops, &cls(&LISTOPS)), 8_948_746);
    assert_eq!(vanilla(&text, &cls(&TEXT)), 3_486_722);
    assert_eq!(vanilla(&listops, &cls(&PAPER)), 19_983_370);
    assert_eq!(vanilla(&shape(257, 2, 4000), &cls(&PAPER)), 20_089_858);

    let documents = Shape {
        towers: 2,
        ..shape(257, 2, 4000)
    };
    let mut matching = options("transformer", &MATCHING, Pooling::First);
    assert_eq!(vanilla(&documents, &matching), 1_087_618);
    matching.head.features = Features::Nli;
    assert_eq!(vanilla(&documents, &matching), 1_218_690);

    let mut cifar = cls(&sizes(1, 128, 8, 64, 128));
    cifar.embed.positions = Positions::Learned;
    assert_eq!(vanilla(&shape(256, 10, 1024), &cifar), 248_458);
    let pathfinder = options("transformer", &sizes(4, 32, 4, 16, 32), Pooling::Mean);
    assert_eq!(vanilla(&shape(256, 2, 1024), &pathfinder), 26_530);
    for (side, sizes, pooling, expected) in [
        (64, sizes(2, 32, 4, 32, 32), Pooling::Cls, 153_186),
        (128, sizes(1, 32, 2, 16, 32), Pooling::Mean, 537_954),
        (256, sizes(2, 32, 4, 32, 32), Pooling::Cls, 2_119_266),
    ] {
        let mut options = options("transformer", &sizes, pooling);
        options.embed.positions = Positions::Learned;
        assert_eq!(vanilla(&shape(256, 2, side * side), &options), expected);
    }
}

/// Longformer's count is that of its paper's form: the 2021 code has the projections of global
/// positions too, and no use for them.
#[test]
fn models_of_other_sizes_are_as_large_as_in_the_published_code() {
    let small = sizes(1, 128, 8, 64, 128);
    let deep = sizes(4, 128, 4, 64, 128);
    let narrow = sizes(4, 64, 8, 64, 64);
    for (model, variant, cifar, expected) in [
        (
            "linformer",
            "tay2021",
            (&small, Pooling::Cls),
            [9_076_810, 3_550_786, 264_858],
        ),
        (
            "synthesizer",
            "tay2021",
            (&small, Pooling::Cls),
            [137_076_778, 19_518_738, 8_653_458],
        ),
        (
            "reformer",
            "tay2021",
            (&narrow, Pooling::Cls),
            [6_851_594, 2_962_434, 154_058],
        ),
        (
            "longformer",
            "paper",
            (&deep, Pooling::Mean),
            [12_094_474, 4_273_154, 545_418],
        ),
    ] {
        let options = |sizes: &Sizes, pooling, positions| {
            let mut options = options(model, sizes, pooling);
            options.model["variant"] = variant.into();
            options.embed.positions = positions;
            options
        };
        let base = |sizes| options(sizes, Pooling::Cls, Positions::Sinusoid);
        let actual = [
            count(model, &shape(17, 10, 2000), &base(&LISTOPS)),
            count(model, &shape(257, 2, 1000), &base(&TEXT)),
            count(
                model,
                &shape(256, 10, 1024),
                &options(cifar.0, cifar.1, Positions::Learned),
            ),
        ];
        assert_eq!(actual, expected, "{model}");
    }
}

/// Lists also the components that it cannot take. One file per model: `INSTA_UPDATE=always` writes the
/// file of a new one.
#[test]
fn parameters_of_every_model_at_the_listops_configuration() {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("parameters");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| {
        for model in MODELS {
            // Without mixing, a CLS token is refused.
            let pooling = match model.name {
                "bag" => Pooling::Mean,
                _ => Pooling::Cls,
            };
            let options = options(model.name, &LISTOPS, pooling);
            let count = count(model.name, &shape(17, 10, 2000), &options);
            insta::assert_snapshot!(
                model.name,
                format!("{count} parameters\ncannot take: {}", refused(model))
            );
        }
    });
}

/// Components that a model does not take, with the values if it takes others.
fn refused(model: &Model) -> String {
    let mut refused = Vec::new();
    for component in COMPONENTS {
        // A model may have another value than the default as a setting of its own.
        let values: Vec<&str> = component.values[1..]
            .iter()
            .filter(|choice| component.try_around(model, choice).is_err())
            .map(|choice| choice.value)
            .collect();
        match values.len() {
            0 => {}
            len if len == component.values.len() - 1 => refused.push(component.key.to_owned()),
            _ => refused.push(format!("{} = {}", component.key, values.join(", "))),
        }
    }
    match refused.is_empty() {
        true => "nothing".to_owned(),
        false => refused.join("; "),
    }
}

fn flops(model: &str, length: usize) -> u64 {
    let model = mixers::find(model).unwrap();
    let options = options(model.name, &sizes(2, 8, 2, 4, 16), Pooling::Mean);
    let parameters = Parameters::meta(&Device::Cpu, DType::F32);
    // The longest sequence is the one at hand: some models choose their sizes by it.
    let classifier = Classifier::new(model, &shape(11, 5, length), &options, &parameters).unwrap();
    classifier.flops(3, length)
}

#[test]
fn operations_are_those_of_the_products() {
    // Counted by hand. Per token and layer: feed-forward 2 * (8 * 16 + 16 * 8), projections 2 * 4 *
    // (8 * 4).
    let (length, head) = (10, 2 * (8 * 16 + 16 * 5));
    let (feed, projections) = (512, 256);
    let of = |mixing: u64| 3 * (2 * (length * (feed + projections) + mixing) + head);
    assert_eq!(flops("bag", 10), 3 * (2 * length * feed + head));
    // Scores and weighted sums: twice 2 L² E per head, E = 2, two heads.
    assert_eq!(flops("transformer", 10), of(2 * 2 * length * length * 4));
    // Per token and head: S and its use 2 * (2 * 2 * 2), z and its use 2 * (2 * 2).
    assert_eq!(flops("linear", 10), of(length * 2 * (16 + 8)));
    // As above for 8 features instead of 2, and the projection on them, 2 * 2 * 8, for queries and
    // keys.
    assert_eq!(flops("performer", 10), of(length * 2 * (64 + 32 + 64)));
}

#[test]
fn cost_grows_as_claimed() {
    for model in MODELS {
        let [short, long, longer] =
            [2048, 4096, 8192].map(|length| flops(model.name, length) as f64);
        // Differences: computation at any length, such as products of landmarks, is no growth.
        let ratio = (longer - long) / (long - short);
        let claimed = match model.time {
            Cost::Linear(_) => 1.9..2.3,
            Cost::Sqrt(_) => 2.1..2.9,
            Cost::Mixed(_) => 2.1..4.1,
            Cost::Quadratic(_) => 3.5..4.1,
        };
        assert!(claimed.contains(&ratio), "{}: {ratio}", model.name);
    }
}
