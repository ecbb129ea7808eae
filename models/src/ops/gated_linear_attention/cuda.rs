//! Linear attention with decays by the kernels of `cuda.cu`.

use candle_core::{DType, Result, Tensor};

use super::{CHUNK, GatedLinearAttentionOptions};
use crate::autograd::with_backward;
use crate::cuda::{Argument, Buffer, Gpu, Grid, MOST_BLOCKS, Module, module};

const MODULE: Module = module!("ops-gated_linear_attention-cuda");
const THREADS: usize = 128;
/// Most keys of a head.
const WIDEST: usize = 128;

/// Returns whether the kernels compute attention with keys (B, L, H, K).
pub(super) fn takes(k: &Tensor) -> bool {
    let fits = k
        .dims4()
        .is_ok_and(|(_, length, _, keys)| keys <= WIDEST && length.div_ceil(CHUNK) <= MOST_BLOCKS);
    fits && k.elem_count() > 0
}

/// Returns y (B, L, H, V) of q and k (B, L, H, K), v (B, L, H, V), logarithms of decays (B, L, H)
/// or (B, L, H, K), and the options' rates of the delta rule and order.
pub(super) fn gated_linear_attention(
    gpu: &Gpu,
    [q, k, v]: [&Tensor; 3],
    log_decay: Option<&Tensor>,
    options: &GatedLinearAttentionOptions,
) -> Result<Tensor> {
    let contiguous = |x: Option<&Tensor>| x.map(Tensor::contiguous).transpose();
    let operands = Operands {
        q: q.contiguous()?,
        k: k.contiguous()?,
        v: v.contiguous()?,
        log_decay: contiguous(log_decay)?,
        delta: contiguous(options.delta)?,
    };
    let launches = Launches::new(gpu, &operands, options)?;
    let [q, k, v, log_decay, delta] = operands.pointers(gpu)?;
    let states = launches.states("states", &[k, v, log_decay, delta], false)?;
    let y = gpu.empty(operands.v.shape(), DType::F32)?;
    let all = [q, k, v, log_decay, delta, pointer(&states), y.pointer()];
    launches.launch("forward", launches.segments, launches.forward, &all)?;
    let (kept, gpu) = (operands.detached(), gpu.clone());
    let backward = move |_: &Tensor, dy: &Tensor| {
        let [q, k, v, log_decay, delta] = kept.pointers(&gpu)?;
        let dy = gpu.floats(dy, kept.v.elem_count())?;
        let dstates = launches.states("adjoint", &[q, k, log_decay, delta, dy], true)?;
        let like = |x: &Tensor| gpu.empty(x.shape(), DType::F32);
        let (dq, dk, dv) = (like(&kept.q)?, like(&kept.k)?, like(&kept.v)?);
        let dlog_decay = kept.log_decay.as_ref().map(like).transpose()?;
        let ddelta = kept.delta.as_ref().map(like).transpose()?;
        let of = [q, k, v, log_decay, delta];
        let rest = [pointer(&states), pointer(&dstates), dy];
        let results = [&dq, &dk, &dv].map(Buffer::pointer);
        let gates = [pointer(&dlog_decay), pointer(&ddelta)];
        let all = [&of[..], &rest, &results, &gates].concat();
        launches.launch("backward", launches.chunks, launches.backward, &all)?;
        let gates = [dlog_decay, ddelta].into_iter().flatten();
        let gradients = [dq, dk, dv].into_iter().chain(gates);
        Ok(gradients.map(|it| Some(it.into_tensor())).collect())
    };
    let given = operands.given();
    let output = y.into_output();
    with_backward("gated linear attention", &given, output, false, backward)
}

/// Returns the address of memory, or none.
fn pointer(buffer: &Option<Buffer>) -> Argument {
    buffer.as_ref().map_or(Argument::NULL, Buffer::pointer)
}

/// Contiguous operands.
struct Operands {
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Option<Tensor>,
    delta: Option<Tensor>,
}

impl Operands {
    fn detached(&self) -> Self {
        Self {
            q: self.q.detach(),
            k: self.k.detach(),
            v: self.v.detach(),
            log_decay: self.log_decay.as_ref().map(Tensor::detach),
            delta: self.delta.as_ref().map(Tensor::detach),
        }
    }

    /// Returns the operands that there are, in order.
    fn given(&self) -> Vec<&Tensor> {
        let gates = [&self.log_decay, &self.delta].into_iter().flatten();
        [&self.q, &self.k, &self.v]
            .into_iter()
            .chain(gates)
            .collect()
    }

    /// Returns the addresses of all operands, none for those that there are not.
    fn pointers(&self, gpu: &Gpu) -> Result<[Argument; 5]> {
        let (batch, length, heads, keys) = self.q.dims4()?;
        let rows = batch * length * heads;
        let gate = |x: &Option<Tensor>, elements| match x {
            Some(x) => gpu.floats(x, elements),
            None => Ok(Argument::NULL),
        };
        let decays = match &self.log_decay {
            Some(decays) if decays.rank() == 4 => keys,
            _ => 1,
        };
        Ok([
            gpu.floats(&self.q, rows * keys)?,
            gpu.floats(&self.k, rows * keys)?,
            gpu.floats(&self.v, rows * self.v.dim(3)?)?,
            gate(&self.log_decay, rows * decays)?,
            gate(&self.delta, rows)?,
        ])
    }
}

/// The sizes of attention, and how it is launched.
struct Launches {
    gpu: Gpu,
    /// Sequences times heads.
    sequences: usize,
    keys: usize,
    values: usize,
    /// Decays of a row, or 1 where there are none.
    decays: usize,
    delta: bool,
    /// Of a sequence.
    chunks: usize,
    segments: usize,
    /// Tiles of the values' columns.
    tiles: usize,
    /// Bytes of shared memory, forward and backward.
    forward: usize,
    backward: usize,
    /// The structure that every kernel takes.
    sizes: Argument,
}

impl Launches {
    fn new(gpu: &Gpu, of: &Operands, options: &GatedLinearAttentionOptions) -> Result<Self> {
        let ((batch, length, heads, keys), values) = (of.q.dims4()?, of.v.dim(3)?);
        let decays = match &of.log_decay {
            Some(decays) => decays.elem_count() / (batch * length * heads),
            None => 0,
        };
        let chunks = length.div_ceil(CHUNK);
        let together = chunks_of_segment(keys, values);
        let tile = if keys > 64 { 16 } else { 32 };
        let delta = of.delta.is_some();
        let flags = [delta, options.reverse, options.exclusive].map(usize::from);
        let sizes = [length, heads, keys, values, decays];
        let words = [&sizes[..], &flags, &[together, tile]].concat();
        let words: Vec<u32> = words.into_iter().map(|word| word as u32).collect();
        // As the kernels take shared memory apart.
        let (wide, column) = (keys.next_multiple_of(4), tile + 1);
        let of_decays = CHUNK * if decays > 1 { wide + 1 } else { 1 };
        let (state, pairs) = (wide * column, CHUNK * (CHUNK + 1));
        let rows = |keys: usize, values: usize| CHUNK * (keys * (wide + 1) + values * column);
        let forward = rows(2, 3) + 3 * of_decays + 2 * pairs + CHUNK + state;
        let backward = forward + rows(3, 1) + 2 * pairs + CHUNK + state + wide;
        Ok(Self {
            gpu: gpu.clone(),
            sequences: batch * heads,
            keys,
            values,
            decays: decays.max(1),
            delta,
            chunks,
            segments: chunks.div_ceil(together),
            tiles: values.div_ceil(tile),
            forward: 4 * forward,
            backward: 4 * backward,
            sizes: Argument::words(&words),
        })
    }

    /// Returns states at the starts of segments, or gradients of those at their ends, of shape
    /// (B H, segments, K, V); none of a single segment.
    fn states(&self, kernel: &str, operands: &[Argument], adjoint: bool) -> Result<Option<Buffer>> {
        if self.segments == 1 {
            return Ok(None);
        }
        let shape = (self.sequences, self.segments, self.keys, self.values);
        let states = self.gpu.empty(shape, DType::F32)?;
        let shape = (self.sequences, self.segments, self.decays);
        let totals = self.gpu.empty(shape, DType::F32)?;
        // By the delta rule a block walks the whole sequence.
        let walks = if self.delta { 1 } else { self.segments };
        let all = [operands, &[states.pointer(), totals.pointer()]].concat();
        self.launch(kernel, walks, self.forward, &all)?;
        if !self.delta {
            let blocks = (self.keys * self.values).div_ceil(THREADS);
            let grid = Grid::new([self.sequences, blocks, 1], THREADS);
            let all = [
                states.pointer(),
                totals.pointer(),
                adjoint.into(),
                self.sizes,
            ];
            let kernel = "gated_linear_attention_starts";
            self.gpu.launch(&MODULE, kernel, grid, &all)?;
        }
        Ok(Some(states))
    }

    /// Launches a kernel with so many blocks for a sequence, head and tile, and bytes of shared
    /// memory.
    fn launch(
        &self,
        kernel: &str,
        blocks: usize,
        shared: usize,
        arguments: &[Argument],
    ) -> Result<()> {
        let tiles = if kernel == "backward" { 1 } else { self.tiles };
        let grid = Grid {
            blocks: [self.sequences, blocks, tiles],
            threads: THREADS,
            shared,
        };
        let arguments = [arguments, &[self.sizes]].concat();
        let kernel = format!("gated_linear_attention_{kernel}");
        self.gpu.launch(&MODULE, &kernel, grid, &arguments)
    }
}

/// Returns the chunks between two states that are kept: the fewest, of 1, 2, 4 and so on, that make
/// the states no larger than the operands.
fn chunks_of_segment(keys: usize, values: usize) -> usize {
    let row = 2 * keys + values;
    (keys * values)
        .div_ceil(CHUNK * row)
        .max(1)
        .next_power_of_two()
}
