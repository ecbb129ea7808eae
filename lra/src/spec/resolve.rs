//! Resolution of names and assignments into frozen settings.

use std::collections::BTreeMap;

use candle_core::{DType, Device};
use datasets::{Protocol, Source, Task, TaskInfo};
use models::loss::Loss;
use models::options::{
    self, BlockOptions, EmbedOptions, HeadOptions, NormKind, OptionSet, Pooling, Range,
};
use models::{
    Auxiliary, Classifier, Family, Model, Objective, Parameters, TokenModel, Variant, size,
};
use results::record::{self, Batching, Split, StartedFrom};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::train::sequence_weight;
use super::{Cell, PretrainOptions, Spec, Start, TrainOptions, groups, width};
use crate::error::{Class, Classify, Error, Result};
use crate::initial::{Initial, Weights};
use crate::milestone::Milestone;
use crate::recipe::Recipe;
use crate::{overlay, permute, suggest, torch};

/// A run as requested by the command line, before it is resolved.
#[derive(Clone, Debug)]
pub struct RunRequest<'a> {
    /// Task name.
    pub task: &'a str,
    /// Model name.
    pub model: &'a str,
    /// Recipe name, or the path of a recipe file.
    pub recipe: &'a str,
    /// Source; `None` for the task's default.
    pub source: Option<Source>,
    /// Split rules.
    pub protocol: Protocol,
    /// Seed of the run.
    pub seed: u64,
    /// Assignments `key=value`; later ones override earlier ones.
    pub assignments: &'a [String],
}

/// A spec together with the registry entries that it names.
pub struct Resolved {
    /// The frozen settings.
    pub spec: Spec,
    /// The task's entry.
    pub task: &'static dyn Task,
    /// The model's entry.
    pub model: &'static Model,
    /// Variant of the model's computation.
    pub variant: &'static Variant,
    /// The recipe, with its source.
    pub recipe: Recipe,
    /// Assignments over the recipe's settings.
    pub overrides: Vec<String>,
    /// The `overrides` that repeat a value of the recipe.
    pub repeated: Vec<String>,
    /// The recipe's own values of settings that `overrides` change, each as `key=value`, where a
    /// change is judged by them.
    pub replaced: Vec<String>,
    /// Violation of the benchmark's rules by the model with these settings, in words.
    pub rule_violation: Option<&'static str>,
    /// Family whose block the model has, if the recipe has settings for families.
    pub family: Option<Family>,
    /// Reason why the model does not have the number of parameters for which the recipe solves its
    /// width; `None` if it has.
    pub width: Option<String>,
    /// The weights of another run that training starts from; `None` if they are random.
    pub initial: Option<Initial>,
}

/// The assignment that chooses a family of blocks in place of the model's own.
const FAMILY: &str = "block.family=";

impl RunRequest<'_> {
    /// Finds the names, overlays the settings and freezes them.
    pub fn resolve(&self) -> Result<Resolved> {
        let task = suggest::task(self.task)?;
        let model = *suggest::find("model", self.model, models::registry(), |model| model.name)?;
        let recipe = Recipe::load(self.recipe)?;
        let source = self.source.unwrap_or(task.info().sources[0]);
        if !task.info().sources.contains(&source) {
            let known: Vec<String> = task.info().sources.iter().map(Source::to_string).collect();
            let message = format!(
                "{} has no source '{source}' (it has: {})",
                task.info().name,
                known.join(", ")
            );
            return Err(Error::usage(message));
        }
        recipe.check_source(task.info().name, source)?;
        let defaults = defaults(task, model);
        let mut settings = defaults.clone();
        let asked = self.assignments.iter();
        let mut asked = asked.filter_map(|it| it.strip_prefix(FAMILY));
        let family = recipe.family(model, asked.next_back())?;
        let names = (task.info().name, model.name);
        let layers = recipe.layers(names.0, names.1, family)?;
        let origin = format!("recipe {}", recipe.name);
        overlay::merge(&mut settings, &layers.common, &origin)?;
        // A model's defining settings override a recipe's settings for all models or a family. The
        // recipe's settings for this model override them. A family that is not the model's own
        // overrides even those, since the model is tried in its block.
        let own = model.settings().class(Class::Usage)?;
        let own = [(own, format!("model {}", names.1))];
        let of_family = layers.family.into_iter().map(|it| (it, origin.clone()));
        let ordered: Vec<(Value, String)> = match family.is_none_or(|family| family == model.family)
        {
            true => of_family.chain(own).collect(),
            false => own.into_iter().chain(of_family).collect(),
        };
        let of_model = layers.model.into_iter().map(|it| (it, origin.clone()));
        for (layer, origin) in ordered.into_iter().chain(of_model) {
            overlay::merge(&mut settings, &layer, &origin)?;
        }
        let by_recipe = settings.clone();
        let settable = self.assignments.iter();
        let given: Vec<Value> = settable
            .filter(|it| !it.starts_with(FAMILY))
            .map(|text| overlay::parse_assignment(text))
            .collect::<Result<_>>()?;
        for assignment in &given {
            overlay::merge(&mut settings, assignment, "--set")?;
        }
        // A run of another length than the recipe's does not follow the recipe's planned length.
        let sets = |key: &str| given.iter().any(|it| !it["train"][key].is_null());
        if sets("steps") && !sets("schedule_steps") {
            settings["train"]["schedule_steps"] = json!(0);
        }
        let mut repeated =
            overlay::repeated(&overlay::effective(self.assignments), &by_recipe, &settings)?;
        // The recipe's own number of steps with another planned length of the schedule does not
        // repeat the recipe.
        let planned = |settings: &Value| settings["train"]["schedule_steps"].clone();
        if planned(&by_recipe) != planned(&settings) {
            repeated.retain(|it| !it.starts_with("train.steps"));
        }
        let seed = permute::take(&mut settings["data"])?;
        let shape = task.shape(&settings["data"]).map_err(suggest::of_task)?;
        if seed > 0 {
            settings["data"][permute::KEY] = json!(seed);
        }
        evaluate_sizes(&mut settings["model"], shape.max_length)?;
        let section = Section(&settings, &defaults);
        let mut spec = Spec {
            cell: Cell {
                task: names.0.to_owned(),
                task_version: task.info().version,
                model: names.1.to_owned(),
                recipe: recipe.name.clone(),
                source,
                protocol: self.protocol,
                seed: self.seed,
            },
            embed: section.read("embed", EmbedOptions::RANGES)?,
            block: section.read("block", BlockOptions::RANGES)?,
            head: section.read("head", HeadOptions::RANGES)?,
            pretrain: section.read("pretrain", PretrainOptions::RANGES)?,
            train: section.read("train", TrainOptions::RANGES)?,
            data: settings["data"].take(),
            model: settings["model"].take(),
            from: None,
        };
        spec.train.check()?;
        let weight = spec.train.sequence_weight;
        if shape.dense.is_none() && weight != sequence_weight() {
            if sets("sequence_weight") {
                return Err(Error::usage(format!(
                    "train.sequence_weight = {weight}: only whole sequences of this data have labels; set data.dense=true for labels at positions, or leave this out"
                )));
            }
            // The recipe's weight is for data that has labels at positions.
            spec.train.sequence_weight = sequence_weight();
        }
        let pretrains = given.iter().map(|it| &it["pretrain"]);
        if spec.pretrain.is_off() && pretrains.clone().all(|it| it["kind"].is_null()) {
            let mut keys = pretrains.filter_map(|it| it.as_object()?.keys().next());
            if let Some(key) = keys.next() {
                return Err(Error::usage(format!(
                    "pretrain.{key}: this run has no pretraining; add pretrain.kind=masked or next, or leave this out"
                )));
            }
        }
        let mask_ratio = task.info().mask_ratio;
        spec.pretrain = spec.pretrain.settled(&spec.train, mask_ratio);
        let variant = model.variant(&spec.model).map_err(suggest::of_model)?;
        if spec.train.bucket > 0 && !variant.masks_padding {
            return Err(Error::usage(format!(
                "train.bucket = {}: padding influences what {} with model.variant = {} computes, so its length must not depend on the batch; use 0",
                spec.train.bucket, model.name, variant.name
            )));
        }
        if spec.train.bucket > 1 && spec.model["horizon"] == "padded" {
            return Err(Error::usage(format!(
                "train.bucket = {}: with model.horizon = padded, {} computes with the padded length, which must not depend on how rows are sorted; use 0 or 1",
                spec.train.bucket, model.name
            )));
        }
        if spec.train.bucket > 1 && spec.head.pooling == Pooling::PaddedMean {
            return Err(Error::usage(format!(
                "train.bucket = {}: head.pooling = padded_mean divides by the padded length, which must not depend on how rows are sorted; use 0 or 1",
                spec.train.bucket
            )));
        }
        let mut resolved = Resolved {
            spec,
            task,
            model,
            variant,
            recipe,
            overrides: overlay::effective(self.assignments)
                .iter()
                .map(|it| record::canonical(it))
                .collect(),
            repeated: repeated.iter().map(|it| record::canonical(it)).collect(),
            replaced: replaced(&overlay::effective(self.assignments), &by_recipe),
            rule_violation: None,
            family,
            width: None,
            initial: None,
        };
        let fixes_width = |it: &String| {
            let key = it.split('=').next().unwrap_or_default();
            width::FIXED_BY.contains(&key.trim())
        };
        if let Some(wanted) = resolved.recipe.body.parameters
            && !resolved.overrides.iter().any(fixes_width)
        {
            resolved.width = width::solve(&mut resolved, wanted);
        }
        // Settings that no model can be built with are detected here, before anything is created.
        let (classifier, parameters) = resolved.meta()?;
        groups::check(&resolved.spec.train.groups, &parameters.paths())?;
        resolved.check_pretraining()?;
        let pretrained = (!resolved.spec.pretrain.is_off()).then_some(PRETRAINED);
        resolved.rule_violation = classifier.rule_violation().or(pretrained);
        keep_losses(&mut resolved.spec, &classifier.losses())?;
        Ok(resolved)
    }
}

/// Returns the recipe's own values of the settings that assignments change, where a change is
/// judged by them.
fn replaced(assignments: &[String], by_recipe: &Value) -> Vec<String> {
    let keys = assignments.iter().filter_map(|it| it.split_once('='));
    let keys = keys.map(|(key, _)| key.trim());
    let judged = keys.filter(|key| record::Recipe::is_judged_by_its_own(key));
    let own = judged.filter_map(|key| {
        let (section, name) = key.split_once('.')?;
        let text = match by_recipe.get(section)?.get(name)? {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        Some(format!("{key}={text}"))
    });
    own.collect()
}

/// Returns every setting at its default, section by section, for a task and a model.
fn defaults(task: &dyn Task, model: &Model) -> Value {
    let mut defaults = general_defaults();
    defaults["data"] = task.defaults();
    permute::add_default(&mut defaults["data"]);
    defaults["model"] = model.defaults();
    defaults
}

/// Returns the defaults of the sections that are the same for every task and model.
pub fn general_defaults() -> Value {
    let mut defaults = json!({
        "embed": EmbedOptions::default(),
        "block": BlockOptions::default(),
        "head": HeadOptions::default(),
        "pretrain": PretrainOptions::default(),
        "train": TrainOptions::default(),
    });
    let losses = models::registry::losses();
    let losses: BTreeMap<_, _> = losses.iter().map(|loss| (loss.name, loss.weight)).collect();
    // Settings that are left out of the specification while they are off.
    defaults["train"]["aux"] = json!(losses);
    defaults["train"]["groups"] = json!([]);
    defaults["train"]["bucket"] = json!(0);
    defaults["train"]["schedule_steps"] = json!(0);
    defaults["train"]["cycle_momentum"] = json!(false);
    defaults["train"]["sequence_weight"] = json!(sequence_weight());
    defaults["train"]["optimizer"] = json!("adamw");
    defaults
}

/// Returns the defaults of the settings of `spec`, with sizes evaluated at its length. A task or a
/// model that this program does not have has no defaults.
pub(super) fn defaults_of(spec: &Spec) -> Value {
    let mut all = general_defaults();
    let task = datasets::tasks::find(&spec.cell.task);
    let model = models::registry().iter();
    let model = model.copied().find(|model| model.name == spec.cell.model);
    if let Some(task) = task {
        all["data"] = task.defaults();
        if let (Some(model), Ok(shape)) = (model, task.shape(&permute::without(&spec.data).0)) {
            let mut own = model.defaults();
            // A default that cannot be evaluated equals no value.
            if evaluate_sizes(&mut own, shape.max_length).is_ok() {
                all["model"] = own;
            }
        }
    }
    all
}

/// Replaces sizes that are given as functions of the length by their values.
fn evaluate_sizes(model: &mut Value, length: usize) -> Result<()> {
    for (key, value) in model.as_object_mut().into_iter().flatten() {
        if let Some(text) = value.as_str().filter(|text| size::is_expression(text)) {
            let evaluated = size::evaluate(text, length);
            *value = evaluated
                .during(Class::Usage, format!("model.{key}"))?
                .into();
        }
    }
    Ok(())
}

/// All settings of a section, and their defaults.
struct Section<'a>(&'a Value, &'a Value);

impl Section<'_> {
    fn read<T: DeserializeOwned>(&self, name: &str, ranges: &[Range]) -> Result<T> {
        let read = options::read(name, &self.0[name], &self.1[name], ranges);
        read.map_err(suggest::of_model)
    }
}

/// Limit on the numbers of one kind, weights or activations of one layer: 4 TiB. Larger sizes suit
/// no machine, and sums of products of sizes would overflow.
const MOST_NUMBERS: u64 = 1 << 40;

/// Reason why the scores of a model that starts from the weights of another run are not comparable
/// with others.
const STARTED_FROM: &str = "training starts from the weights of another run, which the benchmark's rules forbid: its score cannot be compared with scores from random weights";

/// Reason why the scores of a pretrained model are not comparable with others.
const PRETRAINED: &str = "the model is pretrained, which the benchmark's rules forbid: its score cannot be compared with scores without pretraining";

/// Keeps the weights of the losses `has` that the model has; a weight for another loss is an error,
/// unless it is the default.
fn keep_losses(spec: &mut Spec, has: &[Loss]) -> Result<()> {
    for loss in models::registry::losses() {
        if has.contains(&loss) {
            continue;
        }
        let weight = spec.train.aux.remove(loss.name);
        if weight.is_some_and(|weight| weight != loss.weight) {
            return Err(Error::usage(format!(
                "train.aux.{}: the model has no such loss with these settings",
                loss.name
            )));
        }
    }
    Ok(())
}

impl From<&Spec> for models::Options {
    fn from(spec: &Spec) -> Self {
        let Spec {
            embed,
            block,
            head,
            model,
            ..
        } = spec.clone();
        models::Options {
            embed,
            block,
            head,
            model,
        }
    }
}

impl Spec {
    /// Returns the shape that a task requires of a model with these settings.
    pub fn model_shape(&self, info: &TaskInfo, shape: &datasets::Shape) -> models::Shape {
        models::Shape {
            vocabulary: info.vocabulary,
            classes: shape.classes,
            towers: info.towers,
            max_length: shape.max_length,
            padding: info.first_id > 0 || self.embed.zero_is_padding,
            grid: shape.grid,
        }
    }

    /// Builds the classifier without the heads of auxiliary losses, with one for labels at positions
    /// if the data has some.
    pub fn scorer(
        &self,
        model: &'static Model,
        shape: &models::Shape,
        dense: Option<&datasets::Dense>,
        parameters: &Parameters,
    ) -> models::Result<Classifier> {
        let options = models::Options::from(self);
        let classifier = Classifier::new(model, shape, &options, parameters)?;
        match dense {
            Some(dense) => classifier.with_dense(dense.classes, &options, parameters),
            None => Ok(classifier),
        }
    }
}

impl Resolved {
    /// Returns the same run with training that starts from `weights`.
    ///
    /// # Errors
    /// The weights are those of another model or fit nowhere, or the settings ask for a pretraining,
    /// which makes initial weights itself.
    pub fn starting_from(mut self, weights: &Weights) -> Result<Self> {
        if !self.spec.pretrain.is_off() {
            return Err(Error::usage(
                "--from and a pretraining both make the weights that training starts from: leave out one of them",
            ));
        }
        let (_, parameters) = self.meta()?;
        let differing = self.spec.differences_of_models(&weights.settings);
        let initial = Initial::new(weights, self.model.name, &parameters, differing)?;
        self.spec.from = Some(Start {
            weights: initial.digest().to_owned(),
        });
        self.rule_violation = self.rule_violation.or(Some(STARTED_FROM));
        self.initial = Some(initial);
        Ok(self)
    }

    /// Returns whether the variant is the model's default.
    pub fn has_default_variant(&self) -> bool {
        self.variant.name == self.model.variants[0].name
    }

    /// Returns the examples of the largest forward pass, in pretraining or in training.
    pub fn forward_examples(&self) -> usize {
        let train = &self.spec.train;
        let before = self.spec.pretrain.training(train).forward_examples();
        train.forward_examples().max(before)
    }

    /// Returns the classifier without weights, which gives size and cost, and its weightless
    /// parameters.
    pub fn meta(&self) -> Result<(Classifier, Parameters)> {
        let shape = self.model_shape(&self.data_shape()?);
        let (block, head) = (&self.spec.block, &self.spec.head);
        let widths = [block.dim, block.qkv_dim, block.mlp_dim, head.hidden];
        let examples = self.forward_examples();
        let widest = widths.into_iter().max();
        let sizes = [examples, shape.max_length + 1, widest.unwrap_or(1)];
        if sizes.iter().map(|&size| size as u128).product::<u128>() > MOST_NUMBERS.into() {
            let [examples, length, widest] = sizes;
            return Err(Error::usage(format!(
                "the model is too large: {} in a forward pass, of {} of width {widest}, are more than \
                 2^40 numbers per layer (train.batch, train.micro_batch, block.dim, block.mlp_dim)",
                results::counted(examples as u64, "example"),
                results::counted(length as u64, "token")
            )));
        }
        let parameters = Parameters::meta(&Device::Cpu, DType::F32);
        let built = self.classifier(&shape, &parameters);
        let classifier = built.map_err(|error| {
            suggest::of_model(error).during("the model cannot be built with these settings")
        })?;
        let weights = parameters.elements();
        if weights as u64 > MOST_NUMBERS {
            return Err(Error::usage(format!(
                "the model is too large: {weights} weights are more than 2^40 (block.layers, block.dim, block.mlp_dim)"
            )));
        }
        Ok((classifier, parameters))
    }

    /// Returns the classifier that is trained, with the heads of its auxiliary losses.
    pub fn classifier(
        &self,
        shape: &models::Shape,
        parameters: &Parameters,
    ) -> models::Result<Classifier> {
        let (options, weights) = (self.model_options(), &self.spec.train.aux);
        let wanted = Auxiliary::new(|name| weights.get(name).copied().unwrap_or(0.0));
        self.scorer(shape, parameters)?
            .with_auxiliary(&wanted, shape, &options, parameters)
    }

    /// Builds the classifier without the heads of auxiliary losses.
    pub fn scorer(
        &self,
        shape: &models::Shape,
        parameters: &Parameters,
    ) -> models::Result<Classifier> {
        self.spec
            .scorer(self.model, shape, self.dense().as_ref(), parameters)
    }

    /// Returns the model that is pretrained on `objective`.
    pub fn token_model(
        &self,
        objective: Objective,
        shape: &models::Shape,
        parameters: &Parameters,
    ) -> models::Result<TokenModel> {
        let options = self.model_options();
        TokenModel::new(self.model, shape, &options, objective, parameters)
    }

    /// Refuses a pretraining that the model does not support.
    fn check_pretraining(&self) -> Result<()> {
        let Some(objective) = self.spec.pretrain.objective() else {
            return Ok(());
        };
        let shape = self.model_shape(&self.data_shape()?);
        let parameters = Parameters::meta(&Device::Cpu, DType::F32);
        let model = self.token_model(objective, &shape, &parameters).map(drop);
        model.during(
            Class::Usage,
            "the model cannot be pretrained with these settings",
        )
    }

    /// Returns the differences between the recipe, on this task and model, and its source.
    pub fn departures(&self) -> Vec<String> {
        let cell = &self.spec.cell;
        let recipe = self
            .recipe
            .departures(&cell.task, &cell.model, cell.protocol);
        recipe.into_iter().chain(self.width.clone()).collect()
    }

    /// Returns the split of batches into forward passes.
    pub fn batching(&self) -> Batching {
        let (train, pretrain) = (&self.spec.train, &self.spec.pretrain);
        let before = (!pretrain.is_off()).then(|| pretrain.training(train));
        Batching {
            batch: train.batch as u64,
            forward: train.forward_examples() as u64,
            batch_norm: self.has_batch_norm(),
            pretraining: before.map(|before| Split {
                batch: before.batch as u64,
                forward: before.forward_examples() as u64,
            }),
        }
    }

    /// Returns the recipe and its changes, as records have them.
    pub fn recipe_of_record(&self) -> record::Recipe {
        let from = self.initial.as_ref();
        let from = from.map(|initial| StartedFrom::assignment(initial.digest()));
        record::Recipe {
            name: self.spec.cell.recipe.clone(),
            source: self.recipe.body.source.clone(),
            published: self.recipe.body.published,
            overrides: self.overrides.iter().cloned().chain(from).collect(),
            repeated: self.repeated.clone(),
            replaced: self.replaced.clone(),
            // A mixer in Python may have BatchNorm or dropout, which depend on the split.
            batching: (!torch::computes(self.model.name)).then(|| self.batching()),
            departures: self.departures(),
        }
    }

    /// Returns whether a norm of the blocks or of the mixer takes statistics over the examples of a
    /// batch.
    fn has_batch_norm(&self) -> bool {
        let batch_norm = |norm| matches!(norm, NormKind::Batch | NormKind::BatchMasked);
        let of_mixer = self.spec.model.as_object().into_iter().flatten();
        let mut of_mixer = of_mixer.filter_map(|(_, value)| NormKind::deserialize(value).ok());
        batch_norm(self.spec.block.norm) || of_mixer.any(batch_norm)
    }

    /// Returns the accuracies that the sources of a published recipe had during training, with a
    /// training split of `rows`; empty if an override can change a score.
    pub fn milestones(&self, rows: usize) -> Vec<Milestone> {
        let recipe = self.recipe_of_record();
        match self.recipe.body.published && recipe.decisive_overrides().is_empty() {
            true => Milestone::of(
                &self.recipe.name,
                &self.spec.cell.task,
                rows,
                self.spec.train.batch,
            ),
            false => Vec::new(),
        }
    }

    /// Returns the shape that the task requires of the model.
    pub fn model_shape(&self, shape: &datasets::Shape) -> models::Shape {
        self.spec.model_shape(self.task.info(), shape)
    }

    /// Returns the settings of the model and its surroundings.
    pub fn model_options(&self) -> models::Options {
        models::Options::from(&self.spec)
    }
}
