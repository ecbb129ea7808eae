//! Linear attention with decays of heads so narrow that a state is a few numbers: [`LANES`] heads
//! side by side in registers, one position after the other.
//!
//! States before each tile of [`TILE`] rows are kept for the backward pass, which forms those
//! within a tile again. With G_t = q_t dy_tᵀ + diag(a_(t+1)) G_(t+1) the gradient of S_t as a
//! whole: dq_t = S_t dy_t, dk_t = G_t v_t, dv_t = G_tᵀ k_t, and that of ln a_t the rows' sums of
//! G_t ⊙ diag(a_t) S_(t-1).

use lra_cpu::buffers::Shared;
use lra_cpu::math::exp;
use lra_cpu::scratch::Scratch;
use lra_cpu::simd::{Kernel, Lanes};

use super::Sizes;
use super::chunk::{Operands, Split};
use super::order::ScanOrder;

/// Heads of a task: a register of the widest kind.
pub(super) const LANES: usize = 16;
/// Rows between two states that are kept.
pub(super) const TILE: usize = 16;
/// Numbers of a state up to which heads are narrow.
const MOST: usize = 64;
/// Heads from which on registers are filled well enough.
const LEAST_HEADS: usize = 4;

impl Sizes {
    /// Returns whether heads are walked side by side.
    pub(super) fn are_narrow(self) -> bool {
        !self.delta && self.keys * self.values <= MOST && self.heads >= LEAST_HEADS
    }

    /// Returns the numbers of the states of [`LANES`] heads.
    pub(super) fn narrow_state(self) -> usize {
        self.keys * self.values * LANES
    }
}

/// Some heads of a sequence, from the walk's on.
#[derive(Clone, Copy)]
struct Group {
    order: ScanOrder,
    heads: usize,
}

impl Group {
    fn new(order: ScanOrder) -> Self {
        let heads = LANES.min(order.heads - order.head);
        Self { order, heads }
    }

    /// Copies the rows of `width` numbers of step `t`, a column for each head; zeros beyond the
    /// sequence.
    #[inline(always)]
    fn gather(&self, from: &[f32], t: usize, width: usize, to: &mut [f32]) {
        if t >= self.order.rows {
            to[..width * LANES].fill(0.0);
            return;
        }
        let rows = &from[self.order.place(t) * width..][..self.heads * width];
        for (head, row) in rows.chunks_exact(width).enumerate() {
            for (c, x) in row.iter().enumerate() {
                to[c * LANES + head] = *x;
            }
        }
    }

    /// Writes the rows of `width` numbers of step `t` from a column for each head; none beyond the
    /// sequence.
    #[inline(always)]
    fn scatter(&self, from: &[f32], t: usize, width: usize, to: &Shared) {
        if t >= self.order.rows {
            return;
        }
        let (at, count) = (self.order.place(t) * width, self.heads * width);
        // SAFETY: the rows of some heads of a sequence belong to one task.
        let rows = unsafe { to.slice(at, count) };
        for (head, row) in rows.chunks_exact_mut(width).enumerate() {
            for (c, x) in row.iter_mut().enumerate() {
                *x = from[c * LANES + head];
            }
        }
    }

    /// Fills the rows of `width` numbers of the first steps, which no query lies ahead of, with
    /// zeros.
    #[inline(always)]
    fn clear(&self, width: usize, to: &Shared) {
        for t in 0..self.order.ahead.min(self.order.rows) {
            // SAFETY: as above.
            unsafe { to.slice(self.order.place(t) * width, self.heads * width) }.fill(0.0);
        }
    }
}

/// Keys, values and decays of a step, a register's width for each number.
struct Step<'a> {
    k: &'a mut [f32],
    v: &'a mut [f32],
    /// a, one or K.
    decays: &'a mut [f32],
}

impl<'a> Step<'a> {
    fn len(sizes: Sizes) -> usize {
        (sizes.keys + sizes.values + sizes.decays.max(1)) * LANES
    }

    #[inline(always)]
    fn new(sizes: Sizes, space: &'a mut [f32]) -> Self {
        let mut split = Split(space);
        Self {
            k: split.off(sizes.keys * LANES),
            v: split.off(sizes.values * LANES),
            decays: split.off(sizes.decays.max(1) * LANES),
        }
    }

    #[inline(always)]
    fn load<S: Lanes>(&mut self, s: S, sizes: Sizes, group: &Group, operands: &Operands, t: usize) {
        group.gather(operands.k, t, sizes.keys, self.k);
        group.gather(operands.v, t, sizes.values, self.v);
        match sizes.decays {
            0 => self.decays.fill(1.0),
            decays => {
                group.gather(operands.log_decay, t, decays, self.decays);
                for x in S::as_mut_simd_f32s(self.decays).0 {
                    *x = exp(s, *x);
                }
            }
        }
    }

    /// Returns a of channel `c`, for the lanes from `lane` on.
    #[inline(always)]
    fn decay<S: Lanes>(&self, s: S, sizes: Sizes, c: usize, lane: usize) -> S::f32s {
        let c = if sizes.decays > 1 { c } else { 0 };
        s.load(&self.decays[c * LANES + lane..][..S::F32_LANES])
    }

    /// Writes the state after this step, `after`, of the one before it.
    #[inline(always)]
    fn advance<S: Lanes>(&self, s: S, sizes: Sizes, before: &[f32], after: &mut [f32]) {
        let Sizes { keys, values, .. } = sizes;
        for lane in (0..LANES).step_by(S::F32_LANES) {
            let at = |number: usize| number * LANES + lane..number * LANES + lane + S::F32_LANES;
            for c in 0..keys {
                let (k, a) = (s.load(&self.k[at(c)]), self.decay(s, sizes, c, lane));
                for e in 0..values {
                    let at = at(c * values + e);
                    let v = s.load(&self.v[e * LANES + lane..][..S::F32_LANES]);
                    let kept = s.mul_f32s(a, s.load(&before[at.clone()]));
                    s.store(&mut after[at], s.fma(k, v, kept));
                }
            }
        }
    }
}

/// Computes the outputs of some heads of a sequence.
pub(super) struct NarrowForward<'a> {
    pub(super) sizes: Sizes,
    pub(super) order: ScanOrder,
    pub(super) operands: Operands<'a>,
    pub(super) y: &'a Shared<'a>,
    /// The states of all walks that are kept, if any are.
    pub(super) states: Option<&'a Shared<'a>>,
}

impl Kernel for NarrowForward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let NarrowForward {
            sizes,
            order,
            operands,
            y,
            states,
        } = self;
        let Sizes { keys, values, .. } = sizes;
        let (group, len) = (Group::new(order), sizes.narrow_state());
        let mut space = Scratch::zeros(len + Step::len(sizes) + (keys + values) * LANES);
        let mut split = Split(&mut space);
        let state = split.off(len);
        let (q, out) = (split.off(keys * LANES), split.off(values * LANES));
        let mut step = Step::new(sizes, split.off(Step::len(sizes)));
        group.clear(values, y);
        for t in 0..order.rows {
            if let Some(states) = states.filter(|_| t % TILE == 0) {
                let at = (order.kept + t / TILE) * len;
                // SAFETY: the states of some heads of a sequence belong to one task.
                unsafe { states.slice(at, len) }.copy_from_slice(state);
            }
            step.load(s, sizes, &group, &operands, t);
            group.gather(operands.q, t + order.ahead, keys, q);
            for lane in (0..LANES).step_by(S::F32_LANES) {
                let at =
                    |number: usize| number * LANES + lane..number * LANES + lane + S::F32_LANES;
                for e in 0..values {
                    let v = s.load(&step.v[at(e)]);
                    let mut sum = s.splat_f32s(0.0);
                    for c in 0..keys {
                        let place = at(c * values + e);
                        let a = step.decay(s, sizes, c, lane);
                        let kept = s.mul_f32s(a, s.load(&state[place.clone()]));
                        let new = s.fma(s.load(&step.k[at(c)]), v, kept);
                        s.store(&mut state[place], new);
                        sum = s.fma(s.load(&q[at(c)]), new, sum);
                    }
                    s.store(&mut out[at(e)], sum);
                }
            }
            group.scatter(out, t + order.ahead, values, y);
        }
    }
}

/// Computes the gradients of some heads of a sequence.
pub(super) struct NarrowBackward<'a> {
    pub(super) sizes: Sizes,
    pub(super) order: ScanOrder,
    pub(super) operands: Operands<'a>,
    pub(super) dy: &'a [f32],
    /// The states of all walks that were kept.
    pub(super) states: &'a [f32],
    /// Of q, k, v, log decays and rates.
    pub(super) gradients: &'a [Shared<'a>; 5],
}

impl Kernel for NarrowBackward<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Lanes>(self, s: S) {
        let NarrowBackward {
            sizes,
            order,
            operands,
            ..
        } = self;
        let Sizes {
            keys,
            values,
            decays,
            ..
        } = sizes;
        let [dq_out, dk_out, dv_out, dlog_out, _] = self.gradients;
        let (group, len, of_step) = (Group::new(order), sizes.narrow_state(), Step::len(sizes));
        let gathered = (4 * keys + 2 * values) * LANES;
        let mut space = Scratch::zeros((TILE + 2) * len + TILE * of_step + gathered);
        let mut split = Split(&mut space);
        // States before each row of a tile and behind the last.
        let states = split.off((TILE + 1) * len);
        let gradient = split.off(len);
        let (q, dy) = (split.off(keys * LANES), split.off(values * LANES));
        let (dq, dk) = (split.off(keys * LANES), split.off(keys * LANES));
        let (dv, dlog) = (split.off(values * LANES), split.off(keys * LANES));
        let steps = split.0;
        group.clear(keys, dq_out);
        for tile in (0..order.rows.div_ceil(TILE)).rev() {
            let start = tile * TILE;
            let rows = TILE.min(order.rows - start);
            states[..len].copy_from_slice(&self.states[(order.kept + tile) * len..][..len]);
            for i in 0..rows {
                let (before, after) = states[i * len..].split_at_mut(len);
                let mut step = Step::new(sizes, &mut steps[i * of_step..][..of_step]);
                step.load(s, sizes, &group, &operands, start + i);
                step.advance(s, sizes, before, after);
            }
            for i in (0..rows).rev() {
                let t = start + i;
                let (before, after) = states[i * len..].split_at(len);
                let step = Step::new(sizes, &mut steps[i * of_step..][..of_step]);
                group.gather(operands.q, t + order.ahead, keys, q);
                group.gather(self.dy, t + order.ahead, values, dy);
                dv.fill(0.0);
                dlog.fill(0.0);
                for lane in (0..LANES).step_by(S::F32_LANES) {
                    let at =
                        |number: usize| number * LANES + lane..number * LANES + lane + S::F32_LANES;
                    for c in 0..keys {
                        let (q, k) = (s.load(&q[at(c)]), s.load(&step.k[at(c)]));
                        let a = step.decay(s, sizes, c, lane);
                        let zero = s.splat_f32s(0.0);
                        let (mut of_q, mut of_k, mut of_decay) = (zero, zero, zero);
                        for e in 0..values {
                            let place = at(c * values + e);
                            let (dy, v) = (s.load(&dy[at(e)]), s.load(&step.v[at(e)]));
                            let whole = s.fma(q, dy, s.load(&gradient[place.clone()]));
                            of_q = s.fma(s.load(&after[place.clone()]), dy, of_q);
                            of_k = s.fma(whole, v, of_k);
                            let dv = &mut dv[at(e)];
                            let sum = s.fma(whole, k, s.load(dv));
                            s.store(dv, sum);
                            let kept = s.mul_f32s(whole, a);
                            of_decay = s.fma(kept, s.load(&before[place.clone()]), of_decay);
                            s.store(&mut gradient[place], kept);
                        }
                        s.store(&mut dq[at(c)], of_q);
                        s.store(&mut dk[at(c)], of_k);
                        let dlog = &mut dlog[at(if decays > 1 { c } else { 0 })];
                        let sum = s.add_f32s(s.load(dlog), of_decay);
                        s.store(dlog, sum);
                    }
                }
                group.scatter(dq, t + order.ahead, keys, dq_out);
                group.scatter(dk, t, keys, dk_out);
                group.scatter(dv, t, values, dv_out);
                if decays > 0 {
                    group.scatter(dlog, t, decays, dlog_out);
                }
            }
        }
    }
}
