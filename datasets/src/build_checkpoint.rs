//! Checkpoint of a long build: finished chunks on disk, so that an interrupted build resumes where
//! it stopped.
//!
//! A build that generates its data splits the work into numbered chunks, each a pure function of
//! its number and the entry's key. A chunk is compressed and written as soon as it is made, in a
//! hidden folder next to the entry. The next build of the same entry reads it back if its SHA-256
//! is right, and makes it again otherwise. The folder is removed when the entry is complete.
//!
//! Layout of a chunk's file, `<number, 6 digits>.part`: 32 bytes SHA-256 over entry name, number
//! and the following bytes; then the chunk as a raw DEFLATE stream.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;
use rayon::prelude::*;
use sha2::{Digest as _, Sha256};

use crate::error::{Result, io};
use crate::files;

/// Size of a SHA-256 in bytes.
const HASH: usize = 32;
/// Maximum number of chunks in memory at a time, per thread.
const CHUNKS_PER_THREAD: usize = 4;

/// Finished chunks of one entry.
#[derive(Debug)]
pub struct BuildCheckpoint {
    folder: PathBuf,
}

impl BuildCheckpoint {
    /// Returns the checkpoint in `folder`, which is named after the entry; it is created when the
    /// first chunk is finished.
    pub(crate) fn new(folder: PathBuf) -> BuildCheckpoint {
        BuildCheckpoint { folder }
    }

    /// Returns whether an earlier build of the entry was interrupted and left chunks.
    pub fn exists(&self) -> bool {
        self.folder.is_dir()
    }

    /// Passes all `count` chunks to `take`, in order; those that are not on disk are made in
    /// parallel.
    ///
    /// `make` must return the same bytes for a number whenever it is called; `restored` is called
    /// with the number of each chunk that was read from disk instead.
    ///
    /// # Errors
    /// A chunk cannot be written, or `make` or `take` fails. Finished chunks stay.
    pub fn in_order(
        &self,
        count: usize,
        make: impl Fn(usize) -> Result<Vec<u8>> + Sync,
        restored: impl Fn(usize) + Sync,
        mut take: impl FnMut(usize, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let numbers: Vec<usize> = (0..count).collect();
        for window in numbers.chunks(CHUNKS_PER_THREAD * rayon::current_num_threads()) {
            let chunks: Vec<Vec<u8>> = window
                .par_iter()
                // One at a time: chunks take long, and some much longer than others.
                .with_max_len(1)
                .map(|&number| match self.load(number) {
                    Some(bytes) => {
                        restored(number);
                        Ok(bytes)
                    }
                    None => {
                        let bytes = make(number)?;
                        self.save(number, &bytes)?;
                        Ok(bytes)
                    }
                })
                .collect::<Result<_>>()?;
            for (&number, bytes) in window.iter().zip(&chunks) {
                take(number, bytes)?;
            }
        }
        Ok(())
    }

    /// Returns an unnamed temporary file on the same disk; the system removes it when it is closed.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn scratch(&self) -> Result<File> {
        fs::create_dir_all(&self.folder).map_err(io("create", &self.folder))?;
        tempfile::tempfile_in(&self.folder).map_err(io("create a file in", &self.folder))
    }

    /// Removes all chunks, once the entry is complete.
    pub(crate) fn discard(self) {
        // A leftover folder only costs space.
        let _ = fs::remove_dir_all(&self.folder);
    }

    fn load(&self, number: usize) -> Option<Vec<u8>> {
        let file = files::read(&self.path(number)).ok()?;
        let (hash, packed) = file.split_at_checked(HASH)?;
        if hash != self.hash(number, packed) {
            return None;
        }
        let mut bytes = Vec::new();
        DeflateDecoder::new(packed).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    fn save(&self, number: usize, bytes: &[u8]) -> Result<()> {
        disk::refuse_link(&self.folder).map_err(io("write into", &self.folder))?;
        fs::create_dir_all(&self.folder).map_err(io("create", &self.folder))?;
        let path = self.path(number);
        let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
        let packed = encoder
            .write_all(bytes)
            .and_then(|()| encoder.finish())
            .map_err(io("write", &path))?;
        let file = [&self.hash(number, &packed)[..], &packed].concat();
        // Not synced: a chunk that a power failure damages is recognized by its hash.
        files::replace(&path, &file).map_err(io("write", &path))
    }

    fn path(&self, number: usize) -> PathBuf {
        self.folder.join(format!("{number:06}.part"))
    }

    /// Returns the SHA-256 over the entry's name, the number and the content, so that a file of
    /// another entry or number is rejected.
    fn hash(&self, number: usize, packed: &[u8]) -> [u8; HASH] {
        let name = self
            .folder
            .file_name()
            .map(Path::new)
            .unwrap_or(Path::new(""));
        Sha256::new()
            .chain_update(name.to_string_lossy().as_bytes())
            .chain_update((number as u64).to_le_bytes())
            .chain_update(packed)
            .finalize()
            .into()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Runs a build of five chunks; returns the numbers made and the bytes taken.
    fn run(folder: &Path, stop_at: usize) -> (Vec<usize>, Vec<u8>, Result<()>) {
        let made = Mutex::new(Vec::new());
        let mut bytes = Vec::new();
        let make = |number: usize| {
            made.lock().unwrap().push(number);
            Ok(vec![number as u8; 1000])
        };
        let take = |number, chunk: &[u8]| {
            if number == stop_at {
                return Err(io("write", folder)(std::io::Error::other("stopped")));
            }
            bytes.extend_from_slice(chunk);
            Ok(())
        };
        let checkpoint = BuildCheckpoint::new(folder.to_owned());
        // Also on a machine with one processor: the number of chunks made at once depends on the
        // threads.
        let pool = rayon::ThreadPoolBuilder::new().num_threads(2);
        let pool = pool.build().unwrap();
        let result = pool.install(|| checkpoint.in_order(5, make, |_| (), take));
        let mut made = made.into_inner().unwrap();
        made.sort_unstable();
        (made, bytes, result)
    }

    #[test]
    fn an_interrupted_build_resumes_and_damaged_chunks_are_made_again() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join(".parts-toy");
        let all: Vec<u8> = (0..5).flat_map(|number| vec![number; 1000]).collect();
        let (made, _, result) = run(&folder, 2);
        assert!(result.is_err());
        assert_eq!(made.len(), 5);

        let spoil = |number: usize, spoil: &dyn Fn(&mut Vec<u8>)| {
            let path = folder.join(format!("{number:06}.part"));
            let mut file = fs::read(&path).unwrap();
            spoil(&mut file);
            fs::write(&path, file).unwrap();
        };
        spoil(0, &|file| file[HASH + 3] ^= 1);
        spoil(1, &|file| file.truncate(HASH + 5));
        spoil(2, &|file| file.truncate(3));
        fs::copy(folder.join("000003.part"), folder.join("000004.part")).unwrap();
        let (made, bytes, result) = run(&folder, 9);
        result.unwrap();
        assert_eq!(made, [0, 1, 2, 4]);
        assert_eq!(bytes, all);

        let (made, bytes, _) = run(&folder, 9);
        assert_eq!((made, bytes), (vec![], all));
        BuildCheckpoint::new(folder.clone()).discard();
        assert!(!folder.exists());
    }

    #[test]
    fn chunks_of_another_entry_are_not_taken() {
        let root = tempfile::tempdir().unwrap();
        let (one, other) = (
            root.path().join(".parts-one"),
            root.path().join(".parts-other"),
        );
        run(&one, 9).2.unwrap();
        fs::rename(&one, &other).unwrap();
        assert_eq!(run(&other, 9).0.len(), 5);
    }
}
