use candle_core::{DType, Device};

use super::*;
use crate::ops::testing::{Sampler, agree};
use crate::testing::{check_gradient, normal};

#[test]
fn the_kernel_meets_its_composed_form() {
    let mut sampler = Sampler::new(15);
    for (batch, length, vocabulary, dim) in [(1, 1, 1, 1), (2, 5, 3, 7), (3, 300, 17, 40)] {
        let ids: Vec<u32> = (0..batch * length)
            .map(|_| (sampler.bits() % vocabulary as u64) as u32)
            .collect();
        let ids = Tensor::from_vec(ids, (batch, length), &Device::Cpu).unwrap();
        let inputs = [
            sampler.normal(&[vocabulary, dim], 1.0),
            sampler.normal(&[length + 4, dim], 1.0),
            sampler.normal(&[1, dim], 1.0),
        ];
        for operands in 1..=3 {
            let f = |x: &[Tensor]| Ok(embed(&ids, &x[0], x.get(2), x.get(1))?);
            agree("embedding", &inputs[..operands], f, f);
        }
        let inputs = [inputs[0].clone(), inputs[2].clone()];
        let f = |x: &[Tensor]| Ok(embed(&ids, &x[0], Some(&x[1]), None)?);
        agree("embedding without positions", &inputs, f, f);
    }
}

#[test]
fn slots_are_rows_of_the_table_plus_positions() {
    let tensor =
        |rows: &[[f64; 2]]| Tensor::from_vec(rows.concat(), (rows.len(), 2), &Device::Cpu).unwrap();
    let ids = Tensor::new(&[[2u32, 0]], &Device::Cpu).unwrap();
    let table = tensor(&[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]);
    let positions = tensor(&[[0.1, 0.1], [0.2, 0.2], [0.3, 0.3], [9.0, 9.0]]);
    let y = embed(&ids, &table, Some(&tensor(&[[7.0, 8.0]])), Some(&positions)).unwrap();
    let y: Vec<Vec<Vec<f64>>> = y.to_vec3().unwrap();
    assert_eq!(y, [[[7.1, 8.1], [5.2, 6.2], [1.3, 2.3]]]);
}

#[test]
fn gradients_are_difference_quotients() {
    let ids = Tensor::new(&[[1u32, 2, 1], [3, 0, 0]], &Device::Cpu).unwrap();
    check_gradient("embedding", &[&[4, 2], &[1, 2], &[4, 2]], |x| {
        embed(&ids, &x[0], Some(&x[1]), Some(&x[2]))
    });
}

#[test]
fn ids_outside_the_table_and_rows_that_do_not_fit_are_errors() {
    for dtype in [DType::F32, DType::F64] {
        let table = Sampler::new(16)
            .normal(&[3, 4], 1.0)
            .to_dtype(dtype)
            .unwrap();
        let ids = |ids: [u32; 2]| Tensor::new(&[ids], &Device::Cpu).unwrap();
        for outside in [[0, 3], [3, 0]] {
            let refused = embed(&ids(outside), &table, None, None).unwrap_err();
            assert!(refused.to_string().contains('3'), "{refused}");
        }
        let positions = table.narrow(0, 0, 1).unwrap();
        assert!(embed(&ids([0, 2]), &table, None, Some(&positions)).is_err());
        for shape in [[2, 4], [1, 5]] {
            let first = normal("first", &shape).to_dtype(dtype).unwrap();
            assert!(embed(&ids([0, 2]), &table, Some(&first), None).is_err());
        }
    }
}
