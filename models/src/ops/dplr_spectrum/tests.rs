use super::*;
use crate::ops::testing::in_bfloat16;
use crate::testing::{check_gradient, close, normal};

/// Returns rows of small products, whose poles lie left of the imaginary axis.
fn rows(x: &[Tensor]) -> Result<Tensor> {
    let re = x[1].sqr()?.affine(-1.0, -0.2)?;
    let square = (re.sqr()? + x[2].sqr()?)?;
    let [sum, product] = [re.affine(2.0, 0.0)?, square].map(|x| x.unsqueeze(1));
    Ok(Tensor::cat(&[(&x[0] * 0.2)?, sum?, product?], 1)?)
}

#[test]
fn gradients_are_difference_quotients() {
    for directions in [1, 2] {
        let products = 4 * directions + 4;
        let shapes: [&[usize]; 3] = [&[2, products, 3], &[2, 3], &[2, 3]];
        check_gradient("rank-1 spectrum", &shapes, |x| {
            dplr_spectrum(&rows(x)?, directions, 6)
        });
    }
}

/// Two channels of three are one group.
#[test]
fn channels_are_independent() {
    let inputs = [
        normal("products", &[3, 12, 2]),
        normal("decay", &[3, 2]),
        normal("angle", &[3, 2]),
    ];
    let (rows, longest) = (rows(&inputs).unwrap(), TABLE / 2 - 2);
    let all = dplr_spectrum(&rows, 2, longest).unwrap();
    assert_eq!(all.dims(), [3, 4, TABLE / 4]);
    for channel in 0..3 {
        let own = rows.narrow(0, channel, 1).unwrap();
        let own = dplr_spectrum(&own, 2, longest).unwrap();
        close(&all.narrow(0, channel, 1).unwrap(), &own, 1e-9, "channel");
    }
}

#[test]
fn no_factor_is_rounded() {
    let inputs = [
        normal("products", &[2, 8, 3]),
        normal("decay", &[2, 3]),
        normal("angle", &[2, 3]),
    ];
    let rows = rows(&inputs).unwrap();
    let exact = dplr_spectrum(&rows, 1, 6).unwrap();
    for rounded in in_bfloat16(|| dplr_spectrum(&rows, 1, 6).unwrap()) {
        close(&rounded, &exact, 1e-12, "with products of bfloat16");
    }
}

#[test]
fn shapes_that_do_not_fit_are_errors() {
    let rows = normal("rows", &[2, 14, 3]);
    assert!(dplr_spectrum(&rows, 1, 6).is_err());
    assert!(dplr_spectrum(&rows, 2, 0).is_err());
    for shape in [[2, 14, 0], [0, 14, 3]] {
        let empty = Tensor::zeros(&shape, DType::F64, &Device::Cpu).unwrap();
        assert!(dplr_spectrum(&empty, 2, 6).is_err());
    }
    assert!(dplr_spectrum(&rows.to_dtype(DType::F32).unwrap(), 2, 6).is_err());
}
