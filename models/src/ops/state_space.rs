//! Diagonal state spaces with states of each channel's own, in one pass along the sequence: S4D (arXiv 2206.11893),
//! DSS (arXiv 2203.14343), and with real modes Mega's exponential moving average (arXiv 2209.10655).

use candle_core::{D, Tensor};

use super::scan::{ScanOptions, composed as scan, shift};
use super::{Complex, check};
use crate::{Error, Result, kernels, mask::zero_padding, packing::Sequences};

/// N modes for each of D channels, both tensors (D, N): h_t = a h_{t-1} + x_t, read out by c.
#[derive(Clone, Debug)]
pub enum Modes {
    /// Real coefficients.
    Real {
        /// Factor of the state.
        a: Tensor,
        /// Weight of the state in the output.
        c: Tensor,
    },
    /// Complex coefficients, of which the real part is read out. For a mode that stands for a conjugate pair, c
    /// contains the factor 2.
    Complex {
        /// Factor of the state.
        a: Complex,
        /// Weight of the state in the output.
        c: Complex,
    },
}

/// Which way [`state_space`] runs, and what a position sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateSpaceOptions {
    /// From the last position to the first.
    pub reverse: bool,
    /// y_t reads the state before x_t is added, as the second direction of S4 does; a position does not see itself.
    pub exclusive: bool,
}

/// y (B, L, D) of x (B, L, D): `h_t = a h_{t-1} + x_t`, `y_t = Re Σ_n c_n h_t + skip x_t`, for each channel on its own.
///
/// The convolution of x with the kernel K_l = Re Σ_n c_n a_nˡ, never written down; applied to a unit impulse (1, L, D) it
/// is that kernel. `skip` is (D). For two directions see [`state_space_sum`].
///
/// On the CPU O(B L D N) time in one pass with states in registers; for its backward pass it keeps N/64 complex states
/// a token and channel. Beyond a dozen complex modes, [`super::fft_conv`] with the impulse response is faster.
/// Elsewhere it is a [`super::scan()`] over D N columns, with O(B L D N log L) memory.
///
/// # Errors
/// If shapes do not fit.
pub fn state_space(
    x: &Tensor,
    modes: &Modes,
    skip: Option<&Tensor>,
    options: StateSpaceOptions,
) -> Result<Tensor> {
    state_space_sum(x, &[(modes, options)], skip, Sequences::Full)
}

/// The sum over `walks` of what [`state_space`] computes, and `skip` x, in one operation: all real or all complex, with equally many modes.
///
/// Padded positions count as zeros of x, whatever they hold: no other position sees them, and they
/// get no gradient. Their outputs are those of any position of zeros, what the states before and
/// behind it leave there, which a BatchNorm over padding reads.
///
/// # Errors
/// If shapes do not fit.
pub fn state_space_sum(
    x: &Tensor,
    walks: &[(&Modes, StateSpaceOptions)],
    skip: Option<&Tensor>,
    sequences: Sequences,
) -> Result<Tensor> {
    let (batch, length, width) = x.dims3()?;
    let coefficients: Vec<Vec<&Tensor>> = walks
        .iter()
        .map(|(modes, _)| match modes {
            Modes::Real { a, c } => vec![a, c],
            Modes::Complex { a, c } => vec![&a.re, &a.im, &c.re, &c.im],
        })
        .collect();
    let kind = coefficients.first().map_or(0, Vec::len);
    let shapes = || coefficients.iter().flatten().map(|x| x.dims());
    let modes = shapes()
        .next()
        .map_or(0, |shape| shape[1..].iter().product());
    let fits = modes > 0
        && coefficients.iter().all(|all| all.len() == kind)
        && shapes().all(|shape| shape == [width, modes])
        && skip.is_none_or(|skip| skip.dims() == [width])
        && match sequences {
            Sequences::Full => true,
            Sequences::Padded(mask) => mask.valid().dims() == [batch, length],
            Sequences::Packed(packing) => [batch, length] == [1, packing.rows()],
        };
    check(fits, "state space", || {
        let shapes: Vec<_> = shapes().collect();
        let skip = skip.map(Tensor::dims);
        format!(
            "x {:?}, modes {shapes:?}, skip {skip:?} and sequences do not fit",
            x.dims()
        )
    })?;
    if !kernels::supports(x) {
        if let Sequences::Packed(packing) = sequences {
            let y = state_space_sum(&packing.unpack(x)?, walks, skip, Sequences::Full)?;
            return packing.pack(&y);
        }
        let x = match sequences {
            Sequences::Padded(mask) => zero_padding(x, Some(mask))?,
            _ => x.clone(),
        };
        let mut sum = None;
        for (modes, options) in walks {
            let y = composed(&x, modes, *options)?;
            sum = Some(match sum {
                Some(sum) => (sum + y)?,
                None => y,
            });
        }
        let y = sum.unwrap_or_else(|| x.clone());
        return Ok(match skip {
            Some(skip) => (y + x.broadcast_mul(skip)?)?,
            None => y,
        });
    }
    let all = coefficients.iter().flatten();
    let mut rows: Vec<Tensor> = all.map(|x| x.t()).collect::<Result<_, _>>()?;
    rows.push(match skip {
        Some(skip) => skip.unsqueeze(0)?,
        None => Tensor::zeros((1, width), x.dtype(), x.device())?,
    });
    let walk = |(_, options): &(&Modes, StateSpaceOptions)| kernels::Walk {
        reverse: options.reverse,
        exclusive: options.exclusive,
    };
    let options = kernels::StateSpace {
        modes,
        complex: kind == 4,
        walks: walks.iter().map(walk).collect(),
        rows: match sequences {
            Sequences::Full => kernels::Rows::Full,
            Sequences::Padded(mask) => {
                kernels::Rows::Padded(mask.valid().flatten_all()?.to_vec1()?)
            }
            Sequences::Packed(packing) => kernels::Rows::Packed(packing.offsets().clone()),
        },
    };
    kernels::state_space(x, &Tensor::cat(&rows, 0)?, options).map_err(Error::from)
}

/// The same with every state written down.
fn composed(x: &Tensor, modes: &Modes, options: StateSpaceOptions) -> Result<Tensor> {
    let (batch, length, width) = x.dims3()?;
    // Every channel N times: (B, L, D N).
    let repeat = |count: usize| {
        let x = x.unsqueeze(3)?;
        let x = x.broadcast_as((batch, length, width, count))?;
        Ok::<_, Error>(x.reshape((batch, length, width * count))?)
    };
    let read = |h: &Tensor, c: &Tensor| {
        let h = match options.exclusive {
            true => shift(h, 1, options.reverse)?,
            false => h.clone(),
        };
        let h = h.reshape((batch, length, width, c.dim(1)?))?;
        Ok::<_, Error>(h.broadcast_mul(c)?.sum(D::Minus1)?)
    };
    let scanned = |complex| ScanOptions {
        complex,
        reverse: options.reverse,
    };
    match modes {
        Modes::Real { a, c } => {
            let h = scan(&repeat(a.dim(1)?)?, &a.flatten_all()?, scanned(false))?;
            read(&h, c)
        }
        Modes::Complex { a, c } => {
            let x = repeat(a.re.dim(1)?)?;
            let x = Complex::new(x.clone(), x.zeros_like()?).planes()?;
            let a = Complex::new(a.re.flatten_all()?, a.im.flatten_all()?).planes()?;
            let h = Complex::from_planes(&scan(&x, &a, scanned(true))?)?;
            Ok((read(&h.re, &c.re)? - read(&h.im, &c.im)?)?)
        }
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device, Var};

    use super::*;
    use crate::kernels::reference::{Sampler, agree};
    use crate::testing::{check_gradient, close, normal};
    use crate::{Mask, Packing};

    const ALL: [StateSpaceOptions; 4] = [
        of(false, false),
        of(false, true),
        of(true, false),
        of(true, true),
    ];

    const fn of(reverse: bool, exclusive: bool) -> StateSpaceOptions {
        StateSpaceOptions { reverse, exclusive }
    }

    /// The operation on x, modes (two or four tensors, moduli below one) and perhaps a skip.
    fn apply(x: &[Tensor], complex: bool, options: StateSpaceOptions) -> Result<Tensor> {
        let shrunk = |x: &Tensor| Ok::<_, Error>((x.tanh()? * 0.7)?);
        let (modes, skip) = match complex {
            true => {
                let a = Complex::new(shrunk(&x[1])?, shrunk(&x[2])?);
                let c = Complex::new(x[3].clone(), x[4].clone());
                (Modes::Complex { a, c }, x.get(5))
            }
            false => {
                let (a, c) = (shrunk(&x[1])?, x[2].clone());
                (Modes::Real { a, c }, x.get(3))
            }
        };
        state_space(&x[0], &modes, skip, options)
    }

    fn shapes(x: [usize; 3], modes: usize, complex: bool, skip: bool) -> Vec<Vec<usize>> {
        let mut shapes = vec![x.to_vec()];
        shapes.resize(if complex { 5 } else { 3 }, vec![x[2], modes]);
        shapes.extend(skip.then(|| vec![x[2]]));
        shapes
    }

    /// Arithmetic with numbers below 2⁻¹²⁶ is slow, and thousands of rows of padding would make states of them.
    #[test]
    fn states_that_have_faded_are_zero() {
        let length = 4000;
        for complex in [false, true] {
            for options in ALL {
                let mut impulse = vec![0.0_f32; length];
                impulse[if options.reverse { length - 1 } else { 0 }] = 1.0;
                let x = Tensor::from_vec(impulse, (1, length, 1), &Device::Cpu).unwrap();
                let x = Var::from_tensor(&x).unwrap();
                let of = |x: f32| Tensor::full(x, (1, 1), &Device::Cpu).unwrap();
                let modes = match complex {
                    true => Modes::Complex {
                        a: Complex::new(of(0.8), of(0.5)),
                        c: Complex::new(of(1.0), of(0.5)),
                    },
                    false => Modes::Real {
                        a: of(0.95),
                        c: of(1.0),
                    },
                };
                let y = state_space(&x, &modes, None, options).unwrap();
                // The gradient of the sum fades towards neither end; that of one output does.
                let middle = y.flatten_all().unwrap().get(length / 2).unwrap();
                let dx = middle.backward().unwrap().remove(&x).unwrap();
                for numbers in [y, dx] {
                    let numbers = numbers.flatten_all().unwrap().to_vec1::<f32>().unwrap();
                    assert!(numbers.iter().any(|x| *x != 0.0) && numbers.contains(&0.0));
                    assert!(
                        !numbers.iter().any(|x| x.is_subnormal()),
                        "{complex} {options:?}"
                    );
                }
            }
        }
    }

    /// Real parts of Σ_n c_n aˡ for each channel.
    fn power(x: &[Tensor], lag: i32) -> Vec<f64> {
        let modes: Vec<Vec<Vec<f64>>> = x[1..5].iter().map(|x| x.to_vec2().unwrap()).collect();
        let term = |d: usize, n: usize| {
            let [re, im] = [0, 1].map(|i: usize| 0.7 * modes[i][d][n].tanh());
            let (modulus, angle) = (re.hypot(im).powi(lag), im.atan2(re) * f64::from(lag));
            modulus * (modes[2][d][n] * angle.cos() - modes[3][d][n] * angle.sin())
        };
        let channel = |d: usize| (0..modes[0][d].len()).map(|n| term(d, n)).sum();
        (0..modes[0].len()).map(channel).collect()
    }

    /// The convolution with these powers, one term after the other.
    fn sums(x: &[Tensor], options: StateSpaceOptions) -> Tensor {
        let (batch, length, width) = x[0].dims3().unwrap();
        let data = x[0].to_vec3::<f64>().unwrap();
        let skip = x[5].to_vec1::<f64>().unwrap();
        let mut y = data.clone();
        for (b, t) in (0..batch).flat_map(|b| (0..length).map(move |t| (b, t))) {
            (0..width).for_each(|d| y[b][t][d] *= skip[d]);
            for (from, row) in data[b].iter().enumerate() {
                let behind = t as i32 - from as i32;
                let behind = if options.reverse { -behind } else { behind };
                let lag = behind - i32::from(options.exclusive);
                if lag >= 0 {
                    let kernel = power(x, lag);
                    (0..width).for_each(|d| y[b][t][d] += kernel[d] * row[d]);
                }
            }
        }
        Tensor::new(y, &Device::Cpu).unwrap()
    }

    #[test]
    fn the_composed_form_is_a_convolution_with_sums_of_powers() {
        for (length, options) in (1..38).flat_map(|l| ALL.map(|o| (l, o))) {
            let shapes = shapes([2, length, 3], 2, true, true);
            let draw = |(i, shape): (usize, &Vec<usize>)| normal(&format!("{i}"), shape);
            let x: Vec<Tensor> = shapes.iter().enumerate().map(draw).collect();
            let place = format!("{options:?}, length {length}");
            close(
                &apply(&x, true, options).unwrap(),
                &sums(&x, options),
                1e-11,
                &place,
            );
        }
    }

    #[test]
    fn the_kernel_meets_its_composed_form() {
        let mut sampler = Sampler::new(91);
        let all = [[1, 1, 1], [2, 37, 5], [3, 64, 16], [2, 130, 35]];
        for ((i, x), complex) in all
            .into_iter()
            .enumerate()
            .flat_map(|x| [(x, false), (x, true)])
        {
            for options in ALL {
                let shapes = shapes(x, i + 1, complex, i % 2 == 1);
                let inputs: Vec<_> = shapes.iter().map(|s| sampler.normal(s, 1.0)).collect();
                let f = |x: &[Tensor]| Ok(apply(x, complex, options)?);
                agree(&format!("{options:?}"), &inputs, f, f);
            }
        }
    }

    /// Two walks at once, over rows of which some are missing.
    #[test]
    fn walks_add_up_and_missing_rows_are_zeros_of_x() {
        let mut sampler = Sampler::new(92);
        let both = [of(false, false), of(true, true)];
        for (shape, complex) in [([3, 70, 5], true), ([2, 130, 20], false)] {
            let [batch, length, width] = shape;
            let holes = |b: usize, l: usize| b > 0 && (l % 7 == 3 || l >= 40 * (batch - 1 - b));
            let real = |x: &Tensor| {
                let row = |b: usize| (0..length).map(move |l| f64::from(u8::from(!holes(b, l))));
                let rows: Vec<f64> = (0..batch).flat_map(row).collect();
                Tensor::from_vec(rows, (batch, length), &Device::Cpu)?.to_dtype(x.dtype())
            };
            let inputs: Vec<_> = shapes(shape, 3, complex, false)
                .iter()
                .chain(&shapes([1, 1, width], 3, complex, true)[1..])
                .map(|shape| sampler.normal(shape, 1.0))
                .collect();
            let modes = |x: &[Tensor]| {
                let shrunk = |x: &Tensor| Ok::<_, Error>((x.tanh()? * 0.7)?);
                Ok::<_, Error>(match complex {
                    true => Modes::Complex {
                        a: Complex::new(shrunk(&x[0])?, shrunk(&x[1])?),
                        c: Complex::new(x[2].clone(), x[3].clone()),
                    },
                    false => Modes::Real {
                        a: shrunk(&x[0])?,
                        c: x[1].clone(),
                    },
                })
            };
            let parts = if complex { 4 } else { 2 };
            let split = |x: &[Tensor]| Ok::<_, Error>([modes(&x[1..])?, modes(&x[1 + parts..])?]);
            let one = |x: &[Tensor]| {
                let [ahead, back] = split(x)?;
                let walks = [(&ahead, both[0]), (&back, both[1])];
                let mask = Mask::new(&real(&x[0])?)?;
                let sequences = Sequences::Padded(&mask);
                Ok(state_space_sum(&x[0], &walks, x.last(), sequences)?)
            };
            let apart = |x: &[Tensor]| {
                let [ahead, back] = split(x)?;
                let masked = x[0].broadcast_mul(&real(&x[0])?.unsqueeze(2)?)?;
                let y = state_space(&masked, &ahead, x.last(), both[0])?;
                y + state_space(&masked, &back, None, both[1])?
            };
            agree("sum", &inputs, one, apart);
        }
    }

    #[test]
    fn packed_sequences_are_walked_apart() {
        let mut sampler = Sampler::new(93);
        let row = |length: usize| (0..130).map(move |l| f64::from(u8::from(l < length)));
        let real: Vec<f64> = [130, 0, 64, 1].into_iter().flat_map(row).collect();
        let mask = Tensor::from_vec(real, (4, 130), &Device::Cpu).unwrap();
        let packing = Packing::new(&Mask::new(&mask).unwrap()).unwrap().unwrap();
        for (complex, options) in [(true, of(false, false)), (false, of(true, true))] {
            let shapes = shapes([1, packing.rows(), 20], 3, complex, true);
            let inputs: Vec<_> = shapes.iter().map(|s| sampler.normal(s, 1.0)).collect();
            let run = |x: &[Tensor], packed: bool| {
                let shrunk = |x: &Tensor| Ok::<_, Error>((x.tanh()? * 0.7)?);
                let modes = match complex {
                    true => Modes::Complex {
                        a: Complex::new(shrunk(&x[1])?, shrunk(&x[2])?),
                        c: Complex::new(x[3].clone(), x[4].clone()),
                    },
                    false => Modes::Real {
                        a: shrunk(&x[1])?,
                        c: x[2].clone(),
                    },
                };
                let sum = |x: &Tensor, skip, sequences| {
                    state_space_sum(x, &[(&modes, options)], skip, sequences)
                };
                Ok::<_, candle_core::Error>(match packed {
                    true => sum(&x[0], x.last(), Sequences::Packed(&packing))?,
                    // Zeros behind a sequence change nothing within it.
                    false => {
                        packing.pack(&sum(&packing.unpack(&x[0])?, x.last(), Sequences::Full)?)?
                    }
                })
            };
            agree("packed", &inputs, |x| run(x, true), |x| run(x, false));
        }
    }

    #[test]
    fn gradients_are_difference_quotients() {
        for (options, complex) in ALL.into_iter().flat_map(|o| [(o, false), (o, true)]) {
            let shapes = shapes([2, 6, 2], 3, complex, true);
            let shapes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
            check_gradient("state space", &shapes, |x| apply(x, complex, options));
        }
    }

    #[test]
    fn the_answer_to_an_impulse_is_the_kernel() {
        let a = normal("a", &[3, 4]).tanh().unwrap().abs().unwrap();
        let c = normal("c", &[3, 4]);
        let (modes, options) = (
            Modes::Real {
                a: a.clone(),
                c: c.clone(),
            },
            of(false, false),
        );
        let impulse = Tensor::ones((1, 1, 3), DType::F64, &Device::Cpu).unwrap();
        let impulse = impulse.pad_with_zeros(1, 0, 8).unwrap();
        let kernel = state_space(&impulse, &modes, None, options).unwrap();
        for lag in 0..9 {
            let terms = (a.powf(lag as f64).unwrap() * &c).unwrap();
            let found = kernel.get(0).unwrap().get(lag).unwrap();
            close(&found, &terms.sum(1).unwrap(), 1e-12, &format!("lag {lag}"));
        }
    }

    #[test]
    fn shapes_that_do_not_fit_are_errors() {
        let x = normal("x", &[2, 3, 4]);
        let modes = |a: &[usize], c: &[usize]| Modes::Real {
            a: normal("a", a),
            c: normal("c", c),
        };
        let skip = normal("skip", &[3]);
        let options = StateSpaceOptions::default();
        for (modes, skip) in [
            (modes(&[3, 2], &[3, 2]), None),
            (modes(&[4, 2], &[4, 1]), None),
            (modes(&[4, 0], &[4, 0]), None),
            (modes(&[4, 2], &[4, 2]), Some(&skip)),
        ] {
            let message = state_space(&x, &modes, skip, options)
                .unwrap_err()
                .to_string();
            assert!(message.contains("do not fit"), "{message}");
        }
    }
}
