use super::*;
use crate::testing::Sampler;

fn numbers(sampler: &mut Sampler, len: usize) -> Vec<f32> {
    sampler.normal(len, 1.0)
}

/// Sums in f64.
fn slow((m, n, k): (usize, usize, usize), a: Matrix, b: Matrix, y: &[f32]) -> Vec<f32> {
    let at = |x: Matrix, i, j| f64::from(x.data[i * x.row + j * x.column]);
    let cell = |cell| {
        let (i, j) = (cell / n, cell % n);
        let sum: f64 = (0..k).map(|d| at(a, i, d) * at(b, d, j)).sum();
        (f64::from(y[cell]) + sum) as f32
    };
    (0..m * n).map(cell).collect()
}

#[test]
fn products_meet_the_definition() {
    let mut sampler = Sampler::new(81);
    for sizes in [
        (1, 1, 1),
        (3, 0, 2),
        (2, 3, 0),
        (7, 15, 9),
        (8, 16, 40),
        (65, 33, 257),
        (130, 97, 70),
        (20, 300, 520),
        (530, 100, 20),
        (140, 64, 64),
        (77, 80, 600),
    ] {
        let (m, n, k) = sizes;
        let [a, b, y] = [m * k, k * n, m * n].map(|len| numbers(&mut sampler, len));
        for (a_turned, b_turned) in [(false, false), (true, false), (false, true)] {
            let matrix = |data, rows, columns, turned| match turned {
                true => Matrix::columns(data, rows),
                false => Matrix::rows(data, columns),
            };
            let (a, b) = (matrix(&a, m, k, a_turned), matrix(&b, k, n, b_turned));
            let expected = [slow(sizes, a, b, &vec![0.0; m * n]), slow(sizes, a, b, &y)];
            for isa in Isa::all() {
                let packed = PackedMatrix::new(isa, b, (k, n));
                for accumulate in [false, true] {
                    let mut plain = y.clone();
                    multiply(isa, sizes, a, b, &mut plain, accumulate);
                    let mut other = y.clone();
                    multiply_packed(isa, m, a, &packed, &mut other, accumulate);
                    assert_eq!(plain, other, "{isa:?} {sizes:?}");
                    for (actual, expected) in plain.iter().zip(&expected[usize::from(accumulate)]) {
                        let size = 1.0 + expected.abs() + (k as f32).sqrt();
                        let error = (actual - expected).abs() / size;
                        assert!(error < 2e-6, "{isa:?} {sizes:?}: {actual}, not {expected}");
                    }
                }
            }
        }
    }
}

#[test]
fn rows_do_not_depend_on_the_rows_beside_them() {
    let mut sampler = Sampler::new(82);
    let (m, n, k) = (150, 45, 300);
    let [a, b, y] = [m * k, k * n, m * n].map(|len| numbers(&mut sampler, len));
    for isa in Isa::all().into_iter().chain(Isa::all_rounded()) {
        let product = |rows: usize| {
            let mut y = y.clone();
            for (y, a) in y.chunks_mut(rows * n).zip(a.chunks(rows * k)) {
                let sizes = (y.len() / n, n, k);
                multiply(isa, sizes, Matrix::rows(a, k), Matrix::rows(&b, n), y, true);
            }
            y
        };
        assert_eq!(product(m), product(1), "{isa:?}");
        assert_eq!(product(m), product(37), "{isa:?}");
    }
}

#[test]
fn rounded_factors_meet_the_definition_bit_for_bit_alike() {
    let mut sampler = Sampler::new(83);
    for sizes in [
        (1, 1, 1),
        (7, 15, 9),
        (8, 64, 33),
        (65, 33, 257),
        (20, 300, 520),
        (270, 50, 1100),
    ] {
        let (m, n, k) = sizes;
        let [a, b_data, y] = [m * k, k * n, m * n].map(|len| numbers(&mut sampler, len));
        let rounded = |x: &[f32]| {
            let mut x = x.to_vec();
            Format::Bf16Emulated.convert_rows(&mut x, 1);
            x
        };
        let (exact_a, exact_b) = (rounded(&a), rounded(&b_data));
        let expected = slow(
            sizes,
            Matrix::rows(&exact_a, k),
            Matrix::rows(&exact_b, n),
            &y,
        );
        let mut of_fused = None;
        for isa in Isa::all_rounded() {
            let (a_rows, b) = (Matrix::rows(&a, k), Matrix::rows(&b_data, n));
            let mut plain = y.clone();
            multiply(isa, sizes, a_rows, b, &mut plain, true);
            // The same matrix, stored by columns.
            let columns = |x: &[f32], (rows, row): (usize, usize)| -> Vec<f32> {
                (0..rows * row)
                    .map(|i| x[i % rows * row + i / rows])
                    .collect()
            };
            let (a_columns, b_columns) = (columns(&a, (m, k)), columns(&b_data, (k, n)));
            let turned = [
                (Matrix::columns(&a_columns, m), b),
                (a_rows, Matrix::columns(&b_columns, k)),
            ];
            for (a, b) in turned.into_iter().chain([(a_rows, b)]) {
                let mut packed = y.clone();
                multiply_packed(
                    isa,
                    m,
                    a,
                    &PackedMatrix::new(isa, b, (k, n)),
                    &mut packed,
                    true,
                );
                assert_eq!(plain, packed, "{isa:?} {sizes:?}");
                let mut other = y.clone();
                multiply(isa, sizes, a, b, &mut other, true);
                assert_eq!(plain, other, "{isa:?} {sizes:?}");
            }
            for (actual, expected) in plain.iter().zip(&expected) {
                let error = (actual - expected).abs() / (1.0 + expected.abs() + (k as f32).sqrt());
                assert!(error < 2e-6, "{isa:?} {sizes:?}: {actual}, not {expected}");
            }
            if isa.sums_as(Isa::all()[0]) {
                assert_eq!(
                    *of_fused.get_or_insert(plain.clone()),
                    plain,
                    "{isa:?} {sizes:?}"
                );
            }
        }
    }
}

#[test]
fn an_affine_map_is_a_product_added_to_its_bias() {
    let mut sampler = Sampler::new(84);
    for sizes in [
        (1, 1, 1),
        (3, 5, 0),
        (64, 48, 65),
        (20, 300, 520),
        (270, 50, 1100),
    ] {
        let (m, n, k) = sizes;
        let [a, b, bias] = [m * k, k * n, n].map(|len| numbers(&mut sampler, len));
        let (a, b) = (Matrix::rows(&a, k), Matrix::rows(&b, n));
        for isa in Isa::all().into_iter().chain(Isa::all_rounded()) {
            let packed = PackedMatrix::new(isa, b, (k, n));
            let mut expected = bias.repeat(m);
            multiply_packed(isa, m, a, &packed, &mut expected, true);
            let mut y = vec![f32::NAN; m * n];
            affine(isa, a, &packed, &bias, &mut y);
            assert_eq!(y, expected, "{isa:?} {sizes:?}");
        }
    }
}

#[test]
fn what_lies_between_rows_is_left_alone() {
    let isa = Isa::current();
    let mut y = [7.0; 8];
    let (a, b) = ([1.0, 2.0], [3.0, 4.0]);
    let (a, b) = (Matrix::columns(&a, 2), Matrix::rows(&b, 2));
    multiply_into(isa, (2, 2, 1), a, b, (&mut y, 5), false);
    assert_eq!(y, [3.0, 4.0, 7.0, 7.0, 7.0, 6.0, 8.0, 7.0]);
    multiply_into(isa, (2, 2, 0), a, b, (&mut y, 5), false);
    assert_eq!(y, [0.0, 0.0, 7.0, 7.0, 7.0, 0.0, 0.0, 7.0]);
}

#[test]
#[should_panic(expected = "operand too small")]
fn rows_that_overlap_are_refused() {
    let (a, b) = ([1.0, 2.0], [3.0, 4.0]);
    let (a, b) = (Matrix::columns(&a, 2), Matrix::rows(&b, 2));
    let mut y = [0.0; 8];
    multiply_into(Isa::current(), (2, 2, 1), a, b, (&mut y, 1), false);
}
