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
