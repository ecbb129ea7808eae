//! The file system as the program uses it.
//!
//! - [`open`], [`read`] and [`read_to_string`] take regular files only: a pipe or a device might
//!   never end.
//! - [`own`] opens files that the program itself names within its folders, and follows no symbolic
//!   link there.
//! - [`write()`] replaces a file as a whole: after a crash it holds its old content or the new one.
//! - [`try_lock`] takes a lock that ends with its process, with a way out where the file system has
//!   no locks.
//! - In debug builds `LRA_FAULTS` names operations that fail (`faults.rs`).

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod faults;
mod lock;
mod open;
mod write;

pub use lock::{try_lock, try_lock_strictly};
pub use open::{open, own, read, read_to_string, refuse_link, refuse_links};
pub use write::{
    Append, Output, folder_of, is_own_temporary, remove, rename, sync, write, write_unsynced,
};
