//! Repeated builds of a task's data from damaged bytes.

use std::env;
use std::fs;
use std::path::Path;

use lra_datasets::{Class, Key, Source, Store, tasks};
use serde_json::Value;

/// Maximum peak memory of the whole test, with room for the largest page and window that are
/// accepted.
const MOST_MEMORY_KB: u64 = 1 << 20;

/// Random number generator (xorshift), good enough for these tests.
pub struct Random(u64);

impl Random {
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound.max(1) as u64) as usize
    }

    /// Damages bytes in one to four places.
    pub fn damage(&mut self, bytes: &mut Vec<u8>) {
        for _ in 0..=self.below(4) {
            let place = self.below(bytes.len());
            let end = (place + 1 + self.below(32)).min(bytes.len());
            match self.below(8) {
                0 => bytes.truncate(place),
                1 => drop(bytes.drain(place..end)),
                2 => {
                    let again = bytes[place..end].to_vec();
                    bytes.splice(place..place, again);
                }
                3 => bytes[place..end].fill(0xff),
                4 => bytes[place..end].fill(0),
                5 => bytes[place] = b"\t\n\r'\"\\b/.0"[self.below(10)],
                6 => bytes[place] = self.below(256) as u8,
                _ => bytes[place] ^= 1 << self.below(8),
            }
            if bytes.is_empty() {
                return;
            }
        }
    }
}

/// Returns a folder in memory where the system has one: every build writes and syncs files.
pub fn folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    match memory.is_dir() {
        true => tempfile::tempdir_in(memory).unwrap(),
        false => tempfile::tempdir().unwrap(),
    }
}

/// Builds `task` from the raw path repeatedly, while `prepare` puts damaged bytes there.
pub fn attack(
    task: &str,
    options: &[(&str, Value)],
    raw: &Path,
    mut prepare: impl FnMut(&mut Random),
) {
    let task = tasks::find(task).unwrap();
    let mut key = Key {
        source: Source::Official,
        ..Key::default_of(task)
    };
    for (option, value) in options {
        key.options[*option] = value.clone();
    }
    let count: usize = env::var("LRA_FUZZ").map_or(250, |text| text.parse().unwrap());
    let data = folder();
    let store = Store::new(data.path());
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut built = 0;
    for _ in 0..count {
        prepare(&mut random);
        match store.rebuild(task, &key, Some(raw), &()) {
            Ok(_) => {
                built += 1;
                // Accepted input is valid data.
                if built % 8 == 0 {
                    let verification = store.verify(task, &key, &()).unwrap();
                    let failed = verification
                        .checks
                        .iter()
                        .find(|check| !check.ok && !check.name.starts_with("raw files"));
                    assert_eq!(failed, None);
                }
            }
            Err(error) => assert_eq!(error.class(), Class::Data, "{error}"),
        }
    }
    assert!(built < count, "no input was refused");
    if let Some(peak) = peak_kilobytes() {
        assert!(peak < MOST_MEMORY_KB, "{peak} KB");
    }
}

/// Returns the process's peak resident size, where the system reports it.
fn peak_kilobytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Attacks one file that holds `bytes` when intact.
pub fn attack_file(task: &str, options: &[(&str, Value)], raw: &Path, file: &Path, bytes: &[u8]) {
    attack(task, options, raw, |random| {
        let mut damaged = bytes.to_vec();
        random.damage(&mut damaged);
        fs::write(file, damaged).unwrap();
    });
}
