//! Flowformer. Wu, Wu, Xu, Wang, Long, 2022, "Flowformer: Linearizing Transformers with
//! Conservation Flows", arXiv:2202.06258.
//!     I_i = φ(q_i)·Σ_j φ(k_j),  O_j = φ(k_j)·Σ_i φ(q_i),  Î_i = φ(q_i)·Σ_j φ(k_j)/O_j,  Ô_j = φ(k_j)·Σ_i φ(q_i)/I_i
//!     y_i = σ(Î_i) φ(q_i)/I_i · Σ_j φ(k_j) (n softmax_j(min(Ô_j, 1)) v_j)ᵀ
//! Attention as a flow from values (sources) to outputs (sinks): I flows into a query, O out of a
//! key; Î and Ô are these when the other side gives or takes 1 in all. The softmax lets keys
//! compete, σ allots to queries. φ = σ. B batch, H heads, L length, n valid positions, E width of a
//! head; q, k, v, y (B, L, H, E), I, O, Î, Ô (B, L, H). 1e-6 is added to either factor of the four
//! products. Time O(L·E²) per head, memory O(L·E + E²). Xavier-uniform projections without biases.
//! Variant `released`: as the authors' code for this benchmark computes, φ(x) = max(x, 0) + 1e-6,
//! and the softmax over the heads of a key instead of over keys, of Ô that is not clipped. Read in
//! thuml/Flowformer@61f5d8c Flow_Attention.py (class Flow_Attention), and
//! Flowformer_LRA/lra_benchmarks/models/flowformer/flow_attention.py; its configs have one layer,
//! two heads and rate 0.005 on ListOps, one layer of 256 and four heads on Text.
//!
//! # Options
//!
//! None.
//!
//! # Padding
//!
//! Padded positions are neither sources nor sinks: they are left out of all sums.
//!
//! # Departures
//!
//! Flow_Attention.py has biases in its projections, which begin uniform within inputs^-½, weights
//! too (torch.nn.Linear, lines 12-15); the code for the benchmark has none, and counts padded
//! positions like any other. The causal form (Flow_Attention_Causal) is left out.

use crate::{
    ops::{
        activation::{relu, sigmoid},
        linear_attention::{self, FeatureMap},
    },
    prelude::*,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "flowformer",
    title: "Flowformer",
    paper: "Flowformer: Linearizing Transformers with Conservation Flows",
    year: 2022,
    arxiv: "2202.06258",
    time: Cost::Linear("O(L·E²)"),
    memory: Cost::Linear("O(L·E + E²)"),
    reference: Reference::Equations,
    family: Family::Xformer,
    variants: &[
        Variant::paper(
            |context| build(context, false),
            include_str!("flowformer.rs"),
        ),
        Variant {
            name: "released",
            ..Variant::paper(
                |context| build(context, true),
                include_str!("flowformer.rs"),
            )
        },
    ],
    ..Model::with_options::<NoOptions>()
};

fn build(context: &ModelContext, released: bool) -> Result<Box<dyn Encoder>> {
    context.options::<NoOptions>()?;
    encoder::blocks(context, |layer| {
        Ok(Box::new(Flowformer {
            projections: Projections::new(layer)?,
            released,
            heads: layer.block.heads,
            width: layer.block.head_dim(),
        }))
    })
}

struct Flowformer {
    projections: Projections,
    /// True if it computes as the authors' code for this benchmark.
    released: bool,
    heads: usize,
    width: usize,
}

/// Added to either factor of a flow.
const EPSILON: f64 = 1e-6;
/// Small beside every flow; its square has a reciprocal in f32.
const GUARD: f64 = 1e-12;

/// Returns (x + ε)·(sum + ε) of each position and head, (B, L, H, 1), of x (B, L, H, E) and a sum
/// over positions (B, 1, H, E).
fn flow(x: &Tensor, sum: &Tensor) -> Result<Tensor> {
    let (x, sum) = (x.affine(1.0, EPSILON)?, sum.affine(1.0, EPSILON)?);
    Ok(x.broadcast_mul(&sum)?.sum_keepdim(D::Minus1)?)
}

impl Flowformer {
    /// Maps queries, keys and values (B, L, H, E) to (B, L, H, E).
    fn attend(&self, [q, k, v]: [&Tensor; 3], mask: Option<&Mask>) -> Result<Tensor> {
        let features = |x: &Tensor| -> Result<Tensor> {
            let x = match self.released {
                true => relu(x, EPSILON as f32)?,
                false => sigmoid(x)?,
            };
            match mask {
                Some(mask) => Ok(x.broadcast_mul(&mask.valid().unsqueeze(2)?.unsqueeze(3)?)?),
                None => Ok(x),
            }
        };
        let (q, k) = (features(q)?, features(k)?);
        let (sum_q, sum_k) = (q.sum_keepdim(1)?, k.sum_keepdim(1)?);
        let (incoming, outgoing) = (flow(&q, &sum_k)?, flow(&k, &sum_q)?);
        let of_sinks = flow(&q, &k.broadcast_div(&outgoing)?.sum_keepdim(1)?)?;
        let of_sources = flow(&k, &q.broadcast_div(&incoming)?.sum_keepdim(1)?)?;
        let shares = self.compete(&of_sources, mask)?;
        let v = v.broadcast_mul(&shares)?;
        // That divides by the sum of the weights, by which they are multiplied again.
        let y = linear_attention::attend(&q, &k, &v, FeatureMap::Given, GUARD, mask)?;
        let weights = q.broadcast_mul(&sum_k)?.sum_keepdim(D::Minus1)?;
        let scale = (weights.affine(1.0, GUARD)?.div(&incoming)? * sigmoid(&of_sinks)?)?;
        Ok(y.broadcast_mul(&scale)?)
    }

    /// Returns the factors of values (B, L, H, 1) of Ô (B, L, H, 1).
    fn compete(&self, flows: &Tensor, mask: Option<&Mask>) -> Result<Tensor> {
        let (batch, length, heads, _) = flows.dims4()?;
        let shares = match self.released {
            true => softmax::masked(&flows.squeeze(3)?, None)?.unsqueeze(3)?,
            false => {
                let flows = flows.clamp(-1.0, 1.0)?.squeeze(3)?;
                let flows = swap_axes(&flows)?.reshape((batch, heads, 1, length))?;
                let shares = softmax::masked(&flows, mask)?.squeeze(2)?;
                swap_axes(&shares)?.unsqueeze(3)?
            }
        };
        match mask {
            Some(mask) => {
                let valid = mask.valid().sum_keepdim(1)?.reshape((batch, 1, 1, 1))?;
                Ok(shares.broadcast_mul(&valid)?)
            }
            None => Ok(shares.affine(length as f64, 0.0)?),
        }
    }
}

impl Mixer for Flowformer {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let [q, k, v] = self.projections.split(x)?;
        let y = self.attend([&q, &k, &v], pass.mask())?;
        self.projections.merge(&y)
    }

    fn supports(&self) -> Supports {
        Supports {
            rotary: Ok(()),
            ..Supports::none("queries and keys meet as features of tokens")
        }
    }

    fn flops(&self, length: usize) -> u64 {
        self.projections.flops(length)
            + linear_attention::flops(length, self.heads, self.width, self.width)
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;
    use crate::testing::{check_layer, close, normal, parameters, pass};

    fn mixer(parameters: &crate::Parameters, released: bool) -> Flowformer {
        let block = BlockOptions {
            dim: 6,
            qkv_dim: 6,
            heads: 2,
            ..BlockOptions::default()
        };
        let layer = LayerContext::new(parameters.builder(), &block, 9);
        Flowformer {
            projections: Projections::new(&layer).unwrap(),
            released,
            heads: 2,
            width: 3,
        }
    }

    fn mask() -> Mask {
        let valid = [[1.0; 5], [1.0, 1.0, 1.0, 0.0, 0.0], [0.0; 5]];
        Mask::new(&Tensor::new(&valid, &Device::Cpu).unwrap()).unwrap()
    }

    /// Equal keys compete for nothing, and all that flows out of a value flows into outputs.
    #[test]
    fn equal_keys_give_every_query_its_share_of_the_mean() {
        let mixer = mixer(&parameters(), false);
        let [q, v] = ["q", "v"].map(|name| normal(name, &[1, 5, 2, 3]));
        let k = normal("k", &[1, 1, 2, 3]);
        let k = k.broadcast_as((1, 5, 2, 3)).unwrap().contiguous().unwrap();
        let actual = mixer.attend([&q, &k, &v], None).unwrap();
        // Each key gives 1/O = 1 / (k·Σq) of itself, so that Î_i = 5 φ(q_i)·φ(k) / (φ(k)·Σ φ(q)).
        let (q, k) = (sigmoid(&q).unwrap(), sigmoid(&k).unwrap());
        let products = (&q * &k).unwrap().sum_keepdim(3).unwrap();
        let sum = products.sum_keepdim(1).unwrap();
        let inflow = products.broadcast_div(&sum).unwrap().affine(5.0, 0.0);
        let mean = v.mean_keepdim(1).unwrap();
        let expected = sigmoid(&inflow.unwrap()).unwrap().broadcast_mul(&mean);
        close(&actual, &expected.unwrap(), 1e-4, "flow");
    }

    #[test]
    fn a_padded_row_is_what_it_is_alone() {
        for released in [false, true] {
            let mixer = mixer(&parameters(), released);
            let [q, k, v] = ["q", "k", "v"].map(|name| normal(name, &[3, 5, 2, 3]));
            let mask = mask();
            let all = mixer.attend([&q, &k, &v], Some(&mask)).unwrap();
            let part = |x: &Tensor| x.narrow(0, 1, 1).unwrap().narrow(1, 0, 3).unwrap();
            let [q, k, v] = [&q, &k, &v].map(|x| part(x).contiguous().unwrap());
            let alone = mixer.attend([&q, &k, &v], None).unwrap();
            close(&part(&all), &alone, 1e-12, "alone");
        }
    }

    #[test]
    fn gradients_agree_with_differences() {
        let mask = mask();
        for released in [false, true] {
            let parameters = parameters();
            let mixer = mixer(&parameters, released);
            check_layer("flowformer", &parameters, &[3, 5, 6], |x| {
                let y = mixer.forward(x, &pass().with_mask(Some(&mask)))?;
                zero_padding(&y, Some(&mask))
            });
        }
    }
}
