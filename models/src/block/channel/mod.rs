//! Channel mixers: the sublayer of a block behind the mixer (`block.ffn`), (B, L, D) -> (B, L, D).
//! All but the separable convolutions treat each position by itself.

mod conv;
pub mod experts;
mod product_keys;

use candle_core::Tensor;

pub use self::{conv::SeparableConv, experts::Experts, product_keys::ProductKeys};
use crate::{
    Pass, Result, VarBuilder,
    layers::{FeedForward, FusedSublayer},
    loss::Loss,
    options::{BlockOptions, ChannelKind},
};

/// Layer that mixes the channels of each position, and in some forms those of its neighbours. The
/// block around it adds norm, residual and dropout.
pub trait ChannelMixer: Send + Sync {
    /// Maps x (B, L, D) to (B, L, D). Outputs at padded positions may be any finite numbers.
    ///
    /// # Errors
    /// If a tensor operation fails.
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor>;

    /// Counts the floating-point operations for one sequence of `length`: matrix products, a
    /// multiply-add being two.
    fn flops(&self, length: usize) -> u64;
}

/// Every loss that a channel mixer can add to the cross-entropy.
pub const LOSSES: &[Loss] = experts::LOSSES;

/// Returns the losses that a channel mixer of this kind adds to the cross-entropy.
#[must_use]
pub fn losses(kind: ChannelKind) -> &'static [Loss] {
    match kind {
        ChannelKind::Switch | ChannelKind::Moe => experts::LOSSES,
        ChannelKind::Dense | ChannelKind::ProductKeys | ChannelKind::Conv | ChannelKind::None => {
            &[]
        }
    }
}

/// The channel mixer of a block.
pub enum Channel {
    /// The feed-forward network, which the block can fuse with its surroundings.
    Dense(FeedForward),
    /// Any other.
    Other(Box<dyn ChannelMixer>),
}

impl Channel {
    /// Builds the layer that `block` asks for in block number `layer`; none for `ffn = none`.
    ///
    /// # Errors
    /// If a path is taken by a parameter of another shape.
    pub fn new(vb: &VarBuilder, block: &BlockOptions, layer: usize) -> Result<Option<Self>> {
        let period = block.expert_period.min(block.layers);
        let sparse = (layer + 1).is_multiple_of(period);
        Ok(match block.ffn {
            ChannelKind::None => None,
            ChannelKind::Switch if sparse => {
                Some(Self::Other(Box::new(Experts::new(vb, block, 1)?)))
            }
            ChannelKind::Moe if sparse => Some(Self::Other(Box::new(Experts::new(vb, block, 2)?))),
            ChannelKind::ProductKeys if sparse => {
                Some(Self::Other(Box::new(ProductKeys::new(vb, block)?)))
            }
            ChannelKind::Conv => Some(Self::Other(Box::new(SeparableConv::new(vb, block)?))),
            ChannelKind::Dense
            | ChannelKind::Switch
            | ChannelKind::Moe
            | ChannelKind::ProductKeys => Some(Self::Dense(FeedForward::new(vb, block)?)),
        })
    }

    /// Maps (B, L, D) to (B, L, D).
    ///
    /// # Errors
    /// If a tensor operation fails.
    pub fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        match self {
            Self::Dense(feed) => feed.forward(x, FusedSublayer::default(), pass),
            Self::Other(mixer) => mixer.forward(x, pass),
        }
    }

    /// Counts the operations for one sequence.
    #[must_use]
    pub fn flops(&self, length: usize) -> u64 {
        match self {
            Self::Dense(feed) => feed.flops(length),
            Self::Other(mixer) => mixer.flops(length),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::parameters;

    /// Every second block has experts, or the only one.
    #[test]
    fn some_block_has_experts_however_few_there_are() {
        for ffn in [
            ChannelKind::Switch,
            ChannelKind::Moe,
            ChannelKind::ProductKeys,
        ] {
            for (layers, expected) in [(1, &[true][..]), (4, &[false, true, false, true])] {
                let block = BlockOptions {
                    dim: 4,
                    mlp_dim: 4,
                    layers,
                    ffn,
                    expert_period: 2,
                    ..BlockOptions::default()
                };
                let vb = parameters().builder();
                let is_sparse = |layer: usize| {
                    let channel = Channel::new(&vb.pp(layer), &block, layer).unwrap();
                    matches!(channel, Some(Channel::Other(_)))
                };
                let sparse: Vec<bool> = (0..layers).map(is_sparse).collect();
                assert_eq!(sparse, expected, "{ffn:?}");
            }
        }
    }
}
