//! The folder of one run: its settings, logs, checkpoints and record, held by one process at a
//! time.
//!
//! ```text
//! <out>/<run id>/spec.toml                the frozen settings
//!                metrics.jsonl            losses and scores: equal byte for byte for equal settings
//!                timings.jsonl            seconds per step and phase
//!                checkpoint.safetensors   everything needed to resume
//!                best.safetensors         the weights with the best validation score
//!                pretrain-*               the previous four files, for a pretraining
//!                tensorboard/             the metrics for TensorBoard, if requested
//!                mlruns/, wandb/, trackio/  the run for these trackers, if requested
//!                draft.json               the record as known when training began: data, program, machine
//!                record.json              the outcome, written last
//!                error.log                the full error of a failed run, if longer than a line
//!                run.lock                 held while a process works in the folder
//!                sweep.lock, log.txt      the lock of a sweep, and the output of its runs
//! ```

mod inventory;

use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use datasets::tasks::mine;
use disk::{Append, Locked};
use results::store::{SWEEP_LOCK, SWEEP_LOG};
use results::{Outcome, Record};
use serde::Serialize;

pub use self::inventory::Missing;
use crate::damaged::Damaged;
use crate::digest::Running;
use crate::error::{Class, Classify, Error, Result};
use crate::spec::{Difference, Spec};
use crate::{checkpoint, tracker};

/// A run's folder, locked for this process until dropped.
pub struct RunFolder {
    path: PathBuf,
    _lock: Locked,
}

/// Contents of a folder when it is opened.
#[derive(Debug)]
pub enum Found {
    /// No trace of a run.
    Nothing,
    /// A run that was started, and stopped or killed.
    Unfinished,
    /// A failed run that may succeed when it is resumed: the disk was full, or the memory was not
    /// sufficient.
    Failed(Box<Record>),
    /// A run whose record is final: it would end in the same way again.
    Finished(Box<Record>),
}

impl RunFolder {
    /// Creates or opens the folder `<out>/<id>`, takes its lock, and removes the half-written files
    /// of killed processes.
    pub fn open(out: &Path, id: &str) -> Result<Self> {
        let path = out.join(id);
        if out.join(SPEC).is_file() && out.join(LOCK).is_file() {
            return Err(Error::usage(format!(
                "--out {} is itself the folder of a run, in which reports look for no other: name the folder that holds it",
                out.display()
            )));
        }
        make(&path)?;
        let Some(lock) = lock(&path.join(LOCK))? else {
            let place = path.display();
            return Err(Error::usage(format!(
                "another process is at work in {place}; wait for it or choose another --out"
            )));
        };
        results::clear_unfinished(&path).class(Class::Usage)?;
        let folder = RunFolder { path, _lock: lock };
        match RunFolder::is_being_cleared(&folder.path) {
            true => folder.clear()?,
            // The process was killed before it removed anything; later the mark would cost a run.
            false => folder.remove(CLEARING)?,
        }
        Ok(folder)
    }

    /// Removes what is no file, such as a folder, in place of the locks and of a sweep's log,
    /// before the folder is opened to start over. [`RunFolder::clear`] leaves these three.
    pub fn clear_way(out: &Path, id: &str) -> Result<()> {
        let folder = out.join(id);
        refuse_link(&folder)?;
        for path in [LOCK, SWEEP_LOCK, SWEEP_LOG].map(|name| folder.join(name)) {
            match fs::symlink_metadata(&path) {
                Ok(found) if !found.is_file() => remove(&path)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of one of its files.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Returns the contents of the folder, which are those of a run with these settings.
    ///
    /// # Errors
    /// One of its files is a symbolic link; the record is damaged or that of another run.
    pub fn found(&self, spec: &Spec) -> Result<Found> {
        disk::refuse_links(&self.path).map_err(|(path, error)| {
            Error::usage(format!(
                "{}: {error}; or start over with --force",
                path.display()
            ))
        })?;
        if self.record().exists() {
            let record = Box::new(read_record(&self.record(), spec)?);
            return Ok(match &record.outcome {
                Outcome::Interrupted { .. } => Found::Unfinished,
                outcome if outcome.is_final() => Found::Finished(record),
                _ => Found::Failed(record),
            });
        }
        Ok(match RunFolder::is_begun(&self.path) {
            true => Found::Unfinished,
            false => Found::Nothing,
        })
    }

    /// Returns whether files of a run are there, finished or not.
    pub fn holds_a_run(&self) -> bool {
        self.record().exists() || RunFolder::is_begun(&self.path)
    }

    /// Returns the record of the run with these settings in the folder at `path` as far as it is
    /// known: the last one written, else the draft.
    ///
    /// # Errors
    /// The record is damaged or that of another run.
    pub fn begun(path: &Path, spec: &Spec) -> Result<Option<Record>> {
        if RunFolder::is_being_cleared(path) {
            return Ok(None);
        }
        let files = [results::store::FILE, DRAFT].map(|name| path.join(name));
        let Some(path) = files.iter().find(|path| path.exists()) else {
            return Ok(None);
        };
        read_record(path, spec).map(Some)
    }

    /// Returns, in words, the files of weights that name no run, such as those of older versions.
    pub fn nameless(&self) -> Option<String> {
        let phases = [self.pretraining(), self.training()];
        let files = phases
            .iter()
            .flat_map(|phase| [&phase.checkpoint, &phase.best]);
        let nameless = files.filter(|file| checkpoint::is_nameless(file));
        let names: Vec<_> = nameless.filter_map(|file| file.file_name()).collect();
        let verb = if names.len() == 1 { "does" } else { "do" };
        let listed = results::listed(names.iter().map(|name| name.to_string_lossy()));
        (!names.is_empty()).then(|| format!("{listed} of an older version {verb} not name a run"))
    }

    /// Removes the record of an earlier attempt.
    pub fn remove_record(&self) -> Result<()> {
        self.remove(results::store::FILE)
    }

    /// Saves the record as far as it is known.
    pub fn save_draft(&self, draft: &Record) -> Result<()> {
        results::store::write(&self.draft(), draft).map_err(unwritable)
    }

    /// Returns whether a process was killed while it removed the files of the run in the folder at
    /// `path`: what is left there is nothing of a run. The record goes first; while it is there, the
    /// run is.
    pub fn is_being_cleared(path: &Path) -> bool {
        path.join(CLEARING).exists() && !path.join(results::store::FILE).exists()
    }

    /// Removes the files that an earlier run left. If this is interrupted, the next process that
    /// opens the folder removes the rest.
    pub fn clear(&self) -> Result<()> {
        // At one stroke: either the record is there, or the mark. The mark of an earlier attempt
        // stays where there is no record.
        if self.record().is_file() {
            self.remove(CLEARING)?;
            let renamed = disk::rename(&self.record(), &self.file(CLEARING));
            renamed.during(
                Class::Usage,
                format!("removing {}", self.record().display()),
            )?;
        } else if !self.file(CLEARING).exists() && RunFolder::is_begun(&self.path) {
            results::write(&self.file(CLEARING), b"").map_err(unwritable)?;
        }
        for name in [
            results::store::FILE,
            SPEC,
            DRAFT,
            results::metrics::FILE,
            TIMINGS,
            CHECKPOINT,
            BEST,
            ERROR,
        ]
        .into_iter()
        .chain(tracker::folders())
        {
            self.remove(name)?;
        }
        for name in [results::metrics::FILE, TIMINGS, CHECKPOINT, BEST] {
            self.remove(&format!("{PRETRAIN}{name}"))?;
        }
        self.remove(CLEARING)
    }

    fn remove(&self, name: &str) -> Result<()> {
        remove(&self.file(name))
    }

    /// Keeps the full text of an error, to find its cause later; `None` removes that of an earlier
    /// attempt.
    pub fn keep_error(&self, error: Option<&str>) -> Result<()> {
        match error {
            Some(text) => results::write(&self.file(ERROR), text.as_bytes()).map_err(unwritable),
            None => self.remove(ERROR),
        }
    }

    /// Saves the settings.
    pub fn save_spec(&self, spec: &Spec) -> Result<()> {
        let path = self.file(SPEC);
        results::write(&path, spec.to_toml()?.as_bytes()).map_err(unwritable)
    }

    /// Returns whether settings are stored, since a run may fail before it has any.
    ///
    /// # Errors
    /// The stored settings are damaged, or they differ from `spec`.
    pub fn holds(&self, spec: &Spec) -> Result<bool> {
        let path = self.file(SPEC);
        let Some(on_file) = read_spec(&self.path)? else {
            return Ok(false);
        };
        let differences = on_file.differences(spec);
        if differences.is_empty() {
            return Ok(true);
        }
        Err(Error::usage(format!(
            "{} holds a run with other settings: you asked for {}; start over with --force",
            path.display(),
            Difference::list(&differences)
        )))
    }

    /// Returns the other run folders in the same folder, each with its settings. Those without
    /// readable settings are left out.
    pub fn siblings(&self) -> Vec<(PathBuf, Spec)> {
        let beside = self.path.parent().map(fs::read_dir);
        let entries = beside.into_iter().flatten().flatten().flatten();
        let mut folders: Vec<_> = entries
            .map(|entry| entry.path())
            .filter(|path| *path != self.path)
            .collect();
        folders.sort();
        let read = |path: PathBuf| {
            let text = disk::read_to_string(&path.join(SPEC)).ok()?;
            Some((path, toml::from_str(&text).ok()?))
        };
        folders.into_iter().filter_map(read).collect()
    }

    /// Returns the path of the draft of the record.
    pub fn draft(&self) -> PathBuf {
        self.file(DRAFT)
    }

    /// Returns the path of the record.
    pub fn record(&self) -> PathBuf {
        self.file(results::store::FILE)
    }

    /// Returns the files of training.
    pub fn training(&self) -> PhaseFiles {
        self.phase("")
    }

    /// Returns the files of a pretraining.
    pub fn pretraining(&self) -> PhaseFiles {
        self.phase(PRETRAIN)
    }

    fn phase(&self, prefix: &str) -> PhaseFiles {
        phase_of(&self.path, prefix)
    }
}

/// Returns the settings of the run in the folder at `path`; `None` if it has none.
///
/// # Errors
/// They are damaged or cannot be read.
pub fn read_spec(path: &Path) -> Result<Option<Spec>> {
    let (run, path) = (path, path.join(SPEC));
    let text = match disk::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        text => text.map_err(|error| Damaged::or_io(&path, "reading", error)),
    };
    let read = toml::from_str(&text.class(Class::Data)?);
    let read = read.map_err(|error| Damaged {
        path,
        problem: datasets::of_deserializer(error.message(), "a table"),
    });
    let mut spec: Spec = read.class(Class::Data)?;
    if mine::is_folder(&spec.cell.task) {
        spec.cell.task = mine::found_name(&spec.cell.task, run);
    }
    Ok(Some(spec))
}

/// Returns the files of training in the folder at `path`.
pub fn training_files(path: &Path) -> PhaseFiles {
    phase_of(path, "")
}

/// Returns the paths of the files of a phase in the folder at `path`.
fn phase_of(path: &Path, prefix: &str) -> PhaseFiles {
    let file = |name: &str| path.join(format!("{prefix}{name}"));
    PhaseFiles {
        metrics: file(results::metrics::FILE),
        timings: file(TIMINGS),
        checkpoint: file(CHECKPOINT),
        best: file(BEST),
    }
}

/// The files of one phase of a run.
pub struct PhaseFiles {
    /// The log of losses and scores.
    pub metrics: PathBuf,
    /// The log of times.
    pub timings: PathBuf,
    /// Everything needed to resume.
    pub checkpoint: PathBuf,
    /// The best weights.
    pub best: PathBuf,
}

/// Remedy for a damaged file of a run.
const START_OVER: &str = "start over with `lra run --force`";

/// Returns the error for a folder whose run has no record yet.
pub fn unfinished(folder: &Path) -> Error {
    Error::usage(format!(
        "{} holds an unfinished run: continue it with `lra run --resume` first",
        disk::escape(&folder.display().to_string())
    ))
}

/// Returns whether an error of a run folder tells of damage. Those of the system do not: the files
/// may be sound.
pub fn is_damage(error: &Error) -> bool {
    error.to_string().contains(START_OVER)
}

/// Returns the error for a file of a run that cannot be used. Only what tells of the file itself is
/// a reason to start over.
pub fn unusable(error: results::Error) -> Error {
    let joint = match error {
        results::Error::Io { .. } => ";",
        // The error ends in a remedy of its own.
        _ => ", or",
    };
    match error.is_of_content() {
        // Not added as a context, since the problem comes first.
        true => Error::new(Class::Data, format!("{error}{joint} {START_OVER}")),
        false => Error::new(Class::Data, error),
    }
}

/// Returns the error for a file of a run that cannot be written: what lies in its place is damage,
/// and all else, such as a full disk, a failure of the run.
pub fn unwritable(error: results::Error) -> Error {
    match error.is_of_content() {
        true => unusable(error),
        false => Error::new(Class::Run, error),
    }
}

/// Returns the error for a lock or a log in a run folder that cannot be opened. What lies in its
/// place is damage to no run.
pub fn not_opened(path: &Path, error: &io::Error) -> Error {
    let is_link = disk::refuse_link(path).is_err();
    let (class, first) = match is_link {
        true => (Class::Usage, "or"),
        false => (Class::of_writing(error), "move it away, or"),
    };
    let remedy = match disk::is_of_content(error) {
        true => format!("; {first} {START_OVER}"),
        false => String::new(),
    };
    Error::new(
        class,
        format!("opening {}: {error}{remedy}", path.display()),
    )
}

/// Makes the folder of a run, if it is not there.
///
/// # Errors
/// It is a symbolic link, or cannot be made.
pub fn make(path: &Path) -> Result<()> {
    refuse_link(path)?;
    fs::create_dir_all(path).map_err(|error| not_made(path, error))
}

/// Returns the error for a folder of results that cannot be made.
pub fn not_made(path: &Path, error: io::Error) -> Error {
    let (class, remedy) = match error.kind() {
        // A file stands in the way: a wrong argument.
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
            (Class::Usage, "; choose another folder with --out")
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            (Class::Data, "; choose a folder you may write to with --out")
        }
        _ => (Class::of_writing(&error), ""),
    };
    Error::new(
        class,
        format!("creating the folder {}: {error}{remedy}", path.display()),
    )
}

/// Refuses a run folder that is a symbolic link. Links above it, such as `--out`, are the user's.
fn refuse_link(path: &Path) -> Result<()> {
    disk::refuse_link(path).during(Class::Usage, format!("the run folder {}", path.display()))
}

/// Reads a record in a run folder, whose name is the run's id.
pub fn read_record(path: &Path, spec: &Spec) -> Result<Record> {
    let record = results::store::read(path).map_err(unusable)?;
    let folder = path.parent().and_then(Path::file_name);
    let other_id =
        (folder != Some(OsStr::new(&record.id))).then(|| format!("its id is {}", record.id));
    match other_id.or_else(|| other_run(&record, spec)) {
        None => Ok(record),
        Some(what) => Err(Error::new(
            Class::Data,
            format!(
                "{} is the record of another run: {what}; {START_OVER}",
                path.display()
            ),
        )),
    }
}

/// Returns the first fact, in words, by which a record is not one of a run with these settings.
pub fn other_run(record: &Record, spec: &Spec) -> Option<String> {
    let (cell, digest) = (&spec.cell, spec.digest());
    let differs = |what: &str, found: &str, wanted: &str| {
        (found != wanted).then(|| format!("its {what} is {found} instead of {wanted}"))
    };
    let seeds = [record.seed, cell.seed].map(|seed| seed.to_string());
    differs("seed", &seeds[0], &seeds[1])
        .or_else(|| differs("task", &record.task.name, &cell.task_name()))
        .or_else(|| differs("model", &record.model.name, &cell.model))
        .or_else(|| {
            let digests = [&record.provenance.spec_digest, &digest];
            let [found, wanted] = digests.map(|digest| digest.get(..12).unwrap_or(digest));
            (record.provenance.spec_digest != digest).then(|| {
                format!(
                    "its digest of the settings is {found} instead of {wanted} \
                     (spec.toml was changed, or another version of lra wrote both)"
                )
            })
        })
}

/// Locks a file in one of the program's own folders, creating it. Returns `None` if another process
/// holds the lock.
///
/// # Errors
/// The file cannot be opened, is a symbolic link or is not a regular file; or the file system has
/// no locks.
pub fn lock(path: &Path) -> Result<Option<Locked>> {
    let mut options = File::options();
    let file = disk::own(path, options.create(true).truncate(false).write(true));
    let file = file.map_err(|error| not_opened(path, &error))?;
    match disk::try_lock(file) {
        Ok(lock) => Ok(Some(lock)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => {
            Err(error).during(Class::Data, format!("locking {}", path.display()))
        }
    }
}

/// Returns whether `path` is a file that a run keeps in its folder.
pub fn is_file_of_run(path: &Path) -> bool {
    let folder = path.parent().unwrap_or(Path::new(""));
    let name = path.file_name().and_then(OsStr::to_str).unwrap_or_default();
    let kept = [
        results::store::FILE,
        results::metrics::FILE,
        SWEEP_LOCK,
        SWEEP_LOG,
        LOCK,
        ERROR,
        SPEC,
        DRAFT,
        TIMINGS,
        CHECKPOINT,
        BEST,
    ];
    let is_run = || {
        [SPEC, results::store::FILE]
            .iter()
            .any(|own| folder.join(own).exists())
    };
    (kept.contains(&name) || name.starts_with(PRETRAIN)) && path.exists() && is_run()
}

/// Removes a file or a folder, if it exists.
fn remove(path: &Path) -> Result<()> {
    match disk::remove(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).during(Class::Usage, format!("removing {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// Name of the lock that a running process holds in a run folder.
pub const LOCK: &str = "run.lock";
/// Name of the file with the error of a failed run.
pub const ERROR: &str = "error.log";
const SPEC: &str = "spec.toml";
const DRAFT: &str = "draft.json";
const TIMINGS: &str = crate::timing::FILE;
const CHECKPOINT: &str = "checkpoint.safetensors";
const BEST: &str = "best.safetensors";
const PRETRAIN: &str = "pretrain-";
/// Mark of a folder whose files are being removed.
const CLEARING: &str = ".clearing";

/// A log of JSON lines that can be truncated to its length at a checkpoint.
pub struct Log {
    file: File,
    path: PathBuf,
    bytes: u64,
    digest: Running,
}

impl Log {
    /// Opens the log to go on after its first `bytes` bytes, whose SHA-256 is `checksum` if it is
    /// known. What follows them stays until [`Log::shorten`].
    ///
    /// # Errors
    /// [`Damaged`]: the log is shorter, or begins with other bytes, as that of another run does; or
    /// it cannot be read. It is left as it is.
    pub fn open(path: PathBuf, bytes: u64, checksum: Option<&str>) -> anyhow::Result<Self> {
        use anyhow::Context;
        let context = || format!("opening {}", path.display());
        let mut options = File::options();
        let file = disk::own_alone(&path, options.create(true).append(true).read(true));
        let mut file = file.map_err(|error| Damaged::or_io(&path, "opening", error))?;
        let length = file.metadata().with_context(context)?.len();
        if length < bytes {
            let problem = "it is shorter than its checkpoint says".to_owned();
            return Err(Damaged { path, problem }.into());
        }
        let digest = digest_of(&mut file, bytes).with_context(context)?;
        if checksum.is_some_and(|checksum| checksum != digest.sha256()) {
            let problem = "it is not the log that its checkpoint belongs to".to_owned();
            return Err(Damaged { path, problem }.into());
        }
        Ok(Log {
            file,
            path,
            bytes,
            digest,
        })
    }

    /// Drops what follows the bytes after which the log goes on.
    pub fn shorten(&self) -> anyhow::Result<()> {
        use anyhow::Context;
        let cut = self.file.set_len(self.bytes);
        cut.with_context(|| format!("shortening {}", self.path.display()))
    }

    /// Appends one line, or nothing if the disk is full.
    pub fn line(&mut self, value: &impl Serialize) -> anyhow::Result<()> {
        use anyhow::Context;
        let mut line = serde_json::to_vec(value)?;
        line.push(b'\n');
        if let Err(error) = self.file.append(&line) {
            // Half a line would make the log unreadable. The first error is the one to report.
            let _ = self.file.set_len(self.bytes);
            return Err(error).with_context(|| format!("writing {}", self.path.display()));
        }
        self.bytes += line.len() as u64;
        self.digest.add(&line);
        Ok(())
    }

    /// Syncs all lines to disk, and returns the length in bytes.
    pub fn sync(&mut self) -> io::Result<u64> {
        disk::sync(&self.file)?;
        Ok(self.bytes)
    }

    /// Returns the SHA-256 of the log.
    pub fn sha256(&self) -> String {
        self.digest.sha256()
    }

    /// Returns the path of the log.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Digests the first `bytes` bytes of a file.
fn digest_of(file: &mut File, bytes: u64) -> io::Result<Running> {
    let mut digest = Running::default();
    let mut reader = BufReader::new(file.take(bytes));
    loop {
        let part = reader.fill_buf()?;
        let length = part.len();
        if length == 0 {
            return Ok(digest);
        }
        digest.add(part);
        reader.consume(length);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_of_a_run_by_its_seed_names_and_settings() {
        let request = crate::spec::RunRequest {
            task: "toy",
            model: "bag",
            recipe: "smoke",
            source: None,
            protocol: datasets::Protocol::Clean,
            seed: 3,
            assignments: &[],
        };
        let spec = request.resolve().unwrap().spec;
        let of = |seed: u64, task: &str, model: &str, digest: &str| {
            let record = serde_json::json!({
                "schema": 1,
                "id": "toy-bag-smoke-s0-0a1b2c3d",
                "outcome": { "status": "scored" },
                "task": { "name": task, "label": "toy", "source": "generated" },
                "model": { "name": model },
                "recipe": { "name": "smoke" },
                "seed": seed,
                "spec_digest": digest,
            });
            let record: Record = serde_json::from_value(record).unwrap();
            other_run(&record, &spec)
        };
        let digest = spec.digest();
        // The digest is compared to its end, though only its beginning is told.
        let near = format!("{}0", &digest[..digest.len() - 1]);
        let near = if near == digest {
            format!("{}1", &digest[..digest.len() - 1])
        } else {
            near
        };
        assert_eq!(of(3, "toy", "bag", &digest), None);
        for (found, words) in [
            (of(4, "toy", "bag", &digest), "its seed is 4 instead of 3"),
            (
                of(3, "text", "bag", &digest),
                "its task is text instead of toy",
            ),
            (
                of(3, "toy", "linear", &digest),
                "its model is linear instead of bag",
            ),
            (of(3, "toy", "bag", &near), "spec.toml was changed"),
            (of(3, "toy", "bag", ""), "spec.toml was changed"),
        ] {
            let found = found.unwrap();
            assert!(found.contains(words), "{found}");
        }
    }

    #[test]
    fn the_files_of_a_run_are_those_that_it_keeps() {
        let place = tempfile::tempdir().unwrap();
        let names = [
            "spec.toml",
            "draft.json",
            "record.json",
            "metrics.jsonl",
            "timings.jsonl",
            "checkpoint.safetensors",
            "best.safetensors",
            "pretrain-metrics.jsonl",
            "pretrain-best.safetensors",
            "error.log",
            "run.lock",
            "sweep.lock",
            "log.txt",
        ];
        let own = place.path().join("own");
        fs::create_dir(&own).unwrap();
        for name in names
            .into_iter()
            .chain(["notes.txt", "best.safetensors.bak"])
        {
            fs::write(own.join(name), "").unwrap();
        }
        for name in names {
            assert!(is_file_of_run(&own.join(name)), "{name}");
        }
        for name in [
            "notes.txt",
            "best.safetensors.bak",
            "pretrain-checkpoint.safetensors",
        ] {
            assert!(!is_file_of_run(&own.join(name)), "{name}");
        }
        // A file of that name elsewhere is anybody's.
        fs::write(place.path().join("log.txt"), "").unwrap();
        assert!(!is_file_of_run(&place.path().join("log.txt")));
    }

    /// Files of the user stay, and so do the locks and the log of a sweep, which other processes
    /// hold open.
    #[test]
    fn clearing_removes_every_file_of_a_run_and_no_other() {
        let place = tempfile::tempdir().unwrap();
        let folder = RunFolder::open(place.path(), "run").unwrap();
        let phase = ["metrics.jsonl", "timings.jsonl", "checkpoint.safetensors"];
        let phase = phase.into_iter().chain(["best.safetensors"]);
        let gone: Vec<String> = phase
            .flat_map(|name| [name.to_owned(), format!("pretrain-{name}")])
            .chain(["spec.toml", "draft.json", "record.json", "error.log"].map(str::to_owned))
            .collect();
        let stay = [
            "run.lock",
            "sweep.lock",
            "log.txt",
            "notes.txt",
            "pretrain-notes.txt",
            "best.safetensors.bak",
        ];
        let folders = ["mlruns", "wandb", "trackio", "tensorboard"];
        let names = || -> Vec<String> {
            let entries = fs::read_dir(folder.path()).unwrap();
            let names = entries.map(|it| it.unwrap().file_name().into_string().unwrap());
            let mut names: Vec<String> = names.collect();
            names.sort();
            names
        };
        let mut left = stay.map(str::to_owned).to_vec();
        left.sort();
        // With the record and without, of which the first is renamed.
        for with_record in [true, false] {
            let there = gone.iter().map(String::as_str);
            let there = there.filter(|name| with_record || *name != "record.json");
            for name in there.chain(stay) {
                fs::write(folder.file(name), "").unwrap();
            }
            for name in folders {
                fs::create_dir(folder.file(name)).unwrap();
                fs::write(folder.file(name).join("file"), "").unwrap();
            }
            folder.clear().unwrap();
            assert_eq!(names(), left, "{with_record}");
            assert!(!folder.holds_a_run());
        }
    }

    #[test]
    fn a_log_of_another_run_is_damage_and_is_left_as_it_is() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        let mut log = Log::open(path("own"), 0, None).unwrap();
        log.line(&"first").unwrap();
        let bytes = log.sync().unwrap();
        let checksum = log.sha256();
        log.line(&"second").unwrap();
        let length = || fs::metadata(path("own")).unwrap().len();
        let again = Log::open(path("own"), bytes, Some(&checksum)).unwrap();
        assert_eq!((again.sha256(), again.bytes), (checksum.clone(), bytes));
        assert!(
            length() > bytes,
            "nothing is dropped until all logs are known to be sound"
        );
        again.shorten().unwrap();
        assert_eq!(length(), bytes);

        let foreign = "\"other\"\n\"lines\"\n";
        fs::write(path("foreign"), foreign).unwrap();
        let error = Log::open(path("foreign"), bytes, Some(&checksum)).err();
        let error = error.unwrap();
        assert!(error.is::<Damaged>(), "{error}");
        assert_eq!(fs::read_to_string(path("foreign")).unwrap(), foreign);
        // Older checkpoints know no checksum.
        Log::open(path("foreign"), bytes, None).unwrap();
    }
}
