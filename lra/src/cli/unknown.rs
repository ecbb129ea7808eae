//! Commands and flags that other programs have: the error names the equivalent here.

use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::suggest;

/// Returns the one-line message for an unknown command or flag that other programs have; `None` for
/// any other error.
pub fn explained(error: &clap::Error) -> Option<String> {
    let word = |kind| match error.get(kind) {
        Some(ContextValue::String(word)) => Some(word.as_str()),
        _ => None,
    };
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let word = word(ContextKind::InvalidSubcommand)?;
            let (to, note) = suggest::command(word)?;
            let note = remark(note);
            Some(format!(
                "unknown command '{word}'; did you mean '{to}'? (`lra {to} --help` explains it{note})"
            ))
        }
        ErrorKind::UnknownArgument => {
            let word = word(ContextKind::InvalidArg)?;
            let flag = word.split('=').next().unwrap_or(word);
            let (to, note) = suggest::flag(flag.strip_prefix("--")?)?;
            let note = remark(note);
            (to != flag).then(|| format!("unknown flag '{flag}'; did you mean '{to}'?{note}"))
        }
        _ => None,
    }
}

fn remark(note: &str) -> String {
    match note {
        "" => String::new(),
        note => format!("; {note}"),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::cli::Cli;

    fn told(words: &str) -> Option<String> {
        let error = Cli::try_parse_from(words.split(' ')).unwrap_err();
        explained(&error)
    }

    #[test]
    fn commands_and_flags_of_other_programs_lead_to_those_here() {
        for (words, hint) in [
            ("lra train --task text", "did you mean 'run'?"),
            ("lra eval", "its test split at its end"),
            ("lra download text", "did you mean 'data fetch'?"),
            ("lra data download text", "did you mean 'data fetch'?"),
            ("lra benchmark", "did you mean 'bench'?"),
            ("lra run --lr 0.1", "'--set train.learning_rate=VALUE'"),
            ("lra run --batch_size=8", "'--set train.batch=VALUE'"),
            ("lra run --dataset imdb", "did you mean '--task'?"),
            ("lra run --epochs 3", "epochs times the training rows"),
        ] {
            let told = told(words).unwrap();
            assert!(told.contains(hint), "{words}: {told}");
        }
        assert_eq!(told("lra run --zzz 3"), None);
        assert_eq!(told("lra zzz"), None);
        assert_eq!(told("lra report --device cpu"), None, "a flag of others");
    }

    #[test]
    fn what_is_recommended_can_be_typed() {
        use clap::CommandFactory;
        let program = Cli::command();
        for to in suggest::commands() {
            let mut at = &program;
            for word in to.split(' ') {
                at = at.find_subcommand(word).unwrap();
            }
        }
        for to in suggest::flags() {
            let run = program.find_subcommand("run").unwrap();
            let name = to.trim_start_matches("--");
            assert!(
                run.get_arguments().any(|it| it.get_long() == Some(name)),
                "{to}"
            );
        }
    }
}
