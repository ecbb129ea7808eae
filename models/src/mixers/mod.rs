//! The registry. To add a model: one file here, its `mod` line, its entry in [`MODELS`]; parity cases and the count of its weights under
//! `models/tests`. One that is another with settings of its own stands in `presets`. To add a variant: its entry in the model's list.

use crate::Model;

mod adaptive_span;
mod bag;
mod bigbird;
mod chordmixer;
mod clustered;
mod collaborative;
mod compressed;
mod compressive;
mod cosformer;
mod fnet;
mod funnel;
mod gau;
mod gmlp;
mod h_transformer_1d;
mod hard_coded;
mod hierarchical;
mod image;
mod informer;
mod lazyformer;
mod linear;
mod linformer;
mod lite;
mod local;
mod long_conv;
mod long_short;
mod longformer;
mod lru;
mod luna;
mod mamba;
mod mega;
mod mlp_mixer;
mod mra;
mod nystromformer;
mod performer;
mod presets;
mod realformer;
mod reformer;
mod rfa;
mod routing;
mod rtf;
mod s4d;
mod s5;
mod set;
mod sgconv;
mod sinkhorn;
mod skyformer;
mod sparse;
mod synthesizer;
mod talking_heads;
mod tay2021;
mod tnn;
mod transformer;
mod transformer_xl;
mod universal;
mod xcit;

/// Every model, in the order of the published tables.
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
    &gau::MODEL,
    &gau::flash::MODEL,
    &chordmixer::MODEL,
    &cosformer::MODEL,
    &luna::MODEL,
    &mra::MODEL,
    &h_transformer_1d::MODEL,
    &skyformer::MODEL,
    &tnn::MODEL,
    &mamba::MODEL,
    &s4d::MODEL,
    &s5::MODEL,
    &lru::MODEL,
    &rtf::MODEL,
    &sgconv::MODEL,
    &long_conv::MODEL,
    &bag::MODEL,
];

/// The model called `name`.
#[must_use]
pub fn find(name: &str) -> Option<&'static Model> {
    MODELS.iter().copied().find(|model| model.name == name)
}
