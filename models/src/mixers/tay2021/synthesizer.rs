//! The 2021 code's Synthesizer: the mixture is the plain sum q·k / √E + S. Its working
//! configurations all have `scores=random`, the default. The factors of `factorised_random` start
//! Xavier-uniform, with JAX's bound for three dimensions, √(6 / (H·(N + K))), and `rank` K = 32
//! unless it is set. Without the dot product that code has no mask, so `dot_product=false` is
//! refused here. So are `dense` scores, whose axes of positions and heads that code mixes by a
//! reshape, and the forms that it does not have.

use crate::{
    mixers::synthesizer::{self, Form, Options, Scores},
    prelude::*,
};

pub const VARIANT: Variant = Variant {
    name: "tay2021",
    ..Variant::paper(build, include_str!("synthesizer.rs"))
};

fn build(context: &ModelContext) -> Result<Box<dyn Encoder>> {
    let options: Options = context.options()?;
    require(
        options.dot_product,
        "model.dot_product",
        "false",
        "true with model.variant = tay2021, which masks no padding without it",
    )?;
    require(
        matches!(options.scores, Scores::Random | Scores::FactorisedRandom),
        "model.scores",
        to_json(&options.scores),
        "random or factorised_random with model.variant = tay2021",
    )?;
    let form = Form {
        mixed: false,
        rank: 32,
        factors: |heads, longest, rank| xavier_uniform(heads * longest, heads * rank),
    };
    synthesizer::encoder(context, form)
}

#[cfg(test)]
mod tests {
    use candle_core::{DType, Device};
    use serde_json::json;

    use crate::{Parameters, context::ModelContext, mixers, options::BlockOptions};

    #[test]
    fn factors_start_as_jax_begins_three_dimensions_by_xavier() {
        let parameters = Parameters::new(3, &Device::Cpu, DType::F32);
        let model = mixers::find("synthesizer").unwrap();
        let mut options = model.defaults();
        options["variant"] = json!("tay2021");
        options["scores"] = json!("factorised_random");
        let block = BlockOptions {
            layers: 1,
            heads: 4,
            ..BlockOptions::default()
        };
        let build = ModelContext::new(parameters.builder(), &block, model, &options, 100);
        model.build(&build).unwrap();
        let all = parameters.all();
        let (_, left) = all.iter().find(|(path, _)| path.ends_with("left")).unwrap();
        assert_eq!(left.dims(), [4, 100, 32]);
        let values: Vec<f32> = left.flatten_all().unwrap().to_vec1().unwrap();
        let most = values.iter().fold(0f32, |most, x| most.max(x.abs()));
        let variance = values.iter().map(|x| x * x).sum::<f32>() / values.len() as f32;
        // fan_in 4·100 and fan_out 4·32: bound √(6 / 528), standard deviation √(2 / 528).
        let bound = (6f32 / 528.0).sqrt();
        assert!((0.99 * bound..=bound).contains(&most), "{most}");
        assert!((variance * 264.0 - 1.0).abs() < 0.05, "{variance}");
    }
}
