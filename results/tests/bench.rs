//! Tables of a benchmark: a few fixed cells in, text out.

#![allow(clippy::unwrap_used)]

use results::bench::{self, Bench, Outcome, Round};
use results::{Format, published};

/// A cell whose steps took these seconds in two rounds.
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
        precision: "f32".to_owned(),
        device: "cpu".to_owned(),
        threads: 2,
        rounds: seconds.into_iter().enumerate().map(round).collect(),
        ..Bench::default()
    };
    cell.recipe.name = "nystromformer".to_owned();
    cell.host.cpu = "Some CPU".to_owned();
    cell
}

/// The machine was twice as slow in the second round.
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
    assert!(widest.unwrap() <= results::WIDTH);
    insta::assert_snapshot!(text, @"");
}

#[test]
fn a_session_is_read_as_it_was_written() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("session.jsonl");
    bench::write(&path, &session()).unwrap();
    assert_eq!(bench::read(&path).unwrap(), session());
    std::fs::write(&path, "{\"schema\": 1").unwrap();
    let error = bench::read(&path).unwrap_err().to_string();
    assert!(error.contains("line 1"), "{error}");
}
