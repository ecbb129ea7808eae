//! The walk from the first row to the last.

use lra_cpu::buffers::Shared;
use lra_cpu::scratch::Scratch;
use lra_cpu::simd::{Kernel, Lanes};

use super::TILE;
use super::task::{Mode, Pair, Task, advance, kept, read_out, settled};

/// Modes that are walked together, as many as registers hold.
const UNROLL: usize = 2;

pub(super) struct Forward<'a, const COMPLEX: bool> {
    pub(super) task: Task<'a>,
    pub(super) x: &'a [f32],
    pub(super) y: &'a Shared<'a>,
    /// Kept states; empty if none are kept.
    pub(super) states: &'a mut [f32],
}

impl<const COMPLEX: bool> Kernel for Forward<'_, COMPLEX> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let (task, zero) = (self.task, s.splat_f32s(0.0));
        let (modes, parts) = (task.modes, 1 + usize::from(COMPLEX));
        let mut scratch = Scratch::unspecified(2 * modes * S::F32_LANES);
        let (states, _) = scratch.registers::<S>().as_chunks_mut::<2>();
        let (mut x, mut y) = ([zero; TILE], [zero; TILE]);
        for (first, count) in task.lanes(S::F32_LANES) {
            let skip = task.parameter(s, task.skip_row(parts), first, count);
            states.fill([zero; 2]);
            for (tile, start) in (0..task.length).step_by(TILE).enumerate() {
                let rows = TILE.min(task.length - start);
                for step in 0..rows {
                    let at = task.row(start + step) + first;
                    x[step] = match task.is_valid(start + step) {
                        true => s.load(&self.x[at..at + count]),
                        false => zero,
                    };
                    y[step] = match task.index {
                        0 => s.mul_f32s(skip, x[step]),
                        // SAFETY: the channels of an example belong to one task, whose first walk
                        // has written them.
                        _ => s.load(unsafe { self.y.slice(at, count) }),
                    };
                }
                if !self.states.is_empty() {
                    for (mode, state) in states.iter().enumerate() {
                        let at = kept::<COMPLEX>(tile, modes, mode, first - task.first);
                        for part in 0..parts {
                            let to = &mut self.states[at[part]..][..S::F32_LANES];
                            s.store(to, state[part]);
                        }
                    }
                }
                let (x, y) = (&x[..rows], &mut y[..rows]);
                let mut mode = 0;
                while mode + UNROLL <= modes {
                    let all = [
                        task.mode::<S, COMPLEX>(s, mode, first, count),
                        task.mode::<S, COMPLEX>(s, mode + 1, first, count),
                    ];
                    let h = [states[mode], states[mode + 1]];
                    let h = walk::<S, COMPLEX, UNROLL>(s, task.walk.exclusive, all, h, x, y);
                    states[mode] = settled(s, h[0]);
                    states[mode + 1] = settled(s, h[1]);
                    mode += UNROLL;
                }
                while mode < modes {
                    let one = [task.mode::<S, COMPLEX>(s, mode, first, count)];
                    let h = [states[mode]];
                    let h = walk::<S, COMPLEX, 1>(s, task.walk.exclusive, one, h, x, y);
                    states[mode] = settled(s, h[0]);
                    mode += 1;
                }
                for (step, y) in y.iter().enumerate() {
                    let at = task.row(start + step) + first;
                    // SAFETY: the channels of an example belong to one task.
                    s.store(unsafe { self.y.slice(at, count) }, *y);
                }
            }
        }
    }
}

/// Adds the outputs of M modes to the rows of a tile, and returns the states behind it.
#[inline(always)]
fn walk<S: Lanes, const COMPLEX: bool, const M: usize>(
    s: S,
    exclusive: bool,
    modes: [Mode<S>; M],
    mut h: [Pair<S>; M],
    x: &[S::f32s],
    y: &mut [S::f32s],
) -> [Pair<S>; M] {
    for (x, y) in x.iter().zip(y) {
        for m in 0..M {
            let Mode { a, c } = modes[m];
            if exclusive {
                *y = read_out::<S, COMPLEX>(s, c, h[m], *y);
            }
            h[m] = advance::<S, COMPLEX>(s, a, h[m], *x);
            if !exclusive {
                *y = read_out::<S, COMPLEX>(s, c, h[m], *y);
            }
        }
    }
    h
}
