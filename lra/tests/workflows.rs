//! Workflows of the repository: a step that fails must fail its job.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

fn workflows() -> Vec<(String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.github/workflows");
    let files = fs::read_dir(folder).unwrap();
    let files = files.map(|file| file.unwrap().path());
    files
        .map(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, fs::read_to_string(path).unwrap())
        })
        .collect()
}

/// Unless a shell is named, steps run without pipefail, and a pipe ends as its last program does.
#[test]
fn a_pipe_does_not_hide_an_exit_code() {
    let workflows = workflows();
    assert!(!workflows.is_empty());
    for (name, text) in workflows {
        let mut lines = text.lines().skip_while(|line| *line != "defaults:");
        let defaults: Vec<&str> = lines
            .by_ref()
            .skip(1)
            .take_while(|line| line.starts_with(' '))
            .collect();
        assert!(
            defaults.contains(&"    shell: bash"),
            "{name}: {defaults:?}"
        );
    }
}

#[test]
fn the_two_commands_of_the_readme_are_run() {
    let steps: Vec<String> = workflows()
        .into_iter()
        .flat_map(|(_, text)| text.lines().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    for command in ["make test", "make run"] {
        let step = format!("      - run: {command}");
        assert!(steps.contains(&step), "{command}");
    }
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    let readme = fs::read_to_string(readme).unwrap();
    assert!(readme.contains("\nmake run ") && readme.contains("\nmake test "));
}

/// Every test program of the workspace that needs no GPU is in one of the Makefile's lists.
#[test]
fn make_test_runs_every_program_of_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let makefile = fs::read_to_string(root.join("Makefile")).unwrap();
    let mut listed: Vec<&str> = makefile
        .lines()
        .filter_map(|line| {
            line.strip_prefix("COUNTS := ")
                .or(line.strip_prefix("MOST := "))
        })
        .flat_map(str::split_whitespace)
        .collect();
    let workspace: toml::Table =
        toml::from_str(&fs::read_to_string(root.join("Cargo.toml")).unwrap()).unwrap();
    let mut programs = Vec::new();
    for member in workspace["workspace"]["members"].as_array().unwrap() {
        let folder = root.join(member.as_str().unwrap());
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        let manifest: toml::Table = toml::from_str(&manifest).unwrap();
        let tests = manifest.get("test").and_then(|it| it.as_array());
        // Cargo finds programs by itself where it is not told otherwise.
        let is_told = manifest["package"].get("autotests") == Some(&toml::Value::Boolean(false));
        assert!(
            is_told || !folder.join("tests").exists(),
            "{member}: autotests"
        );
        for test in tests.into_iter().flatten() {
            if test.get("required-features").is_none() {
                programs.push(test["name"].as_str().unwrap().to_owned());
            }
        }
    }
    listed.sort_unstable();
    programs.sort_unstable();
    programs.dedup();
    assert_eq!(listed, programs, "add it to COUNTS or MOST in the Makefile");
}

/// The folder that is deployed is the one that the Makefile writes, and a pull request deploys
/// nothing.
#[test]
fn the_site_that_is_made_is_the_one_that_is_deployed() {
    let workflows = workflows();
    let site = workflows.iter().find(|(name, _)| name == "site.yml");
    let (_, site) = site.unwrap();
    let makefile = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Makefile");
    let makefile = fs::read_to_string(makefile).unwrap();
    assert!(site.contains("      - run: make site\n"));
    assert!(site.contains("          path: target/site\n"));
    assert!(makefile.contains("-- publish target/site "));
    let (_, deploy) = site.split_once("\n  deploy:\n").unwrap();
    assert!(deploy.contains("    if: github.event_name != 'pull_request'\n"));
}

fn workflow(name: &str) -> String {
    let all = workflows();
    let found = all.into_iter().find(|(file, _)| file == name);
    found.unwrap().1
}

/// Returns the jobs of a workflow by name, each as its lines.
fn jobs(workflow: &str) -> Vec<(String, String)> {
    let (_, after) = workflow.split_once("\njobs:\n").unwrap();
    let mut jobs: Vec<(String, String)> = Vec::new();
    for line in after.lines() {
        let key = line
            .strip_prefix("  ")
            .filter(|it| !it.starts_with([' ', '#']));
        match key.and_then(|it| it.strip_suffix(':')) {
            Some(name) => jobs.push((name.to_owned(), String::new())),
            None => jobs.last_mut().unwrap().1 += &format!("{line}\n"),
        }
    }
    jobs
}

/// Commands that hand something out.
const UPLOADS: [&str; 4] = [
    "cargo publish",
    "docker push",
    "gh release create",
    "twine upload",
];

/// Returns the commands of a job that hand something out.
fn uploads(job: &str) -> Vec<&'static str> {
    let runs = |line: &str, command| line.contains(command) && !line.contains("--dry-run");
    let mut uploads = UPLOADS.to_vec();
    uploads.retain(|command| job.lines().any(|line| runs(line, *command)));
    uploads
}

/// Archives, wheels, crates and the image are built and tried without a condition, so also where
/// the workflow is started by hand.
#[test]
fn a_release_is_tried_without_a_tag() {
    let jobs = jobs(&workflow("release.yml"));
    for (name, command) in [
        ("build", "maturin build --out dist\n"),
        ("build", "        run: twine check --strict dist/*.whl\n"),
        (
            "crates",
            "        run: cargo publish --workspace --locked --dry-run\n",
        ),
        ("image", "      - run: docker build --tag lra .\n"),
        ("image", "          docker run --rm lra --version\n"),
        (
            "image",
            "          docker run --rm lra run --task toy --model bag --recipe smoke\n",
        ),
    ] {
        let (_, job) = jobs.iter().find(|(job, _)| job == name).unwrap();
        assert!(job.contains(command), "{name}: {command}");
        let conditions = job.lines().filter(|line| line.trim().starts_with("if:"));
        for condition in conditions {
            assert_eq!(condition, "        if: github.ref_type == 'tag'", "{name}");
        }
        assert!(uploads(job).is_empty(), "{name}");
    }
}

/// Nothing is handed out unless a tag is pushed, and then only after everything was tried. What
/// goes to a registry of others goes there only if the repository has a token for it.
#[test]
fn a_release_hands_out_nothing_without_a_pushed_tag() {
    let release = workflow("release.yml");
    assert!(release.contains("\non:\n  push:\n    tags: [\"v*\"]\n  workflow_dispatch:\n"));
    assert!(release.contains("\npermissions:\n  contents: read\n"));
    let mut handed_out = Vec::new();
    for (name, job) in jobs(&release) {
        let commands = uploads(&job);
        if commands.is_empty() {
            let asks = job.contains("secrets.") || job.contains(": write");
            assert!(!asks, "{name}");
            continue;
        }
        let head = "    needs: [build, crates, image]\n    if: github.event_name == 'push'\n";
        assert!(job.starts_with(head), "{name}: {job}");
        handed_out.extend(commands);
    }
    handed_out.sort_unstable();
    assert_eq!(handed_out, UPLOADS);
    for (name, token) in [
        ("publish-crates", "CARGO_REGISTRY_TOKEN"),
        ("publish-wheels", "TWINE_PASSWORD"),
    ] {
        let jobs = jobs(&release);
        let (_, job) = jobs.iter().find(|(job, _)| job == name).unwrap();
        assert!(job.contains(&format!("\n      {token}: ${{{{ secrets.")));
        let steps = job.split("\n      - ").skip(1);
        for step in steps.filter(|step| !step.contains("::notice::")) {
            let with_token = format!("        if: env.{token} != ''");
            assert!(
                step.lines().any(|line| line == with_token),
                "{name}: {step}"
            );
        }
    }
}
