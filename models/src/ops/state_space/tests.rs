use candle_core::{DType, Device, Var};

use super::*;
use crate::ops::testing::{Sampler, agree};
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

/// Applies the operation to x, modes (two or four tensors, moduli below one) and perhaps a skip.
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

/// Arithmetic with numbers below 2⁻¹²⁶ is slow, and thousands of rows of padding would make states
/// of them.
#[test]
fn states_that_have_faded_are_zero() {
    let length = 4000;
    for complex in [false, true] {
        for options in ALL {
            let mut impulse = vec![0.0_f32; length];
            impulse[if options.reverse { length - 1 } else { 0 }] = 1.0;
            let x = Tensor::from_vec(impulse, (1, length, 1), &Device::Cpu).unwrap();
            let x = Var::from_tensor(&x).unwrap();
            // Two modes are walked together, and one alone.
            let of = |x: f32| Tensor::full(x, (1, 3), &Device::Cpu).unwrap();
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

/// A factor of 2⁻⁴⁰ on x or on the loss is a factor of outputs and gradients.
#[test]
fn small_numbers_have_not_faded() {
    let x = normal("x", &[1, 70, 2]).to_dtype(DType::F32).unwrap();
    let draw = |name: &str| {
        let numbers = (normal(name, &[2, 3]).tanh().unwrap() * 0.7).unwrap();
        Var::from_tensor(&numbers.to_dtype(DType::F32).unwrap()).unwrap()
    };
    let (a, c) = (draw("a"), draw("c"));
    let modes = Modes::Real {
        a: a.as_tensor().clone(),
        c: c.as_tensor().clone(),
    };
    let run = |of_x: f64, of_loss: f64| {
        let x = Var::from_tensor(&(&x * of_x).unwrap()).unwrap();
        let y = state_space(&x, &modes, None, of(false, false)).unwrap();
        let loss = (y.sum_all().unwrap() * of_loss).unwrap();
        let gradients = loss.backward().unwrap();
        let gradient = |var: &Var| (gradients.get(var).unwrap() / of_loss).unwrap();
        let [dx, da, dc] = [&x, &a, &c].map(gradient);
        let [y, da, dc] = [y, da, dc].map(|x| (x / of_x).unwrap());
        [y, dx, da, dc]
    };
    let small = 2f64.powi(-40);
    for (of_x, of_loss) in [(small, 1.0), (1.0, small)] {
        for (actual, expected) in run(of_x, of_loss).iter().zip(&run(1.0, 1.0)) {
            close(actual, expected, 1e-5, "small numbers");
        }
    }
}

/// Returns the real parts of Σ_n c_n aˡ for each channel.
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

/// Computes the convolution with these powers, one term after the other.
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
        let valid = |x: &Tensor| {
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
            let mask = Mask::new(&valid(&x[0])?)?;
            let sequences = Sequences::Padded(&mask);
            Ok(state_space_sum(&x[0], &walks, x.last(), sequences)?)
        };
        let apart = |x: &[Tensor]| {
            let [ahead, back] = split(x)?;
            let masked = x[0].broadcast_mul(&valid(&x[0])?.unsqueeze(2)?)?;
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
    let valid: Vec<f64> = [64, 0, 130, 1].into_iter().flat_map(row).collect();
    let mask = Tensor::from_vec(valid, (4, 130), &Device::Cpu).unwrap();
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
                // Zeros behind a sequence do not affect it.
                false => packing.pack(&sum(&packing.unpack(&x[0])?, x.last(), Sequences::Full)?)?,
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
        let actual = kernel.get(0).unwrap().get(lag).unwrap();
        close(
            &actual,
            &terms.sum(1).unwrap(),
            1e-12,
            &format!("lag {lag}"),
        );
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
    for dtype in [DType::F32, DType::F64] {
        let of_type = |x: Tensor| x.to_dtype(dtype).unwrap();
        let (x, a) = (of_type(x.clone()), of_type(normal("a", &[4, 2])));
        let modes = Modes::Real { a: a.clone(), c: a };
        let mask = Mask::new(&of_type(normal("valid", &[3, 2]))).unwrap();
        let padded = Sequences::Padded(&mask);
        let message = state_space_sum(&x, &[(&modes, options)], None, padded);
        let message = message.unwrap_err().to_string();
        assert!(message.contains("sequences do not fit"), "{message}");
    }
    let x = x.narrow(2, 0, 0).unwrap();
    assert!(state_space(&x, &modes(&[0, 2], &[0, 2]), None, options).is_err());
}
