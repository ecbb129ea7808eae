//! Linear attention with decays, of one sequence and head at a time.
//!
//! q, k and y are rows of K and V numbers. The sequence is walked in chunks of C = [`CHUNK`] rows,
//! in either direction. With p_i = a_1 ⊙ .. ⊙ a_i the decay from the start of the chunk, s_j =
//! a_(j+1) ⊙ .. ⊙ a_C that to its end, d_ij = a_(j+1) ⊙ .. ⊙ a_i and S the state at its start:
//!     y_i = Sᵀ (q_i ⊙ p_i) + Σ_(j ≤ i) w_ij u_j,  w_ij = q_i·(k_j ⊙ d_ij),  S ← diag(p_C) S + Σ_j (k_j ⊙ s_j) u_jᵀ
//! u_j is v_j, or by the delta rule the solution of u_i = β_i (x_i - Σ_(j < i) m_ij u_j) for x_i =
//! v_i - Sᵀ (k_i ⊙ p_i) and m_ij = k_i·(k_j ⊙ d_ij). p, s and d are products of numbers up to 1,
//! formed one by one, so that none of them overflows, and one that is 0 in f32 makes 0.
//!
//! The state at the start of every [`SEGMENT`]th row is kept. The backward pass walks segments from
//! the last to the first, forms the states within each again, and carries the gradient of the
//! state. Products are of f32 in every number format: a state is a sum over a whole sequence.
//! Heads of a few numbers, which would fill no product, are walked side by side ([`narrow`]).

mod backward;
mod chunk;
mod narrow;
mod order;
mod pairs;

use std::sync::Arc;

use candle_core::{Result, Shape, Tensor, bail};
use lra_cpu::buffers::{Shared, unspecified};
use lra_cpu::isa::Isa;
use lra_cpu::tile::padded;
use lra_cpu::workspaces::Workspaces;
use rayon::prelude::*;

use self::backward::Backward;
use self::chunk::{Forward, Operands};
use self::narrow::{LANES, NarrowBackward, NarrowForward, TILE};
use self::order::ScanOrder;
use super::{CHUNK, NAME};
use crate::autograd::{BackwardPass, CustomOp, Gradient, Input, View, apply};

/// Chunks between two states that are kept.
const CHUNKS: usize = 4;
/// Rows between two states that are kept.
const SEGMENT: usize = CHUNKS * CHUNK;

/// Returns y (B, L, H, V) of q and k (B, L, H, K), v (B, L, H, V), logarithms of decays (B, L, H)
/// or (B, L, H, K), and rates of the delta rule (B, L, H).
///
/// # Errors
/// If shapes do not fit.
pub(crate) fn gated_linear_attention(
    op: GatedLinearAttention,
    [q, k, v]: [&Tensor; 3],
    log_decay: Option<&Tensor>,
    delta: Option<&Tensor>,
) -> Result<Tensor> {
    let operands: [Input; 5] = [q.into(), k.into(), v.into(), log_decay.into(), delta.into()];
    apply(op, operands)
}

/// The way that sequences are walked.
pub(crate) struct GatedLinearAttention {
    /// From the last row to the first.
    pub(crate) reverse: bool,
    /// Queries read the state before their row.
    pub(crate) exclusive: bool,
    /// (B + 1): where packed sequences begin, and where the last one ends.
    pub(crate) offsets: Option<Arc<[usize]>>,
}

/// Sizes of a head.
#[derive(Clone, Copy)]
struct Sizes {
    heads: usize,
    /// K.
    keys: usize,
    /// V.
    values: usize,
    /// Decays of a row: none, one, or K.
    decays: usize,
    /// True if there are rates of the delta rule.
    delta: bool,
}

impl Sizes {
    fn new(operands: &[View; 5]) -> Result<(Self, [usize; 2])> {
        let [q, k, v, log_decay, delta] = operands;
        let ((batch, length, heads, keys), values) = (q.shape.dims4()?, v.shape.dims4()?.3);
        let tokens = batch * length * heads;
        let decays = match log_decay.given() {
            Some(_) if log_decay.shape.rank() == 3 => 1,
            Some(_) => keys,
            None => 0,
        };
        let fits = k.shape == q.shape
            && v.shape.dims() == [batch, length, heads, values]
            && (decays == 0 || log_decay.shape.elem_count() == tokens * decays)
            && (delta.given().is_none() || delta.shape.dims() == [batch, length, heads])
            && keys > 0
            && values > 0;
        if !fits {
            let shapes = operands.each_ref().map(|view| &view.shape);
            bail!("{NAME}: {shapes:?} do not fit");
        }
        let sizes = Self {
            heads,
            keys,
            values,
            decays,
            delta: delta.given().is_some(),
        };
        Ok((sizes, [batch, length]))
    }

    /// Returns the padded width of a row of keys.
    fn wide_keys(self) -> usize {
        padded(self.keys)
    }

    /// Returns the padded width of a row of values.
    fn wide_values(self) -> usize {
        padded(self.values)
    }

    /// Returns the numbers of a state, (padded K, padded V).
    fn state(self) -> usize {
        self.wide_keys() * self.wide_values()
    }
}

impl GatedLinearAttention {
    /// Returns the walks of all sequences and heads, those of narrow heads being [`LANES`] in one,
    /// and how many states they keep.
    fn orders(&self, sizes: Sizes, [batch, length]: [usize; 2]) -> Result<(Vec<ScanOrder>, usize)> {
        let sequences: Vec<(usize, usize)> = match &self.offsets {
            Some(offsets) => {
                let ends = offsets.windows(2);
                let sequences: Vec<_> = ends.map(|ends| (ends[0], ends[1] - ends[0])).collect();
                if batch != 1 || offsets.last() != Some(&length) {
                    bail!("{NAME}: {batch} rows of {length} are not packed sequences");
                }
                sequences
            }
            None => (0..batch)
                .map(|example| (example * length, length))
                .collect(),
        };
        let (abreast, period) = match sizes.are_narrow() {
            true => (LANES, TILE),
            false => (1, SEGMENT),
        };
        let (mut orders, mut kept) = (Vec::new(), 0);
        for (start, rows) in sequences {
            for head in (0..sizes.heads).step_by(abreast) {
                orders.push(ScanOrder {
                    start,
                    rows,
                    reverse: self.reverse,
                    ahead: usize::from(self.exclusive),
                    heads: sizes.heads,
                    head,
                    kept,
                });
                kept += rows.div_ceil(period);
            }
        }
        Ok((orders, kept))
    }
}

impl CustomOp<5> for GatedLinearAttention {
    const NAME: &'static str = NAME;
    /// The states of every walk before each segment, (padded K, padded V), or tile, (K, V, LANES).
    type Saved = Vec<f32>;

    fn forward(&self, operands: [View; 5], keeps: bool) -> Result<(Vec<f32>, Shape, Vec<f32>)> {
        let (sizes, rows) = Sizes::new(&operands)?;
        let (orders, kept) = self.orders(sizes, rows)?;
        let operands_of = Operands::new(&operands);
        let isa = Isa::current();
        let mut y = unspecified(operands[2].data.len());
        let state = match sizes.are_narrow() {
            true => sizes.narrow_state(),
            false => sizes.state(),
        };
        let mut states = unspecified(if keeps { kept * state } else { 0 });
        let (out, kept) = (Shared::new(&mut y), Shared::new(&mut states));
        let (y_out, states_out) = (&out, keeps.then_some(&kept));
        let workspaces = Workspaces::new(orders.len(), || ());
        orders.into_par_iter().for_each(|order| {
            workspaces.lend(|()| match sizes.are_narrow() {
                true => isa.run(NarrowForward {
                    sizes,
                    order,
                    operands: operands_of,
                    y: y_out,
                    states: states_out,
                }),
                false => isa.run(Forward {
                    isa,
                    sizes,
                    order,
                    operands: operands_of,
                    y: y_out,
                    states: states_out,
                }),
            })
        });
        let [_, _, v, ..] = operands;
        Ok((y, v.shape, states))
    }

    fn backward(
        &self,
        operands: [View; 5],
        pass: BackwardPass<Vec<f32>, 5>,
    ) -> Result<[Gradient; 5]> {
        let (sizes, rows) = Sizes::new(&operands)?;
        let (orders, _) = self.orders(sizes, rows)?;
        let isa = Isa::current();
        let mut gradients = operands.each_ref().map(|view| unspecified(view.data.len()));
        let shared = gradients.each_mut().map(|gradient| Shared::new(gradient));
        let operands_of = Operands::new(&operands);
        let (dy, states, gradients_out) = (pass.dy, &pass.saved[..], &shared);
        let workspaces = Workspaces::new(orders.len(), || ());
        orders.into_par_iter().for_each(|order| {
            workspaces.lend(|()| match sizes.are_narrow() {
                true => isa.run(NarrowBackward {
                    sizes,
                    order,
                    operands: operands_of,
                    dy,
                    states,
                    gradients: gradients_out,
                }),
                false => isa.run(Backward {
                    isa,
                    sizes,
                    order,
                    operands: operands_of,
                    dy,
                    states,
                    gradients: gradients_out,
                }),
            })
        });
        let mut gradients = gradients.into_iter();
        Ok(operands.map(|view| {
            let gradient = gradients.next();
            gradient.filter(|_| view.given().is_some()).into()
        }))
    }
}
