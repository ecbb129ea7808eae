//! The 2021 code's local attention, which is not local: S tokens that are L' / S apart see each
//! other.
//! - The sequence is padded with zeros to L' = n·S positions, by a whole block more if it fits
//!   already, and then reshaped to (S, n) instead of (n, S): group g holds the positions g, g + n,
//!   g + 2n, ..
//! - The mask is nevertheless reshaped to (n, S), so place i of group g uses the mask of position
//!   g·S + i instead of i·n + g: padding leaks. A query whose place is hidden weighs its whole
//!   group equally.
//! - The added positions count as valid: the code pads a boolean mask with -1e9, which is true.
//!
//! This equals the 2021 code only if batches are padded to the longest length; shorter ones have
//! zeros there. Options: `block` S (0: 50).

use super::attend;
use crate::{
    mixers::local::Options,
    ops::{
        attention::partial_softmax::by_head,
        interleave::{deinterleave, interleave},
    },
    prelude::*,
};

pub const VARIANT: Variant = Variant {
    name: "tay2021",
    masks_padding: false,
    ..Variant::paper(build, include_str!("local.rs"))
};

fn build(context: &ModelContext) -> Result<Box<dyn Encoder>> {
    let options: Options = context.options()?;
    require(
        options.neighbours == 0,
        "model.neighbours",
        options.neighbours,
        "0 with model.variant = tay2021",
    )?;
    let size = match options.block {
        0 => 50,
        size => size,
    };
    encoder::blocks(context, |layer| Ok(Box::new(Strided::new(layer, size)?)))
}

struct Strided {
    projections: Projections,
    dropout: Dropout,
    groups: Groups,
    heads: usize,
    width: usize,
}

impl Strided {
    fn new(layer: &LayerContext, size: usize) -> Result<Self> {
        Ok(Self {
            projections: Projections::new(layer)?,
            dropout: Dropout::new(&layer.vb.pp("drop"), layer.block.attention_dropout),
            groups: Groups {
                size,
                longest: layer.max_length,
            },
            heads: layer.block.heads,
            width: layer.block.head_dim(),
        })
    }
}

impl Mixer for Strided {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let [q, k, v] = self.projections.split(x)?;
        let qkv = [by_head(&q)?, by_head(&k)?, by_head(&v)?]; // (B, H, L, E)
        let y = self.groups.attend(&qkv, &self.dropout, pass)?;
        self.projections.merge(&by_head(&y)?)
    }

    fn flops(&self, length: usize) -> u64 {
        let pairs = self.groups.padded() * self.groups.size * self.heads;
        self.projections.flops(length) + partial_softmax::flops(pairs, self.width)
    }
}

struct Groups {
    /// S.
    size: usize,
    /// The longest sequence, before it is filled up.
    longest: usize,
}

impl Groups {
    /// Returns L'; a length that is a multiple of the group size is filled up by a whole group.
    fn padded(&self) -> usize {
        self.longest + self.size - self.longest % self.size
    }

    /// Attends within groups; operands and output are each (B, H, L, E).
    fn attend(&self, [q, k, v]: &[Tensor; 3], dropout: &Dropout, pass: &Pass) -> Result<Tensor> {
        let (batch, _, length, _) = q.dims4()?;
        let padded = self.padded();
        let groups = padded / self.size;
        // The projections have no biases: positions that fill up have zeros for queries, keys and
        // values.
        let groups_of =
            |x: &Tensor| deinterleave(&x.pad_with_zeros(2, 0, padded - length)?, groups);
        let (q, k, v) = (groups_of(q)?, groups_of(k)?, groups_of(v)?); // (B n, H, S, E)
        let ones = |count: usize| Tensor::ones((batch, count), q.dtype(), q.device());
        let valid = match pass.mask().map(Mask::valid) {
            Some(valid) => valid.clone(),
            None => ones(length)?,
        };
        let valid = valid.pad_with_zeros(1, 0, self.longest - length)?;
        let valid = Tensor::cat(&[&valid, &ones(padded - self.longest)?], 1)?;
        let valid = valid.reshape((batch * groups, 1, self.size, 1))?;
        let allowed = valid.broadcast_mul(&valid.t()?)?; // (B n, 1, S, S)
        let y = attend([&q, &k, &v], Some(&allowed), dropout, pass, batch)?;
        interleave(&y, groups, length)
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;
    use crate::{
        RngKey,
        testing::{normal, parameters},
    };

    /// Computes the 2021 code in loops: groups g + n·i, masks of g·S + i, filled-up positions with
    /// zeros and a mask of ones.
    fn in_loops(
        [q, k, v]: [&[Vec<f64>]; 3],
        valid: &[f64],
        size: usize,
        longest: usize,
    ) -> Vec<f64> {
        let (length, width) = (q.len(), q[0].len());
        let groups = longest / size + 1;
        let zeros = vec![0.0; width];
        let row = |x: &[Vec<f64>], at: usize| x.get(at).unwrap_or(&zeros).clone();
        let seen = |at: usize| at >= longest || at < length && valid[at] == 1.0;
        let mut y = vec![0.0; length * width];
        for position in 0..length {
            let (group, place) = (position % groups, position / groups);
            let query = row(q, position);
            let mut weights: Vec<f64> = (0..size)
                .map(|other| {
                    let key = row(k, group + groups * other);
                    let dot: f64 = query.iter().zip(&key).map(|(a, b)| a * b).sum();
                    let both = seen(group * size + place) && seen(group * size + other);
                    if both {
                        (dot / (width as f64).sqrt()).exp()
                    } else {
                        0.0
                    }
                })
                .collect();
            if !seen(group * size + place) {
                weights = vec![1.0; size];
            }
            let total: f64 = weights.iter().sum();
            for (other, weight) in weights.iter().enumerate() {
                for (channel, value) in row(v, group + groups * other).iter().enumerate() {
                    y[position * width + channel] += weight / total * value;
                }
            }
        }
        y
    }

    #[test]
    fn groups_are_strided_and_masked_by_other_positions() {
        let dropout = Dropout::new(&parameters().builder().pp("drop"), 0.0);
        // Lengths that leave a rest, that get a whole block more, and that are shorter than the
        // longest.
        for (length, longest, valid_tokens) in [(10, 10, 10), (10, 10, 7), (12, 12, 9), (7, 13, 5)]
        {
            let qkv = ["q", "k", "v"].map(|path| normal(path, &[1, 1, length, 3]));
            let valid: Vec<f64> = (0..length)
                .map(|i| f64::from(u8::from(i < valid_tokens)))
                .collect();
            let mask = Tensor::from_vec(valid.clone(), (1, length), &Device::Cpu).unwrap();
            let mask = Mask::new(&mask).unwrap();
            let pass = Pass::new(false, RngKey::new(0, 0, 0));
            let groups = Groups { size: 4, longest };
            let y = groups
                .attend(&qkv, &dropout, &pass.with_mask(Some(&mask)))
                .unwrap();
            let rows = |x: &Tensor| x.flatten(0, 2).unwrap().to_vec2::<f64>().unwrap();
            let [q, k, v] = qkv.each_ref().map(rows);
            let expected = in_loops([&q, &k, &v], &valid, 4, longest);
            let actual: Vec<f64> = y.flatten_all().unwrap().to_vec1().unwrap();
            for (actual, expected) in actual.iter().zip(&expected) {
                assert!((actual - expected).abs() < 1e-9, "{length} {longest}");
            }
        }
    }
}
