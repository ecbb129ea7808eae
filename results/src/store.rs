//! A store of records: a folder of run folders, each with its `record.json`.
//!
//! Run folders may be grouped in folders, up to [`DEPTH`] levels. A file that is not a complete
//! record is named and skipped; the caller decides whether that is an error.

pub mod record_file;

use std::collections::HashMap;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::thread;

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::markup::shown;
use crate::record::{Record, SCHEMA};
use crate::{Error, Result, atomic, json, metrics};

/// Name of a run's record within its folder.
pub const FILE: &str = "record.json";

/// Name of the lock that a sweep holds in a run folder, so that a cell whose sweep was killed is not
/// run twice.
pub const SWEEP_LOCK: &str = "sweep.lock";
/// Name of the file with the output of the runs that a sweep started.
pub const SWEEP_LOG: &str = "log.txt";

/// Number of levels of folders below the store that are searched.
pub const DEPTH: usize = 4;

/// Contents of a folder.
#[derive(Debug, Default)]
pub struct Loaded {
    /// The records, in the order of their paths.
    pub records: Vec<Record>,
    /// Per record: the folder of its run.
    pub folders: Vec<PathBuf>,
    /// Files that should have held a record, each with the reason why it does not, in the order of
    /// their paths.
    pub skipped: Vec<(PathBuf, String)>,
    /// Number of skipped files that hold copies of records that are there.
    pub copies: usize,
    /// Folders of runs that have no record, as a killed run or one that could not begin leaves
    /// them, in the order of their paths.
    pub unfinished: Vec<PathBuf>,
}

impl Loaded {
    /// Returns the number of skipped files that hold no whole record.
    #[must_use]
    pub fn damaged(&self) -> usize {
        self.skipped.len() - self.copies
    }
}

/// Writes a record to a file, replacing it as a whole: a reader sees the old record or the new one.
///
/// # Errors
/// The folder is missing, read-only or full.
pub fn write(path: &Path, record: &Record) -> Result<()> {
    let text = serde_json::to_vec_pretty(record);
    let mut text = text.map_err(|error| not_a_record(path, json::reason(&error)))?;
    text.push(b'\n');
    atomic::write(path, &text)
}

/// Reads one record. With a non-finite score it becomes a diverged one.
///
/// # Errors
/// The file cannot be read; it holds no record, and the message says at which line it stops being
/// one, or which field holds a figure that cannot be; or the record is a newer program's, whose
/// fields may mean something else.
pub fn read(path: &Path) -> Result<Record> {
    let text = disk::read(path).map_err(Error::io("read", path))?;
    let text = disk::without_mark(&text);
    let bad = |reason: String| not_a_record(path, reason);
    let read = json::read::<Record>(text);
    // Read separately only if it may be the reason why the rest could not be read.
    let schema = match &read {
        Ok(record) => Schema {
            schema: record.schema,
        },
        Err(_) => json::read(text).map_err(bad)?,
    };
    schema.check(SCHEMA, path)?;
    let record = read.map(Record::settled).map_err(bad)?;
    let present: Present = json::read(text).map_err(bad)?;
    let checked = record.check().and_then(|()| present.check());
    checked.map(|()| record).map_err(bad)
}

/// The fields of a record whose value does not tell whether they are there.
#[derive(Deserialize)]
pub(crate) struct Present {
    seed: Option<IgnoredAny>,
}

impl Present {
    /// Checks that all are there: without seeds, one run supersedes the others.
    ///
    /// # Errors
    /// One is not, in words.
    pub(crate) fn check(&self) -> Result<(), String> {
        match self.seed {
            Some(_) => Ok(()),
            None => Err("seed is missing".to_owned()),
        }
    }
}

/// The schema version of a file, regardless of its other content.
#[derive(Deserialize)]
pub(crate) struct Schema {
    schema: u32,
}

impl Schema {
    /// Refuses a schema version above `known`.
    pub(crate) fn check(&self, known: u32, path: &Path) -> Result<()> {
        if self.schema <= known {
            return Ok(());
        }
        Err(Error::Newer {
            path: path.to_owned(),
            schema: self.schema,
            known,
        })
    }
}

fn not_a_record(path: &Path, reason: String) -> Error {
    Error::NotARecord {
        path: path.to_owned(),
        reason,
    }
}

/// Reads every record below `folder`, on all cores. `folder` may also be a single run's folder, or
/// a file of records ([`record_file`]).
///
/// A copy of a record (equal in every field) counts once: the second path is listed as skipped.
///
/// # Errors
/// `folder` itself cannot be read, or it contains a record of a newer program, or one that the
/// system does not allow to read: tables without it would be silently incomplete. Other faults are
/// listed in [`Loaded::skipped`].
pub fn load(folder: &Path) -> Result<Loaded> {
    if record_file::is_named_so(folder) {
        let records: Vec<Record> = record_file::read(folder)?
            .into_iter()
            .map(|(_, record)| record)
            .collect();
        return Ok(Loaded {
            // There is no run folder, which would hold its log.
            folders: vec![folder.to_owned(); records.len()],
            records,
            ..Loaded::default()
        });
    }
    let mut gathered = Gathered::default();
    let top = folder.join(FILE);
    if is_there(&top) {
        gathered.files.push(top);
    } else {
        let entries = fs::read_dir(folder).map_err(|error| {
            // What lies there says more than that it is no folder.
            let error = match (error.kind(), disk::open(folder)) {
                (ErrorKind::NotADirectory, Err(special)) => special,
                (ErrorKind::NotADirectory, Ok(_)) => io::Error::new(
                    error.kind(),
                    "neither a folder of runs nor a CSV file of records, as `lra merge` writes",
                ),
                _ => error,
            };
            Error::io("read", folder)(error)
        })?;
        gather(entries, DEPTH, &mut gathered);
    }
    let files = &gathered.files;

    let workers = thread::available_parallelism().map_or(1, usize::from);
    let share = files.len().div_ceil(workers).max(1);
    let read = thread::scope(|scope| {
        // A part for which no thread can be started is read by this one.
        let parts: Vec<_> = files
            .chunks(share)
            .map(|part| {
                let reader = thread::Builder::new();
                let started = reader.spawn_scoped(scope, move || read_all(part));
                started.map_err(|_| part)
            })
            .collect();
        let read = parts.into_iter().flat_map(|part| match part {
            Ok(reader) => match reader.join() {
                Ok(part) => part,
                Err(panic) => std::panic::resume_unwind(panic),
            },
            Err(part) => read_all(part),
        });
        read.collect::<Vec<_>>()
    });
    sort_out(gathered, read)
}

fn read_all(files: &[PathBuf]) -> Vec<Result<Record>> {
    files.iter().map(|file| read(file)).collect()
}

/// The files and folders found below a folder, in the order of their paths.
#[derive(Default)]
struct Gathered {
    /// Files that should hold a record.
    files: Vec<PathBuf>,
    /// Folders that cannot be read, each with the reason.
    skipped: Vec<(PathBuf, String)>,
    /// Folders of runs without a record.
    unfinished: Vec<PathBuf>,
}

/// Finds what lies below a folder, at most `depth` levels down. A run's folder is not searched
/// further.
fn gather(entries: fs::ReadDir, depth: usize, gathered: &mut Gathered) {
    let mut entries: Vec<fs::DirEntry> = entries.flatten().collect();
    entries.sort_by_cached_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        // The listing includes the type of an entry; only a link has to be followed.
        let folder = match entry.file_type() {
            Ok(kind) if !kind.is_symlink() => kind.is_dir(),
            _ => path.is_dir() && !leads_up(&path),
        };
        if hidden || depth == 0 || !folder {
            continue;
        }
        let file = path.join(FILE);
        if is_there(&file) {
            gathered.files.push(file);
            continue;
        }
        let has = |name: &str| is_there(&path.join(name));
        // A sweep leaves both, even if its run could not begin.
        let of_sweep = || [SWEEP_LOCK, SWEEP_LOG].into_iter().all(has);
        if [metrics::SETTINGS, metrics::FILE].into_iter().any(has) || of_sweep() {
            gathered.unfinished.push(path);
            continue;
        }
        match fs::read_dir(&path) {
            Ok(entries) => gather(entries, depth - 1, gathered),
            Err(error) => {
                let reason = format!("cannot be read: {error}");
                gathered.skipped.push((path, reason));
            }
        }
    }
}

/// Returns whether a link leads to a folder around it, whose runs are found without it.
fn leads_up(link: &Path) -> bool {
    let here = link.parent().map(Path::canonicalize);
    match (here, link.canonicalize()) {
        (Some(Ok(here)), Ok(target)) => here.starts_with(target),
        _ => false,
    }
}

/// Returns whether anything but a folder has this name. Reading it reports if it is not a regular
/// file.
fn is_there(file: &Path) -> bool {
    file.metadata().is_ok_and(|found| !found.is_dir())
}

/// Splits the contents read from each file into records and skipped files.
fn sort_out(gathered: Gathered, read: Vec<Result<Record>>) -> Result<Loaded> {
    let Gathered {
        files,
        mut skipped,
        unfinished,
    } = gathered;
    let mut copies = 0;
    let mut records: Vec<Record> = Vec::with_capacity(files.len());
    let mut folders = Vec::with_capacity(files.len());
    let mut by_id: HashMap<String, Vec<(usize, usize)>> = HashMap::new();
    for (index, result) in read.into_iter().enumerate() {
        match result {
            Ok(record) => {
                let known = by_id.entry(record.id.clone()).or_default();
                let copy = known.iter().find(|(at, _)| records[*at] == record);
                if let Some((_, original)) = copy {
                    let reason = format!("copy of {}", shown(&files[*original]));
                    skipped.push((files[index].clone(), reason));
                    copies += 1;
                } else {
                    known.push((records.len(), index));
                    records.push(record);
                    let file = &files[index];
                    folders.push(file.parent().unwrap_or(file).to_owned());
                }
            }
            // A run folder may vanish while the store is being read. It is then ignored.
            Err(Error::Io { cause, .. }) if cause.kind() == ErrorKind::NotFound => {}
            Err(newer @ Error::Newer { .. }) => return Err(newer),
            // A failing disk or a missing permission says nothing about the content of the file.
            Err(Error::Io {
                action,
                path,
                cause,
            }) if !disk::is_of_content(&cause) => {
                return Err(Error::Io {
                    action,
                    path,
                    cause,
                });
            }
            Err(Error::NotARecord { reason, .. }) => {
                let reason = format!("not a run record: {reason}; restore it, or move it away");
                skipped.push((files[index].clone(), reason));
            }
            Err(error) => skipped.push((files[index].clone(), error.to_string())),
        }
    }
    skipped.sort();
    Ok(Loaded {
        records,
        folders,
        skipped,
        copies,
        unfinished,
    })
}
