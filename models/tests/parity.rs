//! Every committed parity case agrees with the package that it was made with.

#![allow(clippy::unwrap_used)]

use std::{collections::BTreeMap, path::PathBuf};

use candle_core::{Tensor, backprop::GradStore};
use candle_nn::{AdamW, Optimizer as _, ParamsAdamW};
use lra_models::{
    COMPONENTS, MODELS, Options, Parameters, Reference, Result, mixers,
    parity::{Case, Optimizer, Row, Settings, Verdict},
};
use serde_json::{Value, json};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/parity")
}

fn files() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder()).unwrap();
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|end| end == "safetensors"))
        .collect();
    files.sort();
    files
}

/// candle's AdamW: the harness has its own, and runs these cases with it.
struct Candle(AdamW);

impl Optimizer for Candle {
    fn update(&mut self, gradients: GradStore) -> Result<()> {
        Ok(self.0.step(&gradients)?)
    }
}

fn adamw(parameters: &Parameters, settings: &Settings) -> Result<Box<dyn Optimizer>> {
    let variables = parameters.all().into_iter().map(|(_, var)| var).collect();
    let settings = ParamsAdamW {
        lr: settings.rate,
        beta1: settings.beta1,
        beta2: settings.beta2,
        eps: settings.epsilon,
        weight_decay: settings.weight_decay,
    };
    Ok(Box::new(Candle(AdamW::new(variables, settings)?)))
}

fn run(bytes: &[u8]) -> Vec<Row> {
    Case::read(bytes).unwrap().run(&adamw).unwrap()
}

#[test]
fn every_committed_case_agrees() {
    let mut cases: BTreeMap<&str, usize> = BTreeMap::new();
    for file in files() {
        let bytes = std::fs::read(&file).unwrap();
        *cases
            .entry(Case::read(&bytes).unwrap().mixer())
            .or_default() += 1;
        for row in run(&bytes) {
            assert_eq!(row.verdict, Verdict::Ok, "{}: {row:?}", file.display());
        }
    }
    for model in MODELS {
        let count = cases.get(model.name).copied().unwrap_or(0);
        let expected = match model.reference {
            Reference::Package | Reference::Equations => 3,
            Reference::Shared | Reference::None => 0,
        };
        assert!(count >= expected, "{} has only {count} cases", model.name);
    }
}

/// Code that a script assigns to a package's names, or overrides in a class of its own, is not the
/// published code.
#[test]
fn a_case_whose_script_changes_a_package_says_so_in_its_source() {
    let changed = [
        "BigBirdBlockSparseAttention",
        "pytorch-fast-transformers 0.4.0, ClusteredAttention",
        "pytorch-fast-transformers 0.4.0, ImprovedClusteredAttention",
        "gMLPBlock",
        "MambaBlock",
        "RecurrentGemmaRecurrentBlock",
        "minLSTM",
        "RwkvSelfAttention",
        "MegaBlock",
        "NystromAttention",
        "NystromformerSelfAttention",
        "LSHAttention",
        "MemoryCompressedAttention",
        "KmeansAttention",
        "SinkhornAttention and SimpleSortNet",
        "RelPartialLearnableDecoderLayer",
        "ReformerAttention",
        "make_fast_softmax_attention",
    ];
    let mut met = BTreeMap::new();
    for file in files() {
        let bytes = std::fs::read(&file).unwrap();
        let (name, case) = (
            file.file_stem().unwrap().to_str().unwrap(),
            Case::read(&bytes).unwrap(),
        );
        let source = case.source();
        let package = changed.iter().find(|package| source.contains(**package));
        let expected = package.is_some() || name.starts_with("terms-deberta_paper");
        assert_eq!(source.contains(", changed: "), expected, "{name}: {source}");
        if let Some(package) = package {
            *met.entry(*package).or_insert(0) += 1;
        }
    }
    assert_eq!(met.len(), changed.len(), "{met:?}");
}

/// Returns the setting of a component in a committed case: a number, a truth value or a name as it is
/// written on the command line.
fn setting(bytes: &[u8], key: &str) -> Option<String> {
    let (_, header) = safetensors::SafeTensors::read_metadata(bytes).unwrap();
    let metadata = header.metadata().clone().unwrap();
    let read = |name: &str| -> Value {
        let text = metadata.get(name).map_or("{}", String::as_str);
        serde_json::from_str(text).unwrap()
    };
    let options = match metadata.contains_key("kind") {
        true => [
            read("options"),
            serde_json::to_value(Options::of(mixers::find(&metadata["mixer"]).unwrap())).unwrap(),
        ],
        // A mixer alone: the layers around it have no part in the case.
        false => [json!({ "block": read("block") }), Value::Null],
    };
    let pointer = format!("/{}", key.replace('.', "/"));
    let value = options
        .iter()
        .find_map(|options| options.pointer(&pointer))?;
    Some(
        value
            .as_str()
            .map_or_else(|| value.to_string(), str::to_owned),
    )
}

#[test]
fn every_value_of_every_component_has_a_case() {
    let cases: Vec<Vec<u8>> = files()
        .iter()
        .map(|file| std::fs::read(file).unwrap())
        .collect();
    for component in COMPONENTS {
        let mut actual: Vec<String> = cases
            .iter()
            .filter_map(|case| setting(case, component.key))
            .collect();
        if ["block.memory", "block.soft_cap"].contains(&component.key) {
            // A number: any but 0 is the other value.
            let of = |value: &String| match value.parse() {
                Ok(0.0) => component.values[0].value.to_owned(),
                _ => component.values[1].value.to_owned(),
            };
            actual = actual.iter().map(of).collect();
        }
        for choice in component.values {
            let known = actual.iter().any(|value| value == choice.value);
            assert!(known, "no case of {} = {}", component.key, choice.value);
        }
    }
}

/// Returns the result of a committed case after `change` to its tensors.
fn changed(change: impl Fn(&mut BTreeMap<String, Tensor>)) -> Vec<Row> {
    run(&rewritten(change))
}

fn rewritten(change: impl Fn(&mut BTreeMap<String, Tensor>)) -> Vec<u8> {
    let bytes = std::fs::read(folder().join("transformer-1.safetensors")).unwrap();
    let (_, header) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
    let tensors = candle_core::safetensors::load_buffer(&bytes, &candle_core::Device::Cpu).unwrap();
    let mut tensors: BTreeMap<String, Tensor> = tensors.into_iter().collect();
    change(&mut tensors);
    safetensors::serialize(&tensors, header.metadata().clone()).unwrap()
}

fn misses(rows: &[Row]) -> Vec<(&str, Verdict)> {
    rows.iter()
        .filter(|row| row.verdict != Verdict::Ok)
        .map(|row| (row.tensor.as_str(), row.verdict))
        .collect()
}

#[test]
fn a_case_can_be_missed() {
    let shift = |name: &'static str| {
        changed(move |tensors| {
            let moved = (&tensors[name] + 1e-3).unwrap();
            tensors.insert(name.to_owned(), moved);
        })
    };
    assert_eq!(misses(&shift("out/y")), [("out/y", Verdict::Off)]);
    let gradient = "grad/param/key.weight";
    assert_eq!(misses(&shift(gradient)), [(gradient, Verdict::Off)]);
    let rows = changed(|tensors| {
        tensors.remove("grad/param/key.weight");
    });
    assert_eq!(misses(&rows), [(gradient, Verdict::NotInCase)]);
    let rows = changed(|tensors| {
        let value = tensors.remove("param/key.weight").unwrap();
        tensors.insert("param/key.bias".to_owned(), value.clone());
    });
    assert_eq!(
        misses(&rows),
        [
            ("param/key.weight", Verdict::NotInCase),
            ("param/key.bias", Verdict::Unknown)
        ]
    );
    let rows = changed(|tensors| {
        let value = tensors["in/x"].clone();
        tensors.insert("draw/directions".to_owned(), value);
    });
    assert_eq!(misses(&rows), [("draw/directions", Verdict::Unknown)]);
    for extra in ["grad/param/other.weight", "out/z", "in/other", "note"] {
        let rows = changed(|tensors| {
            let value = tensors["in/x"].clone();
            tensors.insert(extra.to_owned(), value);
        });
        assert_eq!(misses(&rows), [(extra, Verdict::Unknown)]);
    }
}

#[test]
fn numbers_that_are_not_finite_are_refused() {
    for name in ["out/y", "grad/x", "grad/param/key.weight", "in/x"] {
        for factor in [f64::NAN, f64::INFINITY] {
            let bytes = rewritten(|tensors| {
                let broken = (&tensors[name] * factor).unwrap();
                tensors.insert(name.to_owned(), broken);
            });
            let error = Case::read(&bytes).err().unwrap().to_string();
            assert!(error.contains(name), "{error}");
        }
    }
}

/// Others save numbers as they computed them, and masks as truth values.
#[test]
fn the_types_of_numbers_do_not_matter() {
    let bytes = std::fs::read(folder().join("gru-1.safetensors")).unwrap();
    let (_, header) = safetensors::SafeTensors::read_metadata(&bytes).unwrap();
    let tensors = candle_core::safetensors::load_buffer(&bytes, &candle_core::Device::Cpu).unwrap();
    let data = |name: &str, tensor: &Tensor| -> (safetensors::Dtype, Vec<u8>) {
        let elements = tensor.to_dtype(candle_core::DType::F64).unwrap();
        let elements: Vec<f64> = elements.flatten_all().unwrap().to_vec1().unwrap();
        match name {
            "in/mask" => {
                let bytes = elements.iter().map(|x| u8::from(*x == 1.0)).collect();
                (safetensors::Dtype::BOOL, bytes)
            }
            _ => {
                let bytes = elements.iter().flat_map(|x| x.to_le_bytes()).collect();
                (safetensors::Dtype::F64, bytes)
            }
        }
    };
    let data: BTreeMap<&String, _> = tensors
        .iter()
        .map(|(name, tensor)| (name, data(name, tensor)))
        .collect();
    let views = data.iter().map(|(name, (dtype, bytes))| {
        let shape = tensors[*name].dims().to_vec();
        let view = safetensors::tensor::TensorView::new(*dtype, shape, bytes).unwrap();
        (name.as_str(), view)
    });
    let bytes = safetensors::serialize(views, header.metadata().clone()).unwrap();
    assert_eq!(misses(&run(&bytes)), []);
}

#[test]
fn a_mask_or_a_seed_of_another_shape_is_refused_by_name() {
    let refused = |name: &'static str, change: fn(&Tensor) -> Tensor| {
        let bytes = rewritten(|tensors| {
            let changed = change(&tensors["out/seed"]);
            tensors.insert(name.to_owned(), changed);
        });
        let case = Case::read(&bytes);
        let error = case.and_then(|case| case.run(&adamw)).err().unwrap();
        assert!(error.to_string().contains(name), "{error}");
    };
    refused("out/seed", |seed| seed.narrow(1, 0, 3).unwrap());
    refused("in/mask", |seed| seed.ones_like().unwrap());
    let half = |seed: &Tensor| (seed.ones_like().unwrap().narrow(2, 0, 1).unwrap() * 0.5).unwrap();
    refused("in/mask", half);
}

#[test]
fn a_shape_that_the_model_wants_is_named() {
    let rows = changed(|tensors| {
        let turned = tensors["param/key.weight"].unsqueeze(0).unwrap();
        tensors.insert("param/key.weight".to_owned(), turned);
    });
    assert_eq!(misses(&rows), [("param/key.weight", Verdict::Shape)]);
    assert_eq!(rows[0].shape.as_deref(), Some(&[16, 16][..]));
}

/// Rounding grows with what is rounded.
#[test]
fn a_large_output_may_differ_by_the_tolerance_times_its_size() {
    let shifted = |by: f64| {
        changed(move |tensors| {
            let y = &tensors["out/y"];
            let most = y.abs().unwrap().max_all().unwrap();
            let most = f64::from(most.to_scalar::<f32>().unwrap());
            assert!(most > 1.2, "{most}");
            let moved = (y + by * most).unwrap();
            tensors.insert("out/y".to_owned(), moved);
        })
    };
    assert_eq!(misses(&shifted(0.9e-5)), []);
    assert_eq!(misses(&shifted(1.1e-5)), [("out/y", Verdict::Off)]);
}

/// The case is scaled so that its largest gradient is 1, and the result is a known part of it.
#[test]
fn a_gradient_that_should_be_zero_may_be_a_millionth_of_the_largest() {
    let key = "grad/param/key.weight";
    let of = |largest: f64| {
        changed(move |tensors| {
            let zero = tensors[key].zeros_like().unwrap();
            tensors.insert(key.to_owned(), zero);
            let x = &tensors["grad/x"];
            let most = x.abs().unwrap().max_all().unwrap();
            let most = f64::from(most.to_scalar::<f32>().unwrap());
            tensors.insert("grad/x".to_owned(), (x * (largest / most)).unwrap());
        })
    };
    let row = |rows: Vec<Row>| rows.into_iter().find(|row| row.tensor == key).unwrap();
    let actual = row(of(1.0)).max_abs.unwrap();
    assert_eq!(row(of(actual * 0.99e6)).verdict, Verdict::Off);
    assert_eq!(row(of(actual * 1.01e6)).verdict, Verdict::Ok);
}

#[test]
fn what_is_not_a_case_is_refused() {
    let error = Case::read(b"nothing").err().unwrap().to_string();
    assert!(error.contains("not a safetensors file"), "{error}");
}
