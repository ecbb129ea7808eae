//! Checkpoints: stretches of the graph that keep only their input and their output. The backward
//! pass computes everything between again.
//!
//! The operands of a stretch are its input and every variable in it.

use candle_core::{DType, Result, Shape, Storage, Tensor, Var, backprop::GradStore, bail};

pub(crate) use crate::autograd::GradInputs;
use crate::autograd::{backward, graph_output};

/// Returns f(x) for x of any shape, keeping only x and the output. The backward pass computes the
/// rest again (Chen et al., 2016, "Training Deep Nets with Sublinear Memory Cost",
/// arXiv:1604.06174). `f` must give the same result in every call.
///
/// # Errors
/// Errors of `f`.
pub fn checkpoint(
    x: &Tensor,
    f: impl Fn(&Tensor) -> crate::Result<Tensor> + Send + Sync + 'static,
) -> crate::Result<Tensor> {
    let y = f(&x.detach())?;
    let mut variables = Vec::new();
    note_variables(&y, &mut variables);
    let y = y.detach().contiguous()?;
    if variables.is_empty() && !x.track_op() {
        return Ok(y);
    }
    let x_again = x.detach();
    Ok(with_history(x, &y, &variables, Again { x: x_again, f })?)
}

/// A function, and its argument.
struct Again<F> {
    x: Tensor,
    f: F,
}

impl<F> Checkpointed for Again<F>
where
    F: Fn(&Tensor) -> crate::Result<Tensor> + Send + Sync + 'static,
{
    const READS_OUTPUT: bool = false;

    fn backward(&self, _: &Tensor, dy: &Tensor, inputs: &GradInputs) -> crate::Result<Tensor> {
        let x = Var::from_tensor(&self.x)?;
        let y = (self.f)(&x)?;
        let mut gradients = backward_from(&y, dy)?;
        inputs.accumulate_grads(&mut gradients)?;
        match gradients.remove(&x) {
            Some(dx) => Ok(dx),
            None => Ok(x.zeros_like()?),
        }
    }
}

/// Returns gradients of variables from `y` and its gradient, as PyTorch's `y.backward(dy)`; a pass
/// of its own inside another one.
///
/// # Errors
/// If a tensor operation fails.
pub(crate) fn backward_from(y: &Tensor, dy: &Tensor) -> Result<GradStore> {
    let zero = copied(&Tensor::zeros((), DType::F32, y.device())?)?;
    let dy = dy.clone();
    let inputs = GradInputs::new([y]);
    let loss = graph_output(
        "gradient",
        zero,
        false,
        inputs,
        Box::new(|_, _, inputs| inputs.accumulate_grad(0, dy, false)),
    );
    backward(&loss?)
}

/// Computes gradients from the part of a stretch that is kept: its output.
pub(crate) trait Checkpointed: Send + Sync + 'static {
    /// True if gradients are computed from the output; if not it is not kept, and an empty tensor
    /// is given in its place.
    const READS_OUTPUT: bool;

    /// Returns the gradient of the input, from output `y` and its gradient `dy`. Gradients of
    /// variables are left in `inputs`.
    ///
    /// # Errors
    /// If a tensor operation fails.
    fn backward(&self, y: &Tensor, dy: &Tensor, inputs: &GradInputs) -> crate::Result<Tensor>;
}

/// Adds the variables in the history of `y` to `variables`, unless they are there already.
pub(crate) fn note_variables(y: &Tensor, variables: &mut Vec<Tensor>) {
    for node in y.sorted_nodes() {
        let known = |tensor: &Tensor| tensor.id() == node.id();
        if node.is_variable() && !variables.iter().any(known) {
            variables.push(node.clone());
        }
    }
}

/// Returns `y`, computed from `x` and `variables` without history, with `stretch` for its history.
///
/// # Errors
/// If `y` is not contiguous, or is a part of another tensor.
pub(crate) fn with_history<S: Checkpointed>(
    x: &Tensor,
    y: &Tensor,
    variables: &[Tensor],
    stretch: S,
) -> Result<Tensor> {
    let inputs = GradInputs::new([x].into_iter().chain(variables));
    graph_output(
        NAME,
        copied(y)?,
        S::READS_OUTPUT,
        inputs,
        Box::new(move |y, dy, inputs| {
            let dx = stretch.backward(y, dy, inputs)?;
            inputs.accumulate_grad(0, dx, false)
        }),
    )
}

const NAME: &str = "recomputed stretch";

/// Returns a copy of the elements of a tensor, on its device.
fn copied(x: &Tensor) -> Result<(Storage, Shape)> {
    let (storage, layout) = x.storage_and_layout();
    let Some((0, _)) = layout.contiguous_offsets() else {
        bail!("{NAME}: the output is a part of another tensor");
    };
    Ok((storage.try_clone(layout)?, x.shape().clone()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use candle_core::{CpuStorage, CustomOp1, DType, Device, Layout};

    use super::*;
    use crate::ops::linear;

    /// Used twice, in a stretch whose variable is also used outside of it.
    #[test]
    fn gradients_are_those_of_the_function() {
        for dtype in [DType::F32, DType::F64] {
            let var = |name: &str, shape: &[usize]| {
                let x = crate::testing::normal(name, shape).to_dtype(dtype).unwrap();
                Var::from_tensor(&x).unwrap()
            };
            let (x, weight) = (var("x", &[3, 5, 4]), var("weight", &[4, 4]));
            let run = |forget: bool| {
                let inner = weight.as_tensor().clone();
                let f = move |x: &Tensor| linear(&linear(x, &inner, None)?.sqr()?, &inner, None);
                let again = |x: &Tensor| match forget {
                    true => checkpoint(x, f.clone()),
                    false => f(x),
                };
                let y = again(&again(&x).unwrap()).unwrap();
                let y = linear(&y, &weight, None).unwrap();
                let gradients = backward(&y.sqr().unwrap().mean_all().unwrap()).unwrap();
                [&x, &weight].map(|var| {
                    let gradient = gradients.get(var).unwrap().to_dtype(DType::F64).unwrap();
                    gradient.flatten_all().unwrap().to_vec1::<f64>().unwrap()
                })
            };
            let tolerance = if dtype == DType::F64 { 1e-12 } else { 1e-5 };
            for (actual, expected) in run(true).iter().zip(&run(false)) {
                let max = expected.iter().fold(0.0, |max: f64, x| max.max(x.abs()));
                assert!(max > 0.0);
                for (actual, expected) in actual.iter().zip(expected) {
                    assert!(
                        (actual - expected).abs() <= tolerance * max,
                        "{actual} {expected}"
                    );
                }
            }
        }
    }

    #[test]
    fn the_graph_of_a_stretch_is_forgotten() {
        /// An operation with a part that tells whether a graph still has it.
        struct Watched(#[allow(dead_code)] Arc<()>);

        impl CustomOp1 for Watched {
            fn name(&self) -> &'static str {
                "watched"
            }

            fn cpu_fwd(&self, x: &CpuStorage, of_x: &Layout) -> Result<(CpuStorage, Shape)> {
                Ok((x.clone(), of_x.shape().clone()))
            }
        }

        let [x, weight] = ["x", "weight"].map(|name| crate::testing::normal(name, &[2, 3]));
        let weight = Var::from_tensor(&weight).unwrap();
        let part = Arc::new(());
        let own = part.clone();
        let f = move |x: &Tensor| -> crate::Result<Tensor> {
            Ok((x * weight.as_tensor())?.apply_op1(Watched(own.clone()))?)
        };
        let y = f(&x).unwrap();
        assert_eq!(Arc::strong_count(&part), 3, "the graph has one");
        drop(y);
        let y = checkpoint(&x, f).unwrap();
        assert!(y.track_op());
        assert_eq!(Arc::strong_count(&part), 2, "the function's own");
    }

    #[test]
    fn evaluation_keeps_no_history() {
        let x = Tensor::ones((2, 3), DType::F32, &Device::Cpu).unwrap();
        let y = checkpoint(&x, |x| Ok(x.sqr()?)).unwrap();
        assert!(!y.track_op());
    }
}
