use super::*;
use crate::testing::{check_gradient, close, normal};

#[test]
fn the_kernel_meets_the_composed_form() {
    use crate::ops::testing::{Sampler, agree};
    for (batch, (start, length), row, columns, width) in [
        (1, (0, 1), 4, 4, 4),
        (2, (5, 7), 18, 12, 6),
        (3, (0, 70), 11, 10, 5),
        (2, (1, 3), 3, 2, 1),
        (2, (0, 3), 3, 0, 0),
        // Angles of which f32 keeps three digits behind the point.
        (1, (100_000, 2), 6, 6, 6),
    ] {
        let x = Sampler::new(3).normal(&[batch, length, row], 1.0);
        let turns = turns(positions(start, length), width);
        agree(
            "rotary",
            &[x],
            |x| Ok(rotary(&x[0], start, columns, width)?),
            |x| Ok(composed(&x[0], columns, width, &turns)?),
        );
    }
}

#[test]
fn turns_are_those_of_their_angles() {
    let positions = [-70, -64, -1, 0, 1, 63, 64, 130, 100_000];
    let turns = turns(positions.into_iter().map(Some), 6);
    for (position, turns) in positions.iter().zip(turns.chunks_exact(3)) {
        for (c, [cosine, sine]) in turns.iter().enumerate() {
            let angle = *position as f64 * 10_000f64.powf(-2.0 * c as f64 / 6.0);
            let error = (cosine - angle.cos()).abs() + (sine - angle.sin()).abs();
            assert!(error < 1e-10, "position {position}, pair {c}: {error:.1e}");
        }
    }
}

#[test]
fn gradients_agree_with_differences() {
    for (row, columns, width) in [(8, 8, 4), (11, 10, 5)] {
        check_gradient("rotary", &[&[2, 3, row]], |x| {
            rotary(&x[0], 1, columns, width)
        });
    }
}

/// Checks against complex numbers: a pair is one, and the rotation a product with e^{i angle}.
#[test]
fn products_depend_on_contents_and_distance() {
    let (length, width) = (9, 6);
    let [q, k] = ["q", "k"].map(|name| {
        let one = normal(name, &[1, 1, width]);
        let all = one
            .broadcast_as((1, length, width))
            .unwrap()
            .contiguous()
            .unwrap();
        rotary(&all, 0, width, width).unwrap().squeeze(0).unwrap()
    });
    let (one_q, one_k) = (q.get(0).unwrap(), k.get(0).unwrap());
    let [one_q, one_k] = [one_q, one_k].map(|x| x.to_vec1::<f64>().unwrap());
    let products = q.matmul(&k.t().unwrap()).unwrap();
    let mut expected = Vec::new();
    for i in 0..length {
        for j in 0..length {
            let mut sum = 0.0;
            for c in 0..width / 2 {
                let angle = (i as f64 - j as f64) / 10_000f64.powf(2.0 * c as f64 / width as f64);
                let (qr, qi) = (one_q[2 * c], one_q[2 * c + 1]);
                let (kr, ki) = (one_k[2 * c], one_k[2 * c + 1]);
                // Re(q e^{i angle} conj(k))
                let (re, im) = (qr * kr + qi * ki, qi * kr - qr * ki);
                sum += re * angle.cos() - im * angle.sin();
            }
            expected.push(sum);
        }
    }
    let expected = Tensor::from_vec(expected, (length, length), &Device::Cpu).unwrap();
    close(&products, &expected, 1e-12, "rotary");
}

#[test]
fn groups_that_do_not_fit_are_refused() {
    let x = normal("x", &[1, 2, 8]);
    for (columns, width) in [(12, 4), (6, 4), (4, 0)] {
        assert!(rotary(&x, 0, columns, width).is_err());
    }
}
