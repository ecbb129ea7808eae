//! Matrix products of composed layers. Their factors can be rounded to bfloat16, as the kernels' are
//! ([`round_to_bfloat16`]); products are summed in f32, and everything between products keeps its type.

use candle_core::{DType, Tensor};

use crate::Result;
pub use crate::kernels::round_to_bfloat16;
use crate::kernels::rounds_factors;

/// `left` · `right` over the last two dimensions, with the gradients rounded likewise.
///
/// # Errors
/// If shapes or types do not fit.
pub(crate) fn matmul(left: &Tensor, right: &Tensor) -> Result<Tensor> {
    if !rounds_factors() {
        return Ok(left.matmul(right)?);
    }
    let dtype = left.dtype();
    let (left, right) = (left.to_dtype(DType::BF16)?, right.to_dtype(DType::BF16)?);
    if left.device().is_cpu() {
        return Ok(left.to_dtype(dtype)?.matmul(&right.to_dtype(dtype)?)?);
    }
    Ok(left.matmul(&right)?.to_dtype(dtype)?)
}
