use candle_core::D;

use super::*;
use crate::kernels::reference::{Sampler, agree};
use crate::rng::{RngKey, StreamKey};

fn composed(x: &[Tensor], options: &FeedForwardOptions) -> Result<Tensor> {
    let drop = |x: Tensor, dropout: Option<(Stream, f64)>| match dropout {
        Some((stream, rate)) => {
            let mask = stream.mask_tensor(x.shape(), rate, x.dtype(), x.device());
            x * mask.map_err(candle_core::Error::wrap)?
        }
        None => Ok(x),
    };
    let normal = match &options.norm {
        Some(norm) => {
            let centred = x[0].broadcast_sub(&x[0].mean_keepdim(D::Minus1)?)?;
            let variance = centred.sqr()?.mean_keepdim(D::Minus1)?;
            let normal = centred.broadcast_div(&(variance + norm.epsilon)?.sqrt()?)?;
            normal.broadcast_mul(&x[5])?.broadcast_add(&x[6])?
        }
        None => x[0].clone(),
    };
    let h = normal.broadcast_matmul(&x[1].t()?)?.broadcast_add(&x[2])?;
    let a = match options.activation {
        Activation::Relu { .. } => h.relu()?,
        Activation::GeluErf => h.gelu_erf()?,
        _ => h.gelu()?,
    };
    let a = drop(a, options.inner_dropout)?;
    let y = a.broadcast_matmul(&x[3].t()?)?.broadcast_add(&x[4])?;
    let y = drop(y, options.outer_dropout)?;
    if options.residual { &x[0] + y } else { Ok(y) }
}

#[test]
fn feed_forward_meets_its_twin() {
    let mut sampler = Sampler::new(31);
    let rng = RngKey::new(1, 2, 3);
    let stream = |name| rng.per_example(StreamKey::new(name));
    let forms = [
        (vec![3, 5, 7], 9, true, true, Activation::GeluTanh),
        (vec![2, 131, 16], 24, true, true, Activation::GeluErf),
        (
            vec![2, 70, 12],
            5,
            false,
            true,
            Activation::Relu { floor: 0.0 },
        ),
        (vec![1, 300, 33], 20, true, false, Activation::GeluTanh),
        (vec![9, 4], 6, false, false, Activation::GeluErf),
        // With whole tiles that have no gradient.
        (vec![2, 512, 6], 8, true, true, Activation::GeluTanh),
        // Beyond what is summed from partials.
        (vec![2, 3, 180], 400, true, true, Activation::GeluTanh),
        (vec![2, 512, 180], 400, true, false, Activation::GeluTanh),
    ];
    for (shape, inner, norm, residual, activation) in forms {
        let width = shape[shape.len() - 1];
        let scale = |count: usize| (count as f64).powf(-0.5);
        let inputs = [
            sampler.normal(&shape, 1.0),
            sampler.normal(&[inner, width], scale(width)),
            sampler.normal(&[inner], 0.3),
            sampler.normal(&[width, inner], scale(inner)),
            sampler.normal(&[width], 0.3),
            sampler.normal(&[width], 1.0),
            sampler.normal(&[width], 0.3),
        ];
        for rate in [0.0, 0.3] {
            let dropout = |name| (rate > 0.0).then(|| (stream(name), rate));
            let options = |x: &[Tensor], f: &dyn Fn(&FeedForwardOptions) -> Result<Tensor>| {
                f(&FeedForwardOptions {
                    norm: norm.then(|| Normalised {
                        gain: &x[5],
                        offset: &x[6],
                        epsilon: 1e-2,
                    }),
                    activation,
                    inner_dropout: dropout("inner"),
                    outer_dropout: dropout("outer"),
                    residual,
                })
            };
            let inputs = if norm { &inputs[..] } else { &inputs[..5] };
            agree(
                "feed-forward",
                inputs,
                |x| {
                    options(x, &|o| {
                        feed_forward(&x[0], [&x[1], &x[2]], [&x[3], &x[4]], o)
                    })
                },
                |x| options(x, &|o| composed(x, o)),
            );
        }
    }
}

#[test]
fn shapes_that_do_not_fit_are_errors() {
    let mut sampler = Sampler::new(32);
    let mut normal = |shape: &[usize]| sampler.normal(shape, 1.0);
    let (x, w1, b1) = (normal(&[2, 3]), normal(&[4, 3]), normal(&[4]));
    let (w2, b2) = (normal(&[3, 5]), normal(&[3]));
    let options = FeedForwardOptions {
        norm: None,
        activation: Activation::GeluTanh,
        inner_dropout: None,
        outer_dropout: None,
        residual: false,
    };
    assert!(feed_forward(&x, [&w1, &b1], [&w2, &b2], &options).is_err());
}
