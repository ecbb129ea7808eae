//! Operations on the file system.
//!
//! - [`open`], [`read`] and [`read_to_string`] accept regular files only, since a pipe or a device
//!   might never end.
//! - [`own`] opens files that the program names in its own folders, and follows no symbolic link
//!   there.
//! - [`write()`] replaces a file as a whole: after a crash it holds its old content or the new one.
//! - [`try_lock`] takes a lock that ends with its process. `LRA_LOCKS=off` allows file systems
//!   without locks.
//! - In debug builds `LRA_FAULTS` makes chosen operations fail (`faults.rs`).

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
