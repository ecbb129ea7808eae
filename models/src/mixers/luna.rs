//! Luna. Ma et al., 2021, "Luna: Linear Unified Nested Attention", arXiv:2106.01540.
//!     p' = Attention(p, x),  y = W_O Attention(x, p'),  p ← norm(p + p')
//! A second sequence p of fixed length l, with learned initial values, passes through the layers
//! beside x. It packs x, then x unpacks the packed sequence p', and p' is added to p. B batch, H
//! heads, L length, D width, E width of a head; x, y (B, L, D), p, p' (B, l, H E). Each attention
//! has its own projections; the first has no output projection. Time O(L·l·E) per head, memory
//! O(L·E + l·E). p has its own norm, of the block's kind and at the block's place (post-norm in the
//! paper), and the block's dropout on p', but no feed-forward network. The update of p in the last
//! layer is not computed, since nothing reads it. p starts as N(0, 1/(H E)). Dropout on both kinds
//! of weights. Not with reversible blocks. Published on the benchmark (layers x D, feed-forward,
//! heads): Text 4x256, 1024, 4; Retrieval 4x128, 512, 4; Image 1x64, 128, 8; Pathfinder 1x128, 4
//! heads; ListOps D 512, 2048, 8, layers that share weights.
//!
//! # Options
//!
//! `length` l (256, also 128 and 16 in the paper); `dynamic`: a sequence with fewer than l tokens
//! uses only that many rows of p, as in the published code.
//!
//! # Padding
//!
//! Padding is hidden from p.
//!
//! # Departures
//!
//! p has width H E, in the paper D; projections have no biases. Projections begin Xavier-uniform
//! (±0.217 at D = 64); in the published code over √2 (±0.153) but those of outputs, and biases
//! uniform within inputs^-½ (0 of outputs). p begins with a deviation of 1/√(H E), there of 1,
//! after a product with √D, and with the sinusoids of its positions added; in runs on this
//! benchmark x and p are each normed before the first layer there. The feed-forward network begins
//! Xavier-uniform (±0.177 for a width of 128) with biases N(0, 1e-6²), there uniform within
//! inputs^-½ (±0.125 and ±0.088), biases too. The norms' ε is `block.norm_epsilon` = 1e-6, there
//! 1e-5. For ListOps and Text all weights but p begin there N(0, 0.02²), biases as 0. Read in
//! XuezheMax/fairseq-apollo@3644d20 fairseq/modules/luna_attention.py:81-99,
//! luna_sentence_encoder.py:80-84 and 160-190, fairseq/models/lra/luna_lra_encoder.py:115-123 and
//! 246-253. Not here: one map for keys and values (`tie_kv`, which the module has by default and
//! its runs on this benchmark do not), another number of heads for p (`num_pheads`), and causal
//! attention; `dynamic_projection` is on by default there.

use crate::{block::norm::Norm, options::NormPlace, prelude::*};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "luna",
    title: "Luna",
    paper: "Luna: Linear Unified Nested Attention",
    year: 2021,
    arxiv: "2106.01540",
    time: Cost::Linear("O(L·l·E)"),
    memory: Cost::Linear("O(L·E + l·E)"),
    reference: Reference::Equations,
    family: Family::Xformer,
    settings: r#"{"block": {"norm_place": "post"}}"#,
    variants: &[Variant::mixer::<Luna>(include_str!("luna.rs"))],
    ..Model::mixer::<Luna>()
};

#[derive(Clone, Copy, Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// l.
    #[option(default = 256, range = int(1, LONGEST))]
    length: usize,
    dynamic: bool,
}

struct Luna {
    /// p of the first layer, (l, H E).
    start: Option<Tensor>,
    /// Norm of p; none where p is not read.
    norm: Option<Norm>,
    place: NormPlace,
    pack: Projected,
    unpack: Projected,
    output: Linear,
    /// Dropout of p'.
    dropout: Dropout,
    last: bool,
    options: Options,
    heads: usize,
    dim: usize,
}

/// Attention with its three projections.
struct Projected {
    query: Linear,
    key: Linear,
    value: Linear,
    dropout: Dropout,
}

impl MixerModel for Luna {
    type Options = Options;

    fn check(_: &Options, context: &ModelContext) -> Result<()> {
        require(
            context.block.residual != Residual::Reversible,
            "block.residual",
            "reversible",
            "another one, because p goes from block to block and is not recomputed",
        )
    }

    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let options = *options;
        let (vb, block) = (&layer.vb, layer.block);
        let (dim, row) = (block.dim, block.qkv_dim);
        let last = layer.index + 1 == block.layers;
        let normal = Init::Randn {
            mean: 0.0,
            stdev: (row as f64).powf(-0.5),
        };
        let start = || vb.get_with_hints((options.length, row), "p", normal);
        let norm = || {
            let own = BlockOptions {
                dim: row,
                ..block.clone()
            };
            Norm::new(&vb.pp("p_norm"), &own)
        };
        let output = xavier_uniform(row, dim);
        Ok(Self {
            start: (layer.index == 0).then(start).transpose()?,
            norm: (!last || block.norm_place == NormPlace::Pre)
                .then(norm)
                .transpose()?,
            place: block.norm_place,
            pack: Projected::new(&vb.pp("pack"), block, (row, dim))?,
            unpack: Projected::new(&vb.pp("unpack"), block, (dim, row))?,
            output: Linear::new(&vb.pp("output"), row, dim, output, None)?,
            dropout: Dropout::new(&vb.pp("p_drop"), block.dropout),
            last,
            options,
            heads: block.heads,
            dim: row,
        })
    }
}

impl Luna {
    /// Returns p (B, l, H E).
    fn before(&self, batch: usize, pass: &Pass) -> Result<Tensor> {
        match &self.start {
            Some(start) => Ok(start.broadcast_left(batch)?.contiguous()?),
            None => pass.carried().ok_or_else(|| {
                Error::Input("luna: no block before has left its second sequence".to_owned())
            }),
        }
    }

    /// Returns norm(p), where the block has that before its layers (`Pre`) or behind them (`Post`).
    fn normalised(&self, p: Tensor, place: NormPlace, pass: &Pass) -> Result<Tensor> {
        match &self.norm {
            Some(norm) if self.place == place => norm.forward(&p, &pass.with_mask(None)),
            _ => Ok(p),
        }
    }

    /// Returns the mask of the vectors of p that a sequence uses, (B, l); none where all are used.
    fn used(&self, x: &Tensor, mask: Option<&Mask>) -> Result<Option<Tensor>> {
        let ((batch, length, _), own) = (x.dims3()?, self.options.length);
        if !self.options.dynamic || (mask.is_none() && own <= length) {
            return Ok(None);
        }
        let tokens = match mask {
            Some(mask) => mask.valid().to_dtype(DType::F32)?.sum_keepdim(1)?,
            None => Tensor::full(length as f32, (batch, 1), x.device())?,
        };
        let places = Tensor::arange(0, own as u32, x.device())?.to_dtype(DType::F32)?;
        let used = places.unsqueeze(0)?.broadcast_lt(&tokens)?;
        Ok(Some(used.to_dtype(x.dtype())?))
    }
}

impl Mixer for Luna {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let p = self.before(x.dim(0)?, pass)?;
        let asking = self.normalised(p.clone(), NormPlace::Pre, pass)?;
        let valid = pass.mask().map(|mask| mask.valid().clone());
        let packed = self.pack.forward(&asking, x, valid, (self.heads, pass))?; // p'
        if !self.last {
            let p = self.dropout.add(&p, &packed, pass)?;
            pass.carry(&self.normalised(p, NormPlace::Post, pass)?);
        }
        let used = self.used(x, pass.mask())?;
        let y = self.unpack.forward(x, &packed, used, (self.heads, pass))?;
        self.output.forward(&y)
    }

    fn flops(&self, length: usize) -> u64 {
        let own = self.options.length;
        let products = 2 * 2 * 2 * (length * own) as u64 * self.dim as u64;
        let pack = self.pack.flops(own, length);
        pack + self.unpack.flops(length, own) + products + self.output.flops(length)
    }
}

impl Projected {
    /// Builds the projections of queries and of keys of these widths.
    fn new(vb: &VarBuilder, block: &BlockOptions, (queries, keys): (usize, usize)) -> Result<Self> {
        let row = block.qkv_dim;
        let linear = |name, inputs| {
            Linear::new(&vb.pp(name), inputs, row, xavier_uniform(inputs, row), None)
        };
        Ok(Self {
            query: linear("query", queries)?,
            key: linear("key", keys)?,
            value: linear("value", keys)?,
            dropout: Dropout::new(&vb.pp("drop"), block.attention_dropout),
        })
    }

    /// Returns attention of `queries` (B, Lq, ..) on x (B, Lk, ..), where `mask` (B, Lk) marks the
    /// keys that are seen; (B, Lq, H E).
    fn forward(
        &self,
        queries: &Tensor,
        x: &Tensor,
        mask: Option<Tensor>,
        (heads, pass): (usize, &Pass),
    ) -> Result<Tensor> {
        let options = AttentionOptions {
            heads,
            mask,
            dropout: self.dropout.of_attention(x.dim(0)?, pass),
            ..AttentionOptions::default()
        };
        let q = self.query.forward(queries)?;
        let (k, v) = (self.key.forward(x)?, self.value.forward(x)?);
        attention::attend(&q, &k, &v, &options)
    }

    fn flops(&self, queries: usize, keys: usize) -> u64 {
        self.query.flops(queries) + self.key.flops(keys) + self.value.flops(keys)
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;
    use serde_json::json;

    use super::*;
    use crate::{
        Parameters, RngKey,
        mask::zero_padding,
        options::{NormKind, overlay},
        reference,
        testing::{check_layer, close, normal, parameters},
    };

    fn block(layers: usize, norm_place: NormPlace) -> BlockOptions {
        BlockOptions {
            // Differences are too coarse where a norm stretches a short row.
            norm: NormKind::None,
            norm_place,
            layers,
            dim: 4,
            qkv_dim: 6,
            heads: 2,
            mlp_dim: 5,
            ..BlockOptions::default()
        }
    }

    fn mask() -> Mask {
        let valid = [[1.0; 5], [1.0, 1.0, 1.0, 0.0, 0.0], [0.0; 5]];
        Mask::new(&Tensor::new(&valid, &Device::Cpu).unwrap()).unwrap()
    }

    fn pass() -> Pass<'static> {
        Pass::new(false, RngKey::new(1, 0, 0))
    }

    fn mixer(parameters: &Parameters, options: Options) -> Luna {
        let block = block(1, NormPlace::Post);
        let layer = LayerContext::new(parameters.builder(), &block, 5);
        Luna::new(&layer, &options).unwrap()
    }

    /// With one packed vector, every position puts all its weight on it, and packing is softmax
    /// attention of a single query.
    #[test]
    fn with_one_vector_all_positions_get_the_same() {
        let mixer = mixer(
            &parameters(),
            Options {
                length: 1,
                dynamic: false,
            },
        );
        let (x, mask) = (normal("x", &[3, 5, 4]), mask());
        let y = mixer.forward(&x, &pass().with_mask(Some(&mask))).unwrap();
        let heads = |x: &Tensor| {
            let (batch, length, _) = x.dims3().unwrap();
            x.reshape((batch, length, 2, 3)).unwrap()
        };
        // The reference has as many queries as keys.
        let q = mixer.pack.query.forward(mixer.start.as_ref().unwrap());
        let q = q.unwrap().broadcast_as((3, 5, 6)).unwrap();
        let k = heads(&mixer.pack.key.forward(&x).unwrap());
        let v = heads(&mixer.pack.value.forward(&x).unwrap());
        let q = heads(&q.contiguous().unwrap());
        let valid = Some(mask.valid());
        let packed = reference::attention(&q, &k, &v, valid, reference::softmax).unwrap();
        let packed = packed.flatten_from(2).unwrap();
        let expected = mixer.unpack.value.forward(&packed).unwrap();
        close(&y, &mixer.output.forward(&expected).unwrap(), 1e-12, "luna");
    }

    /// The first of p are those of a mixer that has no others.
    #[test]
    fn a_short_sequence_uses_as_many_vectors_as_it_has_tokens() {
        let parameters = parameters();
        let dynamic = |length| Options {
            length,
            dynamic: true,
        };
        let long = mixer(&parameters, dynamic(4));
        let cut = long.start.as_ref().unwrap().narrow(0, 0, 3).unwrap();
        let short = Luna {
            start: Some(cut.contiguous().unwrap()),
            ..mixer(&parameters, dynamic(4))
        };
        let short = Luna {
            options: dynamic(3),
            ..short
        };
        let x = normal("x", &[3, 5, 4]);
        let mask = mask();
        let run = |mixer: &Luna| {
            let y = mixer.forward(&x, &pass().with_mask(Some(&mask))).unwrap();
            y.get(1).unwrap()
        };
        close(&run(&long), &run(&short), 1e-12, "dynamic");
        let front = x.narrow(1, 0, 3).unwrap().contiguous().unwrap();
        let run = |mixer: &Luna| mixer.forward(&front, &pass()).unwrap();
        close(&run(&long), &run(&short), 1e-12, "dynamic, without a mask");
    }

    #[test]
    fn gradients_agree_with_differences() {
        let mask = mask();
        for (place, dynamic) in [(NormPlace::Post, true), (NormPlace::Pre, false)] {
            let parameters = parameters();
            let block = block(2, place);
            let mut own = MODEL.defaults();
            overlay(&mut own, &json!({"length": 4, "dynamic": dynamic}));
            let vb = parameters.builder();
            let context = ModelContext::new(vb, &block, &MODEL, &own, 5);
            let encoder = MODEL.build(&context).unwrap();
            check_layer("luna", &parameters, &[3, 5, 4], |x| {
                let y = encoder.forward(x, &pass().with_mask(Some(&mask)))?;
                zero_padding(&y.hidden, Some(&mask))
            });
        }
    }
}
