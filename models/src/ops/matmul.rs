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
    if !rounds_factors() || left.dtype() != DType::F32 {
        return Ok(left.matmul(right)?);
    }
    let rounded = |x: &Tensor| x.to_dtype(DType::BF16);
    let (left, right) = (rounded(left)?, rounded(right)?);
    if left.device().is_cpu() {
        return Ok(left
            .to_dtype(DType::F32)?
            .matmul(&right.to_dtype(DType::F32)?)?);
    }
    Ok(left.matmul(&right)?.to_dtype(DType::F32)?)
}
