//! Linformer. Wang et al., 2020, "Linformer: Self-Attention with Linear Complexity", arXiv:2006.04768.
//!     y_i = Σ_r softmax_r(q_i·k'_r / √E) v'_r,  k'_r = Σ_j A_jr k_j,  v'_r = Σ_j F_jr v_j
//! Keys and values are projected along the length, from L positions to K slots, by learned A and F (the paper's E and F, transposed).
//! B batch, H heads, L length, E width of a head, N largest length; q, k, v (B, L, H, E), A, F (N, K), k', v' (B, K, H, E). A shorter sequence uses the first L rows.
//! Time O(L·K·E) per head, memory O(L·K). Options: `rank` K (0: 256; at most N), `sharing`: `none` (A and F for each
//! head), `headwise` (shared by the heads of a layer), `key_value` (also A = F), `layerwise` (one matrix for all layers).
//! Padded keys and values are zeros before the sums, so padding never reaches them; the paper has no padding. Dropout on the weights of the slots.
//! A and F start as N(0, 1/K), as in the paper's lemma; which position a row belongs to is fixed, so the order of tokens matters.

use candle_core::Tensor;
use candle_nn::{Init, VarBuilder};
use serde::{Deserialize, Serialize};

use crate::{
    Context, Encoder, Mixer, Result,
    encoder::{Build, Site, blocks},
    kernels::{self, AttentionDropout, AttentionOptions},
    layers::{Dropout, Projections, parts::by_head, products::product, softmax},
    mixers::{Model, Variant, tay2021},
    options::{LONGEST, Range, to_json},
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "linformer",
    title: "Linformer",
    paper: "Linformer: Self-Attention with Linear Complexity",
    year: 2020,
    arxiv: "2006.04768",
    time: "O(L·K·E)",
    memory: "O(L·K)",
    variants: &[
        Variant::paper(build, include_str!("linformer.rs")),
        tay2021::linformer::VARIANT,
    ],
    options: || to_json(&Options::default()),
    ranges: &[Range::whole("rank", 0, LONGEST)],
};

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Sharing {
    None,
    Headwise,
    KeyValue,
    Layerwise,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    rank: usize,
    sharing: Sharing,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            rank: 0,
            sharing: Sharing::KeyValue,
        }
    }
}

fn build(build: &Build) -> Result<Box<dyn Encoder>> {
    let form = Form {
        rank: 256,
        init: |_, rank| Init::Randn {
            mean: 0.0,
            stdev: (rank as f64).powf(-0.5),
        },
        masks: true,
    };
    encoder(build, form)
}

/// What variants differ in.
pub(super) struct Form {
    /// K where none is set.
    pub(super) rank: usize,
    /// Of A and F, from N and K.
    pub(super) init: fn(usize, usize) -> Init,
    /// Whether padding is left out.
    pub(super) masks: bool,
}

/// The encoder of the variant that `form` says.
pub(super) fn encoder(build: &Build, form: Form) -> Result<Box<dyn Encoder>> {
    let options: Options = build.options()?;
    blocks(build, |site| {
        let length = match options.sharing {
            // One path, so that every layer is handed the same parameter.
            Sharing::Layerwise => build.vb.pp("length"),
            _ => site.vb.pp("length"),
        };
        Ok(Box::new(Linformer::new(site, &length, &options, &form)?))
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
    fn new(site: &Site, vb: &VarBuilder, options: &Options, form: &Form) -> Result<Self> {
        let heads = site.block.heads;
        let rank = match options.rank {
            0 => form.rank,
            rank => rank,
        }
        .min(site.max_length);
        let init = (form.init)(site.max_length, rank);
        let copies = match options.sharing {
            Sharing::None => heads,
            _ => 1,
        };
        let matrix = |name| vb.get_with_hints((copies, site.max_length, rank), name, init);
        let key = matrix("key")?;
        let value = match options.sharing {
            Sharing::None | Sharing::Headwise => matrix("value")?,
            Sharing::KeyValue | Sharing::Layerwise => key.clone(),
        };
        Ok(Self {
            projections: Projections::new(&site.vb, site.block)?,
            key,
            value,
            dropout: Dropout::new(&site.vb.pp("drop"), site.block.attention_dropout),
            masks: form.masks,
            heads,
            dim: site.block.qkv_dim,
            rank,
        })
    }
}

impl Mixer for Linformer {
    fn forward(&self, x: &Tensor, context: &Context) -> Result<Tensor> {
        let (batch, length, _) = x.dims3()?;
        let dropout = self.dropout.of_attention(batch, context);
        let real = context.mask().filter(|_| self.masks);
        let real = real.map(|mask| mask.real().reshape((batch, length, 1)));
        let real = real.transpose()?;
        let hide = |x: Tensor, real: &Option<Tensor>| -> Result<Tensor> {
            Ok(match real {
                Some(real) => x.broadcast_mul(real)?,
                None => x,
            })
        };
        if kernels::supports(x) {
            let [q, k, v] = self.projections.side_by_side(x)?; // (B, L, H E)
            let k = kernels::shorten(&hide(k, &real)?, &self.key, self.heads)?;
            let v = kernels::shorten(&hide(v, &real)?, &self.value, self.heads)?;
            let options = AttentionOptions {
                heads: self.heads,
                dropout,
                ..AttentionOptions::default()
            };
            let y = kernels::attention(&q, &k, &v, &options)?;
            return self.projections.merge(&y);
        }
        let [q, k, v] = self.projections.split(x)?; // (B, L, H, E)
        let real = real.map(|real| real.unsqueeze(3)).transpose()?;
        let k = project(&hide(k, &real)?, &self.key)?;
        let v = project(&hide(v, &real)?, &self.value)?;
        self.projections.merge(&attend(&q, &k, &v, dropout)?)
    }

    fn flops(&self, length: usize) -> u64 {
        let products = 4 * 2 * (length * self.rank * self.dim) as u64;
        self.projections.flops(length) + products
    }
}

/// x (B, L, H, E) along the length by the first L rows of `matrix` (1 or H, N, K), to (B, K, H, E).
///
/// The batch is moved beside the width: one product, and no copy of the matrix's gradient per example.
fn project(x: &Tensor, matrix: &Tensor) -> Result<Tensor> {
    let (batch, length, heads, width) = x.dims4()?;
    let (copies, _, rank) = matrix.dims3()?;
    let matrix = matrix.narrow(1, 0, length)?.t()?.contiguous()?; // (1 or H, K, L)
    if copies == 1 {
        let x = x.transpose(0, 1)?;
        let x = x.reshape((1, length, batch * heads * width))?;
        let y = product(&matrix, &x)?.reshape((rank, batch, heads, width))?;
        return Ok(y.transpose(0, 1)?.contiguous()?);
    }
    let x = x.permute((2, 1, 0, 3))?;
    let x = x.reshape((heads, length, batch * width))?;
    let y = product(&matrix, &x)?.reshape((heads, rank, batch, width))?;
    Ok(y.permute((2, 1, 0, 3))?.contiguous()?)
}

/// Attention of queries (B, L, H, E) on slots (B, K, H, E), to (B, L, H, E).
fn attend(q: &Tensor, k: &Tensor, v: &Tensor, dropout: Option<AttentionDropout>) -> Result<Tensor> {
    let (_, length, heads, width) = q.dims4()?;
    let scale = (width as f64).powf(-0.5);
    let scores = product(&by_head(q)?.affine(scale, 0.0)?, &by_head(k)?.t()?)?; // (B, H, L, K)
    let weights = softmax::masked(&scores, None)?;
    let weights = match dropout {
        Some(dropout) => {
            let factors = dropout.factors(heads, length, k.dim(1)?, q.device())?;
            (weights * factors.to_dtype(q.dtype())?)?
        }
        None => weights,
    };
    by_head(&product(&weights, &by_head(v)?)?)
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device};

    use super::*;
    use crate::{
        layers::testing::{Twin, check_gradient},
        oracle,
    };

    #[test]
    fn with_one_slot_per_position_and_no_mixing_it_is_softmax_attention() {
        let twin = Twin::whole(oracle::softmax);
        for copies in [1, 2] {
            let identity = Tensor::eye(5, DType::F64, &Device::Cpu).unwrap();
            let identity = identity.broadcast_as((copies, 5, 5)).unwrap();
            let identity = identity.contiguous().unwrap();
            let apart = twin.compare(|q, k, v, _| {
                attend(q, &project(k, &identity)?, &project(v, &identity)?, None)
            });
            assert!(apart.output < 1e-7 && apart.gradient < 1e-7, "{apart:?}");
        }
    }

    #[test]
    fn gradients_agree_with_differences_shared_and_by_head() {
        for copies in [1, 2] {
            check_gradient(
                "linformer",
                &[&[2, 3, 2, 2], &[2, 3, 2, 2], &[copies, 4, 3]],
                |inputs| {
                    let slots = project(&inputs[1], &inputs[2])?;
                    attend(&inputs[0], &slots, &slots, None)
                },
            );
        }
    }
}
