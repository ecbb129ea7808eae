//! candle's custom operations for any number of operands, with what the backward pass needs of the forward pass.
//!
//! A kernel implements [`CustomOp`] on slices and hands itself to [`apply`] with its operands; everything between it and
//! candle's graph is here, once: operands are made contiguous and read, and refused where they are not of the kernel's
//! type or not in main memory; what is saved waits for one backward pass; gradients go where the graph looks for them,
//! and nothing is computed for operands that need none.

mod operands;
mod tied;

use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

use candle_core::{
    CpuStorage, CustomOp1, CustomOp2, CustomOp3, Device, Layout, Result, Shape, Tensor, WithDType,
    bail,
};

use self::operands::Place;
pub(super) use self::operands::{GradientRows, Input, View};
pub use self::tied::Tied;
use super::buffers::{elements, read_as};
use super::variable_gradients::deliver;

/// An operation on N operands of type `T`, with a backward pass.
pub(super) trait CustomOp<const N: usize, T: WithDType = f32>:
    Send + Sync + 'static
{
    /// For errors.
    const NAME: &'static str;
    /// What the backward pass needs besides operands and output.
    type Saved: Send + 'static;

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
    /// The output.
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
    let mut adapter = Adapter {
        op,
        places,
        keeps: tensors.iter().any(Tensor::track_op),
        saved: Mutex::new(None),
        tied: None,
        element: PhantomData,
    };
    match tensors.as_slice() {
        [] => bail!("{}: no operands", O::NAME),
        [x] => x.apply_op1(adapter),
        [x, y] => x.apply_op2(y, adapter),
        [x, y, z] => x.apply_op3(y, z, adapter),
        [x, others @ ..] => {
            let tied = Tied::new(others.to_vec());
            adapter.tied = Some(tied.clone());
            x.apply_op2(&tied.tie(x.dtype())?, adapter)
        }
    }
}

/// An operation as candle sees it: of one to three tensors, or of one and a tie to all others.
struct Adapter<O: CustomOp<N, T>, const N: usize, T: WithDType> {
    op: O,
    places: [Place; N],
    keeps: bool,
    /// From the forward pass to the backward pass.
    saved: Mutex<Option<O::Saved>>,
    tied: Option<Arc<Tied>>,
    element: PhantomData<T>,
}

impl<O: CustomOp<N, T>, const N: usize, T: WithDType> Adapter<O, N, T> {
    fn forward(&self, tensors: &[(&CpuStorage, &Layout)]) -> Result<(CpuStorage, Shape)> {
        let mut operands = Vec::with_capacity(tensors.len());
        for (storage, layout) in tensors {
            operands.push((elements(O::NAME, storage, layout)?, layout.shape().clone()));
        }
        self.run(&operands)
    }

    fn run(&self, tensors: &[(&[T], Shape)]) -> Result<(CpuStorage, Shape)> {
        let operands = operands::views(self.places, tensors);
        let (y, shape, saved) = self.op.forward(operands, self.keeps)?;
        if self.keeps {
            // A panicking thread leaves it whole.
            *self.saved.lock().unwrap_or_else(PoisonError::into_inner) = Some(saved);
        }
        Ok((T::to_cpu_storage_owned(y), shape))
    }

    /// A gradient for each tensor.
    fn backward(
        &self,
        tensors: &[&Tensor],
        y: &Tensor,
        dy: &Tensor,
    ) -> Result<Vec<Option<Tensor>>> {
        let saved = self.saved.lock();
        let saved = saved.unwrap_or_else(PoisonError::into_inner).take();
        let Some(saved) = saved else {
            bail!("{}: one backward pass after one forward pass", O::NAME);
        };
        let dy = dy.contiguous()?;
        let readings = tensors.iter().map(|x| read_as::<T>(O::NAME, x));
        let readings = readings.collect::<Result<Vec<_>>>()?;
        let shapes = tensors.iter().map(|x| x.shape().clone());
        let elements: Vec<_> = readings.iter().map(|x| &**x).zip(shapes).collect();
        let operands = operands::views(self.places, &elements);
        let tracked = |place: Place| {
            place
                .tensor()
                .is_some_and(|index| tensors[index].track_op())
        };
        let pass = BackwardPass {
            y: &read_as::<T>(O::NAME, y)?,
            dy: &read_as::<T>(O::NAME, &dy)?,
            saved,
            wanted: self.places.map(tracked),
        };
        let mut gradients = vec![None; tensors.len()];
        for (place, gradient) in self
            .places
            .into_iter()
            .zip(self.op.backward(operands, pass)?)
        {
            let Some(index) = place.tensor().filter(|_| tracked(place)) else {
                continue;
            };
            match gradient {
                Gradient::Nothing => {}
                Gradient::Of(gradient) => {
                    let shape = tensors[index].shape();
                    gradients[index] = Some(Tensor::from_vec(gradient, shape, &Device::Cpu)?);
                }
                Gradient::OfOutput => gradients[index] = Some(dy.clone()),
            }
        }
        Ok(gradients)
    }

    /// The same, for candle: one gradient for each of the tensors that it knows of.
    fn deliver<const M: usize>(
        &self,
        tensors: [&Tensor; M],
        y: &Tensor,
        dy: &Tensor,
    ) -> Result<[Option<Tensor>; M]> {
        let mut delivered = [const { None }; M];
        let gradients = self.backward(&tensors, y, dy)?.into_iter().zip(tensors);
        for (slot, (gradient, tensor)) in delivered.iter_mut().zip(gradients) {
            if let Some(gradient) = gradient {
                *slot = deliver(tensor, gradient)?;
            }
        }
        Ok(delivered)
    }
}

impl<O: CustomOp<N, T>, const N: usize, T: WithDType> CustomOp1 for Adapter<O, N, T> {
    fn name(&self) -> &'static str {
        O::NAME
    }

    fn cpu_fwd(&self, x: &CpuStorage, x_layout: &Layout) -> Result<(CpuStorage, Shape)> {
        self.forward(&[(x, x_layout)])
    }

    fn bwd(&self, x: &Tensor, y: &Tensor, dy: &Tensor) -> Result<Option<Tensor>> {
        let [dx] = self.deliver([x], y, dy)?;
        Ok(dx)
    }
}

impl<O: CustomOp<N, T>, const N: usize, T: WithDType> CustomOp2 for Adapter<O, N, T> {
    fn name(&self) -> &'static str {
        O::NAME
    }

    fn cpu_fwd(
        &self,
        a: &CpuStorage,
        a_layout: &Layout,
        b: &CpuStorage,
        b_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let Some(tied) = &self.tied else {
            return self.forward(&[(a, a_layout), (b, b_layout)]);
        };
        let others = tied.operands().iter().map(|x| read_as::<T>(O::NAME, x));
        let others = others.collect::<Result<Vec<_>>>()?;
        let mut tensors = vec![(elements(O::NAME, a, a_layout)?, a_layout.shape().clone())];
        let shapes = tied.operands().iter().map(|x| x.shape().clone());
        tensors.extend(others.iter().map(|x| &**x).zip(shapes));
        self.run(&tensors)
    }

    fn bwd(
        &self,
        a: &Tensor,
        b: &Tensor,
        y: &Tensor,
        dy: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let Some(tied) = &self.tied else {
            let [da, db] = self.deliver([a, b], y, dy)?;
            return Ok((da, db));
        };
        let mut tensors = vec![a];
        tensors.extend(tied.operands());
        let mut gradients = self.backward(&tensors, y, dy)?.into_iter();
        let da = gradients.next().flatten();
        for (index, gradient) in gradients.enumerate() {
            if let Some(gradient) = gradient {
                tied.leave(index, gradient)?;
            }
        }
        let da = da.map(|da| deliver(a, da)).transpose()?.flatten();
        Ok((da, Some(b.zeros_like()?)))
    }
}

impl<O: CustomOp<N, T>, const N: usize, T: WithDType> CustomOp3 for Adapter<O, N, T> {
    fn name(&self) -> &'static str {
        O::NAME
    }

    fn cpu_fwd(
        &self,
        a: &CpuStorage,
        a_layout: &Layout,
        b: &CpuStorage,
        b_layout: &Layout,
        c: &CpuStorage,
        c_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        self.forward(&[(a, a_layout), (b, b_layout), (c, c_layout)])
    }

    fn bwd(
        &self,
        a: &Tensor,
        b: &Tensor,
        c: &Tensor,
        y: &Tensor,
        dy: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let [da, db, dc] = self.deliver([a, b, c], y, dy)?;
        Ok((da, db, dc))
    }
}

#[cfg(test)]
mod tests;
