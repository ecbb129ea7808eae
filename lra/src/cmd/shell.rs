//! `lra completions` and `lra man`: shell completions and manual pages of the command line.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::cmd;
use crate::error::{Class, Classify, Result, in_writing};

/// Prints completions.
pub fn completions(shell: Shell) -> Result<ExitCode> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "lra", &mut text);
    cmd::print(&String::from_utf8_lossy(&text))?;
    Ok(ExitCode::SUCCESS)
}

/// Writes manual pages.
pub fn man(folder: &Path) -> Result<ExitCode> {
    let place = folder.display();
    let writing = || format!("writing manual pages into {place}");
    fs::create_dir_all(folder).map_err(in_writing(format!("making {place}")))?;
    // The pages are made in another folder, because the library writes through links.
    let made = tempfile::tempdir().during(Class::Data, writing())?;
    clap_mangen::generate_to(Cli::command(), made.path()).during(Class::Data, writing())?;
    for page in fs::read_dir(made.path()).during(Class::Data, writing())? {
        let page = page.during(Class::Data, writing())?;
        let text = disk::read(&page.path()).during(Class::Data, writing())?;
        cmd::write_file(&folder.join(page.file_name()), &text)?;
    }
    Ok(ExitCode::SUCCESS)
}
