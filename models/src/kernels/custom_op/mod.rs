//! candle's custom operations for any number of operands, with what the backward pass needs of the forward pass.
//!
//! A kernel implements [`CustomOp`] on slices and hands itself to [`apply`] with its operands; everything between it and
//! candle's graph is here, once: operands are made contiguous and read, and refused where they are not of the kernel's
//! type or not in main memory; what is saved waits for one backward pass; gradients go to the operations that made the
//! operands, and nothing is computed for operands that need none.

mod operands;
mod record;
mod storage;
mod tied;

use candle_core::{Device, Result, Shape, Tensor, WithDType, bail};

pub(super) use self::operands::{GradientRows, Input, View};
pub(super) use self::storage::{Reading, floats, read, read_as};
pub use self::{record::record, tied::Tied};

/// An operation on N operands of type `T`, with a backward pass.
pub(super) trait CustomOp<const N: usize, T: WithDType = f32>:
    Send + Sync + 'static
{
    /// For errors.
    const NAME: &'static str;
    /// What the backward pass needs besides operands and output.
    type Saved: Send + 'static;
    /// Whether the backward pass reads the operands. If not they are not kept, and it is given their shapes alone.
    const READS_OPERANDS: bool = true;
    /// Whether the backward pass reads the output. If not it is not kept, and there is nothing in its place.
    const READS_OUTPUT: bool = false;

    /// The output y and its shape. Unless it `keeps`, there will be no backward pass.
    fn forward(&self, operands: [View<T>; N], keeps: bool) -> Result<(Vec<T>, Shape, Self::Saved)>;

    /// Gradients of the operands; what is returned for one that is not wanted is dropped.
    fn backward(
        &self,
        operands: [View<T>; N],
        pass: BackwardPass<Self::Saved, N, T>,
    ) -> Result<[Gradient<T>; N]>;
}

/// What a backward pass begins with.
pub(super) struct BackwardPass<'a, S, const N: usize, T = f32> {
    /// The output, if it is read.
    pub(super) y: &'a [T],
    /// Its gradient.
    pub(super) dy: &'a [T],
    /// From the forward pass.
    pub(super) saved: S,
    /// Which operands need a gradient.
    pub(super) wanted: [bool; N],
}

/// The gradient of an operand.
pub(super) enum Gradient<T = f32> {
    /// None, or it is part of another operand's.
    Nothing,
    /// As many numbers as the operand has.
    Of(Vec<T>),
    /// That of the output.
    OfOutput,
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

/// Runs `op` on its operands, with a place in the graph.
pub(super) fn apply<'a, O, const N: usize, T>(
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
    let tied = Tied::new(&tensors);
    let wanted = places.map(|place| {
        let tensor = place.tensor().map(|index| &tensors[index]);
        tensor.is_some_and(Tensor::track_op)
    });
    let keeps = wanted.contains(&true);
    // Nothing that is kept for the backward pass may hold on to what came before.
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
    let output = (T::to_cpu_storage_owned(y), shape);
    record(
        O::NAME,
        output,
        O::READS_OUTPUT,
        tied,
        move |y, dy, tied| {
            let gradients = {
                let readings = read_all::<T>(O::NAME, &tensors)?;
                let pass = BackwardPass {
                    y: &read_as::<T>(O::NAME, y)?,
                    dy: &read_as::<T>(O::NAME, dy)?,
                    saved,
                    wanted,
                };
                op.backward(operands::views(places, &readings, &shapes), pass)?
            };
            for ((place, wanted), gradient) in places.into_iter().zip(wanted).zip(gradients) {
                let Some(index) = place.tensor().filter(|_| wanted) else {
                    continue;
                };
                match gradient {
                    Gradient::Nothing => {}
                    Gradient::Of(gradient) => {
                        let gradient = Tensor::from_vec(gradient, &shapes[index], &Device::Cpu)?;
                        tied.leave(index, gradient, true)?;
                    }
                    Gradient::OfOutput => tied.leave(index, dy.clone(), false)?,
                }
            }
            Ok(())
        },
    )
}

fn read_all<'a, T: WithDType>(name: &str, tensors: &'a [Tensor]) -> Result<Vec<Reading<'a, T>>> {
    tensors.iter().map(|x| read_as::<T>(name, x)).collect()
}

#[cfg(test)]
mod tests;
