//! Cases of an encoder: whole blocks, or a skeleton of its own.

use candle_core::{DType, Device};

use super::{Case, Row};
use crate::{Parameters, Result, context::ModelContext, options::Positions};

impl Case {
    pub(super) fn run_encoder(&self) -> Result<Vec<Row>> {
        let options = self.whole_options()?;
        options.validate()?;
        let length = self.tensor("in/x")?.dim(1)?;
        let parameters = Parameters::new(0, &Device::Cpu, DType::F32);
        let encoder = self.model.build(&ModelContext {
            vb: parameters.builder(),
            block: &options.block,
            model: &options.model,
            max_length: self.number("max_length", length)?,
            cls: self.flag("cls"),
            geometry: self.geometry()?,
            positions: None,
            conditional: options.embed.positions == Positions::Conditional,
            layers: options.head.layers,
            name: self.model.name,
        })?;
        self.compare_pass(&parameters, "", "out/hidden", |x, pass| {
            encoder.forward(x, pass)
        })
    }
}
