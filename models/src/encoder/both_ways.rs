//! A causal mixer in both directions.
//!
//! | `direction` | y | source |
//! |---|---|---|
//! | `forward` | f(x) | |
//! | `sum` | f(x) + flip(f(flip(x))), with the same weights | HGRN, arXiv:2311.04823 |
//! | `two` | f(x) + flip(g(flip(x))), g with weights of its own | ELMo, arXiv:1802.05365, summed |
//!
//! A position counts itself twice. Dropout draws anew on the way back. Padding is flipped, too: it
//! comes first then, which a mixer that leaves states as they were at padding does not notice.

use candle_core::Tensor;
use serde::{Deserialize, Serialize};

use super::{Encoder, blocks};
use crate::{LayerContext, Mask, Mixer, ModelContext, Pass, Result, loss::Loss, ops::flip};

/// Value of the option `direction`, for models whose causal mixer can also run from the last
/// position to the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ways {
    /// The mixer runs from the first position to the last.
    #[default]
    Forward,
    /// The mixer runs in both directions with the same weights, and the outputs are added.
    Sum,
    /// The mixer runs in both directions, each with its own weights, and the outputs are added.
    /// Weights of the way back are below `back` at the mixer's path.
    Two,
}

/// Returns a stack of residual blocks around the mixers that `mixer` makes, in the directions that
/// `ways` says.
///
/// # Errors
/// Errors of [`blocks`].
pub(crate) fn blocks_both_ways(
    context: &ModelContext,
    ways: Ways,
    mixer: impl Fn(&LayerContext) -> Result<Box<dyn Mixer>>,
) -> Result<Box<dyn Encoder>> {
    blocks(context, |layer| {
        let ahead = mixer(layer)?;
        let back = match ways {
            Ways::Forward => return Ok(ahead),
            Ways::Sum => None,
            Ways::Two => Some(mixer(&LayerContext {
                vb: layer.vb.pp("back"),
                shared: layer.shared.clone(),
                ..*layer
            })?),
        };
        Ok(Box::new(BothWays { ahead, back }))
    })
}

struct BothWays {
    ahead: Box<dyn Mixer>,
    /// The mixer from the end, if it is another.
    back: Option<Box<dyn Mixer>>,
}

impl BothWays {
    fn back(&self) -> &dyn Mixer {
        self.back.as_deref().unwrap_or(&*self.ahead)
    }
}

impl Mixer for BothWays {
    fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let ahead = self.ahead.forward(x, pass)?;
        let flipped = |mask: &Mask| -> Result<Mask> {
            let turned = Mask::new(&flip(mask.valid())?)?;
            Ok(if mask.is_counted() {
                turned.counted()
            } else {
                turned
            })
        };
        let mask = pass.mask().map(flipped).transpose()?;
        let pass = pass.with_mask(mask.as_ref());
        // The paths of another mixer's draws differ already.
        let pass = match self.back {
            None => pass.with_rng(pass.rng.way_back()),
            Some(_) => pass,
        };
        let back = flip(&self.back().forward(&flip(x)?, &pass)?)?;
        Ok((ahead + back)?)
    }

    fn rule_violation(&self) -> Option<&'static str> {
        self.ahead.rule_violation()
    }

    fn stops_gradients(&self) -> Option<&'static str> {
        self.ahead.stops_gradients()
    }

    fn losses(&self) -> &'static [Loss] {
        self.ahead.losses()
    }

    fn flops(&self, length: usize) -> u64 {
        self.ahead.flops(length) + self.back().flops(length)
    }
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device};

    use super::*;
    use crate::{
        Classifier, Options, Parameters, RngKey, Tokens, mixers, model::Model, testing::shape,
    };

    fn classifier(model: &Model, direction: &str, parameters: &Parameters) -> Classifier {
        let mut options = Options::of(model);
        (options.block.dim, options.block.qkv_dim) = (8, 8);
        options.model["direction"] = direction.into();
        Classifier::new(model, &shape(1), &options, parameters).unwrap()
    }

    /// A mixer that drops elements.
    struct Drops(crate::layers::Dropout);

    impl Mixer for Drops {
        fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
            self.0.forward(x, pass)
        }

        fn flops(&self, _: usize) -> u64 {
            0
        }
    }

    /// With the same weights in both directions, an element is not dropped on the way back because
    /// its mirror image is on the way ahead.
    #[test]
    fn dropout_draws_anew_on_the_way_back() {
        let parameters = Parameters::new(1, &Device::Cpu, DType::F64);
        let ahead = Box::new(Drops(crate::layers::Dropout::new(
            &parameters.builder(),
            0.5,
        )));
        let x = Tensor::ones((2, 64, 4), DType::F64, &Device::Cpu).unwrap();
        let pass = Pass::new(true, RngKey::new(1, 0, 0));
        let y = BothWays { ahead, back: None }.forward(&x, &pass).unwrap();
        let mirrored = flip(&y).unwrap();
        let apart = (y - mirrored).unwrap().abs().unwrap().sum_all().unwrap();
        assert!(apart.to_scalar::<f64>().unwrap() > 100.0, "{apart}");
    }

    /// A mixer that puts out zeros unless padded positions count.
    struct Counts;

    impl Mixer for Counts {
        fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
            let counted = pass.mask().is_some_and(Mask::is_counted);
            Ok((x * f64::from(u8::from(counted)))?)
        }

        fn flops(&self, _: usize) -> u64 {
            0
        }
    }

    #[test]
    fn padding_counts_on_the_way_back_where_it_counts_ahead() {
        let x = Tensor::ones((1, 3, 2), DType::F64, &Device::Cpu).unwrap();
        let mask = Mask::new(&Tensor::new(&[[1.0, 1.0, 0.0f64]], &Device::Cpu).unwrap());
        let mask = mask.unwrap().counted();
        let pass = Pass::new(true, RngKey::new(1, 0, 0)).with_mask(Some(&mask));
        let ahead = Box::new(Counts);
        let y = BothWays { ahead, back: None }.forward(&x, &pass).unwrap();
        assert_eq!(y.to_vec3::<f64>().unwrap(), [[[2.0; 2]; 3]]);
    }

    /// Padding behind a sequence, which comes first where it is flipped, changes no logit.
    #[test]
    fn padding_that_comes_first_changes_nothing() {
        for name in [
            "mamba",
            "mamba2",
            "retnet",
            "gla",
            "deltanet",
            "gated_deltanet",
            "kda",
            "h3",
            "hyena",
            "min_gru",
            "multires",
            "min_lstm",
            "griffin",
            "xlstm",
            "rwkv4",
            "rwkv6",
            "linoss",
            "lstm",
            "gru",
        ] {
            let model = mixers::find(name).unwrap();
            for direction in ["sum", "two"] {
                let parameters = Parameters::new(3, &Device::Cpu, DType::F64);
                let classifier = classifier(model, direction, &parameters);
                let logits = |ids: &[u32], valid: &[f32]| {
                    let row = (1, ids.len());
                    let ids = Tensor::from_slice(ids, row, &Device::Cpu).unwrap();
                    let mask = Tensor::from_slice(valid, row, &Device::Cpu).unwrap();
                    let tokens = Tokens {
                        ids,
                        mask: Some(mask),
                    };
                    let inputs = crate::Inputs {
                        towers: vec![tokens],
                    };
                    let pass = Pass::new(false, RngKey::new(1, 0, 0));
                    classifier.forward(&inputs, &pass).unwrap()
                };
                let alone = logits(&[1, 2, 3, 4], &[1.0; 4]);
                let padded = logits(&[1, 2, 3, 4, 0, 0], &[1.0, 1.0, 1.0, 1.0, 0.0, 0.0]);
                crate::testing::close(&padded, &alone, 1e-12, &format!("{name}, {direction}"));
            }
        }
    }

    /// The way back shows each position those behind it.
    #[test]
    fn a_mixer_in_both_directions_is_not_causal() {
        let model = mixers::find("gla").unwrap();
        for (direction, expected) in [("forward", true), ("sum", false), ("two", false)] {
            let parameters = Parameters::meta(&Device::Cpu, DType::F32);
            let mut options = Options::of(model);
            options.model["direction"] = direction.into();
            let (vb, block) = (parameters.builder(), &options.block);
            let context = ModelContext::new(vb, block, model, &options.model, 5);
            let encoder = model.build(&context).unwrap();
            assert_eq!(encoder.is_causal(), expected, "{direction}");
        }
    }

    #[test]
    fn weights_are_shared_or_twice_as_many() {
        let model = mixers::find("gla").unwrap();
        let count = |direction| {
            let parameters = Parameters::meta(&Device::Cpu, DType::F32);
            classifier(model, direction, &parameters);
            let paths = parameters.paths();
            paths.iter().filter(|path| path.contains(".mixer.")).count()
        };
        assert_eq!(count("forward"), count("sum"));
        assert_eq!(2 * count("forward"), count("two"));
    }
}
