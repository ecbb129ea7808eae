//! Matrix products of composed layers. Their factors can be rounded to bfloat16, as the kernels'
//! are ([`round_to_bfloat16`]); products are summed in f32, and everything between products keeps
//! its type.
//!
//! On a GPU candle rounds factors of type f32 to TF32, of 11 significant bits, if a switch of the
//! whole process says so. A product that needs another precision than the run's sets the switch for
//! its own calls (`GpuProduct`).

use std::cell::Cell;

use candle_core::backend::BackendStorage;
use candle_core::cuda::{gemm_reduced_precision_f32, set_gemm_reduced_precision_f32};
use candle_core::{CpuStorage, CudaStorage, CustomOp2, DType, Error, Layout, Shape, Tensor};

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
/// factors are rounded to bfloat16. So are gradients of the factors on the CPU, and the gradient of
/// the product on a GPU.
///
/// Mixers use it in place of `Tensor::matmul`, whose factors are not rounded.
///
/// # Errors
/// If shapes or types do not fit.
pub fn matmul(left: &Tensor, right: &Tensor) -> Result<Tensor> {
    if !rounds_to_bfloat16() {
        return product(left, right, None);
    }
    if is_f32_on_gpu(left) {
        return product(left, right, Some(GpuProduct { rounds: true }));
    }
    let rounded = |x: &Tensor| x.to_dtype(DType::BF16)?.to_dtype(x.dtype());
    product(&rounded(left)?, &rounded(right)?, None)
}

/// Returns the matrix product (.., M, N) of `left` (.., M, K) and `right` (.., K, N), as [`matmul`]
/// does, but never rounds factors or gradients. It is for products that rounding would spoil, as in
/// the iteration for an inverse.
///
/// # Errors
/// If shapes or types do not fit.
pub fn exact_matmul(left: &Tensor, right: &Tensor) -> Result<Tensor> {
    let rounds = is_f32_on_gpu(left) && gemm_reduced_precision_f32();
    product(left, right, rounds.then_some(GpuProduct { rounds: false }))
}

fn is_f32_on_gpu(x: &Tensor) -> bool {
    x.device().is_cuda() && x.dtype() == DType::F32
}

/// Returns the product in the precision of `form`, or without it in that of candle's switch.
fn product(left: &Tensor, right: &Tensor, form: Option<GpuProduct>) -> Result<Tensor> {
    let leading = |x: &Tensor| x.dims()[..x.rank().saturating_sub(2)].to_vec();
    let equal = leading(left) == leading(right);
    let product = match (left.rank().max(right.rank()), form) {
        (0..=4, _) if equal => multiply(left, right, form)?,
        (0..=4, None) => left.broadcast_matmul(right)?,
        (_, Some(_)) if left.rank() > 2 && right.rank() == 2 => {
            // One tall product: `right` is not copied for each matrix of `left`.
            let rows = &left.dims()[..left.rank() - 1];
            let y = multiply(&left.flatten_to(left.rank() - 2)?, right, form)?;
            y.reshape([rows, &right.dims()[1..]].concat())?
        }
        _ => flat_matmul(left, right, form)?,
    };
    let terms = left.dims().last().copied().unwrap_or(0);
    count(2 * (product.elem_count() * terms) as u64);
    Ok(product)
}

/// Returns the product of tensors whose leading dimensions are equal.
fn multiply(
    left: &Tensor,
    right: &Tensor,
    form: Option<GpuProduct>,
) -> candle_core::Result<Tensor> {
    match form {
        Some(form) if left.elem_count() > 0 && right.elem_count() > 0 => {
            left.apply_op2(right, form)
        }
        _ => left.matmul(right),
    }
}

/// A product on a GPU, and those of its backward pass, in a precision of their own. Sums are f32.
#[derive(Clone, Copy)]
struct GpuProduct {
    /// True if all factors are rounded to bfloat16, false if they keep their bits.
    rounds: bool,
}

impl GpuProduct {
    fn forward<S: BackendStorage>(
        self,
        (left, of_left): (&S, &Layout),
        (right, of_right): (&S, &Layout),
    ) -> candle_core::Result<(S, Shape)> {
        let (size, shape) = match (of_left.dims(), of_right.dims()) {
            ([stack @ .., rows, terms], [others @ .., same, columns])
                if stack == others && terms == same =>
            {
                let size = (stack.iter().product(), *rows, *columns, *terms);
                (size, [stack, &[*rows, *columns]].concat())
            }
            _ => {
                return Err(Error::ShapeMismatchBinaryOp {
                    lhs: of_left.shape().clone(),
                    rhs: of_right.shape().clone(),
                    op: "matmul",
                });
            }
        };
        let y = match self.rounds {
            true => {
                let (left, of_left) = rounded(left, of_left)?;
                let (right, of_right) = rounded(right, of_right)?;
                // TF32 has all 8 significant bits of these factors.
                with_tf32(true, || left.matmul(&right, size, &of_left, &of_right))
            }
            false => with_tf32(false, || left.matmul(right, size, of_left, of_right)),
        };
        Ok((y?, shape.into()))
    }
}

impl CustomOp2 for GpuProduct {
    fn name(&self) -> &'static str {
        "matmul"
    }

    fn cpu_fwd(
        &self,
        left: &CpuStorage,
        of_left: &Layout,
        right: &CpuStorage,
        of_right: &Layout,
    ) -> candle_core::Result<(CpuStorage, Shape)> {
        self.forward((left, of_left), (right, of_right))
    }

    fn cuda_fwd(
        &self,
        left: &CudaStorage,
        of_left: &Layout,
        right: &CudaStorage,
        of_right: &Layout,
    ) -> candle_core::Result<(CudaStorage, Shape)> {
        self.forward((left, of_left), (right, of_right))
    }

    fn bwd(
        &self,
        left: &Tensor,
        right: &Tensor,
        _y: &Tensor,
        dy: &Tensor,
    ) -> candle_core::Result<(Option<Tensor>, Option<Tensor>)> {
        let dy = dy.detach();
        let dleft = match left.track_op() {
            true => Some(multiply(&dy, &right.detach().t()?, Some(*self))?),
            false => None,
        };
        let dright = match right.track_op() {
            true => Some(multiply(&left.detach().t()?, &dy, Some(*self))?),
            false => None,
        };
        Ok((dleft, dright))
    }
}

/// Returns a factor rounded to bfloat16, in its type, and its layout.
fn rounded<S: BackendStorage>(x: &S, layout: &Layout) -> candle_core::Result<(S, Layout)> {
    let whole = Layout::contiguous(layout.shape());
    let rounded = x.to_dtype(layout, DType::BF16)?;
    Ok((rounded.to_dtype(&whole, x.dtype())?, whole))
}

/// Runs `work` with candle's switch for TF32 on or off, and leaves the switch as it was. candle
/// reads it on the host when a product is issued, and one thread issues all products of a process.
fn with_tf32<T>(on: bool, work: impl FnOnce() -> T) -> T {
    let before = gemm_reduced_precision_f32();
    set_gemm_reduced_precision_f32(on);
    let result = work();
    set_gemm_reduced_precision_f32(before);
    result
}

/// Returns a product that candle does not compute: leading axes become one. A tensor has more than
/// four axes, or the precision is `form`'s.
fn flat_matmul(left: &Tensor, right: &Tensor, form: Option<GpuProduct>) -> Result<Tensor> {
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
        .map(|i| match (axis(left, i), axis(right, i)) {
            (1, other) => other,
            (own, _) => own,
        })
        .collect();
    let flat = |x: &Tensor| {
        let matrix = &x.dims()[x.rank() - 2..];
        let stack = x.broadcast_as([&leading, matrix].concat())?;
        stack.reshape((leading.iter().product::<usize>(), matrix[0], matrix[1]))
    };
    let product = multiply(&flat(left)?, &flat(right)?, form)?;
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
    use candle_core::{Device, Var};

    use super::*;
    use crate::ops::testing::in_bfloat16;
    use crate::testing::{agree, check_gradient, close, normal};

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

    const SHAPES: [[&[usize]; 2]; 5] = [
        [&[3, 4], &[4, 5]],
        [&[2, 3, 3, 4], &[2, 3, 4, 5]],
        [&[2, 3, 4], &[4, 5]],
        [&[3, 4], &[2, 4, 5]],
        [&[2, 1, 3, 4], &[3, 4, 5]],
    ];

    /// The form for GPUs runs on the CPU as well, which has no TF32.
    #[test]
    fn exact_products_of_gpus_are_candles() {
        let form = Some(GpuProduct { rounds: false });
        for shapes in SHAPES {
            let operands = [("x", shapes[0]), ("w", shapes[1])];
            let vars =
                operands.map(|(name, shape)| Var::from_tensor(&normal(name, shape)).unwrap());
            let [x, w] = &vars;
            let (actual, expected) = (product(x, w, form), product(x, w, None));
            let place = format!("{shapes:?}");
            agree(&actual.unwrap(), &expected.unwrap(), &vars, 1e-12, &place);
        }
        let x = normal("x", &[2, 3, 4]);
        assert!(product(&x, &x, form).is_err());
        assert!(product(&x, &normal("w", &[5]), form).is_err());
        let empty = Tensor::zeros((2, 0, 4), DType::F64, &Device::Cpu).unwrap();
        let y = product(&empty, &normal("w", &[4, 5]), form).unwrap();
        assert_eq!(y.dims(), [2, 0, 5]);
    }

    #[test]
    fn rounded_products_round_both_factors_and_no_more() {
        let form = Some(GpuProduct { rounds: true });
        let rounded = |x: &Tensor| {
            let x = x.to_dtype(DType::BF16).unwrap();
            x.to_dtype(DType::F64).unwrap()
        };
        for [left, right] in SHAPES {
            let (x, w) = (normal("x", left), normal("w", right));
            let y = product(&x, &w, form).unwrap();
            let expected = product(&rounded(&x), &rounded(&w), None).unwrap();
            close(&y, &expected, 1e-12, "a product of rounded factors");
            for y in in_bfloat16(|| matmul(&x, &w).unwrap()) {
                close(&y, &expected, 1e-12, "a product of the CPU");
            }
        }
        let [x, w] = [normal("x", &[3, 4]), normal("w", &[4, 5])].map(|x| Var::from_tensor(&x));
        let (x, w, dy) = (x.unwrap(), w.unwrap(), normal("dy", &[3, 5]));
        let y = product(&x, &w, form).unwrap();
        let gradients = (y * &dy).unwrap().sum_all().unwrap().backward().unwrap();
        let dy = rounded(&dy);
        let of_x = dy.matmul(&rounded(&w).t().unwrap()).unwrap();
        let of_w = rounded(&x).t().unwrap().matmul(&dy).unwrap();
        close(gradients.get(&x).unwrap(), &of_x, 1e-12, "dx");
        close(gradients.get(&w).unwrap(), &of_w, 1e-12, "dw");
    }

    #[test]
    fn an_empty_stack_is_multiplied_by_a_single_matrix() {
        for (left, right, expected) in [
            (
                vec![0, 1, 1, 2, 3],
                vec![1, 1, 1, 3, 2],
                vec![0, 1, 1, 2, 2],
            ),
            (
                vec![1, 1, 1, 2, 3],
                vec![0, 1, 4, 3, 2],
                vec![0, 1, 4, 2, 2],
            ),
        ] {
            let zeros = |shape| Tensor::zeros(shape, DType::F64, &Device::Cpu).unwrap();
            let y = matmul(&zeros(left), &zeros(right)).unwrap();
            assert_eq!(y.dims(), expected);
        }
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
