//! Sequence classification: embedding -> encoder -> pooling -> head, with one tower or two that
//! share all weights.

use candle_core::Tensor;

use crate::{
    Auxiliary, DenseLabels, Encoded, Inputs, Logits, Model, Options, Parameters, Pass, Result,
    Shape,
    auxiliary::{AUXILIARY, AuxiliaryHeads},
    backbone::Backbone,
    error::require,
    head::{Head, PositionHead},
    layers::Pool,
    loss::Loss,
};

/// First name in the paths of the parameters of the head for single positions, which begin with
/// `dense.`.
pub const DENSE: &str = "dense";

/// Classifier of sequences: embedding, encoder, pooling and head. If an example has two sequences,
/// both go through the same weights.
pub struct Classifier {
    backbone: Backbone,
    pool: Pool,
    head: Head,
    /// Head for the class at single positions, where these have labels.
    dense: Option<PositionHead>,
    /// Heads for predictions beside the class in training.
    auxiliary: Option<AuxiliaryHeads>,
    /// Losses that the blocks' options add.
    block_losses: &'static [Loss],
}

impl Classifier {
    /// Builds `model` for tasks of `shape`, and creates its parameters in `parameters`. `options`
    /// set everything around the mixer, and the mixer's own options.
    ///
    /// # Errors
    /// [`crate::Error::Option`], [`crate::Error::Options`] or [`crate::Error::Word`] for options
    /// that are out of range or unknown.
    pub fn new(
        model: &Model,
        shape: &Shape,
        options: &Options,
        parameters: &Parameters,
    ) -> Result<Self> {
        let backbone = Backbone::new(model, shape, options, parameters)?;
        let vb = parameters.builder();
        let pool = Pool::new(&vb.pp("pool"), options.head.pooling, &options.block)?;
        let pooled = pool.width(&options.block);
        Ok(Self {
            backbone,
            head: Head::new(&vb.pp("head"), &options.head, shape, pooled)?,
            pool,
            dense: None,
            auxiliary: None,
            block_losses: options.losses(),
        })
    }

    /// Returns this classifier with a second head, which predicts one of `classes` classes at
    /// single positions. The head creates its parameters in `parameters`. `options` and
    /// `parameters` are those of [`Classifier::new`].
    ///
    /// # Errors
    /// [`crate::Error::Option`] for a model of two sequences per example.
    pub fn with_dense(
        self,
        classes: usize,
        options: &Options,
        parameters: &Parameters,
    ) -> Result<Self> {
        let (key, reason) = ("data.dense", "false: an example has two sequences");
        require(self.backbone.towers == 1, key, true, reason.to_owned())?;
        let vb = parameters.builder().pp(DENSE);
        Ok(Self {
            dense: Some(PositionHead::new(&vb, options.block.dim, classes)?),
            ..self
        })
    }

    /// Returns this classifier with heads for those auxiliary losses whose weight in `auxiliary` is
    /// more than 0. The heads create their parameters in `parameters`. The other arguments are
    /// those of [`Classifier::new`].
    ///
    /// # Errors
    /// [`crate::Error::Option`] for a loss that the model cannot have.
    pub fn with_auxiliary(
        self,
        auxiliary: &Auxiliary,
        shape: &Shape,
        options: &Options,
        parameters: &Parameters,
    ) -> Result<Self> {
        let vb = parameters.builder().pp(AUXILIARY);
        Ok(Self {
            auxiliary: AuxiliaryHeads::new(auxiliary, &self.backbone, shape, options, &vb)?,
            ..self
        })
    }

    /// Returns the losses that a pass adds to the cross-entropy, each with its usual weight.
    #[must_use]
    pub fn losses(&self) -> Vec<Loss> {
        let auxiliary = self.auxiliary.as_ref();
        [
            self.block_losses,
            self.backbone.encoder.losses(),
            &auxiliary.map_or_else(Vec::new, AuxiliaryHeads::losses),
        ]
        .concat()
    }

    /// Returns the logits (B, C) of the B examples in `inputs`, for C classes. Each tower of
    /// `inputs` has token ids (B, L). If the pass collects losses and has
    /// [`crate::pass::Supervision`], the auxiliary heads add their losses to it.
    ///
    /// # Errors
    /// [`crate::Error::Input`] if towers, batch sizes or lengths do not fit; otherwise if a tensor
    /// operation fails.
    pub fn forward(&self, inputs: &Inputs, pass: &Pass) -> Result<Tensor> {
        Ok(self
            .forward_dense(inputs, &DenseLabels::default(), pass)?
            .sequence)
    }

    /// Returns the logits (B, C) of whole sequences, for C classes, and those (N, C') of the N
    /// labelled positions in `labels`. The latter come from the head of [`Classifier::with_dense`],
    /// which has C' classes. `inputs` are those of [`Classifier::forward`].
    ///
    /// # Errors
    /// Errors of [`Classifier::forward`]; [`crate::Error::Input`] if there are labels and no head
    /// for them.
    pub fn forward_dense(
        &self,
        inputs: &Inputs,
        labels: &DenseLabels,
        pass: &Pass,
    ) -> Result<Logits> {
        self.backbone.check(inputs)?;
        let head = match (&self.dense, labels.is_empty()) {
            (Some(head), false) => Some(head),
            (None, false) => {
                let reason = "labels at positions, for which the model has no head";
                return Err(crate::Error::Input(reason.to_owned()));
            }
            (_, true) => None,
        };
        let mut positions = None;
        let supervision = pass.supervision().filter(|_| pass.wants_losses());
        let beside = self.auxiliary.as_ref().zip(supervision);
        let (mut pooled, mut readings) = (Vec::new(), Vec::new());
        for (tower, tokens) in inputs.towers.iter().enumerate() {
            let pass = pass.of_tower(tower, self.backbone.towers);
            let pool = |encoded: &Encoded| {
                self.pool
                    .forward(&encoded.hidden, encoded.mask.as_ref(), &pass)
            };
            let mut at_positions = |encoded: &Encoded| -> Result<()> {
                if let Some(head) = head {
                    let states = self.backbone.states_at(tokens, encoded, labels, &pass)?;
                    positions = Some(head.forward(&states)?);
                }
                Ok(())
            };
            match beside {
                Some((heads, supervision)) => {
                    let reading = heads.read(&self.backbone, tokens, supervision, &pass)?;
                    pooled.push(pool(&reading.encoded)?);
                    at_positions(&reading.encoded)?;
                    readings.push(reading);
                }
                None => {
                    let (encoded, _) = self.backbone.encode(tokens, None, false, &pass)?;
                    pooled.push(pool(&encoded)?);
                    at_positions(&encoded)?;
                }
            }
        } // each (B, D), or as wide as the pooling makes it
        if let Some((heads, supervision)) = beside {
            heads.classify(&readings, supervision, pass)?;
        }
        Ok(Logits {
            sequence: self.head.forward(&pooled)?,
            positions,
        })
    }

    /// Counts the floating-point operations of a forward pass over `batch` examples. Each tower has
    /// `length` tokens, without the CLS slot. Matrix products are counted, and a multiply-add is
    /// two operations. Every position counts as labelled. Auxiliary heads, which do not score, are
    /// left out. A training step takes about three times as many operations. The result is
    /// [`u64::MAX`] if the number does not fit.
    #[must_use]
    pub fn flops(&self, batch: usize, length: usize) -> u64 {
        let slots = length + usize::from(self.backbone.cls);
        self.backbone
            .encoder
            .flops(slots)
            .saturating_add(self.pool.flops(slots))
            .saturating_add(self.dense.as_ref().map_or(0, |head| head.flops(length)))
            .saturating_mul(self.backbone.towers as u64)
            .saturating_add(self.head.flops())
            .saturating_mul(batch as u64)
    }

    /// Returns a description of the values that the model holds constant in the backward pass on
    /// purpose. `None` if gradients are exact.
    #[must_use]
    pub(crate) fn stops_gradients(&self) -> Option<&'static str> {
        self.backbone.encoder.stops_gradients()
    }

    /// Returns whether the head reads a state that sees the first token alone: the first one of a
    /// causal model.
    #[must_use]
    pub fn reads_first_token_alone(&self) -> bool {
        let reads_first = matches!(self.pool, Pool::First) && !self.backbone.cls;
        reads_first && self.backbone.encoder.is_causal()
    }

    /// Returns a description of the model's violation of the benchmark's rules. `None` if it keeps
    /// them.
    #[must_use]
    pub fn rule_violation(&self) -> Option<&'static str> {
        self.backbone.encoder.rule_violation()
    }
}
