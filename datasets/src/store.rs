//! The store: `<data>/store/<task>-<source>-<digest>/{train,val,test}.safetensors` and `manifest.json`.
//!
//! An entry is built in a hidden folder beside its place, synced, and renamed, so it is there completely or not at
//! all. A lock file per entry keeps two builders apart: the second waits, then finds the entry built. Whatever a
//! killed process left behind is removed by the next builder, except for a [`BuildCheckpoint`], which it uses.

use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::error::{Error, Result, io};
use crate::locate::stand_in;
use crate::manifest::{Manifest, SplitName};
use crate::options::has_source;
use crate::origin::Origin;
use crate::tasks::TASKS;
use crate::{
    BuildCheckpoint, Key, Progress, Request, Source, SplitWriter, Splits, Task, source_checks,
    verified_files,
};

pub(crate) mod entry;

/// What names of files and folders beside an entry begin with: its lock, the entry while it is built, the one it replaces.
const LOCK: &str = ".lock-";
const BUILDING: &str = ".building-";
const REPLACED: &str = ".replaced-";
/// The same of folders in the data directory for what is built to be looked at only; each has a lock within.
const SCRATCH: &str = ".scratch-";

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
    /// What it holds, or why that cannot be told.
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

    /// The folder for published files of `task`.
    pub fn raw(&self, task: &dyn Task) -> PathBuf {
        self.root.join("raw").join(task.about().name)
    }

    /// Where a build looks for published files of `task` that is not told: their folder, where the last build that
    /// was told found them, or an archive in the folder of another task that is published in the same one. Nothing, if
    /// they are in none of these places.
    pub fn found(&self, task: &dyn Task) -> Option<PathBuf> {
        let folder = self.raw(task);
        // What a broken download or copy left is not a published file yet.
        let whole = |item: std::io::Result<fs::DirEntry>| {
            let name = item.map(|item| item.file_name().to_string_lossy().into_owned());
            name.is_ok_and(|name| !name.contains(".part") && !name.ends_with(".copy"))
        };
        if fs::read_dir(&folder).is_ok_and(|mut items| items.any(whole)) {
            return Some(folder);
        }
        if let Ok(told) = fs::read_to_string(self.note_of(task)) {
            let told = PathBuf::from(told.trim_end());
            if told.exists() {
                return Some(told);
            }
        }
        self.shared(task)
    }

    /// A published archive in the folder of another task, where it holds the files of `task` too: it need not be there
    /// once for each.
    pub fn shared(&self, task: &dyn Task) -> Option<PathBuf> {
        let own = self.raw(task);
        let others = TASKS.iter().map(|other| self.raw(*other));
        others
            .filter(|folder| *folder != own)
            .flat_map(|folder| {
                task.remote()
                    .iter()
                    .map(move |remote| folder.join(remote.file))
            })
            .find(|path| path.is_file())
    }

    /// Remembers where published files of `task` lie, so that data of other options is built from the same.
    fn note(&self, task: &dyn Task, raw: &Path) -> Result<()> {
        let note = self.note_of(task);
        let folder = parent(&note);
        fs::create_dir_all(folder).map_err(io("create", folder))?;
        let raw = raw.canonicalize().map_err(io("find", raw))?;
        // A path that is not text is not worth a note.
        match raw.to_str() {
            Some(path) => fs::write(&note, format!("{path}\n")).map_err(io("write", &note)),
            None => Ok(()),
        }
    }

    fn note_of(&self, task: &dyn Task) -> PathBuf {
        self.root
            .join("raw")
            .join(format!("{}.from", task.about().name))
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

    /// A folder below the data directory that goes when it is dropped, or is cleared by a later process.
    pub(crate) fn scratch(&self) -> Result<Aside> {
        fs::create_dir_all(&self.root).map_err(io("create", &self.root))?;
        clear_scratch(&self.root);
        let folder = tempfile::Builder::new()
            .prefix(SCRATCH)
            .tempdir_in(&self.root)
            // The error of `tempfile` also names the folder that it did not create.
            .map_err(|error| io("create a folder in", &self.root)(error.kind().into()))?;
        let path = folder.path().join(LOCK);
        let lock = File::create(&path).map_err(io("create", &path))?;
        lock.lock().map_err(io("lock", &path))?;
        Ok(Aside {
            _lock: lock,
            folder,
        })
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

    /// Builds into a hidden folder and renames it to `folder`. The caller holds the lock.
    fn build(
        &self,
        task: &dyn Task,
        key: &Key,
        from: Option<&Path>,
        folder: &Path,
        progress: &dyn Progress,
    ) -> Result<()> {
        let begun = Instant::now();
        let key = task.identity(key);
        let source = key.source;
        let shape = task.shape(&key.options)?;
        let work = Scratch::create(beside(folder, BUILDING))?;
        let replaced = Scratch::create(beside(folder, REPLACED))?;

        let mut writer = SplitWriter::create(&work.0, task.about(), shape.max_length, progress)?;
        let found = self.found(task).unwrap_or_else(|| self.raw(task));
        let checkpoint = checkpoint_of(folder);
        let request = Request {
            source: key.source,
            protocol: key.protocol,
            options: &key.options,
            raw: from.unwrap_or(&found),
            progress,
            checkpoint: &checkpoint,
        };
        let origin = match source {
            // Before they are read: files that change meanwhile do not look like this afterwards.
            Source::Official => Origin::of(request.raw),
            _ => None,
        };
        fill(task, &request, &mut writer)?;
        let (splits, remarks) = writer.finish()?;
        let mut manifest = Manifest {
            task: task.about().name.to_owned(),
            version: task.about().version,
            source: key.source,
            protocol: key.protocol,
            options: key.options,
            label: shape.label,
            max_length: shape.max_length,
            digest: Manifest::content_digest(&splits),
            splits,
            partial: remarks.partial,
            altered: remarks.altered,
            distinct: remarks.distinct,
            notes: remarks.notes,
            facts: remarks.facts,
            built_at: SystemTime::now()
                .duration_since(UNIX_EPOCH)
                .unwrap_or_default()
                .as_secs(),
            build_seconds: begun.elapsed().as_secs_f64(),
        };
        source_checks::mark(&mut manifest, &task.known());
        verified_files::write(&work.0)?;
        if let Some(origin) = origin {
            origin.write(&work.0)?;
        }
        entry::write_manifest(&work.0, &manifest)?;
        sync_folder(&work.0)?;
        if folder.exists() {
            fs::rename(folder, replaced.0.join("entry")).map_err(io("replace", folder))?;
        }
        fs::rename(&work.0, folder).map_err(io("create", folder))?;
        sync_folder(parent(folder))?;
        checkpoint.discard();
        match (from, source) {
            (Some(raw), Source::Official) => self.note(task, raw),
            _ => Ok(()),
        }
    }
}

/// Has the task write its rows.
fn fill(task: &dyn Task, request: &Request<'_>, writer: &mut SplitWriter<'_>) -> Result<()> {
    let built = task.build(request, writer);
    if request.source != Source::Official {
        return built;
    }
    let checked = built.and_then(|()| match writer.empty() {
        None => Ok(()),
        // Whatever was read, it is not the task's data; with drawn data it would be a mistake of the builder.
        Some(split) => Err(Error::File {
            file: request.raw.to_owned(),
            problem: format!("holds no examples for {}", split.name()),
        }),
    });
    checked.map_err(|error| match error {
        problem @ (Error::File { .. } | Error::Row { .. }) => {
            let name = task.about().name;
            let fetch = match task.remote() {
                [] => String::new(),
                _ => format!("fetch the published files: lra data fetch {name}; or "),
            };
            Error::Unusable {
                problem: Box::new(problem),
                remedy: format!("{fetch}name other ones: lra data make {name} --from PATH"),
            }
        }
        other => other,
    })
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

/// Makes the names in a folder survive a power failure, where the file system can: only Unix lets a folder be opened, and
/// network file systems and others refuse to sync one. Renaming has to be durable enough there.
fn sync_folder(folder: &Path) -> Result<()> {
    if !cfg!(unix) {
        return Ok(());
    }
    match File::open(folder).and_then(|file| file.sync_all()) {
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::InvalidInput | ErrorKind::Unsupported
            ) =>
        {
            Ok(())
        }
        other => other.map_err(io("sync", folder)),
    }
}

/// Removes the work of processes that were killed: folders whose lock nobody holds. Checkpoints stay.
fn clear_leftovers(store: &Path) {
    let names = fs::read_dir(store).into_iter().flatten().flatten();
    for name in names.map(|item| item.file_name()) {
        let name = name.to_string_lossy();
        let entry = [BUILDING, REPLACED]
            .iter()
            .find_map(|prefix| name.strip_prefix(prefix));
        let Some(entry) = entry else { continue };
        let lock = File::create(store.join(format!("{LOCK}{entry}")));
        if lock.is_ok_and(|lock| lock.try_lock().is_ok()) {
            // Only costs space if it stays.
            let _ = fs::remove_dir_all(store.join(&*name));
        }
    }
}

/// Removes the scratch folders of processes that were killed.
fn clear_scratch(root: &Path) {
    for item in fs::read_dir(root).into_iter().flatten().flatten() {
        let path = item.path();
        if item.file_name().to_string_lossy().starts_with(SCRATCH)
            && let Ok(lock) = File::options().write(true).open(path.join(LOCK))
            && lock.try_lock().is_ok()
        {
            // Only costs space if it stays.
            let _ = fs::remove_dir_all(&path);
        }
    }
}

/// How often a lock that somebody else holds is tried.
const PERIOD: Duration = Duration::from_millis(50);

/// Waits for the lock of an entry; it is held as long as the file is open, and freed when a process dies. Clears what killed
/// processes left of other entries.
fn lock(folder: &Path, progress: &dyn Progress) -> Result<File> {
    let store = parent(folder);
    fs::create_dir_all(store).map_err(io("create", store))?;
    clear_leftovers(store);
    clear_scratch(parent(store));
    let path = beside(folder, LOCK);
    let file = File::create(&path).map_err(io("create", &path))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            progress.begin(
                "waiting for another process that builds the same data",
                None,
            );
            let locked = wait(&file, &path, progress);
            progress.finish();
            locked?;
        }
        Err(TryLockError::Error(error)) => return Err(io("lock", &path)(error)),
    }
    Ok(file)
}

/// Waits for a lock as long as nobody asks for an end: a call that blocks could not be told.
fn wait(file: &File, path: &Path, progress: &dyn Progress) -> Result<()> {
    loop {
        progress.check()?;
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) => thread::sleep(PERIOD),
            Err(TryLockError::Error(error)) => return Err(io("lock", path)(error)),
        }
    }
}

fn parent(folder: &Path) -> &Path {
    folder.parent().unwrap_or(Path::new("."))
}

/// The finished chunks of an unfinished entry.
fn checkpoint_of(folder: &Path) -> BuildCheckpoint {
    BuildCheckpoint::new(beside(folder, ".parts-"))
}

/// The path beside `folder` whose name has `prefix` before it.
fn beside(folder: &Path, prefix: &str) -> PathBuf {
    let mut name = std::ffi::OsString::from(prefix);
    name.push(folder.file_name().unwrap_or_default());
    folder.with_file_name(name)
}

fn hidden(folder: &Path) -> bool {
    folder
        .file_name()
        .is_some_and(|name| name.to_string_lossy().starts_with('.'))
}

/// A folder for what is looked at only, locked as long as its process lives.
pub(crate) struct Aside {
    _lock: File,
    folder: tempfile::TempDir,
}

impl Aside {
    /// Where it lies.
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// A folder that starts empty, whatever a killed process left in it, and is removed in the end.
struct Scratch(PathBuf);

impl Scratch {
    fn create(path: PathBuf) -> Result<Scratch> {
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(io("clear", &path)(error));
            }
            _ => {}
        }
        fs::create_dir(&path).map_err(io("create", &path))?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Gone already after a successful rename; otherwise the next build clears it.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn a_folder_that_cannot_be_synced_is_no_error() {
        // A file system that refuses to sync anything.
        let refused = File::open("/proc/self").unwrap().sync_all();
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidInput);
        sync_folder(Path::new("/proc/self")).unwrap();
        assert!(sync_folder(Path::new("/proc/missing")).is_err());
    }
}
