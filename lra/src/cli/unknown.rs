//! Commands, flags and lists that other programs have: the error names the equivalent here. A word
//! that is missing: the error names those that it can be.

use clap::CommandFactory;
use clap::builder::PossibleValue;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::cli::Cli;
use crate::spec::TrainOptions;
use crate::suggest;

/// Returns the one-line message for an unknown command, flag or list, or for a missing word of a
/// list; `None` for any other error.
pub fn explained(error: &clap::Error) -> Option<String> {
    let word = |kind| match error.get(kind) {
        Some(ContextValue::String(word)) => Some(word.as_str()),
        _ => None,
    };
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let word = word(ContextKind::InvalidSubcommand)?;
            Some(unknown_command(word, &command_of(error)?))
        }
        ErrorKind::UnknownArgument => {
            let word = word(ContextKind::InvalidArg)?;
            let flag = word.split('=').next().unwrap_or(word);
            if flag.starts_with("--") {
                return Some(unknown_flag(flag, &command_of(error)?));
            }
            one_too_many(word, &command_of(error)?)
        }
        ErrorKind::InvalidValue => {
            let is_list = word(ContextKind::InvalidArg)? == "<WHAT>";
            let list = word(ContextKind::InvalidValue).filter(|_| is_list)?;
            let to = suggest::list(list)?;
            Some(format!(
                "unknown list '{list}'; did you mean '{to}'? (`lra list {to}` prints it)"
            ))
        }
        ErrorKind::MissingRequiredArgument => match error.get(ContextKind::InvalidArg) {
            Some(ContextValue::Strings(missing)) => match missing.as_slice() {
                [only] => missing_word(only, &command_of(error)?),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    }
}

/// Returns the message for a command without its word `place`, which is one of a list; `None` if it
/// can be any word.
fn missing_word(place: &str, command: &clap::Command) -> Option<String> {
    let argument = command
        .get_positionals()
        .find(|it| it.to_string() == place)?;
    let words = argument.get_possible_values();
    let words: Vec<&str> = words.iter().map(PossibleValue::get_name).collect();
    let (first, path) = (words.first()?, command.get_bin_name()?);
    Some(format!(
        "`{path}` takes one of the words {}; such as `{path} {first}`",
        words.join(", ")
    ))
}

/// Returns the message for a word that is no command of `parent`.
fn unknown_command(word: &str, parent: &clap::Command) -> String {
    let path = parent.get_bin_name().unwrap_or(ROOT);
    let parent_name = match path.strip_prefix(ROOT).map(str::trim) {
        Some("") | None => String::new(),
        Some(name) => format!("{name} "),
    };
    let below = parent.get_subcommands().filter(|it| !it.is_hide_set());
    let below: Vec<&str> = below.map(clap::Command::get_name).collect();
    let (names, note) = match suggest::command(word, &parent_name, &below) {
        Some((to, note)) => (vec![to.to_owned()], note),
        None => {
            let near = suggest::misspelt(word, &below).into_iter();
            let near = near.map(|name| format!("{parent_name}{name}"));
            (near.collect(), "")
        }
    };
    match names.as_slice() {
        [] => format!("unknown command '{word}'; `lra {parent_name}--help` lists the commands"),
        [to] => format!(
            "unknown command '{word}'; did you mean '{to}'? (`lra {to} --help` explains it{})",
            remark(note)
        ),
        [others @ .., last] => format!(
            "unknown command '{word}'; did you mean '{}' or '{last}'? (`lra {parent_name}--help` lists the commands)",
            others.join("', '")
        ),
    }
}

/// Returns the message for a second folder of records, where `command` reads one.
fn one_too_many(word: &str, command: &clap::Command) -> Option<String> {
    let path = command.get_bin_name()?;
    let reads_records = command.get_positionals().any(|it| it.get_id() == "dir");
    // A check compares the logs of runs, too, which a file of records does not hold.
    let remedy = match command.get_name() {
        "check" => "folders of runs may lie side by side in one folder".to_owned(),
        _ => format!(
            "`lra merge DIR... --output all.csv` collects several in a file, which `{path} all.csv` reads"
        ),
    };
    (reads_records && !word.starts_with('-'))
        .then(|| format!("unexpected '{word}': `{path}` reads one folder of records; {remedy}"))
}

/// Returns the message for a flag that `command` does not have.
fn unknown_flag(flag: &str, command: &clap::Command) -> String {
    let name = flag.trim_start_matches('-');
    let own: Vec<&str> = command
        .get_arguments()
        .filter_map(|it| it.get_long())
        .collect();
    // What has no setting here is answered where settings can be given.
    let foreign = suggest::flag(name).filter(|(to, _)| to.is_empty() && own.contains(&"set"));
    if let Some((_, note)) = foreign {
        return format!("unknown flag '{flag}'; {note}");
    }
    let plain = |flag: &str| flag.trim_end_matches('s').to_owned();
    let number = own.iter().find(|it| plain(it) == plain(name));
    let number = number.map(|it| (format!("--{it}"), ""));
    let of_others = || {
        let (to, note) = suggest::flag(name)?;
        // A flag of this command says it more directly than a setting.
        let (flags, settings): (Vec<&str>, Vec<&str>) =
            to.iter().copied().partition(|to| to.starts_with("--"));
        let mut to = flags.into_iter().chain(settings).filter(|to| *to != flag);
        Some((to.find_map(|to| usable(to, command))?, note))
    };
    let setting = || {
        let setting = suggest::setting_called(name, train())?;
        Some((usable(&setting, command)?, ""))
    };
    let misspelt = || {
        let near = suggest::misspelt(name, &own).into_iter().next()?;
        // `--force` replaces results: no chance likeness leads to it.
        (near != "force" || flag.starts_with("--forc")).then(|| (format!("--{near}"), ""))
    };
    let told = number.or_else(of_others).or_else(setting).or_else(misspelt);
    match told {
        Some((to, "")) => format!("unknown flag '{flag}'; did you mean '{to}'?"),
        Some((to, note)) => format!("unknown flag '{flag}'; did you mean '{to}'? ({note})"),
        None => {
            let path = command.get_bin_name().unwrap_or(ROOT);
            format!("unknown flag '{flag}'; `{path} --help` lists the flags")
        }
    }
}

/// Name of the program in the parser.
const ROOT: &str = "lra";

/// Returns the settings of training, at their defaults.
fn train() -> serde_json::Value {
    serde_json::json!(TrainOptions::default())
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
    let mut path = vec![ROOT.to_owned()];
    for word in words {
        let Some(below) = command.find_subcommand(word) else {
            break;
        };
        command = below.clone();
        path.push(word.to_owned());
    }
    Some(command.bin_name(path.join(" ")))
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
    use super::*;
    use crate::cli::Cli;

    fn told(words: &str) -> Option<String> {
        let error = Cli::read(words.split(' ')).unwrap_err();
        explained(&error)
    }

    #[test]
    fn commands_and_flags_of_other_programs_lead_to_those_here() {
        for (words, hint) in [
            ("lra train --task text", "did you mean 'run'?"),
            ("lra eval", "did you mean 'score'?"),
            (
                "lra new model --zz",
                "`lra new model --help` lists the flags",
            ),
            (
                "lra data make toy --zz",
                "`lra data make --help` lists the flags",
            ),
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
            ("lra sweep --seed 0", "did you mean '--seeds'?"),
            ("lra bench --length 64", "did you mean '--lengths'?"),
            ("lra bench --seq-len 64", "did you mean '--lengths'?"),
            ("lra run --jsn", "did you mean '--json'?"),
            ("lra run --forc", "did you mean '--force'?"),
            ("lra swep", "did you mean 'sweep'?"),
            ("lra reprot", "did you mean 'repro' or 'report'?"),
            ("lra settings", "did you mean 'list'?"),
            ("lra checks", "did you mean 'check'?"),
            ("lra retrain", "--force"),
            ("lra new dataset", "did you mean 'new task'?"),
            ("lra dwonload", "did you mean 'data fetch'?"),
            ("lra data check", "did you mean 'data verify'?"),
            ("lra data test", "did you mean 'data verify'?"),
            ("lra data shwo", "did you mean 'data show'?"),
            ("lra ls", "did you mean 'list'?"),
            ("lra data ls", "did you mean 'data list'?"),
            ("lra data info", "did you mean 'data show'?"),
            ("lra info", "did you mean 'list'?"),
            ("lra list datasets", "did you mean 'tasks'?"),
            ("lra list configs", "did you mean 'recipes'?"),
            ("lra list results", "did you mean 'published'?"),
            ("lra list figures", "did you mean 'published'?"),
            ("lra list leaderboards", "did you mean 'published'?"),
            ("lra run --depth 4", "'--set block.layers=VALUE'"),
            (
                "lra run --end-learning-rate 0",
                "linear and cosine end at 0",
            ),
            ("lra downlod text", "did you mean 'data fetch'?"),
            ("lra run --overwrite", "did you mean '--force'?"),
            ("lra run --overwrite-output-dir", "did you mean '--force'?"),
        ] {
            let told = told(words).unwrap();
            assert!(told.contains(hint), "{words}: {told}");
        }
        for words in [
            "lra run --zzz 3",
            "lra report --device cpu",
            "lra report --lr 0.1",
            "lra run --restart",
            "lra run --forma json",
            "lra zzz",
            "lra lint",
            "lra update",
            "lra status",
            "lra data status",
            "lra serve",
            "lra data zzz",
        ] {
            let told = told(words).unwrap();
            assert!(
                told.contains("--help` lists the") && !told.contains("mean"),
                "{told}"
            );
        }
        assert_eq!(told("lra run foo"), None, "it is no flag");
        let told = told("lra report runs others").unwrap();
        assert!(
            told.contains("'others'") && told.contains("`lra merge"),
            "{told}"
        );
    }

    #[test]
    fn a_missing_word_of_a_list_is_answered_with_the_list() {
        for (words, told_words) in [
            (
                "lra list",
                "`lra list` takes one of the words tasks, models, recipes, published, devices, \
                 components, settings, schemas; such as `lra list tasks`",
            ),
            ("lra list --json", "such as `lra list tasks`"),
            (
                "lra completions",
                "`lra completions` takes one of the words bash, ",
            ),
        ] {
            let told = told(words).unwrap();
            assert!(told.contains(told_words), "{words}: {told}");
        }
        // These can be any word.
        for words in ["lra parity", "lra run --task toy", "lra compare a"] {
            assert_eq!(told(words), None, "{words}");
        }
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
