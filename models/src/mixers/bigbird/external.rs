//! Learned tokens that pass through the encoder before the sequence: BigBird's ETC form, and ETC's
//! global input (Ainslie et al., 2020, arXiv:2004.08483).

use crate::{encoder::Encoded, prelude::*};

/// Returns the encoder that `inner` builds with `count` learned tokens before every sequence; as it
/// is if there are none.
/// # Errors
/// Errors of `inner`.
pub(super) fn around(
    context: &ModelContext,
    count: usize,
    inner: impl Fn(&ModelContext) -> Result<Box<dyn Encoder>>,
) -> Result<Box<dyn Encoder>> {
    if count == 0 {
        return inner(context);
    }
    require(
        !context.conditional,
        "embed.positions",
        "conditional",
        "another value with tokens that are at no position (model.global_extra > 0)",
    )?;
    let dim = context.block.dim;
    let init = xavier_uniform(count, dim);
    let positions = context.positions.as_ref();
    let wider = ModelContext {
        vb: context.vb.clone(),
        block: context.block,
        model: context.model,
        max_length: context.max_length + count,
        cls: false,
        geometry: context.geometry,
        // The tokens have no position in the embedding.
        positions: positions
            .map(|table| table.pad_with_zeros(0, count, 0))
            .transpose()?,
        conditional: false,
        layers: context.layers,
        own: context.own,
    };
    Ok(Box::new(External {
        tokens: context.vb.get_with_hints((count, dim), "extra", init)?,
        inner: inner(&wider)?,
    }))
}

struct External {
    /// (g, D).
    tokens: Tensor,
    inner: Box<dyn Encoder>,
}

impl External {
    fn count(&self) -> usize {
        self.tokens.dims()[0]
    }
}

impl Encoder for External {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Encoded> {
        let (batch, length, dim) = x.dims3()?;
        let shape = (batch, self.count(), dim);
        let tokens = self.tokens.unsqueeze(0)?.broadcast_as(shape)?;
        let x = Tensor::cat(&[&tokens.contiguous()?, x], 1)?;
        let mask = match pass.mask() {
            Some(mask) => {
                let valid = mask.valid();
                let ones = Tensor::ones((batch, self.count()), valid.dtype(), valid.device())?;
                Some(Mask::new(&Tensor::cat(&[&ones, valid], 1)?)?)
            }
            None => None,
        };
        let encoded = self.inner.forward(&x, &pass.with_mask(mask.as_ref()))?;
        let hidden = encoded.hidden.narrow(1, self.count(), length)?;
        Ok(Encoded {
            hidden: hidden.contiguous()?,
            mask: pass.mask().cloned(),
        })
    }

    fn flops(&self, length: usize) -> u64 {
        self.inner.flops(self.count() + length)
    }
}
