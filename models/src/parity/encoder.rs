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
            cls: self.flag("cls")?,
            geometry: self.geometry()?,
            conditional: options.embed.positions == Positions::Conditional,
            layers: options.head.layers,
            ..ModelContext::new(
                parameters.builder(),
                &options.block,
                self.model,
                &options.model,
                self.max_length(length)?,
            )
        })?;
        self.compare_pass(&parameters, "", "out/hidden", |x, pass| {
            encoder.forward(x, pass)
        })
    }
}
