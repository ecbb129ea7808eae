//! Moves the CLS token behind the other tokens for layers in which information only moves forward:
//! at the front it would see nothing, or nothing after its segment.

use candle_core::{DType, Tensor};

use super::{Encoded, Encoder};
use crate::{Mask, Mixer, ModelContext, Pass, Result, error::require, loss::Loss, ops::take};

/// Wraps `encoder` such that a CLS token at position 0 moves behind the last valid one of its row.
/// Hidden states are in the order of the input. Without a CLS token it returns `encoder`.
///
/// # Errors
/// If positions are marked within the encoder, which would mark those of the moved tokens.
pub(crate) fn with_cls_last(
    encoder: Box<dyn Encoder>,
    context: &ModelContext,
) -> Result<Box<dyn Encoder>> {
    if !context.cls {
        return Ok(encoder);
    }
    let moved = "where head.pooling = cls, whose token moves behind the others";
    require(
        context.positions.is_none(),
        "embed.every_layer",
        true,
        format!("false {moved}"),
    )?;
    require(
        !context.conditional,
        "embed.positions",
        "conditional",
        format!("another value {moved}"),
    )?;
    Ok(Box::new(ClsLast(encoder)))
}

/// An encoder whose CLS token comes last.
struct ClsLast(Box<dyn Encoder>);

/// The rows of a batch in another order, for the time of a pass.
struct Order {
    /// Index of the input's row at each position of the encoder, (B, L).
    moved: Tensor,
    /// Index of the encoder's row at each position of the input, (B, L).
    back: Tensor,
    /// Mask of the moved rows.
    mask: Option<Mask>,
}

impl Order {
    fn new(x: &Tensor, mask: Option<&Mask>) -> Result<Self> {
        let (batch, length, _) = x.dims3()?;
        let last = last_valid(batch, length, mask)?;
        let indices = |place: fn(u32, u32) -> u32| -> Result<Tensor> {
            let row = |last: u32| (0..length as u32).map(move |i| place(i, last));
            let all: Vec<u32> = last.iter().copied().flat_map(row).collect();
            Ok(Tensor::from_vec(all, (batch, length), x.device())?)
        };
        // Rows up to the last valid one are rotated by one, to the front and back.
        let moved = indices(|i, last| match i {
            i if i > last => i,
            i if i == last => 0,
            i => i + 1,
        })?;
        let back = indices(|i, last| match i {
            i if i > last => i,
            0 => last,
            i => i - 1,
        })?;
        let mask = match mask {
            Some(mask) => {
                let valid = take(&mask.valid().unsqueeze(2)?, &moved)?;
                Some(Mask::new(&valid.squeeze(2)?)?)
            }
            None => None,
        };
        Ok(Self { moved, back, mask })
    }
}

impl Encoder for ClsLast {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Encoded> {
        let order = Order::new(x, pass.mask())?;
        let pass_moved = pass.with_mask(order.mask.as_ref());
        let encoded = self.0.forward(&take(x, &order.moved)?, &pass_moved)?;
        Ok(Encoded {
            hidden: take(&encoded.hidden, &order.back)?,
            mask: pass.mask().cloned(),
        })
    }

    fn forward_with_states(&self, x: &Tensor, pass: &Pass) -> Result<(Encoded, Vec<Tensor>)> {
        let order = Order::new(x, pass.mask())?;
        let pass_moved = pass.with_mask(order.mask.as_ref());
        let x = take(x, &order.moved)?;
        let (encoded, states) = self.0.forward_with_states(&x, &pass_moved)?;
        let states = states.iter().map(|state| take(state, &order.back));
        let encoded = Encoded {
            hidden: take(&encoded.hidden, &order.back)?,
            mask: pass.mask().cloned(),
        };
        Ok((encoded, states.collect::<Result<_>>()?))
    }

    fn states_between(&self) -> usize {
        self.0.states_between()
    }

    /// Returns false: the state of the CLS token, at position 0, depends on all others.
    fn is_causal(&self) -> bool {
        false
    }

    fn flops(&self, length: usize) -> u64 {
        self.0.flops(length)
    }

    fn mixers(&self) -> Vec<&dyn Mixer> {
        self.0.mixers()
    }

    fn rule_violation(&self) -> Option<&'static str> {
        self.0.rule_violation()
    }

    fn stops_gradients(&self) -> Option<&'static str> {
        self.0.stops_gradients()
    }

    fn losses(&self) -> &'static [Loss] {
        self.0.losses()
    }
}

/// Returns the last valid position of each row; 0 where there is none.
fn last_valid(batch: usize, length: usize, mask: Option<&Mask>) -> Result<Vec<u32>> {
    let Some(mask) = mask else {
        return Ok(vec![length as u32 - 1; batch]);
    };
    let valid = mask.valid().to_dtype(DType::F32)?.to_vec2::<f32>()?;
    let last = |row: &Vec<f32>| row.iter().rposition(|valid| *valid > 0.0).unwrap_or(0);
    Ok(valid.iter().map(|row| last(row) as u32).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        RngKey,
        testing::{close, normal},
    };

    /// Adds to each position its number. It has one state before the last, which is the same.
    struct Numbers;

    impl Encoder for Numbers {
        fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Encoded> {
            let numbers = Tensor::arange(0.0, x.dim(1)? as f64, x.device())?;
            Ok(Encoded {
                hidden: x.broadcast_add(&numbers.reshape((1, (), 1))?)?,
                mask: pass.mask().cloned(),
            })
        }

        fn forward_with_states(&self, x: &Tensor, pass: &Pass) -> Result<(Encoded, Vec<Tensor>)> {
            let encoded = self.forward(x, pass)?;
            let state = encoded.hidden.clone();
            Ok((encoded, vec![state]))
        }

        fn flops(&self, _: usize) -> u64 {
            0
        }
    }

    #[test]
    fn a_cls_token_runs_behind_the_last_real_token_and_comes_back() {
        let x = normal("x", &[3, 9, 1]);
        // With padding in the middle, too.
        let valid: Vec<f64> = [9, 5, 0]
            .into_iter()
            .flat_map(|end| (0..9).map(move |i| f64::from(u8::from(i < end && i != 2))))
            .collect();
        let valid = Tensor::from_vec(valid, (3, 9), x.device()).unwrap();
        let mask = Mask::new(&valid).unwrap();
        let numbers = |mask: Option<&Mask>| -> Vec<Vec<f64>> {
            let encoder = ClsLast(Box::new(Numbers));
            let pass = Pass::new(false, RngKey::new(1, 0, 0)).with_mask(mask);
            let hidden = encoder.forward(&x, &pass).unwrap().hidden;
            let (encoded, states) = encoder.forward_with_states(&x, &pass).unwrap();
            for same in [&encoded.hidden, &states[0]] {
                close(same, &hidden, 1e-12, "with states");
            }
            let added = (hidden - &x).unwrap().squeeze(2).unwrap();
            added.round().unwrap().to_vec2().unwrap()
        };
        let whole = [8.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0];
        assert_eq!(numbers(None), [whole; 3]);
        let padded = [4.0, 0.0, 1.0, 2.0, 3.0, 5.0, 6.0, 7.0, 8.0];
        let none = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0];
        assert_eq!(numbers(Some(&mask)), [whole, padded, none]);
        let moved = Order::new(&x, Some(&mask)).unwrap().mask.unwrap();
        let moved = moved.valid().get(1).unwrap().to_vec1::<f64>().unwrap();
        assert_eq!(moved, [1.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0]);
    }
}
