//! Matrix products on slices: the `gemm` crate on one thread, with bounds checked.

use gemm::Parallelism;

/// A matrix inside a slice: element (i, j) is `data[i * row + j * column]`.
#[derive(Clone, Copy)]
pub(super) struct Matrix<'a> {
    data: &'a [f32],
    row: usize,
    column: usize,
}

impl<'a> Matrix<'a> {
    /// Rows of `width` elements, one after the other.
    pub(super) fn rows(data: &'a [f32], width: usize) -> Self {
        Matrix {
            data,
            row: width,
            column: 1,
        }
    }

    /// The same memory read as the transposed matrix: columns of elements `width` apart.
    pub(super) fn columns(data: &'a [f32], width: usize) -> Self {
        Matrix {
            data,
            row: 1,
            column: width,
        }
    }

    fn holds(&self, rows: usize, columns: usize) -> bool {
        rows * columns == 0 || (rows - 1) * self.row + (columns - 1) * self.column < self.data.len()
    }
}

/// y = a b, or y += a b, for a (m, k), b (k, n) and y (m, n) in rows.
///
/// # Panics
/// If an operand is smaller than its shape.
pub(super) fn multiply(
    (m, n, k): (usize, usize, usize),
    a: Matrix,
    b: Matrix,
    y: &mut [f32],
    accumulate: bool,
) {
    multiply_into((m, n, k), a, b, (y, n), accumulate);
}

/// The same for a y whose rows are `row` apart.
///
/// # Panics
/// If an operand is smaller than its shape, or rows overlap.
pub(super) fn multiply_into(
    (m, n, k): (usize, usize, usize),
    a: Matrix,
    b: Matrix,
    (y, row): (&mut [f32], usize),
    accumulate: bool,
) {
    let fits = m * n == 0 || (row >= n && (m - 1) * row + n <= y.len());
    assert!(a.holds(m, k) && b.holds(k, n) && fits, "operand too small");
    // SAFETY: `gemm` touches the elements (i, j) of the three matrices within the given shapes, all of
    // which lie inside the slices by the assertion; `y` is borrowed mutably, so it overlaps neither.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            y.as_mut_ptr(),
            1,
            row as isize,
            accumulate,
            a.data.as_ptr(),
            a.column as isize,
            a.row as isize,
            b.data.as_ptr(),
            b.column as isize,
            b.row as isize,
            1.0,
            1.0,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}
