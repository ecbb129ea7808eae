//! The 2021 code's Sinkhorn attention, which has neither sorting nor local blocks. With n = L / S
//! groups:
//!     y_i = softmax attention of q_i on the S positions i mod n, i mod n + n, .. + softmax attention of q_i on S summaries,
//!     summary s = Σ of the n neighbouring keys (values) s·n .. s·n + n - 1
//! That code reshapes the sequence to (S, n) instead of (n, S), so its "blocks" are positions n
//! apart. The product that should apply the block order sums over blocks of keys and over columns
//! of the order separately. Every column sum is 1, so all groups see the same summaries. The
//! sorting network (with a plain softmax instead of Sinkhorn) has neither effect nor gradient, and
//! is not created here. The two attentions are added, not normalised together.
//! Masks are split into n neighbouring runs of S and applied to the groups by number, so padding
//! leaks; a pair of places is hidden from the summaries if no run has both. A query whose pairs are
//! all hidden weighs them equally. Options: `block` S (0: 50); the others have no effect.
//! The code refuses lengths that S does not divide; here the sequence is padded with zeros, which
//! are keys of score 0 as in its other models.

use super::attend;
use crate::{
    mixers::sinkhorn::Options,
    ops::{
        attention::partial_softmax::by_head,
        interleave::{deinterleave, interleave},
    },
    prelude::*,
};

pub const VARIANT: Variant = Variant {
    name: "tay2021",
    masks_padding: false,
    ..Variant::paper(build, include_str!("sinkhorn.rs"))
};

fn build(context: &ModelContext) -> Result<Box<dyn Encoder>> {
    let options: Options = context.options()?;
    options.check()?;
    encoder::blocks(context, |layer| {
        Ok(Box::new(Strided::new(layer, options.block)?))
    })
}

struct Strided {
    projections: Projections,
    group_drop: Dropout,
    summary_drop: Dropout,
    block: usize,
    heads: usize,
    width: usize,
}

impl Strided {
    fn new(layer: &LayerContext, block: usize) -> Result<Self> {
        let rate = layer.block.attention_dropout;
        Ok(Self {
            projections: Projections::new(layer)?,
            group_drop: Dropout::new(&layer.vb.pp("drop"), rate),
            summary_drop: Dropout::new(&layer.vb.pp("summary_drop"), rate),
            block: match block {
                0 => 50,
                block => block,
            },
            heads: layer.block.heads,
            width: layer.block.head_dim(),
        })
    }
}

impl Mixer for Strided {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let [q, k, v] = self.projections.split(x)?;
        let (batch, length, heads, width) = q.dims4()?;
        let block = self.block;
        let groups = length.div_ceil(block);
        let filled = groups * block - length;
        let fill = |x: &Tensor| -> Result<Tensor> { Ok(by_head(x)?.pad_with_zeros(2, 0, filled)?) };
        let (q, k, v) = (fill(&q)?, fill(&k)?, fill(&v)?); // (B, H, n S, E)
        let masks = match pass.mask() {
            Some(mask) => {
                let valid = mask.valid();
                let filled = Tensor::ones((batch, filled), valid.dtype(), valid.device())?;
                let valid = Tensor::cat(&[valid, &filled], 1)?;
                Some(valid.reshape((batch, groups, block, 1))?)
            }
            None => None,
        };
        let own = masks
            .as_ref()
            .map(|valid| -> Result<Tensor> {
                let valid = valid.reshape((batch * groups, 1, block, 1))?;
                Ok(valid.broadcast_mul(&valid.t()?)?)
            })
            .transpose()?; // (B n, 1, S, S)
        let grouped = [&q, &k, &v].map(|x| deinterleave(x, groups)); // (B n, H, S, E)
        let [gq, gk, gv] = grouped;
        let grouped = [&gq?, &gk?, &gv?];
        let near = attend(grouped, own.as_ref(), &self.group_drop, pass, batch)?;
        let near = interleave(&near, groups, length)?; // (B, H, L, E)
        let summary = |x: &Tensor| -> Result<Tensor> {
            Ok(x.reshape((batch, heads, block, groups, width))?.sum(3)?) // (B, H, S, E)
        };
        // A pair of places is allowed where it is valid in any run of the mask.
        let pairs = masks
            .as_ref()
            .map(|valid| -> Result<Tensor> {
                let any = valid.broadcast_mul(&valid.t()?)?.max(1)?; // (B, S, S)
                // Query i·n + j is in place i of its group: n queries in a row share a place.
                let any = any.reshape((batch, 1, block, 1, block))?;
                let any = any.broadcast_as((batch, 1, block, groups, block))?;
                Ok(any.reshape((batch, 1, block * groups, block))?)
            })
            .transpose()?;
        let summaries = [&q, &summary(&k)?, &summary(&v)?];
        let far = attend(summaries, pairs.as_ref(), &self.summary_drop, pass, batch)?;
        let far = far.narrow(2, 0, length)?;
        self.projections.merge(&by_head(&add(&near, &far)?)?)
    }

    fn flops(&self, length: usize) -> u64 {
        let filled = length.next_multiple_of(self.block);
        let pairs = 2 * filled * self.block * self.heads;
        self.projections.flops(length) + partial_softmax::flops(pairs, self.width)
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;
    use crate::{
        RngKey,
        options::BlockOptions,
        reference,
        testing::{close, normal, parameters},
    };

    #[test]
    fn sees_every_nth_position_and_the_sums_of_neighbours() {
        let block = BlockOptions {
            dim: 2,
            qkv_dim: 2,
            heads: 1,
            ..BlockOptions::default()
        };
        let layer = LayerContext::new(parameters().builder(), &block, 6);
        let mixer = Strided::new(&layer, 2).unwrap(); // S = 2, n = 3
        let x = normal("x", &[1, 6, 2]);
        let pass = Pass::new(false, RngKey::new(1, 0, 0));
        let actual = mixer.forward(&x, &pass).unwrap();
        let [q, k, v] = mixer.projections.split(&x).unwrap();
        let rows = |x: &Tensor| x.reshape((6, 2)).unwrap().to_vec2::<f64>().unwrap();
        let (q, k, v) = (rows(&q), rows(&k), rows(&v));
        let sums = |x: &[Vec<f64>]| -> Vec<Vec<f64>> {
            x.chunks(3)
                .map(|run| (0..2).map(|c| run.iter().map(|row| row[c]).sum()).collect())
                .collect()
        };
        let attend = |q: &[f64], keys: &[&Vec<f64>], values: &[&Vec<f64>]| -> Vec<f64> {
            let weights: Vec<f64> = keys.iter().map(|k| reference::softmax(q, k)).collect();
            let total: f64 = weights.iter().sum();
            let value = |c: usize| {
                weights
                    .iter()
                    .zip(values)
                    .map(|(w, v)| w * v[c])
                    .sum::<f64>()
            };
            (0..2).map(|c| value(c) / total).collect()
        };
        let (key_sums, value_sums) = (sums(&k), sums(&v));
        let mut expected = Vec::new();
        for (i, query) in q.iter().enumerate() {
            let near = [i % 3, i % 3 + 3];
            let one = attend(query, &near.map(|j| &k[j]), &near.map(|j| &v[j]));
            let other = attend(
                query,
                &[&key_sums[0], &key_sums[1]],
                &[&value_sums[0], &value_sums[1]],
            );
            expected.extend(one.iter().zip(other).map(|(a, b)| a + b));
        }
        let expected = Tensor::from_vec(expected, (1, 6, 2), &Device::Cpu).unwrap();
        let expected = mixer.projections.merge(&expected).unwrap();
        close(&actual, &expected, 1e-12, "two sums");
    }
}
