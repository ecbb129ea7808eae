//! The Python process that computes a mixer.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{BufReader, BufWriter};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::protocol;
use crate::stderr;

/// The program of the process.
const PROGRAM: &str = include_str!("worker.py");
/// Limit on the bytes of the initial values of a layer: 64 GiB.
const MOST_VALUES: u64 = 1 << 36;

/// Arguments of the factory.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Layer {
    /// Width of x.
    pub dim: usize,
    /// Largest length of x.
    pub length: usize,
    /// Heads of the block.
    pub heads: usize,
    /// Dropout rate of the block.
    pub dropout: f64,
    /// Index of the block, from 0.
    pub layer: usize,
    /// Seed of the initial values.
    pub seed: u64,
}

/// A parameter of a layer.
#[derive(Clone, Debug, Deserialize)]
pub struct Parameter {
    /// Its name in the module.
    pub name: String,
    /// Its shape.
    pub shape: Vec<usize>,
}

/// A layer that was built in the process.
#[derive(Clone, Debug)]
pub struct Built {
    /// Its number in the process.
    pub id: u64,
    /// Its parameters, in their order in payloads.
    pub parameters: Vec<Parameter>,
    /// Their initial values, one after the other.
    pub values: Vec<f32>,
}

/// The process, which ends with its standard input.
pub struct Worker {
    process: Child,
    input: BufWriter<ChildStdin>,
    output: BufReader<ChildStdout>,
    description: String,
    /// Mixers built so far, by their arguments.
    built: BTreeMap<String, Built>,
    /// The parameters that each layer was given last.
    sent: BTreeMap<u64, Vec<u8>>,
    flops: BTreeMap<(u64, usize), u64>,
    calls: u64,
}

impl Worker {
    /// Starts the process with the interpreter `python` and loads the factory.
    ///
    /// # Errors
    /// The process cannot be started, or the file cannot be imported; the message has the traceback.
    pub fn start(python: &OsStr, file: &Path, factory: &str) -> anyhow::Result<Self> {
        let python_name = python.to_string_lossy();
        // Importing PyTorch takes some seconds.
        if stderr::is_interactive() {
            stderr::line(format!("starting {python_name} with {}", file.display()));
        }
        let mut process = Command::new(python)
            .args(["-c", PROGRAM])
            // One thread adds numbers in one order.
            .envs(["OMP_NUM_THREADS", "MKL_NUM_THREADS"].map(|name| (name, "1")))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| {
                format!("starting {python_name} (LRA_PYTHON names another Python with PyTorch)")
            })?;
        let (input, output) = (process.stdin.take(), process.stdout.take());
        let (Some(input), Some(output)) = (input, output) else {
            bail!("the Python process has no pipes");
        };
        let mut worker = Worker {
            process,
            input: BufWriter::new(input),
            output: BufReader::new(output),
            description: String::new(),
            built: BTreeMap::new(),
            sent: BTreeMap::new(),
            flops: BTreeMap::new(),
            calls: 0,
        };
        let file = file.to_string_lossy();
        let hello = json!({ "do": "hello", "protocol": protocol::VERSION, "file": file, "factory": factory });
        let (answer, _) = worker.ask(&hello, &[], 0).with_context(|| {
            format!("loading {file} with {python_name} (LRA_PYTHON names another Python)")
        })?;
        ensure!(
            answer["protocol"] == protocol::VERSION,
            "the Python process speaks protocol {}, not {}",
            answer["protocol"],
            protocol::VERSION
        );
        let version = |key: &str| answer[key].as_str().unwrap_or("unknown").to_owned();
        worker.description = format!(
            "Python {} with PyTorch {}",
            version("python"),
            version("torch")
        );
        Ok(worker)
    }

    /// Returns the versions in words.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Builds a layer, or returns the one built with the same arguments.
    ///
    /// # Errors
    /// The factory raises an exception; the message has the traceback.
    pub fn build(&mut self, layer: &Layer) -> anyhow::Result<Built> {
        let mut request = json!(layer);
        let key = request.to_string();
        if let Some(built) = self.built.get(&key) {
            return Ok(built.clone());
        }
        request["do"] = "build".into();
        let (answer, payload) = self.ask(&request, &[], MOST_VALUES)?;
        let id = answer["id"].as_u64().context("the answer has no id")?;
        let parameters: Vec<Parameter> = serde_json::from_value(answer["parameters"].clone())?;
        let values: Vec<f32> = payload
            .as_chunks::<4>()
            .0
            .iter()
            .map(|bytes| f32::from_le_bytes(*bytes))
            .collect();
        let sizes = parameters
            .iter()
            .map(|it| it.shape.iter().product::<usize>());
        ensure!(
            sizes.sum::<usize>() * 4 == payload.len(),
            "the initial values are not as many as the shapes say"
        );
        let built = Built {
            id,
            parameters,
            values,
        };
        self.built.insert(key, built.clone());
        Ok(built)
    }

    /// Runs a forward pass of a layer. `call` has the keys of [`protocol`] but those about the call
    /// itself. Returns the number of the call and y.
    ///
    /// # Errors
    /// The module raises an exception or returns another shape; the message has the traceback.
    pub fn forward(
        &mut self,
        layer: u64,
        mut call: Value,
        x: &[u8],
        mask: Option<&[u8]>,
        parameters: Vec<u8>,
    ) -> anyhow::Result<(u64, Vec<u8>)> {
        self.calls += 1;
        let number = self.calls;
        let changed = self.sent.get(&layer) != Some(&parameters);
        call["do"] = "forward".into();
        call["id"] = layer.into();
        call["call"] = number.into();
        call["mask"] = mask.is_some().into();
        call["changed"] = changed.into();
        let mut parts = vec![x];
        parts.extend(mask);
        if changed {
            parts.push(&parameters);
        }
        let (_, y) = self.ask(&call, &parts, x.len() as u64)?;
        ensure!(y.len() == x.len(), "y is not of the shape of x");
        self.sent.insert(layer, parameters);
        Ok((number, y))
    }

    /// Returns the gradients of x and of the parameters, `length` bytes in all, for the gradient of
    /// y of a call.
    ///
    /// # Errors
    /// Errors of [`Worker::forward`].
    pub fn backward(&mut self, call: u64, dy: &[u8], length: usize) -> anyhow::Result<Vec<u8>> {
        let request = json!({ "do": "backward", "call": call });
        let (_, gradients) = self.ask(&request, &[dy], length as u64)?;
        ensure!(
            gradients.len() == length,
            "the gradients are {} bytes instead of {length}",
            gradients.len()
        );
        Ok(gradients)
    }

    /// Drops what was kept for the backward pass of a call.
    pub fn forget(&mut self, call: u64) {
        // If the process is gone, the next question says so.
        let _ = protocol::write(
            &mut self.input,
            &json!({ "do": "forget", "call": call }),
            &[],
        );
    }

    /// Counts the operations of a forward pass over one sequence.
    ///
    /// # Errors
    /// Errors of [`Worker::forward`].
    pub fn flops(&mut self, layer: u64, length: usize) -> anyhow::Result<u64> {
        if let Some(flops) = self.flops.get(&(layer, length)) {
            return Ok(*flops);
        }
        let request = json!({ "do": "flops", "id": layer, "length": length });
        let (answer, _) = self.ask(&request, &[], 0)?;
        let flops = answer["flops"].as_u64().unwrap_or(0);
        self.flops.insert((layer, length), flops);
        Ok(flops)
    }

    /// Sends a message and returns the answer, whose payload has at most `most` bytes.
    fn ask(
        &mut self,
        header: &Value,
        parts: &[&[u8]],
        most: u64,
    ) -> anyhow::Result<(Value, Vec<u8>)> {
        let sent = protocol::write(&mut self.input, header, parts);
        let sent = sent.map_err(anyhow::Error::from);
        let answered = sent.and_then(|()| protocol::read(&mut self.output, most));
        let (answer, payload) = match answered {
            Ok(answered) => answered,
            Err(error) => bail!(self.ending(&error)),
        };
        if let Some(error) = answer["error"].as_str() {
            let error = error.trim_end();
            // Records have the first line, which thus is the exception itself. Indented lines are
            // those of a message.
            let last = error.lines().next_back().unwrap_or_default();
            let lines = error.lines().map(|line| format!("\n  {line}"));
            bail!(
                "the PyTorch mixer failed: {last}{}",
                lines.collect::<String>()
            );
        }
        Ok((answer, payload))
    }

    /// Returns how the process ended, after an error of its pipe.
    fn ending(&mut self, error: &anyhow::Error) -> String {
        let is_gone = error.downcast_ref::<std::io::Error>().is_some();
        match is_gone.then(|| self.process.wait()) {
            Some(Ok(status)) => {
                format!("the Python process of the mixer ended ({status}); its messages are above")
            }
            _ => format!("the pipe to the Python process of the mixer: {error}"),
        }
    }
}
