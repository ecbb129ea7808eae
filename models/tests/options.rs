//! Options: complete defaults, and refusals that say what would do.

#![allow(clippy::unwrap_used)]

use candle_core::{DType, Device};
use lra_models::{
    Classifier, Error, MODELS, Options, Parameters, Shape, mixers,
    options::{NormPlace, Residual},
};
use serde_json::{Value, json};

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
    };
    let parameters = Parameters::blank(&Device::Cpu, DType::F32);
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
        assert!(model.documentation().lines().count() >= 4, "{}", model.name);
        for variant in model.variants {
            let text = variant.documentation();
            let place = format!("{} {}", model.name, variant.name);
            assert!(!text.is_empty() && !text.contains("use "), "{place}");
            let mut options = Options::of(model);
            if model.variants.len() > 1 {
                options.model["variant"] = variant.name.into();
            }
            let found = model.variant(&options.model).unwrap();
            assert_eq!(found.name, variant.name, "{place}");
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
    assert_eq!(layers, "block.layers = 0 is out of range: at least 1");
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
    assert!(epsilon.starts_with("model.epsilon = 2 "), "{epsilon}");
}

#[test]
fn unknown_missing_and_misspelt_model_options_are_refused() {
    for model in MODELS {
        let error = refusal(model.name, |options| options.model["wings"] = json!(2));
        assert!(
            error.contains(model.name) && error.contains("wings"),
            "{error}"
        );
    }
    let missing = refusal("performer", |options| options.model = json!({}));
    assert!(missing.contains("features"), "{missing}");
    let kernel = refusal("performer", |options| {
        options.model["kernel"] = json!("rbf")
    });
    assert!(
        kernel.contains("rbf") && kernel.contains("favor"),
        "{kernel}"
    );
    let negative = refusal("performer", |options| options.model["features"] = json!(-1));
    assert!(negative.contains("performer"), "{negative}");
    assert!(serde_json::from_value::<Options>(Value::Null).is_err());
}
