//! Checks that every model passes, independent of what it computes: [`CHECKS`]. A check panics with
//! a description of the fault.
//!
//! A test over the registry runs them for the models here, and `lra check-model` runs them for a
//! user's own model.

mod causality;
mod costs;
mod effects;
mod gradients;
mod graph;
mod heap;
mod independence;
mod outputs;
mod subject;
mod training;

use self::{
    causality::a_position_sees_what_follows_unless_the_model_is_causal,
    costs::{
        operations_are_those_counted, operations_grow_as_the_card_says, time_grows_as_the_card_says,
    },
    effects::every_option_has_an_effect,
    gradients::gradients_are_difference_quotients,
    graph::{
        memory_grows_as_the_card_says, no_number_is_kept_with_fewer_bits_than_the_parameters_have,
    },
    heap::{passes_leave_no_memory_behind, peak_memory_grows_as_the_card_says},
    independence::{
        a_pass_leaves_nothing_behind, evaluation_drops_nothing, parameters_set_later_are_seen,
        rows_do_not_know_each_other,
    },
    outputs::{
        a_row_of_padding_only_is_finite_and_has_finite_gradients,
        gradients_are_finite_at_a_thousand_tokens, it_is_built_and_trained,
        kernels_and_composed_layers_agree_in_every_model,
        logits_are_finite_at_every_length_for_every_pooling,
        logits_are_finite_up_to_the_longest_task, logits_depend_on_the_tokens_for_every_pooling,
        padded_tokens_may_be_anything_where_a_variant_masks_them_and_only_there,
        padding_changes_no_logit, products_are_those_that_can_be_rounded,
        the_seed_decides_every_bit,
    },
    subject::*,
    training::{
        auxiliary_losses_are_of_each_row_and_train_their_heads_or_are_refused,
        blocks_of_every_form_train_every_parameter,
        every_parameter_has_a_finite_gradient_that_is_not_zero,
        matrices_decay_and_biases_norms_and_embeddings_do_not,
        micro_batches_draw_what_the_whole_batch_draws, the_first_loss_is_near_that_of_guessing,
        two_towers_share_weights_but_not_masks,
    },
};

use candle_core::{DType, Device, Tensor, Var, backprop::GradStore};

use crate::{
    Auxiliary, Classifier, Component, Cost, Error, Inputs, Model, Options, Parameters, Pass, Place,
    RngKey, Shape, Tokens, Variant, loss, ops,
    options::{Activation, Choice, Features, NormKind, NormPlace, Pooling, Positions, Residual},
    pass::Supervision,
    registry,
};

pub use self::{
    costs::{ProcessorSeconds, time_passes_by},
    heap::{HeapPeak, count_heap_by},
    outputs::{DigestElsewhere, digest, digest_elsewhere_by},
};

/// Check of a promise that every model must keep, such as that padding changes no logit.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// Name of the check, which is the promise in words: for example `padding_changes_no_logit`.
    pub name: &'static str,
    /// Function that checks a model. It panics with a description of the fault.
    pub check: fn(&'static Model),
    /// Names of the checks that come first. If one of them finds a fault, this check would report
    /// the same fault again.
    rests_on: &'static [&'static str],
    /// Words of a model's source that stand near the cause of a breach, the likeliest first.
    words: &'static [&'static str],
}

/// Outcome of a [`Check`] of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The model keeps the promise.
    Kept,
    /// The model breaks the promise, in the way that the description says.
    Broken(String),
    /// The check was not run, because a check that it depends on has found a fault. The text is the
    /// name of that check.
    NotTried(&'static str),
    /// The promise cannot be checked for this model, for the given reason.
    Unchecked(&'static str),
}

/// Calls `tried`, which runs a check, for each of the [`CHECKS`] in order. Returns each check with
/// its outcome. A check that depends on a broken promise is not run, so that one cause is reported
/// once. `told` receives each outcome as soon as it is known.
///
/// # Errors
/// Errors of `told`.
pub fn ask<E>(
    mut tried: impl FnMut(&'static Check) -> Outcome,
    mut told: impl FnMut(&'static Check, &Outcome) -> Result<(), E>,
) -> Result<Vec<(&'static Check, Outcome)>, E> {
    let mut all: Vec<(&'static Check, Outcome)> = Vec::new();
    for promise in CHECKS {
        let cause = all.iter().find_map(|(before, outcome)| match outcome {
            _ if !promise.rests_on.contains(&before.name) => None,
            Outcome::Kept | Outcome::Unchecked(_) => None,
            Outcome::Broken(_) => Some(before.name),
            Outcome::NotTried(cause) => Some(*cause),
        });
        let outcome = match cause {
            Some(cause) => Outcome::NotTried(cause),
            None => tried(promise),
        };
        told(promise, &outcome)?;
        all.push((promise, outcome));
    }
    Ok(all)
}

impl Check {
    /// Returns the line of `model`'s source that probably causes the fault that `said` describes.
    /// It is the line that creates the parameter that `said` names, or else a line with words that
    /// belong to the promise. `None` if there is no such line.
    #[must_use]
    pub fn place(&self, model: &Model, said: &str) -> Option<Place> {
        let parts = |c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.');
        let mut words = said.split(parts);
        let path = words.find(|word| word.starts_with("encoder."));
        let names = path.iter().flat_map(|path| path.rsplit('.'));
        let names = names.filter(|name| !name.is_empty());
        let names: Vec<String> = names.map(|name| format!("\"{name}\"")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let found = |words: &[&str]| {
            let mut variants = model.variants.iter();
            variants.find_map(|variant| variant.place_of(words))
        };
        found(&names).or_else(|| found(self.words))
    }
}

macro_rules! promises {
    ($($name:ident: [$($before:ident),*], $words:expr;)*) => {
        &[$(Check {
            name: stringify!($name),
            check: $name,
            rests_on: &[$(stringify!($before)),*],
            words: $words,
        }),*]
    };
}

const FORWARD: &[&str] = &["fn forward"];
const NEW: &[&str] = &["fn new", "fn build"];

/// All checks, each after those that it depends on.
pub const CHECKS: &[Check] = promises![
    it_is_built_and_trained: [], FORWARD;
    matrices_decay_and_biases_norms_and_embeddings_do_not: [it_is_built_and_trained], NEW;
    products_are_those_that_can_be_rounded: [it_is_built_and_trained], FORWARD;
    logits_are_finite_at_every_length_for_every_pooling: [it_is_built_and_trained], FORWARD;
    a_row_of_padding_only_is_finite_and_has_finite_gradients:
        [logits_are_finite_at_every_length_for_every_pooling], FORWARD;
    no_number_is_kept_with_fewer_bits_than_the_parameters_have:
        [logits_are_finite_at_every_length_for_every_pooling],
        &["BF16", "F16", "to_dtype", "fn forward"];
    operations_are_those_counted: [
        products_are_those_that_can_be_rounded, logits_are_finite_at_every_length_for_every_pooling
    ], &["fn flops"];
    operations_grow_as_the_card_says: [operations_are_those_counted], &["time: Cost", "fn flops"];
    memory_grows_as_the_card_says: [operations_grow_as_the_card_says],
        &["memory: Cost", "fn forward"];
    peak_memory_grows_as_the_card_says: [memory_grows_as_the_card_says],
        &["memory: Cost", "fn forward"];
    time_grows_as_the_card_says: [peak_memory_grows_as_the_card_says],
        &["time: Cost", "fn forward"];
    logits_are_finite_up_to_the_longest_task: [time_grows_as_the_card_says], FORWARD;
    gradients_are_finite_at_a_thousand_tokens: [
        logits_are_finite_up_to_the_longest_task,
        a_row_of_padding_only_is_finite_and_has_finite_gradients
    ], FORWARD;
    the_seed_decides_every_bit:
        [no_number_is_kept_with_fewer_bits_than_the_parameters_have], FORWARD;
    a_pass_leaves_nothing_behind: [the_seed_decides_every_bit], FORWARD;
    parameters_set_later_are_seen: [a_pass_leaves_nothing_behind], NEW;
    every_option_has_an_effect: [the_seed_decides_every_bit, a_pass_leaves_nothing_behind], NEW;
    passes_leave_no_memory_behind: [a_pass_leaves_nothing_behind], FORWARD;
    rows_do_not_know_each_other: [a_pass_leaves_nothing_behind], FORWARD;
    evaluation_drops_nothing: [rows_do_not_know_each_other], FORWARD;
    micro_batches_draw_what_the_whole_batch_draws: [rows_do_not_know_each_other], FORWARD;
    padded_tokens_may_be_anything_where_a_variant_masks_them_and_only_there:
        [evaluation_drops_nothing], FORWARD;
    padding_changes_no_logit: [
        padded_tokens_may_be_anything_where_a_variant_masks_them_and_only_there,
        a_row_of_padding_only_is_finite_and_has_finite_gradients
    ], FORWARD;
    a_position_sees_what_follows_unless_the_model_is_causal: [
        padded_tokens_may_be_anything_where_a_variant_masks_them_and_only_there
    ], &["fn is_causal"];
    every_parameter_has_a_finite_gradient_that_is_not_zero:
        [a_row_of_padding_only_is_finite_and_has_finite_gradients], NEW;
    logits_depend_on_the_tokens_for_every_pooling: [
        every_parameter_has_a_finite_gradient_that_is_not_zero,
        a_position_sees_what_follows_unless_the_model_is_causal
    ], FORWARD;
    blocks_of_every_form_train_every_parameter:
        [every_parameter_has_a_finite_gradient_that_is_not_zero], NEW;
    two_towers_share_weights_but_not_masks:
        [every_parameter_has_a_finite_gradient_that_is_not_zero], NEW;
    gradients_are_difference_quotients: [
        every_parameter_has_a_finite_gradient_that_is_not_zero, parameters_set_later_are_seen,
        no_number_is_kept_with_fewer_bits_than_the_parameters_have
    ], NEW;
    kernels_and_composed_layers_agree_in_every_model: [gradients_are_difference_quotients], FORWARD;
    the_first_loss_is_near_that_of_guessing: [the_seed_decides_every_bit], NEW;
    auxiliary_losses_are_of_each_row_and_train_their_heads_or_are_refused: [
        micro_batches_draw_what_the_whole_batch_draws,
        every_parameter_has_a_finite_gradient_that_is_not_zero
    ], FORWARD;
];

impl Component {
    /// Checks that `model` can have this component at `choice`. It builds the model without memory
    /// for its weights.
    ///
    /// # Errors
    /// [`Error::Option`] with the reason why it cannot.
    pub fn try_around(&self, model: &Model, choice: &Choice) -> crate::Result<()> {
        without_weights(model, &self.set(&Options::try_of(model)?, choice)?).map(drop)
    }
}

impl Model {
    /// Returns the losses that the model adds to the cross-entropy with these options, each with
    /// its usual weight. It builds the model without memory for its weights.
    ///
    /// # Errors
    /// [`crate::Error::Option`], [`crate::Error::Options`] or [`crate::Error::Word`] for options
    /// that the model cannot have.
    pub fn losses_with(&self, options: &Options) -> crate::Result<Vec<loss::Loss>> {
        Ok(without_weights(self, options)?.losses())
    }
}

/// Builds a model for short sequences, without memory for its weights.
fn without_weights(model: &Model, options: &Options) -> crate::Result<Classifier> {
    let shape = Shape {
        vocabulary: 16,
        classes: 2,
        towers: 1,
        max_length: 64,
        padding: true,
        grid: None,
    };
    let parameters = Parameters::meta(&Device::Cpu, DType::F32);
    Classifier::new(model, &shape, options, &parameters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promises_stand_behind_those_that_they_rest_on() {
        for (index, promise) in CHECKS.iter().enumerate() {
            let before = &CHECKS[..index];
            for name in promise.rests_on {
                assert!(before.iter().any(|it| it.name == *name), "{name}");
            }
        }
    }
}
