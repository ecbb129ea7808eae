//! Files that a failed run leaves, and its resumption: from its last checkpoint, to the same bits.

#![allow(clippy::unwrap_used)]
#![cfg(unix)]

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::common::{
    LONGER, PRODUCTS, Place, TINY, assert_same, err, header_length, kill, saved, start, stored,
    until,
};
use serde_json::{Map, Value, json};

/// Overwrites a stored split from `offset` on while runs have it mapped, as a failing disk would.
/// Returns the old contents.
fn spoil(file: &Path, offset: usize, byte: u8) -> Vec<u8> {
    let whole = fs::read(file).unwrap();
    let file = fs::File::options().write(true).open(file).unwrap();
    let rest = vec![byte; whole.len() - offset];
    file.write_all_at(&rest, offset as u64).unwrap();
    whole
}

fn text(output: &Output) -> String {
    let stdout = String::from_utf8_lossy(&output.stdout);
    format!("{stdout}{}", err(output))
}

/// Returns whether a text has a frame of a backtrace.
fn has_backtrace(text: &str) -> bool {
    text.lines()
        .any(|line| line.trim_start().starts_with("0: "))
}

/// Returns the tables of the runs in a folder, in every format.
fn tables(place: &Place, out: &str) -> String {
    let forms = ["text", "markdown", "csv", "json", "latex", "html"];
    let tables = forms.map(|form| place.ok(&format!("report {out} --format {form}")));
    tables.concat()
}

#[test]
fn a_failed_run_goes_on_from_its_checkpoint_to_the_same_bits() {
    let place = Place::new();
    let run = format!("run --task listops --model performer {LONGER}");
    let sweep = format!("sweep --tasks listops --models performer {LONGER} --out broken");
    place.ok(&format!("{run} --out whole"));
    let mut command = place.command(&sweep);
    command.env("RUST_BACKTRACE", "1");
    let broken = start(command);
    until("a checkpoint is written", || saved(&place, "broken"));
    // No token has this id, so the next batch is an error.
    let train = stored(&place, "train.safetensors");
    let whole = fs::read(&train).unwrap();
    let header = 8 + header_length(&whole);
    let offsets = 8 * (400 + 1);
    spoil(&train, header + offsets, 255);
    let output = broken.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{}", text(&output));
    let outcome = place.record("broken")["outcome"].clone();
    assert_eq!(outcome["status"], "failed");
    let reason = outcome["reason"].as_str().unwrap();
    assert!(!reason.contains('\n') && !has_backtrace(reason), "{reason}");
    assert!(!has_backtrace(&text(&output)), "{}", text(&output));
    let log = fs::read_to_string(place.run_folder("broken").join("error.log")).unwrap();
    assert!(log.contains(reason) && has_backtrace(&log), "{log}");
    assert!(!has_backtrace(&tables(&place, "broken")));

    // Shown with the remedy, but not repeated.
    let shown = place.lra(&format!("{run} --out broken"));
    assert_eq!(shown.status.code(), Some(4));
    assert!(text(&shown).contains("--resume"), "{}", text(&shown));
    place.fails(4, &sweep);

    fs::write(&train, whole).unwrap();
    place.ok(&format!("{sweep} --retry-failed"));
    let broken = place.run_folder("broken");
    let log = fs::read_to_string(broken.join("log.txt")).unwrap();
    assert!(!broken.join("error.log").exists(), "it is over");
    let starts = log.lines().filter(|line| line.starts_with("--- "));
    assert_eq!(starts.count(), 2, "{log}");
    assert!(log.contains("resuming after step"), "{log}");
    assert_same(&place.run_folder("whole"), &broken);
    assert_same_records(&place.record("whole"), &place.record("broken"));
}

/// Asserts that two records are of the same run: equal in all but times, memory and the command
/// that started it.
fn assert_same_records(left: &Value, right: &Value) {
    for (key, value) in left.as_object().unwrap() {
        if !["created", "command", "speed", "memory"].contains(&key.as_str()) {
            assert_eq!(value, &right[key], "{key}");
        }
    }
}

#[test]
fn a_full_disk_cuts_no_line_in_half_and_the_run_goes_on_without_it() {
    let place = Place::new();
    // Every step is logged and nothing is saved before the end, so that it is a log that exceeds
    // the limit on files below.
    let words = "run --task listops --model bag --recipe smoke --quiet --set data.train=200 --set data.val=40 \
        --set data.test=40 --set train.steps=300 --set train.log_every=1 --set train.eval_every=0 \
        --set train.checkpoint_every=1000";
    place.ok(&format!("{words} --out whole"));
    let mut shell = Command::new("sh");
    let lra = env!("CARGO_BIN_EXE_lra");
    let limited = format!("ulimit -f 24; exec {lra} {words} --out full");
    shell.args(["-c", &limited]).current_dir(place.path());
    let output = shell.env("LRA_DATA", place.path().join("data")).output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(4), "{}", text(&output));
    assert_eq!(place.record("full")["outcome"]["status"], "failed");
    for log in ["metrics.jsonl", "timings.jsonl"] {
        let log = fs::read_to_string(place.run_folder("full").join(log)).unwrap();
        assert!(log.ends_with('\n'), "{log}");
        for line in log.lines() {
            serde_json::from_str::<Value>(line).unwrap();
        }
    }
    place.ok(&format!("{words} --out full --resume"));
    assert_same(&place.run_folder("whole"), &place.run_folder("full"));
    assert_same_records(&place.record("whole"), &place.record("full"));
}

#[test]
fn a_run_resumed_with_other_threads_names_several_jobs() {
    let place = Place::new();
    let words = format!("run --task listops --model performer {LONGER}");
    let mut run = start(place.command(&format!("{words} --threads 1")));
    until("a checkpoint is written", || saved(&place, "runs"));
    kill(run.id(), libc::SIGINT);
    run.wait().unwrap();
    assert_eq!(place.record("runs")["jobs"], 1);
    place.ok(&format!("{words} --threads 2 --resume"));
    assert_eq!(place.record("runs")["jobs"], 0);
}

#[test]
fn a_diverged_run_stays_diverged() {
    let place = Place::new();
    let settings = "--recipe smoke --set data.train=200 --set data.val=40 --set data.test=40 \
        --set train.learning_rate=1e30 --set train.clip=0.0 --set train.warmup=0 --set train.schedule=constant";
    let sweep = format!("sweep --tasks listops --models transformer {settings}");
    place.fails(4, &sweep);
    let record = place.record("runs");
    assert_eq!(record["outcome"]["status"], "diverged");
    let again = place.lra(&format!("{sweep} --retry-failed"));
    assert_eq!(again.status.code(), Some(4));
    assert!(text(&again).contains("diverged"), "{}", text(&again));
    place.fails(
        4,
        &format!("run --task listops --model transformer {settings} --resume"),
    );
    assert_eq!(place.record("runs"), record);
}

#[test]
fn a_panic_is_a_failed_run_with_a_record() {
    let place = Place::new();
    let words = format!("run --task listops --model performer {LONGER}");
    let mut command = place.command(&words);
    command.env("RUST_BACKTRACE", "1");
    let run = start(command);
    until("a checkpoint is written", || saved(&place, "runs"));
    // Rows that end beyond the file: the next evaluation reads past its end.
    let val = stored(&place, "val.safetensors");
    let header = 8 + header_length(&fs::read(&val).unwrap());
    let whole = spoil(&val, header, 255);
    let output = run.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{}", text(&output));
    let outcome = place.record("runs")["outcome"].clone();
    assert_eq!(outcome["status"], "failed");
    let reason = outcome["reason"].as_str().unwrap();
    assert!(reason.starts_with("panicked at "), "{reason}");
    assert!(!reason.contains('\n'), "{reason}");
    let log = fs::read_to_string(place.run_folder("runs").join("error.log")).unwrap();
    assert!(log.contains(reason) && has_backtrace(&log), "{log}");
    assert!(!has_backtrace(&tables(&place, "runs")));
    fs::write(&val, whole).unwrap();
    place.ok(&format!("{words} --resume"));
}

#[test]
fn a_closed_or_full_standard_error_stops_no_run() {
    let place = Place::new();
    let settings =
        "--recipe smoke --steps 4 --set data.train=64 --set data.val=16 --set data.test=16";
    for words in [
        format!("run --task toy --model bag {settings} --out run"),
        format!("sweep --tasks toy --models bag,linear {settings} --out sweep"),
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = place.command(&words);
        let status = command.stdout(Stdio::null()).stderr(writer).status();
        assert_eq!(status.unwrap().code(), Some(0), "lra {words}");
        if cfg!(target_os = "linux") {
            let full = fs::File::options().write(true).open("/dev/full").unwrap();
            let mut command = place.command(&format!("{words}-full"));
            let status = command.stdout(Stdio::null()).stderr(full).status();
            assert_eq!(status.unwrap().code(), Some(0), "lra {words}");
        }
    }
    assert_eq!(place.record("run")["outcome"]["status"], "scored");
    // The error for a wrong word has no reader, but the exit code reports it.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = place
        .command("run --task lisops --model bag")
        .stderr(writer)
        .status();
    assert_eq!(status.unwrap().code(), Some(2));
    // Results have no reader either, as in `lra list models | head -1`.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = place.command("list models").stdout(writer).status();
    assert_eq!(status.unwrap().code(), Some(0));
}

#[test]
fn force_starts_over_whatever_the_folder_holds() {
    let place = Place::new();
    let words = format!("{TINY} --model bag");
    place.ok(&words);
    let folder = place.run_folder("runs");
    let damaged = "{ \"schema\": 1, \"id\": \"half a rec";
    fs::write(folder.join("record.json"), damaged).unwrap();
    for resume in ["", " --resume"] {
        let message = place.fails(3, &format!("{words}{resume}"));
        assert!(
            message.contains("record.json") && message.contains("--force"),
            "{message}"
        );
    }
    fs::write(folder.join(".writing-left"), "half").unwrap();
    for name in ["spec.toml", "checkpoint.safetensors", "metrics.jsonl"] {
        fs::write(folder.join(name), [0xff, 0, 1]).unwrap();
    }
    place.ok(&format!("{words} --force"));
    assert!(!folder.join(".writing-left").exists());
    // Folders in place of files, and a file in place of a folder.
    for name in [
        "record.json",
        "spec.toml",
        "best.safetensors",
        "timings.jsonl",
    ] {
        fs::remove_file(folder.join(name)).unwrap();
        fs::create_dir_all(folder.join(name).join("deeper")).unwrap();
    }
    fs::write(folder.join("tensorboard"), "a file").unwrap();
    place.ok(&format!("{words} --force --tensorboard"));
    place.ok(&format!("{words} --out twin"));
    assert_same(&folder, &place.run_folder("twin"));
}

/// A run that was killed: what it wrote last, and a log of times that is gone, say nothing of it.
#[test]
fn a_lost_checkpoint_is_told_by_any_trace_of_it() {
    let place = Place::new();
    let settings = "--recipe smoke --quiet --set train.steps=3000 --set train.checkpoint_every=2000 \
        --set train.eval_every=20 --threads 1";
    let words = format!("run --task toy --model bag {settings}");
    let mut killed = start(place.command(&words));
    let best = || {
        let folder = fs::read_dir(place.path().join("runs")).ok()?.next()?;
        Some(folder.unwrap().path().join("best.safetensors"))
    };
    until("weights are saved", || {
        best().is_some_and(|best| best.exists())
    });
    killed.kill().unwrap();
    killed.wait().unwrap();
    let folder = place.run_folder("runs");
    // The first checkpoint comes before the first validation.
    let checkpoint = folder.join("checkpoint.safetensors");
    let kept = fs::read(&checkpoint).unwrap();
    fs::remove_file(&checkpoint).unwrap();
    fs::write(folder.join("timings.jsonl"), "").unwrap();
    let before = fs::read(folder.join("metrics.jsonl")).unwrap();
    let message = place.fails(2, &format!("{words} --resume"));
    assert!(
        message.contains("checkpoint.safetensors is missing"),
        "{message}"
    );
    let sweep = words.replace("run --task", "sweep --tasks");
    let sweep = sweep.replace("--model ", "--models ");
    for flag in ["", " --retry-failed"] {
        let message = place.fails(2, &format!("{sweep}{flag}"));
        assert!(message.contains("`lra run --force`"), "{message}");
    }
    let plan = place.ok(&format!("{sweep} --dry-run"));
    assert!(
        plan.contains("incomplete") && plan.contains("0 of 1 cell to run"),
        "{plan}"
    );
    assert_eq!(fs::read(folder.join("metrics.jsonl")).unwrap(), before);
    assert!(folder.join("best.safetensors").exists() && !kept.is_empty());
}

#[test]
fn half_written_files_of_a_killed_run_are_removed() {
    let place = Place::new();
    let words = format!("{TINY} --model bag");
    place.ok(&words);
    let left = place.run_folder("runs").join(".writing-x7Yq1z");
    fs::write(&left, "half").unwrap();
    place.ok(&words);
    assert!(!left.exists());
}

#[test]
fn damaged_weights_are_found_before_the_run_goes_on() {
    let place = Place::new();
    let words = format!("{TINY} --model bag");
    place.ok(&words);
    let folder = place.run_folder("runs");
    for name in &PRODUCTS[1..] {
        // Without a record the run is unfinished, and resumes from its last checkpoint.
        let file = folder.join(name);
        let whole = fs::read(&file).unwrap();
        let header = header_length(&whole);
        let sum = position(&whole, b"sha256") + 20;
        for place_of_damage in [sum, 8 + header, whole.len() / 2, whole.len() - 1] {
            let _ = fs::remove_file(folder.join("record.json"));
            let mut spoilt = whole.clone();
            // Hexadecimal digits and numbers change, but stay digits.
            spoilt[place_of_damage] ^= 1;
            fs::write(&file, spoilt).unwrap();
            let message = place.fails(3, &format!("{words} --resume"));
            assert!(
                message.contains(name) && message.contains("--force"),
                "{place_of_damage}: {message}"
            );
        }
        fs::write(&file, &whole[..whole.len() - 7]).unwrap();
        assert!(place.fails(3, &format!("{words} --resume")).contains(name));
        fs::remove_file(&file).unwrap();
        assert!(place.fails(2, &format!("{words} --resume")).contains(name));
        fs::write(&file, whole).unwrap();
    }
    // A wrong number in the state of training.
    let file = folder.join("checkpoint.safetensors");
    let whole = fs::read(&file).unwrap();
    let mut spoilt = whole.clone();
    spoilt[position(&whole, b"examples") + 12] ^= 1;
    fs::write(&file, spoilt).unwrap();
    let message = place.fails(3, &format!("{words} --resume"));
    assert!(message.contains("SHA-256"), "{message}");
    fs::write(&file, &whole).unwrap();
    place.ok(&format!("{words} --resume"));
}

fn position(bytes: &[u8], word: &[u8]) -> usize {
    let found = bytes.windows(word.len()).position(|window| window == word);
    found.unwrap()
}

/// Changes the state of training in the header of a file of weights, or removes the header's entry
/// if it has none.
fn change_state(file: &Path, change: impl FnOnce(&mut Map<String, Value>)) {
    let whole = fs::read(file).unwrap();
    let (start, end) = (8, 8 + header_length(&whole));
    let mut header: Value = serde_json::from_slice(&whole[start..end]).unwrap();
    let metadata = header["__metadata__"].as_object_mut().unwrap();
    assert_eq!(metadata.len(), 1);
    match metadata.get("state") {
        Some(state) => {
            let mut state: Value = serde_json::from_str(state.as_str().unwrap()).unwrap();
            change(state.as_object_mut().unwrap());
            metadata["state"] = state.to_string().into();
        }
        None => metadata.clear(),
    }
    let mut text = header.to_string().into_bytes();
    text.resize(text.len().next_multiple_of(8), b' ');
    let mut changed = (text.len() as u64).to_le_bytes().to_vec();
    changed.extend(text);
    changed.extend(&whole[end..]);
    fs::write(file, changed).unwrap();
}

/// The weights of a later step replaced the best ones, and then the run was killed: another build
/// may not find them again, so they are not taken for the best ones of the checkpoint.
#[test]
fn weights_later_than_the_checkpoint_are_not_its_best() {
    let place = Place::new();
    let settings = "--recipe smoke --quiet --set train.steps=600 --set train.checkpoint_every=500 \
        --set train.eval_every=20 --threads 1";
    let words = format!("run --task toy --model bag {settings}");
    let mut killed = start(place.command(&words));
    let folder = || {
        Some(
            fs::read_dir(place.path().join("runs"))
                .ok()?
                .next()?
                .unwrap(),
        )
    };
    until("weights are saved", || {
        folder().is_some_and(|folder| folder.path().join("best.safetensors").exists())
    });
    killed.kill().unwrap();
    killed.wait().unwrap();
    // An evaluation by another build, better than any to come.
    let checkpoint = place.run_folder("runs").join("checkpoint.safetensors");
    change_state(&checkpoint, |state| {
        state.remove("sha256").unwrap();
        state["best"] = json!({"step": 1, "accuracy": 1.0, "loss": 0.1});
    });
    place.ok(&format!("{words} --resume --accept-changes"));
    let record = place.record("runs");
    let step = record["scores"]["best_step"].as_u64().unwrap();
    assert!(step >= 20 && step.is_multiple_of(20), "{step}");
}

#[test]
fn weights_of_older_versions_have_no_checksum_and_load() {
    let place = Place::new();
    let words = format!("{TINY} --model bag");
    place.ok(&words);
    let (folder, record) = (place.run_folder("runs"), place.record("runs"));
    for name in &PRODUCTS[1..] {
        let file = folder.join(name);
        change_state(&file, |state| {
            for key in ["sha256", "run", "metrics_sha256", "timings_sha256"] {
                assert!(state.remove(key).is_some(), "{key}");
            }
        });
    }
    fs::remove_file(folder.join("record.json")).unwrap();
    // They do not say which run they are of.
    let message = place.fails(2, &format!("{words} --resume"));
    assert!(
        message.contains(
            "checkpoint.safetensors and best.safetensors of an older version do not name a run"
        ) && message.contains("--accept-changes"),
        "{message}"
    );
    place.ok(&format!("{words} --resume --accept-changes"));
    let mut resumed = place.record("runs");
    let accepted = resumed.as_object_mut().unwrap().remove("accepted_changes");
    let accepted = accepted.unwrap();
    assert!(accepted[0].as_str().unwrap().contains("name"), "{accepted}");
    assert_same_records(&record, &resumed);
}
