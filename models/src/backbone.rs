//! Common part of classification and pretraining: the way from token ids to hidden states.

use candle_core::{DType, Tensor};

use crate::{
    DenseLabels, Encoded, Encoder, Error, Inputs, Mask, Model, Options, Packing, Parameters, Pass,
    Result, Shape, Tokens,
    context::{Geometry, ModelContext},
    encoder::with_cls_last,
    error::require,
    layers::Embedding,
    options::{ChannelKind, NormKind, Pooling, Positions},
    prediction::pick,
};

/// Embedding and encoder, with a CLS slot where the pooling wants one.
pub(crate) struct Backbone {
    pub(crate) embedding: Embedding,
    pub(crate) encoder: Box<dyn Encoder>,
    pub(crate) cls: bool,
    pub(crate) towers: usize,
    max_length: usize,
    dtype: DType,
    /// The setting around the encoder by which a token sees later ones, if there is one.
    sees_later: Option<&'static str>,
}

impl Backbone {
    /// Builds them for `shape`; parameters go to `embed` and `encoder`.
    pub(crate) fn new(
        model: &Model,
        shape: &Shape,
        options: &Options,
        parameters: &Parameters,
    ) -> Result<Self> {
        options.validate()?;
        for (key, value, min, max) in [
            ("shape.vocabulary", shape.vocabulary, 1, usize::MAX),
            ("shape.classes", shape.classes, 2, usize::MAX),
            ("shape.towers", shape.towers, 1, 2),
            ("shape.max_length", shape.max_length, 1, usize::MAX - 1),
        ] {
            let allowed = format!("from {min} to {max}");
            require((min..=max).contains(&value), key, value, allowed)?;
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
        let context = ModelContext {
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
            own: model.own_options(),
        };
        let mut encoder = model.build(&context)?;
        if encoder.is_causal() {
            encoder = with_cls_last(encoder, &context)?;
        }
        let sees_later = [
            (cls, "head.pooling = cls"),
            (
                options.embed.positions == Positions::Conditional,
                "embed.positions = conditional",
            ),
            (
                options.block.ffn == ChannelKind::Switch,
                "block.ffn = switch",
            ),
            (options.block.ffn == ChannelKind::Moe, "block.ffn = moe"),
            (options.block.ffn == ChannelKind::Conv, "block.ffn = conv"),
            (options.block.norm == NormKind::Batch, "block.norm = batch"),
            (
                options.block.norm == NormKind::BatchMasked,
                "block.norm = batch_masked",
            ),
        ];
        let sees_later = sees_later.into_iter().find(|(sees, _)| *sees);
        Ok(Self {
            embedding,
            encoder,
            cls,
            towers: shape.towers,
            max_length: shape.max_length,
            dtype: vb.dtype(),
            sees_later: sees_later.map(|(_, setting)| setting),
        })
    }

    /// Returns the setting around the encoder, such as `block.ffn = conv`, by which a token sees
    /// later ones. `None` if there is none.
    pub(crate) fn sees_later(&self) -> Option<&'static str> {
        self.sees_later
    }

    /// Returns whether no hidden state depends on later tokens.
    pub(crate) fn is_causal(&self) -> bool {
        self.sees_later.is_none() && self.encoder.is_causal()
    }

    /// Returns hidden states of one tower's sequences, in its pass; those of every block but the
    /// last too, if they are wanted. `more` is the vector of an id beyond the vocabulary.
    pub(crate) fn encode(
        &self,
        tokens: &Tokens,
        more: Option<&Tensor>,
        wants_states: bool,
        pass: &Pass,
    ) -> Result<(Encoded, Vec<Tensor>)> {
        let (ids, mask) = (&tokens.ids, tokens.mask.as_ref());
        if !wants_states && let Some(packing) = self.packing(tokens)? {
            let pass = pass.with_packing(&packing);
            let (x, _) = self
                .embedding
                .forward(&packing.pack_ids(ids)?, None, more, &pass)?;
            let encoded = self.encoder.forward(&x, &pass)?;
            let encoded = Encoded {
                hidden: packing.unpack(&encoded.hidden)?,
                mask: Some(packing.mask().clone()),
            };
            return Ok((encoded, Vec::new()));
        }
        let (x, mask) = self.embedding.forward(ids, mask, more, pass)?;
        let pass = pass.with_mask(mask.as_ref());
        match wants_states {
            true => self.encoder.forward_with_states(&x, &pass),
            false => Ok((self.encoder.forward(&x, &pass)?, Vec::new())),
        }
    }

    /// Returns the states (N, D) that stand for labelled positions of `tokens`, of which `encoded`
    /// was made; N at least 1. Where one stands for several positions, each adds its own embedding.
    pub(crate) fn states_at(
        &self,
        tokens: &Tokens,
        encoded: &Encoded,
        labels: &DenseLabels,
        pass: &Pass,
    ) -> Result<Tensor> {
        let (batch, length) = tokens.ids.dims2()?;
        let mut places = labels.rows.iter().zip(&labels.positions);
        if let Some((row, position)) =
            places.find(|&(row, position)| *row as usize >= batch || *position as usize >= length)
        {
            return Err(Error::Input(format!(
                "a label at position {position} of sequence {row}, for {batch} sequences of {length} tokens"
            )));
        }
        let first = usize::from(self.cls);
        let places = |slots: usize, slot: &dyn Fn(usize) -> usize| -> Vec<u32> {
            let rows = labels.rows.iter().zip(&labels.positions);
            let place = |(row, position): (&u32, &u32)| {
                *row as usize * slots + slot(first + *position as usize)
            };
            rows.map(|at| place(at) as u32).collect()
        };
        let slots = encoded.hidden.dim(1)?;
        let states = places(slots, &|position| self.encoder.slot_of(position));
        let states = pick(&encoded.hidden, states)?;
        if self.encoder.keeps_length() {
            return Ok(states);
        }
        let (x, _) = self
            .embedding
            .forward(&tokens.ids, tokens.mask.as_ref(), None, pass)?;
        Ok((states + pick(&x, places(x.dim(1)?, &|position| position))?)?)
    }

    /// Returns the packing of these sequences if they are in main memory, embedding and encoder
    /// support it, and there is padding.
    fn packing(&self, tokens: &Tokens) -> Result<Option<Packing>> {
        // On a GPU every step would wait for the mask, which the host has to read.
        let on_host = tokens.ids.device().is_cpu();
        if !on_host || !self.embedding.supports_varlen() || !self.encoder.supports_varlen() {
            return Ok(None);
        }
        let valid = self.embedding.valid(&tokens.ids, tokens.mask.as_ref())?;
        let Some(valid) = valid else { return Ok(None) };
        Packing::new(&Mask::new(&valid.to_dtype(self.dtype)?)?)
    }

    /// Refuses towers, batch sizes and lengths that do not fit.
    pub(crate) fn check(&self, inputs: &Inputs) -> Result<()> {
        let refuse = |reason: String| Err(Error::Input(reason));
        let (actual, expected) = (inputs.towers.len(), self.towers);
        if actual != expected {
            return refuse(format!(
                "{actual} sequences per example, the model takes {expected}"
            ));
        }
        for tokens in &inputs.towers {
            let (batch, length) = tokens.ids.dims2()?;
            let max = self.max_length;
            if length == 0 || length > max {
                return refuse(format!(
                    "sequences of {length} tokens, the model takes 1 to {max}"
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

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;
    use crate::{
        MODELS, RngKey, ops,
        options::{ChannelKind, Gate, NormKind},
        testing::{close, normal},
    };

    fn shape() -> Shape {
        Shape {
            vocabulary: 11,
            classes: 2,
            towers: 1,
            max_length: 37,
            padding: true,
            grid: None,
        }
    }

    /// The moments of a batch are of all positions, so of those that follow, too. A convolution
    /// that marks positions, or takes the place of the feed-forward network, reads both neighbours.
    /// An expert's room depends on the length.
    #[test]
    fn layers_around_a_causal_mixer_may_see_what_follows() {
        let (layer, dense) = (NormKind::Layer, ChannelKind::Dense);
        for (norm, positions, ffn, expected) in [
            (layer, Positions::Sinusoid, dense, true),
            (layer, Positions::Conditional, dense, false),
            (NormKind::Power, Positions::Sinusoid, dense, true),
            (NormKind::Batch, Positions::Sinusoid, dense, false),
            (NormKind::BatchMasked, Positions::Sinusoid, dense, false),
            (layer, Positions::Sinusoid, ChannelKind::ProductKeys, true),
            (layer, Positions::Sinusoid, ChannelKind::Switch, false),
            (layer, Positions::Sinusoid, ChannelKind::Moe, false),
            (layer, Positions::Sinusoid, ChannelKind::Conv, false),
        ] {
            let mut options = Options::of(crate::mixers::find("transformer").unwrap());
            options.model["attention"] = "causal".into();
            options.head.pooling = Pooling::Mean;
            options.block.norm = norm;
            options.block.ffn = ffn;
            options.embed.positions = positions;
            let parameters = Parameters::meta(&Device::Cpu, DType::F32);
            let model = crate::mixers::find("transformer").unwrap();
            let backbone = Backbone::new(model, &shape(), &options, &parameters).unwrap();
            let place = format!("{norm:?}, {positions:?}, {ffn:?}");
            assert_eq!(backbone.is_causal(), expected, "{place}");
        }
    }

    /// Sequences are not packed if the states of all blocks are wanted, or if anything around the
    /// mixer would notice.
    #[test]
    fn hidden_states_are_the_same_whatever_is_around_a_mixer_of_packed_sequences() {
        let row = |length: usize| (0..12).map(move |l| f32::from(u8::from(l < length)));
        let valid: Vec<f32> = [5, 12, 0, 7].into_iter().flat_map(row).collect();
        let valid = Tensor::from_vec(valid, (4, 12), &Device::Cpu).unwrap();
        let ids: Vec<u32> = (0..48).map(|i| i * i % 11).collect();
        let tokens = Tokens {
            ids: Tensor::from_vec(ids, (4, 12), &Device::Cpu).unwrap(),
            mask: Some(valid.clone()),
        };
        let only = valid.unsqueeze(2).unwrap();
        let (none, layer) = (ChannelKind::None, NormKind::Layer);
        for (positions, ffn, norm) in [
            (Positions::None, none, layer),
            (Positions::Sinusoid, none, layer),
            (Positions::Complex, none, layer),
            (Positions::Conditional, none, layer),
            (Positions::None, ChannelKind::Conv, layer),
            (Positions::None, ChannelKind::Switch, layer),
            (Positions::None, none, NormKind::Batch),
        ] {
            let model = crate::mixers::find("min_gru").unwrap();
            let mut options = Options::of(model);
            options.embed.positions = positions;
            options.block.ffn = ffn;
            options.block.norm = norm;
            options.head.pooling = Pooling::Mean;
            let parameters = Parameters::new(17, &Device::Cpu, DType::F32);
            let backbone = Backbone::new(model, &shape(), &options, &parameters).unwrap();
            let pass = Pass::new(true, RngKey::new(17, 3, 5));
            let [hidden, padded] = [false, true].map(|wants_states| {
                let encoded = backbone.encode(&tokens, None, wants_states, &pass);
                encoded.unwrap().0.hidden.broadcast_mul(&only).unwrap()
            });
            let place = format!("{positions:?}, {ffn:?}, {norm:?}");
            close(&hidden, &padded, 1e-4, &place);
            let packs = backbone.packing(&tokens).unwrap().is_some();
            let may = (positions, ffn, norm) == (Positions::None, none, layer);
            assert_eq!(packs, may, "{place}");
        }
    }

    /// Hidden states and gradients in training equal those of the padded batch with any options
    /// around the mixer.
    #[test]
    fn an_encoder_that_takes_packed_sequences_computes_the_same_of_them() {
        let row = |length: usize| (0..37).map(move |l| f32::from(u8::from(l < length)));
        let valid: Vec<f32> = [20, 0, 37, 1].into_iter().flat_map(row).collect();
        let mask = Tensor::from_vec(valid, (4, 37), &Device::Cpu).unwrap();
        let mask = Mask::new(&mask).unwrap();
        let packing = Packing::new(&mask).unwrap().unwrap();
        let single = |x: Tensor| x.to_dtype(DType::F32).unwrap();
        let x = single(normal("x", &[4, 37, 16]));
        let seed = single(normal("seed", &[4, 37, 16]));
        let seed = (seed * mask.valid().unsqueeze(2).unwrap().broadcast_as((4, 37, 16))).unwrap();
        let mut actual = Vec::new();
        for model in MODELS {
            for (norm, tied) in [(NormKind::Layer, false), (NormKind::BatchMasked, true)] {
                let mut options = Options::of(model);
                options.block.dim = 16;
                options.block.qkv_dim = 16;
                options.block.dropout = 0.3;
                options.block.dropout_tied = tied;
                options.block.norm = norm;
                // A channel mixer is not for packed sequences.
                (options.block.ffn, options.block.gate) = (ChannelKind::None, Gate::None);
                if options.validate().is_err() {
                    continue;
                }
                let parameters = Parameters::new(17, &Device::Cpu, DType::F32);
                let Ok(backbone) = Backbone::new(model, &shape(), &options, &parameters) else {
                    continue;
                };
                if !backbone.encoder.supports_varlen() {
                    continue;
                }
                let pass = Pass::new(true, RngKey::new(17, 3, 5));
                let run = |packed: bool| {
                    let hidden = match packed {
                        true => {
                            let x = packing.pack(&x).unwrap();
                            let pass = pass.with_packing(&packing);
                            let encoded = backbone.encoder.forward(&x, &pass).unwrap();
                            packing.unpack(&encoded.hidden).unwrap()
                        }
                        false => {
                            let pass = pass.with_mask(Some(&mask));
                            backbone.encoder.forward(&x, &pass).unwrap().hidden
                        }
                    };
                    let loss = (hidden * &seed).unwrap().sum_all().unwrap();
                    (ops::backward(&loss).unwrap(), loss)
                };
                let ((padded, expected), (packed, found_loss)) = (run(false), run(true));
                let place = format!("{}, {norm:?}", model.name);
                close(&found_loss, &expected, 2e-3, &place);
                for (path, var) in parameters.all() {
                    if let Some(expected) = padded.get(&var) {
                        close(
                            packed.get(&var).unwrap(),
                            expected,
                            2e-3,
                            &format!("{place}: {path}"),
                        );
                    }
                }
                actual.push(model.name);
            }
        }
        for name in [
            "s4d",
            "s5",
            "lru",
            "rtf",
            "sgconv",
            "long_conv",
            "gla",
            "hgrn",
            "hgrn2",
            "lion",
            "min_gru",
            "min_lstm",
        ] {
            let count = actual.iter().filter(|actual| **actual == name).count();
            assert_eq!(count, 2, "{name}");
        }
    }
}
