//! Softmax attention in tiles, by the kernels of `cuda.cu`.

mod tables;

use candle_core::{DType, Tensor};

use self::tables::Tables;
use super::{AttentionOptions, RelativeScores, with_columns};
use crate::Result;
use crate::autograd::with_backward;
use crate::cuda::{Argument, Buffer, Gpu, Grid, MOST_BLOCKS, Module, module, sum_parts};

const MODULE: Module = module!("ops-attention-cuda");
const THREADS: usize = 128;
/// Threads of a block of `attention_sum_rows`.
const SUM_THREADS: usize = 256;
/// Rows of a block.
const OWN: usize = 64;
/// Rows of the other side at a time.
const TILE: usize = 32;
/// Channels of a head that a block computes.
const WIDE: usize = 64;

/// The kernels that compute a call.
pub(super) struct Form {
    /// True for the general form. The plain form has every query on every valid key, values as
    /// wide as keys, and at most 64 channels.
    general: bool,
    /// Block masks.
    tables: Option<Tables>,
}

impl Form {
    /// Returns the form of a call on q, k and v; none if the kernels do not take it.
    pub(super) fn of([q, k, v]: [&Tensor; 3], options: &AttentionOptions) -> Option<Self> {
        let AttentionOptions {
            heads,
            scale: _,
            mask: _,
            dropout: _,
            block_masks,
            relative,
            functions: _,
            key_columns: _,
            padded_queries: _,
        } = options;
        if k.elem_count() == 0 || v.elem_count() == 0 || *heads == 0 {
            return None;
        }
        if q.dim(0).ok()? * heads > MOST_BLOCKS {
            return None;
        }
        let [width, values] = [q, v].map(|x| x.dims().last().map_or(0, |row| row / heads));
        let Some(block_masks) = block_masks else {
            return Some(Form {
                general: !(options.is_plain() && width == values && width <= WIDE),
                tables: None,
            });
        };
        let tables = Tables::new(block_masks, k.dim(1).ok()?)?;
        // Sums over distances need neighbours, and a key's row has one block.
        let tracks = |table: &Option<Tensor>| table.as_ref().is_some_and(Tensor::track_op);
        let fits = relative.as_ref().is_none_or(|relative| {
            (tables.neighbours || !tracks(&relative.of_heads))
                && (tables.sums.is_none() || !tracks(&relative.of_keys))
        });
        fits.then_some(Form {
            general: true,
            tables: Some(tables),
        })
    }
}

/// Returns attention (B, Lq, H Ev) of q (B, Lq, H E) on k (B, Lk, H E) and v (B, Lk, H Ev), whose
/// shapes and options the caller has checked.
pub(super) fn attend(
    gpu: &Gpu,
    [q, k, v]: [&Tensor; 3],
    form: &Form,
    options: &AttentionOptions,
) -> Result<Tensor> {
    let ((batch, queries, row), keys, heads) = (q.dims3()?, k.dim(1)?, options.heads);
    let (q, v) = (q.contiguous()?, v.contiguous()?);
    let k = with_columns(k, heads, options.key_columns.as_ref())?.contiguous()?;
    let contiguous = |x: &Option<Tensor>| x.as_ref().map(Tensor::contiguous).transpose();
    let relative = match &options.relative {
        Some(relative) => Some(RelativeScores {
            of_heads: contiguous(&relative.of_heads)?,
            of_queries: contiguous(&relative.of_queries)?,
            of_keys: contiguous(&relative.of_keys)?,
            ..relative.clone()
        }),
        None => None,
    };
    let (width, values) = (row / heads, v.dim(2)? / heads);
    let sizes = [heads, queries, keys, width, values].map(|size| size as u32);
    let scale = options.scale.unwrap_or((width as f64).powf(-0.5)) as f32;
    let dropout = options.dropout.as_ref();
    let stream = dropout.map_or([0; 7], super::AttentionDropout::philox_words);
    let flags = [
        dropout.is_some(),
        candle_core::cuda::gemm_reduced_precision_f32(),
    ]
    .map(u32::from);
    let functions = options.functions.words();
    let call = Call {
        gpu: gpu.clone(),
        general: form.general,
        sizes: Sizes {
            batch,
            heads,
            queries,
            keys,
            width,
            values,
        },
        of: Argument::words(
            &[&sizes[..], &[scale.to_bits()], &functions, &flags, &stream].concat(),
        ),
        mask: contiguous(&options.mask)?,
        relative,
        blocks: match &form.tables {
            Some(tables) => Some(BlockTables::new(tables, &q)?),
            None => None,
        },
    };
    call.attend([&q, &k, &v])
}

/// Returns the numbers that a row of a head, or of 64 channels of it, takes in shared memory.
fn shared_row(width: usize) -> usize {
    if width > WIDE / 2 { WIDE } else { WIDE / 2 }
}

#[derive(Clone, Copy)]
struct Sizes {
    batch: usize,
    heads: usize,
    queries: usize,
    keys: usize,
    width: usize,
    values: usize,
}

impl Sizes {
    /// Returns the numbers of queries, keys, values and outputs.
    fn elements(self) -> [usize; 4] {
        let (of_queries, of_keys) = (self.queries * self.width, self.keys * self.width);
        let (of_values, of_y) = (self.keys * self.values, self.queries * self.values);
        [of_queries, of_keys, of_values, of_y].map(|row| self.batch * self.heads * row)
    }
}

/// A side whose rows a kernel writes.
#[derive(Clone, Copy)]
enum Side {
    Queries,
    Keys,
}

/// Block masks on the GPU.
struct BlockTables {
    /// Places in `words`, without the words.
    tables: Tables,
    words: Tensor,
}

impl BlockTables {
    fn new(tables: &Tables, like: &Tensor) -> candle_core::Result<Self> {
        let words = tables.words.clone();
        let count = words.len();
        Ok(Self {
            tables: Tables {
                words: Vec::new(),
                ..*tables
            },
            words: Tensor::from_vec(words, count, like.device())?,
        })
    }

    /// Returns the address of all lists.
    fn pointer(&self, gpu: &Gpu) -> candle_core::Result<Argument> {
        gpu.pointer(&self.words, DType::U32, self.words.elem_count())
    }

    /// Returns structure `Blocks` of a side, with `rows` rows of gradients of an example.
    fn argument(&self, gpu: &Gpu, side: Side, rows: usize) -> candle_core::Result<Argument> {
        let tables = &self.tables;
        let of_side = tables.sides[side as usize];
        let places = [
            tables.masks,
            of_side.starts,
            of_side.own,
            of_side.tiles,
            tables.positions,
            tables.targets,
            tables.ranges,
            rows,
        ];
        let places = places.map(|place| place as u32);
        let all = self.pointer(gpu)?.halves();
        Ok(Argument::words(
            &[&all[..], &places, &[tables.diagonal.to_bits()]].concat(),
        ))
    }
}

/// One call of attention.
struct Call {
    gpu: Gpu,
    general: bool,
    sizes: Sizes,
    /// Structure `Attention`.
    of: Argument,
    mask: Option<Tensor>,
    relative: Option<RelativeScores>,
    blocks: Option<BlockTables>,
}

impl Call {
    /// Returns the address of a tensor of so many numbers, or none.
    fn pointer(&self, x: Option<&Tensor>, elements: usize) -> candle_core::Result<Argument> {
        x.map_or(Ok(Argument::NULL), |x| self.gpu.floats(x, elements))
    }

    /// Returns the addresses of q, k, v and the mask.
    fn operands(&self, [q, k, v]: [&Tensor; 3]) -> candle_core::Result<[Argument; 4]> {
        let [of_q, of_k, of_v, _] = self.sizes.elements();
        let gpu = &self.gpu;
        Ok([
            gpu.floats(q, of_q)?,
            gpu.floats(k, of_k)?,
            gpu.floats(v, of_v)?,
            self.pointer(self.mask.as_ref(), self.sizes.batch * self.sizes.keys)?,
        ])
    }

    /// Returns memory for rows of which blocks of a mask may leave some alone.
    fn rows(&self, shape: (usize, usize, usize)) -> candle_core::Result<Buffer> {
        match self.blocks {
            Some(_) => self.gpu.zeros(shape),
            None => self.gpu.empty(shape, DType::F32),
        }
    }

    /// Returns the number of blocks of a side.
    fn side_blocks(&self, side: Side) -> usize {
        let length = match side {
            Side::Queries => self.sizes.queries,
            Side::Keys => self.sizes.keys,
        };
        match &self.blocks {
            Some(blocks) => blocks.tables.sides[side as usize].most,
            None => length.div_ceil(OWN),
        }
    }

    /// Returns structure `Distances`, with gradients of the heads' and of the side's table.
    fn distances(
        &self,
        parts: Option<&Buffer>,
        gradients: Option<&Buffer>,
    ) -> candle_core::Result<Argument> {
        let Some(relative) = &self.relative else {
            return Ok(Argument::words(&[]));
        };
        let rows = self.sizes.batch * self.sizes.heads;
        let tables = [
            (&relative.of_heads, self.sizes.heads),
            (&relative.of_queries, rows * self.sizes.queries),
            (&relative.of_keys, rows * relative.keys.len()),
        ];
        let mut words = Vec::new();
        for (table, rows) in tables {
            let elements = rows * relative.columns();
            words.extend(self.pointer(table.as_ref(), elements)?.halves());
        }
        for buffer in [parts, gradients] {
            words.extend(buffer.map_or(Argument::NULL, Buffer::pointer).halves());
        }
        let keys = &relative.keys;
        words.extend([relative.reach, keys.start, keys.len()].map(|size| size as u32));
        Ok(Argument::words(&words))
    }

    /// Launches a kernel, whose name ends with `kernel`, on rows of a side.
    fn launch(
        &self,
        kernel: &str,
        side: Side,
        (slices, numbers): (usize, usize),
        arguments: &[Argument],
        distances: Argument,
        rows: usize,
    ) -> candle_core::Result<()> {
        let blocks = self.side_blocks(side);
        if blocks == 0 {
            return Ok(());
        }
        let slices = if self.general { slices } else { 1 };
        let grid = Grid {
            blocks: [blocks, self.sizes.batch * self.sizes.heads, slices],
            threads: THREADS,
            shared: 4 * numbers,
        };
        let mut arguments = [arguments, &[self.of]].concat();
        let form = match self.general {
            false => "attention",
            true => "attention_general",
        };
        if self.general {
            arguments.push(distances);
            arguments.push(match &self.blocks {
                Some(blocks) => blocks.argument(&self.gpu, side, rows)?,
                None => Argument::words(&[]),
            });
        }
        let name = format!("{form}_{kernel}");
        self.gpu.launch(&MODULE, &name, grid, &arguments)
    }

    /// Returns the output on q, k and v, with its gradients.
    fn attend(self, [q, k, v]: [&Tensor; 3]) -> Result<Tensor> {
        let Sizes {
            batch,
            heads,
            queries,
            width,
            values,
            ..
        } = self.sizes;
        let gpu = &self.gpu;
        let y = self.rows((batch, queries, heads * values))?;
        let logs = gpu.empty((batch, heads, queries), DType::F32)?;
        let operands = self.operands([q, k, v])?;
        let arguments = [&operands[..], &[y.pointer(), logs.pointer()]].concat();
        // Numbers in shared memory: own rows, and two tiles.
        let numbers = (OWN + TILE) * shared_row(width) + TILE * shared_row(values);
        let distances = self.distances(None, None)?;
        let size = (values.div_ceil(WIDE), numbers);
        self.launch("forward", Side::Queries, size, &arguments, distances, 0)?;
        let relative = self.relative.clone();
        let tables = relative.as_ref().map(|relative| {
            [&relative.of_heads, &relative.of_queries, &relative.of_keys].map(Option::as_ref)
        });
        let mut operands = vec![q, k, v];
        operands.extend(tables.iter().flatten().flatten());
        let tracked = tables
            .unwrap_or_default()
            .map(|table| table.map(Tensor::track_op));
        let call = Call {
            relative: self.relative.as_ref().map(|relative| RelativeScores {
                of_heads: relative.of_heads.as_ref().map(Tensor::detach),
                of_queries: relative.of_queries.as_ref().map(Tensor::detach),
                of_keys: relative.of_keys.as_ref().map(Tensor::detach),
                ..relative.clone()
            }),
            ..self
        };
        let kept = [q, k, v].map(Tensor::detach);
        let output = y.into_output();
        let y = with_backward("attention", &operands, output, true, move |y, dy| {
            call.backward(&kept, &logs, [y, dy], tracked)
        });
        Ok(y?)
    }

    /// Returns the gradients of q, k, v, and of the tables that there are.
    fn backward(
        &self,
        [q, k, v]: &[Tensor; 3],
        logs: &Buffer,
        [y, dy]: [&Tensor; 2],
        tracked: [Option<bool>; 3],
    ) -> candle_core::Result<Vec<Option<Tensor>>> {
        let Sizes {
            batch,
            heads,
            queries,
            keys,
            width,
            values,
        } = self.sizes;
        let gpu = &self.gpu;
        let columns = self.relative.as_ref().map_or(0, RelativeScores::columns);
        let placed = self.relative.as_ref().map_or(0, |of| of.keys.len());
        let blocks = self.side_blocks(Side::Queries);
        // Zeros where gradients of the table number `index` are wanted.
        let zeros = |index: usize, shape: [usize; 4]| {
            let wanted = tracked[index] == Some(true) && !shape.contains(&0);
            wanted.then(|| gpu.zeros(&shape[..])).transpose()
        };
        let of_heads = zeros(0, [batch, blocks, heads, columns])?;
        let of_queries = zeros(1, [batch, heads, queries, columns])?;
        let of_keys = zeros(2, [batch, heads, placed, columns])?;

        let operands = self.operands([q, k, v])?;
        let [.., of_y] = self.sizes.elements();
        let dq = self.rows((batch, queries, heads * width))?;
        let dots = gpu.empty((batch, heads, queries), DType::F32)?;
        let dy = gpu.floats(dy, of_y)?;
        let rest = [
            gpu.floats(y, of_y)?,
            logs.pointer(),
            dy,
            dq.pointer(),
            dots.pointer(),
        ];
        let arguments = [&operands[..], &rest].concat();
        let numbers = (OWN + TILE) * (shared_row(width) + shared_row(values));
        // Gradients of scores, as columns of own rows, for the heads' table.
        let of_table = of_heads.as_ref().map_or(0, |_| TILE * (OWN + 4));
        let slices = [width, values].map(|width| width.div_ceil(WIDE));
        let distances = self.distances(of_heads.as_ref(), of_queries.as_ref())?;
        let (kernel, size) = ("backward_queries", (slices[0], numbers + of_table));
        self.launch(kernel, Side::Queries, size, &arguments, distances, 0)?;

        let sums = self.blocks.as_ref().and_then(|blocks| blocks.tables.sums);
        let rows = sums.map_or(keys, |sums| sums.rows);
        let dk = self.rows((batch, rows, heads * width))?;
        let dv = self.rows((batch, rows, heads * values))?;
        let rest = [
            logs.pointer(),
            dots.pointer(),
            dy,
            dk.pointer(),
            dv.pointer(),
        ];
        let arguments = [&operands[..], &rest].concat();
        let distances = self.distances(None, of_keys.as_ref())?;
        let (kernel, size) = ("backward_keys", (slices[0] + slices[1], numbers));
        self.launch(kernel, Side::Keys, size, &arguments, distances, rows)?;

        let dk = self.sum_rows(dk, width)?;
        let dv = self.sum_rows(dv, values)?;
        let mut all = vec![Some(dq.into_tensor()), Some(dk), Some(dv)];
        let of_heads = match of_heads {
            Some(parts) => Some(sum_parts(gpu, &parts, batch * blocks, (heads, columns))?),
            None => None,
        };
        let of_tables = [
            of_heads,
            of_queries.map(Buffer::into_tensor),
            of_keys.map(Buffer::into_tensor),
        ];
        let given = of_tables.into_iter().zip(tracked);
        all.extend(given.filter_map(|(gradient, tracked)| tracked.map(|_| gradient)));
        Ok(all)
    }

    /// Returns the gradient (B, Lk, H W) of keys or values from the rows of all blocks.
    fn sum_rows(&self, parts: Buffer, width: usize) -> candle_core::Result<Tensor> {
        let Some((blocks, sums)) = self
            .blocks
            .as_ref()
            .and_then(|blocks| Some((blocks, blocks.tables.sums?)))
        else {
            return Ok(parts.into_tensor());
        };
        let Sizes {
            batch, heads, keys, ..
        } = self.sizes;
        let sum = self.gpu.empty((batch, keys, heads * width), DType::F32)?;
        let sizes = [
            sums.starts,
            sums.slots,
            blocks.tables.masks,
            heads,
            width,
            keys,
            sums.rows,
        ];
        let lists = blocks.pointer(&self.gpu)?;
        let mut arguments = vec![parts.pointer(), sum.pointer(), lists];
        for size in sizes {
            arguments.push(Argument::size(size)?);
        }
        let blocks = [(keys * width).div_ceil(SUM_THREADS), batch * heads, 1];
        let grid = Grid::new(blocks, SUM_THREADS);
        self.gpu
            .launch(&MODULE, "attention_sum_rows", grid, &arguments)?;
        Ok(sum.into_tensor())
    }
}
