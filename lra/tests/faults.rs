//! Faults of the file system: if any operation fails once, or the process dies during it, or the
//! power fails, the files left are whole, the error is reported, and resuming leads to the same
//! bits.
//!
//! A schedule is a number. `LRA_SCHEDULE=17 cargo test --locked --workspace --test all --
//! faults::runs` repeats one, `LRA_SCHEDULES=5000` tries that many of each kind.

#![allow(clippy::unwrap_used, clippy::print_stderr)]
#![cfg(unix)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;

use crate::common::{Place, assert_same, err};
use serde_json::Value;

/// Schedules of each kind that are tried unless `LRA_SCHEDULES` is set.
const RUNS: u64 = 200;
const SWEEPS: u64 = 30;
const BUILDS: u64 = 120;
const CHECKS: u64 = 100;

/// SplitMix64 random number generator.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound as u64) as usize
    }
}

/// A command, and the operations of the file system that it makes.
struct Work {
    words: String,
    /// Operations, each with its number among those of its kind within its process.
    operations: Vec<(String, usize)>,
}

/// Runs a command undisturbed, which must succeed. Returns its operations, each in a line behind
/// the process.
fn operations(place: &Place, words: &str) -> String {
    let log = place.path().join("operations");
    let mut command = place.command(words);
    let output = command.env("LRA_FAULTS_LOG", &log).output().unwrap();
    assert!(output.status.success(), "lra {words}: {}", err(&output));
    let operations = fs::read_to_string(&log).unwrap();
    fs::remove_file(&log).unwrap();
    operations
}

impl Work {
    /// Runs a command undisturbed, which must succeed, and notes its operations, except for those
    /// on folders, after which every file is in its place.
    fn noted(place: &Place, words: &str) -> Work {
        let mut made = BTreeMap::new();
        let operations = operations(place, words);
        let number = |line: &str| {
            let number: &mut usize = made.entry(line.to_owned()).or_default();
            *number += 1;
            let (_, operation) = line.split_once(' ').unwrap();
            (operation.to_owned(), *number)
        };
        let of_files = operations.lines().filter(|it| !it.ends_with(" folder"));
        Work {
            words: words.to_owned(),
            operations: of_files.map(number).collect(),
        }
    }
}

/// One fault in one command. If its test fails, the message says how to repeat it.
struct Schedule {
    seed: u64,
    kind: &'static str,
    words: String,
    plan: String,
}

impl Drop for Schedule {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!(
                "LRA_FAULTS={} lra {}\nagain: LRA_SCHEDULE={} cargo test --locked -p lra --test all -- faults::{}",
                self.plan, self.words, self.seed, self.kind
            );
        }
    }
}

/// Result of a command that a fault struck.
struct Struck {
    /// Exit code; `None` if the command was killed.
    code: Option<i32>,
    told: String,
    printed: String,
}

impl Schedule {
    /// Returns the schedule of a seed, which chooses a work, an operation of it that fails, and the
    /// kind of failure. Returns the number of the work, too.
    fn of(seed: u64, kind: &'static str, works: &[Work]) -> (usize, Schedule) {
        let mut random = Random(seed);
        let chosen = random.below(works.len());
        let work = &works[chosen];
        let (operation, number) = &work.operations[random.below(work.operations.len())];
        let errors: &[i32] = match operation.as_str() {
            "read" => &[libc::EIO, libc::EACCES, libc::EMFILE],
            "lock" => &[libc::ENOLCK, libc::EIO],
            _ => &[libc::ENOSPC, libc::EIO, libc::EDQUOT],
        };
        let how = match random.below(errors.len() + 2) {
            0 => "die".to_owned(),
            1 => "power".to_owned(),
            other => errors[other - 2].to_string(),
        };
        let schedule = Schedule {
            seed,
            kind,
            words: work.words.clone(),
            plan: format!("{operation}:{number}:{how}"),
        };
        (chosen, schedule)
    }

    /// Runs the command under the fault. It ends with a documented exit code and reports the
    /// problem, or is killed if the schedule says so.
    fn strike(&self, place: &Place) -> Struck {
        let mut command = place.command(&self.words);
        let output = command.env("LRA_FAULTS", &self.plan).output().unwrap();
        let (told, code) = (err(&output), output.status.code());
        assert!(!told.contains("panicked"), "{told}");
        match code {
            Some(0) => {}
            Some(code) => {
                // A check whose logs cannot be read has not passed.
                let is_check = code == 1 && self.words.starts_with("check ");
                let is_known = is_check || [2, 3, 4].contains(&code);
                assert!(is_known, "exit code {code}: {told}");
                // A sweep names the runs that failed.
                let said = ["error: ", "failed: "].iter().any(|it| told.contains(it));
                assert!(said, "exit code {code}: {told}");
            }
            None => assert!(!self.plan.ends_with(char::is_numeric), "{told}"),
        }
        Struck {
            code,
            told,
            printed: String::from_utf8(output.stdout).unwrap(),
        }
    }
}

/// Returns the seeds of a test: `count` of them, or as many as `LRA_SCHEDULES` says, or the one
/// that `LRA_SCHEDULE` names.
fn seeds(count: u64) -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    match number("LRA_SCHEDULE") {
        Some(seed) => seed..seed + 1,
        None => 0..number("LRA_SCHEDULES").unwrap_or(count),
    }
}

/// The smallest data and training.
const SMALL: &str = "--recipe smoke --threads 1 --quiet --steps 2 --set data.train=16 --set data.val=8 --set data.test=8 \
    --set train.batch=4 --set train.eval_every=1 --set train.checkpoint_every=1 --set train.log_every=1";

/// Replaces a folder by a copy of another folder and its contents.
fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(fs::copy(entry.path(), target).unwrap()),
        }
    }
}

/// Returns all files below a folder, by their paths within it.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    fn collect(top: &Path, folder: &Path, found: &mut BTreeMap<PathBuf, Vec<u8>>) {
        for entry in fs::read_dir(folder).into_iter().flatten() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => collect(top, &path, found),
                false => {
                    let name = path.strip_prefix(top).unwrap().to_owned();
                    found.insert(name, fs::read(&path).unwrap());
                }
            }
        }
    }
    let mut found = BTreeMap::new();
    collect(folder, folder, &mut found);
    found
}

/// Asserts that no file below a folder is half-written: documents are whole, and logs end with a
/// complete line unless the process was `killed`.
fn assert_whole(folder: &Path, killed: bool) {
    for (name, bytes) in files(folder) {
        let hidden = name.iter().any(|part| part.as_encoded_bytes()[0] == b'.');
        let text = || std::str::from_utf8(&bytes).unwrap();
        let ending = name.extension().unwrap_or_default().to_string_lossy();
        match &*ending {
            _ if hidden => {}
            // Written without a flush: if it is lost, it is made again.
            _ if name.ends_with("checked.json") => {}
            "json" => drop(
                serde_json::from_str::<Value>(text()).unwrap_or_else(|error| {
                    panic!("{}: {error}", name.display());
                }),
            ),
            "jsonl" => assert!(
                killed || bytes.is_empty() || bytes.ends_with(b"\n"),
                "{} ends in half a line",
                name.display()
            ),
            _ => {}
        }
    }
}

/// Returns the parts of a record about the outcome that are the same for equal runs.
fn outcome(folder: &Path) -> [Value; 5] {
    let text = fs::read_to_string(folder.join("record.json")).unwrap();
    let record: Value = serde_json::from_str(&text).unwrap();
    ["outcome", "task", "model", "scores", "baselines"].map(|key| record[key].clone())
}

/// Asserts that two folders hold the same runs.
fn assert_same_runs(one: &Path, other: &Path) {
    let names = |folder: &Path| {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(one), names(other));
    for name in names(one) {
        let [one, other] = [one, other].map(|folder| folder.join(&name));
        assert_same(&one, &other);
        assert_eq!(outcome(&one), outcome(&other));
        let left = files(&other);
        let left = left
            .keys()
            .find(|path| path.to_string_lossy().contains(".writing-"));
        assert_eq!(left, None);
    }
}

/// Fresh runs, resumed runs, runs that start over, and runs with a pretraining.
#[test]
fn runs() {
    let place = Place::in_memory();
    let at = |name: &str| place.path().join(name);
    let plain = format!("run --task toy --model bag {SMALL}");
    let pretrained = format!(
        "run --task toy --model linear {SMALL} --set pretrain.kind=masked --set pretrain.steps=2"
    );
    // Run once without noting operations, so that their data are not built by the others.
    for (words, out) in [(&plain, "whole"), (&pretrained, "whole-pretrained")] {
        place.ok(&format!("{words} --out {out}"));
    }
    // Killed in the middle: when the last checkpoint is renamed.
    for (words, out) in [(&plain, "left"), (&pretrained, "left-pretrained")] {
        let work = Work::noted(&place, &format!("{words} --out noted"));
        let renames = work.operations.iter().filter(|(it, _)| it == "rename");
        let plan = format!("rename:{}:die", renames.count() - 2);
        let mut command = place.command(&format!("{words} --out {out}"));
        let output = command.env("LRA_FAULTS", plan).output().unwrap();
        assert_eq!(output.status.code(), None, "{}", err(&output));
        fs::remove_dir_all(at("noted")).unwrap();
    }
    // State of the folder before, the command, and the expected result.
    let kinds = [
        (None, format!("{plain} --out struck"), "whole"),
        (
            Some("left"),
            format!("{plain} --out struck --resume"),
            "whole",
        ),
        (
            Some("whole"),
            format!("{plain} --out struck --force"),
            "whole",
        ),
        (
            Some("whole"),
            format!("{plain} --out struck --resume"),
            "whole",
        ),
        (
            None,
            format!("{pretrained} --out struck"),
            "whole-pretrained",
        ),
        (
            Some("left-pretrained"),
            format!("{pretrained} --out struck --resume"),
            "whole-pretrained",
        ),
    ];
    let prepare = |before: Option<&str>| match before {
        Some(before) => copy(&at(before), &at("struck")),
        None => drop(fs::remove_dir_all(at("struck"))),
    };
    let works: Vec<Work> = kinds
        .iter()
        .map(|(before, words, _)| {
            prepare(*before);
            Work::noted(&place, words)
        })
        .collect();
    for seed in seeds(RUNS) {
        let (kind, schedule) = Schedule::of(seed, "runs", &works);
        let (before, words, whole) = &kinds[kind];
        prepare(*before);
        let struck = schedule.strike(&place);
        assert_whole(&at("struck"), struck.code.is_none());
        if struck.code != Some(0) {
            let again = words.replace(" --force", "").replace(" --resume", "");
            place.ok(&format!("{again} --resume"));
        }
        assert_same_runs(&at(whole), &at("struck"));
    }
}

/// The fault strikes in the sweep and in each of its runs.
#[test]
fn sweeps() {
    let place = Place::in_memory();
    let at = |name: &str| place.path().join(name);
    let words = format!("sweep --tasks toy --models bag,linear {SMALL} --out");
    place.ok(&format!("{words} whole"));
    let works = [Work::noted(&place, &format!("{words} struck"))];
    for seed in seeds(SWEEPS) {
        let (_, schedule) = Schedule::of(seed, "sweeps", &works);
        let _ = fs::remove_dir_all(at("struck"));
        let struck = schedule.strike(&place);
        // The sweep outlives a run that dies.
        let killed = struck.code.is_none() || schedule.plan.ends_with(":die");
        assert_whole(&at("struck"), killed);
        if struck.code != Some(0) {
            place.ok(&format!("{words} struck --retry-failed"));
        }
        assert_same_runs(&at("whole"), &at("struck"));
    }
}

/// Generated data and data that are read, built for the first time and again.
#[test]
fn builds() {
    let place = Place::in_memory();
    let at = |name: &str| place.path().join(name);
    let rows = "Source\tTarget\n[MAX 2 9 ]\t9\n[MIN 4 5 7 ]\t4\n[MED 1 2 3 ]\t2\n";
    for split in ["train", "val", "test"] {
        fs::create_dir_all(at("raw")).unwrap();
        fs::write(at(&format!("raw/basic_{split}.tsv")), rows).unwrap();
    }
    let toy = "data make toy --set data.train=16 --set data.val=8 --set data.test=8";
    let listops = "data make listops --source official --from raw";
    for words in [toy, listops] {
        place.ok(words);
    }
    fs::rename(at("data"), at("whole")).unwrap();
    fs::create_dir_all(at("empty")).unwrap();
    let kinds = [
        ("empty", toy.to_owned()),
        ("empty", listops.to_owned()),
        ("whole", format!("{toy} --force")),
        ("whole", format!("{listops} --force")),
        ("whole", toy.replace("make", "verify")),
    ];
    let works: Vec<Work> = kinds
        .iter()
        .map(|(before, words)| {
            copy(&at(before), &at("data"));
            Work::noted(&place, words)
        })
        .collect();
    // The rows of all entries, with a check that nothing else is present but locks and the files
    // beside an entry.
    let stored = || {
        let mut found = files(&at("data/store"));
        found.retain(|name, _| {
            let name = name.to_string_lossy();
            assert!(
                !name.starts_with(".building-") && !name.starts_with(".replaced-"),
                "{name}"
            );
            name.ends_with(".safetensors")
        });
        found
    };
    copy(&at("whole"), &at("data"));
    let whole = stored();
    assert_eq!(whole.len(), 6);
    for seed in seeds(BUILDS) {
        let (kind, schedule) = Schedule::of(seed, "builds", &works);
        let (before, words) = &kinds[kind];
        copy(&at(before), &at("data"));
        let struck = schedule.strike(&place);
        assert_whole(&at("data/store"), struck.code.is_none());
        // Entries that are present open, and missing ones are made.
        place.ok(&words.replace(" --force", ""));
        let found = stored();
        assert!(!found.is_empty());
        for (name, rows) in &found {
            assert!(rows == &whole[name], "{}", name.display());
        }
        assert_eq!(found.len(), if *before == "empty" { 3 } else { 6 });
    }
}

/// Checks, tables and merged records: an output is either the old one or the new one.
#[test]
fn checks() {
    let place = Place::in_memory();
    let at = |name: &str| place.path().join(name);
    place.ok(&format!(
        "sweep --tasks toy --models bag,linear {SMALL} --out runs"
    ));
    place.ok("check runs --baseline base.csv --update");
    fs::write(
        at("page.md"),
        "<!-- lra:accuracy -->\n<!-- /lra:accuracy -->\n",
    )
    .unwrap();
    fs::create_dir_all(at("before")).unwrap();
    for name in ["base.csv", "page.md"] {
        fs::rename(at(name), at("before").join(name)).unwrap();
    }
    // Each command with the output that it writes.
    let works: Vec<(Work, &str, Vec<u8>, String)> = [
        ("check runs --baseline out/new.csv --update", "new.csv"),
        ("check runs --baseline out/base.csv --update", "base.csv"),
        (
            "check runs --baseline out/base.csv --junit out/check.xml",
            "check.xml",
        ),
        (
            "report runs --output out/table.md --format markdown",
            "table.md",
        ),
        (
            "report runs --output out/page.html --format html",
            "page.html",
        ),
        ("report runs --splice out/page.md", "page.md"),
        ("merge runs --output out/all.csv", "all.csv"),
    ]
    .into_iter()
    .map(|(words, output)| {
        copy(&at("before"), &at("out"));
        let printed = place.ok(words);
        copy(&at("before"), &at("out"));
        let work = Work::noted(&place, words);
        let whole = fs::read(at("out").join(output)).unwrap();
        (work, output, whole, printed)
    })
    .collect();
    let plain: Vec<Work> = works
        .iter()
        .map(|(work, ..)| Work {
            words: work.words.clone(),
            operations: work.operations.clone(),
        })
        .collect();
    let runs = files(&at("runs"));
    for seed in seeds(CHECKS) {
        let (kind, schedule) = Schedule::of(seed, "checks", &plain);
        let (_, output, whole, printed) = &works[kind];
        copy(&at("before"), &at("out"));
        let struck = schedule.strike(&place);
        let old = fs::read(at("before").join(output)).ok();
        let found = fs::read(at("out").join(output)).ok();
        if struck.code == Some(0) && struck.told.contains("warning: no learning curve") {
            assert_ne!(found, old);
        } else if struck.code == Some(0) {
            assert!(found.as_ref() == Some(whole), "{}", struck.told);
            assert_eq!(&struck.printed, printed);
        } else if struck.code == Some(1) {
            // The verdict of a check that has not passed.
            let text = String::from_utf8(found.unwrap()).unwrap();
            assert!(text.ends_with("</testsuites>\n"), "{text}");
        } else {
            assert!(found == old || found.as_ref() == Some(whole), "{output}");
        }
        assert!(files(&at("runs")) == runs, "the runs were changed");
    }
}

/// A rename lasts once the names in its folder are flushed, too. If that fails, the command does.
#[test]
fn names_are_flushed_after_a_rename() {
    let place = Place::in_memory();
    let made = |words: &str| -> Vec<String> {
        let made = operations(&place, words);
        let made = made.lines().filter_map(|line| line.split(' ').nth(1));
        let lasting = made.filter(|it| ["sync", "rename", "folder"].contains(it));
        lasting.map(str::to_owned).collect()
    };
    let toy = "data make toy --set data.train=16 --set data.val=8 --set data.test=8";
    // The names in the entry, then that of the entry itself.
    for words in [toy.to_owned(), format!("{toy} --force")] {
        let made = made(&words);
        let entry = made.iter().position(|it| it == "folder").unwrap();
        assert_eq!(made[entry - 1], "sync", "{made:?}");
        let (last, renames) = made[entry + 1..].split_last().unwrap();
        assert_eq!(last, "folder", "{made:?}");
        let count = if words == toy { 1 } else { 2 };
        assert_eq!(renames, vec!["rename"; count], "{made:?}");
    }
    place.ok(&format!("run --task toy --model bag {SMALL}"));
    let merged = made("merge runs --output all.csv");
    assert_eq!(merged, ["sync", "rename", "folder"]);
    let again = format!("{toy} --force");
    for words in [again.as_str(), "merge runs --output other.csv"] {
        let mut command = place.command(words);
        let output = command.env("LRA_FAULTS", "folder:*:5").output().unwrap();
        let told = err(&output);
        assert!(
            !output.status.success() && told.contains("error: "),
            "{told}"
        );
    }
}
