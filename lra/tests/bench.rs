//! The efficiency benchmark, end to end on a tiny model.

#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;
use std::{fs, thread};

use crate::common::{Place, child_of, err, kill};
use serde_json::Value;

/// A few steps of the smallest model.
const TINY: &str = "bench --recipe smoke --batch 1 --rounds 2 --per-round 1ms --memory-limit 2G";

fn session(place: &Place) -> PathBuf {
    let mut files = fs::read_dir(place.path().join("runs/bench")).unwrap();
    files.next().unwrap().unwrap().path()
}

fn cells(place: &Place) -> Vec<Value> {
    let text = fs::read_to_string(session(place)).unwrap();
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn the_tables_stand_beside_the_published_ones() {
    let place = Place::new();
    let text = place.ok(&format!(
        "{TINY} --threads 2 --lengths 256,1024 --models transformer,transformer:attention=materialised,linear,bag"
    ));
    for words in [
        "transformer (materialised)",
        "Break-even",
        "tokens/s",
        "of matmul",
        // The published figures at 1K, with their ratio.
        "9.1 (1.12×)",
    ] {
        assert!(text.contains(words), "{words} is not in\n{text}");
    }
    let widest = text.lines().map(|line| line.chars().count()).max();
    assert!(widest.unwrap() <= 100, "{text}");

    let cells = cells(&place);
    assert_eq!(cells.len(), 8);
    for cell in &cells {
        assert_eq!(cell["outcome"]["status"], "measured", "{cell}");
        assert_eq!(cell["rounds"].as_array().unwrap().len(), 2);
        assert!(cell["flops_per_step"].as_u64().unwrap() > 0);
        assert!(cell["matmul_flops_per_second"].as_f64().unwrap() > 0.0);
        let rounds = cell["rounds"].as_array().unwrap();
        let peaks = rounds.iter().map(|round| round["peak_bytes"].as_f64());
        let peaks: Vec<f64> = peaks.map(Option::unwrap).collect();
        let apart = (peaks[0] - peaks[1]).abs() / peaks[0];
        assert!(apart < 0.01, "{peaks:?}");
    }
    let peak = |model: usize, length: usize| {
        let cell = &cells[model * 2 + length];
        cell["rounds"][0]["peak_bytes"].as_f64().unwrap()
    };
    assert!(peak(1, 1) > 2.0 * peak(0, 1), "weights kept in memory show");

    let file = session(&place);
    let shown = place.ok(&format!("bench --show {} --format csv", file.display()));
    assert!(shown.contains("linear,measured,"), "{shown}");
}

#[test]
fn what_does_not_fit_is_a_cell() {
    let place = Place::new();
    let bench = "bench --recipe smoke --batch 1 --rounds 1 --per-round 1ms --threads 2";
    let limit = place.least_limit() + 48;
    let text = place.ok(&format!(
        "{bench} --memory-limit {limit}M --lengths 64,4096 --models transformer:attention=materialised,bag"
    ));
    assert!(text.contains("no memory"), "{text}");
    let cells = cells(&place);
    let status = |index: usize| cells[index]["outcome"]["status"].as_str().unwrap();
    assert_eq!([status(0), status(1)], ["measured", "out_of_memory"]);
    assert_eq!(status(3), "measured", "the other model goes on");

    let text = place.ok(&format!(
        "{bench} --memory-limit {}M --json --lengths 256,512,16384 --models transformer:attention=materialised --out other",
        limit + 32
    ));
    let cells: Vec<Value> = serde_json::from_str(&text).unwrap();
    assert_eq!(cells[2]["outcome"]["status"], "skipped");
    let reason = cells[2]["outcome"]["reason"].as_str().unwrap();
    assert!(reason.contains("GiB by its growth"), "{reason}");
}

#[test]
fn a_time_limit_is_a_cell() {
    let place = Place::new();
    let text = place.ok(
        "bench --recipe smoke --batch 64 --rounds 1 --lengths 8192 --models transformer --time-limit 300ms \
         --memory-limit 4G --json",
    );
    let cells: Vec<Value> = serde_json::from_str(&text).unwrap();
    assert_eq!(cells[0]["outcome"]["status"], "timed_out");
}

#[test]
fn a_killed_process_is_a_cell() {
    let place = Place::new();
    let mut bench = place
        .command(
            "bench --recipe smoke --batch 64 --rounds 1 --per-round 60s --lengths 4096 --memory-limit 4G \
             --models transformer --quiet",
        )
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The first child measures matrix products, the second one the cell; both are short-lived.
    while bench.try_wait().unwrap().is_none() {
        if let Some(child) = child_of(bench.id()) {
            kill(child, libc::SIGKILL);
        }
        thread::sleep(Duration::from_millis(5));
    }
    let output = bench.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{}", err(&output));
    let cells = cells(&place);
    assert_eq!(cells[0]["outcome"]["status"], "failed");
    let reason = cells[0]["outcome"]["reason"].as_str().unwrap();
    assert!(reason.contains("signal: 9"), "{reason}");
}

/// Returns the path of a build of the program that reports that every step took this many seconds.
#[cfg(unix)]
fn build_that_takes(place: &Place, seconds: &str) -> String {
    use std::os::unix::fs::PermissionsExt;
    let path = place.path().join(format!("lra-{seconds}"));
    let reply = format!(
        "{{\"status\":\"steps\",\"seconds\":[{seconds},{seconds}],\"peak_bytes\":1048576}}"
    );
    let script = format!("#!/bin/sh\ncat > request.json\necho '{reply}'\n");
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

#[cfg(unix)]
#[test]
fn another_build_takes_turns_and_a_slower_one_fails() {
    let place = Place::new();
    let words = |base: &str| {
        format!(
            "bench --recipe smoke --batch 1 --rounds 6 --per-round 1ms --memory-limit 2G --lengths 64 \
             --models bag --out {base}-bench --base {base}"
        )
    };
    // No build is as fast as this: the present one has lost nearly all of its speed.
    let fast = build_that_takes(&place, "1e-9");
    let output = place.lra(&words(&fast));
    assert_eq!(output.status.code(), Some(1), "{}", err(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("FAILED") && text.contains("SLOWER"), "{text}");
    let request = fs::read_to_string(place.path().join("request.json")).unwrap();
    assert!(request.contains("\"steps\""), "{request}");

    let slow = build_that_takes(&place, "1e3");
    let text = place.ok(&words(&slow));
    assert!(text.contains("passed") && text.contains("faster"), "{text}");
    // The measurements are on file, and are judged again from there.
    let file = fs::read_dir(format!("{slow}-bench")).unwrap().next();
    let file = file.unwrap().unwrap().path();
    let shown = place.ok(&format!("bench --show {}", file.display()));
    assert!(shown.contains("faster"), "{shown}");

    // The program itself, with tolerance for other load on the machine.
    let own = env!("CARGO_BIN_EXE_lra");
    let text = place.ok(&format!(
        "bench --recipe smoke --batch 1 --rounds 6 --per-round 1ms --memory-limit 2G --lengths 64 \
         --models bag --base {own} --speed-threshold 0.95"
    ));
    assert!(text.contains("passed"), "{text}");

    let message = place.fails(2, &format!("bench --base {own} --rounds 5"));
    assert!(message.contains("at least 6 rounds"), "{message}");
    place.fails(2, "bench --base no/such/program");
}

#[cfg(unix)]
#[test]
fn a_base_that_answers_nothing_is_no_comparison() {
    let place = Place::new();
    let output = place.lra(
        "bench --recipe smoke --batch 1 --rounds 6 --per-round 1ms --memory-limit 2G --lengths 64 \
         --models bag --base /bin/false",
    );
    assert_eq!(output.status.code(), Some(1), "{}", err(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("No cell could be compared"), "{text}");
}

#[test]
fn wrong_words_are_found_before_anything_is_measured() {
    let place = Place::new();
    let message = place.fails(2, "bench --models transformer,perfomer");
    assert!(message.contains("did you mean 'performer'?"), "{message}");
    place.fails(2, "bench --models performer:feature=3");
    place.fails(2, "bench --lengths 100000 --models bag");
    place.fails(2, "bench --time-limit soon");
    assert!(!place.path().join("runs").exists() || !session_exists(&place));
}

fn session_exists(place: &Place) -> bool {
    fs::read_dir(place.path().join("runs/bench")).is_ok_and(|mut files| files.next().is_some())
}

/// The request that `compare.py` writes to `lra measure`.
#[cfg(target_os = "linux")]
#[test]
fn steps_beside_a_peer_tell_heap_and_resident_size() {
    use std::io::Write;

    let place = Place::new();
    let request = serde_json::json!({
        "device": "cpu", "threads": 1, "memory_limit": 1u64 << 40,
        "work": {
            "kind": "steps", "task": "text", "source": "synthetic", "model": "bag", "recipe": "nystromformer",
            "assignments": ["train.batch=8", "data.max_length=256"],
            "seconds": 0.01, "warmup": 1, "least": 2, "most": 4,
        },
    });
    let mut command = place.command("measure");
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(request.to_string().as_bytes()).unwrap();
    drop(input);
    let output = child.wait_with_output().unwrap();
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let bytes = |key: &str| told[key].as_u64().unwrap();
    let (base, peak) = (bytes("resident_base_bytes"), bytes("resident_peak_bytes"));
    let heap = bytes("peak_bytes");
    assert!(heap > 1 << 20, "{told}");
    // What is on the heap and was written is resident.
    assert!(base > 0 && peak >= base + heap / 2, "{told}");
}

/// Sessions that begin in one second have files of their own. A damaged one stops no table that
/// does not show it.
#[test]
fn two_sessions_of_one_second_lose_nothing() {
    let place = Place::new();
    let both = ["bag", "linear"].map(|model| {
        let words = format!("{TINY} --threads 1 --lengths 64 --models {model} --quiet");
        place.command(&words).stdout(Stdio::null()).spawn().unwrap()
    });
    for mut child in both {
        assert!(child.wait().unwrap().success());
    }
    let files: Vec<_> = fs::read_dir(place.path().join("runs/bench"))
        .unwrap()
        .collect();
    assert_eq!(files.len(), 2, "{files:?}");
    place.fails(2, "bench --show a.jsonl --models bag");

    // A session is shown without any record. Tables of records stay as they are.
    let markers =
        |name: &str, text: &str| format!("<!-- lra:{name} -->\n{text}<!-- /lra:{name} -->\n");
    let page = markers("accuracy", "earlier\n") + &markers("bench-speed", "");
    fs::write(place.path().join("page.md"), page).unwrap();
    let session = files[0].as_ref().unwrap().file_name();
    let session = format!("runs/bench/{}", session.to_str().unwrap());
    place.ok(&format!("report --bench {session} --splice page.md"));
    let page = fs::read_to_string(place.path().join("page.md")).unwrap();
    assert!(
        page.contains("earlier") && page.contains("| measured |"),
        "{page}"
    );
    place.fails(3, &format!("report --bench {session} --table accuracy"));

    place.ok("run --task toy --model bag --recipe smoke --steps 2 --quiet");
    fs::write(place.path().join("runs/bench/9999.jsonl"), "oops\n").unwrap();
    let table = place.ok("report --table accuracy");
    assert!(table.contains("bag"), "{table}");
    place.fails(3, "report --bench runs/bench/9999.jsonl");
    let words = "report --splice page.md --output tables.json --format json";
    let message = place.fails(2, words);
    assert!(message.contains("cannot be used with"), "{message}");
}
