//! The store: `<data>/store/<task>-<source>-<digest>/{train,val,test}.safetensors` and `manifest.json`.
//!
//! An entry is built in a hidden folder beside its place, synced, and renamed, so it is there completely or not at
//! all. A lock file per entry keeps two builders apart: the second waits, then finds the entry built. Whatever a
//! killed process left behind is removed by the next builder, except for its checkpoint, from which it resumes.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result, io};
use crate::locate::stand_in;
use crate::manifest::{Manifest, SplitName};
use crate::options::has_source;
use crate::origin::Origin;
use crate::{Key, Progress, Source, Splits, Task, source_checks};

use self::scratch::{checkpoint_of, clear_leftovers, hidden, lock, parent};

mod build;
pub(crate) mod entry;
mod scratch;
mod source_files;

/// A data directory.
#[derive(Debug, Clone)]
pub struct Store {
    root: PathBuf,
}

/// One folder of a store.
#[derive(Debug)]
pub struct Entry {
    /// Where it lies.
    pub folder: PathBuf,
    /// Size of all its files.
    pub bytes: u64,
    /// What it holds, or why that is unknown.
    pub manifest: Result<Manifest>,
}

impl Store {
    /// The store in the data directory `root`, which need not exist yet.
    pub fn new(root: &Path) -> Store {
        Store {
            root: root.to_owned(),
        }
    }

    /// Where the entry of `key` lies, or would lie.
    pub fn folder(&self, task: &dyn Task, key: &Key) -> PathBuf {
        let about = task.about();
        let name = task.identity(key).folder_name(about.name, about.version);
        self.root.join("store").join(name)
    }

    /// Opens an entry.
    ///
    /// # Errors
    /// Impossible options; [`Error::Missing`] with the command that makes it; [`Error::Corrupt`] with the file.
    pub fn open(&self, task: &dyn Task, key: &Key) -> Result<Splits> {
        check(task, key)?;
        let folder = self.folder(task, key);
        if folder.is_dir() {
            return entry::open(task, &folder, &remedy(task, key));
        }
        Err(Error::Missing {
            what: format!("the {} data of {}", key.source, task.about().name),
            path: folder,
            there: None,
            command: key.make_command(task),
            stand_in: (key.source == Source::Official)
                .then(|| stand_in(task.about()))
                .flatten(),
        })
    }

    /// Opens an entry, and builds it first where it does not exist. `from` is where the published files are; by default
    /// those [`found`](Self::found).
    ///
    /// # Errors
    /// As [`open`](Self::open), and whatever keeps it from being built; [`Error::OtherFiles`] where the entry exists and
    /// `from` has other files than it was built from.
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
        if let (Some(raw), Source::Official) = (from, key.source) {
            self.expect_same(task, key, raw, &folder, progress)?;
        }
        entry::open(task, &folder, &remedy(task, key))
    }

    /// Refuses an entry that was built from other files than these. Files that look as they did then are taken for the
    /// same; others are read as a build would, since the same content comes in several forms.
    fn expect_same(
        &self,
        task: &dyn Task,
        key: &Key,
        raw: &Path,
        folder: &Path,
        progress: &dyn Progress,
    ) -> Result<()> {
        let origin = Origin::of(raw);
        if origin.is_some() && origin == Origin::read(folder) {
            return Ok(());
        }
        let stored = entry::read_manifest(folder, &remedy(task, key))?;
        let scratch = self.scratch()?;
        let fresh = Store::new(scratch.path()).rebuild(task, key, Some(raw), progress)?;
        match source_checks::difference(&stored, &fresh.manifest) {
            None => {
                // Only saves time; a store that cannot be written is no error.
                if let Some(origin) = origin {
                    let _ = origin.write(folder);
                }
                Ok(())
            }
            Some(difference) => Err(Error::OtherFiles {
                folder: folder.to_owned(),
                raw: raw.to_owned(),
                difference,
                remedy: format!(
                    "{} --from {} --force",
                    key.make_command(task),
                    raw.display()
                ),
            }),
        }
    }

    /// Builds an entry, replacing the one that is there once the new one is complete.
    ///
    /// # Errors
    /// As [`open_or_build`](Self::open_or_build).
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

    /// Whether a build of the entry was interrupted and will go on where it stopped.
    pub fn begun(&self, task: &dyn Task, key: &Key) -> bool {
        checkpoint_of(&self.folder(task, key)).exists()
    }

    /// Everything in the store, by name.
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
            if folder.is_dir() && !hidden(&folder) {
                let manifest = entry::read_manifest(&folder, entry::REMOVE);
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

/// The command that replaces the entry of `key`.
fn remedy(task: &dyn Task, key: &Key) -> String {
    format!("{} --force", key.make_command(task))
}

/// The options are possible, and the task has the source.
fn check(task: &dyn Task, key: &Key) -> Result<()> {
    has_source(task.about(), key.source)?;
    task.shape(&key.options).map(|_| ())
}
