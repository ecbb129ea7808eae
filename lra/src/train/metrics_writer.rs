//! Logs of a run: metrics, the same metrics for TensorBoard, and timings.

use std::time::Instant;

use anyhow::Context as _;
use candle_core::Device;
use results::metrics::Line;

use super::TrainRun;
use crate::checkpoint::State;
use crate::run_folder::Log;
use crate::timing::{StepTime, Timings};
use crate::tracker::tensorboard::{self, Events};
use crate::{device, host};

/// Logs of the part of a run that one process carries out.
pub(super) struct MetricsWriter<'a> {
    metrics: Log,
    events: Option<Events>,
    timings: Log,
    /// Times that are not in the log yet.
    pending: Timings,
    line_began: Instant,
    device: &'a Device,
}

impl<'a> MetricsWriter<'a> {
    /// Opens the logs of a run at `state`; their lines about later steps are dropped, once all of
    /// them are known to be sound.
    pub(super) fn open(run: &TrainRun<'a>, state: &State) -> anyhow::Result<Self> {
        let events = run.folder.file(tensorboard::FOLDER);
        let metrics = Log::open(
            run.files.metrics.clone(),
            state.metrics_bytes,
            state.metrics_sha256.as_deref(),
        )?;
        let timings = Log::open(
            run.files.timings.clone(),
            state.timings_bytes,
            state.timings_sha256.as_deref(),
        )?;
        let events = match run.tensorboard {
            true => Some(Events::create(&events, state.step)?),
            false => None,
        };
        metrics.shorten()?;
        timings.shorten()?;
        Ok(MetricsWriter {
            metrics,
            events,
            timings,
            pending: Timings::default(),
            line_began: Instant::now(),
            device: run.device,
        })
    }

    /// Writes a line into every log of metrics that is kept.
    pub(super) fn note(&mut self, line: Line) -> anyhow::Result<()> {
        self.metrics.line(&line)?;
        match &mut self.events {
            Some(events) => events.line(&line),
            None => Ok(()),
        }
    }

    /// Keeps the time of a step for the next line of timings.
    pub(super) fn time(&mut self, time: StepTime, warms_up: bool) {
        self.pending.add(time, warms_up);
    }

    /// Returns the seconds of the last step that is not in the log yet, if it counts for the speed
    /// figures.
    pub(super) fn last_step(&self) -> Option<f64> {
        self.pending.steps.last().copied()
    }

    /// Writes a line about the time needed to reach `step`.
    pub(super) fn write_timings(&mut self, step: usize) -> anyhow::Result<()> {
        let mut line = std::mem::take(&mut self.pending);
        line.step = step;
        line.wall = self.line_began.elapsed().as_secs_f64();
        line.resident_bytes = host::resident_bytes().unwrap_or(0);
        let peak = device::peak(self.device);
        (line.peak_bytes, line.base_bytes) = (peak.bytes, peak.base_bytes);
        line.driver_bytes = peak.driver_bytes;
        self.line_began = Instant::now();
        self.timings.line(&line)
    }

    /// Notes that there is a checkpoint of `step`. If the checkpoint is lost later, the log shows
    /// that the run was not at its beginning.
    pub(super) fn note_saved(&mut self, step: usize) -> anyhow::Result<()> {
        self.timings.line(&Timings {
            step,
            saved: true,
            ..Timings::default()
        })
    }

    /// Syncs all lines to disk, and notes the lengths and checksums of the logs in `state`.
    pub(super) fn sync(&mut self, state: &mut State) -> anyhow::Result<()> {
        let sync = |log: &mut Log| {
            let synced = log.sync();
            synced.with_context(|| log.path().display().to_string())
        };
        state.metrics_bytes = sync(&mut self.metrics)?;
        state.timings_bytes = sync(&mut self.timings)?;
        state.metrics_sha256 = Some(self.metrics.sha256());
        state.timings_sha256 = Some(self.timings.sha256());
        Ok(())
    }
}
