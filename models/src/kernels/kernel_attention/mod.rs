//! Attention whose weights are products of features, in time linear in the length:
//! y_i = φ(q_i) S / (φ(q_i)·z + guard) with S = Σ_j φ(k_j) v_jᵀ and z = Σ_j φ(k_j) per head (arXiv 2006.16236).
//!
//! Features exist only for 64 positions at a time. Of the forward pass, S and z are kept. Positions are split
//! into parts by shape alone, and the sums of the parts are added in order.

mod blocks;
mod features;
mod passes;

use std::sync::OnceLock;

use candle_core::{CpuStorage, CustomOp1, CustomOp3, Layout, Result, Shape, Tensor, bail};
use rayon::prelude::*;

use self::blocks::{Positions, Sizes, State};
use self::features::{Directions, Elementwise, Favor, Features, Shift};
use self::passes::{Attend, Gather, KeyGradient, QueryGradient};
use super::activation::{EluPlusOne, Identity, Relu};
use super::buffers::{Shared, floats, fresh, pieces, read, sum_partials, tensor};
use super::isa::Isa;
use super::tile::{Operand, Rows, SIDE};

const NAME: &str = "kernel attention";
/// Tasks that a pass is split into where the heads alone are fewer.
const TASKS: usize = 16;
/// Blocks of positions below which a part is not worth its own sums.
const LEAST_BLOCKS: usize = 4;

/// The map φ from a query or key to features, all of which must come out non-negative.
#[derive(Clone, Debug)]
pub enum FeatureMap {
    /// The operands are features already.
    Given,
    /// elu(x) + 1.
    EluPlusOne,
    /// max(x, 0) + floor.
    Relu {
        /// Added to every feature.
        floor: f32,
    },
    /// exp(w_r·x - |x|² / (2 √E) - shift) + epsilon: FAVOR+ (arXiv 2009.14794). The shift is the largest w_r·x of a query, and of
    /// all real keys of an example and head, but at least 0.
    Favor {
        /// w (M, E), times E^-¼; without gradient.
        directions: Tensor,
        /// Added to every feature.
        epsilon: f32,
    },
}

/// What kernel attention needs besides queries, keys and values.
#[derive(Clone, Debug)]
pub struct KernelAttentionOptions {
    /// Number of heads H; head h owns columns h M to (h + 1) M of queries and keys (or as many as the map takes), h E to (h + 1) E
    /// of values.
    pub heads: usize,
    /// From queries and keys to features.
    pub map: FeatureMap,
    /// Added to the denominator, so that an example without a real key yields zeros.
    pub guard: f64,
    /// (B, keys), 1 for a real key and 0 for padding.
    pub mask: Option<Tensor>,
}

/// Kernel attention of queries (B, Lq, H M) on keys (B, Lk, H M) and values (B, Lk, H E); yields (B, Lq, H E).
pub fn kernel_attention(
    q: &Tensor,
    k: &Tensor,
    v: &Tensor,
    options: &KernelAttentionOptions,
) -> Result<Tensor> {
    let ((batch, _, features), (_, keys, values)) = (q.dims3()?, v.dims3()?);
    if k.dims() != [batch, keys, features] || v.dim(0)? != batch {
        bail!(
            "{NAME}: queries {:?}, keys {:?}, values {:?}",
            q.shape(),
            k.shape(),
            v.shape()
        );
    }
    let op = KernelAttention::new(options, (batch, keys), (features, values))?;
    q.contiguous()?
        .apply_op3(&k.contiguous()?, &v.contiguous()?, op)
}

/// Kernel attention within a sequence from packed projections (B, L, 3 H E), queries first, then keys, then values; yields (B, L, H E).
pub fn kernel_attention_packed(qkv: &Tensor, options: &KernelAttentionOptions) -> Result<Tensor> {
    let (batch, length, width) = qkv.dims3()?;
    if width % 3 != 0 {
        bail!("{NAME}: width {width} is not three times that of the heads");
    }
    let op = KernelAttention::new(options, (batch, length), (width / 3, width / 3))?;
    qkv.contiguous()?.apply_op1(op)
}

/// A [`FeatureMap`], made ready.
enum Map {
    Given,
    EluPlusOne,
    Relu { floor: f32 },
    Favor(Directions),
}

struct KernelAttention {
    heads: usize,
    map: Map,
    guard: f32,
    /// (B, Lk), not zero for a real key.
    real: Option<Vec<f32>>,
    /// S and z of each head, and the shift of its keys where the map has one.
    states: OnceLock<(Vec<f32>, Vec<f32>)>,
}

impl KernelAttention {
    /// For rows of `features` elements of queries and keys and `values` of values.
    fn new(
        options: &KernelAttentionOptions,
        (batch, keys): (usize, usize),
        (features, values): (usize, usize),
    ) -> Result<Self> {
        let heads = options.heads;
        if heads == 0 || features * values == 0 || features % heads + values % heads != 0 {
            bail!("{NAME}: widths {features} and {values} cannot be split into {heads} heads");
        }
        let real = match &options.mask {
            Some(mask) if mask.dims() != [batch, keys] => {
                bail!(
                    "{NAME}: mask {:?} for {batch} examples of {keys} keys",
                    mask.shape()
                )
            }
            Some(mask) => Some(read(NAME, &mask.contiguous()?)?.to_vec()),
            None => None,
        };
        let map = match &options.map {
            FeatureMap::Given => Map::Given,
            FeatureMap::EluPlusOne => Map::EluPlusOne,
            FeatureMap::Relu { floor } => Map::Relu { floor: *floor },
            FeatureMap::Favor {
                directions,
                epsilon,
            } => {
                let (count, width) = directions.dims2()?;
                if count == 0 || width * heads != features {
                    bail!(
                        "{NAME}: directions {:?} for {heads} heads of {features}",
                        directions.shape()
                    );
                }
                let w = directions.contiguous()?;
                let w = Directions::new(&read(NAME, &w)?, (count, width), *epsilon);
                Map::Favor(w)
            }
        };
        Ok(KernelAttention {
            heads,
            map,
            guard: options.guard as f32,
            real,
            states: OnceLock::new(),
        })
    }
}

/// One call, with its operands.
struct Problem<'a> {
    op: &'a KernelAttention,
    batch: usize,
    queries_len: usize,
    keys_len: usize,
    /// Elements of a query or key of one head.
    inputs: usize,
    sizes: Sizes,
    q: Operand<'a>,
    k: Operand<'a>,
    v: Operand<'a>,
}

/// Where the rows of a gradient go: row i to `start + i * row`.
#[derive(Clone, Copy)]
struct Target<'a> {
    buffer: &'a Shared<'a>,
    start: usize,
    row: usize,
}

/// Positions `start..end` of one head.
#[derive(Clone, Copy)]
struct Part {
    example: usize,
    head: usize,
    range: (usize, usize),
}

impl KernelAttention {
    /// Queries and keys have rows of `features` elements, values of `values`.
    fn problem<'a>(
        &'a self,
        [batch, queries_len, keys_len]: [usize; 3],
        (features, values): (usize, usize),
        [q, k, v]: [Operand<'a>; 3],
    ) -> Problem<'a> {
        let inputs = features / self.heads;
        let sizes = Sizes {
            features: match &self.map {
                Map::Favor(directions) => directions.count(),
                _ => inputs,
            },
            values: values / self.heads,
        };
        Problem {
            inputs,
            op: self,
            batch,
            queries_len,
            keys_len,
            sizes,
            q,
            k,
            v,
        }
    }

    fn separate<'a>(&'a self, q: &Shape, v: &Shape, data: [&'a [f32]; 3]) -> Result<Problem<'a>> {
        let ((batch, queries, features), (_, keys, values)) = (q.dims3()?, v.dims3()?);
        let [q, k, v] = data;
        let operands = [
            Operand::whole(q, features),
            Operand::whole(k, features),
            Operand::whole(v, values),
        ];
        Ok(self.problem([batch, queries, keys], (features, values), operands))
    }

    fn packed<'a>(&'a self, shape: &Shape, data: &'a [f32]) -> Result<Problem<'a>> {
        let (batch, length, width) = shape.dims3()?;
        let third = width / 3;
        let operands = Operand::packed(data, third);
        Ok(self.problem([batch, length, length], (third, third), operands))
    }

    fn forward(&self, problem: &Problem) -> (CpuStorage, Shape) {
        let (output, states, shifts) = match &self.map {
            Map::Given => problem.forward_by(Elementwise(Identity)),
            Map::EluPlusOne => problem.forward_by(Elementwise(EluPlusOne)),
            Map::Relu { floor } => problem.forward_by(Elementwise(Relu { floor: *floor })),
            Map::Favor(directions) => {
                let shifts = problem.shifts(directions);
                let key = |part| favor_key(directions, self.heads, &shifts, part);
                let (output, states) = problem.forward(favor_query(directions), key);
                (output, states, shifts)
            }
        };
        // The operation runs once: each call of kernel attention makes its own.
        let _ = self.states.set((states, shifts));
        let shape = (problem.batch, problem.queries_len, problem.row());
        (CpuStorage::F32(output), shape.into())
    }

    fn backward(
        &self,
        problem: &Problem,
        outputs: [&[f32]; 2],
        targets: [Target; 3],
    ) -> Result<()> {
        let Some((states, shifts)) = self.states.get() else {
            bail!("{NAME}: backward before forward");
        };
        match &self.map {
            Map::Given => problem.backward_by(Elementwise(Identity), states, outputs, targets),
            Map::EluPlusOne => {
                problem.backward_by(Elementwise(EluPlusOne), states, outputs, targets)
            }
            Map::Relu { floor } => {
                problem.backward_by(
                    Elementwise(Relu { floor: *floor }),
                    states,
                    outputs,
                    targets,
                );
            }
            Map::Favor(directions) => {
                let key = |part| favor_key(directions, self.heads, shifts, part);
                problem.backward(favor_query(directions), key, states, outputs, targets);
            }
        }
        Ok(())
    }
}

impl CustomOp1 for KernelAttention {
    fn name(&self) -> &'static str {
        NAME
    }

    fn cpu_fwd(&self, qkv: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let problem = self.packed(layout.shape(), floats(NAME, qkv, layout)?)?;
        Ok(self.forward(&problem))
    }

    fn bwd(&self, qkv: &Tensor, output: &Tensor, doutput: &Tensor) -> Result<Option<Tensor>> {
        let doutput = doutput.contiguous()?;
        let shape = qkv.shape();
        let (qkv, output, doutput) = (read(NAME, qkv)?, read(NAME, output)?, read(NAME, &doutput)?);
        let problem = self.packed(shape, &qkv)?;
        let mut gradient = fresh(qkv.len());
        let shared = Shared::new(&mut gradient);
        let targets = [problem.q, problem.k, problem.v].map(|operand| Target {
            buffer: &shared,
            start: operand.start,
            row: operand.row,
        });
        self.backward(&problem, [&output, &doutput], targets)?;
        tensor(gradient, shape).map(Some)
    }
}

impl CustomOp3 for KernelAttention {
    fn name(&self) -> &'static str {
        NAME
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
            floats(NAME, q, q_layout)?,
            floats(NAME, k, k_layout)?,
            floats(NAME, v, v_layout)?,
        ];
        let problem = self.separate(q_layout.shape(), v_layout.shape(), data)?;
        Ok(self.forward(&problem))
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
        let (q, k, v) = (read(NAME, q)?, read(NAME, k)?, read(NAME, v)?);
        let (output, doutput) = (read(NAME, output)?, read(NAME, &doutput)?);
        let problem = self.separate(shapes[0], shapes[2], [&q, &k, &v])?;
        let [mut dq, mut dk, mut dv] = [fresh(q.len()), fresh(k.len()), fresh(v.len())];
        let shared = [&mut dq, &mut dk, &mut dv].map(|buffer| Shared::new(buffer));
        let operands = [problem.q, problem.k, problem.v];
        let targets = [0, 1, 2].map(|which| Target {
            buffer: &shared[which],
            start: 0,
            row: operands[which].row,
        });
        self.backward(&problem, [&output, &doutput], targets)?;
        Ok((
            Some(tensor(dq, shapes[0])?),
            Some(tensor(dk, shapes[1])?),
            Some(tensor(dv, shapes[2])?),
        ))
    }
}

fn favor_query(directions: &Directions) -> Favor<'_> {
    Favor {
        directions,
        shift: Shift::Row,
    }
}

fn favor_key<'a>(
    directions: &'a Directions,
    heads: usize,
    shifts: &[f32],
    part: Part,
) -> Favor<'a> {
    Favor {
        directions,
        shift: Shift::Given(shifts[part.example * heads + part.head]),
    }
}

impl Problem<'_> {
    fn head_count(&self) -> usize {
        self.batch * self.op.heads
    }

    /// Parts of every head for `length` positions, part by part of each head in turn; and parts per head.
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

    /// Elements of a row of the output: all heads.
    fn row(&self) -> usize {
        self.op.heads * self.sizes.values
    }

    /// The rows of one head of an operand with `width` elements per head.
    fn rows<'b>(&self, of: Operand<'b>, length: usize, width: usize, part: Part) -> Rows<'b> {
        of.rows((part.example * length, part.head * width), width)
    }

    fn keys(&self, part: Part) -> Positions<'_> {
        let real = self.op.real.as_ref();
        Positions {
            rows: self.rows(self.k, self.keys_len, self.inputs, part),
            real: real.map(|real| &real[part.example * self.keys_len..][..self.keys_len]),
        }
    }

    fn state<'b>(&self, states: &'b [f32], part: Part) -> State<'b> {
        let len = self.sizes.state();
        let head = part.example * self.op.heads + part.head;
        State::new(self.sizes, &states[head * len..][..len])
    }

    /// What exponents of keys are shifted by in each head.
    fn shifts(&self, directions: &Directions) -> Vec<f32> {
        let isa = Isa::current();
        let (parts, per_head) = self.parts(self.keys_len);
        let highest = |part: Part| directions.highest(isa, self.keys(part), part.range);
        let all: Vec<f32> = parts.into_par_iter().map(highest).collect();
        let heads = all.chunks(per_head);
        heads
            .map(|parts| parts.iter().copied().fold(0.0, f32::max))
            .collect()
    }

    /// [`Problem::forward`] with one map, and no shifts.
    fn forward_by(&self, map: impl Features) -> (Vec<f32>, Vec<f32>, Vec<f32>) {
        let (output, states) = self.forward(map, |_| map);
        (output, states, Vec::new())
    }

    /// [`Problem::backward`] with one map.
    fn backward_by(
        &self,
        map: impl Features,
        states: &[f32],
        outputs: [&[f32]; 2],
        targets: [Target; 3],
    ) {
        self.backward(map, |_| map, states, outputs, targets);
    }

    /// Output (B, Lq, H E), and S and z of each head.
    fn forward<F: Features>(
        &self,
        query: F,
        key: impl Fn(Part) -> F + Sync,
    ) -> (Vec<f32>, Vec<f32>) {
        let isa = Isa::current();
        let values = self.sizes.values;
        let states = self.sums(self.keys_len, |part, state| {
            isa.run(Gather {
                map: key(part),
                sizes: self.sizes,
                keys: self.keys(part),
                values: self.rows(self.v, self.keys_len, values, part),
                range: part.range,
                state,
            });
        });
        let mut output = fresh(self.batch * self.queries_len * self.row());
        let shared = Shared::new(&mut output);
        let target = Target {
            buffer: &shared,
            start: 0,
            row: self.row(),
        };
        self.parts(self.queries_len)
            .0
            .into_par_iter()
            .for_each(|part| {
                isa.run(Attend {
                    map: query,
                    sizes: self.sizes,
                    guard: self.op.guard,
                    state: self.state(&states, part),
                    queries: self.rows(self.q, self.queries_len, self.inputs, part),
                    range: part.range,
                    out: Self::writer(target, part, self.queries_len, values),
                });
            });
        (output, states)
    }

    /// Gradients of queries, keys and values, every row of each.
    fn backward<F: Features>(
        &self,
        query: F,
        key: impl Fn(Part) -> F + Sync,
        states: &[f32],
        outputs: [&[f32]; 2],
        targets: [Target; 3],
    ) {
        let isa = Isa::current();
        let values = self.sizes.values;
        let [output, doutput] = outputs.map(|data| Operand::whole(data, self.row()));
        let dstates = self.sums(self.queries_len, |part, dstate| {
            isa.run(QueryGradient {
                map: query,
                sizes: self.sizes,
                guard: self.op.guard,
                state: self.state(states, part),
                queries: self.rows(self.q, self.queries_len, self.inputs, part),
                output: self.rows(output, self.queries_len, values, part),
                doutput: self.rows(doutput, self.queries_len, values, part),
                range: part.range,
                dstate,
                out: Self::writer(targets[0], part, self.queries_len, self.inputs),
            });
        });
        self.parts(self.keys_len)
            .0
            .into_par_iter()
            .for_each(|part| {
                isa.run(KeyGradient {
                    map: key(part),
                    sizes: self.sizes,
                    dstate: self.state(&dstates, part),
                    keys: self.keys(part),
                    values: self.rows(self.v, self.keys_len, values, part),
                    range: part.range,
                    dkeys: Self::writer(targets[1], part, self.keys_len, self.inputs),
                    dvalues: Self::writer(targets[2], part, self.keys_len, values),
                });
            });
    }

    /// A state for each head, to which `add` contributes the positions of each part.
    fn sums(&self, length: usize, add: impl Fn(Part, &mut [f32]) + Sync) -> Vec<f32> {
        let (parts, per_head) = self.parts(length);
        let len = self.sizes.state();
        let mut partials = vec![0.0; parts.len() * len];
        let states = pieces(&mut partials, len, parts.len());
        parts
            .into_par_iter()
            .zip(states)
            .for_each(|(part, state)| add(part, state));
        if per_head == 1 {
            return partials;
        }
        partials
            .chunks(per_head * len)
            .flat_map(|head| sum_partials(head, len))
            .collect()
    }

    /// Gives the row of a position of `part`'s head, `width` elements, among sequences of this length.
    fn writer<'b>(
        target: Target<'b>,
        part: Part,
        length: usize,
        width: usize,
    ) -> impl FnMut(usize) -> &'b mut [f32] + use<'b> {
        let Target { buffer, start, row } = target;
        let start = start + part.example * length * row + part.head * width;
        // SAFETY: parts have different heads or different positions, each part asks for its own positions
        // only, and is done with a row when it asks for the next.
        move |position| unsafe { buffer.slice(start + position * row, width) }
    }
}

#[cfg(test)]
mod tests;
