//! Collects gradients of variables outside candle's graph.
//!
//! `Tensor::backward` makes a tensor of zeros for every gradient and adds to it, which costs more
//! than the optimiser for large weights. While [`backward`] runs, links give gradients of variables
//! to [`accumulate_leaf`] instead of returning them.

use std::cell::RefCell;
use std::collections::HashMap;

use candle_core::backprop::GradStore;
use candle_core::{Result, Tensor, TensorId};

thread_local! {
    /// Gradients so far, while a [`backward`] runs on this thread.
    static LEAF_GRADS: RefCell<Option<HashMap<TensorId, Tensor>>> = const { RefCell::new(None) };
}

/// Returns the gradients of `loss`, a scalar, with respect to all variables, as candle's
/// `loss.backward()` does. A gradient has the shape of its variable. Gradients of variables are
/// summed outside candle's graph, which is faster.
///
/// # Errors
/// If a tensor operation fails.
pub fn backward(loss: &Tensor) -> Result<GradStore> {
    let outer = LEAF_GRADS.replace(Some(HashMap::new()));
    let gradients = loss.backward();
    let leaf_grads = LEAF_GRADS.replace(outer).unwrap_or_default();
    let mut gradients = gradients?;
    for (id, gradient) in leaf_grads {
        let sum = match gradients.get_id(id) {
            Some(other) => (gradient + other)?,
            None => gradient,
        };
        gradients.insert_id(id, sum);
    }
    Ok(gradients)
}

/// Takes the gradient of `operand` if that is a variable and a [`backward`] runs; otherwise returns
/// it.
pub(super) fn accumulate_leaf(operand: &Tensor, gradient: Tensor) -> Result<Option<Tensor>> {
    LEAF_GRADS.with_borrow_mut(|grads| {
        let Some(grads) = grads.as_mut().filter(|_| operand.is_variable()) else {
            return Ok(Some(gradient));
        };
        let sum = match grads.remove(&operand.id()) {
            Some(other) => (other + gradient)?,
            None => gradient,
        };
        grads.insert(operand.id(), sum);
        Ok(None)
    })
}

#[cfg(test)]
mod tests {
    use candle_core::Var;

    use super::*;
    use crate::ops::linear;
    use crate::ops::testing::Sampler;

    #[test]
    fn nothing_is_lost_on_the_way() {
        let mut sampler = Sampler::new(91);
        let var = |x: Tensor| Var::from_tensor(&x).unwrap();
        let x = sampler.normal(&[5, 4], 1.0);
        let [weight, other] = [(); 2].map(|()| var(sampler.normal(&[4, 4], 1.0)));
        let loss = || {
            // The weight is used twice by a kernel and once by candle.
            let y = linear(&linear(&x, &weight, None)?, &weight, None)?;
            let y = linear(&(y * 0.1)?, &other, None)?;
            y.sqr()?.sum_all()? + weight.sqr()?.sum_all()?
        };
        let fast = backward(&loss().unwrap()).unwrap();
        let plain = loss().unwrap().backward().unwrap();
        for variable in [&weight, &other] {
            let [fast, plain] = [&fast, &plain].map(|gradients| {
                let gradient = gradients.get(variable).unwrap();
                gradient.flatten_all().unwrap().to_vec1::<f32>().unwrap()
            });
            for (fast, plain) in fast.iter().zip(&plain) {
                assert!(
                    (fast - plain).abs() <= 1e-5 * (1.0 + plain.abs()),
                    "{fast}, not {plain}"
                );
            }
        }
        assert!(LEAF_GRADS.with_borrow(Option::is_none));
        let loss = loss().unwrap();
        backward(&loss).unwrap();
        assert!(
            backward(&loss).is_err(),
            "one backward pass for each forward pass"
        );
        assert!(LEAF_GRADS.with_borrow(Option::is_none));
    }
}
