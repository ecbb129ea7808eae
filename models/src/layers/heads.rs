//! Projections to queries, keys and values in heads, and back to the residual stream.

use candle_core::Tensor;

use crate::{
    LayerContext, Mask, Pass, Result,
    error::require,
    layers::{Dropout, Linear, ScoreMods},
    ops::{
        attention::{self, AttentionOptions, BlockMasks},
        l2_normalize_above,
        linear_attention::{self, FeatureMap},
    },
    params::{xavier_uniform, xavier_uniform_with_gain},
};

/// Returns (B, L, H E) as (B, L, H, E).
///
/// # Errors
/// If the last dimension is no multiple of H.
pub fn by_head(x: &Tensor, heads: usize) -> Result<Tensor> {
    let (batch, length, row) = x.dims3()?;
    Ok(x.reshape((batch, length, heads, row / heads))?)
}

/// Returns queries or keys (B, L, H `width`) with each head's vector scaled to length 1, as
/// flash-linear-attention's `l2norm` does, which adds 1e-6 to its square.
///
/// # Errors
/// If the last dimension is no multiple of `width`.
pub fn unit_heads(x: &Tensor, width: usize) -> Result<Tensor> {
    l2_normalize_above(x, width, 1e-6)
}

/// Returns the width of the heads of a row of `row` numbers: `width`, or if that is 0 the largest
/// power of two up to 64 that divides the row.
///
/// # Errors
/// If the heads of option `model.head_width` do not fill the row.
pub fn head_width(width: usize, row: usize) -> Result<usize> {
    let width = match width {
        0 => 1 << row.trailing_zeros().min(6),
        width => width,
    };
    require(
        row.is_multiple_of(width),
        "model.head_width",
        width,
        format!("a divisor of model.expand x block.dim = {row}"),
    )?;
    Ok(width)
}

/// The four linear maps of multi-head attention, without biases, and the modifications of its
/// scores. Weights are Xavier-uniform; those of queries are multiplied by E^-½ for heads E wide if
/// `block.bias` is `t5`, which does not divide scores by √E.
pub struct Projections {
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    score_mods: ScoreMods,
    heads: usize,
}

impl Projections {
    /// Creates parameters `query`, `key`, `value` (qkv_dim, D) and `output` (D, qkv_dim), and those
    /// of [`ScoreMods`].
    ///
    /// # Errors
    /// If a path is taken by a parameter of another shape.
    pub fn new(layer: &LayerContext) -> Result<Self> {
        let (vb, block) = (&layer.vb, layer.block);
        let init = xavier_uniform(block.dim, block.qkv_dim);
        let inward = |name| Linear::new(&vb.pp(name), block.dim, block.qkv_dim, init, None);
        let gain = ScoreMods::query_gain(block);
        let of_queries = xavier_uniform_with_gain(block.dim, block.qkv_dim, gain);
        Ok(Self {
            query: Linear::new(&vb.pp("query"), block.dim, block.qkv_dim, of_queries, None)?,
            key: inward("key")?,
            value: inward("value")?,
            output: Linear::new(&vb.pp("output"), block.qkv_dim, block.dim, init, None)?,
            score_mods: ScoreMods::new(layer)?,
            heads: block.heads,
        })
    }

    /// Returns the projections of attention in which no query sees a later key. T5's buckets are
    /// then those of its decoder.
    #[must_use]
    pub fn causal(self) -> Self {
        Self {
            score_mods: self.score_mods.causal(),
            ..self
        }
    }

    /// Returns a copy whose weights get no gradient, and whose scores are not modified by biases,
    /// rotations, memory slots or a soft cap.
    #[must_use]
    pub(crate) fn detached(&self) -> Self {
        Self {
            query: self.query.detached(),
            key: self.key.detached(),
            value: self.value.detached(),
            output: self.output.detached(),
            score_mods: ScoreMods::default(),
            heads: self.heads,
        }
    }

    /// Returns the modifications of the scores: all that is not a product of query and key.
    #[must_use]
    pub fn score_mods(&self) -> &ScoreMods {
        &self.score_mods
    }

    /// Maps x (B, L, D) to queries, keys and values, each (B, L, H, E). Queries and keys are
    /// rotated by position if the block has rotary positions.
    ///
    /// # Errors
    /// If a tensor operation fails.
    pub fn split(&self, x: &Tensor) -> Result<[Tensor; 3]> {
        let [q, k, v] = self.qkv(x)?;
        Ok([self.by_head(&q)?, self.by_head(&k)?, self.by_head(&v)?])
    }

    fn by_head(&self, x: &Tensor) -> Result<Tensor> {
        by_head(x, self.heads)
    }

    /// Maps x (B, L, D) to queries, keys and values, each (B, L, H E), as [`attention::attend`]
    /// takes them. They are not reshaped, since every reshaping is a pass over the gradient.
    /// Queries and keys are rotated by position if the block has rotary positions.
    ///
    /// # Errors
    /// If a tensor operation fails.
    pub fn qkv(&self, x: &Tensor) -> Result<[Tensor; 3]> {
        let [q, k, v] = self.unrotated(x)?;
        let rotate = |x: Tensor| self.score_mods.rotate(&x, x.dim(2)?);
        Ok([rotate(q)?, rotate(k)?, v])
    }

    /// Maps x (B, L, D) to queries, keys and values, each (B, L, H E), none of them rotated. It is
    /// for rows that stand for no position.
    ///
    /// # Errors
    /// If a tensor operation fails.
    pub(crate) fn unrotated(&self, x: &Tensor) -> Result<[Tensor; 3]> {
        let [q, k, v] = [&self.query, &self.key, &self.value].map(|linear| linear.forward(x));
        Ok([q?, k?, v?])
    }

    /// Maps x (B, L, D) to keys and values, each (B, L, H E). Keys are not rotated by position.
    ///
    /// # Errors
    /// If a tensor operation fails.
    pub(crate) fn keys_and_values(&self, x: &Tensor) -> Result<[Tensor; 2]> {
        Ok([self.key.forward(x)?, self.value.forward(x)?])
    }

    /// Maps x (B, L, D) to (B, L, 3 H E) by one product: queries, then keys, then values, for
    /// kernels that take them side by side. Queries and keys are rotated by position if the block
    /// has rotary positions.
    ///
    /// # Errors
    /// If a tensor operation fails.
    pub(crate) fn packed(&self, x: &Tensor) -> Result<Tensor> {
        let packed = Linear::stacked(&[&self.query, &self.key, &self.value])?.forward(x)?;
        self.score_mods.rotate(&packed, packed.dim(2)? / 3 * 2)
    }

    /// Returns softmax attention (B, L, H E) of the positions of x (B, L, D) on each other, before
    /// [`Projections::merge`]. `block_masks` list the keys that each query sees; without them it
    /// sees all.
    ///
    /// # Errors
    /// If a tensor operation fails, or the block masks are for another number of heads or longer
    /// sequences.
    pub fn attend(
        &self,
        x: &Tensor,
        pass: &Pass,
        dropout: &Dropout,
        block_masks: Option<BlockMasks>,
    ) -> Result<Tensor> {
        let length = x.dim(1)?;
        let options = AttentionOptions {
            block_masks,
            ..self.options(x, pass, dropout)?
        };
        if let Some(options) = self.score_mods.content_independent(length, &options)? {
            return attention::attend_packed(&self.packed(x)?, &options);
        }
        let [q, k, v] = self.qkv(x)?;
        self.score_mods.attend([&q, &k, &v], options, 0..length)
    }

    /// Returns softmax attention (B, Lq, H E) of `queries` (B, Lq, D) on x (B, L, D), before
    /// [`Projections::merge`]. The mask of the pass is that of x. Scores are products of query and
    /// key without rotation or any other modification.
    ///
    /// # Errors
    /// If a tensor operation fails.
    pub(crate) fn attend_to(
        &self,
        queries: &Tensor,
        x: &Tensor,
        pass: &Pass,
        dropout: &Dropout,
    ) -> Result<Tensor> {
        let options = self.options(x, pass, dropout)?;
        let (q, k, v) = (
            self.query.forward(queries)?,
            self.key.forward(x)?,
            self.value.forward(x)?,
        );
        attention::attend(&q, &k, &v, &options)
    }

    /// Returns the options of attention on the positions of x (B, L, D) in this pass: the number of
    /// heads, the mask (B, L) and the dropout.
    ///
    /// # Errors
    /// If x has no batch dimension.
    pub fn options(&self, x: &Tensor, pass: &Pass, dropout: &Dropout) -> Result<AttentionOptions> {
        Ok(AttentionOptions {
            heads: self.heads,
            mask: pass.mask().map(|mask| mask.valid().clone()),
            dropout: dropout.of_attention(x.dim(0)?, pass),
            padded_queries: pass.mask().is_some_and(Mask::is_counted),
            ..AttentionOptions::default()
        })
    }

    /// Returns linear attention of the positions of x (B, L, D) on each other and on memory slots,
    /// before [`Projections::merge`]. The result is (B, L, H E), or (B, L, H, E) if there are
    /// memory slots. `map`, `epsilon` and `mask` (B, L) are those of [`linear_attention::attend`].
    ///
    /// # Errors
    /// If a tensor operation fails.
    pub fn attend_by_features(
        &self,
        x: &Tensor,
        map: FeatureMap,
        epsilon: f64,
        mask: Option<&Mask>,
    ) -> Result<Tensor> {
        if self.score_mods.slots() == 0 {
            let packed = self.packed(x)?;
            return linear_attention::attend_packed(&packed, self.heads, map, epsilon, mask);
        }
        let [q, k, v] = self.qkv(x)?;
        let (k, v, mask) = self
            .score_mods
            .append_memory(&k, &v, mask.map(Mask::valid))?;
        let mask = mask.as_ref().map(Mask::new).transpose()?;
        let [q, k, v] = [&q, &k, &v].map(|x| self.by_head(x));
        linear_attention::attend(&q?, &k?, &v?, map, epsilon, mask.as_ref())
    }

    /// Maps attention y, which is (B, L, H E) or (B, L, H, E) for H heads E wide, to (B, L, D) by
    /// the output projection.
    ///
    /// # Errors
    /// If a tensor operation fails.
    pub fn merge(&self, y: &Tensor) -> Result<Tensor> {
        self.output.forward(&y.flatten_from(2)?)
    }

    /// Counts the floating-point operations of the four maps for one sequence of `length`, a
    /// multiply-add being two.
    #[must_use]
    pub fn flops(&self, length: usize) -> u64 {
        self.flops_to(length, length)
    }

    /// Counts the floating-point operations of the four maps for `queries` positions that attend to
    /// `length` others, a multiply-add being two.
    #[must_use]
    pub(crate) fn flops_to(&self, queries: usize, length: usize) -> u64 {
        let outer = [&self.query, &self.output].map(|linear| linear.flops(queries));
        let inner = [&self.key, &self.value].map(|linear| linear.flops(length));
        outer.iter().chain(&inner).sum()
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device};

    use super::*;
    use crate::{
        Parameters,
        options::BlockOptions,
        testing::{check_layer, close, normal, parameters, pass},
    };

    fn projections(parameters: &Parameters) -> Projections {
        let block = BlockOptions {
            dim: 3,
            qkv_dim: 4,
            heads: 2,
            ..BlockOptions::default()
        };
        let layer = LayerContext::new(parameters.builder(), &block, 3);
        Projections::new(&layer).unwrap()
    }

    #[test]
    fn heads_are_as_wide_as_a_power_of_two_up_to_64() {
        for (row, expected) in [(7, 1), (96, 32), (64, 64), (128, 64), (1536, 64)] {
            assert_eq!(head_width(0, row).unwrap(), expected, "{row}");
        }
        assert_eq!(head_width(48, 96).unwrap(), 48);
        assert!(head_width(48, 128).is_err());
    }

    #[test]
    fn gradients_agree_with_differences() {
        let parameters = parameters();
        let projections = projections(&parameters);
        check_layer("projections", &parameters, &[2, 3, 3], |x| {
            let [q, k, v] = projections.split(x)?;
            projections.merge(&((q * k)? + v)?)
        });
    }

    /// Every query sees the slots alone. The first one is not rotated, and slots are never.
    #[test]
    fn rotation_leaves_memory_slots_as_they_are() {
        let parameters = parameters();
        let hidden = Tensor::zeros((1, 3), DType::F64, &Device::Cpu).unwrap();
        let mask = Mask::new(&hidden).unwrap();
        let dropout = Dropout::new(&parameters.builder(), 0.0);
        let seen = [false, true].map(|rotary| {
            let block = BlockOptions {
                dim: 3,
                qkv_dim: 4,
                heads: 2,
                memory: 2,
                rotary,
                ..BlockOptions::default()
            };
            let layer = LayerContext::new(parameters.builder(), &block, 3);
            let projections = Projections::new(&layer).unwrap();
            let pass = pass().with_mask(Some(&mask));
            let x = normal("x", &[1, 3, 3]);
            projections.attend(&x, &pass, &dropout, None).unwrap()
        });
        let [plain, rotated] = seen.map(|y| y.to_vec3::<f64>().unwrap().remove(0));
        let apart = |at: usize| {
            let pairs = plain[at].iter().zip(&rotated[at]);
            pairs.map(|(x, y)| (x - y).abs()).fold(0.0, f64::max)
        };
        assert!(apart(0) < 1e-12, "{}", apart(0));
        assert!(apart(1) > 1e-6 && apart(2) > 1e-6, "queries are rotated");
    }

    #[test]
    fn packing_puts_the_three_projections_side_by_side() {
        let projections = projections(&parameters());
        let x = normal("x", &[2, 3, 3]);
        let packed = projections.packed(&x).unwrap();
        for (index, one) in projections.split(&x).unwrap().iter().enumerate() {
            let alone = one.flatten_from(2).unwrap();
            let part = packed.narrow(2, 4 * index, 4).unwrap();
            close(&part, &alone, 1e-14, "packed");
        }
    }
}
