//! Linformer. Wang et al., 2020, "Linformer: Self-Attention with Linear Complexity",
//! arXiv:2006.04768.
//!     y_i = Σ_r softmax_r(q_i·k'_r / √E) v'_r,  k'_r = Σ_j A_jr k_j,  v'_r = Σ_j F_jr v_j
//! Keys and values are projected along the length, from L positions to K slots, by learned A and F
//! (the paper's E and F, transposed). B batch, H heads, L length, E width of a head, N largest
//! length; q, k, v (B, L, H, E), A, F (N, K), k', v' (B, K, H, E). A shorter sequence uses the
//! first L rows. Time O(L·K·E) per head, memory O(L·K). Dropout on the weights of the slots. A and
//! F start as N(0, 1/K), as in the paper's lemma. Each row of A and F belongs to a fixed position,
//! so the order of tokens matters.
//!
//! # Options
//!
//! `rank` K (0: 256; at most N), `sharing`: `none` (A and F for each head), `headwise` (shared by
//! the heads of a layer), `key_value` (also A = F), `layerwise` (one matrix for all layers).
//!
//! # Padding
//!
//! Padded keys and values are zeros before the sums, so padding has no effect; the paper has no
//! padding.
//!
//! # Departures
//!
//! A and F begin N(0, 1/K), in the 2021 code Xavier-uniform. All other initial values and the
//! norms' ε are those of that code: weights begin Xavier-uniform, projections have no biases, those
//! of the feed-forward network begin N(0, 1e-6²), and ε is `block.norm_epsilon` = 1e-6. The
//! authors' code has biases in projections. It draws A, F and projections of queries, keys and
//! values Xavier-uniform times √½ (facebookresearch/fairseq@00bc279
//! examples/linformer/linformer_src/modules/multihead_linear_attention.py, reset_parameters), but
//! its RoBERTa then draws all linear layers, A and F too, from N(0, 0.02²) and sets biases to 0
//! (facebookresearch/fairseq@00d5b7a fairseq/models/roberta/model.py, RobertaModel; @00bc279
//! fairseq/modules/transformer_sentence_encoder.py, init_bert_params). Its norms' ε is 1e-5
//! (fairseq/modules/layer_norm.py).

use crate::{encoder::blocks, mixers::tay2021, ops::project_length, prelude::*};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "linformer",
    title: "Linformer",
    paper: "Linformer: Self-Attention with Linear Complexity",
    year: 2020,
    arxiv: "2006.04768",
    time: Cost::Linear("O(L·K·E)"),
    memory: Cost::Linear("O(L·K)"),
    reference: Reference::Package,
    family: Family::Xformer,
    variants: &[
        Variant::paper(build, include_str!("linformer.rs")),
        tay2021::linformer::VARIANT,
    ],
    ..Model::with_options::<Options>()
};

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Sharing {
    None,
    Headwise,
    KeyValue,
    Layerwise,
}

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    #[option(range = int(0, LONGEST))]
    rank: usize,
    #[option(default = Sharing::KeyValue)]
    sharing: Sharing,
}

fn build(context: &ModelContext) -> Result<Box<dyn Encoder>> {
    let form = Form {
        rank: 256,
        init: |_, rank| Init::Randn {
            mean: 0.0,
            stdev: (rank as f64).powf(-0.5),
        },
        masks: true,
    };
    encoder(context, form)
}

/// Differences between the variants.
pub(super) struct Form {
    /// K where none is set.
    pub(super) rank: usize,
    /// Initial values of A and F, from N and K.
    pub(super) init: fn(usize, usize) -> Init,
    /// Whether padding is left out.
    pub(super) masks: bool,
}

/// Returns the encoder of the variant that `form` says.
pub(super) fn encoder(context: &ModelContext, form: Form) -> Result<Box<dyn Encoder>> {
    let options: Options = context.options()?;
    blocks(context, |layer| {
        let length = match options.sharing {
            // All layers use one path, so that every layer gets the same parameter.
            Sharing::Layerwise => context.vb.pp("length"),
            _ => layer.vb.pp("length"),
        };
        Ok(Box::new(Linformer::new(layer, &length, &options, &form)?))
    })
}

struct Linformer {
    projections: Projections,
    /// A and F, (1 or H, N, K); one tensor twice where they are shared.
    key: Tensor,
    value: Tensor,
    dropout: Dropout,
    masks: bool,
    heads: usize,
    dim: usize,
    rank: usize,
}

impl Linformer {
    fn new(layer: &LayerContext, vb: &VarBuilder, options: &Options, form: &Form) -> Result<Self> {
        let heads = layer.block.heads;
        let rank = match options.rank {
            0 => form.rank,
            rank => rank,
        }
        .min(layer.max_length);
        let init = (form.init)(layer.max_length, rank);
        let copies = match options.sharing {
            Sharing::None => heads,
            _ => 1,
        };
        let matrix = |name| vb.get_with_hints((copies, layer.max_length, rank), name, init);
        let key = matrix("key")?;
        let value = match options.sharing {
            Sharing::None | Sharing::Headwise => matrix("value")?,
            Sharing::KeyValue | Sharing::Layerwise => key.clone(),
        };
        Ok(Self {
            projections: Projections::new(layer)?,
            key,
            value,
            dropout: Dropout::new(&layer.vb.pp("drop"), layer.block.attention_dropout),
            masks: form.masks,
            heads,
            dim: layer.block.qkv_dim,
            rank,
        })
    }
}

impl Mixer for Linformer {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let valid = match pass.mask().filter(|_| self.masks) {
            Some(mask) => Some(mask.valid().unsqueeze(2)?), // (B, L, 1)
            None => None,
        };
        let slots = |x: &Tensor, matrix: &Tensor| match &valid {
            Some(valid) => project_length(&x.broadcast_mul(valid)?, matrix, self.heads),
            None => project_length(x, matrix, self.heads),
        };
        let [q, k, v] = self.projections.qkv(x)?; // (B, L, H E)
        let (k, v) = (slots(&k, &self.key)?, slots(&v, &self.value)?); // (B, K, H E)
        let (k, v, _) = self.projections.score_mods().append_memory(&k, &v, None)?;
        let options = AttentionOptions {
            // Slots are of padded and valid tokens alike.
            mask: None,
            ..self.projections.options(x, pass, &self.dropout)?
        };
        let y = attention::attend(&q, &k, &v, &options)?;
        self.projections.merge(&y)
    }

    fn supports(&self) -> Supports {
        const REASON: &str = "its keys are mixtures of all positions";
        Supports {
            memory: Ok(()),
            ..Supports::none(REASON)
        }
    }

    fn flops(&self, length: usize) -> u64 {
        let products = 4 * 2 * (length * self.rank * self.dim) as u64;
        self.projections.flops(length) + products + self.projections.score_mods().flops(length, 0)
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device};

    use super::*;
    use crate::{
        reference,
        testing::{DenseReference, check_gradient},
    };

    /// Returns queries (B, L, H, E) on slots that `matrix` makes of keys and values, to (B, L, H,
    /// E).
    fn attend(q: &Tensor, k: &Tensor, v: &Tensor, matrix: &Tensor) -> Result<Tensor> {
        let heads = q.dim(2)?;
        let options = AttentionOptions {
            heads,
            ..AttentionOptions::default()
        };
        let flat = |x: &Tensor| x.flatten_from(2);
        let slots = |x: &Tensor| project_length(&flat(x)?, matrix, heads);
        let y = attention::attend(&flat(q)?, &slots(k)?, &slots(v)?, &options)?;
        Ok(y.reshape(q.dims())?)
    }

    #[test]
    fn with_one_slot_per_position_and_no_mixing_it_is_softmax_attention() {
        let twin = DenseReference::whole(reference::softmax);
        for copies in [1, 2] {
            let identity = Tensor::eye(5, DType::F64, &Device::Cpu).unwrap();
            let identity = identity.broadcast_as((copies, 5, 5)).unwrap();
            let identity = identity.contiguous().unwrap();
            let apart = twin.compare(|q, k, v, _| attend(q, k, v, &identity));
            assert!(apart.output < 1e-7 && apart.gradient < 1e-7, "{apart:?}");
        }
    }

    #[test]
    fn gradients_agree_with_differences_shared_and_by_head() {
        for copies in [1, 2] {
            let shapes: [&[usize]; 3] = [&[2, 3, 2, 2], &[2, 3, 2, 2], &[copies, 4, 3]];
            check_gradient("linformer", &shapes, |inputs| {
                attend(&inputs[0], &inputs[1], &inputs[1], &inputs[2])
            });
        }
    }
}
