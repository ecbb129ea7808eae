use std::sync::Arc;

use candle_core::{DType, Var};

use super::*;
use crate::autograd::GradientRows;
use crate::autograd::graph_output::is_in_use;
use crate::ops::testing::{Sampler, agree};

/// The product of all operands that are there, element by element; keeps it twice, as if it were
/// needed.
struct Product;

impl Product {
    fn of(operands: &[View], left_out: Option<usize>) -> Vec<f32> {
        let rows = operands.iter().enumerate();
        let rows = rows.filter(|(index, x)| x.given().is_some() && Some(*index) != left_out);
        let rows: Vec<Vec<f32>> = rows.map(|(_, x)| elements_of(x)).collect();
        let count = operands.iter().find(|x| x.given().is_some()).unwrap();
        let product = |i| rows.iter().map(|row| row[i]).product();
        (0..count.shape.elem_count()).map(product).collect()
    }
}

/// Returns the elements row by row.
fn elements_of(x: &View) -> Vec<f32> {
    let width = *x.shape.dims().last().unwrap();
    let rows = x.shape.elem_count() / width;
    let rows = (0..rows).map(|i| x.rows().rows((i, 0), width).row(0).to_vec());
    rows.flatten().collect()
}

impl CustomOp<5> for Product {
    const NAME: &'static str = "product";
    type Saved = Vec<f32>;
    const READS_OUTPUT: bool = true;

    fn forward(&self, operands: [View; 5], keeps: bool) -> Result<(Vec<f32>, Shape, Vec<f32>)> {
        let shape = operands.iter().find(|x| x.given().is_some()).unwrap();
        let (y, shape) = (Self::of(&operands, None), shape.shape.clone());
        let saved = if keeps { y.clone() } else { Vec::new() };
        Ok((y, shape, saved))
    }

    fn backward(
        &self,
        operands: [View; 5],
        pass: BackwardPass<Vec<f32>, 5>,
    ) -> Result<[Gradient; 5]> {
        assert_eq!(pass.saved, pass.y);
        let gradient = |index: usize| -> Vec<f32> {
            let others = Self::of(&operands, Some(index));
            others.iter().zip(pass.dy).map(|(x, dy)| x * dy).collect()
        };
        let mut side_by_side = GradientRows::new(&operands, |len| vec![0.0; len]);
        side_by_side.write(|targets| {
            for (index, target) in targets.into_iter().enumerate() {
                if operands[index].given().is_none() {
                    continue;
                }
                let width = *operands[index].shape.dims().last().unwrap();
                for (i, row) in gradient(index).chunks(width).enumerate() {
                    let start = target.start + i * target.stride;
                    // SAFETY: the buffer has no other user.
                    unsafe { target.buffer.slice(start, width) }.copy_from_slice(row);
                }
            }
        });
        Ok(side_by_side.into_gradients())
    }
}

fn composed(x: &[Tensor]) -> Result<Tensor> {
    let (first, others) = x.split_first().unwrap();
    others
        .iter()
        .try_fold(first.clone(), |product, x| product * x)
}

#[test]
fn any_number_of_operands_gets_gradients() {
    let mut sampler = Sampler::new(1);
    for count in 1..=5 {
        let inputs: Vec<Tensor> = (0..count).map(|_| sampler.normal(&[3, 4], 1.0)).collect();
        // Absent operands come first.
        let fused = |x: &[Tensor]| {
            let operand = |i: usize| (i + count).checked_sub(5).map(|i| &x[i]);
            apply(Product, std::array::from_fn(operand))
        };
        agree("product", &inputs, fused, composed);
    }
}

#[test]
fn operands_side_by_side_get_one_gradient() {
    let mut sampler = Sampler::new(2);
    for further in 0..=2 {
        let mut inputs = vec![sampler.normal(&[2, 3, 12], 1.0)];
        inputs.extend((0..further).map(|_| sampler.normal(&[2, 3, 4], 1.0)));
        let fused = |x: &[Tensor]| {
            let [a, b, c] = Input::side_by_side(&x[0]);
            let [d, e] = [1, 2].map(|i| Input::from(x.get(i)));
            apply(Product, [a, b, c, d, e])
        };
        agree("product", &inputs, fused, |x| {
            let mut parts = x[0].chunk(3, 2)?;
            parts.extend_from_slice(&x[1..]);
            composed(&parts)
        });
    }
}

#[test]
fn operands_without_gradient_get_none_and_what_is_saved_serves_once() {
    let mut sampler = Sampler::new(3);
    let x = Var::from_tensor(&sampler.normal(&[2, 3], 1.0)).unwrap();
    let constant = sampler.normal(&[2, 3], 1.0);
    let operands = [Some(x.as_tensor()), Some(&constant), None, None, None];
    let y = apply(Product, operands).unwrap().sum_all().unwrap();
    let gradients = y.backward().unwrap();
    assert!(gradients.get(&x).is_some() && gradients.get(&constant).is_none());
    let message = y.backward().unwrap_err().to_string();
    assert!(message.contains("product"), "{message}");
}

#[test]
fn operands_are_made_contiguous_and_other_types_refused() {
    let x = Sampler::new(4).normal(&[3, 2], 1.0);
    let none = [None; 3];
    let run = |x: &Tensor, y: &Tensor| {
        let [c, d, e] = none;
        apply(Product, [Some(x), Some(y), c, d, e])
    };
    let turned = x.t().unwrap();
    let y = run(&turned, &turned).unwrap().to_vec2::<f32>().unwrap();
    assert_eq!(y, turned.sqr().unwrap().to_vec2::<f32>().unwrap());
    let wide = x.to_dtype(DType::F64).unwrap();
    let message = run(&x, &wide).unwrap_err().to_string();
    assert!(message.contains("f32"), "{message}");
}

/// An output read by kernels, once side by side, and by candle's operations, whose gradients all
/// arrive.
#[test]
fn gradients_meet_wherever_they_come_from() {
    let mut sampler = Sampler::new(5);
    let inputs: Vec<Tensor> = (0..2).map(|_| sampler.normal(&[3, 6], 1.0)).collect();
    let product = |a: &Tensor, b: &Tensor| {
        let operands = [Some(a), Some(b), None, None, None];
        apply(Product, operands)
    };
    let halves = |x: &Tensor| {
        let [a, b] = Input::side_by_side(x);
        let nothing = || Input::from(None);
        apply(Product, [a, b, nothing(), nothing(), nothing()])
    };
    let fused = |x: &[Tensor]| {
        let y = product(&x[0], &x[1])?;
        let further = (product(&y, &x[0])? + product(&y, &y)?)?;
        let further = (further + y.sqr()?)?;
        Tensor::cat(&[&further, &halves(&y)?, &y.narrow(1, 1, 2)?], 1)
    };
    let composed = |x: &[Tensor]| {
        let y = (&x[0] * &x[1])?;
        let further = ((&y * &x[0])? + y.sqr()?)?;
        let further = (further + y.sqr()?)?;
        let halves = (y.narrow(1, 0, 3)? * y.narrow(1, 3, 3)?)?;
        Tensor::cat(&[&further, &halves, &y.narrow(1, 1, 2)?], 1)
    };
    agree("meeting gradients", &inputs, fused, composed);
}

#[test]
fn what_is_kept_goes_with_the_backward_pass_and_nodes_with_their_outputs() {
    /// Tells when it is dropped.
    struct Kept(Arc<()>);

    impl CustomOp<1> for Kept {
        const NAME: &'static str = "kept";
        type Saved = Arc<()>;
        const READS_OPERANDS: bool = false;

        fn forward(&self, [x]: [View; 1], _: bool) -> Result<(Vec<f32>, Shape, Arc<()>)> {
            Ok((x.data.to_vec(), x.shape, self.0.clone()))
        }

        fn backward(
            &self,
            [x]: [View; 1],
            pass: BackwardPass<Arc<()>, 1>,
        ) -> Result<[Gradient; 1]> {
            assert_eq!((x.data.len(), pass.y.len()), (0, 0), "neither is read");
            assert_eq!(x.shape.dims(), [4]);
            Ok([Gradient::PassThrough])
        }
    }

    let x = Var::from_tensor(&Sampler::new(6).normal(&[4], 1.0)).unwrap();
    let kept = Arc::new(());
    let y = apply(Kept(kept.clone()), [x.as_tensor()]).unwrap();
    let id = y.id();
    let loss = y.sum_all().unwrap();
    assert!(Arc::strong_count(&kept) > 1 && is_in_use(id));
    loss.backward().unwrap();
    assert_eq!(Arc::strong_count(&kept), 1);
    drop((y, loss));
    assert!(!is_in_use(id));
    // An output that a backward pass would read goes as well if there is none.
    let y = apply(Product, [Some(x.as_tensor()), None, None, None, None]).unwrap();
    let id = y.id();
    assert!(is_in_use(id));
    drop(y);
    assert!(!is_in_use(id));
}

#[test]
fn nothing_is_to_be_kept_for_operands_without_gradient() {
    /// Puts out whether it is to keep anything.
    struct Told;

    impl CustomOp<1> for Told {
        const NAME: &'static str = "told";
        type Saved = ();

        fn forward(&self, [x]: [View; 1], keeps: bool) -> Result<(Vec<f32>, Shape, ())> {
            Ok((vec![f32::from(u8::from(keeps)); x.data.len()], x.shape, ()))
        }

        fn backward(&self, _: [View; 1], _: BackwardPass<(), 1>) -> Result<[Gradient; 1]> {
            Ok([Gradient::Nothing])
        }
    }

    let x = Var::from_tensor(&Sampler::new(7).normal(&[2], 1.0)).unwrap();
    for (x, keeps) in [(x.as_tensor(), 1f32), (&x.detach(), 0.0)] {
        let y = apply(Told, [x]).unwrap();
        assert_eq!(y.to_vec1::<f32>().unwrap(), [keeps; 2]);
    }
}
