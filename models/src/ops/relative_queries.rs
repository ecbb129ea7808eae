//! Queries that score keys by contents and by distance: Transformer-XL's, Dai et al., 2019, arXiv:1901.02860.
//!     y_l = [q_l + u ; R_l P (q_l + w)]
//! for each head, R_l the rotation of neighbouring columns 2c and 2c + 1 by l·10000^{-2 c / C}.

use candle_core::Tensor;

use super::{cat, check, checkpoint::checkpoint, matmul, rotary, rotary::rounded_turns};
use crate::{Result, kernels};

/// q (B, L, H E) at positions `start` on with biases u = `content` and w = `position` (H, E) and P = `pairs` (H, E, C):
/// (B, L, H (E + C)).
///
/// # Errors
/// If shapes do not fit.
pub fn relative_queries(
    q: &Tensor,
    [content, position]: [&Tensor; 2],
    pairs: &Tensor,
    start: usize,
) -> Result<Tensor> {
    let ((_, length, row), (heads, width, columns)) = (q.dims3()?, pairs.dims3()?);
    let fits = |bias: &Tensor| bias.dims() == [heads, width];
    check(
        row == heads * width && fits(content) && fits(position),
        "relative_queries",
        || {
            let shapes = [q, content, position, pairs].map(Tensor::shape);
            format!("queries, biases and matrices {shapes:?} do not fit")
        },
    )?;
    if kernels::supports(q) {
        let turns = rounded_turns(start, length, columns);
        return Ok(kernels::relative_queries(
            q,
            [content, position],
            pairs,
            turns,
        )?);
    }
    // What leads to the wider heads is several times as large as they are.
    let [content, position, pairs] = [content, position, pairs].map(Clone::clone);
    checkpoint(q, move |q| {
        composed(q, [&content, &position], &pairs, start)
    })
}

fn composed(
    q: &Tensor,
    [content, position]: [&Tensor; 2],
    pairs: &Tensor,
    start: usize,
) -> Result<Tensor> {
    let ((batch, length, _), (heads, width, columns)) = (q.dims3()?, pairs.dims3()?);
    let q = q.reshape((batch, length, heads, width))?;
    let shifted = q.broadcast_add(position)?;
    let shifted = shifted.reshape((batch * length, heads, width))?;
    let g = matmul(&shifted.transpose(0, 1)?.contiguous()?, pairs)?; // (H, B L, C)
    let g = g
        .transpose(0, 1)?
        .reshape((batch, length, heads * columns))?;
    let g = rotary(&g, start, heads * columns, columns)?;
    let g = g.reshape((batch, length, heads, columns))?;
    Ok(cat(&[&q.broadcast_add(content)?, &g], 3)?.flatten_from(2)?)
}

#[cfg(test)]
mod tests {
    use candle_core::DType;

    use super::*;
    use crate::kernels::reference::{Sampler, agree};
    use crate::testing::{check_gradient, normal};

    fn run(x: &[Tensor], start: usize) -> Result<Tensor> {
        relative_queries(&x[0], [&x[1], &x[2]], &x[3], start)
    }

    #[test]
    fn the_kernel_meets_its_composed_form() {
        let mut sampler = Sampler::new(17);
        for (batch, length, heads, width, columns, start) in [
            (1, 1, 1, 1, 2, 0),
            (2, 5, 2, 3, 4, 7),
            (3, 130, 2, 8, 16, 0),
            (2, 300, 1, 64, 64, 1),
            (1, 70, 3, 5, 6, 0),
        ] {
            let shapes: [&[usize]; 4] = [
                &[batch, length, heads * width],
                &[heads, width],
                &[heads, width],
                &[heads, width, columns],
            ];
            let scales = [1.0, 0.5, 0.5, (width as f64).powf(-0.5)];
            let inputs = shapes.iter().zip(scales);
            let inputs: Vec<_> = inputs.map(|(s, scale)| sampler.normal(s, scale)).collect();
            let f = |x: &[Tensor]| Ok(run(x, start)?);
            agree("relative_queries", &inputs, f, f);
        }
    }

    #[test]
    fn gradients_are_difference_quotients() {
        check_gradient(
            "relative_queries",
            &[&[2, 3, 4], &[2, 2], &[2, 2], &[2, 2, 4]],
            |x| run(x, 1),
        );
    }

    #[test]
    fn shapes_that_do_not_fit_are_errors() {
        for dtype in [DType::F32, DType::F64] {
            let normal = |shape: &[usize]| normal("x", shape).to_dtype(dtype).unwrap();
            let (q, pairs) = (normal(&[1, 3, 4]), normal(&[2, 2, 4]));
            for (content, position) in [([2, 2], [2, 3]), ([1, 2], [2, 2])] {
                let biases = [&normal(&content), &normal(&position)];
                assert!(relative_queries(&q, biases, &pairs, 0).is_err());
            }
            let biases = [&normal(&[2, 2]), &normal(&[2, 2])];
            assert!(relative_queries(&normal(&[1, 3, 5]), biases, &pairs, 0).is_err());
        }
    }
}
