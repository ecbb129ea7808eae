//! Archives of real data, where they are available: `$LRA_SHARED_DATA`, else `shared/data` beside
//! the repository.

use std::env;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Returns the path of an archive; prints a line and returns `None` where it is not available.
#[allow(clippy::print_stderr)]
pub fn find(archive: &str) -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data");
    let root = env::var_os("LRA_SHARED_DATA").map_or(beside, PathBuf::from);
    let path = root.join(archive);
    if !path.is_file() {
        eprintln!("skipped: {archive} is not in {}", root.display());
        return None;
    }
    Some(path)
}

/// Returns the files of a `.tar.zst` archive, by name; prints a line and returns `None` where the
/// archive is not available.
#[allow(dead_code)] // Not every test file needs all of this module.
pub fn unpack(archive: &str) -> Option<Vec<(String, Vec<u8>)>> {
    let plain = zstd::Decoder::new(File::open(find(archive)?).unwrap()).unwrap();
    let mut files = Vec::new();
    for entry in tar::Archive::new(plain).entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().display().to_string();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        files.push((name, bytes));
    }
    Some(files)
}
