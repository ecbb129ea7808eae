//! State spaces whose steps and projections depend on the token, as in Mamba (arXiv 2312.00752).

use candle_core::{D, Tensor};

use super::check;
use super::scan::{ScanOptions, composed as scan};
use crate::{Result, kernels};

/// Positions whose states are written down together where there is no kernel.
const CHUNK: usize = 64;

/// y (B, L, D) of x and steps δ, both (B, L, D): for each channel d of its own
/// `h_tn = e^(δ_td a_dn) h_(t-1)n + δ_td b_tn x_td`, `y_td = Σ_n c_tn h_tn + skip_d x_td`.
///
/// `a` is (D, N), negative for states that fade; `projections` (B, L, 2 N) are b and behind it c, which all channels share; `skip` is (D).
/// A position with δ = 0 leaves every state as it was.
///
/// On the CPU O(B L D N) time in one pass with states in registers; for its backward pass it keeps N/32 states a token and channel.
/// Elsewhere states are written down, chunk by chunk, with O(B L D N) memory where there are gradients.
///
/// # Errors
/// If shapes do not fit.
pub fn selective_scan(
    x: &Tensor,
    delta: &Tensor,
    a: &Tensor,
    projections: &Tensor,
    skip: &Tensor,
) -> Result<Tensor> {
    let ((batch, length, width), (channels, modes)) = (x.dims3()?, a.dims2()?);
    let fits = channels == width
        && modes > 0
        && delta.dims() == x.dims()
        && projections.dims() == [batch, length, 2 * modes]
        && skip.dims() == [width];
    check(fits, "selective scan", || {
        let (x, delta, a) = (x.shape(), delta.shape(), a.shape());
        let (projections, skip) = (projections.shape(), skip.shape());
        format!(
            "x {x:?}, steps {delta:?}, a {a:?}, projections {projections:?} and skip {skip:?} do not fit"
        )
    })?;
    if kernels::supports(x) {
        let parameters = Tensor::cat(&[&a.t()?, &skip.unsqueeze(0)?], 0)?;
        return Ok(kernels::selective_scan(x, delta, projections, &parameters)?);
    }
    composed(x, delta, a, projections, skip)
}

/// The same with the states of a chunk written down.
fn composed(
    x: &Tensor,
    delta: &Tensor,
    a: &Tensor,
    projections: &Tensor,
    skip: &Tensor,
) -> Result<Tensor> {
    let ((batch, length, width), modes) = (x.dims3()?, a.dim(1)?);
    let mut state: Option<Tensor> = None; // (B, 1, D N)
    let mut all = Vec::new();
    for start in (0..length).step_by(CHUNK) {
        let rows = CHUNK.min(length - start);
        let part = |x: &Tensor| x.narrow(1, start, rows);
        let (delta, projections) = (part(delta)?, part(projections)?);
        let flat = |x: Tensor| x.reshape((batch, rows, width * modes));
        let decay = flat(delta.unsqueeze(3)?.broadcast_mul(a)?.exp()?)?;
        let input = (part(x)? * delta)?.unsqueeze(3)?;
        let row = |start| projections.narrow(2, start, modes)?.unsqueeze(2); // (B, rows, 1, N)
        let input = flat(input.broadcast_mul(&row(0)?)?)?;
        let input = match &state {
            Some(state) => {
                let first = (decay.narrow(1, 0, 1)? * state)?;
                (input + first.pad_with_zeros(1, 0, rows - 1)?)?
            }
            None => input,
        };
        let h = scan(&input, &decay, ScanOptions::default())?;
        state = Some(h.narrow(1, rows - 1, 1)?);
        let h = h.reshape((batch, rows, width, modes))?;
        all.push(h.broadcast_mul(&row(modes)?)?.sum(D::Minus1)?);
    }
    Ok((Tensor::cat(&all, 1)? + x.broadcast_mul(skip)?)?)
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;
    use crate::kernels::reference::{Sampler, agree};
    use crate::ops::activation::softplus;
    use crate::testing::{check_gradient, close, normal};

    /// Of x, what softplus makes steps of, what -exp makes a of, projections and skip.
    fn apply(x: &[Tensor]) -> Result<Tensor> {
        let delta = softplus(&x[1])?;
        let a = x[2].exp()?.neg()?;
        selective_scan(&x[0], &delta, &a, &x[3], &x[4])
    }

    fn shapes([batch, length, width]: [usize; 3], modes: usize) -> [Vec<usize>; 5] {
        [
            vec![batch, length, width],
            vec![batch, length, width],
            vec![width, modes],
            vec![batch, length, 2 * modes],
            vec![width],
        ]
    }

    #[test]
    fn the_composed_form_is_the_recurrence_step_by_step() {
        for length in [1, 2, 5, 64, 65, 130] {
            let shapes = shapes([2, length, 3], 2);
            let draw = |(i, shape): (usize, &Vec<usize>)| normal(&format!("{i}"), shape);
            let inputs: Vec<Tensor> = shapes.iter().enumerate().map(draw).collect();
            let numbers = |i: usize| inputs[i].to_vec3::<f64>().unwrap();
            let (x, steps, projections) = (numbers(0), numbers(1), numbers(3));
            let a: Vec<Vec<f64>> = inputs[2].to_vec2().unwrap();
            let skip: Vec<f64> = inputs[4].to_vec1().unwrap();
            let mut wanted = x.clone();
            for (b, d) in (0..2).flat_map(|b| (0..3).map(move |d| (b, d))) {
                let mut h = [0.0; 2];
                for t in 0..length {
                    let delta = (steps[b][t][d].exp() + 1.0).ln();
                    wanted[b][t][d] = skip[d] * x[b][t][d];
                    for n in 0..2 {
                        let decay = (-delta * a[d][n].exp()).exp();
                        h[n] = decay * h[n] + delta * projections[b][t][n] * x[b][t][d];
                        wanted[b][t][d] += projections[b][t][2 + n] * h[n];
                    }
                }
            }
            let wanted = Tensor::new(wanted, &Device::Cpu).unwrap();
            let place = format!("length {length}");
            close(&apply(&inputs).unwrap(), &wanted, 1e-11, &place);
        }
    }

    #[test]
    fn the_kernel_meets_its_composed_form() {
        let mut sampler = Sampler::new(141);
        for (shape, modes) in [
            ([1, 1, 1], 1),
            ([2, 37, 5], 3),
            ([3, 32, 16], 16),
            ([2, 70, 35], 4),
        ] {
            let inputs: Vec<_> = shapes(shape, modes)
                .iter()
                .map(|shape| sampler.normal(shape, 0.7))
                .collect();
            let f = |x: &[Tensor]| Ok(apply(x)?);
            agree("selective scan", &inputs, f, f);
        }
    }

    #[test]
    fn gradients_are_difference_quotients() {
        let shapes = shapes([2, 5, 2], 3);
        let shapes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
        check_gradient("selective scan", &shapes, apply);
    }

    #[test]
    fn shapes_that_do_not_fit_are_errors() {
        let shapes = shapes([2, 5, 3], 2);
        let good: Vec<Tensor> = shapes.iter().map(|shape| normal("x", shape)).collect();
        for (index, shape) in [
            (1, vec![2, 5, 2]),
            (2, vec![2, 2]),
            (3, vec![2, 5, 3]),
            (4, vec![2]),
        ] {
            let mut x = good.clone();
            x[index] = normal("x", &shape);
            let message = selective_scan(&x[0], &x[1], &x[2], &x[3], &x[4]);
            let message = message.unwrap_err().to_string();
            assert!(message.contains("do not fit"), "{message}");
        }
    }
}
