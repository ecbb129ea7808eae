//! Matrix products of composed layers. Their factors can be rounded to bfloat16, as the kernels'
//! are ([`round_to_bfloat16`]); products are summed in f32, and everything between products keeps
//! its type.

use std::cell::Cell;

use candle_core::{DType, Tensor};

use crate::Result;
pub use lra_cpu::format::round_to_bfloat16;
use lra_cpu::isa::rounds_to_bfloat16;

thread_local! {
    /// Operations so far, while a [`count_products`] is under way on this thread.
    static COUNTED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Returns the matrix product (.., M, N) of `left` (.., M, K) and `right` (.., K, N). Leading
/// dimensions are equal or broadcast. With `--precision bf16`, factors and gradients are rounded to
/// bfloat16.
///
/// A model of one's own uses it in place of `Tensor::matmul`, whose factors are not rounded.
///
/// # Errors
/// If shapes or types do not fit.
pub fn matmul(left: &Tensor, right: &Tensor) -> Result<Tensor> {
    if !rounds_to_bfloat16() {
        return exact_matmul(left, right);
    }
    let dtype = left.dtype();
    let (left, right) = (left.to_dtype(DType::BF16)?, right.to_dtype(DType::BF16)?);
    match left.device().is_cpu() {
        true => exact_matmul(&left.to_dtype(dtype)?, &right.to_dtype(dtype)?),
        false => Ok(exact_matmul(&left, &right)?.to_dtype(dtype)?),
    }
}

/// Returns the matrix product (.., M, N) of `left` (.., M, K) and `right` (.., K, N), as [`matmul`]
/// does, but never rounds the factors. It is for products that rounding would spoil, as in the
/// iteration for an inverse.
///
/// # Errors
/// If shapes or types do not fit.
pub fn exact_matmul(left: &Tensor, right: &Tensor) -> Result<Tensor> {
    let leading = |x: &Tensor| x.dims()[..x.rank().saturating_sub(2)].to_vec();
    let product = match leading(left) == leading(right) {
        true => left.matmul(right)?,
        false => left.broadcast_matmul(right)?,
    };
    let terms = left.dims().last().copied().unwrap_or(0);
    count(2 * (product.elem_count() * terms) as u64);
    Ok(product)
}

/// Adds `operations` to those of a [`count_products`] that is under way on this thread.
pub(super) fn count(operations: u64) {
    if let Some(counted) = COUNTED.get() {
        COUNTED.set(Some(counted + operations));
    }
}

/// Runs `work`, and returns its result with the number of floating-point operations of its calls of
/// [`matmul`] and [`exact_matmul`] on this thread, a multiply-add being two. Kernels, which compute
/// f32 in main memory, are not counted.
pub(crate) fn count_products<T>(work: impl FnOnce() -> T) -> (T, u64) {
    let outer = COUNTED.replace(Some(0));
    let outcome = work();
    let counted = COUNTED.replace(outer).unwrap_or(0);
    (outcome, counted)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{close, normal};

    #[test]
    fn products_broadcast_and_are_counted() {
        let (x, w) = (normal("x", &[2, 3, 4]), normal("w", &[4, 5]));
        let (y, counted) = count_products(|| matmul(&x, &w).unwrap());
        assert_eq!((y.dims(), counted), (&[2, 3, 5][..], 2 * 2 * 3 * 4 * 5));
        close(&y, &exact_matmul(&x, &w).unwrap(), 1e-12, "product");
        let nested = || {
            let inner = count_products(|| matmul(&x, &w).unwrap()).1;
            (inner, matmul(&x, &w).unwrap())
        };
        assert_eq!(count_products(|| nested().0), (240, 240));
        matmul(&x, &w).unwrap();
        assert_eq!(count_products(|| ()).1, 0);
        assert!(matmul(&x, &x).is_err());
    }
}
