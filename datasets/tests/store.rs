//! Tests of the store, on the toy task and on small tasks made for these tests.
#![allow(missing_docs, clippy::unwrap_used)]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lra_datasets::tasks::{Toy, find};
use lra_datasets::{
    Class, Error, Key, Progress, Protocol, Request, Result, Shape, Source, SplitName, SplitWriter,
    Store, Task, TaskInfo,
};
use serde_json::{Value, json};

fn toy() -> Key {
    Key::default_of(&Toy)
}

fn built() -> (tempfile::TempDir, Store, PathBuf) {
    let root = tempfile::tempdir().unwrap();
    let store = Store::new(root.path());
    store.open_or_build(&Toy, &toy(), None, &()).unwrap();
    let folder = store.folder(&Toy, &toy());
    (root, store, folder)
}

#[test]
fn builds_once_and_opens_the_same() {
    let (_root, store, folder) = built();
    let splits = store.open(&Toy, &toy()).unwrap();
    assert_eq!(
        [splits.train.len(), splits.val.len(), splits.test.len()],
        [2000, 256, 256]
    );
    let manifest = &splits.manifest;
    assert_eq!((manifest.label.as_str(), manifest.max_length), ("toy", 32));
    assert_eq!(manifest.splits.train.labels.iter().sum::<u64>(), 2000);
    assert_eq!(
        manifest.key().folder_name("toy", 1, ""),
        folder.file_name().unwrap().to_str().unwrap()
    );
    // The bytes of seed 0: with another value, stored data and published digests are no longer
    // valid.
    insta::assert_snapshot!(manifest.digest, @"e119973052fffb192ac4f08e4e5b87129945852458d35f07e35ce0f46c1c53e1");
    let entries = store.list().unwrap();
    assert_eq!(entries.len(), 1);
    assert_eq!(entries[0].manifest.as_ref().unwrap(), manifest);
    assert!(entries[0].bytes > 40_000);
}

#[test]
fn protocols_of_equal_data_share_an_entry() {
    let (_root, store, folder) = built();
    let key = Key {
        protocol: Protocol::Tay2021,
        ..toy()
    };
    assert_eq!(store.folder(&Toy, &key), folder);
    assert!(store.open(&Toy, &key).is_ok());
}

#[test]
fn missing_data_says_how_to_get_it() {
    let root = tempfile::tempdir().unwrap();
    let error = Store::new(root.path()).open(&Toy, &toy()).unwrap_err();
    assert_eq!(error.class(), Class::Data);
    let text = error.to_string();
    assert!(
        text.contains("lra data make toy --source generated"),
        "{text}"
    );
    assert!(text.contains(root.path().to_str().unwrap()), "{text}");
}

#[test]
fn impossible_requests_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let store = Store::new(root.path());
    let with = |key: &str, value: Value| {
        let mut changed = toy();
        changed.options[key] = value;
        store.open_or_build(&Toy, &changed, None, &()).unwrap_err()
    };
    insta::assert_snapshot!(with("max_length", json!(3)), @"toy: option `max_length` cannot be 3; allowed: 8 to 65536");
    insta::assert_snapshot!(with("train", json!(-1)), @"toy: option `train` cannot be -1; allowed: a whole number from 0 to 9223372036854775807");
    insta::assert_snapshot!(with("trian", json!(1)), @"toy has no option `trian`; it has: seed, train, val, test, max_length");
    let official = Key {
        source: Source::Official,
        ..toy()
    };
    insta::assert_snapshot!(store.open(&Toy, &official).unwrap_err(), @"toy has no source `official`; it has: generated");
    assert_eq!(with("seed", json!("x")).class(), Class::Usage);
    assert!(
        !root.path().join("store").exists(),
        "a refused request leaves nothing behind"
    );
}

#[test]
fn damage_is_found_when_opening() {
    type Harm = fn(&Path);
    let table: &[(&str, Harm, &str, &str)] = &[
        (
            "truncated",
            |folder| shorten(&folder.join("val.safetensors"), 100),
            "val.safetensors",
            "bytes long instead of",
        ),
        (
            "grown",
            |folder| append(&folder.join("train.safetensors")),
            "train.safetensors",
            "bytes long instead of",
        ),
        (
            "edited",
            |folder| flip(&folder.join("test.safetensors"), 3000),
            "test.safetensors",
            "SHA-256",
        ),
        (
            "gone",
            |folder| fs::remove_file(folder.join("train.safetensors")).unwrap(),
            "train.safetensors",
            "gone",
        ),
        (
            "no manifest",
            |folder| fs::remove_file(folder.join("manifest.json")).unwrap(),
            "manifest.json",
            "",
        ),
        (
            "other manifest",
            |folder| fs::write(folder.join("manifest.json"), "{}").unwrap(),
            "manifest.json",
            "`task` is missing",
        ),
        (
            "changed options",
            |folder| replace(&folder.join("manifest.json"), "\"seed\": 0", "\"seed\": 1"),
            "manifest.json",
            "another entry",
        ),
        (
            "other rows",
            |folder| {
                replace(
                    &folder.join("manifest.json"),
                    "\"rows\": 2000",
                    "\"rows\": 2001",
                );
            },
            "train.safetensors",
            "2000 rows instead of 2001",
        ),
    ];
    for (name, harm, file, problem) in table {
        let (_root, store, folder) = built();
        harm(&folder);
        let error = store.open(&Toy, &toy()).expect_err(name);
        assert_eq!(error.class(), Class::Data, "{name}");
        let text = error.to_string();
        assert!(
            text.contains(folder.join(file).to_str().unwrap()),
            "{name}: {text}"
        );
        assert!(text.contains(problem), "{name}: {text}");
        assert!(
            text.contains("lra data make toy") && text.contains("--force"),
            "{name}: {text}"
        );
        // No data is silently made again, and the remedy works.
        assert!(
            store.open_or_build(&Toy, &toy(), None, &()).is_err(),
            "{name}"
        );
        assert!(!store.verify(&Toy, &toy(), &()).unwrap().passed(), "{name}");
        store.rebuild(&Toy, &toy(), None, &()).unwrap();
        assert!(store.verify(&Toy, &toy(), &()).unwrap().passed(), "{name}");
    }
}

#[test]
fn an_edit_that_hides_its_time_is_found() {
    let (_root, store, folder) = built();
    let path = folder.join("train.safetensors");
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    flip(&path, 20_000);
    File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_modified(modified)
        .unwrap();
    #[cfg(unix)]
    {
        let error = store.open(&Toy, &toy()).unwrap_err().to_string();
        assert!(error.contains("SHA-256"), "{error}");
    }
    let verification = store.verify(&Toy, &toy(), &()).unwrap();
    let failed: Vec<_> = verification
        .checks
        .iter()
        .filter(|check| !check.ok)
        .collect();
    assert_eq!(failed[0].name, "train: SHA-256", "{verification}");
}

#[test]
fn a_copied_entry_opens_and_is_hashed_only_once() {
    let (_root, store, folder) = built();
    for split in SplitName::ALL {
        // As after copying: same bytes, another time.
        let file = File::options()
            .write(true)
            .open(folder.join(split.file_name()))
            .unwrap();
        file.set_modified(std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1))
            .unwrap();
    }
    let stamp = fs::read(folder.join("checked.json")).unwrap();
    store.open(&Toy, &toy()).unwrap();
    let renewed = fs::read(folder.join("checked.json")).unwrap();
    assert_ne!(stamp, renewed);
    store.open(&Toy, &toy()).unwrap();
    assert_eq!(renewed, fs::read(folder.join("checked.json")).unwrap());
}

#[test]
fn leftovers_of_a_killed_build_are_cleared() {
    let root = tempfile::tempdir().unwrap();
    let store = Store::new(root.path());
    let folder = store.folder(&Toy, &toy());
    let name = folder.file_name().unwrap().to_str().unwrap();
    let left = folder.with_file_name(format!(".building-{name}"));
    fs::create_dir_all(left.join("deeper")).unwrap();
    fs::write(left.join("train.0.spool"), "half").unwrap();
    store.open_or_build(&Toy, &toy(), None, &()).unwrap();
    assert!(!left.exists());
    assert_eq!(store.list().unwrap().len(), 1);
}

#[test]
fn leftovers_of_other_entries_go_unless_somebody_is_at_work_on_them() {
    let root = tempfile::tempdir().unwrap();
    let store = root.path().join("store");
    for left in [".building-a", ".replaced-a", ".parts-a", ".building-busy"] {
        fs::create_dir_all(store.join(left).join("deeper")).unwrap();
    }
    let busy = File::create(store.join(".lock-busy")).unwrap();
    busy.lock().unwrap();
    let scratch = ["left", "busy"].map(|name| {
        let folder = root.path().join(format!(".scratch-{name}"));
        fs::create_dir_all(folder.join("store")).unwrap();
        File::create(folder.join("lock")).unwrap()
    });
    scratch[1].lock().unwrap();
    Store::new(root.path())
        .open_or_build(&Toy, &toy(), None, &())
        .unwrap();
    for (left, stays) in [
        (".building-a", false),
        (".replaced-a", false),
        (".parts-a", true),
        (".building-busy", true),
    ] {
        assert_eq!(store.join(left).exists(), stays, "{left}");
    }
    assert!(!store.join(".lock-a").exists(), "no lock without an entry");
    assert!(!root.path().join(".scratch-left").exists());
    assert!(root.path().join(".scratch-busy").exists());
}

/// A process was killed between the two renames of a replacement.
#[test]
fn an_entry_that_was_moved_aside_is_moved_back() {
    let (root, store, folder) = built();
    let name = folder.file_name().unwrap().to_str().unwrap();
    let aside = root.path().join("store").join(format!(".replaced-{name}"));
    let manifest = fs::read(folder.join("manifest.json")).unwrap();
    let move_aside = || {
        fs::create_dir(&aside).unwrap();
        fs::rename(&folder, aside.join("entry")).unwrap();
    };
    type Command = fn(&Store);
    let commands: [Command; 3] = [
        |store| drop(store.open(&Toy, &toy()).unwrap()),
        |store| drop(store.open_or_build(&Toy, &toy(), None, &()).unwrap()),
        |store| assert!(store.verify(&Toy, &toy(), &()).unwrap().passed()),
    ];
    for command in commands {
        move_aside();
        command(&store);
        // The time of the build is in the manifest.
        assert_eq!(fs::read(folder.join("manifest.json")).unwrap(), manifest);
        assert!(!aside.exists());
    }
    // Half an entry is no entry: it is built again.
    move_aside();
    fs::remove_file(aside.join("entry/val.safetensors")).unwrap();
    assert!(store.open(&Toy, &toy()).is_err() && !aside.exists());
    store.open_or_build(&Toy, &toy(), None, &()).unwrap();
}

/// Progress of a user who asks to stop at once.
struct Stopped;

impl Progress for Stopped {
    fn begin(&self, _what: &str, _total: Option<u64>) {}
    fn advance(&self, _by: u64) {}
    fn finish(&self) {}
    fn stopped(&self) -> bool {
        true
    }
}

#[test]
fn a_build_that_is_stopped_ends_and_leaves_nothing_half_done() {
    let root = tempfile::tempdir().unwrap();
    let store = Store::new(root.path());
    let error = store.open_or_build(&Toy, &toy(), None, &Stopped);
    assert_eq!(error.unwrap_err().class(), Class::Interrupted);
    assert!(store.list().unwrap().is_empty());
    // Nor does it wait for another build.
    let folder = store.folder(&Toy, &toy());
    let name = folder.file_name().unwrap().to_str().unwrap();
    let lock = File::create(folder.with_file_name(format!(".lock-{name}"))).unwrap();
    lock.lock().unwrap();
    let error = store.open_or_build(&Toy, &toy(), None, &Stopped);
    assert_eq!(error.unwrap_err().class(), Class::Interrupted);
    let names = fs::read_dir(root.path().join("store")).unwrap();
    assert_eq!(names.count(), 1, "the lock");
}

#[test]
fn a_store_that_cannot_be_written_is_a_clear_error() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("store"), "a file where a folder should be").unwrap();
    let error = Store::new(root.path())
        .open_or_build(&Toy, &toy(), None, &())
        .unwrap_err();
    assert_eq!(error.class(), Class::System);
    assert!(error.to_string().starts_with("cannot create "), "{error}");
}

/// Task that counts builds, and makes each of them long enough to collide.
#[derive(Default)]
struct Slow(AtomicUsize);

impl Progress for Slow {
    fn begin(&self, what: &str, _total: Option<u64>) {
        if what.starts_with("drawing") {
            self.0.fetch_add(1, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(200));
        }
    }
    fn advance(&self, _by: u64) {}
    fn finish(&self) {}
}

#[test]
fn concurrent_builders_build_once() {
    let root = tempfile::tempdir().unwrap();
    let progress = Slow::default();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let splits = Store::new(root.path())
                    .open_or_build(&Toy, &toy(), None, &progress)
                    .unwrap();
                assert_eq!(splits.train.len(), 2000);
            });
        }
    });
    assert_eq!(progress.0.load(Ordering::SeqCst), 1);
}

/// Task with two towers, and with the rows that the options give.
struct Pairs;

static PAIRS: TaskInfo = TaskInfo {
    name: "pairs",
    title: "Pairs",
    summary: "two sequences",
    paper: "none",
    version: 3,
    vocabulary: 11,
    first_id: 1,
    classes: 2,
    towers: 2,
    mask_ratio: 0.15,
    sources: &[Source::Synthetic],
    probe: false,
};

impl Task for Pairs {
    fn info(&self) -> &'static TaskInfo {
        &PAIRS
    }
    fn defaults(&self) -> Value {
        json!({ "max_length": 4, "fault": "none" })
    }
    fn shape(&self, _options: &Value) -> Result<Shape> {
        Ok(Shape {
            max_length: 4,
            train_length: 4,
            classes: PAIRS.classes,
            label: "pairs".to_owned(),
            grid: None,
            dense: None,
        })
    }
    fn build(&self, request: &Request<'_>, writer: &mut SplitWriter) -> Result<()> {
        for (row, split) in [
            SplitName::Test,
            SplitName::Train,
            SplitName::Val,
            SplitName::Train,
        ]
        .into_iter()
        .enumerate()
        {
            writer.row(
                split,
                &[&[1, 2, 3][..row.min(3)], &[row as u8]],
                (row % 2) as u8,
            )?;
        }
        writer.note("made by hand");
        writer.mark_partial();
        match request.options["fault"].as_str() {
            Some("towers") => writer.row(SplitName::Val, &[&[1]], 0),
            Some("label") => writer.row(SplitName::Val, &[&[1], &[2]], 2),
            Some("first token") => writer.row(SplitName::Val, &[&[10], &[1]], 0),
            Some("second token") => writer.row(SplitName::Val, &[&[1], &[10]], 0),
            Some("first length") => writer.row(SplitName::Val, &[&[1; 5], &[2]], 0),
            Some("second length") => writer.row(SplitName::Val, &[&[1], &[2; 5]], 0),
            Some("between") => {
                writer.promise_distinct();
                writer.row(SplitName::Val, &[&[1], &[1]], 0)
            }
            Some("within") => {
                writer.promise_distinct();
                writer.row(SplitName::Train, &[&[1], &[1]], 0)
            }
            // Tokens move from one sequence to the other.
            Some("apart") => {
                writer.promise_distinct();
                writer.row(SplitName::Val, &[&[1, 1], &[]], 0)
            }
            _ => Ok(()),
        }
    }
    fn to_text(&self, _towers: &[&[u8]], _label: u8) -> String {
        String::new()
    }
}

fn pairs(fault: &str) -> Key {
    let mut key = Key::default_of(&Pairs);
    key.options["fault"] = json!(fault);
    key
}

#[test]
fn two_towers_keep_their_rows_in_order() {
    let root = tempfile::tempdir().unwrap();
    let splits = Store::new(root.path())
        .open_or_build(&Pairs, &pairs("none"), None, &())
        .unwrap();
    assert_eq!((splits.train.len(), splits.train.towers()), (2, 2));
    assert_eq!(
        (splits.train.tokens(0, 0), splits.train.tokens(1, 0)),
        (&[1][..], &[1][..])
    );
    assert_eq!(
        (splits.train.tokens(0, 1), splits.train.tokens(1, 1)),
        (&[1, 2, 3][..], &[3][..])
    );
    assert_eq!(
        (splits.test.tokens(0, 0), splits.test.tokens(1, 0)),
        (&[][..], &[0][..])
    );
    assert_eq!(splits.train.labels(), [1, 1]);
    assert_eq!(splits.manifest.notes, ["made by hand"]);
    assert!(splits.manifest.partial);
}

#[test]
fn a_builder_is_held_to_its_description() {
    let root = tempfile::tempdir().unwrap();
    let store = Store::new(root.path());
    for fault in [
        "towers",
        "label",
        "first token",
        "second token",
        "first length",
        "second length",
    ] {
        let error = store
            .open_or_build(&Pairs, &pairs(fault), None, &())
            .expect_err(fault);
        assert!(
            matches!(error, Error::Builder { task: "pairs", .. }),
            "{fault}: {error}"
        );
    }
    assert!(
        store.list().unwrap().is_empty(),
        "a failed build leaves no entry"
    );
    let visible = fs::read_dir(root.path().join("store")).unwrap();
    let names: Vec<_> = visible
        .map(|item| item.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(
        names.iter().all(|name| name.starts_with(".lock-")),
        "{names:?}"
    );
}

#[test]
fn a_broken_promise_is_found() {
    let root = tempfile::tempdir().unwrap();
    let store = Store::new(root.path());
    for (fault, told) in [
        (
            "between",
            "0 rows repeated within a split, 1 in more than one split",
        ),
        (
            "within",
            "1 row repeated within a split, 0 in more than one split",
        ),
    ] {
        store
            .open_or_build(&Pairs, &pairs(fault), None, &())
            .unwrap();
        let verification = store.verify(&Pairs, &pairs(fault), &()).unwrap();
        let failed: Vec<_> = verification
            .checks
            .iter()
            .filter(|check| !check.ok)
            .collect();
        assert_eq!(failed.len(), 1, "{verification}");
        assert_eq!(failed[0].detail, told);
    }
    store
        .open_or_build(&Pairs, &pairs("apart"), None, &())
        .unwrap();
    let verification = store.verify(&Pairs, &pairs("apart"), &()).unwrap();
    assert!(verification.passed(), "{verification}");
}

#[test]
fn tasks_are_found_by_name() {
    assert_eq!(find("toy").unwrap().info().title, "Toy");
    assert!(find("Toy").is_none());
}

fn shorten(path: &Path, by: u64) {
    let file = File::options().write(true).open(path).unwrap();
    file.set_len(file.metadata().unwrap().len() - by).unwrap();
}

fn append(path: &Path) {
    let mut bytes = fs::read(path).unwrap();
    bytes.push(0);
    fs::write(path, bytes).unwrap();
}

fn flip(path: &Path, position: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[position] ^= 1;
    fs::write(path, bytes).unwrap();
}

fn replace(path: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.contains(from));
    fs::write(path, text.replace(from, to)).unwrap();
}

#[test]
fn a_change_of_open_files_is_seen_and_another_entry_in_their_place_is_none() {
    let (_root, store, folder) = built();
    let splits = store.open(&Toy, &toy()).unwrap();
    splits.check_unchanged().unwrap();
    let file = folder.join("test.safetensors");
    let bytes = fs::read(&file).unwrap();
    // The old file stays what the splits have mapped.
    let other = folder.join("other");
    fs::write(&other, &bytes).unwrap();
    fs::rename(&other, &file).unwrap();
    splits.check_unchanged().unwrap();
    // Neither are a second link, which backups make, and other permissions.
    let splits = store.open(&Toy, &toy()).unwrap();
    fs::hard_link(&file, folder.join("backup")).unwrap();
    splits.check_unchanged().unwrap();
    std::thread::sleep(Duration::from_millis(20));
    let mut changed = bytes;
    let last = changed.len() - 1;
    changed[last] ^= 1;
    use std::io::Write;
    let mut open = File::options().write(true).open(&file).unwrap();
    open.write_all(&changed).unwrap();
    drop(open);
    let error = splits.check_unchanged().unwrap_err();
    assert_eq!(error.class(), Class::Data);
    assert!(error.to_string().contains("test.safetensors"), "{error}");
}

/// The contents have changed, and the time of the change was set back.
#[test]
#[cfg(unix)]
fn a_hidden_change_of_open_files_is_seen() {
    let (_root, store, folder) = built();
    let splits = store.open(&Toy, &toy()).unwrap();
    let path = folder.join("train.safetensors");
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    // Longer than the steps of the file system's clock.
    std::thread::sleep(Duration::from_millis(20));
    let file = File::options().write(true).open(&path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[250], 30_000).unwrap();
    file.set_modified(modified).unwrap();
    let error = splits.check_unchanged().unwrap_err().to_string();
    assert!(error.contains("train.safetensors"), "{error}");
}

/// Pairs with more rows at each build, as official data has whose files were exchanged.
struct Growing(AtomicUsize);

impl Task for Growing {
    fn info(&self) -> &'static TaskInfo {
        Pairs.info()
    }
    fn defaults(&self) -> Value {
        Pairs.defaults()
    }
    fn shape(&self, options: &Value) -> Result<Shape> {
        Pairs.shape(options)
    }
    fn build(&self, request: &Request<'_>, writer: &mut SplitWriter) -> Result<()> {
        for _ in 0..self.0.fetch_add(1, Ordering::Relaxed) {
            writer.row(SplitName::Train, &[&[1], &[2]], 0)?;
        }
        Pairs.build(request, writer)
    }
    fn to_text(&self, towers: &[&[u8]], label: u8) -> String {
        Pairs.to_text(towers, label)
    }
}

#[test]
fn an_entry_that_is_replaced_while_it_is_opened_is_not_damaged() {
    let root = tempfile::tempdir().unwrap();
    let (store, task) = (Store::new(root.path()), Growing(AtomicUsize::new(0)));
    let key = Key::default_of(&task);
    store.rebuild(&task, &key, None, &()).unwrap();
    std::thread::scope(|scope| {
        let builder = scope.spawn(|| {
            for _ in 0..20 {
                store.rebuild(&task, &key, None, &()).unwrap();
            }
        });
        while !builder.is_finished() {
            match store.open(&task, &key) {
                // Between the two renames of a replacement.
                Ok(_) | Err(Error::Missing { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    });
}

#[test]
fn a_manifest_whose_digest_is_not_that_of_its_files_is_damaged() {
    let (_root, store, folder) = built();
    let path = folder.join("manifest.json");
    let text = fs::read_to_string(&path).unwrap();
    let mut manifest: Value = serde_json::from_str(&text).unwrap();
    manifest["digest"] = "0".repeat(64).into();
    fs::write(&path, manifest.to_string()).unwrap();
    let error = store.open(&Toy, &toy()).unwrap_err().to_string();
    assert!(error.contains("content digest"), "{error}");
}

/// Returns the names of the checks that fail.
fn failed(store: &Store, task: &dyn Task, key: &Key) -> Vec<String> {
    let verification = store.verify(task, key, &()).unwrap();
    let failed = verification.checks.into_iter().filter(|check| !check.ok);
    failed.map(|check| check.name).collect()
}

#[test]
fn labels_are_counted_again() {
    let (_root, store, folder) = built();
    let path = folder.join("manifest.json");
    let text = fs::read_to_string(&path).unwrap();
    let mut manifest: Value = serde_json::from_str(&text).unwrap();
    let labels = &mut manifest["splits"]["val"]["labels"];
    let first = labels[0].as_u64().unwrap();
    (labels[0], labels[1]) = (labels[1].take(), first.into());
    assert_ne!(labels[0], labels[1]);
    fs::write(&path, manifest.to_string()).unwrap();
    assert_eq!(failed(&store, &Toy, &toy()), ["val: labels"]);
}

/// Changes a token of each sequence, and corrects the manifest's SHA-256.
#[test]
fn tokens_of_both_sequences_are_verified() {
    // Behind the tokens of both, four and two, stand two labels.
    for from_end in [8, 5, 4, 3] {
        let root = tempfile::tempdir().unwrap();
        let store = Store::new(root.path());
        let key = pairs("none");
        drop(store.open_or_build(&Pairs, &key, None, &()).unwrap());
        assert!(failed(&store, &Pairs, &key).is_empty());
        let folder = store.folder(&Pairs, &key);
        let file = folder.join("train.safetensors");
        let mut bytes = fs::read(&file).unwrap();
        let before = lra_datasets::Digest::of(&bytes);
        let at = bytes.len() - from_end;
        bytes[at] = 10;
        fs::write(&file, &bytes).unwrap();
        let now = lra_datasets::Digest::of(&bytes);
        replace(&folder.join("manifest.json"), &before, &now);
        let failed = failed(&store, &Pairs, &key);
        assert_eq!(failed, ["content digest", "train: tokens"], "{from_end}");
    }
}

#[test]
fn a_manifest_with_a_byte_order_mark_is_read() {
    let (_root, store, folder) = built();
    let path = folder.join("manifest.json");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, format!("\u{feff}{text}")).unwrap();
    store.open(&Toy, &toy()).unwrap();
}
