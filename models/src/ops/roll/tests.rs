use candle_core::Device;

use super::*;
use crate::ops::testing::{Sampler, agree};
use crate::testing::{check_gradient, close, normal};

fn tracks(all: &[(usize, usize)]) -> Arc<[Track]> {
    let mut start = 0;
    let track = |&(width, shift): &(usize, usize)| {
        let track = Track {
            start,
            width,
            shift,
        };
        start += width;
        track
    };
    all.iter().map(track).collect()
}

/// Returns a mask of rows of which every position, two in front and three with gaps are valid.
fn valid() -> Tensor {
    let valid = [
        [1.0, 1.0, 1.0, 1.0, 1.0],
        [1.0, 1.0, 0.0, 0.0, 0.0],
        [0.0, 1.0, 0.0, 1.0, 1.0],
        [0.0f64; 5],
    ];
    Tensor::new(&valid, &Device::Cpu).unwrap()
}

#[test]
fn positions_get_what_stands_ahead_in_their_ring() {
    let tracks = tracks(&[(1, 0), (2, 1), (1, 2), (1, 64)]);
    let rings = Rings::new(4, 5, Some(&valid())).unwrap();
    let (residual, x) = (normal("r", &[4, 5, 5]), normal("x", &[4, 5, 5]));
    let rows: Vec<Vec<Vec<f64>>> = x.to_vec3().unwrap();
    let members: [&[usize]; 4] = [&[0, 1, 2, 3, 4], &[0, 1], &[1, 3, 4], &[]];
    let mut expected = rows.clone();
    for (row, members) in members.iter().enumerate() {
        for (place, position) in members.iter().enumerate() {
            for (channel, shift) in [0, 1, 1, 2, 64].into_iter().enumerate() {
                let from = members[(place + shift) % members.len()];
                expected[row][*position][channel] = rows[row][from][channel];
            }
        }
    }
    let expected = (Tensor::new(expected, &Device::Cpu).unwrap() + &residual).unwrap();
    let actual = add_rolled(&residual, &x, &tracks, &rings).unwrap();
    close(&actual, &expected, 1e-12, "rolled");
}

#[test]
fn the_kernel_meets_its_composed_form() {
    let mut sampler = Sampler::new(131);
    for (shape, all) in [
        ([1, 1, 2], tracks(&[(1, 0), (1, 1)])),
        ([4, 5, 7], tracks(&[(3, 0), (2, 1), (2, 2)])),
        ([3, 130, 33], tracks(&[(16, 0), (1, 1), (16, 64)])),
    ] {
        let [batch, length, _] = shape;
        for valid in [None, (length == 5).then(valid)] {
            let rings = Rings::new(batch, length, valid.as_ref()).unwrap();
            let inputs = [sampler.normal(&shape, 1.0), sampler.normal(&shape, 1.0)];
            let f = |x: &[Tensor]| Ok(add_rolled(&x[0], &x[1], &all, &rings)?);
            agree("rolled", &inputs, f, f);
        }
    }
}

#[test]
fn gradients_are_difference_quotients() {
    let tracks = tracks(&[(1, 0), (1, 1), (1, 2)]);
    let rings = Rings::new(4, 5, Some(&valid())).unwrap();
    check_gradient("rolled", &[&[4, 5, 3], &[4, 5, 3]], |x| {
        add_rolled(&x[0], &x[1], &tracks, &rings)
    });
}

#[test]
fn shapes_that_do_not_fit_are_errors() {
    let x = normal("x", &[2, 3, 4]);
    let track = |start| Track {
        start,
        width: 2,
        shift: 1,
    };
    for (rings, tracks, residual) in [
        ([2, 4], tracks(&[(4, 0)]), &x),
        ([2, 3], tracks(&[(3, 0)]), &x),
        ([2, 3], [track(0), track(1)].into(), &x),
        ([2, 3], tracks(&[(4, 0)]), &normal("r", &[2, 3, 5])),
    ] {
        let rings = Rings::new(rings[0], rings[1], None).unwrap();
        let message = add_rolled(residual, &x, &tracks, &rings).unwrap_err();
        assert!(message.to_string().contains("do not fit"), "{message}");
    }
    assert!(Rings::new(2, 3, Some(&normal("valid", &[3, 2]))).is_err());
}
