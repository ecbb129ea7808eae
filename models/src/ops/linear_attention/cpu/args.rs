//! One call of kernel attention: the location of its operands, and the division of its work.

use lra_cpu::buffers::{Shared, split_mut, sum_partials, unspecified};
use lra_cpu::format::Format;
use lra_cpu::isa::Isa;
use lra_cpu::tile::StridedRowsMut;
use lra_cpu::tile::{RowMajor, Rows, SIDE};
use lra_cpu::workspaces::Workspaces;
use rayon::prelude::*;

use super::blocks::{Positions, Sizes, State};
use super::features::{Directions, Features};
use super::passes::{Attend, Gather, KeyGradient, QueryGradient};
use super::{LinearAttention, SPLIT_WIDTH};

/// Tasks that a pass is split into where the heads alone are fewer.
const TASKS: usize = 16;
/// Blocks of positions below which a part is not worth its own sums.
const LEAST_BLOCKS: usize = 4;

/// One call, with its operands.
pub(super) struct LinearAttentionArgs<'a> {
    pub(super) op: &'a LinearAttention,
    pub(super) batch: usize,
    pub(super) queries_len: usize,
    pub(super) keys_len: usize,
    /// Elements of a query or key of one head.
    pub(super) inputs: usize,
    pub(super) sizes: Sizes,
    pub(super) q: RowMajor<'a>,
    pub(super) k: RowMajor<'a>,
    pub(super) v: RowMajor<'a>,
}

/// Positions `start..end` of one head.
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub(super) example: usize,
    pub(super) head: usize,
    pub(super) range: (usize, usize),
}

impl LinearAttentionArgs<'_> {
    fn head_count(&self) -> usize {
        self.batch * self.op.heads
    }

    /// Parts of every head for `length` positions, part by part of each head in turn; and parts per
    /// head.
    fn parts(&self, length: usize) -> (Vec<Part>, usize) {
        let blocks = length.div_ceil(SIDE);
        let count = TASKS
            .div_ceil(self.head_count().max(1))
            .min(blocks / LEAST_BLOCKS)
            .max(1);
        let edge = |part: usize| (blocks * part / count * SIDE).min(length);
        let heads = (0..self.head_count()).map(|i| (i / self.op.heads, i % self.op.heads));
        let part = |(example, head)| {
            (0..count).map(move |part| Part {
                example,
                head,
                range: (edge(part), edge(part + 1)),
            })
        };
        (heads.flat_map(part).collect(), count)
    }

    /// Returns the number of elements of a row of the output: all heads.
    pub(super) fn row(&self) -> usize {
        self.op.heads * self.sizes.values
    }

    /// Returns the rows of one head of an operand with `width` elements per head.
    fn rows<'b>(&self, of: RowMajor<'b>, length: usize, width: usize, part: Part) -> Rows<'b> {
        of.rows((part.example * length, part.head * width), width)
    }

    fn keys(&self, part: Part) -> Positions<'_> {
        Positions {
            rows: self.rows(self.k, self.keys_len, self.inputs, part),
            valid: self.valid(part),
        }
    }

    fn queries(&self, part: Part) -> Positions<'_> {
        Positions {
            rows: self.rows(self.q, self.queries_len, self.inputs, part),
            valid: self.valid(part).filter(|_| self.op.self_attention),
        }
    }

    /// Returns the mask of the keys of `part`'s example.
    fn valid(&self, part: Part) -> Option<&[f32]> {
        let valid = self.op.valid.as_ref()?;
        Some(&valid[part.example * self.keys_len..][..self.keys_len])
    }

    fn state<'b>(&self, states: &'b [f32], part: Part) -> State<'b> {
        let len = self.sizes.state();
        let head = part.example * self.op.heads + part.head;
        State::new(self.sizes, &states[head * len..][..len])
    }

    /// Returns the shift of the keys' exponents in each head: the largest w·k of the sequence, 0 if
    /// it has no valid key.
    pub(super) fn shifts(&self, directions: &Directions) -> Vec<f32> {
        let isa = Isa::current();
        let (parts, per_head) = self.parts(self.keys_len);
        let highest = |part: Part| directions.highest(isa, self.keys(part), part.range);
        let workspaces = Workspaces::new(parts.len(), || ());
        let highest = |part| workspaces.lend(|()| highest(part));
        let all: Vec<f32> = parts.into_par_iter().map(highest).collect();
        let heads = all.chunks(per_head);
        let largest = |parts: &[f32]| parts.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        heads
            .map(largest)
            .map(|shift| if shift.is_finite() { shift } else { 0.0 })
            .collect()
    }

    /// Computes [`LinearAttentionArgs::forward`] with one map, and no shifts.
    pub(super) fn forward_by(&self, map: impl Features) -> (Vec<f32>, Vec<f32>, Vec<f32>) {
        let (output, states) = self.forward(map, |_| map);
        (output, states, Vec::new())
    }

    /// Computes [`LinearAttentionArgs::backward`] with one map.
    pub(super) fn backward_by(
        &self,
        map: impl Features,
        states: &[f32],
        outputs: [&[f32]; 2],
        targets: [StridedRowsMut; 3],
    ) {
        self.backward(map, |_| map, states, outputs, targets);
    }

    /// Returns the number format of factors in products.
    fn format(&self, isa: Isa) -> Format {
        let width = self.sizes.features.min(self.sizes.values);
        isa.format().for_width(width, SPLIT_WIDTH)
    }

    /// Returns the output (B, Lq, H E), and S and z of each head.
    pub(super) fn forward<F: Features>(
        &self,
        query: F,
        key: impl Fn(Part) -> F + Sync,
    ) -> (Vec<f32>, Vec<f32>) {
        let isa = Isa::current();
        let values = self.sizes.values;
        let states = self.sums(self.keys_len, |part, state| {
            isa.run(Gather {
                map: key(part),
                format: self.format(isa),
                sizes: self.sizes,
                keys: self.keys(part),
                values: self.rows(self.v, self.keys_len, values, part),
                range: part.range,
                state,
            });
        });
        let mut output = unspecified(self.batch * self.queries_len * self.row());
        let shared = Shared::new(&mut output);
        let target = StridedRowsMut {
            buffer: &shared,
            start: 0,
            stride: self.row(),
        };
        let parts = self.parts(self.queries_len).0;
        let workspaces = Workspaces::new(parts.len(), || ());
        parts.into_par_iter().for_each(|part| {
            let task = Attend {
                map: query,
                format: self.format(isa),
                sizes: self.sizes,
                eps: self.op.eps,
                state: self.state(&states, part),
                queries: self.queries(part),
                range: part.range,
                out: Self::writer(target, part, self.queries_len, values),
            };
            workspaces.lend(|()| isa.run(task));
        });
        (output, states)
    }

    /// Returns gradients of queries, keys and values, every row of each.
    pub(super) fn backward<F: Features>(
        &self,
        query: F,
        key: impl Fn(Part) -> F + Sync,
        states: &[f32],
        outputs: [&[f32]; 2],
        targets: [StridedRowsMut; 3],
    ) {
        let isa = Isa::current();
        let values = self.sizes.values;
        let [output, doutput] = outputs.map(|data| RowMajor::whole(data, self.row()));
        let dstates = self.sums(self.queries_len, |part, dstate| {
            isa.run(QueryGradient {
                map: query,
                format: self.format(isa),
                sizes: self.sizes,
                eps: self.op.eps,
                state: self.state(states, part),
                queries: self.queries(part),
                output: self.rows(output, self.queries_len, values, part),
                doutput: self.rows(doutput, self.queries_len, values, part),
                range: part.range,
                dstate,
                out: Self::writer(targets[0], part, self.queries_len, self.inputs),
            });
        });
        let parts = self.parts(self.keys_len).0;
        let workspaces = Workspaces::new(parts.len(), || ());
        parts.into_par_iter().for_each(|part| {
            let task = KeyGradient {
                map: key(part),
                format: self.format(isa),
                sizes: self.sizes,
                dstate: self.state(&dstates, part),
                keys: self.keys(part),
                values: self.rows(self.v, self.keys_len, values, part),
                range: part.range,
                dkeys: Self::writer(targets[1], part, self.keys_len, self.inputs),
                dvalues: Self::writer(targets[2], part, self.keys_len, values),
            };
            workspaces.lend(|()| isa.run(task));
        });
    }

    /// Returns a state for each head, to which `add` contributes the positions of each part.
    fn sums(&self, length: usize, add: impl Fn(Part, &mut [f32]) + Sync) -> Vec<f32> {
        let (parts, per_head) = self.parts(length);
        let len = self.sizes.state();
        let mut partials = vec![0.0; parts.len() * len];
        let states = split_mut(&mut partials, len, parts.len());
        let workspaces = Workspaces::new(parts.len(), || ());
        parts
            .into_par_iter()
            .zip(states)
            .for_each(|(part, state)| workspaces.lend(|()| add(part, state)));
        if per_head == 1 {
            return partials;
        }
        partials
            .chunks(per_head * len)
            .flat_map(|head| sum_partials(head, len))
            .collect()
    }

    /// Returns a function that gives the row of a position of `part`'s head, `width` elements,
    /// among sequences of this length.
    fn writer<'b>(
        target: StridedRowsMut<'b>,
        part: Part,
        length: usize,
        width: usize,
    ) -> impl FnMut(usize) -> &'b mut [f32] + use<'b> {
        let StridedRowsMut {
            buffer,
            start,
            stride,
        } = target;
        let start = start + part.example * length * stride + part.head * width;
        // SAFETY: parts have different heads or different positions, each part asks for its own
        // positions only, and is done with a row when it asks for the next.
        move |position| unsafe { buffer.slice(start + position * stride, width) }
    }
}
