//! Parity cases: outputs and gradients that a mixer must have according to independent code.
//!
//! A case is one safetensors file, made by a script under `models/tests/parity`. Metadata: `mixer`,
//! `options` (JSON, laid over the mixer's defaults), `heads`, `source` (package, version, class),
//! `atol`, `rtol`, and where they are not D, L and false `qkv_dim`, `max_length` and `cls`, `grid`
//! (JSON, `[height, width]`) for an image, and `block` (JSON, laid over the block's usual options).
//! Numbers may be of any type: they are compared as f32.
//! Tensors: `param/<path>`, `in/x` (B, L, D), optional `in/mask` (B, L; 1 = valid), optional
//! `draw/<name>` (used in place of our own random numbers), `out/y`, and `grad/x` and
//! `grad/param/<path>` of the loss `sum(y * seed)` with `out/seed`. `kind = encoder` and
//! `kind = training` mark other forms of case: see [below](self#encoders).
//!
//! Outputs must agree within `atol`, or `atol` times the largest element of the tensor if that is
//! more. Gradients must agree within `rtol` times the largest element of the tensor, or within 1e-6
//! g if that is more, for the largest gradient g of the case; where the largest element is not 0,
//! within `rtol` times 0.001 max(g, 1), too. Outputs at padded positions are not compared, as they
//! are never read. A tensor that only one side has is a miss, and every number must be finite.
//!
//! # Encoders
//! All layers between embedding and pooling: `options` are those of [`crate::Options`] (laid over
//! the model's), `heads` and `qkv_dim` are not read. Parameters have their paths within the
//! encoder, such as `0.mixer.query.weight`; `out/hidden` (B, L', D) stands in place of `out/y`,
//! with `out/mask` (B, L') where it is not `in/mask`. Losses of the model are scalars
//! `out/loss/<name>`, means over the rows of the batch, and their sum is part of the loss.
//! `train = true`, also in training cases, makes it a pass in training, for models that compute
//! something else there; it has no dropout if `options` say so.
//!
//! # Training
//! A whole classifier and an optimizer: `options` are those of [`crate::Options`] (laid over the
//! defaults), `shape` (JSON) the task's, `optimizer` (JSON) the settings of AdamW. Tensors:
//! `param/<path>`, `in/ids`, optional `in/mask`, `in/labels`, `out/logits` and `grad/param/<path>`
//! before the first update, `out/losses` before each update.

mod encoder;
mod training;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
};

use candle_core::{DType, Device, Tensor, Var, safetensors::Load};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde::Deserialize;
use serde_json::Value;

use crate::{
    Encoded, Error, Mask, Model, Options, Parameters, Pass, Result, RngKey,
    context::{Geometry, ModelContext},
    loss::AuxLosses,
    mixers,
    options::{self, BlockOptions, overlay},
    rng::FixedDraws,
};

pub use training::{MakeOptimizer, Optimizer, Settings};

/// A gradient all of whose elements are below this, or below this times the largest element of the
/// case's gradients, counts as zero: the remainder of terms that cancel is measured by the size of
/// the terms.
const FLOOR: f64 = 1e-3;

/// Prefixes of the parameters that all mixers of a stack share: they belong to a mixer too, under
/// their own paths.
const SHARED: [&str; 2] = ["bias.", "length."];

/// Difference allowed in any gradient, also where exactly 0 is expected, relative to the largest
/// element of the case's gradients: terms of that size that cancel leave as much in f32.
const NOISE: f64 = 1e-6;

/// Parity case that has been read from its file: inputs, and the outputs and gradients that a model
/// must have for them according to independent code.
pub struct Case {
    metadata: HashMap<String, String>,
    tensors: BTreeMap<String, Tensor>,
    model: &'static Model,
    atol: f64,
    rtol: f64,
    /// The largest element of all gradients that are wanted.
    largest_gradient: f64,
}

/// Comparison of one tensor of this crate with that of a parity case.
#[derive(Clone, Debug)]
pub struct Row {
    /// Name of the tensor in the case's file, such as `out/y` or `grad/x`.
    pub tensor: String,
    /// Largest absolute difference of two elements. `None` if the tensors were not compared.
    pub max_abs: Option<f64>,
    /// Largest absolute difference, divided by the largest absolute element of the case's tensor.
    /// The divisor is at least 0.001 max(g, 1), for the largest gradient g of the case. `None` if
    /// the tensors were not compared.
    pub max_rel: Option<f64>,
    /// Outcome of the comparison.
    pub verdict: Verdict,
    /// Shape of this crate's tensor, where the case has another one or none.
    pub shape: Option<Vec<usize>>,
}

/// Outcome of the comparison of one tensor with a parity case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The difference is within the tolerance.
    Ok,
    /// The difference is outside the tolerance, or a number is NaN.
    Off,
    /// The case's tensor has another shape than that of this crate.
    Shape,
    /// This crate has the tensor and the case lacks it.
    NotInCase,
    /// The case has the tensor and this crate does not use it.
    Unknown,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Ok => "ok",
            Self::Off => "off",
            Self::Shape => "other shape",
            Self::NotInCase => "not in the case",
            Self::Unknown => "unknown here",
        })
    }
}

impl Case {
    /// Reads a case from the bytes of its file.
    ///
    /// # Errors
    /// [`Error::Case`] if it is not a safetensors file, lacks metadata that every case has, names a
    /// mixer that is not in the registry, has a number that is not finite, or has a mask with
    /// elements other than 0 and 1.
    pub fn read(bytes: &[u8]) -> Result<Self> {
        let (_, metadata) = SafeTensors::read_metadata(bytes)
            .map_err(|error| Error::Case(format!("not a safetensors file: {error}")))?;
        let metadata = metadata.metadata().clone().unwrap_or_default();
        let mut tensors = tensors(bytes)?;
        if let Some(mask) = tensors.get_mut("in/mask") {
            *mask = mask.to_dtype(DType::F32)?;
            if !values(mask)?.iter().all(|x| [0.0, 1.0].contains(x)) {
                let reason = "in/mask has elements that are neither 0 nor 1";
                return Err(Error::Case(reason.into()));
            }
        }
        let name = text(&metadata, "mixer")?;
        let model = mixers::find(name)
            .ok_or_else(|| Error::Case(format!("mixer {name} is not in the registry")))?;
        let mut largest_gradient: f64 = 0.0;
        for (name, tensor) in &tensors {
            let elements = values(tensor)?;
            if !elements.iter().all(|x| x.is_finite()) {
                let reason = format!("{name} has elements that are not finite");
                return Err(Error::Case(reason));
            }
            if name.starts_with("grad/") {
                let elements = elements.into_iter();
                largest_gradient = elements.fold(largest_gradient, |most, x| most.max(x.abs()));
            }
        }
        Ok(Self {
            largest_gradient,
            atol: tolerance(&metadata, "atol")?,
            rtol: tolerance(&metadata, "rtol")?,
            model,
            metadata,
            tensors,
        })
    }

    /// Returns the name of the model whose mixer the case checks.
    #[must_use]
    pub fn mixer(&self) -> &'static str {
        self.model.name
    }

    /// Returns the package, its version and the class by which the case was made.
    #[must_use]
    pub fn source(&self) -> &str {
        self.metadata.get("source").map_or("", String::as_str)
    }

    /// Runs the case, and returns the comparison of each tensor. Only training cases need
    /// `optimizer`.
    ///
    /// # Errors
    /// [`Error::Case`] if the kind of case is unknown, or a tensor that every case has is missing;
    /// otherwise if options are refused or a tensor operation fails.
    pub fn run(&self, optimizer: &MakeOptimizer<'_>) -> Result<Vec<Row>> {
        let (mut rows, inputs): (_, &[&str]) =
            match self.metadata.get("kind").map_or("mixer", String::as_str) {
                "mixer" => (self.run_mixer()?, &["in/x", "in/mask", "out/seed"]),
                "encoder" => (self.run_encoder()?, &["in/x", "in/mask", "out/seed"]),
                "training" => (self.train(optimizer)?, &["in/ids", "in/mask", "in/labels"]),
                other => {
                    return Err(Error::Case(format!(
                        "kind {other} is none of mixer, encoder and training"
                    )));
                }
            };
        self.add_unknown(inputs, &mut rows);
        Ok(rows)
    }

    /// Adds a row for each tensor that was not compared and is not one of `inputs`, parameters and
    /// draws (which have rows of their own).
    fn add_unknown(&self, inputs: &[&str], rows: &mut Vec<Row>) {
        if rows.iter().any(|row| row.tensor.starts_with("param/")) {
            // Parameters do not fit, so the case was not run.
            return;
        }
        let known: BTreeSet<String> = rows.iter().map(|row| row.tensor.clone()).collect();
        let read = |name: &str| {
            let taken = ["param/", "draw/"]
                .iter()
                .any(|start| name.starts_with(start));
            taken || inputs.contains(&name) || known.contains(name)
        };
        let names = self.tensors.keys().filter(|name| !read(name));
        rows.extend(names.map(|name| Row::bare(name.clone(), Verdict::Unknown)));
    }

    fn run_mixer(&self) -> Result<Vec<Row>> {
        let (_, length, dim) = self.tensor("in/x")?.dims3()?;
        let usual = BlockOptions {
            layers: 1,
            dim,
            qkv_dim: self.number("qkv_dim", dim)?,
            heads: parsed(&self.metadata, "heads")?,
            mlp_dim: 1,
            dropout: 0.0,
            attention_dropout: 0.0,
            ..BlockOptions::default()
        };
        let block = self.block_options(&usual)?;
        options::check("block", &block)?;
        let parameters = Parameters::new(0, &Device::Cpu, DType::F32);
        let mut options = self.model.defaults();
        overlay(&mut options, &json(&self.metadata, "options")?);
        let encoder = self.model.build(&ModelContext {
            cls: self.flag("cls")?,
            geometry: self.geometry()?,
            ..ModelContext::new(
                parameters.builder(),
                &block,
                self.model,
                &options,
                self.max_length(length)?,
            )
        })?;
        let mixers = encoder.mixers();
        let [mixer] = mixers[..] else {
            let name = self.model.name;
            return Err(Error::Case(format!("{name} is not a stack of mixers")));
        };
        self.compare_pass(&parameters, "0.mixer.", "out/y", |x, pass| {
            Ok(Encoded {
                hidden: mixer.forward(x, pass)?,
                mask: pass.mask().cloned(),
            })
        })
    }

    /// Returns one pass forward and back, by parameters whose paths start with `prefix`; hidden
    /// states are called `output` in the case.
    fn compare_pass(
        &self,
        parameters: &Parameters,
        prefix: &str,
        output: &str,
        forward: impl Fn(&Tensor, &Pass) -> Result<Encoded>,
    ) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        let ours: Vec<(String, Var)> = parameters
            .all()
            .into_iter()
            .filter_map(|(path, var)| {
                let own = path.strip_prefix(prefix);
                let shared = SHARED.iter().any(|start| path.starts_with(start));
                let shared = shared.then_some(path.as_str());
                Some((own.or(shared)?.to_owned(), var))
            })
            .collect();
        if !self.set_parameters(&ours, &mut rows)? {
            return Ok(rows);
        }
        let x = Var::from_tensor(self.tensor("in/x")?)?;
        let rng = FixedDraws::new(self.under("draw/"));
        let mask = self.tensors.get("in/mask");
        if let Some(mask) = mask {
            same_shape("in/mask", mask, &x.dims()[..2])?;
        }
        let mask = mask.map(Mask::new).transpose()?;
        let losses = AuxLosses::default();
        let pass = Pass::new(self.flag("train")?, RngKey::new(0, 0, 0));
        let pass = pass.with_fixed_draws(&rng).with_losses(&losses);
        let y = forward(x.as_tensor(), &pass.with_mask(mask.as_ref()))?;
        let unread = rng.unread().into_iter();
        rows.extend(unread.map(|name| Row::bare(format!("draw/{name}"), Verdict::Unknown)));
        let seed = self.tensor("out/seed")?;
        same_shape("out/seed", seed, y.hidden.dims())?;
        let mut loss = (&y.hidden * seed)?.sum_all()?;
        for (name, mean) in losses.means()? {
            loss = (loss + &mean)?;
            let name = format!("out/loss/{name}");
            // A mixer's case may omit losses beside its output.
            if let Some(expected) = self.tensors.get(&name) {
                rows.push(self.compare(&name, &mean.reshape(expected.dims())?, expected)?);
            }
        }
        let gradients = loss.backward()?;
        if let (Some(expected), Some(mask)) = (self.tensors.get("out/mask"), &y.mask) {
            rows.push(self.compare("out/mask", mask.valid(), expected)?);
        }
        let expected = self.tensor(output)?;
        rows.push(match &y.mask {
            Some(mask) => {
                let valid = mask.valid().unsqueeze(2)?;
                let read = |y: &Tensor| y.broadcast_mul(&valid);
                self.compare(output, &read(&y.hidden)?, &read(expected)?)?
            }
            None => self.compare(output, &y.hidden, expected)?,
        });
        rows.push(self.gradient("grad/x", gradients.get(&x))?);
        for (path, var) in &ours {
            rows.push(self.gradient(&format!("grad/param/{path}"), gradients.get(var))?);
        }
        Ok(rows)
    }

    /// Returns `usual` with the case's `block` (JSON) laid over it.
    fn block_options(&self, usual: &BlockOptions) -> Result<BlockOptions> {
        if !self.metadata.contains_key("block") {
            return Ok(usual.clone());
        }
        let wrong = |error| Error::Case(format!("block: {error}"));
        let mut block = serde_json::to_value(usual).map_err(wrong)?;
        overlay(&mut block, &json(&self.metadata, "block")?);
        Deserialize::deserialize(block).map_err(wrong)
    }

    /// Returns the case's `options` as those of a whole classifier, over the model's own.
    fn whole_options(&self) -> Result<Options> {
        let typed = |error| Error::Case(format!("options: {error}"));
        let mut options = serde_json::to_value(Options::of(self.model)).map_err(typed)?;
        overlay(&mut options, &json(&self.metadata, "options")?);
        Options::deserialize(options).map_err(typed)
    }

    /// Reads `grid` (JSON, `[height, width]`) where the sequence is an image.
    fn geometry(&self) -> Result<Geometry> {
        let wrong = |error| Error::Case(format!("grid: {error}"));
        let grid: Option<[usize; 2]> = match self.metadata.contains_key("grid") {
            true => Some(Deserialize::deserialize(json(&self.metadata, "grid")?).map_err(wrong)?),
            false => None,
        };
        let sides = grid.iter().flatten();
        sides
            .copied()
            .try_for_each(|side| check_positions("grid", side))?;
        Ok(Geometry { grid, towers: 1 })
    }

    /// Returns the length that the model is built for: that of the case's input unless it names
    /// one.
    fn max_length(&self, length: usize) -> Result<usize> {
        let max_length = self.number("max_length", length)?;
        check_positions("max_length", max_length)?;
        Ok(max_length)
    }

    fn flag(&self, key: &str) -> Result<bool> {
        match self.metadata.get(key).map_or("false", String::as_str) {
            // Python writes them with capitals.
            "true" | "True" => Ok(true),
            "false" | "False" => Ok(false),
            other => Err(Error::Case(format!("{key} = {other} is not true or false"))),
        }
    }

    /// Sets parameters from the case. Returns false, with rows that give the reason, if the two
    /// sides have different parameters.
    fn set_parameters(&self, ours: &[(String, Var)], rows: &mut Vec<Row>) -> Result<bool> {
        let theirs = self.under("param/");
        for (path, var) in ours {
            let verdict = match theirs.get(path) {
                None => Verdict::NotInCase,
                Some(value) if value.dims() != var.dims() => Verdict::Shape,
                Some(value) => {
                    var.set(value)?;
                    continue;
                }
            };
            let row = Row::bare(format!("param/{path}"), verdict);
            rows.push(row.shaped(var.dims()));
        }
        let known: BTreeSet<&String> = ours.iter().map(|(path, _)| path).collect();
        for path in theirs.keys().filter(|path| !known.contains(path)) {
            rows.push(Row::bare(format!("param/{path}"), Verdict::Unknown));
        }
        Ok(rows.is_empty())
    }

    fn gradient(&self, name: &str, ours: Option<&Tensor>) -> Result<Row> {
        match (ours, self.tensors.get(name)) {
            (Some(ours), Some(expected)) => self.compare(name, ours, expected),
            (Some(ours), None) => {
                Ok(Row::bare(name.to_owned(), Verdict::NotInCase).shaped(ours.dims()))
            }
            // An example is an expert that no token chose.
            (None, Some(expected)) if values(expected)?.iter().all(|x| *x == 0.0) => {
                self.compare(name, expected, expected)
            }
            (None, _) => Ok(Row::bare(name.to_owned(), Verdict::Unknown)),
        }
    }

    fn compare(&self, name: &str, ours: &Tensor, expected: &Tensor) -> Result<Row> {
        if ours.dims() != expected.dims() {
            return Ok(Row::bare(name.to_owned(), Verdict::Shape).shaped(ours.dims()));
        }
        let (ours, expected) = (values(ours)?, values(expected)?);
        // `f64::max` would skip a NaN.
        let largest = |most: f64, x: f64| if x > most || x.is_nan() { x } else { most };
        let scale = expected.iter().fold(0.0, |most, x| largest(most, x.abs()));
        let floor = FLOOR * self.largest_gradient.max(1.0);
        let pairs = ours.iter().zip(&expected);
        let max_abs = pairs.fold(0.0, |most, (a, b)| largest(most, (a - b).abs()));
        let noise = NOISE * self.largest_gradient;
        let limit = match name.starts_with("grad/") {
            true if scale == 0.0 => noise,
            true => (self.rtol * scale.max(floor)).max(noise),
            false => self.atol * scale.max(1.0),
        };
        Ok(Row {
            tensor: name.to_owned(),
            max_abs: Some(max_abs),
            max_rel: Some(max_abs / scale.max(floor)),
            verdict: if max_abs <= limit {
                Verdict::Ok
            } else {
                Verdict::Off
            },
            shape: None,
        })
    }

    fn tensor(&self, name: &str) -> Result<&Tensor> {
        let missing = || Error::Case(format!("there is no tensor {name}"));
        self.tensors.get(name).ok_or_else(missing)
    }

    /// Returns the tensors whose names start with `prefix`, by the rest of the name.
    fn under(&self, prefix: &str) -> BTreeMap<String, Tensor> {
        self.tensors
            .iter()
            .filter_map(|(name, tensor)| {
                Some((name.strip_prefix(prefix)?.to_owned(), tensor.clone()))
            })
            .collect()
    }

    fn number(&self, key: &str, default: usize) -> Result<usize> {
        match self.metadata.contains_key(key) {
            true => parsed(&self.metadata, key),
            false => Ok(default),
        }
    }
}

impl Row {
    fn bare(tensor: String, verdict: Verdict) -> Self {
        Self {
            tensor,
            max_abs: None,
            max_rel: None,
            verdict,
            shape: None,
        }
    }

    fn shaped(self, dims: &[usize]) -> Self {
        let shape = Some(dims.to_vec());
        Self { shape, ..self }
    }
}

/// Returns the tensors of a safetensors file by name, floating-point numbers in f32 and truth values
/// as 0 and 1.
fn tensors(bytes: &[u8]) -> Result<BTreeMap<String, Tensor>> {
    let broken = |error| Error::Case(format!("not a safetensors file: {error}"));
    let file = SafeTensors::deserialize(bytes).map_err(broken)?;
    let read = |(name, view): (String, TensorView)| {
        let tensor = match view.dtype() {
            Dtype::BOOL => Tensor::from_slice(view.data(), view.shape(), &Device::Cpu)?,
            _ => view.load(&Device::Cpu)?,
        };
        let tensor = match tensor.dtype().is_float() {
            true => tensor.to_dtype(DType::F32)?,
            false => tensor,
        };
        Ok::<_, Error>((name, tensor))
    };
    file.tensors().into_iter().map(read).collect()
}

fn same_shape(name: &str, tensor: &Tensor, shape: &[usize]) -> Result<()> {
    match tensor.dims() {
        dims if dims == shape => Ok(()),
        dims => Err(Error::Case(format!(
            "{name} is {dims:?} instead of {shape:?}"
        ))),
    }
}

fn values(tensor: &Tensor) -> Result<Vec<f64>> {
    Ok(tensor.to_dtype(DType::F64)?.flatten_all()?.to_vec1()?)
}

fn text<'a>(metadata: &'a HashMap<String, String>, key: &str) -> Result<&'a str> {
    let missing = || Error::Case(format!("the metadata lacks {key}"));
    metadata.get(key).map(String::as_str).ok_or_else(missing)
}

/// Most positions of a sequence or along a side of its grid.
const MOST_POSITIONS: usize = 1 << 16;

fn check_positions(key: &str, count: usize) -> Result<()> {
    match (1..=MOST_POSITIONS).contains(&count) {
        true => Ok(()),
        false => Err(Error::Case(format!(
            "{key} = {count} is out of range: 1 to {MOST_POSITIONS}"
        ))),
    }
}

/// Returns a tolerance. Under one that is no finite number everything would agree.
fn tolerance(metadata: &HashMap<String, String>, key: &str) -> Result<f64> {
    let tolerance: f64 = parsed(metadata, key)?;
    match tolerance.is_finite() && tolerance >= 0.0 {
        true => Ok(tolerance),
        false => Err(Error::Case(format!(
            "{key} = {tolerance} is not a number from 0 on"
        ))),
    }
}

fn parsed<T: std::str::FromStr>(metadata: &HashMap<String, String>, key: &str) -> Result<T> {
    let text = text(metadata, key)?;
    let wrong = |_| Error::Case(format!("{key} = {text} is not a number"));
    text.parse().map_err(wrong)
}

fn json(metadata: &HashMap<String, String>, key: &str) -> Result<Value> {
    let wrong = |error: serde_json::Error| {
        let told = match error.is_eof() {
            true => "it is cut off".to_owned(),
            false => error.to_string(),
        };
        Error::Case(format!("{key} is not JSON: {told}"))
    };
    serde_json::from_str(text(metadata, key)?).map_err(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case() -> Case {
        let file = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/parity/transformer-1.safetensors"
        );
        Case::read(&std::fs::read(file).unwrap()).unwrap()
    }

    #[test]
    fn what_is_not_a_number_never_agrees() {
        let case = case();
        for name in ["out/y", "grad/x"] {
            let expected = case.tensor(name).unwrap();
            let verdict = |ours: &Tensor| case.compare(name, ours, expected).unwrap().verdict;
            assert_eq!(verdict(expected), Verdict::Ok);
            assert_eq!(verdict(&(expected * f64::NAN).unwrap()), Verdict::Off);
        }
    }

    #[test]
    fn only_a_gradient_of_zeros_may_be_missing() {
        let (mut case, name) = (case(), "grad/param/key.weight");
        let verdict = |case: &Case| case.gradient(name, None).unwrap().verdict;
        assert_eq!(verdict(&case), Verdict::Unknown);
        let zeros = case.tensors[name].zeros_like().unwrap();
        case.tensors.insert(name.to_owned(), zeros);
        assert_eq!(verdict(&case), Verdict::Ok);
    }

    #[test]
    fn tolerances_are_finite_and_not_negative() {
        for (text, holds) in [
            ("0", true),
            ("1e-5", true),
            ("-1e-5", false),
            ("inf", false),
            ("NaN", false),
        ] {
            let metadata = HashMap::from([("atol".to_owned(), text.to_owned())]);
            assert_eq!(tolerance(&metadata, "atol").is_ok(), holds, "{text}");
        }
    }
}
