//! The registry of models: one file each, a `mod` line, and an entry in [`MODELS`]. CONTRIBUTING.md
//! lists what else a new model needs. A model that is another one with different settings goes to
//! `presets`.

use std::sync::OnceLock;

use crate::{Error, Model, Result};

mod adaptive_span;
mod b2s6;
mod bag;
mod bigbird;
mod cdil;
mod chordmixer;
mod clustered;
mod collaborative;
mod compressed;
mod compressive;
mod conv;
mod cosformer;
mod deltanet;
mod dlr;
mod dss;
mod flowformer;
mod fnet;
mod funnel;
mod gated_deltanet;
mod gau;
mod gla;
mod gmlp;
mod griffin;
mod gru;
mod h3;
mod h_transformer_1d;
mod hard_coded;
mod hgrn;
mod hgrn2;
mod hierarchical;
mod hrrformer;
mod hydra;
mod hyena;
mod image;
mod informer;
mod kda;
mod lazyformer;
mod linear;
mod linformer;
mod linoss;
mod lion;
mod lite;
mod local;
mod long_conv;
mod long_short;
mod longformer;
mod lru;
mod lstm;
mod luna;
mod mamba;
mod mamba2;
mod mega;
mod megalodon;
mod min_gru;
mod min_lstm;
mod mlp_mixer;
mod mra;
mod multires;
mod nystromformer;
mod performer;
mod ponet;
mod presets;
mod primal;
mod realformer;
mod reformer;
mod retnet;
mod rfa;
mod routing;
mod rtf;
mod rwkv4;
mod rwkv6;
mod rwkv7;
mod s4;
mod s4d;
mod s5;
mod seqboat;
mod set;
mod sgconv;
mod sinkhorn;
mod skyformer;
mod slstm;
mod sparse;
mod synthesizer;
mod talking_heads;
mod tay2021;
mod tnn;
mod transformer;
mod transformer_xl;
mod universal;
mod xcit;
mod xlstm;
mod yoso;

/// Every model, in the order of the published tables; `bag`, the floor, is the last.
pub static MODELS: &[&Model] = &[
    &transformer::MODEL,
    &local::MODEL,
    &sparse::MODEL,
    &longformer::MODEL,
    &linformer::MODEL,
    &reformer::MODEL,
    &sinkhorn::MODEL,
    &synthesizer::MODEL,
    &bigbird::MODEL,
    &linear::MODEL,
    &performer::MODEL,
    &nystromformer::MODEL,
    &long_short::MODEL,
    &rfa::MODEL,
    &fnet::MODEL,
    &mlp_mixer::MODEL,
    &gmlp::MODEL,
    &xcit::MODEL,
    &presets::switch::MODEL,
    &presets::moe::MODEL,
    &presets::gtrxl::MODEL,
    &presets::rezero::MODEL,
    &presets::admin::MODEL,
    &presets::t5::MODEL,
    &presets::alibi::MODEL,
    &presets::roformer::MODEL,
    &presets::deberta::MODEL,
    &presets::all_attention::MODEL,
    &presets::product_keys::MODEL,
    &set::MODEL,
    &talking_heads::MODEL,
    &realformer::MODEL,
    &lazyformer::MODEL,
    &collaborative::MODEL,
    &hard_coded::MODEL,
    &funnel::MODEL,
    &compressed::MODEL,
    &image::MODEL,
    &clustered::MODEL,
    &lite::MODEL,
    &hierarchical::MODEL,
    &transformer_xl::MODEL,
    &compressive::MODEL,
    &universal::MODEL,
    &adaptive_span::MODEL,
    &routing::MODEL,
    &informer::MODEL,
    &mega::MODEL,
    &mega::chunk::MODEL,
    &megalodon::MODEL,
    &seqboat::MODEL,
    &gau::MODEL,
    &gau::flash::MODEL,
    &chordmixer::MODEL,
    &cosformer::MODEL,
    &luna::MODEL,
    &mra::MODEL,
    &h_transformer_1d::MODEL,
    &skyformer::MODEL,
    &flowformer::MODEL,
    &hrrformer::MODEL,
    &ponet::MODEL,
    &yoso::MODEL,
    &primal::MODEL,
    &tnn::MODEL,
    &mamba::MODEL,
    &b2s6::MODEL,
    &mamba2::MODEL,
    &hydra::MODEL,
    &retnet::MODEL,
    &gla::MODEL,
    &hgrn::MODEL,
    &hgrn2::MODEL,
    &lion::MODEL,
    &deltanet::MODEL,
    &gated_deltanet::MODEL,
    &kda::MODEL,
    &min_gru::MODEL,
    &min_lstm::MODEL,
    &griffin::MODEL,
    &lstm::MODEL,
    &gru::MODEL,
    &xlstm::MODEL,
    &slstm::MODEL,
    &rwkv4::MODEL,
    &rwkv6::MODEL,
    &rwkv7::MODEL,
    &s4::MODEL,
    &s4d::MODEL,
    &dss::MODEL,
    &dlr::MODEL,
    &s5::MODEL,
    &lru::MODEL,
    &linoss::MODEL,
    &rtf::MODEL,
    &sgconv::MODEL,
    &long_conv::MODEL,
    &conv::MODEL,
    &cdil::MODEL,
    &multires::MODEL,
    &h3::MODEL,
    &hyena::MODEL,
    &bag::MODEL,
];

static REGISTRY: OnceLock<Vec<&'static Model>> = OnceLock::new();

/// Returns every model that a program knows: [`MODELS`], and behind them those that it has
/// [`register`]ed.
#[must_use]
pub fn registry() -> &'static [&'static Model] {
    REGISTRY.get_or_init(|| MODELS.to_vec())
}

/// Adds a program's own models behind [`MODELS`], so that all users of the [`registry`] know them.
/// It can be called once, before the registry is first read.
///
/// # Errors
/// If the registry has been read or filled before, or a name is taken, is not made of `a` to `z`,
/// `0` to `9` and `_`, or has no variant.
pub fn register(models: &[&'static Model]) -> Result<()> {
    let refuse = |reason: String| Err(Error::Input(format!("your own models: {reason}")));
    let mut all = MODELS.to_vec();
    for model in models {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if model.name.is_empty() || !model.name.chars().all(plain) {
            let name = model.name;
            return refuse(format!("{name:?} is not made of a to z, 0 to 9 and _"));
        }
        if all.iter().any(|other| other.name == model.name) {
            return refuse(format!("there is a model called {}", model.name));
        }
        if model.variants.is_empty() {
            return refuse(format!("{} has no variant", model.name));
        }
        all.push(model);
    }
    match REGISTRY.set(all) {
        Ok(()) => Ok(()),
        Err(_) => refuse("the registry is in use".to_owned()),
    }
}

/// Returns the model called `name` from the [`registry`]. `None` if there is none.
#[must_use]
pub fn find(name: &str) -> Option<&'static Model> {
    registry().iter().copied().find(|model| model.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_taken_or_cannot_be_typed_are_refused() {
        static TAKEN: Model = bag::MODEL;
        static SPACED: Model = Model {
            name: "my model",
            ..bag::MODEL
        };
        static EMPTY: Model = Model {
            name: "empty",
            variants: &[],
            ..bag::MODEL
        };
        for (model, reason) in [
            (&TAKEN, "there is a model called bag"),
            (&SPACED, "\"my model\" is not made of"),
            (&EMPTY, "empty has no variant"),
        ] {
            let message = register(&[model]).unwrap_err().to_string();
            assert!(message.contains(reason), "{message}");
        }
        assert_eq!(registry().len(), MODELS.len());
    }
}
