//! The scan in main memory, in f32 and f64: sequences side by side, blocks and positions one after
//! the other.
//!
//! The loops are plain, and compiled for each instruction set. With G_t = c̄_t dy_t + ā_(t+1)
//! G_(t+1) the gradient of S_t as a whole, real part and imaginary part as in [`crate::ops::complex`]:
//! da = Σ G S̄_(t-1) and dc̄ = Σ S dy over channels, db = Σ G v, dβ = Σ_t G v, dv = Re Σ_n Ḡ (b + β).

use candle_core::{Result, Shape, Tensor, WithDType};
use lra_cpu::isa::Isa;
use lra_cpu::simd::{Kernel, Lanes};
use lra_cpu::workspaces::Workspaces;
use rayon::prelude::*;

use crate::autograd::{BackwardPass, CustomOp, Gradient, View, apply};
use crate::ops::dplr_scan::cpu::{add, dot};

/// Positions between two that keep a state.
const CHUNK: usize = 32;

/// Returns y (B, L, J, P) of a, b, β, c and v.
///
/// # Errors
/// If a tensor is not in main memory or of another type.
pub(crate) fn block_scan<T: WithDType>(operands: [&Tensor; 5]) -> Result<Tensor> {
    apply::<_, 5, T>(Scan, operands)
}

struct Scan;

/// Operands of the scan, and its sizes.
struct Operands<'a, T> {
    batch: usize,
    length: usize,
    blocks: usize,
    /// N.
    states: usize,
    /// P.
    width: usize,
    a: &'a [T],
    b: &'a [T],
    bias: &'a [T],
    c: &'a [T],
    v: &'a [T],
}

impl<'a, T: WithDType> Operands<'a, T> {
    fn new([a, b, bias, c, v]: &[View<'a, T>; 5]) -> Result<Self> {
        let ((batch, length, blocks, row), width) = (a.shape.dims4()?, v.shape.dims4()?.3);
        Ok(Self {
            batch,
            length,
            blocks,
            states: row / 2,
            width,
            a: a.data,
            b: b.data,
            bias: bias.data,
            c: c.data,
            v: v.data,
        })
    }

    fn is_empty(&self) -> bool {
        self.batch * self.length * self.blocks * self.width == 0
    }

    /// Returns the numbers of a block's states, (2 N, P).
    fn state(&self) -> usize {
        2 * self.states * self.width
    }

    /// Returns the number of states that a block of a sequence keeps.
    fn chunks(&self) -> usize {
        self.length.div_ceil(CHUNK)
    }

    /// Returns the row of a sequence, position and block.
    #[inline(always)]
    fn row(&self, sequence: usize, t: usize, block: usize) -> usize {
        (sequence * self.length + t) * self.blocks + block
    }

    /// Returns real and imaginary parts of a, b and c of a row.
    #[inline(always)]
    fn of_states(&self, row: usize) -> [(&'a [T], &'a [T]); 3] {
        let twice = 2 * self.states;
        [self.a, self.b, self.c].map(|x| x[row * twice..][..twice].split_at(self.states))
    }

    #[inline(always)]
    fn of_values(&self, row: usize) -> &'a [T] {
        &self.v[row * self.width..][..self.width]
    }

    /// Returns β of a block, (2 N, P).
    #[inline(always)]
    fn bias(&self, block: usize) -> &'a [T] {
        &self.bias[block * self.state()..][..self.state()]
    }

    /// Moves `state` on by a position.
    #[inline(always)]
    fn advance(&self, row: usize, block: usize, state: &mut [T]) {
        let [(a_re, a_im), (b_re, b_im), _] = self.of_states(row);
        let (v, half) = (self.of_values(row), self.state() / 2);
        let (re, im) = state.split_at_mut(half);
        let (bias_re, bias_im) = self.bias(block).split_at(half);
        for n in 0..self.states {
            let line = n * self.width..(n + 1) * self.width;
            let (re, im) = (&mut re[line.clone()], &mut im[line.clone()]);
            let (bias_re, bias_im) = (&bias_re[line.clone()], &bias_im[line]);
            for j in 0..self.width {
                let (x, y) = (re[j], im[j]);
                re[j] = (a_re[n] * x - a_im[n] * y) + (b_re[n] + bias_re[j]) * v[j];
                im[j] = (a_re[n] * y + a_im[n] * x) + (b_im[n] + bias_im[j]) * v[j];
            }
        }
    }
}

impl<T: WithDType> CustomOp<5, T> for Scan {
    const NAME: &'static str = "block scan";
    /// The states before each chunk (B, J, L / 32, 2 N, P).
    type Saved = Vec<T>;

    fn forward(&self, operands: [View<T>; 5], _: bool) -> Result<(Vec<T>, Shape, Vec<T>)> {
        let of = Operands::new(&operands)?;
        let row = of.blocks * of.width;
        let mut y = vec![T::zero(); of.batch * of.length * row];
        let kept_of_one = of.blocks * of.chunks() * of.state();
        let mut kept = vec![T::zero(); of.batch * kept_of_one];
        if !of.is_empty() {
            let isa = Isa::current();
            let y = y.par_chunks_mut(of.length * row).enumerate();
            let workspaces = Workspaces::new(of.batch, || vec![T::zero(); of.state()]);
            y.zip(kept.par_chunks_mut(kept_of_one))
                .for_each(|((sequence, y), kept)| {
                    workspaces.lend(|state| {
                        isa.run(Forward {
                            of: &of,
                            sequence,
                            y,
                            kept,
                            state,
                        });
                    });
                });
        }
        let shape = (of.batch, of.length, of.blocks, of.width);
        Ok((y, shape.into(), kept))
    }

    fn backward(
        &self,
        operands: [View<T>; 5],
        pass: BackwardPass<Vec<T>, 5, T>,
    ) -> Result<[Gradient<T>; 5]> {
        let of = Operands::new(&operands)?;
        let (row, width) = (2 * of.states * of.blocks, of.width * of.blocks);
        // Gradients of a, b and c side by side, that of v, and those of β by sequence.
        let mut of_states = vec![T::zero(); of.batch * of.length * 3 * row];
        let mut dv = vec![T::zero(); of.batch * of.length * width];
        let bias = of.blocks * of.state();
        let mut biases = vec![T::zero(); of.batch * bias];
        if !of.is_empty() {
            let isa = Isa::current();
            let of_states = of_states.par_chunks_mut(of.length * 3 * row).enumerate();
            let workspaces = Workspaces::new(of.batch, || Scratch::new(&of));
            of_states
                .zip(dv.par_chunks_mut(of.length * width))
                .zip(biases.par_chunks_mut(bias))
                .for_each(|(((sequence, of_states), dv), bias)| {
                    let task = Backward {
                        of: &of,
                        sequence,
                        kept: &pass.saved,
                        dy: pass.dy,
                        of_states,
                        dv,
                        bias,
                    };
                    workspaces.lend(|scratch| isa.run(Gradients { task, scratch }));
                });
        }
        let twice = 2 * of.states;
        let part = |at: usize| -> Gradient<T> {
            let rows = of_states.chunks_exact((3 * twice).max(1));
            let rows = rows.flat_map(|row| &row[at * twice..][..twice]);
            rows.copied().collect::<Vec<T>>().into()
        };
        let mut dbias = vec![T::zero(); bias];
        for one in biases.chunks_exact(bias.max(1)) {
            add(&mut dbias, T::one(), one);
        }
        Ok([part(0), part(1), dbias.into(), part(2), dv.into()])
    }
}

/// The outputs of one sequence.
struct Forward<'a, T> {
    of: &'a Operands<'a, T>,
    sequence: usize,
    /// (L, J, P).
    y: &'a mut [T],
    /// (J, L / 32, 2 N, P).
    kept: &'a mut [T],
    /// Working memory (2 N, P).
    state: &'a mut [T],
}

impl<T: WithDType> Kernel for Forward<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, _: S) {
        let (of, size, state) = (self.of, self.of.state(), self.state);
        for block in 0..of.blocks {
            state.fill(T::zero());
            for t in 0..of.length {
                if t % CHUNK == 0 {
                    let place = block * of.chunks() + t / CHUNK;
                    self.kept[place * size..][..size].copy_from_slice(state);
                }
                let row = of.row(self.sequence, t, block);
                of.advance(row, block, state);
                let y = &mut self.y[(t * of.blocks + block) * of.width..][..of.width];
                let [_, _, (c_re, c_im)] = of.of_states(row);
                let (re, im) = state.split_at(size / 2);
                let lines = re.chunks_exact(of.width).zip(im.chunks_exact(of.width));
                for (n, (re, im)) in lines.enumerate() {
                    add(y, c_re[n], re);
                    add(y, T::zero() - c_im[n], im);
                }
            }
        }
    }
}

/// The gradients of one sequence.
struct Backward<'a, T> {
    of: &'a Operands<'a, T>,
    sequence: usize,
    kept: &'a [T],
    dy: &'a [T],
    /// (L, J, 3, 2 N): those of a, b and c.
    of_states: &'a mut [T],
    /// (L, J, P).
    dv: &'a mut [T],
    /// (J, 2 N, P).
    bias: &'a mut [T],
}

/// Working memory of a backward pass.
struct Scratch<T> {
    /// States before and behind each position of a chunk (33, 2 N, P).
    states: Vec<T>,
    /// Gradient of the state at hand (2 N, P).
    gradient: Vec<T>,
}

impl<T: WithDType> Scratch<T> {
    fn new(of: &Operands<T>) -> Self {
        Self {
            states: vec![T::zero(); (CHUNK + 1) * of.state()],
            gradient: vec![T::zero(); of.state()],
        }
    }
}

/// The gradients of one sequence, and the memory to compute them in.
struct Gradients<'a, T> {
    task: Backward<'a, T>,
    scratch: &'a mut Scratch<T>,
}

impl<T: WithDType> Kernel for Gradients<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, _: S) {
        let Self { mut task, scratch } = self;
        let Scratch { states, gradient } = scratch;
        let (of, size, sequence) = (task.of, task.of.state(), task.sequence);
        for block in 0..of.blocks {
            gradient.fill(T::zero());
            for chunk in (0..of.chunks()).rev() {
                let rows = chunk * CHUNK..of.length.min((chunk + 1) * CHUNK);
                let place = (sequence * of.blocks + block) * of.chunks() + chunk;
                states[..size].copy_from_slice(&task.kept[place * size..][..size]);
                for (local, t) in rows.clone().enumerate() {
                    let both = &mut states[local * size..][..2 * size];
                    let (before, behind) = both.split_at_mut(size);
                    behind.copy_from_slice(before);
                    of.advance(of.row(sequence, t, block), block, behind);
                }
                for t in rows.rev() {
                    let both = &states[t % CHUNK * size..][..2 * size];
                    task.step(block, t, both, gradient);
                }
            }
        }
    }
}

impl<T: WithDType> Backward<'_, T> {
    /// Moves the gradient of the state from behind position t to before it; `states` are those
    /// before and behind it.
    #[inline(always)]
    fn step(&mut self, block: usize, t: usize, states: &[T], gradient: &mut [T]) {
        let of = self.of;
        let (width, count, half) = (of.width, of.states, of.state() / 2);
        let row = of.row(self.sequence, t, block);
        let [(a_re, a_im), (b_re, b_im), (c_re, c_im)] = of.of_states(row);
        let (v, dy) = (of.of_values(row), &self.dy[row * width..][..width]);
        let (before, behind) = states.split_at(2 * half);
        let own = t * of.blocks + block;
        let sums = &mut self.of_states[own * 6 * count..][..6 * count];
        let dv = &mut self.dv[own * width..][..width];
        let dbias = &mut self.bias[block * of.state()..][..2 * half];
        let bias = of.bias(block);
        let (g_re, g_im) = gradient.split_at_mut(half);
        let minus = |x: T| T::zero() - x;
        for n in 0..count {
            let (re, im) = (
                n * width..(n + 1) * width,
                n * width + half..(n + 1) * width + half,
            );
            let (g_re, g_im) = (&mut g_re[re.clone()], &mut g_im[re.clone()]);
            add(g_re, c_re[n], dy);
            add(g_im, minus(c_im[n]), dy);
            let (s_re, s_im) = (&before[re.clone()], &before[im.clone()]);
            sums[n] = dot(g_re, s_re) + dot(g_im, s_im);
            sums[count + n] = dot(g_im, s_re) - dot(g_re, s_im);
            sums[2 * count + n] = dot(g_re, v);
            sums[3 * count + n] = dot(g_im, v);
            sums[4 * count + n] = dot(&behind[re.clone()], dy);
            sums[5 * count + n] = minus(dot(&behind[im.clone()], dy));
            for j in 0..width {
                let (x, y) = (g_re[j], g_im[j]);
                dv[j] += x * (b_re[n] + bias[re.start + j]) + y * (b_im[n] + bias[im.start + j]);
                dbias[re.start + j] += x * v[j];
                dbias[im.start + j] += y * v[j];
                g_re[j] = a_re[n] * x + a_im[n] * y;
                g_im[j] = a_re[n] * y - a_im[n] * x;
            }
        }
    }
}
