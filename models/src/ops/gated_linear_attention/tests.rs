use candle_core::{DType, Var};
use lra_cpu::isa::Isa;

use super::*;
use crate::Mask;
use crate::ops::testing::{Sampler, agree_in_f32};
use crate::testing::{check_gradient, close, normal};

/// Decays of a call.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Decays {
    None,
    Head,
    Token,
    Channel,
}

const DECAYS: [Decays; 4] = [Decays::None, Decays::Head, Decays::Token, Decays::Channel];

#[derive(Clone, Copy, Debug)]
struct Case {
    decays: Decays,
    delta: bool,
    reverse: bool,
    exclusive: bool,
}

/// Returns every combination of options.
fn cases() -> impl Iterator<Item = Case> {
    (0..32).map(|bits: usize| Case {
        decays: DECAYS[bits % 4],
        delta: bits & 4 > 0,
        reverse: bits & 8 > 0,
        exclusive: bits & 16 > 0,
    })
}

impl Case {
    /// Returns the shapes of q, k, v, and of what makes decays and rates where there are any.
    fn shapes(self, [batch, length, heads, keys, values]: [usize; 5]) -> Vec<Vec<usize>> {
        let mut shapes = vec![
            vec![batch, length, heads, keys],
            vec![batch, length, heads, keys],
            vec![batch, length, heads, values],
        ];
        match self.decays {
            Decays::None => {}
            Decays::Head => shapes.push(vec![heads]),
            Decays::Token => shapes.push(vec![batch, length, heads]),
            Decays::Channel => shapes.push(vec![batch, length, heads, keys]),
        }
        if self.delta {
            shapes.push(vec![batch, length, heads]);
        }
        shapes
    }

    /// Returns the attention of inputs of these shapes, whose last make decays of e^(-x²) and rates
    /// between 0 and 1. Keys are shortened for the delta rule.
    fn apply(self, x: &[Tensor], packing: Option<&Packing>) -> Result<Tensor> {
        let (decay, rate) = self.gates(x)?;
        let options = GatedLinearAttentionOptions {
            log_decay: decay.as_ref(),
            delta: rate.as_ref(),
            reverse: self.reverse,
            exclusive: self.exclusive,
            packing,
            ..Default::default()
        };
        gated_linear_attention(&x[0], &self.keys(&x[1])?, &x[2], &options)
    }

    fn keys(self, k: &Tensor) -> Result<Tensor> {
        let width = k.dim(3)? as f64;
        Ok(k.affine(if self.delta { width.powf(-0.5) } else { 1.0 }, 0.0)?)
    }

    fn gates(self, x: &[Tensor]) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let decay = (self.decays != Decays::None).then(|| x[3].sqr()?.neg());
        let rate = self.delta.then(|| {
            let rate = x[x.len() - 1].neg()?.exp()?;
            rate.affine(1.0, 1.0)?.recip()
        });
        Ok((decay.transpose()?, rate.transpose()?))
    }
}

/// Returns the attention of f64 inputs by the recurrence, one position after the other.
fn step_by_step(case: Case, x: &[Tensor]) -> Tensor {
    let (decay, rate) = case.gates(x).unwrap();
    let numbers = |x: &Tensor| x.flatten_all().unwrap().to_vec1::<f64>().unwrap();
    let (batch, length, heads, keys) = x[0].dims4().unwrap();
    let values = x[2].dim(3).unwrap();
    let (q, k, v) = (
        numbers(&x[0]),
        numbers(&case.keys(&x[1]).unwrap()),
        numbers(&x[2]),
    );
    let (decay, rate) = (decay.as_ref().map(numbers), rate.as_ref().map(numbers));
    let mut y = vec![0.0; v.len()];
    for (b, h) in (0..batch).flat_map(|b| (0..heads).map(move |h| (b, h))) {
        let mut state = vec![0.0; keys * values];
        for t in 0..length {
            let t = if case.reverse { length - 1 - t } else { t };
            let row = (b * length + t) * heads + h;
            let read = |state: &[f64], x: &[f64], e: usize| -> f64 {
                (0..keys)
                    .map(|c| state[c * values + e] * x[row * keys + c])
                    .sum()
            };
            if case.exclusive {
                (0..values).for_each(|e| y[row * values + e] = read(&state, &q, e));
            }
            for (c, state) in state.chunks_mut(values).enumerate() {
                let log = match (case.decays, &decay) {
                    (Decays::Head, Some(decay)) => decay[h],
                    (Decays::Token, Some(decay)) => decay[row],
                    (Decays::Channel, Some(decay)) => decay[row * keys + c],
                    _ => 0.0,
                };
                state.iter_mut().for_each(|x| *x *= f64::exp(log));
            }
            let written: Vec<f64> = (0..values)
                .map(|e| match &rate {
                    Some(rate) => rate[row] * (v[row * values + e] - read(&state, &k, e)),
                    None => v[row * values + e],
                })
                .collect();
            for c in 0..keys {
                for e in 0..values {
                    state[c * values + e] += k[row * keys + c] * written[e];
                }
            }
            if !case.exclusive {
                (0..values).for_each(|e| y[row * values + e] = read(&state, &q, e));
            }
        }
    }
    Tensor::from_vec(y, x[2].dims(), &Device::Cpu).unwrap()
}

fn drawn(case: Case, sizes: [usize; 5]) -> Vec<Tensor> {
    let shapes = case.shapes(sizes);
    let draw = |(i, shape): (usize, &Vec<usize>)| normal(&format!("{i}"), shape);
    shapes.iter().enumerate().map(draw).collect()
}

#[test]
fn the_composed_form_is_the_recurrence_step_by_step() {
    for case in cases() {
        for length in [1, 2, 16, 17, 50] {
            let inputs = drawn(case, [2, length, 2, 3, 4]);
            let (actual, expected) = (
                case.apply(&inputs, None).unwrap(),
                step_by_step(case, &inputs),
            );
            close(
                &actual,
                &expected,
                1e-10,
                &format!("{case:?}, length {length}"),
            );
        }
    }
}

#[test]
fn the_kernel_meets_its_composed_form() {
    let mut sampler = Sampler::new(151);
    for case in cases() {
        // Both directions walk alike: the longest sequence once.
        let most = if case.reverse { 5 } else { 6 };
        let all = [
            [1, 1, 1, 1, 1],
            [2, 17, 3, 5, 18],
            [1, 70, 2, 16, 8],
            [2, 37, 5, 3, 2],
            [1, 33, 19, 4, 4],
            [1, 133, 1, 33, 16],
        ];
        for sizes in &all[..most] {
            let inputs: Vec<Tensor> = case
                .shapes(*sizes)
                .iter()
                .map(|shape| sampler.normal(shape, 0.6))
                .collect();
            let f = |x: &[Tensor]| Ok(case.apply(x, None)?);
            agree_in_f32(&format!("gated linear attention {case:?}"), &inputs, f, f);
        }
    }
}

#[test]
fn long_sequences_of_the_kernel_are_the_recurrence_step_by_step() {
    for decays in DECAYS {
        for delta in [false, true] {
            let case = Case {
                decays,
                delta,
                reverse: false,
                exclusive: false,
            };
            let inputs = drawn(case, [1, 1023, 1, 8, 8]);
            let expected = step_by_step(case, &inputs);
            let single = |x: &Tensor| x.to_dtype(DType::F32).unwrap();
            let inputs: Vec<Tensor> = inputs.iter().map(single).collect();
            let actual = case.apply(&inputs, None).unwrap();
            let size = expected
                .abs()
                .unwrap()
                .max_all()
                .unwrap()
                .to_scalar::<f64>()
                .unwrap();
            let actual = actual.to_dtype(DType::F64).unwrap();
            close(&actual, &expected, 1e-5 * size, &format!("{case:?}"));
        }
    }
}

#[test]
fn gradients_are_difference_quotients() {
    for case in cases() {
        let shapes = case.shapes([1, 5, 2, 3, 2]);
        let shapes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
        check_gradient(&format!("{case:?}"), &shapes, |x| case.apply(x, None));
    }
    // Across a chunk's end.
    let case = Case {
        decays: Decays::Channel,
        delta: true,
        reverse: false,
        exclusive: false,
    };
    let shapes = case.shapes([1, 18, 1, 2, 1]);
    let shapes: Vec<&[usize]> = shapes.iter().map(Vec::as_slice).collect();
    check_gradient("two chunks", &shapes, |x| case.apply(x, None));
}

/// Returns the output, and the gradients of a weighted sum of it, with decays that are given.
fn with_decays(inputs: &[Tensor; 3], log_decay: &Tensor, dtype: DType) -> Vec<Tensor> {
    let var = |x: &Tensor| Var::from_tensor(&x.to_dtype(dtype).unwrap()).unwrap();
    let [q, k, v] = inputs.each_ref().map(var);
    let log_decay = var(log_decay);
    let options = GatedLinearAttentionOptions {
        log_decay: Some(&log_decay),
        ..Default::default()
    };
    let y = gated_linear_attention(&q, &k, &v, &options).unwrap();
    let weights = normal("weights", y.dims()).to_dtype(dtype).unwrap();
    let store = (&y * weights)
        .unwrap()
        .sum_all()
        .unwrap()
        .backward()
        .unwrap();
    let gradients = [&q, &k, &v, &log_decay].map(|x| store.get(x).unwrap().clone());
    let double = |x: &Tensor| x.to_dtype(DType::F64).unwrap();
    std::iter::once(&y).chain(&gradients).map(double).collect()
}

#[test]
fn extreme_decays_neither_overflow_nor_leak() {
    let (batch, length, heads, keys) = (1, 40, 2, 3);
    let shape = [batch, length, heads, keys];
    let inputs = ["q", "k", "v"].map(|name| normal(name, &shape));
    let full = |log: f64| Tensor::full(log, &shape, &Device::Cpu).unwrap();
    // Every third position forgets, by e^-50 or altogether.
    let every = |log: f64| {
        let at = |i: usize| {
            if i / (heads * keys) % 3 == 1 {
                log
            } else {
                -1e-3
            }
        };
        let numbers = (0..length * heads * keys).map(at);
        Tensor::from_iter(numbers, &Device::Cpu)
            .unwrap()
            .reshape(&shape)
            .unwrap()
    };
    let forgotten = [
        full(-50.0),
        full(-1e3),
        every(-50.0),
        every(-1e3),
        full(f64::NEG_INFINITY),
    ];
    for (index, log_decay) in forgotten.iter().enumerate() {
        let actual = with_decays(&inputs, log_decay, DType::F32);
        let expected = with_decays(&inputs, log_decay, DType::F64);
        for (which, (actual, expected)) in actual.iter().zip(&expected).enumerate() {
            close(
                actual,
                expected,
                2e-5,
                &format!("decays {index}, result {which}"),
            );
        }
    }
    // Decays of 0 leave a position its own key and value, those of 1 all before it.
    let [q, k, v] = &inputs;
    let own = (q * k)
        .unwrap()
        .sum_keepdim(3)
        .unwrap()
        .broadcast_mul(v)
        .unwrap();
    for dtype in [DType::F32, DType::F64] {
        let actual = with_decays(&inputs, &full(f64::NEG_INFINITY), dtype);
        close(&actual[0], &own, 1e-5, "decays of 0");
        let kept = with_decays(&inputs, &full(0.0), dtype);
        let heads = |x: &Tensor| x.transpose(1, 2).unwrap().contiguous().unwrap();
        let scores = heads(q).matmul(&heads(k).t().unwrap()).unwrap();
        let lower = Triangle::new(length, &scores).unwrap().lower;
        let expected = scores
            .broadcast_mul(&lower)
            .unwrap()
            .matmul(&heads(v))
            .unwrap();
        close(&heads(&kept[0]), &expected, 1e-4, "decays of 1");
    }
}

#[test]
fn packed_sequences_do_not_know_each_other() {
    let lengths = [19, 0, 33, 1];
    let longest = 33;
    let valid: Vec<f64> = lengths
        .iter()
        .flat_map(|length| (0..longest).map(move |l| f64::from(u8::from(l < *length))))
        .collect();
    let valid = Tensor::from_vec(valid, (4, longest), &Device::Cpu).unwrap();
    let packing = Packing::new(&Mask::new(&valid).unwrap()).unwrap().unwrap();
    let mut sampler = Sampler::new(152);
    for case in cases() {
        let inputs: Vec<Tensor> = case
            .shapes([1, packing.rows(), 2, 3, 4])
            .iter()
            .map(|shape| sampler.normal(shape, 0.7))
            .collect();
        let f = |x: &[Tensor]| Ok(case.apply(x, Some(&packing))?);
        agree_in_f32(&format!("packed {case:?}"), &inputs, f, f);
        // The second sequence alone.
        let part = |x: &Tensor| match x.rank() {
            1 => x.clone(),
            _ => x.narrow(1, 19, 33).unwrap().contiguous().unwrap(),
        };
        let alone: Vec<Tensor> = inputs.iter().map(part).collect();
        let alone = case.apply(&alone, None).unwrap();
        let all = case.apply(&inputs, Some(&packing)).unwrap();
        close(&part(&all), &alone, 1e-6, &format!("{case:?}"));
    }
    // Fewer rows and more than the sequences have.
    let case = Case {
        decays: Decays::None,
        delta: false,
        reverse: false,
        exclusive: false,
    };
    for dtype in [DType::F32, DType::F64] {
        for rows in [packing.rows() - 1, packing.rows() + 1] {
            let inputs = drawn(case, [1, rows, 2, 3, 4]);
            let inputs: Vec<Tensor> = inputs.iter().map(|x| x.to_dtype(dtype).unwrap()).collect();
            assert!(case.apply(&inputs, Some(&packing)).is_err(), "{rows}");
        }
    }
}

/// Products are of f32 in every number format. Without a graph, no state is kept.
#[test]
fn neither_rounded_factors_nor_a_missing_graph_change_a_bit() {
    // Wide heads, and narrow ones.
    for (sizes, delta) in [([1, 70, 2, 16, 8], true), ([2, 37, 5, 3, 2], false)] {
        let case = Case {
            decays: Decays::Channel,
            delta,
            reverse: false,
            exclusive: false,
        };
        let inputs = drawn(case, sizes);
        let constants: Vec<Tensor> = inputs
            .iter()
            .map(|x| x.to_dtype(DType::F32).unwrap())
            .collect();
        let variables: Vec<Tensor> = constants
            .iter()
            .map(|x| Var::from_tensor(x).unwrap().as_tensor().clone())
            .collect();
        let numbers = |isa: Isa, x: &[Tensor]| {
            let y = isa.force(|| case.apply(x, None)).unwrap();
            y.flatten_all().unwrap().to_vec1::<f32>().unwrap()
        };
        for isa in Isa::all() {
            let expected = numbers(isa, &variables);
            let alone = numbers(isa, &constants);
            assert!(alone == expected, "{isa:?} {sizes:?}, no graph");
            let alike = Isa::all_rounded().into_iter();
            for rounded in alike.filter(|rounded| rounded.sums_as(isa)) {
                let actual = numbers(rounded, &variables);
                assert!(actual == expected, "{rounded:?} {sizes:?}");
            }
        }
    }
}

#[test]
fn bonus_and_norm_are_as_documented() {
    let shape = [1, 7, 2, 3];
    let inputs: Vec<Tensor> = ["q", "k", "v"].map(|name| normal(name, &shape)).to_vec();
    let (q, k, v) = (&inputs[0], &inputs[1], &inputs[2]);
    let bonus = normal("bonus", &[2, 3]);
    let log_decay = normal("decay", &shape).sqr().unwrap().neg().unwrap();
    let plain = GatedLinearAttentionOptions {
        log_decay: Some(&log_decay),
        exclusive: true,
        ..Default::default()
    };
    let without = gated_linear_attention(q, k, v, &plain).unwrap();
    let options = GatedLinearAttentionOptions {
        bonus: Some(&bonus),
        ..plain
    };
    let own = (q * k)
        .unwrap()
        .broadcast_mul(&bonus)
        .unwrap()
        .sum_keepdim(3)
        .unwrap();
    let expected = (without + v.broadcast_mul(&own).unwrap()).unwrap();
    let actual = gated_linear_attention(q, k, v, &options).unwrap();
    close(&actual, &expected, 1e-12, "bonus");
    let ones = Tensor::ones(&[1, 7, 2, 1], DType::F64, &Device::Cpu).unwrap();
    let sums = gated_linear_attention(q, k, &ones, &options).unwrap();
    let expected = actual
        .broadcast_div(&sums.abs().unwrap().maximum(0.1).unwrap())
        .unwrap();
    let options = GatedLinearAttentionOptions {
        normalise: Some(0.1),
        ..options
    };
    let actual = gated_linear_attention(q, k, v, &options).unwrap();
    close(&actual, &expected, 1e-10, "normalised");
    for shape in [&[3][..], &[1, 3], &[2, 1], &[3, 2]] {
        let bonus = normal("bonus", shape);
        let options = GatedLinearAttentionOptions {
            bonus: Some(&bonus),
            ..plain
        };
        let error = gated_linear_attention(q, k, v, &options).unwrap_err();
        assert!(error.to_string().contains("a bonus of"), "{error}");
    }
    check_gradient("bonus and norm", &[&shape, &shape, &shape, &[2, 3]], |x| {
        let options = GatedLinearAttentionOptions {
            bonus: Some(&x[3]),
            ..options
        };
        gated_linear_attention(&x[0], &x[1], &x[2], &options)
    });
}

#[test]
fn shapes_that_do_not_fit_are_errors() {
    let case = Case {
        decays: Decays::Channel,
        delta: true,
        reverse: false,
        exclusive: false,
    };
    for dtype in [DType::F32, DType::F64] {
        let good: Vec<Tensor> = drawn(case, [2, 5, 2, 3, 4])
            .iter()
            .map(|x| x.to_dtype(dtype).unwrap())
            .collect();
        for (index, shape) in [
            (1, vec![2, 5, 2, 2]),
            (2, vec![2, 4, 2, 4]),
            (3, vec![2, 5, 2, 4]),
            (3, vec![3]),
            (4, vec![2, 5, 3]),
        ] {
            let mut x = good.clone();
            x[index] = normal("x", &shape).to_dtype(dtype).unwrap();
            let message = case.apply(&x, None).unwrap_err().to_string();
            assert!(message.contains("do not fit"), "{message}");
        }
    }
}
