//! What a classification and a pretraining have in common: from token ids to hidden states.

use candle_core::Tensor;

use crate::{
    Encoded, Encoder, Error, Model, Options, Parameters, Pass, Result,
    classifier::{Inputs, Shape, Tokens},
    context::{Geometry, ModelContext},
    error::require,
    layers::Embedding,
    options::{ChannelKind, Pooling, Positions},
};

/// Embedding and encoder, with a CLS slot where the pooling wants one.
pub(crate) struct Trunk {
    pub(crate) embedding: Embedding,
    pub(crate) encoder: Box<dyn Encoder>,
    pub(crate) cls: bool,
    pub(crate) towers: usize,
    max_length: usize,
    /// Whether everything around the encoder keeps what follows a token from it.
    causal_around: bool,
}

impl Trunk {
    /// Builds them for `shape`; parameters go to `embed` and `encoder`.
    pub(crate) fn new(
        model: &Model,
        shape: &Shape,
        options: &Options,
        parameters: &Parameters,
    ) -> Result<Self> {
        options.validate()?;
        for (key, value, least, most) in [
            ("shape.vocabulary", shape.vocabulary, 1, usize::MAX),
            ("shape.classes", shape.classes, 2, usize::MAX),
            ("shape.towers", shape.towers, 1, 2),
            ("shape.max_length", shape.max_length, 1, usize::MAX - 1),
        ] {
            let allowed = format!("from {least} to {most}");
            require((least..=most).contains(&value), key, value, allowed)?;
        }
        let vb = parameters.builder();
        let cls = options.head.pooling == Pooling::Cls;
        let embedding = Embedding::new(
            &vb.pp("embed"),
            &options.embed,
            shape.vocabulary,
            options.block.dim,
            shape.max_length,
            cls,
            parameters.is_blank(),
        )?;
        let encoder = model.build(&ModelContext {
            vb: vb.pp("encoder"),
            block: &options.block,
            model: &options.model,
            max_length: shape.max_length + usize::from(cls),
            cls,
            geometry: Geometry {
                grid: shape.grid,
                towers: shape.towers,
            },
            positions: match options.embed.every_layer {
                true => embedding.positions().cloned(),
                false => None,
            },
            conditional: options.embed.positions == Positions::Conditional,
            layers: options.head.layers,
            name: model.name,
        })?;
        let by_token = matches!(
            options.block.ffn,
            ChannelKind::Dense | ChannelKind::ProductKeys | ChannelKind::None
        );
        Ok(Self {
            embedding,
            encoder,
            cls,
            towers: shape.towers,
            max_length: shape.max_length,
            causal_around: by_token && !cls && options.embed.positions != Positions::Conditional,
        })
    }

    /// Whether no hidden state depends on what follows its token.
    pub(crate) fn is_causal(&self) -> bool {
        self.causal_around && self.encoder.is_causal()
    }

    /// Hidden states of one tower's sequences, in its pass; those of every block but the last too, if they are wanted.
    /// `more` is the vector of an id beyond the vocabulary.
    pub(crate) fn encode(
        &self,
        tokens: &Tokens,
        more: Option<&Tensor>,
        wants_states: bool,
        pass: &Pass,
    ) -> Result<(Encoded, Vec<Tensor>)> {
        let (ids, mask) = (&tokens.ids, tokens.mask.as_ref());
        let (x, mask) = self.embedding.forward(ids, mask, more, pass)?;
        let pass = pass.with_mask(mask.as_ref());
        match wants_states {
            true => self.encoder.forward_with_states(&x, &pass),
            false => Ok((self.encoder.forward(&x, &pass)?, Vec::new())),
        }
    }

    /// Refuses towers, batch sizes and lengths that do not fit.
    pub(crate) fn check(&self, inputs: &Inputs) -> Result<()> {
        let refuse = |reason: String| Err(Error::Input(reason));
        let (found, wanted) = (inputs.towers.len(), self.towers);
        if found != wanted {
            return refuse(format!(
                "{found} sequences per example, the model takes {wanted}"
            ));
        }
        for tokens in &inputs.towers {
            let (batch, length) = tokens.ids.dims2()?;
            let most = self.max_length;
            if length == 0 || length > most {
                return refuse(format!(
                    "sequences of {length} tokens, the model takes 1 to {most}"
                ));
            }
            if batch != inputs.towers[0].ids.dim(0)? {
                return refuse("the towers differ in batch size".to_owned());
            }
            if let Some(mask) = &tokens.mask
                && mask.dims() != tokens.ids.dims()
            {
                let (mask, ids) = (mask.dims(), tokens.ids.dims());
                return refuse(format!("mask of shape {mask:?} for ids of shape {ids:?}"));
            }
        }
        Ok(())
    }
}
