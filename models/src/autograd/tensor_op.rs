//! Puts an output that was computed outside candle's graph into it, with a backward pass on
//! tensors.

use candle_core::{Result, Shape, Storage, Tensor, op::BackpropOp};

use super::grad_inputs::GradInputs;
use super::graph_output::graph_output;

/// Returns `output` as a tensor that depends on `operands`.
///
/// `backward` computes their gradients from the output and its gradient, one for each operand, of
/// any shape with as many elements; `None` stands for zeros. If not `reads_output`, it gets an
/// empty tensor in place of the output. It must hold operands without history ([`Tensor::detach`]).
///
/// # Errors
/// If a tensor operation fails.
pub(crate) fn with_backward(
    name: &'static str,
    operands: &[&Tensor],
    output: (Storage, Shape),
    reads_output: bool,
    backward: impl FnOnce(&Tensor, &Tensor) -> Result<Vec<Option<Tensor>>> + Send + 'static,
) -> Result<Tensor> {
    if !operands.iter().any(|operand| operand.track_op()) {
        let (storage, shape) = output;
        return Ok(Tensor::from_storage(
            storage,
            shape,
            BackpropOp::none(),
            false,
        ));
    }
    let shapes: Vec<Shape> = operands.iter().map(|x| x.shape().clone()).collect();
    graph_output(
        name,
        output,
        reads_output,
        GradInputs::new(operands.iter().copied()),
        Box::new(move |y, dy, inputs| {
            for (index, gradient) in backward(y, dy)?.into_iter().enumerate() {
                if let Some(gradient) = gradient {
                    inputs.accumulate_grad(index, gradient.reshape(&shapes[index])?, true)?;
                }
            }
            Ok(())
        }),
    )
}
