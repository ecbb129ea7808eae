//! The machine that a process runs on: its processor, memory, operating system and clocks.

use std::time::{Duration, SystemTime};

use results::record::Host;
use sysinfo::System;

use crate::limits;

/// Describes the machine that this process runs on. Facts that the system does not report are left
/// empty or zero.
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
        instructions: models::ops::instruction_set(),
        cores: std::thread::available_parallelism().map_or(0, usize::from),
        memory_bytes: limits::total_memory().unwrap_or(0),
        os: System::long_os_version().unwrap_or_else(|_| std::env::consts::OS.to_owned()),
        device: device.to_owned(),
        driver: String::new(),
    }
}

/// Returns the resident bytes of this process, as counted by the system.
pub fn resident_bytes() -> Option<u64> {
    let pid = sysinfo::get_current_pid().ok()?;
    let mut system = System::new().ok()?;
    system.refresh_processes(sysinfo::ProcessesToUpdate::Some(&[pid]), true);
    system.process(pid).map(sysinfo::Process::memory)
}

/// Starts a new high-water mark of the resident size at its present level. Only Linux supports
/// this; elsewhere nothing happens.
pub fn reset_resident_peak() {
    // 5 resets the mark (proc_pid_clear_refs(5)). If that is refused, the old mark stays, and no
    // peak is reported too low.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// Returns the high-water mark of the resident size in bytes; `None` where the system does not
/// report it.
pub fn resident_peak_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(1024 * kibibytes)
}

/// Returns the CPU seconds of this process, over all threads; `None` if the system does not report
/// them.
#[cfg(unix)]
pub fn processor_seconds() -> Option<f64> {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call writes one structure.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    (status == 0).then_some(time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9)
}

/// Returns `None`: this system has no such clock.
#[cfg(not(unix))]
pub fn processor_seconds() -> Option<f64> {
    None
}

/// Returns the present time, RFC 3339 in UTC.
pub fn now() -> String {
    rfc3339(SystemTime::now())
}

/// Formats a time; one before 1970 or after 9999 becomes the nearest time that can be written.
fn rfc3339(time: SystemTime) -> String {
    const YEAR_9999: Duration = Duration::from_secs(253_402_300_799);
    let since = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    let time = SystemTime::UNIX_EPOCH + since.min(YEAR_9999);
    humantime::format_rfc3339_seconds(time).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_clock_still_tells_a_time() {
        let day = Duration::from_secs(86_400);
        let before = SystemTime::UNIX_EPOCH - 3 * day;
        assert_eq!(rfc3339(before), "1970-01-01T00:00:00Z");
        assert_eq!(
            rfc3339(SystemTime::UNIX_EPOCH + day),
            "1970-01-02T00:00:00Z"
        );
        let after = SystemTime::UNIX_EPOCH + 4_000_000 * day;
        assert_eq!(rfc3339(after), "9999-12-31T23:59:59Z");
    }
}
