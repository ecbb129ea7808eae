use candle_core::{Device, Var};

use super::*;
use crate::testing::{close, normal};

/// Computes one position after the other.
fn steps(x: &Tensor, step: &Tensor) -> Tensor {
    let step = step.broadcast_as(x.shape()).unwrap();
    let mut all = x.to_vec3::<f64>().unwrap();
    let step = step.contiguous().unwrap().to_vec3::<f64>().unwrap();
    for (row, step) in all.iter_mut().zip(&step) {
        for t in 1..row.len() {
            for j in 0..row[t].len() {
                row[t][j] = row[t][j].max(row[t - 1][j] + step[t][j]);
            }
        }
    }
    Tensor::new(all, &Device::Cpu).unwrap()
}

#[test]
fn all_forms_are_the_recurrence_step_by_step() {
    for length in [1, 2, 3, 7, 16, 37] {
        let x = normal("x", &[2, length, 5]);
        for shape in [&[5][..], &[2, length, 5]] {
            let step = normal("step", shape).abs().unwrap().neg().unwrap();
            let expected = steps(&x, &step);
            let place = format!("{length} positions, steps {shape:?}");
            close(&running_max(&x, &step).unwrap(), &expected, 1e-15, &place);
            close(&composed(&x, &step).unwrap(), &expected, 1e-12, &place);
            let [x, step] = [&x, &step].map(|x| x.to_dtype(DType::F32).unwrap());
            let actual = running_max(&x, &step).unwrap();
            close(
                &actual.to_dtype(DType::F64).unwrap(),
                &expected,
                1e-5,
                &place,
            );
        }
    }
}

#[test]
fn a_maximum_has_no_history() {
    let x = Var::from_tensor(&normal("x", &[1, 4, 2])).unwrap();
    let m = running_max(&x, &normal("step", &[2])).unwrap();
    assert!(!m.track_op());
}

#[test]
fn shapes_that_do_not_fit_are_errors_and_empty_sequences_are_not() {
    let x = normal("x", &[2, 3, 4]);
    let message = running_max(&x, &normal("step", &[3])).unwrap_err();
    assert!(message.to_string().contains("[2, 3, 4]"), "{message}");
    let none = x.narrow(1, 0, 0).unwrap();
    let m = running_max(&none, &normal("step", &[4])).unwrap();
    assert_eq!(m.dims(), [2, 0, 4]);
}
