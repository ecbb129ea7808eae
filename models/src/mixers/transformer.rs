//! Transformer. Vaswani et al., 2017, "Attention Is All You Need", arXiv:1706.03762.
//!     y_i = Σ_j a_ij v_j,  a_ij = exp(q_i·k_j / √E) / Σ_j' exp(q_i·k_j' / √E)
//! B batch, H heads, L length, E width of a head; q, k, v (B, H, L, E), a (B, H, L, L). Time
//! O(L²·E) per head. Dropout on the weights.
//!
//! # Options
//!
//! `attention`: `fused` works on tiles of a and stores L numbers for the backward pass, memory
//! O(L·E); `materialised` stores every weight, memory O(L²), as published. Both give the same
//! numbers up to rounding, with the same dropout. `causal`: only j up to i, as in the paper's
//! decoder, tile by tile, in half the time. It is for models that predict the next token
//! (`train.aux.next`). `span`, with `materialised`: training logs the required attention span, the
//! mean of Σ_j a_ij |i - j| over positions i, heads and layers, as the loss `required_span`. Its
//! weight is 0 unless it is set. Keys that belong to no token have distance 0.
//!
//! # Padding
//!
//! Padded keys get weight zero.
//!
//! # Departures
//!
//! As in the 2021 code the projections have no biases. `variant = tay2021`: the same. In that code
//! a padded query has uniform weights, but its output is not read here.

use crate::{ops::attention::BlockLists, prelude::*};

/// Mean distance that weights reach; its weight is 0, because it is only logged.
const REQUIRED_SPAN: Loss = Loss::new("required_span", 0.0);

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "transformer",
    title: "Transformer",
    paper: "Attention Is All You Need",
    year: 2017,
    arxiv: "1706.03762",
    time: Cost::Quadratic("O(L²·E)"),
    memory: Cost::Linear("O(L·E)"),
    reference: Reference::Package,
    family: Family::Xformer,
    // Both compute the same at all positions that are read.
    variants: &[
        PAPER,
        Variant {
            name: "tay2021",
            ..PAPER
        },
    ],
    ..Model::mixer::<Transformer>()
};

/// The computation, for models that are a Transformer with settings of their own.
pub const PAPER: Variant =
    Variant::mixer::<Transformer>(include_str!("transformer.rs")).with_losses(&[REQUIRED_SPAN]);

/// Computation of the weights.
#[derive(Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Attention {
    /// Tile by tile, where there is a kernel for it; else materialised.
    #[default]
    Fused,
    /// All L x L weights at once, in memory.
    Materialised,
    /// Tile by tile, of keys up to the query's own.
    Causal,
}

/// Positions that causal attention takes at a time.
const TILE: usize = 64;

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    attention: Attention,
    /// Whether distances are logged.
    span: bool,
}

/// Builds softmax attention, for models that repeat or shorten the layers around it.
pub(super) fn mixer(layer: &LayerContext) -> Result<Box<dyn Mixer>> {
    Ok(Box::new(Transformer::new(layer, &Options::default())?))
}

struct Transformer {
    projections: Projections,
    dropout: Dropout,
    dim: usize,
    heads: usize,
    attention: Attention,
    span: bool,
    layers: usize,
}

impl MixerModel for Transformer {
    type Options = Options;

    fn check(options: &Options, context: &ModelContext) -> Result<()> {
        require(
            !options.span || options.attention == Attention::Materialised,
            "model.span",
            true,
            "false, or model.attention = materialised: what is fused has no weights to look at",
        )?;
        require(
            !options.span || context.block.residual != Residual::Reversible,
            "model.span",
            true,
            "false where block.residual = reversible, which forgets them",
        )
    }

    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let projections = Projections::new(layer)?;
        Ok(Self {
            projections: match options.attention {
                Attention::Causal => projections.causal(),
                _ => projections,
            },
            dropout: Dropout::new(&layer.vb.pp("drop"), layer.block.attention_dropout),
            dim: layer.block.qkv_dim,
            heads: layer.block.heads,
            attention: options.attention,
            span: options.span,
            layers: layer.block.layers,
        })
    }
}

impl Transformer {
    /// Returns attention by weights in memory, which may be looked at.
    fn materialised(
        &self,
        [q, k, v]: [&Tensor; 3],
        options: &AttentionOptions,
        pass: &Pass,
    ) -> Result<Tensor> {
        if self.span && pass.wants_losses() {
            let weights = attention::weights(q, k, options)?;
            let span = (required_span(&weights, pass.mask())? / self.layers as f64)?;
            pass.add_loss(&REQUIRED_SPAN, &span)?;
        }
        attention::attend_materialised(q, k, v, options)
    }
}

/// Returns block masks in which each query sees the keys up to its own.
fn up_to_itself(length: usize) -> BlockMasks {
    let before = (length, 0);
    BlockLists::around(length, TILE.min(length), before, |i, j| j <= i).block_masks(length)
}

/// Returns the mean over heads and valid positions i of Σ_j a_ij |i - j|, (B), of a (B, H, L, ..),
/// the first L of whose keys are the positions.
fn required_span(weights: &Tensor, mask: Option<&Mask>) -> Result<Tensor> {
    let (batch, _, length, _) = weights.dims4()?;
    let pairs = (0..length).flat_map(|i| (0..length).map(move |j| i.abs_diff(j) as f64));
    let distances = Tensor::from_iter(pairs, &Device::Cpu)?.reshape((1, 1, length, length))?;
    let distances = distances.to_dtype(weights.dtype())?;
    let distances = distances.to_device(weights.device())?;
    let of_tokens = weights.narrow(3, 0, length)?;
    let spans = of_tokens.broadcast_mul(&distances)?.sum(3)?.mean(1)?; // (B, L)
    let valid = match mask {
        Some(mask) => mask.valid().clone(),
        None => Tensor::ones((batch, length), spans.dtype(), spans.device())?,
    };
    let count = valid.sum(1)?;
    let count = count.maximum(&count.ones_like()?)?;
    Ok(((spans * valid)?.sum(1)? / count)?)
}

impl Mixer for Transformer {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let y = match self.attention {
            Attention::Fused => self.projections.attend(x, pass, &self.dropout, None)?,
            Attention::Causal => {
                let seen = Some(up_to_itself(x.dim(1)?));
                self.projections.attend(x, pass, &self.dropout, seen)?
            }
            Attention::Materialised => {
                let [q, k, v] = self.projections.qkv(x)?; // (B, L, H E)
                let options = self.projections.options(x, pass, &self.dropout)?;
                let (score_mods, length) = (self.projections.score_mods(), x.dim(1)?);
                let attend = |q: &Tensor, k: &Tensor, v: &Tensor, options: &AttentionOptions| {
                    self.materialised([q, k, v], options, pass)
                };
                score_mods.attend_with(&attend, [&q, &k, &v], options, 0..length)?
            }
        };
        self.projections.merge(&y)
    }

    fn supports(&self) -> Supports {
        Supports::ALL
    }

    fn is_causal(&self) -> bool {
        self.attention == Attention::Causal
    }

    fn losses(&self) -> &'static [Loss] {
        match self.span {
            true => &[REQUIRED_SPAN],
            false => &[],
        }
    }

    fn flops(&self, length: usize) -> u64 {
        // Pairs of all heads.
        let pairs = match self.attention {
            Attention::Causal => up_to_itself(length).pairs(self.heads),
            _ => self.heads * length * length,
        };
        let products = 2 * 2 * (pairs / self.heads) as u64 * self.dim as u64;
        let score_mods = self.projections.score_mods();
        self.projections.flops(length) + products + score_mods.flops(length, pairs)
    }
}

#[cfg(test)]
mod tests {
    use candle_core::DType;

    use super::*;
    use crate::{
        Parameters, RngKey,
        loss::AuxLosses,
        ops::attention::testing::block_masks_meet_dense,
        options::{BlockOptions, PairBias},
        reference,
        testing::{close, meets_reference, normal, parameters},
    };

    #[test]
    fn causal_attention_sees_what_was_before() {
        for length in [1, 2, 63, 64, 65, 130] {
            block_masks_meet_dense("causal", length, 2, &up_to_itself(length), |_, i, j| j <= i);
        }
        let parameters = parameters();
        let block = BlockOptions::default();
        let layer = LayerContext::new(parameters.builder(), &block, 70);
        let options = Options {
            attention: Attention::Causal,
            span: false,
        };
        let mixer = Transformer::new(&layer, &options).unwrap();
        let x = normal("x", &[2, 70, block.dim]);
        let pass = Pass::new(false, RngKey::new(1, 0, 0));
        let whole = mixer.forward(&x, &pass).unwrap();
        let front = mixer.forward(&x.narrow(1, 0, 40).unwrap(), &pass).unwrap();
        close(&whole.narrow(1, 0, 40).unwrap(), &front, 1e-12, "causal");
        assert!(
            mixer.flops(1024)
                < Transformer::new(&layer, &Options::default())
                    .unwrap()
                    .flops(1024)
        );
    }

    #[test]
    fn is_attention_with_the_exponential_kernel() {
        meets_reference("transformer", 1e-7, reference::softmax, |q, k, v, mask| {
            let options = AttentionOptions {
                heads: q.dim(2)?,
                mask: mask.map(|mask| mask.valid().clone()),
                ..AttentionOptions::default()
            };
            let flat = |x: &Tensor| x.flatten_from(2);
            let y = attention::attend(&flat(q)?, &flat(k)?, &flat(v)?, &options)?;
            Ok(y.reshape(q.dims())?)
        });
    }

    /// Returns the output at valid positions, and gradients from there, of one training pass, f32,
    /// with a mask and dropout.
    fn pass(attention: Attention) -> Vec<Tensor> {
        let parameters = Parameters::new(5, &Device::Cpu, DType::F32);
        let block = BlockOptions {
            attention_dropout: 0.3,
            ..BlockOptions::default()
        };
        let at = |vb: VarBuilder| LayerContext::new(vb, &block, 70);
        let options = Options {
            attention,
            span: false,
        };
        let mixer = Transformer::new(&at(parameters.builder()), &options).unwrap();
        let rng = RngKey::new(1, 2, 3);
        let x = rng.shared(StreamKey::new("x")).normal(3, 70 * 64);
        let x = Tensor::from_vec(x, (3, 70, 64), &Device::Cpu).unwrap();
        let valid: Vec<f32> = (0..210)
            .map(|i| f32::from(u8::from(i % 70 < 70 - i / 70 * 30)))
            .collect();
        let valid = Tensor::from_vec(valid, (3, 70), &Device::Cpu).unwrap();
        let mask = Mask::new(&valid).unwrap();
        let pass = Pass::new(true, rng);
        let x = x.to_dtype(DType::F32).unwrap();
        let y = mixer.forward(&x, &pass.with_mask(Some(&mask))).unwrap();
        let y = y.broadcast_mul(&valid.unsqueeze(2).unwrap()).unwrap();
        let gradients = y.sqr().unwrap().sum_all().unwrap().backward().unwrap();
        let mut tensors = vec![y.detach()];
        for (_, var) in parameters.all() {
            tensors.push(gradients.get(&var).unwrap().clone());
        }
        tensors
    }

    #[test]
    fn fused_and_materialised_agree_with_dropout_and_mask() {
        let (fused, materialised) = (pass(Attention::Fused), pass(Attention::Materialised));
        for (index, (one, other)) in fused.iter().zip(&materialised).enumerate() {
            let most = |x: Tensor| {
                x.abs()
                    .unwrap()
                    .max_all()
                    .unwrap()
                    .to_scalar::<f32>()
                    .unwrap()
            };
            let (apart, scale) = (most((one - other).unwrap()), most(other.clone()));
            assert!(
                apart <= 1e-5 * scale.max(1.0),
                "tensor {index}: {apart} of {scale}"
            );
        }
    }

    /// With equal weights, every distance counts the same; ALiBi's steps make the mean distance
    /// shorter.
    #[test]
    fn the_required_span_is_the_mean_distance_of_what_is_attended_to() {
        let span = |bias, memory: usize| {
            let parameters = parameters();
            let block = BlockOptions {
                dim: 4,
                qkv_dim: 4,
                layers: 2,
                bias,
                memory,
                ..BlockOptions::default()
            };
            let layer = LayerContext::new(parameters.builder(), &block, 4);
            let options = Options {
                attention: Attention::Materialised,
                span: true,
            };
            let mixer = Transformer::new(&layer, &options).unwrap();
            for (_, var) in parameters.all() {
                var.set(&var.zeros_like().unwrap()).unwrap();
            }
            let valid = [[1.0, 1.0, 1.0, 0.0], [1.0, 1.0, 0.0, 0.0], [0.0; 4]];
            let mask = Mask::new(&Tensor::new(&valid, &Device::Cpu).unwrap()).unwrap();
            let losses = AuxLosses::default();
            let pass = Pass::new(false, RngKey::new(1, 0, 0)).with_losses(&losses);
            let x = normal("x", &[3, 4, 4]);
            mixer.forward(&x, &pass.with_mask(Some(&mask))).unwrap();
            let (_, mean) = losses.means().unwrap().remove(0);
            mean.to_scalar::<f64>().unwrap()
        };
        // Three positions have (3 + 2 + 3) / 9, two have 2 / 4, none has 0; the mean over
        // sequences, and of one of two layers.
        let expected = (8.0 / 9.0 + 0.5) / 3.0 / 2.0;
        assert!((span(PairBias::None, 0) - expected).abs() < 1e-12);
        // The memory adds 3 keys without a distance, to the 3 tokens of the first sequence and to
        // the 2 of the second.
        let expected = (8.0 / 18.0 + 0.5 * 2.0 / 5.0) / 3.0 / 2.0;
        assert!((span(PairBias::None, 3) - expected).abs() < 1e-12);
        assert!(span(PairBias::Alibi, 0) < span(PairBias::None, 0));
    }
}
