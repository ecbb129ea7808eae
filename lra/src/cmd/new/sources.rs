//! How a new crate is built without compiling the libraries of `lra` again. Within the folder of
//! lra's sources it becomes a member of their workspace, as with `cargo new`. Elsewhere it is a
//! workspace with the same versions, profiles and target folder.

use std::fs;
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
    /// Path from the crate's folder to that of `lra`.
    pub(super) lra: String,
}

impl Member {
    /// Returns the place of a crate in `folder`; `None` if it lies outside the workspace of `lra`,
    /// in its target folder, or in another package's folder.
    pub(super) fn of(folder: &Path, lra: &Path) -> Option<Member> {
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
        let mut document: DocumentMut = disk::read_to_string(&manifest).ok()?.parse().ok()?;
        let members = document.get_mut("workspace")?.get_mut("members")?;
        members.as_array_mut()?.push(names.join("/"));
        let lra = lra.strip_prefix(root).ok()?.to_str()?;
        Some(Member {
            manifest,
            text: document.to_string(),
            lra: "../".repeat(names.len()) + lra,
        })
    }

    /// Adds the crate to the members of the workspace.
    pub(super) fn join(&self) -> Result<()> {
        disk::write(&self.manifest, self.text.as_bytes())
            .map_err(in_writing(format!("writing {}", self.manifest.display())))
    }
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
