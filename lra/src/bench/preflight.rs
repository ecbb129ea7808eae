//! What shorter lengths of a model say of the next one.

use results::bench::Outcome;

use crate::timing::for_people;

/// What was seen at one length.
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// Tokens per example.
    pub length: usize,
    /// Seconds per step.
    pub seconds: f64,
    /// High-water mark of memory.
    pub peak_bytes: f64,
    /// FLOPs per step, by formula.
    pub flops: f64,
}

/// What a measurement may use.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Live heap bytes.
    pub memory: usize,
    /// Seconds of one process.
    pub time: std::time::Duration,
    /// Steps that a process makes at least.
    pub steps: usize,
}

impl Seen {
    /// How many times a quantity grows up to `length`, if it goes on growing as it did from `before` to here.
    fn growth(&self, before: &Seen, quantity: fn(&Seen) -> f64, length: usize) -> f64 {
        let lengths = |longer: usize, shorter: usize| longer as f64 / shorter as f64;
        let power =
            (quantity(self) / quantity(before)).ln() / lengths(self.length, before.length).ln();
        lengths(length, self.length).powf(power.clamp(0.0, 2.0))
    }
}

/// Why a step of `flops` at `length` tokens cannot fit, if that is foreseeable. `seen` are shorter lengths, shortest first;
/// `peak` is the most FLOPs per second that this machine reaches.
///
/// Whatever is skipped would not have fitted: no step is faster than its FLOPs at the peak; and between the two longest
/// lengths seen, fixed costs hide a part of the growth.
pub fn foresee(
    seen: &[Seen],
    length: usize,
    flops: f64,
    peak: Option<f64>,
    limits: &Limits,
) -> Option<Outcome> {
    let mut seconds = peak.map_or(0.0, |peak| flops / peak);
    let mut known = "the speed of matrix products".to_owned();
    if let [.., before, last] = seen {
        let bytes = last.peak_bytes * last.growth(before, |seen| seen.peak_bytes, length);
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
        let growth = last.growth(before, |seen| seen.seconds, length);
        let foreseen = last.seconds * growth.min(flops / last.flops);
        if foreseen > seconds {
            seconds = foreseen;
            known = format!("its growth up to {}", last.length);
        }
    }
    if seconds * limits.steps as f64 > limits.time.as_secs_f64() {
        let reason = format!(
            "{} steps of about {seconds:.1} s by {known}, the limit is {}",
            limits.steps,
            for_people(limits.time)
        );
        return Some(Outcome::Skipped { reason });
    }
    None
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn seen(length: usize, seconds: f64, gib: f64) -> Seen {
        let flops = (length * length) as f64;
        let peak_bytes = gib * (1u64 << 30) as f64;
        Seen {
            length,
            seconds,
            peak_bytes,
            flops,
        }
    }

    fn reason(seen: &[Seen], length: usize) -> String {
        let limits = Limits {
            memory: 8 << 30,
            time: Duration::from_secs(60),
            steps: 4,
        };
        let flops = (length * length) as f64;
        // The slope of these figures: a second for 2^20 FLOPs.
        let peak = Some(f64::from(1 << 20));
        let outcome = foresee(seen, length, flops, peak, &limits);
        outcome.map_or(String::new(), |outcome| outcome.reason().to_owned())
    }

    #[test]
    fn memory_is_foreseen_from_two_lengths() {
        let known = [seen(1024, 0.1, 1.0), seen(2048, 0.4, 4.0)];
        let text = reason(&known, 4096);
        assert!(text.starts_with("about 16.0 GiB"), "{text}");
        assert_eq!(reason(&known[1..], 3000), "", "one length says nothing");
        assert_eq!(reason(&known, 2800), "");
    }

    #[test]
    fn time_is_foreseen_from_two_lengths_or_from_the_peak() {
        let known = [seen(1024, 1.0, 0.1), seen(2048, 3.0, 0.1)];
        let text = reason(&known, 8192);
        assert!(
            text.starts_with("4 steps of about 64.0 s by the speed"),
            "{text}"
        );
        let known = [seen(1024, 10.0, 0.1), seen(2048, 20.0, 0.1)];
        let text = reason(&known, 4096);
        assert!(
            text.starts_with("4 steps of about 40.0 s by its growth"),
            "{text}"
        );
        assert_eq!(reason(&known[1..], 2800), "", "7.5 s at the peak");
    }
}
