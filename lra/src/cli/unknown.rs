//! Commands and flags that other programs have: the error names the equivalent here.

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::cli::Cli;
use crate::spec::TrainOptions;
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
            let name = flag.strip_prefix("--")?;
            let command = command_of(error)?;
            let of_others = suggest::flag(name).and_then(|(to, note)| {
                let mut to = to.iter().filter(|to| **to != flag);
                Some((to.find_map(|to| usable(to, &command))?, note))
            });
            let own = || {
                Some((
                    usable(&suggest::setting_called(name, train())?, &command)?,
                    "",
                ))
            };
            let (to, note) = of_others.or_else(own)?;
            let note = match note {
                "" => String::new(),
                note => format!(" ({note})"),
            };
            Some(format!("unknown flag '{flag}'; did you mean '{to}'?{note}"))
        }
        _ => None,
    }
}

/// Returns the settings of training, at their defaults.
fn train() -> serde_json::Value {
    serde_json::json!(TrainOptions::default())
}

/// Returns whether the parser's tip leads from a flag to `--force`, which replaces results,
/// although that is hardly what was meant.
pub fn tips_to_force(error: &clap::Error) -> bool {
    let word = |kind| match error.get(kind) {
        Some(ContextValue::String(word)) => Some(word.as_str()),
        Some(ContextValue::Strings(words)) => words.first().map(String::as_str),
        _ => None,
    };
    let typed = word(ContextKind::InvalidArg).unwrap_or_default();
    word(ContextKind::SuggestedArg) == Some("--force") && !typed.starts_with("--forc")
}

/// Returns the message about an unknown flag without a tip.
pub fn without_tip(error: &clap::Error) -> String {
    let flag = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(flag)) => flag.as_str(),
        _ => "",
    };
    let help = command_of(error).map_or(String::new(), |command| {
        format!("; `lra {} --help` lists the flags", command.get_name())
    });
    format!("unexpected argument '{flag}' found{help}")
}

/// Returns the command that refused its words, by the usage that the error shows.
fn command_of(error: &clap::Error) -> Option<clap::Command> {
    let Some(ContextValue::StyledStr(usage)) = error.get(ContextKind::Usage) else {
        return None;
    };
    let usage = usage.to_string();
    // The first words are `Usage:` and the name of the program.
    let words = usage.split_whitespace().skip(2);
    let mut command = Cli::command();
    for word in words {
        let Some(below) = command.find_subcommand(word) else {
            break;
        };
        command = below.clone();
    }
    Some(command)
}

/// Returns the words that give `to`, a flag or a setting, to this command; `None` if it takes none
/// such.
fn usable(to: &str, command: &clap::Command) -> Option<String> {
    let has = |flag: &str| {
        command
            .get_arguments()
            .any(|it| it.get_long() == Some(flag))
    };
    match to.strip_prefix("--") {
        Some(flag) => has(flag).then(|| to.to_owned()),
        None => has("set").then(|| format!("--set {to}=VALUE")),
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
            ("lra run --workdir there", "did you mean '--out'?"),
            ("lra run --output there", "did you mean '--out'?"),
            ("lra report --workdir there", "did you mean '--output'?"),
            ("lra mini s4d --cuda", "did you mean '--device'?"),
            ("lra bench --gpu 0", "did you mean '--device'?"),
            ("lra run --max-length 512", "'--set data.max_length=VALUE'"),
            ("lra run --config a.yaml", "did you mean '--recipe'?"),
            ("lra sweep --model bag", "did you mean '--models'?"),
            (
                "lra run --optimizer adam",
                "did you mean '--set train.optimizer=VALUE'?",
            ),
            ("lra run --eval-every 3", "'--set train.eval_every=VALUE'"),
            ("lra run --schedule cosine", "'--set train.schedule=VALUE'"),
            ("lra sweep --window 3", "'--set model.window=VALUE'"),
            ("lra run --difficulty easy", "'--set data.difficulty=VALUE'"),
            ("lra run --format json", "did you mean '--json'?"),
        ] {
            let told = told(words).unwrap();
            assert!(told.contains(hint), "{words}: {told}");
        }
        assert_eq!(told("lra run --zzz 3"), None);
        assert_eq!(told("lra zzz"), None);
        assert_eq!(told("lra report --device cpu"), None, "a flag of others");
        assert_eq!(told("lra report --lr 0.1"), None, "it takes no settings");
    }

    #[test]
    fn no_tip_leads_to_what_replaces_results() {
        let error = |words: &str| Cli::try_parse_from(words.split(' ')).unwrap_err();
        assert!(tips_to_force(&error("lra run --forma json")));
        assert!(!tips_to_force(&error("lra run --forc")));
        assert!(!tips_to_force(&error("lra run --jsn")));
    }

    #[test]
    fn what_is_recommended_can_be_typed() {
        let program = Cli::command();
        for to in suggest::commands() {
            let mut at = &program;
            for word in to.split(' ') {
                at = at.find_subcommand(word).unwrap();
            }
        }
        for to in suggest::flags() {
            let mut commands = program.get_subcommands();
            assert!(commands.any(|it| usable(to, it).is_some()), "{to}");
        }
    }
}
