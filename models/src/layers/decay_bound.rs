//! Lower bounds of decays that grow with the layer (HGRN, arXiv:2311.04823): γ of layer l is the
//! sum of softmax(Γ) over layers 1 to l, for Γ (layers, W) that all layers share, zeros at first: γ
//! is then l/n in layer l of n, counted from 0. The authors' code for this benchmark sums layers 0
//! to l - 1 (OpenNLPLab/lra@dd871ef src/models/sequence/model.py), the same function with the rows
//! of Γ in another order.

use candle_core::{D, Tensor};
use candle_nn::Init;

use crate::{LayerContext, Result, ops::softmax, params::Attributes};

/// Lower bound γ (W) of the decays of one layer.
pub struct DecayBound {
    /// Γ and the number of the layer; none in the first, whose bound is 0.
    shared: Option<(Tensor, usize)>,
}

impl DecayBound {
    /// Creates the parameter `bias.bound` (layers, `width`) that all layers share, unless `layer` is
    /// the first of them.
    ///
    /// # Errors
    /// If a path is taken by a parameter of another shape.
    pub fn new(layer: &LayerContext, width: usize) -> Result<Self> {
        let create = || {
            let bounds = layer.shared.pp("bias");
            let shape = (layer.block.layers, width);
            let (start, attributes) = (Init::Const(0.0), Attributes::NO_DECAY);
            bounds.get_with_attributes(shape, "bound", start, attributes)
        };
        let shared = (layer.index > 0).then(create).transpose()?;
        Ok(Self {
            shared: shared.map(|bounds| (bounds, layer.index)),
        })
    }

    /// Returns 1 - γ (W); none in the first layer, where it is 1.
    ///
    /// # Errors
    /// If a tensor operation fails.
    pub fn room(&self) -> Result<Option<Tensor>> {
        let Some((bounds, index)) = &self.shared else {
            return Ok(None);
        };
        let shares = softmax::masked(&bounds.t()?.contiguous()?, None)?; // (W, layers)
        let below = shares.narrow(1, 1, *index)?.sum(D::Minus1)?;
        Ok(Some(below.affine(-1.0, 1.0)?))
    }
}

#[cfg(test)]
mod tests {
    use candle_core::Device;

    use super::*;
    use crate::{
        options::BlockOptions,
        testing::{close, parameters},
    };

    #[test]
    fn bounds_grow_with_the_layer_and_are_one_parameter() {
        let parameters = parameters();
        let block = BlockOptions {
            layers: 3,
            ..BlockOptions::default()
        };
        for (index, room) in [1.0, 2.0 / 3.0, 1.0 / 3.0].into_iter().enumerate() {
            let layer = LayerContext {
                index,
                ..LayerContext::new(parameters.builder(), &block, 9)
            };
            let actual = DecayBound::new(&layer, 4).unwrap().room().unwrap();
            let expected = Tensor::full(room, 4, &Device::Cpu).unwrap();
            match actual {
                Some(actual) => close(&actual, &expected, 1e-12, "room"),
                None => assert_eq!(index, 0),
            }
        }
        assert_eq!(parameters.paths(), ["bias.bound"]);
    }
}
