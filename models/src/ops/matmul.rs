//! Matrix products of composed layers. Their factors can be rounded to bfloat16, which is what tensor cores take;
//! products are summed in f32 there, and everything between products keeps its type.

use std::sync::atomic::{AtomicBool, Ordering};

use candle_core::{DType, Tensor};

use crate::Result;

static ROUNDED: AtomicBool = AtomicBool::new(false);

/// Whether factors are rounded to bfloat16 from now on, in the whole process. The kernels do not round.
pub fn round_to_bfloat16(on: bool) {
    ROUNDED.store(on, Ordering::Relaxed);
}

/// `left` · `right` over the last two dimensions, with the gradients rounded likewise.
///
/// # Errors
/// If shapes or types do not fit.
pub(crate) fn matmul(left: &Tensor, right: &Tensor) -> Result<Tensor> {
    if !ROUNDED.load(Ordering::Relaxed) {
        return Ok(left.matmul(right)?);
    }
    let rounded = |x: &Tensor| x.to_dtype(DType::BF16);
    let y = rounded(left)?.matmul(&rounded(right)?)?;
    Ok(y.to_dtype(left.dtype())?)
}
