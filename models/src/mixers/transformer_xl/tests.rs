use candle_core::{Device, Var};
use serde_json::{Value, json};

use super::*;
use crate::{
    Mask, Parameters, RngKey,
    mask::zero_padding,
    mixers::transformer,
    ops::attention::testing::block_masks_meet_dense,
    options::{BlockOptions, NormKind, PairBias, overlay},
    testing::{check_layer, close, normal, parameters},
};

const DIM: usize = 4;

/// Builds two blocks for sequences of up to 9.
fn encoder(
    model: &'static Model,
    options: &Value,
    bias: PairBias,
    parameters: &Parameters,
) -> Box<dyn Encoder> {
    let block = BlockOptions {
        // Differences are too coarse where a norm stretches a short row.
        norm: NormKind::None,
        dim: DIM,
        qkv_dim: 6,
        heads: 2,
        mlp_dim: 5,
        bias,
        ..BlockOptions::default()
    };
    let mut own = model.defaults();
    overlay(&mut own, options);
    let context = ModelContext::new(parameters.builder(), &block, model, &own, 9);
    model.build(&context).unwrap()
}

fn recurrent(options: &Value, parameters: &Parameters) -> Box<dyn Encoder> {
    encoder(&MODEL, options, PairBias::None, parameters)
}

fn mask() -> Mask {
    let valid = [1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0];
    let valid = [[1.0; 9], valid, [0.0; 9]];
    Mask::new(&Tensor::new(&valid, &Device::Cpu).unwrap()).unwrap()
}

fn pass() -> Pass<'static> {
    Pass::new(false, RngKey::new(1, 0, 0))
}

#[test]
fn one_segment_is_a_transformer_with_relative_positions() {
    let parameters = parameters();
    let options = json!({"segment": 9, "untie": true});
    let one = recurrent(&options, &parameters);
    let other = encoder(&transformer::MODEL, &json!({}), PairBias::Xl, &parameters);
    let (x, mask) = (normal("x", &[3, 9, DIM]), mask());
    for mask in [None, Some(&mask)] {
        let pass = pass().with_mask(mask);
        let read = |encoder: &dyn Encoder| {
            let hidden = encoder.forward(&x, &pass).unwrap().hidden;
            zero_padding(&hidden, mask).unwrap()
        };
        close(&read(&*one), &read(&*other), 1e-12, "one segment");
    }
}

#[test]
fn without_relative_positions_one_segment_is_softmax_attention() {
    let parameters = parameters();
    let one = recurrent(&json!({"segment": 9}), &parameters);
    for (path, var) in parameters.all() {
        if path.contains("bias.") {
            var.set(&var.zeros_like().unwrap()).unwrap();
        }
    }
    let other = encoder(&transformer::MODEL, &json!({}), PairBias::None, &parameters);
    let x = normal("x", &[3, 9, DIM]);
    let [one, other] = [one, other].map(|encoder| encoder.forward(&x, &pass()).unwrap().hidden);
    close(&one, &other, 1e-12, "softmax attention");
}

/// Returns the largest absolute number of x (1, L, D) at each position.
fn by_position(x: &Tensor) -> Vec<f64> {
    let x = x.abs().unwrap().max(2).unwrap();
    x.flatten_all().unwrap().to_vec1().unwrap()
}

#[test]
fn a_position_reaches_its_segment_and_as_many_positions_after_it_as_memory_has() {
    for (memory, causal, expected) in [
        (3, false, [0, 0, 0, 1, 1, 1, 1, 1, 1]),
        (1, false, [0, 0, 0, 1, 1, 1, 0, 0, 0]),
        (3, true, [0, 0, 0, 0, 1, 1, 1, 1, 1]),
    ] {
        let parameters = parameters();
        let block = BlockOptions {
            dim: DIM,
            qkv_dim: DIM,
            ..BlockOptions::default()
        };
        let layer = LayerContext::new(parameters.builder().pp("mixer"), &block, 9);
        let options = Options {
            segment: 3,
            memory,
            causal,
            ..Options::default()
        };
        let mixer = Plain(Recurrence::new(&layer, &options).unwrap());
        let x = normal("x", &[1, 9, DIM]);
        let mut moved = x.to_vec3::<f64>().unwrap();
        moved[0][4][1] += 1.0;
        let moved = Tensor::new(moved, &Device::Cpu).unwrap();
        let [one, other] = [x, moved].map(|x| mixer.forward(&x, &pass()).unwrap());
        let actual = by_position(&(one - other).unwrap());
        let actual: Vec<usize> = actual.iter().map(|x| usize::from(*x > 1e-12)).collect();
        assert_eq!(actual, expected, "memory {memory}, causal {causal}");
    }
}

/// A segment of 150 positions has blocks of 50.
#[test]
fn causal_queries_see_all_blocks_of_their_segment_that_come_before() {
    for causal in [false, true] {
        let (parameters, block) = (parameters(), BlockOptions::default());
        let layer = LayerContext::new(parameters.builder(), &block, 150);
        let options = Options {
            segment: 150,
            causal,
            ..Options::default()
        };
        let recurrence = Recurrence::new(&layer, &options).unwrap();
        let block_masks = recurrence.keys(150, &[]).block_masks;
        block_masks_meet_dense("segment", 150, 1, &block_masks, |_, i, j| !causal || j <= i);
    }
}

#[test]
fn gradients_cross_segments_only_if_they_are_let() {
    for detach in [true, false] {
        let parameters = parameters();
        let options = json!({"segment": 3, "detach": detach});
        let encoder = recurrent(&options, &parameters);
        let x = Var::from_tensor(&normal("x", &[1, 9, DIM])).unwrap();
        let hidden = encoder.forward(&x, &pass()).unwrap().hidden;
        let last = hidden.narrow(1, 6, 3).unwrap() * normal("weights", &[1, 3, DIM]);
        let gradients = last.unwrap().sum_all().unwrap().backward().unwrap();
        let actual = by_position(gradients.get(&x).unwrap());
        assert!(actual[6..].iter().all(|x| *x > 0.0));
        assert!(
            actual[..6].iter().all(|x| (*x == 0.0) == detach),
            "{actual:?}"
        );
    }
}

#[test]
fn gradients_agree_with_differences() {
    let mask = mask();
    for (segment, memory, causal) in [(4, 4, false), (2, 5, true), (9, 1, false)] {
        let parameters = parameters();
        let options =
            json!({"segment": segment, "memory": memory, "causal": causal, "detach": false});
        let encoder = recurrent(&options, &parameters);
        check_layer("transformer_xl", &parameters, &[3, 9, DIM], |x| {
            let y = encoder.forward(x, &pass().with_mask(Some(&mask)))?;
            zero_padding(&y.hidden, Some(&mask))
        });
    }
}
