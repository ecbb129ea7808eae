//! The residual block: a mixer and a channel mixer, each within a sublayer.
//!
//! ```text
//! x ← mixing(x, mixer);   x ← channel(x, feed-forward)
//!
//! sublayer(x, f):   pre-norm   join(x, f(norm(x)))        post-norm   norm(join(x, f(x)))
//! ```
//!
//! `norm` and `join` are options of the block: [`norm`], [`residual`]. With the usual options, the
//! whole feed-forward half is one fused operation, see [`FeedForward`].

pub mod batch_norm;
pub mod channel;
pub mod norm;
pub mod power_norm;
pub mod residual;

use candle_core::Tensor;

use self::{channel::Channel, norm::Norm, residual::SkipConnection};
use crate::{
    Mixer, ModelContext, Pass, Result, VarBuilder,
    layers::{ConditionalPositions, Dropout, FeedForward, FusedSublayer},
    options::{BlockOptions, NormPlace},
};

/// One block of a stack.
pub struct Block {
    mixer: Box<dyn Mixer>,
    mixing: Sublayer,
    /// None in a block that only mixes positions.
    channel: Option<(Channel, Sublayer)>,
    /// Convolution behind both that marks positions, in the block that has it.
    positions: Option<ConditionalPositions>,
}

/// Everything around a layer: norm, dropout, residual.
struct Sublayer {
    norm: Norm,
    place: NormPlace,
    dropout: Dropout,
    join: SkipConnection,
}

impl Block {
    /// Returns the block number `layer`, at `vb`, around `mixer`.
    ///
    /// # Errors
    /// If a path is taken by a parameter of another shape.
    pub fn new(
        vb: &VarBuilder,
        block: &BlockOptions,
        layer: usize,
        mixer: Box<dyn Mixer>,
    ) -> Result<Self> {
        let channel = match Channel::new(&vb.pp("feed"), block, layer)? {
            Some(channel) => Some((channel, Sublayer::new(vb, "feed", block)?)),
            None => None,
        };
        Ok(Self {
            mixer,
            mixing: Sublayer::new(vb, "mixer", block)?,
            channel,
            positions: None,
        })
    }

    /// Returns this block with position marks added behind it.
    ///
    /// # Errors
    /// If a path is taken by a parameter of another shape.
    pub(crate) fn followed_by_positions(
        self,
        vb: &VarBuilder,
        context: &ModelContext,
    ) -> Result<Self> {
        let vb = vb.pp("positions");
        Ok(Self {
            positions: Some(ConditionalPositions::new(
                &vb,
                context.block.dim,
                context.cls,
            )?),
            ..self
        })
    }

    /// Maps (B, L, D) to (B, L, D).
    ///
    /// # Errors
    /// Errors of the mixer.
    pub fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        self.forward_to(x, x, pass, pass)
    }

    /// Maps x (B, L, D) to (B, L', D), around a mixer that gives L' positions. `residual`
    /// (B, L', D) takes the place of x in the residual sum. `after` is the pass over the L'
    /// positions.
    ///
    /// # Errors
    /// Errors of the mixer.
    pub fn forward_to(
        &self,
        x: &Tensor,
        residual: &Tensor,
        pass: &Pass,
        after: &Pass,
    ) -> Result<Tensor> {
        let mix = |x: &Tensor| self.run_mixer(x, pass);
        let x = self.mixing.forward((x, residual), (pass, after), mix)?;
        let x = match &self.channel {
            Some((Channel::Dense(feed), sublayer)) => sublayer.feed(&x, feed, after)?,
            Some((channel, sublayer)) => {
                sublayer.forward((&x, &x), (after, after), |x| channel.forward(x, after))?
            }
            None => x,
        };
        match &self.positions {
            Some(positions) => positions.forward(&x, after.mask()),
            None => Ok(x),
        }
    }

    /// Returns dropout(mixer(norm(x))): the first half without its residual.
    pub(crate) fn mix(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        self.mixing.branch(x, pass, |x| self.run_mixer(x, pass))
    }

    /// Runs the mixer. If the norm counts padded positions, the mixer has to compute those as well.
    fn run_mixer(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        match pass.mask() {
            Some(mask) if self.mixing.norm.counts_padding() => self
                .mixer
                .forward(x, &pass.with_mask(Some(&mask.counted()))),
            _ => self.mixer.forward(x, pass),
        }
    }

    /// Returns dropout(channel(norm(x))): the second half without its residual; none where there is
    /// none.
    pub(crate) fn feed(&self, x: &Tensor, pass: &Pass) -> Result<Option<Tensor>> {
        let branch = |(channel, sublayer): &(Channel, Sublayer)| match (channel, &sublayer.norm) {
            (Channel::Dense(feed), Norm::Layer(_)) => feed.forward(x, sublayer.around(false), pass),
            _ => sublayer.branch(x, pass, |x| channel.forward(x, pass)),
        };
        self.channel.as_ref().map(branch).transpose()
    }

    /// Returns whether the block gives the same outputs for packed sequences ([`Pass::packing`]) as
    /// for padded ones.
    #[must_use]
    pub fn supports_varlen(&self) -> bool {
        self.mixer.supports_varlen()
            && self.mixing.norm.supports_varlen()
            && self.channel.is_none()
            && self.positions.is_none()
    }

    /// Returns the mixer.
    #[must_use]
    pub fn mixer(&self) -> &dyn Mixer {
        self.mixer.as_ref()
    }

    /// Counts the operations for one sequence.
    #[must_use]
    pub fn flops(&self, length: usize) -> u64 {
        self.flops_to(length, length)
    }

    /// Counts the operations for one sequence, of which the mixer leaves `short` positions.
    #[must_use]
    pub fn flops_to(&self, length: usize, short: usize) -> u64 {
        let channel = self.channel.as_ref().map_or(0, |(channel, sublayer)| {
            channel.flops(short) + sublayer.join.flops(short)
        });
        let positions = self.positions.as_ref();
        let positions = positions.map_or(0, |positions| positions.flops(short));
        self.mixer.flops(length) + self.mixing.join.flops(short) + channel + positions
    }
}

impl Sublayer {
    fn new(vb: &VarBuilder, name: &str, block: &BlockOptions) -> Result<Self> {
        Ok(Self {
            norm: Norm::new(&vb.pp(format!("{name}_norm")), block)?,
            place: block.norm_place,
            dropout: Dropout::new(&vb.pp(format!("{name}_drop")), block.dropout)
                .tied(block.dropout_tied),
            join: SkipConnection::new(&vb.pp(format!("{name}_join")), vb, block)?,
        })
    }

    /// Runs norm, `layer` and dropout on x, and joins the result with `residual`; takes the pass
    /// over x and the pass over the result.
    fn forward(
        &self,
        (x, residual): (&Tensor, &Tensor),
        (pass, after): (&Pass, &Pass),
        layer: impl Fn(&Tensor) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let joined = |y: &Tensor| self.join.forward(residual, y, &self.dropout, after);
        match self.place {
            NormPlace::Pre => joined(&layer(&self.norm.forward(x, pass)?)?),
            NormPlace::Post => self.norm.forward(&joined(&layer(x)?)?, after),
        }
    }

    fn branch(
        &self,
        x: &Tensor,
        pass: &Pass,
        layer: impl Fn(&Tensor) -> Result<Tensor>,
    ) -> Result<Tensor> {
        self.dropout
            .forward(&layer(&self.norm.forward(x, pass)?)?, pass)
    }

    /// Computes [`Sublayer::forward`] around a feed-forward, whose operation includes norm, dropout
    /// and residual where it can.
    fn feed(&self, x: &Tensor, feed: &FeedForward, pass: &Pass) -> Result<Tensor> {
        match (&self.norm, &self.join, self.place) {
            (Norm::Layer(_), SkipConnection::Plain, NormPlace::Pre) => {
                feed.forward(x, self.around(true), pass)
            }
            (norm, SkipConnection::Plain, NormPlace::Post) => {
                norm.forward(&feed.forward(x, self.around(true), pass)?, pass)
            }
            _ => self.forward((x, x), (pass, pass), |x| {
                feed.forward(x, FusedSublayer::default(), pass)
            }),
        }
    }

    /// Returns the surroundings that a feed-forward takes in.
    fn around(&self, residual: bool) -> FusedSublayer<'_> {
        FusedSublayer {
            norm: match (&self.norm, self.place) {
                (Norm::Layer(norm), NormPlace::Pre) => Some(norm),
                _ => None,
            },
            dropout: Some(&self.dropout),
            residual,
        }
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;
    use crate::{
        Mask, RngKey,
        options::{ChannelKind, NormKind},
        testing::{close, normal, parameters},
    };

    /// A mixer that leaves the first positions.
    struct First(usize);

    impl Mixer for First {
        fn forward(&self, x: &Tensor, _: &Pass) -> Result<Tensor> {
            Ok(x.narrow(1, 0, self.0)?.contiguous()?)
        }

        fn flops(&self, _: usize) -> u64 {
            0
        }
    }

    #[test]
    fn a_norm_behind_a_mixer_that_shortens_knows_the_positions_left() {
        let options = BlockOptions {
            dim: 4,
            norm: NormKind::BatchMasked,
            norm_place: NormPlace::Post,
            ffn: ChannelKind::None,
            ..BlockOptions::default()
        };
        let block = Block::new(&parameters().builder(), &options, 0, Box::new(First(3))).unwrap();
        let mask = |rows: [&[f64]; 2]| {
            let rows = Tensor::new(rows.concat(), &Device::Cpu).unwrap();
            Mask::new(&rows.reshape((2, ())).unwrap()).unwrap()
        };
        let long = mask([&[1.0, 1.0, 1.0, 1.0, 1.0], &[1.0, 1.0, 1.0, 1.0, 0.0]]);
        let short = mask([&[1.0, 1.0, 1.0], &[1.0, 1.0, 0.0]]);
        let pass = Pass::new(true, RngKey::new(1, 0, 0));
        let (long, short) = (pass.with_mask(Some(&long)), pass.with_mask(Some(&short)));
        let x = normal("x", &[2, 5, 4]);
        let left = x.narrow(1, 0, 3).unwrap().contiguous().unwrap();
        let shortened = block.forward_to(&x, &left, &long, &short).unwrap();
        let alone = block.forward(&left, &short).unwrap();
        close(&shortened, &alone, 1e-12, "norm");
    }
}
