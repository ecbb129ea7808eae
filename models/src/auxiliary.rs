//! Losses beside the cross-entropy that any stack of blocks can have. Al-Rfou, Choe, Constant, Guo,
//! Jones, 2018, "Character-Level Language Modeling with Deeper Self-Attention", arXiv:1808.04444.
//! They have heads of their own, which scoring does not use.
//!
//! - `layers`: the class, predicted from the state h^l behind each block l < n by a pooling and a
//!   head of its own; the loss is the mean of their cross-entropies. Head l stops after the share l
//!   / (2n) of training, so that the second half of training has none of them.
//! - `positions`: the class, predicted at every position t from the tokens up to there: softmax(W
//!   m_t + b), m_t the mean of h_1 .. h_t over valid positions; the loss is the mean over t of the
//!   cross-entropies. With two towers, m_t is read in both at a time, and the shorter one stays at
//!   its end. The paper's model is causal, and predicts from h_t.
//! - `next`: the token after each, and with half the weight the one after that, predicted from h_t.
//!   A model that sees later tokens finds the answer there, so this loss is for causal models only.
//! - `masked`: the counterpart for all other models. 15 % of the tokens are replaced by a learned
//!   mask vector, and predicted. The class is then predicted from the same sequence, with these
//!   tokens hidden, as in arXiv:2501.14850.
//!
//! The paper's sum over layers is a mean here, so that a weight has the same meaning with any
//! number of blocks.

use candle_core::Tensor;
use candle_nn::Init;

use crate::{
    Encoded, Error, Options, Pass, Result, Shape, Tokens, VarBuilder,
    backbone::Backbone,
    error::require,
    head::Head,
    layers::{Linear, Pool},
    loss::{Loss, cross_entropies},
    mask::zero_padding,
    ops::{ScanOptions, scan},
    options::{Positions, Residual},
    params::{Attributes, LECUN_NORMAL},
    pass::Supervision,
    prediction::{Decoder, Sequences},
    rng::StreamKey,
};

/// Weights of the auxiliary losses in the sum that is trained. A weight of 0 leaves its loss out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Auxiliary {
    /// Weight of the loss `layers`: the cross-entropy of the class, predicted from the states
    /// behind each block but the last.
    pub layers: f64,
    /// Weight of the loss `positions`: the cross-entropy of the class, predicted at every position
    /// from the tokens up to there.
    pub positions: f64,
    /// Weight of the loss `next`: the cross-entropy of the token after each position, plus half
    /// that of the token after it. Only causal models can have it.
    pub next: f64,
    /// Weight of the loss `masked`: the cross-entropy of the 15 % of tokens that are hidden from
    /// the model and predicted.
    pub masked: f64,
}

impl Auxiliary {
    /// Builds the weights from `weight`, which returns the weight of the loss of a given name:
    /// `layers`, `positions`, `next` or `masked`.
    #[must_use]
    pub fn new(weight: impl Fn(&str) -> f64) -> Self {
        Self {
            layers: weight(LAYERS.name),
            positions: weight(POSITIONS.name),
            next: weight(NEXT.name),
            masked: weight(MASKED.name),
        }
    }
}

/// First name in the paths of the auxiliary heads' parameters, which begin with `aux.`.
pub const AUXILIARY: &str = "aux";

const LAYERS: Loss = Loss::new("layers", 0.0);
const POSITIONS: Loss = Loss::new("positions", 0.0);
const NEXT: Loss = Loss::new("next", 0.0);
const MASKED: Loss = Loss::new("masked", 0.0);

/// Losses that the heads add to the cross-entropy; all weights are 0 by default.
pub(crate) const LOSSES: &[Loss] = &[LAYERS, POSITIONS, NEXT, MASKED];

/// Tokens that `masked` hides.
const HIDDEN: f64 = 0.15;
/// Tokens ahead that `next` predicts, and the weight of each further one relative to the one
/// before.
const AHEAD: usize = 2;
const FURTHER: f64 = 0.5;

/// Error text: reason why a model cannot predict tokens.
pub(crate) const SHORTENED: &str = "this model's hidden states are not one per token";

/// Returns the reason why the model sees the tokens that it would predict, with the option that
/// makes it causal. `None` if it does not see them.
pub(crate) fn not_causal(backbone: &Backbone, options: &Options) -> Option<String> {
    if backbone.is_causal() {
        return None;
    }
    let sees = "this model sees the tokens that it would predict";
    if let Some(setting) = backbone.sees_later() {
        return Some(format!("with {setting}, {sees}"));
    }
    let forms = [
        ("direction", "forward"),
        ("attention", "causal"),
        ("causal", "true"),
    ];
    let form = forms.iter().find(|(key, _)| !options.model[key].is_null());
    Some(match form {
        Some((key, value)) => format!("{sees}, unless model.{key} = {value}"),
        None => format!("{sees}, and has no option that makes it causal"),
    })
}

/// Returns the reason why there is no vector for a hidden token. `None` if there can be one.
pub(crate) fn no_vector(backbone: &Backbone, options: &Options) -> Option<&'static str> {
    let complex = options.embed.positions == Positions::Complex;
    match backbone.embedding.takes_more() {
        true => None,
        false if complex => Some("embed.positions = complex has no vector for a hidden token"),
        false => Some("embed.input = scalar has no vector for a hidden token"),
    }
}

/// The heads that there are.
pub(crate) struct AuxiliaryHeads {
    /// Pooling and head behind every block but the last.
    layers: Vec<(Pool, Head)>,
    /// Linear layer of each tower.
    positions: Vec<Linear>,
    /// Decoder of each token ahead.
    next: Vec<Decoder>,
    masked: Option<Masked>,
}

struct Masked {
    decoder: Decoder,
    /// (1, D).
    token: Tensor,
    /// Id of the hidden token.
    id: u32,
    key: StreamKey,
}

/// Hidden states of one tower's sequences.
pub(crate) struct Reading {
    pub(crate) encoded: Encoded,
    /// States behind every block but the last.
    states: Vec<Tensor>,
}

impl AuxiliaryHeads {
    /// Returns the heads that `weights` ask for, if any.
    pub(crate) fn new(
        weights: &Auxiliary,
        backbone: &Backbone,
        shape: &Shape,
        options: &Options,
        vb: &VarBuilder,
    ) -> Result<Option<Self>> {
        if *weights == Auxiliary::default() {
            return Ok(None);
        }
        check(weights, backbone, options)?;
        let (block, classes, vocabulary) = (&options.block, shape.classes, shape.vocabulary);
        let mut heads = Self {
            layers: Vec::new(),
            positions: Vec::new(),
            next: Vec::new(),
            masked: None,
        };
        if weights.layers > 0.0 {
            for layer in 0..backbone.encoder.states_between() {
                let vb = vb.pp(LAYERS.name).pp(layer);
                let pool = Pool::new(&vb.pp("pool"), options.head.pooling, block)?;
                let head = Head::new(&vb.pp("head"), &options.head, shape, pool.width(block))?;
                heads.layers.push((pool, head));
            }
        }
        if weights.positions > 0.0 {
            for tower in 0..backbone.towers {
                let (vb, bias) = (vb.pp(POSITIONS.name).pp(tower), Some(Init::Const(0.0)));
                let linear = Linear::new(&vb, block.dim, classes, LECUN_NORMAL, bias)?;
                heads.positions.push(linear);
            }
        }
        if weights.next > 0.0 {
            for ahead in 0..AHEAD {
                let vb = vb.pp(NEXT.name).pp(ahead);
                heads.next.push(Decoder::new(&vb, block.dim, vocabulary)?);
            }
        }
        if weights.masked > 0.0 {
            let vb = vb.pp(MASKED.name);
            heads.masked = Some(Masked {
                decoder: Decoder::new(&vb.pp("decoder"), block.dim, vocabulary)?,
                token: hidden_token(&vb, block.dim)?,
                id: vocabulary as u32,
                key: StreamKey::new(&vb.pp("hidden").prefix()),
            });
        }
        Ok(Some(heads))
    }

    /// Returns the losses that the heads add.
    pub(crate) fn losses(&self) -> Vec<Loss> {
        let there = [
            (LAYERS, !self.layers.is_empty()),
            (POSITIONS, !self.positions.is_empty()),
            (NEXT, !self.next.is_empty()),
            (MASKED, self.masked.is_some()),
        ];
        let there = there.iter().filter(|(_, there)| *there);
        there.map(|(loss, _)| *loss).collect()
    }

    /// Returns indices of the layers whose heads are still in use.
    fn layers_at(&self, progress: f64) -> impl Iterator<Item = usize> {
        let blocks = self.layers.len() + 1;
        (0..self.layers.len())
            .filter(move |index| progress < (index + 1) as f64 / (2 * blocks) as f64)
    }

    /// Reads one tower's sequences, in its pass, which gets the losses of predicted tokens.
    pub(crate) fn read(
        &self,
        backbone: &Backbone,
        tokens: &Tokens,
        supervision: &Supervision,
        pass: &Pass,
    ) -> Result<Reading> {
        let wants_states = self.layers_at(supervision.progress).next().is_some();
        if self.next.is_empty() && self.masked.is_none() {
            let (encoded, states) = backbone.encode(tokens, None, wants_states, pass)?;
            return Ok(Reading { encoded, states });
        }
        let valid = backbone
            .embedding
            .valid(&tokens.ids, tokens.mask.as_ref())?;
        let sequences = Sequences::read(&tokens.ids, valid.as_ref())?;
        let first = usize::from(backbone.cls);
        let (encoded, states) = match &self.masked {
            Some(masked) => {
                let asked = sequences.some(HIDDEN, &pass.rng.per_example(masked.key));
                let hiding = Tokens {
                    ids: sequences.hiding(&asked, masked.id, &tokens.ids)?,
                    mask: tokens.mask.clone(),
                };
                let read = backbone.encode(&hiding, Some(&masked.token), wants_states, pass)?;
                let losses = masked.decoder.answer(&read.0.hidden, first, &asked)?.losses;
                pass.add_loss(&MASKED, &losses)?;
                read
            }
            None => backbone.encode(tokens, None, wants_states, pass)?,
        };
        for (index, decoder) in self.next.iter().enumerate() {
            let asked = sequences.following(index + 1);
            let losses = decoder.answer(&encoded.hidden, first, &asked)?.losses;
            let counts = FURTHER.powi(index as i32);
            pass.add_loss(&NEXT, &(losses * counts)?)?;
        }
        Ok(Reading { encoded, states })
    }

    /// Adds the losses of predicted classes, given the readings of all towers.
    pub(crate) fn classify(
        &self,
        readings: &[Reading],
        supervision: &Supervision,
        pass: &Pass,
    ) -> Result<()> {
        let labels = &supervision.labels;
        let layers: Vec<usize> = self.layers_at(supervision.progress).collect();
        for index in &layers {
            let (pool, head) = &self.layers[*index];
            let pooled = readings.iter().enumerate().map(|(tower, reading)| {
                let pass = pass.of_tower(tower, readings.len());
                let mask = reading.encoded.mask.as_ref();
                pool.forward(&reading.states[*index], mask, &pass)
            });
            let logits = head.forward(&pooled.collect::<Result<Vec<_>>>()?)?;
            let loss = (cross_entropies(&logits, labels)? / layers.len() as f64)?;
            pass.add_loss(&LAYERS, &loss)?;
        }
        if !self.positions.is_empty() {
            pass.add_loss(&POSITIONS, &self.at_positions(readings, labels)?)?;
        }
        Ok(())
    }

    /// Returns the mean cross-entropy over positions, (B).
    fn at_positions(&self, readings: &[Reading], labels: &Tensor) -> Result<Tensor> {
        let slots = readings
            .iter()
            .map(|reading| reading.encoded.hidden.dims()[1]);
        let slots = slots.max().unwrap_or(0);
        let mut both: Option<(Tensor, Tensor)> = None;
        for (linear, Reading { encoded, .. }) in self.positions.iter().zip(readings) {
            let (logits, valid) = prefixes(&linear.forward(&encoded.hidden)?, encoded, slots)?;
            both = Some(match both {
                Some((sum, any)) => ((sum + logits)?, any.maximum(&valid)?),
                None => (logits, valid),
            });
        }
        let (logits, valid) = both.ok_or_else(|| Error::Input("no tower".to_owned()))?;
        let (batch, slots, classes) = logits.dims3()?;
        let labels = labels.unsqueeze(1)?.broadcast_as((batch, slots))?;
        let logits = logits.reshape((batch * slots, classes))?;
        let losses = cross_entropies(&logits, &labels.contiguous()?.flatten_all()?)?;
        let count = valid.sum_keepdim(1)?;
        let share = valid.broadcast_div(&count.maximum(&count.ones_like()?)?)?;
        Ok((losses.reshape((batch, slots))? * share)?.sum(1)?)
    }
}

/// Returns the means of x (B, L, C) over the valid positions up to each position, and a mask (B,
/// `slots`) of the valid ones. Positions behind the last one are not valid; their mean is the mean
/// over all.
fn prefixes(x: &Tensor, encoded: &Encoded, slots: usize) -> Result<(Tensor, Tensor)> {
    let (batch, length, classes) = x.dims3()?;
    let ones = |shape: &[usize]| Tensor::ones(shape, x.dtype(), x.device());
    let valid = match &encoded.mask {
        Some(mask) => mask.valid().clone(),
        None => ones(&[batch, length])?,
    };
    let x = zero_padding(x, encoded.mask.as_ref())?;
    let more = slots - length;
    let (x, valid) = (
        x.pad_with_zeros(1, 0, more)?,
        valid.pad_with_zeros(1, 0, more)?,
    );
    let options = ScanOptions::default();
    let sums = scan(&x.contiguous()?, &ones(&[classes])?, options)?;
    let counts = scan(&valid.unsqueeze(2)?.contiguous()?, &ones(&[1])?, options)?;
    let counts = counts.maximum(&counts.ones_like()?)?;
    Ok((sums.broadcast_div(&counts)?, valid))
}

/// Returns the vector of a hidden token, (1, D).
pub(crate) fn hidden_token(vb: &VarBuilder, dim: usize) -> Result<Tensor> {
    let normal = Init::Randn {
        mean: 0.0,
        stdev: 1.0,
    };
    vb.get_with_attributes((1, dim), "token", normal, Attributes::NO_DECAY)
}

/// Refuses losses that the model cannot have.
fn check(weights: &Auxiliary, backbone: &Backbone, options: &Options) -> Result<()> {
    let block = &options.block;
    let refuse = |holds: bool, loss: Loss, weight: f64, reason: &str| {
        let key = format!("train.aux.{}", loss.name);
        require(weight <= 0.0 || holds, &key, weight, format!("0: {reason}"))
    };
    let reason = match (block.residual, block.layers) {
        (Residual::Reversible, _) => "block.residual = reversible keeps no block's state",
        (_, 1) => "block.layers = 1, and the last layer's loss is the cross-entropy itself",
        _ => "this model is no plain stack of blocks",
    };
    let there = backbone.encoder.states_between() > 0;
    refuse(there, LAYERS, weights.layers, reason)?;
    let reason = "the last norm's running statistics (block.norm = power, batch or batch_masked) are of the last layer";
    refuse(
        !block.has_running_last_norm(),
        LAYERS,
        weights.layers,
        reason,
    )?;
    let whole = backbone.encoder.keeps_length();
    refuse(whole, POSITIONS, weights.positions, SHORTENED)?;
    refuse(whole, NEXT, weights.next, SHORTENED)?;
    let seen = not_causal(backbone, options);
    let reason = seen.as_deref().unwrap_or_default();
    let reason = format!("{reason}. train.aux.masked predicts hidden tokens instead");
    refuse(seen.is_none(), NEXT, weights.next, &reason)?;
    refuse(whole, MASKED, weights.masked, SHORTENED)?;
    let missing = no_vector(backbone, options);
    let reason = missing.unwrap_or_default();
    refuse(missing.is_none(), MASKED, weights.masked, reason)
}

#[cfg(test)]
mod tests;
