//! Gradients held against difference quotients, in f64.

use candle_core::{DType, Device, Tensor, Var};

use crate::{Draws, Parameters, Result, draws::StreamKey};

/// N(0, 1) numbers of type f64, named by `path`.
pub(crate) fn normal(path: &str, shape: &[usize]) -> Tensor {
    let count = shape.iter().product();
    let stream = Draws::new(1, 0, 0).shared(StreamKey::new(path));
    Tensor::from_vec(stream.normal(1, count), shape, &Device::Cpu).unwrap()
}

/// Checks the gradient of a weighted sum of `function(inputs)` for every element of every input.
pub(crate) fn check_gradient(
    name: &str,
    shapes: &[&[usize]],
    function: impl Fn(&[Tensor]) -> Result<Tensor>,
) {
    let inputs: Vec<Var> = (0..shapes.len())
        .map(|index| Var::from_tensor(&normal(&format!("input {index}"), shapes[index])).unwrap())
        .collect();
    let tensors: Vec<Tensor> = inputs.iter().map(|var| var.as_tensor().clone()).collect();
    check_variables(name, &inputs, || function(&tensors));
}

/// Checks the gradient of a weighted sum of `layer(x)` for x of `shape` and for every parameter.
pub(crate) fn check_layer(
    name: &str,
    parameters: &Parameters,
    shape: &[usize],
    layer: impl Fn(&Tensor) -> Result<Tensor>,
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
    check_variables(name, &variables, || layer(&x));
}

/// Parameters of type f64.
pub(crate) fn parameters() -> Parameters {
    Parameters::new(3, &Device::Cpu, DType::F64)
}

/// Gradient of `function()` by central differences for every element of `variable`.
pub(crate) fn differences(variable: &Var, function: impl Fn() -> f64) -> Vec<f64> {
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

fn check_variables(name: &str, variables: &[Var], function: impl Fn() -> Result<Tensor>) {
    let weights = normal("weights", function().unwrap().dims());
    let loss = || (function().unwrap() * &weights).unwrap().sum_all().unwrap();
    let gradients = loss().backward().unwrap();
    for (index, variable) in variables.iter().enumerate() {
        let found = gradients
            .get(variable)
            .unwrap_or_else(|| panic!("{name}: variable {index} has no gradient"));
        let found: Vec<f64> = found.flatten_all().unwrap().to_vec1().unwrap();
        let wanted = differences(variable, || loss().to_scalar().unwrap());
        let scale = wanted.iter().fold(1.0f64, |most, x| most.max(x.abs()));
        for (element, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
            assert!(
                (found - wanted).abs() < 1e-7 * scale,
                "{name}: variable {index}, element {element}: {found} by backward, {wanted} by differences"
            );
        }
    }
}
