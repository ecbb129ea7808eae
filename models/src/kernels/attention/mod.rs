//! Softmax attention that never holds the L x L weights: y_i = Σ_j softmax_j(scale q_i·k_j) v_j per head.
//!
//! Tiles of 64 keys by 64 queries go through the first-level cache; what the backward pass needs is one number
//! per query and head, the logarithm of its sum of weights (Dao et al., 2022, arXiv 2205.14135). Keys are
//! masked per example, weights can be dropped out, and blocks of 64 keys without a real one cost nothing.
//!
//! Work is shared out by heads, then by queries (forward) or keys (backward), in parts that depend on the shape
//! alone. A query's sums run over key blocks in order in any case; its gradient is summed over the parts in order.

mod backward;
mod bias;
mod drop;
mod forward;
mod keys;
mod problem;
mod sparse;

use std::sync::OnceLock;

use candle_core::{CpuStorage, CustomOp1, CustomOp3, Layout, Result, Shape, Tensor, bail};

pub use self::bias::attention_biased;
pub use self::drop::AttentionDropout;
use self::keys::Keys;
use self::problem::Problem;
pub use self::sparse::{Plan, Plans, Sight, Sights};
use super::buffers::{Shared, Target, floats, read, tensor};
use super::tile::{Operand, SIDE};

const NAME: &str = "attention";

/// What attention needs besides queries, keys and values.
#[derive(Clone, Debug, Default)]
pub struct AttentionOptions {
    /// Number of heads H; head h owns columns h E to (h + 1) E.
    pub heads: usize,
    /// Factor on the scores; 1 / sqrt E if absent.
    pub scale: Option<f64>,
    /// (B, keys), 1 for a real key and 0 for padding. A query without a real key yields zeros.
    pub mask: Option<Tensor>,
    /// Dropout of the weights, in training.
    pub dropout: Option<AttentionDropout>,
    /// Which keys each query sees; all if absent.
    pub plans: Option<Plans>,
}

/// Attention within a sequence from packed projections (B, L, 3 H E), queries first, then keys, then values; yields (B, L, H E).
pub fn attention_packed(qkv: &Tensor, options: &AttentionOptions) -> Result<Tensor> {
    let (batch, length, width) = qkv.dims3()?;
    let op = Attention::new(options, batch, (length, length), width / 3)?;
    if width % 3 != 0 {
        bail!("{NAME}: width {width} is not three times that of the heads");
    }
    qkv.contiguous()?.apply_op1(op)
}

/// Attention of queries (B, Lq, H E) on keys and values (B, Lk, H E); yields (B, Lq, H E).
pub fn attention(q: &Tensor, k: &Tensor, v: &Tensor, options: &AttentionOptions) -> Result<Tensor> {
    let ((batch, queries, width), keys) = (q.dims3()?, k.dim(1)?);
    if k.dims() != [batch, keys, width] || v.dims() != k.dims() {
        bail!(
            "{NAME}: queries {:?}, keys {:?}, values {:?}",
            q.shape(),
            k.shape(),
            v.shape()
        );
    }
    let op = Attention::new(options, batch, (queries, keys), width)?;
    q.contiguous()?
        .apply_op3(&k.contiguous()?, &v.contiguous()?, op)
}

struct Attention {
    heads: usize,
    scale: f32,
    real: Keys,
    dropout: Option<AttentionDropout>,
    plans: Option<Plans>,
    /// Base-2 logarithm of the sum of weights of each query, (B, H, Lq).
    sums: OnceLock<Vec<f32>>,
}

impl Attention {
    fn new(
        options: &AttentionOptions,
        batch: usize,
        (queries, keys): (usize, usize),
        width: usize,
    ) -> Result<Self> {
        let heads = options.heads;
        if heads == 0 || width == 0 || !width.is_multiple_of(heads) {
            bail!("{NAME}: width {width} cannot be split into {heads} heads");
        }
        let dropout = options.dropout.clone();
        if dropout.as_ref().is_some_and(|d| d.batch() != batch) {
            bail!("{NAME}: dropout needs one counter for each of {batch} examples");
        }
        let plans = options.plans.clone();
        if let Some(plans) = &plans {
            plans.check((batch, heads), (queries, keys), dropout.is_some())?;
        } else if dropout.is_some()
            && heads * queries * keys.next_multiple_of(SIDE) / 4 > u32::MAX as usize
        {
            bail!("{NAME}: {heads} heads of {queries} x {keys} weights exceed a dropout stream");
        }
        Ok(Attention {
            heads,
            scale: options
                .scale
                .unwrap_or_else(|| ((width / heads) as f64).powf(-0.5)) as f32,
            real: Keys::new(batch, keys, options.mask.as_ref())?,
            dropout,
            plans,
            sums: OnceLock::new(),
        })
    }

    fn problem<'a>(
        &'a self,
        batch: usize,
        (queries_len, keys_len): (usize, usize),
        width: usize,
        operands: [Operand<'a>; 3],
    ) -> Problem<'a> {
        Problem {
            batch,
            heads: self.heads,
            queries_len,
            keys_len,
            width: width / self.heads,
            scale: self.scale,
            operands,
            real: &self.real,
            dropout: self.dropout.as_ref(),
            plans: self.plans.as_ref(),
            bias: None,
        }
    }

    /// The three operands inside packed projections.
    fn packed<'a>(&'a self, shape: &Shape, data: &'a [f32]) -> Result<Problem<'a>> {
        let (batch, length, width) = shape.dims3()?;
        let operands = Operand::packed(data, width / 3);
        Ok(self.problem(batch, (length, length), width / 3, operands))
    }

    fn separate<'a>(&'a self, q: &Shape, k: &Shape, data: [&'a [f32]; 3]) -> Result<Problem<'a>> {
        let (batch, queries, width) = q.dims3()?;
        let operands = data.map(|data| Operand::whole(data, width));
        Ok(self.problem(batch, (queries, k.dims3()?.1), width, operands))
    }

    fn forward(&self, problem: &Problem) -> Vec<f32> {
        let (output, sums) = problem.forward();
        // The operation runs once: each call of attention makes its own.
        let _ = self.sums.set(sums);
        output
    }

    fn sums(&self) -> Result<&[f32]> {
        match self.sums.get() {
            Some(sums) => Ok(sums),
            None => bail!("{NAME}: backward before forward"),
        }
    }
}

impl CustomOp1 for Attention {
    fn name(&self) -> &'static str {
        NAME
    }

    fn cpu_fwd(&self, qkv: &CpuStorage, layout: &Layout) -> Result<(CpuStorage, Shape)> {
        let problem = self.packed(layout.shape(), floats(NAME, qkv, layout)?)?;
        let shape = (problem.batch, problem.queries_len, problem.row()).into();
        Ok((CpuStorage::F32(self.forward(&problem)), shape))
    }

    fn bwd(&self, qkv: &Tensor, output: &Tensor, doutput: &Tensor) -> Result<Option<Tensor>> {
        let doutput = doutput.contiguous()?;
        let shape = qkv.shape();
        let (qkv, output, doutput) = (read(NAME, qkv)?, read(NAME, output)?, read(NAME, &doutput)?);
        let problem = self.packed(shape, &qkv)?;
        let mut gradient = vec![0.0; qkv.len()];
        let shared = Shared::new(&mut gradient);
        let (row, width) = (3 * problem.row(), problem.row());
        let targets = [0, 1, 2].map(|i| Target {
            buffer: &shared,
            start: i * width,
            stride: row,
        });
        problem.backward(self.sums()?, [&output, &doutput], targets);
        tensor(gradient, shape).map(Some)
    }
}

impl CustomOp3 for Attention {
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
        let problem = self.separate(q_layout.shape(), k_layout.shape(), data)?;
        Ok((
            CpuStorage::F32(self.forward(&problem)),
            q_layout.shape().clone(),
        ))
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
        let (q_shape, k_shape) = (q.shape(), k.shape());
        let (q, k, v) = (read(NAME, q)?, read(NAME, k)?, read(NAME, v)?);
        let (output, doutput) = (read(NAME, output)?, read(NAME, &doutput)?);
        let problem = self.separate(q_shape, k_shape, [&q, &k, &v])?;
        let (mut dq, mut dk, mut dv) = (vec![0.0; q.len()], vec![0.0; k.len()], vec![0.0; v.len()]);
        let shared = [&mut dq, &mut dk, &mut dv].map(|buffer| Shared::new(buffer));
        let targets = [0, 1, 2].map(|i| Target {
            buffer: &shared[i],
            start: 0,
            stride: problem.row(),
        });
        problem.backward(self.sums()?, [&output, &doutput], targets);
        Ok((
            Some(tensor(dq, q_shape)?),
            Some(tensor(dk, k_shape)?),
            Some(tensor(dv, k_shape)?),
        ))
    }
}

#[cfg(test)]
mod tests;
