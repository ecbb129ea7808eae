//! The origin of figures: time, command line, machine, versions and revision.

use candle_core::Device;
use results::record::{Host, Provenance, Revision, Versions};

use crate::{device, host, runtime};

/// Returns where figures that this process makes on `device` come from; the settings that they follow
/// are for the caller to add.
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
        versions: versions(),
        revision: revision(),
        ..Provenance::default()
    }
}

/// Returns the versions of the program, of candle and of the compiler.
fn versions() -> Versions {
    Versions {
        lra: env!("CARGO_PKG_VERSION").to_owned(),
        candle: env!("LRA_CANDLE_VERSION").to_owned(),
        rustc: env!("LRA_RUSTC_VERSION").to_owned(),
    }
}

/// Returns the git revision that the program was built from; `None` outside git.
fn revision() -> Option<Revision> {
    let commit = option_env!("LRA_COMMIT")?.to_owned();
    Some(Revision {
        commit,
        dirty: option_env!("LRA_DIRTY").is_some(),
    })
}
