//! Quoting of words for shells.

pub use datasets::command::{data_flag, quoted, quoted_path, quoted_word};
