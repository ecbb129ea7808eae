//! Sequence classification: embedding -> encoder -> pooling -> head, with one tower or two that share all weights.

use candle_core::{D, Tensor};
use candle_nn::Init;

use crate::{
    Auxiliary, Encoded, Model, Options, Parameters, Pass, Result, VarBuilder,
    auxiliary::{AUXILIARY, AuxiliaryHeads},
    layers::{Linear, Pool},
    loss::Loss,
    ops::activation::relu,
    options::{Features, HeadOptions},
    params::LECUN_NORMAL,
    trunk::Trunk,
};

/// What a task asks of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Number of token ids, the padding id included.
    pub vocabulary: usize,
    /// Number of classes, at least 2.
    pub classes: usize,
    /// 1, or 2 for tasks that compare two sequences.
    pub towers: usize,
    /// Longest sequence, not counting a CLS slot.
    pub max_length: usize,
    /// Whether sequences come padded, with masks.
    pub padding: bool,
    /// Height and width of the image whose pixels a sequence is, row by row.
    pub grid: Option<[usize; 2]>,
}

/// One batch, ready for the model.
pub struct Inputs {
    /// One per tower, all of the same batch size.
    pub towers: Vec<Tokens>,
}

/// The sequences of one tower.
pub struct Tokens {
    /// (B, L) of type u32; L may be any length from 1 to the task's longest.
    pub ids: Tensor,
    /// (B, L), 1 for real tokens and 0 for padding; none where all are real. Float of any type.
    pub mask: Option<Tensor>,
}

/// A model with everything around it.
pub struct Classifier {
    trunk: Trunk,
    pool: Pool,
    head: Head,
    /// What it predicts in training beside the class.
    auxiliary: Option<AuxiliaryHeads>,
    /// Losses that the blocks' options bring with them.
    block_losses: Vec<Loss>,
}

impl Classifier {
    /// Builds `model` for `shape`; its parameters are created in `parameters`.
    ///
    /// # Errors
    /// [`crate::Error::Option`] or [`crate::Error::Options`] for options out of range or unknown.
    pub fn new(
        model: &Model,
        shape: &Shape,
        options: &Options,
        parameters: &Parameters,
    ) -> Result<Self> {
        let trunk = Trunk::new(model, shape, options, parameters)?;
        let vb = parameters.builder();
        let pool = Pool::new(&vb.pp("pool"), options.head.pooling, &options.block)?;
        let pooled = pool.width(&options.block);
        Ok(Self {
            trunk,
            head: Head::new(&vb.pp("head"), &options.head, shape, pooled)?,
            pool,
            auxiliary: None,
            block_losses: options.losses(),
        })
    }

    /// The same with heads for the auxiliary losses whose weight in `auxiliary` is more than 0.
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
            auxiliary: AuxiliaryHeads::new(auxiliary, &self.trunk, shape, options, &vb)?,
            ..self
        })
    }

    /// The losses that a pass adds to the cross-entropy, each with its usual weight.
    #[must_use]
    pub fn losses(&self) -> Vec<Loss> {
        let auxiliary = self.auxiliary.as_ref();
        [
            &self.block_losses,
            self.trunk.encoder.losses(),
            &auxiliary.map_or_else(Vec::new, AuxiliaryHeads::losses),
        ]
        .concat()
    }

    /// Logits (B, C). A pass with [`crate::pass::Supervision`] and somebody who wants its losses has those of the auxiliary heads.
    ///
    /// # Errors
    /// [`crate::Error::Input`] if towers, batch sizes or lengths do not fit; otherwise if a tensor operation fails.
    pub fn forward(&self, inputs: &Inputs, pass: &Pass) -> Result<Tensor> {
        self.trunk.check(inputs)?;
        let supervision = pass.supervision().filter(|_| pass.wants_losses());
        let beside = self.auxiliary.as_ref().zip(supervision);
        let (mut pooled, mut readings) = (Vec::new(), Vec::new());
        for (tower, tokens) in inputs.towers.iter().enumerate() {
            let pass = pass.of_tower(tower, self.trunk.towers);
            let pool = |encoded: &Encoded| {
                self.pool
                    .forward(&encoded.hidden, encoded.mask.as_ref(), &pass)
            };
            match beside {
                Some((heads, supervision)) => {
                    let reading = heads.read(&self.trunk, tokens, supervision, &pass)?;
                    pooled.push(pool(&reading.encoded)?);
                    readings.push(reading);
                }
                None => {
                    let (encoded, _) = self.trunk.encode(tokens, None, false, &pass)?;
                    pooled.push(pool(&encoded)?);
                }
            }
        } // each (B, D), or as wide as the pooling makes it
        if let Some((heads, supervision)) = beside {
            heads.classify(&readings, supervision, pass)?;
        }
        self.head.forward(&pooled)
    }

    /// Floating-point operations of a forward pass over `batch` examples of `length` tokens per tower, CLS slot not counted:
    /// matrix products, a multiply-add being two; the largest number there is where they are more. A training step is about
    /// three times as many. Auxiliary heads, which do not score, are not counted.
    #[must_use]
    pub fn flops(&self, batch: usize, length: usize) -> u64 {
        let slots = length + usize::from(self.trunk.cls);
        self.trunk
            .encoder
            .flops(slots)
            .saturating_add(self.pool.flops(slots))
            .saturating_mul(self.trunk.towers as u64)
            .saturating_add(self.head.flops())
            .saturating_mul(batch as u64)
    }

    /// What the benchmark's rules forbid and this model does, in words; none where it keeps to them.
    #[must_use]
    pub fn against_rules(&self) -> Option<&'static str> {
        self.trunk.encoder.against_rules()
    }
}

/// Dense -> ReLU -> Dense; for two towers Dense -> ReLU -> Dense (half as wide) -> ReLU -> Dense.
pub(crate) struct Head {
    layers: Vec<Linear>,
    features: Features,
}

impl Head {
    pub(crate) fn new(
        vb: &VarBuilder,
        options: &HeadOptions,
        shape: &Shape,
        dim: usize,
    ) -> Result<Self> {
        let hidden = options.hidden;
        let inputs = match (shape.towers, options.features) {
            (1, _) => dim,
            (_, Features::Concat) => 2 * dim,
            (_, Features::Nli) => 4 * dim,
        };
        let mut widths = vec![inputs];
        if hidden > 0 {
            widths.push(hidden);
            if shape.towers == 2 {
                widths.push((hidden / 2).max(1));
            }
        }
        widths.push(shape.classes);
        let bias = Some(Init::Const(0.0));
        let layers = widths
            .windows(2)
            .enumerate()
            .map(|(index, pair)| Linear::new(&vb.pp(index), pair[0], pair[1], LECUN_NORMAL, bias))
            .collect::<Result<_>>()?;
        Ok(Self {
            layers,
            features: options.features,
        })
    }

    /// Pooled towers, each (B, D), to logits (B, C).
    pub(crate) fn forward(&self, pooled: &[Tensor]) -> Result<Tensor> {
        let mut x = match (pooled, self.features) {
            ([one, other], Features::Nli) => {
                let (product, difference) = ((one * other)?, (one - other)?);
                Tensor::cat(&[one, other, &product, &difference], D::Minus1)?
            }
            ([one, other], Features::Concat) => Tensor::cat(&[one, other], D::Minus1)?,
            _ => pooled[0].clone(),
        };
        for (index, layer) in self.layers.iter().enumerate() {
            if index > 0 {
                x = relu(&x, 0.0)?;
            }
            x = layer.forward(&x)?;
        }
        Ok(x)
    }

    fn flops(&self) -> u64 {
        self.layers.iter().map(|layer| layer.flops(1)).sum()
    }
}
