//! Sequence classification: embedding -> encoder -> pooling -> head, with one tower or two that share all weights.

use candle_core::{D, Tensor};
use candle_nn::Init;

use crate::{
    Encoder, Error, Model, Options, Parameters, Pass, Result, VarBuilder,
    context::{Geometry, ModelContext},
    error::require,
    layers::{Embedding, Linear, Pool},
    ops::activation::relu,
    options::{Features, HeadOptions, Pooling, Positions},
    params::LECUN_NORMAL,
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
    embedding: Embedding,
    encoder: Box<dyn Encoder>,
    head: Head,
    pool: Pool,
    cls: bool,
    towers: usize,
    max_length: usize,
    /// Losses that the blocks' options bring with them.
    block_losses: &'static [&'static str],
}

impl Classifier {
    /// Builds `model` for `shape`; its parameters are created in `parameters`.
    ///
    /// # Errors
    /// [`Error::Option`] or [`Error::Options`] for options out of range or unknown.
    pub fn new(
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
        let dim = options.block.dim;
        let embedding = Embedding::new(
            &vb.pp("embed"),
            &options.embed,
            shape.vocabulary,
            dim,
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
        let pool = Pool::new(&vb.pp("pool"), options.head.pooling, &options.block)?;
        let pooled = pool.width(&options.block);
        Ok(Self {
            embedding,
            encoder,
            head: Head::new(&vb.pp("head"), &options.head, shape, pooled)?,
            pool,
            cls,
            towers: shape.towers,
            max_length: shape.max_length,
            block_losses: options.losses(),
        })
    }

    /// Names of the losses that a pass adds to the cross-entropy, of those in [`crate::options::LOSSES`].
    #[must_use]
    pub fn losses(&self) -> Vec<&'static str> {
        [self.block_losses, self.encoder.losses()].concat()
    }

    /// Logits (B, C).
    ///
    /// # Errors
    /// [`Error::Input`] if towers, batch sizes or lengths do not fit; otherwise if a tensor operation fails.
    pub fn forward(&self, inputs: &Inputs, pass: &Pass) -> Result<Tensor> {
        self.check(inputs)?;
        let pooled = inputs
            .towers
            .iter()
            .enumerate()
            .map(|(tower, tokens)| {
                let pass = pass.of_tower(tower, self.towers);
                let (x, mask) = self
                    .embedding
                    .forward(&tokens.ids, tokens.mask.as_ref(), &pass)?;
                let encoded = self.encoder.forward(&x, &pass.with_mask(mask.as_ref()))?;
                self.pool
                    .forward(&encoded.hidden, encoded.mask.as_ref(), &pass)
            })
            .collect::<Result<Vec<_>>>()?; // each (B, D), or as wide as the pooling makes it
        self.head.forward(&pooled)
    }

    /// Floating-point operations of a forward pass over `batch` examples of `length` tokens per tower, CLS slot not counted:
    /// matrix products, a multiply-add being two; the largest number there is where they are more. A training step is about
    /// three times as many.
    #[must_use]
    pub fn flops(&self, batch: usize, length: usize) -> u64 {
        let slots = length + usize::from(self.cls);
        self.encoder
            .flops(slots)
            .saturating_add(self.pool.flops(slots))
            .saturating_mul(self.towers as u64)
            .saturating_add(self.head.flops())
            .saturating_mul(batch as u64)
    }

    /// What the benchmark's rules forbid and this model does, in words; none where it keeps to them.
    #[must_use]
    pub fn against_rules(&self) -> Option<&'static str> {
        self.encoder.against_rules()
    }

    fn check(&self, inputs: &Inputs) -> Result<()> {
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

/// Dense -> ReLU -> Dense; for two towers Dense -> ReLU -> Dense (half as wide) -> ReLU -> Dense.
struct Head {
    layers: Vec<Linear>,
    features: Features,
}

impl Head {
    fn new(vb: &VarBuilder, options: &HeadOptions, shape: &Shape, dim: usize) -> Result<Self> {
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
    fn forward(&self, pooled: &[Tensor]) -> Result<Tensor> {
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
