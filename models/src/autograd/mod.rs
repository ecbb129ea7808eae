//! Connects operations on slices to candle's graph, with any number of operands and gradients that
//! are summed in place.
//!
//! An operation implements [`CustomOp`] on slices and is run by [`apply`], which makes operands
//! contiguous, refuses those of another type or device, keeps what the backward pass needs, and
//! passes gradients on.
//!
//! candle's own custom operations take at most three operands, and its backward pass makes a tensor
//! of zeros for every gradient and adds to it: three passes over memory where none is needed. So an
//! operation is three kinds of nodes in candle's graph:
//!
//! ```text
//! forward:    operand a ──► Link a ─┐
//!             operand b ──► Link b ─┴► GradNode ──► Output ──► y
//!
//! backward:   dy of other readers ──► Output: adds it to y's GradAccumulator
//!             dy of operations here ─────────────► y's GradAccumulator
//!             GradNode: takes dy, runs `CustomOp::backward`, and adds each gradient to
//!                 the accumulator of an operand that is an output of this kind, or to its Link
//!             Link: returns the gradient that waits, to candle or, of a variable, to `LEAF_GRADS`
//! ```
//!
//! A link and a `GradNode` carry the value zero: they only order candle's walk. candle reaches a
//! `GradNode` after every reader of its output, so the whole gradient has arrived. What the
//! backward pass needs is freed as soon as it has run.

mod custom_op;
mod grad_inputs;
mod graph_output;
mod leaf_grads;
mod operands;
mod storage;
mod tensor_op;

#[cfg(test)]
pub(crate) use self::custom_op::saved_without_graph;
pub(crate) use self::custom_op::{BackwardPass, CustomOp, Gradient, apply};
pub(crate) use self::grad_inputs::GradInputs;
pub(crate) use self::graph_output::graph_output;
pub use self::leaf_grads::backward;
pub(crate) use self::operands::{GradientRows, Input, View};
pub(crate) use self::storage::{read, read_as};
pub(crate) use self::tensor_op::with_backward;
