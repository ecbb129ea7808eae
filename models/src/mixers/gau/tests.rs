use candle_core::{DType, Device};
use serde_json::json;

use super::*;
use crate::{
    Mask, Parameters, RngKey,
    options::BlockOptions,
    testing::{check_layer, close, normal, parameters},
};

fn block(dim: usize, mlp_dim: usize) -> BlockOptions {
    BlockOptions {
        layers: 1,
        dim,
        mlp_dim,
        ffn: crate::options::ChannelKind::None,
        dropout: 0.0,
        ..BlockOptions::default()
    }
}

fn encoder(
    model: &'static Model,
    parameters: &Parameters,
    block: &BlockOptions,
    options: serde_json::Value,
    longest: usize,
) -> Box<dyn Encoder> {
    let mut all = model.defaults();
    crate::options::overlay(&mut all, &options);
    let context = ModelContext::new(parameters.builder(), block, model, &all, longest);
    model.build(&context).unwrap()
}

fn pass() -> Pass<'static> {
    Pass::new(false, RngKey::new(1, 0, 0))
}

#[test]
fn it_is_its_definition_pair_by_pair() {
    let parameters = parameters();
    let encoder = encoder(&MODEL, &parameters, &block(3, 2), json!({"shared": 2}), 4);
    for (path, var) in parameters.all() {
        var.set(&normal(&path, var.dims())).unwrap();
    }
    let all: std::collections::BTreeMap<String, Tensor> = parameters.save().unwrap();
    let x = normal("x", &[1, 4, 3]);
    let mixers = encoder.mixers();
    let y = mixers[0].forward(&x, &pass()).unwrap();
    let of = |name: &str| all[&format!("0.mixer.{name}")].clone();
    let affine = |x: &Tensor, name: &str| {
        let y = x.matmul(&of(&format!("{name}.weight")).t().unwrap());
        y.unwrap()
            .broadcast_add(&of(&format!("{name}.bias")))
            .unwrap()
    };
    let inner = silu(&affine(&x.get(0).unwrap(), "inner")).unwrap();
    let inner: Vec<Vec<f64>> = inner.to_vec2().unwrap();
    let [scale, shift] = ["attention.scale", "attention.shift"].map(of);
    let (scale, shift) = (scale.to_vec2::<f64>(), shift.to_vec2::<f64>());
    let (scale, shift) = (scale.unwrap(), shift.unwrap());
    let distance = of("attention.distance").to_vec1::<f64>().unwrap();
    let mut gathered = vec![vec![0.0; 2]; 4];
    for (i, j) in (0..4).flat_map(|i| (0..4).map(move |j| (i, j))) {
        let at = |row: usize, which: usize, n: usize| {
            scale[which][n] * inner[row][4 + n] + shift[which][n]
        };
        let product: f64 = (0..2).map(|n| at(i, 0, n) * at(j, 1, n)).sum();
        let weight = (product / 4.0 + distance[3 + j - i]).max(0.0).powi(2);
        for n in 0..2 {
            gathered[i][n] += weight * inner[j][2 + n] * inner[i][n];
        }
    }
    let gathered = Tensor::new(gathered, &Device::Cpu).unwrap();
    let expected = affine(&gathered, "outer").unsqueeze(0).unwrap();
    close(&y, &expected, 1e-10, "gau");
}

#[test]
fn gradients_agree_with_differences() {
    let valid = [[1.0; 5], [1.0, 1.0, 1.0, 0.0, 0.0]];
    let mask = Mask::new(&Tensor::new(&valid, &Device::Cpu).unwrap()).unwrap();
    for (model, chunk) in [(&MODEL, 0), (&MODEL, 2), (&flash::MODEL, 2)] {
        let parameters = parameters();
        let options = json!({"chunk": chunk, "hidden_dropout": 0.2});
        let encoder = encoder(model, &parameters, &block(3, 4), options, 6);
        let pass = Pass::new(true, RngKey::new(1, 0, 0));
        check_layer(model.name, &parameters, &[2, 5, 3], |x| {
            Ok(encoder.forward(x, &pass.with_mask(Some(&mask)))?.hidden)
        });
    }
}

/// The sizes with which it was run on Text, Image and Pathfinder.
#[test]
fn weights_are_as_many_as_the_unit_has() {
    for (layers, dim, hidden, shared, longest) in [
        (4, 128, 256, 64, 4002),
        (8, 192, 512, 128, 1024),
        (6, 128, 384, 64, 1024),
    ] {
        let count = |model| {
            let parameters = Parameters::meta(&Device::Cpu, DType::F32);
            let block = BlockOptions {
                layers,
                norm: crate::options::NormKind::None,
                ..block(dim, hidden)
            };
            let options = json!({"shared": shared, "chunk": longest});
            encoder(model, &parameters, &block, options, longest);
            parameters.elements()
        };
        let linears = (dim + 1) * (2 * hidden + shared) + (hidden + 1) * dim;
        let unit = linears + 4 * shared + 2 * longest - 1;
        assert_eq!(count(&MODEL), layers * unit);
        assert_eq!(count(&flash::MODEL), layers * (unit + 4 * shared));
    }
}
