//! `lra completions` and `lra man`: what a shell and `man` know of the command line.

use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::cmd;
use crate::error::{Class, Classify, Result};

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
    std::fs::create_dir_all(folder).during(Class::Data, format!("making {place}"))?;
    let written = clap_mangen::generate_to(Cli::command(), folder);
    written.during(Class::Data, format!("writing manual pages into {place}"))?;
    Ok(ExitCode::SUCCESS)
}
