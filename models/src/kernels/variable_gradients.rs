//! Gradients of variables, past the graph: `Tensor::backward` makes a tensor of zeros for every gradient and adds to it,
//! which for large weights costs more than the optimiser. Between [`backward`]'s start and its end, operations hand
//! gradients of variables over ([`deliver`]) instead of returning them; anywhere else nothing changes.

use std::cell::RefCell;
use std::collections::HashMap;

use candle_core::backprop::GradStore;
use candle_core::{Result, Tensor, TensorId};

thread_local! {
    /// What has been handed over, if a [`backward`] is under way on this thread.
    static HANDED: RefCell<Option<HashMap<TensorId, Tensor>>> = const { RefCell::new(None) };
}

/// `loss.backward()`, with gradients of variables kept out of the graph's sums.
///
/// # Errors
/// If a tensor operation fails.
pub fn backward(loss: &Tensor) -> Result<GradStore> {
    let outer = HANDED.replace(Some(HashMap::new()));
    let gradients = loss.backward();
    let handed = HANDED.replace(outer).unwrap_or_default();
    let mut gradients = gradients?;
    for (id, gradient) in handed {
        let sum = match gradients.get_id(id) {
            Some(other) => (gradient + other)?,
            None => gradient,
        };
        gradients.insert_id(id, sum);
    }
    Ok(gradients)
}

/// What an operation's backward pass returns for `operand`: its gradient, or nothing if that has been taken already.
pub(super) fn deliver(operand: &Tensor, gradient: Tensor) -> Result<Option<Tensor>> {
    HANDED.with_borrow_mut(|handed| {
        let Some(handed) = handed.as_mut().filter(|_| operand.is_variable()) else {
            return Ok(Some(gradient));
        };
        let sum = match handed.remove(&operand.id()) {
            Some(other) => (other + gradient)?,
            None => gradient,
        };
        handed.insert(operand.id(), sum);
        Ok(None)
    })
}

#[cfg(test)]
mod tests {
    use candle_core::Var;

    use super::*;
    use crate::kernels::linear;
    use crate::kernels::reference::Sampler;

    #[test]
    fn nothing_is_lost_on_the_way() {
        let mut sampler = Sampler::new(91);
        let var = |x: Tensor| Var::from_tensor(&x).unwrap();
        let x = sampler.normal(&[5, 4], 1.0);
        let [weight, other] = [(); 2].map(|()| var(sampler.normal(&[4, 4], 1.0)));
        let loss = || {
            // Used twice by a kernel and once by candle.
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
        assert!(HANDED.with_borrow(Option::is_none));
    }
}
