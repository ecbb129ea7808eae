//! The process of one cell.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use results::{Outcome, Record};

use crate::error::{Class, Classify, Result};
use crate::host;
use crate::sweep::cell_lock::CellLock;
use crate::sweep::plan::Cell;

/// Name of a cell's log within its run folder.
pub const LOG: &str = "log.txt";

/// Options that every run of a sweep is started with.
pub struct JobOptions {
    /// Data directory.
    pub data: PathBuf,
    /// Folder of run folders.
    pub out: PathBuf,
    /// Device, as `--device` takes it.
    pub device: String,
    /// Threads of each process.
    pub threads: usize,
    /// Most live heap bytes of each process.
    pub memory_limit: Option<usize>,
}

impl JobOptions {
    /// The run folder of a cell.
    pub fn folder(&self, cell: &Cell) -> PathBuf {
        self.out.join(&cell.id)
    }
}

/// A run at work.
pub struct Job {
    /// Index of its cell.
    pub cell: usize,
    child: Child,
    /// Its standard input. The run saves its state and stops when it is closed, also by the death of this process.
    stdin: Option<ChildStdin>,
    /// The record that its folder held when it began.
    previous: Option<Record>,
    began: Instant,
    folder: PathBuf,
    _lock: CellLock,
}

/// How a run ended.
pub enum Ended {
    /// The test split was scored.
    Scored(Box<Record>),
    /// A record says why not, or the process ended without one.
    Failed(String),
    /// It stopped and can go on.
    Interrupted,
}

impl Ended {
    /// What a record says.
    pub fn of(record: Record) -> Ended {
        match &record.outcome {
            Outcome::Scored => Ended::Scored(Box::new(record)),
            Outcome::Interrupted { .. } => Ended::Interrupted,
            other => Ended::Failed(other.to_string()),
        }
    }
}

impl Job {
    /// Starts `lra run` for a cell, going on where an earlier run stopped, or over again with `force`.
    pub fn start(
        index: usize,
        cell: &Cell,
        options: &JobOptions,
        lock: CellLock,
        force: bool,
    ) -> Result<Job> {
        let folder = options.folder(cell);
        let doing = || format!("starting the run of {}", cell.id);
        let program = std::env::current_exe().during(Class::Run, doing())?;
        let mut command = Command::new(program);
        command.args(arguments(cell, options));
        command.arg(if force { "--force" } else { "--resume" });
        let log = open_log(&folder, &command).during(Class::Run, doing())?;
        let errors = log.try_clone().during(Class::Run, doing())?;
        command.arg("--stop-on-eof");
        command.stdin(Stdio::piped()).stdout(log).stderr(errors);
        let previous = record(&folder);
        let mut child = command.spawn().during(Class::Run, doing())?;
        Ok(Job {
            cell: index,
            stdin: child.stdin.take(),
            child,
            previous,
            began: Instant::now(),
            folder,
            _lock: lock,
        })
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// How long it has been at work.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Asks it to save its state and end.
    pub fn interrupt(&mut self) {
        self.stdin = None;
    }

    /// How it ended, once it has.
    pub fn poll(&mut self) -> Result<Option<Ended>> {
        let doing = || format!("waiting for {}", self.folder.display());
        let status = self.child.try_wait().during(Class::Run, doing())?;
        Ok(status.map(|status| ended(&self.folder, status, self.previous.as_ref())))
    }

    /// The last line of its log: how far it is.
    pub fn progress(&self) -> String {
        last_line(&self.folder.join(LOG)).unwrap_or_default()
    }
}

fn arguments(cell: &Cell, options: &JobOptions) -> Vec<String> {
    let settings = &cell.resolved.spec.cell;
    let mut words: Vec<String> = vec!["run".to_owned()];
    let mut option = |name: &str, value: String| words.extend([format!("--{name}"), value]);
    option("task", settings.task.clone());
    option("source", settings.source.to_string());
    option("model", settings.model.clone());
    option("recipe", cell.recipe.clone());
    option("seed", settings.seed.to_string());
    option("protocol", settings.protocol.to_string());
    for assignment in &cell.resolved.overrides {
        option("set", assignment.clone());
    }
    option("device", options.device.clone());
    option("threads", options.threads.to_string());
    if let Some(bytes) = options.memory_limit {
        option("memory-limit", bytes.to_string());
    }
    option("data", options.data.display().to_string());
    option("out", options.out.display().to_string());
    words
}

/// Opens the log at its end and writes down what is started.
fn open_log(folder: &Path, command: &Command) -> io::Result<File> {
    fs::create_dir_all(folder)?;
    let mut log = OpenOptions::new()
        .create(true)
        .append(true)
        .open(folder.join(LOG))?;
    let words: Vec<_> = command
        .get_args()
        .map(|word| word.to_string_lossy())
        .collect();
    writeln!(log, "--- {}: lra {}", host::now(), words.join(" "))?;
    Ok(log)
}

fn record(folder: &Path) -> Option<Record> {
    results::store::read(&folder.join(results::store::FILE)).ok()
}

/// How the run ended, by its exit status, its record and its log; `previous` is the record from before it began.
fn ended(folder: &Path, status: ExitStatus, previous: Option<&Record>) -> Ended {
    // A run that ends before it can write a record leaves an older one, which says nothing of this end.
    let record = record(folder).filter(|record| status.success() || previous != Some(record));
    let interrupted = i32::from(Class::Interrupted.code());
    match (status.code(), record) {
        (Some(code), _) if code == interrupted => Ended::Interrupted,
        (_, Some(record)) => Ended::of(record),
        (None, None) => Ended::Failed(status.to_string()),
        (Some(_), None) => {
            let last = last_line(&folder.join(LOG)).unwrap_or_default();
            Ended::Failed(format!("{status}: {}", last.trim_start_matches("error: ")))
        }
    }
}

/// The last line of a text file that is not empty.
fn last_line(path: &Path) -> Option<String> {
    const TAIL: u64 = 4096;
    let mut file = File::open(path).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))
        .ok()?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let line = text.lines().rev().find(|line| !line.trim().is_empty())?;
    Some(line.trim().to_owned())
}
