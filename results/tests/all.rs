//! All tests of the crate that need no process of their own: one program, so that what they share
//! is compiled and linked once.

#![allow(clippy::unwrap_used)]

mod chromium;
mod common;

mod agreement;
mod bench;
mod browser;
mod check;
mod formats;
mod imported;
mod page;
mod published;
mod record_file;
mod schemas;
mod site;
mod site_browser;
mod store;
mod summary;
mod tables;
