//! Files that a run has left, and whether it can resume from them.
//!
//! A run writes its first checkpoint before its first validation. So a validation in the log, or
//! best weights, without a checkpoint show that the checkpoint was lost.

use std::fmt;
use std::path::{Path, PathBuf};

use results::metrics::Line;
use results::{Outcome, Record};

use super::{DRAFT, PhaseFiles, RunFolder, SPEC};
use crate::damaged::Damaged;
use crate::error::{Class, Classify, Result};
use crate::timing::Timings;

/// Error about missing files that a run needs to resume.
#[derive(Debug)]
pub struct Missing(pub Vec<PathBuf>);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let files = results::listed(self.0.iter().map(|path| path.display()));
        let verb = if self.0.len() == 1 { "is" } else { "are" };
        write!(
            f,
            "the run cannot continue: {files} {verb} missing; put back what was removed, or start over with `lra run --force`"
        )
    }
}

impl std::error::Error for Missing {}

impl RunFolder {
    /// Returns whether the folder at `path` holds a file of a run.
    pub fn is_begun(path: &Path) -> bool {
        if RunFolder::is_being_cleared(path) {
            return false;
        }
        let phases = ["", super::PRETRAIN].map(|prefix| super::phase_of(path, prefix));
        let others = [results::store::FILE, SPEC, DRAFT].map(|name| path.join(name));
        let mut files = phases.iter().flat_map(PhaseFiles::all).chain(&others);
        files.any(|file| file.exists())
    }

    /// Returns whether the folder at `path` holds weights.
    pub fn has_weights(path: &Path) -> bool {
        if RunFolder::is_being_cleared(path) {
            return false;
        }
        let phases = ["", super::PRETRAIN].map(|prefix| super::phase_of(path, prefix));
        let mut files = phases.iter().flat_map(|it| [&it.checkpoint, &it.best]);
        files.any(|file| file.exists())
    }

    /// Returns whether a run with this record, if it has one, can resume; false if nothing was
    /// saved, so that it starts again.
    ///
    /// # Errors
    /// [`Missing`], if something was trained and files of it are gone.
    pub fn can_go_on(&self, pretrains: bool, record: Option<&Record>) -> Result<bool> {
        RunFolder::can_resume(self.path(), pretrains, record)
    }

    /// Returns the same as [`RunFolder::can_go_on`] of the folder at `path`, which need not be
    /// locked.
    ///
    /// # Errors
    /// Those of [`RunFolder::can_go_on`].
    pub fn can_resume(path: &Path, pretrains: bool, record: Option<&Record>) -> Result<bool> {
        if RunFolder::is_being_cleared(path) {
            return Ok(false);
        }
        let [before, training] = [super::PRETRAIN, ""].map(|prefix| super::phase_of(path, prefix));
        let begun = |phase: &PhaseFiles| phase.all().any(|file| file.exists());
        let interrupted_at = match record.map(|record| &record.outcome) {
            Some(Outcome::Interrupted { step }) => *step,
            _ => 0,
        };
        let mut wanted: Vec<&PathBuf> = Vec::new();
        let in_training = begun(&training) || interrupted_at > 0;
        // Training began after pretraining had ended.
        if pretrains && in_training {
            wanted.extend(before.all());
        }
        let current = if in_training || !pretrains {
            &training
        } else {
            &before
        };
        // An interrupted pretraining is at no step of the training.
        let pretrained = record.and_then(|record| record.pretraining.as_ref());
        let pretrained = pretrained.map_or(0, |pretraining| pretraining.steps);
        let trained_at = if in_training {
            interrupted_at
        } else {
            pretrained
        };
        let saved = current.checkpoint.exists() || trained_at > 0 || current.was_saved()?;
        if saved {
            wanted.extend([&current.checkpoint, &current.metrics, &current.timings]);
        } else if has_lines(&current.metrics) || has_lines(&current.timings) {
            wanted.extend([&current.metrics, &current.timings]);
        }
        let spec = path.join(SPEC);
        if begun(current) || saved {
            wanted.push(&spec);
        }
        let missing: Vec<_> = wanted
            .into_iter()
            .filter(|path| !path.exists())
            .cloned()
            .collect();
        match missing.is_empty() {
            true => Ok(saved || (pretrains && in_training)),
            false => Err(Missing(missing)).class(Class::Usage),
        }
    }
}

/// Returns whether a log of metrics has the line of a validation. Lines that cannot be read are
/// none.
fn has_validation(log: &Path) -> Result<bool> {
    if !log.exists() {
        return Ok(false);
    }
    let text = disk::read(log).map_err(|error| Damaged::or_io(log, "reading", error));
    let text = text.class(Class::Data)?;
    let mut lines = text.split(|byte| *byte == b'\n');
    Ok(lines.any(|line| matches!(serde_json::from_slice(line), Ok(Line::Validation { .. }))))
}

/// Returns whether a log has lines. One whose length cannot be read is assumed to have some.
fn has_lines(log: &Path) -> bool {
    log.exists() && log.metadata().map_or(true, |metadata| metadata.len() > 0)
}

impl PhaseFiles {
    fn all(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.metrics, &self.timings, &self.checkpoint, &self.best].into_iter()
    }

    /// Returns whether the other files show that a checkpoint was written.
    fn was_saved(&self) -> Result<bool> {
        if self.best.exists() || has_validation(&self.metrics)? {
            return Ok(true);
        }
        if !self.timings.exists() {
            return Ok(false);
        }
        Ok(Timings::read(&self.timings).class(Class::Data)?.saved)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Returns a line of the log of times.
    fn times(saved: bool) -> String {
        let line = Timings {
            saved,
            ..Timings::default()
        };
        serde_json::to_string(&line).unwrap() + "\n"
    }

    fn folder() -> (tempfile::TempDir, RunFolder) {
        let place = tempfile::tempdir().unwrap();
        let folder = RunFolder::open(place.path(), "run").unwrap();
        (place, folder)
    }

    fn fill(folder: &RunFolder, names: &[&str]) {
        for name in names {
            let text = match name.ends_with("timings.jsonl") {
                true => times(true),
                false => "{}\n".to_owned(),
            };
            fs::write(folder.file(name), text).unwrap();
        }
    }

    const PHASE: [&str; 4] = [
        "metrics.jsonl",
        "timings.jsonl",
        "checkpoint.safetensors",
        "best.safetensors",
    ];

    #[test]
    fn a_run_begins_again_only_where_nothing_was_saved() {
        let (_place, folder) = folder();
        assert!(!RunFolder::is_begun(folder.path()));
        assert!(!folder.can_go_on(false, None).unwrap());
        fill(&folder, &[SPEC, DRAFT]);
        assert!(RunFolder::is_begun(folder.path()));
        assert!(!folder.can_go_on(false, None).unwrap());
        // Stopped before the first checkpoint.
        fs::write(folder.file("metrics.jsonl"), "{}\n").unwrap();
        fs::write(folder.file("timings.jsonl"), times(false)).unwrap();
        assert!(!folder.can_go_on(false, None).unwrap());
        fill(&folder, &PHASE);
        assert!(folder.can_go_on(false, None).unwrap());
        for gone in [SPEC, PHASE[0], PHASE[1], PHASE[2]] {
            let whole = fs::read(folder.file(gone)).unwrap();
            fs::remove_file(folder.file(gone)).unwrap();
            let message = folder.can_go_on(false, None).unwrap_err();
            assert_eq!(message.class, Class::Usage);
            let message = message.to_string();
            assert!(
                message.contains(gone) && message.contains("--force"),
                "{message}"
            );
            fs::write(folder.file(gone), whole).unwrap();
        }
        assert!(folder.can_go_on(false, None).unwrap());
    }

    /// A line of a log that a run writes after its first checkpoint.
    const VALIDATION: &str =
        r#"{"event":"validation","step":4,"loss":2.5,"accuracy":0.25,"examples":8}"#;

    /// Each trace alone, in training and in pretraining.
    #[test]
    fn a_lost_checkpoint_shows_in_best_weights_and_in_validations() {
        for (pretrains, prefix) in [(false, ""), (true, "pretrain-")] {
            for (trace, text) in [
                ("best.safetensors", "{}"),
                ("metrics.jsonl", VALIDATION),
                // The last line of a killed process may be cut.
                ("metrics.jsonl", &format!("{VALIDATION}\n{{\"event\":\"tr")),
            ] {
                let (_place, folder) = folder();
                fill(&folder, &[SPEC, DRAFT]);
                fs::write(folder.file(&format!("{prefix}metrics.jsonl")), "").unwrap();
                fs::write(folder.file(&format!("{prefix}timings.jsonl")), "").unwrap();
                assert!(!folder.can_go_on(pretrains, None).unwrap());
                fs::write(folder.file(&format!("{prefix}{trace}")), text).unwrap();
                let error = folder.can_go_on(pretrains, None).unwrap_err();
                assert_eq!(error.class, Class::Usage, "{trace}");
                let lost = format!("{prefix}checkpoint.safetensors is missing");
                assert!(error.to_string().contains(&lost), "{error}");
            }
        }
    }

    #[test]
    fn training_goes_on_only_with_the_files_of_its_pretraining() {
        let (_place, folder) = folder();
        let before = PHASE.map(|name| format!("pretrain-{name}"));
        fill(&folder, &[SPEC, DRAFT]);
        fill(&folder, &before.each_ref().map(String::as_str));
        assert!(folder.can_go_on(true, None).unwrap());
        fs::write(folder.file("metrics.jsonl"), "{}\n").unwrap();
        fs::write(folder.file("timings.jsonl"), times(false)).unwrap();
        for gone in &before {
            let whole = fs::read(folder.file(gone)).unwrap();
            fs::remove_file(folder.file(gone)).unwrap();
            let message = folder.can_go_on(true, None).unwrap_err().to_string();
            assert!(message.contains(gone), "{message}");
            fs::write(folder.file(gone), whole).unwrap();
        }
        assert!(folder.can_go_on(true, None).unwrap());
    }
}
