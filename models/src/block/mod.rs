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
    Context, Mixer, Result, VarBuilder,
    layers::{Around, Dropout, FeedForward},
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
    pub fn forward(&self, x: &Tensor, context: &Context) -> Result<Tensor> {
        let x = self
            .mixing
            .forward(x, context, |x| self.mixer.forward(x, context))?;
        match &self.channel {
            Some((Channel::Dense(feed), sublayer)) => sublayer.feed(&x, feed, context),
            Some((channel, sublayer)) => {
                sublayer.forward(&x, context, |x| channel.forward(x, context))
            }
            None => Ok(x),
        }
    }

    /// dropout(mixer(norm(x))): the first half without its residual.
    pub(crate) fn mix(&self, x: &Tensor, context: &Context) -> Result<Tensor> {
        self.mixing
            .branch(x, context, |x| self.mixer.forward(x, context))
    }

    /// dropout(channel(norm(x))): the second half without its residual; none where there is none.
    pub(crate) fn feed(&self, x: &Tensor, context: &Context) -> Result<Option<Tensor>> {
        let branch = |(channel, sublayer): &(Channel, Sublayer)| match (channel, &sublayer.norm) {
            (Channel::Dense(feed), Norm::Layer(_)) => {
                feed.forward(x, sublayer.around(false), context)
            }
            _ => sublayer.branch(x, context, |x| channel.forward(x, context)),
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
        context: &Context,
        layer: impl Fn(&Tensor) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let joined = |y: &Tensor| self.join.forward(x, y, &self.dropout, context);
        match self.place {
            NormPlace::Pre => joined(&layer(&self.norm.forward(x)?)?),
            NormPlace::Post => self.norm.forward(&joined(&layer(x)?)?),
        }
    }

    fn branch(
        &self,
        x: &Tensor,
        context: &Context,
        layer: impl Fn(&Tensor) -> Result<Tensor>,
    ) -> Result<Tensor> {
        self.dropout
            .forward(&layer(&self.norm.forward(x)?)?, context)
    }

    /// [`Sublayer::forward`] around a feed-forward, which takes the usual surroundings into its own operation.
    fn feed(&self, x: &Tensor, feed: &FeedForward, context: &Context) -> Result<Tensor> {
        match (&self.norm, &self.join, self.place) {
            (Norm::Layer(_), Join::Plain, NormPlace::Pre) => {
                feed.forward(x, self.around(true), context)
            }
            (norm, Join::Plain, NormPlace::Post) => {
                norm.forward(&feed.forward(x, self.around(true), context)?)
            }
            _ => self.forward(x, context, |x| feed.forward(x, Around::default(), context)),
        }
    }

    /// The surroundings that a feed-forward takes in.
    fn around(&self, residual: bool) -> Around<'_> {
        Around {
            norm: match (&self.norm, self.place) {
                (Norm::Layer(norm), NormPlace::Pre) => Some(norm),
                _ => None,
            },
            dropout: Some(&self.dropout),
            residual,
        }
    }
}
