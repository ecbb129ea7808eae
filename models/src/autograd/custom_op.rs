//! Adapts an operation on slices to candle's graph.

use std::sync::Arc;

use candle_core::{Device, Result, Shape, Storage, Tensor, WithDType, bail};

use super::grad_inputs::GradInputs;
use super::graph_output::graph_output;
use super::operands::{self, Input, View};
use super::storage::{Reading, read_as};

/// An operation on N operands of type `T`, with a backward pass.
pub(crate) trait CustomOp<const N: usize, T: WithDType = f32>:
    Send + Sync + 'static
{
    /// Name of the operation in errors.
    const NAME: &'static str;
    /// Data that the backward pass needs besides operands and output.
    type Saved: Send + 'static;
    /// True if the backward pass reads the operands. If not they are not kept, and it is given
    /// their shapes alone.
    const READS_OPERANDS: bool = true;
    /// True if the backward pass reads the output. If not, the output is not kept, and the pass
    /// gets an empty slice.
    const READS_OUTPUT: bool = false;

    /// Returns the output y and its shape. Unless it `keeps`, there will be no backward pass.
    fn forward(&self, operands: [View<T>; N], keeps: bool) -> Result<(Vec<T>, Shape, Self::Saved)>;

    /// Returns the gradients of the operands; a gradient that is not wanted is dropped.
    fn backward(
        &self,
        operands: [View<T>; N],
        pass: BackwardPass<Self::Saved, N, T>,
    ) -> Result<[Gradient<T>; N]>;
}

/// Input of a backward pass.
pub(crate) struct BackwardPass<'a, S, const N: usize, T = f32> {
    /// The output, if it is read.
    pub(crate) y: &'a [T],
    /// Gradient of the output.
    pub(crate) dy: &'a [T],
    /// Data that the forward pass saved.
    pub(crate) saved: S,
    /// True for each operand that needs a gradient.
    pub(crate) expected: [bool; N],
}

/// The gradient of an operand.
pub(crate) enum Gradient<T = f32> {
    /// No gradient, or it is part of another operand's.
    Nothing,
    /// One number for each number of the operand.
    Of(Vec<T>),
    /// The output's gradient itself.
    PassThrough,
}

impl<T> From<Vec<T>> for Gradient<T> {
    fn from(gradient: Vec<T>) -> Self {
        Self::Of(gradient)
    }
}

impl<T> From<Option<Vec<T>>> for Gradient<T> {
    fn from(gradient: Option<Vec<T>>) -> Self {
        gradient.map_or(Self::Nothing, Self::Of)
    }
}

/// Runs `op` on its operands and puts the output into candle's graph.
pub(crate) fn apply<'a, O, const N: usize, T>(
    op: O,
    operands: [impl Into<Input<'a>>; N],
) -> Result<Tensor>
where
    O: CustomOp<N, T>,
    T: WithDType,
{
    let (places, tensors) = operands::arrange(operands.map(Into::into))?;
    if tensors.is_empty() {
        bail!("{}: no operands", O::NAME);
    }
    let inputs = GradInputs::new(&tensors);
    let expected = places.map(|place| {
        let tensor = place.tensor().map(|index| &tensors[index]);
        tensor.is_some_and(Tensor::track_op)
    });
    let keeps = expected.contains(&true);
    // Tensors kept for the backward pass must not hold on to the graph before them.
    let mut tensors: Vec<Tensor> = tensors.iter().map(Tensor::detach).collect();
    let shapes: Vec<Shape> = tensors.iter().map(|x| x.shape().clone()).collect();
    let (y, shape, saved) = {
        let readings = read_all::<T>(O::NAME, &tensors)?;
        op.forward(operands::views(places, &readings, &shapes), keeps)?
    };
    if !keeps {
        return Tensor::from_vec(y, shape, &Device::Cpu);
    }
    if !O::READS_OPERANDS {
        tensors.clear();
    }
    let output = (Storage::Cpu(T::to_cpu_storage_owned(y)), shape);
    let of_operands = shapes.clone();
    let backward = move |y: &Tensor, dy: &Tensor| {
        let readings = read_all::<T>(O::NAME, &tensors)?;
        let pass = BackwardPass {
            y: &read_as::<T>(O::NAME, y)?,
            dy: &read_as::<T>(O::NAME, dy)?,
            saved,
            expected,
        };
        let gradients = op.backward(operands::views(places, &readings, &of_operands), pass)?;
        let targets = places.into_iter().zip(expected);
        let targets = targets.map(|(place, expected)| place.tensor().filter(|_| expected));
        Ok(targets.zip(gradients).collect())
    };
    with_history(
        O::NAME,
        output,
        O::READS_OUTPUT,
        (inputs, shapes),
        Box::new(backward),
    )
}

/// Returns what `op` saves in a pass after which there is no backward pass.
#[cfg(test)]
pub(crate) fn saved_without_graph<'a, O, const N: usize, T>(
    op: &O,
    operands: [impl Into<Input<'a>>; N],
) -> Result<O::Saved>
where
    O: CustomOp<N, T>,
    T: WithDType,
{
    let (places, tensors) = operands::arrange(operands.map(Into::into))?;
    let shapes: Vec<Shape> = tensors.iter().map(|x| x.shape().clone()).collect();
    let readings = read_all::<T>(O::NAME, &tensors)?;
    let (_, _, saved) = op.forward(operands::views(places, &readings, &shapes), false)?;
    Ok(saved)
}

/// Computes gradients, each with the index of its operand unless it is not wanted, from the output
/// and its gradient.
type Backward<T> =
    Box<dyn FnOnce(&Tensor, &Tensor) -> Result<Vec<(Option<usize>, Gradient<T>)>> + Send>;

/// Makes a tensor of an output. One copy serves all operations of a type.
fn with_history<T: WithDType>(
    name: &'static str,
    output: (Storage, Shape),
    reads_output: bool,
    (inputs, shapes): (Arc<GradInputs>, Vec<Shape>),
    backward: Backward<T>,
) -> Result<Tensor> {
    graph_output(
        name,
        output,
        reads_output,
        inputs,
        Box::new(move |y, dy, inputs| {
            for (target, gradient) in backward(y, dy)? {
                let Some(index) = target else {
                    continue;
                };
                match gradient {
                    Gradient::Nothing => {}
                    Gradient::Of(gradient) => {
                        let gradient = Tensor::from_vec(gradient, &shapes[index], &Device::Cpu)?;
                        inputs.accumulate_grad(index, gradient, true)?;
                    }
                    Gradient::PassThrough => inputs.accumulate_grad(index, dy.clone(), false)?,
                }
            }
            Ok(())
        }),
    )
}

fn read_all<'a, T: WithDType>(name: &str, tensors: &'a [Tensor]) -> Result<Vec<Reading<'a, T>>> {
    tensors.iter().map(|x| read_as::<T>(name, x)).collect()
}

#[cfg(test)]
mod tests;
