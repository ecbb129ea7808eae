//! Extrapolation of the time and memory of a step from shorter lengths, to skip lengths that cannot
//! fit.

use results::bench::Outcome;

use crate::estimate::extrapolate::{Point, power_law};
use crate::timing::human_duration;

/// A measured cell.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Tokens per example.
    pub length: usize,
    /// Seconds per step.
    pub seconds: f64,
    /// High-water mark of memory in bytes.
    pub peak_bytes: f64,
    /// FLOPs per step, by formula.
    pub flops: f64,
}

/// Limits of one measurement.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most live heap bytes.
    pub memory: usize,
    /// Most time of one process.
    pub time: std::time::Duration,
    /// Fewest steps that a process makes.
    pub steps: usize,
}

impl Sample {
    fn at(&self, value: f64) -> Point {
        (self.length as f64, value)
    }
}

/// Times by which steps may be faster than the products of the peak.
const CERTAIN: f64 = 3.0;

/// Returns the reason why a step of `flops` at `length` tokens cannot fit, if that is foreseeable.
/// `samples` are measurements at shorter lengths, shortest first; `peak` is the most FLOPs per
/// second that this machine reaches.
///
/// Between the two longest lengths measured, fixed costs hide a part of the growth. The peak is
/// that of products in f32 by another library than that of the steps, so it alone decides only at
/// [`CERTAIN`] times the limit.
pub fn predict_skip(
    samples: &[Sample],
    length: usize,
    flops: f64,
    peak: Option<f64>,
    limits: &Limits,
) -> Option<Outcome> {
    let mut seconds = peak.map_or(0.0, |peak| flops / peak / CERTAIN);
    let mut known = ("at least", "the speed of matrix products".to_owned());
    if let [.., before, last] = samples {
        let extrapolate = |quantity: fn(&Sample) -> f64| {
            let points = [before, last].map(|sample| sample.at(quantity(sample)));
            power_law(points[0], points[1], length as f64)
        };
        let bytes = extrapolate(|sample| sample.peak_bytes);
        if bytes > limits.memory as f64 {
            let gib = |bytes: f64| bytes / (1u64 << 30) as f64;
            let reason = format!(
                "about {:.1} GiB by its growth up to {}, the limit is {:.1} GiB",
                gib(bytes),
                last.length,
                gib(limits.memory as f64)
            );
            return Some(Outcome::Skipped { reason });
        }
        // Time grows no faster than FLOPs.
        let most = last.seconds * (flops / last.flops);
        let predicted = extrapolate(|sample| sample.seconds).min(most);
        if predicted > seconds {
            seconds = predicted;
            known = ("about", format!("its growth up to {}", last.length));
        }
    }
    if seconds * limits.steps as f64 > limits.time.as_secs_f64() {
        let (bound, by) = known;
        let reason = format!(
            "{} of {bound} {seconds:.1} s by {by}, the limit is {}",
            results::counted(limits.steps as u64, "step"),
            human_duration(limits.time)
        );
        return Some(Outcome::Skipped { reason });
    }
    None
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn sample(length: usize, seconds: f64, gib: f64) -> Sample {
        let flops = (length * length) as f64;
        let peak_bytes = gib * (1u64 << 30) as f64;
        Sample {
            length,
            seconds,
            peak_bytes,
            flops,
        }
    }

    fn reason(samples: &[Sample], length: usize) -> String {
        let limits = Limits {
            memory: 8 << 30,
            time: Duration::from_secs(60),
            steps: 4,
        };
        let flops = (length * length) as f64;
        // The slope of these figures: a second for 2^20 FLOPs.
        let peak = Some(f64::from(1 << 20));
        let outcome = predict_skip(samples, length, flops, peak, &limits);
        outcome.map_or(String::new(), |outcome| outcome.reason().to_owned())
    }

    #[test]
    fn memory_is_extrapolated_from_two_lengths() {
        let known = [sample(1024, 0.1, 1.0), sample(2048, 0.4, 4.0)];
        let text = reason(&known, 4096);
        assert!(text.starts_with("about 16.0 GiB"), "{text}");
        assert_eq!(reason(&known[1..], 3000), "", "one length says nothing");
        assert_eq!(reason(&known, 2800), "");
    }

    #[test]
    fn time_is_extrapolated_from_two_lengths_or_from_the_peak() {
        // 64 s at the peak, which products may exceed three times.
        assert_eq!(reason(&[], 6144), "");
        let text = reason(&[], 8192);
        assert!(
            text.starts_with("4 steps of at least 21.3 s by the speed"),
            "{text}"
        );
        let known = [sample(1024, 10.0, 0.1), sample(2048, 20.0, 0.1)];
        let text = reason(&known, 4096);
        assert!(
            text.starts_with("4 steps of about 40.0 s by its growth"),
            "{text}"
        );
        assert_eq!(reason(&known[1..], 2800), "", "one length says nothing");
    }

    /// Time grows by no more than the FLOPs do, however noisy the shorter lengths were.
    #[test]
    fn noise_skips_no_length_that_its_work_allows() {
        let mut known = [sample(1024, 1.0, 0.1), sample(2048, 4.0, 0.1)];
        // Work that grows linearly.
        known[0].flops = 1.0;
        known[1].flops = 2.0;
        let limits = Limits {
            memory: 8 << 30,
            time: Duration::from_secs(60),
            steps: 4,
        };
        assert!(predict_skip(&known, 4096, 4.0, None, &limits).is_none());
    }
}
