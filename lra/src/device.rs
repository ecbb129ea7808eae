//! Choosing where tensors live.

use candle_core::Device;

use crate::error::{Error, Result};

/// The device called `name`: `auto` or `cpu`.
pub fn select(name: &str) -> Result<Device> {
    match name {
        "auto" | "cpu" => Ok(Device::Cpu),
        cuda if cuda.starts_with("cuda") => Err(Error::usage(format!(
            "device {cuda}: this binary runs on the CPU only"
        ))),
        other => Err(Error::usage(format!(
            "unknown device '{other}' (known: auto, cpu)"
        ))),
    }
}

/// What a record calls the device.
pub fn describe(device: &Device) -> String {
    match device {
        Device::Cpu => "cpu".to_owned(),
        other => format!("{:?}", other.location()),
    }
}
