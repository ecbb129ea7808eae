//! Gradients against difference quotients, in f64.
//!
//! The loss is moved along one random direction of each parameter tensor p: u_p of norm 1, times a
//! step s_p. With gradients g_p the loss at θ ± s is f ± Σ_p s_p g_p·u_p up to terms of third
//! order, so that half the difference of the two is Σ_p s_p g_p·u_p. Steps are chosen such that
//! every tensor adds about as much to the sum, hence a single pair of passes judges all of them; if
//! it does not agree, a pair for each tensor finds the wrong one.
//!
//! Tolerance: a loss of about 1 in f64 is exact to about 1e-15, and steps of 1e-6 have third-order
//! terms below that. A quotient is thus exact to 1e-9; the check asks for 1e-4 of the slope, and
//! 1e-7.

use super::*;
use crate::rng::StreamKey;

/// The largest norm of a step.
const STEP: f64 = 1e-6;
/// Share of the loss that each parameter tensor is to add, to within a half. Errors would cancel
/// with equal shares, or with shares of both signs.
const SHARE: f64 = 1e-8;

/// One parameter tensor and the direction in which it is moved.
struct Moved {
    path: String,
    var: Var,
    start: Tensor,
    direction: Tensor,
    /// g·u, not negative.
    slope: f64,
    /// Share of the loss that this tensor is to add.
    share: f64,
}

impl Moved {
    fn new(path: String, var: Var, gradient: Option<&Tensor>) -> Self {
        let stream = RngKey::new(SEED, 0, 0).shared(StreamKey::new(&path));
        let numbers = stream.normal(1, var.elem_count());
        let norm = numbers.iter().map(|x| x * x).sum::<f64>().sqrt();
        let numbers: Vec<f64> = numbers.into_iter().map(|x| x / norm).collect();
        let direction = Tensor::from_vec(numbers, var.shape(), &Device::Cpu).kept();
        let slope: f64 = gradient.map_or(0.0, |gradient| {
            let product = (gradient * &direction).kept().sum_all().kept();
            product.to_scalar().kept()
        });
        let along = if slope < 0.0 { -1.0 } else { 1.0 };
        Self {
            // The variable's own tensor would follow it.
            start: var.as_detached_tensor().copy().kept(),
            path,
            var,
            direction: direction.affine(along, 0.0).kept(),
            slope: along * slope,
            share: SHARE * (0.5 + stream.uniform(1, 1)[0]),
        }
    }

    fn step(&self) -> f64 {
        (self.share / self.slope).min(STEP)
    }

    /// Sets the parameter to its start plus `by` times its direction.
    fn to(&self, by: f64) {
        let moved = (&self.start + self.direction.affine(by, 0.0).kept()).kept();
        self.var.set(&moved).kept();
    }

    /// Returns the slope of `loss` by differences over `step` to either side.
    fn quotient(&self, step: f64, loss: impl Fn() -> f64) -> f64 {
        let at = |by: f64| {
            self.to(by);
            loss()
        };
        let quotient = (at(step) - at(-step)) / (2.0 * step);
        self.to(0.0);
        quotient
    }
}

/// Checks that every gradient is that of the computed function, dropout aside.
pub(super) fn gradients_are_difference_quotients(model: &'static Model) {
    for (variant, mut options) in variants(model) {
        set_dropout(&mut options, 0.0);
        // A model that has the choice computes exact gradients.
        if options.model["detach"].is_boolean() {
            options.model["detach"] = false.into();
        }
        // A short batch with a mask, a row of its own without one, and long rows with one.
        // Scores of padded keys are so low that a small step is rounded away. For a model that sees
        // them the loss is not smooth, so its sequences have no padding here.
        let batches: [(&[usize], bool, usize); 3] = match variant.masks_padding {
            true => [
                (&[11, 7, 1], true, 37),
                (&[32], false, 37),
                (&[100, 61], true, 128),
            ],
            false => [
                (&[12; 3], true, 12),
                (&[32], false, 32),
                (&[100; 2], true, 100),
            ],
        };
        for (lengths, masked, longest) in batches {
            let mut tokens = tokens(lengths, lengths[0], 0);
            if !masked {
                tokens.mask = None;
            }
            let wrong = wrong_gradients(model, &options, &one(tokens), lengths.len(), longest);
            assert!(
                wrong.is_empty(),
                "{} {}: backward is not the derivative of forward, for sequences of {lengths:?} tokens {} a mask: {}",
                model.name,
                variant.name,
                if masked { "with" } else { "without" },
                wrong.join("; ")
            );
        }
    }
}

/// Returns the faults in the gradients of a training pass over `inputs`, `rows` sequences; `longest`
/// is the length that the model is built for.
fn wrong_gradients(
    model: &'static Model,
    options: &Options,
    inputs: &Inputs,
    rows: usize,
    longest: usize,
) -> Vec<String> {
    let shape = Shape {
        max_length: longest,
        ..shape(1)
    };
    let subject = initial(DType::F64, model, &shape, options, SEED);
    if subject.classifier.stops_gradients().is_some() {
        return Vec::new();
    }
    shift(&subject.parameters);
    let (pass, labels) = (training(0, 0), labels(0..rows));
    let loss = || whole_loss(&subject.classifier, inputs, &labels, &pass);
    let value = || loss().to_scalar::<f64>().kept();
    let gradients = ops::backward(&loss()).kept();
    let all = subject.parameters.all().into_iter();
    let moved = all.map(|(path, var)| Moved::new(path, var.clone(), gradients.get(&var)));
    let moved: Vec<Moved> = moved.collect();

    let at = |sign: f64| {
        moved.iter().for_each(|it| it.to(sign * it.step()));
        value()
    };
    let actual = (at(1.0) - at(-1.0)) / 2.0;
    moved.iter().for_each(|it| it.to(0.0));
    let shares = moved.iter().map(|it| it.step() * it.slope);
    let (sum, size) = shares.fold((0.0, 0.0), |(sum, size), x| (sum + x, size + x.abs()));
    if (actual - sum).abs() <= 1e-5 * size + 1e-13 {
        return Vec::new();
    }
    moved.iter().filter_map(|it| judge(it, value)).collect()
}

/// Returns the fault in the gradient of one parameter, if there is one. A shorter step decides
/// where the loss has a kink on the way.
fn judge(moved: &Moved, loss: impl Fn() -> f64) -> Option<String> {
    let slope = moved.slope;
    let mut quotient = 0.0;
    for step in [STEP, STEP / 16.0] {
        quotient = moved.quotient(step, &loss);
        let most = slope.abs().max(quotient.abs());
        if (slope - quotient).abs() <= 1e-4 * most + 1e-7 {
            return None;
        }
    }
    let ratio = slope / quotient;
    let said = match ratio.abs() {
        ratio if ratio < 1e-3 => "no gradient reaches it (detached on the way?)".to_owned(),
        ratio if ratio > 1e3 => "it has a gradient where the loss does not change".to_owned(),
        _ => format!("{ratio:.3} times what differences say"),
    };
    Some(format!(
        "{}: a slope of {slope:.3e} by backward, of {quotient:.3e} by differences: {said}",
        moved.path
    ))
}
