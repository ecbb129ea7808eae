//! The memory of a training step, as the pool of the GPU counts it.

use candle_core::cuda_backend::cudarc::driver::{result, sys};
use candle_core::{DType, Device, Tensor};
use lra_models::options::{Input, NormKind, Pooling};
use lra_models::{Classifier, Inputs, MODELS, Options, Parameters, Pass, RngKey, Shape, Tokens};
use lra_models::{loss, ops};

use super::Case;

/// Bytes of a card of 24 GB.
const CARD: u64 = 24_000_000_000;

pub(super) fn cases() -> Vec<(String, Case)> {
    let case = |device: &Device| {
        let bytes = peak_of_s4(device).map_err(|error| error.to_string())?;
        eprintln!("a step of s4 on Path-X takes {bytes} bytes");
        match bytes < CARD {
            true => Ok(()),
            false => Err(format!("{bytes} bytes are more than a card of 24 GB has")),
        }
    };
    vec![("memory::s4_on_pathx".to_owned(), Box::new(case))]
}

/// Returns the most bytes in use in a training step of recipe `s4` on Path-X: 6 blocks of width
/// 256, 16 sequences of 16,384 pixels.
fn peak_of_s4(device: &Device) -> lra_models::Result<u64> {
    let (batch, length) = (16, 16_384);
    let shape = Shape {
        vocabulary: 256,
        classes: 2,
        towers: 1,
        max_length: length,
        padding: false,
        grid: Some([128, 128]),
    };
    let model = MODELS.iter().find(|model| model.name == "s4");
    let model = model.copied().ok_or_else(|| missing("s4"))?;
    let mut options = Options::of(model);
    options.embed.input = Input::Scalar;
    options.embed.dropout = 0.0;
    options.block.layers = 6;
    options.block.dim = 256;
    options.block.qkv_dim = 256;
    options.block.mlp_dim = 512;
    options.block.norm = NormKind::Batch;
    options.block.dropout = 0.0;
    options.head.pooling = Pooling::Mean;
    options.head.hidden = 0;
    options.model["state"] = 64.into();
    options.model["n_ssm"] = 0.into();
    options.model["dt_min"] = 1e-4.into();
    let parameters = Parameters::new(1, device, DType::F32);
    let classifier = Classifier::new(model, &shape, &options, &parameters)?;
    let ids = (0..batch * length).map(|i| (i * i % 251) as u32);
    let inputs = Inputs {
        towers: vec![Tokens {
            ids: Tensor::from_vec(ids.collect(), (batch, length), device)?,
            mask: None,
        }],
    };
    let labels = (0..batch as u32).map(|row| row % 2);
    let labels = Tensor::from_vec(labels.collect(), batch, device)?;
    device.synchronize()?;
    let mark = HighWaterMark::reset(device)?;
    let logits = classifier.forward(&inputs, &Pass::new(true, RngKey::new(1, 1, 0)))?;
    let gradients = ops::backward(&loss::cross_entropy(&logits, &labels)?)?;
    device.synchronize()?;
    drop(gradients);
    Ok(mark.bytes()?)
}

fn missing(what: &str) -> candle_core::Error {
    candle_core::Error::Msg(format!("{what} is missing"))
}

/// The most bytes in use of a GPU's pool, since it was reset.
struct HighWaterMark(sys::CUmemoryPool);

impl HighWaterMark {
    fn reset(device: &Device) -> candle_core::Result<Self> {
        let stream = device.as_cuda_device()?.cuda_stream();
        // SAFETY: the device belongs to a context that is alive.
        let pool = unsafe { result::device::get_default_mem_pool(stream.context().cu_device()) };
        let pool = pool.map_err(candle_core::Error::wrap)?;
        let mut zero = 0u64;
        let mark = sys::CUmemPool_attribute_enum::CU_MEMPOOL_ATTR_USED_MEM_HIGH;
        // SAFETY: the attribute is a 64-bit unsigned integer.
        unsafe { result::mem_pool::set_attribute(pool, mark, (&raw mut zero).cast()) }
            .map_err(candle_core::Error::wrap)?;
        Ok(Self(pool))
    }

    fn bytes(&self) -> candle_core::Result<u64> {
        let mut bytes = 0u64;
        let mark = sys::CUmemPool_attribute_enum::CU_MEMPOOL_ATTR_USED_MEM_HIGH;
        // SAFETY: the attribute is a 64-bit unsigned integer.
        unsafe { result::mem_pool::get_attribute(self.0, mark, (&raw mut bytes).cast()) }
            .map_err(candle_core::Error::wrap)?;
        Ok(bytes)
    }
}
