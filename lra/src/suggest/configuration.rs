//! Names of configurations in public code bases: a code base or a model, then a task, between words
//! that carry no meaning, such as `lra/s4d-imdb`, `mega_lra_imdb` and `transformer_base.py`. Only
//! the last part of a path is such a name; its folders may name the task.

use results::published;

use super::aliases::{MODELS, RECIPES, SOURCES, TASKS};
use super::{BENCHMARK, Guess, fold, one_called, pathfinder};

/// Endings of the names of files.
const ENDINGS: [&str; 4] = ["py", "sh", "yaml", "yml"];
/// Characters that end the parts of a path and the words before it, such as `experiment=`.
const BETWEEN: [char; 3] = ['/', '\\', '='];
/// First or last word of the configurations of google-research/long-range-arena, beside the task or
/// the model.
const BASE: &str = "base";
/// Models of the configurations of google-research/long-range-arena that are here, too.
const OF_2021: [&str; 12] = [
    "bigbird",
    "linear-transformer",
    "linformer",
    "local",
    "longformer",
    "performer",
    "reformer",
    "sinkhorn",
    "sinkhorn-transformer",
    "sparse-transformer",
    "synthesizer",
    "transformer",
];
/// Words for another version or size of a configuration.
const VARIANTS: [&str; 9] = [
    "v1", "v2", "v3", "new", "old", "small", "simple", "minimal", "ablation",
];

/// Returns the recipes that follow the code base of a configuration, with the task and the model
/// that its name says; none for a recipe's name with other digits. `None` if the name is neither.
pub(super) fn explained(name: &str, known: &[&str]) -> Option<Guess> {
    let numbered = || {
        let is_other = known.iter().any(|it| differs_in_digits(name, it));
        is_other.then(Guess::default)
    };
    configuration(name, known).or_else(numbered)
}

/// Returns whether two names differ in their digits alone: they are those of different things.
fn differs_in_digits(name: &str, known: &str) -> bool {
    let letters = |text: &str| fold(text).replace(|c: char| c.is_ascii_digit(), "");
    fold(name) != fold(known) && letters(name) == letters(known)
}

/// Returns the recipes that follow the code base of a configuration, with the task and the model
/// that its name says; `None` if it names no code base with a recipe.
fn configuration(name: &str, known: &[&str]) -> Option<Guess> {
    let parts = name.rsplit(|c: char| BETWEEN.contains(&c));
    let mut parts = parts.filter(|part| !part.is_empty());
    let words = parts.next()?.split(|c: char| !c.is_alphanumeric());
    let words = words.map(str::to_lowercase);
    let words = words.filter(|word| !word.is_empty() && !ENDINGS.contains(&word.as_str()));
    let (variants, words): (Vec<String>, Vec<String>) =
        words.partition(|word| VARIANTS.contains(&word.as_str()));
    let (recipes, model, named) = of_words(&words, known)?;
    let task = named.or_else(|| parts.find_map(task));
    let settings = [("task", task), ("model", model)];
    let settings = settings.into_iter();
    let settings: Vec<String> = settings
        .filter_map(|(flag, name)| Some(format!("--{flag} {}", name?)))
        .collect();
    let mut notes = Vec::new();
    if !settings.is_empty() {
        notes.push(format!("with {}", settings.join(" ")));
    }
    if !variants.is_empty() {
        let variant = variants.join(" ");
        notes.push(format!(
            "its settings are not those of the variant '{variant}'"
        ));
    }
    let several = RECIPES.iter().filter(|alias| alias.to.len() > 1);
    let mut differ = several.filter(|alias| recipes == alias.to);
    notes.extend(differ.next().map(|alias| alias.note.to_owned()));
    Some(Guess {
        names: recipes,
        note: notes.join("; "),
    })
}

/// Recipes of a configuration, its model and its task, as far as it names them.
type Named = (Vec<String>, Option<String>, Option<String>);

/// Returns what the words of a configuration's name say; `None` if they name no code base with a
/// recipe, or something else.
fn of_words(words: &[String], known: &[&str]) -> Option<Named> {
    if let [first, of @ .., last] = words
        && first == BASE
        && last == "config"
    {
        return Some((of_2021(), None, Some(task(&of.join("-"))?)));
    }
    (1..=words.len()).find_map(|end| {
        let task = match &words[end..] {
            [] => None,
            named => Some(task(&named.join("-"))?),
        };
        let (recipes, model) = source(&words[..end], known)?;
        Some((recipes, model, task))
    })
}

/// Returns the recipes of google-research/long-range-arena.
fn of_2021() -> Vec<String> {
    ["tay2021", "tay2021-paper"].map(str::to_owned).to_vec()
}

/// Returns the task called `name` in public code, and the settings of its data that the name says.
fn task(name: &str) -> Option<String> {
    if let Some((task, settings)) = pathfinder::parsed(name) {
        return Some([vec![task.to_owned()], settings].concat().join(" "));
    }
    let known: Vec<&str> = datasets::tasks::registry()
        .iter()
        .map(|it| it.info().name)
        .collect();
    one_called(name, TASKS, &known).map(str::to_owned)
}

/// Returns the recipes of the code base that these words name, and the model if they name one.
fn source(words: &[String], known: &[&str]) -> Option<(Vec<String>, Option<String>)> {
    let models: Vec<&str> = models::registry().iter().map(|it| it.name).collect();
    let model = |name: &str| one_called(name, MODELS, &models).map(str::to_owned);
    if let [of @ .., base] = words
        && base == BASE
    {
        let of = of.join("-");
        let is_known = OF_2021.contains(&of.as_str());
        return is_known.then(|| (of_2021(), model(&of)));
    }
    let without: Vec<String> = words
        .iter()
        .filter(|it| *it != BENCHMARK[0])
        .cloned()
        .collect();
    [&without[..], words].into_iter().find_map(|words| {
        let name = words.join("-");
        Some((recipes(&name, known)?, model(&name)))
    })
}

/// Returns the recipes of a source that is called `name` here or in public code.
fn recipes(name: &str, known: &[&str]) -> Option<Vec<String>> {
    if let Some(recipe) = one_called(name, RECIPES, known) {
        return Some(vec![recipe.to_owned()]);
    }
    let sources: Vec<&str> = published::sources().iter().map(|it| it.alias).collect();
    let source = published::source(one_called(name, SOURCES, &sources)?).ok()?;
    let recipes: Vec<String> = source.recipes.iter().map(|it| (*it).to_owned()).collect();
    (!recipes.is_empty()).then_some(recipes)
}
