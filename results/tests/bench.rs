//! Tables of a benchmark: a few fixed cells in, text out.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use lra_results::bench::{self, Base, Bench, Outcome, Round, Verdict};
use lra_results::chart;
use lra_results::record::Provenance;
use lra_results::{Format, Tone, published};

/// Returns a cell whose steps took these seconds in two rounds.
fn cell(model: &str, options: &[&str], length: usize, seconds: [f64; 2], mib: u64) -> Bench {
    let round = |(round, seconds): (usize, f64)| Round {
        round,
        seconds: vec![seconds, seconds],
        peak_bytes: mib << 20,
        ..Round::default()
    };
    let mut cell = Bench {
        schema: bench::SCHEMA,
        model: model.to_owned(),
        options: options.iter().map(|&option| option.to_owned()).collect(),
        length,
        batch: 4,
        warmup_steps: 1,
        flops_per_step: length as u64 * 1_000_000,
        matmul_flops_per_second: Some(100e9),
        parameters: 157_122,
        provenance: Provenance {
            precision: "f32".to_owned(),
            device: "cpu".to_owned(),
            threads: 2,
            ..Provenance::default()
        },
        rounds: seconds.into_iter().enumerate().map(round).collect(),
        ..Bench::default()
    };
    cell.recipe.name = "nystromformer".to_owned();
    cell.provenance.host.cpu = "Some CPU".to_owned();
    cell
}

/// Returns the machine was twice as slow in the second round.
fn session() -> Vec<Bench> {
    let materialised = ["attention=materialised"];
    let mut cells = vec![
        cell("transformer", &[], 1024, [0.1, 0.2], 40),
        cell("transformer", &[], 3072, [0.8, 1.6], 120),
        cell("transformer", &materialised, 1024, [0.2, 0.4], 400),
        cell("transformer", &materialised, 3072, [1.0, 1.0], 0),
        cell("linformer", &[], 1024, [0.2, 0.4], 30),
        cell("linformer", &[], 3072, [0.4, 0.8], 60),
    ];
    cells[3].rounds.clear();
    cells[3].outcome = Outcome::OutOfMemory {
        reason: "1.00 GiB more than the 7.50 GiB in use would exceed the limit of 8.00 GiB"
            .to_owned(),
    };
    cells
}

#[test]
fn the_four_questions_are_answered() {
    let source = published::source("tay2021").unwrap();
    let text = Format::Text.render(&bench::tables(&session(), Some(source)));
    let widest = text.lines().map(|line| line.chars().count()).max();
    assert!(widest.unwrap() <= lra_results::width());
    let lines = |words: &[&str]| {
        let found = |line: &&str| words.iter().all(|word| line.contains(word));
        text.lines().filter(found).count()
    };
    for words in [
        // Ratios are those within a round, regardless of the machine's speed.
        &["transformer", "measured", "7.50 (1.00×)"][..],
        &["linformer", "measured", "3.75 (0.50×)", "1.88 (2.00×)"],
        &["transformer (materialised)", "no memory"],
        // Published figures with their own ratios, and a star where one looks like a slip.
        &["linformer", "tay2021", "8.5 (3.70×)"],
        // 0.37 and 0.99 GB in the table's unit.
        &["linformer", "tay2021", "353 (0.44×)", "944* (0.18×)"],
        &["printed in GB of 1,000,000,000 bytes"],
        &["* linformer at 3072 in tay2021: 3K and 4K print the same figure."],
        &["transformer (materialised) at 3072: no memory: 1.00 GiB more"],
        // Time crosses halfway on logarithmic scales; memory is lower everywhere; one length in
        // common is no crossing.
        &["linformer", "1774", "below 1024", "none up to 1024"],
        // 1.024 GFLOP, 7.5 times a second, of 100 GFLOP/s.
        &["transformer", "1024", "157,122", "1.02", "7.68", "8 %"],
    ] {
        assert!(lines(words) > 0, "{words:?} are on no line of\n{text}");
    }
}

/// Whatever unit people read, one gigabyte that was printed is as much as one that was measured.
#[test]
fn published_memory_is_in_bytes_as_ours_is() {
    let source = published::source("tay2021").unwrap();
    for (mib, unit) in [(40u64, "MiB"), (4000, "GiB")] {
        let cells = [cell("transformer", &[], 1024, [0.1, 0.1], mib)];
        let memory = &bench::tables(&cells, Some(source))[1];
        assert!(memory.title.contains(unit) && memory.unit == "bytes");
        let values = memory
            .rows
            .iter()
            .map(|row| row.cells[2].fields[0].1.as_f64().unwrap());
        let bytes: Vec<f64> = values.collect();
        // 0.85 GB.
        assert!((bytes[0] - (mib << 20) as f64).abs() < 1.0);
        assert!((bytes[1] - 0.85e9).abs() < 1.0, "{}", memory.title);
    }
}

/// Ten rounds in which this build takes `factor` times as long as the base, on a machine that is up
/// to three times as slow from one round to the next, and in one round slow for the base alone.
fn held_against_base(factor: f64) -> Bench {
    let seconds = [0.1, 0.3, 0.12, 0.2, 0.1, 0.15, 0.3, 0.11, 0.1, 0.2];
    let wobble = [1.0, 1.02, 0.97, 1.05, 0.99, 0.95, 1.03, 1.01, 0.98, 1.04];
    let round = |(round, seconds): (usize, f64)| Round {
        round,
        seconds: vec![seconds; 3],
        peak_bytes: 1 << 20,
        ..Round::default()
    };
    let mine = seconds
        .iter()
        .zip(wobble)
        .map(|(base, wobble)| factor * base * wobble);
    let mut base = seconds;
    base[3] *= 4.0;
    let mut cell = cell("linear", &[], 1024, [1.0, 1.0], 1);
    cell.rounds = mine.enumerate().map(round).collect();
    cell.base = Some(Base {
        program: "base/lra".to_owned(),
        rounds: base.into_iter().enumerate().map(round).collect(),
        ..Base::default()
    });
    cell
}

#[test]
fn a_fifth_of_the_speed_that_is_lost_is_seen_and_noise_is_not() {
    for (factor, expected) in [
        (1.0, Verdict::Same),
        (1.05, Verdict::Same),
        (1.25, Verdict::Slower),
        (0.7, Verdict::Faster),
    ] {
        let cell = held_against_base(factor);
        assert_eq!(cell.verdict(0.1), Some(expected), "{factor}");
        let found = bench::against_base(&[cell], 0.1).unwrap();
        assert_eq!(found.passed, expected != Verdict::Slower, "{factor}");
        let text = Format::Text.render(&[found.table]);
        assert!(text.contains(expected.word()), "{text}");
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest.unwrap() <= lra_results::width(), "{text}");
    }
}

/// An interval that reaches from much slower to much faster is no proof that nothing changed.
#[test]
fn a_noisy_session_is_not_called_the_same() {
    let mut cell = held_against_base(1.0);
    for (index, round) in cell.rounds.iter_mut().enumerate() {
        let factor = if index % 2 == 0 { 1.3 } else { 0.8 };
        round
            .seconds
            .iter_mut()
            .for_each(|seconds| *seconds *= factor);
    }
    assert_eq!(cell.verdict(0.1), Some(Verdict::Unsure));
    let found = bench::against_base(&[cell], 0.1).unwrap();
    assert!(found.passed);
    let text = Format::Text.render(&[found.table]);
    assert!(text.contains("cannot tell"), "{text}");
}

#[test]
fn memory_that_two_builds_count_in_two_ways_is_not_compared() {
    let ratios = |held: u64| {
        let mut cell = held_against_base(1.0);
        let rounds = cell.rounds.iter_mut();
        rounds.for_each(|round| round.base_bytes = held);
        let found = bench::against_base(&[cell], 0.1).unwrap();
        Format::Text.render(&[found.table]).matches('×').count()
    };
    // The ratio of the speeds, and that of the memory.
    assert_eq!([ratios(0), ratios(1 << 20)], [2, 1]);
}

/// This build takes half the time of the base, and half as much memory again. It lacks a round,
/// which says nothing of either.
#[test]
fn figures_of_a_comparison_are_of_their_own_build() {
    let round = |round: usize, seconds: f64, mib: u64| Round {
        round,
        seconds: vec![seconds, seconds, 9.0],
        peak_bytes: mib << 20,
        ..Round::default()
    };
    let mut cell = held_against_base(1.0);
    let peaks = |round: usize, most: u64| if round == 4 { most } else { 1 };
    cell.rounds = (1..10).map(|it| round(it, 0.25, peaks(it, 3))).collect();
    let base = cell.base.as_mut().unwrap();
    base.rounds = (0..10).map(|it| round(it, 0.5, peaks(it, 2))).collect();
    base.rounds[0].seconds = vec![0.001; 3];
    let table = bench::against_base(&[cell], 0.1).unwrap().table;
    let row = &table.rows[0].cells;
    let figures = row[2..7].iter().flat_map(|cell| &cell.fields);
    let figures: Vec<f64> = figures.map(|(_, it)| it.as_f64().unwrap()).collect();
    // Base, this build, ratio, interval, memory.
    assert_eq!(figures, [2.0, 4.0, 2.0, 2.0, 2.0, 1.5]);
    assert_eq!(row[1].fields[0].1, 1024);
    let note = "speed over that of base/lra, the median of the ratios within 9 rounds";
    assert!(table.notes[0].contains(note), "{:?}", table.notes);
}

#[test]
fn what_cannot_be_compared_is_no_success() {
    let verdict = |alter: fn(&mut Bench)| {
        let mut cell = held_against_base(1.0);
        alter(&mut cell);
        let passed = bench::against_base(std::slice::from_ref(&cell), 0.1).map(|it| it.passed);
        (cell.verdict(0.1), passed)
    };
    let failed = || Outcome::Failed {
        reason: "it broke".to_owned(),
    };
    assert_eq!(verdict(|cell| cell.base = None), (None, None));
    let lost = verdict(|cell| cell.outcome = Outcome::Unknown);
    assert_eq!(lost, (Some(Verdict::Lost), Some(false)));
    let few = verdict(|cell| cell.rounds.truncate(5));
    assert_eq!(few, (Some(Verdict::Unjudged), Some(false)));

    // A model that the base does not have is new beside others, but alone it is no comparison.
    let mut new = held_against_base(1.0);
    let base = new.base.as_mut().unwrap();
    (base.outcome, base.rounds) = (failed(), vec![]);
    assert_eq!(new.verdict(0.1), Some(Verdict::New));
    assert!(
        !bench::against_base(std::slice::from_ref(&new), 0.1)
            .unwrap()
            .passed
    );
    let both = [new, held_against_base(1.0)];
    let found = bench::against_base(&both, 0.1).unwrap();
    assert!(found.passed);
    assert!(
        Format::Text
            .render(&[found.table])
            .contains("base: failed: it broke")
    );
}

#[test]
fn a_session_is_read_as_it_was_written() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("session.jsonl");
    bench::write(&path, &session()).unwrap();
    assert_eq!(bench::read(&path).unwrap(), session());
    let written = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, format!("\u{feff}{written}")).unwrap();
    assert_eq!(bench::read(&path).unwrap(), session());
    std::fs::write(&path, "{\"schema\": 1").unwrap();
    let error = bench::read(&path).unwrap_err().to_string();
    assert!(error.contains("line 1"), "{error}");
}

/// A file of two sessions, joined by hand: each is a row of its own, and nothing is lost.
#[test]
fn sessions_in_one_file_stand_side_by_side() {
    let session = |name: &str, alter: fn(&mut Bench)| {
        let mut cells = vec![
            cell("transformer", &[], 1024, [0.1, 0.1], 40),
            cell("linear", &[], 1024, [0.05, 0.05], 20),
        ];
        for cell in &mut cells {
            cell.session = name.to_owned();
            alter(cell);
        }
        cells
    };
    let other: fn(&mut Bench) = |cell| {
        cell.batch = 32;
        cell.recipe.name = "tay2021-paper".to_owned();
        cell.rounds.iter_mut().for_each(|round| {
            round
                .seconds
                .iter_mut()
                .for_each(|seconds| *seconds *= 10.0);
        });
    };
    let slower: fn(&mut Bench) = |cell| {
        cell.rounds.iter_mut().for_each(|round| {
            round.seconds.iter_mut().for_each(|seconds| *seconds *= 2.0);
        });
    };
    let one = session("2026-11-26", |_| ());
    for (more, columns) in [
        (session("2026-11-27", other), &["recipe", "batch"][..]),
        // Alike in all but the session, and, last, in all but the figures.
        (session("2026-11-27", slower), &["session"]),
        (session("2026-11-26", slower), &["session"]),
    ] {
        let joined = [one.clone(), more.clone()].concat();
        for table in bench::tables(&joined, None) {
            let rows = if table.name == "bench-break-even" {
                2
            } else {
                4
            };
            assert_eq!(table.rows.len(), rows, "{}", table.name);
            let keys = table.columns.iter().filter(|column| column.key);
            let keys: Vec<&str> = keys.map(|column| column.name.as_str()).collect();
            assert!(columns.iter().all(|name| keys.contains(name)), "{keys:?}");
            let objects = table.objects();
            let info = |object: &serde_json::Map<String, serde_json::Value>| {
                ["model", "cost", "length", "recipe", "batch", "session"]
                    .map(|name| object.get(name).cloned())
            };
            for (index, object) in objects.iter().enumerate() {
                let mut others = objects[..index].iter();
                assert!(others.all(|it| info(it) != info(object)), "{objects:?}");
            }
        }
        // The order of the sessions in the file decides nothing but that of the rows.
        let text = Format::Text.render(&bench::tables(&joined, None));
        // Each session has its own reference.
        assert!(text.matches("(1.00×)").count() >= 2, "{text}");
        assert!(text.matches("(2.00×)").count() >= 2, "{text}");
        let widest = text.lines().map(|line| line.chars().count()).max();
        assert!(widest.unwrap() <= lra_results::width(), "{text}");
    }
    // The same line twice is one measurement.
    let twice = [one.clone(), one.clone()].concat();
    assert_eq!(
        bench::tables(&twice, None)[0].rows.len(),
        bench::tables(&one, None)[0].rows.len()
    );
}

#[test]
fn machines_read_in_which_setting_a_cell_was_measured() {
    let source = published::source("tay2021").unwrap();
    let mut cells = session();
    cells[4].recipe.overrides = vec![
        "data.max_length=1024".to_owned(),
        "train.batch=4".to_owned(),
        "block.layers=2".to_owned(),
    ];
    cells[2].recipe.overrides = vec!["model.attention=materialised".to_owned()];
    for table in bench::tables(&cells, Some(source)) {
        for object in table.objects() {
            let measured = object.get("from").is_none_or(|from| from == "measured");
            let of = |name: &str| object[name].clone();
            let facts = [
                "recipe",
                "batch",
                "precision",
                "device",
                "processor",
                "threads",
            ]
            .map(of);
            let known: [serde_json::Value; 6] = match measured {
                true => [
                    "nystromformer".into(),
                    4.into(),
                    "f32".into(),
                    "cpu".into(),
                    "Some CPU".into(),
                    2.into(),
                ],
                false => Default::default(),
            };
            assert_eq!(facts, known, "{object:?}");
        }
    }
    let rates = &bench::tables(&cells, None)[3];
    let sets: Vec<_> = rates
        .objects()
        .iter()
        .map(|row| row["set"].clone())
        .collect();
    let changed = sets.iter().filter(|set| **set == "block.layers=2").count();
    assert_eq!((changed, sets.len()), (1, 6), "{sets:?}");
}

/// Every setting that rows of the tables depend on has charts of its own, and every session a line
/// of its own: no line joins points of two.
#[test]
fn charts_over_length_keep_settings_and_sessions_apart() {
    type Alter = fn(&mut Bench);
    let alter: [(Alter, &str); 8] = [
        (|cell| cell.batch = 8, "batch 8"),
        (|cell| cell.recipe.name = "mini".into(), "recipe mini"),
        (
            |cell| cell.recipe.overrides = vec!["block.layers=2".into()],
            "set block.layers=2",
        ),
        (|cell| cell.provenance.precision = "bf16".into(), "bf16"),
        (|cell| cell.provenance.device = "cuda:0".into(), "cuda:0"),
        (
            |cell| cell.provenance.host.cpu = "Another CPU".into(),
            "Another CPU",
        ),
        (
            |cell| cell.provenance.host.device = "NVIDIA H100".into(),
            "NVIDIA H100",
        ),
        (|cell| cell.provenance.threads = 8, "8 threads"),
    ];
    let points = |chart: &chart::Chart| -> usize {
        let counts = chart.series.iter().map(|series| series.points.len());
        counts.max().unwrap()
    };
    for (alter, words) in alter {
        let mut cells = session();
        let mut more = session();
        for cell in &mut more {
            alter(cell);
            cell.session = "another".into();
        }
        cells.extend(more);
        let charts = chart::lengths(&cells);
        assert_eq!(charts.len(), 4, "{words}");
        assert!(charts.iter().all(|chart| points(chart) == 2), "{words}");
        let told = charts.iter().filter(|chart| chart.title.contains(words));
        assert_eq!(told.count(), 2, "{words}");
        let told = charts.iter().filter(|chart| chart.notes[1].contains(words));
        assert_eq!(told.count(), 2, "{words}");
        let names: BTreeSet<&String> = charts.iter().map(|chart| &chart.name).collect();
        assert_eq!(names.len(), 4, "{names:?}");
    }

    let mut cells = session();
    let alone = chart::lengths(&cells);
    let names = alone.iter().map(|chart| chart.name.as_str());
    assert_eq!(Vec::from_iter(names), ["lengths-time", "lengths-memory"]);
    let note = "Every cell: recipe nystromformer, batch 4, f32, cpu, Some CPU, 2 threads.";
    assert_eq!(alone[0].notes[1], note);
    cells
        .iter_mut()
        .for_each(|cell| cell.session = "one".into());
    let mut more = session();
    more.iter_mut().for_each(|cell| cell.session = "two".into());
    cells.extend(more);
    let both = chart::lengths(&cells);
    assert_eq!(both.len(), 2);
    assert_eq!(both[0].series.len(), 2 * alone[0].series.len());
    assert!(both.iter().all(|chart| points(chart) == 2));
    let named = |session: &str| both[0].series.iter().any(|it| it.name.contains(session));
    assert!(named("linformer one") && named("linformer two"));
}

#[test]
fn times_that_cannot_be_are_refused() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("session.jsonl");
    let refused = |alter: fn(&mut Bench)| {
        let mut cells = session();
        alter(&mut cells[1]);
        bench::write(&path, &cells).unwrap();
        bench::read(&path).unwrap_err().to_string()
    };
    for (alter, words) in [
        (
            (|cell| cell.rounds[1].seconds[0] = 0.0) as fn(&mut Bench),
            "lra bench`: rounds[1].seconds[0] is 0, which is not a number above 0",
        ),
        (
            |cell| cell.rounds[0].seconds[1] = -1.0,
            "lra bench`: rounds[0].seconds[1] is -1",
        ),
        (
            |cell| cell.rounds[0].phases.forward = -0.5,
            "lra bench`: rounds[0].phases.forward is -0.5",
        ),
        (
            |cell| cell.matmul_flops_per_second = Some(0.0),
            "lra bench`: matmul_flops_per_second is 0",
        ),
        (|cell| cell.length = 0, "lra bench`: length is 0"),
        (
            |cell| {
                cell.base = Some(Base {
                    rounds: vec![Round {
                        seconds: vec![-2.0],
                        ..Round::default()
                    }],
                    ..Base::default()
                });
            },
            "lra bench`: base.rounds[0].seconds[0] is -2",
        ),
    ] {
        let error = refused(alter);
        assert!(
            error.contains(", line 2: ") && error.contains(words),
            "{error}"
        );
    }
}

#[test]
fn without_a_transformer_there_is_no_break_even() {
    let cells = [cell("linear", &[], 1024, [0.1, 0.1], 40)];
    let table = &bench::tables(&cells, None)[2];
    assert_eq!(
        (table.name.as_str(), table.rows.len()),
        ("bench-break-even", 0)
    );
    assert!(table.notes[0].contains("nothing to compare with"));
}

/// On a page, words in place of a length are sorted below or above all lengths.
#[test]
fn break_even_without_a_length_has_its_place_on_a_page() {
    let page = Format::Html.render(&bench::tables(&session(), None)[2..3]);
    let key = |words: &str| -> f64 {
        let (before, _) = page.split_once(&format!("\">{words}</td>")).unwrap();
        let (_, key) = before.rsplit_once("data-value=\"").unwrap();
        key.parse().unwrap()
    };
    assert!(key("below 1024") < 1024.0);
    assert!(key("none up to 1024") > 3072.0);
}

/// A model that ran out of memory at a length takes more there than any other.
#[test]
fn what_does_not_fit_is_dearer_than_all_that_was_measured() {
    let verdicts = |fits: [bool; 2]| -> Vec<String> {
        let mut cells = vec![
            cell("transformer", &[], 1024, [0.1, 0.1], 40),
            cell("transformer", &[], 4096, [0.4, 0.4], 160),
        ];
        for (length, fits) in [1024, 4096].into_iter().zip(fits) {
            let seconds = 0.05 * length as f64 / 1024.0;
            let mut linear = cell("linear", &[], length, [seconds, seconds], 20);
            if !fits {
                linear.rounds.clear();
                linear.outcome = Outcome::OutOfMemory {
                    reason: "it asked for more".to_owned(),
                };
            }
            cells.push(linear);
        }
        let table = &bench::tables(&cells, None)[2];
        assert_eq!(table.name, "bench-break-even");
        let mut rows = table.rows.iter();
        let linear = rows.find(|row| row.cells[0].text == "linear").unwrap();
        linear.cells[1..].iter().map(|it| it.text.clone()).collect()
    };
    assert_eq!(verdicts([true, true]), ["below 1024"; 2]);
    assert_eq!(verdicts([true, false]), ["none up to 4096"; 2]);
    assert_eq!(verdicts([false, true]), ["4096"; 2]);
}

/// The peak of a cell is that of its hungriest round, and its speeds are in their order.
#[test]
fn a_cell_is_described_by_all_of_its_rounds() {
    let mut one = cell("linear", &[], 1024, [0.1, 0.4], 10);
    one.rounds[1].peak_bytes = 30 << 20;
    assert_eq!(one.peak_bytes(), Some(30 << 20));
    let rate = one.steps_per_second().unwrap();
    assert!(rate.p10 < rate.median && rate.median < rate.p90, "{rate:?}");
    assert!((rate.median - 6.25).abs() < 1e-9, "{rate:?}");
    let mut broken = one.clone();
    broken.outcome = Outcome::Unknown;
    assert_eq!(
        [one.speed_over(&broken), broken.speed_over(&one)],
        [None; 2]
    );
    assert_eq!(
        [one.memory_over(&broken), broken.memory_over(&one)],
        [None; 2]
    );
    assert_eq!(
        (broken.peak_bytes(), broken.steps_per_second()),
        (None, None)
    );
    // A fast round has more steps, and counts no more than another.
    let mut fast = one.clone();
    fast.rounds[0].seconds = vec![0.1; 20];
    assert_eq!(fast.steps_per_second().unwrap().median, rate.median);
    assert!(fast.steps_per_second().unwrap().p10 < 5.0);
    // Ratios are of the same round, wherever it stands.
    let mut turned = one.clone();
    turned.rounds.reverse();
    assert_eq!(one.speed_over(&turned), Some(1.0));
    assert!(cell("transformer", &[], 1024, [0.1, 0.1], 1).is_reference());
    assert!(
        !cell(
            "transformer",
            &["attention=materialised"],
            1024,
            [0.1, 0.1],
            1
        )
        .is_reference()
    );
    assert!(!one.is_reference());
}

/// Faster is only what is faster by more than may be lost.
#[test]
fn a_small_gain_is_no_gain_and_what_is_unsure_is_a_warning() {
    let found = |factor: f64| {
        let cell = held_against_base(factor);
        bench::against_base(&[cell], 0.1).unwrap().table
    };
    let verdict = |table: &lra_results::table::Table| {
        let cell = table.rows[0].cells.last().unwrap();
        (cell.text.clone(), cell.tone)
    };
    assert_eq!(verdict(&found(0.95)), ("ok".to_owned(), None));
    assert_eq!(
        verdict(&found(0.7)),
        ("faster".to_owned(), Some(Tone::Good))
    );
    assert_eq!(
        verdict(&found(1.25)),
        ("SLOWER".to_owned(), Some(Tone::Bad))
    );
    let unsure = verdict(&found(1.12));
    assert_eq!(unsure, ("cannot tell".to_owned(), Some(Tone::Caution)));
    // Rounds of a base that did not end are no measurement.
    let mut cell = held_against_base(1.0);
    cell.base.as_mut().unwrap().outcome = Outcome::Unknown;
    assert_eq!(cell.verdict(0.1), Some(Verdict::New));
}

/// Cells of another setting have references, rivals and opponents of their own.
#[test]
fn cells_of_two_settings_are_not_compared() {
    let mut cells = vec![
        cell("transformer", &[], 1024, [0.1, 0.1], 40),
        cell("linear", &[], 1024, [0.05, 0.05], 20),
    ];
    let mut other = cell("linear", &[], 1024, [0.02, 0.02], 10);
    other.batch = 32;
    cells.push(other);
    let tables = bench::tables(&cells, None);
    let text = Format::Text.render(&tables[..1]);
    assert_eq!(text.matches("(2.00×)").count(), 1, "{text}");
    assert!(!text.contains("(5.00×)"), "{text}");
    let best = tables[0].rows.iter().flat_map(|row| &row.cells);
    let best = best.filter(|cell| cell.best).map(|cell| cell.text.as_str());
    assert_eq!(
        best.collect::<Vec<&str>>(),
        ["20.0 (2.00×)"],
        "the other has no rival"
    );
    let csv = Format::Csv.render(&tables[2..3]);
    // Of the header and two rows, none is of the other setting.
    assert_eq!(csv.lines().count(), 3, "{csv}");
    assert!(!csv.contains(",32,"), "{csv}");
    // Steps a second, times examples a step, times tokens an example.
    let rates = tables[3].objects();
    let of = |index: usize, name: &str| rates[index][name].as_f64().unwrap();
    assert!(
        (of(0, "examples_per_second") - 40.0).abs() < 1e-9,
        "{rates:?}"
    );
    assert!(
        (of(0, "tokens_per_second") - 40_960.0).abs() < 1e-6,
        "{rates:?}"
    );
}

/// A published table counts lengths in thousands of either kind, and stands once below each model.
#[test]
fn published_speeds_stand_below_the_plain_model_alone() {
    let source = published::source("tay2021").unwrap();
    let rows = |cells: &[Bench]| {
        let table = &bench::tables(cells, Some(source))[0];
        let words = table.rows.iter().map(|row| {
            let of = |at: usize| row.cells[at].text.clone();
            (of(0), of(1))
        });
        words.collect::<Vec<_>>()
    };
    let pair = |model: &str, from: &str| (model.to_owned(), from.to_owned());
    for length in [1000, 1024] {
        let cells = [
            cell(
                "transformer",
                &["attention=materialised"],
                length,
                [0.2, 0.2],
                40,
            ),
            cell("transformer", &[], length, [0.1, 0.1], 40),
        ];
        assert_eq!(
            rows(&cells),
            [
                pair("transformer", "measured"),
                pair("transformer", "tay2021"),
                pair("transformer (materialised)", "measured"),
            ],
            "{length}"
        );
    }
    let mut other = cell("transformer", &[], 1024, [0.3, 0.3], 40);
    other.batch = 32;
    let both = [cell("transformer", &[], 1024, [0.1, 0.1], 40), other];
    let expected = ["measured", "measured", "tay2021"];
    assert_eq!(rows(&both), expected.map(|from| pair("transformer", from)));
}

#[test]
fn charts_over_length_are_in_seconds_and_mebibytes() {
    let cells = [
        cell("linear", &[], 2048, [0.2, 0.2], 80),
        cell("linear", &[], 1024, [0.1, 0.1], 40),
    ];
    let charts = chart::lengths(&cells);
    let near = |index: usize, expected: [f64; 2]| {
        let series = &charts[index].series[0];
        assert!(series.name.ends_with(" 1.00"), "{}", series.name);
        let pairs = series.points.iter().zip([1024.0, 2048.0]).zip(expected);
        pairs.fold(true, |all, ((point, x), y)| {
            all && point.0 == x && (point.1 - y).abs() < 1e-9
        })
    };
    assert!(near(0, [0.1, 0.2]), "{:?}", charts[0].series);
    assert!(near(1, [40.0, 80.0]), "{:?}", charts[1].series);
}

/// Faster is what undoes the loss that is allowed: 1 / (1 - threshold), more than 1 + threshold.
#[test]
fn a_gain_begins_where_it_undoes_the_loss_that_is_allowed() {
    let verdict = |times: f64| {
        let mut cell = held_against_base(1.0);
        cell.rounds = cell.base.as_ref().unwrap().rounds.clone();
        for seconds in cell.rounds.iter_mut().flat_map(|it| &mut it.seconds) {
            *seconds /= times;
        }
        cell.verdict(0.1)
    };
    assert_eq!(verdict(1.105), Some(Verdict::Same));
    assert_eq!(verdict(1.12), Some(Verdict::Faster));
}

/// Charts draw the middle time of a step.
#[test]
fn charts_over_length_draw_the_median() {
    let cells = [cell("linear", &[], 1024, [0.1, 0.3], 40)];
    let drawn = chart::lengths(&cells)[0].series[0].points[0].1;
    let median = cells[0].steps_per_second().unwrap().median;
    assert!((drawn * median - 1.0).abs() < 1e-12, "{drawn} {median}");
}
