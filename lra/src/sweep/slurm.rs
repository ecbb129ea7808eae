//! A sweep as a Slurm array job: every element of the array is a shard.

use std::path::Path;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::shell;

/// Contents of the job script.
pub struct Array<'a> {
    /// Elements of the array.
    pub elements: usize,
    /// Cores of each element.
    pub cores: usize,
    /// Memory of each element, in bytes.
    pub memory: Option<usize>,
    /// Time limit of each element.
    pub time: Option<Duration>,
    /// GPUs of each element.
    pub gpus: usize,
    /// Further options for `sbatch`, such as `--partition=short`.
    pub directives: &'a [String],
    /// Path of this program.
    pub program: &'a Path,
    /// Arguments of the sweep, without those that request the script.
    pub arguments: &'a [String],
}

/// Returns the job script.
///
/// # Errors
/// An argument cannot be written in a script.
pub fn script(array: &Array<'_>) -> Result<String> {
    let words = array.arguments.iter().map(|word| quoted(word));
    let words: Vec<String> = words.collect::<Result<_>>()?;
    let program = quoted(&array.program.to_string_lossy())?;
    let memory = array.memory.map_or(String::new(), |bytes| {
        format!("#SBATCH --mem={}M\n", bytes.div_ceil(1 << 20))
    });
    let time = array.time.map_or(String::new(), |time| {
        format!("#SBATCH --time={}\n", (time.as_secs_f64() / 60.0).ceil())
    });
    let gpus = match array.gpus {
        0 => String::new(),
        gpus => format!("#SBATCH --gres=gpu:{gpus}\n"),
    };
    let mut directives = String::new();
    for directive in array.directives {
        if !directive.starts_with("--") || directive.contains(['\n', '\0']) {
            return Err(Error::usage(format!(
                "--sbatch '{directive}' is not an option of sbatch such as --partition=short"
            )));
        }
        directives += &format!("#SBATCH {directive}\n");
    }
    let (elements, cores) = (array.elements, array.cores);
    Ok(format!(
        "#!/bin/sh
# Submit with `sbatch FILE`; submit again to go on with whatever a time limit or a failed node cut short. A preempted job is
# queued again, and goes on where it stopped.
#SBATCH --job-name=lra-sweep
#SBATCH --array=1-{elements}
#SBATCH --ntasks=1
#SBATCH --cpus-per-task={cores}
{memory}{time}{gpus}#SBATCH --output=lra-sweep-%A-%a.log
#SBATCH --open-mode=append
#SBATCH --requeue
# Two minutes before the time limit the runs are asked to save their state.
#SBATCH --signal=B:INT@120
{directives}
# LRA names another binary, for nodes that keep it elsewhere.
lra=${{LRA:-{program}}}
exec \"$lra\" {} --shard \"$SLURM_ARRAY_TASK_ID/{elements}\"
",
        words.join(" ")
    ))
}

/// Quotes a word for the shell of a script.
fn quoted(word: &str) -> Result<String> {
    if word.contains(['\n', '\0']) {
        return Err(Error::usage(
            "an argument with a line break cannot stand in a script",
        ));
    }
    Ok(shell::quoted(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_sweeps_a_shard_per_element() {
        let arguments = ["sweep", "--tasks", "toy", "--out", "my runs"].map(str::to_owned);
        let array = Array {
            elements: 7,
            cores: 4,
            memory: Some(3 << 30),
            time: Some(Duration::from_secs(3601)),
            gpus: 1,
            directives: &["--partition=short".to_owned()],
            program: Path::new("/opt/lra"),
            arguments: &arguments,
        };
        let text = script(&array).unwrap();
        assert!(text.starts_with("#!/bin/sh\n"));
        for line in [
            "#SBATCH --array=1-7",
            "#SBATCH --cpus-per-task=4",
            "#SBATCH --mem=3072M",
            "#SBATCH --time=61",
            "#SBATCH --gres=gpu:1",
            "#SBATCH --partition=short",
            "#SBATCH --requeue",
            "lra=${LRA:-/opt/lra}",
            "exec \"$lra\" sweep --tasks toy --out 'my runs' --shard \"$SLURM_ARRAY_TASK_ID/7\"",
        ] {
            assert!(
                text.lines().any(|it| it == line),
                "{line} is not in\n{text}"
            );
        }
    }

    #[test]
    fn what_is_no_option_of_sbatch_is_refused() {
        let array = Array {
            elements: 1,
            cores: 1,
            memory: None,
            time: None,
            gpus: 0,
            program: Path::new("/opt/lra"),
            directives: &["rm -rf".to_owned()],
            arguments: &[],
        };
        assert!(script(&array).is_err());
    }

    #[test]
    fn words_of_several_lines_are_refused() {
        assert_eq!(quoted("it's").unwrap(), r"'it'\''s'");
        assert!(quoted("a\nb").is_err());
    }
}
