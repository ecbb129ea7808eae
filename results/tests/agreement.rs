//! Agreement with the published tables, from records to figures.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use crate::common::anchors::{cell, records};
use lra_results::agreement::{
    Agreement, Cluster, Half, Measure, Ranking, Selection, Standing, anchors, select,
};
use lra_results::card::{self, Card};
use lra_results::committed;
use lra_results::record::{Baseline, Batching, MAJORITY, Outcome, Record};
use lra_results::{Format, tables};

fn all(records: &[Record]) -> Vec<&Record> {
    records.iter().collect()
}

#[test]
fn a_task_that_ranks_as_published_agrees_and_one_that_turns_it_round_does_not() {
    let records = records();
    let agreement = Agreement::of(&all(&records), None, None);
    assert_eq!(agreement.measure, Measure::Bits);
    assert_eq!(agreement.models.len(), anchors().len());
    let names: Vec<&str> = agreement
        .rows
        .iter()
        .map(|row| row.tasks.as_str())
        .collect();
    assert_eq!(names, ["all", "listops@64", "image@64"]);
    let [_, good, bad] = &agreement.rows[..] else {
        panic!("{names:?}");
    };
    let near = |value: Option<f64>, expected: f64| (value.unwrap() - expected).abs() < 1e-9;
    assert!(near(good.rho, 1.0) && near(good.auc, 1.0) && near(good.reliability, 1.0));
    assert!(near(bad.rho, -1.0) && near(bad.auc, 0.0) && near(bad.reliability, 1.0));
    assert_eq!(good.pairs.0, good.pairs.1);
    assert_eq!((bad.pairs.0, bad.pairs.1), (0, good.pairs.1));
    let (low, high) = good.interval.unwrap();
    assert!(low > 0.999 && high > 0.999);
    assert!(good.same_task.unwrap() > 0.7, "{good:?}");
    let line = agreement.line();
    assert!(line.contains("rho") && line.contains("anchors"), "{line}");
}

#[test]
fn what_is_left_out_is_named() {
    let mut records = records();
    records.retain(|it| it.model.name != "linear" || it.task.name != "image");
    records.retain(|it| it.model.name != "fnet" || it.seed == 0);
    records.push(cell("bag", "listops", 0, 0.1));
    for record in &mut records {
        if record.model.name == "sparse" {
            record.outcome = Outcome::Diverged {
                step: 1,
                reason: String::new(),
            };
            record.scores = None;
        }
    }
    let agreement = Agreement::of(&all(&records), None, None);
    let lacking = [("linear".to_owned(), vec!["image@64".to_owned()])];
    assert_eq!(agreement.incomplete, lacking);
    assert_eq!(agreement.seeds, [0], "the other seed is not there of all");
    assert!(
        agreement.models.contains(&"sparse".to_owned()),
        "diverged counts as nothing gained"
    );
    assert!(!agreement.models.contains(&"bag".to_owned()), "no anchor");
    let notes = agreement.table().notes.join("\n");
    assert!(notes.contains("linear left out"), "{notes}");
}

#[test]
fn a_few_anchors_have_no_interval() {
    let mut records = records();
    records.retain(|it| ["s4d", "linear", "transformer"].contains(&it.model.name.as_str()));
    let agreement = Agreement::of(&all(&records), None, None);
    assert_eq!(agreement.rows[0].interval, None);
    let notes = agreement.table().notes.join("\n");
    assert!(notes.contains("Fewer than 8 anchors"), "{notes}");
}

#[test]
fn halves_are_compared_by_themselves() {
    let records = records();
    for half in [Half::Tuning, Half::Sealed] {
        let agreement = Agreement::of(&all(&records), None, Some(half));
        assert!(agreement.models.iter().all(|model| Half::of(model) == half));
        let both = [Cluster::Strong, Cluster::Weak];
        let clusters = anchors()
            .iter()
            .filter(|it| it.half == half)
            .map(|it| it.cluster);
        assert!(both.iter().all(|one| clusters.clone().any(|it| it == *one)));
        assert!(agreement.rows[1].auc.is_some());
    }
}

#[test]
fn records_without_bits_are_ranked_by_accuracy() {
    let mut records = records();
    records[0].scores.as_mut().unwrap().bits_gained = None;
    let agreement = Agreement::of(&all(&records), None, None);
    assert_eq!(agreement.measure, Measure::Accuracy);
    assert_eq!(agreement.rows[1].rho, None, "all are equal");
    assert_eq!(Agreement::of(&[], None, None).rows.len(), 1);
}

/// The date and the builds are those of the runs that were compared, and a model that is no anchor
/// does not decide how anchors are ranked.
#[test]
fn an_agreement_speaks_of_the_compared_runs_alone() {
    let mut records = records();
    let mut bag = cell("bag", "listops", 0, 0.1);
    bag.scores.as_mut().unwrap().bits_gained = None;
    bag.provenance.created = "2030-01-01T00:00:00Z".to_owned();
    bag.provenance.versions.sources = "other".to_owned();
    records.push(bag);
    let agreement = Agreement::of(&all(&records), None, None);
    assert_eq!(agreement.measure, Measure::Bits);
    assert_eq!(agreement.latest, "2026-11-21T10:00:00Z");
    assert_eq!(agreement.remarks, Vec::<String>::new());
    records[0].provenance.versions.sources = "other".to_owned();
    let agreement = Agreement::of(&all(&records), None, None);
    assert!(agreement.remarks[0].contains("builds"), "{agreement:?}");
}

#[test]
fn one_recipe_and_one_set_of_changes_are_compared() {
    let mut records = vec![
        cell("linear", "listops", 0, 0.5),
        cell("s4d", "listops", 0, 0.5),
    ];
    records[0].model.family = Some("xformer".to_owned());
    records[1].model.family = Some("filter".to_owned());
    let mut changed = cell("s4d", "listops", 0, 0.1);
    changed.recipe.overrides = vec!["block.family=xformer".to_owned()];
    records.push(changed);
    let asked = |recipe: Option<&str>, set: &[&str]| Selection {
        recipe: recipe.map(str::to_owned),
        set: set.iter().map(|it| (*it).to_owned()).collect(),
        ..Selection::default()
    };
    let models = |asked: &Selection| -> Result<Vec<(String, usize)>, String> {
        let chosen = select(&records, asked).map_err(|error| error.to_string())?;
        let named = chosen
            .iter()
            .map(|it| (it.model.name.clone(), it.recipe.overrides.len()));
        Ok(named.collect())
    };
    let pair = |model: &str, changes| (model.to_owned(), changes);
    assert_eq!(
        models(&asked(None, &[])).unwrap(),
        [pair("linear", 0), pair("s4d", 0)]
    );
    // A model of the family has that block without being asked.
    let second = models(&asked(None, &["block.family=xformer"])).unwrap();
    assert_eq!(second, [pair("linear", 0), pair("s4d", 1)]);
    let message = models(&asked(Some("smoke"), &[])).unwrap_err();
    assert!(
        message.contains("smoke") && message.contains("mini"),
        "{message}"
    );
    let message = models(&asked(None, &["train.steps=3"])).unwrap_err();
    assert!(message.contains("--set train.steps=3"), "{message}");
    let mut others = records.clone();
    others[0].recipe.name = "smoke".to_owned();
    let message = select(&others, &Selection::default())
        .unwrap_err()
        .to_string();
    assert!(message.contains("--recipe"), "{message}");
    others.iter_mut().enumerate().for_each(|(index, record)| {
        record.recipe.name = "mini".to_owned();
        record.recipe.overrides = vec![format!("train.steps={index}")];
    });
    let message = select(&others, &Selection::default())
        .unwrap_err()
        .to_string();
    assert!(message.contains("--set"), "{message}");
    assert_eq!(
        select(&others[..1], &Selection::default()).unwrap().len(),
        1
    );
}

#[test]
fn runs_at_several_rates_are_no_seeds_of_one_cell() {
    let at = |rate: &str, seed| {
        let mut record = cell("linear", "listops", seed, 0.5);
        record.recipe.overrides = vec![format!("train.learning_rate={rate}")];
        record
    };
    let searched = [at("1e-3", 0), at("1e-2", 0)];
    let message = select(&searched, &Selection::default())
        .unwrap_err()
        .to_string();
    assert!(message.contains("linear on listops"), "{message}");
    let seeds = [at("1e-3", 0), at("1e-3", 1)];
    assert_eq!(select(&seeds, &Selection::default()).unwrap().len(), 2);
    // That of the recipe may be another one.
    let given = [at("1e-3", 0), cell("linear", "listops", 2, 0.5)];
    let variant = {
        let mut other = cell("linear", "listops", 1, 0.5);
        other.model.variant = "tay2021".to_owned();
        [cell("linear", "listops", 0, 0.5), other]
    };
    for mixed in [given, variant] {
        let message = select(&mixed, &Selection::default())
            .unwrap_err()
            .to_string();
        assert!(message.contains("linear on listops"), "{message}");
    }
}

/// Sets one value of a record.
type Change = fn(&mut Record);

#[test]
fn runs_that_tables_keep_apart_are_never_ranked_together() {
    let changes: [(&str, Change); 3] = [
        ("protocol", |it| it.task.protocol = "another".to_owned()),
        ("precision", |it| {
            it.provenance.precision = "bf16".to_owned();
        }),
        ("device", |it| it.provenance.device = "cuda:0".to_owned()),
    ];
    for (name, change) in changes {
        let mut records = vec![
            cell("linear", "listops", 0, 0.1),
            cell("linear", "listops", 0, 0.9),
        ];
        change(&mut records[1]);
        let message = select(&records, &Selection::default())
            .unwrap_err()
            .to_string();
        assert!(message.contains(&format!("--{name}")), "{message}");
        let asked = |value: &str| {
            let mut asked = Selection::default();
            let field = match name {
                "protocol" => &mut asked.protocol,
                "precision" => &mut asked.precision,
                _ => &mut asked.device,
            };
            *field = Some(value.to_owned());
            select(&records, &asked).map(|chosen| chosen.len())
        };
        let values = ["another", "bf16", "cuda:0"];
        let chosen = values.iter().filter(|value| asked(value).is_ok());
        assert_eq!(chosen.count(), 1, "{name}");
    }
}

#[test]
fn the_table_of_bits_says_which_seeds_learned_anything() {
    let mut records = Vec::new();
    for (model, bits) in [("linear", 0.25), ("fnet", 0.125), ("s4d", 0.5)] {
        for seed in 0..3 {
            let mut record = cell(model, "listops", seed, bits);
            let scores = record.scores.as_mut().unwrap();
            (scores.prior_loss, scores.test_loss) = (Some(2.0), Some(1.0));
            records.push(record);
        }
    }
    // One seed is within 2 % of the prior's loss, one diverged.
    let scores = records[0].scores.as_mut().unwrap();
    (scores.bits_gained, scores.test_loss) = (Some(0.0), Some(1.97));
    (records[3].outcome, records[3].scores) = (
        Outcome::Diverged {
            step: 7,
            reason: "it did".to_owned(),
        },
        None,
    );
    let table = tables::find("bits").unwrap().make(&records, None);
    let text = Format::Csv.render(std::slice::from_ref(&table));
    let cells: Vec<&str> = table
        .rows
        .iter()
        .map(|row| row.cells[2].text.as_str())
        .collect();
    assert_eq!(
        cells,
        [
            "16.7 ±14.4, 2/3 trained: 25.0",
            "50.0 ±0.0",
            "8.3 ±7.2, 2/3 trained: 12.5; 1 diverged"
        ]
    );
    assert!(table.rows[1].cells[2].best);
    let notes = table.notes.join("\n");
    assert!(
        notes.contains("Agreement with the published averages over 3 anchors")
            && notes.contains("Fewer than 8 anchors: no interval, and the figures say little."),
        "{notes}"
    );
    assert!(
        notes.contains("fnet on listops@64, seed 0: diverged at step 7"),
        "{notes}"
    );
    assert!(text.contains("trained_mean"), "{text}");
}

/// A record without bits, such as one of another program, is left out of a cell whose other seeds
/// have them.
#[test]
fn a_record_without_bits_hides_none_of_the_others() {
    let mut records: Vec<Record> = (0..3)
        .map(|seed| cell("lstm", "listops", seed, 0.5))
        .collect();
    for record in &mut records {
        let scores = record.scores.as_mut().unwrap();
        (scores.prior_loss, scores.test_loss) = (Some(2.0), Some(1.0));
    }
    let scores = records[1].scores.as_mut().unwrap();
    (scores.bits_gained, scores.prior_loss) = (None, None);
    let table = tables::find("bits").unwrap().make(&records, None);
    let texts: Vec<&str> = table.rows[0]
        .cells
        .iter()
        .map(|it| it.text.as_str())
        .collect();
    assert!(texts.iter().any(|it| it.starts_with("50.0")), "{texts:?}");
    let notes = table.notes.join("\n");
    assert!(
        notes.contains("1 run left out: records without bits."),
        "{notes}"
    );
    assert!(!notes.contains("No bits on"), "{notes}");
}

/// A diverged run has no bits if the scored ones beside it have no loss of the label shares: else
/// it would be the only seed of its cell.
#[test]
fn a_task_without_a_prior_has_no_bits_for_any_seed() {
    let mut records: Vec<Record> = (0..3).map(|seed| cell("lstm", "mqar", seed, 0.5)).collect();
    for record in &mut records[..2] {
        let scores = record.scores.as_mut().unwrap();
        (scores.bits_gained, scores.prior_loss) = (None, None);
    }
    (records[2].outcome, records[2].scores) = (
        Outcome::Diverged {
            step: 7,
            reason: "it did".to_owned(),
        },
        None,
    );
    let table = |records: &[Record]| tables::find("bits").unwrap().make(records, None);
    let alone = table(&records);
    assert!(alone.rows.is_empty(), "{alone:?}");
    let notes = alone.notes.join("\n");
    assert!(notes.contains("No bits on mqar"), "{notes}");
    // Beside a task that has bits, the cell has only its endings.
    records.push(cell("lstm", "listops", 0, 0.5));
    let beside = table(&records);
    let texts = beside.rows[0].cells.iter().map(|it| it.text.as_str());
    let texts: Vec<&str> = texts.collect();
    assert_eq!(texts.last(), Some(&"1 diverged"), "{texts:?}");
}

#[test]
fn a_model_stands_among_others_by_its_own_runs() {
    let table: Vec<Record> = ["a", "b", "c", "d"]
        .iter()
        .zip([0.1, 0.2, 0.3, 0.4])
        .flat_map(|(model, bits)| {
            let on = move |task| (0..2).map(move |seed| cell(model, task, seed, bits));
            on("listops").chain(on("image"))
        })
        .collect();
    let own = [
        cell("mine", "listops", 0, 0.35),
        cell("mine", "listops", 1, 0.25),
    ];
    let standing = Standing::of("mine", &all(&own), &all(&table)).unwrap();
    // Its mean equals that of `c`: only `d` is better.
    assert_eq!((standing.rank, standing.of), (2, 5));
    assert_eq!(standing.tasks.len(), 1, "only tasks that it was run on");
    assert_eq!(standing.tasks[0].rank, 2);
    let (low, high) = standing.interval.unwrap();
    assert!(low <= 2.0 && (2.0..=3.0).contains(&high), "{low} {high}");

    // A model of the table is ranked by its new runs.
    let again = [cell("d", "listops", 0, 0.0), cell("d", "image", 0, 0.0)];
    let standing = Standing::of("d", &all(&again), &all(&table)).unwrap();
    assert_eq!((standing.rank, standing.of), (4, 4));

    // Data that the table does not have count in no rank.
    let mut other = cell("mine", "listops", 0, 0.9);
    other.task.data_digest = "other".to_owned();
    assert_eq!(Standing::of("mine", &[&other], &all(&table)), None);
    let image = cell("mine", "image", 0, 0.0);
    let standing = Standing::of("mine", &[&other, &image], &all(&table)).unwrap();
    assert_eq!((standing.rank, standing.tasks.len()), (5, 1));
}

#[test]
fn a_card_ranks_among_runs_of_the_same_settings_and_says_what_the_block_adds() {
    let set = |record: Record, changes: &[&str]| {
        let mut record = record;
        record.recipe.overrides = changes.iter().map(|it| (*it).to_owned()).collect();
        record
    };
    let mut elsewhere = cell("d", "listops", 0, 0.9);
    elsewhere.recipe.name = "smoke".to_owned();
    let table = [
        cell("a", "listops", 0, 0.1),
        set(cell("b", "listops", 0, 0.2), &["train.learning_rate=4e-3"]),
        set(cell("c", "listops", 0, 0.9), &["block.family=xformer"]),
        set(cell("a", "listops", 0, 0.9), &["train.steps=9"]),
        elsewhere,
    ];
    let names = |changes: &[&str]| -> Vec<&str> {
        let own = set(cell("s4d", "listops", 0, 0.5), changes);
        let rivals = card::rivals(&table, &[&own]).into_iter();
        rivals.map(|it| it.model.name.as_str()).collect()
    };
    assert_eq!(names(&[]), ["a", "b"]);
    assert_eq!(names(&["train.steps=9"]), ["a"]);
    // What affects no score is no change.
    assert_eq!(
        names(&["train.log_every=5", "train.checkpoint_every=5"]),
        ["a", "b"]
    );
    let mut split = set(cell("s4d", "listops", 0, 0.5), &["train.micro_batch=4"]);
    split.recipe.batching = Some(Batching {
        batch: 32,
        forward: 4,
        ..Batching::default()
    });
    assert_eq!(card::rivals(&table, &[&split]).len(), 2);
    split.recipe.batching.as_mut().unwrap().batch_norm = true;
    assert_eq!(card::rivals(&table, &[&split]).len(), 0);
    let card = Card {
        model: "s4d".to_owned(),
        own: vec![&split],
        same_block: Vec::new(),
        standing: None,
        left_out: Vec::new(),
    };
    let text = Format::Text.render(&[card.table()]);
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let note = "with --set train.micro_batch=4 (BatchNorm's statistics are over 4 examples";
    assert!(text.contains(note), "{text}");

    let own = cell("s4d", "listops", 0, 0.5);
    let same_block = cell("s4d", "listops", 0, 0.375);
    let made = |same_block| Card {
        model: "s4d".to_owned(),
        own: vec![&own],
        same_block,
        standing: None,
        left_out: Vec::new(),
    };
    let text = Format::Text.render(&[made(vec![&same_block]).table()]);
    assert!(
        text.contains("block adds") && text.contains("+12.5"),
        "{text}"
    );
    let text = Format::Text.render(&[made(Vec::new()).table()]);
    assert!(!text.contains("block adds"), "{text}");
    let json = made(vec![&same_block]).json();
    assert!(
        json.to_string()
            .contains("\"bits_gained_by_the_block\":12.5"),
        "{json}"
    );
}

/// A card has the uncertainty of its figures, and marks an accuracy like that of the majority
/// class.
#[test]
fn a_card_says_how_far_its_figures_can_be_trusted() {
    let run = |seed, accuracy: f64| {
        let mut record = cell("s4d", "listops", seed, 0.5);
        record.task.rows.test = 400;
        record.task.classes = 10;
        record.scores.as_mut().unwrap().test_accuracy = Some(accuracy);
        record.baselines = vec![Baseline {
            name: MAJORITY.to_owned(),
            accuracy: 0.2,
        }];
        record
    };
    let one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let table = |runs: &[Record]| {
        let card = Card {
            model: "s4d".to_owned(),
            own: runs.iter().collect(),
            same_block: Vec::new(),
            standing: None,
            left_out: Vec::new(),
        };
        (
            one_line(&Format::Text.render(&[card.table()])),
            card.json().to_string(),
        )
    };
    let (text, json) = table(&[run(0, 0.5)]);
    assert!(
        text.contains("One seed: ") && text.contains("up to 2.5 points"),
        "{text}"
    );
    assert!(
        !text.contains("FAIL") && json.contains("\"fail\":false"),
        "{text}"
    );
    let (text, _) = table(&[run(0, 0.5), run(1, 0.6)]);
    assert!(
        text.contains("55.0 ±7.1") && text.contains("sample standard deviation"),
        "{text}"
    );
    let (text, json) = table(&[run(0, 0.21)]);
    assert!(
        text.contains("21.0 FAIL") && text.contains("no better than the majority"),
        "{text}"
    );
    assert!(json.contains("\"fail\":true"), "{json}");
}

/// A place says by what it ranks, and rivals are runs of one kind.
#[test]
fn a_place_is_among_runs_of_one_kind() {
    let on_gpu = |mut record: Record, bits: f64| {
        record.provenance.device = "cuda:0".to_owned();
        record.provenance.created = "2030-01-01T00:00:00Z".to_owned();
        record.scores.as_mut().unwrap().bits_gained = Some(bits);
        record
    };
    let of = |model| cell(model, "listops", 0, 0.5);
    let own = cell("mine", "listops", 0, 0.4);
    let mut table = vec![of("a"), of("b"), of("c")];
    // Their later runs on a GPU do not count beside one on a CPU, and those on a CPU not beside one
    // on a GPU.
    table.extend(["a", "b"].map(|model| on_gpu(of(model), 0.1)));
    let place = |own: &Record, table: &[Record]| {
        let found = card::standing("mine", &[own], table).unwrap();
        (found.rank, found.of, found.remarks)
    };
    assert_eq!(place(&own, &table), (4, 4, vec![]));
    assert_eq!(place(&on_gpu(own.clone(), 0.4), &table), (1, 3, vec![]));
    // Of other kinds, those of the most runs.
    let mut other = own.clone();
    other.provenance.precision = "bf16".to_owned();
    assert_eq!(place(&other, &table), (4, 4, vec![]));

    // Runs with two rates are not seeds of one cell.
    let mut second = cell("b", "listops", 1, 0.1);
    second.recipe.overrides = vec!["train.learning_rate=1e-3".to_owned()];
    table.push(second);
    let (rank, count, remarks) = place(&own, &table);
    assert_eq!((rank, count), (3, 3));
    assert!(remarks[0].starts_with("Not among the ranked models: b on listops@64"));

    let mut without = of("d");
    without.scores.as_mut().unwrap().bits_gained = None;
    let (.., remarks) = place(&own, &[of("a"), without]);
    assert!(remarks[0].starts_with("Ranked by accuracy"), "{remarks:?}");
    let standing = card::standing("mine", &[&own], &[of("a")]);
    let card = Card {
        model: "mine".to_owned(),
        own: vec![&own],
        same_block: Vec::new(),
        standing: standing.map(|it| Standing {
            remarks: vec!["A remark.".to_owned()],
            ..it
        }),
        left_out: Vec::new(),
    };
    assert!(card.table().notes.contains(&"A remark.".to_owned()));
}

#[test]
fn the_table_that_the_program_brings_can_be_read() {
    let records = committed::MINI.records().unwrap();
    for record in &records {
        assert_eq!(record.recipe.name, card::RECIPE, "{}", record.id);
        // A rate that was found for a cell is no change of the protocol.
        let mut own = record.clone();
        own.recipe.overrides.clear();
        assert!(card::rivals(&records, &[&own]).contains(&record));
    }
}

/// A rate is found for each model and task, and belongs to the cell.
#[test]
fn learning_rates_are_no_change_of_the_protocol() {
    let with = |mut record: Record, set: &[&str]| {
        record.recipe.overrides = set.iter().map(|it| (*it).to_owned()).collect();
        record
    };
    let records = [
        with(
            cell("linear", "listops", 0, 0.5),
            &["train.learning_rate=1.5e-3"],
        ),
        with(
            cell("s4d", "listops", 0, 0.6),
            &["train.learning_rate=4e-3"],
        ),
        cell("fnet", "listops", 0, 0.4),
        // A short run in search of a rate, and one in another block.
        with(
            cell("s4d", "listops", 1, 0.1),
            &["train.steps=9", "train.learning_rate=1e-2"],
        ),
        with(cell("s4d", "listops", 2, 0.1), &[card::SAME_BLOCK]),
    ];
    let chosen = |records: &[Record], set: &[&str]| {
        let asked = Selection {
            set: set.iter().map(|it| (*it).to_owned()).collect(),
            ..Selection::default()
        };
        let chosen = select(records, &asked).map_err(|error| error.to_string())?;
        Ok::<_, String>(chosen.iter().map(|it| it.model.name.clone()).collect())
    };
    let all: Vec<String> = ["linear", "s4d", "fnet"].map(str::to_owned).into();
    assert_eq!(chosen(&records[..2], &[]), Ok(all[..2].to_vec()));
    assert_eq!(chosen(&records, &[]), Ok(all.clone()));
    // What is asked for by a rate is the same, whatever the rate.
    assert_eq!(chosen(&records, &["train.learning_rate=1"]), Ok(all));
    let short = chosen(&records, &["train.learning_rate=1", "train.steps=9"]);
    assert_eq!(short, Ok(vec!["s4d".to_owned()]));

    // A card and a place in the table.
    let own = [
        with(
            cell("mine", "listops", 0, 0.5),
            &["train.learning_rate=5e-4"],
        ),
        with(cell("mine", "image", 0, 0.5), &["train.learning_rate=1e-2"]),
    ];
    let own: Vec<&Record> = own.iter().collect();
    let rivals = card::rivals(&records, &own);
    assert_eq!(rivals.len(), 3);
    let standing = Standing::of("mine", &own[..1], &rivals).unwrap();
    assert_eq!((standing.rank, standing.of), (2, 4));
    let card = Card {
        model: "mine".to_owned(),
        own,
        same_block: Vec::new(),
        standing: Some(standing),
        left_out: Vec::new(),
    };
    let json = card.json();
    let rows = json["card"][0]["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2, "{json}");
    assert_eq!(rows[0]["rank"]["rank"], 2);
    assert_eq!(rows[0]["best trivial"]["trivial_accuracy"], 36.25);
}

/// Three models take turns in being first, second and third: no order of the tasks may break the
/// tie.
#[test]
fn models_with_the_same_ranks_in_another_order_are_tied() {
    let tasks = ["listops", "image", "pathfinder"];
    let records: Vec<Record> = ["a", "b", "c"]
        .iter()
        .enumerate()
        .flat_map(|(shift, model)| {
            let bits = [0.1, 0.2, 0.3];
            let cells = tasks.iter().enumerate();
            cells.map(move |(at, task)| cell(model, task, 0, bits[(at + shift) % 3]))
        })
        .collect();
    let ranking = Ranking::of(&all(&records));
    let ranks: Vec<usize> = ranking.models.iter().map(|it| it.rank).collect();
    assert_eq!(ranks, [1, 1, 1]);
}

/// One model has seeds that others lack: its range is over its own.
#[test]
fn the_range_of_a_rank_is_over_the_seeds_of_each_cell() {
    let on = |model: &'static str, seed, bits| {
        ["listops", "image"].map(|task| cell(model, task, seed, bits))
    };
    let records: Vec<Record> = [
        on("a", 0, 0.3),
        on("b", 0, 0.2),
        on("c", 0, 0.45),
        on("c", 1, 0.1),
        on("c", 2, 0.1),
    ]
    .into_iter()
    .flatten()
    .collect();
    let ranking = Ranking::of(&all(&records));
    let c = ranking.models.iter().find(|it| it.model == "c").unwrap();
    assert_eq!((c.rank, c.interval), (2, Some((1.0, 3.0))));
}

#[test]
fn data_sets_with_one_title_are_told_apart() {
    let mut records: Vec<Record> = ["a", "b", "c"]
        .iter()
        .zip([0.1, 0.2, 0.3])
        .flat_map(|(model, bits)| [0, 1].map(|seed| cell(model, "listops", seed, bits)))
        .collect();
    for record in records.iter_mut().filter(|record| record.seed == 1) {
        record.task.data_digest = "another digest".to_owned();
        record.task.source = "official".to_owned();
    }
    let table = tables::find("ranks").unwrap().make(&records, None);
    let rows = table.objects();
    let told = rows.iter().map(|row| {
        let of = |name: &str| row[name].as_str().unwrap();
        (of("task"), of("source"), of("data"))
    });
    let told: BTreeSet<_> = told.collect();
    assert_eq!(
        Vec::from_iter(told),
        [
            ("listops@64 (generated)", "generated", "listops"),
            ("listops@64 (official)", "official", "another digest")
        ]
    );
    let names: Vec<&str> = table.columns.iter().map(|it| it.name.as_str()).collect();
    let data = names.iter().filter(|name| name.contains("(data "));
    assert_eq!(data.count(), 2, "{names:?}");
}

/// A probe is no task of the score, whatever its recipe.
#[test]
fn probes_are_not_among_the_records_that_are_ranked() {
    let mut records = records();
    let ranked = select(&records, &Selection::default()).unwrap().len();
    let mut probe = records[0].clone();
    probe.task.name = "mqar".to_owned();
    probe.task.probe = true;
    records.push(probe);
    assert_eq!(
        select(&records, &Selection::default()).unwrap().len(),
        ranked
    );
    records.retain(|record| record.task.probe);
    assert!(select(&records, &Selection::default()).is_err());
}

#[test]
fn a_seed_that_was_run_twice_counts_once_in_the_table_of_ranks() {
    let mut records: Vec<Record> = ["a", "b"]
        .iter()
        .map(|model| cell(model, "listops", 1, 0.25))
        .collect();
    let mut earlier = cell("b", "listops", 1, 0.9);
    earlier.provenance.created = "2020-01-01T00:00:00Z".to_owned();
    records.push(earlier);
    let table = tables::find("ranks").unwrap().make(&records, None);
    let text = Format::Text.render(&[table]);
    assert!(text.contains("1 run left out"), "{text}");
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("1 b 25.0 (50.0)"), "{words}");
    assert!(words.contains("Seeds of a model: listops@64 1."), "{words}");
}

/// Every figure against one computed by hand, on a table whose ranking is neither the published
/// one nor its reverse.
#[test]
fn figures_are_those_of_their_own_tasks_models_and_days() {
    let mut records = records();
    for record in &mut records {
        if record.task.name == "image" {
            record.provenance.created = "2026-12-24T10:00:00Z".to_owned();
        }
    }
    records[0].provenance.created = "2026-11-01T10:00:00Z".to_owned();
    let agreement = Agreement::of(&all(&records), None, None);
    assert_eq!(agreement.latest, "2026-12-24T10:00:00Z");
    assert!(agreement.line().contains("2026-12-24"));
    let [strong, weak] = agreement.within;
    let count = |cluster: Cluster| anchors().iter().filter(|it| it.cluster == cluster).count();
    assert_eq!(
        (strong.0, strong.1),
        (Cluster::Strong, count(Cluster::Strong))
    );
    assert_eq!((weak.0, weak.1), (Cluster::Weak, count(Cluster::Weak)));
    // Ranked by the published accuracies on the task itself, that agreement is perfect.
    let on_image: Vec<Record> = anchors()
        .iter()
        .flat_map(|anchor| {
            let printed = lra_results::agreement::Published::of(&anchor.model).unwrap();
            let at = |task: &str| {
                let place = lra_results::published::TASKS
                    .iter()
                    .position(|it| *it == task);
                printed.tasks[place.unwrap()] / 100.0
            };
            let of = |task: &str| cell(&anchor.model, task, 0, at(task));
            [of("image"), of("pathfinder")]
        })
        .collect();
    let agreement = Agreement::of(&all(&on_image), None, None);
    for row in &agreement.rows[1..] {
        assert_eq!(row.same_task, Some(1.0), "{}", row.tasks);
        assert!(row.rho.unwrap() < 1.0, "{}", row.tasks);
    }
    assert_eq!(agreement.rows[0].same_task, None);
    // A remark is on runs that were compared.
    let mut diverged = cell("bag", "listops", 0, 0.1);
    diverged.outcome = Outcome::Diverged {
        step: 1,
        reason: String::new(),
    };
    let mut others = on_image.clone();
    others.push(diverged);
    assert_eq!(
        Agreement::of(&all(&others), None, None).remarks,
        agreement.remarks
    );
}

#[test]
fn eight_anchors_have_an_interval_and_seven_have_none() {
    let records = records();
    for (count, has_one) in [(7, false), (8, true)] {
        let models: Vec<&str> = anchors().iter().map(|it| it.model.as_str()).collect();
        let few: Vec<&Record> = records
            .iter()
            .filter(|it| models[..count].contains(&it.model.name.as_str()))
            .collect();
        let agreement = Agreement::of(&few, None, None);
        assert_eq!(agreement.models.len(), count);
        assert_eq!(agreement.rows[1].interval.is_some(), has_one, "{count}");
        let line = agreement.table().notes.join("\n");
        assert_eq!(line.contains("Fewer than 8 anchors"), !has_one, "{line}");
    }
}

/// Halves that rank in opposite ways say nothing, and halves that agree in part are stepped up.
#[test]
fn a_reliability_is_of_halves_of_the_seeds() {
    let names = ["transformer", "linear", "performer", "s4d", "s5"];
    let with = |ranks: [[f64; 5]; 2]| {
        let records: Vec<Record> = (0..2u64)
            .flat_map(|seed| {
                let of = ranks[seed as usize];
                names
                    .into_iter()
                    .zip(of)
                    .map(move |(model, rank)| cell(model, "listops", seed, rank / 10.0))
            })
            .collect();
        Agreement::of(&all(&records), None, None).rows[0].reliability
    };
    let [up, down] = [[1.0, 2.0, 3.0, 4.0, 5.0], [5.0, 4.0, 3.0, 2.0, 1.0]];
    assert_eq!(with([up, down]), None);
    // One pair of neighbours turned: rho = 1 - 6 * 2 / (5 * 24) = 0.9, stepped up 1.8 / 1.9.
    let found = with([up, [2.0, 1.0, 3.0, 4.0, 5.0]]).unwrap();
    assert!((found - 1.8 / 1.9).abs() < 1e-9, "{found}");
}

/// A run that diverged has reached nothing by either measure; one that did not end has no measure.
#[test]
fn what_a_run_reached_hangs_on_its_ending() {
    for bits in [true, false] {
        let mut records: Vec<Record> = ["transformer", "linear", "performer"]
            .into_iter()
            .zip([0.3, 0.2, 0.1])
            .map(|(model, value)| {
                let mut record = cell(model, "listops", 0, value);
                let scores = record.scores.as_mut().unwrap();
                scores.test_accuracy = Some(value);
                scores.bits_gained = bits.then_some(value);
                record
            })
            .collect();
        let ranks = |records: &[Record]| {
            let ranking = Ranking::of(&all(records));
            let names = ranking.models.iter().map(|it| it.model.clone());
            names.collect::<Vec<String>>()
        };
        assert_eq!(ranks(&records), ["transformer", "linear", "performer"]);
        records[0].outcome = Outcome::Diverged {
            step: 1,
            reason: String::new(),
        };
        assert_eq!(ranks(&records), ["linear", "performer", "transformer"]);
        records[0].outcome = Outcome::Interrupted { step: 1 };
        assert_eq!(ranks(&records), ["linear", "performer"], "{bits}");
    }
}

/// A model's rank on a task is of that task, and tasks that it has no score on do not count.
#[test]
fn a_standing_has_the_rank_on_each_task() {
    let table: Vec<Record> = [
        ("transformer", 0.3, 0.1),
        ("linear", 0.2, 0.2),
        ("s4d", 0.1, 0.3),
    ]
    .into_iter()
    .flat_map(|(model, first, second)| {
        [
            cell(model, "listops", 0, first),
            cell(model, "image", 0, second),
            cell(model, "text", 0, first),
        ]
    })
    .collect();
    let mut own = vec![
        cell("mine", "listops", 0, 0.4),
        cell("mine", "image", 0, 0.05),
    ];
    let mut failed = cell("mine", "text", 0, 0.9);
    failed.outcome = Outcome::Interrupted { step: 1 };
    own.push(failed);
    let standing = Standing::of("mine", &all(&own), &all(&table)).unwrap();
    let found: Vec<(&str, usize)> = standing
        .tasks
        .iter()
        .map(|it| (it.task.as_str(), it.rank))
        .collect();
    assert_eq!(found, [("listops", 1), ("image", 4)]);
    assert_eq!(standing.of, 4);
}

/// Selections spell settings as records do, and sources of a model are cells of their own.
#[test]
fn settings_asked_for_are_known_in_any_spelling() {
    let mut record = cell("linear", "listops", 0, 0.5);
    record.recipe.overrides = vec!["train.dropout=0.1".to_owned()];
    let asked = Selection {
        set: vec!["train.dropout = 1e-1".to_owned()],
        ..Selection::default()
    };
    let records = [record.clone()];
    assert_eq!(select(&records, &asked).unwrap().len(), 1);
    let version = |source: &str, seed: u64| {
        let mut record = cell("mine", "listops", seed, 0.5);
        record.model.own = Some(lra_results::record::OwnCode {
            source: source.to_owned(),
            ..Default::default()
        });
        record
    };
    let of = |records: &[Record]| select(records, &Selection::default()).map(|it| it.len());
    assert_eq!(of(&[version("1", 0), version("1", 1)]).unwrap(), 2);
    let message = of(&[version("1", 0), version("2", 1)])
        .unwrap_err()
        .to_string();
    assert!(
        message.contains("source 1") && message.contains("source 2"),
        "{message}"
    );
}

/// The runs of the small protocol are ranked where other runs lie beside them.
#[test]
fn the_small_protocol_is_ranked_among_other_recipes() {
    let mut records: Vec<Record> = ["transformer", "linear"]
        .into_iter()
        .zip([0.3, 0.2])
        .map(|(model, bits)| cell(model, "listops", 0, bits))
        .collect();
    let mut other = cell("s4d", "listops", 0, 0.9);
    other.recipe.name = "smoke".to_owned();
    records.push(other.clone());
    let ranks = tables::find("ranks").unwrap();
    let objects = ranks.make(&records, None).objects();
    let of: Vec<_> = objects
        .iter()
        .map(|it| {
            (
                it["model"].as_str().unwrap(),
                it["of"].as_u64(),
                it["rank"].as_u64(),
            )
        })
        .collect();
    assert_eq!(
        of[..2],
        [
            ("transformer", Some(2), Some(1)),
            ("linear", Some(2), Some(2))
        ]
    );
    let mut third = other.clone();
    third.recipe.name = "tay2021".to_owned();
    let refused = ranks.make(&[other, third], None);
    assert!(refused.rows.is_empty() && refused.notes[0].starts_with("No ranks"));
}

/// The parts of a card, of runs whose figures tell them apart.
#[test]
fn a_card_shows_the_figures_of_its_own_tasks() {
    let of = |task: &str, bits: f64, accuracy: f64, rows: usize| {
        let mut record = cell("s4d", task, 0, bits);
        record.scores.as_mut().unwrap().test_accuracy = Some(accuracy);
        record.task.rows.test = rows;
        record.memory.as_mut().unwrap().peak_bytes = 300 << 20;
        record.model.family = Some("filter".to_owned());
        record
    };
    let own = [of("listops", 0.5, 0.5, 10_000), of("image", 0.3, 0.5, 400)];
    let mut block = [of("listops", 0.2, 0.4, 10_000), of("image", 0.4, 0.4, 400)];
    block[1].provenance.accepted_changes = vec!["other data".to_owned()];
    let card = |same_block: &[Record]| {
        Card {
            model: "s4d".to_owned(),
            own: own.iter().collect(),
            same_block: same_block.iter().collect(),
            standing: None,
            left_out: Vec::new(),
        }
        .table()
    };
    let table = card(&block);
    let text = |row: usize, name: &str| {
        let place = table.columns.iter().position(|column| column.name == name);
        table.rows[row].cells[place.unwrap()].text.clone()
    };
    assert_eq!(
        [text(0, "bits gained"), text(1, "bits gained")],
        ["50.0", "30.0"]
    );
    assert_eq!(
        [text(0, "X-formers' block"), text(1, "X-formers' block")],
        ["20.0", "40.0"]
    );
    assert_eq!(
        [text(0, "block adds"), text(1, "block adds")],
        ["+30.0", "-10.0"]
    );
    assert_eq!([text(0, "seconds"), text(0, "MiB")], ["640", "300"]);
    let notes = table.notes.join("\n");
    // The largest error is that of the 400 rows: 2.5 points.
    assert!(
        notes.contains("a standard error of up to 2.5 points"),
        "{notes}"
    );
    assert!(
        notes.contains("image@64, seed 0: resumed after changes: other data"),
        "{notes}"
    );
    assert!(!notes.contains("there is no comparison with it"), "{notes}");
    let mut mixed = own.clone();
    mixed[0].model.family = Some("xformer".to_owned());
    let plain = |own: &[Record]| {
        let card = Card {
            model: "s4d".to_owned(),
            own: own.iter().collect(),
            same_block: Vec::new(),
            standing: None,
            left_out: Vec::new(),
        };
        card.table()
            .notes
            .join("\n")
            .contains("there is no comparison with it")
    };
    assert!(!plain(&mixed));
    mixed[1].model.family = Some("xformer".to_owned());
    assert!(plain(&mixed));
}

/// Rivals ran on the same data by the same settings from beginning to end.
#[test]
fn rivals_have_the_data_and_the_changes_of_ones_own_runs() {
    let own = cell("mine", "listops", 0, 0.5);
    let mut resumed = cell("linear", "listops", 1, 0.5);
    resumed.provenance.accepted_changes = vec!["other data".to_owned()];
    let mut changed = cell("linear", "listops", 2, 0.5);
    changed.recipe.overrides = vec!["train.steps=9".to_owned()];
    let mut rate = cell("linear", "listops", 3, 0.5);
    rate.recipe.overrides = vec!["train.learning_rate=1e-3".to_owned()];
    let mut other = cell("linear", "listops", 4, 0.5);
    other.recipe.name = "smoke".to_owned();
    let table = [
        cell("linear", "listops", 0, 0.5),
        resumed,
        changed,
        rate,
        other,
        cell("linear", "image", 5, 0.5),
    ];
    let seeds: Vec<u64> = card::rivals(&table, &[&own])
        .iter()
        .map(|it| it.seed)
        .collect();
    assert_eq!(seeds, [0, 3]);
}

/// A run that was resumed after changes has no rank.
#[test]
fn a_run_resumed_after_changes_is_not_ranked() {
    let mut records: Vec<Record> = ["transformer", "linear", "s4d"]
        .iter()
        .map(|model| cell(model, "listops", 0, 0.3))
        .collect();
    records[2].provenance.accepted_changes = vec!["other data".to_owned()];
    let table = tables::find("ranks").unwrap().make(&records, None);
    let ranked: Vec<&str> = table
        .rows
        .iter()
        .map(|row| row.cells[1].text.as_str())
        .collect();
    assert!(
        ranked.contains(&"linear") && !ranked.contains(&"s4d"),
        "{ranked:?}"
    );
}
