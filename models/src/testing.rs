//! Checks for the tests of a mixer, here or in a program of your own: gradients against difference
//! quotients, and attention against its exact definition in plain loops, in f64.
//!
//! A check panics with a description of the fault. [`crate::conformance`] has the checks that every
//! model passes, whatever it computes.
//!
//! ```
//! use lra_models::{prelude::*, testing};
//!
//! let softplus = |x: &Tensor| -> Result<Tensor> { Ok((x.exp()? + 1.0)?.log()?) };
//! testing::check_gradient("softplus", &[&[2, 3]], |inputs| softplus(&inputs[0]));
//! ```

// A fault in a check is a fault of the test.
#![allow(clippy::unwrap_used)]

use candle_core::{DType, Device, Tensor, Var};

pub use crate::reference;
use crate::{Mask, Parameters, Pass, Result, RngKey, Shape, rng::StreamKey};

/// Returns a tensor of `shape` and type f64 with N(0, 1) numbers, from the random stream named by
/// `path`.
#[must_use]
pub fn normal(path: &str, shape: &[usize]) -> Tensor {
    let count = shape.iter().product();
    let stream = RngKey::new(1, 0, 0).shared(StreamKey::new(path));
    Tensor::from_vec(stream.normal(1, count), shape, &Device::Cpu).unwrap()
}

/// Checks that every element of `actual` is less than `tolerance` away from that of `expected`.
/// Both have the same shape, which may be any, and the same float type. `place` is named in the
/// message.
///
/// # Panics
/// If an element is farther away, or the shapes differ.
pub fn close(actual: &Tensor, expected: &Tensor, tolerance: f64, place: &str) {
    assert_eq!(actual.dims(), expected.dims(), "{place}");
    let apart = (actual - expected)
        .unwrap()
        .abs()
        .unwrap()
        .max_all()
        .unwrap();
    let apart = apart
        .to_dtype(DType::F64)
        .unwrap()
        .to_scalar::<f64>()
        .unwrap();
    // Not `apart > tolerance`, which NaN passes.
    assert!(apart < tolerance, "{place}: {apart}");
}

/// Checks that two outputs of one shape and type f64 are [`close`]. Checks the same of the
/// gradients for `inputs` of one weighted sum of each output. `place` is named in the message.
///
/// # Panics
/// If elements are `tolerance` or more apart, or an input gets no gradient.
pub fn agree(actual: &Tensor, expected: &Tensor, inputs: &[Var], tolerance: f64, place: &str) {
    close(actual, expected, tolerance, place);
    let weights = normal("weights", actual.dims());
    let gradients = |y: &Tensor| {
        (y * &weights)
            .unwrap()
            .sum_all()
            .unwrap()
            .backward()
            .unwrap()
    };
    let (actual, expected) = (gradients(actual), gradients(expected));
    for input in inputs {
        let [actual, expected] = [&actual, &expected].map(|all| all.get(input).unwrap());
        close(actual, expected, tolerance, &format!("{place}, gradient"));
    }
}

/// Checks the gradient of a weighted sum of `function(inputs)` by difference quotients, in f64.
/// `shapes` are those of the inputs, whose elements are N(0, 1) numbers. Each element of an input
/// of up to 12 elements has a quotient of its own. For a larger input, quotients along 5 random
/// directions are taken. `name` is named in the message.
///
/// # Panics
/// If a gradient and its difference quotient are 1e-7 or more apart, relative to the largest
/// quotient of the input or to 1 if that is more; or if an input gets no gradient.
pub fn check_gradient(
    name: &str,
    shapes: &[&[usize]],
    function: impl Fn(&[Tensor]) -> Result<Tensor>,
) {
    check_gradient_of(name, shapes, &function);
}

/// Does the work of [`check_gradient`], compiled once for all functions.
fn check_gradient_of(
    name: &str,
    shapes: &[&[usize]],
    function: &dyn Fn(&[Tensor]) -> Result<Tensor>,
) {
    let inputs: Vec<Var> = (0..shapes.len())
        .map(|index| Var::from_tensor(&normal(&format!("input {index}"), shapes[index])).unwrap())
        .collect();
    let tensors: Vec<Tensor> = inputs.iter().map(|var| var.as_tensor().clone()).collect();
    check_variables(name, &inputs, &|| function(&tensors));
}

/// Checks the gradient of a weighted sum of `layer(x)` by difference quotients, for x of `shape`
/// and for every parameter. The quotients are those of [`check_gradient`]. `name` is named in the
/// message.
///
/// # Panics
/// If a gradient and its difference quotient are as far apart as in [`check_gradient`], or a
/// parameter gets no gradient.
pub fn check_layer(
    name: &str,
    parameters: &Parameters,
    shape: &[usize],
    layer: impl Fn(&Tensor) -> Result<Tensor>,
) {
    check_layer_of(name, parameters, shape, &layer);
}

/// Does the work of [`check_layer`], compiled once for all layers.
fn check_layer_of(
    name: &str,
    parameters: &Parameters,
    shape: &[usize],
    layer: &dyn Fn(&Tensor) -> Result<Tensor>,
) {
    let x = Var::from_tensor(&normal("x", shape)).unwrap();
    let mut variables = vec![x.clone()];
    for (path, var) in parameters.all() {
        // Away from the ones and zeros of initialisation, which hide mistakes.
        let shift = normal(&path, var.dims()).affine(0.3, 0.0).unwrap();
        var.set(&(var.as_detached_tensor() + shift).unwrap())
            .unwrap();
        variables.push(var);
    }
    check_variables(name, &variables, &|| layer(&x));
}

/// Returns the shape of a small task with three classes, five token ids, up to six tokens, and
/// padding. An example has `towers` sequences.
#[must_use]
pub fn shape(towers: usize) -> Shape {
    Shape {
        vocabulary: 5,
        classes: 3,
        towers,
        max_length: 6,
        padding: true,
        grid: None,
    }
}

/// Returns a pass in evaluation, without mask, in which nothing is dropped.
#[must_use]
pub fn pass() -> Pass<'static> {
    Pass::new(false, RngKey::new(1, 0, 0))
}

/// Creates an empty set of parameters of type f64 in main memory.
#[must_use]
pub fn parameters() -> Parameters {
    Parameters::new(3, &Device::Cpu, DType::F64)
}

/// Returns the gradient of `function()` by central differences with a step of 1e-5. It has one
/// number for each element of `variable`, an f64 tensor of any shape, in row-major order.
#[must_use]
pub fn differences(variable: &Var, function: impl Fn() -> f64) -> Vec<f64> {
    differences_of(variable, &function)
}

/// Does the work of [`differences`], compiled once for all functions.
fn differences_of(variable: &Var, function: &dyn Fn() -> f64) -> Vec<f64> {
    let step = 1e-5;
    let values: Vec<f64> = variable.flatten_all().unwrap().to_vec1().unwrap();
    (0..values.len())
        .map(|index| {
            let at = |shift: f64| {
                let mut moved = values.clone();
                moved[index] += shift;
                let moved = Tensor::from_vec(moved, variable.shape(), &Device::Cpu).unwrap();
                variable.set(&moved).unwrap();
                function()
            };
            let quotient = (at(step) - at(-step)) / (2.0 * step);
            at(0.0);
            quotient
        })
        .collect()
}

/// Elements of a variable up to which each has a difference quotient of its own. Of a larger one,
/// quotients along [`DIRECTIONS`] random directions are taken, in which all elements take part. If
/// one of them does not agree, every element is checked, to name those that are wrong.
const FEW: usize = 12;
const DIRECTIONS: usize = 5;

/// Returns whether a gradient agrees with the difference quotients of `function` along random
/// directions of length 1.
fn agrees_along_directions(variable: &Var, gradient: &[f64], function: &dyn Fn() -> f64) -> bool {
    let step = 1e-5;
    let start = variable.as_tensor().copy().unwrap();
    let agrees = |direction: usize| {
        let along = normal(&format!("direction {direction}"), variable.dims());
        let along: Vec<f64> = along.flatten_all().unwrap().to_vec1().unwrap();
        let length = along.iter().map(|x| x * x).sum::<f64>().sqrt();
        let at = |shift: f64| {
            let moved: Vec<f64> = along.iter().map(|x| shift * x / length).collect();
            let moved = Tensor::from_vec(moved, variable.shape(), &Device::Cpu).unwrap();
            variable.set(&(&start + moved).unwrap()).unwrap();
            function()
        };
        let expected = (at(step) - at(-step)) / (2.0 * step);
        variable.set(&start).unwrap();
        let products = gradient.iter().zip(&along).map(|(g, x)| g * x / length);
        (products.sum::<f64>() - expected).abs() < 1e-7 * expected.abs().max(1.0)
    };
    (0..DIRECTIONS).all(agrees)
}

fn check_variables(name: &str, variables: &[Var], function: &dyn Fn() -> Result<Tensor>) {
    let weights = normal("weights", function().unwrap().dims());
    let loss = || (function().unwrap() * &weights).unwrap().sum_all().unwrap();
    let number = || loss().to_scalar().unwrap();
    let gradients = loss().backward().unwrap();
    for (index, variable) in variables.iter().enumerate() {
        let actual = gradients
            .get(variable)
            .unwrap_or_else(|| panic!("{name}: variable {index} has no gradient"));
        let actual: Vec<f64> = actual.flatten_all().unwrap().to_vec1().unwrap();
        if actual.len() > FEW && agrees_along_directions(variable, &actual, &number) {
            continue;
        }
        let expected = differences_of(variable, &number);
        let scale = expected.iter().fold(1.0f64, |most, x| most.max(x.abs()));
        for (element, (actual, expected)) in actual.iter().zip(&expected).enumerate() {
            assert!(
                (actual - expected).abs() < 1e-7 * scale,
                "{name}: variable {index}, element {element}: {actual} by backward, {expected} by differences"
            );
        }
    }
}

/// Queries, keys and values with a mask, and the output and gradients of exact attention for them,
/// all in f64.
pub struct DenseReference {
    inputs: [Var; 3],
    mask: Mask,
    weights: Tensor,
    output: Tensor,
    gradients: [Vec<f64>; 3],
}

/// Errors of an attention beside a [`DenseReference`], as roots of mean squares.
#[derive(Debug)]
pub struct RmsErrors {
    /// Root-mean-square difference of the outputs.
    pub output: f64,
    /// Root-mean-square difference of the gradients.
    pub gradient: f64,
}

impl DenseReference {
    /// Builds queries, keys and values, each (3, 5, 2, 3), of N(0, `spread`²) numbers. They are
    /// three sequences of 5 positions, with two heads 3 wide. All positions of the first sequence
    /// are valid, three of the second, and none of the third. `kernel` is that of
    /// [`reference::attention`].
    #[must_use]
    pub fn new(kernel: impl Fn(&[f64], &[f64]) -> f64, spread: f64) -> Self {
        let valid = [[1.0; 5], [1.0, 1.0, 1.0, 0.0, 0.0], [0.0; 5]];
        Self::with_valid(kernel, spread, valid)
    }

    /// Builds queries, keys and values as [`DenseReference::new`] does, with every position valid
    /// and a spread of 1. `kernel` is that of [`reference::attention`].
    #[must_use]
    pub fn whole(kernel: impl Fn(&[f64], &[f64]) -> f64) -> Self {
        Self::with_valid(kernel, 1.0, [[1.0; 5]; 3])
    }

    fn with_valid(
        kernel: impl Fn(&[f64], &[f64]) -> f64,
        spread: f64,
        valid: [[f64; 5]; 3],
    ) -> Self {
        let shape = [3, 5, 2, 3]; // (B, L, H, E)
        let inputs = ["q", "k", "v"].map(|name| {
            let values = normal(name, &shape).affine(spread, 0.0).unwrap();
            Var::from_tensor(&values).unwrap()
        });
        let mask = Mask::new(&Tensor::new(&valid, &Device::Cpu).unwrap()).unwrap();
        let [q, k, v] = &inputs;
        let answer = || reference::attention(q, k, v, Some(mask.valid()), &kernel).unwrap();
        let weights = normal("weights", &shape);
        let loss = || {
            let sum = (answer() * &weights).unwrap().sum_all().unwrap();
            sum.to_scalar::<f64>().unwrap()
        };
        let gradients = [q, k, v].map(|variable| differences(variable, loss));
        let output = answer();
        Self {
            inputs,
            mask,
            weights,
            output,
            gradients,
        }
    }

    /// Returns E, the width of a head.
    #[must_use]
    pub fn width(&self) -> usize {
        self.inputs[0].dims()[3]
    }

    /// Returns the differences of `attend` from the reference, in its output and in the gradients
    /// of a weighted sum of the output. `attend` maps queries, keys and values, each (B, L, H, E),
    /// with a mask (B, L), to (B, L, H, E).
    ///
    /// # Panics
    /// If `attend` fails, or a query, key or value gets no gradient.
    #[must_use]
    pub fn compare(
        &self,
        attend: impl Fn(&Tensor, &Tensor, &Tensor, Option<&Mask>) -> Result<Tensor>,
    ) -> RmsErrors {
        let [q, k, v] = &self.inputs;
        let y = attend(q, k, v, Some(&self.mask)).unwrap();
        let error = (&y - &self.output).unwrap();
        let loss = (y * &self.weights).unwrap().sum_all().unwrap();
        let store = loss.backward().unwrap();
        let (mut sum, mut count) = (0.0, 0);
        for (variable, expected) in self.inputs.iter().zip(&self.gradients) {
            let actual = store.get(variable).unwrap().flatten_all().unwrap();
            for (actual, expected) in actual.to_vec1::<f64>().unwrap().iter().zip(expected) {
                sum += (actual - expected).powi(2);
                count += 1;
            }
        }
        let output = error.sqr().unwrap().mean_all().unwrap();
        RmsErrors {
            output: output.to_scalar::<f64>().unwrap().sqrt(),
            gradient: (sum / f64::from(count)).sqrt(),
        }
    }
}

/// Checks that `attend` is exact attention with `kernel`, for complete and padded sequences. It
/// maps queries, keys and values, each (B, L, H, E), with a mask (B, L), to (B, L, H, E). `name` is
/// named in the message.
///
/// # Panics
/// If one of the [`RmsErrors`] is `tolerance` or more.
pub fn meets_reference(
    name: &str,
    tolerance: f64,
    kernel: impl Fn(&[f64], &[f64]) -> f64,
    attend: impl Fn(&Tensor, &Tensor, &Tensor, Option<&Mask>) -> Result<Tensor>,
) {
    let errors = DenseReference::new(kernel, 1.0).compare(attend);
    assert!(
        errors.output < tolerance && errors.gradient < tolerance,
        "{name}: {errors:?}"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the square of x, without the gradient of element `lost`.
    fn square_without(x: &Tensor, lost: usize) -> Result<Tensor> {
        let count = x.elem_count();
        let keeps = (0..count).map(|element| f64::from(u8::from(element != lost)));
        let keeps = Tensor::from_vec(keeps.collect::<Vec<f64>>(), x.shape(), x.device())?;
        let rest = (x.detach() * keeps.affine(-1.0, 1.0)?)?;
        Ok(((x * keeps)? + rest)?.sqr()?)
    }

    #[test]
    #[should_panic(expected = "variable 0, element 3")]
    fn a_lost_gradient_of_a_small_variable_is_found() {
        check_gradient("square", &[&[2, 4]], |inputs| square_without(&inputs[0], 3));
    }

    #[test]
    #[should_panic(expected = "variable 0, element 171")]
    fn a_lost_gradient_of_a_large_variable_is_found() {
        check_gradient("square", &[&[30, 10]], |inputs| {
            square_without(&inputs[0], 171)
        });
    }
}
