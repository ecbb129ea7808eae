//! The machine and the versions a record was made with.

use std::time::SystemTime;

use results::record::{Host, Revision, Versions};
use sysinfo::System;

use crate::limits;

/// The machine this process runs on. What the system does not tell is left empty or zero.
pub fn describe(device: &str) -> Host {
    let cpu = System::new().ok().and_then(|mut system| {
        system.refresh_cpu_all();
        system
            .cpus()
            .first()
            .map(|cpu| cpu.brand().trim().to_owned())
    });
    Host {
        cpu: cpu.unwrap_or_default(),
        instructions: models::kernels::instruction_set(),
        cores: std::thread::available_parallelism().map_or(0, usize::from),
        memory_bytes: limits::total_memory().unwrap_or(0),
        os: System::long_os_version().unwrap_or_else(|_| std::env::consts::OS.to_owned()),
        device: device.to_owned(),
        driver: String::new(),
    }
}

/// Bytes of this process that are in memory now, as the system counts them.
pub fn resident_bytes() -> Option<u64> {
    let pid = sysinfo::get_current_pid().ok()?;
    let mut system = System::new().ok()?;
    system.refresh_processes(sysinfo::ProcessesToUpdate::Some(&[pid]), true);
    system.process(pid).map(sysinfo::Process::memory)
}

/// Versions of what computed the numbers.
pub fn versions() -> Versions {
    Versions {
        lra: env!("CARGO_PKG_VERSION").to_owned(),
        candle: env!("LRA_CANDLE_VERSION").to_owned(),
        rustc: env!("LRA_RUSTC_VERSION").to_owned(),
    }
}

/// The git revision the binary was built from; `None` outside git.
pub fn revision() -> Option<Revision> {
    let commit = option_env!("LRA_COMMIT")?.to_owned();
    Some(Revision {
        commit,
        dirty: option_env!("LRA_DIRTY").is_some(),
    })
}

/// The time now, RFC 3339 in UTC.
pub fn now() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}
