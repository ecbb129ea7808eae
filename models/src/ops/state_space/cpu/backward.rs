//! The walk back, tile by tile, each forward once more for its states.

use lra_cpu::buffers::Shared;
use lra_cpu::scratch::Scratch;
use lra_cpu::simd::{Kernel, Lanes};

use super::TILE;
use super::task::{Mode, Pair, Task, add_product, add_read_out, advance, kept, retreat, settled};

pub(super) struct Backward<'a, const COMPLEX: bool> {
    pub(super) task: Task<'a>,
    pub(super) x: &'a [f32],
    pub(super) dy: &'a [f32],
    pub(super) states: &'a [f32],
    pub(super) dx: &'a Shared<'a>,
    /// Like the parameters, for each example.
    pub(super) gradients: &'a Shared<'a>,
}

/// Gradients of one mode: of the state before the rows walked so far, of a and of c.
type Sums<S> = [Pair<S>; 3];

impl<const COMPLEX: bool> Kernel for Backward<'_, COMPLEX> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let (task, zero) = (self.task, s.splat_f32s(0.0));
        let (modes, exclusive) = (task.modes, task.walk.exclusive);
        let parts = 1 + usize::from(COMPLEX);
        let mut scratch = Scratch::unspecified(6 * modes * S::F32_LANES);
        let (pairs, _) = scratch.registers::<S>().as_chunks_mut::<2>();
        let (sums, _) = pairs.as_chunks_mut::<3>();
        let (mut x, mut dy, mut dx) = ([zero; TILE], [zero; TILE], [zero; TILE]);
        let mut states = [[zero; 2]; TILE + 1];
        for (first, count) in task.lanes(S::F32_LANES) {
            let skip = task.parameter(s, task.skip_row(parts), first, count);
            sums.fill([[zero; 2]; 3]);
            let mut dskip = zero;
            for (tile, start) in (0..task.length).step_by(TILE).enumerate().rev() {
                let rows = TILE.min(task.length - start);
                for step in 0..rows {
                    let at = task.row(start + step) + first;
                    dy[step] = s.load(&self.dy[at..at + count]);
                    x[step] = match task.is_valid(start + step) {
                        true => s.load(&self.x[at..at + count]),
                        false => zero,
                    };
                    dx[step] = match task.index {
                        0 => s.mul_f32s(skip, dy[step]),
                        // SAFETY: the channels of an example belong to one task, whose first walk
                        // has written them.
                        _ => s.load(unsafe { self.dx.slice(at, count) }),
                    };
                    dskip = s.fma(dy[step], x[step], dskip);
                }
                for (mode, sums) in sums.iter_mut().enumerate() {
                    let at = kept::<COMPLEX>(tile, modes, mode, first - task.first);
                    let state = |at: usize| &self.states[at..][..S::F32_LANES];
                    states[0] = at.map(|at| s.load(state(at)));
                    let tile = Tile::<S> {
                        x: &x[..rows],
                        dy: &dy[..rows],
                        dx: &mut dx[..rows],
                        states: &mut states[..=rows],
                    };
                    let mode = task.mode::<S, COMPLEX>(s, mode, first, count);
                    walk_back::<S, COMPLEX>(s, exclusive, mode, sums, tile);
                }
                for (step, dx) in dx[..rows].iter().enumerate() {
                    let at = task.row(start + step) + first;
                    let dx = if task.is_valid(start + step) {
                        *dx
                    } else {
                        zero
                    };
                    // SAFETY: as above.
                    s.store(unsafe { self.dx.slice(at, count) }, dx);
                }
            }
            let width = task.sizes.width;
            let store = |row: usize, gradient: S::f32s| {
                let at = task.example * task.parameters.len() + row * width + first;
                // SAFETY: as above.
                s.store(unsafe { self.gradients.slice(at, count) }, gradient);
            };
            for (mode, [_, da, dc]) in sums.iter().enumerate() {
                for part in 0..parts {
                    let before = task.index * 2 * parts;
                    store((before + part) * modes + mode, da[part]);
                    store((before + parts + part) * modes + mode, dc[part]);
                }
            }
            if task.index == 0 {
                store(task.skip_row(parts), dskip);
            }
        }
    }
}

/// Rows of a tile, and the states of one mode before each of them and behind the last; the first is
/// given.
struct Tile<'a, S: Lanes> {
    x: &'a [S::f32s],
    dy: &'a [S::f32s],
    dx: &'a mut [S::f32s],
    states: &'a mut [Pair<S>],
}

/// Takes one mode through the rows of a tile, forward for its states and then back.
#[inline(always)]
fn walk_back<S: Lanes, const COMPLEX: bool>(
    s: S,
    exclusive: bool,
    mode: Mode<S>,
    sums: &mut Sums<S>,
    tile: Tile<S>,
) {
    let Tile { x, dy, dx, states } = tile;
    let mut h = states[0];
    for (x, state) in x.iter().zip(&mut states[1..]) {
        h = advance::<S, COMPLEX>(s, mode.a, h, *x);
        *state = h;
    }
    let [mut r, mut da, mut dc] = *sums;
    let rows = states.windows(2).zip(dy).zip(dx).rev();
    for ((states, dy), dx) in rows {
        // `r` is the gradient of the state behind the next row (with `exclusive`: behind this row).
        let read = states[usize::from(!exclusive)];
        dc = add_read_out::<S, COMPLEX>(s, *dy, read, dc);
        if !exclusive {
            r = retreat::<S, COMPLEX>(s, mode, r, *dy);
        }
        da = add_product::<S, COMPLEX>(s, r, states[0], da);
        *dx = s.add_f32s(*dx, r[0]);
        if exclusive {
            r = retreat::<S, COMPLEX>(s, mode, r, *dy);
        }
    }
    let r = settled(s, r);
    *sums = [r, da, dc];
}
