//! Operations on the file system, and the text of files.
//!
//! - [`open`], [`read`] and [`read_to_string`] accept regular files only, since a pipe or a device
//!   might never end.
//! - [`own`] opens files that the program names in its own folders, and follows no symbolic link
//!   there. [`create`] and [`own_alone`] leave other hard links of such a file as they are.
//! - [`write()`] replaces a file as a whole: after a crash it holds its old content or the new one.
//!   [`sync_folder`] makes names durable, too.
//! - [`TemporaryFolder`] is removed at its end, or by a later process if its own was killed.
//! - [`is_of_content`] tells errors about a file from those of the system.
//! - [`try_lock`] takes a lock that ends with its process. `LRA_LOCKS=off` allows file systems
//!   without locks.
//! - [`escape`] and [`printable`] make text of a file safe for a terminal. [`without_mark`] drops a
//!   byte order mark.
//! - [`kind_in_words`] names the kind of value that a reader expected.
//! - In debug builds `LRA_FAULTS` makes chosen operations fail (`faults.rs`).

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod alone;
mod blame;
mod faults;
mod kind;
mod lock;
mod open;
mod temporary;
mod text;
mod write;

pub use alone::{create, is_shared, own_alone};
pub use blame::is_of_content;
pub use kind::kind_in_words;
pub use lock::{Locked, check_locks_variable, is_at, try_lock, try_lock_strictly};
pub use open::{open, own, read, read_to_string, refuse_link, refuse_links};
pub use temporary::{TemporaryFolder, clear_temporary};
pub use text::{escape, is_obeyed, printable, without_mark};
pub use write::{
    Append, Output, folder_of, is_own_temporary, remove, rename, sync, sync_folder, write,
    write_unsynced,
};
