//! Published figures: what the file says, and when a figure may stand beside ours.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use crate::common::{on, run, small};
use lra_results::Tone;
use lra_results::published::{self, ACCURACY, Comparison, Missing, Trust, compare};
use lra_results::record::{Batching, Record};

fn value(key: &str, model: &str, task: &str, metric: &str) -> Option<f64> {
    published::cell(key, model, task, metric).unwrap().value
}

#[test]
fn figures_are_found_by_our_names() {
    assert_eq!(published::figures().len(), 1215);
    assert_eq!(
        value("tay2021", "performer", "listops", "accuracy"),
        Some(18.01)
    );
    assert_eq!(
        value("tay2021long", "linear", "listops", "accuracy"),
        Some(16.13)
    );
    assert_eq!(value("tay2021", "sinkhorn", "avg", "accuracy"), Some(51.39));
    assert_eq!(
        value("tay2021", "bigbird", "text_speed", "steps_per_sec@4k"),
        Some(1.5)
    );
    assert_eq!(
        value("nystromformer", "transformer", "listops", "accuracy"),
        Some(37.1)
    );
    assert_eq!(value("mega", "transformer", "avg", "accuracy"), Some(59.24));
    assert!(published::cell("tay2021", "bag", "listops", "accuracy").is_none());
    assert!(published::cell("no such paper", "linear", "listops", "accuracy").is_none());
}

#[test]
fn what_a_paper_could_not_run_is_not_a_number() {
    let figure = published::cell("tay2021", "transformer", "pathx", "accuracy").unwrap();
    assert_eq!((figure.value, figure.missing), (None, Some(Missing::Fail)));
    assert_eq!(figure.text(), "FAIL");
    assert_eq!(figure.trust, Trust::Primary);
    for figure in published::figures() {
        assert!(
            figure.value.is_some() != figure.missing.is_some(),
            "{figure:?}"
        );
    }
}

#[test]
fn known_defects_are_marked() {
    let defect = |model, task, metric| {
        published::cell("tay2021", model, task, metric)
            .unwrap()
            .defect
            .as_str()
    };
    assert!(defect("synthesizer", "text_speed", "steps_per_sec@3k").contains("Sinkhorn"));
    assert!(defect("linformer", "text_speed", "peak_mem_gb@3k").contains("same figure"));
    assert!(defect("sinkhorn", "avg", "accuracy").contains("51.48"));
    assert_eq!(defect("performer", "listops", "accuracy"), "");
}

#[test]
fn sources_are_found_in_any_case_and_nothing_is_guessed() {
    for (name, alias) in [("Mega", "mega"), ("TAY2021LONG", "tay2021"), ("s5", "s5")] {
        assert_eq!(published::source(name).unwrap().alias, alias);
    }
    let error = published::source("tay2020").unwrap_err().to_string();
    assert_eq!(
        error,
        "no published source is called `tay2020`; `lra list published` lists them all"
    );
}

#[test]
fn sources_are_listed() {
    assert_eq!(published::sources().len(), 44);
    let table = published::listing();
    let row = |name: &str| {
        let row = table
            .rows
            .iter()
            .find(|row| row.cells[0].text == name)
            .unwrap();
        row.cells
            .iter()
            .map(|cell| cell.text.as_str())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        row("tay2021"),
        [
            "tay2021",
            "tay2021long",
            "2021",
            "162",
            "12",
            "all six, avg, text_speed"
        ]
    );
    assert_eq!(row("skyformer")[5], "all but pathx, avg");
}

/// Returns the reasons why a record may not stand beside the 2021 table; empty if it may.
fn reasons(alter: fn(&mut Record)) -> Vec<String> {
    let mut record = run("performer", 0, 0.3);
    alter(&mut record);
    match compare(&record, published::source("tay2021").unwrap()) {
        Comparison::Beside { .. } => vec![],
        Comparison::Apart { reasons, .. } => reasons,
        Comparison::Absent => vec!["absent".into()],
    }
}

#[test]
fn only_the_published_task_and_protocol_may_be_compared() {
    assert!(reasons(|_| ()).is_empty());
    assert_eq!(
        reasons(|record| record.model.name = "bag".into()),
        ["absent"]
    );
    assert_eq!(
        reasons(|record| record.task.source = "synthetic".into()),
        ["synthetic data"]
    );
    assert_eq!(
        reasons(|record| record.task.partial = true),
        ["a part of the data"]
    );
    assert_eq!(
        reasons(|record| record.model.rule_violation = Some("it knows rows of pixels".into())),
        ["it knows rows of pixels"]
    );
    assert_eq!(
        reasons(|record| record.task.altered = vec!["one review is another".into()]),
        ["altered data: one review is another"]
    );
    assert_eq!(
        reasons(|record| record.recipe.overrides = vec!["train.steps=200".into()]),
        ["set train.steps=200"]
    );
    assert_eq!(
        reasons(
            |record| record.provenance.accepted_changes = vec!["it was run on other data".into()]
        ),
        ["resumed after changes: it was run on other data"]
    );
    fn in_parts(record: &mut Record, batch_norm: bool) {
        let set = ["train.log_every=2", "train.micro_batch=2", "train.steps=9"];
        record.recipe.overrides = set.map(str::to_owned).into();
        record.recipe.batching = Some(Batching {
            batch: 8,
            forward: 2,
            batch_norm,
            pretraining: None,
        });
    }
    assert_eq!(
        reasons(|record| in_parts(record, false)),
        ["set train.steps=9"]
    );
    assert_eq!(
        reasons(|record| in_parts(record, true)),
        [
            "set train.micro_batch=2 train.steps=9",
            "BatchNorm's statistics are over 2 examples instead of 8"
        ]
    );
    assert_eq!(
        reasons(|record| *record = small(record.clone())),
        ["listops@256 is not listops", "recipe mini is not published"]
    );
}

/// A published recipe without changes trains on the published task: a record that says otherwise
/// was made by hand.
#[test]
fn a_label_that_no_published_recipe_has_is_another_task() {
    let reasons = |task: &str, label: &str| {
        let mut record = on(run("performer", 0, 0.18), task, "official", 2);
        record.task.label = label.into();
        match compare(&record, published::source("tay2021").unwrap()) {
            Comparison::Apart { reasons, .. } => reasons,
            _ => vec![],
        }
    };
    assert_eq!(
        reasons("listops", "listops@64"),
        ["listops@64 is not listops"]
    );
    assert_eq!(reasons("text", "text@100"), ["text@100 is not text"]);
    assert_eq!(reasons("image", "image@4000"), ["image@4000 is not image"]);
    for (task, label) in [
        ("listops", "listops"),
        ("text", "text@1000"),
        ("text", "text@4000"),
        ("retrieval", "retrieval@4000"),
    ] {
        assert_eq!(reasons(task, label), Vec::<String>::new());
    }
}

/// A published recipe trains at the length of its source, which tables elsewhere may not have.
#[test]
fn another_length_is_no_matter_where_a_published_recipe_says_it() {
    let mut record = on(run("s4d", 0, 0.85), "text", "official", 2);
    record.task.label = "text@4000".into();
    record.recipe.name = "s4".into();
    let s4d = published::source("s4d").unwrap();
    let Comparison::Beside { same_recipe, .. } = compare(&record, s4d) else {
        panic!("recipe s4 is that of s4d");
    };
    assert!(same_recipe);
    record.recipe.name = "liquid-s4".into();
    let Comparison::Beside { caveats, .. } = compare(&record, s4d) else {
        panic!("recipe liquid-s4 is published");
    };
    assert!(caveats.contains(&"text@4000, there maybe otherwise".to_owned()));
    record.recipe.overrides = vec!["data.max_length=4000".into()];
    assert!(matches!(compare(&record, s4d), Comparison::Apart { .. }));
    record.recipe.repeated = record.recipe.overrides.clone();
    assert!(
        matches!(compare(&record, s4d), Comparison::Beside { .. }),
        "the recipe's own value"
    );
}

#[test]
fn what_may_be_compared_comes_with_its_caveats() {
    let tay = published::source("tay2021").unwrap();
    let mut record = on(run("performer", 0, 0.6), "path-x", "generated", 2);
    record.recipe.name = "nystromformer".into();
    record.task.protocol = "clean".into();
    record.model.variant = "relu".into();
    let Comparison::Beside {
        figure, caveats, ..
    } = compare(&record, tay)
    else {
        panic!("`path-x` is their `pathx`");
    };
    assert_eq!(
        (figure.task.as_str(), figure.text().as_str()),
        ("pathx", "FAIL")
    );
    assert_eq!(
        caveats,
        [
            "recipe nystromformer does not follow source tay2021",
            "protocol clean",
            "variant relu"
        ]
    );
}

#[test]
fn the_default_variant_is_no_caveat_however_a_record_writes_it() {
    for (variant, expected) in [
        ("", vec![]),
        ("paper", vec![]),
        // The setting that the source itself computed.
        ("tay2021", vec![]),
        ("relu", vec!["variant relu"]),
    ] {
        let mut record = run("performer", 0, 0.3);
        record.model.variant = variant.into();
        let Comparison::Beside {
            caveats,
            same_recipe,
            ..
        } = compare(&record, published::source("tay2021").unwrap())
        else {
            panic!("{variant} may be compared");
        };
        assert_eq!(caveats, expected, "{variant}");
        assert!(same_recipe);
    }
}

#[test]
fn milestones_are_those_of_the_task_by_epoch() {
    let of = |recipe: &str, task: &str| -> Vec<(usize, f64)> {
        let found = published::milestones(recipe, task);
        found.iter().map(|it| (it.epoch, it.accuracy)).collect()
    };
    assert_eq!(of("s4", "listops"), [(10, 0.5)]);
    assert_eq!(of("s4", "image"), [(20, 0.8)]);
    assert_eq!(of("tay2021", "listops"), []);
    for source in published::sources() {
        for recipe in &source.recipes {
            for task in published::TASKS {
                let found = of(recipe, task);
                assert!(found.is_sorted_by_key(|(epoch, _)| *epoch), "{recipe}");
                let shares = found.iter().all(|(_, share)| (0.0..=1.0).contains(share));
                assert!(shares, "{recipe}");
            }
        }
    }
}

/// The spread that a source prints is that of the same model on the same task.
#[test]
fn a_spread_is_of_its_own_figure() {
    let mut found = 0;
    for source in published::sources() {
        for spread in &source.figures {
            if spread.metric != "accuracy_spread" {
                continue;
            }
            let mut own = source.figures.iter();
            let figure = own.find(|it| {
                (&it.model, &it.task, it.metric.as_str()) == (&spread.model, &spread.task, ACCURACY)
            });
            let Some(figure) = figure else { continue };
            assert_eq!(source.spread(figure), spread.value, "{}", source.alias);
            found += 1;
        }
    }
    assert!(found > 4);
    let plain = published::cell("tay2021", "performer", "listops", ACCURACY);
    assert_eq!(
        published::source("tay2021").unwrap().spread(plain.unwrap()),
        None
    );
}

/// Only a failure is one: a figure that was not reported says nothing of the model.
#[test]
fn what_is_printed_instead_of_a_number_has_its_meaning() {
    for figure in published::figures() {
        let expected = match figure.missing_word().as_deref() {
            Some("FAIL") => Some(Tone::Bad),
            _ => None,
        };
        assert_eq!(figure.tone(), expected, "{figure:?}");
    }
    let words: BTreeSet<String> = published::figures()
        .iter()
        .filter_map(|it| it.missing_word())
        .collect();
    assert!(words.len() >= 2, "{words:?}");
}

/// The page of a source says of every figure where it was read, and of each defect once.
#[test]
fn the_figures_of_a_source_come_with_their_origins() {
    for source in published::sources() {
        let table = published::figures_of(source);
        let distinct: BTreeSet<&String> = table.notes.iter().collect();
        assert_eq!(distinct.len(), table.notes.len(), "{}", source.alias);
        let read: Vec<&String> = table
            .notes
            .iter()
            .filter(|note| note.starts_with("Read in "))
            .collect();
        for figure in &source.figures {
            let document = format!("Read in {}: ", figure.source);
            let is_its = |note: &&&String| {
                note.starts_with(&document) && note.contains(figure.trust.words())
            };
            assert!(read.iter().any(|note| is_its(&note)), "{figure:?}");
        }
        let mut cells = table.rows.iter().flat_map(|row| &row.cells);
        let own = |figure: &&published::Figure| figure.trust == Trust::Primary;
        if source.figures.iter().all(own) {
            assert!(cells.all(|cell| cell.field("trust").is_none()));
        } else if !source.figures.iter().any(own) {
            assert!(cells.any(|cell| cell.field("trust").is_some()));
        }
    }
}

/// A recipe that is not published may cut its texts to a published length by chance.
#[test]
fn a_length_alone_makes_no_published_task() {
    let source = published::source("tay2021").unwrap();
    let of = |alter: fn(&mut Record)| {
        let mut record = on(run("performer", 0, 0.6), "text", "official", 2);
        record.task.label = "text@4000".to_owned();
        alter(&mut record);
        match compare(&record, source) {
            Comparison::Apart { reasons, .. } => reasons,
            _ => Vec::new(),
        }
    };
    assert!(of(|_| ()).is_empty());
    let own = of(|record| record.recipe.published = false);
    assert_eq!(own[0], "text@4000 is not text");
    let changed = of(|record| record.recipe.overrides = vec!["train.steps=2".to_owned()]);
    assert_eq!(changed[0], "text@4000 is not text");
}
