//! Embeds the origin of the binary (sources and versions) in it, so that every record can state it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest, Sha256};

/// Sources of this program: folders and files, relative to this crate's folder. Those of the other
/// crates are beside it in the repository.
const SOURCES: [&str; 20] = [
    "build.rs",
    "src",
    "recipes",
    "../cpu/src",
    "../derive/src",
    "../disk/src",
    "../models/src",
    "../datasets/src",
    "../results/src",
    // Versions, profiles and features.
    "Cargo.toml",
    "../Cargo.toml",
    "../Cargo.lock",
    "../.cargo/config.toml",
    "../cpu/Cargo.toml",
    "../derive/Cargo.toml",
    "../disk/Cargo.toml",
    "../models/Cargo.toml",
    "../datasets/Cargo.toml",
    "../results/Cargo.toml",
    // That of a package of this crate alone, which has no neighbours.
    "Cargo.lock",
];

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
    println!("cargo::rustc-env=LRA_SOURCES={}", sources());
    if let Some(commit) = output("git", &["rev-parse", "--short=12", "HEAD"]) {
        println!("cargo::rustc-env=LRA_COMMIT={commit}");
        if is_dirty() {
            println!("cargo::rustc-env=LRA_DIRTY=1");
        }
    }
    // The log of HEAD grows with every commit; without it, the index changes with every commit,
    // and with other commands. The sources change with every edit since.
    let git = ["logs/HEAD", "index"].into_iter().filter_map(|file| {
        let path = output("git", &["rev-parse", "--git-path", file])?;
        Path::new(&path).exists().then_some(path)
    });
    let sources = SOURCES.map(str::to_owned).into_iter();
    for watched in git.take(1).chain(sources) {
        if Path::new(&watched).exists() {
            println!("cargo::rerun-if-changed={watched}");
        }
    }
}

/// The workspace's manifest and its lock file. A crate of a user's own may be among the members.
const SHARED: [&str; 2] = ["../Cargo.toml", "../Cargo.lock"];

/// Returns whether files differ from the commit; the members of the workspace may.
fn is_dirty() -> bool {
    let status = "status --porcelain --untracked-files=no -- :/ :!../Cargo.toml :!../Cargo.lock";
    let status: Vec<&str> = status.split(' ').collect();
    let others = output("git", &status).is_none_or(|list| !list.is_empty());
    let differs = |file: &&str| {
        let committed = output("git", &["show", &format!("HEAD:{file}")]);
        let now = fs::read_to_string(file).unwrap_or_default();
        // `output` trims. A file that is in no commit does not count.
        committed.is_some_and(|text| without_members(&text) != without_members(now.trim()))
    };
    others || SHARED.iter().any(differs)
}

/// Returns a manifest without the members of its workspace, or a lock file without the packages that
/// come from no registry: crates of this repository, whose sources count, and crates of a user.
fn without_members(text: &str) -> String {
    let package = "[[package]]";
    if text.contains(package) {
        let packages = text.split(package).filter(|it| it.contains("\nsource = "));
        return packages.collect();
    }
    match text.split_once("\nmembers = [") {
        Some((before, rest)) => {
            let after = rest.split_once(']').map_or("", |(_, after)| after);
            format!("{before}{after}")
        }
        None => text.to_owned(),
    }
}

/// Returns the SHA-256 over names and contents of the source files, in hexadecimal.
fn sources() -> String {
    let mut files = Vec::new();
    for place in SOURCES {
        // A package of this crate alone has no neighbours.
        if Path::new(place).exists() {
            collect(PathBuf::from(place), &mut files).expect("the sources can be listed");
        }
    }
    files.sort();
    let mut digest = Sha256::new();
    for file in files {
        let mut text = fs::read(&file).expect("the sources can be read");
        if SHARED.iter().any(|shared| Path::new(shared) == file) {
            text = without_members(&String::from_utf8_lossy(&text)).into_bytes();
        }
        digest.update(format!("{} {}\n", file.display(), text.len()));
        digest.update(text);
    }
    digest
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Adds a file, or all files of a folder and its folders.
fn collect(path: PathBuf, files: &mut Vec<PathBuf>) -> io::Result<()> {
    if path.is_dir() {
        for entry in fs::read_dir(path)? {
            collect(entry?.path(), files)?;
        }
    } else {
        files.push(path);
    }
    Ok(())
}

fn output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Returns the version of `package` in the lock file of the workspace, or of this package alone.
fn locked_version(package: &str) -> Option<String> {
    let locks = ["../Cargo.lock", "Cargo.lock"].into_iter();
    let lock = locks.flat_map(fs::read_to_string).next()?;
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
