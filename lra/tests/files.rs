//! Files that are not what their names promise: links, pipes, folders; and disks that have no locks
//! or are full.

#![allow(clippy::unwrap_used)]
#![cfg(unix)]

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::common::{Place, TINY, err, stored};

/// Moves a file out of its folder and leaves a link to it. Returns its new path.
fn linked(place: &Place, file: &Path) -> PathBuf {
    let foreign = place.path().join("foreign");
    let _ = fs::remove_dir_all(&foreign);
    let _ = fs::remove_file(&foreign);
    match file.exists() {
        true => fs::rename(file, &foreign).unwrap(),
        false => fs::write(&foreign, "a file of somebody else\n").unwrap(),
    }
    symlink(&foreign, file).unwrap();
    foreign
}

fn pipe(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status().unwrap();
    assert!(made.success());
}

/// An output of the same name does not replace a file that the program reads back.
#[test]
fn no_output_replaces_what_the_program_keeps() {
    let place = Place::new();
    place.ok(&format!("{TINY} --model bag"));
    let folder = place.run_folder("runs");
    let run = folder.display();
    place.ok("merge runs --output table.csv");
    place.ok("check runs --baseline base.csv --update");
    let kept = ["record.json", "metrics.jsonl", "best.safetensors"].map(|name| folder.join(name));
    let tables = ["table.csv", "base.csv"].map(|name| place.path().join(name));
    let contents = || -> Vec<Vec<u8>> {
        let files = kept.iter().chain(&tables);
        files.map(|file| fs::read(file).unwrap()).collect()
    };
    let before = contents();
    for (words, kind) in [
        (
            format!("explain {run} --output {run}/record.json"),
            "a file of a run",
        ),
        (
            format!("score {run} --predictions {run}/metrics.jsonl"),
            "a file of a run",
        ),
        (
            format!("report runs --output {run}/best.safetensors"),
            "a file of a run",
        ),
        (
            "check runs --baseline base.csv --junit base.csv".to_owned(),
            "a baseline",
        ),
        (
            "report table.csv --format csv --output table.csv".to_owned(),
            "a table of records",
        ),
    ] {
        let message = place.fails(2, &words);
        assert!(
            message.contains(kind) && message.contains("another name"),
            "{words}: {message}"
        );
    }
    assert!(contents() == before);
    // An output may be replaced by another.
    for _ in 0..2 {
        place.ok("report runs --format csv --output shown.csv");
    }
}

/// A name that ends like that of a file of another kind is refused before anything is read.
#[test]
fn no_file_is_named_like_one_of_another_kind() {
    let place = Place::new();
    for (words, remedy) in [
        ("score none --predictions x.json", ".csv or .jsonl"),
        ("explain none --png x.jpg", ".png"),
        ("explain none --output x.html", ".txt, or add --format html"),
        ("data show pathfinder --png x.jpg", ".png"),
        ("report --output x.csv", ".txt, or add --format csv"),
        ("report --format csv --output x.gz", ".csv"),
        ("report --splice x.html", ".md"),
        (
            "agree --format csv --output x.json",
            ".csv, or add --format json",
        ),
        ("check --baseline base.csv --junit x.json", ".xml"),
        (
            "check --baseline base.csv --output x.md",
            ".txt, or add --format markdown",
        ),
        ("check --baseline base.json --update", ".csv"),
        ("merge runs --output all.json", ".csv"),
        ("import theirs.csv --output all.json", ".csv"),
    ] {
        let message = place.fails(2, words);
        assert!(
            message.trim_end().ends_with(&format!("ends in {remedy}")),
            "{words}: {message}"
        );
    }
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
}

#[test]
fn a_run_follows_no_link_within_its_folder() {
    let place = Place::new();
    let words = format!("{TINY} --model bag");
    place.ok(&words);
    let folder = place.run_folder("runs");
    let record = fs::read(folder.join("record.json")).unwrap();
    for name in [
        "metrics.jsonl",
        "timings.jsonl",
        "checkpoint.safetensors",
        "best.safetensors",
        "spec.toml",
        "record.json",
        "error.log",
        "run.lock",
    ] {
        // Without a record the run is unfinished.
        let _ = fs::remove_file(folder.join("record.json"));
        if name == "record.json" {
            fs::write(folder.join(name), &record).unwrap();
        }
        let foreign = linked(&place, &folder.join(name));
        let before = fs::read(&foreign).unwrap();
        let message = place.fails(2, &format!("{words} --resume"));
        assert!(
            message.contains(name) && message.contains("symbolic link"),
            "{name}: {message}"
        );
        assert_eq!(fs::read(&foreign).unwrap(), before, "{name}");
        fs::remove_file(folder.join(name)).unwrap();
        if name != "error.log" {
            fs::rename(&foreign, folder.join(name)).unwrap();
        }
    }
    // Starting over replaces links, and leaves their targets alone.
    let foreign = linked(&place, &folder.join("metrics.jsonl"));
    let before = fs::read(&foreign).unwrap();
    place.ok(&format!("{words} --force"));
    assert_eq!(fs::read(&foreign).unwrap(), before);
    assert!(!folder.join("metrics.jsonl").is_symlink());
}

/// The folder itself may be the link. Links above it are the user's.
#[test]
fn a_run_folder_that_is_a_link_is_left_alone() {
    let place = Place::new();
    let words = format!("{TINY} --model bag");
    place.ok(&words);
    let folder = place.run_folder("runs");
    let foreign = place.path().join("foreign");
    fs::rename(&folder, &foreign).unwrap();
    symlink(&foreign, &folder).unwrap();
    fs::remove_file(foreign.join("record.json")).unwrap();
    fs::remove_file(foreign.join("run.lock")).unwrap();
    fs::create_dir(foreign.join("run.lock")).unwrap();
    fs::write(foreign.join("metrics.jsonl"), "precious").unwrap();
    for flag in ["", " --resume", " --force"] {
        let message = place.fails(2, &format!("{words}{flag}"));
        assert!(
            message.contains("run folder") && message.contains("symbolic link"),
            "{message}"
        );
    }
    let sweep = "sweep --tasks toy --models bag --recipe smoke --steps 4 --quiet --out swept";
    place.ok(sweep);
    let swept = place.run_folder("swept");
    fs::remove_dir_all(&swept).unwrap();
    symlink(&foreign, &swept).unwrap();
    let output = place.lra(sweep);
    assert!(!output.status.success());
    assert!(err(&output).contains("symbolic link"), "{}", err(&output));
    assert_eq!(
        fs::read(foreign.join("metrics.jsonl")).unwrap(),
        b"precious"
    );
    assert!(foreign.join("run.lock").is_dir() && !foreign.join("sweep.lock").exists());
    fs::remove_file(&folder).unwrap();
    symlink(place.path().join("runs"), place.path().join("elsewhere")).unwrap();
    place.ok(&format!("{words} --out elsewhere"));
}

/// A snapshot by hard links (`cp -al`) keeps what it holds.
#[test]
fn resuming_changes_no_other_hard_link_of_a_log() {
    let place = Place::new();
    let words = format!("{TINY} --model bag");
    place.ok(&words);
    let folder = place.run_folder("runs");
    fs::remove_file(folder.join("record.json")).unwrap();
    for name in ["metrics.jsonl", "timings.jsonl"] {
        let mut text = fs::read_to_string(folder.join(name)).unwrap();
        let last = text.lines().last().unwrap().to_owned() + "\n";
        text += &last;
        fs::write(folder.join(name), text).unwrap();
        fs::hard_link(folder.join(name), place.path().join(name)).unwrap();
    }
    let snapshot = |name: &str| fs::read(place.path().join(name)).unwrap();
    let before = ["metrics.jsonl", "timings.jsonl"].map(snapshot);
    place.ok(&format!("{words} --resume"));
    assert_eq!(["metrics.jsonl", "timings.jsonl"].map(snapshot), before);
    assert_ne!(fs::read(folder.join("metrics.jsonl")).unwrap(), before[0]);
}

#[test]
fn sweeps_tables_and_data_follow_no_link_either() {
    let place = Place::new();
    let sweep = "sweep --tasks toy --models bag --recipe smoke --steps 4 --quiet";
    place.ok(sweep);
    let folder = place.run_folder("runs");
    for name in ["log.txt", "sweep.lock"] {
        fs::remove_file(folder.join("record.json")).unwrap();
        let foreign = linked(&place, &folder.join(name));
        let before = fs::read(&foreign).unwrap();
        let output = place.lra(sweep);
        let message = err(&output);
        assert!(!output.status.success(), "{name}");
        assert!(
            message.contains(name) && message.contains("symbolic link"),
            "{message}"
        );
        assert_eq!(fs::read(&foreign).unwrap(), before, "{name}");
        fs::remove_file(folder.join(name)).unwrap();
        place.ok(sweep);
    }
    let foreign = linked(&place, &place.path().join("table.md"));
    let message = place.fails(3, "report runs --format markdown --output table.md");
    assert!(
        message.contains("table.md") && message.contains("symbolic link"),
        "{message}"
    );
    assert_eq!(
        fs::read_to_string(&foreign).unwrap(),
        "a file of somebody else\n"
    );

    // The lock of stored data, whose name can be predicted.
    let entry = stored(&place, "");
    let name = entry.file_name().unwrap().to_string_lossy().into_owned();
    fs::remove_dir_all(&entry).unwrap();
    let lock = entry.with_file_name(format!(".lock-{name}"));
    fs::remove_file(&lock).unwrap();
    let foreign = linked(&place, &lock);
    let words = "run --task toy --model bag --recipe smoke --steps 4 --quiet --out other";
    let message = place.fails(3, words);
    assert!(message.contains("symbolic link"), "{message}");
    assert_eq!(
        fs::read_to_string(&foreign).unwrap(),
        "a file of somebody else\n"
    );
}

/// Opening a pipe waits forever for its other end.
#[test]
fn pipes_and_devices_are_refused_wherever_a_file_is_read() {
    let place = Place::new();
    place.ok("run --task toy --model bag --recipe smoke --steps 4 --quiet");
    let pipes = [
        "fifo.safetensors",
        "fifo.jsonl",
        "fifo.md",
        "fifo.csv",
        "fifo.toml",
    ];
    for name in pipes {
        pipe(&place.path().join(name));
    }
    for (code, words) in [
        (3, "parity fifo.safetensors"),
        (3, "parity /dev/zero"),
        (3, "bench --show fifo.jsonl"),
        (3, "report fifo.csv"),
        (3, "agree fifo.csv"),
        (3, "merge fifo.csv --output all.csv"),
        (3, "report runs --splice fifo.md"),
        (3, "report runs --bench fifo.jsonl --format html"),
        (3, "check --baseline fifo.csv"),
        (3, "check --baseline fifo.csv --update"),
        (3, "report runs --format markdown --output fifo.md"),
        (2, "run --task toy --model bag --recipe fifo.toml"),
    ] {
        let message = place.fails(code, words);
        assert!(
            message.contains("not a regular file"),
            "lra {words}: {message}"
        );
    }
    let folder = place.run_folder("runs");
    fs::remove_file(folder.join("metrics.jsonl")).unwrap();
    pipe(&folder.join("metrics.jsonl"));
    let output = place.lra("check --baseline new.csv --update");
    assert_eq!(output.status.code(), Some(3), "{}", err(&output));
    fs::remove_file(folder.join("record.json")).unwrap();
    pipe(&folder.join("record.json"));
    let message = place.fails(3, "report runs");
    assert!(
        message.contains("record.json") && message.contains("not a regular file"),
        "{message}"
    );
    place.fails(
        3,
        "run --task toy --model bag --recipe smoke --steps 4 --quiet",
    );
}

/// Checks that a folder or a pipe in the place of a run's file is reported as damage, with the
/// remedy.
#[test]
fn folders_and_pipes_in_a_runs_folder_are_damaged_data() {
    let place = Place::new();
    let settings =
        "--recipe smoke --quiet --set data.train=200 --set data.val=40 --set data.test=40";
    let run = format!("run --task listops --model bag {settings}");
    let sweep = format!("sweep --tasks listops --models bag {settings}");
    place.ok(&run);
    let folder = place.run_folder("runs");
    let record = fs::read(folder.join("record.json")).unwrap();
    fs::remove_file(folder.join("record.json")).unwrap();
    let is_damaged = |name: &str| {
        for words in [format!("{run} --resume"), sweep.clone()] {
            let output = place.lra(&words);
            let said = format!(
                "{}{}",
                String::from_utf8_lossy(&output.stdout),
                err(&output)
            );
            assert_eq!(output.status.code(), Some(3), "{name}, lra {words}: {said}");
            assert!(said.contains(name) && said.contains("--force"), "{said}");
        }
    };
    for name in [
        "spec.toml",
        "checkpoint.safetensors",
        "best.safetensors",
        "metrics.jsonl",
        "timings.jsonl",
        "draft.json",
    ] {
        let file = folder.join(name);
        let whole = fs::read(&file).unwrap();
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        is_damaged(name);
        fs::remove_dir(&file).unwrap();
        pipe(&file);
        is_damaged(name);
        fs::remove_file(&file).unwrap();
        if !name.ends_with("metrics.jsonl") {
            fs::write(&file, "no = [").unwrap();
            is_damaged(name);
        }
        fs::write(&file, whole).unwrap();
    }
    // A damaged record is exit code 3 everywhere.
    fs::write(folder.join("record.json"), &record[..record.len() / 2]).unwrap();
    is_damaged("record.json");
    for words in ["report", "check --baseline base.csv"] {
        place.fails(3, words);
    }
}

/// A sweep starts over only where nothing would be lost.
#[test]
fn a_sweep_discards_no_weights_beside_a_damaged_record() {
    let place = Place::new();
    let sweep = "sweep --tasks toy --models bag --recipe smoke --steps 4 --quiet";
    place.ok(sweep);
    let folder = place.run_folder("runs");
    let weights = || fs::read(folder.join("checkpoint.safetensors")).ok();
    let before = weights();
    assert!(before.is_some());
    for name in ["record.json", "draft.json"] {
        fs::write(folder.join(name), "half").unwrap();
        for flag in ["", " --retry-failed"] {
            let output = place.lra(&format!("{sweep}{flag}"));
            let said = String::from_utf8_lossy(&output.stdout).into_owned();
            assert_eq!(output.status.code(), Some(3), "{said}");
            assert!(
                said.contains(name) && said.contains("move the file away"),
                "{said}"
            );
            assert_eq!(weights(), before);
        }
        fs::remove_file(folder.join(name)).unwrap();
    }
    // As the message advises: from the weights, although it is not known what they began with.
    place.ok(&format!("{sweep} --retry-failed --accept-changes"));
    assert!(
        fs::read_to_string(folder.join("log.txt"))
            .unwrap()
            .contains("--resume")
    );
    // Without weights there is nothing to lose.
    for name in ["checkpoint.safetensors", "best.safetensors"] {
        fs::remove_file(folder.join(name)).unwrap();
    }
    fs::write(folder.join("record.json"), "half").unwrap();
    place.ok(&format!("{sweep} --retry-failed"));
}

#[test]
fn a_folder_in_the_place_of_the_draft_leaves_the_record_as_it_is() {
    let place = Place::new();
    let words = format!("{TINY} --model bag");
    place.ok(&words);
    let folder = place.run_folder("runs");
    let path = folder.join("record.json");
    let text = fs::read_to_string(&path).unwrap();
    let failed = text.replace(
        "\"status\": \"scored\"",
        "\"status\": \"failed\", \"reason\": \"the disk was full\"",
    );
    assert_ne!(text, failed);
    fs::write(&path, &failed).unwrap();
    fs::remove_file(folder.join("draft.json")).unwrap();
    fs::create_dir(folder.join("draft.json")).unwrap();
    let message = place.fails(3, &format!("{words} --resume"));
    assert!(
        message.contains("draft.json") && message.contains("--force"),
        "{message}"
    );
    assert_eq!(fs::read_to_string(&path).unwrap(), failed);
    place.ok(&format!("{words} --force"));
}

/// A folder in the place of a lock or a log fails this cell alone, and `--force` removes it.
#[test]
fn a_folder_in_the_way_of_a_sweep_fails_one_cell() {
    let place = Place::new();
    let sweep = "sweep --tasks toy --models bag,linear --recipe smoke --steps 4 --quiet";
    for name in ["sweep.lock", "run.lock", "log.txt"] {
        place.ok(&format!("{sweep} --out {name}"));
        let runs = fs::read_dir(place.path().join(name)).unwrap();
        let mut runs = runs.map(|run| run.unwrap().path());
        let folder = runs
            .find(|run| run.display().to_string().contains("-bag-"))
            .unwrap();
        fs::remove_file(folder.join("record.json")).unwrap();
        fs::remove_file(folder.join(name)).unwrap();
        fs::create_dir(folder.join(name)).unwrap();
        let output = place.lra(&format!("{sweep} --out {name} --json"));
        assert_eq!(output.status.code(), Some(3), "{name}: {}", err(&output));
        let cells: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(cells[0]["state"], "failed");
        assert_eq!(cells[1]["state"], "on file");
        let reason = cells[0]["detail"].as_str().unwrap();
        assert!(
            reason.contains(name) && reason.contains("move it away") && reason.contains("--force"),
            "{reason}"
        );
        place.ok(&format!(
            "run --task toy --model bag --recipe smoke --set train.steps=4 --quiet --out {name} --force"
        ));
        assert!(!folder.join(name).is_dir());
        place.ok(&format!("{sweep} --out {name}"));
    }
}

/// One log is cut only once all are known to be sound.
#[test]
fn no_log_is_shortened_beside_a_damaged_one() {
    let place = Place::new();
    let words = format!("{TINY} --model bag");
    place.ok(&words);
    let folder = place.run_folder("runs");
    fs::remove_file(folder.join("record.json")).unwrap();
    let log = folder.join("metrics.jsonl");
    let mut text = fs::read_to_string(&log).unwrap();
    text += &(text.lines().last().unwrap().to_owned() + "\n");
    fs::write(&log, &text).unwrap();
    fs::write(folder.join("timings.jsonl"), "").unwrap();
    let message = place.fails(3, &format!("{words} --resume"));
    assert!(message.contains("timings.jsonl"), "{message}");
    assert_eq!(fs::read_to_string(&log).unwrap(), text);
}

#[test]
fn starting_over_takes_a_folder_in_the_place_of_the_lock_away() {
    let place = Place::new();
    let words = format!("{TINY} --model bag");
    place.ok(&words);
    let lock = place.run_folder("runs").join("run.lock");
    fs::remove_file(&lock).unwrap();
    fs::create_dir_all(lock.join("deeper")).unwrap();
    let message = place.fails(3, &words);
    assert!(
        message.contains("run.lock") && message.contains("--force"),
        "{message}"
    );
    place.ok(&format!("{words} --force"));
    assert!(lock.is_file());
}

#[test]
fn a_full_standard_output_is_a_failure_of_every_verb() {
    let place = Place::new();
    let settings = "--recipe smoke --steps 4 --quiet";
    place.ok(&format!("run --task toy --model bag {settings}"));
    place.ok("check --baseline base.csv --update");
    let case = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../models/tests/parity/xcit-1.safetensors"
    );
    let verbs = [
        format!("run --task toy --model bag {settings}"),
        format!("run --task toy --model bag {settings} --json"),
        format!("sweep --tasks toy --models bag {settings}"),
        format!("sweep --tasks toy --models bag {settings} --dry-run"),
        format!("parity {case}"),
    ];
    let others = [
        "report",
        "check --baseline base.csv",
        "list models",
        "list tasks --json",
        "list published",
        "data list",
        "data show toy",
        "repro --list",
        "check-model bag",
        "new model mine",
        "completions bash",
        "--help",
        "run --help",
        "--version",
    ];
    for words in verbs.iter().map(String::as_str).chain(others) {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let mut command = place.command(words);
        let output = command
            .stdout(full)
            .stderr(Stdio::piped())
            .output()
            .unwrap();
        assert_eq!(
            output.status.code(),
            Some(4),
            "lra {words}: {}",
            err(&output)
        );
        assert!(
            err(&output).contains("writing to standard output"),
            "lra {words}"
        );
    }
}

/// Error numbers that a file system without locks returns.
const NO_LOCKS: [i32; 5] = [
    libc::ENOLCK,
    libc::ENOTSUP,
    libc::ENOSYS,
    libc::EINVAL,
    libc::EIO,
];

#[test]
fn a_file_system_without_locks_has_a_way_out() {
    let place = Place::new();
    let run = "run --task toy --model bag --recipe smoke --steps 4 --quiet";
    for (index, error) in NO_LOCKS.into_iter().enumerate() {
        let answer = |words: &str, locks: Option<&str>| {
            let mut command = place.command(words);
            command.env("LRA_FAULTS", format!("lock:*:{error}"));
            command.envs(locks.map(|value| ("LRA_LOCKS", value)));
            let output = command.output().unwrap();
            (output.status.code(), err(&output))
        };
        let seed = format!("--seed {index} --set data.train=6{index}");
        for words in [
            format!("{run} {seed}"),
            format!("data make toy --force --set data.train=6{index}"),
            format!(
                "sweep --tasks toy --models bag --recipe smoke --steps 5 --quiet --seeds {index}"
            ),
        ] {
            let (refused, message) = answer(&words, None);
            assert_eq!(refused, Some(3), "lra {words}: {message}");
            assert!(message.contains("LRA_LOCKS=off"), "lra {words}: {message}");
            let (refused, message) = answer(&words, Some("of"));
            assert_eq!(refused, Some(2), "lra {words}: {message}");
            assert!(message.contains("LRA_LOCKS=of is none"), "{message}");
            let (done, message) = answer(&words, Some("off"));
            assert_eq!(done, Some(0), "lra {words}: {message}");
        }
    }
}

/// No command writes a file to a device, and a full disk fails every command.
#[test]
fn files_of_results_have_one_exit_code() {
    let place = Place::new();
    place.ok("run --task toy --model bag --recipe smoke --steps 4 --quiet");
    place.ok("check --baseline base.csv --update");
    let run = place.run_folder("runs");
    let run = run
        .strip_prefix(place.path())
        .unwrap()
        .display()
        .to_string();
    for (words, flag) in [
        (format!("score {run} --quiet"), "--predictions"),
        ("report".to_owned(), "--output"),
        ("check --baseline base.csv".to_owned(), "--junit"),
        ("check --baseline base.csv".to_owned(), "--output"),
        ("check --update".to_owned(), "--baseline"),
    ] {
        let message = place.fails(3, &format!("{words} {flag} /dev/full"));
        assert!(message.contains("/dev/full"), "{message}");
        let mut command = place.command(&format!("{words} {flag} written"));
        command.env("LRA_FAULTS", format!("write:*:{}", libc::ENOSPC));
        let output = command.output().unwrap();
        let message = err(&output);
        assert_eq!(output.status.code(), Some(4), "{words} {flag}: {message}");
        assert!(message.contains("the disk is full"), "{message}");
    }
}

/// A process that was killed while it replaced data left the old data.
#[test]
fn replaced_data_that_a_killed_process_left_are_removed() {
    let place = Place::new();
    let words = "run --task toy --model bag --recipe smoke --steps 4 --quiet";
    place.ok(words);
    let store = stored(&place, "").parent().unwrap().to_owned();
    let name = stored(&place, "")
        .file_name()
        .unwrap()
        .to_string_lossy()
        .into_owned();
    let folder = store.join(format!(".replaced-{name}"));
    fs::create_dir_all(folder.join("entry")).unwrap();
    let file = store.join(".replaced-another");
    fs::write(&file, "left").unwrap();
    place.ok(&format!("{words} --force"));
    assert!(!folder.exists() && !file.exists());
    assert!(!store.join(".lock-another").exists());
}

/// A backup beside a run is told of and refused by nothing; a record cut short beside it is damage.
#[test]
fn a_copy_of_a_record_is_no_damage() {
    let place = Place::new();
    place.ok("run --task toy --model bag --recipe smoke --steps 2 --quiet");
    let record = place.run_folder("runs").join("record.json");
    let backup = place.path().join("runs/backup");
    fs::create_dir(&backup).unwrap();
    fs::copy(&record, backup.join("record.json")).unwrap();
    let commands = [
        "report runs --strict",
        "merge runs --output all.csv --strict",
    ];
    for words in commands {
        let output = place.lra(words);
        let told = err(&output);
        assert!(
            output.status.success() && told.contains("copy of"),
            "{words}: {told}"
        );
        let _ = fs::remove_file(place.path().join("all.csv"));
    }
    let cut = place.path().join("runs/cut");
    fs::create_dir(&cut).unwrap();
    fs::write(cut.join("record.json"), "{").unwrap();
    for words in commands {
        let told = place.fails(3, words);
        assert!(
            told.contains("1 damaged or foreign record"),
            "{words}: {told}"
        );
    }
}
