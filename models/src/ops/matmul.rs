//! Matrix products of composed layers. Their factors can be rounded to bfloat16, as the kernels'
//! are ([`round_to_bfloat16`]); products are summed in f32, and everything between products keeps
//! its type.

use std::cell::Cell;

use candle_core::{DType, Tensor};

use super::check;
use crate::Result;
pub use lra_cpu::format::round_to_bfloat16;
use lra_cpu::isa::rounds_to_bfloat16;

thread_local! {
    /// Operations so far, while a [`count_products`] is under way on this thread.
    static COUNTED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Returns the matrix product (.., M, N) of `left` (.., M, K) and `right` (.., K, N). Leading
/// dimensions are equal or broadcast, and there may be any number of them. With `--precision bf16`,
/// factors and gradients are rounded to bfloat16.
///
/// Mixers use it in place of `Tensor::matmul`, whose factors are not rounded.
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
    let equal = leading(left) == leading(right);
    let product = match left.rank().max(right.rank()) {
        0..=4 if equal => left.matmul(right)?,
        0..=4 => left.broadcast_matmul(right)?,
        _ => flat_matmul(left, right)?,
    };
    let terms = left.dims().last().copied().unwrap_or(0);
    count(2 * (product.elem_count() * terms) as u64);
    Ok(product)
}

/// Returns the product of tensors of which one has more than four axes, which candle does not
/// multiply: leading axes become one.
fn flat_matmul(left: &Tensor, right: &Tensor) -> Result<Tensor> {
    let ranks = [left, right].map(Tensor::rank);
    check(ranks.iter().all(|rank| *rank > 1), "matmul", || {
        let (left, right) = (left.shape(), right.shape());
        format!("{left:?} and {right:?} are not both matrices or stacks of matrices")
    })?;
    let count = ranks[0].max(ranks[1]) - 2;
    // Axes are aligned at the last one; those that are absent count as 1.
    let axis = |x: &Tensor, i: usize| match (i + x.rank()).checked_sub(count + 2) {
        Some(i) => x.dims()[i],
        None => 1,
    };
    let leading: Vec<usize> = (0..count)
        .map(|i| axis(left, i).max(axis(right, i)))
        .collect();
    let flat = |x: &Tensor| {
        let matrix = &x.dims()[x.rank() - 2..];
        let stack = x.broadcast_as([&leading, matrix].concat())?;
        stack.reshape((leading.iter().product::<usize>(), matrix[0], matrix[1]))
    };
    let product = flat(left)?.matmul(&flat(right)?)?;
    let (_, rows, columns) = product.dims3()?;
    Ok(product.reshape([&leading[..], &[rows, columns]].concat())?)
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
    use crate::testing::{check_gradient, close, normal};

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

    #[test]
    fn stacks_of_any_rank_are_multiplied_as_their_matrices() {
        let (x, y) = (
            normal("x", &[2, 3, 1, 2, 4, 5]),
            normal("y", &[3, 2, 1, 5, 2]),
        );
        let product = matmul(&x, &y).unwrap();
        assert_eq!(product.dims(), [2, 3, 2, 2, 4, 2]);
        for (i, j, k, l) in [(0, 0, 0, 0), (1, 2, 1, 1), (0, 1, 1, 0)] {
            let x = x.get(i).and_then(|x| x.get(j)?.get(0)?.get(l)).unwrap();
            let y = y.get(j).and_then(|y| y.get(k)?.get(0)).unwrap();
            let found = product.get(i).and_then(|it| it.get(j)?.get(k)?.get(l));
            close(
                &found.unwrap(),
                &x.matmul(&y).unwrap(),
                1e-12,
                "one of many",
            );
        }
        check_gradient("matmul", &[&[2, 1, 2, 2, 3], &[2, 1, 3, 2]], |x| {
            matmul(&x[0], &x[1])
        });
        assert!(matmul(&x, &y.get(0).unwrap()).is_ok());
        assert!(matmul(&x, &normal("z", &[5])).is_err());
        assert!(matmul(&x, &normal("z", &[3, 7, 1, 5, 2])).is_ok());
        assert!(matmul(&x, &normal("z", &[4, 1, 1, 5, 2])).is_err());
    }
}
