//! `lra tour`: the tutorial (docs/tutorial.md) in small, command by command.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use crate::cli::TourArgs;
use crate::error::{Class, Classify, Result};
use crate::{child, cmd, run_folder, shell, stderr};

/// A command of the tour.
struct Step {
    /// Its words after `lra`.
    words: &'static str,
    /// A line on what its output shows.
    look: &'static str,
}

const STEPS: [Step; 7] = [
    Step {
        words: "data show toy",
        look: "the last lines are accuracies of trivial predictors: a model that is no better has learned nothing about order",
    },
    Step {
        words: "run --task toy --model transformer --recipe smoke",
        look: "`accuracy` has FAIL, because 20 steps are too few; the line of dashes places the score among the trivial predictors",
    },
    Step {
        words: "run --task toy --model transformer --recipe smoke --steps 1000",
        look: "`meaning` says how far the score is above or below the best trivial predictor",
    },
    Step {
        words: "run --task toy --model transformer --recipe smoke --steps 1000",
        look: "the same command does not train again: it shows the score on file",
    },
    Step {
        words: "sweep --tasks toy --models transformer,linear,bag --recipe smoke --steps 300 --seeds 0..2",
        look: "six runs, one line for each; the same command would continue where it stopped",
    },
    Step {
        words: "report --table accuracy",
        look: "a row for each model and setting, the mean over the seeds with its deviation, and notes on what may be compared",
    },
    Step {
        words: "report --format html --output report.html",
        look: "one page with tables and charts, which a browser opens without a network",
    },
];

/// Runs the commands in turn. If one fails, the tour ends with its exit code.
///
/// # Errors
/// The folder cannot be made, or this program cannot be started again.
pub fn run(arguments: &TourArgs) -> Result<ExitCode> {
    let folder = &arguments.out;
    fs::create_dir_all(folder).map_err(|error| run_folder::not_made(folder, error))?;
    let place = shell::quoted_path(folder);
    // Runs of an earlier tour.
    let resumes = folder.join("runs").exists();
    cmd::print_prose(&format!(
        "{} commands in the folder {place}, on a task that takes seconds. Data and runs stay in it.\n",
        STEPS.len()
    ))?;
    for (index, step) in STEPS.iter().enumerate() {
        let (number, all) = (index + 1, STEPS.len());
        // A command is copied as a whole.
        cmd::print(format!("\n[{number} of {all}] $ lra {}", step.words))?;
        cmd::print_prose(&format!("look at: {}\n\n", step.look))?;
        let code = code_of(step, folder, resumes)?;
        if code != 0 {
            stderr::error(format!(
                "the tour ends here: `lra {}` ended with exit code {code}",
                step.words
            ));
            return Ok(code.into());
        }
    }
    cmd::print_prose(&format!(
        "\nThe page is {}. `cd {place}` goes to the runs of the tour. Next: `lra list tasks`, `lra run --task listops --model linear`, \
         `lra mini linear --glance`.\n",
        shell::quoted_path(&folder.join("report.html"))
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Runs a command of the tour in `folder` and returns its exit code. If it `resumes`, a run that an
/// earlier tour left unfinished is continued.
fn code_of(step: &Step, folder: &Path, resumes: bool) -> Result<u8> {
    let doing = || format!("starting lra {}", step.words);
    let mut command = child::command_of_this_program()?;
    command
        .args(step.words.split(' '))
        .args((resumes && step.words.starts_with("run ")).then_some("--resume"))
        .current_dir(folder)
        .env("LRA_DATA", "data");
    let status = command.status().during(Class::Run, doing())?;
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.unwrap_or(Class::Run.code()))
}
