//! Moves the CLS token for layers in which information only moves forward: at the front it would
//! see nothing after its segment.

use crate::{Encoded, prelude::*};

/// Wraps `encoder` such that a CLS token at position 0 moves behind the last valid one of its row;
/// hidden states are in the order of the input. Without a CLS token it returns `encoder`.
///
/// # Errors
/// If positions are marked within the encoder, which would mark those of the moved tokens.
pub(in crate::mixers) fn with_cls_last(
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
pub(super) struct ClsLast(pub(super) Box<dyn Encoder>);

impl Encoder for ClsLast {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Encoded> {
        let (batch, length, _) = x.dims3()?;
        let last = last_valid(batch, length, pass.mask())?;
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
        let mask = match pass.mask() {
            Some(mask) => {
                let valid = take(&mask.valid().unsqueeze(2)?, &moved)?;
                Some(Mask::new(&valid.squeeze(2)?)?)
            }
            None => None,
        };
        let pass_moved = pass.with_mask(mask.as_ref());
        let encoded = self.0.forward(&take(x, &moved)?, &pass_moved)?;
        Ok(Encoded {
            hidden: take(&encoded.hidden, &back)?,
            mask: pass.mask().cloned(),
        })
    }

    fn flops(&self, length: usize) -> u64 {
        self.0.flops(length)
    }

    fn mixers(&self) -> Vec<&dyn Mixer> {
        self.0.mixers()
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
