use candle_core::Device;

use super::*;
use crate::{
    Parameters, RngKey,
    mask::zero_padding,
    options::BlockOptions,
    params::Updates,
    reference,
    testing::{DenseReference, check_layer, close, normal, parameters},
};

fn pass() -> Pass<'static> {
    Pass::new(false, RngKey::new(1, 0, 0))
}

fn mixer(parameters: &Parameters, options: &Options) -> Routing {
    let block = BlockOptions {
        layers: 1,
        dim: 4,
        qkv_dim: 6,
        heads: 2,
        ..BlockOptions::default()
    };
    let layer = LayerContext::new(parameters.builder(), &block, 6);
    Routing::new(&layer, options).unwrap()
}

fn all_routed(clusters: usize, window: usize) -> Options {
    Options {
        clusters,
        window,
        routed_heads: 2,
        ..Options::default()
    }
}

#[test]
fn one_cluster_that_takes_all_is_softmax_attention() {
    for (clusters, window) in [(1, 5), (1, 9), (3, 6)] {
        let clusters = mixer(&parameters(), &all_routed(clusters, window)).clusters;
        // Padded queries are in no cluster, so there are none.
        let apart = DenseReference::whole(reference::softmax).compare(|q, k, v, mask| {
            let flat = [q, k, v].map(|x| x.flatten_from(2).unwrap());
            let pass = pass();
            let pass = pass.with_mask(mask);
            let y = clusters.attend([&flat[0], &flat[1], &flat[2]], None, &pass)?;
            Ok(y.reshape(q.dims())?)
        });
        assert!(apart.output < 1e-7 && apart.gradient < 1e-7, "{apart:?}");
    }
}

#[test]
fn gradients_agree_with_differences() {
    let valid = [[1.0; 5], [1.0, 1.0, 0.0, 0.0, 0.0], [0.0; 5]];
    let mask = Mask::new(&Tensor::new(&valid, &Device::Cpu).unwrap()).unwrap();
    for routed_heads in [1, 2] {
        let parameters = parameters();
        let options = Options {
            clusters: 2,
            window: 3,
            routed_heads,
            local_window: 2,
            ..Options::default()
        };
        let mixer = mixer(&parameters, &options);
        check_layer("routing", &parameters, &[3, 5, 4], |x| {
            let pass = pass();
            let y = mixer.forward(x, &pass.with_mask(Some(&mask)))?;
            zero_padding(&y, Some(&mask))
        });
    }
}

/// Centroids move to the nearest vectors, once per step, by the same sums for any split of the
/// batch.
#[test]
fn centroids_follow_real_queries_and_keys() {
    let valid = [[1.0; 5], [1.0, 1.0, 0.0, 0.0, 0.0], [0.0; 5]];
    let valid = Tensor::new(&valid, &Device::Cpu).unwrap();
    let x = normal("x", &[3, 5, 6]);
    let after = |parts: &[(usize, usize)]| {
        let parameters = parameters();
        let clusters = mixer(&parameters, &all_routed(3, 2)).clusters;
        let before = clusters.sums.value().copy().unwrap();
        let updates = Updates::default();
        for (first, rows) in parts {
            let part = |x: &Tensor| x.narrow(0, *first, *rows).unwrap();
            let mask = Mask::new(&part(&valid)).unwrap();
            let training = Pass::new(true, RngKey::new(1, 0, 0));
            let pass = training.with_mask(Some(&mask)).with_updates(&updates);
            let x = part(&x);
            clusters.attend([&x, &x, &x], None, &pass).unwrap();
        }
        updates.commit(&parameters).unwrap();
        (before, clusters.sums.value().copy().unwrap())
    };
    let (before, whole) = after(&[(0, 3)]);
    close(&after(&[(0, 1), (1, 2)]).1, &whole, 1e-12, "micro-batches");
    let unit = |x: &Tensor| l2_normalize(x, 3).unwrap();
    let centroids: Vec<Vec<Vec<f64>>> = unit(&before).to_vec3().unwrap();
    let vectors = unit(&x).reshape((15, 2, 3)).unwrap();
    let vectors: Vec<Vec<Vec<f64>>> = vectors.to_vec3().unwrap();
    let mut seen = vec![0.0; 18];
    for vector in vectors[..7].iter() {
        for (head, x) in vector.iter().enumerate() {
            let dot =
                |centroid: &Vec<f64>| -> f64 { x.iter().zip(centroid).map(|(x, c)| x * c).sum() };
            let nearest = (0..3)
                .max_by(|a, b| dot(&centroids[head][*a]).total_cmp(&dot(&centroids[head][*b])));
            for (element, x) in x.iter().enumerate() {
                // Queries and keys are the same here.
                seen[(head * 3 + nearest.unwrap()) * 3 + element] += 2.0 * x;
            }
        }
    }
    let seen = Tensor::from_vec(seen, (2, 3, 3), &Device::Cpu).unwrap();
    let expected = ((before * 0.999).unwrap() + (seen * 0.001).unwrap()).unwrap();
    close(&whole, &expected, 1e-12, "moving average");
}
