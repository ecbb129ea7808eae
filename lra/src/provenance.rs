//! The origin of figures: time, command line, machine, versions and revision.

use std::path::Path;
use std::sync::OnceLock;

use candle_core::Device;
use datasets::Task;
use models::Model;
use results::record::{Host, OwnCode, Provenance, Revision, Versions};

use crate::digest::sha256;
use crate::error::{Class, Classify, Result};
use crate::own_crate::{self, Crate};
use crate::spec::Precision;
use crate::{child, device, host, runtime, this_crate, torch};

/// Returns the provenance of figures that this process computes on `device`; the caller adds the
/// settings.
pub fn of_process(device: &Device, threads: usize) -> Provenance {
    let name = device::describe(device);
    Provenance {
        created: host::now(),
        command: runtime::command_line(),
        host: Host {
            driver: device::driver(device),
            ..host::describe(&name)
        },
        device: name,
        threads,
        jobs: Some(jobs()),
        versions: versions(),
        revision: revision(&this_crate!()),
        ..Provenance::default()
    }
}

/// Environment variable in which a sweep passes the number of simultaneous runs to each run.
pub const JOBS: &str = "LRA_JOBS";

/// Returns the number of simultaneous runs of the sweep that started this process; 1 outside a
/// sweep.
fn jobs() -> usize {
    let told = std::env::var(JOBS).ok();
    let told = told.and_then(|jobs| jobs.parse().ok());
    told.unwrap_or(1).max(1)
}

/// Returns the versions of the program, of candle and of the compiler.
pub fn versions() -> Versions {
    Versions {
        lra: env!("CARGO_PKG_VERSION").to_owned(),
        candle: env!("LRA_CANDLE_VERSION").to_owned(),
        rustc: env!("LRA_RUSTC_VERSION").to_owned(),
        sources: env!("LRA_SOURCES").to_owned(),
    }
}

/// Returns the origin of a custom model; `None` for a model of the registry.
///
/// # Errors
/// The executable of this program cannot be read.
pub fn own_model(model: &'static Model) -> Result<Option<OwnCode>> {
    if models::MODELS
        .iter()
        .any(|known| std::ptr::eq(*known, model))
    {
        return Ok(None);
    }
    let mut sources: Vec<&str> = model
        .variants
        .iter()
        .map(|variant| variant.source)
        .collect();
    sources.dedup();
    Ok(Some(OwnCode {
        process: torch::process_of(model)?.unwrap_or_default(),
        ..own_code(&sources.concat())?
    }))
}

/// Returns the origin of a program's own task; `None` for a task of the arena, and for a folder.
///
/// # Errors
/// The executable of this program cannot be read.
pub fn own_task(task: &dyn Task) -> Result<Option<OwnCode>> {
    match task.source() {
        "" => Ok(None),
        source => own_code(source).map(Some),
    }
}

/// Returns the origin of code of this program that is not of `lra`.
fn own_code(source: &str) -> Result<OwnCode> {
    let path = child::this_program()?;
    let mut own = OwnCode {
        source: sha256(source.as_bytes()),
        program: child::name_of_this_program()?,
        program_digest: program_digest(&path)?,
        ..OwnCode::default()
    };
    if let Some(built_from) = own_crate::built_from() {
        own.crate_name = built_from.name.to_owned();
        own.crate_version = built_from.version.to_owned();
        own.revision = revision(built_from);
    }
    Ok(own)
}

/// Returns the lines of `model`'s source with matrix products that `precision` should round but
/// does not.
pub fn unrounded(model: &Model, precision: Precision) -> Vec<String> {
    match precision {
        Precision::Bf16 => {
            let places = model.direct_products();
            places.iter().map(ToString::to_string).collect()
        }
        Precision::F32 | Precision::Tf32 => Vec::new(),
    }
}

/// Returns the SHA-256 of the executable of this program, which is read once.
fn program_digest(path: &Path) -> Result<String> {
    static DIGEST: OnceLock<String> = OnceLock::new();
    if let Some(digest) = DIGEST.get() {
        return Ok(digest.clone());
    }
    let bytes = std::fs::read(path).during(Class::Run, format!("reading {}", path.display()))?;
    Ok(DIGEST.get_or_init(|| sha256(&bytes)).clone())
}

/// Returns the git revision that a crate was built from; `None` outside git.
fn revision(of: &Crate) -> Option<Revision> {
    Some(Revision {
        commit: of.commit?.to_owned(),
        dirty: of.dirty,
    })
}

#[cfg(test)]
mod tests {
    use models::Variant;

    use super::*;

    #[test]
    fn products_past_the_rounding_are_named_in_bf16_alone() {
        let known = models::MODELS[0];
        let model = Model {
            variants: Box::leak(Box::new([Variant {
                source: "fn forward() {\n    x.matmul(&y)\n}",
                ..Variant::paper(known.variants[0].build, "")
            }])),
            ..*known
        };
        let named = unrounded(&model, Precision::Bf16);
        assert!(named[0].ends_with(":2: x.matmul(&y)"), "{named:?}");
        assert_eq!(unrounded(&model, Precision::F32), [""; 0]);
        for model in models::MODELS {
            assert_eq!(unrounded(model, Precision::Bf16), [""; 0], "{}", model.name);
        }
    }
}
