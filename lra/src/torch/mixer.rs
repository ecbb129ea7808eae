//! The mixer of a model whose computation is in a Python process.

use std::sync::atomic::{AtomicU64, Ordering};

use candle_core::backend::BackendStorage;
use candle_core::{CpuStorage, CustomOp2, DType, Device, Layout, Shape, Tensor, bail};
use models::prelude::{
    Attributes, LayerContext, Mixer, MixerModel, NoOptions, Pass, Result, StreamKey,
};
use serde_json::{Value, json};

use super::with_worker;
use super::worker::{Built, Layer};

/// One layer: its parameters here, its computation there.
pub struct TorchMixer {
    /// Number of the layer in the process.
    id: u64,
    /// Parameters in the order of the process.
    parameters: Vec<Tensor>,
    /// Key of the layer's random numbers.
    key: StreamKey,
}

impl MixerModel for TorchMixer {
    type Options = NoOptions;

    fn new(layer: &LayerContext, _: &NoOptions) -> Result<Self> {
        let request = Layer {
            dim: layer.block.dim,
            length: layer.max_length,
            heads: layer.block.heads,
            dropout: layer.block.dropout,
            layer: layer.index,
            seed: joined(layer.vb.stream("torch").key()),
        };
        let built = with_worker(|worker| worker.build(&request));
        let Built {
            id,
            parameters,
            values,
        } = built.map_err(|error| models::Error::Input(format!("{error:#}")))?;
        let mut rest = &values[..];
        let mut tensors = Vec::new();
        for it in parameters {
            let (own, after) = rest.split_at(it.shape.iter().product());
            rest = after;
            let attributes = Attributes::of_rank(it.shape.len());
            let initial = |_: &_| own.iter().copied().map(f64::from).collect();
            let tensor = layer
                .vb
                .get_with_values(it.shape, &it.name, attributes, initial)?;
            tensors.push(tensor);
        }
        Ok(Self {
            id,
            parameters: tensors,
            key: StreamKey::new(&layer.vb.prefix()),
        })
    }
}

impl Mixer for TorchMixer {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let mask = match pass.mask() {
            Some(mask) => {
                let valid = mask.valid().to_dtype(DType::U8)?;
                Some(valid.flatten_all()?.to_vec1::<u8>()?)
            }
            None => None,
        };
        let here = x.to_device(&Device::Cpu)?.contiguous()?;
        let parameters = self.flat(here.dtype())?;
        let draws = pass.rng.per_example(self.key);
        let [first, second, third] = draws.counter(0);
        let seed = [draws.key()[0] ^ second, draws.key()[1] ^ first ^ third];
        let call = Call {
            layer: self.id,
            header: json!({
                "shape": x.dims(),
                "train": pass.train,
                "seed": joined(seed),
                "keep": here.track_op() || parameters.track_op(),
            }),
            mask,
            has_parameters: !self.parameters.is_empty(),
            number: AtomicU64::new(0),
        };
        Ok(here.apply_op2(&parameters, call)?.to_device(x.device())?)
    }

    fn flops(&self, length: usize) -> u64 {
        // A module whose operations cannot be counted fails in its forward pass as well.
        with_worker(|worker| worker.flops(self.id, length)).unwrap_or(0)
    }
}

impl TorchMixer {
    /// Returns all parameters as one vector in main memory; one zero if there are none.
    fn flat(&self, dtype: DType) -> Result<Tensor> {
        if self.parameters.is_empty() {
            return Ok(Tensor::zeros(1, dtype, &Device::Cpu)?);
        }
        let parts = self.parameters.iter();
        let parts = parts.map(|it| it.flatten_all()?.to_device(&Device::Cpu));
        Ok(Tensor::cat(
            &parts.collect::<candle_core::Result<Vec<_>>>()?,
            0,
        )?)
    }
}

/// Returns a seed of 63 bits from two words.
fn joined([first, second]: [u32; 2]) -> u64 {
    (u64::from(first) << 32 | u64::from(second)) >> 1
}

/// A forward pass in the process and the backward pass that may follow, on x (B, L, D) and all
/// parameters as one vector.
struct Call {
    layer: u64,
    header: Value,
    mask: Option<Vec<u8>>,
    has_parameters: bool,
    /// Number of the call while the process keeps its graph; else 0.
    number: AtomicU64,
}

impl CustomOp2 for Call {
    fn name(&self) -> &'static str {
        "torch"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        of_x: &Layout,
        parameters: &CpuStorage,
        of_parameters: &Layout,
    ) -> candle_core::Result<(CpuStorage, Shape)> {
        let mut header = self.header.clone();
        header["type"] = match x {
            CpuStorage::F32(_) => "f32".into(),
            CpuStorage::F64(_) => "f64".into(),
            other => bail!("a PyTorch mixer takes no {:?}", other.dtype()),
        };
        let keeps = header["keep"] == true;
        let (x_bytes, parameters) = (bytes(x, of_x)?, bytes(parameters, of_parameters)?);
        let answered = with_worker(|worker| {
            worker.forward(
                self.layer,
                header,
                &x_bytes,
                self.mask.as_deref(),
                parameters,
            )
        });
        let (number, y) = answered.map_err(told)?;
        if keeps {
            self.number.store(number, Ordering::Relaxed);
        }
        Ok((numbers(x.dtype(), &y), of_x.shape().clone()))
    }

    fn bwd(
        &self,
        x: &Tensor,
        parameters: &Tensor,
        _y: &Tensor,
        dy: &Tensor,
    ) -> candle_core::Result<(Option<Tensor>, Option<Tensor>)> {
        let number = self.number.swap(0, Ordering::Relaxed);
        if number == 0 {
            bail!("the backward pass of a PyTorch mixer ran twice");
        }
        let dtype = x.dtype();
        let dy = dy.contiguous()?;
        let dy = {
            let (storage, layout) = dy.storage_and_layout();
            match &*storage {
                candle_core::Storage::Cpu(storage) => bytes(storage, layout)?,
                _ => bail!("the gradient of a PyTorch mixer is not in main memory"),
            }
        };
        let size = dtype.size_in_bytes();
        let of_x = x.elem_count() * size;
        let of_parameters = match self.has_parameters {
            true => parameters.elem_count() * size,
            false => 0,
        };
        let gradients = with_worker(|worker| worker.backward(number, &dy, of_x + of_parameters));
        let gradients = gradients.map_err(told)?;
        let (dx, rest) = gradients.split_at(of_x);
        let rest = self.has_parameters.then_some(rest);
        let rest = rest.map(|rest| tensor(dtype, rest, parameters.shape()));
        Ok((Some(tensor(dtype, dx, x.shape())?), rest.transpose()?))
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let number = *self.number.get_mut();
        if number > 0 {
            // No backward pass will follow.
            let _ = with_worker(|worker| {
                worker.forget(number);
                Ok(())
            });
        }
    }
}

/// Returns an error of the process as one of a tensor operation.
fn told(error: anyhow::Error) -> candle_core::Error {
    candle_core::Error::Msg(format!("{error:#}"))
}

/// Returns the numbers of a storage, little-endian.
fn bytes(storage: &CpuStorage, layout: &Layout) -> candle_core::Result<Vec<u8>> {
    let Some((start, end)) = layout.contiguous_offsets() else {
        bail!("a tensor for a PyTorch mixer is not contiguous");
    };
    Ok(match storage {
        CpuStorage::F32(numbers) => {
            let numbers = numbers[start..end].iter();
            numbers.flat_map(|number| number.to_le_bytes()).collect()
        }
        CpuStorage::F64(numbers) => {
            let numbers = numbers[start..end].iter();
            numbers.flat_map(|number| number.to_le_bytes()).collect()
        }
        other => bail!("a PyTorch mixer takes no {:?}", other.dtype()),
    })
}

/// Returns numbers from their bytes: f64 for [`DType::F64`], else f32.
fn numbers(dtype: DType, bytes: &[u8]) -> CpuStorage {
    match dtype {
        DType::F64 => {
            let numbers = bytes.as_chunks::<8>().0.iter();
            CpuStorage::F64(numbers.map(|it| f64::from_le_bytes(*it)).collect())
        }
        _ => {
            let numbers = bytes.as_chunks::<4>().0.iter();
            CpuStorage::F32(numbers.map(|it| f32::from_le_bytes(*it)).collect())
        }
    }
}

/// Returns [`numbers`] as a tensor.
fn tensor(dtype: DType, bytes: &[u8], shape: &Shape) -> candle_core::Result<Tensor> {
    match numbers(dtype, bytes) {
        CpuStorage::F64(numbers) => Tensor::from_vec(numbers, shape, &Device::Cpu),
        CpuStorage::F32(numbers) => Tensor::from_vec(numbers, shape, &Device::Cpu),
        _ => bail!("numbers are f32 or f64"),
    }
}
