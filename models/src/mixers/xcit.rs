//! XCiT. El-Nouby et al., 2021, "XCiT: Cross-Covariance Image Transformers", arXiv:2106.09681.
//!     Y = V Aᵀ,  A = softmax(τ Q̂ᵀ K̂),  columns of Q̂ and K̂ of length 1 over the positions: channels attend to channels, not positions to positions
//!     y = x' + LPI(norm(h + x')),  LPI = conv(norm(gelu(conv(·)))),  x' the projection of Y, h the mixer's input
//! B batch, H heads, L length, E width of a head; Q, K, V, Y (B, H, L, E), A (B, H, E, E), τ one
//! number per head, 1 at first, that does not decay. Time O(L·E²) per head, memory O(L·E + E²). The
//! attention ignores the order of tokens. The block scales its branches channel by channel
//! (`block.residual` = layerscale). Its batch norm is a LayerNorm. It belongs to this branch: in
//! post-norm blocks this gives the same sum as the paper's separate branch, in pre-norm blocks h
//! takes the place of the stream.
//!
//! # Options
//!
//! `local` taps of LPI's depth-wise convolutions (odd; 0: no LPI).
//!
//! # Padding
//!
//! Queries, keys and values are zeros at padding before the norms, and so are the inputs of the
//! convolutions.
//!
//! # Departures
//!
//! LPI is one-dimensional here; in the paper it covers 3 x 3 pixels, which uses the shape of the
//! image. LPI is scaled with the attention's branch; in the authors' code it has a norm of the
//! stream and λ of its own. No class-attention layers. Projections have no biases. Weights begin
//! Xavier-uniform and those of LPI uniform within w^-½ for w taps, with biases 0; in the authors'
//! code N(0, 0.02²), and LPI uniform within 1/3 with its biases (facebookresearch/xcit@82f5291
//! xcit.py:125-130, 364-371). Biases of the feed-forward network begin N(0, 1e-6²), there as 0. λ
//! begins as 1, as in their models of 12 layers; those of 24 have 1e-5 (line 442). The norms' ε,
//! that of LPI's norm too, is `block.norm_epsilon` = 1e-6; in their code it is 1e-6 (line 330), and
//! 1e-5 in the batch norm of LPI (torch.nn.SyncBatchNorm, line 128). Their gelu is the error
//! function's; here that of the feed-forward network is tanh's, at most 5e-4 from it
//! (`block.activation`).

use crate::{
    layers::LayerNorm,
    ops::{Padding, activation::gelu_erf, checkpoint::checkpoint},
    prelude::*,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "xcit",
    title: "XCiT",
    paper: "XCiT: Cross-Covariance Image Transformers",
    year: 2021,
    arxiv: "2106.09681",
    time: Cost::Linear("O(L·E²)"),
    memory: Cost::Linear("O(L·E + E²)"),
    reference: Reference::Package,
    family: Family::Xformer,
    settings: r#"{"block": {"residual": "layerscale"}}"#,
    variants: &[Variant::mixer::<Xcit>(include_str!("xcit.rs"))],
    ..Model::mixer::<Xcit>()
};

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    #[option(default = 3, range = int(0, LONGEST))]
    local: usize,
}

struct Xcit {
    projections: Projections,
    /// τ (H).
    temperature: Tensor,
    dropout: Dropout,
    local: Option<Local>,
    heads: usize,
    width: usize,
}

impl MixerModel for Xcit {
    type Options = Options;

    fn check(options: &Options, _: &ModelContext) -> Result<()> {
        require(
            options.local == 0 || options.local % 2 == 1,
            "model.local",
            options.local,
            "0 or an odd number",
        )
    }

    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let block = layer.block;
        let local = || Local::new(&layer.vb.pp("local"), layer, options.local);
        let one = Init::Const(1.0);
        Ok(Self {
            projections: Projections::new(layer)?,
            temperature: layer.vb.get_with_hints(block.heads, "temperature", one)?,
            dropout: Dropout::new(&layer.vb.pp("drop"), block.attention_dropout),
            local: (options.local > 0).then(local).transpose()?,
            heads: block.heads,
            width: block.head_dim(),
        })
    }
}

impl Xcit {
    /// Returns Y of queries, keys and values (B, L, H E), zeros at padding, to the same shape.
    fn attend(&self, qkv: [Tensor; 3], pass: &Pass) -> Result<Tensor> {
        let [q, k, v] = qkv;
        let temperature = self.temperature.reshape((1, self.heads, 1, 1))?;
        let scores = ops::channel_cosines(&q, &k, self.heads)?.broadcast_mul(&temperature)?;
        let weights = softmax::masked(&scores, None)?; // (B, H, E, E)
        ops::mix_channels(&v, &self.dropout.forward(&weights, pass)?)
    }
}

impl Mixer for Xcit {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let mask = pass.mask();
        // Without biases, zeros project to zeros.
        let qkv = self.projections.qkv(&zero_padding(x, mask)?)?;
        let y = self.projections.merge(&self.attend(qkv, pass)?)?;
        match &self.local {
            Some(local) => {
                // Four activations as large as x, cheaper to compute again than to keep.
                let (local, mask) = (local.clone(), mask.cloned());
                let near = checkpoint(&add(x, &y)?, move |x| local.forward(x, mask.as_ref()))?;
                add(&y, &near)
            }
            None => Ok(y),
        }
    }

    fn flops(&self, length: usize) -> u64 {
        let products = 2 * 2 * (length * self.heads * self.width * self.width) as u64;
        let local = self.local.as_ref().map_or(0, |local| local.flops(length));
        self.projections.flops(length) + products + local
    }
}

/// Local patch interaction, along the sequence.
#[derive(Clone)]
struct Local {
    before: LayerNorm,
    between: LayerNorm,
    /// Weights (D, w) and biases (D).
    first: [Tensor; 2],
    second: [Tensor; 2],
}

impl Local {
    fn new(vb: &VarBuilder, layer: &LayerContext, taps: usize) -> Result<Self> {
        let dim = layer.block.dim;
        // PyTorch's bound for a kernel that reads w numbers.
        let bound = (taps as f64).powf(-0.5);
        let init = Init::Uniform {
            lo: -bound,
            up: bound,
        };
        let conv = |name| -> Result<[Tensor; 2]> {
            let vb = vb.pp(name);
            Ok([
                vb.get_with_hints((dim, taps), "weight", init)?,
                vb.get_with_hints(dim, "bias", Init::Const(0.0))?,
            ])
        };
        let norm = |name| LayerNorm::new(&vb.pp(name), dim, layer.block.norm_epsilon);
        Ok(Self {
            before: norm("before_norm")?,
            between: norm("between_norm")?,
            first: conv("first")?,
            second: conv("second")?,
        })
    }

    /// Maps (B, L, D) to (B, L, D).
    fn forward(&self, x: &Tensor, mask: Option<&Mask>) -> Result<Tensor> {
        let conv = |x: &Tensor, [weight, bias]: &[Tensor; 2]| {
            ops::depthwise_conv1d(
                &zero_padding(x, mask)?,
                weight,
                Some(bias),
                Padding::Same,
                1,
            )
        };
        let hidden = gelu_erf(&conv(&self.before.forward(x)?, &self.first)?)?;
        conv(&self.between.forward(&hidden)?, &self.second)
    }

    fn flops(&self, length: usize) -> u64 {
        2 * 2 * (length * self.first[0].elem_count()) as u64
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;
    use crate::{
        Parameters, RngKey,
        options::BlockOptions,
        testing::{check_layer, close, normal, parameters},
    };

    fn mixer(parameters: &Parameters, heads: usize, local: usize) -> Xcit {
        let block = BlockOptions {
            dim: 4,
            qkv_dim: 6,
            heads,
            ..BlockOptions::default()
        };
        let layer = LayerContext::new(parameters.builder(), &block, 9);
        Xcit::new(&layer, &Options { local }).unwrap()
    }

    fn pass() -> Pass<'static> {
        Pass::new(false, RngKey::new(1, 0, 0))
    }

    #[test]
    fn heads_of_one_channel_return_their_values() {
        let mixer = mixer(&parameters(), 6, 0);
        let qkv = ["q", "k", "v"].map(|name| normal(name, &[2, 5, 6]));
        let v = qkv[2].clone();
        close(&mixer.attend(qkv, &pass()).unwrap(), &v, 1e-12, "values");
    }

    #[test]
    fn channels_attend_as_the_definition_says() {
        let parameters = parameters();
        let mixer = mixer(&parameters, 2, 0);
        let tau = [0.7, 1.9];
        for (path, var) in parameters.all() {
            if path == "temperature" {
                var.set(&Tensor::new(&tau, &Device::Cpu).unwrap()).unwrap();
            }
        }
        let qkv = ["q", "k", "v"].map(|name| normal(name, &[1, 5, 6]));
        let rows = qkv
            .clone()
            .map(|x| x.get(0).unwrap().to_vec2::<f64>().unwrap());
        let column =
            |x: usize, c: usize| -> Vec<f64> { rows[x].iter().map(|row| row[c]).collect() };
        let dot = |a: &[f64], b: &[f64]| -> f64 { a.iter().zip(b).map(|(a, b)| a * b).sum() };
        let mut expected = vec![vec![0.0; 6]; 5];
        for c in 0..6 {
            let head = c / 3;
            let others = head * 3..head * 3 + 3;
            let weight = |d: usize| {
                let (q, k) = (column(0, c), column(1, d));
                (tau[head] * dot(&q, &k) / (dot(&q, &q) * dot(&k, &k)).sqrt()).exp()
            };
            let total: f64 = others.clone().map(weight).sum();
            for (t, row) in expected.iter_mut().enumerate() {
                row[c] = others
                    .clone()
                    .map(|d| weight(d) / total * rows[2][t][d])
                    .sum();
            }
        }
        let expected = Tensor::new(vec![expected], &Device::Cpu).unwrap();
        close(
            &mixer.attend(qkv, &pass()).unwrap(),
            &expected,
            1e-12,
            "xcit",
        );
    }

    #[test]
    fn gradients_agree_with_differences() {
        let valid = Tensor::new(
            &[[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 0.0, 0.0f64]],
            &Device::Cpu,
        );
        let mask = Mask::new(&valid.unwrap()).unwrap();
        for local in [0, 3] {
            let parameters = parameters();
            let mixer = mixer(&parameters, 2, local);
            check_layer("xcit", &parameters, &[2, 4, 4], |x| {
                mixer.forward(x, &pass().with_mask(Some(&mask)))
            });
        }
    }
}
