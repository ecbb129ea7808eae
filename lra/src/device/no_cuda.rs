//! Counterparts of the functions in `cuda`, for a program that was built for the CPU only.

use candle_core::Device;

use super::{Found, Peak};

const REMEDY: &str =
    "this program was built for the CPU only; `make cuda` builds one that runs on NVIDIA GPUs";

pub(super) fn open(_: usize) -> anyhow::Result<Device> {
    anyhow::bail!(REMEDY)
}

pub(super) fn list() -> anyhow::Result<Vec<Found>> {
    anyhow::bail!(REMEDY)
}

pub(super) fn describe(device: &Device) -> String {
    format!("{:?}", device.location())
}

pub(super) fn named(_: usize) -> anyhow::Result<String> {
    anyhow::bail!(REMEDY)
}

pub(super) fn driver() -> String {
    String::new()
}

pub(super) fn reset_peak(_: &Device) {}

pub(super) fn peak(_: &Device) -> Peak {
    Peak {
        bytes: 0,
        base_bytes: 0,
        driver_bytes: None,
    }
}
