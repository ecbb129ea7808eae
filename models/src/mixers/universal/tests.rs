use candle_core::Device;
use serde_json::json;

use super::*;
use crate::{
    Mask, Parameters, RngKey,
    context::Geometry,
    loss::AuxLosses,
    mask::zero_padding,
    mixers,
    options::{NormPlace, overlay},
    testing::{check_layer, close, normal, parameters},
};

const DIM: usize = 4;

/// Builds the encoder called `name` with these options of its own, three layers that share their
/// weights.
fn encoder(
    name: &'static str,
    own: &serde_json::Value,
    parameters: &Parameters,
) -> Box<dyn Encoder> {
    encoder_of(name, own, parameters, true)
}

/// Builds the encoder with weights that layers share or not.
fn encoder_of(
    name: &'static str,
    own: &serde_json::Value,
    parameters: &Parameters,
    share: bool,
) -> Box<dyn Encoder> {
    let model = mixers::find(name).unwrap();
    let mut options = model.defaults();
    overlay(&mut options, own);
    let block = BlockOptions {
        layers: 3,
        dim: DIM,
        qkv_dim: DIM,
        heads: 2,
        mlp_dim: 5,
        share,
        norm_place: NormPlace::Post,
        dropout: 0.0,
        ..BlockOptions::default()
    };
    let context = ModelContext {
        vb: parameters.builder(),
        block: &block,
        model: &options,
        max_length: 5,
        cls: false,
        geometry: Geometry::default(),
        positions: Some(normal("positions", &[5, DIM])),
        conditional: false,
        layers: Layers::Last,
        own: model.own_options(),
    };
    model.build(&context).unwrap()
}

fn hidden(name: &'static str, own: &serde_json::Value, parameters: &Parameters) -> Tensor {
    forward(&*encoder(name, own, parameters))
}

fn forward(encoder: &dyn Encoder) -> Tensor {
    let pass = Pass::new(false, RngKey::new(1, 0, 0));
    encoder
        .forward(&normal("x", &[2, 5, DIM]), &pass)
        .unwrap()
        .hidden
}

/// Makes every position's p this number at every step.
fn set_halting(parameters: &Parameters, logit: f64) {
    for (path, var) in parameters.all() {
        let value = match path.as_str() {
            "halt.weight" => 0.0,
            "halt.bias" => logit,
            _ => continue,
        };
        let value = var.as_detached_tensor().affine(0.0, value).unwrap();
        var.set(&value).unwrap();
    }
}

#[test]
fn without_marks_it_is_a_transformer_whose_layers_share_their_weights() {
    let parameters = parameters();
    let actual = hidden("universal", &json!({"step_embedding": "none"}), &parameters);
    let expected = hidden("transformer", &json!({}), &parameters);
    close(&actual, &expected, 1e-14, "shared weights");
}

/// The encoder has a block for each step, and with halting for each of twice as many steps.
#[test]
fn with_weights_of_their_own_its_steps_are_the_layers_of_a_transformer() {
    for (own, blocks) in [
        (json!({"step_embedding": "none"}), 3),
        (json!({"halting": "act"}), 6),
    ] {
        let parameters = parameters();
        let actual = forward(&*encoder_of("universal", &own, &parameters, false));
        let of_queries = |(path, _): &(String, _)| path.ends_with("query.weight");
        let all = parameters.all();
        assert_eq!(all.iter().filter(|it| of_queries(it)).count(), blocks);
        if blocks == 3 {
            let transformer = encoder_of("transformer", &json!({}), &parameters, false);
            close(&actual, &forward(&*transformer), 1e-14, "own weights");
            assert_eq!(parameters.all().len(), all.len());
        }
    }
}

#[test]
fn who_never_wants_to_halt_takes_all_steps_and_who_does_takes_one() {
    for accumulate in ["mean", "basic"] {
        for (logit, steps) in [(-60.0, 4), (60.0, 1)] {
            let parameters = parameters();
            let act = json!({"halting": "act", "steps": 4, "accumulate": accumulate});
            hidden("universal", &act, &parameters);
            set_halting(&parameters, logit);
            let actual = hidden("universal", &act, &parameters);
            let expected = hidden("universal", &json!({"steps": steps}), &parameters);
            close(&actual, &expected, 1e-12, "steps");
        }
    }
}

/// p = 0.73 at each step: 0.73 and 0.27 are the weights, of which the basic form keeps 0.73 · 0.73.
#[test]
fn states_are_weighted_as_each_form_has_it() {
    let parameters = parameters();
    let act = |accumulate| json!({"halting": "act", "accumulate": accumulate});
    hidden("universal", &act("mean"), &parameters);
    set_halting(&parameters, (0.73f64 / 0.27).ln());
    let [first, second] =
        [1, 2].map(|steps| hidden("universal", &json!({"steps": steps}), &parameters));
    for (accumulate, share) in [("mean", 0.73), ("basic", 0.73 * 0.73)] {
        let expected = ((&first * share).unwrap() + (&second * 0.27).unwrap()).unwrap();
        let actual = hidden("universal", &act(accumulate), &parameters);
        close(&actual, &expected, 1e-12, accumulate);
    }
}

#[test]
fn gradients_agree_with_differences() {
    let valid = [[1.0; 5], [1.0, 1.0, 0.0, 0.0, 0.0], [0.0; 5]];
    let mask = Mask::new(&Tensor::new(&valid, &Device::Cpu).unwrap()).unwrap();
    for own in [
        json!({"halting": "act", "steps": 3, "step_embedding": "learned"}),
        json!({"halting": "act", "accumulate": "basic", "freeze": true}),
        json!({"halting": "none"}),
    ] {
        let parameters = parameters();
        let encoder = encoder("universal", &own, &parameters);
        check_layer("universal", &parameters, &[3, 5, DIM], |x| {
            let losses = AuxLosses::default();
            let pass = Pass::new(false, RngKey::new(1, 0, 0)).with_losses(&losses);
            let y = encoder.forward(x, &pass.with_mask(Some(&mask)))?.hidden;
            let mut y = zero_padding(&y, Some(&mask))?;
            for (_, mean) in losses.means()? {
                y = y.broadcast_add(&mean)?;
            }
            Ok(y)
        });
    }
}
