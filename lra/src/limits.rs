//! Memory that the system allows this process to use: that of the machine, or less because of a
//! control group or `ulimit`.

use std::fs;
use std::path::{Path, PathBuf};

use sysinfo::System;

use crate::error::{Error, Result};

/// Returns the bytes of memory that this process may use: the least of the machine's memory, the
/// limits of its control group and of those above it, and the limits on its addresses and data.
pub fn total_memory() -> Option<u64> {
    let machine = memory_info().map(|system| system.total_memory());
    let groups = groups().into_iter().filter_map(|group| group.limit);
    let limits = groups.chain(machine).chain(address_space());
    limits.min()
}

/// Returns the bytes of memory that are free now, or could be freed, within the machine and the
/// control groups.
pub fn free_memory() -> Option<u64> {
    let machine = memory_info().map(|system| system.available_memory());
    let groups = groups().into_iter().filter_map(|group| group.free());
    groups.chain(machine).chain(address_space()).min()
}

/// Returns the largest resident size, without file-backed memory, at which this process keeps its
/// control group and those above it within `share` of their limits, if the other processes in them
/// do not change. The process has `own` bytes now. Returns `None` if there is no limit.
pub fn most_resident(own: u64, share: f64) -> Option<u64> {
    let most = |group: Group| group.most_of(own, share);
    groups().into_iter().filter_map(most).min()
}

fn memory_info() -> Option<System> {
    let mut system = System::new().ok()?;
    system.refresh_memory();
    Some(system)
}

/// Returns the bytes of addresses, or of data, that `ulimit -v` or `ulimit -d` allow this process;
/// `None` if there is no such limit.
#[cfg(unix)]
pub fn address_space() -> Option<u64> {
    let limit = |resource| {
        let mut limit = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: the call writes one structure.
        let status = unsafe { libc::getrlimit(resource, &raw mut limit) };
        (status == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
    };
    let limits = [limit(libc::RLIMIT_AS), limit(libc::RLIMIT_DATA)];
    limits.into_iter().flatten().min()
}

/// Returns `None`: this system has no such limit.
#[cfg(not(unix))]
pub fn address_space() -> Option<u64> {
    None
}

/// Memory that a process needs, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Needs {
    /// Addresses, whether they are used or only reserved.
    pub addresses: u64,
    /// Memory that is in use.
    pub resident: u64,
}

/// Checks that limits on addresses and memory leave room for what the process `needs` beyond its
/// present use. Without this check, a thread that cannot allocate its buffers would abort the
/// process, or the control group would kill it, both without a record.
///
/// # Errors
/// A limit leaves less; the message names the limit and the remedy, `less` being another one than
/// to raise it.
pub fn check(needs: Needs, less: &str) -> Result<()> {
    let now = in_use().unwrap_or(Needs {
        addresses: 0,
        resident: 0,
    });
    let sum = |now: u64, more: u64| (now + more).div_ceil(1 << 10);
    if let Some(limit) = address_space() {
        let (least, limit) = (sum(now.addresses, needs.addresses), limit >> 10);
        if limit < least {
            return Err(Error::usage(format!(
                "the limit of {limit} KiB on addresses (ulimit -v, ulimit -d) is too low: the program needs \
                 {least} KiB before it begins its work; raise it{less}"
            )));
        }
    }
    if let Some(limit) = groups().into_iter().filter_map(|group| group.limit).min() {
        let (least, limit) = (sum(now.resident, needs.resident), limit >> 10);
        if limit < least {
            return Err(Error::usage(format!(
                "the control group's limit of {limit} KiB of memory is too low: the program needs {least} KiB \
                 before it begins its work; raise it{less}"
            )));
        }
    }
    Ok(())
}

/// Returns the memory that this process has now; `None` where the system does not report it.
fn in_use() -> Option<Needs> {
    const PAGE: u64 = 4096;
    let sizes = fs::read_to_string("/proc/self/statm").ok()?;
    let mut pages = sizes
        .split(' ')
        .map_while(|number| number.parse::<u64>().ok());
    Some(Needs {
        addresses: PAGE * pages.next()?,
        resident: PAGE * pages.next()?,
    })
}

/// Memory limit and use of a control group.
#[derive(Debug, PartialEq)]
struct Group {
    /// Most bytes that its processes may use together.
    limit: Option<u64>,
    /// Bytes that its processes use, cached files that could be dropped not counted.
    used: u64,
}

impl Group {
    fn free(&self) -> Option<u64> {
        Some(self.limit?.saturating_sub(self.used))
    }

    fn most_of(&self, own: u64, share: f64) -> Option<u64> {
        let others = self.used.saturating_sub(own);
        Some(((self.limit? as f64 * share) as u64).saturating_sub(others))
    }
}

/// Returns the folder in which the system lists the control groups of this process. In debug builds
/// the variable `LRA_PROC_SELF` names another folder, for tests.
fn own_process() -> PathBuf {
    #[cfg(debug_assertions)]
    if let Some(folder) = std::env::var_os("LRA_PROC_SELF") {
        return folder.into();
    }
    PathBuf::from("/proc/self")
}

/// Returns this process's control group for memory and those above it; empty where the system has
/// none.
fn groups() -> Vec<Group> {
    let read = |name| fs::read_to_string(own_process().join(name)).unwrap_or_default();
    let memberships = read("cgroup");
    let mounts = read("mountinfo");
    places(&memberships, &mounts)
        .iter()
        .flat_map(|(folder, top, version)| {
            let within = folder.ancestors().take_while(|at| at.starts_with(top));
            within.map(|at| group(at, version)).collect::<Vec<Group>>()
        })
        .collect()
}

/// Names of a control group's files, which differ between the two versions of the interface.
#[derive(Debug, PartialEq)]
struct Version {
    limit: &'static str,
    used: &'static str,
    /// Line of `memory.stat` with the bytes of cached files that could be dropped.
    cached: &'static str,
}

const V1: Version = Version {
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    cached: "total_inactive_file",
};
const V2: Version = Version {
    limit: "memory.max",
    used: "memory.current",
    cached: "inactive_file",
};

/// Returns the folders of the process's own groups, each with the folder that the hierarchy is
/// mounted at, from the texts of `/proc/self/cgroup` and `/proc/self/mountinfo`.
fn places(memberships: &str, mounts: &str) -> Vec<(PathBuf, PathBuf, Version)> {
    // `number:controllers:path`; version 2 has number 0 and no controllers.
    let membership = |line: &str| {
        let mut words = line.splitn(3, ':');
        let (number, controllers, path) = (words.next()?, words.next()?, words.next()?);
        let memory = controllers.split(',').any(|name| name == "memory");
        match (number, memory) {
            (_, true) => Some((path.to_owned(), V1)),
            ("0", false) => Some((path.to_owned(), V2)),
            _ => None,
        }
    };
    let place = |(path, version): (String, Version)| {
        let (root, mount) = mounts.lines().find_map(|line| mounted(line, &version))?;
        // A container may only see a part of the hierarchy.
        let below = Path::new(&path)
            .strip_prefix(&root)
            .unwrap_or(Path::new(""));
        Some((mount.join(below), mount, version))
    };
    let found = memberships.lines().filter_map(membership);
    found.filter_map(place).collect()
}

/// Returns the root and the mount point of a hierarchy that counts memory, from a line of
/// `mountinfo`: `id parent device root point options [more]... - type source options`.
fn mounted(line: &str, version: &Version) -> Option<(PathBuf, PathBuf)> {
    let (before, after) = line.split_once(" - ")?;
    let mut before = before.split(' ').skip(3);
    let (root, point) = (before.next()?, before.next()?);
    let mut after = after.split(' ');
    let (kind, options) = (after.next()?, after.nth(1)?);
    let counts = match *version == V2 {
        true => kind == "cgroup2",
        false => kind == "cgroup" && options.split(',').any(|option| option == "memory"),
    };
    counts.then(|| (root.into(), point.into()))
}

fn group(folder: &Path, version: &Version) -> Group {
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_default();
    // `max`, or a number beyond any machine's memory where there is no limit.
    let number = |name: &str| read(name).trim().parse::<u64>().ok();
    let stat = read("memory.stat");
    let cached = stat.lines().find_map(|line| {
        let (name, bytes) = line.split_once(' ')?;
        bytes.parse::<u64>().ok().filter(|_| name == version.cached)
    });
    let used = number(version.used).unwrap_or(0);
    Group {
        limit: number(version.limit),
        used: used.saturating_sub(cached.unwrap_or(0)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_finds_its_own_group_in_either_version() {
        let v2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
        let found = places("0::/user.slice/job.scope\n", v2);
        let own = Path::new("/sys/fs/cgroup/user.slice/job.scope");
        assert_eq!(found, [(own.into(), "/sys/fs/cgroup".into(), V2)]);

        let v1 = "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                  35 31 0:32 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        let found = places(
            "9:name=systemd:/\n4:memory:/docker/abc/inner\n1:cpu:/\n",
            v1,
        );
        let top = Path::new("/sys/fs/cgroup/memory");
        assert_eq!(found, [(top.join("inner"), top.into(), V1)]);

        assert_eq!(places("", ""), []);
        assert_eq!(places("nonsense\n0::/\n", "also\n"), []);
    }

    #[test]
    fn a_groups_limit_and_what_is_left_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        write("memory.max", "max\n");
        let free = |version: &Version| group(folder.path(), version).free();
        assert_eq!(free(&V2), None);
        write("memory.max", "1000\n");
        write("memory.current", "700\n");
        write("memory.stat", "anon 500\ninactive_file 200\n");
        assert_eq!(free(&V2), Some(500));
        // Another process uses 300 of the 500 bytes in use.
        let most = |own| group(folder.path(), &V2).most_of(own, 0.5);
        assert_eq!((most(200), most(500)), (Some(200), Some(500)));
        write("memory.limit_in_bytes", "90\n");
        write("memory.usage_in_bytes", "100\n");
        assert_eq!(free(&V1), Some(0));
    }

    #[test]
    fn there_is_some_memory() {
        let (total, free) = (total_memory().unwrap(), free_memory().unwrap());
        assert!(free <= total && total > 1 << 20, "{free} of {total}");
    }
}
