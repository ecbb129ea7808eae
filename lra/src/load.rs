//! The load of the machine, which makes measured times longer than they are on free cores.

use std::thread;

use sysinfo::System;

/// Returns a remark on a time that was measured just now, if more tasks were ready to run in the
/// last minute than the machine has cores; else an empty text.
pub fn remark() -> String {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    System::load_average().map_or_else(|_| String::new(), |load| of(load.one, cores))
}

fn of(load: f64, cores: usize) -> String {
    if load <= cores as f64 {
        return String::new();
    }
    let cores = results::counted(cores as u64, "core");
    format!("; the machine is busy (load {load:.1} on {cores}), so a free one takes less time")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_busy_machine_is_named() {
        assert_eq!(of(2.0, 2), "");
        assert!(of(2.5, 2).contains("load 2.5 on 2 cores"));
    }
}
