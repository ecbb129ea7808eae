//! Operations on queries, keys and values, which lie side by side in one tensor or each in one of its own.

use candle_core::{CpuStorage, CustomOp1, CustomOp3, Layout, Result, Shape, Tensor};

use super::buffers::{Shared, StridedRowsMut, floats, read, tensor};
use super::tile::Operand;

/// Examples, positions and elements of a row of queries, keys and values.
pub(super) type Sizes = [(usize, usize, usize); 3];

/// What happens to queries, keys and values, wherever they lie.
pub(super) trait QkvOp: Send + Sync {
    /// Of the operation, for errors.
    const NAME: &'static str;

    /// The output, one row for each query with as many elements as a row of values.
    fn forward(&self, sizes: Sizes, operands: [Operand; 3]) -> Result<Vec<f32>>;

    /// Writes the gradients of queries, keys and values to `targets`, which hold what [`start`](Self::start) makes.
    /// `outputs` are the output and its gradient.
    fn backward(
        &self,
        sizes: Sizes,
        operands: [Operand; 3],
        outputs: [&[f32]; 2],
        targets: [StridedRowsMut; 3],
    ) -> Result<()>;

    /// What gradients of `len` elements are before they are written.
    fn start(&self, len: usize) -> Vec<f32>;
}

/// The operation itself.
pub(super) struct Triple<T>(pub(super) T);

/// The three parts of (B, L, 3 W).
pub(super) fn packed<'a>(shape: &Shape, data: &'a [f32]) -> Result<(Sizes, [Operand<'a>; 3])> {
    let (batch, length, width) = shape.dims3()?;
    let third = width / 3;
    Ok(([(batch, length, third); 3], Operand::packed(data, third)))
}

fn separate<'a>(shapes: [&Shape; 3], data: [&'a [f32]; 3]) -> Result<(Sizes, [Operand<'a>; 3])> {
    let [q, k, v] = shapes;
    let sizes = [q.dims3()?, k.dims3()?, v.dims3()?];
    let operand = |which: usize| Operand::whole(data[which], sizes[which].2);
    Ok((sizes, [operand(0), operand(1), operand(2)]))
}

/// (B, Lq, W of values).
fn output_shape([(batch, queries, _), _, (.., width)]: Sizes) -> Shape {
    (batch, queries, width).into()
}

impl<T: QkvOp> CustomOp1 for Triple<T> {
    fn name(&self) -> &'static str {
        T::NAME
    }

    fn cpu_fwd(&self, qkv: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let (sizes, operands) = packed(layout.shape(), floats(T::NAME, qkv, layout)?)?;
        let output = self.0.forward(sizes, operands)?;
        Ok((CpuStorage::F32(output), output_shape(sizes)))
    }

    fn bwd(&self, qkv: &Tensor, output: &Tensor, doutput: &Tensor) -> Result<Option<Tensor>> {
        let doutput = doutput.contiguous()?;
        let shape = qkv.shape();
        let qkv = read(T::NAME, qkv)?;
        let (output, doutput) = (read(T::NAME, output)?, read(T::NAME, &doutput)?);
        let (sizes, operands) = packed(shape, &qkv)?;
        let mut gradient = self.0.start(qkv.len());
        let shared = Shared::new(&mut gradient);
        let targets = operands.map(|operand| StridedRowsMut {
            buffer: &shared,
            start: operand.start,
            stride: operand.row,
        });
        self.0
            .backward(sizes, operands, [&output, &doutput], targets)?;
        tensor(gradient, shape).map(Some)
    }
}

impl<T: QkvOp> CustomOp3 for Triple<T> {
    fn name(&self) -> &'static str {
        T::NAME
    }

    fn cpu_fwd(
        &self,
        q: &CpuStorage,
        q_layout: &Layout,
        k: &CpuStorage,
        k_layout: &Layout,
        v: &CpuStorage,
        v_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let data = [
            floats(T::NAME, q, q_layout)?,
            floats(T::NAME, k, k_layout)?,
            floats(T::NAME, v, v_layout)?,
        ];
        let shapes = [q_layout.shape(), k_layout.shape(), v_layout.shape()];
        let (sizes, operands) = separate(shapes, data)?;
        let output = self.0.forward(sizes, operands)?;
        Ok((CpuStorage::F32(output), output_shape(sizes)))
    }

    fn bwd(
        &self,
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        output: &Tensor,
        doutput: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        let doutput = doutput.contiguous()?;
        let shapes = [q.shape(), k.shape(), v.shape()];
        let (q, k, v) = (read(T::NAME, q)?, read(T::NAME, k)?, read(T::NAME, v)?);
        let (output, doutput) = (read(T::NAME, output)?, read(T::NAME, &doutput)?);
        let (sizes, operands) = separate(shapes, [&q, &k, &v])?;
        let [mut dq, mut dk, mut dv] = [q.len(), k.len(), v.len()].map(|len| self.0.start(len));
        let shared = [&mut dq, &mut dk, &mut dv].map(|buffer| Shared::new(buffer));
        let targets = [0, 1, 2].map(|which| StridedRowsMut {
            buffer: &shared[which],
            start: 0,
            stride: operands[which].row,
        });
        self.0
            .backward(sizes, operands, [&output, &doutput], targets)?;
        Ok((
            Some(tensor(dq, shapes[0])?),
            Some(tensor(dk, shapes[1])?),
            Some(tensor(dv, shapes[2])?),
        ))
    }
}
