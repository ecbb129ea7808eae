//! Locations of the published files of tasks: `<data>/raw/<task>/`, or the path given with
//! `--from`.

use std::fs;
use std::path::{Path, PathBuf};

use super::Store;
use crate::archive::{Raw, is_litter};
use crate::error::{Result, io};
use crate::tasks::registry;
use crate::{Task, files};

impl Store {
    /// Returns the folder for published files of `task`, or that of its own files.
    pub fn raw(&self, task: &dyn Task) -> PathBuf {
        match task.own_files() {
            [file, ..] => file.parent().unwrap_or(Path::new(".")).to_owned(),
            [] => self.root.join("raw").join(task.info().name),
        }
    }

    /// Returns the path from which a build without `--from` reads the published files of `task`:
    /// their folder, the path that the last build with `--from` named, or an archive in the folder
    /// of another task that is published in the same one. `None` if the files are in none of these
    /// places.
    pub fn found(&self, task: &dyn Task) -> Option<PathBuf> {
        let folder = self.raw(task);
        if !task.own_files().is_empty() {
            return Some(folder);
        }
        // The leftover of a broken download or copy is not a published file yet.
        let whole = |item: std::io::Result<fs::DirEntry>| {
            let name = item.map(|item| item.file_name().to_string_lossy().into_owned());
            name.is_ok_and(|name| {
                !is_litter(&name) && !name.contains(".part") && !name.ends_with(".copy")
            })
        };
        if fs::read_dir(&folder).is_ok_and(|mut items| items.any(whole)) {
            return Some(folder);
        }
        if let Ok(noted) = files::read(&self.note_of(task)) {
            let noted = String::from_utf8_lossy(&noted);
            let noted = PathBuf::from(noted.strip_suffix('\n').unwrap_or(&noted));
            if noted.exists() {
                return Some(noted);
            }
        }
        self.shared(task)
    }

    /// Returns a published archive in the folder of another task that also holds the files of
    /// `task`, so that one copy serves both.
    pub fn shared(&self, task: &dyn Task) -> Option<PathBuf> {
        let own = self.raw(task);
        let others = registry().iter().map(|other| self.raw(*other));
        others
            .filter(|folder| *folder != own)
            .flat_map(|folder| {
                task.remote()
                    .iter()
                    .map(move |remote| folder.join(remote.file))
            })
            .find(|path| matches!(Raw::at(path), Ok(Some(Raw::Archive(_)))))
    }

    /// Records the path of the published files of `task`, so that data of other options is built
    /// from the same files.
    pub(super) fn note(&self, task: &dyn Task, raw: &Path) -> Result<()> {
        let note = self.note_of(task);
        let folder = self.root.join("raw");
        fs::create_dir_all(&folder).map_err(io("create", &folder))?;
        let raw = raw.canonicalize().map_err(io("find", raw))?;
        // A path that is not text is not recorded.
        match raw.to_str() {
            Some(path) => {
                files::replace(&note, format!("{path}\n").as_bytes()).map_err(io("write", &note))
            }
            None => Ok(()),
        }
    }

    fn note_of(&self, task: &dyn Task) -> PathBuf {
        self.root
            .join("raw")
            .join(format!("{}.from", task.info().name))
    }
}
