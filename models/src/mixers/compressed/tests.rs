//! Tests of memory-compressed attention.

use candle_core::{DType, Device};

use super::*;
use crate::{
    RngKey,
    ops::attention,
    options::BlockOptions,
    reference,
    testing::{check_layer, meets_reference, normal, parameters},
};

/// Returns the kernel that leaves (.., W) as it is.
fn identity(channels: usize, of_group: usize) -> Compression {
    let eye = Tensor::eye(of_group, DType::F64, &Device::Cpu).unwrap();
    let eye = eye.repeat((channels / of_group, 1)).unwrap();
    Compression {
        kernel: eye.unsqueeze(2).unwrap(),
    }
}

#[test]
fn groups_of_one_left_as_they_are_give_softmax_attention() {
    for of_group in [3, 6] {
        let compression = identity(6, of_group);
        meets_reference("compressed", 1e-7, reference::softmax, |q, k, v, mask| {
            let options = AttentionOptions {
                heads: 2,
                mask: compression.mask(mask)?,
                ..AttentionOptions::default()
            };
            let flat = |x: &Tensor| x.flatten_from(2);
            let (k, v) = (
                compression.forward(&flat(k)?)?,
                compression.forward(&flat(v)?)?,
            );
            let y = attention::attend(&flat(q)?, &k, &v, &options)?;
            Ok(y.reshape(q.dims())?)
        });
    }
}

#[test]
fn groups_are_sums_of_what_their_places_weigh() {
    let kernel = normal("kernel", &[4, 2, 3]);
    let x = normal("x", &[1, 7, 4]);
    let y = Compression {
        kernel: kernel.clone(),
    };
    let y: Vec<Vec<f64>> = y.forward(&x).unwrap().get(0).unwrap().to_vec2().unwrap();
    let (kernel, x) = (kernel.to_vec3::<f64>().unwrap(), x.get(0).unwrap());
    let x = x.to_vec2::<f64>().unwrap();
    assert_eq!(y.len(), 3);
    for (group, row) in y.iter().enumerate() {
        for (channel, actual) in row.iter().enumerate() {
            let mut sum = 0.0;
            for (input, place) in (0..2).flat_map(|i| (0..3).map(move |place| (i, place))) {
                let x = x.get(3 * group + place);
                let x = x.map_or(0.0, |x| x[channel / 2 * 2 + input]);
                sum += kernel[channel][input][place] * x;
            }
            assert!((actual - sum).abs() < 1e-12);
        }
    }
}

#[test]
fn gradients_agree_with_differences() {
    let valid = [[1.0; 5], [1.0, 1.0, 0.0, 0.0, 0.0], [0.0; 5]];
    let mask = Mask::new(&Tensor::new(&valid, &Device::Cpu).unwrap()).unwrap();
    let block = BlockOptions {
        dim: 3,
        qkv_dim: 4,
        heads: 2,
        memory: 1,
        ..BlockOptions::default()
    };
    for (convolve, local) in [
        (Convolve::Heads, 0),
        (Convolve::All, 0),
        (Convolve::Input, 0),
        (Convolve::Heads, 2),
    ] {
        let parameters = parameters();
        let layer = LayerContext::new(parameters.builder(), &block, 5);
        let options = Options {
            factor: 2,
            convolve,
            local,
        };
        let mixer = Compressed::new(&layer, &options).unwrap();
        check_layer("compressed", &parameters, &[3, 5, 3], |x| {
            let pass = Pass::new(false, RngKey::new(1, 0, 0));
            mixer.forward(x, &pass.with_mask(Some(&mask)))
        });
    }
}
