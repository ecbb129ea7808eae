//! The registries, printed.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;

use crate::common::Place;
use serde_json::Value;

#[test]
fn every_model_has_one_line_with_its_size() {
    let text = Place::new().ok("list models --recipe tay2021");
    let widest = text.lines().map(|line| line.chars().count()).max();
    assert!(widest.unwrap() <= 100, "{text}");
    for model in models::MODELS {
        let starts = |line: &&str| line.split_whitespace().next() == Some(model.name);
        assert_eq!(text.lines().filter(starts).count(), 1, "{text}");
    }
    let transformer = text.lines().find(|line| line.starts_with("transformer"));
    // The size of the published configuration, derived from the structure of the published code.
    assert!(transformer.unwrap().ends_with("8948746"), "{text}");
    assert!(text.contains("recipe tay2021 on listops "), "{text}");
}

#[test]
fn an_entry_documents_itself_within_the_width_of_a_terminal() {
    let place = Place::new();
    for model in models::MODELS {
        let text = place.ok(&format!("list models --long {}", model.name));
        assert!(text.contains(model.arxiv), "{text}");
        assert!(
            text.lines().all(|line| line.chars().count() <= 100),
            "{text}"
        );
        // The card says which epsilon its norms have.
        assert!(text.contains("norm_epsilon"), "{text}");
    }
    let mega = place.ok("list models --long mega");
    assert!(mega.contains("block.norm_epsilon = 0.00001"), "{mega}");
    let memory = place.ok("list models --long all_attention");
    assert!(memory.contains("M_k = √E P_k") && memory.contains("block.norm_epsilon = 1e-6"));
    let deberta = place.ok("list models --long deberta");
    for words in [
        "third term is that of the authors' code",
        "model.variant = paper",
    ] {
        assert!(deberta.contains(words), "{deberta}");
    }
    // Scores on the probes, of the table in the program.
    let s4d = place.ok("list models --long s4d");
    let (_, probes) = s4d.split_once("Probes, recipe mini").unwrap();
    assert!(probes.contains("\n  mqar: "), "{probes}");
    let s4d: Value = serde_json::from_str(&place.ok("list models s4d --json")).unwrap();
    let mqar = s4d["probes"].as_array().unwrap().iter();
    let mqar = mqar.clone().find(|it| it["probe"] == "mqar").unwrap();
    assert!(mqar["percent"].as_f64().unwrap() < 50.0 && mqar["groups"][0]["name"] == "length 64");
    let text = place.ok("list models --long reformer");
    assert!(text.contains("\n  model.rounds = 2"), "{text}");
}

#[test]
fn models_name_the_family_of_their_block() {
    let text = Place::new().ok("list models --json");
    for family in ["xformer", "filter", "gated", "mixer"] {
        assert!(text.contains(&format!("\"{family}\"")), "{family}");
    }
}

#[test]
fn sizes_are_asked_of_models_only() {
    let message = Place::new().fails(2, "list tasks --recipe smoke");
    assert!(
        message.contains("apply to the list of all models alone"),
        "{message}"
    );
}

#[test]
fn a_published_source_shows_its_figures_and_where_they_were_read() {
    let place = Place::new();
    let text = place.ok("list published tay2021");
    assert!(text.contains("36.37") && text.contains("Read in"), "{text}");
    assert!(
        text.lines().all(|line| line.chars().count() <= 100),
        "{text}"
    );
    assert_eq!(text, place.ok("list published --long tay2021long"));
    place.ok("run --task toy --model bag --recipe smoke --quiet");
    assert_eq!(
        place.ok("list published mega"),
        place.ok("list published Mega")
    );
    for words in [
        "list published NAME",
        "list published NAME --json",
        "report runs --against NAME",
        "repro NAME",
        "repro NAME listops performer",
        "bench --against NAME --models bag --lengths 64",
    ] {
        let told = |name: &str| place.fails(2, &words.replace("NAME", name));
        let near = told("tay2012");
        assert!(
            near.contains("'tay2012'; did you mean 'tay2021'?"),
            "{near}"
        );
        let none = told("wikitext");
        assert_eq!(
            none.trim_end(),
            "error: unknown published source 'wikitext'; `lra list published` names them all"
        );
    }
}

#[test]
fn shells_and_man_know_every_verb() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = place.ok(&format!("completions {shell}"));
        for word in [
            "repro",
            "check-model",
            // A task, a model, a recipe and a published source.
            "state_tracking",
            "nystromformer",
            "tay2021-paper",
            "mega-ablation",
        ] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    place.ok("man pages");
    for page in ["lra.1", "lra-run.1", "lra-data-make.1"] {
        assert!(place.path().join("pages").join(page).is_file(), "{page}");
    }
}

fn read(place: &Place, words: &str) -> Value {
    serde_json::from_str(&place.ok(words)).unwrap()
}

/// Returns the names of all fields of a listing, or of one entry; options and settings have names
/// of their own.
fn names(value: &Value) -> BTreeSet<String> {
    match value {
        Value::Array(all) => all.iter().flat_map(names).collect(),
        Value::Object(fields) => {
            let own = fields.keys().cloned();
            let inner = fields.iter();
            let inner = inner.filter(|(name, _)| !["settings", "default"].contains(&name.as_str()));
            let inner = inner.filter(|(_, value)| value.is_array());
            own.chain(inner.flat_map(|(_, value)| names(value)))
                .collect()
        }
        _ => BTreeSet::new(),
    }
}

/// The page of formats has a line per command, which names all its fields.
#[test]
fn every_field_of_a_listing_is_documented() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/formats.md");
    let page = fs::read_to_string(page).unwrap();
    let place = Place::new();
    for (words, of) in [
        ("list tasks", "list tasks"),
        ("list tasks listops", "list tasks NAME"),
        ("list models", "list models"),
        ("list models transformer", "list models NAME"),
        ("list recipes", "list recipes"),
        ("list recipes s5", "list recipes NAME"),
        ("list components", "list components"),
        ("list settings", "list settings"),
        ("list published", "list published"),
        ("list published s5", "list published NAME"),
    ] {
        let start = format!("| `lra {of} --json` |");
        let line = page.lines().find(|line| line.starts_with(&start)).unwrap();
        let found = names(&read(&place, &format!("{words} --json")));
        assert!(!found.is_empty(), "{words}");
        for name in found {
            assert!(line.contains(&format!("`{name}`")), "{name}: {line}");
        }
    }
}

/// Checks that no text of a value is empty. Settings are what they are.
fn no_text_is_empty(place: &str, value: &Value) {
    match value {
        Value::Object(fields) => {
            let settings = ["settings", "options", "default"];
            for (name, field) in fields {
                if !settings.contains(&name.as_str()) {
                    no_text_is_empty(&format!("{place}.{name}"), field);
                }
            }
        }
        Value::Array(all) => all.iter().for_each(|one| no_text_is_empty(place, one)),
        Value::String(text) => assert!(!text.is_empty(), "{place} is an empty text"),
        _ => {}
    }
}

/// Every listing, and every entry of the registries, has null where nothing is known.
#[test]
fn what_is_not_known_is_null() {
    let place = Place::new();
    let mut lists = vec![
        "list tasks".to_owned(),
        "list models".to_owned(),
        "list recipes".to_owned(),
        "list components".to_owned(),
        "list settings".to_owned(),
        "list devices".to_owned(),
        "list published".to_owned(),
        "repro --unoffered".to_owned(),
        "data list".to_owned(),
    ];
    let own = ["bag", "transformer", "mega"];
    lists.extend(own.map(|name| format!("list models {name}")));
    let tasks = datasets::TASKS.iter().map(|task| task.info().name);
    lists.extend(tasks.map(|name| format!("list tasks {name}")));
    lists.extend(["s5", "tay2021"].map(|name| format!("list published {name}")));
    for words in lists {
        no_text_is_empty(&words, &read(&place, &format!("{words} --json")));
    }
    let bag = read(&place, "list models bag --json");
    assert_eq!(bag["arxiv"], Value::Null);
    let models = read(&place, "list models --json");
    let models = models.as_array().unwrap();
    let of = |name: &str| models.iter().find(|it| it["name"] == name).unwrap();
    assert_eq!(of("bag")["arxiv"], Value::Null);
    assert_eq!(of("transformer")["arxiv"], "1706.03762");
    let devices = read(&place, "list devices --json");
    assert_eq!(devices[0]["driver"], Value::Null);
    assert!(devices[0]["memory_bytes"].is_u64(), "{devices}");
}

#[test]
fn no_figure_of_a_source_is_lost_to_machines() {
    let place = Place::new();
    let sources = read(&place, "list published --json");
    let sources = sources.as_array().unwrap();
    for source in results::published::sources() {
        let listed = sources.iter().find(|it| it["key"] == source.key).unwrap();
        assert_eq!(listed["name"], source.alias);
        assert_eq!(listed["figures"], source.figures.len());
        assert_eq!(listed["models"], source.models().len());
    }
    for key in ["s5", "tay2021", "chordmixer"] {
        let source = results::published::source(key).unwrap();
        let figures = read(&place, &format!("list published {key} --json"));
        let figures = figures.as_array().unwrap();
        assert_eq!(figures.len(), source.figures.len());
        for (found, figure) in figures.iter().zip(&source.figures) {
            assert_eq!(found["value"].as_f64(), figure.value);
            assert_eq!(found["task"], figure.task);
            assert_eq!(found["model"], figure.model);
            assert_eq!(found["metric"], figure.metric);
        }
    }
}

/// An entry has the same content in both forms.
#[test]
fn an_entry_is_json_where_json_is_asked_for() {
    let place = Place::new();
    let model = read(&place, "list models reformer --json");
    let options = model["options"].as_array().unwrap();
    let rounds = options.iter().find(|it| it["key"] == "model.rounds");
    assert_eq!(rounds.unwrap()["default"], 2);
    assert_eq!(model["arxiv"], "2001.04451");
    assert_eq!(model, read(&place, "list models --long reformer --json"));
    let documentation = model["variants"][0]["documentation"].as_str().unwrap();
    assert!(documentation.contains("arXiv"), "{documentation}");
    assert_eq!(read(&place, "list tasks listops --json")["classes"], 10);
    let recipe = read(&place, "list recipes s5 --json");
    assert_eq!(recipe["settings"]["published"], true);
    let message = place.fails(2, "list components block.norm --json");
    assert!(message.contains("lra list components"), "{message}");
}

#[test]
fn without_a_terminal_tables_are_as_wide_as_columns_says() {
    let place = Place::new();
    let widest = |columns: &str| {
        let mut command = place.command("list published tay2021");
        let output = command.env("COLUMNS", columns).output().unwrap();
        assert!(output.status.success());
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().map(|line| line.chars().count()).max().unwrap()
    };
    let (narrow, wide) = (widest("80"), widest("140"));
    assert!(narrow <= 80 && wide > 100 && wide <= 140, "{narrow} {wide}");
}
