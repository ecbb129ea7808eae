//! The heads: one for the whole sequence, and one for single positions.

use candle_core::{D, Tensor};
use candle_nn::Init;

use crate::{
    Result, Shape, VarBuilder,
    layers::Linear,
    ops::activation::relu,
    options::{Features, HeadOptions},
    params::LECUN_NORMAL,
};

/// softmax(W h + b) from the hidden state h (D) of a position; W (C, D), b (C).
pub(crate) struct PositionHead(Linear);

impl PositionHead {
    /// Creates parameters `weight` (C, D) and `bias` (C).
    pub(crate) fn new(vb: &VarBuilder, dim: usize, classes: usize) -> Result<Self> {
        let bias = Some(Init::Const(0.0));
        Linear::new(vb, dim, classes, LECUN_NORMAL, bias).map(Self)
    }

    /// Maps states (N, D) to logits (N, C).
    pub(crate) fn forward(&self, states: &Tensor) -> Result<Tensor> {
        self.0.forward(states)
    }

    /// Counts the operations for so many positions.
    pub(crate) fn flops(&self, positions: usize) -> u64 {
        self.0.flops(positions)
    }
}

/// Dense -> ReLU -> Dense; for two towers Dense -> ReLU -> Dense (half as wide) -> ReLU -> Dense.
pub(crate) struct Head {
    layers: Vec<Linear>,
    features: Features,
}

impl Head {
    pub(crate) fn new(
        vb: &VarBuilder,
        options: &HeadOptions,
        shape: &Shape,
        dim: usize,
    ) -> Result<Self> {
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

    /// Maps pooled towers, each (B, D), to logits (B, C).
    pub(crate) fn forward(&self, pooled: &[Tensor]) -> Result<Tensor> {
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

    pub(crate) fn flops(&self) -> u64 {
        self.layers.iter().map(|layer| layer.flops(1)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{parameters, shape};

    #[test]
    fn the_second_hidden_layer_of_two_towers_is_half_as_wide_rounded_down() {
        for (hidden, half) in [(8, 4), (7, 3), (1, 1)] {
            let parameters = parameters();
            let options = HeadOptions {
                hidden,
                ..HeadOptions::default()
            };
            Head::new(&parameters.builder(), &options, &shape(2), 4).unwrap();
            let all = parameters.all();
            let (_, weight) = all.iter().find(|(path, _)| path == "1.weight").unwrap();
            assert_eq!(weight.dims(), [half, hidden]);
        }
    }
}
