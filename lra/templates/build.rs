//! Tells the program which commit it is built from: `lra::this_crate!` hands that to records.

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rerun-if-changed=Cargo.toml");
    // The log of HEAD grows with every commit; without it, the index changes with every commit.
    let mut files = ["logs/HEAD", "index"].into_iter().filter_map(|file| {
        let path = git(&["rev-parse", "--git-path", file])?;
        std::path::Path::new(&path).exists().then_some(path)
    });
    if let Some(path) = files.next() {
        println!("cargo::rerun-if-changed={path}");
    }
    if let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) {
        println!("cargo::rustc-env=LRA_COMMIT={commit}");
        let changed = git(&["status", "--porcelain", "--untracked-files=no"]);
        if changed.is_some_and(|list| !list.is_empty()) {
            println!("cargo::rustc-env=LRA_DIRTY=1");
        }
    }
}

/// Returns what git answers; `None` without git, or outside a repository.
fn git(words: &[&str]) -> Option<String> {
    let mut command = Command::new("git");
    let output = command.arg("--no-optional-locks").args(words).output();
    let output = output.ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
