use candle_core::{Device, Var};
use serde_json::{Value, json};

use super::*;
use crate::{
    Parameters, RngKey,
    loss::AuxLosses,
    options::{BlockOptions, NormKind, overlay},
    testing::{check_layer, close, normal, parameters},
};

const DIM: usize = 4;
const KINDS: [&str; 5] = ["conv", "mean", "max", "dilated", "most_used"];

/// Builds two blocks for sequences of up to 14.
fn encoder(model: &'static Model, options: &Value, parameters: &Parameters) -> Box<dyn Encoder> {
    let block = BlockOptions {
        // Differences are too coarse where a norm stretches a short row.
        norm: NormKind::None,
        dim: DIM,
        qkv_dim: 6,
        heads: 2,
        mlp_dim: 5,
        ..BlockOptions::default()
    };
    let mut own = model.defaults();
    overlay(&mut own, options);
    let context = ModelContext::new(parameters.builder(), &block, model, &own, 14);
    model.build(&context).unwrap()
}

fn mask() -> Mask {
    let valid = [14, 8, 0].map(|length| (0..14).map(move |i| f64::from(u8::from(i < length))));
    let valid: Vec<f64> = valid.into_iter().flatten().collect();
    Mask::new(&Tensor::from_vec(valid, (3, 14), &Device::Cpu).unwrap()).unwrap()
}

fn pass() -> Pass<'static> {
    Pass::new(false, RngKey::new(1, 0, 0))
}

/// Returns hidden states at valid positions, and the gradient of a weighted sum of them.
fn states(encoder: &dyn Encoder, mask: &Mask) -> [Tensor; 2] {
    let x = Var::from_tensor(&normal("x", &[3, 14, DIM])).unwrap();
    let y = encoder.forward(&x, &pass().with_mask(Some(mask))).unwrap();
    let y = zero_padding(&y.hidden, Some(mask)).unwrap();
    let sum = (&y * normal("weights", &[3, 14, DIM])).unwrap().sum_all();
    let gradients = sum.unwrap().backward().unwrap();
    [y.detach(), gradients.get(&x).unwrap().clone()]
}

/// Checks that both models agree when they have the same weights.
fn agree(options: &Value, of_xl: &Value) {
    let parameters = parameters();
    let actual = states(&*encoder(&MODEL, options, &parameters), &mask());
    let other = encoder(&transformer_xl::MODEL, of_xl, &parameters);
    let expected = states(&*other, &mask());
    for (actual, expected) in actual.iter().zip(&expected) {
        close(actual, expected, 1e-12, &options.to_string());
    }
}

#[test]
fn without_compression_it_is_transformer_xl() {
    let shared = json!({"segment": 3, "memory": 4});
    let mut options = shared.clone();
    overlay(&mut options, &json!({"compression": "none"}));
    agree(&options, &shared);
}

/// Rows that stay as they are lengthen the memory.
#[test]
fn at_rate_1_it_is_transformer_xl_with_memory_for_both() {
    for kind in ["mean", "max", "most_used"] {
        for (segment, memory, compressed, causal) in [
            (3, 3, 3, false),
            (3, 4, 5, true),
            (4, 2, 1, false),
            (2, 4, 14, false),
        ] {
            let mut options = json!({"segment": segment, "memory": memory, "causal": causal});
            let mut of_xl = options.clone();
            of_xl["memory"] = json!(memory + compressed);
            let more = json!({"compressed": compressed, "rate": 1, "compression": kind});
            overlay(&mut options, &more);
            agree(&options, &of_xl);
        }
    }
}

#[test]
fn what_compresses_learns_from_its_loss_and_from_nothing_else() {
    for kind in ["conv", "dilated"] {
        let parameters = parameters();
        let options = json!({"segment": 3, "rate": 2, "compression": kind});
        let encoder = encoder(&MODEL, &options, &parameters);
        assert_eq!(encoder.losses(), [RECONSTRUCT]);
        let (x, mask) = (normal("x", &[3, 14, DIM]), mask());
        let losses = AuxLosses::default();
        let pass = pass().with_mask(Some(&mask));
        let y = encoder.forward(&x, &pass.with_losses(&losses)).unwrap();
        let (_, loss) = losses.means().unwrap().remove(0);
        let task = y.hidden.sqr().unwrap().sum_all().unwrap();
        let [task, loss] = [task, loss].map(|sum| sum.backward().unwrap());
        for (path, var) in parameters.all() {
            let has = |gradients: &candle_core::backprop::GradStore| {
                gradients.get(&var).is_some_and(|gradient| {
                    let most = gradient.abs().unwrap().max_all().unwrap();
                    most.to_scalar::<f64>().unwrap() > 0.0
                })
            };
            let compresses = path.contains("compress");
            assert_eq!(has(&loss), compresses, "{kind}, loss: {path}");
            assert_eq!(has(&task), !compresses, "{kind}, task: {path}");
        }
    }
}

/// Holds with any gradient of the memory: x and the layers that it comes from are constants
/// to the loss.
#[test]
fn the_loss_reaches_nothing_but_what_compresses() {
    for (kind, detach) in [("conv", false), ("dilated", false), ("conv", true)] {
        let parameters = parameters();
        let options = json!({"segment": 3, "rate": 2, "compression": kind, "detach": detach});
        let encoder = encoder(&MODEL, &options, &parameters);
        let x = Var::from_tensor(&normal("x", &[3, 14, DIM])).unwrap();
        let (losses, mask) = (AuxLosses::default(), mask());
        let pass = pass().with_mask(Some(&mask));
        encoder.forward(&x, &pass.with_losses(&losses)).unwrap();
        let (_, loss) = losses.means().unwrap().remove(0);
        let gradients = loss.backward().unwrap();
        let most = |var: &Var| {
            gradients.get(var).map_or(0.0, |gradient| {
                let most = gradient.abs().unwrap().max_all().unwrap();
                most.to_scalar::<f64>().unwrap()
            })
        };
        assert_eq!(most(&x), 0.0, "{kind}, {detach}");
        for (path, var) in parameters.all() {
            let some = most(&var) > 0.0;
            assert_eq!(some, path.contains("compress"), "{kind}, {detach}: {path}");
        }
    }
}

#[test]
fn nothing_is_lost_to_attention_if_rows_stay_what_they_are() {
    let parameters = parameters();
    let options = json!({"segment": 3, "rate": 1});
    let encoder = encoder(&MODEL, &options, &parameters);
    for (path, var) in parameters.all() {
        if path.ends_with("compress.weight") {
            let identity = Tensor::eye(DIM, var.dtype(), &Device::Cpu).unwrap();
            var.set(&identity).unwrap();
        }
    }
    let losses = AuxLosses::default();
    let pass = pass().with_losses(&losses);
    encoder.forward(&normal("x", &[2, 14, DIM]), &pass).unwrap();
    let (name, loss) = losses.means().unwrap().remove(0);
    assert_eq!(name, "reconstruct");
    assert!(loss.to_scalar::<f64>().unwrap() < 1e-20);
}

#[test]
fn the_rows_that_attention_weighs_most_stay() {
    let parameters = parameters();
    let options = json!({"segment": 4, "rate": 2, "compression": "most_used"});
    encoder(&MODEL, &options, &parameters);
    // Scores are products of first channels, independent of positions.
    for (path, var) in parameters.all() {
        let mut values = vec![0.0; var.elem_count()];
        if path.ends_with("query.weight") || path.ends_with("key.weight") {
            for head in 0..2 {
                values[3 * head * DIM] = 1.0;
            }
        }
        let values = Tensor::from_vec(values, var.shape(), &Device::Cpu).unwrap();
        var.set(&values).unwrap();
    }
    let x: Vec<f64> = [5, 1, 2, 7, 1, 1, 1, 1, 9, 9, 8, 9, 3, 3]
        .iter()
        .flat_map(|first| [f64::from(*first), 0.0, 0.0, 0.0])
        .collect();
    let x = Tensor::from_vec(x, (1, 14, DIM), &Device::Cpu).unwrap();
    let block = BlockOptions {
        dim: DIM,
        qkv_dim: 6,
        heads: 2,
        ..BlockOptions::default()
    };
    let layer = LayerContext::new(parameters.builder().pp("0").pp("mixer"), &block, 14);
    let options = Options {
        segment: 4,
        rate: 2,
        compression: Kind::MostUsed,
        ..Options::default()
    };
    let mixer = Compressive::new(&layer, &options).unwrap();
    let valid = Tensor::ones((1, 14), x.dtype(), &Device::Cpu).unwrap();
    let evictions = mixer.evictions(14).unwrap();
    let chosen = mixer
        .most_used(&x, &valid, &evictions, &mixer.seen(14))
        .unwrap();
    // 5 and 7 of the first segment; the first two of the second, whose rows are alike.
    assert_eq!(chosen.to_vec2::<u32>().unwrap(), [[0, 3, 4, 5]]);
}

#[test]
fn gradients_agree_with_differences() {
    let mask = mask();
    for kind in &KINDS[..4] {
        let parameters = parameters();
        let options =
            json!({"segment": 3, "memory": 4, "rate": 2, "compression": kind, "detach": false});
        let encoder = encoder(&MODEL, &options, &parameters);
        check_layer(kind, &parameters, &[3, 14, DIM], |x| {
            let y = encoder.forward(x, &pass().with_mask(Some(&mask)))?;
            zero_padding(&y.hidden, Some(&mask))
        });
    }
}

#[test]
fn every_kind_is_finite_at_every_length() {
    for kind in KINDS {
        let parameters = parameters();
        let options = json!({"segment": 3, "memory": 4, "rate": 2, "compression": kind});
        let encoder = encoder(&MODEL, &options, &parameters);
        for length in 1..=14 {
            let x = normal("x", &[2, length, DIM]);
            let sum = encoder.forward(&x, &pass()).unwrap().hidden.sum_all();
            let sum = sum.unwrap().to_scalar::<f64>().unwrap();
            assert!(sum.is_finite(), "{kind}, {length}");
        }
    }
}
