//! Names of configurations in public code bases: a code base or a model, then a task, between words
//! that carry no meaning, such as `lra/s4d-imdb`, `mega_lra_imdb` and `transformer_base.py`.

use results::published;

use super::aliases::{MODELS, RECIPES, SOURCES, TASKS};
use super::{BENCHMARK, Guess, one_called, pathfinder};

/// Endings of the names of files.
const ENDINGS: [&str; 4] = ["py", "sh", "yaml", "yml"];
/// Last word of the configurations of google-research/long-range-arena, after the model.
const BASE: &str = "base";

/// Returns the recipes that follow the code base of a configuration, with the task and the model
/// that its name says; `None` if it names no code base with a recipe.
pub(super) fn explained(name: &str, known: &[&str]) -> Option<Guess> {
    let words = name.split(|c: char| !c.is_alphanumeric());
    let words = words.filter(|word| !word.is_empty() && !ENDINGS.contains(word));
    let words: Vec<String> = words.map(str::to_lowercase).collect();
    (1..=words.len()).find_map(|end| {
        let task = match &words[end..] {
            [] => None,
            named => Some(task(&named.join("-"))?),
        };
        let (recipes, model) = source(&words[..end], known)?;
        let settings = [("task", task), ("model", model)];
        let settings = settings.into_iter();
        let settings: Vec<String> = settings
            .filter_map(|(flag, name)| Some(format!("--{flag} {}", name?)))
            .collect();
        let note = match settings.is_empty() {
            true => String::new(),
            false => format!("with {}", settings.join(" ")),
        };
        Some(Guess {
            names: recipes,
            note,
        })
    })
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
    if let [of, base] = words
        && base == BASE
    {
        let all = ["tay2021", "tay2021-paper"].map(str::to_owned);
        return Some((all.to_vec(), Some(model(of)?)));
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
