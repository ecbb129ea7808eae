//! Separable convolutions in place of linear layers. Dehghani et al., 2018, "Universal
//! Transformers", arXiv:1807.03819.
//!     y = S₅(dropout(f(S₃(x)))),  S_w(x)_t = W Σ_j d_j ⊙ x_{t + j - (w - 1) / 2} + b
//! x, y (B, L, D); S₃ has d (3, D), W (F, D), S₅ has d (5, F), W (D, F): each channel is convolved
//! with its own kernel, then a linear layer mixes channels. A position sees three neighbours on
//! either side. Padded positions are zeros before either convolution, so they have no effect. Time
//! O(L·D·F).

use candle_core::Tensor;
use candle_nn::Init;

use super::ChannelMixer;
use crate::{
    Mask, Pass, Result, VarBuilder,
    layers::{Dropout, Linear},
    ops::{Padding, activation, depthwise_conv1d},
    options::{Activation, BlockOptions},
    params::xavier_uniform,
};

/// Two separable convolutions with an activation between, S₅(dropout(f(S₃(x)))): (B, L, D) ->
/// (B, L, D). The inner one is 3 positions wide, the outer one 5.
pub struct SeparableConv {
    inner: Separable,
    outer: Separable,
    activation: Activation,
    dropout: Dropout,
}

/// Separable convolution S_w: a depthwise one of width w, then a linear layer.
struct Separable {
    /// d, one row per channel: (inputs, w).
    kernel: Tensor,
    linear: Linear,
    width: usize,
    channels: usize,
}

impl Separable {
    fn new(vb: &VarBuilder, inputs: usize, outputs: usize, width: usize) -> Result<Self> {
        let reach = (width as f64).powf(-0.5);
        let kernel = Init::Uniform {
            lo: -reach,
            up: reach,
        };
        let bias = Init::Const(0.0);
        Ok(Self {
            kernel: vb.get_with_hints((inputs, width), "kernel", kernel)?,
            linear: Linear::new(
                vb,
                inputs,
                outputs,
                xavier_uniform(inputs, outputs),
                Some(bias),
            )?,
            width,
            channels: inputs,
        })
    }

    fn forward(&self, x: &Tensor, mask: Option<&Mask>) -> Result<Tensor> {
        let x = match mask {
            Some(mask) => &x.broadcast_mul(&mask.valid().unsqueeze(2)?)?,
            None => x,
        };
        let x = depthwise_conv1d(x, &self.kernel, None, Padding::Same, 1)?;
        self.linear.forward(&x)
    }

    fn flops(&self, length: usize) -> u64 {
        2 * (length * self.width * self.channels) as u64 + self.linear.flops(length)
    }
}

impl SeparableConv {
    /// Creates parameters `kernel`, `weight` and `bias` of `inner` and `outer`.
    ///
    /// # Errors
    /// If a path is taken by a parameter of another shape.
    pub fn new(vb: &VarBuilder, block: &BlockOptions) -> Result<Self> {
        let (dim, hidden) = (block.dim, block.mlp_dim);
        Ok(Self {
            inner: Separable::new(&vb.pp("inner"), dim, hidden, 3)?,
            outer: Separable::new(&vb.pp("outer"), hidden, dim, 5)?,
            activation: block.activation,
            dropout: Dropout::new(&vb.pp("drop"), block.dropout),
        })
    }
}

impl ChannelMixer for SeparableConv {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let hidden = self.inner.forward(x, pass.mask())?;
        let hidden = activation::apply(self.activation, &hidden)?;
        let hidden = self.dropout.forward(&hidden, pass)?;
        self.outer.forward(&hidden, pass.mask())
    }

    fn flops(&self, length: usize) -> u64 {
        self.inner.flops(length) + self.outer.flops(length)
    }
}
