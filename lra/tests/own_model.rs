//! A program with a custom model, `examples/own_model.rs`: every verb knows the model.

#![allow(clippy::unwrap_used)]

use std::process::Command;

use crate::common::Place;
use serde_json::Value;
use sha2::{Digest, Sha256};

fn place() -> Place {
    Place::of_example("own_model")
}

#[test]
fn it_is_listed_behind_the_others_with_its_documentation_and_options() {
    let place = place();
    let all = place.ok("list models");
    let last = all.lines().filter(|line| line.starts_with("neighbours "));
    assert_eq!(last.count(), 1, "{all}");
    assert!(all.contains("\nperformer "), "{all}");
    let text = place.ok("list models --long neighbours");
    assert!(text.contains("y_i = W m_i + b"), "{text}");
    assert!(text.contains("model.reach = 2"), "{text}");
    let message = Place::new().fails(2, "list models --long neighbours");
    assert!(message.contains("neighbours"), "{message}");
}

#[test]
fn it_is_trained_swept_and_reported() {
    let place = place();
    let cells = "--tasks toy --models neighbours:reach=3,bag --recipe smoke";
    place.ok(&format!("sweep {cells} --steps 4 --out runs"));
    let table = place.ok("report runs");
    let rows = table.lines().filter(|line| line.contains("neighbours"));
    assert!(rows.count() > 0, "{table}");
    let message = place.fails(
        2,
        "run --task toy --model neighbours --recipe smoke --set model.reach=99",
    );
    assert!(message.contains("model.reach"), "{message}");
}

#[test]
fn it_is_measured_beside_the_others() {
    let cells = "--models neighbours,bag --lengths 64 --rounds 1 --per-round 100ms --batch 2";
    let place = place();
    let table = place.ok(&format!("bench {cells}"));
    assert!(table.contains("neighbours"), "{table}");
    let lines: Value = serde_json::from_str(&place.ok(&format!("bench {cells} --json"))).unwrap();
    assert_eq!(lines[0]["own"]["source"].as_str().unwrap().len(), 64);
    assert!(lines[1]["own"].is_null(), "bag is the registry's");
}

#[test]
fn it_keeps_what_every_model_promises_and_says_so() {
    let told = place().ok("check-model neighbours");
    assert!(
        told.contains("neighbours: 32 of 32 promises kept"),
        "{told}"
    );
    let message = Place::new().fails(2, "check-model neighbours");
    assert!(message.contains("unknown model"), "{message}");
}

#[test]
fn its_records_name_the_crate_that_it_comes_from() {
    let place = place();
    place.ok("run --task toy --model neighbours --recipe smoke --steps 2 --quiet");
    let record = place.record("runs");
    let own = &record["model"]["own"];
    assert_eq!(own["program"], "own_model");
    let source = Sha256::digest(include_bytes!("../examples/own_model.rs"));
    let source: String = source.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(own["source"], source);
    assert_eq!(own["crate_name"], env!("CARGO_PKG_NAME"));
    assert_eq!(own["crate_version"], env!("CARGO_PKG_VERSION"));
    // The example is a part of the crate of `lra`.
    let commit = |revision: &Value| revision["commit"].clone();
    assert_eq!(commit(&own["revision"]), commit(&record["revision"]));
}

/// The build script of a new crate, in a repository of its own.
#[test]
fn a_new_crate_tells_its_commit_and_whether_files_differ_from_it() {
    let place = Place::new();
    place.ok("new model my_mixer");
    let folder = place.path().join("my_mixer");
    let run = |program: &str, words: &[&str]| {
        let mut command = Command::new(program);
        let output = command.args(words).current_dir(&folder).output().unwrap();
        assert!(output.status.success(), "{program} {words:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    run("rustc", &["--edition=2024", "build.rs", "-o", "../build"]);
    let told = || run("../build", &[]);
    assert!(!told().contains("LRA_COMMIT"), "{}", told());
    run("git", &["init", "--quiet"]);
    run("git", &["add", "."]);
    let author = ["-c", "user.name=A", "-c", "user.email=a@example.org"];
    run(
        "git",
        &[&author[..], &["commit", "--quiet", "-m", "first"]].concat(),
    );
    let commit = run("git", &["rev-parse", "--short=12", "HEAD"]);
    let expected = format!("cargo::rustc-env=LRA_COMMIT={}\n", commit.trim());
    assert!(told().contains(&expected), "{}", told());
    assert!(!told().contains("LRA_DIRTY"), "{}", told());
    std::fs::write(folder.join("src/main.rs"), "fn main() {}").unwrap();
    assert!(told().contains("LRA_DIRTY=1"), "{}", told());
}

#[test]
fn other_values_of_options_are_checked_by_name() {
    let place = Place::new();
    let told = place.ok("check-model gru:direction=sum");
    assert!(told.contains("gru:direction=sum: "), "{told}");
    assert!(told.contains("checked with direction=sum"), "{told}");
    let message = place.fails(2, "check-model gru:block.norm=foo");
    assert!(
        message.contains("block.norm = \"foo\" is none of its values: layer"),
        "{message}"
    );
    let message = place.fails(2, "check-model gru:direction=summ");
    assert!(message.contains("did you mean 'sum'"), "{message}");
    let message = place.fails(2, "check-model gru:wdth=3");
    assert!(message.contains("unknown setting"), "{message}");
}

#[test]
fn a_new_crate_is_made_once() {
    let place = Place::new();
    let told = place.ok("new model my_mixer");
    assert!(told.contains("cd my_mixer"), "{told}");
    for file in [
        "Cargo.toml",
        "build.rs",
        "src/main.rs",
        "README.md",
        ".gitignore",
    ] {
        assert!(place.path().join("my_mixer").join(file).is_file(), "{file}");
    }
    let message = place.fails(2, "new model my_mixer");
    assert!(message.contains("is there already"), "{message}");
    let message = place.fails(2, "new model my_mixer --path other --lra nowhere");
    assert!(message.contains("--lra"), "{message}");
}

/// The first files fit into the space left on this disk, the lock file does not.
#[cfg(unix)]
#[test]
fn a_new_crate_is_there_as_a_whole_or_not_at_all() {
    let place = Place::new();
    let lra = place.command("").get_program().to_owned();
    let words = "ulimit -f 16; exec \"$0\" new model my_mixer";
    let mut shell = Command::new("bash");
    let output = shell
        .args(["-c", words])
        .arg(lra)
        .current_dir(place.path())
        .output()
        .unwrap();
    let message = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(4), "{message}");
    assert!(message.contains("my_mixer/Cargo.lock"), "{message}");
    let left: Vec<_> = std::fs::read_dir(place.path()).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    place.ok("new model my_mixer");
}

/// Within lra's sources a new crate is a member of their workspace, as with `cargo new`.
#[test]
fn a_new_crate_within_the_sources_joins_their_workspace() {
    let place = Place::new();
    let root = place.path().canonicalize().unwrap().join("sources");
    let write = |file: &str, text: &str| {
        let path = root.join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let package = |name: &str| format!("[package]\nname = \"{name}\"\nversion = \"0.1.0\"\n");
    let workspace = "# Kept.\n[workspace]\nmembers = [\"lra\"] # Kept, too.\n";
    write("Cargo.toml", workspace);
    write("lra/Cargo.toml", &package("lra"));
    write("lra/src/lib.rs", "");
    let new = &|words: &str| {
        let mut command = place.command(&format!("new {words}"));
        let output = command.current_dir(&root).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    let read = |file: &str| std::fs::read_to_string(root.join(file)).unwrap();
    // By this time cargo decides whether to compile `lra` again.
    let long_ago = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1 << 30);
    let manifest = std::fs::File::options()
        .write(true)
        .open(root.join("Cargo.toml"));
    manifest.unwrap().set_modified(long_ago).unwrap();
    let modified = || {
        std::fs::metadata(root.join("Cargo.toml"))
            .unwrap()
            .modified()
            .unwrap()
    };
    new("model my_mixer --lra lra");
    assert_eq!(modified(), long_ago);
    let expected = workspace.replace("\"lra\"", "\"lra\", \"my_mixer\"");
    assert_eq!(read("Cargo.toml"), expected);
    let manifest: toml::Table = read("my_mixer/Cargo.toml").parse().unwrap();
    assert_eq!(
        manifest["dependencies"]["lra"]["path"].as_str(),
        Some("../lra")
    );
    assert!(manifest.get("workspace").is_none() && manifest.get("profile").is_none());
    assert!(!root.join("my_mixer/Cargo.lock").exists());

    new("task my_task --path own/my_task --lra lra");
    assert!(read("Cargo.toml").contains("\"own/my_task\""));
    let manifest: toml::Table = read("own/my_task/Cargo.toml").parse().unwrap();
    assert_eq!(
        manifest["dependencies"]["lra"]["path"].as_str(),
        Some("../../lra")
    );

    // On its own: what cargo removes, another package's folder, and outside.
    let before = read("Cargo.toml");
    for folder in ["target/crate", "lra/crate", "../crate"] {
        new(&format!("model my_conv --path {folder} --lra lra"));
        let manifest: toml::Table = read(&format!("{folder}/Cargo.toml")).parse().unwrap();
        assert!(manifest.contains_key("workspace"), "{folder}");
    }
    assert_eq!(read("Cargo.toml"), before);

    // Several at once: each is a member in the end.
    let names = ["at_once_1", "at_once_2", "at_once_3", "at_once_4"];
    std::thread::scope(|scope| {
        for name in names {
            scope.spawn(move || new(&format!("model {name} --lra lra")));
        }
    });
    let manifest = read("Cargo.toml");
    for name in names {
        assert!(
            manifest.contains(&format!("\"{name}\"")),
            "{name}: {manifest}"
        );
    }
    let left = std::fs::read_dir(&root)
        .unwrap()
        .map(|it| it.unwrap().file_name());
    let left: Vec<_> = left
        .filter(|it| it.to_string_lossy().starts_with('.'))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}
