//! The matrix: complete, distributed, interrupted, resumed.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::{Place, child_of, err, kill, saved, start, until};
use serde_json::Value;

const TINY: &str = "sweep --tasks toy --models bag,linear --recipe smoke --steps 4 --set data.train=64 \
                    --set data.val=16 --set data.test=16";
/// A sweep of one cell that takes long and saves its state often.
const LONG: &str = "sweep --tasks toy --models bag --recipe smoke --steps 200000 --set train.checkpoint_every=50 \
                    --set train.log_every=1000 --set train.eval_every=0";

fn json(text: &str) -> Vec<Value> {
    serde_json::from_str(text).unwrap()
}

fn ids(cells: &[Value]) -> BTreeSet<String> {
    let ids = cells.iter().map(|cell| cell["id"].as_str().unwrap());
    ids.map(str::to_owned).collect()
}

fn states(cells: &[Value]) -> Vec<&str> {
    let states = cells.iter().map(|cell| cell["state"].as_str().unwrap());
    states.collect()
}

/// Returns the records of the run folders of a sweep.
fn records(place: &Place) -> Vec<Value> {
    let folders = fs::read_dir(place.path().join("runs")).unwrap();
    let records = folders.filter_map(|folder| {
        let text = fs::read_to_string(folder.unwrap().path().join("record.json")).ok()?;
        Some(serde_json::from_str(&text).unwrap())
    });
    records.collect()
}

#[test]
fn cells_are_run_once_and_a_failed_one_stops_nothing() {
    let place = Place::new();
    let words = format!("{TINY} --seeds 0..2 --jobs 2 --json");
    // The other model divides by almost zero, which shows when it is trained.
    let words = words.replace("linear", "sinkhorn:temperature=1e-300");
    let output = place.lra(&words);
    assert_eq!(output.status.code(), Some(4), "{}", err(&output));
    let cells = json(&String::from_utf8(output.stdout).unwrap());
    assert_eq!(states(&cells), ["scored", "scored", "failed", "failed"]);
    for cell in &cells {
        let log = place
            .path()
            .join(cell["folder"].as_str().unwrap())
            .join("log.txt");
        assert!(
            fs::read_to_string(log)
                .unwrap()
                .contains("lra run --task=toy")
        );
        let record = place
            .path()
            .join(cell["folder"].as_str().unwrap())
            .join("record.json");
        let record: Value = serde_json::from_str(&fs::read_to_string(record).unwrap()).unwrap();
        assert_eq!(
            record["jobs"], 2,
            "speeds hang on how many runs share the machine"
        );
    }
    let output = place.lra(&words);
    assert_eq!(output.status.code(), Some(4));
    let cells = json(&String::from_utf8(output.stdout).unwrap());
    assert_eq!(states(&cells)[..2], ["on file", "on file"]);
}

#[test]
fn a_cell_that_cannot_be_built_is_a_row_and_the_others_run() {
    let place = Place::new();
    let words = TINY.replace("bag,linear", "bag,s4d,transformer");
    let words = format!("{words} --set block.bias=t5 --json");
    let plan = place.lra(&format!("{words} --dry-run"));
    assert_eq!(plan.status.code(), Some(2), "{}", err(&plan));
    let output = place.lra(&words);
    assert_eq!(output.status.code(), Some(2), "{}", err(&output));
    assert!(err(&output).contains("s4d, seed 0: "), "{}", err(&output));
    let cells = json(&String::from_utf8(output.stdout).unwrap());
    assert_eq!(cells.len(), 3);
    let refused: Vec<&Value> = cells.iter().filter(|it| it["state"] == "failed").collect();
    assert!(refused.iter().any(|it| it["model"] == "s4d"), "{cells:?}");
    for cell in &refused {
        let reason = cell["detail"].as_str().unwrap();
        assert!(reason.contains("block.bias"), "{reason}");
    }
    let run = cells.iter().find(|it| it["model"] == "transformer");
    assert_eq!(run.unwrap()["state"], "scored");
    let text = place.lra(&words.replace(" --json", ""));
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(
        text.contains("failed: ") && text.contains("s4d, seed 0: "),
        "{text}"
    );
    let message = place.fails(2, &words.replace("bag,s4d,transformer", "s4d"));
    assert!(message.contains("block.bias"), "{message}");
}

#[test]
fn running_out_of_memory_is_a_state_and_can_be_tried_again() {
    let place = Place::new();
    let words = "sweep --tasks toy --models transformer --recipe smoke --steps 4 --set data.train=64 --json \
                 --set block.dim=512 --set block.qkv_dim=512";
    let limit = place.least_limit() + 4;
    let output = place.lra(&format!("{words} --threads 2 --memory-limit {limit}M"));
    assert_eq!(output.status.code(), Some(4), "{}", err(&output));
    let cells = json(&String::from_utf8(output.stdout).unwrap());
    let detail = cells[0]["detail"].as_str().unwrap();
    assert!(detail.contains("out of memory"), "{detail}");
    place.fails(4, words);
    let cells = json(&place.ok(&format!("{words} --retry-failed")));
    assert_eq!(states(&cells), ["scored"]);
}

#[test]
fn shards_make_the_whole_matrix() {
    let place = Place::new();
    let plan =
        |words: &str| json(&place.ok(&format!("{TINY} --seeds 0..3 --dry-run --json {words}")));
    let whole = plan("");
    assert_eq!(whole.len(), 6);
    for cell in &whole {
        assert_eq!(cell["state"], "run");
        assert!(
            cell["seconds"].as_f64().unwrap() > 0.0 && cell["peak_bytes"].as_u64().unwrap() > 0
        );
    }
    let (one, other) = (plan("--shard 1/2"), plan("--shard 2/2"));
    assert!(ids(&one).is_disjoint(&ids(&other)));
    assert_eq!(&ids(&one) | &ids(&other), ids(&whole));
    assert!(
        !place.path().join("runs").exists(),
        "a dry run writes nothing"
    );

    place.ok(&format!("{TINY} --seeds 0..3 --shard 1/2"));
    place.ok(&format!("{TINY} --seeds 0..3 --shard 2/2"));
    let known: BTreeSet<String> = ids(&records(&place));
    assert_eq!(known, ids(&whole));
    let plan = json(&place.ok(&format!("{TINY} --seeds 0..3 --dry-run --json")));
    assert!(plan.iter().all(|cell| cell["state"] == "on file"));
}

#[test]
fn two_sweeps_in_one_folder_share_the_work() {
    let place = Place::new();
    let sweep = || start(place.command(&format!("{TINY} --seeds 0..3 --json")));
    let (one, other) = (sweep(), sweep());
    let mut scored = 0;
    for output in [one, other].map(|sweep| sweep.wait_with_output().unwrap()) {
        assert!(output.status.success(), "{}", err(&output));
        let cells = json(&String::from_utf8(output.stdout).unwrap());
        assert_eq!(cells.len(), 6, "each sweep answers for the whole matrix");
        scored += states(&cells)
            .iter()
            .filter(|state| **state == "scored")
            .count();
        assert!(
            states(&cells)
                .iter()
                .all(|state| ["scored", "on file"].contains(state))
        );
    }
    assert_eq!(scored, 6, "every cell was run, and none twice");
    assert_eq!(records(&place).len(), 6);
}

#[test]
fn an_interrupted_sweep_goes_on_where_it_stopped() {
    let place = Place::new();
    let sweep = start(place.command(LONG));
    let log = || {
        let mut folders = fs::read_dir(place.path().join("runs")).ok()?;
        Some(folders.next()?.ok()?.path())
    };
    until("training has begun", || {
        log().is_some_and(|folder| folder.join("checkpoint.safetensors").exists())
    });
    kill(sweep.id(), libc::SIGINT);
    let output = sweep.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", err(&output));
    let record = &records(&place)[0];
    assert_eq!(record["outcome"]["status"], "interrupted");
    let step = record["outcome"]["step"].as_u64().unwrap();
    assert!(step > 0);

    let plan = json(&place.ok(&format!("{LONG} --dry-run --json")));
    assert_eq!(states(&plan), ["resume"]);
    let sweep = start(place.command(LONG));
    let text = || fs::read_to_string(log().unwrap().join("log.txt")).unwrap();
    until("the run goes on", || text().contains("resuming after step"));
    kill(sweep.id(), libc::SIGTERM);
    assert_eq!(sweep.wait_with_output().unwrap().status.code(), Some(130));
    let later = records(&place)[0]["outcome"]["step"].as_u64().unwrap();
    assert!(later >= step, "{later} is before {step}");
}

#[test]
fn a_killed_run_is_a_failure_that_the_next_sweep_takes_up() {
    let place = Place::new();
    let sweep = start(place.command(LONG));
    until("a checkpoint is written", || saved(&place, "runs"));
    kill(child_of(sweep.id()).unwrap(), libc::SIGKILL);
    let output = sweep.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{}", err(&output));
    assert!(err(&output).contains("signal: 9"), "{}", err(&output));
    let plan = json(&place.ok(&format!("{LONG} --dry-run --json")));
    assert_eq!(states(&plan), ["resume"]);
}

#[test]
fn the_job_script_is_this_sweep_in_shards() {
    let place = Place::new();
    let script = place.ok(&format!(
        "{TINY} --seeds 0..3 --emit slurm --array 2 --memory-limit 1G --estimate --sbatch=--partition=short"
    ));
    // The estimate for so little work is small beside the reserve of ten minutes, however fast the
    // machine.
    for line in [
        "--array=1-2\n",
        "--time=1",
        "--partition=short\n",
        "--requeue\n",
    ] {
        assert!(
            script.contains(&format!("#SBATCH {line}")),
            "{line}: {script}"
        );
    }
    // All cores of a node are those that the element asks for.
    let all = place.ok(&format!("{TINY} --emit slurm --threads 0 --jobs 2"));
    assert!(all.contains("--cpus-per-task=2\n"), "{all}");
    assert!(
        !all.contains("--threads 0") && all.contains("--threads=2"),
        "{all}"
    );
    let last = script.lines().last().unwrap();
    assert!(
        last.contains("sweep --tasks toy --models bag,linear"),
        "{last}"
    );
    assert!(
        ["emit", "--array", "estimate", "sbatch"]
            .iter()
            .all(|word| !last.contains(word)),
        "{last}"
    );
    // An element has room for all runs at a time: a quarter on top of their limit, and their GPUs.
    assert!(script.contains("--mem=1280M\n"), "{script}");
    let of_gpus = format!("{TINY} --seeds 0..3 --emit slurm --devices cuda:0,cuda:1");
    let two = place.ok(&format!("{of_gpus} --memory-limit 1G"));
    for line in [
        "--array=1-3\n",
        "--cpus-per-task=2\n",
        "--mem=2560M\n",
        "--gres=gpu:2\n",
    ] {
        assert!(two.contains(line), "{line}: {two}");
    }
    let each = place.ok(&format!("{of_gpus} --array 100"));
    assert!(each.contains("--array=1-6\n"), "{each}");
    // A shell runs it as an element of the array would.
    let file = place.path().join("job.sh");
    fs::write(&file, &script).unwrap();
    for element in ["1", "2"] {
        let mut shell = Command::new("sh");
        shell.arg(&file).current_dir(place.path());
        shell.env("LRA_DATA", place.path().join("data"));
        let output = shell.env("SLURM_ARRAY_TASK_ID", element).output().unwrap();
        assert!(output.status.success(), "{}", err(&output));
    }
    assert_eq!(records(&place).len(), 6);
}

#[test]
fn the_shell_script_runs_one_part_or_all() {
    let place = Place::new();
    let script = place.ok(&format!("{TINY} --seeds 0..3 --emit shell --array 2"));
    let file = place.path().join("job.sh");
    fs::write(&file, &script).unwrap();
    for (part, expected) in [(Some("2"), 3), (None, 6)] {
        let mut shell = Command::new("sh");
        shell.arg(&file).args(part).current_dir(place.path());
        let output = shell
            .env("LRA_DATA", place.path().join("data"))
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", err(&output));
        assert_eq!(records(&place).len(), expected);
    }
    // An element that fails does not keep the others from running.
    let diverging = TINY.replace("bag,linear", "linear:train.learning_rate=1e30,bag");
    let script = place.ok(&format!("{diverging} --emit shell --out other"));
    fs::write(&file, &script).unwrap();
    let mut shell = Command::new("sh");
    shell.arg(&file).arg("--quiet").current_dir(place.path());
    shell.env("LRA_DATA", place.path().join("data"));
    let output = shell.output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{}", err(&output));
    let ended = fs::read_dir(place.path().join("other")).unwrap().flatten();
    let bags = ended.filter(|it| it.file_name().to_string_lossy().contains("bag"));
    assert_eq!(bags.count(), 1);
    let message = place.fails(2, &format!("{TINY} --emit pbs --sbatch=--partition=short"));
    assert!(message.contains("for --emit slurm"), "{message}");
}

#[test]
fn wrong_words_are_found_before_anything_runs() {
    let place = Place::new();
    for (words, expected) in [
        ("sweep --tasks listop", "did you mean 'listops'?"),
        (
            "sweep --tasks toy --models perfomer",
            "did you mean 'performer'?",
        ),
        ("sweep --tasks toy:nowhere", "unknown source"),
        ("sweep --tasks toy --shard 3/2", "not a shard"),
        (
            "sweep --tasks toy --recipe smoke --set train.stpes=1",
            "did you mean 'train.steps'?",
        ),
    ] {
        let message = place.fails(2, words);
        assert!(message.contains(expected), "{words}: {message}");
    }
    assert!(!place.path().join("runs").exists());
}

#[test]
fn a_search_runs_every_point_and_names_the_best() {
    let place = Place::new();
    let grid = "--grid train.learning_rate=1e-3,1e-4 --grid block.dropout=0,0.1 --devices cpu,cpu";
    let told = place.ok(&format!("{TINY} {grid} --seeds 0..2"));
    assert!(
        told.contains("Best settings by validation accuracy"),
        "{told}"
    );
    let best = told
        .lines()
        .filter(|line| line.contains("train.learning_rate=") && line.contains(" 4 "));
    assert_eq!(
        best.count(),
        2,
        "a row for each model, of four points: {told}"
    );
    assert_eq!(records(&place).len(), 16);
    let plan = format!("{TINY} --grid train.learning_rate=1e-4..1e-2 --trials 3 --dry-run --json");
    assert_eq!(json(&place.ok(&plan)).len(), 6);
    let message = place.fails(2, &format!("{TINY} --grid train.learning_rate=1e-4..1e-2"));
    assert!(message.contains("--trials"), "{message}");
}

/// No machine has a GPU of this number, so the run that gets it fails.
#[test]
fn runs_are_dealt_to_the_devices() {
    let place = Place::new();
    let output = place.lra(&format!("{TINY} --devices cpu,cuda:4096 --json"));
    assert!(!output.status.success());
    let cells = json(&String::from_utf8(output.stdout).unwrap());
    assert_eq!(states(&cells), ["scored", "failed"]);
    for (cell, device) in cells.iter().zip(["cpu", "cuda:4096"]) {
        let folder = place.path().join(cell["folder"].as_str().unwrap());
        let log = fs::read_to_string(folder.join("log.txt")).unwrap();
        assert!(log.contains(&format!("--device={device} ")), "{log}");
    }
}

#[test]
fn cells_of_a_file_are_done_and_two_files_become_one() {
    let place = Place::new();
    let sweep = |words: &str| json(&place.ok(&format!("{TINY} --json {words}")));
    let one = TINY.replace("bag,linear", "bag");
    let first = json(&place.ok(&format!("{one} --json --out first")));
    assert_eq!(states(&first), ["scored"]);
    place.ok("merge first --output first.csv");
    let both = sweep("--out second --on-file first.csv");
    assert_eq!(states(&both), ["on file", "scored"]);
    let message = place.fails(2, "merge second --output first.csv");
    assert!(message.contains("first.csv is there already"), "{message}");
    // Of two at once, neither loses what the other adds.
    place.ok(&format!("{one} --seeds 1 --out third"));
    let merges = ["second", "third"].map(|added| {
        let words = format!("merge first.csv {added} --output first.csv");
        place.command(&words).spawn().unwrap()
    });
    for mut merge in merges {
        assert!(merge.wait().unwrap().success());
    }
    assert!(!place.path().join(".first.csv.lock").exists());
    let rows = fs::read_to_string(place.path().join("first.csv")).unwrap();
    assert_eq!(rows.lines().count(), 1 + 3, "{rows}");
    place.ok("merge first.csv second --output first.csv");
    let every = sweep("--out third --on-file first.csv");
    assert_eq!(states(&every), ["on file", "on file"]);
    assert!(
        !place
            .path()
            .join("third")
            .join(ids(&every).first().unwrap())
            .exists()
    );
    // Tables of the file equal those of the folders.
    let of = |path: &str| place.ok(&format!("report {path} --table accuracy --format csv"));
    let table = of("first.csv");
    assert!(
        table.contains("bag,measured") && table.contains("linear,measured"),
        "{table}"
    );
    let text = fs::read_to_string(place.path().join("first.csv")).unwrap();
    let record = place.path().join(first[0]["folder"].as_str().unwrap());
    let record = fs::read_to_string(record.join("record.json")).unwrap();
    let record: Value = serde_json::from_str(&record).unwrap();
    let loss = record["scores"]["train_loss"].to_string();
    assert_eq!(text.matches(&loss).count(), 1, "{text}");
    let changed = text.replace(&loss, "0.5");
    fs::write(place.path().join("changed.csv"), changed).unwrap();
    let message = place.fails(3, "merge first.csv changed.csv --output both.csv");
    assert!(
        message.contains("first.csv, line") && message.contains("scores"),
        "{message}"
    );
    let message = place.fails(
        3,
        &format!("{TINY} --on-file first.csv --on-file changed.csv"),
    );
    assert!(message.contains("changed.csv, line"), "{message}");
    fs::write(place.path().join("none.csv"), "schema,id\n1,a\n").unwrap();
    let message = place.fails(3, &format!("{TINY} --on-file none.csv"));
    assert!(message.contains("none.csv, line 2"), "{message}");
}

#[test]
fn a_probe_finds_the_rate_with_the_least_validation_loss() {
    let place = Place::new();
    let recipe = "about = ''\nsource = ''\n[probe]\nlearning_rates = [1e-9, 1e-2]\nshare = 0.5\n[families.xformer]\n\
                  [tasks.toy]\ntrain = { steps = 60, warmup = 4 }\ndata = { train = 256, val = 64, test = 16 }\n";
    fs::write(place.path().join("own.toml"), recipe).unwrap();
    let words = "sweep --tasks toy --models bag --recipe own.toml --probe --quiet";
    let text = place.ok(words);
    let line = "{ task = \"toy\", model = \"bag\", family = \"xformer\", learning_rate = 1e-2 },";
    assert!(text.contains(line), "{text}");
    let settings: Vec<Value> = records(&place)
        .iter()
        .map(|it| it["scores"]["steps"].clone())
        .collect();
    assert_eq!(settings, [30, 30], "half of the steps");
    // The line can be put into the recipe.
    let found = format!("rates = [{}]\n{recipe}", line.trim_end_matches(','));
    fs::write(place.path().join("own.toml"), found).unwrap();
    let cells = json(&place.ok(&format!(
        "{} --json",
        words.replace("--probe", "--steps 2 --out whole")
    )));
    let folder = place.path().join(cells[0]["folder"].as_str().unwrap());
    let spec = fs::read_to_string(folder.join("spec.toml")).unwrap();
    assert!(spec.contains("learning_rate = 0.01"), "{spec}");
    // A part of the rates has no best one, and a rate that is given is not searched.
    place.fails(2, &format!("{words} --shard 1/2"));
    let given = place.fails(2, &format!("{words} --set train.learning_rate=5e-3"));
    assert!(
        given.contains("leave out train.learning_rate=5e-3"),
        "{given}"
    );
    let message = place.fails(2, "sweep --tasks toy --models bag --recipe smoke --probe");
    assert!(message.contains("mini"), "{message}");
}

#[test]
fn a_grid_passes_over_runs_that_were_resumed_after_changes() {
    let place = Place::new();
    let grid = TINY.replace("bag,linear", "linear") + " --grid train.learning_rate=1e-3,1e-4";
    place.ok(&grid);
    let folders = fs::read_dir(place.path().join("runs")).unwrap();
    for path in folders.map(|folder| folder.unwrap().path().join("record.json")) {
        let mut record: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        if record["recipe"]["overrides"].to_string().contains("1e-3") {
            record["accepted_changes"] = serde_json::json!(["it was run on other data"]);
            record["scores"]["val_accuracy"] = 0.99.into();
            fs::write(&path, record.to_string()).unwrap();
        }
    }
    let told = place.ok(&grid);
    assert!(!told.contains("99.00"), "{told}");
    assert!(told.contains("1 of 1 seed"), "{told}");
}

/// A copy of a run's folder is not the run, as for `lra run`.
#[test]
fn a_copied_folder_is_not_on_file() {
    let place = Place::new();
    let sweep = TINY.replace("bag,linear", "linear") + " --json --quiet";
    place.ok(&sweep);
    let own = place.run_folder("runs");
    fs::rename(&own, place.path().join("runs").join("copy")).unwrap();
    assert_eq!(states(&json(&place.ok(&sweep))), ["scored"]);
    assert!(own.join("record.json").is_file());
}

/// Runs a job as `qsub` of PBS does: every element from a copy of the script, in the home folder,
/// with no variables of the shell but those that `-v` names. One that is not set there is empty.
const QSUB: &str = r#"
set -eu
cp "$1" "$HOME/copy"
elements=$(sed -n 's/^#PBS -J 1-//p' "$1")
names=$(sed -n 's/^#PBS -v //p' "$1" | tr , ' ')
set -- "PATH=$PATH" "HOME=$HOME" "PBS_O_WORKDIR=$PWD"
for name in $names; do
  eval "value=\${$name-}"
  set -- "$@" "$name=$value"
done
cd "$HOME"
for element in $(seq "${elements:-1}"); do
  env -i "$@" ${elements:+"PBS_ARRAY_INDEX=$element"} sh copy > log 2>&1 || { cat log >&2; exit 1; }
done
"#;

/// A stand-in for `qsub` runs the script for PBS: an array, and a job of one element.
#[test]
fn the_script_for_pbs_runs_each_element_in_the_folder_of_its_submission() {
    let place = Place::new();
    let home = place.path().join("home");
    fs::create_dir(&home).unwrap();
    fs::write(place.path().join("qsub"), QSUB).unwrap();
    for (words, array, expected) in [
        ("--seeds 0..3 --array 2", "#PBS -J 1-2\n", 6),
        ("--seeds 3 --array 1", "", 8),
    ] {
        let script = place.ok(&format!("{TINY} {words} --emit pbs"));
        assert!(script.contains(array), "{script}");
        assert_eq!(script.contains("#PBS -J"), !array.is_empty(), "{script}");
        fs::write(place.path().join("job.sh"), &script).unwrap();
        let mut shell = Command::new("sh");
        shell.args(["qsub", "job.sh"]).current_dir(place.path());
        shell
            .env("HOME", &home)
            .env("LRA_DATA", place.path().join("data"));
        let output = shell
            .env_remove("LRA")
            .env_remove("LRA_LOCKS")
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", err(&output));
        assert_eq!(records(&place).len(), expected);
    }
    // The folder of data is that of the shell that submitted the job.
    assert!(place.path().join("data/store").is_dir());
    assert!(!home.join(".cache").exists() && !home.join("runs").exists());
}

/// A shell runs the command of the job for Kubernetes with the indices that it counts from 0.
#[test]
fn the_command_for_kubernetes_runs_the_part_of_its_index() {
    let place = Place::new();
    let job = place.ok(&format!("{TINY} --seeds 0..3 --emit kubernetes --array 2"));
    assert!(job.contains("\n  completions: 2\n"), "{job}");
    let command = job.lines().find(|line| line.contains("exec lra "));
    let programs = Path::new(env!("CARGO_BIN_EXE_lra")).parent();
    let path = format!(
        "{}:{}",
        programs.unwrap().display(),
        std::env::var("PATH").unwrap()
    );
    for (index, expected) in [("1", 3), ("0", 6)] {
        let mut shell = Command::new("sh");
        shell
            .args(["-c", command.unwrap()])
            .current_dir(place.path());
        shell
            .env("PATH", &path)
            .env("LRA_DATA", place.path().join("data"));
        let output = shell.env("JOB_COMPLETION_INDEX", index).output().unwrap();
        assert!(output.status.success(), "{}", err(&output));
        assert_eq!(records(&place).len(), expected);
    }
}

/// A program that is built again, as that of an own model is, has another file at its path.
#[cfg(target_os = "linux")]
#[test]
fn a_sweep_goes_on_with_the_program_it_began_with() {
    let place = Place::new();
    let program = place.path().join("program");
    fs::copy(env!("CARGO_BIN_EXE_lra"), &program).unwrap();
    let words =
        "sweep --tasks toy --models bag,linear --recipe smoke --steps 2 --quiet --seeds 0..3";
    let mut sweep = Command::new(&program)
        .args(words.split_whitespace())
        .current_dir(place.path())
        .env("LRA_DATA", place.path().join("data"))
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    while !place.path().join("runs").exists() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    fs::remove_file(&program).unwrap();
    fs::write(&program, "another").unwrap();
    assert!(sweep.wait().unwrap().success());
    let records = fs::read_dir(place.path().join("runs")).unwrap();
    let records = records.filter(|run| run.as_ref().unwrap().path().join("record.json").exists());
    assert_eq!(records.count(), 6);
}
