//! Residual connections: how the output of a sublayer is combined with its input
//! (`block.residual`).
//!
//! | value | next x, from x and y = dropout(sublayer(x)) | source |
//! |---|---|---|
//! | `plain` | x + y | He et al. 2015, arXiv:1512.03385 |
//! | `gru` | (1 - z) ⊙ x + z ⊙ h, by the gates below | Parisotto et al. 2019, arXiv:1910.06764 (GTrXL) |
//! | `rezero` | x + α y, α = 0 at first, one number per block | Bachlechner et al. 2020, arXiv:2003.04887 |
//! | `admin` | ω ⊙ x + y, ω (D) = √((n + 1)/ln(n + 1) - 1) at first, for n sublayers in the stack | Liu et al. 2020, arXiv:2004.08249 |
//! | `layerscale` | x + λ ⊙ y, λ (D) = 1 at first | El-Nouby et al. 2021, arXiv:2106.09681 (XCiT) |
//!
//! ```text
//! y' = relu(y);  r = σ(y' Wᵣ + x Uᵣ);  z = σ(y' W_z + x U_z - b);  h = tanh(y' W_h + (r ⊙ x) U_h)
//! ```
//! W, U (D, D) without biases, b (D) = 2 at first: the gate starts nearly closed. `admin` uses the
//! closed form of its published package, where the paper measures variances in a first pass. λ
//! begins as in XCiT's models of 12 layers. Touvron et al. 2021 (CaiT, arXiv:2103.17239), who
//! introduced it, begin with 1e-5 at 24 layers and with 1e-6 at 36 (facebookresearch/deit@0176669
//! cait_models.py). `reversible` is not a sum, see [`crate::encoder`].

use candle_core::Tensor;
use candle_nn::Init;

use crate::{
    Pass, Result, VarBuilder,
    layers::{Dropout, Linear},
    ops::{
        activation::{relu, sigmoid},
        add_scaled_channels, scale_channels,
    },
    options::{BlockOptions, ChannelKind, Residual},
    params::xavier_uniform,
};

/// Combination of the input x of a sublayer with its output y, both (B, L, D), with its parameters.
pub enum SkipConnection {
    /// x + y.
    Plain,
    /// GTrXL's gate.
    Gru(Box<Gru>),
    /// x + α y.
    ReZero(Tensor),
    /// ω ⊙ x + y.
    Admin(Tensor),
    /// x + λ ⊙ y.
    LayerScale(Tensor),
}

/// The gate of a GRU across depth.
pub struct Gru {
    /// Weights (3D, D) from y to r, z and h.
    from_y: Linear,
    /// Weights (2D, D) from x to r and z.
    from_x: Linear,
    /// Weights (D, D) from r ⊙ x to h.
    from_reset: Linear,
    /// b (D).
    bias: Tensor,
}

impl SkipConnection {
    /// Returns the sum that `block` asks for. `vb` is the sublayer's place, `block_vb` the block's.
    ///
    /// # Errors
    /// If a path is taken by a parameter of another shape.
    pub fn new(vb: &VarBuilder, block_vb: &VarBuilder, block: &BlockOptions) -> Result<Self> {
        let dim = block.dim;
        Ok(match block.residual {
            Residual::Plain | Residual::Reversible => Self::Plain,
            Residual::Gru => Self::Gru(Box::new(Gru::new(vb, dim)?)),
            Residual::Rezero => {
                Self::ReZero(block_vb.get_with_hints(1, "alpha", Init::Const(0.0))?)
            }
            Residual::Admin => {
                let each = match block.ffn {
                    ChannelKind::None => 1,
                    _ => 2,
                };
                let sublayers = (each * block.layers) as f64;
                let omega = ((sublayers + 1.0) / (sublayers + 1.0).ln() - 1.0).sqrt();
                Self::Admin(vb.get_with_hints(dim, "omega", Init::Const(omega))?)
            }
            Residual::Layerscale => {
                Self::LayerScale(vb.get_with_hints(dim, "lambda", Init::Const(1.0))?)
            }
        })
    }

    /// Returns the next x from x and the sublayer's output, both (B, L, D).
    ///
    /// # Errors
    /// If the shapes differ.
    pub fn forward(
        &self,
        x: &Tensor,
        y: &Tensor,
        dropout: &Dropout,
        pass: &Pass,
    ) -> Result<Tensor> {
        Ok(match self {
            Self::Plain => dropout.add(x, y, pass)?,
            Self::Gru(gate) => gate.forward(x, &dropout.forward(y, pass)?)?,
            Self::ReZero(scale) | Self::LayerScale(scale) => {
                add_scaled_channels(x, &dropout.forward(y, pass)?, scale)?
            }
            Self::Admin(omega) => dropout.add(&scale_channels(x, omega)?, y, pass)?,
        })
    }

    /// Counts the operations for one sequence.
    #[must_use]
    pub fn flops(&self, length: usize) -> u64 {
        match self {
            Self::Gru(gate) => [&gate.from_y, &gate.from_x, &gate.from_reset]
                .iter()
                .map(|linear| linear.flops(length))
                .sum(),
            _ => 0,
        }
    }
}

impl Gru {
    fn new(vb: &VarBuilder, dim: usize) -> Result<Self> {
        let weight = xavier_uniform(dim, dim);
        let linear = |name: &str, outputs| Linear::new(&vb.pp(name), dim, outputs, weight, None);
        Ok(Self {
            from_y: linear("from_y", 3 * dim)?,
            from_x: linear("from_x", 2 * dim)?,
            from_reset: linear("from_reset", dim)?,
            bias: vb.get_with_hints(dim, "bias", Init::Const(2.0))?,
        })
    }

    fn forward(&self, x: &Tensor, y: &Tensor) -> Result<Tensor> {
        let last = x.rank() - 1;
        let (y, x_gates) = (
            self.from_y.forward(&relu(y, 0.0)?)?.chunk(3, last)?,
            self.from_x.forward(x)?.chunk(2, last)?,
        );
        let reset = sigmoid(&(&y[0] + &x_gates[0])?)?;
        let update = sigmoid(&(&y[1] + &x_gates[1])?.broadcast_sub(&self.bias)?)?;
        let candidate = (&y[2] + self.from_reset.forward(&(reset * x)?)?)?.tanh()?;
        // (1 - z) x + z h
        Ok((x + (update * (candidate - x)?)?)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        RngKey,
        testing::{check_layer, close, normal, parameters},
    };

    fn join(residual: Residual) -> (crate::Parameters, SkipConnection, Dropout) {
        let block = BlockOptions {
            dim: 3,
            residual,
            ..BlockOptions::default()
        };
        let parameters = parameters();
        let vb = parameters.builder();
        let join = SkipConnection::new(&vb.pp("sublayer"), &vb, &block).unwrap();
        let dropout = Dropout::new(&vb.pp("drop"), 0.3);
        (parameters, join, dropout)
    }

    #[test]
    fn gradients_agree_with_differences() {
        let pass = Pass::new(true, RngKey::new(1, 0, 0));
        for residual in [
            Residual::Plain,
            Residual::Gru,
            Residual::Rezero,
            Residual::Admin,
            Residual::Layerscale,
        ] {
            let (parameters, join, dropout) = join(residual);
            check_layer(&format!("{residual:?}"), &parameters, &[2, 2, 3], |x| {
                // A sublayer that is not linear.
                join.forward(x, &x.sqr()?, &dropout, &pass)
            });
        }
    }

    #[test]
    fn each_begins_near_what_its_paper_wants() {
        let pass = Pass::new(false, RngKey::new(1, 0, 0));
        let (x, y) = (normal("x", &[1, 2, 3]), normal("y", &[1, 2, 3]));
        let start = |residual| {
            let (_, join, dropout) = join(residual);
            join.forward(&x, &y, &dropout, &pass).unwrap()
        };
        close(
            &start(Residual::Rezero),
            &x,
            1e-12,
            "rezero is the identity",
        );
        close(
            &start(Residual::Layerscale),
            &(&x + &y).unwrap(),
            1e-12,
            "layerscale",
        );
        // Two layers are four sublayers: √(5/ln 5 - 1).
        let omega = (5.0 / 5f64.ln() - 1.0).sqrt();
        let expected = ((&x * omega).unwrap() + &y).unwrap();
        close(&start(Residual::Admin), &expected, 1e-12, "admin");
        // Without feed-forward networks they are two.
        let parameters = parameters();
        let vb = parameters.builder();
        let block = BlockOptions {
            dim: 3,
            layers: 2,
            residual: Residual::Admin,
            ffn: ChannelKind::None,
            ..BlockOptions::default()
        };
        match SkipConnection::new(&vb, &vb, &block).unwrap() {
            SkipConnection::Admin(omega) => {
                let omega = omega.to_vec1::<f64>().unwrap()[0];
                assert!(
                    (omega - (3.0 / 3f64.ln() - 1.0).sqrt()).abs() < 1e-12,
                    "{omega}"
                );
            }
            _ => panic!("admin has ω"),
        }
    }
}
