//! Operations with kernels of their own, in f32 on the GPU beside the composed form in f64.

use candle_core::{DType, Device, Tensor, Var};
use lra_models::mask::Mask;
use lra_models::ops::{
    self, Complex, DropoutMask, GatedLinearAttentionOptions, GatedValue, Lags, Modes, Normalised,
    ScanOptions,
};
use lra_models::ops::{StateSpaceOptions, softmax};
use lra_models::options::Activation;
use lra_models::rng::{RngKey, StreamKey};

use super::{Case, attention, error, numbers};

/// Lengths at the edges of blocks, segments, chunks and transforms.
const LENGTHS: [usize; 6] = [1, 2, 17, 1023, 1025, 5000];

type Operation = Box<dyn Fn(&[Tensor]) -> lra_models::Result<Tensor> + Send>;

/// Comparisons of one operation.
type Group = (&'static str, fn() -> Vec<Comparison>);

pub(super) fn cases() -> Vec<(String, Case)> {
    let groups: [Group; 19] = [
        ("attention", attention::dense),
        ("attention_by_distance", attention::by_distance),
        ("attention_in_blocks", attention::in_blocks),
        ("embedding", embeddings),
        ("norms", norms),
        ("batch_norm", batch_norms),
        ("softmax", softmaxes),
        ("cross_entropy", cross_entropies),
        ("activations", activations),
        ("linear", linears),
        ("gated_linear", gates),
        ("gated_linear_attention", gated_linear_attentions),
        ("dropout", dropouts),
        ("scan", scans),
        ("selective_scan", selective_scans),
        ("state_space", state_spaces),
        ("fft_conv", convolutions),
        ("fourier", fouriers),
        ("dplr_spectrum", dplr_spectra),
    ];
    let case = |(name, comparisons): Group| {
        let run: Case = Box::new(move |device| {
            let failed: Vec<String> = comparisons()
                .iter()
                .filter_map(|comparison| comparison.run(device).err())
                .collect();
            match failed.is_empty() {
                true => Ok(()),
                false => Err(failed.join("\n")),
            }
        });
        (format!("ops::{name}"), run)
    };
    let mut cases: Vec<(String, Case)> = groups.into_iter().map(case).collect();
    cases.push(("ops::adamw".to_owned(), Box::new(updates)));
    cases
}

/// Compares three updates of several parameters, with clipping, with those on the CPU.
fn updates(device: &Device) -> Result<(), String> {
    let shapes: [&[usize]; 4] = [&[1], &[3, 5], &[4096], &[9000, 3]];
    let clip = 0.5;
    let f32 = |x: &Tensor| x.to_dtype(DType::F32).unwrap();
    let start = |name: &str, shape: &[usize]| {
        let cpu = f32(&draw(name, shape));
        let gpu = cpu.to_device(device).unwrap();
        [cpu, gpu.copy().unwrap()]
    };
    let all: Vec<[[Tensor; 2]; 3]> = shapes
        .iter()
        .map(|shape| {
            let zeros = || start("zeros", shape).map(|x| (x * 0.0).unwrap());
            [start("parameter", shape), zeros(), zeros()]
        })
        .collect();
    for update in 1..=3 {
        let step = |scale| ops::AdamW {
            beta1: 0.9,
            beta2: 0.98,
            epsilon: 1e-8,
            rate: 0.01,
            decay: 0.001,
            scale,
            update,
        };
        // The second parameter has no gradient in the second update.
        let gradients: Vec<Option<[Tensor; 2]>> = (0..shapes.len())
            .map(|i| ((update, i) != (2, 1)).then(|| start(&format!("g{update}"), shapes[i])))
            .collect();
        let on_gpu: Vec<&Tensor> = gradients.iter().flatten().map(|pair| &pair[1]).collect();
        let norms = ops::adamw::gradient_norm(&on_gpu, clip).unwrap();
        let [norm, scale] = norms.ok_or("no norm of gradients on the GPU")?;
        let squares = gradients.iter().flatten();
        let squares: f64 = squares
            .map(|pair| ops::sum_of_squares(&pair[0]).unwrap())
            .sum();
        let expected = [squares.sqrt(), clip / squares.sqrt()];
        for (actual, expected) in [&norm, &scale].iter().zip(expected) {
            let error = error(&numbers(actual), &[expected], 0.0);
            if error > 1e-6 {
                return Err(format!(
                    "update {update}: a norm or a factor differs by {error:.1e}"
                ));
            }
        }
        let factor = numbers(&scale)[0];
        let mut together = Vec::new();
        for ([parameter, first, second], gradient) in all.iter().zip(&gradients) {
            let gradient = gradient.as_ref();
            step(factor)
                .apply(
                    &parameter[0],
                    &first[0],
                    &second[0],
                    gradient.map(|pair| &pair[0]),
                )
                .unwrap();
            together.push(ops::adamw::Update {
                step: step(1.0),
                parameter: &parameter[1],
                first: &first[1],
                second: &second[1],
                gradient: gradient.map(|pair| &pair[1]),
            });
        }
        if !ops::adamw::update_together(&together, Some(&scale)).unwrap() {
            return Err("the GPU makes no update".to_owned());
        }
    }
    for (shape, tensors) in shapes.iter().zip(&all) {
        for [cpu, gpu] in tensors {
            let error = error(&numbers(gpu), &numbers(cpu), 1e-3);
            if error > 1e-5 {
                return Err(format!(
                    "{shape:?}: differs by {error:.1e} after three updates"
                ));
            }
        }
    }
    Ok(())
}

/// An operation, and operands of f64.
pub(super) struct Comparison {
    name: String,
    operands: Vec<Tensor>,
    tolerance: f64,
    operation: Operation,
}

impl Comparison {
    fn run(&self, device: &Device) -> Result<(), String> {
        let expected = results(&self.operands, &Device::Cpu, DType::F64, &self.operation);
        let expected = expected.map_err(|error| format!("{}: f64: {error}", self.name))?;
        let run = || {
            let actual = results(&self.operands, device, DType::F32, &self.operation);
            actual.map_err(|error| format!("{}: {error}", self.name))
        };
        let (actual, again) = (run()?, run()?);
        for (index, (actual, expected)) in actual.iter().zip(&expected).enumerate() {
            // Sums that cancel keep the errors of their terms, which are of size one.
            let error = error(actual, expected, 1.0);
            if error > self.tolerance {
                let of = match index {
                    0 => "the output".to_owned(),
                    _ => format!("the gradient of operand {index}"),
                };
                let first = actual
                    .iter()
                    .zip(expected)
                    .position(|(a, b)| (a - b).abs() > 1e-2);
                return Err(format!(
                    "{}: {of} differs by {error:.1e} of its largest number, first at {first:?} of {}",
                    self.name,
                    actual.len()
                ));
            }
        }
        match actual == again {
            true => Ok(()),
            false => Err(format!("{}: two runs give different bits", self.name)),
        }
    }
}

/// Returns the output, and the gradient of each operand for a fixed gradient of the output.
fn results(
    operands: &[Tensor],
    device: &Device,
    dtype: DType,
    operation: &Operation,
) -> lra_models::Result<Vec<Vec<f64>>> {
    let variables = operands.iter().map(|operand| {
        let operand = operand.to_dtype(dtype)?.to_device(device)?;
        Var::from_tensor(&operand)
    });
    let variables: Vec<Var> = variables.collect::<Result<_, _>>()?;
    let tensors: Vec<Tensor> = variables.iter().map(|x| x.as_tensor().clone()).collect();
    let y = operation(&tensors)?;
    let dy = draw("dy", y.dims()).to_dtype(dtype)?.to_device(device)?;
    let gradients = ops::backward(&(&y * dy)?.sum_all()?)?;
    let mut all = vec![numbers(&y)];
    for variable in &variables {
        all.push(match gradients.get(variable) {
            Some(gradient) => numbers(gradient),
            None => vec![0.0; variable.elem_count()],
        });
    }
    Ok(all)
}

/// Returns normal numbers of f64.
pub(super) fn draw(name: &str, shape: &[usize]) -> Tensor {
    let stream = RngKey::new(7, 0, 0).shared(StreamKey::new(name));
    let count = shape.iter().product();
    Tensor::from_vec(stream.normal(1, count), shape, &Device::Cpu).unwrap()
}

pub(super) fn compare(
    name: String,
    operands: Vec<Tensor>,
    tolerance: f64,
    operation: impl Fn(&[Tensor]) -> lra_models::Result<Tensor> + Send + 'static,
) -> Comparison {
    Comparison {
        name,
        operands,
        tolerance,
        operation: Box::new(operation),
    }
}

fn norms() -> Vec<Comparison> {
    let shapes: [&[usize]; 5] = [&[1, 1], &[3, 5, 33], &[1025, 64], &[7, 512], &[2, 600, 128]];
    let mut all = Vec::new();
    for shape in shapes {
        let width = shape[shape.len() - 1];
        let parameters = || [draw("weight", &[width]), draw("bias", &[width])];
        let [weight, bias] = parameters();
        let x = draw("x", shape);
        let operands = vec![x.clone(), weight.clone(), bias];
        all.push(compare(
            format!("layer norm {shape:?}"),
            operands,
            2e-5,
            |x| {
                let norm = Normalised {
                    weight: &x[1],
                    bias: &x[2],
                    epsilon: 1e-3,
                };
                ops::layer_norm(&x[0], &norm)
            },
        ));
        let name = format!("rms norm {shape:?}");
        all.push(compare(name, vec![x.clone(), weight], 2e-5, |x| {
            ops::rms_norm(&x[0], &x[1], 1e-3)
        }));
        let name = format!("rms norm with one weight {shape:?}");
        all.push(compare(name, vec![x, draw("one", &[1])], 2e-5, |x| {
            ops::rms_norm(&x[0], &x[1], 1e-3)
        }));
    }
    all
}

fn batch_norms() -> Vec<Comparison> {
    fn of<'a>(x: &'a [Tensor]) -> Normalised<'a> {
        Normalised {
            weight: &x[1],
            bias: &x[2],
            epsilon: 1e-3,
        }
    }
    let mut all = Vec::new();
    for shape in [[2, 3, 1], [3, 5, 33], [4, 1025, 64], [7, 2, 512]] {
        let width = shape[2];
        let operands = || {
            let x = (draw("x", &shape) + 2.0).unwrap();
            vec![x, draw("weight", &[width]), draw("bias", &[width])]
        };
        let name = format!("batch norm {shape:?}");
        all.push(compare(name.clone(), operands(), 2e-5, |x| {
            Ok(ops::batch_norm(&x[0], &of(x), None)?.0)
        }));
        all.push(compare(
            format!("masked {name}"),
            operands(),
            2e-5,
            move |x| {
                let mask = mask(shape[0], shape[1], &x[0])?;
                Ok(ops::batch_norm(&x[0], &of(x), Some(mask.valid()))?.0)
            },
        ));
        // The moments are compared as well: they are those of another tensor.
        all.push(compare(
            format!("{name} by given moments"),
            operands(),
            2e-5,
            move |x| {
                let other = draw("other", &shape).to_dtype(x[0].dtype())?;
                let mask = mask(shape[0], shape[1], &x[0])?;
                let other = other.to_device(x[0].device())?;
                let moments = ops::Moments::of(&other, Some(mask.valid()))?;
                ops::batch_norm_by(&x[0], &of(x), &moments)
            },
        ));
    }
    all
}

/// Returns a mask (B, L) that hides a part of each row, and all of the last one.
pub(super) fn mask(batch: usize, length: usize, like: &Tensor) -> lra_models::Result<Mask> {
    let valid = (0..batch * length).map(|i| {
        let (row, position) = (i / length, i % length);
        f64::from(u8::from(
            row + 1 < batch && position * (row + 2) < length * 2,
        ))
    });
    let valid = Tensor::from_vec(valid.collect::<Vec<f64>>(), (batch, length), &Device::Cpu)?;
    Mask::new(&valid.to_dtype(like.dtype())?.to_device(like.device())?)
}

fn softmaxes() -> Vec<Comparison> {
    let mut all = Vec::new();
    for shape in [[3, 2, 5, 7], [2, 1, 17, 1023], [4, 2, 33, 64]] {
        let x = draw("x", &shape);
        let name = format!("softmax {shape:?}");
        all.push(compare(name.clone(), vec![x.clone()], 1e-5, |x| {
            softmax::masked(&x[0], None)
        }));
        all.push(compare(format!("masked {name}"), vec![x], 1e-5, move |x| {
            let mask = mask(shape[0], shape[3], &x[0])?;
            softmax::masked(&x[0], Some(&mask))
        }));
    }
    all
}

fn cross_entropies() -> Vec<Comparison> {
    let shapes = [[1, 2], [33, 10], [9, 300]];
    let case = |[rows, classes]: [usize; 2]| {
        let name = format!("cross-entropy [{rows}, {classes}]");
        compare(name, vec![draw("x", &[rows, classes])], 1e-5, move |x| {
            let labels = (0..rows).map(|row| (row * 7 % classes) as u32);
            let labels = Tensor::from_vec(labels.collect(), rows, x[0].device())?;
            ops::cross_entropy(&x[0], &labels)
        })
    };
    shapes.into_iter().map(case).collect()
}

fn activations() -> Vec<Comparison> {
    use ops::activation;
    type Function = fn(&Tensor) -> lra_models::Result<Tensor>;
    let functions: [(&str, Function); 7] = [
        ("gelu", activation::gelu),
        ("gelu_erf", activation::gelu_erf),
        ("relu", |x| activation::relu(x, 0.5)),
        ("elu_plus_one", activation::elu_plus_one),
        ("silu", activation::silu),
        ("softplus", activation::softplus),
        ("sigmoid", activation::sigmoid),
    ];
    let mut all = Vec::new();
    for (name, function) in functions {
        for shape in [[1, 1], [3, 341], [64, 33]] {
            let x = (draw("x", &shape) * 3.0).unwrap();
            let name = format!("{name} {shape:?}");
            all.push(compare(name, vec![x], 1e-5, move |x| function(&x[0])));
        }
    }
    all
}

/// Linear maps with a bias, and sums.
fn linears() -> Vec<Comparison> {
    let mut all = Vec::new();
    for (shape, outputs) in [([1, 1, 1], 1), ([3, 17, 8], 33), ([2, 600, 64], 128)] {
        let width = shape[2];
        let weight = (draw("weight", &[outputs, width]) * (width as f64).powf(-0.5)).unwrap();
        let operands = vec![draw("x", &shape), weight, draw("bias", &[outputs])];
        let name = format!("linear {shape:?} to {outputs}");
        all.push(compare(name, operands, 2e-5, |x| {
            ops::linear(&x[0], &x[1], Some(&x[2]))
        }));
        let operands = vec![draw("a", &shape), draw("b", &shape)];
        let name = format!("sum {shape:?}");
        // One operand twice, and the other beside it.
        all.push(compare(name, operands, 1e-6, |x| {
            ops::add(&ops::add(&x[0], &x[1])?, &x[0])
        }));
    }
    all
}

fn gates() -> Vec<Comparison> {
    let mut all = Vec::new();
    for value in [GatedValue::Linear, GatedValue::Activated, GatedValue::Input] {
        for shape in [[1, 1, 3], [2, 17, 64], [3, 5, 300]] {
            let width = shape[2];
            let rows = if matches!(value, GatedValue::Linear) {
                2 * width
            } else {
                width
            };
            let scale = (width as f64).powf(-0.5);
            let weight = (draw("weight", &[rows, width]) * scale).unwrap();
            let operands = vec![draw("x", &shape), weight, draw("bias", &[rows])];
            let name = format!("gated linear {value:?} {shape:?}");
            all.push(compare(name, operands, 2e-5, move |x| {
                ops::gated_linear(&x[0], (&x[1], Some(&x[2])), Activation::Gelu, None, value)
            }));
        }
    }
    all
}

fn dropouts() -> Vec<Comparison> {
    let mut all = Vec::new();
    for shape in [[1, 1, 3], [3, 17, 64], [2, 700, 33]] {
        for tied in [false, true] {
            let mask = move || {
                let stream = RngKey::new(3, 9, 5).per_example(StreamKey::new("drop"));
                DropoutMask {
                    tied,
                    ..DropoutMask::new(&stream, 0.3)
                }
            };
            let (x, residual) = (draw("x", &shape), draw("residual", &shape));
            let name = format!("dropout {shape:?}, tied {tied}");
            all.push(compare(name.clone(), vec![x.clone()], 1e-6, move |x| {
                ops::dropout(&x[0], &mask())
            }));
            all.push(compare(
                format!("added {name}"),
                vec![residual, x],
                1e-6,
                move |x| ops::add_dropped(&x[0], &x[1], &mask()),
            ));
        }
    }
    all
}

fn scans() -> Vec<Comparison> {
    let mut all = Vec::new();
    for length in LENGTHS {
        for (complex, reverse) in [(false, false), (false, true), (true, false), (true, true)] {
            for varies in [false, true] {
                let shape = [2, length, 6];
                let of: &[usize] = if varies { &shape } else { &shape[2..] };
                let a = draw("a", of).tanh().unwrap();
                let a = (a * 0.7).unwrap();
                let name = format!("scan {shape:?}, complex {complex}, {reverse}, varies {varies}");
                all.push(compare(name, vec![draw("x", &shape), a], 2e-5, move |x| {
                    ops::scan(&x[0], &x[1], ScanOptions { complex, reverse })
                }));
            }
        }
    }
    all
}

fn selective_scans() -> Vec<Comparison> {
    let mut all = Vec::new();
    for length in LENGTHS {
        for (width, modes) in [(3, 1), (35, 16), (2, 33)] {
            let shape = [2, length, width];
            let operands = vec![
                draw("x", &shape),
                draw("delta", &shape),
                draw("a", &[width, modes]),
                draw("projections", &[2, length, 2 * modes]),
                draw("skip", &[width]),
            ];
            let name = format!("selective_scan {shape:?}, {modes} modes");
            all.push(compare(name, operands, 2e-5, |x| {
                let (delta, a) = ((&x[1] - 1.0)?.exp()?, x[2].exp()?.neg()?);
                ops::selective_scan(&x[0], &delta, &a, &x[3], &x[4])
            }));
        }
    }
    all
}

fn gated_linear_attentions() -> Vec<Comparison> {
    let mut all = Vec::new();
    // Keys and values that fill no tile, and states at every chunk and at every second.
    for (length, keys, values) in [(1, 1, 1), (17, 5, 18), (1023, 9, 33), (70, 100, 65)] {
        for bits in 0..24 {
            let (decays, delta) = (bits % 3, bits / 3 % 2 == 1);
            let (reverse, exclusive) = (bits / 6 % 2 == 1, bits / 12 == 1);
            let row = [2, length, 3];
            let (of_keys, of_values) = ([2, length, 3, keys], [2, length, 3, values]);
            // Short keys, whose writes by the delta rule do not grow.
            let k = (draw("k", &of_keys) * (0.5 / (keys as f64).sqrt())).unwrap();
            let mut operands = vec![draw("q", &of_keys), k, draw("v", &of_values)];
            match decays {
                1 => operands.push(draw("decay", &row)),
                2 => operands.push(draw("decay", &of_keys)),
                _ => {}
            }
            if delta {
                operands.push(draw("rate", &row));
            }
            let name = format!(
                "gated linear attention {of_values:?}, {keys} keys, decays {decays}, {delta}, {reverse}, {exclusive}"
            );
            all.push(compare(name, operands, 2e-5, move |x| {
                let log_decay = (decays > 0).then(|| x[3].sqr()?.neg()).transpose()?;
                let rate = || (x[x.len() - 1].neg()?.exp()? + 1.0)?.recip();
                let delta = delta.then(rate).transpose()?;
                let options = GatedLinearAttentionOptions {
                    log_decay: log_decay.as_ref(),
                    delta: delta.as_ref(),
                    reverse,
                    exclusive,
                    ..GatedLinearAttentionOptions::default()
                };
                ops::gated_linear_attention(&x[0], &x[1], &x[2], &options)
            }));
        }
    }
    all
}

fn state_spaces() -> Vec<Comparison> {
    let walk = |reverse, exclusive| StateSpaceOptions { reverse, exclusive };
    let all = [
        vec![walk(false, false)],
        vec![walk(false, true)],
        vec![walk(true, false)],
        vec![walk(true, true)],
        vec![walk(false, false), walk(true, true)],
        vec![walk(false, false), walk(true, false)],
    ];
    let mut comparisons = Vec::new();
    for length in LENGTHS {
        for (number, walks) in all.iter().enumerate() {
            for complex in [false, true] {
                let (width, modes) = (3, 5);
                let x = draw("x", &[2, length, width]);
                let mut operands = vec![x, draw("skip", &[width])];
                for index in 0..walks.len() {
                    let of = |name: &str| draw(&format!("{name} {index}"), &[width, modes]);
                    let rate = (of("rate") - 3.0).unwrap().exp().unwrap();
                    let size = rate.neg().unwrap().exp().unwrap();
                    let angle = of("angle");
                    let a = match complex {
                        true => vec![
                            (&size * angle.cos().unwrap()).unwrap(),
                            (&size * angle.sin().unwrap()).unwrap(),
                            of("c"),
                            of("d"),
                        ],
                        false => vec![size, of("c")],
                    };
                    operands.extend(a);
                }
                let walks = walks.clone();
                let name =
                    format!("state space of length {length}, walks {number}, complex {complex}");
                comparisons.push(compare(name, operands, 5e-5, move |x| {
                    let each = (x.len() - 2) / walks.len();
                    let modes: Vec<Modes> = x[2..]
                        .chunks(each)
                        .map(|of| match complex {
                            true => Modes::Complex {
                                a: Complex::new(of[0].clone(), of[1].clone()),
                                c: Complex::new(of[2].clone(), of[3].clone()),
                            },
                            false => Modes::Real {
                                a: of[0].clone(),
                                c: of[1].clone(),
                            },
                        })
                        .collect();
                    let walks: Vec<_> = modes.iter().zip(walks.iter().copied()).collect();
                    let sequences = ops::packing::Sequences::Full;
                    ops::state_space_sum(&x[0], &walks, Some(&x[1]), sequences)
                }));
            }
        }
    }
    comparisons
}

fn convolutions() -> Vec<Comparison> {
    let mut all = Vec::new();
    for length in [1usize, 2, 17, 1000, 2048, 4097, 20_000] {
        for lags in [Lags::Causal, Lags::Bidirectional] {
            for taps in [
                2,
                length.next_multiple_of(2),
                length.next_multiple_of(2) * 2,
            ] {
                let operands = vec![draw("x", &[2, length, 3]), draw("kernel", &[3, taps])];
                let name = format!("convolution of {length} with {taps} taps, {lags:?}");
                all.push(compare(name, operands, 2e-5, move |x| {
                    ops::fft_conv(&x[0], &x[1], lags)
                }));
            }
        }
    }
    all
}

fn embeddings() -> Vec<Comparison> {
    let mut all = Vec::new();
    for (shape, table) in [
        ([1, 1], [1, 3]),
        ([3, 17], [11, 33]),
        ([8, 1023], [257, 64]),
        ([4, 50], [600, 8]),
    ] {
        let operands = vec![
            draw("table", &table),
            draw("positions", &[shape[1], table[1]]),
        ];
        let name = format!("embedding of {shape:?} in {table:?}");
        all.push(compare(name, operands, 2e-5, move |x| {
            let ids = (0..shape[0] * shape[1]).map(|i| (i * i % table[0]) as u32);
            let ids = Tensor::from_vec(ids.collect(), (shape[0], shape[1]), x[0].device())?;
            ops::embed(&ids, &x[0], None, Some(&x[1]))
        }));
    }
    all
}

fn fouriers() -> Vec<Comparison> {
    let mut all = Vec::new();
    for shape in [[1, 1, 2], [2, 17, 6], [3, 64, 12]] {
        let name = format!("fft2_real {shape:?}");
        all.push(compare(name, vec![draw("x", &shape)], 2e-5, |x| {
            ops::fft2_real(&x[0], 0.5)
        }));
        // By products with matrices, and to a power of 2 by kernels.
        for n in [shape[1] + 3, 4, 128, 16_384] {
            let name = format!("rfft and irfft {shape:?} to {n}");
            all.push(compare(name, vec![draw("x", &shape)], 2e-5, move |x| {
                ops::irfft(&ops::rfft(&x[0], n)?, n)
            }));
        }
    }
    all
}

fn dplr_spectra() -> Vec<Comparison> {
    let mut all = Vec::new();
    for (channels, modes, longest) in [(1, 1, 1), (3, 2, 17), (2, 33, 64), (5, 4, 3000)] {
        for directions in [1, 2] {
            let products = 4 * directions + 4;
            let operands = vec![
                (draw("products", &[channels, products, modes]) * (0.3 / modes as f64)).unwrap(),
                draw("decay", &[channels, modes]),
                draw("angle", &[channels, modes]),
            ];
            let name = format!("spectrum of {channels}, {modes} modes, {longest}, {directions}");
            all.push(compare(name, operands, 2e-5, move |x| {
                let [products, decay, angle] = [0, 1, 2].map(|at| x[at].to_dtype(DType::F64));
                let re = decay?.sqr()?.affine(-0.3, -0.2)?;
                let square = (re.sqr()? + angle?.sqr()?)?;
                let [sum, square] = [re.affine(2.0, 0.0)?, square].map(|x| x.unsqueeze(1));
                let rows = Tensor::cat(&[products?, sum?, square?], 1)?;
                let spectra = ops::dplr_spectrum(&rows, directions, longest)?;
                Ok(spectra.to_dtype(x[0].dtype())?)
            }));
        }
    }
    all
}
