//! Token ids to vectors: embedding, CLS token, positions, dropout.

use candle_core::{DType, Device, Tensor};
use candle_nn::Init;

use crate::{
    Error, Mask, Pass, Result, VarBuilder,
    layers::{ComplexEmbedding, Dropout},
    ops::{cat, embed, linear},
    options::{EmbedOptions, Input, Positions, ScalarInit},
    params::{Attributes, LECUN_NORMAL, xavier_uniform},
};

/// Token embedding, an optional CLS token put before the sequence, positions, dropout.
pub struct Embedding {
    tokens: Table,
    cls: Option<Tensor>,
    positions: Option<Tensor>,
    dropout: Dropout,
    zero_is_padding: bool,
}

/// Table in which ids are looked up.
enum Table {
    /// A vector for each id, (V, D).
    Rows(Tensor),
    /// A vector for each id that turns with the position.
    Complex(ComplexEmbedding),
    /// A linear map of a number.
    Scalar(Scalar),
}

/// w z + b, z = (id / (V - 1) - mean) / std.
struct Scalar {
    /// (D).
    weight: Tensor,
    /// (D).
    bias: Tensor,
    /// Factor and offset that make z of an id.
    scale: (f64, f64),
}

impl Scalar {
    fn new(vb: &VarBuilder, options: &EmbedOptions, vocabulary: usize, dim: usize) -> Result<Self> {
        let uniform = Init::Uniform { lo: -1.0, up: 1.0 };
        let normal = |stdev| Init::Randn { mean: 0.0, stdev };
        let (weight, bias) = match options.scalar_init {
            ScalarInit::KaimingUniform => (uniform, uniform),
            ScalarInit::LecunNormal => (LECUN_NORMAL, Init::Const(0.0)),
            ScalarInit::XavierUniform => (xavier_uniform(1, dim), Init::Const(0.0)),
            ScalarInit::Normal => (normal(1.0), normal(0.1)),
        };
        let largest = vocabulary.saturating_sub(1).max(1) as f64;
        Ok(Self {
            weight: vb.get_with_hints(dim, "weight", weight)?,
            bias: vb.get_with_hints(dim, "bias", bias)?,
            scale: (1.0 / (largest * options.std), -options.mean / options.std),
        })
    }

    /// Ids (B, L) to (B, L, D).
    fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        let z = ids
            .to_dtype(self.weight.dtype())?
            .affine(self.scale.0, self.scale.1)?;
        let weight = self.weight.unsqueeze(1)?; // (D, 1)
        linear(&z.unsqueeze(2)?, &weight, Some(&self.bias))
    }
}

impl Embedding {
    /// Creates parameters `tokens` (V, D) N(0, `token_std`²), or those of [`ComplexEmbedding`] or
    /// of a linear map of the id; `cls` (1, D), if `cls`: zeros where a position vector
    /// is added to it, N(0, `token_std`²) otherwise; and `positions` (slots, D)
    /// N(0, `position_std`²), if they are learned. `max_length` does not count the CLS slot. With
    /// `meta`, for a model that is never run, zeros that take no memory stand for the sines of
    /// positions.
    ///
    /// # Errors
    /// If a path is taken by a parameter of another shape.
    pub fn new(
        vb: &VarBuilder,
        options: &EmbedOptions,
        vocabulary: usize,
        dim: usize,
        max_length: usize,
        cls: bool,
        meta: bool,
    ) -> Result<Self> {
        let normal = |stdev| Init::Randn { mean: 0.0, stdev };
        let slots = max_length + usize::from(cls);
        let table = |rows, name, init| {
            vb.get_with_attributes((rows, dim), name, init, Attributes::NO_DECAY)
        };
        let tokens = match options.positions {
            Positions::Complex => {
                Table::Complex(ComplexEmbedding::new(&vb.pp("tokens"), vocabulary, dim)?)
            }
            _ if options.input == Input::Scalar => {
                Table::Scalar(Scalar::new(&vb.pp("tokens"), options, vocabulary, dim)?)
            }
            _ => Table::Rows(table(vocabulary, "tokens", normal(options.token_std))?),
        };
        let positions = match options.positions {
            Positions::Learned => Some(table(slots, "positions", normal(options.position_std))?),
            Positions::Sinusoid if meta => {
                let zero = Tensor::zeros((1, 1), vb.dtype(), vb.device())?;
                Some(zero.broadcast_as((slots, dim))?)
            }
            Positions::Sinusoid => Some(sinusoid(slots, dim, vb.dtype(), vb.device())?),
            Positions::Complex | Positions::Conditional | Positions::None => None,
        };
        let start = match positions {
            Some(_) => Init::Const(0.0),
            None => normal(options.token_std),
        };
        let cls = cls.then(|| table(1, "cls", start)).transpose()?;
        Ok(Self {
            tokens,
            cls,
            positions,
            dropout: Dropout::new(&vb.pp("drop"), options.dropout),
            zero_is_padding: options.zero_is_padding,
        })
    }

    /// Returns the position vectors (slots, D), if the embedding has any.
    #[must_use]
    pub fn positions(&self) -> Option<&Tensor> {
        self.positions.as_ref()
    }

    /// Returns whether the vector of a token depends on its id alone, so that sequences may be
    /// packed.
    #[must_use]
    pub fn supports_varlen(&self) -> bool {
        self.cls.is_none() && self.positions.is_none() && !matches!(self.tokens, Table::Complex(_))
    }

    /// Returns whether an id beyond the vocabulary can have a vector of its own.
    #[must_use]
    pub fn takes_more(&self) -> bool {
        matches!(self.tokens, Table::Rows(_))
    }

    /// Returns a mask of the valid ones among the ids (B, L), given the task's mask, if it has one;
    /// none if all are valid.
    ///
    /// # Errors
    /// If a tensor operation fails.
    pub fn valid(&self, ids: &Tensor, mask: Option<&Tensor>) -> Result<Option<Tensor>> {
        Ok(match (mask, self.zero_is_padding) {
            (Some(mask), _) => Some(mask.clone()),
            (None, true) => Some(ids.ne(0u32)?),
            (None, false) => None,
        })
    }

    /// Maps ids (B, L) and mask to vectors (B, L', D) and the mask over L', where L' counts the CLS
    /// slot, which is always valid. `more` (1, D) is the vector of the id behind the last of the
    /// vocabulary.
    ///
    /// # Errors
    /// If the sequence is longer than the position table, or in main memory an id has no row in the
    /// token table.
    pub fn forward(
        &self,
        ids: &Tensor,
        mask: Option<&Tensor>,
        more: Option<&Tensor>,
        pass: &Pass,
    ) -> Result<(Tensor, Option<Mask>)> {
        let (batch, length) = ids.dims2()?;
        let slots = length + usize::from(self.cls.is_some());
        let positions = match &self.positions {
            Some(table) if slots > table.dim(0)? => {
                let most = table.dim(0)? + length - slots;
                return Err(Error::Input(format!(
                    "{length} tokens, but the model was built for at most {most}"
                )));
            }
            Some(table) => Some(table.narrow(0, 0, slots)?),
            None => None,
        };
        let x = match &self.tokens {
            Table::Rows(tokens) => {
                let table = match more {
                    Some(more) => Tensor::cat(&[tokens, more], 0)?,
                    None => tokens.clone(),
                };
                embed(ids, &table, self.cls.as_ref(), positions.as_ref())?
            }
            Table::Complex(tokens) => self.after_cls(&tokens.forward(ids, slots - length)?)?,
            Table::Scalar(tokens) => {
                let x = self.after_cls(&tokens.forward(ids)?)?;
                match &positions {
                    Some(positions) => x.broadcast_add(positions)?,
                    None => x,
                }
            }
        };
        let mask = match self.valid(ids, mask)? {
            Some(valid) => {
                let valid = valid.to_dtype(x.dtype())?;
                // A GPU makes no tensor without elements.
                let valid = match slots - length {
                    0 => valid,
                    slots => {
                        let cls = Tensor::ones((batch, slots), valid.dtype(), valid.device())?;
                        Tensor::cat(&[&cls, &valid], 1)?
                    }
                };
                Some(Mask::new(&valid)?)
            }
            None => None,
        };
        Ok((self.dropout.forward(&x, pass)?, mask))
    }

    /// Returns x (B, L, D) behind the CLS token, if there is one.
    fn after_cls(&self, x: &Tensor) -> Result<Tensor> {
        let Some(cls) = &self.cls else {
            return Ok(x.clone());
        };
        let (batch, _, dim) = x.dims3()?;
        let cls = cls.broadcast_as((batch, 1, dim))?;
        cat(&[&cls, x], 1)
    }
}

/// Returns (length, dim): channel 2i of position p is `sin(p / 10000^(2i / dim))`, channel 2i + 1
/// the cosine of the same angle.
///
/// # Errors
/// If the device refuses the table.
pub fn sinusoid(length: usize, dim: usize, dtype: DType, device: &Device) -> Result<Tensor> {
    let mut table = Vec::with_capacity(length * dim);
    for position in 0..length {
        for channel in 0..dim {
            let exponent = (channel - channel % 2) as f64 / dim as f64;
            let angle = position as f64 / 10_000f64.powf(exponent);
            table.push(if channel % 2 == 0 {
                angle.sin()
            } else {
                angle.cos()
            });
        }
    }
    Ok(Tensor::from_vec(table, (length, dim), &Device::Cpu)?
        .to_dtype(dtype)?
        .to_device(device)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        RngKey,
        testing::{check_layer, parameters},
    };

    fn pass() -> Pass<'static> {
        Pass::new(false, RngKey::new(1, 0, 0))
    }

    fn ids() -> Tensor {
        Tensor::new(&[[1u32, 2, 1], [3, 0, 0]], &Device::Cpu).unwrap()
    }

    #[test]
    fn gradients_agree_with_differences() {
        for cls in [false, true] {
            let parameters = parameters();
            let options = EmbedOptions {
                positions: Positions::Learned,
                dropout: 0.0,
                ..EmbedOptions::default()
            };
            let vb = parameters.builder();
            let embedding = Embedding::new(&vb, &options, 4, 2, 3, cls, false).unwrap();
            // The added x has the output's shape and gives the helper an input to differentiate by.
            check_layer(
                "embedding",
                &parameters,
                &[2, 3 + usize::from(cls), 2],
                |x| {
                    let (y, _) = embedding.forward(&ids(), None, None, &pass())?;
                    Ok((y + x)?)
                },
            );
        }
    }

    #[test]
    fn the_cls_slot_comes_first_and_is_real() {
        let parameters = parameters();
        let vb = parameters.builder();
        let options = EmbedOptions::default();
        let embedding = Embedding::new(&vb, &options, 4, 6, 3, true, false).unwrap();
        let valid = Tensor::new(&[[1f32, 1.0, 1.0], [1.0, 0.0, 0.0]], &Device::Cpu).unwrap();
        let (x, mask) = embedding
            .forward(&ids(), Some(&valid), None, &pass())
            .unwrap();
        let x: Vec<Vec<Vec<f64>>> = x.to_vec3().unwrap();
        assert_eq!(x[0][0], [0.0, 1.0, 0.0, 1.0, 0.0, 1.0]); // zeros + position 0
        let valid: Vec<Vec<f64>> = mask.unwrap().valid().to_vec2().unwrap();
        assert_eq!(valid, [[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 0.0, 0.0]]);
    }

    #[test]
    fn id_0_is_padding_where_the_options_say_so() {
        for zero_is_padding in [false, true] {
            let parameters = parameters();
            let options = EmbedOptions {
                zero_is_padding,
                ..EmbedOptions::default()
            };
            let vb = parameters.builder();
            let embedding = Embedding::new(&vb, &options, 4, 6, 3, true, false).unwrap();
            let (_, mask) = embedding.forward(&ids(), None, None, &pass()).unwrap();
            let valid = mask.map(|mask| mask.valid().to_vec2::<f64>().unwrap());
            let expected = [[1.0; 4], [1.0, 1.0, 0.0, 0.0]].map(|row| row.to_vec());
            assert_eq!(valid, zero_is_padding.then_some(expected.to_vec()));
        }
    }

    #[test]
    fn where_a_task_has_a_mask_ids_say_nothing_about_padding() {
        let parameters = parameters();
        let options = EmbedOptions {
            zero_is_padding: true,
            ..EmbedOptions::default()
        };
        let vb = parameters.builder();
        let embedding = Embedding::new(&vb, &options, 4, 6, 3, false, false).unwrap();
        let ones = Tensor::ones((2, 3), DType::F32, &Device::Cpu).unwrap();
        let valid = embedding.valid(&ids(), Some(&ones)).unwrap().unwrap();
        assert_eq!(valid.to_vec2::<f32>().unwrap(), [[1.0; 3]; 2]);
    }

    #[test]
    fn sines_and_cosines_of_one_angle_alternate() {
        let table = sinusoid(4, 6, DType::F64, &Device::Cpu).unwrap();
        let table: Vec<Vec<f64>> = table.to_vec2().unwrap();
        for (position, row) in table.iter().enumerate() {
            for pair in 0..3 {
                let angle = position as f64 * 10_000f64.powf(-2.0 * pair as f64 / 6.0);
                assert!((row[2 * pair] - angle.sin()).abs() < 1e-12);
                assert!((row[2 * pair + 1] - angle.cos()).abs() < 1e-12);
            }
        }
    }
}
