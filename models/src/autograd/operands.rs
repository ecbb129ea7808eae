//! Operands of an operation, which are tensors or columns of tensors, or absent.

use candle_core::{Result, Shape, Tensor, WithDType, bail};
use lra_cpu::buffers::Shared;
use lra_cpu::tile::RowMajor;
use lra_cpu::tile::StridedRowsMut;

use super::custom_op::Gradient;
use super::storage::Reading;

/// An operand.
#[derive(Clone, Copy)]
pub(crate) enum Input<'a> {
    /// An optional operand that is absent.
    Absent,
    /// A whole tensor.
    Whole(&'a Tensor),
    /// One of `of` operands that lie side by side in the last dimension of a tensor: follows those
    /// before it.
    Part {
        tensor: &'a Tensor,
        part: usize,
        of: usize,
    },
}

impl<'a> Input<'a> {
    /// Returns N operands side by side in the last dimension of a tensor.
    pub(crate) fn side_by_side<const N: usize>(tensor: &'a Tensor) -> [Self; N] {
        std::array::from_fn(|part| Self::Part {
            tensor,
            part,
            of: N,
        })
    }
}

impl<'a> From<&'a Tensor> for Input<'a> {
    fn from(tensor: &'a Tensor) -> Self {
        Self::Whole(tensor)
    }
}

impl<'a> From<Option<&'a Tensor>> for Input<'a> {
    fn from(tensor: Option<&'a Tensor>) -> Self {
        tensor.map_or(Self::Absent, Self::Whole)
    }
}

/// Place of an operand among the tensors of an operation.
#[derive(Clone, Copy)]
pub(super) enum Place {
    Absent,
    Whole(usize),
    Part {
        tensor: usize,
        part: usize,
        of: usize,
    },
}

impl Place {
    /// Returns the tensor that it is in, if any.
    pub(super) fn tensor(self) -> Option<usize> {
        match self {
            Self::Absent => None,
            Self::Whole(tensor) | Self::Part { tensor, .. } => Some(tensor),
        }
    }
}

/// Returns the tensors of these operands, contiguous, and the operands' places among them.
pub(super) fn arrange<const N: usize>(operands: [Input; N]) -> Result<([Place; N], Vec<Tensor>)> {
    let mut tensors: Vec<Tensor> = Vec::new();
    let mut places = [Place::Absent; N];
    for (place, operand) in places.iter_mut().zip(operands) {
        *place = match operand {
            Input::Absent => Place::Absent,
            Input::Whole(tensor) => {
                tensors.push(tensor.contiguous()?);
                Place::Whole(tensors.len() - 1)
            }
            Input::Part { tensor, part, of } => {
                if part == 0 {
                    if tensor.dims().last().is_none_or(|row| row % of != 0) {
                        bail!("{of} operands side by side in {:?}", tensor.shape());
                    }
                    tensors.push(tensor.contiguous()?);
                }
                let tensor = tensors.len() - 1;
                Place::Part { tensor, part, of }
            }
        };
    }
    Ok((places, tensors))
}

/// Returns the operands, from the shapes and the elements of the tensors; without elements if there
/// are no `tensors`.
pub(super) fn views<'a, T: WithDType, const N: usize>(
    places: [Place; N],
    tensors: &'a [Reading<'_, T>],
    shapes: &[Shape],
) -> [View<'a, T>; N] {
    let data = |tensor: usize| tensors.get(tensor).map_or(&[][..], |reading| reading);
    places.map(|place| match place {
        Place::Absent => View {
            data: &[],
            shape: Shape::from(0),
            place,
            start: 0,
            row: 0,
        },
        Place::Whole(tensor) => {
            let shape = &shapes[tensor];
            View {
                data: data(tensor),
                shape: shape.clone(),
                place,
                start: 0,
                row: shape.dims().last().copied().unwrap_or(1),
            }
        }
        Place::Part { tensor, part, of } => {
            let mut dims = shapes[tensor].dims().to_vec();
            let row = dims.pop().unwrap_or(1);
            dims.push(row / of);
            View {
                data: data(tensor),
                shape: dims.into(),
                place,
                start: part * (row / of),
                row,
            }
        }
    })
}

/// An operand's elements: row i, of as many elements as the last dimension has, begins at `start +
/// i * row`.
#[derive(Clone)]
pub(crate) struct View<'a, T = f32> {
    /// All elements, of a whole tensor and no others.
    pub(crate) data: &'a [T],
    /// Shape of the operand, also where it is part of a tensor.
    pub(crate) shape: Shape,
    place: Place,
    start: usize,
    row: usize,
}

impl<'a, T> View<'a, T> {
    /// Returns the elements of its tensor, if the operand is there.
    pub(crate) fn given(&self) -> Option<&'a [T]> {
        self.place.tensor().map(|_| self.data)
    }
}

impl<'a> View<'a> {
    /// Returns the operand's rows.
    pub(crate) fn rows(&self) -> RowMajor<'a> {
        RowMajor {
            data: self.data,
            start: self.start,
            row: self.row,
        }
    }
}

/// Room for gradients of operands, laid out as they are: one buffer for each tensor.
pub(crate) struct GradientRows<const N: usize> {
    buffers: Vec<Vec<f32>>,
    /// Buffer, first element and distance of rows of each operand.
    rows: [Option<(usize, usize, usize)>; N],
    /// True if an operand is the first in its buffer.
    first: [bool; N],
}

impl<const N: usize> GradientRows<N> {
    /// Buffers of as many elements as the tensors have, made by `buffer`.
    pub(crate) fn new(operands: &[View; N], buffer: impl Fn(usize) -> Vec<f32>) -> Self {
        let mut buffers = Vec::new();
        let (mut rows, mut first) = ([None; N], [false; N]);
        for (index, operand) in operands.iter().enumerate() {
            first[index] = match operand.place {
                Place::Absent => continue,
                Place::Whole(_) => true,
                Place::Part { part, .. } => part == 0,
            };
            if first[index] {
                buffers.push(buffer(operand.data.len()));
            }
            rows[index] = Some((buffers.len() - 1, operand.start, operand.row));
        }
        Self {
            buffers,
            rows,
            first,
        }
    }

    /// Passes the destinations of the rows of each operand's gradient to `write`; none for absent
    /// operands.
    pub(crate) fn write<R>(&mut self, write: impl FnOnce([StridedRowsMut; N]) -> R) -> R {
        let mut nothing = Vec::new();
        let nowhere = Shared::new(&mut nothing);
        let shared: Vec<Shared> = self.buffers.iter_mut().map(|x| Shared::new(x)).collect();
        write(self.rows.map(|rows| match rows {
            Some((buffer, start, stride)) => StridedRowsMut {
                buffer: &shared[buffer],
                start,
                stride,
            },
            None => StridedRowsMut {
                buffer: &nowhere,
                start: 0,
                stride: 0,
            },
        }))
    }

    /// Returns the gradients; that of operands side by side is the first one's.
    pub(crate) fn into_gradients(self) -> [Gradient; N] {
        let mut buffers = self.buffers.into_iter();
        self.first.map(|first| match first {
            true => buffers.next().into(),
            false => Gradient::Nothing,
        })
    }
}
