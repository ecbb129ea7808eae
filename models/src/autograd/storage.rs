//! The elements of tensors in main memory as slices.

use std::marker::PhantomData;
use std::ops::{Deref, Range};

use candle_core::{CpuStorage, Layout, Result, Storage, StorageRef, Tensor, WithDType, bail};

/// Returns the elements of a contiguous operand of `op`.
pub fn elements<'a, T: WithDType>(
    op: &str,
    storage: &'a CpuStorage,
    layout: &Layout,
) -> Result<&'a [T]> {
    let shape = layout.shape();
    let Some((start, end)) = layout.contiguous_offsets() else {
        bail!("{op}: operand of shape {shape:?} is not contiguous");
    };
    let Ok(data) = T::cpu_storage_as_slice(storage) else {
        bail!("{op}: operand is not {}", T::DTYPE.as_str());
    };
    match data.get(start..end) {
        Some(data) => Ok(data),
        None => bail!("{op}: operand of shape {shape:?} is larger than its storage"),
    }
}

/// Returns the elements of a contiguous f32 operand of `op`.
pub fn floats<'a>(op: &str, storage: &'a CpuStorage, layout: &Layout) -> Result<&'a [f32]> {
    elements(op, storage, layout)
}

/// The elements of a tensor, held for reading.
pub struct Reading<'a, T = f32> {
    storage: StorageRef<'a>,
    range: Range<usize>,
    element: PhantomData<T>,
}

/// Reads a contiguous tensor of this type that lives in main memory.
pub fn read_as<'a, T: WithDType>(op: &str, tensor: &'a Tensor) -> Result<Reading<'a, T>> {
    let (storage, layout) = tensor.storage_and_layout();
    match &*storage {
        Storage::Cpu(cpu) => elements::<T>(op, cpu, layout)?,
        _ => bail!("{op}: operand is not in main memory"),
    };
    let start = layout.start_offset();
    let range = start..start + layout.shape().elem_count();
    Ok(Reading {
        storage,
        range,
        element: PhantomData,
    })
}

/// Reads a contiguous f32 tensor that lives in main memory.
pub fn read<'a>(op: &str, tensor: &'a Tensor) -> Result<Reading<'a>> {
    read_as(op, tensor)
}

impl<T: WithDType> Deref for Reading<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        let data = match &*self.storage {
            Storage::Cpu(storage) => T::cpu_storage_as_slice(storage).ok(),
            _ => None,
        };
        // `read_as` has refused everything else.
        data.map_or(&[], |data| &data[self.range.clone()])
    }
}
