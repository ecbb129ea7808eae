//! Wrong words, damaged files, impossible places: the message to the user and the exit code.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::common::{self, Place, TINY, stored};

#[test]
fn unknown_names_are_answered_with_the_nearest() {
    let place = Place::new();
    for (words, hint) in [
        (
            "run --task lisops --model performer",
            "did you mean 'listops'?",
        ),
        (
            "run --task listops --model perfomer",
            "did you mean 'performer'?",
        ),
        (
            "run --task listops --model performer --recipe mnii",
            "did you mean 'mini'?",
        ),
        (
            "run --task listops --model performer --set train.stesp=3",
            "did you mean 'train.steps'?",
        ),
        (
            "run --task listops --model performer --set model.featrues=3",
            "did you mean 'model.features'?",
        ),
        (
            "run --task listops --model performer --set data.max_lenght=99",
            "did you mean 'data.max_length'?",
        ),
        (
            "run --task listops --model performer --recipe laptop",
            "did you mean 'mini'? (mini replaced laptop",
        ),
        (
            "run --task pathx --model s4d",
            "recipes with settings for it (--recipe): smoke, s4",
        ),
        (
            "run --task retrieval --model s4d",
            "--task retrieval:synthetic; recipes with settings for it",
        ),
        (
            "data show retrieval --recipe mini",
            "--task retrieval:synthetic; recipes with settings for it",
        ),
        ("data make lisops", "did you mean 'listops'?"),
        ("data fetch imdb", "did you mean 'text'?"),
        ("data show path-x", "did you mean 'pathx'?"),
        ("sweep --tasks aan --dry-run", "did you mean 'retrieval'?"),
        (
            "run --task text@512 --model bag",
            "--set data.max_length=512",
        ),
        (
            "run --task text --model softmax",
            "did you mean 'transformer'?",
        ),
        (
            "run --task text:synthetic --model bag --set lr=0.1",
            "did you mean 'train.learning_rate'?",
        ),
        (
            "run --task text --model bag --lr 0.1",
            "--set train.learning_rate=VALUE",
        ),
        ("train --task text --model bag", "did you mean 'run'?"),
        ("data download text", "did you mean 'data fetch'?"),
        ("list models --long performr", "did you mean 'performer'?"),
        (
            "run --task toy --recipe smoke --model bag --set block.norm=RMSNorm",
            "did you mean 'rms'?",
        ),
        (
            "run --task toy --recipe smoke --model bag --precision BF16",
            "did you mean 'bf16'?",
        ),
        (
            "data show pathfinder --set data.difficulty=Hard",
            "did you mean 'hard'?",
        ),
        (
            "run --task toy --recipe smoke --model linear --set d_state=64",
            "this is model.state of the models ",
        ),
        ("mini s4d --cuda", "did you mean '--device'?"),
        (
            "run --task text --model bag --workdir x",
            "did you mean '--out'?",
        ),
    ] {
        let message = place.fails(2, words);
        assert!(message.contains(hint), "lra {words}: {message}");
        assert!(
            message.starts_with("error: ") && message.lines().count() == 1,
            "{message}"
        );
    }
    assert!(
        !place.path().join("runs").exists(),
        "nothing is left behind"
    );
}

#[test]
fn a_folder_in_place_of_a_task_is_answered_with_its_name() {
    let place = Place::new();
    fs::create_dir(place.path().join("birds")).unwrap();
    let message = place.fails(2, "run --task birds --model linear");
    assert!(
        message.contains("for the folder birds write mine:birds"),
        "{message}"
    );
}

/// The remedy of a warning stands in lines of its own.
#[test]
fn warnings_keep_their_lines() {
    let place = Place::new();
    let output = place.lra("sweep --tasks text --models bag --recipe smoke --dry-run");
    let said = common::err(&output);
    assert!(
        said.contains("warning: runs of text@256 would fail"),
        "{said}"
    );
    assert!(said.contains("\n  to get it: lra data"), "{said}");
}

#[test]
fn errors_are_red_where_colour_is_wanted() {
    let place = Place::new();
    let said = |colour: &[(&str, &str)]| {
        let mut command = place.command("list models --long performr");
        command.envs(colour.iter().copied());
        String::from_utf8(command.output().unwrap().stderr).unwrap()
    };
    let forced = said(&[("CLICOLOR_FORCE", "1")]);
    assert!(forced.starts_with("\x1b[1m\x1b[31merror:"), "{forced:?}");
    assert!(!said(&[]).contains('\x1b'), "no terminal");
}

#[test]
fn scripts_beside_parity_cases_are_left_out_aloud() {
    let place = Place::new();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/tests/parity");
    let words = format!("parity {folder}/make_xcit.py {folder}/xcit-1.safetensors");
    let output = place.lra(&words);
    assert!(output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("make_xcit.py"), "{said}");
    place.fails(3, &format!("parity {folder}/make_xcit.py"));
    // A name that is no file is a mistake.
    place.fails(3, &format!("parity {folder}/xcit-1.safetensors nothing"));
}

/// Names of tensors are looked for in the code, on any terminal.
#[test]
fn names_of_tensors_are_whole() {
    let place = Place::new();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/tests/parity");
    for columns in ["60", "160"] {
        let mut command = place.command(&format!("parity {folder}/gau-1.safetensors"));
        let output = command.env("COLUMNS", columns).output().unwrap();
        let table = String::from_utf8(output.stdout).unwrap();
        let whole = "gau-1  grad/param/attention.distance ";
        assert!(table.contains(whole), "{columns}: {table}");
    }
}

/// Cases with settings that no run can have, and with tolerances under which everything agrees.
#[test]
fn impossible_parity_cases_are_refused() {
    let place = Place::new();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../models/tests/parity");
    for (case, key, value) in [
        ("xcit-1", "heads", "0"),
        ("xcit-1", "qkv_dim", "0"),
        ("mega-1", "max_length", "0"),
        ("mega-1", "max_length", "99999999999999"),
        ("image-4", "grid", "[99999999999,99999999999]"),
        ("xcit-1", "atol", "inf"),
        ("xcit-1", "rtol", "-1"),
        ("xcit-1", "rtol", "nan"),
    ] {
        let bytes = fs::read(format!("{folder}/{case}.safetensors")).unwrap();
        let length = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
        let mut header: serde_json::Value = serde_json::from_slice(&bytes[8..8 + length]).unwrap();
        header["__metadata__"][key] = value.into();
        let header = header.to_string();
        let size = (header.len() as u64).to_le_bytes();
        let changed = [&size, header.as_bytes(), &bytes[8 + length..]].concat();
        fs::write(place.path().join("case.safetensors"), changed).unwrap();
        let told = place.fails(3, "parity case.safetensors");
        assert!(told.contains(key), "{case} {key} {value}: {told}");
    }
}

#[test]
fn impossible_settings_are_usage_errors() {
    let place = Place::new();
    for settings in [
        "train.steps=0",
        "train.batch=0",
        "train.beta2=1.0",
        "train.learning_rate=-1",
        "train.micro_batch=99",
        "block.heads=3",
        "block.dropout=1.5",
        "data.max_depth=0",
        "train.steps=many",
        "nonsense",
    ] {
        place.fails(2, &format!("{TINY} --model transformer --set {settings}"));
    }
    for words in [
        "run --task listops",
        "run --task listops --model bag --seeds 3..3",
        "run --task listops --model bag --source synthetic",
        "run --task listops:synthetic --model bag",
        "run --task image:synthetic --source official --model bag",
        "sweep --tasks image:synthetic --source official --models bag --dry-run",
        "run --task listops --model bag --device tpu",
        "run --task listops --model bag --precision tf32 --device cpu",
    ] {
        place.fails(2, words);
    }
}

/// Includes settings that only the model itself refuses: no run is begun, and none is on record.
#[test]
fn settings_that_a_model_cannot_take_are_usage_errors() {
    let place = Place::new();
    for (model, setting) in [
        ("funnel", "embed.every_layer=true"),
        ("hierarchical", "embed.every_layer=true"),
        ("mega", "embed.every_layer=true"),
        ("chordmixer", "block.rotary=true"),
        ("funnel", "head.layers=mix"),
        ("s4d", "block.bias=t5"),
    ] {
        let message = place.fails(2, &format!("{TINY} --model {model} --set {setting}"));
        let (key, _) = setting.split_once('=').unwrap();
        assert!(message.contains(key), "{model}: {message}");
    }
    assert!(!place.path().join("runs").exists());
}

#[test]
fn numbers_out_of_range_are_named_with_their_range() {
    let place = Place::new();
    for (words, told) in [
        (
            "--set block.dim=281474976710656",
            "block.dim = 281474976710656 is out of range: at least 1 and at most 65536",
        ),
        ("--set block.layers=18446744073709551615", "block.layers"),
        (
            "--set train.steps=-1",
            "train.steps = -1 is out of range: at least 1",
        ),
        (
            "--set model.features=1000000",
            "model.features = 1000000 is out of range",
        ),
        (
            "--set model.redraw=9223372036854775807",
            "model.redraw = 9223372036854775807 is out of range",
        ),
        ("--set data.train=4294967296", "train"),
        ("--set block.activation=swish", "did you mean 'silu'?"),
        (
            "--set train.batch=1048576 --set block.mlp_dim=65536",
            "the model is too large",
        ),
        ("--steps 10000000000", "train.steps"),
        (
            "--seed 18446744073709551615",
            "not a seed from 0 to 9223372036854775807",
        ),
        ("--seeds 0..9999999999", "a command takes 10000 at most"),
        ("--threads 100000", "a run has 0 (one for each core) to "),
        ("--threads 1000", "four for each core"),
    ] {
        let message = place.fails(2, &format!("{TINY} --model performer {words}"));
        assert!(message.contains(told), "{words}: {message}");
    }
    assert!(
        !place.path().join("runs").exists(),
        "nothing is left behind"
    );
    // The largest possible seed makes a run, which can be resumed.
    let words = format!("{TINY} --model bag --seed 9223372036854775807");
    place.ok(&words);
    place.ok(&format!("{words} --resume"));
}

#[cfg(unix)]
#[test]
fn words_that_are_not_unicode_are_paths_or_errors() {
    use std::os::unix::ffi::OsStrExt;
    let place = Place::new();
    let odd = std::ffi::OsStr::from_bytes(b"odd-\xff-name");
    let run = |flag: &str| {
        let mut command = place.command("run --recipe smoke --quiet");
        for (other, value) in [("--task", "toy"), ("--model", "bag")] {
            if other != flag {
                command.args([other, value]);
            }
        }
        command.arg(flag).arg(odd).output().unwrap()
    };
    let output = run("--out");
    assert!(output.status.success(), "{}", common::err(&output));
    assert!(place.path().join(odd).is_dir());
    for flag in ["--task", "--model", "--set"] {
        let output = run(flag);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{flag}: {}",
            common::err(&output)
        );
        assert!(!common::err(&output).contains("panicked"));
    }
    let mut sweep = place.command("sweep --tasks toy --recipe smoke --emit slurm --out");
    let output = sweep.arg(odd).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", common::err(&output));
}

#[test]
fn a_record_of_a_newer_version_is_not_read() {
    let place = Place::new();
    let words = "run --task toy --model bag --recipe smoke --quiet";
    place.ok(words);
    let file = place.run_folder("runs").join("record.json");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("\"schema\": 1", "\"schema\": 99")).unwrap();
    for words in [
        "report",
        "check --baseline base.csv",
        words,
        "sweep --tasks toy --recipe smoke",
    ] {
        let message = place.fails(3, words);
        assert!(
            message.contains("record.json was made by a newer lra (schema 99"),
            "lra {words}: {message}"
        );
    }
}

#[test]
fn damaged_data_is_named_with_a_remedy() {
    let place = Place::new();
    place.ok(&format!("{TINY} --model bag"));
    let file = stored(&place, "train.safetensors");
    let whole = fs::read(&file).unwrap();
    fs::write(&file, &whole[..whole.len() / 2]).unwrap();
    let message = place.fails(3, &format!("{TINY} --model bag --force"));
    assert!(
        message.contains("train.safetensors") && message.contains("lra data make"),
        "{message}"
    );

    let mut edited = whole;
    let last = edited.len() - 1;
    edited[last] ^= 1;
    fs::write(&file, edited).unwrap();
    let choice = "--recipe smoke --set data.train=200 --set data.val=40 --set data.test=40";
    let output = place.lra(&format!("data verify listops {choice}"));
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stdout).contains("FAIL"));
}

/// Words of the command line and strings of files reach the terminal as text.
#[test]
fn messages_hold_nothing_that_a_terminal_obeys_and_no_forged_lines() {
    let place = Place::new();
    for words in [
        "run --task toy --model linear --seeds \u{9b}2J",
        "no\u{9b}verb",
        "run --no\u{9b}flag",
        "run --task toy --memory-limit \u{9b}2J",
    ] {
        let said = place.fails(2, words);
        assert!(!said.contains('\u{9b}') && said.contains("u{9b}"), "{said}");
    }
    let run = "run --task toy --model bag --recipe smoke --steps 4 --quiet";
    place.ok(run);
    let file = place.run_folder("runs").join("record.json");
    let mut record = place.record("runs");
    for field in ["sources", "lra"] {
        record["versions"][field] = "x\nerror: forged".into();
    }
    record["recipe"]["name"] = "x\nerror: forged".into();
    fs::write(&file, record.to_string()).unwrap();
    for words in [run, "report runs", "check --baseline none.csv"] {
        let output = place.lra(words);
        let said = common::err(&output) + &String::from_utf8_lossy(&output.stdout);
        assert!(!said.contains("\nerror: forged"), "lra {words}: {said}");
    }
}

/// Runs the binary under a limit on addresses, in KiB.
#[cfg(target_os = "linux")]
fn within(place: &Place, addresses: u64, words: &str) -> std::process::Output {
    let mut shell = std::process::Command::new("sh");
    let lra = env!("CARGO_BIN_EXE_lra");
    shell.args(["-c", &format!("ulimit -v {addresses}; exec {lra} {words}")]);
    shell.current_dir(place.path());
    shell.env("LRA_DATA", place.path().join("data"));
    shell.output().unwrap()
}

/// Below some size neither the kernel nor the dynamic loader can start the program.
#[cfg(target_os = "linux")]
#[test]
fn too_low_a_limit_on_addresses_is_told_and_nothing_panics_or_hangs() {
    let place = Place::new();
    place.ok("run --task toy --model bag --recipe smoke --steps 2 --quiet");
    let mut refused = 0;
    for mebibytes in (20..160).step_by(2) {
        for words in ["list models", "report runs"] {
            let output = within(&place, mebibytes << 10, words);
            let said = common::err(&output);
            let told = said.contains("ulimit -v") && !said.contains("--threads");
            match output.status.code() {
                Some(0) => {}
                Some(2) if told => refused += 1,
                Some(127) => assert!(said.contains("shared"), "{said}"),
                None => assert_eq!(said, "", "{mebibytes} MiB"),
                code => panic!("{mebibytes} MiB, {words}: {code:?} {said}"),
            }
        }
    }
    assert!(refused > 0, "the bound is between starting and working");
    // Verbs that compute with a model ask for more, and end with a message where it was too little.
    let case = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../models/tests/parity/xcit-1.safetensors"
    );
    for mebibytes in (60..260).step_by(8) {
        let output = within(&place, mebibytes << 10, &format!("parity {case}"));
        let said = common::err(&output);
        match output.status.code() {
            Some(0) => {}
            Some(2) => assert!(said.contains("ulimit -v"), "{mebibytes} MiB: {said}"),
            Some(4) => assert!(said.contains("out of memory"), "{mebibytes} MiB: {said}"),
            Some(127) => assert!(said.contains("shared"), "{said}"),
            None => assert_eq!(said, "", "{mebibytes} MiB"),
            code => panic!("{mebibytes} MiB: {code:?} {said}"),
        }
    }
    for words in [
        "check-model bag",
        "sweep --tasks toy --models bag --recipe smoke --quiet",
        "bench --quick --models bag --lengths 64 --recipe smoke --quiet",
    ] {
        let output = within(&place, 100 << 10, words);
        let said = common::err(&output) + &String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.code(), Some(2), "{words}: {said}");
        assert!(
            said.contains("ulimit -v") && !said.contains("exit status"),
            "{said}"
        );
    }
    let output = within(&place, 100 << 10, "data show toy");
    let said = common::err(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("RAYON_NUM_THREADS") && !said.contains("--threads"),
        "{said}"
    );
}

/// Too many open files, a missing permission and a failing disk say nothing of the files: no verb
/// calls one damaged, or advises to make it anew.
#[cfg(target_os = "linux")]
#[test]
fn what_the_system_refuses_is_no_damage() {
    let place = Place::new();
    let run = "run --task toy --model bag --recipe smoke --steps 4 --quiet";
    place.ok(run);
    place.ok("check --baseline base.csv --update");
    let resume = format!("{run} --resume");
    let other = format!("{run} --seed 5 --force --out other");
    for number in [libc::EMFILE, libc::EACCES, libc::EINVAL] {
        for words in [
            &resume,
            &other,
            "data verify toy",
            "data list",
            "check --baseline base.csv",
            "check --baseline new.csv --update",
        ] {
            for read in 1..=8 {
                let mut command = place.command(words);
                command.env("LRA_FAULTS", format!("read:{read}:{number}"));
                let output = command.output().unwrap();
                let said = common::err(&output) + &String::from_utf8_lossy(&output.stdout);
                // A run may fail to beat the majority class. The list of data names the command for
                // every task that has none.
                let (failed, anew) = match words.split(' ').next() {
                    Some("run") => ("damaged", "data make"),
                    _ if words == "data list" => ("FAIL", "damaged"),
                    _ => ("FAIL", "data make"),
                };
                for wrong in [
                    "damaged",
                    failed,
                    "start its run over",
                    anew,
                    "1 REGRESSED",
                    "may write",
                ] {
                    assert!(
                        !said.contains(wrong),
                        "{words}, read {read}, {number}: {said}"
                    );
                }
            }
        }
    }
}

/// A lack of memory says nothing of the files.
#[cfg(target_os = "linux")]
#[test]
fn a_lack_of_memory_in_verifying_is_no_damage() {
    let place = Place::new();
    place.ok("data make toy");
    for read in 1..=8 {
        let mut command = place.command("data verify toy");
        command.env("LRA_FAULTS", format!("read:{read}:{}", libc::ENOMEM));
        let output = command.output().unwrap();
        let said = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            common::err(&output)
        );
        match output.status.code() {
            Some(0) => assert!(!said.contains("FAIL"), "{said}"),
            code => {
                assert_eq!(code, Some(4), "{read}: {said}");
                assert!(said.contains("out of memory") && !said.contains("FAIL"));
            }
        }
    }
    let mut command = place.command("data verify toy");
    command.env("LRA_FAULTS", format!("read:*:{}", libc::ENOMEM));
    assert_eq!(command.output().unwrap().status.code(), Some(4));
}

#[test]
fn published_files_with_a_fault_are_named_with_the_line() {
    let place = Place::new();
    let raw = place.path().join("tsv");
    fs::create_dir(&raw).unwrap();
    let good = "Source\tTarget\n( ( ( [MAX 2 ) 3 ) ] )\t3\n";
    for (fault, what) in [
        (
            "Source\tTarget\n( ( ( [MAX 2 ) 3 ) ] )\t4\n",
            "basic_train.tsv:2",
        ),
        (
            "Source\tTarget\n( ( ( [MAX 2 ) 3 ) ] )\t12\n",
            "basic_train.tsv:2",
        ),
        (
            "Source\tTarget\n( ( ( [MAX 2 ) 3 ) ] )\t3\n[MIN 1 2 ]\n",
            "basic_train.tsv:3",
        ),
    ] {
        for split in ["val", "test"] {
            fs::write(raw.join(format!("basic_{split}.tsv")), good).unwrap();
        }
        fs::write(raw.join("basic_train.tsv"), fault).unwrap();
        let message = place.fails(3, "data make listops --source official --from tsv");
        assert!(message.contains(what), "{message}");
    }
    let missing = place.fails(3, "run --task listops --model bag --source official");
    assert!(
        missing.contains("basic_train.tsv") && missing.contains("lra data make listops"),
        "{missing}"
    );
}

#[test]
fn a_second_process_keeps_out_of_a_run_folder() {
    let place = Place::new();
    let words = format!("{TINY} --model performer --set train.steps=3000");
    let mut first = place
        .command(&words)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let patience = Instant::now();
    while !place.path().join("runs").exists() && patience.elapsed() < Duration::from_secs(60) {
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(300));
    let message = place.fails(2, &words);
    first.kill().unwrap();
    first.wait().unwrap();
    assert!(message.contains("another process"), "{message}");
}

#[test]
fn an_output_folder_that_cannot_be_written_is_an_error() {
    let place = Place::new();
    fs::write(place.path().join("file"), "").unwrap();
    let message = place.fails(2, &format!("{TINY} --model bag --out file/runs"));
    assert!(message.contains("file/runs"), "{message}");
}

#[test]
fn an_error_names_the_place_and_the_reason_once() {
    let place = Place::new();
    place.ok(&format!("{TINY} --model bag"));
    fs::write(place.path().join("file"), "").unwrap();
    for (words, told) in [
        ("report missing", "cannot read missing: "),
        ("report --splice missing/page.md", "missing/page.md"),
        (
            "check --update --baseline missing/baseline.csv",
            "make that folder first",
        ),
        (
            "run --task toy --model bag --recipe smoke --data file/missing",
            "missing",
        ),
    ] {
        let message = place.fails(3, words);
        assert!(message.contains(told), "{message}");
        for once in ["missing", "os error"] {
            assert_eq!(message.matches(once).count(), 1, "lra {words}: {message}");
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_an_error_and_leaves_nothing_half_written() {
    // Only root may mount; without that the test cannot run.
    let place = Place::new();
    let small = place.path().join("small");
    fs::create_dir(&small).unwrap();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"])
        .arg(&small)
        .stderr(Stdio::null())
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        eprintln!("skipped: a small file system cannot be mounted here");
        return;
    }
    let output = place.lra(&format!("{TINY} --model transformer --out small"));
    // Only names and contents are kept: an open folder cannot be unmounted.
    let files: Vec<PathBuf> = fs::read_dir(&small)
        .unwrap()
        .flat_map(|run| fs::read_dir(run.unwrap().path()).unwrap())
        .map(|file| file.unwrap().path())
        .collect();
    let record = files
        .iter()
        .find(|file| file.ends_with("record.json"))
        .map(|file| fs::read_to_string(file).unwrap());
    let unmounted = std::process::Command::new("umount")
        .arg(&small)
        .status()
        .unwrap();
    assert!(unmounted.success());
    assert_eq!(output.status.code(), Some(4), "{}", common::err(&output));
    assert!(
        common::err(&output).contains("small"),
        "{}",
        common::err(&output)
    );
    let half = |file: &PathBuf| {
        file.file_name()
            .unwrap()
            .to_string_lossy()
            .starts_with(".writing")
    };
    assert!(!files.iter().any(half), "{files:?}");
    if let Some(record) = record {
        serde_json::from_str::<serde_json::Value>(&record).unwrap();
    }
}

/// A name that is not known is an error in every flag that takes one, and no empty result.
#[test]
fn unknown_names_are_refused_in_every_flag() {
    let place = Place::new();
    place.ok("run --task toy --model bag --recipe smoke --steps 2 --quiet");
    place.ok("check --baseline base.csv --update");
    for words in [
        "run --task zzz --model bag",
        "run --task toy --model zzz",
        "run --task toy --model bag --recipe zzz",
        "run --task toy --model bag --recipe smoke --source zzz",
        "run --task toy --model bag --recipe smoke --protocol zzz",
        "run --task toy --model bag --recipe smoke --device zzz",
        "run --task toy --model bag --recipe smoke --precision zzz",
        "run --task toy --model bag --recipe smoke --pretrain zzz",
        "sweep --tasks zzz --dry-run",
        "sweep --tasks toy --models zzz --dry-run",
        "sweep --tasks toy --models bag --recipe zzz --dry-run",
        "sweep --tasks toy --models bag --recipe smoke --device zzz --dry-run",
        "sweep --tasks toy --models bag --recipe smoke --devices zzz --dry-run",
        "sweep --tasks toy --models bag --recipe smoke --emit zzz",
        "mini zzz --glance",
        "check --baseline base.csv --reference zzz",
        "report --table zzz",
        "report --against zzz",
        "report --format zzz",
        "agree runs --recipe zzz",
        "agree runs --half zzz",
        "agree runs --by zzz",
        "repro --list --recipe zzz",
        "repro zzz",
        "repro s5 --recipe zzz",
        "repro s5 zzz s5",
        "repro s5 listops zzz",
        "list zzz",
        "list models zzz",
        "list models --recipe zzz",
        "list models --task zzz",
        "list models bag --recipe zzz",
        "list models bag --task zzz",
        "list recipes smoke --task zzz",
        "list recipes zzz",
        "list published zzz",
        "check-model zzz",
        "completions zzz",
        "data make zzz",
        "data make toy --recipe zzz",
        "data fetch zzz",
        "data verify zzz",
        "data show zzz",
        "bench --models zzz",
        "bench --recipe zzz",
        "bench --device zzz",
    ] {
        let message = place.fails(2, words);
        assert!(!message.is_empty(), "{words}");
    }
    // In any case.
    for words in [
        "check --baseline base.csv --reference Transformer",
        "report --table Accuracy",
        "agree runs --recipe SMOKE",
    ] {
        let message = common::err(&place.lra(words));
        assert!(
            !message.contains("unknown") && !message.contains("no run is by"),
            "{message}"
        );
    }
    place.ok("run --task toy --model bag --recipe smoke --steps 2 --quiet --device CPU");
}

/// Two values for one setting are a mistake in every place where settings are given.
#[test]
fn a_setting_has_one_value() {
    let place = Place::new();
    let run = "run --task toy --model linear --recipe smoke --quiet --out runs";
    let sweep = "sweep --tasks toy --models linear --recipe smoke --out runs --dry-run";
    for (words, hint) in [
        (
            format!("{run} --steps 3 --set train.steps=-7"),
            "train.steps=-7 and train.steps=3",
        ),
        (
            format!("{run} --set block.dim=8 --set block.dim=16"),
            "block.dim=8 and block.dim=16",
        ),
        (
            format!("{run} --pretrain masked --set pretrain.kind=xx"),
            "pretrain.kind=xx",
        ),
        (
            format!("{run} --precision bf16 --set train.precision=f32"),
            "train.precision=f32",
        ),
        (
            format!("{sweep} --set train.batch=2 --set train.batch=3"),
            "train.batch=2 and",
        ),
        (
            format!("{sweep} --grid train.batch=1,2 --grid train.batch=3,4"),
            "searched twice",
        ),
        (
            format!("{sweep} --grid train.batch=1,2 --set train.batch=4"),
            "search it or fix it",
        ),
        (
            "sweep --tasks toy --models linear:train.batch=2 --grid train.batch=8,16 --dry-run"
                .to_owned(),
            "search it or fix it",
        ),
        (
            "data make listops --set data.train=3 --set data.train=4".to_owned(),
            "data.train=3 and",
        ),
    ] {
        let message = place.fails(2, &words);
        assert!(message.contains(hint), "{words}: {message}");
    }
    assert!(!place.path().join("runs").exists());
    place.ok(&format!("{run} --steps 3 --set train.steps=3"));
}

/// Checks that the runs of a sweep get values that look like flags.
#[test]
fn values_that_begin_with_a_dash_reach_the_runs_of_a_sweep() {
    let place = Place::new();
    let sweep = "sweep --tasks toy --models bag --recipe smoke --steps 1 --quiet";
    place.ok(&format!("{sweep} --out=-runs --data=-data"));
    assert!(place.path().join("-data").is_dir());
    let text = place.ok("run --task toy --model bag --recipe smoke --quiet --steps 1 --out=-y");
    assert!(text.contains("lra report ./-y"), "{text}");
    place.ok("report ./-y");
}

#[cfg(unix)]
#[test]
fn a_sweep_writes_into_a_folder_whose_name_is_no_text() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    let place = Place::new();
    let folder = OsStr::from_bytes(b"bad\xff");
    let mut command =
        place.command("sweep --tasks toy --models bag --recipe smoke --steps 1 --quiet");
    let output = command.arg("--out").arg(folder).output().unwrap();
    assert!(output.status.success(), "{}", common::err(&output));
    let runs = fs::read_dir(place.path().join(folder)).unwrap().flatten();
    assert!(
        runs.map(|it| it.path())
            .any(|it| it.join("record.json").exists())
    );
    let named = fs::read_dir(place.path()).unwrap().flatten();
    assert!(
        named
            .map(|it| it.file_name())
            .all(|name| !name.to_string_lossy().contains("bad") || name == folder)
    );
    // JSON has the name as far as it is text.
    let more = "--tasks toy --models bag --recipe smoke --steps 1";
    for (words, option) in [
        (format!("sweep {more} --json --quiet"), "--out"),
        (
            "run --task toy --model bag --recipe smoke --dry-run --json".to_owned(),
            "--out",
        ),
        ("data make toy --json".to_owned(), "--data"),
        ("data list --json".to_owned(), "--data"),
        ("data verify toy --json".to_owned(), "--data"),
    ] {
        let mut command = place.command(&words);
        let output = command.arg(option).arg(folder).output().unwrap();
        assert!(output.status.success(), "{words}: {}", common::err(&output));
        let printed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(
            printed.to_string().contains("bad\u{fffd}"),
            "{words}: {printed}"
        );
    }
}

/// Each of these was taken silently, or found only in the middle of a run.
#[test]
fn settings_that_cannot_be_meant_are_refused_before_anything_is_made() {
    let place = Place::new();
    fs::write(
        place.path().join("f.toml"),
        "about = \"x\"\nsource = \"own\"\npublished = false\nfull = \"nosuch\"\n[tasks.toy]\n",
    )
    .unwrap();
    fs::write(place.path().join("none.csv"), "task,model,accuracy\n").unwrap();
    fs::write(place.path().join("none.jsonl"), "").unwrap();
    let twice = "bag:block.layers=1:block.layers=2";
    for (code, words, told) in [
        (
            2,
            "run --task toy --model bag --recipe f.toml".to_owned(),
            "nosuch",
        ),
        (
            2,
            format!("sweep --tasks toy --models {twice} --recipe smoke"),
            "two values",
        ),
        (2, format!("check-model {twice}"), "two values"),
        (2, format!("mini {twice} --dry-run"), "two values"),
        (
            2,
            format!("bench --models {twice} --lengths 64"),
            "two values",
        ),
        (
            2,
            "run --task toy --model bag --recipe smoke --set train.epsilon=1e-60".to_owned(),
            "train.epsilon",
        ),
        (
            2,
            "bench --models bag --lengths 64 --set data.max_length=32".to_owned(),
            "--lengths",
        ),
        (3, "import none.csv".to_owned(), "no line of results"),
        (3, "bench --show none.jsonl".to_owned(), "no measurement"),
    ] {
        let message = place.fails(code, &words);
        assert!(message.contains(told), "{words}: {message}");
    }
    place.ok("run --task toy --model bag --recipe smoke --steps 2 --out o --quiet");
    let run = place.run_folder("o");
    let inside = run
        .strip_prefix(place.path())
        .unwrap()
        .display()
        .to_string();
    let message = place.fails(
        2,
        &format!("run --task toy --model linear --recipe smoke --out {inside}"),
    );
    assert!(message.contains("itself the folder of a run"), "{message}");
    fs::remove_file(run.join("record.json")).unwrap();
    let message = place.fails(2, &format!("replay {inside}"));
    assert!(message.contains("holds an unfinished run"), "{message}");
}

/// Names of types, and the words of readers of numbers, say nothing to people.
#[test]
fn what_is_no_number_is_told_what_a_number_is() {
    let place = Place::new();
    let linformer = "run --task listops --model linformer --dry-run --set model.rank";
    for (words, told) in [
        (
            format!("{linformer}=5x"),
            "model.rank = \"5x\": string \"5x\" instead of a whole number from 0",
        ),
        (
            format!("{linformer}=1.5"),
            "model.rank takes a whole number, or a function of the length such as L/4",
        ),
        (
            "run --task toy --model bag --recipe smoke --set train.groups=[1]".to_owned(),
            "train.groups = [1]: integer `1` instead of a table",
        ),
        (
            "bench --lengths x".to_owned(),
            "'x' is not a whole number of at least 0",
        ),
    ] {
        let message = place.fails(2, &words);
        assert!(message.contains(told), "{words}: {message}");
    }
}

/// A list has neither a range nor words.
#[test]
fn a_list_that_cannot_be_read_is_refused_with_the_readers_reason() {
    let run = "run --task toy --model bag --recipe smoke --set train.groups=[{}]";
    let message = Place::new().fails(2, run);
    assert!(
        message.contains("train.groups = [{}]: `parameters` is missing"),
        "{message}"
    );
}

#[test]
fn a_batch_larger_than_the_training_split_is_told() {
    let place = Place::new();
    let run = "run --task toy --model bag --recipe smoke --steps 2 --set train.warmup=1";
    let output = place.lra(&format!("{run} --set train.batch=5000"));
    assert!(
        common::err(&output).contains("more than there is to train on (2,000 examples)"),
        "{}",
        common::err(&output)
    );
}
