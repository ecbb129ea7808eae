//! Folder of one entry: its manifest, and opening it with every check that costs milliseconds.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use disk::Append;

use crate::error::{Error, Result, io};
use crate::files;
use crate::manifest::{Manifest, PerSplit, SplitName};
use crate::split::{Split, Splits};
use crate::verified_files::{self, FileStat, OpenedFile};
use crate::words::{counted, of_json};
use crate::{Digest, Task, source_checks, tasks};

const MANIFEST: &str = "manifest.json";

/// Number of times that an entry may be replaced while it is opened.
const REPLACEMENTS: usize = 10;
/// Time that an entry may be absent while it is replaced.
const BETWEEN_RENAMES: Duration = Duration::from_millis(10);

/// Remedy for an entry without a readable manifest.
pub(crate) const REMOVE: &str = "remove its folder; the data is made again when it is needed";

/// Returns the state of a split's file.
///
/// # Errors
/// [`Error::Corrupt`] with the `remedy` if it is gone, or not as long as the manifest says; or the
/// system refuses to look at it.
pub(super) fn file_of(
    folder: &Path,
    manifest: &Manifest,
    split: SplitName,
    remedy: &str,
) -> Result<FileStat> {
    let file = folder.join(split.file_name());
    let said = manifest.splits.get(split).bytes;
    let problem = match FileStat::of(&file) {
        Err(Error::Io { cause, .. }) if cause.kind() == ErrorKind::NotFound => {
            "the file is gone".to_owned()
        }
        Ok(stat) if stat.bytes != said => {
            format!("{} long instead of {said}", counted(stat.bytes, "byte"))
        }
        other => return other,
    };
    Err(Error::Corrupt {
        file,
        problem,
        remedy: remedy.to_owned(),
    })
}

/// Opens a folder as an entry of `task`, checking sizes, headers, offsets and labels against the
/// manifest, and the SHA-256 of files whose size or time changed since they were last hashed.
/// Errors advise `remedy`. An entry that another process replaces meanwhile is opened again.
pub(crate) fn open(task: &dyn Task, folder: &Path, remedy: &str) -> Result<Splits> {
    let manifest = || disk::read(&folder.join(MANIFEST)).ok();
    for _ in 0..REPLACEMENTS {
        let before = manifest();
        match open_whole(task, folder, remedy) {
            Err(error) if may_be_replaced(&error) && (before.is_none() || manifest() != before) => {
                thread::sleep(BETWEEN_RENAMES);
            }
            opened => return opened,
        }
    }
    open_whole(task, folder, remedy)
}

/// Returns whether an error may be due to files of two entries, or to none between them.
fn may_be_replaced(error: &Error) -> bool {
    match error {
        Error::Corrupt { .. } => true,
        Error::Io { cause, .. } => cause.kind() == ErrorKind::NotFound,
        _ => false,
    }
}

fn open_whole(task: &dyn Task, folder: &Path, remedy: &str) -> Result<Splits> {
    let splits = open_files(task, folder, remedy)?;
    match splits.manifest.digest == Manifest::content_digest(&splits.manifest.splits) {
        true => Ok(splits),
        false => Err(Error::Corrupt {
            file: folder.join(MANIFEST),
            problem: "its content digest is not that of the files it lists".to_owned(),
            remedy: remedy.to_owned(),
        }),
    }
}

/// Opens a folder as [`open`] does, with any content digest: verification judges that apart.
pub(crate) fn open_files(task: &dyn Task, folder: &Path, remedy: &str) -> Result<Splits> {
    let info = task.info();
    let manifest = read_manifest(folder, remedy)?;
    let corrupt = |file: PathBuf, problem: String| Error::Corrupt {
        file,
        problem,
        remedy: remedy.to_owned(),
    };
    let expected = manifest
        .key()
        .folder_name(info.name, manifest.version, &manifest.code);
    if manifest.task != info.name
        || folder
            .file_name()
            .is_none_or(|name| name != expected.as_str())
    {
        let problem = format!("it describes `{expected}`, another entry than its folder");
        return Err(corrupt(folder.join(MANIFEST), problem));
    }
    let verified = verified_files::read(folder);
    let mut all_verified = true;
    let mut opened = Vec::new();
    let open_split = |split_name: SplitName| -> Result<Split> {
        let path = folder.join(split_name.file_name());
        let said = manifest.splits.get(split_name);
        let stat = file_of(folder, &manifest, split_name, remedy)?;
        if stat != *verified.get(split_name) {
            all_verified = false;
            if Digest::of_file(&path, |_| ())? != said.sha256 {
                return Err(corrupt(
                    path,
                    "its SHA-256 is not the one in the manifest".to_owned(),
                ));
            }
        }
        opened.push(OpenedFile::open(split_name, &path, stat)?);
        let map = Split::map(&path)?;
        let split = Split::new(map, info.towers, info.classes, manifest.dense.as_ref())
            .map_err(|problem| corrupt(path.clone(), problem))?;
        if split.len() != said.rows {
            return Err(corrupt(
                path,
                format!("{} instead of {}", counted(split.len(), "row"), said.rows),
            ));
        }
        Ok(split)
    };
    let PerSplit { train, val, test } = PerSplit::try_new(open_split)?;
    if !all_verified {
        // The record only saves time at the next opening; a read-only store is no error.
        let _ = verified_files::write(folder);
    }
    Ok(Splits {
        train,
        val,
        test,
        manifest,
        opened,
    })
}

/// Returns whether a folder has all files of an entry.
pub(crate) fn is_whole(folder: &Path) -> bool {
    let mut files = SplitName::ALL.into_iter().map(SplitName::file_name);
    folder.join(MANIFEST).is_file() && files.all(|file| folder.join(file).is_file())
}

/// Reads `manifest.json` of an entry.
pub(crate) fn read_manifest(folder: &Path, remedy: &str) -> Result<Manifest> {
    let path = folder.join(MANIFEST);
    let damaged = |problem: String| Error::Corrupt {
        file: path.clone(),
        problem,
        remedy: remedy.to_owned(),
    };
    let text = files::read(&path).map_err(|error| match error.is_of_system() {
        // This says nothing of the file.
        true => error,
        false => damaged(error.to_string()),
    })?;
    let mut manifest: Manifest = serde_json::from_slice(disk::without_mark(&text))
        .map_err(|error| damaged(of_json(&error)))?;
    manifest.escape_texts();
    // An entry of an earlier version, which knew fewer published values.
    if let Some(task) = tasks::find(&manifest.task) {
        source_checks::mark(&mut manifest, &task.known());
    }
    Ok(manifest)
}

/// Writes and syncs `manifest.json` of an entry.
pub(crate) fn write_manifest(folder: &Path, manifest: &Manifest) -> Result<()> {
    let path = &folder.join(MANIFEST);
    let mut text =
        serde_json::to_string_pretty(manifest).map_err(|error| io("write", path)(error.into()))?;
    text.push('\n');
    let file = files::create(path).map_err(io("create", path))?;
    file.append(text.as_bytes()).map_err(io("write", path))?;
    disk::sync(&file).map_err(io("sync", path))
}
