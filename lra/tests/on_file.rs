//! Results on file are shown, or resumed, only while they are what would be computed here.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::{Place, TINY, err, stored};
use serde_json::{Value, json};

const RUN: &str = "run --task toy --model bag --recipe smoke --steps 8 --quiet";
const SWEEP: &str = "sweep --tasks toy --models bag --recipe smoke --steps 8";

/// Changes a JSON document in a file.
fn edit(path: &Path, change: impl FnOnce(&mut Value)) {
    let mut value: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    change(&mut value);
    fs::write(path, value.to_string()).unwrap();
}

/// Asserts that the run and the sweep on file are refused for a reason, and are shown if that is
/// accepted.
fn is_refused_and_shown(place: &Place, run: &str, sweep: &str, reason: &str) {
    let message = place.fails(2, run);
    assert!(message.contains(reason), "{message}");
    assert!(
        message.contains("--force") && message.contains("--accept-changes"),
        "{message}"
    );
    assert!(!message.contains("is on file since"), "{message}");
    let output = place.lra(sweep);
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(2), "{told}{}", err(&output));
    assert!(
        told.contains(reason) && told.contains("--redo-changed"),
        "{told}"
    );
    let plan: Value =
        serde_json::from_str(&place.ok(&format!("{sweep} --dry-run --json"))).unwrap();
    assert_eq!(plan[0]["state"], "changed");

    let shown = place.lra(&format!("{run} --accept-changes"));
    assert!(shown.status.success(), "{}", err(&shown));
    assert!(err(&shown).contains(reason), "{}", err(&shown));
    place.ok(&format!("{sweep} --accept-changes"));
}

/// Asserts that the run and the sweep are refused for a reason, and that both remedies work.
fn is_refused(place: &Place, run: &str, sweep: &str, reason: &str) {
    is_refused_and_shown(place, run, sweep, reason);
    place.ok(&format!("{sweep} --redo-changed"));
    place.ok(run);
}

/// Asserts that the weights of a run are used only if a change is accepted.
fn is_refused_and_used(place: &Place, words: &str, reason: &str) {
    let message = place.fails(2, &format!("{words} --quiet"));
    assert!(
        message.contains("its score may not be that of a run here")
            && message.contains(reason)
            && message.contains("--force")
            && message.contains("--accept-changes"),
        "{message}"
    );
    let used = place.lra(&format!("{words} --quiet --accept-changes"));
    assert!(used.status.success(), "{}", err(&used));
    assert!(err(&used).contains(reason), "{}", err(&used));
}

/// A run that is to be replaced stays as it is until its files are gone: a failure before that,
/// such as a full disk while data are built, must not put its own record beside the old weights.
#[cfg(unix)]
#[test]
fn a_failed_force_leaves_the_old_run_as_it_was() {
    let place = Place::new();
    place.ok(RUN);
    let record = place.run_folder("runs").join("record.json");
    edit(&record, |it| {
        it["versions"]["sources"] = json!("0".repeat(64))
    });
    let before = fs::read(&record).unwrap();
    fs::remove_dir_all(place.path().join("data")).unwrap();
    let mut command = place.command(&format!("{RUN} --force"));
    command.env("LRA_FAULTS", format!("write:3:{}", libc::ENOSPC));
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{}", err(&output));
    assert!(fs::read(&record).unwrap() == before, "{}", err(&output));
    let message = place.fails(2, &format!("{RUN} --resume"));
    assert!(message.contains("--force"), "{message}");
    place.ok(&format!("{RUN} --force"));
}

/// A run that goes on after a failure is an interrupted one if it is killed.
#[cfg(unix)]
#[test]
fn a_failure_is_no_longer_the_outcome_once_the_run_went_on() {
    let place = Place::new();
    let words = format!("{RUN} --set train.checkpoint_every=2 --set train.eval_every=0");
    let mut command = place.command(&words);
    // Its record is that of the failure: a checkpoint could not be written.
    command.env("LRA_FAULTS", format!("rename:6:{}", libc::ENOSPC));
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{}", err(&output));
    assert_eq!(place.record("runs")["outcome"]["status"], "failed");
    let mut command = place.command(&format!("{words} --resume"));
    let output = command.env("LRA_FAULTS", "rename:4:die").output().unwrap();
    assert_eq!(output.status.code(), None, "{}", err(&output));
    assert!(!place.run_folder("runs").join("record.json").exists());
    place.ok(&format!("{words} --resume"));
    assert_eq!(place.record("runs")["outcome"]["status"], "scored");
}

#[test]
fn weights_of_another_program_or_other_data_are_used_only_if_told_so() {
    let place = Place::new();
    place.ok(RUN);
    let folder = place.run_folder("runs");
    let record = folder.join("record.json");
    let whole = fs::read(&record).unwrap();
    let path = folder.strip_prefix(place.path()).unwrap().display();
    let score = format!("score {path}");
    place.ok(&score);
    for (section, key, value, reason) in [
        (
            "versions",
            "sources",
            "0f0f",
            "another build of the program",
        ),
        ("versions", "rustc", "1.0.0", "another build of the program"),
        ("host", "instructions", "mmx", "it was made with mmx"),
        ("task", "data_digest", "0f0f", "other data"),
    ] {
        edit(&record, |record| record[section][key] = json!(value));
        is_refused_and_used(&place, &score, reason);
        fs::write(&record, &whole).unwrap();
    }
    edit(&record, |record| record["scores"]["test_loss"] = json!(9.5));
    let output = place.lra(&score);
    let told = err(&output);
    assert!(
        output.status.success() && told.contains("not that of the record"),
        "{told}"
    );
    // Another number of examples has another score.
    let part = place.lra(&format!("{score} --limit 8"));
    assert!(!err(&part).contains("not that of the record"));
}

/// A sweep says what the run says.
#[test]
fn damaged_stored_data_have_one_exit_code() {
    let place = Place::new();
    place.ok(RUN);
    place.ok(SWEEP);
    let train = stored(&place, "train.safetensors");
    let mut bytes = fs::read(&train).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&train, bytes).unwrap();
    assert!(place.fails(3, RUN).contains("train.safetensors"));
    for flag in ["", " --retry-failed", " --accept-changes"] {
        let output = place.lra(&format!("{SWEEP}{flag}"));
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(3), "{told}");
        assert!(
            told.contains("train.safetensors") && told.contains("lra data make"),
            "{told}"
        );
    }
}

/// Puts the toy data of another seed in place of those stored, as whole data of their name.
fn replace_data(place: &Place) {
    let folder = stored(place, "manifest.json");
    let folder = folder.parent().unwrap();
    place.ok("data make toy --set data.seed=1 --data elsewhere");
    let entries = fs::read_dir(place.path().join("elsewhere/store")).unwrap();
    let other = entries
        .map(|entry| entry.unwrap().path())
        .find(|path| path.is_dir())
        .unwrap();
    for file in fs::read_dir(&other).unwrap().map(|file| file.unwrap()) {
        fs::copy(file.path(), folder.join(file.file_name())).unwrap();
    }
    edit(&folder.join("manifest.json"), |manifest| {
        manifest["options"]["seed"] = json!(0)
    });
    fs::remove_dir_all(place.path().join("elsewhere")).unwrap();
}

#[test]
fn a_score_of_other_data_is_not_on_file() {
    let place = Place::new();
    place.ok(RUN);
    replace_data(&place);
    is_refused(&place, RUN, SWEEP, "other data");
}

#[test]
fn a_score_of_another_program_or_other_instructions_is_not_on_file() {
    let place = Place::new();
    place.ok(RUN);
    let record = place.run_folder("runs").join("record.json");
    edit(&record, |record| {
        record["versions"]["sources"] = json!("1".repeat(64))
    });
    is_refused(&place, RUN, SWEEP, "another build of the program");
    edit(&record, |record| {
        record["host"]["instructions"] = json!("an abacus")
    });
    is_refused(&place, RUN, SWEEP, "an abacus");
    edit(&record, |record| {
        record["device"] = json!("cuda:0 NVIDIA H100")
    });
    is_refused(&place, RUN, SWEEP, "NVIDIA H100");
}

#[test]
fn data_that_are_not_here_are_said_not_to_be_compared() {
    let place = Place::new();
    place.ok(RUN);
    let told = "its data is not here and was not compared";
    let said = |words: &str| {
        let output = place.lra(words);
        assert!(output.status.success(), "{}", err(&output));
        format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            err(&output)
        )
    };
    for words in [RUN, SWEEP] {
        assert!(!said(words).contains("not compared:") && !said(words).contains(told));
    }
    fs::remove_dir_all(place.path().join("data/store")).unwrap();
    for words in [RUN, SWEEP, &format!("{SWEEP} --accept-changes")] {
        let said = said(words);
        assert!(said.contains(told), "{said}");
    }
    let plan = format!("{SWEEP} --dry-run");
    assert!(said(&plan).contains("not compared"), "{}", said(&plan));
    for words in [SWEEP, &plan] {
        let cells: Value = serde_json::from_str(&place.ok(&format!("{words} --json"))).unwrap();
        assert_eq!(cells[0]["not_compared"], told);
    }
}

/// The path of the raw files is in the record of the stored data too, so a lost or damaged note
/// hides no change.
#[test]
fn changed_raw_files_are_told_without_the_note_of_their_path() {
    let place = Place::new();
    let folder = place.path().join("one");
    fs::create_dir(&folder).unwrap();
    let write = |more: &str| {
        for split in ["train", "val", "test"] {
            let rows = format!("Source\tTarget\n[MAX 2 3 ]\t3\n[MIN 2 3 ]\t2\n{more}");
            fs::write(folder.join(format!("basic_{split}.tsv")), rows).unwrap();
        }
    };
    write("");
    let run = "run --task listops --model bag --source official --recipe smoke --steps 2 --quiet";
    place.ok("data make listops --recipe smoke --from one");
    place.ok(run);
    let data = place.path().join("data");
    fs::remove_file(data.join("raw/listops.from")).unwrap();
    place.ok(run);
    write("[MIN 2 3 4 ]\t2\n");
    let message = place.fails(2, run);
    assert!(message.contains("before the raw files in"), "{message}");

    let stores = fs::read_dir(data.join("store")).unwrap();
    let stores = stores.map(|entry| entry.unwrap().path());
    let stores = stores.filter(|path| path.join("manifest.json").exists());
    for record in stores.map(|store| store.join("raw.json")) {
        fs::write(record, "garbage").unwrap();
    }
    fs::write(
        data.join("raw/listops.from"),
        folder.canonicalize().unwrap().display().to_string(),
    )
    .unwrap();
    let message = place.fails(2, run);
    assert!(message.contains("raw.json, is damaged"), "{message}");
}

/// Raw files that replace others are read for one length alone; the stored data of others stay.
#[test]
fn stored_data_of_other_raw_files_are_told_at_every_start() {
    let place = Place::new();
    for (folder, more) in [("one", ""), ("two", "[MIN 2 3 4 ]\t2\n")] {
        let folder = place.path().join(folder);
        fs::create_dir(&folder).unwrap();
        for split in ["train", "val", "test"] {
            let rows = format!("Source\tTarget\n[MAX 2 3 ]\t3\n[MIN 2 3 ]\t2\n{more}");
            fs::write(folder.join(format!("basic_{split}.tsv")), rows).unwrap();
        }
    }
    let longer = "--set data.max_length=1500";
    let settings = format!("--source official --recipe smoke --steps 2 --quiet {longer}");
    let run = format!("run --task listops --model bag {settings}");
    let sweep = format!("sweep --tasks listops --models bag {settings}");
    place.ok("data make listops --from one");
    place.ok(&format!("data make listops --from one {longer}"));
    place.ok(&run);
    place.ok(&sweep);
    let replaced = place.lra("data make listops --from two --force");
    let told = "and now those in";
    assert!(replaced.status.success() && err(&replaced).contains(told));
    assert!(place.ok("data list").contains("of other raw files"));

    is_refused_and_shown(&place, &run, &sweep, told);
    let folder = place.run_folder("runs");
    let path = folder.strip_prefix(place.path()).unwrap().display();
    for words in [
        format!("score {path}"),
        format!("explain {path}"),
        format!("compare {path} {path}"),
    ] {
        is_refused_and_used(&place, &words, told);
    }
    let verified = place.lra(&format!("data verify listops:official {longer}"));
    assert!(err(&verified).contains(told), "{}", err(&verified));
    let record = fs::read(folder.join("record.json")).unwrap();
    fs::remove_file(folder.join("record.json")).unwrap();
    let message = place.fails(2, &format!("{run} --resume"));
    assert!(message.contains(told), "{message}");
    fs::write(folder.join("record.json"), &record).unwrap();
    // A run from its beginning would be of the old data: it is refused, and discards nothing.
    for words in ["--force", "--out fresh"] {
        let message = place.fails(2, &format!("{run} {words}"));
        assert!(message.contains(told), "{message}");
        assert!(message.contains("--accept-changes"), "{message}");
    }
    assert_eq!(fs::read(folder.join("record.json")).unwrap(), record);
    let swept = place.lra(&format!("{sweep} --out swept"));
    assert_eq!(swept.status.code(), Some(2), "{}", err(&swept));
    let fresh = place.lra(&format!("{run} --out fresh --accept-changes"));
    assert!(fresh.status.success(), "{}", err(&fresh));
    assert!(err(&fresh).contains(told), "{}", err(&fresh));
    let message = place.fails(2, &run);
    let (_, way_out) = message.split_once('`').unwrap();
    let (way_out, _) = way_out.split_once('`').unwrap();
    let way_out = way_out.trim_start_matches("lra ");
    assert!(place.fails(3, way_out).contains("made from other files"));
    place.ok(&format!("{way_out} --force"));
    assert!(!place.ok("data list").contains("of other raw files"));
    assert!(place.fails(2, &run).contains("other data"));
    place.ok(&format!("{run} --force"));
}

/// Stored data may be deleted. If the published files are there, the data are made again and
/// compared.
#[test]
fn a_score_of_replaced_files_is_not_on_file_without_stored_data() {
    let place = Place::new();
    let raw = place.path().join("data/raw/listops");
    let write = |more: &str| {
        fs::create_dir_all(&raw).unwrap();
        for split in ["train", "val", "test"] {
            let rows = format!("Source\tTarget\n[MAX 2 3 ]\t3\n[MIN 2 3 ]\t2\n{more}");
            fs::write(raw.join(format!("basic_{split}.tsv")), rows).unwrap();
        }
    };
    write("");
    let settings = "--recipe smoke --set data.min_length=0 --steps 2 --quiet";
    let run = format!("run --task listops:official --model bag {settings}");
    place.ok(&run);
    let store = place.path().join("data/store");
    fs::remove_dir_all(&store).unwrap();
    place.ok(&run);
    fs::remove_dir_all(&store).unwrap();
    write("[MIN 2 3 4 ]\t2\n");
    let message = place.fails(2, &run);
    assert!(message.contains("other data"), "{message}");
    // Files that no data can be made from leave nothing to compare.
    fs::remove_dir_all(&store).unwrap();
    fs::write(raw.join("basic_val.tsv"), "Source\tTarget\n[MAX 2 3 ]\tx\n").unwrap();
    let output = place.lra(&run);
    let said = err(&output);
    assert!(
        said.contains("not compared") && said.contains("basic_val.tsv:2"),
        "{said}"
    );
}

/// The plan of a sweep says what the sweep will do with a damaged record.
#[test]
fn a_plan_and_a_sweep_agree_on_a_damaged_record() {
    let place = Place::new();
    place.ok(RUN);
    let record = place.run_folder("runs").join("record.json");
    fs::write(&record, "{").unwrap();
    let plan = place.ok(&format!("{SWEEP} --dry-run --json"));
    let plan: Value = serde_json::from_str(&plan).unwrap();
    assert!(plan.to_string().contains("is not a run record"), "{plan}");
    assert!(plan.to_string().contains("\"failed\""), "{plan}");
    let message = err(&place.lra(SWEEP));
    assert!(
        message.contains("start over with `lra run --force`, or move"),
        "{message}"
    );
}

#[test]
fn a_score_of_an_edited_model_is_not_on_file() {
    let place = Place::of_example("own_model");
    let [run, sweep] = [RUN, SWEEP].map(|words| words.replace("bag", "neighbours"));
    place.ok(&run);
    let path = place.run_folder("runs").join("record.json");
    let record: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_eq!(record["model"]["own"]["program"], "own_model");
    edit(&path, |record| {
        record["model"]["own"]["source"] = json!("2".repeat(64))
    });
    is_refused(&place, &run, &sweep, "the model's source has changed");
    edit(&path, |record| {
        record["model"]["own"]["program_digest"] = json!("3".repeat(64))
    });
    is_refused(
        &place,
        &run,
        &sweep,
        "the program with the model has changed",
    );
}

#[test]
fn an_unfinished_run_of_an_edited_model_does_not_go_on() {
    let place = Place::of_example("own_model");
    let run = RUN.replace("bag", "neighbours");
    place.ok(&run);
    let folder = place.run_folder("runs");
    fs::remove_file(folder.join("record.json")).unwrap();
    edit(&folder.join("draft.json"), |draft| {
        draft["model"]["own"]["source"] = json!("2".repeat(64))
    });
    let message = place.fails(2, &format!("{run} --resume"));
    assert!(
        message.contains("the model's source has changed") && message.contains("--accept-changes"),
        "{message}"
    );
    place.ok(&format!("{run} --resume --accept-changes"));
}

#[test]
fn an_unfinished_run_goes_on_with_other_things_only_if_told_so() {
    let place = Place::new();
    place.ok(RUN);
    let folder = place.run_folder("runs");
    let resume = format!("{RUN} --resume");
    let unfinished = || fs::remove_file(folder.join("record.json")).unwrap();
    unfinished();
    edit(&folder.join("draft.json"), |draft| {
        draft["versions"]["sources"] = json!("4")
    });
    let message = place.fails(2, &resume);
    assert!(
        message.contains("another build") && message.contains("--accept-changes"),
        "{message}"
    );
    let told = String::from_utf8_lossy(&place.lra(SWEEP).stdout).into_owned();
    assert!(told.contains("another build"), "{told}");
    place.ok(&format!("{resume} --accept-changes"));
    let accepted = place.record("runs")["accepted_changes"].clone();
    assert!(
        accepted[0].as_str().unwrap().contains("another build"),
        "{accepted}"
    );

    unfinished();
    replace_data(&place);
    assert!(place.fails(2, &resume).contains("other data"));
    place.ok(&format!("{resume} --accept-changes"));
    let accepted = place.record("runs")["accepted_changes"].clone();
    assert_eq!(accepted.as_array().unwrap().len(), 2, "{accepted}");

    unfinished();
    fs::remove_file(folder.join("draft.json")).unwrap();
    assert!(place.fails(2, &resume).contains("draft.json is missing"));
    place.ok(&format!("{RUN} --force"));
    assert_eq!(place.record("runs")["accepted_changes"], Value::Null);

    // A sweep names what it goes on with.
    unfinished();
    edit(&folder.join("draft.json"), |draft| {
        draft["versions"]["sources"] = json!("4")
    });
    let accepted = place.lra(&format!("{SWEEP} --accept-changes --json"));
    let rows: Value = serde_json::from_slice(&accepted.stdout).unwrap();
    let reason = rows[0]["not_compared"].as_str().unwrap_or_default();
    assert!(reason.contains("another build"), "{rows}");
}

/// Weights of an older source are taken, and told.
#[test]
fn weights_of_an_edited_model_are_told() {
    let place = Place::of_example("own_model");
    let run = RUN.replace("bag", "neighbours");
    place.ok(&run);
    let folder = place.run_folder("runs");
    edit(&folder.join("record.json"), |record| {
        record["model"]["own"]["source"] = json!("2".repeat(64))
    });
    let folder = folder.strip_prefix(place.path()).unwrap().display();
    let output = place.lra(&format!("{run} --from {folder} --out other"));
    assert!(output.status.success(), "{}", err(&output));
    assert!(
        err(&output).contains("the model's source has changed"),
        "{}",
        err(&output)
    );
}

/// The record knows of a pretraining whose files are gone.
#[test]
fn an_interrupted_pretraining_without_its_files_does_not_begin_again() {
    let place = Place::new();
    let run = "run --task toy --model gru --recipe smoke --steps 4 --pretrain masked --set pretrain.steps=4 --quiet";
    place.ok(run);
    let folder = place.run_folder("runs");
    edit(&folder.join("record.json"), |record| {
        record["outcome"] = json!({ "status": "interrupted", "step": 0 });
        record.as_object_mut().unwrap().remove("scores");
    });
    for prefix in ["", "pretrain-"] {
        for name in [
            "checkpoint.safetensors",
            "best.safetensors",
            "metrics.jsonl",
            "timings.jsonl",
        ] {
            fs::remove_file(folder.join(format!("{prefix}{name}"))).unwrap();
        }
    }
    let message = place.fails(2, &format!("{run} --resume"));
    assert!(
        message.contains("pretrain-checkpoint.safetensors"),
        "{message}"
    );
}

/// A process that was killed while `--force` removed the files of a run leaves a mark.
#[test]
fn a_folder_that_was_being_cleared_is_an_empty_one() {
    let place = Place::new();
    place.ok(RUN);
    let folder = place.run_folder("runs");
    let whole = fs::read(folder.join("metrics.jsonl")).unwrap();
    for resumed in [format!("{RUN} --resume"), SWEEP.to_owned()] {
        for name in ["record.json", "spec.toml", "draft.json", "metrics.jsonl"] {
            fs::remove_file(folder.join(name)).unwrap();
        }
        fs::write(folder.join(".clearing"), "").unwrap();
        let plan: Value =
            serde_json::from_str(&place.ok(&format!("{SWEEP} --dry-run --json"))).unwrap();
        assert_eq!(plan[0]["state"], "run");
        place.ok(&resumed);
        assert!(!folder.join(".clearing").exists());
        assert!(fs::read(folder.join("metrics.jsonl")).unwrap() == whole);
    }
    // As long as the record is there, nothing was removed.
    let record = fs::read(folder.join("record.json")).unwrap();
    fs::write(folder.join(".clearing"), "").unwrap();
    let shown = place.lra(RUN);
    assert!(err(&shown).contains("is on file since"), "{}", err(&shown));
    assert!(fs::read(folder.join("record.json")).unwrap() == record);
    assert!(
        !folder.join(".clearing").exists(),
        "it would cost a run whose record is lost later"
    );
    // A folder may lie in its place.
    fs::create_dir(folder.join(".clearing")).unwrap();
    place.ok(&format!("{RUN} --force"));
    assert!(!folder.join(".clearing").exists());
}

#[test]
fn a_missing_file_stops_a_run_and_is_named() {
    let place = Place::new();
    let settings = "--set data.train=64 --set data.val=16 --set data.test=16 --set train.eval_every=4 \
                    --set pretrain.kind=masked --set pretrain.steps=4";
    let [run, sweep] =
        [RUN, SWEEP].map(|words| format!("{} {settings}", words.replace("bag", "performer")));
    place.ok(&run);
    let folder = place.run_folder("runs");
    fs::remove_file(folder.join("record.json")).unwrap();
    let log = folder.join("metrics.jsonl");
    for name in [
        "spec.toml",
        "checkpoint.safetensors",
        "best.safetensors",
        "metrics.jsonl",
        "timings.jsonl",
        "pretrain-checkpoint.safetensors",
        "pretrain-best.safetensors",
        "pretrain-metrics.jsonl",
        "pretrain-timings.jsonl",
    ] {
        let file = folder.join(name);
        let whole = fs::read(&file).unwrap();
        let lines = fs::read(&log).unwrap();
        fs::remove_file(&file).unwrap();
        let message = place.fails(2, &format!("{run} --resume"));
        assert!(message.contains(&format!("{name} is missing")), "{message}");
        assert!(message.contains("--force"), "{message}");
        let output = place.lra(&sweep);
        assert_eq!(output.status.code(), Some(2), "{name}");
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(told.contains(&format!("{name} is missing")), "{told}");
        if name != "metrics.jsonl" {
            assert_eq!(
                fs::read(&log).unwrap(),
                lines,
                "{name}: the log is as it was"
            );
        }
        fs::write(&file, whole).unwrap();
    }
    place.ok(&format!("{run} --resume"));
}

#[test]
fn where_there_is_nothing_to_resume_it_is_said() {
    let place = Place::new();
    let resumed = |steps: usize| {
        let words = RUN.replace("--steps 8", &format!("--steps {steps} --resume"));
        let output = place.lra(&words);
        assert!(output.status.success(), "{}", err(&output));
        err(&output)
    };
    let told = resumed(4);
    assert!(told.contains("no earlier run"), "{told}");
    let told = resumed(8);
    assert!(told.contains("no earlier run"), "{told}");
    assert!(told.contains("train.steps = 8, not 4"), "{told}");
    // For the cells of a sweep it is not known whether they were begun.
    place.ok(&format!("{SWEEP} --out swept"));
    let log = fs::read_to_string(place.run_folder("swept").join("log.txt")).unwrap();
    assert!(!log.contains("no earlier run"), "{log}");
}

#[test]
fn an_old_score_is_called_so_however_quiet_the_run() {
    let place = Place::new();
    let first = place.lra(RUN);
    assert!(!err(&first).contains("is on file since"), "{}", err(&first));
    let again = place.lra(RUN);
    assert!(err(&again).contains("is on file since"), "{}", err(&again));
}

/// A shell runs the command of a record in the folder where it was typed.
#[test]
fn the_command_in_a_record_runs_as_pasted() {
    let place = Place::new();
    let lra = Path::new(env!("CARGO_BIN_EXE_lra")).parent().unwrap();
    let path = std::env::var("PATH").unwrap();
    let groups = "train.groups=[{ parameters = \"*.bias\", learning_rate = 0.0 }]";
    let path = format!("{}:{path}", lra.display());
    let mut command = place.command(&format!("{TINY} --model linear --steps 4 --out own"));
    command.env("PATH", &path);
    let typed = command.args(["--set", groups]).output().unwrap();
    assert!(typed.status.success(), "{}", err(&typed));
    let sweep = SWEEP.replace("toy", "listops").replace("bag", "linear");
    let mut command = place.command(&format!("{sweep} --set data.train=64 --out swept"));
    command.env("PATH", &path);
    let swept = command.args(["--set", groups]).output().unwrap();
    assert!(swept.status.success(), "{}", err(&swept));
    for out in ["own", "swept"] {
        let record = place.record(out);
        let command = record["command"].as_str().unwrap();
        assert!(command.starts_with("lra run "), "{command}");
        assert!(
            !command.contains("stop-on-eof") && !command.contains(" /"),
            "{command}"
        );
        let mut shell = Command::new("sh");
        shell.args(["-c", command]).current_dir(place.path());
        shell.env("LRA_DATA", place.path().join("data"));
        shell.env("PATH", &path);
        let output = shell.output().unwrap();
        assert!(output.status.success(), "{command}: {}", err(&output));
        assert!(
            err(&output).contains("is on file since"),
            "{command}: {}",
            err(&output)
        );
    }
}

/// The output is that of a search over two rates, one of them with a record that has changed.
#[test]
fn a_search_takes_no_score_that_has_changed() {
    let place = Place::new();
    let sweep = |words: &str| format!("{SWEEP} --quiet --set train.eval_every=4 {words}");
    let (search, table) = ("--grid train.learning_rate=1e-3,1e-2", "Best settings");
    place.ok(&sweep(search));
    let changed = |folder: std::path::PathBuf| {
        edit(&folder.join("record.json"), |record| {
            record["versions"]["sources"] = "aaaa".into();
            record["scores"]["val_accuracy"] = json!(0.99);
            record["scores"]["test_accuracy"] = json!(0.98);
        });
    };
    let folders = fs::read_dir(place.path().join("runs")).unwrap();
    let rate = |folder: &Path| fs::read_to_string(folder.join("spec.toml")).unwrap();
    let folders = folders.map(|entry| entry.unwrap().path());
    let high: Vec<_> = folders
        .filter(|folder| rate(folder).contains("learning_rate = 0.01\n"))
        .collect();
    assert_eq!(high.len(), 1);
    changed(high[0].clone());
    let output = place.lra(&sweep(search));
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(2), "{told}");
    let (_, best) = told.split_once(table).unwrap_or_else(|| panic!("{told}"));
    let row = best.lines().find(|line| line.contains("bag")).unwrap();
    assert!(row.contains("train.learning_rate=1e-3"), "{told}");
    assert!(!best.contains("99.00") && !best.contains("98.00"), "{told}");
    let words: Vec<&str> = best.split_whitespace().collect();
    let words = words.join(" ");
    assert!(
        words.contains("train.learning_rate=1e-2 (1 of 1 seed changed)"),
        "{told}"
    );
    // Accepted, it counts again.
    let accepted = place.ok(&sweep(&format!("{search} --accept-changes")));
    assert!(accepted.contains("98.00"), "{accepted}");
}

#[test]
fn a_probe_takes_no_loss_that_has_changed() {
    let place = Place::new();
    let recipe = "about = ''\nsource = ''\n[probe]\nlearning_rates = [1e-9, 1e-2]\nshare = 0.5\n[families.xformer]\n\
                  [tasks.toy]\ntrain = { steps = 20, warmup = 2 }\ndata = { train = 256, val = 64, test = 16 }\n";
    fs::write(place.path().join("own.toml"), recipe).unwrap();
    let words = "sweep --tasks toy --models bag --recipe own.toml --probe --quiet";
    let before = place.ok(words);
    assert!(before.contains("learning_rate = 1e-2 }"), "{before}");
    for entry in fs::read_dir(place.path().join("runs")).unwrap() {
        let folder = entry.unwrap().path();
        let spec = fs::read_to_string(folder.join("spec.toml")).unwrap();
        if spec.contains("learning_rate = 0.01\n") {
            edit(&folder.join("record.json"), |record| {
                record["versions"]["sources"] = "aaaa".into();
            });
        }
    }
    let output = place.lra(words);
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("learning_rate = 1e-9 }"), "{told}");
    // The cell may be broken over several lines.
    assert!(told.contains("1e-2: - (1 of 1 seed"), "{told}");
    assert!(told.contains("changed)"), "{told}");
}

#[test]
fn a_record_of_another_run_is_damage() {
    let place = Place::new();
    let words = |seed: u64| format!("{RUN} --seed {seed}");
    place.ok(&words(1));
    place.ok(&words(2));
    let folder = |seed: u64| {
        let folders = fs::read_dir(place.path().join("runs")).unwrap();
        let mut folders = folders.map(|entry| entry.unwrap().path());
        let mark = format!("-s{seed}-");
        folders.find(|path| path.display().to_string().contains(&mark))
    };
    let (one, two) = (folder(1).unwrap(), folder(2).unwrap());
    let whole = fs::read(two.join("record.json")).unwrap();
    fs::copy(one.join("record.json"), two.join("record.json")).unwrap();
    let refused = |reason: &str| {
        for words in [words(2), format!("{} --resume", words(2))] {
            let message = place.fails(3, &words);
            assert!(
                message.contains("record.json is the record of another run")
                    && message.contains(reason)
                    && message.contains("--force"),
                "{message}"
            );
        }
        let sweep = format!("{SWEEP} --seeds 2,3 --quiet");
        let output = place.lra(&sweep);
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(3), "{told}");
        assert!(
            told.contains("another run") && told.contains("--retry-failed"),
            "{told}"
        );
    };
    refused("its id is toy-bag-smoke-s1-");
    for (field, value, reason) in [
        ("seed", json!(7), "its seed is 7 instead of 2"),
        (
            "spec_digest",
            json!("aaaa"),
            "its digest of the settings is aaaa",
        ),
    ] {
        fs::write(two.join("record.json"), &whole).unwrap();
        edit(&two.join("record.json"), |record| {
            record[field] = value.clone()
        });
        refused(reason);
    }
    fs::write(two.join("record.json"), &whole).unwrap();
    edit(&two.join("record.json"), |record| {
        record["model"]["name"] = "linear".into()
    });
    refused("its model is linear instead of bag");
    let kept = fs::read(two.join("checkpoint.safetensors")).unwrap();
    place.fails(3, &format!("{SWEEP} --seeds 2,3 --quiet --retry-failed"));
    assert_eq!(fs::read(two.join("checkpoint.safetensors")).unwrap(), kept);
    fs::remove_file(two.join("record.json")).unwrap();
    place.ok(&format!("{SWEEP} --seeds 2,3 --quiet"));
    place.ok(&words(2));

    // The files to resume from.
    for name in [
        "checkpoint.safetensors",
        "best.safetensors",
        "metrics.jsonl",
        "timings.jsonl",
    ] {
        let own = fs::read(two.join(name)).unwrap();
        let _ = fs::remove_file(two.join("record.json"));
        fs::copy(one.join(name), two.join(name)).unwrap();
        let message = place.fails(3, &format!("{} --resume", words(2)));
        assert!(
            message.contains(name) && message.contains("--force"),
            "{message}"
        );
        assert!(fs::read(one.join(name)).unwrap() == fs::read(two.join(name)).unwrap());
        fs::write(two.join(name), own).unwrap();
    }
    place.ok(&format!("{} --resume", words(2)));
}
