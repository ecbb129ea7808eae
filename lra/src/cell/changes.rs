//! Comparison of the inputs of a run with those it would have here: data, program, custom model,
//! instruction set.
//!
//! The settings are part of the digest that names a run. All other inputs that affect its bits are
//! in its record, and are compared at every start.

use std::path::Path;

use datasets::{Error, Key, Progress, Source, Store, Task};
use models::Model;
use results::Record;
use results::record::{OwnCode, Versions};

use crate::error::Result;
use crate::provenance;

/// Stored data of a run, as far as a record is compared with them.
#[derive(Clone, Debug)]
pub struct StoredData {
    /// Digest; `None` if no data are stored.
    digest: Option<String>,
    /// Reason why no data can be made from the raw files, if none are stored; `None` if there are
    /// no raw files.
    refused: Option<String>,
    /// Difference between the raw files that they were made from and those that are raw now, in
    /// words.
    other_raw_files: Option<String>,
}

impl StoredData {
    /// Finds the stored data of `key` in the data directory `data`. If they are not there and the
    /// files that they are made from are, they are made, to be compared.
    ///
    /// # Errors
    /// The stored data are damaged or cannot be read; a folder that is a task cannot be read.
    pub fn find(
        task: &dyn Task,
        key: &Key,
        data: &Path,
        progress: &dyn Progress,
    ) -> Result<StoredData> {
        let store = Store::new(data);
        let is_own = !task.own_files().is_empty();
        let splits = match store.open(task, key) {
            Err(Error::Missing { .. }) if is_own || Self::can_be_made(&store, task, key) => {
                store.open_as_stored(task, key, progress)
            }
            splits => splits,
        };
        let (digest, refused) = match splits {
            Ok(splits) => (Some(splits.manifest.digest.clone()), None),
            Err(Error::Missing { .. }) => (None, None),
            // Files that no data can be made from leave nothing to compare.
            Err(error @ (Error::Row { .. } | Error::File { .. } | Error::Unusable { .. }))
                if !is_own =>
            {
                (None, Some(error.to_string()))
            }
            Err(error) => return Err(error.into()),
        };
        let other_raw_files = match digest {
            Some(_) => other_raw_files(task, key, data),
            None => None,
        };
        Ok(StoredData {
            digest,
            refused,
            other_raw_files,
        })
    }

    /// Returns whether the published files of a task are where a run would find them.
    fn can_be_made(store: &Store, task: &dyn Task, key: &Key) -> bool {
        key.source == Source::Official && store.found(task).is_some()
    }

    /// Returns whether there are any.
    pub fn are_here(&self) -> bool {
        self.digest.is_some()
    }

    /// Returns the difference between the raw files that they were made from and those that are raw
    /// now, in words.
    pub fn other_raw_files(&self) -> Option<&str> {
        self.other_raw_files.as_deref()
    }

    /// Returns the differences in words between this data and that which `record` was made with.
    pub fn changes(&self, record: &Record) -> Vec<String> {
        let digest = self.digest.as_deref();
        let of_digest = digest.and_then(|stored| of_data(record, stored));
        of_digest
            .into_iter()
            .chain(self.other_raw_files.clone())
            .collect()
    }

    /// Returns the reason why the data of `record` were not compared; `None` if they were.
    pub fn not_compared(&self, record: &Record) -> Option<String> {
        match (&self.digest, &self.refused) {
            (None, None) => Some("its data is not here and was not compared".to_owned()),
            (None, Some(refused)) => Some(format!(
                "its data was not compared, since none can be made from the raw files: {refused}"
            )),
            (Some(_), _) if record.task.data_digest.is_empty() => Some(
                "its record does not say on which data it was run, so it was not compared"
                    .to_owned(),
            ),
            (Some(_), _) => None,
        }
    }
}

/// Returns the difference between the raw files that the stored data of `key` were made from and
/// those that are raw now, in words.
pub fn other_raw_files(task: &dyn Task, key: &Key, data: &Path) -> Option<String> {
    let store = Store::new(data);
    if !key.source.reads_files() {
        return None;
    }
    let now = store.raw_files(task);
    let other = store.other_raw_files(task, key, now.as_ref())?;
    Some(other.to_string())
}

/// Returns the sentence about a finished run in the folder `place` that is not what a run here
/// would be; the ways out follow it.
pub fn of_finished(place: &Path, changes: &[String]) -> String {
    format!(
        "{} holds a finished run, and its score may not be that of a run here: {}",
        place.display(),
        changes.join("; ")
    )
}

/// Returns the difference between the data of `record` and those with the digest `stored`, in
/// words; `None` if they are the same, or if one of the two is not known.
pub fn of_data(record: &Record, stored: &str) -> Option<String> {
    let recorded = &record.task.data_digest;
    (!recorded.is_empty() && recorded != stored).then(|| {
        format!(
            "it was run on other data: their digest is {}, that of the stored data {}",
            short(recorded),
            short(stored)
        )
    })
}

/// Returns the differences in words between what made `record` and what this process would make it
/// with, except for the data. `devices` are those that the run may have, as
/// [`crate::device::describe`] names them; none if they are not known.
pub fn of_program(
    record: &Record,
    task: &dyn Task,
    model: &'static Model,
    devices: &[String],
) -> Result<Vec<String>> {
    let mut differences = of_code(record, model)?;
    let then = &record.provenance;
    let own = provenance::own_task(task)?;
    differences.extend(of_task(record.task.own.as_ref(), own.as_ref()));
    let accelerator = |device: &str| match device.split_once(' ') {
        Some((_, name)) => name.to_owned(),
        None => device.to_owned(),
    };
    let mut others = devices.iter();
    if !devices.is_empty() && others.all(|device| accelerator(&then.device) != accelerator(device))
    {
        let then = match then.device.as_str() {
            "" => "an unknown device",
            then => then,
        };
        differences.push(format!(
            "it was made on {then}, and this is {}",
            devices.join(" or ")
        ));
    }
    let instructions = models::ops::instruction_set();
    if then.device == "cpu" && then.host.instructions != instructions {
        let then = match then.host.instructions.as_str() {
            "" => "unknown instructions",
            then => then,
        };
        differences.push(format!(
            "it was made with {then}, and this processor has {instructions}"
        ));
    }
    // Words of the record are no lines of their own.
    Ok(differences.iter().map(|it| disk::escape(it)).collect())
}

/// Returns the differences in words between the code that trained the weights of `record` and that
/// of this process: the build of the program, and the model's source.
pub fn of_code(record: &Record, model: &'static Model) -> Result<Vec<String>> {
    let mut differences = Vec::new();
    let (then, now) = (&record.provenance, provenance::versions());
    if then.versions.sources != now.sources {
        let [then, now] = [name(&then.versions), name(&now)];
        differences.push(format!(
            "it was made by another build of the program: {then}, and this is {now}"
        ));
    } else if let Some(words) = other_tools(&then.versions, &now) {
        differences.push(words);
    }
    let own = provenance::own_model(model)?;
    if record.model.own != own {
        differences.push(of_model(record.model.own.as_ref(), own.as_ref()));
    }
    Ok(differences.iter().map(|it| disk::escape(it)).collect())
}

fn of_model(then: Option<&OwnCode>, now: Option<&OwnCode>) -> String {
    match (then, now) {
        (Some(then), Some(now)) if then.source != now.source => format!(
            "the model's source has changed: its digest was {} and is {}",
            short(&then.source),
            short(&now.source)
        ),
        (Some(then), Some(now)) if then.process != now.process => format!(
            "the mixer was computed by {}, and is by {}",
            process(then),
            process(now)
        ),
        (Some(then), Some(now)) => format!(
            "the program with the model has changed: {} had the digest {}, {} has {}",
            then.origin(),
            short(&then.program_digest),
            now.origin(),
            short(&now.program_digest)
        ),
        (Some(then), None) => format!("the model was that of {}, and is lra's", then.origin()),
        (None, _) => "the model was lra's, and is one of this program's own".to_owned(),
    }
}

/// Returns the process that computes a mixer, in words.
fn process(code: &OwnCode) -> &str {
    match code.process.as_str() {
        "" => "the program itself",
        process => process,
    }
}

/// Returns the difference in words between the source codes of a task; `None` if there is none. The
/// rest of a program does not matter: the data are compared by their digest.
fn of_task(then: Option<&OwnCode>, now: Option<&OwnCode>) -> Option<String> {
    match (then, now) {
        (None, None) => None,
        (Some(then), Some(now)) if then.source == now.source => None,
        (Some(then), Some(now)) => Some(format!(
            "the task's source has changed: its digest was {} and is {}",
            short(&then.source),
            short(&now.source)
        )),
        (Some(then), None) => Some(format!(
            "the task was that of {}, and is lra's",
            then.origin()
        )),
        (None, Some(_)) => Some("the task was lra's, and is one of this program's own".to_owned()),
    }
}

/// Returns the difference in words between two builds of the same sources by other tools; `None` if
/// there is none, or if one does not say what it was built with.
fn other_tools(then: &Versions, now: &Versions) -> Option<String> {
    let tools = [
        ("candle", &then.candle, &now.candle),
        ("rustc", &then.rustc, &now.rustc),
    ];
    let known = |version: &str| !matches!(version, "" | "unknown");
    let other = tools
        .into_iter()
        .filter(|(_, then, now)| known(then) && known(now) && then != now);
    let other: Vec<String> = other
        .map(|(tool, then, now)| format!("{tool} {then}, and this is with {now}"))
        .collect();
    (!other.is_empty()).then(|| {
        format!(
            "it was made by another build of the program: with {}",
            other.join("; with ")
        )
    })
}

fn name(versions: &Versions) -> String {
    match versions.sources.as_str() {
        "" => format!("lra {}", versions.lra),
        sources => format!("lra {} of the sources {}", versions.lra, short(sources)),
    }
}

/// Returns the first digits of a digest.
fn short(digest: &str) -> &str {
    digest.get(..12).unwrap_or(digest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sweep::testing::timed;

    fn code(source: &str, program_digest: &str, process: &str) -> OwnCode {
        OwnCode {
            source: source.to_owned(),
            program: "mine".to_owned(),
            program_digest: program_digest.to_owned(),
            process: process.to_owned(),
            ..OwnCode::default()
        }
    }

    #[test]
    fn a_device_of_another_name_and_other_instructions_are_differences() {
        let task = datasets::tasks::find("toy").unwrap();
        let mut all = models::registry().iter();
        let bag = *all.find(|model| model.name == "bag").unwrap();
        let instructions = models::ops::instruction_set();
        let told = |device: &str, instructions: &str, devices: &[&str]| {
            let mut record = timed(1.0);
            record.provenance.versions = provenance::versions();
            record.provenance.device = device.to_owned();
            record.provenance.host.instructions = instructions.to_owned();
            let devices: Vec<String> = devices.iter().map(|it| (*it).to_owned()).collect();
            of_program(&record, task, bag, &devices).unwrap()
        };
        let none: [String; 0] = [];
        let [h200, a100] = ["cuda:0 NVIDIA H200", "cuda:0 NVIDIA A100"];
        // The number of a device does not matter, and one of several that are alike is enough.
        for devices in [&["cuda:3 NVIDIA H200"][..], &[a100, h200], &[]] {
            assert_eq!(told(h200, "other", devices), none, "{devices:?}");
        }
        assert_eq!(
            told(h200, "other", &[a100, "cpu"]),
            ["it was made on cuda:0 NVIDIA H200, and this is cuda:0 NVIDIA A100 or cpu"]
        );
        assert_eq!(
            told("", "other", &["cpu"]),
            ["it was made on an unknown device, and this is cpu"]
        );
        assert_eq!(told("cpu", &instructions, &["cpu"]), none);
        for (then, words) in [("other", "other"), ("", "unknown instructions")] {
            let expected =
                format!("it was made with {words}, and this processor has {instructions}");
            assert_eq!(told("cpu", then, &["cpu"]), [expected]);
        }
    }

    #[test]
    fn a_build_by_other_tools_is_a_difference_where_both_are_known() {
        let now = provenance::versions();
        let versions = |candle: &str, rustc: &str| Versions {
            candle: candle.to_owned(),
            rustc: rustc.to_owned(),
            ..now.clone()
        };
        let here = versions("0.9", "1.90");
        let told = |candle, rustc| other_tools(&versions(candle, rustc), &here);
        assert_eq!(told("0.9", "1.90"), None);
        for unknown in ["", "unknown"] {
            assert_eq!(told(unknown, "1.90"), None);
            assert_eq!(
                other_tools(&here, &versions("0.9", unknown)),
                None,
                "{unknown}"
            );
        }
        let both = "it was made by another build of the program: with candle 0.8, and this is \
                    with 0.9; with rustc 1.89, and this is with 1.90";
        assert_eq!(told("0.8", "1.89").as_deref(), Some(both));
    }

    #[test]
    fn own_code_differs_by_its_source_its_process_and_its_program() {
        let then = code("aa", "01", "");
        let model = |now: Option<&OwnCode>| of_model(Some(&then), now);
        assert_eq!(
            model(Some(&code("bb", "02", "Python"))),
            "the model's source has changed: its digest was aa and is bb"
        );
        assert_eq!(
            model(Some(&code("aa", "02", "Python"))),
            "the mixer was computed by the program itself, and is by Python"
        );
        assert_eq!(
            model(Some(&code("aa", "02", ""))),
            "the program with the model has changed: mine had the digest 01, mine has 02"
        );
        assert_eq!(model(None), "the model was that of mine, and is lra's");
        assert_eq!(
            of_model(None, Some(&then)),
            "the model was lra's, and is one of this program's own"
        );
        // Of a task the source alone matters.
        let same = code("aa", "02", "Python");
        assert_eq!(of_task(None, None), None);
        assert_eq!(of_task(Some(&then), Some(&same)), None);
        let other = code("bb", "01", "");
        for (was, is, expected) in [
            (
                Some(&then),
                Some(&other),
                "the task's source has changed: its digest was aa and is bb",
            ),
            (Some(&then), None, "the task was that of mine, and is lra's"),
            (
                None,
                Some(&then),
                "the task was lra's, and is one of this program's own",
            ),
        ] {
            assert_eq!(of_task(was, is).as_deref(), Some(expected));
        }
    }

    #[test]
    fn data_are_compared_where_both_digests_are_known() {
        let mut record = timed(1.0);
        let stored = |digest: Option<&str>, refused: Option<&str>| StoredData {
            digest: digest.map(str::to_owned),
            refused: refused.map(str::to_owned),
            other_raw_files: None,
        };
        let (here, gone) = (stored(Some("0123456789abcdef"), None), stored(None, None));
        assert!(here.are_here() && !gone.are_here());
        assert_eq!(here.changes(&record), Vec::<String>::new());
        let told = here.not_compared(&record).unwrap();
        assert!(told.contains("does not say on which data"), "{told}");

        record.task.data_digest = "0123456789abcdef".to_owned();
        assert_eq!(here.changes(&record), Vec::<String>::new());
        assert_eq!(here.not_compared(&record), None);
        record.task.data_digest = "0123456789abcdee".to_owned();
        let told = here.changes(&record).concat();
        let digests = "their digest is 0123456789ab, that of the stored data 0123456789ab";
        assert!(told.ends_with(digests), "{told}");
        assert_eq!(here.not_compared(&record), None);
        assert_eq!(gone.changes(&record), Vec::<String>::new());
        let told = gone.not_compared(&record).unwrap();
        assert!(told.contains("not here and was not compared"), "{told}");
        let told = stored(None, Some("half a file")).not_compared(&record);
        assert!(told.unwrap().ends_with("raw files: half a file"));
    }
}
