//! NVIDIA GPUs through candle's CUDA backend.
//!
//! All work uses one stream, since candle's default stream is per thread, with no order between
//! threads. Freed memory stays in the device's pool instead of returning to the driver at every
//! synchronisation.

use candle_core::cuda_backend::cudarc::driver::{CudaContext, result, sys};
use candle_core::{CudaDevice, Device};
use sys::CUmemPool_attribute as Attribute;

use super::{Found, Peak};

/// Least major number of the compute capability for which the kernels are compiled.
const LEAST_MAJOR: i32 = 8;

/// Opens the GPU with this number.
pub(super) fn open(ordinal: usize) -> anyhow::Result<Device> {
    let count = count()?;
    anyhow::ensure!(
        ordinal < count,
        "this machine has {}, counted from 0",
        results::counted(count as u64, "GPU")
    );
    let (major, minor) = CudaContext::new(ordinal)?.compute_capability()?;
    anyhow::ensure!(
        major >= LEAST_MAJOR,
        "it has compute capability {major}.{minor}, and the kernels need {LEAST_MAJOR}.0"
    );
    let device = Device::new_cuda_with_stream(ordinal)?;
    let cuda = device.as_cuda_device()?;
    // SAFETY: all work goes to the one stream of this device, so nothing needs events to wait for.
    unsafe { cuda.disable_event_tracking() };
    set(cuda, Attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, u64::MAX)?;
    Ok(device)
}

/// Returns the number of GPUs; an error in one line if there is no driver.
fn count() -> anyhow::Result<usize> {
    let count = CudaContext::device_count()
        .map_err(|error| anyhow::anyhow!("no NVIDIA driver answers ({:?})", error.0))?;
    anyhow::ensure!(count > 0, "the NVIDIA driver knows no GPU");
    Ok(count as usize)
}

/// Returns every GPU of the machine.
pub(super) fn list() -> anyhow::Result<Vec<Found>> {
    let found = (0..count()?).map(|ordinal| {
        let context = CudaContext::new(ordinal)?;
        let (major, minor) = context.compute_capability()?;
        Ok(Found {
            name: format!("cuda:{ordinal}"),
            title: format!("{}, compute capability {major}.{minor}", context.name()?),
            memory_bytes: context.total_mem()? as u64,
            driver: driver(),
        })
    });
    found.collect()
}

/// Returns a description such as `cuda:0 NVIDIA H100`.
pub(super) fn describe(device: &Device) -> String {
    let Ok(cuda) = device.as_cuda_device() else {
        return format!("{:?}", device.location());
    };
    let stream = cuda.cuda_stream();
    let context = stream.context();
    let name = context.name().unwrap_or_default();
    format!("cuda:{} {name}", context.ordinal())
        .trim_end()
        .to_owned()
}

/// Returns the description of the GPU with this number.
pub(super) fn named(ordinal: usize) -> anyhow::Result<String> {
    let count = count()?;
    anyhow::ensure!(
        ordinal < count,
        "there are {count} GPUs here, counted from 0"
    );
    let name = CudaContext::new(ordinal)?.name()?;
    Ok(format!("cuda:{ordinal} {name}").trim_end().to_owned())
}

/// Returns the newest CUDA version that the driver supports, such as `CUDA 13.0`.
pub(super) fn driver() -> String {
    let mut version = 0;
    // SAFETY: the call writes one integer.
    let status = unsafe { sys::cuDriverGetVersion(&mut version) };
    match status.result() {
        Ok(()) => format!("CUDA {}.{}", version / 1000, version % 1000 / 10),
        Err(_) => String::new(),
    }
}

pub(super) fn reset_peak(device: &Device) {
    if let Ok(cuda) = device.as_cuda_device() {
        // If the pool cannot be reset, its high-water mark stays; the peak is then an upper bound.
        let _ = device.synchronize();
        let _ = set(cuda, Attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0);
    }
}

pub(super) fn peak(device: &Device) -> Peak {
    let figures = || -> anyhow::Result<Peak> {
        let cuda = device.as_cuda_device()?;
        let bytes = get(cuda, Attribute::CU_MEMPOOL_ATTR_USED_MEM_HIGH)?;
        let (free, total) = cuda.cuda_stream().context().mem_get_info()?;
        Ok(Peak {
            bytes,
            base_bytes: 0,
            driver_bytes: Some((total - free) as u64),
        })
    };
    figures().unwrap_or(Peak {
        bytes: 0,
        base_bytes: 0,
        driver_bytes: None,
    })
}

fn pool(cuda: &CudaDevice) -> anyhow::Result<sys::CUmemoryPool> {
    let stream = cuda.cuda_stream();
    // SAFETY: the device belongs to a context that is alive.
    Ok(unsafe { result::device::get_default_mem_pool(stream.context().cu_device()) }?)
}

fn get(cuda: &CudaDevice, attribute: Attribute) -> anyhow::Result<u64> {
    let mut value = 0u64;
    // SAFETY: the attributes used here are 64-bit unsigned integers.
    unsafe { result::mem_pool::get_attribute(pool(cuda)?, attribute, (&raw mut value).cast()) }?;
    Ok(value)
}

fn set(cuda: &CudaDevice, attribute: Attribute, mut value: u64) -> anyhow::Result<()> {
    // SAFETY: as above.
    unsafe { result::mem_pool::set_attribute(pool(cuda)?, attribute, (&raw mut value).cast()) }?;
    Ok(())
}
