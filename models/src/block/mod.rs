//! The residual block: a mixer and a channel mixer, each within a sublayer.
//!
//! ```text
//! x ← mixing(x, mixer);   x ← channel(x, feed-forward)
//!
//! sublayer(x, f):   pre-norm   join(x, f(norm(x)))        post-norm   norm(join(x, f(x)))
//! ```
//!
//! What `norm` and `join` are is an axis each: [`norm`], [`residual`]. A whole feed-forward half with the usual choices is one
//! fused operation, see [`FeedForward`].

pub mod channel;
pub mod norm;
pub mod residual;

use candle_core::Tensor;

use self::{channel::Channel, norm::Norm, residual::Join};
use crate::{
    Mixer, Pass, Result, VarBuilder,
    layers::{Dropout, FeedForward, FusedSublayer},
    options::{BlockOptions, NormPlace},
};

/// One block of a stack.
pub struct Block {
    mixer: Box<dyn Mixer>,
    mixing: Sublayer,
    /// None where positions are mixed and nothing else.
    channel: Option<(Channel, Sublayer)>,
}

/// What surrounds a layer: norm, dropout, residual.
struct Sublayer {
    norm: Norm,
    place: NormPlace,
    dropout: Dropout,
    join: Join,
}

impl Block {
    /// Block number `layer`, at `vb`, around `mixer`.
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
        })
    }

    /// (B, L, D) -> (B, L, D).
    ///
    /// # Errors
    /// Those of the mixer.
    pub fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let x = self
            .mixing
            .forward(x, pass, |x| self.mixer.forward(x, pass))?;
        match &self.channel {
            Some((Channel::Dense(feed), sublayer)) => sublayer.feed(&x, feed, pass),
            Some((channel, sublayer)) => sublayer.forward(&x, pass, |x| channel.forward(x, pass)),
            None => Ok(x),
        }
    }

    /// dropout(mixer(norm(x))): the first half without its residual.
    pub(crate) fn mix(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        self.mixing
            .fold_in(x, pass, |x| self.mixer.forward(x, pass))
    }

    /// dropout(channel(norm(x))): the second half without its residual; none where there is none.
    pub(crate) fn feed(&self, x: &Tensor, pass: &Pass) -> Result<Option<Tensor>> {
        let branch = |(channel, sublayer): &(Channel, Sublayer)| match (channel, &sublayer.norm) {
            (Channel::Dense(feed), Norm::Layer(_)) => feed.forward(x, sublayer.around(false), pass),
            _ => sublayer.fold_in(x, pass, |x| channel.forward(x, pass)),
        };
        self.channel.as_ref().map(branch).transpose()
    }

    /// The mixer.
    #[must_use]
    pub fn mixer(&self) -> &dyn Mixer {
        self.mixer.as_ref()
    }

    /// Operations for one sequence.
    #[must_use]
    pub fn flops(&self, length: usize) -> u64 {
        let channel = self.channel.as_ref().map_or(0, |(channel, sublayer)| {
            channel.flops(length) + sublayer.join.flops(length)
        });
        self.mixer.flops(length) + self.mixing.join.flops(length) + channel
    }
}

impl Sublayer {
    fn new(vb: &VarBuilder, name: &str, block: &BlockOptions) -> Result<Self> {
        Ok(Self {
            norm: Norm::new(&vb.pp(format!("{name}_norm")), block)?,
            place: block.norm_place,
            dropout: Dropout::new(&vb.pp(format!("{name}_drop")), block.dropout),
            join: Join::new(&vb.pp(format!("{name}_join")), vb, block)?,
        })
    }

    fn forward(
        &self,
        x: &Tensor,
        pass: &Pass,
        layer: impl Fn(&Tensor) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let joined = |y: &Tensor| self.join.forward(x, y, &self.dropout, pass);
        match self.place {
            NormPlace::Pre => joined(&layer(&self.norm.forward(x)?)?),
            NormPlace::Post => self.norm.forward(&joined(&layer(x)?)?),
        }
    }

    fn fold_in(
        &self,
        x: &Tensor,
        pass: &Pass,
        layer: impl Fn(&Tensor) -> Result<Tensor>,
    ) -> Result<Tensor> {
        self.dropout.forward(&layer(&self.norm.forward(x)?)?, pass)
    }

    /// [`Sublayer::forward`] around a feed-forward, which takes the usual surroundings into its own operation.
    fn feed(&self, x: &Tensor, feed: &FeedForward, pass: &Pass) -> Result<Tensor> {
        match (&self.norm, &self.join, self.place) {
            (Norm::Layer(_), Join::Plain, NormPlace::Pre) => {
                feed.forward(x, self.around(true), pass)
            }
            (norm, Join::Plain, NormPlace::Post) => {
                norm.forward(&feed.forward(x, self.around(true), pass)?)
            }
            _ => self.forward(x, pass, |x| feed.forward(x, FusedSublayer::default(), pass)),
        }
    }

    /// The surroundings that a feed-forward takes in.
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
