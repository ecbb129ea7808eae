//! Step times: synchronised at both ends of every phase, kept per step, summarised at the end.

use std::path::Path;
use std::time::{Duration, Instant};

use candle_core::Device;
use results::record::{Phases, Spread};
use serde::{Deserialize, Serialize};

use crate::damaged::Damaged;

/// Name of the log within a run's folder.
pub const FILE: &str = "timings.jsonl";

/// Measures the phases of one step. The time of a step that belongs to no phase is the harness's
/// own.
pub struct StepClock<'a> {
    device: &'a Device,
    began: Instant,
    phases: Phases,
}

/// The parts of a step.
#[derive(Clone, Copy, Debug)]
pub enum Phase {
    /// Copying the batch to the device.
    Transfer,
    /// The model and the loss.
    Forward,
    /// Gradients.
    Backward,
    /// Clipping and the update.
    Optimizer,
}

impl<'a> StepClock<'a> {
    /// Starts a step on a device with no work outstanding.
    pub fn start(device: &'a Device) -> Self {
        StepClock {
            device,
            began: Instant::now(),
            phases: Phases::default(),
        }
    }

    /// Runs `work` as part of a phase. A GPU is not waited for, so its work belongs to no phase.
    pub fn phase<T, E>(
        &mut self,
        phase: Phase,
        work: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let began = Instant::now();
        let value = work()?;
        if !self.device.is_cpu() {
            return Ok(value);
        }
        let seconds = began.elapsed().as_secs_f64();
        match phase {
            Phase::Transfer => self.phases.transfer += seconds,
            Phase::Forward => self.phases.forward += seconds,
            Phase::Backward => self.phases.backward += seconds,
            Phase::Optimizer => self.phases.optimizer += seconds,
        }
        Ok(value)
    }

    /// Ends the step.
    pub fn stop(self) -> StepTime {
        StepTime {
            seconds: self.began.elapsed().as_secs_f64(),
            phases: self.phases,
        }
    }
}

/// Duration of one step.
#[derive(Clone, Copy, Debug)]
pub struct StepTime {
    /// Seconds from the first to the last instruction of the step.
    pub seconds: f64,
    /// Seconds in each phase.
    pub phases: Phases,
}

/// One line of `timings.jsonl`: the steps since the previous line.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timings {
    /// Updates made.
    pub step: usize,
    /// Seconds since the previous line, evaluation and checkpoints included.
    pub wall: f64,
    /// Seconds of warm-up steps.
    pub warmup: Vec<f64>,
    /// Seconds of each timed step.
    pub steps: Vec<f64>,
    /// Sums over the timed steps.
    pub phases: Phases,
    /// Largest number of resident bytes seen.
    pub resident_bytes: u64,
    /// High-water mark of the process that wrote the line, on its device, beyond what it held at
    /// the start.
    pub peak_bytes: u64,
    /// Bytes that the process held at the start.
    #[serde(default)]
    pub base_bytes: u64,
    /// Largest number of bytes in use according to the device's driver.
    #[serde(default)]
    pub driver_bytes: Option<u64>,
    /// True if a checkpoint of this step was written.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub saved: bool,
}

impl Timings {
    /// Adds a step.
    pub fn add(&mut self, time: StepTime, is_warmup: bool) {
        if is_warmup {
            self.warmup.push(time.seconds);
            return;
        }
        self.steps.push(time.seconds);
        add(&mut self.phases, &time.phases);
    }

    /// Reads a whole log and returns its totals. Half a line at the end, which a killed process
    /// leaves, is not read.
    ///
    /// # Errors
    /// [`Damaged`], or the file cannot be read.
    pub fn read(path: &Path) -> anyhow::Result<Timings> {
        let mut sum = Timings::default();
        for line in lines(path)? {
            sum.step = line.step;
            sum.wall += line.wall;
            sum.warmup.extend(line.warmup);
            sum.steps.extend(line.steps);
            add(&mut sum.phases, &line.phases);
            sum.resident_bytes = sum.resident_bytes.max(line.resident_bytes);
            sum.peak_bytes = sum.peak_bytes.max(line.peak_bytes);
            sum.base_bytes = sum.base_bytes.max(line.base_bytes);
            sum.driver_bytes = sum.driver_bytes.max(line.driver_bytes);
            sum.saved |= line.saved;
        }
        Ok(sum)
    }

    /// Returns the step that each line of the log in `folder` reached, and the seconds it took;
    /// nothing if there is no log.
    ///
    /// # Errors
    /// The log is damaged or cannot be read.
    pub fn walls(folder: &Path) -> anyhow::Result<Vec<(usize, f64)>> {
        let path = folder.join(FILE);
        match path.exists() {
            true => Ok(lines(&path)?.iter().map(|it| (it.step, it.wall)).collect()),
            false => Ok(Vec::new()),
        }
    }

    /// Returns the steps per second: the median over the timed steps, with the 10th and 90th
    /// percentile.
    pub fn steps_per_second(&self) -> Option<Spread> {
        let mut rates: Vec<f64> = self.steps.iter().map(|seconds| 1.0 / seconds).collect();
        rates.sort_by(f64::total_cmp);
        let quantile = |share: f64| results::stats::quantile(&rates, share);
        Some(Spread {
            median: quantile(0.5)?,
            p10: quantile(0.1)?,
            p90: quantile(0.9)?,
        })
    }

    /// Returns the fraction of the time of the timed steps that was spent neither in transfer nor
    /// in forward, backward or optimizer; NaN if no phase was timed, as on a GPU.
    pub fn overhead_share(&self) -> f64 {
        let total: f64 = self.steps.iter().sum();
        let Phases {
            transfer,
            forward,
            backward,
            optimizer,
        } = self.phases;
        match transfer + forward + backward + optimizer {
            // No phase was timed, so the share is unknown.
            0.0 => f64::NAN,
            phases => ((total - phases) / total).max(0.0),
        }
    }
}

fn add(sum: &mut Phases, more: &Phases) {
    sum.transfer += more.transfer;
    sum.forward += more.forward;
    sum.backward += more.backward;
    sum.optimizer += more.optimizer;
}

/// Formats a duration for people: "48 s", "3 min 20 s", "5 h 10 min", "3.2 days".
pub fn human_duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        3600..172_800 => format!("{} h {:02} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{:.1} days", duration.as_secs_f64() / 86_400.0),
    }
}

/// Reads the lines of a log; one that is not whole is left out.
fn lines(path: &Path) -> anyhow::Result<Vec<Timings>> {
    let text =
        disk::read_to_string(path).map_err(|error| Damaged::or_io(path, "reading", error))?;
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    let lines = text[..whole].lines().enumerate();
    let lines = lines.map(|(index, line)| {
        results::read_line(line).map_err(|reason| {
            let damaged = Damaged {
                path: path.to_owned(),
                problem: format!("line {}: {reason}", index + 1),
            };
            damaged.into()
        })
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_outside_the_phases_counts_as_overhead() {
        let mut timings = Timings::default();
        let phases = Phases {
            transfer: 0.1,
            forward: 0.3,
            backward: 0.5,
            optimizer: 0.05,
        };
        timings.add(
            StepTime {
                seconds: 9.0,
                phases,
            },
            true,
        );
        timings.add(
            StepTime {
                seconds: 1.0,
                phases,
            },
            false,
        );
        assert!(
            (timings.overhead_share() - 0.05).abs() < 1e-12,
            "warm-up steps are left out"
        );
        assert_eq!(timings.steps_per_second().unwrap().median, 1.0);
        assert_eq!(Timings::default().steps_per_second(), None);
    }

    #[test]
    fn durations_read_well() {
        let text = |seconds| human_duration(Duration::from_secs(seconds));
        assert_eq!(
            [text(48), text(200), text(18_600), text(276_480)],
            ["48 s", "3 min 20 s", "5 h 10 min", "3.2 days"]
        );
    }

    #[test]
    fn a_log_is_summed_up_and_half_a_line_at_its_end_is_none() {
        let line = |step: usize, peak_bytes, resident_bytes, base_bytes| {
            let line = Timings {
                step,
                wall: step as f64,
                warmup: vec![9.0],
                steps: vec![1.0, 2.0],
                phases: Phases {
                    forward: 1.0,
                    ..Phases::default()
                },
                peak_bytes,
                resident_bytes,
                base_bytes,
                driver_bytes: Some(peak_bytes),
                saved: step == 1,
            };
            serde_json::to_string(&line).unwrap() + "\n"
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE);
        let text = line(1, 5, 7, 2) + &line(2, 3, 9, 1);
        std::fs::write(&path, format!("{text}{}", &line(3, 8, 8, 8)[..20])).unwrap();
        let sum = Timings::read(&path).unwrap();
        assert_eq!((sum.step, sum.wall, sum.saved), (2, 3.0, true));
        assert_eq!(
            (sum.warmup.len(), &sum.steps[..]),
            (2, &[1.0, 2.0, 1.0, 2.0][..])
        );
        assert_eq!(sum.phases.forward, 2.0);
        assert_eq!((sum.peak_bytes, sum.resident_bytes), (5, 9));
        assert_eq!((sum.base_bytes, sum.driver_bytes), (2, Some(5)));
        assert_eq!(Timings::walls(folder.path()).unwrap(), [(1, 1.0), (2, 2.0)]);
        std::fs::write(&path, format!("{{}}\n{text}")).unwrap();
        let error = Timings::read(&path).unwrap_err().to_string();
        assert!(error.contains("line 1"), "{error}");
    }

    #[test]
    fn slow_steps_are_the_low_end_of_the_speed() {
        let timings = Timings {
            steps: (1..=11).map(|tenth| 1.0 / f64::from(tenth)).collect(),
            ..Timings::default()
        };
        let speed = timings.steps_per_second().unwrap();
        for (found, wanted) in [(speed.p10, 2.0), (speed.median, 6.0), (speed.p90, 10.0)] {
            assert!((found - wanted).abs() < 1e-9, "{found}, not {wanted}");
        }
    }
}
