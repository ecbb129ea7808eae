//! A sweep as a batch job: an array of elements, each of which runs a shard.

use std::path::Path;
use std::time::Duration;

use clap::ValueEnum;

use crate::error::{Error, Result};
use crate::{shell, torch};

/// A system that runs the shards of a sweep.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum BatchSystem {
    /// An array job for sbatch
    Slurm,
    /// An array job for qsub
    Pbs,
    /// A script for machines without a scheduler
    Shell,
    /// An indexed job as YAML
    Kubernetes,
}

/// Describes the job to every batch system.
pub struct Job<'a> {
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
    /// Values of [`OF_TORCH`] that are set here.
    pub of_torch: Vec<(&'static str, String)>,
}

/// Place of the volume in a container of Kubernetes.
pub const VOLUME: &str = "/lra";

/// Environment variables with a mixer in PyTorch and its interpreter.
pub const OF_TORCH: [&str; 2] = [torch::VARIABLE, torch::PYTHON];

impl Job<'_> {
    /// Returns the script for a batch system.
    ///
    /// # Errors
    /// An argument cannot be written in a script.
    pub fn script(&self, system: BatchSystem) -> Result<String> {
        if !self.directives.is_empty() && !matches!(system, BatchSystem::Slurm) {
            return Err(Error::usage("--sbatch: the options are for --emit slurm"));
        }
        match system {
            BatchSystem::Slurm => self.slurm(),
            BatchSystem::Pbs => self.pbs(),
            BatchSystem::Shell => self.shell(),
            BatchSystem::Kubernetes => self.kubernetes(),
        }
    }

    /// Returns the lines of a shell script that run the element whose number, from 1, is `index`.
    fn run(&self, index: &str) -> Result<String> {
        let words = self.arguments.iter().map(|word| quoted(word));
        let words: Vec<String> = words.collect::<Result<_>>()?;
        let (program, elements) = (quoted(&self.program.to_string_lossy())?, self.elements);
        let mut torch = String::new();
        for (name, value) in &self.of_torch {
            let value = quoted(value)?;
            torch += &format!("[ -n \"${{{name}:-}}\" ] || {name}={value}\nexport {name}\n");
        }
        Ok(format!(
            "{torch}# LRA names another binary, for nodes that keep it elsewhere. Options of this script are those of `lra sweep`.
lra=${{LRA:-{program}}}
exec \"$lra\" {} --shard \"{index}/{elements}\" \"$@\"
",
            words.join(" ")
        ))
    }

    /// Returns the memory of an element in MiB.
    fn mebibytes(&self) -> Option<usize> {
        self.memory.map(|bytes| bytes.div_ceil(1 << 20))
    }

    /// Returns the time limit in whole seconds.
    fn seconds(&self) -> Option<u64> {
        self.time.map(|time| time.as_secs_f64().ceil() as u64)
    }

    fn slurm(&self) -> Result<String> {
        let memory = self.mebibytes();
        let memory = memory.map_or(String::new(), |it| format!("#SBATCH --mem={it}M\n"));
        let time = self.seconds();
        let time = time.map_or(String::new(), |it| {
            format!("#SBATCH --time={}\n", it.div_ceil(60))
        });
        let gpus = match self.gpus {
            0 => String::new(),
            gpus => format!("#SBATCH --gres=gpu:{gpus}\n"),
        };
        let mut directives = String::new();
        for directive in self.directives {
            if !directive.starts_with("--") || directive.contains(['\n', '\0']) {
                return Err(Error::usage(format!(
                    "--sbatch '{directive}' is not an option of sbatch such as --partition=short"
                )));
            }
            directives += &format!("#SBATCH {directive}\n");
        }
        let (elements, cores) = (self.elements, self.cores);
        Ok(format!(
            "#!/bin/sh
# Submit with `sbatch FILE`; submit it again to continue the runs that a time limit or a failed node interrupted. A preempted job is
# queued again, and continues where it stopped.
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
{}",
            self.run("$SLURM_ARRAY_TASK_ID")?
        ))
    }

    fn pbs(&self) -> Result<String> {
        // An array of one element is no array.
        let array = match self.elements {
            1 => String::new(),
            elements => format!("#PBS -J 1-{elements}\n"),
        };
        let memory = self.mebibytes();
        let memory = memory.map_or(String::new(), |it| format!(":mem={it}mb"));
        let gpus = match self.gpus {
            0 => String::new(),
            gpus => format!(":ngpus={gpus}"),
        };
        let time = self.seconds().map_or(String::new(), |it| {
            let (hours, minutes, seconds) = (it / 3600, it / 60 % 60, it % 60);
            format!("#PBS -l walltime={hours:02}:{minutes:02}:{seconds:02}\n")
        });
        Ok(format!(
            "#!/bin/sh
# Submit with `qsub FILE`; submit it again to continue the runs that a time limit or a failed node interrupted.
#PBS -N lra-sweep
{array}#PBS -l select=1:ncpus={}{memory}{gpus}
{time}#PBS -j oe
#PBS -r y
# A job of PBS gets no other variables of the shell that submits it. A variable that is not set when you submit is empty in the job.
#PBS -v LRA,LRA_DATA,LRA_LOCKS,LRA_TORCH,LRA_PYTHON

cd \"$PBS_O_WORKDIR\" || exit 1
{}",
            self.cores,
            self.run("${PBS_ARRAY_INDEX:-1}")?
        ))
    }

    fn shell(&self) -> Result<String> {
        let elements = self.elements;
        Ok(format!(
            "#!/bin/sh
# Run `sh FILE I` on machine number I of {elements}, or `sh FILE` on one machine for all; run it again to continue the runs
# that were interrupted. An element that fails does not stop the others: the exit code is the highest one.
case ${{1:-}} in
  [0-9]*) element=$1; shift ;;
  *)
    highest=0
    for element in $(seq {elements}); do
      sh \"$0\" \"$element\" \"$@\"
      code=$?
      [ $code -eq 130 ] && exit 130
      [ $code -gt $highest ] && highest=$code
    done
    exit $highest ;;
esac
{}",
            self.run("$element")?
        ))
    }

    /// Returns an indexed job of Kubernetes, as YAML. The elements share the volume `lra`, whose
    /// folders `data` and `work` are the data directory and the working directory.
    fn kubernetes(&self) -> Result<String> {
        let words = self.arguments.iter().map(|word| quoted(word));
        let words: Vec<String> = words.collect::<Result<_>>()?;
        let (elements, cores) = (self.elements, self.cores);
        let command = format!(
            "exec lra {} --shard \"$((JOB_COMPLETION_INDEX + 1))/{elements}\"",
            words.join(" ")
        );
        let mut limits = format!("              cpu: {cores}\n");
        let memory = self.mebibytes();
        limits += &memory.map_or(String::new(), |it| {
            format!("              memory: {it}Mi\n")
        });
        if self.gpus > 0 {
            limits += &format!("              nvidia.com/gpu: {}\n", self.gpus);
        }
        let time = self.seconds();
        let time = time.map_or(String::new(), |it| {
            format!("      activeDeadlineSeconds: {it}\n")
        });
        let mut variables = String::new();
        for (name, value) in &self.of_torch {
            // A text of JSON is one of YAML.
            let value = serde_json::Value::from(value.as_str());
            variables += &format!("            - name: {name}\n              value: {value}\n");
        }
        Ok(format!(
            "# Create with `kubectl create -f FILE`; create it again to continue interrupted runs. `kubectl delete job NAME`, with the
# name that it printed, removes an old one. The image is that of the Dockerfile, which runs as user 1000. The claim `lra` is a
# volume that all elements can write.
apiVersion: batch/v1
kind: Job
metadata:
  generateName: lra-sweep-
spec:
  completionMode: Indexed
  completions: {elements}
  parallelism: {elements}
  # Each element has restarts of its own. An element whose runs failed (4), lack data (3) or cannot be built (2) would fail again.
  backoffLimitPerIndex: 2
  podFailurePolicy:
    rules:
      - action: FailIndex
        onExitCodes:
          containerName: lra
          operator: In
          values: [2, 3, 4]
  template:
    spec:
      restartPolicy: Never
      terminationGracePeriodSeconds: 120
      securityContext:
        fsGroup: 1000
{time}      containers:
        - name: lra
          image: lra
          imagePullPolicy: IfNotPresent
          command:
            - sh
            - -c
            - |
              {command}
          workingDir: /lra/work
          env:
            - name: LRA_DATA
              value: /lra/data
{variables}          resources:
            requests:
              cpu: {cores}
            limits:
{limits}          volumeMounts:
            - name: lra
              mountPath: /lra
      volumes:
        - name: lra
          persistentVolumeClaim:
            claimName: lra
"
        ))
    }
}

/// Quotes a word for the shell of a script.
fn quoted(word: &str) -> Result<String> {
    if word.contains(char::is_control) {
        return Err(Error::usage(
            "an argument with a line break or another control character cannot stand in a script",
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
        let job = Job {
            elements: 7,
            cores: 4,
            memory: Some(3 << 30),
            time: Some(Duration::from_secs(3601)),
            gpus: 1,
            directives: &["--partition=short".to_owned()],
            program: Path::new("/opt/lra"),
            arguments: &arguments,
            of_torch: Vec::new(),
        };
        let text = job.script(BatchSystem::Slurm).unwrap();
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
            "exec \"$lra\" sweep --tasks toy --out 'my runs' --shard \"$SLURM_ARRAY_TASK_ID/7\" \"$@\"",
        ] {
            assert!(
                text.lines().any(|it| it == line),
                "{line} is not in\n{text}"
            );
        }
    }

    #[test]
    fn what_is_no_option_of_sbatch_is_refused() {
        let job = Job {
            elements: 1,
            cores: 1,
            memory: None,
            time: None,
            gpus: 0,
            program: Path::new("/opt/lra"),
            directives: &["rm -rf".to_owned()],
            arguments: &[],
            of_torch: Vec::new(),
        };
        assert!(job.script(BatchSystem::Slurm).is_err());
    }

    #[test]
    fn words_of_several_lines_are_refused() {
        assert_eq!(quoted("it's").unwrap(), r"'it'\''s'");
        assert!(quoted("a\nb").is_err());
    }

    fn job<'a>(arguments: &'a [String], elements: usize) -> Job<'a> {
        Job {
            elements,
            cores: 4,
            memory: Some(3 << 30),
            time: Some(Duration::from_secs(3601)),
            gpus: 1,
            directives: &[],
            program: Path::new("/opt/lra"),
            arguments,
            of_torch: vec![("LRA_TORCH", "my 'mix'.py:neighbours".to_owned())],
        }
    }

    #[test]
    fn every_system_gets_the_same_job() {
        let arguments = ["sweep", "--tasks", "toy", "--out", "my runs"].map(str::to_owned);
        let job = job(&arguments, 7);
        for (system, lines) in [
            (
                BatchSystem::Pbs,
                vec![
                    "#PBS -J 1-7",
                    "#PBS -l select=1:ncpus=4:mem=3072mb:ngpus=1",
                    "#PBS -l walltime=01:00:01",
                    "#PBS -v LRA,LRA_DATA,LRA_LOCKS,LRA_TORCH,LRA_PYTHON",
                    "exec \"$lra\" sweep --tasks toy --out 'my runs' --shard \"${PBS_ARRAY_INDEX:-1}/7\" \"$@\"",
                ],
            ),
            (
                BatchSystem::Shell,
                vec![
                    "    for element in $(seq 7); do",
                    "[ -n \"${LRA_TORCH:-}\" ] || LRA_TORCH='my '\\''mix'\\''.py:neighbours'",
                    "export LRA_TORCH",
                    "exec \"$lra\" sweep --tasks toy --out 'my runs' --shard \"$element/7\" \"$@\"",
                ],
            ),
            (
                BatchSystem::Kubernetes,
                vec![
                    "  completions: 7",
                    "  backoffLimitPerIndex: 2",
                    "              memory: 3072Mi",
                    "              nvidia.com/gpu: 1",
                    "      activeDeadlineSeconds: 3601",
                    "            - name: LRA_TORCH",
                    "              value: \"my 'mix'.py:neighbours\"",
                    "              exec lra sweep --tasks toy --out 'my runs' --shard \"$((JOB_COMPLETION_INDEX + 1))/7\"",
                ],
            ),
        ] {
            let text = job.script(system).unwrap();
            for line in lines {
                assert!(
                    text.lines().any(|it| it == line),
                    "{line} is not in\n{text}"
                );
            }
        }
    }

    #[test]
    fn memory_and_time_are_rounded_up() {
        let job = Job {
            memory: Some((3 << 30) + 1),
            time: Some(Duration::from_millis(3 * 3600 * 1000 + 1)),
            ..job(&[], 2)
        };
        for (system, line) in [
            (BatchSystem::Slurm, "#SBATCH --mem=3073M"),
            (BatchSystem::Slurm, "#SBATCH --time=181"),
            (
                BatchSystem::Pbs,
                "#PBS -l select=1:ncpus=4:mem=3073mb:ngpus=1",
            ),
            (BatchSystem::Pbs, "#PBS -l walltime=03:00:01"),
            (BatchSystem::Kubernetes, "              memory: 3073Mi"),
            (
                BatchSystem::Kubernetes,
                "      activeDeadlineSeconds: 10801",
            ),
        ] {
            let text = job.script(system).unwrap();
            assert!(text.lines().any(|it| it == line), "{line}: {text}");
        }
    }

    #[test]
    fn one_element_is_no_array_of_pbs_and_sbatch_is_slurms() {
        let text = job(&[], 1).script(BatchSystem::Pbs).unwrap();
        assert!(!text.contains("#PBS -J"), "{text}");
        let directives = ["--partition=short".to_owned()];
        let with = Job {
            directives: &directives,
            ..job(&[], 1)
        };
        assert!(with.script(BatchSystem::Pbs).is_err());
        assert!(with.script(BatchSystem::Slurm).is_ok());
    }
}
