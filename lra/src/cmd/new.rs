//! `lra new`: a crate with a custom model or task, made from the examples that the tests build.

mod sources;
mod task;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use datasets::tasks::mine;
use results::published;
use sources::Member;

use crate::cli::{NewPlace, NewVerb};
use crate::cmd;
use crate::error::{Class, Classify, Error, Result, in_writing};
use crate::output_lock::OutputLock;
use crate::shell;
use crate::sweep::plan;

/// The example, and the words in it that are the model's name.
const EXAMPLE: &str = include_str!("../../examples/own_model.rs");
const NAME: &str = "neighbours";
/// The build script.
const BUILD: &str = include_str!("../../templates/build.rs");
/// Folder of this program's own crate when it was built.
const BUILT_IN: &str = env!("CARGO_MANIFEST_DIR");
/// Versions of the dependencies of a model other than `lra`.
const DEPENDENCIES: &str = "\
candle-core = \"=0.11.1\"
candle-nn = \"=0.11.1\"
serde = { version = \"1\", features = [\"derive\"] }
";
/// Version of the dependency of a task other than `lra`.
const SERDE: &str = "serde = { version = \"1\", features = [\"derive\"] }\n";

/// Kind of a new crate: what it adds to `lra`.
struct Kind {
    /// `model` or `task`.
    noun: &'static str,
    /// End of a name in place of one that is refused.
    end: &'static str,
    /// Name in place of one without letters.
    usual: &'static str,
    /// Code of the example.
    example: &'static str,
    /// The words in it that are the name.
    name: &'static str,
}

const MODEL: Kind = Kind {
    noun: "model",
    end: "mixer",
    usual: "my_mixer",
    example: EXAMPLE,
    name: NAME,
};

/// Runs the command.
pub fn run(verb: &NewVerb) -> Result<ExitCode> {
    let (kind, NewPlace { name, path, lra }) = match verb {
        NewVerb::Model { place } => (&MODEL, place),
        NewVerb::Task { place, kind } => (task::of(*kind), place),
    };
    let folder = path.clone().unwrap_or_else(|| PathBuf::from(name));
    let lra = lra.clone().unwrap_or_else(|| PathBuf::from(BUILT_IN));
    check_name(kind, name, &locked_crates(&lra))?;
    if !lra.join("Cargo.toml").is_file() {
        return Err(Error::usage(format!(
            "{} holds no Cargo.toml: --lra names the folder `lra` within the sources of this program",
            lra.display()
        )));
    }
    let lra = lra
        .canonicalize()
        .during(Class::Usage, "finding lra's sources")?;
    if folder.exists() {
        let place = folder.display();
        return Err(Error::usage(format!(
            "{place} is there already; --path names another folder"
        )));
    }
    let (own, told) = match verb {
        NewVerb::Model { .. } => model(name),
        NewVerb::Task { .. } => task::files(kind, name),
    };
    let dependencies = dependencies(kind);
    let member = || Member::of(&folder, &lra, name, dependencies);
    // Held until the crate is a member: another one may join at the same time.
    let lock = member().map(|it| OutputLock::acquire(it.manifest()));
    let lock = lock.transpose()?;
    let member = lock.as_ref().and_then(|_| member());
    let mut files = vec![("Cargo.toml", manifest(kind, name, &lra, member.as_ref()))];
    files.extend(own);
    files.push(("build.rs", BUILD.to_owned()));
    match &member {
        Some(_) => files.push((".gitignore", "/runs\n".to_owned())),
        None => {
            files.push((".gitignore", "/target\n/runs\n/.cargo\n".to_owned()));
            files.extend(sources::shared_build(&lra));
        }
    }
    write(&folder, &files)?;
    if let Some(member) = member
        && let Err(error) = member.join()
    {
        // Cargo refuses a package that lies in a workspace and is no member.
        disk::remove(&folder).map_err(in_writing(format!("removing {}", folder.display())))?;
        return Err(error);
    }
    let place = shell::quoted_path(&folder);
    // No name has an @.
    cmd::print(format!("made {place}: {}", told.replace('@', &place)))?;
    Ok(ExitCode::SUCCESS)
}

/// Files of a crate, by name.
type Files = Vec<(&'static str, String)>;

/// Returns the files of a model's crate, and what is told of it, with `@` for the folder.
fn model(name: &str) -> (Files, String) {
    let files = vec![("src/main.rs", program(name)), ("README.md", readme(name))];
    let told = format!(
        "the model is src/main.rs\n\n  cd @\n  cargo run --release -- run --task listops --model {name}\n  \
         cargo run --release -- check-model {name}\n  cargo run --release -- mini {name} --glance"
    );
    (files, told)
}

/// Name prefix of temporary folders.
const UNFINISHED: &str = ".lra-new-";

/// Creates a folder with these files, completely or not at all: they are written to a temporary
/// folder next to it, which is then renamed.
fn write(folder: &Path, files: &[(&str, String)]) -> Result<()> {
    let parent = disk::folder_of(folder);
    let making = || format!("making {}", folder.display());
    fs::create_dir_all(parent).map_err(in_writing(making()))?;
    disk::clear_temporary(parent, UNFINISHED.as_ref(), |_| true);
    let beside =
        disk::TemporaryFolder::create(parent, UNFINISHED.as_ref()).map_err(in_writing(making()))?;
    let unfinished = beside.path().join("crate");
    for (file, text) in files {
        let path = unfinished.join(file);
        fs::create_dir_all(path.parent().unwrap_or(&unfinished))
            .and_then(|()| fs::write(&path, text))
            .map_err(in_writing(format!(
                "writing {}",
                folder.join(file).display()
            )))?;
    }
    fs::rename(&unfinished, folder).map_err(in_writing(making()))
}

/// Returns the names of the crates that a program from lra's sources in the folder `lra` is built
/// of, as code calls them, by the lock file beside that folder; empty if there is none.
fn locked_crates(lra: &Path) -> Vec<String> {
    let text = disk::read_to_string(&lra.join("../Cargo.lock")).unwrap_or_default();
    let names = text.lines().filter_map(|line| {
        let name = line.strip_prefix("name = \"")?.strip_suffix('"')?;
        Some(name.replace('-', "_"))
    });
    names.collect()
}

/// Checks that a model or a task, its crate and its types can have this name; `crates` are those that
/// the program is built of.
fn check_name(kind: &Kind, name: &str, crates: &[String]) -> Result<()> {
    let Kind { noun, end, .. } = kind;
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let refused = |why: &str, instead: &str| {
        Err(Error::usage(format!(
            "'{name}' cannot name a {noun}: {why}; choose another name, such as {instead}"
        )))
    };
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) || !name.chars().all(plain) {
        let why = "a name has lower-case letters, digits and underscores, and begins with a letter";
        return refused(why, &plain_name(kind, name));
    }
    if name.len() > LONGEST {
        let why = format!(
            "it has {} letters, and a name has at most {LONGEST}",
            name.len()
        );
        return refused(&why, &name[..12]);
    }
    let longer = format!("{name}_{end}");
    let (reserved, met) = match *noun {
        "model" => (
            (name == plan::EVERY_MODEL).then_some("it stands for all models on the command line"),
            models::registry().iter().any(|model| model.name == name),
        ),
        _ => (
            mine::is_folder(&format!("{name}:"))
                .then_some("it begins the names of folders that are tasks"),
            datasets::tasks::find(name).is_some() || published::is_published_task(name),
        ),
    };
    if let Some(why) = reserved {
        return refused(why, &longer);
    }
    if met {
        return refused(&format!("there is a {noun} of that name already"), &longer);
    }
    match taken(kind, name, crates) {
        Some(by) => refused(by, &longer),
        None => Ok(()),
    }
}

/// Largest number of letters of a name, which is part of the names of folders.
const LONGEST: usize = 64;

/// Returns `name` with what a name cannot have replaced.
fn plain_name(kind: &Kind, name: &str) -> String {
    let replaced = name.chars().map(|c| match c.to_ascii_lowercase() {
        c if c.is_ascii_alphanumeric() => c,
        _ => '_',
    });
    let replaced: String = replaced.collect();
    let words: Vec<&str> = replaced
        .split('_')
        .filter(|word| !word.is_empty())
        .collect();
    match words.join("_") {
        plain if plain.starts_with(|c: char| c.is_ascii_lowercase()) => plain,
        plain if plain.is_empty() => kind.usual.to_owned(),
        plain => format!("{}_{plain}", kind.end),
    }
}

/// Keywords of Rust, reserved and weak ones included, in lower case.
const KEYWORDS: &str = "abstract as async auto await become box break const continue crate default do dyn else enum extern false final \
    fn for gen if impl in let loop macro macro_rules match mod move mut override priv pub raw ref return safe self static struct super \
    trait true try type typeof union unsafe unsized use virtual where while yield";

/// Types that Rust has without an import.
const PRIMITIVES: &str = "bool char f128 f16 f32 f64 i128 i16 i32 i64 i8 isize never str u128 u16 u32 u64 u8 usize option result string \
    vec";

/// Crates that every program has.
const STANDARD: &str = "alloc core proc_macro std test";

/// Crates whose names readers would take for that library.
const LIBRARIES: &str = "candle lra burn torch tch";

/// Folders that cargo makes.
const FOLDERS: &str = "build deps examples incremental";

/// Devices of Windows, which has no file or folder of that name.
const DEVICES: &str = "aux con nul prn com0 com1 com2 com3 com4 com5 com6 com7 com8 com9 lpt0 lpt1 lpt2 lpt3 lpt4 lpt5 lpt6 lpt7 lpt8 lpt9";

/// Returns the reason why a new model or task cannot have a name: the language, a crate, the file system,
/// or a word of the example in one of the forms that the name takes there.
fn taken(kind: &Kind, name: &str, crates: &[String]) -> Option<&'static str> {
    let among = |words: &str| words.split_whitespace().any(|word| word == name);
    for (words, why) in [
        (KEYWORDS, "it is a keyword of Rust"),
        (PRIMITIVES, "it is a type of Rust"),
        (STANDARD, "it is a crate of Rust's own"),
        (LIBRARIES, "it is the name of a library"),
        (
            FOLDERS,
            "cargo makes a folder of that name for its own files",
        ),
        (DEVICES, "Windows keeps that name for a device"),
    ] {
        if among(words) {
            return Some(why);
        }
    }
    let mut dependencies = DEPENDENCIES.lines().filter_map(|line| line.split_once(' '));
    if dependencies.any(|(dependency, _)| dependency.replace('-', "_") == name)
        || crates.iter().any(|other| other == name)
    {
        return Some("it is a crate that the program is built of");
    }
    if name == kind.name {
        return None;
    }
    let forms = [name.to_owned(), camel_case(name), name.to_ascii_uppercase()];
    let letters = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let code = kind
        .example
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    let mut words = code.flat_map(|line| line.split(|c| !letters(c)));
    let met = words.any(|word| forms.iter().any(|form| form == word));
    met.then_some("the code of the new program already uses that word")
}

/// Converts `my_mixer` into a type name: `MyMixer`.
fn camel_case(name: &str) -> String {
    let mut words = String::new();
    for part in name.split('_') {
        let mut letters = part.chars();
        words.extend(letters.next().map(|first| first.to_ascii_uppercase()));
        words.extend(letters);
    }
    words
}

/// Returns the code of an example with another name.
fn renamed(kind: &Kind, name: &str) -> String {
    let own = kind.name;
    kind.example
        .replace(own, name)
        .replace(&camel_case(own), &camel_case(name))
        .replace(&own.to_ascii_uppercase(), &name.to_ascii_uppercase())
}

fn program(name: &str) -> String {
    renamed(&MODEL, name)
        .replace("--release --example own_model -- run", "--release -- run")
        .replace("own_model.rs", "main.rs")
}

/// Returns the lines of the dependencies of a new crate other than `lra`.
fn dependencies(kind: &Kind) -> &'static str {
    match kind.noun {
        "model" => DEPENDENCIES,
        _ => SERDE,
    }
}

fn manifest(kind: &Kind, name: &str, lra: &Path, member: Option<&Member>) -> String {
    let dependencies = dependencies(kind);
    let tests = match kind.noun {
        "model" => "Tests train the model.",
        _ => "Tests draw the data.",
    };
    let path = |path: &str| toml::Value::from(path);
    let package = format!(
        "[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\npublish = false\n"
    );
    if let Some(member) = member {
        let (lra, version) = (path(&member.lra), env!("CARGO_PKG_VERSION"));
        return format!(
            "{package}\n[dependencies]\nlra = {{ path = {lra}, version = \"{version}\" }}\n{dependencies}"
        );
    }
    let profiles = sources::profiles(lra).unwrap_or_else(|| {
        "[profile.dev]\nopt-level = 2\n\n[profile.release]\ndebug = \"line-tables-only\"\n"
            .to_owned()
    });
    let lra = path(&lra.display().to_string());
    format!(
        "{package}\n[dependencies]\nlra = {{ path = {lra} }}\n\
         {dependencies}\n# As in the workspace of lra, so that its libraries are not compiled again. {tests}\n\
         # `debug` is for errors that name a line.\n{profiles}\n\
         # On its own, also within another workspace's folder.\n[workspace]\n"
    )
}

fn readme(name: &str) -> String {
    format!(
        "# {name}\n\nA model of your own for the Long Range Arena: `lra` plus one model.\n\n```sh\n\
         cargo run --release -- run --task listops --model {name}\n\
         cargo run --release -- sweep --tasks listops --models {name},transformer --seeds 0..3\n\
         cargo run --release -- check-model {name}      # tests gradients, padding, rows, lengths, costs\n\
         cargo run --release -- mini {name} --glance    # its score card on the small protocol\n\
         cargo test\n```\n\n`src/main.rs` is the whole program: the card, the options, the mixer.\n"
    )
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;
    use crate::cli::TaskKind;

    #[test]
    fn the_example_is_renamed_throughout() {
        let text = program("my_mixer");
        for left in ["eighbours", "NEIGHBOURS", "own_model"] {
            assert!(!text.contains(left), "{left}");
        }
        assert!(text.contains("struct MyMixer {") && text.contains("const MY_MIXER: Model"));
        let manifest: toml::Table = manifest(&MODEL, "my_mixer", Path::new("/a \"b\""), None)
            .parse()
            .unwrap();
        assert_eq!(
            manifest["dependencies"]["lra"]["path"].as_str(),
            Some("/a \"b\"")
        );
    }

    /// The workspace's profiles and versions are there, so that its libraries serve the crate too.
    #[test]
    fn a_crate_is_built_as_the_workspace_is() {
        let lra = Path::new(BUILT_IN).canonicalize().unwrap();
        let manifest: toml::Table = manifest(&MODEL, "my_mixer", &lra, None).parse().unwrap();
        let workspace = fs::read_to_string(lra.join("../Cargo.toml")).unwrap();
        let workspace: toml::Table = workspace.parse().unwrap();
        let (own, theirs) = (&manifest["profile"], &workspace["profile"]);
        assert_eq!(own["dev"], theirs["dev"]);
        assert_eq!(own["release"]["debug"], theirs["release"]["debug"]);
        assert_eq!(
            own["release"]["package"]["lra-models"]["debug"],
            theirs["release"]["debug"]
        );
        let files = sources::shared_build(&lra);
        assert_eq!(files[0].0, "Cargo.lock");
        assert!(files[0].1.contains("name = \"candle-core\""));
        for member in workspace["workspace"]["members"].as_array().unwrap() {
            let folder = lra.join("..").join(member.as_str().unwrap());
            let text = fs::read_to_string(folder.join("Cargo.toml")).unwrap();
            let member: toml::Table = text.parse().unwrap();
            // A crate that `lra new` made here is no part of lra.
            if member["package"].get("publish").is_some() {
                continue;
            }
            let name = member["package"]["name"].as_str().unwrap();
            assert!(
                sources::CRATES.contains(&name) || name == "lra-derive",
                "{name}"
            );
        }
    }

    /// The dependencies written there equal those of the workspace.
    #[test]
    fn dependencies_are_those_of_the_workspace() {
        let workspace = fs::read_to_string(Path::new(BUILT_IN).join("../Cargo.toml")).unwrap();
        let workspace: toml::Table = workspace.parse().unwrap();
        let here: toml::Table = DEPENDENCIES.parse().unwrap();
        for (name, version) in here {
            assert_eq!(
                workspace["workspace"]["dependencies"][&name], version,
                "{name}"
            );
        }
    }

    #[test]
    fn names_are_checked() {
        let crates = locked_crates(Path::new(BUILT_IN));
        for fine in ["my_mixer2", "neighbours", "s4x", "union_find", "my_conv"] {
            check_name(&MODEL, fine, &crates).unwrap();
        }
        for (wrong, instead) in [
            ("", "my_mixer"),
            ("2x", "mixer_2x"),
            ("My", "my"),
            ("a-b", "a_b"),
            ("a/b", "a_b"),
            ("Größe", "gr_e"),
            ("performer", "performer_mixer"),
            ("all", "all_mixer"),
            (&"long".repeat(75), "longlonglong"),
        ] {
            let error = check_name(&MODEL, wrong, &crates).unwrap_err().to_string();
            assert!(error.ends_with(&format!("such as {instead}")), "{error}");
        }
        // Names that cargo, the compiler or Windows refuses, or that clash with those of the
        // program.
        for (why, names) in [
            (
                "it is a keyword of Rust",
                "type async gen self yield union macro_rules static dyn raw auto",
            ),
            (
                "it is a type of Rust",
                "i8 i16 i32 i64 i128 isize u8 usize f16 f32 f64 bool char str vec",
            ),
            (
                "it is a crate of Rust's own",
                "core std test alloc proc_macro",
            ),
            ("it is the name of a library", "candle lra"),
            ("cargo makes a folder", "build deps examples incremental"),
            ("Windows keeps that name", "con prn aux nul com1 com9 lpt1"),
            (
                "a crate that the program is built of",
                "serde candle_core candle_nn rayon toml gemm lra_models lra_cpu clap",
            ),
            (
                "already uses that word",
                "options tensor mixer model pass main tests linear_ ok",
            ),
        ] {
            for wrong in names.split(' ') {
                let error = check_name(&MODEL, wrong, &crates)
                    .map(|()| wrong)
                    .unwrap_err()
                    .to_string();
                assert!(error.contains(why), "{error}");
                let instead = format!("such as {wrong}_mixer");
                assert!(error.ends_with(&instead), "{error}");
                if wrong != "linear_" {
                    check_name(&MODEL, &format!("{wrong}_mixer"), &crates).unwrap();
                }
            }
        }
    }

    #[test]
    fn a_task_is_renamed_throughout_and_its_name_checked() {
        for kind in TaskKind::value_variants() {
            let kind = task::of(*kind);
            let (files, told) = task::files(kind, "my_task");
            let code = &files
                .iter()
                .find(|(file, _)| *file == "src/task.rs")
                .unwrap()
                .1;
            for left in [kind.name, &camel_case(kind.name), &task::title(kind.name)] {
                assert!(!code.contains(left), "{left}");
            }
            assert!(code.contains("pub struct MyTask;") && code.contains("name: \"my_task\""));
            assert!(
                code.contains("title: \"My task\"") && code.contains("include_str!(\"task.rs\")")
            );
            assert!(told.contains("check-task my_task"), "{told}");
            manifest(kind, "my_task", Path::new("/a"), None)
                .parse::<toml::Table>()
                .unwrap();
        }
        let kind = task::of(TaskKind::Labels);
        for (wrong, why) in [
            ("listops", "there is a task of that name already"),
            ("pathx256", "there is a task of that name already"),
            ("mine", "it begins the names of folders"),
            ("serde", "a crate that the program is built of"),
            ("draw", "already uses that word"),
            ("My-Task", "such as my_task"),
        ] {
            let crates = locked_crates(Path::new(BUILT_IN));
            let error = check_name(kind, wrong, &crates).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn without_a_lock_file_the_crates_that_are_named_are_refused() {
        let nowhere = locked_crates(Path::new("/nowhere/lra"));
        assert!(nowhere.is_empty());
        assert!(check_name(&MODEL, "candle_core", &nowhere).is_err());
    }
}
