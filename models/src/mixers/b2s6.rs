//! B₂S₆, block-biased Mamba. Yu & Erichson, 2025, "Block-Biased Mamba for Long-Range Sequence
//! Processing", arXiv:2505.09022.
//!     in block j and channel i:  δ_ti = softplus(w_j·u_t + θ_i),  b_t = W_B u_t,  c_t = W_C u_t
//!     s_ti = e^(δ_ti A) s_(t-1)i + A⁻¹ (e^(δ_ti A) - 1) (b_t + β_i) u_ti,  y_ti = 2 Re(c_t · s_ti)
//!     y of both directions, each with parameters of its own, is added to D ⊙ u
//!     out = a ⊙ σ(g), [a, g] = W f(y) + c
//! B batch, L length, D' width in J blocks of P = D' / J channels, N/2 complex states of each
//! channel, which represent pairs of conjugates; u_t is the block's part (P); u, y, δ, out (B, L,
//! D'), s, b_t and A (N/2) complex, c_t (N/2) real, w (J, P), θ (D'), W_B (J, N/2, P) complex, W_C
//! (J, N/2, P), β (J, N/2, P) complex, D (D'), W (2 D', D'). S6 of Mamba has one block, no β and
//! real states: the blocks make its selection depend on few channels each, and β lets channels of
//! one block differ. Time O(L·D'·(D' + N)), one position after the other; memory O(L·D'·(1 +
//! N/32)). The block has no feed-forward network. Settings of the authors: 8 blocks; ListOps 8
//! layers of 128 channels, Text 6 of 256, Image 6 of 512, and smaller rates for w and θ
//! (`train.groups`).
//!
//! # Options
//!
//! `blocks` J (0: the largest divisor of the width up to 8); `state` N (16); `direction`: `both`, or
//! `forward`; δ begins between `dt_min` and `dt_max`.
//!
//! # Padding
//!
//! At padding δ = 0, so states pass through unchanged.
//!
//! # Departures
//!
//! No public code was found (the paper speaks of anonymous code), and the paper gives no initial
//! values: A begins as in S4D-Lin (-½ + iπm), β as 1, D as N(0, 1) and θ as softplus⁻¹ of numbers
//! that are log-uniform between 0.001 and 0.1, all as in S4D; w is uniform within P^-½, real and
//! imaginary parts of W_B, and W_C, are N(0, 1/(2P)), and W begins as PyTorch's linear layers. N is
//! ours. The pairs of conjugates, two directions, and the output with its gate are those of S4D.
//! The norms' ε is `block.norm_epsilon` = 1e-6.

use crate::{
    layers::{BlockLinear, Direction, GluOutput, OutputGate, OutputInit, step_size},
    ops::{BlockScan, activation::softplus, block_scan, flip},
    params::{fan_in_uniform, inverse_softplus},
    prelude::*,
    rng::Stream,
};

/// The registry's entry.
pub const MODEL: Model = Model {
    name: "b2s6",
    title: "B2S6",
    paper: "Block-Biased Mamba for Long-Range Sequence Processing",
    year: 2025,
    arxiv: "2505.09022",
    time: Cost::Linear("O(L·N)"),
    memory: Cost::Linear("O(L)"),
    reference: Reference::Equations,
    family: Family::Filter,
    settings: r#"{"embed": {"positions": "none"}, "block": {"ffn": "none", "activation": "gelu_erf"}}"#,
    variants: &[Variant::mixer::<B2s6>(include_str!("b2s6.rs"))],
    ..Model::mixer::<B2s6>()
};

#[derive(Options, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// J; 0 for the largest divisor of the width up to 8.
    #[option(default = 0, range = int(0, WIDEST))]
    blocks: usize,
    /// N.
    #[option(default = 16, range = int(2, 4096))]
    state: usize,
    #[option(default = Direction::Both)]
    direction: Direction,
    #[option(default = 0.001, range = positive(1e3))]
    dt_min: f64,
    #[option(default = 0.1, range = positive(1e3))]
    dt_max: f64,
}

impl Options {
    /// Returns J for a width.
    fn blocks(&self, dim: usize) -> usize {
        let divides = |blocks: &usize| dim.is_multiple_of(*blocks);
        match self.blocks {
            0 => (1..=8).rev().find(divides).unwrap_or(1),
            blocks => blocks,
        }
    }
}

struct B2s6 {
    /// From the first position, and from the last.
    units: Vec<Unit>,
    /// D (D').
    skip: Tensor,
    output: GluOutput,
}

impl MixerModel for B2s6 {
    type Options = Options;

    fn check(options: &Options, context: &ModelContext) -> Result<()> {
        require(
            options.state.is_multiple_of(2),
            "model.state",
            options.state,
            "an even number, since complex states stand for pairs",
        )?;
        step_size::check(options.dt_min, options.dt_max)?;
        let dim = context.block.dim;
        require(
            dim.is_multiple_of(options.blocks(dim)),
            "model.blocks",
            options.blocks,
            format!("a divisor of block.dim = {dim}"),
        )
    }

    fn new(layer: &LayerContext, options: &Options) -> Result<Self> {
        let (vb, dim) = (&layer.vb, layer.block.dim);
        let names = ["forward", "backward"];
        let names = names.iter().take(options.direction.count());
        let unit = |name: &&str| Unit::new(&vb.pp(name), dim, options);
        let normal = Init::Randn {
            mean: 0.0,
            stdev: 1.0,
        };
        Ok(Self {
            units: names.map(unit).collect::<Result<_>>()?,
            skip: vb.get_with_hints(dim, "d", normal)?,
            output: GluOutput::new(vb, layer.block, OutputGate::Full, OutputInit::Torch)?,
        })
    }
}

impl Mixer for B2s6 {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let mask = pass.mask();
        let mut y = x.broadcast_mul(&self.skip)?;
        for (index, unit) in self.units.iter().enumerate() {
            let valid = mask.map(|mask| mask.valid().unsqueeze(2)).transpose()?;
            let one = match index {
                0 => unit.forward(x, valid.as_ref())?,
                _ => {
                    let valid = valid.map(|valid| flip(&valid)).transpose()?;
                    flip(&unit.forward(&flip(x)?, valid.as_ref())?)?
                }
            };
            y = add(&y, &one)?;
        }
        self.output.forward(&y, pass)
    }

    fn is_causal(&self) -> bool {
        self.units.len() == 1
    }

    fn flops(&self, length: usize) -> u64 {
        let units: u64 = self.units.iter().map(|unit| unit.flops(length)).sum();
        units + self.output.flops(length)
    }
}

/// The states of one direction.
struct Unit {
    /// w.
    step: BlockLinear,
    /// θ (D').
    step_bias: Tensor,
    /// Real and imaginary parts of W_B, and W_C.
    selection: BlockLinear,
    /// Real and imaginary part of β, (J, N, P).
    bias: Tensor,
    /// ln -Re A (N/2).
    log_a_real: Tensor,
    /// Im A (N/2).
    a_imag: Tensor,
    blocks: usize,
    /// N / 2.
    modes: usize,
    /// P.
    width: usize,
}

impl Unit {
    fn new(vb: &VarBuilder, dim: usize, options: &Options) -> Result<Self> {
        let (blocks, modes) = (options.blocks(dim), options.state / 2);
        let width = dim / blocks;
        let normal = Init::Randn {
            mean: 0.0,
            stdev: (0.5 / width as f64).sqrt(),
        };
        let (least, most) = (options.dt_min.ln(), options.dt_max.ln());
        let step = vb.pp("step");
        let step_bias = step.get_with_values(dim, "bias", Attributes::NO_DECAY, |stream| {
            let steps = stream.uniform(1, dim).into_iter();
            let steps = steps.map(|share| (least + (most - least) * share).exp());
            steps.map(inverse_softplus).collect()
        })?;
        let of_modes = |name: &str, value: &dyn Fn(usize) -> f64| {
            let values = |_: &Stream| (0..modes).map(value).collect();
            vb.get_with_values(modes, name, Attributes::NO_DECAY, values)
        };
        let (bias, half) = ((blocks, 2 * modes, width), modes * width);
        Ok(Self {
            step: BlockLinear::between(&step, blocks, (width, 1), fan_in_uniform(width), None)?,
            step_bias,
            selection: BlockLinear::between(
                &vb.pp("selection"),
                blocks,
                (width, 3 * modes),
                normal,
                None,
            )?,
            bias: vb.get_with_values(bias, "b", Attributes::NO_DECAY, |_| {
                [vec![1.0; half], vec![0.0; half]].concat().repeat(blocks)
            })?,
            log_a_real: of_modes("log_a_real", &|_| 0.5f64.ln())?,
            a_imag: of_modes("a_imag", &|m| std::f64::consts::PI * m as f64)?,
            blocks,
            modes,
            width,
        })
    }

    /// Returns 2 Re(c · s) (B, L, D') of u (B, L, D'); `valid` is (B, L, 1).
    fn forward(&self, u: &Tensor, valid: Option<&Tensor>) -> Result<Tensor> {
        let (batch, length, dim) = u.dims3()?;
        let by_block = (batch, length, self.blocks, self.width);
        let step = self.step.forward(u)?.unsqueeze(3)?; // (B, L, J, 1)
        let bias = self.step_bias.reshape((self.blocks, self.width))?;
        let step = softplus(&step.broadcast_add(&bias)?)?;
        let step = match valid {
            Some(valid) => step.broadcast_mul(&valid.unsqueeze(3)?)?,
            None => step,
        };
        let selection = self.selection.forward(u)?;
        let y = block_scan(&BlockScan {
            values: &u.reshape(by_block)?,
            steps: &step,
            selection: &selection.reshape((batch, length, self.blocks, 3 * self.modes))?,
            rates: &cat(&[&self.log_a_real.exp()?.neg()?, &self.a_imag], 0)?,
            bias: &self.bias,
        })?;
        Ok(y.reshape((batch, length, dim))?.affine(2.0, 0.0)?)
    }

    fn flops(&self, length: usize) -> u64 {
        let linears = self.step.flops(length) + self.selection.flops(length);
        linears + block_scan::flops(length, self.blocks, self.modes, self.width)
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;
    use crate::testing::{check_layer, close, normal, parameters, pass};

    fn mixer(parameters: &crate::Parameters, direction: Direction) -> B2s6 {
        let block = BlockOptions {
            dim: 6,
            ..BlockOptions::default()
        };
        let options = Options {
            blocks: 2,
            state: 4,
            direction,
            ..Options::default()
        };
        let layer = LayerContext::new(parameters.builder(), &block, 9);
        B2s6::new(&layer, &options).unwrap()
    }

    #[test]
    fn gradients_agree_with_differences() {
        let valid = [[1.0; 5], [1.0, 1.0, 1.0, 0.0, 0.0]];
        let mask = Mask::new(&Tensor::new(&valid, &Device::Cpu).unwrap()).unwrap();
        let parameters = parameters();
        let mixer = mixer(&parameters, Direction::Both);
        check_layer("b2s6", &parameters, &[2, 5, 6], |x| {
            mixer.forward(x, &pass().with_mask(Some(&mask)))
        });
    }

    /// Padding between two parts of a sequence is as if it were not there.
    #[test]
    fn states_pass_through_padding() {
        let parameters = parameters();
        let mixer = mixer(&parameters, Direction::Both);
        let x = normal("x", &[1, 7, 6]);
        let valid = Tensor::new(&[[1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 1.0f64]], &Device::Cpu);
        let mask = Mask::new(&valid.unwrap()).unwrap();
        let y = mixer.forward(&x, &pass().with_mask(Some(&mask))).unwrap();
        let parts = |x: &Tensor| {
            let parts = [x.narrow(1, 0, 2).unwrap(), x.narrow(1, 4, 3).unwrap()];
            Tensor::cat(&parts, 1).unwrap()
        };
        let alone = mixer.forward(&parts(&x), &pass()).unwrap();
        close(&parts(&y), &alone, 1e-12, "padding");
    }
}
