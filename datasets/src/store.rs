//! The store: `<data>/store/<task>-<source>-<digest>/{train,val,test}.safetensors` and
//! `manifest.json`.
//!
//! An entry is built in a hidden folder next to its final place, synced, and renamed, so it exists
//! completely or not at all. A lock file per entry separates two builders: the second one waits,
//! then finds the entry built. The next builder removes the leftovers of a killed process, except
//! for its checkpoint, from which it resumes. An entry that such a process had moved aside to
//! replace it is moved back.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result, io};
use crate::locate::stand_in;
use crate::manifest::{Manifest, SplitName};
use crate::options::has_source;
use crate::origin::Origin;
use crate::{Digest, Key, Progress, Source, Splits, Task, source_checks};

pub use self::raw_files::{OtherRawFiles, RawFiles};
use self::scratch::{checkpoint_of, clear_leftovers, is_foreign, lock, parent};

mod build;
pub(crate) mod entry;
mod raw_files;
mod scratch;
mod source_files;

/// Store of built entries in a data directory.
#[derive(Debug, Clone)]
pub struct Store {
    root: PathBuf,
}

/// One folder of a store.
#[derive(Debug)]
pub struct Entry {
    /// Folder of the entry.
    pub folder: PathBuf,
    /// Total size of its files.
    pub bytes: u64,
    /// Manifest of the entry, or the reason why it is unknown.
    pub manifest: Result<Manifest>,
}

impl Store {
    /// Returns the store in the data directory `root`, which need not exist yet.
    pub fn new(root: &Path) -> Store {
        Store {
            root: root.to_owned(),
        }
    }

    /// Returns the folder of the entry of `key`, whether it exists or not.
    pub fn folder(&self, task: &dyn Task, key: &Key) -> PathBuf {
        let info = task.info();
        let identity = task.identity(key);
        let name = identity.folder_name(info.name, info.version, &code_of(task));
        self.root.join("store").join(name)
    }

    /// Opens an entry.
    ///
    /// # Errors
    /// Impossible options; [`Error::Missing`] with the command that makes the entry;
    /// [`Error::Corrupt`] with the file.
    pub fn open(&self, task: &dyn Task, key: &Key) -> Result<Splits> {
        check(task, key)?;
        let folder = self.folder(task, key);
        if !folder.is_dir() {
            // A killed process may have moved it aside.
            clear_leftovers(parent(&folder));
        }
        if folder.is_dir() {
            return entry::open(task, &folder, &remedy(task, key));
        }
        Err(Error::Missing {
            what: format!("the {} data of {}", key.source, task.info().name),
            path: folder,
            there: None,
            command: key.make_command(task),
            stand_in: (key.source == Source::Official)
                .then(|| stand_in(task.info()))
                .flatten(),
        })
    }

    /// Returns [`Error::Missing`] if an entry neither exists nor could be built, because no
    /// published files are [`found`](Self::found).
    pub fn absent(&self, task: &dyn Task, key: &Key) -> Option<Error> {
        if key.source != Source::Official || self.found(task).is_some() {
            return None;
        }
        let missing = self.open(task, key).err();
        missing.filter(|error| matches!(error, Error::Missing { .. }))
    }

    /// Opens an entry, and builds it first where it does not exist. `from` is the path of the
    /// published files; by default those [`found`](Self::found).
    ///
    /// # Errors
    /// Errors of [`open`](Self::open), and any error of the build; [`Error::OtherFiles`] where the
    /// entry exists and `from` has other files than it was built from.
    pub fn open_or_build(
        &self,
        task: &dyn Task,
        key: &Key,
        from: Option<&Path>,
        progress: &dyn Progress,
    ) -> Result<Splits> {
        check(task, key)?;
        let folder = self.folder(task, key);
        clear_leftovers(parent(&folder));
        if !folder.is_dir() {
            let _lock = lock(&folder, progress)?;
            // Another builder may have finished while this one waited.
            if !folder.is_dir() {
                self.build(task, key, from, &folder, progress)?;
                return entry::open(task, &folder, &remedy(task, key));
            }
        }
        let own = match key.source {
            Source::Folder => self.found(task),
            _ => None,
        };
        let raw = match key.source {
            Source::Official => from,
            _ => own.as_deref(),
        };
        if let Some(raw) = raw {
            self.expect_same(task, key, raw, &folder, progress)?;
            if key.source == Source::Official {
                // The note only saves words; a read-only store is no error.
                let _ = self.note(task, raw);
            }
        }
        entry::open(task, &folder, &remedy(task, key))
    }

    /// Opens an entry as [`open_or_build`](Self::open_or_build) does, but also one that was built
    /// from other files than those that are there now.
    ///
    /// # Errors
    /// Those of [`open_or_build`](Self::open_or_build), but for [`Error::OtherFiles`].
    pub fn open_as_stored(
        &self,
        task: &dyn Task,
        key: &Key,
        progress: &dyn Progress,
    ) -> Result<Splits> {
        match self.open_or_build(task, key, None, progress) {
            Err(Error::OtherFiles { .. }) => self.open(task, key),
            splits => splits,
        }
    }

    /// Refuses an entry that was built from other files than these. Files with the recorded stamps
    /// or contents are the same; others are read as in a build, since the same content comes in
    /// several forms.
    fn expect_same(
        &self,
        task: &dyn Task,
        key: &Key,
        raw: &Path,
        folder: &Path,
        progress: &dyn Progress,
    ) -> Result<()> {
        let origin = Origin::of_task(task, raw);
        let made = Origin::read(folder).ok().flatten();
        if let (Some(made), Some(now)) = (&made, &origin)
            && made.path == now.path
            && made.is_same_as(now) == Some(true)
        {
            return Ok(());
        }
        // Read before the files are read as data: files that change meanwhile do not match.
        let origin = origin.map(Origin::with_content);
        let stored = entry::read_manifest(folder, &remedy(task, key))?;
        let scratch = self.scratch()?;
        let fresh = Store::new(scratch.path()).rebuild(task, key, Some(raw), progress)?;
        match source_checks::difference(&stored, &fresh.manifest) {
            None => {
                // The record only saves time; a read-only store is no error.
                if let Some(origin) = origin {
                    let _ = origin.write(folder);
                }
                Ok(())
            }
            Some(difference) => Err(Error::OtherFiles {
                folder: folder.to_owned(),
                raw: raw.to_owned(),
                difference,
                remedy: format!("{} --force", key.make_command_from(task, raw)),
            }),
        }
    }

    /// Builds an entry, replacing an existing one once the new one is complete.
    ///
    /// # Errors
    /// Errors of [`open_or_build`](Self::open_or_build).
    pub fn rebuild(
        &self,
        task: &dyn Task,
        key: &Key,
        from: Option<&Path>,
        progress: &dyn Progress,
    ) -> Result<Splits> {
        check(task, key)?;
        let folder = self.folder(task, key);
        let _lock = lock(&folder, progress)?;
        self.build(task, key, from, &folder, progress)?;
        entry::open(task, &folder, &remedy(task, key))
    }

    /// Returns whether a build of the entry was interrupted and can be resumed.
    pub fn begun(&self, task: &dyn Task, key: &Key) -> bool {
        checkpoint_of(&self.folder(task, key)).exists()
    }

    /// Returns all entries of the store, by name.
    ///
    /// # Errors
    /// The store's folder cannot be read. A damaged entry is listed, with its error.
    pub fn list(&self) -> Result<Vec<Entry>> {
        let store = self.root.join("store");
        let items = match fs::read_dir(&store) {
            Ok(items) => items,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(io("read", &store)(error)),
        };
        let mut entries = Vec::new();
        for item in items {
            let folder = item.map_err(io("read", &store))?.path();
            if folder.is_dir() && !is_foreign(&folder) {
                let manifest = entry::read_manifest(&folder, entry::REMOVE).and_then(|manifest| {
                    for split in SplitName::ALL {
                        entry::file_of(&folder, &manifest, split, entry::REMOVE)?;
                    }
                    Ok(manifest)
                });
                let size = |split: SplitName| {
                    fs::metadata(folder.join(split.file_name())).map_or(0, |file| file.len())
                };
                entries.push(Entry {
                    bytes: SplitName::ALL.into_iter().map(size).sum(),
                    folder,
                    manifest,
                });
            }
        }
        entries.sort_by(|one, other| one.folder.cmp(&other.folder));
        Ok(entries)
    }
}

/// Returns the SHA-256 of the source code of a program's own task; empty for one of this crate.
fn code_of(task: &dyn Task) -> String {
    match task.source() {
        "" => String::new(),
        source => Digest::of(source.as_bytes()),
    }
}

/// Returns the command that replaces the entry of `key`.
fn remedy(task: &dyn Task, key: &Key) -> String {
    format!("{} --force", key.make_command(task))
}

/// Checks that the options are possible and that the task has the source.
fn check(task: &dyn Task, key: &Key) -> Result<()> {
    has_source(task.info(), key.source)?;
    task.shape(&key.options).map(|_| ())
}
