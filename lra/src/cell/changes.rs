//! Comparison of the inputs of a run with those it would have here: data, program, custom model,
//! instruction set.
//!
//! The settings are part of the digest that names a run. All other inputs that affect its bits are
//! in its record, and are compared at every start.

use std::path::Path;

use results::Record;
use results::record::{OwnModel, Versions};

use crate::error::Result;
use crate::provenance;
use crate::spec::Resolved;

/// Returns the digest of the stored data of a run; `None` if they are not stored.
///
/// # Errors
/// The stored data are damaged or cannot be read.
pub fn stored_digest(resolved: &Resolved, data: &Path) -> Result<Option<String>> {
    let store = datasets::Store::new(data);
    match store.open(resolved.task, &resolved.spec.data_key()) {
        Ok(splits) => Ok(Some(splits.manifest.digest.clone())),
        Err(datasets::Error::Missing { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns the difference between the data of `record` and those with the digest `stored`, in
/// words; `None` if they are the same, or if one of the two is not known.
pub fn of_data(record: &Record, stored: &str) -> Option<String> {
    let recorded = &record.task.data_digest;
    (!recorded.is_empty() && recorded != stored).then(|| {
        format!(
            "it was run on other data: their digest is {}, that of the stored data {}",
            short(recorded),
            short(stored)
        )
    })
}

/// Returns the differences in words between the program, model, device and instruction set of
/// `record` and those of this process. `device` is the device of the run, as named by
/// [`crate::device::describe`]; `None` if it is unknown.
pub fn of_program(
    record: &Record,
    resolved: &Resolved,
    device: Option<&str>,
) -> Result<Vec<String>> {
    let mut differences = Vec::new();
    let (then, now) = (&record.provenance, provenance::versions());
    if then.versions.sources != now.sources {
        let [then, now] = [name(&then.versions), name(&now)];
        differences.push(format!(
            "it was made by another build of the program: {then}, and this is {now}"
        ));
    }
    let own = provenance::own_model(resolved.model)?;
    if record.model.own != own {
        differences.push(of_model(record.model.own.as_ref(), own.as_ref()));
    }
    let accelerator = |device: &str| match device.split_once(' ') {
        Some((_, name)) => name.to_owned(),
        None => device.to_owned(),
    };
    if let Some(device) = device
        && accelerator(&then.device) != accelerator(device)
    {
        differences.push(format!(
            "it was made on {}, and this is {device}",
            then.device
        ));
    }
    let instructions = models::ops::instruction_set();
    if then.device == "cpu" && then.host.instructions != instructions {
        let then = match then.host.instructions.as_str() {
            "" => "unknown instructions",
            then => then,
        };
        differences.push(format!(
            "it was made with {then}, and this processor has {instructions}"
        ));
    }
    Ok(differences)
}

fn of_model(then: Option<&OwnModel>, now: Option<&OwnModel>) -> String {
    match (then, now) {
        (Some(then), Some(now)) if then.source != now.source => format!(
            "the model's source has changed: its digest was {} and is {}",
            short(&then.source),
            short(&now.source)
        ),
        (Some(then), Some(now)) => format!(
            "the program with the model has changed: {} had the digest {}, {} has {}",
            then.origin(),
            short(&then.program_digest),
            now.origin(),
            short(&now.program_digest)
        ),
        (Some(then), None) => format!("the model was that of {}, and is lra's", then.origin()),
        (None, _) => "the model was lra's, and is one of this program's own".to_owned(),
    }
}

fn name(versions: &Versions) -> String {
    match versions.sources.as_str() {
        "" => format!("lra {}", versions.lra),
        sources => format!("lra {} of the sources {}", versions.lra, short(sources)),
    }
}

/// Returns the first digits of a digest.
fn short(digest: &str) -> &str {
    digest.get(..12).unwrap_or(digest)
}
