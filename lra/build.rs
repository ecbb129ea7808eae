//! Stamps the binary with what it was built from, so that every record can say it.

use std::path::Path;
use std::process::Command;

fn main() {
    println!(
        "cargo::rustc-env=LRA_CANDLE_VERSION={}",
        locked_version("candle-core").unwrap_or_else(|| "unknown".into())
    );
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    println!(
        "cargo::rustc-env=LRA_RUSTC_VERSION={}",
        output(&rustc, &["--version"])
            .map(|line| line.trim_start_matches("rustc ").to_owned())
            .unwrap_or_else(|| "unknown".into())
    );
    if let Some(commit) = output("git", &["rev-parse", "--short=12", "HEAD"]) {
        println!("cargo::rustc-env=LRA_COMMIT={commit}");
        if output("git", &["status", "--porcelain", "--untracked-files=no"])
            .is_some_and(|list| !list.is_empty())
        {
            println!("cargo::rustc-env=LRA_DIRTY=1");
        }
    }
    // The index changes with every commit, the sources with every edit since.
    for watched in [
        "../.git/HEAD",
        "../.git/index",
        "../Cargo.lock",
        "build.rs",
        "src",
        "../models/src",
        "../datasets/src",
        "../results/src",
    ] {
        if Path::new(watched).exists() {
            println!("cargo::rerun-if-changed={watched}");
        }
    }
}

fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The version of `package` in the workspace's lock file.
fn locked_version(package: &str) -> Option<String> {
    let lock = std::fs::read_to_string("../Cargo.lock").ok()?;
    let entry = lock
        .split("[[package]]")
        .find(|entry| entry.contains(&format!("name = \"{package}\"")))?;
    entry.lines().find_map(|line| {
        Some(
            line.strip_prefix("version = \"")?
                .trim_end_matches('"')
                .to_owned(),
        )
    })
}
