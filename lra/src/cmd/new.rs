//! `lra new model`: a crate with a custom model, made from the example that the tests build.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{fs, io};

use crate::cli::NewVerb;
use crate::cmd;
use crate::error::{Class, Classify, Error, Result};

/// The example, and the words in it that are the model's name.
const EXAMPLE: &str = include_str!("../../examples/own_model.rs");
const NAME: &str = "neighbours";
/// The build script.
const BUILD: &str = include_str!("../../templates/build.rs");
/// Folder of this program's own crate when it was built.
const BUILT_IN: &str = env!("CARGO_MANIFEST_DIR");
/// Versions of the example's dependencies other than `lra`.
const DEPENDENCIES: &str = "\
candle-core = \"=0.11.1\"
candle-nn = \"=0.11.1\"
serde = { version = \"1\", features = [\"derive\"] }
";

/// Runs the command.
pub fn run(verb: &NewVerb) -> Result<ExitCode> {
    let NewVerb::Model { name, path, lra } = verb;
    check_name(name)?;
    let folder = path.clone().unwrap_or_else(|| PathBuf::from(name));
    let lra = lra.clone().unwrap_or_else(|| PathBuf::from(BUILT_IN));
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
    let files = [
        ("Cargo.toml", manifest(name, &lra)),
        ("src/main.rs", program(name)),
        ("build.rs", BUILD.to_owned()),
        ("README.md", readme(name)),
        (".gitignore", "/target\n/runs\n".to_owned()),
    ];
    write(&folder, &files)?;
    cmd::print(&format!(
        "made {0}: the model is src/main.rs\n\n  cd {0}\n  cargo run --release -- run --task listops --model {name}\n  \
         cargo run --release -- check-model {name}\n  cargo run --release -- mini {name} --glance",
        folder.display()
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Creates a folder with these files, completely or not at all: they are written to a temporary
/// folder next to it, which is then renamed.
fn write(folder: &Path, files: &[(&str, String)]) -> Result<()> {
    let parent = match folder.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let making = || format!("making {}", folder.display());
    fs::create_dir_all(parent).during(Class::Data, making())?;
    let beside = tempfile::Builder::new()
        .prefix(".lra-new-")
        .tempdir_in(parent)
        // The error of `tempfile` also names its temporary folder, which means nothing to the user.
        .map_err(|error| io::Error::from(error.kind()))
        .during(Class::Data, making())?;
    let unfinished = beside.path().join("crate");
    for (file, text) in files {
        let path = unfinished.join(file);
        fs::create_dir_all(path.parent().unwrap_or(&unfinished))
            .and_then(|()| fs::write(&path, text))
            .during(
                Class::Data,
                format!("writing {}", folder.join(file).display()),
            )?;
    }
    fs::rename(&unfinished, folder).during(Class::Data, making())
}

fn check_name(name: &str) -> Result<()> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    if !name.starts_with(|c: char| c.is_ascii_lowercase()) || !name.chars().all(plain) {
        return Err(Error::usage(format!(
            "'{name}' cannot name a model: lower-case letters, digits and underscores, a letter first"
        )));
    }
    if models::registry().iter().any(|model| model.name == name) {
        return Err(Error::usage(format!("there is a model '{name}' already")));
    }
    match taken(name) {
        Some(by) => Err(Error::usage(format!(
            "'{name}' cannot name a model: {by} has that name, so the crate would not compile; add a word, such as {name}_mixer"
        ))),
        None => Ok(()),
    }
}

/// Keywords of Rust, reserved ones included, in lower case.
const KEYWORDS: &str = "abstract as async await become box break const continue crate do dyn else enum extern false final fn for gen if \
    impl in let loop macro match mod move mut override priv pub ref return self static struct super trait true try type typeof \
    unsafe unsized use virtual where while yield";

/// Crates that every program has, and folders that cargo makes.
const RESERVED: &str = "alloc build core deps examples incremental proc_macro std test";

/// Returns the existing owner of the name of a new model: the language, a crate, or a word of the
/// example in one of the forms of the name.
fn taken(name: &str) -> Option<&'static str> {
    if KEYWORDS.split_whitespace().any(|word| word == name) {
        return Some("a keyword of Rust");
    }
    let mut crates = DEPENDENCIES.lines().filter_map(|line| line.split_once(' '));
    if RESERVED.split_whitespace().any(|word| word == name)
        || name == "lra"
        || crates.any(|(dependency, _)| dependency.replace('-', "_") == name)
    {
        return Some("a crate or a folder of its build");
    }
    if name == NAME {
        return None;
    }
    let forms = [name.to_owned(), camel_case(name), name.to_ascii_uppercase()];
    let letters = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let code = EXAMPLE
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    let mut words = code.flat_map(|line| line.split(|c| !letters(c)));
    let met = words.any(|word| forms.iter().any(|form| form == word));
    met.then_some("something that the program uses")
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

fn program(name: &str) -> String {
    EXAMPLE
        .replace("--release --example own_model -- run", "--release -- run")
        .replace("own_model.rs", "main.rs")
        .replace(NAME, name)
        .replace(&camel_case(NAME), &camel_case(name))
        .replace(&NAME.to_ascii_uppercase(), &name.to_ascii_uppercase())
}

fn manifest(name: &str, lra: &Path) -> String {
    let lra = toml::Value::from(lra.display().to_string());
    format!(
        "[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[dependencies]\nlra = {{ path = {lra} }}\n\
         {DEPENDENCIES}\n# Tests train the model.\n[profile.dev]\nopt-level = 2\n\n\
         # For errors that name a line.\n[profile.release]\ndebug = \"line-tables-only\"\n\n\
         # On its own, also within another workspace's folder.\n[workspace]\n"
    )
}

fn readme(name: &str) -> String {
    format!(
        "# {name}\n\nA model of one's own for the Long Range Arena: `lra` with one model more.\n\n```sh\n\
         cargo run --release -- run --task listops --model {name}\n\
         cargo run --release -- sweep --tasks listops --models {name},transformer --seeds 0..3\n\
         cargo run --release -- check-model {name}      # what every model promises\n\
         cargo run --release -- mini {name} --glance    # its score card on the small protocol\n\
         cargo test\n```\n\n`src/main.rs` is the whole of it: the card, the options, the mixer.\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_is_renamed_throughout() {
        let text = program("my_mixer");
        for left in ["eighbours", "NEIGHBOURS", "own_model"] {
            assert!(!text.contains(left), "{left}");
        }
        assert!(text.contains("struct MyMixer {") && text.contains("const MY_MIXER: Model"));
        let manifest: toml::Table = manifest("my_mixer", Path::new("/a \"b\"")).parse().unwrap();
        assert_eq!(
            manifest["dependencies"]["lra"]["path"].as_str(),
            Some("/a \"b\"")
        );
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
        assert!(check_name("my_mixer2").is_ok());
        for wrong in ["", "2x", "My", "a-b", "a/b", "performer"] {
            assert!(check_name(wrong).is_err(), "{wrong}");
        }
        // Names that cargo or the compiler refuses: keywords, crates, names of the example.
        for wrong in [
            "type",
            "async",
            "gen",
            "self",
            "yield",
            "core",
            "std",
            "test",
            "alloc",
            "build",
            "deps",
            "proc_macro",
            "lra",
            "serde",
            "candle_core",
            "candle_nn",
            "options",
            "tensor",
            "mixer",
            "model",
            "result",
            "pass",
            "main",
            "tests",
            "linear_",
            "ok",
        ] {
            let error = check_name(wrong).map(|()| wrong).unwrap_err().to_string();
            assert!(error.contains(wrong), "{error}");
        }
    }
}
