//! Process-wide settings: the allocator's thresholds, the size of the thread pools, the command
//! line.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::{fmt, io, thread};

use candle_core::{DType, Device, Tensor};

use crate::error::{Error, Result};
use crate::limits::{self, Needs};
use crate::{shell, stderr, torch};

/// Checks that limits leave room to read the command line, before anything large is allocated.
///
/// # Errors
/// A limit leaves less room.
pub fn check_start() -> Result<()> {
    let needs = Needs {
        addresses: OTHER_HEAP,
        resident: 0,
    };
    limits::check(needs, "")
}

/// Checks that limits leave room for the threads of a verb that computes nothing with a model:
/// without room, the thread that starts them panics or waits forever.
///
/// # Errors
/// A limit leaves less room.
pub fn check_room() -> Result<()> {
    limits::check(
        Needs {
            addresses: cores() as u64 * OTHER_STACK + OTHER_HEAP,
            resident: 0,
        },
        "",
    )
}

/// Stack of a thread that is no worker.
const OTHER_STACK: u64 = 2 << 20;
/// Heap of a verb that trains nothing.
const OTHER_HEAP: u64 = 12 << 20;

/// Applies the settings. It must be the first call of a verb; `threads` as in [`threads`], `None`
/// for a verb without `--threads`.
pub fn set_up(threads: Option<usize>) -> Result<()> {
    let by_flag = threads.is_some();
    let asked = threads.unwrap_or(0);
    let threads = self::threads(asked);
    let less = match (threads, by_flag) {
        (1, _) => "",
        (_, true) => ", or use fewer --threads",
        (_, false) => ", or set RAYON_NUM_THREADS to fewer threads",
    };
    if let (0, Some(given)) = (asked, env::var_os(RAYON))
        && threads_of(&given).is_none()
    {
        let (given, most) = (given.to_string_lossy(), most_threads());
        stderr::warning(format!(
            "{RAYON}={given} is not a number of threads from 1 to {most}; {threads} are used"
        ));
    }
    limits::check(needs(threads as u64), less)?;
    keep_freed_pages();
    // candle keeps a second pool for element-wise operations. It must have the same size, and must
    // not spin between operations while the first pool needs the cores.
    for (name, value) in [
        ("CANDLE_NUM_THREADS", threads.to_string()),
        ("CANDLE_BARRIER_POOL_SPIN_LIMIT", "0".to_owned()),
    ] {
        if env::var_os(name).is_none() {
            // SAFETY: no other thread exists yet.
            unsafe { env::set_var(name, value) };
        }
    }
    rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .thread_name(|index| format!("worker-{index}"))
        .stack_size(STACK)
        .build_global()
        .map_err(|error| no_thread(threads, &error))?;
    // candle starts as many, later, and panics if it cannot.
    let more = threads + OTHER_THREADS;
    start_and_end(more).map_err(|error| no_thread(more, &error))?;
    fetch_buffers();
    Ok(())
}

/// Starts threads that wait for one another, and ends them.
///
/// # Errors
/// The system refuses to start so many.
fn start_and_end(count: usize) -> io::Result<()> {
    thread::scope(|scope| {
        // Threads end when their channels are closed, whether all could be started or not.
        let mut channels = Vec::with_capacity(count);
        for _ in 0..count {
            let (channel, closed) = mpsc::channel::<()>();
            let wait = move || closed.recv().is_err();
            thread::Builder::new()
                .stack_size(SMALL_STACK)
                .spawn_scoped(scope, wait)?;
            channels.push(channel);
        }
        Ok(())
    })
}

/// Stack of a thread that does nothing, in bytes.
const SMALL_STACK: usize = 64 << 10;
/// Threads beside the workers: they prepare batches, draw progress, listen for the end of input.
const OTHER_THREADS: usize = 4;

/// Returns the error for so many threads that the system refuses to start.
fn no_thread(count: usize, error: &dyn fmt::Display) -> Error {
    Error::usage(format!(
        "cannot start {count} more threads: {error}; the limit on processes may be too low (`ulimit -u`, or pids.max of the control group)"
    ))
}

/// Stack of a worker, which walks whole graphs of operations: as large as that of a main thread.
const STACK: usize = 8 << 20;

/// Returns the memory that the program needs before a run starts, beyond its code: for each worker
/// its stack, the stack of its candle thread, and its buffers; for the process the padding of its
/// heap, and some further threads with their scratch memory.
fn needs(threads: u64) -> Needs {
    const MIB: u64 = 1 << 20;
    const BUFFERS: u64 = 4 * MIB;
    const HEAP: u64 = 16 * MIB;
    let stacks = threads * (STACK as u64 + OTHER_STACK) + OTHER_THREADS as u64 * OTHER_STACK;
    Needs {
        addresses: stacks + (threads + 1) * BUFFERS + TOP_PAD as u64 + HEAP,
        resident: (threads + 1) * BUFFERS + HEAP,
    }
}

/// Bytes that glibc fetches at the end of its heap beyond those requested.
const TOP_PAD: i32 = 64 << 20;

/// Runs work that consists of many parallel operations. On the CPU it runs on a worker, so that no
/// operation has to wake a worker and wait for it. The work must not wait for other work that needs
/// workers.
pub fn among_workers<T: Send>(device: &Device, work: impl FnOnce() -> T + Send) -> T {
    match device {
        Device::Cpu => rayon::scope(|_| work()),
        _ => work(),
    }
}

/// Allocates the buffers that every worker and this thread keep for kernels and for candle's matrix
/// products, the latter as large as the L2 cache. If they were allocated later, memory peaks would
/// depend on the distribution of the work among threads.
fn fetch_buffers() {
    let fetch = || -> candle_core::Result<()> {
        models::ops::fetch_buffers();
        let matrix = Tensor::zeros((64, 64), DType::F32, &Device::Cpu)?;
        matrix.matmul(&matrix)?;
        Ok(())
    };
    // The product and its error are discarded, since an error that matters would occur again.
    rayon::broadcast(|_| drop(fetch()));
    drop(fetch());
}

/// An option that programs pass to the runs they start; users do not type it.
pub const STOP_ON_EOF: &str = "--stop-on-eof";

/// Returns the command line for records, quoted for a shell: as typed, without options that only
/// programs pass, and behind the variables that name a mixer in Python and its interpreter, if
/// there is one.
///
/// A program given by its absolute path is recorded by its name if a shell finds it by that. In a
/// word that is not Unicode, `\u{fffd}` replaces invalid parts.
pub fn command_line() -> String {
    let typed = as_typed(env::args_os().collect(), env::var_os("PATH").as_deref());
    of_mixer(|name| env::var_os(name)) + &typed
}

/// Returns the assignments that stand before the command of a mixer in Python, by the variables
/// that are `set`; empty if they name no mixer.
fn of_mixer(set: impl Fn(&str) -> Option<OsString>) -> String {
    let set = |name: &str| set(name).filter(|value| !value.is_empty());
    let names = match set(torch::VARIABLE) {
        Some(_) => &[torch::PYTHON, torch::VARIABLE][..],
        None => &[],
    };
    let assignment = |name: &&str| Some(format!("{name}={} ", shell::quoted_word(&set(name)?)));
    names.iter().filter_map(assignment).collect()
}

fn as_typed(mut words: Vec<OsString>, search: Option<&OsStr>) -> String {
    if let Some(program) = words.first_mut() {
        let path = Path::new(&*program);
        if let (true, Some(name)) = (path.is_absolute(), path.file_name()) {
            let folders = search.map(env::split_paths).into_iter().flatten();
            let found = folders
                .map(|folder| folder.join(name))
                .find(|it| it.is_file());
            let same = |found: PathBuf| found.canonicalize().ok() == path.canonicalize().ok();
            if found.is_some_and(same) {
                *program = name.to_owned();
            }
        }
    }
    let typed = words.iter().filter(|word| *word != STOP_ON_EOF);
    let quoted: Vec<_> = typed.map(|word| shell::quoted_word(word)).collect();
    quoted.join(" ")
}

/// Returns the largest number of worker threads: four for each core, and 64 on small machines. Each
/// holds buffers and a stack, so many more would exhaust the memory before doing any work, and wait
/// for each other.
pub fn most_threads() -> usize {
    (4 * cores()).max(64)
}

fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Returns the number of threads for a value of `--threads`: 0 means `RAYON_NUM_THREADS`, else all
/// cores.
pub fn threads(asked: usize) -> usize {
    match asked {
        0 => threads_from_environment(),
        n => n,
    }
}

fn threads_from_environment() -> usize {
    let asked = env::var_os(RAYON).and_then(|given| threads_of(&given));
    asked.unwrap_or_else(cores)
}

/// The variable that rayon reads the number of threads from.
const RAYON: &str = "RAYON_NUM_THREADS";

/// Returns the number of threads that a value of [`RAYON`] asks for, if it is one.
fn threads_of(given: &OsStr) -> Option<usize> {
    let number = given.to_str()?.parse().ok();
    number.filter(|number| (1..=most_threads()).contains(number))
}

/// Keeps freed memory in the process. By default glibc returns every large block to the system and
/// faults it in again, page by page, at the next step, which dominates an untuned training step.
/// Higher thresholds prevent this, even if a step takes many gigabytes. All threads share one heap,
/// since a heap per thread ends at 64 MiB, and larger blocks would come from the system again.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn keep_freed_pages() {
    /// Threshold that prevents the end of the heap from being given back.
    const NEVER: i32 = -1;
    /// Largest threshold that older versions of glibc accept: half of the size of a thread's heap.
    const OLDER_LIMIT: i32 = 32 << 20;
    // SAFETY: mallopt only stores the number; called once, before other threads exist.
    let set = |parameter, value| unsafe { libc::mallopt(parameter, value) } == 1;
    if !set(libc::M_MMAP_THRESHOLD, i32::MAX) {
        set(libc::M_MMAP_THRESHOLD, OLDER_LIMIT);
    }
    set(libc::M_TRIM_THRESHOLD, NEVER);
    set(libc::M_TOP_PAD, TOP_PAD);
    set(libc::M_ARENA_MAX, 1);
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn keep_freed_pages() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_kept_as_it_is_typed() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("lra");
        std::fs::write(&program, "").unwrap();
        let program = program.to_str().unwrap();
        let path = [Path::new("/nowhere"), folder.path()];
        let path = env::join_paths(path).unwrap();
        let words = |words: &[&str]| words.iter().map(OsString::from).collect();
        let kept = |given: &[&str]| as_typed(words(given), Some(&path));
        assert_eq!(
            kept(&[program, "run", "--set", "a=it's 2", "--stop-on-eof"]),
            r"lra run --set 'a=it'\''s 2'"
        );
        // A shell would find no program, or another one.
        assert_eq!(kept(&["/opt/bin/lra", "list"]), "/opt/bin/lra list");
        let alone = as_typed(words(&[program, "list"]), None);
        assert_eq!(alone, format!("{program} list"));
        assert_eq!(
            kept(&["target/debug/lra", "--out", "/tmp/x"]),
            "target/debug/lra --out /tmp/x"
        );
    }

    #[test]
    fn a_mixer_in_python_stands_before_the_command_with_its_interpreter() {
        let of = |pairs: &[(&str, &str)]| {
            of_mixer(|name| {
                let pair = pairs.iter().find(|(of, _)| *of == name)?;
                Some(pair.1.into())
            })
        };
        assert_eq!(
            of(&[("LRA_TORCH", "a b.py:make"), ("LRA_PYTHON", "/venv/python")]),
            "LRA_PYTHON=/venv/python LRA_TORCH='a b.py:make' "
        );
        assert_eq!(
            of(&[("LRA_TORCH", "m.py:f"), ("LRA_PYTHON", "")]),
            "LRA_TORCH=m.py:f "
        );
        assert_eq!(of(&[("LRA_PYTHON", "/venv/python")]), "");
    }
}
