//! One run of a sweep: the process of `lra run`, its log and its outcome.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use datasets::tasks::mine;
use results::store::SWEEP_LOG;
use results::{Outcome, Record};

use crate::child::{self, Child};
use crate::error::{Class, Classify, Error, Result};
use crate::host;
use crate::provenance::JOBS;
use crate::run_folder::{self, RunFolder};
use crate::runtime::STOP_ON_EOF;
use crate::shell;
use crate::sweep::cell_lock::CellLock;
use crate::sweep::plan::Cell;
use crate::tracker::TrackerKind;

/// Start of the line of a log with the command of a run.
const COMMAND: &str = "--- ";

/// Options of every run of a sweep.
pub struct JobOptions {
    /// Data directory.
    pub data: PathBuf,
    /// Data directory as it was typed; `None` for the default, which runs find for themselves.
    pub data_option: Option<PathBuf>,
    /// Folder of run folders.
    pub out: PathBuf,
    /// Device for measuring estimates, in the form of `--device`.
    pub device: String,
    /// Threads of each process.
    pub threads: usize,
    /// Number of simultaneous processes.
    pub jobs: usize,
    /// Limit on live heap bytes of each process.
    pub memory_limit: Option<usize>,
    /// True if runs with other data, another program or another machine are accepted as the
    /// requested ones.
    pub accept_changes: bool,
    /// Experiment trackers that each run is written for.
    pub trackers: Vec<TrackerKind>,
}

impl JobOptions {
    /// Returns the run folder of a cell.
    pub fn folder(&self, cell: &Cell) -> PathBuf {
        self.out.join(&cell.id)
    }
}

/// A running process of a cell.
pub struct Job {
    /// Index of its cell.
    pub cell: usize,
    /// Device that it runs on.
    pub device: String,
    child: Child,
    /// Record that its folder held when it began.
    previous: Option<Record>,
    folder: PathBuf,
    _lock: CellLock,
}

/// Outcome of a run.
pub enum Ended {
    /// The test split was scored.
    Scored(Box<Record>),
    /// The run failed, by its record or because the process ended without one.
    Failed(Failure),
    /// The run stopped and can be resumed.
    Interrupted,
    /// Another process began the run first and is working on it.
    Elsewhere,
}

/// A run without a score.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// [`Class::Data`] if its data or its files are damaged or missing, else mostly [`Class::Run`].
    pub class: Class,
    /// The reason in words.
    pub reason: String,
    /// The record, if the run wrote one.
    pub record: Option<Box<Record>>,
}

impl Failure {
    /// Returns the failure of a cell that could not be run.
    pub fn of(error: &Error) -> Failure {
        Failure::new(error.class, error.to_string())
    }

    /// Returns a failure without a record.
    pub fn new(class: Class, reason: impl Into<String>) -> Failure {
        Failure {
            class,
            reason: reason.into(),
            record: None,
        }
    }
}

impl Ended {
    /// Returns the outcome that a record describes.
    pub fn of(record: Record) -> Ended {
        match &record.outcome {
            Outcome::Scored => Ended::Scored(Box::new(record)),
            Outcome::Interrupted { .. } => Ended::Interrupted,
            other => Ended::Failed(Failure {
                class: Class::Run,
                reason: other.to_string(),
                record: Some(Box::new(record)),
            }),
        }
    }
}

impl Job {
    /// Starts `lra run` for a cell, resuming where an earlier run stopped, or starting over with
    /// `force`.
    pub fn start(
        index: usize,
        cell: &Cell,
        options: &JobOptions,
        device: &str,
        lock: CellLock,
        force: bool,
    ) -> Result<Job> {
        let folder = options.folder(cell);
        let doing = || format!("starting the run of {}", cell.id);
        let mut words = arguments(cell, options, device);
        match (force, RunFolder::is_begun(&folder)) {
            (true, _) => words.push("--force".into()),
            (false, true) => words.push("--resume".into()),
            (false, false) => {}
        }
        if options.accept_changes && !force {
            words.push("--accept-changes".into());
        }
        let log = open_log(&folder, &words)?;
        let errors = log.try_clone().during(Class::Run, doing())?;
        words.push(STOP_ON_EOF.into());
        let previous = record(&folder);
        let environment = [(JOBS, options.jobs.to_string())];
        let program = child::this_program()?;
        let child = Child::start(&program, &words, &environment, log, errors);
        Ok(Job {
            cell: index,
            device: device.to_owned(),
            child: child.during(Class::Run, doing())?,
            previous,
            folder,
            _lock: lock,
        })
    }

    /// Returns the process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the time since the run was started.
    pub fn elapsed(&self) -> Duration {
        self.child.elapsed()
    }

    /// Requests the run to save its state and end.
    pub fn interrupt(&mut self) {
        self.child.close_stdin();
    }

    /// Returns the outcome once the run has ended.
    pub fn poll(&mut self) -> Result<Option<Ended>> {
        let doing = || format!("waiting for {}", self.folder.display());
        let status = self.child.poll().during(Class::Run, doing())?;
        Ok(status.map(|status| ended(&self.folder, status, self.previous.as_ref())))
    }

    /// Returns the last line of its log, which shows its progress.
    pub fn progress(&self) -> String {
        last_line(&self.folder.join(SWEEP_LOG))
    }
}

/// Returns the arguments of the run. Each value is in one word with its flag, since it may begin
/// with a dash; paths may be no text.
fn arguments(cell: &Cell, options: &JobOptions, device: &str) -> Vec<OsString> {
    let settings = &cell.resolved.spec.cell;
    let mut words: Vec<OsString> = vec!["run".into()];
    let mut option = |name: &str, value: &OsStr| {
        let mut word = OsString::from(format!("--{name}="));
        word.push(value);
        words.push(word);
    };
    let mut text = |name: &str, value: &str| option(name, value.as_ref());
    match mine::is_folder(&settings.task) {
        true => text("task", &mine::relative_name(&settings.task)),
        false => text("task", &settings.task),
    }
    text("source", &settings.source.to_string());
    text("model", &settings.model);
    text("recipe", &cell.recipe);
    text("seed", &settings.seed.to_string());
    text("protocol", &settings.protocol.to_string());
    for assignment in &cell.resolved.overrides {
        text("set", assignment);
    }
    text("device", device);
    text("threads", &options.threads.to_string());
    if let Some(bytes) = options.memory_limit {
        text("memory-limit", &bytes.to_string());
    }
    if let Some(data) = &options.data_option {
        option("data", data.as_os_str());
    }
    option("out", options.out.as_os_str());
    for tracker in &options.trackers {
        option("tracker", tracker.name().as_ref());
    }
    words
}

/// Opens the log at its end and writes the command that is started.
fn open_log(folder: &Path, words: &[OsString]) -> Result<File> {
    let path = folder.join(SWEEP_LOG);
    let log = disk::own_alone(&path, File::options().create(true).append(true));
    let mut log = log.map_err(|error| run_folder::not_opened(&path, &error))?;
    let words: Vec<_> = words.iter().map(|word| shell::quoted_word(word)).collect();
    writeln!(log, "{COMMAND}{}: lra {}", host::now(), words.join(" "))
        .during(Class::Run, format!("writing {}", path.display()))?;
    Ok(log)
}

fn record(folder: &Path) -> Option<Record> {
    results::store::read(&folder.join(results::store::FILE)).ok()
}

/// Returns the outcome of the run, by its exit status, its record and its log; `previous` is the
/// record from before it began.
fn ended(folder: &Path, status: ExitStatus, previous: Option<&Record>) -> Ended {
    // A run that ends before it can write a record leaves an older one, which says nothing about
    // this end.
    let record = record(folder).filter(|record| status.success() || previous != Some(record));
    let interrupted = i32::from(Class::Interrupted.code());
    match (status.code(), record) {
        (Some(code), _) if code == interrupted => Ended::Interrupted,
        // The signal came before the run could listen to it.
        (None, None) if child::was_stopped(status) => Ended::Interrupted,
        (Some(code), Some(record)) if code != 0 && record.outcome == Outcome::Scored => {
            let reason = format!("it was scored, but {}", reason_of(folder, status));
            Ended::Failed(Failure {
                record: Some(Box::new(record)),
                ..Failure::new(Class::Run, reason)
            })
        }
        (_, Some(record)) => Ended::of(record),
        (Some(_), None) if is_at_work(folder) => Ended::Elsewhere,
        (None, None) => Ended::Failed(Failure::new(
            Class::Run,
            format!(
                "{status}: something else ended the process, as a system does that runs out of memory; the same command resumes it"
            ),
        )),
        (Some(code), None) => {
            let classes = [Class::Usage, Class::Data];
            let class = classes.into_iter().find(|it| i32::from(it.code()) == code);
            let reason = reason_of(folder, status);
            Ended::Failed(Failure::new(class.unwrap_or(Class::Run), reason))
        }
    }
}

/// Returns whether a process is working on the run.
fn is_at_work(folder: &Path) -> bool {
    matches!(run_folder::lock(&folder.join(run_folder::LOCK)), Ok(None))
}

/// Returns the reason that the log of a run gives for its end, else its exit status.
fn reason_of(folder: &Path, status: ExitStatus) -> String {
    let log = tail(&folder.join(SWEEP_LOG)).unwrap_or_default();
    let reason = reason(&String::from_utf8_lossy(&log));
    match reason.is_empty() {
        true => status.to_string(),
        false => reason,
    }
}

/// Returns the reason why the last run in a log ended: its error with all of its lines, separated
/// by semicolons, or else its last line.
fn reason(log: &str) -> String {
    const ERROR: &str = "error: ";
    let lines: Vec<&str> = log.lines().map(str::trim).collect();
    let command = lines.iter().rposition(|line| line.starts_with(COMMAND));
    let own = &lines[command.map_or(0, |at| at + 1)..];
    match own.iter().position(|line| line.starts_with(ERROR)) {
        None => {
            let last = own.iter().rev().find(|line| !line.is_empty());
            last.map_or(String::new(), |line| (*line).to_owned())
        }
        Some(at) => {
            let lines = own[at..].iter().filter(|line| !line.is_empty());
            let lines: Vec<&str> = lines.map(|line| line.trim_start_matches(ERROR)).collect();
            lines.join("; ")
        }
    }
}

/// Returns the last line of a log that is not blank; empty if there is none.
fn last_line(path: &Path) -> String {
    let text = tail(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    child::last_line(&text).unwrap_or_default().to_owned()
}

/// Returns the end of a file.
fn tail(path: &Path) -> io::Result<Vec<u8>> {
    const BYTES: u64 = 4096;
    let mut file = disk::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(BYTES)))?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The raw status of a process that was ended by a signal is the signal's number.
    #[cfg(unix)]
    #[test]
    fn a_run_that_was_stopped_before_it_could_listen_is_interrupted() {
        use std::os::unix::process::ExitStatusExt;
        let folder = tempfile::tempdir().unwrap();
        let of = |signal| ended(folder.path(), ExitStatus::from_raw(signal), None);
        assert!(matches!(of(libc::SIGINT), Ended::Interrupted));
        assert!(matches!(of(libc::SIGTERM), Ended::Interrupted));
        assert!(matches!(of(libc::SIGKILL), Ended::Failed(_)));
    }

    #[test]
    fn the_reason_is_the_whole_error_of_the_last_run() {
        let log = "--- then: lra run\nerror: an old one\n--- now: lra run\nstep 1\n                   error: no data\n\nto get it: lra data fetch text\nor use the stand-in\n";
        assert_eq!(
            reason(log),
            "no data; to get it: lra data fetch text; or use the stand-in"
        );
        assert_eq!(reason("--- now: lra run\nstep 7\n"), "step 7");
        assert_eq!(reason(""), "");
    }

    fn words_of(cell: &Cell, options: &JobOptions) -> Vec<String> {
        let words = arguments(cell, options, "cpu").into_iter();
        words.map(|it| it.into_string().unwrap()).collect()
    }

    /// A word that is missing, or another one, makes a run of other settings than the sweep shows.
    #[test]
    fn the_command_of_a_run_has_every_option_of_the_sweep() {
        use crate::sweep::testing::{bag, matrix, options};
        let matrix = crate::sweep::plan::Matrix {
            tasks: vec!["image:synthetic".parse().unwrap()],
            protocol: datasets::Protocol::Tay2021,
            assignments: vec!["train.steps=3".to_owned()],
            ..matrix(vec![bag(&["block.layers=2"])], vec![5])
        };
        let cells = matrix.cells().unwrap();
        let common = [
            "run",
            "--task=image",
            "--source=synthetic",
            "--model=bag",
            "--recipe=smoke",
            "--seed=5",
            "--protocol=tay2021",
            "--set=train.steps=3",
            "--set=block.layers=2",
            "--device=cpu",
            "--threads=3",
        ];
        let own = ["--memory-limit=1073741824", "--data=typed", "--out=-out"];
        let trackers = ["--tracker=mlflow", "--tracker=wandb"];
        assert_eq!(
            words_of(&cells[0], &options()),
            [&common[..], &own, &trackers].concat()
        );
        let few = JobOptions {
            data_option: None,
            memory_limit: None,
            trackers: Vec::new(),
            ..options()
        };
        assert_eq!(words_of(&cells[0], &few), [&common[..], &own[2..]].concat());
    }

    #[cfg(unix)]
    #[test]
    fn an_older_record_says_nothing_about_a_run_that_failed_before_its_own() {
        use std::os::unix::process::ExitStatusExt;
        let folder = tempfile::tempdir().unwrap();
        let crate::sweep::scheduler::State::Scored { record, .. } =
            crate::sweep::testing::scored(0.5, 1.0)
        else {
            panic!("a score");
        };
        let file = folder.path().join(results::store::FILE);
        results::store::write(&file, &record).unwrap();
        let of = |code: i32, previous| {
            let status = ExitStatus::from_raw(code << 8);
            match ended(folder.path(), status, previous) {
                Ended::Scored(_) => "scored".to_owned(),
                Ended::Interrupted => "interrupted".to_owned(),
                Ended::Elsewhere => "elsewhere".to_owned(),
                Ended::Failed(failure) => format!("{:?}", failure.class),
            }
        };
        let found: Vec<_> = [0, 2, 3, 4, 1, 130]
            .map(|code| of(code, Some(&*record)))
            .into();
        assert_eq!(
            found,
            ["scored", "Usage", "Data", "Run", "Run", "interrupted"]
        );
        // With a new score, the run failed at what follows, such as an export to a tracker.
        let found: Vec<_> = [0, 4, 130].map(|code| of(code, None)).into();
        assert_eq!(found, ["scored", "Run", "interrupted"]);
        // A run that another process began between the look at its folder and the start.
        let of = |code: i32| {
            let status = ExitStatus::from_raw(code << 8);
            ended(folder.path(), status, Some(&*record))
        };
        let held = run_folder::lock(&folder.path().join(run_folder::LOCK)).unwrap();
        assert!(matches!(of(4), Ended::Elsewhere));
        drop(held);
        assert!(matches!(of(4), Ended::Failed(_)));
    }
}
