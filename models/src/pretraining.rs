//! Self-pretraining. Amos, Berant, Gupta, 2023, "Never Train from Scratch: Fair Comparison of
//! Long-Sequence Models Requires Data-Driven Priors", arXiv:2310.02980: before it is trained to
//! classify, a model predicts tokens of the same training inputs.
//!
//! The prediction is softmax(W h_i + b) over ids, from the hidden state h_i (D) of a token; W (V,
//! D) and b (V) are dropped when training begins, embedding and encoder stay.
//!
//! - `masked`: a share of the tokens, drawn anew in each pass, is replaced by a learned mask vector
//!   (which is dropped too), and predicted.
//! - `next`: each token's successor is predicted. For causal models only: others see the token that
//!   they would predict.
//!
//! The loss is the mean over the predicted tokens of a sequence, then over sequences; each tower's
//! sequence counts as one. Departure: the paper's pixels are numbers, and the model predicts them
//! by their distance; here they are ids like all others.

use candle_core::Tensor;

use crate::{
    Model, Options, Parameters, Pass, Result,
    auxiliary::{SHORTENED, hidden_token, no_vector, not_causal},
    backbone::Backbone,
    error::require,
    inputs::{Inputs, Shape, Tokens},
    prediction::{Decoder, Sequences, TokenLosses},
    rng::StreamKey,
};

/// Choice of the tokens that a model learns to predict in pretraining.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Objective {
    /// The model predicts tokens that a learned vector hides from it.
    Masked {
        /// Share of the tokens that are hidden, more than 0 and less than 1.
        share: f64,
    },
    /// The model predicts the token that follows each token. It must be causal.
    Next,
}

/// First name in the paths of the decoder's parameters, which begin with `pretrain.`. A classifier
/// takes over all other parameters of a pretrained model.
pub const DECODER: &str = "pretrain";

/// Model that predicts tokens in pretraining: embedding, encoder and decoder.
pub struct TokenModel {
    backbone: Backbone,
    decoder: Decoder,
    hides: Option<Hides>,
}

/// Hiding of tokens.
struct Hides {
    share: f64,
    /// (1, D), the vector in the place of a hidden token.
    token: Tensor,
    /// Id of the hidden token.
    id: u32,
    /// Draws of training passes, and of scoring passes, which hide the same tokens at every step.
    trained: StreamKey,
    scored: StreamKey,
}

/// Quality of a model's predictions of the tokens of B examples.
pub struct Predictions {
    /// Mean cross-entropy (B) over the predicted tokens of each example, in nats per token.
    pub losses: Tensor,
    /// Share (B) of the predicted tokens of each example that are right, from 0 to 1. It has no
    /// gradient.
    pub right: Tensor,
}

impl TokenModel {
    /// Builds `model` for tasks of `shape`, and creates its parameters in `parameters`. `objective`
    /// says which tokens it predicts.
    ///
    /// # Errors
    /// Errors of [`crate::Classifier::new`], and [`crate::Error::Option`] for a model that cannot
    /// predict these tokens.
    pub fn new(
        model: &Model,
        shape: &Shape,
        options: &Options,
        objective: Objective,
        parameters: &Parameters,
    ) -> Result<Self> {
        let backbone = Backbone::new(model, shape, options, parameters)?;
        let kind = match objective {
            Objective::Masked { .. } => "masked",
            Objective::Next => "next",
        };
        let refuse = |holds: bool, others: &str, reason: &str| {
            let allowed = format!("{others}: {reason}");
            require(holds, "pretrain.kind", kind, allowed)
        };
        refuse(backbone.encoder.keeps_length(), "none", SHORTENED)?;
        let (vb, dim) = (parameters.builder().pp(DECODER), options.block.dim);
        let hides = match objective {
            Objective::Masked { share } => {
                let missing = no_vector(&backbone, options);
                refuse(missing.is_none(), "none", missing.unwrap_or_default())?;
                Some(Hides {
                    share,
                    token: hidden_token(&vb, dim)?,
                    id: shape.vocabulary as u32,
                    trained: StreamKey::new(&vb.pp("hidden").prefix()),
                    scored: StreamKey::new(&vb.pp("scored").prefix()),
                })
            }
            Objective::Next => {
                let seen = not_causal(&backbone, options);
                let reason = seen.as_deref().unwrap_or_default();
                refuse(seen.is_none(), "masked or none", reason)?;
                None
            }
        };
        Ok(Self {
            backbone,
            decoder: Decoder::new(&vb.pp("decoder"), dim, shape.vocabulary)?,
            hides,
        })
    }

    /// Predicts tokens of the B examples in `inputs`, which have token ids (B, L) for each tower.
    /// Returns the quality of the predictions, as a mean over the towers.
    ///
    /// # Errors
    /// [`crate::Error::Input`] if towers, batch sizes or lengths do not fit; otherwise if a tensor
    /// operation fails.
    pub fn forward(&self, inputs: &Inputs, pass: &Pass) -> Result<Predictions> {
        self.backbone.check(inputs)?;
        let towers = self.backbone.towers;
        let mut sum: Option<[Tensor; 2]> = None;
        for (tower, tokens) in inputs.towers.iter().enumerate() {
            let TokenLosses { losses, right } =
                self.of_tower(tokens, &pass.of_tower(tower, towers))?;
            sum = Some(match sum {
                Some([all, hits]) => [(all + losses)?, (hits + right)?],
                None => [losses, right],
            });
        }
        let [losses, right] = sum.ok_or_else(|| crate::Error::Input("no tower".to_owned()))?;
        Ok(Predictions {
            losses: (losses / towers as f64)?,
            right: (right / towers as f64)?,
        })
    }

    /// Returns the losses of one tower's sequences.
    fn of_tower(&self, tokens: &Tokens, pass: &Pass) -> Result<TokenLosses> {
        let valid = self
            .backbone
            .embedding
            .valid(&tokens.ids, tokens.mask.as_ref())?;
        let sequences = Sequences::read(&tokens.ids, valid.as_ref())?;
        let (encoded, asked) = match &self.hides {
            Some(hides) => {
                let stream = match pass.train {
                    true => pass.rng.per_example(hides.trained),
                    false => pass.rng.at_step(0).per_example(hides.scored),
                };
                let asked = sequences.some(hides.share, &stream);
                let hiding = Tokens {
                    ids: sequences.hiding(&asked, hides.id, &tokens.ids)?,
                    mask: tokens.mask.clone(),
                };
                let more = Some(&hides.token);
                let (encoded, _) = self.backbone.encode(&hiding, more, false, pass)?;
                (encoded, asked)
            }
            None => {
                let (encoded, _) = self.backbone.encode(tokens, None, false, pass)?;
                (encoded, sequences.following(1))
            }
        };
        let first = usize::from(self.backbone.cls);
        self.decoder.answer(&encoded.hidden, first, &asked)
    }
}

#[cfg(test)]
mod tests;
