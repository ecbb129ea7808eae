use super::*;
use crate::testing::normal;

#[test]
fn a_bucket_is_the_place_of_the_largest_projection() {
    let (batch, length, heads, width, rounds, half) = (2, 7, 3, 5, 2, 4);
    let x = normal("x", &[batch, length, heads * width]);
    let rotations = normal("rotations", &[width, rounds, half]);
    let actual = lsh(&x, &rotations).unwrap();
    let split = x.reshape((batch, length, heads, width)).unwrap();
    let flat = rotations.reshape((width, rounds * half)).unwrap();
    let turned = split.broadcast_matmul(&flat).unwrap();
    let turned = turned
        .reshape((batch, length, heads, rounds, half))
        .unwrap();
    let both = Tensor::cat(&[&turned, &turned.neg().unwrap()], 4).unwrap();
    let expected = both.argmax(4).unwrap().permute((0, 2, 3, 1)).unwrap();
    let expected: Vec<u32> = expected.flatten_all().unwrap().to_vec1().unwrap();
    assert_eq!(actual, expected);
}

#[test]
fn shapes_that_do_not_fit_are_errors() {
    assert!(lsh(&normal("x", &[1, 2, 5]), &normal("r", &[2, 1, 1])).is_err());
    let no_rounds = normal("r", &[2, 1, 1]).narrow(1, 0, 0).unwrap();
    let buckets = lsh(&normal("x", &[1, 2, 4]), &no_rounds).unwrap();
    assert!(buckets.is_empty());
}
