//! Verification of a stored entry against its manifest and the guarantees of its task.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use serde::Serialize;

use crate::command::data_flag;
use crate::duplicates::{Duplicates, row_hash};
use crate::error::{Error, Result};
use crate::manifest::{Manifest, SplitName};
use crate::split_writer::too_large;
use crate::store::entry;
use crate::words::spread;
use crate::{
    Check, DenseLabels, Digest, Key, Progress, Split, Splits, Store, Task, TaskInfo, source_checks,
};

/// Result of all checks of an entry.
#[derive(Debug, Clone, Serialize)]
pub struct Verification {
    /// The entry's folder.
    #[serde(serialize_with = "as_text")]
    pub folder: PathBuf,
    /// Checks in the order they were made. After a file that does not open, the later ones are left
    /// out.
    pub checks: Vec<Check>,
}

/// Serializes a path as text, also if it is not all text.
fn as_text<S: serde::Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}

impl Verification {
    /// Returns whether every check holds.
    pub fn passed(&self) -> bool {
        self.checks.iter().all(|check| check.ok)
    }
}

/// Formats one line per check, after a line with the folder.
impl fmt::Display for Verification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.folder.display())?;
        let width = self
            .checks
            .iter()
            .map(|check| check.name.len())
            .max()
            .unwrap_or_default();
        for check in &self.checks {
            let verdict = if check.ok { "ok  " } else { "FAIL" };
            writeln!(f, "  {verdict}  {:<width$}  {}", check.name, check.detail)?;
        }
        Ok(())
    }
}

impl Store {
    /// Reads an entry from end to end and checks digests, row counts, label histograms, token
    /// range, repeated rows, and the task's own checks.
    ///
    /// # Errors
    /// The entry does not exist, the options are impossible, or the memory does not suffice. Damage
    /// is a failed check, not an error.
    pub fn verify(
        &self,
        task: &dyn Task,
        key: &Key,
        progress: &dyn Progress,
    ) -> Result<Verification> {
        let folder = self.folder(task, key);
        if !folder.is_dir() {
            self.open(task, key)?;
        }
        self.verify_folder(task, &folder, progress)
    }

    /// Reads published files as in a build, without keeping the result. Checks the checksums of
    /// files that have one, counts, labels, and every other known fact of the published data, and
    /// whether the stored entry of this key, if there is one, was built from the same data.
    ///
    /// # Errors
    /// The files are missing, the options are impossible, or the data directory is not writable.
    /// Files that are damaged or not as published are a failed check.
    pub fn verify_raw(
        &self,
        task: &dyn Task,
        key: &Key,
        raw: &Path,
        progress: &dyn Progress,
    ) -> Result<Verification> {
        let mut checks = check_published(task, raw, progress)?;
        let scratch = self.scratch()?;
        let beside = Store::new(scratch.path());
        match beside.rebuild(task, key, Some(raw), progress) {
            Ok(splits) => {
                check_content(task, &beside.folder(task, key), "", progress, &mut checks)?;
                checks.extend(self.check_stored(task, key, &splits.manifest));
            }
            Err(error @ Error::Unusable { .. }) => {
                checks.push(Check::new("readable", false, error.to_string()));
            }
            Err(error) => return Err(error),
        }
        Ok(Verification {
            folder: raw.to_owned(),
            checks,
        })
    }

    /// Checks whether the stored entry of this key equals the data from the raw files.
    fn check_stored(&self, task: &dyn Task, key: &Key, fresh: &Manifest) -> Option<Check> {
        let folder = self.folder(task, key);
        let stored = entry::read_manifest(&folder, entry::REMOVE).ok()?;
        let difference = source_checks::difference(&stored, fresh);
        let detail = match &difference {
            None => format!("the stored data is of these files: {}", stored.digest),
            Some(difference) => format!(
                "the stored data is of other files: {difference}; {}",
                folder.display()
            ),
        };
        Some(Check::new("content digest", difference.is_none(), detail))
    }

    /// Verifies a folder from [`list`](Self::list), as [`verify`](Self::verify) does.
    ///
    /// # Errors
    /// The system refuses to read a file: no memory, no permission, a failing disk.
    pub fn verify_folder(
        &self,
        task: &dyn Task,
        folder: &Path,
        progress: &dyn Progress,
    ) -> Result<Verification> {
        let mut checks = Vec::new();
        match entry::read_manifest(folder, entry::REMOVE) {
            Ok(manifest) => {
                check_files(folder, &manifest, progress, &mut checks)?;
                let remedy = format!("{} --force", manifest.key().make_command(task));
                check_content(task, folder, &remedy, progress, &mut checks)?;
            }
            Err(error) => checks.push(failed("manifest", error)?),
        }
        Ok(Verification {
            folder: folder.to_owned(),
            checks,
        })
    }
}

/// Returns the failed check for an error of reading. What the system refuses stays an error: it
/// says nothing of the files.
fn failed(name: impl Into<String>, error: Error) -> Result<Check> {
    match error.is_of_system() {
        true => Err(error),
        false => Ok(Check::new(name, false, error.to_string())),
    }
}

/// Checks files named like published ones against the published size and SHA-256.
fn check_published(task: &dyn Task, raw: &Path, progress: &dyn Progress) -> Result<Vec<Check>> {
    let mut checks = Vec::new();
    for remote in task.remote() {
        let named = raw.file_name().is_some_and(|name| name == remote.file);
        let path = match named {
            true => raw.to_owned(),
            false => raw.join(remote.file),
        };
        let (Ok(file), Some(expected)) = (fs::metadata(&path), remote.sha256) else {
            continue;
        };
        let name = format!("{}: SHA-256", remote.file);
        let bytes = file.len();
        checks.push(match remote.bytes {
            Some(published) if bytes < published => Check::new(
                name,
                false,
                format!(
                    "cut short: {bytes} of {published} bytes; lra data fetch {}{}",
                    task.info().name,
                    data_flag()
                ),
            ),
            Some(published) if bytes > published => Check::new(
                name,
                false,
                format!(
                    "another file than the published one: {bytes} bytes instead of {published}"
                ),
            ),
            _ => {
                progress.begin("hashing", Some(bytes));
                let found = Digest::of_file(&path, |bytes| progress.advance(bytes))?;
                progress.finish();
                match found == expected {
                    true => Check::new(name, true, format!("{found}, as published")),
                    false => Check::new(
                        name,
                        false,
                        format!("damaged: {found} instead of {expected}"),
                    ),
                }
            }
        });
    }
    Ok(checks)
}

fn check_files(
    folder: &Path,
    manifest: &Manifest,
    progress: &dyn Progress,
    checks: &mut Vec<Check>,
) -> Result<()> {
    let total = SplitName::ALL
        .into_iter()
        .map(|split_name| manifest.splits.get(split_name).bytes)
        .sum();
    progress.begin("hashing", Some(total));
    for split_name in SplitName::ALL {
        let expected = &manifest.splits.get(split_name).sha256;
        let name = format!("{}: SHA-256", split_name.name());
        checks.push(
            match Digest::of_file(&folder.join(split_name.file_name()), |bytes| {
                progress.advance(bytes)
            }) {
                Ok(found) if found == *expected => Check::new(name, true, found),
                Ok(found) => Check::new(name, false, format!("{found} instead of {expected}")),
                Err(error) => failed(name, error)?,
            },
        );
    }
    progress.finish();
    let ok = manifest.digest == Manifest::content_digest(&manifest.splits);
    checks.push(Check::new("content digest", ok, manifest.digest.clone()));
    Ok(())
}

fn check_content(
    task: &dyn Task,
    folder: &Path,
    remedy: &str,
    progress: &dyn Progress,
    checks: &mut Vec<Check>,
) -> Result<()> {
    let splits = match entry::open_files(task, folder, remedy) {
        Ok(splits) => splits,
        Err(error) => {
            checks.push(failed("opens", error)?);
            return Ok(());
        }
    };
    let info = task.info();
    for split_name in SplitName::ALL {
        let split = splits.get(split_name);
        let said = splits.manifest.splits.get(split_name);
        let name = |what: &str| format!("{}: {what}", split_name.name());
        // Opening already compared the number of rows.
        checks.push(Check::new(name("rows"), true, split.len().to_string()));
        let mut labels = vec![0; info.classes];
        split
            .labels()
            .iter()
            .for_each(|&label| labels[usize::from(label)] += 1);
        checks.push(Check::new(
            name("labels"),
            labels == said.labels,
            balance(&labels),
        ));
        if let Some(labels) = split.all_dense() {
            checks.push(check_dense(labels, &splits.manifest, split_name));
        }
        checks.push(check_tokens(
            split,
            splits.manifest.max_length,
            info,
            name("tokens"),
        ));
    }
    checks.push(check_repeats(&splits));
    checks.extend(source_checks::check(&splits.manifest, &task.known()));
    checks.extend(task.verify(&splits, progress));
    Ok(())
}

/// Counts the labels at positions. Opening already compared them with their kind.
fn check_dense(labels: DenseLabels<'_>, manifest: &Manifest, split: SplitName) -> Check {
    let kind = manifest.dense.as_ref();
    let by_group = kind.map_or_else(Vec::new, |kind| labels.counts(kind));
    let classes = kind.map_or(0, |kind| kind.classes);
    let sum = |class: usize| by_group.iter().map(|counts| counts[class]).sum();
    let found: Vec<u64> = (0..classes).map(sum).collect();
    let ok = found == manifest.splits.get(split).dense_labels;
    Check::new(format!("{split}: labels at positions"), ok, balance(&found))
}

/// Returns the counts of labels, and the fraction of the largest.
fn balance(labels: &[u64]) -> String {
    let largest = labels.iter().max().copied().unwrap_or_default();
    let share = 100.0 * largest as f64 / labels.iter().sum::<u64>().max(1) as f64;
    let counts = spread(labels).unwrap_or_else(|| format!("{labels:?}"));
    format!("{counts}, at most {share:.1} % alike")
}

fn check_tokens(split: &Split, max_length: usize, info: &TaskInfo, name: String) -> Check {
    let bad = (0..split.len()).into_par_iter().find_map_first(|row| {
        (0..split.towers()).find_map(|tower| {
            let tokens = split.tokens(tower, row);
            if tokens.len() > max_length {
                return Some(format!(
                    "row {row} has {} tokens, more than {max_length}",
                    tokens.len()
                ));
            }
            let token = too_large(tokens, info)?;
            Some(format!(
                "row {row} has token {token}, outside the vocabulary"
            ))
        })
    });
    match bad {
        Some(problem) => Check::new(name, false, problem),
        None => Check::new(
            name,
            true,
            format!("all within the vocabulary, at most {max_length} long"),
        ),
    }
}

/// Checks for repeated rows. They are a failure only if the builder promised that there are none:
/// published data has some.
fn check_repeats(splits: &Splits) -> Check {
    let mut duplicates = Duplicates::default();
    for split_name in SplitName::ALL {
        let split = splits.get(split_name);
        let row = |row| row_hash((0..split.towers()).map(|tower| split.tokens(tower, row)));
        let hashes: Vec<_> = (0..split.len()).into_par_iter().map(row).collect();
        hashes
            .into_iter()
            .for_each(|hash| duplicates.add(split_name, hash));
    }
    let promised = splits.manifest.distinct;
    let name = if promised {
        "no row twice"
    } else {
        "repeated rows (allowed)"
    };
    Check::new(
        name,
        !promised || duplicates.within() + duplicates.between() == 0,
        duplicates.text(),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::tasks::Toy;
    use crate::{Remote, Request, Shape, SplitWriter};

    /// Toy with one published file, which has the bytes `abc`.
    struct Published;

    static REMOTE: [Remote; 1] = [Remote {
        url: "https://example.org/data.bin",
        file: "data.bin",
        bytes: Some(3),
        sha256: Some("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        note: "",
    }];

    impl Task for Published {
        fn info(&self) -> &'static TaskInfo {
            Toy.info()
        }

        fn defaults(&self) -> Value {
            Toy.defaults()
        }

        fn shape(&self, options: &Value) -> Result<Shape> {
            Toy.shape(options)
        }

        fn build(&self, request: &Request<'_>, writer: &mut SplitWriter) -> Result<()> {
            Toy.build(request, writer)
        }

        fn to_text(&self, towers: &[&[u8]], label: u8) -> String {
            Toy.to_text(towers, label)
        }

        fn remote(&self) -> &'static [Remote] {
            &REMOTE
        }
    }

    #[test]
    fn a_published_file_is_compared_by_its_size_and_its_checksum() {
        let folder = tempfile::tempdir().unwrap();
        let checks = |raw: &Path| check_published(&Published, raw, &()).unwrap();
        assert!(checks(folder.path()).is_empty(), "there is no such file");
        let file = folder.path().join("data.bin");
        for (content, ok, told) in [
            ("abc", true, ", as published"),
            ("abd", false, "damaged: "),
            ("ab", false, "cut short: 2 of 3 bytes"),
            (
                "abcd",
                false,
                "another file than the published one: 4 bytes instead of 3",
            ),
        ] {
            fs::write(&file, content).unwrap();
            for raw in [folder.path(), &file] {
                let found = checks(raw);
                assert_eq!(found.len(), 1);
                assert_eq!(found[0].name, "data.bin: SHA-256");
                let detail = &found[0].detail;
                assert_eq!(found[0].ok, ok, "{detail}");
                assert!(detail.contains(told), "{detail}");
            }
        }
        let other = folder.path().join("other.bin");
        fs::rename(&file, &other).unwrap();
        assert!(checks(&other).is_empty(), "another name may be any file");
    }
}
