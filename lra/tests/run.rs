//! A cell from the command line to the tables.

#![allow(clippy::unwrap_used)]

use std::fs;

use crate::common::{self, Place, TINY};
use serde_json::Value;

#[test]
fn a_dry_run_prints_every_setting_and_leaves_nothing() {
    let place = Place::new();
    let words = "run --task toy --model s4d --recipe smoke --set block.dim=24 --dry-run";
    let told = place.ok(words);
    let settings: toml::Table = told.parse().unwrap();
    assert_eq!(settings["block"]["dim"].as_integer(), Some(24));
    assert!(told.starts_with("# toy-s4d-smoke-s0-"), "{told}");
    let told: Value =
        serde_json::from_str(&place.ok(&format!("{words} --seeds 0..2 --json"))).unwrap();
    assert_eq!(told[1]["settings"]["cell"]["seed"], 1);
    assert!(told[1]["parameters"].as_u64() > Some(0));
    assert!(!place.path().join("runs").exists());
    place.fails(2, &format!("{words} --set model.state=none"));
    place.fails(2, &format!("{words} --force"));
}

/// The recipe plans its schedule for a part of its updates.
#[test]
fn fewer_steps_have_a_schedule_of_their_length() {
    let place = Place::new();
    let train = |words: &str| {
        let words =
            format!("run --task text --model s4d --recipe liquid-s4 --dry-run --json {words}");
        let told: Value = serde_json::from_str(&place.ok(&words)).unwrap();
        let train = &told["settings"]["train"];
        ["steps", "schedule_steps"].map(|name| train[name].as_u64())
    };
    assert_eq!(train(""), [Some(156_250), Some(50_000)]);
    // A length that is that of the run is not written.
    assert_eq!(train("--steps 2000"), [Some(2000), None]);
    let planned = "--steps 2000 --set train.schedule_steps=1500";
    assert_eq!(train(planned), [Some(2000), Some(1500)]);
}

/// The scores are those of the last weights, whichever validation was best.
#[test]
fn the_chosen_step_is_that_of_the_scored_weights() {
    let place = Place::new();
    let words = "run --task toy --model bag --recipe smoke --quiet --steps 12 --set train.eval_every=1 \
        --set train.learning_rate=0.3 --set train.warmup=0";
    place.ok(&format!("{words} --out best"));
    place.ok(&format!("{words} --set train.select=last --out last"));
    let scores = |out: &str| place.record(out)["scores"].take();
    let (best, last) = (scores("best"), scores("last"));
    assert_eq!(last["best_step"], 12);
    assert!(best["best_step"].as_u64() < Some(12), "{best}");
}

/// Batches of rows sorted by length have fewer tokens than those padded to the maximum.
#[test]
fn tokens_and_operations_are_those_of_the_batches_as_they_are() {
    let place = Place::new();
    let speed = |words: &str, out: &str| {
        place.ok(&format!(
            "run --task listops --model linear --recipe smoke --quiet --steps 30 --set data.max_length=200 {words} --out {out}"
        ));
        let speed = place.record(out)["speed"].take();
        let number = |name: &str| speed[name].as_f64().unwrap();
        let tokens = number("tokens_per_second") / number("examples_per_second");
        (tokens, number("flops_per_step"))
    };
    let (padded, operations) = speed("", "padded");
    assert!((padded - 200.0).abs() < 1e-6, "{padded}");
    let (tokens, fewer) = speed("--set train.bucket=8", "sorted");
    assert!(tokens > 16.0 && tokens < 150.0, "{tokens}");
    let (share, of_operations) = (tokens / padded, fewer / operations);
    assert!(
        (of_operations - share).abs() < 0.1,
        "{share} {of_operations}"
    );
}

#[test]
fn every_model_goes_from_the_command_line_to_the_table() {
    let place = Place::new();
    let listed: Value = serde_json::from_str(&place.ok("list models --json")).unwrap();
    for model in listed.as_array().unwrap() {
        let name = model["name"].as_str().unwrap();
        place.ok(&format!("{TINY} --model {name}"));
    }
    for table in ["accuracy", "speed", "memory"] {
        let text = place.ok(&format!("report --table {table}"));
        for model in listed.as_array().unwrap() {
            assert!(text.contains(model["name"].as_str().unwrap()), "{text}");
        }
        assert!(
            text.lines().all(|line| line.chars().count() <= 100),
            "{text}"
        );
    }
    // The tables that a page has markers for, and no others.
    let page = place.path().join("page.md");
    let marker = |name: &str| format!("<!-- lra:{name} -->\n<!-- /lra:{name} -->\n");
    fs::write(&page, marker("speed") + &marker("comparison")).unwrap();
    place.ok("report --splice page.md");
    let text = fs::read_to_string(&page).unwrap();
    for found in [
        "**Training speed",
        "| synthesizer",
        "recipe smoke",
        "not comparable",
    ] {
        assert!(text.contains(found), "{found}: {text}");
    }
    assert!(!text.contains("Peak memory"), "{text}");
}

#[test]
fn toy_is_learned() {
    let place = Place::new();
    let recipe = "about = 'test'\nsource = 'own'\n[tasks.toy]\n\
        embed = { positions = 'learned', dropout = 0.0 }\n\
        block = { layers = 2, dim = 32, qkv_dim = 32, heads = 2, mlp_dim = 64, dropout = 0.0, attention_dropout = 0.0 }\n\
        head = { pooling = 'mean', hidden = 32 }\n\
        train = { steps = 400, batch = 32, learning_rate = 2e-3, schedule = 'cosine', warmup = 40, eval_every = 100 }\n";
    fs::write(place.path().join("toy.toml"), recipe).unwrap();
    let json = place.ok("run --task toy --model transformer --recipe toy.toml --json");
    let record: Value = serde_json::from_str(&json).unwrap();
    let majority = record["baselines"][0]["accuracy"].as_f64().unwrap();
    let score = record["scores"]["test_accuracy"].as_f64().unwrap();
    assert!(
        score > majority + 0.2,
        "{score} is not far above {majority}"
    );
}

/// A run of an earlier version by a recipe that is gone.
#[test]
fn an_old_record_is_shown_and_its_recipe_told() {
    let place = Place::new();
    let old = include_str!("../../results/tests/records/version-1.json");
    let folder = place.path().join("runs/old");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("record.json"), old).unwrap();
    let output = place.lra("report --table accuracy");
    assert!(output.status.success(), "{}", common::err(&output));
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(
        table.contains("38.45") && table.contains("recipe laptop"),
        "{table}"
    );
    let told = common::err(&output);
    assert!(
        told.contains("recipe laptop, which this program does not have: mini replaced laptop"),
        "{told}"
    );
    place.ok("merge runs --output old.csv");
    assert_eq!(place.ok("report old.csv --table accuracy"), table);
}

/// A store that is marked as altered marks every run on it.
#[test]
fn runs_on_altered_data_say_so() {
    let place = Place::new();
    let words = "run --task toy --model bag --recipe smoke --quiet";
    place.ok(words);
    assert_eq!(place.record("runs")["task"]["altered"], Value::Null);
    let entry = fs::read_dir(place.path().join("data/store")).unwrap();
    let mut folders = entry.map(|entry| entry.unwrap().path());
    let entry = folders.find(|path| path.is_dir()).unwrap();
    let path = entry.join("manifest.json");
    let mut manifest: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    manifest["altered"] = serde_json::json!(["one row is another"]);
    fs::write(&path, manifest.to_string()).unwrap();

    let shown = place.ok(&format!("{words} --force"));
    assert!(shown.contains("ALTERED: one row is another"), "{shown}");
    let record = place.record("runs");
    assert_eq!(record["task"]["altered"][0], "one row is another");
    let table = place.ok("report --table accuracy");
    assert!(table.contains("(altered)"), "{table}");
}

#[test]
fn the_record_is_complete() {
    let place = Place::new();
    place.ok(&format!("{TINY} --model linear"));
    let record = place.record("runs");
    assert_eq!(record["outcome"]["status"], "scored");
    for pointer in [
        "/task/data_digest",
        "/spec_digest",
        "/host/cpu",
        "/host/instructions",
        "/versions/candle",
        "/scores/test_accuracy",
        "/scores/val_accuracy",
        "/scores/train_loss",
        "/speed/steps_per_second/median",
        "/speed/phases/backward",
        "/memory/peak_bytes",
        "/memory/base_bytes",
        "/memory/resident_bytes",
        "/model/parameters",
    ] {
        let value = record.pointer(pointer).unwrap_or(&Value::Null);
        assert!(
            value.as_str().is_some_and(|text| !text.is_empty())
                || value.as_f64().is_some_and(|x| x > 0.0),
            "{pointer}"
        );
    }
    assert_eq!(record["scores"]["steps"], 20);
    assert_eq!(record["recipe"]["overrides"].as_array().unwrap().len(), 3);
    let baselines: Vec<_> = record["baselines"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["name"].clone())
        .collect();
    assert!(baselines.len() >= 3, "{baselines:?}");
}

#[test]
fn speed_counts_the_examples_that_there_are() {
    let place = Place::new();
    let json = place.ok(&format!(
        "{TINY} --model bag --steps 6 --set train.batch=4096 --json"
    ));
    let record: Value = serde_json::from_str(&json).unwrap();
    let speed = |key: &str| record["speed"][key].as_f64().unwrap();
    let steps = record["speed"]["steps_per_second"]["median"]
        .as_f64()
        .unwrap();
    // 200 rows of up to 64 tokens, regardless of the batch size.
    let examples = speed("examples_per_second") / steps;
    assert!(
        (examples - 200.0).abs() < 1e-6,
        "{examples} examples per step"
    );
    let tokens = speed("tokens_per_second") / steps;
    assert!(
        (tokens - 200.0 * 64.0).abs() < 1e-3,
        "{tokens} tokens per step"
    );
    let flops = speed("achieved_flops_per_second") / speed("flops_per_step");
    assert!((flops / steps - 1.0).abs() < 1e-6);
}

#[test]
fn a_recipe_of_ones_own_is_never_set_beside_published_figures() {
    let place = Place::new();
    let recipe = |steps: usize| {
        let text = format!(
            "about = 'mine'\nsource = 'mine'\npublished = true\n\n[tasks.pathfinder]\n\
             data = {{ train = 160, val = 20, test = 20 }}\n\
             block = {{ layers = 1, dim = 8, qkv_dim = 8, heads = 1, mlp_dim = 8 }}\n\
             train = {{ steps = {steps}, batch = 2 }}\n"
        );
        fs::write(place.path().join("nystromformer.toml"), text).unwrap();
    };
    let words = "--task pathfinder --model linear --recipe nystromformer.toml --quiet";
    let mut names = Vec::new();
    for steps in [2, 3] {
        recipe(steps);
        let json = place.ok(&format!("run {words} --json"));
        let record: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(record["recipe"]["published"], false);
        names.push(record["recipe"]["name"].as_str().unwrap().to_owned());
    }
    assert!(
        names[0].starts_with("file:nystromformer@") && names[0] != names[1],
        "two contents are two recipes: {names:?}"
    );
    let table = place.ok("report --table comparison --against tay2021");
    let words = table.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains(&format!("recipe {} is not published", names[0])),
        "{table}"
    );
    // A sweep knows it by the same name, and finds its runs again.
    let sweep = "sweep --tasks pathfinder --models linear --recipe nystromformer.toml --json";
    let cells: Value = serde_json::from_str(&place.ok(sweep)).unwrap();
    assert_eq!(cells[0]["recipe"], names[1].as_str());
    assert_eq!(cells[0]["state"], "on file");
}

#[test]
fn a_finished_run_is_shown_and_not_repeated() {
    let place = Place::new();
    let first = place.ok(&format!("{TINY} --model bag --json"));
    let second = place.ok(&format!("{TINY} --model bag --json"));
    assert_eq!(first, second, "the record on file is printed");
    let third: Value =
        serde_json::from_str(&place.ok(&format!("{TINY} --model bag --json --force"))).unwrap();
    assert_eq!(third["outcome"]["status"], "scored");
}

#[test]
fn without_a_terminal_there_are_no_bars_and_no_colours() {
    let place = Place::new();
    let output = place.lra("run --task toy --model bag --recipe smoke");
    assert!(output.status.success());
    let rows = "2,000 / 256 / 256 examples of up to 32 tokens";
    assert!(
        common::err(&output).contains(rows),
        "{}",
        common::err(&output)
    );
    for stream in [&output.stdout, &output.stderr] {
        assert!(
            !stream.contains(&0x1b) && !stream.contains(&b'\r'),
            "{}",
            String::from_utf8_lossy(stream)
        );
    }
}

#[test]
fn running_out_of_memory_is_a_record_wherever_it_happens() {
    let place = Place::new();
    // 20 MiB of weights, 40 MiB of their moments, then gradients: the limits are reached at each of
    // them.
    let words = format!(
        "{TINY} --force --model transformer --threads 2 --set block.dim=512 --set block.qkv_dim=512 \
         --set block.mlp_dim=4096"
    );
    let least = place.least_limit();
    for (more, weights_fit) in [(0, false), (8, false), (24, true), (40, true), (56, true)] {
        let limit = least + more;
        let message = place.fails(4, &format!("{words} --memory-limit {limit}M"));
        assert!(message.contains("out of memory"), "{message}");
        let record = place.record("runs");
        assert_eq!(record["outcome"]["status"], "out_of_memory", "{limit} MiB");
        let weights = 4 * record["model"]["parameters"].as_u64().unwrap();
        assert_eq!(weights < more << 20, weights_fit, "{weights} bytes");
    }
    assert!(place.ok("report --table accuracy").contains("transformer"));
}

#[test]
fn a_memory_limit_that_leaves_no_room_is_a_usage_error_that_says_what_would() {
    let place = Place::new();
    let run = "run --task toy --model bag --recipe smoke --memory-limit";
    let message = place.fails(2, &format!("{run} 2M --threads 2"));
    assert!(
        message.contains("with --threads 2 the program holds"),
        "{message}"
    );
    let more = place.fails(2, &format!("{run} 2M --threads 8"));
    assert!(more.contains("with --threads 8"), "{more}");
    assert!(!place.run_folder("runs").join("record.json").exists());
    let least = place.least_limit();
    place.fails(2, &format!("{run} {}M --threads 2", least - 2));
    place.fails(2, &format!("{run} {least}M --threads 8"));
    place.ok(&format!("{run} {}M --threads 2", least + 16));
}

#[test]
fn peaks_hang_neither_on_the_buffers_of_threads_nor_on_who_works_when() {
    let place = Place::new();
    let mut memory = Vec::new();
    for (out, threads) in [("one", 2), ("again", 2), ("many", 8)] {
        place.ok(&format!(
            "{TINY} --model transformer --threads {threads} --out {out}"
        ));
        let record = place.record(out);
        let of = |name: &str| record["memory"][name].as_f64().unwrap();
        memory.push((of("peak_bytes"), of("base_bytes")));
    }
    let apart = |a: f64, b: f64| (a - b).abs() / a;
    let [(one, base), (again, _), (many, wide)] = memory[..] else {
        panic!("three runs")
    };
    assert!(apart(one, again) < 0.01, "{memory:?}");
    assert!(apart(one, many) < 0.1, "{memory:?}");
    // Three quarters of the base are per thread.
    assert!(wide > 2.0 * base, "{memory:?}");
}

#[test]
fn running_out_of_memory_while_data_are_built_is_a_record() {
    let place = Place::new();
    let limit = place.least_limit() + 1;
    let words = "run --task toy --model bag --recipe smoke --threads 2 --set data.train=1000000";
    let message = place.fails(4, &format!("{words} --memory-limit {limit}M"));
    assert!(message.contains("out of memory"), "{message}");
    let record = place.record("runs");
    assert_eq!(record["outcome"]["status"], "out_of_memory");
    assert_eq!(record["task"]["data_digest"], "");
    assert_eq!(record["memory"], Value::Null);
}

/// Runs a command in a shell under a limit on its addresses, in KiB.
#[cfg(target_os = "linux")]
fn within_addresses(place: &Place, kib: u64, words: &str) -> std::process::Output {
    let command = place.command(words);
    let mut shell = std::process::Command::new("sh");
    shell
        .args(["-c", "ulimit -v \"$0\" && exec \"$@\"", &kib.to_string()])
        .arg(command.get_program())
        .args(command.get_args())
        .current_dir(place.path())
        .env("LRA_DATA", place.path().join("data"));
    shell.output().unwrap()
}

/// Returns the most addresses, in KiB, that a command was observed to have.
#[cfg(target_os = "linux")]
fn addresses(place: &Place, words: &str) -> u64 {
    let mut child = place
        .command(words)
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut most = 0;
    while child.try_wait().unwrap().is_none() {
        let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("VmPeak:"));
        let seen = line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok());
        most = most.max(seen.unwrap_or(0));
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    assert!(child.wait().unwrap().success());
    most
}

#[cfg(target_os = "linux")]
#[test]
fn a_limit_on_addresses_that_leaves_no_room_is_a_usage_error() {
    let place = Place::new();
    let run = "run --task toy --model bag --recipe smoke --threads 2 --quiet --force";
    let mut refused = 0;
    // Below some limit the system cannot load the program, regardless of its arguments.
    let loads = |kib: &u64| within_addresses(&place, *kib, "--version").status.success();
    for kib in (50_000..350_000).step_by(20_000).filter(loads) {
        let output = within_addresses(&place, kib, run);
        let message = common::err(&output);
        match output.status.code() {
            Some(0) => assert!(refused > 0, "{kib} KiB: nothing was refused before"),
            Some(2) if message.contains("ulimit -v") && message.contains("--threads") => {
                refused += 1
            }
            code => panic!("{kib} KiB: {code:?}: {message}"),
        }
    }
    assert!(refused > 1, "{refused} refused");
}

#[cfg(target_os = "linux")]
#[test]
fn a_system_without_more_memory_is_a_record() {
    let place = Place::new();
    // A small run shows the addresses that code, threads and the allocator's reserves take on this
    // machine. A quarter of a gigabyte more does not hold half a gigabyte of weights.
    let small = "run --task toy --model bag --recipe smoke --threads 2 --quiet";
    let limit = addresses(&place, &format!("{small} --out first")) + (256 << 10);
    let output = within_addresses(&place, limit, &format!("{small} --out small"));
    assert!(output.status.success(), "{}", common::err(&output));

    let large = "run --task toy --model transformer --recipe smoke --threads 2 --quiet --set block.dim=4096 \
                 --set block.qkv_dim=4096";
    // Once with a limit of our own that is never reached, once with the one derived from the limit
    // on addresses.
    for own in ["--memory-limit 1T", ""] {
        let output = within_addresses(&place, limit, &format!("{large} {own} --force"));
        let message = common::err(&output);
        assert_eq!(output.status.code(), Some(4), "{own}: {message}");
        assert!(message.contains("error: out of memory: "), "{message}");
        let record = place.record("runs");
        assert_eq!(record["outcome"]["status"], "out_of_memory", "{own}");
        let reason = record["outcome"]["reason"].as_str().unwrap();
        assert!(
            own.is_empty() || reason.starts_with("the system has no "),
            "{reason}"
        );
    }
}

/// A control group kills a process that exceeds its limit without a message, and counts more than
/// the heap.
#[cfg(target_os = "linux")]
#[test]
fn a_run_that_comes_near_the_limit_of_its_control_group_is_a_record() {
    let place = Place::new();
    let at = |name: &str| place.path().join(name);
    for folder in ["self", "groups/job"] {
        fs::create_dir_all(at(folder)).unwrap();
    }
    let mount = at("groups").display().to_string();
    let mount = format!("30 23 0:26 / {mount} rw - cgroup2 cgroup2 rw\n");
    for (file, text) in [
        ("self/cgroup", "0::/job\n"),
        ("self/mountinfo", mount.as_str()),
        ("groups/job/memory.max", "134217728\n"),
        ("groups/job/memory.current", "0\n"),
    ] {
        fs::write(at(file), text).unwrap();
    }
    let within = |words: &str| {
        let mut command = place.command(words);
        command.env("LRA_PROC_SELF", at("self")).output().unwrap()
    };
    let small = "run --task toy --model bag --recipe smoke --threads 2 --quiet --memory-limit 1T";
    let output = within(&format!("{small} --out small"));
    assert!(output.status.success(), "{}", common::err(&output));
    // A limit of our own on the heap is not reached: the limit on the resident size is.
    let large = "run --task toy --model transformer --recipe smoke --threads 2 --quiet --memory-limit 1T \
                 --set block.dim=2048 --set block.qkv_dim=2048 --set block.mlp_dim=2048";
    let output = within(large);
    let message = common::err(&output);
    assert_eq!(output.status.code(), Some(4), "{message}");
    assert!(message.contains("error: out of memory: "), "{message}");
    let outcome = place.record("runs")["outcome"].clone();
    assert_eq!(outcome["status"], "out_of_memory");
    let reason = outcome["reason"].as_str().unwrap();
    assert!(reason.contains("control group"), "{reason}");
    // Large blocks that are written long after they were allocated count before they are: else the
    // resident size itself passes the limit, where the system kills.
    let late = "run --task toy --model lstm --recipe smoke --steps 2 --quiet --memory-limit 1T --set train.batch=1024 \
                --set block.dim=64 --out late";
    let output = within(late);
    let message = common::err(&output);
    assert_eq!(output.status.code(), Some(4), "{message}");
    let resident = message.split_once("more than the resident ");
    let resident = resident.and_then(|(_, rest)| rest.split_once(" MiB"));
    let resident: f64 = resident.unwrap().0.parse().unwrap();
    assert!(resident < 128.0, "{message}");
    // A limit that the program itself is over is told before anything is trained.
    fs::write(at("groups/job/memory.max"), "16777216\n").unwrap();
    let output = within(&format!("{small} --out never"));
    let message = common::err(&output);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(
        message.contains("the control group's limit of 16384 KiB of memory is too low"),
        "{message}"
    );
    assert!(!at("never").exists());
}

/// At width 1 there is no pair of sine and cosine, so a parameter is empty.
#[test]
fn a_model_with_an_empty_parameter_trains() {
    let place = Place::new();
    for optimizer in ["adamw", "lion"] {
        place.ok(&format!(
            "run --task toy --model transformer_xl --recipe smoke --steps 2 --quiet --set block.dim=1 --set train.optimizer={optimizer}"
        ));
    }
}

#[test]
fn a_diverging_run_is_a_record() {
    let place = Place::new();
    let settings = "--set train.learning_rate=1e30 --set train.clip=0.0 --set train.warmup=0 --set train.schedule=constant";
    let output = place.lra(&format!("{TINY} --model transformer {settings}"));
    assert_eq!(output.status.code(), Some(4));
    assert_eq!(place.record("runs")["outcome"]["status"], "diverged");
}

/// The seeds before one that is refused ran, and a script reads them.
#[test]
fn json_has_the_seeds_before_one_that_is_refused() {
    let place = Place::new();
    let words = "run --task toy --model bag --recipe smoke --steps 2 --quiet";
    place.ok(&format!("{words} --seed 1"));
    let folder = place.run_folder("runs");
    fs::write(folder.join("record.json"), "{").unwrap();
    let output = place.lra(&format!("{words} --seeds 0,1,2 --json"));
    assert_eq!(output.status.code(), Some(3));
    let records: Value = serde_json::from_slice(&output.stdout).unwrap();
    let seeds = records.as_array().unwrap().iter();
    let seeds: Vec<u64> = seeds.map(|it| it["seed"].as_u64().unwrap()).collect();
    assert_eq!(seeds, [0]);
}

#[test]
fn a_model_takes_settings_and_seeds_are_a_list_as_in_a_sweep() {
    let place = Place::new();
    let words = "run --task toy --model linear:block.norm=rms --recipe smoke --steps 4 --seeds 0,2 --quiet --json";
    let records: Value = serde_json::from_str(&place.ok(words)).unwrap();
    let seeds: Vec<u64> = records
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["seed"].as_u64().unwrap())
        .collect();
    assert_eq!(seeds, [0, 2]);
    let overrides = records[0]["recipe"]["overrides"].to_string();
    assert!(overrides.contains("block.norm=rms"), "{overrides}");
    let sweep = "sweep --tasks toy --models linear:block.norm=rms --recipe smoke --steps 4 --seeds 0,2 --json";
    assert!(
        !place.ok(sweep).contains("\"scored\""),
        "the same cells are on file"
    );
    assert!(
        place
            .fails(2, &words.replace("0,2", "2,2"))
            .contains("twice")
    );
}

/// The settings of a run are a recipe: the same run by it has the same losses.
#[test]
fn the_settings_of_a_run_are_a_recipe() {
    let place = Place::new();
    let run = "run --task toy --model linear --recipe smoke --steps 4 --set block.norm=rms --set data.permute=3 --quiet";
    place.ok(run);
    let spec = place.run_folder("runs").join("spec.toml");
    let spec = spec.strip_prefix(place.path()).unwrap().display();
    let again = format!("run --task toy --model linear --recipe {spec} --quiet --out again");
    place.ok(&again);
    let log = |out: &str| fs::read(place.run_folder(out).join("metrics.jsonl")).unwrap();
    assert!(log("runs") == log("again"));
    let record = place.record("again");
    let recipe = record["recipe"]["name"].as_str().unwrap();
    assert!(recipe.starts_with("file:spec@"), "{recipe}");
    assert_eq!(record["recipe"]["published"], false);

    let path = place.path().join("damaged.toml");
    let text = fs::read_to_string(place.run_folder("runs").join("spec.toml")).unwrap();
    fs::write(&path, text.replace("layers = 1", "layers = \"one\"")).unwrap();
    let message = place.fails(2, "run --task toy --model linear --recipe damaged.toml");
    assert!(message.contains("block.layers"), "{message}");
}

/// The tokens of both sequences of a pair count.
#[test]
fn speed_counts_the_tokens_of_both_sequences() {
    let place = Place::new();
    let json = place.ok("run --task retrieval:synthetic --model bag --recipe smoke --quiet --json");
    let record: Value = serde_json::from_str(&json).unwrap();
    let speed = |key: &str| record["speed"][key].as_f64().unwrap();
    let tokens = speed("tokens_per_second") / speed("examples_per_second");
    assert!(
        (tokens - 2.0 * 128.0).abs() < 1e-6,
        "{tokens} tokens per example"
    );
}
