//! Compiles the CUDA kernels below `src` to PTX, which the program embeds. Does nothing without the
//! feature `cuda`.
//!
//! The compiler is `$NVCC`, or `nvcc` on the path. One PTX serves every card of compute capability
//! 8.0 or newer: the driver translates it once, and caches the result.

use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-env-changed=NVCC");
    println!("cargo:rerun-if-changed=build.rs");
    if env::var_os("CARGO_FEATURE_CUDA").is_none() {
        return Ok(());
    }
    println!("cargo:rerun-if-changed=src");
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    let mut kernels = Vec::new();
    find(Path::new("src"), &mut kernels)?;
    let failed = thread::scope(|scope| {
        let tasks: Vec<_> = kernels
            .iter()
            .map(|kernel| scope.spawn(|| compile(kernel, &out)))
            .collect();
        let results = tasks.into_iter().map(|task| match task.join() {
            Ok(result) => result,
            Err(_) => Err("a thread has panicked".to_owned()),
        });
        results.filter_map(Result::err).collect::<Vec<_>>()
    });
    match failed.is_empty() {
        true => Ok(()),
        false => Err(failed.join("\n").into()),
    }
}

/// Finds every `.cu` at or below a folder.
fn find(folder: &Path, kernels: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in folder.read_dir()? {
        let path = entry?.path();
        if path.is_dir() {
            find(&path, kernels)?;
        } else if path.extension().is_some_and(|extension| extension == "cu") {
            kernels.push(path);
        }
    }
    Ok(())
}

/// Compiles `src/ops/norm/cuda.cu` to `ops-norm-cuda.ptx` in the folder `out`.
fn compile(kernel: &Path, out: &Path) -> Result<(), String> {
    let name = kernel.with_extension("ptx");
    let name = name.strip_prefix("src").unwrap_or(&name);
    let name = name.display().to_string().replace(['/', '\\'], "-");
    let nvcc = env::var_os("NVCC").unwrap_or_else(|| "nvcc".into());
    let status = Command::new(&nvcc)
        .args([
            "-std=c++20",
            "-O3",
            "-arch=compute_80",
            "-ptx",
            "-Isrc",
            "-o",
        ])
        .arg(out.join(name))
        .arg(kernel)
        .status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!(
            "{nvcc:?} cannot compile {}: {status}",
            kernel.display()
        )),
        Err(error) => Err(format!("{nvcc:?} does not start: {error}")),
    }
}
