//! Test support: a kernel against its composed twin, on every instruction set and number of
//! threads.

use candle_core::{DType, Device, Result, Tensor, Var};
use lra_cpu::isa::Isa;
use lra_cpu::tile::SIDE;

/// Reproducible test inputs.
pub(crate) struct Sampler(lra_cpu::testing::Sampler);

impl Sampler {
    pub(crate) fn new(seed: u64) -> Self {
        Sampler(lra_cpu::testing::Sampler::new(seed))
    }

    pub(crate) fn bits(&mut self) -> u64 {
        self.0.bits()
    }

    pub(crate) fn uniform(&mut self) -> f64 {
        self.0.uniform()
    }

    /// Returns roughly normal numbers of this shape and deviation.
    pub(crate) fn normal(&mut self, shape: &[usize], deviation: f64) -> Tensor {
        let numbers = self.0.normal(shape.iter().product(), deviation);
        Tensor::from_vec(numbers, shape, &Device::Cpu).unwrap()
    }
}

/// Returns the results of `work` where products round their factors to bfloat16, in every way of
/// this machine.
pub(crate) fn in_bfloat16<T>(work: impl Fn() -> T) -> Vec<T> {
    let ways = Isa::all_rounded().into_iter();
    ways.map(|isa| isa.force(&work)).collect()
}

/// A computation by kernels, and the one by formulas that it is compared with.
type Fused<'a> = dyn Fn(&[Tensor]) -> Result<Tensor> + Sync + 'a;
type Composed<'a> = dyn Fn(&[Tensor]) -> Result<Tensor> + 'a;

/// Returns the output, then the gradient of sum(output * seed) for every input, flattened.
fn results(
    inputs: &[Tensor],
    seed: Option<&Tensor>,
    dtype: DType,
    f: &Composed,
) -> Result<Vec<Vec<f64>>> {
    let vars: Vec<Var> = inputs
        .iter()
        .map(|x| Var::from_tensor(&x.to_dtype(dtype)?))
        .collect::<Result<_>>()?;
    let tensors: Vec<Tensor> = vars.iter().map(|v| v.as_tensor().clone()).collect();
    let y = f(&tensors)?;
    let flat = |t: &Tensor| t.flatten_all()?.to_dtype(DType::F64)?.to_vec1::<f64>();
    let mut all = vec![flat(&y)?];
    let seed = match seed {
        Some(seed) => seed.to_dtype(dtype)?.reshape(y.shape())?,
        None => y.ones_like()?,
    };
    let gradients = (y * seed)?.sum_all()?.backward()?;
    for var in &vars {
        let gradient = gradients.get(var).expect("every input has a gradient");
        assert_eq!(gradient.shape(), var.shape());
        all.push(flat(gradient)?);
    }
    Ok(all)
}

/// Returns the output in f32 of a pass without a graph, flattened.
fn output(inputs: &[Tensor], f: &Fused) -> Result<Vec<f64>> {
    let inputs: Vec<Tensor> = inputs
        .iter()
        .map(|x| x.to_dtype(DType::F32))
        .collect::<Result<_>>()?;
    f(&inputs)?.flatten_all()?.to_dtype(DType::F64)?.to_vec1()
}

/// Returns a gradient for `output`: random, with a stretch of zeros as long sequences have where
/// they are padded.
fn gradient(output: &Tensor) -> Tensor {
    let count = output.elem_count();
    let random = Sampler::new(count as u64).normal(&[count], 1.0);
    let mut data = random.to_vec1::<f32>().unwrap();
    data[count / 2..count * 3 / 4].fill(0.0);
    Tensor::from_vec(data, output.dims(), &Device::Cpu).unwrap()
}

/// Returns `y` (B, L, W) with zeros in blocks of [`SIDE`] positions of which `mask` (B, L) has
/// none.
pub(super) fn without_padding(y: &Tensor, mask: Option<&Tensor>) -> Result<Tensor> {
    let Some(mask) = mask else {
        return Ok(y.clone());
    };
    let (batch, length) = mask.dims2()?;
    let rows = mask.to_vec2::<f32>()?;
    let block = |block: &[f32]| vec![f32::from(block.iter().any(|x| *x != 0.0)); block.len()];
    let rows = rows.iter().flat_map(|row| row.chunks(SIDE)).flat_map(block);
    let rows = Tensor::from_iter(rows, &Device::Cpu)?.reshape((batch, length, 1))?;
    y.broadcast_mul(&rows.to_dtype(y.dtype())?)
}

/// Asserts that `fused` agrees with `composed` (run in f64): as [`agree_in_f32`] does, and to some
/// hundredths where factors are rounded to bfloat16, with the same numbers however they are rounded
/// and multiplied, but by AMX.
pub(crate) fn agree(
    what: &str,
    inputs: &[Tensor],
    fused: impl Fn(&[Tensor]) -> Result<Tensor> + Sync,
    composed: impl Fn(&[Tensor]) -> Result<Tensor>,
) {
    agree_rounded(what, inputs, &fused, &composed);
    agree_in_f32_of(what, inputs, &fused, &composed);
}

/// Asserts the part of [`agree`] about rounded factors.
fn agree_rounded(what: &str, inputs: &[Tensor], fused: &Fused, composed: &Composed) {
    let (seed, expected) = expected(inputs, composed);
    let shapes: Vec<&[usize]> = inputs.iter().map(Tensor::dims).collect();
    let mut first = None;
    for isa in Isa::all_rounded() {
        let got = isa.force(|| results(inputs, Some(&seed), DType::F32, fused).unwrap());
        for (which, (got, expected)) in got.iter().zip(&expected).enumerate() {
            // Sums that cancel keep the errors of their terms, which are of size one.
            let error = largest_error(got, expected, 1.0);
            assert!(
                error < 4e-2,
                "{what} {isa:?} {shapes:?} {}: {error:.2e}",
                result(which)
            );
        }
        if isa.sums_as(Isa::all()[0]) {
            let first = first.get_or_insert_with(|| got.clone());
            assert!(*first == got, "{what} {isa:?} {shapes:?} differs");
        }
    }
}

/// Asserts that `fused` agrees with `composed` (run in f64): outputs to 1e-5 and gradients to 1e-4
/// of the largest entry, on every instruction set; and bit for bit with itself on one, two and
/// three threads.
pub(super) fn agree_in_f32(
    what: &str,
    inputs: &[Tensor],
    fused: impl Fn(&[Tensor]) -> Result<Tensor> + Sync,
    composed: impl Fn(&[Tensor]) -> Result<Tensor>,
) {
    agree_in_f32_of(what, inputs, &fused, &composed);
}

/// Does the work of [`agree_in_f32`], compiled once for all functions.
fn agree_in_f32_of(what: &str, inputs: &[Tensor], fused: &Fused, composed: &Composed) {
    let (seed, expected) = expected(inputs, composed);
    let shapes: Vec<&[usize]> = inputs.iter().map(Tensor::dims).collect();
    for isa in Isa::all() {
        let mut single = None;
        for threads in 1..=3 {
            let pool = rayon::ThreadPoolBuilder::new()
                .num_threads(threads)
                .build()
                .unwrap();
            let run = || isa.force(|| results(inputs, Some(&seed), DType::F32, fused).unwrap());
            let got = pool.install(run);
            for (which, (got, expected)) in got.iter().zip(&expected).enumerate() {
                let tolerance = if which == 0 { 1e-5 } else { 1e-4 };
                let error = largest_error(got, expected, 1e-3);
                assert!(
                    error < tolerance,
                    "{what} {isa:?} {shapes:?} {}: {error:.2e}",
                    result(which)
                );
            }
            match &single {
                None => {
                    let plain = pool.install(|| isa.force(|| output(inputs, fused).unwrap()));
                    assert!(plain == got[0], "{what} {isa:?} {shapes:?} without a graph");
                    single = Some(got);
                }
                Some(single) => assert!(*single == got, "{what} {isa:?} {threads} threads differ"),
            }
        }
    }
}

/// Returns the name of a result: the output, then the gradients of the inputs.
fn result(index: usize) -> String {
    match index {
        0 => "output".to_owned(),
        index => format!("gradient of input {}", index - 1),
    }
}

/// Returns a gradient for the output, and the results of `composed` in f64.
fn expected(inputs: &[Tensor], composed: &Composed) -> (Tensor, Vec<Vec<f64>>) {
    let doubles: Vec<Tensor> = inputs
        .iter()
        .map(|x| x.to_dtype(DType::F64).unwrap())
        .collect();
    let seed = gradient(&composed(&doubles).unwrap());
    let expected = results(inputs, Some(&seed), DType::F64, composed).unwrap();
    (seed, expected)
}

/// Returns the largest difference relative to the largest expected entry, or `least` if that is
/// larger; NaN counts as infinite.
pub(super) fn largest_error(got: &[f64], expected: &[f64], least: f64) -> f64 {
    assert_eq!(got.len(), expected.len());
    let scale = expected.iter().fold(least, |m: f64, e| m.max(e.abs()));
    let error = |(g, e): (&f64, &f64)| {
        if (g - e).is_finite() {
            (g - e).abs()
        } else {
            f64::INFINITY
        }
    };
    got.iter().zip(expected).map(error).fold(0.0, f64::max) / scale
}
