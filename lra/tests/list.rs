//! The registries, printed.

#![allow(clippy::unwrap_used)]

mod common;

use common::Place;

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
    }
    let mega = place.ok("list models --long mega");
    assert!(mega.contains("block.norm_epsilon = 1e-5"), "{mega}");
    let memory = place.ok("list models --long all_attention");
    assert!(memory.contains("M_k = √E P_k") && memory.contains("block.norm_epsilon = 1e-6"));
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
    assert!(message.contains("apply to models"), "{message}");
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
    assert!(place.fails(2, "list published tay2012").contains("nearest"));
}

#[test]
fn shells_and_man_know_every_verb() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = place.ok(&format!("completions {shell}"));
        assert!(script.contains("repro") && script.contains("check-model"));
    }
    place.ok("man pages");
    for page in ["lra.1", "lra-run.1", "lra-data-make.1"] {
        assert!(place.path().join("pages").join(page).is_file(), "{page}");
    }
}
