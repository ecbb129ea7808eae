//! Devices that hold tensors, and the memory of tensors on them.

#[cfg(feature = "cuda")]
mod cuda;
#[cfg(not(feature = "cuda"))]
#[path = "no_cuda.rs"]
mod cuda;

use candle_core::Device;

use crate::error::{Error, Result};
use crate::spec::Precision;
use crate::{host, memory};

/// A device that runs can use.
#[derive(Debug, serde::Serialize)]
pub struct Found {
    /// Name for `--device`: `cpu`, `cuda:0`.
    pub name: String,
    /// Product name.
    pub title: String,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Newest CUDA version that the driver supports, empty on CPU.
    pub driver: String,
}

/// Peak memory of a run.
pub struct Peak {
    /// Peak in bytes, as shown in tables.
    pub bytes: u64,
    /// Bytes held before the run, which do not count.
    pub base_bytes: u64,
    /// Bytes in use on the whole device according to the driver, other programs included; on CUDA
    /// only.
    pub driver_bytes: Option<u64>,
}

/// Returns the device called `name`: `auto` (the first GPU, else the CPU), `cpu`, `cuda` or
/// `cuda:N`.
pub fn select(name: &str) -> Result<Device> {
    let unknown = || {
        Error::usage(format!(
            "unknown device '{name}' (known: auto, cpu, cuda:N; see `lra list devices`)"
        ))
    };
    match name.split_once(':') {
        None if name == "cpu" => Ok(Device::Cpu),
        None if name == "auto" => Ok(cuda::open(0).unwrap_or(Device::Cpu)),
        None if name == "cuda" => open(0),
        Some(("cuda", ordinal)) => open(ordinal.parse().map_err(|_| unknown())?),
        _ => Err(unknown()),
    }
}

fn open(ordinal: usize) -> Result<Device> {
    cuda::open(ordinal).map_err(|error| Error::usage(format!("device cuda:{ordinal}: {error}")))
}

/// Sets the precision of the device's matrix products to that of a run.
pub fn set_precision(device: &Device, precision: Precision) -> Result<()> {
    if device.is_cpu() && precision == Precision::Tf32 {
        return Err(Error::usage(format!(
            "precision {precision} needs an NVIDIA GPU; the CPU multiplies in f32 or bf16"
        )));
    }
    candle_core::cuda::set_gemm_reduced_precision_f32(precision == Precision::Tf32);
    models::ops::round_to_bfloat16(precision == Precision::Bf16);
    Ok(())
}

/// Returns every device of the machine, and the reason in words if there is no GPU among them.
pub fn list() -> (Vec<Found>, Option<String>) {
    let processor = host::describe("cpu");
    let mut found = vec![Found {
        name: "cpu".to_owned(),
        title: format!(
            "{}, {}",
            processor.cpu,
            results::counted(processor.cores as u64, "core")
        ),
        memory_bytes: processor.memory_bytes,
        driver: String::new(),
    }];
    match cuda::list() {
        Ok(more) => {
            found.extend(more);
            (found, None)
        }
        Err(error) => (found, Some(error.to_string())),
    }
}

/// Returns the name of the device in records: `cpu`, `cuda:0 NVIDIA H100`.
pub fn describe(device: &Device) -> String {
    match device {
        Device::Cpu => "cpu".to_owned(),
        other => cuda::describe(other),
    }
}

/// Returns the name in records of the device that [`select`] would return for `name`, without
/// opening it; `None` if it is not here.
pub fn named(name: &str) -> Option<String> {
    let cpu = || "cpu".to_owned();
    match name.split_once(':') {
        None if name == "cpu" => Some(cpu()),
        None if name == "auto" => cuda::named(0).ok().or_else(|| Some(cpu())),
        None if name == "cuda" => cuda::named(0).ok(),
        Some(("cuda", ordinal)) => cuda::named(ordinal.parse().ok()?).ok(),
        _ => None,
    }
}

/// Returns the version of the device's driver, empty on CPU.
pub fn driver(device: &Device) -> String {
    match device {
        Device::Cpu => String::new(),
        _ => cuda::driver(),
    }
}

/// Starts a new high-water mark at the present level, which becomes the base on the CPU.
pub fn reset_peak(device: &Device) {
    match device {
        Device::Cpu => memory::start(),
        other => cuda::reset_peak(other),
    }
}

/// Returns the high-water mark since [`reset_peak`].
pub fn peak(device: &Device) -> Peak {
    match device {
        Device::Cpu => Peak {
            bytes: memory::peak() as u64,
            base_bytes: memory::base() as u64,
            driver_bytes: None,
        },
        other => cuda::peak(other),
    }
}

/// Returns the method by which [`peak`] is measured, for records.
pub fn method(device: &Device) -> &'static str {
    match device {
        Device::Cpu => memory::METHOD,
        _ => "high-water mark of the CUDA memory pool",
    }
}

/// Returns whether an error means that a GPU had no memory left, or the system no addresses to map
/// a file to. (A lack of heap is reported by the allocator itself.)
pub fn is_out_of_memory(error: &anyhow::Error) -> bool {
    const OF_GPUS: [&str; 2] = ["CUDA_ERROR_OUT_OF_MEMORY", "CUBLAS_STATUS_ALLOC_FAILED"];
    error.chain().any(|cause| {
        let system = cause.downcast_ref::<std::io::Error>();
        let text = cause.to_string();
        system.is_some_and(|error| error.kind() == std::io::ErrorKind::OutOfMemory)
            || OF_GPUS.iter().any(|name| text.contains(name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_by_name() {
        assert!(select("cpu").unwrap().is_cpu());
        for wrong in ["gpu", "cuda:first", "cpu:1"] {
            let error = select(wrong).unwrap_err().to_string();
            assert!(error.contains(wrong) && error.contains("auto"), "{error}");
        }
        // No machine has so many GPUs, so this is an error in every build. `auto` is never an
        // error.
        let error = select("cuda:4096").unwrap_err().to_string();
        assert!(error.starts_with("device cuda:4096: "), "{error}");
        assert!(select("auto").is_ok());
        let auto = describe(&select("auto").unwrap());
        assert_eq!(named("auto"), Some(auto));
        assert_eq!(named("cpu").as_deref(), Some("cpu"));
        assert_eq!((named("gpu"), named("cuda:4096")), (None, None));
        let (found, _) = list();
        assert_eq!(found[0].name, "cpu");
    }

    #[test]
    fn a_lack_of_memory_is_told_from_other_failures() {
        let full = anyhow::anyhow!("DriverError(CUDA_ERROR_OUT_OF_MEMORY, \"out of memory\")");
        assert!(is_out_of_memory(&full.context("step 7")));
        let full = anyhow::anyhow!("CublasError(CUBLAS_STATUS_ALLOC_FAILED)");
        assert!(is_out_of_memory(&full.context("step 8")));
        assert!(!is_out_of_memory(&anyhow::anyhow!("shape mismatch")));
        let unmapped = std::io::Error::from(std::io::ErrorKind::OutOfMemory);
        assert!(is_out_of_memory(
            &anyhow::Error::from(unmapped).context("opening a split")
        ));
    }
}
