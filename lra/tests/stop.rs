//! Requests to stop: by any signal, once or to a whole job, while data are built, or by the death
//! of a sweep.

#![allow(clippy::unwrap_used)]
#![cfg(target_os = "linux")]

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use crate::common::{Place, child_of, err, kill, saved, start, stored, until};

/// Settings of a long run that saves its state often.
const LONG: &str = "--recipe smoke --steps 2000000 --set train.checkpoint_every=50 --set train.log_every=1000 \
    --set train.eval_every=0";

/// Starts a run and waits for its first checkpoint.
fn begun(place: &Place, mut command: Command, out: &str) -> Child {
    // The process that runs the tests may ignore SIGHUP.
    // SAFETY: `signal` may be called between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGHUP, libc::SIG_DFL);
            Ok(())
        })
    };
    let child = start(command);
    until("a checkpoint is written", || saved(place, out));
    child
}

/// Asserts that the only run under `out` was stopped and can be resumed.
fn assert_interrupted(place: &Place, out: &str) {
    let outcome = place.record(out)["outcome"].clone();
    assert_eq!(outcome["status"], "interrupted", "{outcome}");
    assert!(outcome["step"].as_u64().unwrap() > 0, "{outcome}");
}

#[test]
fn every_request_saves_the_state_and_those_that_come_together_are_one() {
    let place = Place::new();
    let (hangup, user, time) = (libc::SIGHUP, libc::SIGUSR1, libc::SIGXCPU);
    for (out, signals) in [
        ("hangup", &[hangup][..]),
        ("user", &[user]),
        ("time", &[time]),
        ("job", &[libc::SIGTERM, libc::SIGINT, hangup, libc::SIGTERM]),
    ] {
        let command = place.command(&format!("run --task toy --model bag {LONG} --out {out}"));
        let run = begun(&place, command, out);
        signals.iter().for_each(|signal| kill(run.id(), *signal));
        let output = run.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{out}: {}", err(&output));
        assert_interrupted(&place, out);
    }
}

/// A plan that was stopped is no plan.
#[test]
fn plans_that_are_stopped_end_as_such() {
    let place = Place::new();
    for words in [
        "repro s4 text s4d --dry-run",
        "mini linear --glance --dry-run",
    ] {
        let child = start(place.command(words));
        std::thread::sleep(std::time::Duration::from_millis(700));
        kill(child.id(), libc::SIGINT);
        let output = child.wait_with_output().unwrap();
        let (told, printed) = (err(&output), String::from_utf8_lossy(&output.stdout));
        // On a fast machine it may have ended before, with a whole plan.
        let is_whole = match words.starts_with("mini") {
            true => told.contains("plan       linear"),
            false => printed.contains("about ") && !printed.contains("stopped"),
        };
        let expected = if is_whole { 0 } else { 130 };
        assert_eq!(
            output.status.code(),
            Some(expected),
            "{words}: {told}{printed}"
        );
    }
}

/// A replay that was stopped has no scores to compare. It goes on later, and a run that was stopped
/// is not replayed.
#[test]
fn a_replay_that_is_stopped_is_no_difference() {
    let place = Place::new();
    let some = LONG.replace("2000000", "20000");
    place.ok(&format!("run --task toy --model bag --quiet {some}"));
    let record = place.run_folder("runs");
    let words = format!("replay {} --quiet --out again", record.display());
    let replay = begun(&place, place.command(&words), "again");
    kill(replay.id(), libc::SIGTERM);
    let output = replay.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", err(&output));
    assert!(
        output.stdout.is_empty(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
    assert_interrupted(&place, "again");
    let stopped = place.run_folder("again");
    let message = place.fails(2, &format!("replay {} --out third", stopped.display()));
    assert!(
        message.contains("only a run that was scored or diverged"),
        "{message}"
    );
    fs::remove_file(stopped.join("record.json")).unwrap();
    let message = place.fails(2, &format!("replay {} --out third", stopped.display()));
    assert!(message.contains("--resume"), "{message}");
    place.ok(&words);
    assert_eq!(
        place.record("again")["scores"],
        place.record("runs")["scores"]
    );
}

/// The system repeats its signal each second of processor time, until the hard limit.
#[test]
fn a_soft_limit_on_processor_time_saves_the_state() {
    let place = Place::new();
    let words = format!("run --task toy --model bag {LONG}");
    let run = place.command(&words);
    let mut shell = Command::new("sh");
    shell.args(["-c", "ulimit -St 2; exec \"$0\" \"$@\""]);
    shell.arg(run.get_program()).args(run.get_args());
    let kept = run
        .get_envs()
        .filter_map(|(name, value)| Some((name, value?)));
    shell.envs(kept).current_dir(place.path());
    let output = shell.output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", err(&output));
    assert_interrupted(&place, "runs");
}

#[test]
fn a_closed_terminal_does_not_stop_what_was_told_to_ignore_it() {
    let place = Place::new();
    let mut command = place.command(&format!("run --task toy --model bag {LONG}"));
    // SAFETY: `signal` may be called between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGHUP, libc::SIG_IGN);
            Ok(())
        })
    };
    let run = start(command);
    until("a checkpoint is written", || saved(&place, "runs"));
    kill(run.id(), libc::SIGHUP);
    let checkpoint = place.run_folder("runs").join("checkpoint.safetensors");
    for _ in 0..2 {
        let before = fs::read(&checkpoint).unwrap();
        until("it goes on", || fs::read(&checkpoint).unwrap() != before);
    }
    kill(run.id(), libc::SIGTERM);
    let output = run.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", err(&output));
}

#[test]
fn a_job_that_is_signalled_as_a_whole_saves_its_state() {
    let place = Place::new();
    let command = place.command(&format!("sweep --tasks toy --models bag {LONG}"));
    let sweep = begun(&place, command, "runs");
    let run = child_of(sweep.id()).unwrap();
    kill(sweep.id(), libc::SIGTERM);
    kill(run, libc::SIGTERM);
    let output = sweep.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", err(&output));
    assert_interrupted(&place, "runs");
}

#[test]
fn a_sweep_that_is_killed_takes_its_runs_along_in_order() {
    let place = Place::new();
    let command = place.command(&format!("sweep --tasks toy --models bag {LONG}"));
    let mut sweep = begun(&place, command, "runs");
    let _run = EndedOnFailure(child_of(sweep.id()).unwrap());
    sweep.kill().unwrap();
    sweep.wait().unwrap();
    let record = place.run_folder("runs").join("record.json");
    until("the run has noticed", || record.exists());
    assert_interrupted(&place, "runs");
    // No process works there any more, so the next sweep can continue.
    let lock = fs::File::open(place.run_folder("runs").join("run.lock")).unwrap();
    until("the run has ended", || lock.try_lock().is_ok());
}

/// A process that a failing test does not leave behind.
struct EndedOnFailure(u32);

impl Drop for EndedOnFailure {
    fn drop(&mut self) {
        if std::thread::panicking() {
            kill(self.0, libc::SIGKILL);
        }
    }
}

/// Data that take minutes to draw, part by part.
const LARGE: &str = "--set data.train=2000000 --set data.val=1 --set data.test=1";

#[test]
fn data_that_are_built_hear_of_it_and_keep_their_parts() {
    let place = Place::new();
    let parts = |data: &str| {
        let items = fs::read_dir(place.path().join(data).join("store"));
        let mut names = items.into_iter().flatten().flatten();
        let parts = names.find(|item| item.file_name().to_string_lossy().starts_with(".parts-"));
        let parts = parts.map(|folder| fs::read_dir(folder.path()).into_iter().flatten());
        parts.map_or(0, Iterator::count)
    };
    for (data, words) in [
        ("made", "data make pathfinder"),
        ("run", "run --task pathfinder --model bag --recipe smoke"),
    ] {
        let mut command = place.command(&format!("{words} {LARGE} --data {data}"));
        command.env("RAYON_NUM_THREADS", "1");
        let build = start(command);
        until("a part is drawn", || parts(data) > 0);
        kill(build.id(), libc::SIGTERM);
        let output = build.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{}", err(&output));
        assert!(err(&output).contains("interrupted"), "{}", err(&output));
        assert!(parts(data) > 0, "they are not drawn again");
        let store = fs::read_dir(place.path().join(data).join("store")).unwrap();
        for item in store.map(|item| item.unwrap().file_name()) {
            let name = item.to_string_lossy().into_owned();
            assert!(!name.starts_with(".building-"), "{name}");
        }
    }
}

/// A folder of one's own is read before anything is made of it. A wrong line at the end shows a
/// reading that does not stop.
#[test]
fn the_first_reading_of_a_folder_is_stopped() {
    let place = Place::new();
    let birds = place.path().join("birds");
    fs::create_dir(&birds).unwrap();
    let line = |label: &str| format!("{{\"text\":\"a\",\"label\":\"{label}\"}}\n");
    let rows = [line("owl"), line("wren")].concat().repeat(250_000);
    fs::write(birds.join("train.jsonl"), rows).unwrap();
    fs::hard_link(birds.join("train.jsonl"), birds.join("val.jsonl")).unwrap();
    fs::write(birds.join("test.jsonl"), "wrong\n").unwrap();
    let run = start(place.command("run --task mine:birds --model bag --recipe smoke"));
    until("the folder is read", || {
        let open = fs::read_dir(format!("/proc/{}/fd", run.id()));
        let mut open = open.into_iter().flatten().flatten();
        open.any(|item| fs::read_link(item.path()).is_ok_and(|file| file.ends_with("train.jsonl")))
    });
    kill(run.id(), libc::SIGINT);
    let output = run.wait_with_output().unwrap();
    let told = err(&output);
    assert_eq!(output.status.code(), Some(130), "{told}");
    assert!(told.contains("interrupted"), "{told}");
    for left in ["runs", "data"] {
        assert!(!place.path().join(left).exists(), "{left}");
    }
}

/// A mapped file that another program cuts short raises SIGBUS where it is read.
#[test]
fn data_cut_short_during_a_run_are_an_error_in_words() {
    let place = Place::new();
    let run = begun(
        &place,
        place.command(&format!("run --task toy --model bag {LONG} --out runs")),
        "runs",
    );
    let path = stored(&place, "train.safetensors");
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_len(100).unwrap();
    let output = run.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", err(&output));
    assert!(err(&output).contains("cut short"), "{}", err(&output));
}
