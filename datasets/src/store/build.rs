//! Build of an entry: into a hidden folder next to its final place, synced, then renamed.

use std::path::Path;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use super::scratch::{
    BUILDING, ENTRY, REPLACED, WorkFolder, beside, checkpoint_of, parent, restore,
};
use super::{Store, code_of, entry};
use crate::archive::Raw;
use crate::command::data_flag;
use crate::error::{Error, Result, io, shown};
use crate::manifest::{Manifest, PerSplit, SplitManifest, SplitName};
use crate::origin::Origin;
use crate::{Key, Progress, Request, Source, SplitWriter, Task, source_checks, verified_files};

impl Store {
    /// Builds into a hidden folder and renames it to `folder`. The caller holds the lock.
    pub(super) fn build(
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
        let work = WorkFolder::create(beside(folder, BUILDING))?;
        let aside = beside(folder, REPLACED);
        // A process that was killed may have left the only copy of the entry there.
        restore(&aside, folder).map_err(io("move back", &aside))?;
        let replaced = WorkFolder::create(aside)?;

        let mut writer = SplitWriter::create(&work.0, task.info(), &shape, progress)?;
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
            // Taken before the files are read: files that change meanwhile do not match the record
            // afterwards.
            source if source.reads_files() => {
                Origin::of_task(task, request.raw).map(Origin::with_content)
            }
            _ => None,
        };
        fill(task, &request, &self.raw(task), &mut writer)?;
        let (splits, mut remarks) = writer.finish()?;
        if source == Source::Official {
            remarks.altered.extend(single_classes(&splits));
        }
        let mut manifest = Manifest {
            task: task.info().name.to_owned(),
            code: code_of(task),
            version: task.info().version,
            source: key.source,
            protocol: key.protocol,
            options: key.options,
            label: shape.label,
            max_length: shape.max_length,
            dense: shape.dense,
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
        disk::sync_folder(&work.0).map_err(io("sync", &work.0))?;
        if folder.exists() {
            disk::rename(folder, &replaced.0.join(ENTRY)).map_err(io("replace", folder))?;
        }
        if let Err(error) = disk::rename(&work.0, folder) {
            if restore(&replaced.0, folder).is_err() {
                replaced.keep();
            }
            return Err(io("create", folder)(error));
        }
        disk::sync_folder(parent(folder)).map_err(io("sync", parent(folder)))?;
        checkpoint.discard();
        match (from, source) {
            (Some(raw), Source::Official) => self.note(task, raw),
            _ => Ok(()),
        }
    }
}

/// Writes the rows of the task, whose own raw files lie in the folder `own`.
fn fill(
    task: &dyn Task,
    request: &Request<'_>,
    own: &Path,
    writer: &mut SplitWriter<'_>,
) -> Result<()> {
    let built = task.build(request, writer);
    if request.source != Source::Official {
        return built;
    }
    let checked = built.and_then(|()| match writer.empty() {
        None => Ok(()),
        // Raw files without rows are not the task's data; with drawn data it would be a bug of the
        // builder.
        Some(split) => Err(Error::File {
            file: request.raw.to_owned(),
            problem: format!("holds no examples for {}", split.name()),
        }),
    });
    checked.map_err(|mut error| match &mut error {
        Error::File { file, .. } | Error::Row { file, .. } => Error::Unusable {
            remedy: remedy(task, file, own),
            problem: Box::new(error),
        },
        // It is taken for the right one, and not fetched again.
        Error::Missing { path, command, .. } if is_kept_archive(task, path, own) => {
            *command = format!(
                "remove {}, which holds none of these files; then {command}",
                shown(path)
            );
            error
        }
        _ => error,
    })
}

/// Returns whether `path` is the published archive in the folder of raw files.
fn is_kept_archive(task: &dyn Task, path: &Path, own: &Path) -> bool {
    kept(path, own) == Some(path) && is_published(task, path)
}

/// Returns the file on disk that is at `path` or has it in it, if it lies in the folder of raw
/// files, in which the task has the folder `own`.
fn kept<'a>(path: &'a Path, own: &Path) -> Option<&'a Path> {
    let file = path.ancestors().find(|path| path.is_file())?;
    let is_raw = own.parent().is_some_and(|raw| file.starts_with(raw));
    is_raw.then_some(file)
}

/// Returns whether a file is named like a published one of the task.
fn is_published(task: &dyn Task, path: &Path) -> bool {
    task.remote().iter().any(|one| path.ends_with(one.file))
}

/// Returns the ways to other files than the unusable one at `file`: a path on disk, or one within an
/// archive. What is kept in the folder of raw files is read before any other, so it has to go first.
fn remedy(task: &dyn Task, file: &Path, own: &Path) -> String {
    let (name, flag) = (task.info().name, data_flag());
    let other = format!("name other ones: lra data make {name}{flag} --from PATH");
    let fetch = format!("fetch the published files: lra data fetch {name}{flag}");
    match (task.remote(), kept(file, own)) {
        ([], _) => other,
        (_, None) => format!("{fetch}; or {other}"),
        (_, Some(path)) => {
            let is_archive = matches!(Raw::at(path), Ok(Some(Raw::Archive(_))));
            let first = match is_archive || is_published(task, path) {
                true => format!("remove {}", shown(path)),
                false => format!("move away what is in {}", shown(own)),
            };
            format!("{first}, and {fetch}; or {other}")
        }
    }
}

/// Returns a sentence for every split whose examples are all of one class, which is true of no
/// published split. A split of one example is not considered.
fn single_classes(splits: &PerSplit<SplitManifest>) -> Vec<String> {
    let sentence = |split: SplitName| {
        let SplitManifest { rows, labels, .. } = splits.get(split);
        let label = labels.iter().position(|&count| count == *rows as u64)?;
        (*rows > 1).then(|| format!("{split}: all of its {rows} examples have the label {label}"))
    };
    SplitName::ALL.into_iter().filter_map(sentence).collect()
}
