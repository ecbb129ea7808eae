//! Downloads of published files: complete or not at all, resumed after a broken connection, checked
//! against published digests.
//!
//! A download is stored in `<file>.part`. Its address and the server's identifier for this version
//! of the file are in `<file>.part.from`, so that only the same file is ever continued. A part that
//! cannot be continued is emptied once a whole file arrives that begins like an archive: a web page
//! in its place costs nothing that was fetched before. The part is renamed when it is complete and
//! has the published SHA-256. Where none is published, the archive is read to its end instead,
//! which shows whether it is cut or damaged.
//!
//! Nothing is unpacked: the readers in `datasets` read archives. Proxies are taken from
//! `ALL_PROXY`, `HTTPS_PROXY`, `HTTP_PROXY`, in this order, except for the hosts of `NO_PROXY`. The
//! trusted certificates are those of the system, or those of `SSL_CERT_FILE` ([`roots`]).

mod download;
mod part;
mod proxy;
mod roots;

use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use datasets::command::data_flag;
use datasets::{Digest, Progress, Remote, Source, Task};
use disk::{Append, Locked};

use crate::error::{Class, Error, Result};
use download::Download;

/// Limits of a download.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Number of consecutive connections without new bytes before the download is abandoned.
    pub attempts: u32,
    /// Wait after the first such connection; doubled after each further one.
    pub pause: Duration,
    /// Longest silence of a server.
    pub silence: Duration,
    /// Most redirections.
    pub redirects: u32,
    /// Largest file whose published size is not known, in bytes.
    pub largest: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            attempts: 5,
            pause: Duration::from_secs(1),
            silence: Duration::from_secs(60),
            redirects: 5,
            largest: 32 << 30,
        }
    }
}

/// Origin of files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin<'a> {
    /// Their published addresses.
    Published,
    /// Copies under their published names below this address.
    Mirror(&'a str),
    /// One file: an address, or a file on this machine.
    From(&'a str),
}

/// A published file that is now in place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fetched {
    /// Path of the file.
    pub path: PathBuf,
    /// Size in bytes.
    pub bytes: u64,
    /// SHA-256 of the file.
    pub sha256: String,
    /// True if the SHA-256 is the published one; `None` if none is published.
    pub published: Option<bool>,
    /// True if the file was present already.
    pub kept: bool,
}

/// Downloads the published files of `task` into the folder `raw`.
///
/// # Errors
/// No address is known, the server does not have the file, the connection breaks too often, the
/// content is not the published one (from a published address or a mirror; a copy from elsewhere is
/// kept, and [`Fetched::published`] is false), it is larger than allowed, another process is
/// downloading it, or the disk is full. The message names alternatives.
pub fn fetch(
    task: &dyn Task,
    raw: &Path,
    origin: Origin<'_>,
    limits: &Limits,
    progress: &dyn Progress,
) -> Result<Vec<Fetched>> {
    let info = task.info();
    if !info.sources.contains(&Source::Official) {
        return Err(Error::usage(format!(
            "{}: this task reads no files; the data is made here by `lra data make {0}{1}`",
            info.name,
            data_flag()
        )));
    }
    fs::create_dir_all(raw)
        .map_err(|error| wrong(format!("cannot create {}: {error}", raw.display())))?;
    clear_copies(raw);
    match origin {
        Origin::From(from) => {
            one_file(task, raw, from, limits, progress).map(|fetched| vec![fetched])
        }
        Origin::Mirror(base) if !is_address(base) => Err(Error::usage(format!(
            "the mirror '{base}' is not an address that begins with http:// or https://"
        ))),
        Origin::Mirror(_) | Origin::Published if task.remote().is_empty() => {
            Err(Error::usage(format!(
                "{}: there is nothing to download; the data is made here by `lra data make {0}{1}`",
                task.info().name,
                data_flag()
            )))
        }
        Origin::Mirror(base) => {
            let url = |remote: &Remote| format!("{}/{}", base.trim_end_matches('/'), remote.file);
            published_files(task, raw, url, limits, progress)
        }
        Origin::Published => {
            published_files(task, raw, |remote| remote.url.to_owned(), limits, progress)
        }
    }
}

/// Returns the alternatives to a download, for errors of the network.
fn alternatives(task: &dyn Task) -> String {
    let info = task.info();
    let (name, flag) = (info.name, data_flag());
    let mut help = format!(
        "\n  what else helps:\n  \
         a copy of the file: lra data make {name}{flag} --from FILE\n  \
         another address: --from URL, or --mirror URL (LRA_MIRROR) of a folder with the file\n  \
         a proxy: HTTPS_PROXY, HTTP_PROXY; certificates of its own: SSL_CERT_FILE"
    );
    let mut others = info.sources.iter();
    if let Some(other) = others.find(|&&source| source != Source::Official) {
        help += &format!(
            "\n  no file at all: lra run --task {name} --source {other} --model linear --recipe smoke{flag}"
        );
    }
    help
}

/// Puts one file from its origin into place, under the name that readers look for.
fn one_file(
    task: &dyn Task,
    raw: &Path,
    from: &str,
    limits: &Limits,
    progress: &dyn Progress,
) -> Result<Fetched> {
    let remote = task.remote();
    let name = match remote {
        [only] => only.file.to_owned(),
        _ => last_part(from)?,
    };
    let known = remote.iter().find(|remote| remote.file == name);
    let target = raw.join(name);
    let fetched = if is_address(from) {
        let download = Download {
            url: from,
            bytes: None,
            sha256: None,
            target: &target,
            help: alternatives(task),
            limits,
            progress,
        };
        download.run()?
    } else {
        copy(Path::new(from), &target, progress)?
    };
    let published = known
        .and_then(|remote| remote.sha256)
        .map(|sum| sum == fetched.sha256);
    Ok(Fetched {
        published,
        ..fetched
    })
}

fn published_files(
    task: &dyn Task,
    raw: &Path,
    url: impl Fn(&Remote) -> String,
    limits: &Limits,
    progress: &dyn Progress,
) -> Result<Vec<Fetched>> {
    let files = task.remote().iter();
    files
        .map(|remote| published_file(task, remote, &url(remote), raw, limits, progress))
        .collect()
}

fn published_file(
    task: &dyn Task,
    remote: &Remote,
    url: &str,
    raw: &Path,
    limits: &Limits,
    progress: &dyn Progress,
) -> Result<Fetched> {
    let target = raw.join(remote.file);
    let same_size = |file: fs::Metadata| remote.bytes.is_none_or(|bytes| bytes == file.len());
    let whole = fs::metadata(&target).is_ok_and(same_size);
    // The file that an earlier download left under this name may be a web page.
    let mut damage = None;
    if whole && datasets::unlike_archive(&target)?.is_none() {
        let sha256 = hash(&target, progress)?;
        damage = match remote.sha256 {
            Some(known) => {
                (known != sha256).then(|| format!("{}: not the published file", target.display()))
            }
            None => damage_of(&target, progress)?,
        };
        if damage.is_none() {
            let fetched = described(&target, sha256, true)?;
            return Ok(Fetched {
                published: remote.sha256.map(|_| true),
                ..fetched
            });
        }
    }
    let download = Download {
        url,
        bytes: remote.bytes,
        sha256: remote.sha256,
        target: &target,
        help: alternatives(task),
        limits,
        progress,
    };
    let fetched = download.run().map_err(|error| match damage {
        None => error,
        Some(damage) => {
            let message = format!("{error}\n  {damage}; it is still there: remove it");
            Error::new(error.class, message)
        }
    })?;
    Ok(Fetched {
        published: remote.sha256.map(|_| true),
        ..fetched
    })
}

/// Reads an archive to its end. Returns the damage in words, with the path; `None` if there is
/// none.
///
/// # Errors
/// The system refuses to read it.
pub fn damage_of(path: &Path, progress: &dyn Progress) -> Result<Option<String>> {
    match datasets::check_archive(path, progress) {
        Ok(()) => Ok(None),
        Err(error) if error.class() == datasets::Class::Data => Ok(Some(error.to_string())),
        Err(error) => Err(error.into()),
    }
}

/// Ending of the names of unfinished copies.
const COPY: &str = ".copy";

/// Removes the copies that killed processes left unfinished: those that no process has locked.
fn clear_copies(raw: &Path) {
    for item in fs::read_dir(raw).into_iter().flatten().flatten() {
        let path = item.path();
        let unfinished = item.file_name().to_string_lossy().ends_with(COPY);
        let file = unfinished.then(|| disk::own(&path, File::options().write(true)));
        if let Some(Ok(file)) = file
            && let Ok(_held) = disk::try_lock_strictly(file)
        {
            // If it cannot be removed, it only takes up space.
            let _ = fs::remove_file(&path);
        }
    }
}

/// Opens or creates the unfinished file at `path`, which is to become `target`, locked for this
/// process.
fn locked(path: &Path, target: &Path) -> Result<Locked> {
    let mut options = File::options();
    options.create(true).truncate(false).read(true).write(true);
    let file = disk::own(path, &mut options)
        .map_err(|error| wrong(format!("cannot create {}: {error}", path.display())))?;
    match disk::try_lock(file) {
        // Other links keep what they have: the file is begun anew.
        Ok(_) if disk::is_shared(path) => {
            let removed = fs::remove_file(path);
            removed
                .map_err(|error| wrong(format!("cannot replace {}: {error}", path.display())))?;
            locked(path, target)
        }
        // Its process may have finished the file and renamed it in between.
        Ok(lock) if !disk::is_at(&lock, path) => {
            drop(lock);
            locked(path, target)
        }
        Ok(lock) => Ok(lock),
        Err(TryLockError::WouldBlock) => Err(wrong(format!(
            "another process is fetching {}",
            target.display()
        ))),
        Err(TryLockError::Error(error)) => {
            Err(wrong(format!("cannot lock {}: {error}", path.display())))
        }
    }
}

/// Copies a file of this machine.
fn copy(from: &Path, target: &Path, progress: &dyn Progress) -> Result<Fetched> {
    let unreadable = |error| wrong(format!("cannot read {}: {error}", from.display()));
    // Checked before it is opened: opening a pipe waits until a process writes to it.
    let size = fs::metadata(from).map_err(unreadable)?;
    if !size.is_file() {
        return Err(wrong(format!(
            "{} is not a regular file; for a folder use: lra data make TASK --from FOLDER",
            from.display()
        )));
    }
    if let Some(got) = datasets::unlike_archive(from)? {
        return Err(wrong(format!(
            "{} is not an archive but {}; for other files use: lra data make TASK --from FOLDER",
            from.display(),
            disk::escape(&got)
        )));
    }
    if let Some(damage) = damage_of(from, progress)? {
        return Err(wrong(format!("{damage}; it was not copied")));
    }
    let mut input = disk::open(from).map_err(unreadable)?;
    let part = beside(target, COPY);
    let unwritable = |error: std::io::Error| unwritable(&part, &error);
    let output = locked(&part, target)?;
    output.set_len(0).map_err(unwritable)?;
    progress.begin("copying", Some(size.len()));
    let mut buffer = vec![0; 1 << 20];
    loop {
        let count = input.read(&mut buffer).map_err(unreadable)?;
        if count == 0 {
            break;
        }
        output.append(&buffer[..count]).map_err(unwritable)?;
        progress.advance(count as u64);
    }
    progress.finish();
    disk::sync(&output).map_err(unwritable)?;
    let sha256 = hash(&part, progress)?;
    disk::rename(&part, target).map_err(unwritable)?;
    described(target, sha256, false)
}

fn described(path: &Path, sha256: String, kept: bool) -> Result<Fetched> {
    let file = fs::metadata(path)
        .map_err(|error| wrong(format!("cannot read {}: {error}", path.display())))?;
    Ok(Fetched {
        path: path.to_owned(),
        bytes: file.len(),
        sha256,
        published: None,
        kept,
    })
}

fn hash(path: &Path, progress: &dyn Progress) -> Result<String> {
    progress.begin("checking", fs::metadata(path).ok().map(|file| file.len()));
    let sum = Digest::of_file(path, |bytes| progress.advance(bytes));
    progress.finish();
    Ok(sum?)
}

fn is_address(from: &str) -> bool {
    let start = from.get(..8).unwrap_or(from).to_ascii_lowercase();
    start.starts_with("http://") || start.starts_with("https://")
}

/// Returns the file name at the end of an address or path.
fn last_part(from: &str) -> Result<String> {
    let path = from.split(['?', '#']).next().unwrap_or_default();
    match path.rsplit(['/', '\\']).next().unwrap_or_default() {
        "" | "." | ".." => Err(Error::usage(format!(
            "--from {from}: no file name at its end"
        ))),
        name => Ok(name.to_owned()),
    }
}

fn beside(path: &Path, end: &str) -> PathBuf {
    let mut name = OsString::from(path.file_name().unwrap_or_default());
    name.push(end);
    path.with_file_name(name)
}

/// Returns an error about writing a file.
fn unwritable(path: &Path, error: &std::io::Error) -> Error {
    let problem = format!("cannot write {}: {error}", path.display());
    Error::new(Class::of_writing(error), problem)
}

fn wrong(problem: String) -> Error {
    Error::new(Class::Data, problem)
}
