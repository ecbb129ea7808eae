//! How a new crate is built without compiling the libraries of `lra` again. Within the folder of
//! lra's sources it becomes a member of their workspace, as with `cargo new`. Elsewhere it is a
//! workspace with the same versions, profiles and target folder.

use std::fs::{self, File};
use std::io;
use std::path::{Component, Path, PathBuf};

use toml_edit::DocumentMut;

use super::Files;
use crate::error::{Result, in_writing};

/// Place of a new crate in the workspace of lra's sources.
pub(super) struct Member {
    /// Manifest of the workspace.
    manifest: PathBuf,
    /// Its text, with the crate among the members.
    text: String,
    /// Lock file of the workspace, and its text with the crate among the packages; `None` if cargo
    /// must write it.
    lock: Option<(PathBuf, String)>,
    /// Path from the crate's folder to that of `lra`.
    pub(super) lra: String,
}

impl Member {
    /// Returns the place of the crate `name` in `folder`, which needs the libraries `dependencies`
    /// besides `lra`. `None` if it lies outside the workspace of `lra`, in its target folder, or in
    /// another package's folder.
    pub(super) fn of(folder: &Path, lra: &Path, name: &str, dependencies: &str) -> Option<Member> {
        let root = disk::folder_of(lra);
        let folder = resolved(folder)?;
        let path = folder.strip_prefix(root).ok()?;
        let names: Option<Vec<&str>> = path
            .components()
            .map(|name| match name {
                Component::Normal(name) => name.to_str(),
                _ => None,
            })
            .collect();
        let names = names?;
        let mut between = folder
            .ancestors()
            .skip(1)
            .take(names.len().saturating_sub(1));
        if names.first() == Some(&"target") || between.any(|at| at.join("Cargo.toml").exists()) {
            return None;
        }
        let manifest = root.join("Cargo.toml");
        let text = disk::read_to_string(&manifest).ok()?;
        let mut document: DocumentMut = text.parse().ok()?;
        let members = document.get_mut("workspace")?.get_mut("members")?;
        members.as_array_mut()?.push(names.join("/"));
        let lra = lra.strip_prefix(root).ok()?.to_str()?;
        let lock = root.join("Cargo.lock");
        let locked = disk::read_to_string(&lock).ok();
        let locked = locked.and_then(|text| with_package(&text, name, dependencies));
        Some(Member {
            manifest,
            text: match text.contains("\r\n") {
                true => document.to_string().replace('\n', "\r\n"),
                false => document.to_string(),
            },
            lock: locked.map(|text| (lock, text)),
            lra: "../".repeat(names.len()) + lra,
        })
    }

    /// Returns the manifest of the workspace.
    pub(super) fn manifest(&self) -> &Path {
        &self.manifest
    }

    /// Adds the crate to the members of the workspace, and to its lock file.
    pub(super) fn join(&self) -> Result<()> {
        let writing = |path: &Path| in_writing(format!("writing {}", path.display()));
        let before = disk::read_to_string(&self.manifest);
        let before = before.map_err(writing(&self.manifest))?;
        rewrite(&self.manifest, &self.text).map_err(writing(&self.manifest))?;
        let Some((lock, text)) = &self.lock else {
            return Ok(());
        };
        rewrite(lock, text).or_else(|error| {
            // Cargo refuses a workspace that names a member without a folder.
            let restored = rewrite(&self.manifest, &before);
            restored.map_err(writing(&self.manifest))?;
            Err(writing(lock)(error))
        })
    }
}

/// Replaces the text of a file and keeps its time of modification, by which cargo decides whether
/// to compile `lra` again: its build does not depend on the members of the workspace.
fn rewrite(path: &Path, text: &str) -> io::Result<()> {
    let modified = fs::metadata(path).and_then(|it| it.modified());
    disk::write(path, text.as_bytes())?;
    // Where it cannot be set, cargo compiles more than it must.
    let file = File::options().write(true).open(path);
    let _ = file.and_then(|file| file.set_modified(modified?));
    Ok(())
}

/// Returns a lock file with a new crate that depends on `lra` and on `dependencies`, lines of a
/// manifest, as cargo writes it. `None` if a dependency has several versions there, or none.
fn with_package(lock: &str, name: &str, dependencies: &str) -> Option<String> {
    const PACKAGE: &str = "[[package]]\n";
    let name_of = |package: &str| {
        let rest = package.strip_prefix("name = \"")?;
        rest.split_once('"').map(|(name, _)| name.to_owned())
    };
    let (head, packages) = lock.split_once(PACKAGE)?;
    let mut packages: Vec<String> = packages.split(PACKAGE).map(str::to_owned).collect();
    let names: Option<Vec<String>> = packages.iter().map(|it| name_of(it)).collect();
    let names = names?;
    let lines = dependencies.lines().filter_map(|line| line.split_once(' '));
    let mut needed: Vec<&str> = lines.map(|(name, _)| name).chain(["lra"]).collect();
    needed.sort_unstable();
    let once = |needed: &&str| names.iter().filter(|it| it == needed).count() == 1;
    if !needed.iter().all(once) {
        return None;
    }
    let needed: String = needed.iter().map(|it| format!(" \"{it}\",\n")).collect();
    let package = format!("name = \"{name}\"\nversion = \"0.1.0\"\ndependencies = [\n{needed}]\n");
    // Packages are separated by an empty line; the last one has none behind it.
    if let Some(last) = packages.last_mut() {
        *last = format!("{}\n\n", last.trim_end());
    }
    let place = names.partition_point(|it| it.as_str() < name);
    packages.insert(place, format!("{package}\n"));
    let text = format!("{head}{PACKAGE}{}", packages.join(PACKAGE));
    Some(format!("{}\n", text.trim_end()))
}

/// Returns an absolute path without links, of which only the first folders need to exist.
fn resolved(path: &Path) -> Option<PathBuf> {
    let path = std::path::absolute(path).ok()?;
    let mut there = path.ancestors();
    let (there, real) = there.find_map(|at| Some((at, fs::canonicalize(at).ok()?)))?;
    Some(real.join(path.strip_prefix(there).ok()?))
}

/// Returns the files by which a crate takes the libraries that were compiled for the workspace of
/// lra's sources: the versions of its lock file, and its target folder, if they are there. With the
/// [`profiles`] of the workspace, only `lra` itself and the crate are compiled anew.
pub(super) fn shared_build(lra: &Path) -> Files {
    let workspace = disk::folder_of(lra);
    let lock = disk::read_to_string(&workspace.join("Cargo.lock"));
    let mut files: Files = lock.map(|text| ("Cargo.lock", text)).into_iter().collect();
    let target = workspace.join("target");
    if target.is_dir() {
        let target = toml::Value::from(target.display().to_string());
        files.push((
            ".cargo/config.toml",
            format!("# Libraries that were compiled for lra are not compiled again.\n[build]\ntarget-dir = {target}\n"),
        ));
    }
    files
}

/// Returns the profiles `dev` and `release` of the workspace of lra's sources as TOML; `None` if
/// they cannot be read. Its crates keep their settings here, where `"*"` matches them too.
pub(super) fn profiles(lra: &Path) -> Option<String> {
    let text = disk::read_to_string(&disk::folder_of(lra).join("Cargo.toml")).ok()?;
    let mut workspace: toml::Table = text.parse().ok()?;
    let mut profiles = workspace.remove("profile")?.as_table()?.clone();
    profiles.retain(|name, _| name == "dev" || name == "release");
    let release = profiles.get_mut("release")?.as_table_mut()?;
    let debug = release.get("debug").cloned();
    if let (Some(debug), Some(packages)) = (debug, release.get_mut("package")) {
        for name in CRATES {
            let own = toml::Table::from_iter([("debug".to_owned(), debug.clone())]);
            packages.as_table_mut()?.insert(name.to_owned(), own.into());
        }
    }
    let all = toml::Table::from_iter([("profile".to_owned(), profiles.into())]);
    toml::to_string(&all).ok()
}

/// The crates of the workspace that are compiled for the machine that runs the program.
pub(super) const CRATES: [&str; 6] = [
    "lra",
    "lra-cpu",
    "lra-datasets",
    "lra-disk",
    "lra-models",
    "lra-results",
];

#[cfg(test)]
mod tests {
    use super::with_package;

    /// The lock file of the workspace with a crate more is as cargo writes it: in the order of
    /// names, wherever the crate stands.
    #[test]
    fn a_package_is_added_to_a_lock_file_in_its_place() {
        let package = |name: &str, rest: &str| {
            format!("[[package]]\nname = \"{name}\"\nversion = \"1.0.0\"\n{rest}")
        };
        let [lra, serde, toml] = ["lra", "serde", "toml"].map(|name| package(name, ""));
        let lock = format!("version = 4\n\n{lra}\n{serde}\n{toml}");
        let needs = "dependencies = [\n \"lra\",\n \"serde\",\n]\n";
        let new = |name| package(name, needs).replace("1.0.0", "0.1.0");
        for (name, order) in [
            ("abc", [&new("abc"), &lra, &serde, &toml]),
            ("my_task", [&lra, &new("my_task"), &serde, &toml]),
            ("zeta", [&lra, &serde, &toml, &new("zeta")]),
        ] {
            let [first, second, third, last] = order;
            let expected = format!("version = 4\n\n{first}\n{second}\n{third}\n{last}");
            let text = with_package(&lock, name, "serde = { version = \"1\" }\n");
            assert_eq!(text, Some(expected), "{name}");
        }
        // Cargo must choose among versions, and find unknown libraries.
        let twice = format!("{lock}\n{serde}");
        assert_eq!(with_package(&twice, "abc", "serde = \"1\"\n"), None);
        assert_eq!(with_package(&lock, "abc", "candle-core = \"1\"\n"), None);
    }
}
