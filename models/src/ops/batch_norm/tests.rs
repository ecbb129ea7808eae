use candle_core::{DType, Device};

use super::*;
use crate::ops::testing::{Sampler, agree};
use crate::testing::{check_gradient, close, normal};

fn norm(x: &[Tensor], valid: Option<&Tensor>) -> Result<Tensor> {
    let norm = Normalised {
        weight: &x[1],
        bias: &x[2],
        epsilon: 1e-3,
    };
    Ok(batch_norm(&x[0], &norm, valid)?.0)
}

/// Returns a mask that is 1 for the first so many positions of each row.
fn valid(lengths: &[usize], width: usize) -> Tensor {
    let row = |length: &usize| {
        (0..width)
            .map(|l| f64::from(u8::from(l < *length)))
            .collect()
    };
    let rows: Vec<Vec<f64>> = lengths.iter().map(row).collect();
    Tensor::new(rows, &Device::Cpu).unwrap()
}

#[test]
fn the_kernel_meets_its_composed_form() {
    let mut sampler = Sampler::new(51);
    // Of the last, whole blocks of rows are padding, the first one too.
    for (shape, lengths) in [
        ([1, 1, 1], vec![1]),
        ([2, 5, 3], vec![5, 0]),
        ([3, 70, 33], vec![70, 1, 40]),
        ([2, 600, 5], vec![0, 450]),
    ] {
        let width = shape[2];
        let x = (sampler.normal(&shape, 2.0) + 30.0).unwrap();
        let inputs = [
            x,
            sampler.normal(&[width], 1.0),
            sampler.normal(&[width], 1.0),
        ];
        let rows = valid(&lengths, shape[1]);
        for rows in [None, Some(&rows)] {
            let f = |x: &[Tensor]| {
                let rows = rows.map(|rows| rows.to_dtype(x[0].dtype())).transpose()?;
                Ok(norm(x, rows.as_ref())?)
            };
            agree("batch norm", &inputs, f, f);
        }
        let by = |x: &[Tensor]| {
            let of =
                |name: &str| Ok::<_, crate::Error>(normal(name, &[width]).to_dtype(x[0].dtype())?);
            let moments = Moments::new(&of("mean")?, &of("variance")?.abs()?)?;
            let norm = Normalised {
                weight: &x[1],
                bias: &x[2],
                epsilon: 1e-1,
            };
            Ok(batch_norm_by(&x[0], &norm, &moments)?)
        };
        agree("batch norm by given moments", &inputs, by, by);
    }
}

#[test]
fn gradients_are_difference_quotients() {
    let rows = valid(&[4, 2], 4);
    for rows in [None, Some(&rows)] {
        check_gradient("batch norm", &[&[2, 4, 3], &[3], &[3]], |x| norm(x, rows));
    }
}

#[test]
fn moments_are_those_of_the_rows_that_count() {
    let x = normal("x", &[2, 4, 3]);
    let moments = Moments::of(&x, Some(&valid(&[4, 1], 4))).unwrap();
    let single = Moments::of(
        &x.to_dtype(DType::F32).unwrap(),
        Some(&valid(&[4, 1], 4).to_dtype(DType::F32).unwrap()),
    );
    let data: Vec<Vec<Vec<f64>>> = x.to_vec3().unwrap();
    let rows: Vec<&Vec<f64>> = data[0].iter().chain(&data[1][..1]).collect();
    for channel in 0..3 {
        let mean = rows.iter().map(|row| row[channel]).sum::<f64>() / 5.0;
        let variance = rows
            .iter()
            .map(|row| (row[channel] - mean).powi(2))
            .sum::<f64>()
            / 5.0;
        let expected = Tensor::new(&[mean, variance], &Device::Cpu).unwrap();
        let actual = moments
            .0
            .narrow(1, channel, 1)
            .unwrap()
            .flatten_all()
            .unwrap();
        close(&actual, &expected, 1e-12, "f64");
        let actual = single.as_ref().unwrap().0.to_dtype(DType::F64).unwrap();
        let actual = actual.narrow(1, channel, 1).unwrap().flatten_all().unwrap();
        close(&actual, &expected, 1e-6, "f32");
    }
}

#[test]
fn shapes_that_do_not_fit_are_errors() {
    let x = normal("x", &[2, 4, 3]);
    let inputs = [x, normal("gain", &[3]), normal("offset", &[3])];
    assert!(norm(&inputs, Some(&valid(&[3, 2], 3))).is_err());
}
