//! Runs the real binary in a folder of its own.

// Each test file is a crate and uses its share of this module.
#![allow(dead_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

/// A folder with a data directory and an output directory, removed at the end.
pub struct Place {
    folder: tempfile::TempDir,
    program: PathBuf,
}

impl Place {
    pub fn new() -> Self {
        Place {
            folder: tempfile::tempdir().unwrap(),
            program: env!("CARGO_BIN_EXE_lra").into(),
        }
    }

    /// Returns a place in memory, if there is such a folder: nothing waits for a disk.
    pub fn in_memory() -> Self {
        let memory = Path::new("/dev/shm");
        let folder = match memory.is_dir() {
            true => tempfile::tempdir_in(memory).unwrap(),
            false => tempfile::tempdir().unwrap(),
        };
        Place {
            folder,
            ..Place::new()
        }
    }

    /// Returns a place for an example of this crate instead of the binary.
    pub fn of_example(name: &str) -> Self {
        let built = Path::new(env!("CARGO_BIN_EXE_lra")).parent().unwrap();
        let program = built.join("examples").join(name);
        // A run of all tests builds it, a run of a single test does not.
        assert!(
            program.exists(),
            "run `cargo build --locked --workspace --example {name}` first"
        );
        Place {
            program,
            ..Place::new()
        }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the command of the binary with these words as arguments; data and runs go into this
    /// place.
    pub fn command(&self, words: &str) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(words.split_whitespace())
            .current_dir(self.path());
        command
            .env("LRA_DATA", self.path().join("data"))
            .env_remove("RAYON_NUM_THREADS")
            .env_remove("COLUMNS")
            .env_remove("CLICOLOR_FORCE");
        command
    }

    /// Runs the binary to its end.
    pub fn lra(&self, words: &str) -> Output {
        self.command(words).output().unwrap()
    }

    /// Runs the binary, which must succeed, and returns its standard output.
    pub fn ok(&self, words: &str) -> String {
        let output = self.lra(words);
        assert!(output.status.success(), "lra {words}: {}", err(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs the binary, which must fail with this exit code, and returns its standard error.
    pub fn fails(&self, code: i32, words: &str) -> String {
        let output = self.lra(words);
        assert_eq!(
            output.status.code(),
            Some(code),
            "lra {words}: {}",
            err(&output)
        );
        err(&output)
    }

    /// Returns the least memory limit, in MiB, that a run on two threads accepts. The memory that
    /// it holds from its start depends on the processor, so limits are given relative to this.
    pub fn least_limit(&self) -> u64 {
        let words =
            "run --task toy --model bag --recipe smoke --threads 2 --memory-limit 1 --out refused";
        let message = self.fails(2, words);
        let (_, least) = message.split_once("give --memory-limit ").unwrap();
        let (least, _) = least.split_once("M at the least").unwrap();
        least.parse().unwrap()
    }

    /// Returns the only run folder under `out`.
    pub fn run_folder(&self, out: &str) -> PathBuf {
        let folders: Vec<_> = fs::read_dir(self.path().join(out))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        assert_eq!(folders.len(), 1, "{folders:?}");
        folders[0].clone()
    }

    /// Returns the record of the only run under `out`.
    pub fn record(&self, out: &str) -> Value {
        let text = fs::read_to_string(self.run_folder(out).join("record.json")).unwrap();
        serde_json::from_str(&text).unwrap()
    }
}

pub fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A whole run that takes a second or two: small, but with dropout, evaluations and checkpoints on
/// the way.
pub const TINY: &str = "run --task listops --recipe smoke --quiet --set data.train=200 --set data.val=40 --set data.test=40";

/// Returns a child of a process that has not ended, if there is one.
pub fn child_of(parent: u32) -> Option<u32> {
    let listed = fs::read_dir("/proc").unwrap().flatten();
    let mut ids = listed.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    ids.find(|id| {
        // "id (name) state parent ..."; the process may be gone by now.
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        let after = stat.rsplit_once(") ").map_or("", |(_, after)| after);
        let mut words = after.split(' ');
        words.next() != Some("Z") && words.next() == Some(&parent.to_string())
    })
}

/// Sends a signal to a process that the test started; one that has just ended does not receive it.
pub fn kill(id: u32, signal: i32) {
    // SAFETY: kill only sends a signal.
    unsafe { libc::kill(id as libc::pid_t, signal) };
}

/// Waits until a condition holds.
pub fn until(what: &str, mut there: impl FnMut() -> bool) {
    let began = Instant::now();
    while !there() {
        assert!(began.elapsed() < Duration::from_secs(300), "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Starts a command whose output is collected.
pub fn start(mut command: Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// A run of some seconds with a checkpoint every other step.
pub const LONGER: &str = "--recipe smoke --quiet --set data.train=400 --set data.val=40 --set data.test=40 \
    --set train.steps=400 --set train.eval_every=10 --set train.checkpoint_every=2 --set model.redraw=7";

/// Returns whether the only run under `out` has saved its state.
pub fn saved(place: &Place, out: &str) -> bool {
    let mut folders = fs::read_dir(place.path().join(out)).into_iter().flatten();
    let folder = folders.next().and_then(Result::ok);
    folder.is_some_and(|folder| folder.path().join("checkpoint.safetensors").exists())
}

/// Returns the path of a file of the only stored data set.
pub fn stored(place: &Place, name: &str) -> PathBuf {
    let store = fs::read_dir(place.path().join("data/store")).unwrap();
    let folders: Vec<_> = store
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    assert_eq!(folders.len(), 1, "{folders:?}");
    folders[0].join(name)
}

/// Files that must not differ between equal runs.
pub const PRODUCTS: [&str; 3] = [
    "metrics.jsonl",
    "checkpoint.safetensors",
    "best.safetensors",
];

pub fn products(folder: &Path) -> Vec<Vec<u8>> {
    PRODUCTS
        .iter()
        .map(|name| fs::read(folder.join(name)).unwrap())
        .collect()
}

pub fn assert_same(left: &Path, right: &Path) {
    for (name, (left, right)) in PRODUCTS
        .iter()
        .zip(products(left).into_iter().zip(products(right)))
    {
        if *name == "checkpoint.safetensors" {
            // Its header counts the bytes of timings.jsonl, which holds clock times: only the
            // tensors are compared.
            assert!(tensors(&left) == tensors(&right), "{name} differs");
        } else {
            assert!(left == right, "{name} differs");
        }
    }
}

fn tensors(file: &[u8]) -> &[u8] {
    &file[8 + header_length(file)..]
}

/// Returns the length of a safetensors file's header, which follows the eight bytes that hold the
/// length.
pub fn header_length(file: &[u8]) -> usize {
    u64::from_le_bytes(file[..8].try_into().unwrap()) as usize
}
