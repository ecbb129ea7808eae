//! Options: complete defaults, and refusals that name the allowed values.

#![allow(clippy::unwrap_used)]

use candle_core::{DType, Device, Tensor};
use lra_models::{
    Classifier, Error, Inputs, MODELS, Model, Options, Parameters, Pass, Reference, RngKey, Shape,
    Tokens, mixers,
    options::{BlockOptions, EmbedOptions, HeadOptions, NormPlace, OptionSet, Residual},
};
use rayon::prelude::*;
use serde_json::{Value, json};

/// Headings in the documentation of a model, in this order: its own options, the treatment of
/// padded positions, and the departures from the paper or from published code.
const HEADINGS: [&str; 3] = ["Options", "Padding", "Departures"];

fn build(name: &str, change: impl Fn(&mut Options)) -> Result<Classifier, Error> {
    let model = mixers::find(name).unwrap();
    let mut options = Options::of(model);
    change(&mut options);
    let shape = Shape {
        vocabulary: 5,
        classes: 3,
        towers: 1,
        max_length: 9,
        padding: true,
        grid: None,
    };
    let parameters = Parameters::meta(&Device::Cpu, DType::F32);
    Classifier::new(model, &shape, &options, &parameters)
}

fn refusal(name: &str, change: impl Fn(&mut Options)) -> String {
    match build(name, change) {
        Ok(_) => panic!("{name} was built"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn defaults_survive_json_and_build() {
    for model in MODELS {
        let value = serde_json::to_value(Options::of(model)).unwrap();
        let options: Options = serde_json::from_value(value).unwrap();
        assert_eq!(options, Options::of(model));
        assert!(build(model.name, |_| ()).is_ok());
        assert!(
            model.variants[0].documentation().lines().count() >= 4,
            "{}",
            model.name
        );
        for variant in model.variants {
            let text = variant.documentation();
            let place = format!("{} {}", model.name, variant.name);
            let code = text.lines().any(|line| line.starts_with("use "));
            assert!(!text.is_empty() && !code, "{place}");
            let mut options = Options::of(model);
            if model.variants.len() > 1 {
                options.model["variant"] = variant.name.into();
            }
            let actual = model.variant(&options.model).unwrap();
            assert_eq!(actual.name, variant.name, "{place}");
            assert!(build(model.name, |it| it.model = options.model.clone()).is_ok());
        }
    }
    let names: std::collections::BTreeSet<_> = MODELS.iter().map(|model| model.name).collect();
    assert_eq!(names.len(), MODELS.len());
}

#[test]
fn values_out_of_range_are_named() {
    let heads = refusal("transformer", |options| options.block.heads = 3);
    assert_eq!(
        heads,
        "block.qkv_dim = 64 is out of range: a multiple of block.heads = 3"
    );
    let layers = refusal("bag", |options| options.block.layers = 0);
    assert_eq!(
        layers,
        "block.layers = 0 is out of range: at least 1 and at most 1000"
    );
    let residual = refusal("reformer", |options| {
        options.block.residual = Residual::Reversible;
        options.block.norm_place = NormPlace::Post;
    });
    assert!(
        residual.starts_with("block.residual = reversible "),
        "{residual}"
    );
    for rate in [1.0, -0.1, f64::NAN] {
        let error = refusal("linear", |options| options.block.dropout = rate);
        assert!(error.starts_with("block.dropout = "), "{error}");
    }
    let epsilon = refusal("performer", |options| options.model["epsilon"] = json!(2.0));
    assert!(epsilon.starts_with("model.epsilon = 2.0 "), "{epsilon}");
}

#[test]
fn unknown_missing_and_misspelt_model_options_are_refused() {
    for model in MODELS {
        let error = refusal(model.name, |options| options.model["wings"] = json!(2));
        assert!(
            error.starts_with("the options model.*") && error.contains("wings"),
            "{error}"
        );
    }
    let missing = refusal("performer", |options| options.model = json!({}));
    assert!(missing.contains("features"), "{missing}");
    let kernel = refusal("performer", |options| {
        options.model["kernel"] = json!("rbf")
    });
    assert!(
        kernel.starts_with("model.kernel = \"rbf\" is none of its values")
            && kernel.contains("favor"),
        "{kernel}"
    );
    let negative = refusal("performer", |options| options.model["features"] = json!(-1));
    assert!(
        negative.starts_with("model.features = -1 is out of range: at least 0"),
        "{negative}"
    );
    assert!(serde_json::from_value::<Options>(Value::Null).is_err());
}

/// Without a range a number goes into products unchecked.
#[test]
fn every_number_among_the_options_has_a_range() {
    let sections = |model: &'static Model| {
        let options = serde_json::to_value(Options::of(model)).unwrap();
        [
            ("embed", options["embed"].clone(), EmbedOptions::RANGES),
            ("block", options["block"].clone(), BlockOptions::RANGES),
            ("head", options["head"].clone(), HeadOptions::RANGES),
            (model.name, options["model"].clone(), model.ranges),
        ]
    };
    for (section, options, ranges) in MODELS.iter().copied().flat_map(sections) {
        for (key, value) in options.as_object().unwrap() {
            let range = ranges.iter().find(|range| range.key == key);
            assert_eq!(range.is_some(), value.is_number(), "{section}: {key}");
            let Some(range) = range else { continue };
            assert!(
                range.contains(value.as_f64().unwrap()),
                "{section}: {key} = {value}"
            );
        }
        for range in ranges {
            assert!(options.get(range.key).is_some(), "{section}: {}", range.key);
        }
    }
}

#[test]
fn sizes_at_the_end_of_their_ranges_are_counted_without_memory() {
    MODELS.par_iter().for_each(|model| {
        let mut options = Options::of(model);
        let block = &mut options.block;
        (block.dim, block.qkv_dim, block.mlp_dim) = (1 << 16, 1 << 16, 1 << 16);
        (block.heads, block.layers) = (1 << 10, 1000);
        let shape = Shape {
            vocabulary: 257,
            classes: 2,
            towers: 2,
            max_length: 1 << 16,
            padding: true,
            grid: None,
        };
        let parameters = Parameters::meta(&Device::Cpu, DType::F32);
        Classifier::new(model, &shape, &options, &parameters).unwrap();
        // One block that is repeated has the fewest, 64 GiB.
        assert!(parameters.elements() > 1 << 34, "{}", model.name);
    });
}

#[test]
fn inputs_that_do_not_fit_are_refused_with_a_reason() {
    let classifier = build("transformer", |_| ()).unwrap();
    let zeros = |shape: (usize, usize), dtype| Tensor::zeros(shape, dtype, &Device::Cpu).unwrap();
    let refusal = |width: usize, mask: usize| {
        let tokens = Tokens {
            ids: zeros((1, width), DType::U32),
            mask: Some(zeros((1, mask), DType::F32)),
        };
        let inputs = Inputs {
            towers: vec![tokens],
        };
        let pass = Pass::new(false, RngKey::new(0, 0, 0));
        classifier.forward(&inputs, &pass).unwrap_err().to_string()
    };
    assert!(refusal(10, 10).contains("10 tokens, the model takes 1 to 9"));
    assert!(refusal(5, 4).contains("mask of shape [1, 4]"));
}

#[test]
fn towers_with_other_numbers_of_rows_are_refused() {
    let model = mixers::find("linear").unwrap();
    let shape = Shape {
        vocabulary: 5,
        classes: 3,
        towers: 2,
        max_length: 9,
        padding: true,
        grid: None,
    };
    let parameters = Parameters::meta(&Device::Cpu, DType::F32);
    let classifier = Classifier::new(model, &shape, &Options::of(model), &parameters).unwrap();
    let tower = |rows: usize| Tokens {
        ids: Tensor::zeros((rows, 4), DType::U32, &Device::Cpu).unwrap(),
        mask: None,
    };
    let inputs = Inputs {
        towers: vec![tower(2), tower(3)],
    };
    let pass = Pass::new(false, RngKey::new(0, 0, 0));
    let error = classifier.forward(&inputs, &pass).unwrap_err().to_string();
    assert!(error.contains("differ in batch size"), "{error}");
}

#[test]
fn the_documentation_of_a_model_has_the_headings_in_order() {
    for model in MODELS {
        let variant = &model.variants[0];
        let text = variant.documentation();
        let actual: Vec<&str> = text
            .lines()
            .filter_map(|it| it.strip_prefix("# "))
            .collect();
        assert_eq!(actual, HEADINGS, "{}", model.name);
        for heading in HEADINGS {
            let section = variant.section(heading).unwrap();
            assert!(!section.is_empty(), "{}: # {heading}", model.name);
        }
    }
    assert_eq!(MODELS[0].variants[0].section("Speed"), None);
}

/// The section names every option, in backticks: `` `rank` K `` or `` `direction = forward` ``.
#[test]
fn the_section_on_options_names_every_option() {
    for model in MODELS {
        let section = model.variants[0].section("Options").unwrap();
        let own = (model.options)();
        let own = own.as_object().unwrap();
        for key in own.keys() {
            let named = |end| section.contains(&format!("`{key}{end}"));
            let named = named("`") || named(" = ");
            assert!(named, "{}: {key} in {section}", model.name);
        }
        assert_eq!(own.is_empty(), section == "None.", "{}", model.name);
    }
}

/// The documentation of a model says what a size of 0 stands for.
#[test]
fn sizes_of_0_are_those_that_the_documentation_names() {
    let small = json!({"layers": 2, "dim": 16, "qkv_dim": 16, "mlp_dim": 24});
    let post = r#"{"norm_place": "post"}"#;
    let three = r#"{"heads": 3, "qkv_dim": 12}"#;
    let tay2021 = r#"{"variant": "tay2021"}"#;
    let act = r#"{"halting": "act"}"#;
    // Name, longest length, options of the block and of the model, and sizes that are derived.
    for (name, longest, block, own, sizes) in [
        ("compressive", 1032, "{}", "{}", r#"{"segment": 256}"#),
        ("fnet", 16, "{}", "{}", r#"{"scale": 0.0625}"#),
        ("fnet", 16, post, "{}", r#"{"scale": 1.0}"#),
        ("gau", 20, "{}", "{}", r#"{"hidden": 24, "shared": 8}"#),
        ("local", 150, "{}", "{}", r#"{"block": 64}"#),
        ("routing", 20, three, "{}", r#"{"routed_heads": 2}"#),
        (
            "routing",
            150,
            "{}",
            "{}",
            r#"{"clusters": 13, "window": 12}"#,
        ),
        ("sparse", 150, "{}", "{}", r#"{"block": 16, "summary": 8}"#),
        (
            "sparse",
            150,
            "{}",
            tay2021,
            r#"{"block": 50, "summary": 10}"#,
        ),
        ("transformer_xl", 1032, "{}", "{}", r#"{"segment": 256}"#),
        ("universal", 20, "{}", act, r#"{"steps": 4}"#),
    ] {
        let [block, own] = [block, own].map(|it| serde_json::from_str::<Value>(it).unwrap());
        let model = mixers::find(name).unwrap();
        let described = |sizes: &str| {
            let sizes: Value = serde_json::from_str(sizes).unwrap();
            let mut options = serde_json::to_value(Options::of(model)).unwrap();
            let of_model = [("model", &own), ("model", &sizes)];
            let changes = [("block", &small), ("block", &block)]
                .into_iter()
                .chain(of_model);
            for (section, changes) in changes {
                for (key, value) in changes.as_object().unwrap() {
                    options[section][key] = value.clone();
                }
            }
            let options: Options = serde_json::from_value(options).unwrap();
            let shape = Shape {
                vocabulary: 11,
                classes: 3,
                towers: 1,
                max_length: longest,
                padding: true,
                grid: None,
            };
            let parameters = Parameters::new(5, &Device::Cpu, DType::F32);
            let classifier = Classifier::new(model, &shape, &options, &parameters).unwrap();
            let length = longest.min(150);
            let ids: Vec<u32> = (0..length as u32).map(|at| 1 + at * at % 10).collect();
            let inputs = Inputs {
                towers: vec![Tokens {
                    ids: Tensor::from_vec(ids, (1, length), &Device::Cpu).unwrap(),
                    mask: None,
                }],
            };
            let pass = Pass::new(false, RngKey::new(0, 0, 0));
            let logits = classifier.forward(&inputs, &pass).unwrap();
            let logits: Vec<f32> = logits.flatten_all().unwrap().to_vec1().unwrap();
            (classifier.flops(1, longest), logits)
        };
        let (flops, logits) = described("{}");
        let (expected_flops, expected) = described(sizes);
        assert_eq!(flops, expected_flops, "{name} {sizes}");
        for (actual, expected) in logits.iter().zip(&expected) {
            let apart = (actual - expected).abs();
            assert!(apart < 1e-6, "{name} {sizes}: {actual} {expected}");
        }
    }
}

/// Checks that no entry has kept the empty texts of `Model::mixer`.
#[test]
fn the_card_of_a_model_is_complete() {
    for model in MODELS {
        let texts = [model.name, model.title, model.paper];
        assert!(texts.iter().all(|text| !text.is_empty()), "{}", model.name);
        assert!(
            model.year >= 1997 && !model.variants.is_empty(),
            "{}",
            model.name
        );
        let costs = [model.time, model.memory].map(|cost| cost.to_string());
        assert!(
            costs.iter().all(|cost| cost.starts_with("O(")),
            "{}",
            model.name
        );
        // LSTM is older than papers of this field on arXiv.
        let published = model.reference != Reference::None && model.year >= 2000;
        assert_eq!(published, !model.arxiv.is_empty(), "{}", model.name);
    }
}

/// Files of settings that were saved before an option existed lack it.
#[test]
fn an_option_that_saved_settings_lack_has_its_default() {
    let saved = json!({"layers": 3, "norm_place": "post"});
    let read: BlockOptions = serde_json::from_value(saved).unwrap();
    let expected = BlockOptions {
        layers: 3,
        norm_place: NormPlace::Post,
        ..BlockOptions::default()
    };
    assert_eq!(read, expected);
    let read: EmbedOptions = serde_json::from_value(json!({})).unwrap();
    assert_eq!(read, EmbedOptions::default());
    let read: HeadOptions = serde_json::from_value(json!({})).unwrap();
    assert_eq!(read, HeadOptions::default());
    assert!(serde_json::from_value::<HeadOptions>(json!({"heads": 2})).is_err());
}

#[test]
fn settings_of_every_entry_can_be_read() {
    for model in MODELS {
        let settings = model.settings().unwrap();
        for section in settings.as_object().unwrap().keys() {
            let known = ["embed", "block", "head", "model", "train"];
            assert!(
                known.contains(&section.as_str()),
                "{}: {section}",
                model.name
            );
        }
        // The settings agree with the options, and name none that every model has anyway.
        let options = serde_json::to_value(Options::of(model)).unwrap();
        let plain = serde_json::to_value(Options::of(MODELS[0])).unwrap();
        for section in ["embed", "block", "head"] {
            for (key, value) in settings[section].as_object().into_iter().flatten() {
                assert_eq!(
                    options[section][key], *value,
                    "{}: {section}.{key}",
                    model.name
                );
                assert_ne!(
                    plain[section][key], *value,
                    "{}: {section}.{key}",
                    model.name
                );
            }
        }
    }
}

#[test]
fn settings_that_a_model_cannot_have_are_errors() {
    let told = |settings: &'static str| {
        let model = Model {
            settings,
            ..*MODELS[0]
        };
        Options::try_of(&model).unwrap_err().to_string()
    };
    for (settings, expected) in [
        (
            r#"{"block": {"nrom": "rms"}}"#,
            "block.*: unknown field `nrom`",
        ),
        (
            r#"{"block": {"norm": "rsm"}}"#,
            "block.norm = \"rsm\" is none of its values: layer",
        ),
        (
            r#"{"block": {"dropout": 1}}"#,
            "block.dropout = 1 is out of range",
        ),
        (r#"{"blocks": {"norm": "rms"}}"#, "unknown section `blocks`"),
        ("[]", "no object of sections"),
        ("{", "EOF"),
    ] {
        let told = told(settings);
        assert!(told.contains(expected), "{settings}: {told}");
    }
}
