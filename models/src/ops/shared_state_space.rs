//! Diagonal state spaces whose states all channels share: S5 (arXiv 2208.04933) and linear recurrent units (arXiv 2303.06349).
//!     h_t = λ ⊙ h_{t-1} + B x_t,  y_t = Re(C h_t)

use candle_core::Tensor;

use super::{Complex, ScanOptions, check, linear, scan_packed};
use crate::{Packing, Result};

/// y (B, L, D) of x (B, L, D) by states that all channels share: h_t = λ h_{t-1} + B x_t, y_t = Re(C h_t), λ (P), B (P, D) and C (D, P) complex.
///
/// With C (D, 2 P) its second half reads states that run from the end of the sequence; a position sees itself both ways.
/// Sequences may be packed, x being (1, T, D). Two products with matrices and a [`super::scan()`]: O(B L P D) time, O(B L P) memory.
///
/// # Errors
/// If shapes do not fit.
pub fn shared_state_space(
    x: &Tensor,
    lambda: &Complex,
    b: &Complex,
    c: &Complex,
    packing: Option<&Packing>,
) -> Result<Tensor> {
    let ((_, _, width), states) = (x.dims3()?, lambda.re.elem_count());
    let directions =
        c.re.dims()
            .get(1)
            .map_or(0, |columns| columns / states.max(1));
    let fits = states > 0
        && lambda.re.rank() == 1
        && b.re.dims() == [states, width]
        && c.re.dims() == [width, directions * states]
        && (1..=2).contains(&directions)
        && [lambda, b, c].iter().all(|z| z.re.dims() == z.im.dims());
    check(fits, "state space", || {
        let (b, c) = (b.re.shape(), c.re.shape());
        format!(
            "x {:?}, B {b:?} and C {c:?} do not fit {states} states",
            x.shape()
        )
    })?;
    let entering = linear(x, &Tensor::cat(&[&b.re, &b.im], 0)?, None)?; // (B, L, 2 P)
    let lambda = lambda.planes()?;
    let mut y: Option<Tensor> = None;
    for direction in 0..directions {
        let options = ScanOptions {
            complex: true,
            reverse: direction == 1,
        };
        let h = scan_packed(&entering, &lambda, options, packing)?;
        let part = |c: &Tensor| c.narrow(1, direction * states, states);
        let weight = Tensor::cat(&[part(&c.re)?, part(&c.im)?.neg()?], 1)?; // (D, 2 P)
        let read = linear(&h, &weight, None)?;
        y = Some(match y {
            Some(y) => (y + read)?,
            None => read,
        });
    }
    Ok(y.unwrap_or_else(|| x.clone()))
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;
    use crate::testing::{close, normal};

    /// Against the recurrence, state by state.
    #[test]
    fn shared_states_are_those_of_the_recurrence() {
        let (batch, length, width, states) = (2, 7, 3, 4);
        let of = |name: &str, shape: &[usize]| {
            Complex::new(normal(name, shape), normal(&format!("i {name}"), shape))
        };
        let lambda = of("lambda", &[states]).affine(0.4, 0.0).unwrap();
        let (b, c) = (of("b", &[states, width]), of("c", &[width, 2 * states]));
        let x = normal("x", &[batch, length, width]);
        let found = shared_state_space(&x, &lambda, &b, &c, None).unwrap();
        let one = |z: &Complex| -> Vec<(f64, f64)> {
            let flat = |x: &Tensor| x.flatten_all().unwrap().to_vec1::<f64>().unwrap();
            flat(&z.re).into_iter().zip(flat(&z.im)).collect()
        };
        let mul = |a: (f64, f64), b: (f64, f64)| (a.0 * b.0 - a.1 * b.1, a.0 * b.1 + a.1 * b.0);
        let data: Vec<Vec<Vec<f64>>> = x.to_vec3().unwrap();
        let (lambda, b, c) = (one(&lambda), one(&b), one(&c));
        let mut wanted = vec![vec![vec![0.0; width]; length]; batch];
        for (row, x) in data.iter().enumerate() {
            for direction in 0..2 {
                let mut h = vec![(0.0, 0.0); states];
                for step in 0..length {
                    let t = if direction == 0 {
                        step
                    } else {
                        length - 1 - step
                    };
                    for (p, h) in h.iter_mut().enumerate() {
                        let before = mul(lambda[p], *h);
                        let enters = (0..width).fold((0.0, 0.0), |sum, d| {
                            let b = b[p * width + d];
                            (sum.0 + b.0 * x[t][d], sum.1 + b.1 * x[t][d])
                        });
                        *h = (before.0 + enters.0, before.1 + enters.1);
                    }
                    for d in 0..width {
                        let c = &c[(2 * d + direction) * states..][..states];
                        let read = c.iter().zip(&h).map(|(c, h)| mul(*c, *h).0);
                        wanted[row][t][d] += read.sum::<f64>();
                    }
                }
            }
        }
        close(
            &found,
            &Tensor::new(wanted, &Device::Cpu).unwrap(),
            1e-11,
            "shared states",
        );
        assert!(
            shared_state_space(
                &x,
                &of("l", &[3]),
                &of("b", &[4, 3]),
                &of("c", &[3, 4]),
                None
            )
            .is_err()
        );
    }
}
