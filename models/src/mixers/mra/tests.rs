use candle_core::Device;

use super::*;
use crate::{
    RngKey,
    options::BlockOptions,
    reference,
    testing::{DenseReference, check_layer, close, normal, parameters},
};

/// Builds two heads on sequences of up to `longest`.
fn mixer(parameters: &crate::Parameters, options: Options, longest: usize) -> Mra {
    let block = BlockOptions {
        dim: 6,
        qkv_dim: 6,
        heads: 2,
        ..BlockOptions::default()
    };
    let layer = LayerContext::new(parameters.builder(), &block, longest);
    Mra::new(&layer, &options).unwrap()
}

/// Maps queries, keys and values (B, L, H, E) to (B, L, H, E).
fn attend(mixer: &Mra, qkv: [&Tensor; 3], mask: Option<&Mask>) -> Result<Tensor> {
    let [q, k, v] = qkv.map(|x| x.flatten_from(2));
    let y = mixer.attend([&q?, &k?, &v?], mask)?;
    Ok(y.reshape(qkv[0].dims())?)
}

fn options(block: usize, blocks_per_row: usize, mode: Mode) -> Options {
    Options {
        block,
        blocks_per_row,
        mode,
        ..Options::default()
    }
}

fn mask() -> Mask {
    let valid = [[1.0; 5], [1.0, 1.0, 1.0, 0.0, 0.0], [0.0; 5]];
    Mask::new(&Tensor::new(&valid, &Device::Cpu).unwrap()).unwrap()
}

/// With all pairs chosen in either mode, and with blocks of one token at any choice. Outputs of
/// padded queries are not compared.
#[test]
fn it_is_softmax_attention_in_the_limits() {
    let twin = DenseReference::whole(reference::softmax);
    let [q, k, v] = ["q", "k", "v"].map(|name| normal(name, &[3, 5, 2, 3]));
    let mask = mask();
    let valid = Some(mask.valid());
    let expected = reference::attention(&q, &k, &v, valid, reference::softmax).unwrap();
    for options in [
        options(2, 3, Mode::Full),
        options(2, 3, Mode::Sparse),
        options(7, 1, Mode::Sparse),
        options(1, 2, Mode::Full),
        options(1, 0, Mode::Full),
    ] {
        let mixer = mixer(&parameters(), options, 5);
        let apart = twin.compare(|q, k, v, _| attend(&mixer, [q, k, v], None));
        assert!(apart.output < 1e-7 && apart.gradient < 1e-7, "{apart:?}");
        for dtype in [DType::F64, DType::F32] {
            let cast = |x: &Tensor| x.to_dtype(dtype).unwrap();
            let mask = Mask::new(&cast(mask.valid())).unwrap();
            let y = attend(&mixer, [&cast(&q), &cast(&k), &cast(&v)], Some(&mask)).unwrap();
            let read = |x: &Tensor| zero_padding(&x.flatten_from(2).unwrap(), Some(&mask)).unwrap();
            close(&read(&y), &cast(&read(&cast(&expected))), 1e-5, "padded");
        }
    }
}

/// Among three blocks the first row and column are chosen, and one pair more, in row 2; with the
/// diagonal, and few pairs, ties go by index.
#[test]
fn pairs_are_chosen_by_what_they_are_short_of_their_rows_best() {
    let scores = [[0.0, 0.0, 0.0], [0.0, -5.0, -6.0], [7.0, 6.5, 6.0f64]];
    let low = Tensor::new(&scores, &Device::Cpu).unwrap();
    let low = low.reshape((1, 1, 3, 3)).unwrap();
    let counts = Tensor::new(&[[2.0, 2.0, 1.0f64]], &Device::Cpu).unwrap();
    let chosen = |per_row, diagonal, counts: &Tensor| {
        let options = Options {
            diagonal,
            ..options(2, per_row, Mode::Full)
        };
        let mixer = mixer(&parameters(), options, 5);
        mixer.choose(&low, counts).unwrap().remove(0).keys
    };
    assert_eq!(chosen(2, 0, &counts), [vec![0, 1, 2], vec![0], vec![0, 1]]);
    assert_eq!(chosen(1, 1, &counts), [vec![0, 1, 2], vec![], vec![]]);
    let short = Tensor::new(&[[2.0, 1.0, 0.0f64]], &Device::Cpu).unwrap();
    assert_eq!(chosen(2, 0, &short), [vec![0, 1], vec![0, 1], vec![]]);
}

#[test]
fn gradients_agree_with_differences() {
    let mask = mask();
    for mode in [Mode::Full, Mode::Sparse] {
        let parameters = parameters();
        let mixer = mixer(&parameters, options(2, 2, mode), 5);
        check_layer("mra", &parameters, &[3, 5, 6], |x| {
            let pass = Pass::new(false, RngKey::new(1, 0, 0)).with_mask(Some(&mask));
            zero_padding(&mixer.forward(x, &pass)?, Some(&mask))
        });
    }
}
