//! Tests of clustered attention.

use candle_core::{Device, Tensor};

use super::*;
use crate::{
    Mask, RngKey,
    mask::zero_padding,
    options::BlockOptions,
    params::Parameters,
    reference,
    testing::{DenseReference, check_layer, normal, parameters},
};

fn mixer(parameters: &Parameters, dim: usize, options: &Options) -> Clustered {
    let block = BlockOptions {
        dim,
        qkv_dim: dim,
        heads: 2,
        attention_dropout: 0.0,
        ..BlockOptions::default()
    };
    let layer = LayerContext::new(parameters.builder(), &block, 5);
    Clustered::new(&layer, options).unwrap()
}

fn options(clusters: usize, topk: Option<usize>) -> Options {
    Options {
        clusters,
        improved: topk.is_some(),
        topk: topk.unwrap_or(1),
        ..Options::default()
    }
}

/// Holds for any clusters, if all keys are looked at again, and if every query is a cluster.
#[test]
fn all_keys_or_as_many_clusters_as_queries_give_softmax_attention() {
    for (clusters, topk) in [
        (1, Some(5)),
        (2, Some(9)),
        (5, Some(5)),
        (5, None),
        (8, None),
    ] {
        let mixer = mixer(&parameters(), 6, &options(clusters, topk));
        let apart = DenseReference::whole(reference::softmax).compare(|q, k, v, mask| {
            let pass = Pass::new(false, RngKey::new(1, 0, 0));
            mixer.attend([q, k, v].map(Clone::clone), &pass.with_mask(mask))
        });
        let place = format!("{clusters} {topk:?}: {apart:?}");
        assert!(apart.output < 1e-7 && apart.gradient < 1e-7, "{place}");
    }
}

#[test]
fn queries_of_a_cluster_get_the_same_and_improved_ones_keep_its_weights() {
    let qkv = || ["q", "k", "v"].map(|name| normal(name, &[1, 5, 2, 3]));
    let pass = Pass::new(false, RngKey::new(1, 0, 0));
    let one = mixer(&parameters(), 6, &options(1, None));
    let y = one.attend(qkv(), &pass).unwrap().get(0).unwrap();
    let rows: Vec<Vec<f64>> = y.flatten_from(1).unwrap().to_vec2().unwrap();
    assert!(rows.iter().all(|row| *row == rows[0]));
    // Values that are all ones: weights sum to one, whichever keys are looked at again.
    let [q, k, v] = qkv();
    let improved = mixer(&parameters(), 6, &options(2, Some(2)));
    let y = improved
        .attend([q, k, v.ones_like().unwrap()], &pass)
        .unwrap();
    let y: Vec<f64> = y.flatten_all().unwrap().to_vec1().unwrap();
    assert!(y.iter().all(|y| (y - 1.0).abs() < 1e-12));
    // A cluster of more queries than a block of attention has.
    let mut single = mixer(&parameters(), 6, &options(1, Some(2)));
    single.lloyd.max_length = 70;
    let [q, k, v] = ["q", "k", "v"].map(|name| normal(name, &[1, 70, 2, 3]));
    let y = single
        .attend([q, k, v.ones_like().unwrap()], &pass)
        .unwrap();
    let y: Vec<f64> = y.flatten_all().unwrap().to_vec1().unwrap();
    assert!(y.iter().all(|y| (y - 1.0).abs() < 1e-12));
}

#[test]
fn gradients_agree_with_differences() {
    let valid = [[1.0; 5], [1.0, 1.0, 0.0, 0.0, 0.0], [0.0; 5]];
    let mask = Mask::new(&Tensor::new(&valid, &Device::Cpu).unwrap()).unwrap();
    for topk in [None, Some(2)] {
        let parameters = parameters();
        let mixer = mixer(&parameters, 4, &options(2, topk));
        check_layer("clustered", &parameters, &[3, 5, 4], |x| {
            let pass = Pass::new(false, RngKey::new(1, 0, 0));
            let y = mixer.forward(x, &pass.with_mask(Some(&mask)))?;
            // Outputs at padded positions are not compared.
            zero_padding(&y, Some(&mask))
        });
    }
}
