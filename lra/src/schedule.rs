//! Learning-rate schedules: pure functions from the number of updates already made to a rate.

use serde::{Deserialize, Serialize};

/// Course of the learning rate over a run. `s` counts the updates already made, `w` is the warm-up,
/// and `n` is the planned length of the schedule: `train.schedule_steps`, or the length of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Schedule {
    /// `min(1, s/w)`.
    Constant,
    /// `min(1, s/w) / √max(s, w)`: the 2021 text tasks. The peak is `rate / √w`, not `rate`.
    Rsqrt,
    /// `min(1, s/w) · ½(1 + cos(π (s-w)/(n-w)))`: zero at `n`. Past `n` it rises to the full rate
    /// at `2n - w`, and falls to zero again at `3n - 2w`, as in Hugging Face's
    /// `get_cosine_schedule_with_warmup`.
    Cosine,
    /// `min(1, s/w) · ½(1 + cos(π frac((s-w)/n)))`: the 2021 image tasks, whose cycle is the whole
    /// run, so that it never quite ends.
    CosineCycle,
    /// `min(1, s/w) · (n-s)/(n-w)`: linearly down to zero, where it stays.
    Linear,
    /// One linear cycle: from 1/25 up to 1 at `s = w - 1`, then down to 1/250,000 at the last
    /// update.
    OneCycle,
}

impl Schedule {
    /// Returns whether the rate depends on the length that the schedule is planned for.
    pub fn has_length(self) -> bool {
        !matches!(self, Schedule::Constant | Schedule::Rsqrt)
    }

    /// Returns whether a schedule of so many updates reaches its highest rate: whether the warm-up
    /// ends before it. The last update of a warm-up of `one_cycle` has the highest rate.
    pub fn outlasts(self, warmup: usize, steps: usize) -> bool {
        match self {
            Schedule::OneCycle => warmup <= steps,
            _ => warmup < steps,
        }
    }

    /// Returns the rate of the update made after `done` others, for a base rate of `rate`. `steps`
    /// is the planned length.
    pub fn rate(self, rate: f64, done: usize, warmup: usize, steps: usize) -> f64 {
        let (s, w, n) = (done as f64, warmup as f64, steps as f64);
        let warm = if warmup == 0 { 1.0 } else { (s / w).min(1.0) };
        let after = (s - w).max(0.0);
        rate * match self {
            Schedule::Constant => warm,
            Schedule::Rsqrt => warm / s.max(w).max(1.0).sqrt(),
            Schedule::Cosine => warm * half_cosine(after / (n - w).max(1.0)),
            Schedule::CosineCycle => warm * half_cosine((after / n.max(1.0)).fract()),
            Schedule::Linear => warm * (1.0 - after / (n - w).max(1.0)).max(0.0),
            Schedule::OneCycle => one_cycle(s, w, n),
        }
    }
}

fn half_cosine(share: f64) -> f64 {
    0.5 * (1.0 + (std::f64::consts::PI * share).cos())
}

fn one_cycle(s: f64, w: f64, n: f64) -> f64 {
    const START: f64 = 1.0 / 25.0;
    cycle(s, w, n, [START, 1.0, START / 1e4])
}

/// Returns β1 of the update made after `done` others, in a cycle of `steps` with `warmup` updates
/// up to the highest rate: linearly from 0.95 to 0.85, and back (PyTorch's `OneCycleLR` with
/// `cycle_momentum`, its default).
pub fn cycled_momentum(done: usize, warmup: usize, steps: usize) -> f64 {
    cycle(done as f64, warmup as f64, steps as f64, [0.95, 0.85, 0.95])
}

/// Returns the value after `s` updates: linear from `start` to `middle` and on to `end`. The middle is
/// at update w - 1 and the end at n - 1, as both sides are counted in updates.
fn cycle(s: f64, w: f64, n: f64, [start, middle, end]: [f64; 3]) -> f64 {
    let (peak, last) = ((w - 1.0).max(0.0), (n - 1.0).max(1.0));
    if s < peak {
        start + (middle - start) * s / peak
    } else {
        middle + (end - middle) * ((s - peak) / (last - peak).max(1.0)).min(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(left: f64, right: f64, relative: f64) {
        assert!(
            (left - right).abs() <= relative * right.abs().max(1e-12),
            "{left} is not {right}"
        );
    }

    /// PyTorch 2.15: OneCycleLR(max_lr=1e-4, pct_start=0.2, anneal_strategy='linear',
    /// total_steps=5000) around AdamW.
    #[test]
    fn momentum_cycles_as_in_pytorch() {
        for (done, beta1) in [(0, 0.95), (999, 0.85), (3000, 0.900_024_99), (4999, 0.95)] {
            close(cycled_momentum(done, 1000, 5000), beta1, 1e-7);
        }
    }

    #[test]
    fn the_published_listops_rates() {
        let rate = |s| Schedule::Rsqrt.rate(0.05, s, 1000, 5000);
        assert_eq!(rate(0), 0.0);
        close(rate(500), 7.91e-4, 1e-3);
        close(rate(1000), 1.58e-3, 2e-3);
        close(rate(4000), 7.91e-4, 1e-3);
    }

    #[test]
    fn the_published_text_peak_and_end() {
        close(
            Schedule::Rsqrt.rate(0.05, 8000, 8000, 20_000),
            5.59e-4,
            1e-3,
        );
        close(
            Schedule::Rsqrt.rate(0.05, 20_000, 8000, 20_000),
            3.54e-4,
            2e-3,
        );
    }

    #[test]
    fn every_schedule_is_finite_and_bounded_by_the_base_rate() {
        use Schedule::*;
        for schedule in [Constant, Rsqrt, Cosine, CosineCycle, Linear, OneCycle] {
            for (warmup, steps) in [(0, 1), (1, 1), (0, 10), (3, 10), (10, 10), (20, 10)] {
                for done in 0..=steps {
                    let rate = schedule.rate(2.0, done, warmup, steps);
                    assert!(
                        (0.0..=2.0).contains(&rate),
                        "{schedule:?} {warmup} {steps} {done}: {rate}"
                    );
                }
            }
        }
    }

    /// Liquid-S4 trains 156,250 updates by a cosine that is planned for 50,000.
    #[test]
    fn a_cosine_rises_again_past_its_planned_length() {
        let (base, warmup, planned) = (0.003, 1000, 50_000);
        let rate = |done| Schedule::Cosine.rate(base, done, warmup, planned);
        close(rate(500), base / 2.0, 1e-12);
        close(rate(1000), base, 1e-12);
        close(rate(25_500), base / 2.0, 1e-12);
        assert!(rate(50_000) < 1e-12);
        close(rate(74_500), base / 2.0, 1e-12);
        close(rate(99_000), base, 1e-12);
        assert!(rate(148_000) < 1e-12);
        for done in (warmup..156_250).step_by(625) {
            let share = (done - warmup) as f64 / (planned - warmup) as f64;
            // ½(1 + cos(πx)) = cos²(πx/2)
            let wanted = base * (std::f64::consts::FRAC_PI_2 * share).cos().powi(2);
            assert!((rate(done) - wanted).abs() < 1e-12, "{done}");
        }
        for schedule in [Schedule::Linear, Schedule::OneCycle] {
            let end = schedule.rate(base, 50_000, warmup, planned);
            let past = schedule.rate(base, 156_249, warmup, planned);
            assert!(past <= end && past < 1e-5 * base, "{schedule:?}");
        }
    }

    #[test]
    fn decays_end_at_zero_and_peaks_reach_the_base_rate() {
        close(Schedule::Cosine.rate(1.0, 100, 100, 1000), 1.0, 1e-12);
        assert!(Schedule::Cosine.rate(1.0, 1000, 100, 1000) < 1e-12);
        assert!(Schedule::Linear.rate(1.0, 1000, 100, 1000) < 1e-12);
        close(Schedule::OneCycle.rate(1.0, 99, 100, 1000), 1.0, 1e-12);
        close(Schedule::OneCycle.rate(1.0, 0, 100, 1000), 0.04, 1e-12);
        close(Schedule::OneCycle.rate(1.0, 999, 100, 1000), 4e-6, 1e-9);
    }

    /// The formulas of the variants at every border, for a base rate of 1, a warm-up of 4 updates
    /// and a planned length of 10.
    #[test]
    fn every_schedule_has_the_value_of_its_formula_at_every_border() {
        use Schedule::*;
        // Updates made: 0, 1, 3, 4, 5, 7, 9, 10, 14, 16.
        const DONE: [usize; 10] = [0, 1, 3, 4, 5, 7, 9, 10, 14, 16];
        let sqrt = f64::sqrt;
        let sine = 0.75f64.sqrt(); // cos(π/6)
        let tenths = |share: f64| (std::f64::consts::PI * share / 10.0).cos();
        let half = |cos: f64| 0.5 * (1.0 + cos);
        let (start, end) = (0.04, 4e-6);
        for (schedule, wanted) in [
            (
                Constant,
                [0.0, 0.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0],
            ),
            (
                Rsqrt,
                [
                    0.0,
                    0.125,
                    0.375,
                    0.5,
                    1.0 / sqrt(5.0),
                    1.0 / sqrt(7.0),
                    1.0 / 3.0,
                    1.0 / sqrt(10.0),
                    1.0 / sqrt(14.0),
                    0.25,
                ],
            ),
            (
                Cosine,
                [
                    0.0,
                    0.25,
                    0.75,
                    1.0,
                    half(sine),
                    0.5,
                    half(-sine),
                    0.0,
                    half(0.5),
                    1.0,
                ],
            ),
            (
                CosineCycle,
                [
                    0.0,
                    0.25,
                    0.75,
                    1.0,
                    half(tenths(1.0)),
                    half(tenths(3.0)),
                    0.5,
                    half(tenths(6.0)),
                    1.0,
                    half(tenths(2.0)),
                ],
            ),
            (
                Linear,
                [
                    0.0,
                    0.25,
                    0.75,
                    1.0,
                    5.0 / 6.0,
                    0.5,
                    1.0 / 6.0,
                    0.0,
                    0.0,
                    0.0,
                ],
            ),
            (
                OneCycle,
                [
                    start,
                    start + 0.96 / 3.0,
                    1.0,
                    1.0 + (end - 1.0) / 6.0,
                    1.0 + (end - 1.0) / 3.0,
                    1.0 + (end - 1.0) * 4.0 / 6.0,
                    end,
                    end,
                    end,
                    end,
                ],
            ),
        ] {
            for (done, wanted) in DONE.into_iter().zip(wanted) {
                let found = schedule.rate(1.0, done, 4, 10);
                assert!(
                    (found - wanted).abs() < 1e-12,
                    "{schedule:?} {done}: {found}, not {wanted}"
                );
                let double = schedule.rate(2.0, done, 4, 10);
                assert!((double - 2.0 * wanted).abs() < 1e-12, "{schedule:?} {done}");
            }
        }
        for schedule in [Constant, Rsqrt, Cosine, CosineCycle, Linear] {
            assert_eq!(
                schedule.rate(1.0, 0, 0, 10),
                1.0,
                "{schedule:?} without a warm-up"
            );
        }
    }
}
