//! The screen that a run ends with.

#![allow(clippy::unwrap_used)]

use crate::common::{dozen, ended, on, run, small};
use lra_results::record::Pretraining;
use lra_results::{Outcome, Record, Tone, meaning::Meaning, published, summary::summary, width};

/// Returns the text without its meanings.
fn joined(pieces: Vec<(Option<Tone>, String)>) -> String {
    pieces.into_iter().map(|(_, text)| text).collect()
}

fn view(record: &Record) -> String {
    let text = joined(summary(
        record,
        Some(published::source("tay2021").unwrap()),
        &[],
    ));
    for line in text.lines() {
        assert!(line.chars().count() <= width(), "{line}");
    }
    text
}

#[test]
fn a_reduced_run_shows_its_figure_and_says_that_it_is_not_comparable() {
    insta::assert_snapshot!(view(&small(run("performer", 0, 0.3845))), @r#"
    performer · listops@256 · recipe mini · seed 0

      accuracy    38.45 % ± 1.09    validation 38.95 %; best checkpoint at step 4,800 of 5,000; 160,000
                                    examples seen
      meaning     +2.20 points      level with first token (36.25 %), the best trivial predictor
      speed       10.0 steps/s      p10 9.00, p90 11.0 over 4,990 steps; 320 examples/s, 655k tokens/s,
                                    21.4 GFLOP/s, padding counted; the harness takes 1.10 %
      memory      174.0 MiB         live heap bytes since the start, counting allocator; 12.0 MiB before
                                    it; resident 229.0 MiB
      published   18.01 %           Performer on listops in tay2021long; not comparable: listops@256 is
                                    not listops, recipe mini is not published

      majority 17.05 ---------- bag of tokens 26.40 ----------- first token 36.25 --- [performer 38.45]

      recipe      mini (own: a task made smaller)
      data        listops@256 from source generated, protocol clean, 96,000 / 2,000 / 2,000 rows, digest
                  9b1de5ee2f5b
      model       104,586 parameters, padding masked
      run         seed 0, f32, cpu, 2 threads, spec 3f9c2a71d04b, id listops-performer-0
      machine     AMD EPYC 9V74 with AVX-512, 2 cores, 8.00 GiB, Linux 6.8
      code        lra 0.1.0 (ded051b0c4f1, modified), candle 0.11.1, rustc 1.95.0
    "#);
}

/// A string of a record cannot look like a line of the screen, or of an error.
#[test]
fn line_feeds_of_a_record_begin_no_line() {
    let forged = "x\nerror: y\n  accuracy    99.99 %";
    let mut record = run("performer", 0, 0.3845);
    record.pretraining = Some(Pretraining {
        kind: forged.into(),
        share: 0.1,
        ..Pretraining::default()
    });
    record.baselines[0].name = forged.into();
    record.model.name = forged.into();
    record.task.label = forged.into();
    record.provenance.host.cpu = forged.into();
    let reason = || forged.to_owned();
    for outcome in [
        Outcome::Scored,
        Outcome::Diverged {
            step: 3,
            reason: reason(),
        },
        Outcome::Failed { reason: reason() },
        Outcome::OutOfMemory { reason: reason() },
    ] {
        assert!(!outcome.to_string().contains('\n'), "{outcome}");
        record.outcome = outcome;
        let text = view(&record);
        for line in text.lines() {
            let line = line.trim_start();
            assert!(!line.starts_with("error:"), "{text}");
            assert!(!line.starts_with("accuracy    99"), "{text}");
        }
    }
}

/// Returns a run of the small protocol with this accuracy.
fn mini(model: &str, seed: u64, accuracy: f64) -> Record {
    small(run(model, seed, accuracy))
}

#[test]
fn a_score_stands_among_those_of_the_table_on_the_same_data() {
    let mut changed = mini("linear", 2, 0.99);
    changed.recipe.overrides = vec!["train.steps=9".into()];
    let mut other = mini("reformer", 0, 0.99);
    other.task.data_digest = "other".into();
    let table = [
        mini("linear", 0, 0.37),
        mini("linear", 1, 0.39),
        mini("fnet", 0, 0.35),
        mini("s4d", 0, 0.53),
        // Neither of these is a run of an anchor on the same data without changes.
        mini("bag", 0, 0.99),
        run("s5", 0, 0.99),
        ended(mini("tnn", 0, 0.99), Outcome::Unknown),
        changed.clone(),
        other,
    ];
    let words = |record: &Record| Meaning::of(record, &table).unwrap().words;
    assert_eq!(
        words(&mini("performer", 0, 0.4045)),
        "above first token (36.25 %), the best trivial predictor; on this data, recipe mini: models with weak \
         published figures 35.00 to 38.00 (best linear), models with strong ones 53.00 (s4d)"
    );
    // Both accuracies are counted on 2,000 rows: 3 points are within chance.
    for near in [0.3575, 0.3845] {
        let near = mini("performer", 0, near);
        assert!(words(&near).starts_with("level with first token"));
    }
    assert!(words(&mini("performer", 0, 0.3)).starts_with("below first token"));
    for apart in [&changed, &run("performer", 0, 0.4)] {
        assert!(words(apart).ends_with("the best trivial predictor"));
    }
    assert_eq!(Meaning::of(&dozen()[7], &table), None, "no score");
    let mut alone = mini("performer", 0, 0.4);
    alone.baselines.clear();
    assert_eq!(Meaning::of(&alone, &table), None, "nothing to stand above");
}

#[test]
fn what_a_model_learned_before_stands_above_its_score() {
    let mut record = run("performer", 0, 0.3845);
    record.pretraining = Some(Pretraining {
        kind: "masked".to_owned(),
        share: 0.1,
        steps: 5_000,
        examples_seen: 160_000,
        train_loss: Some(1.25),
        val_loss: Some(1.2344),
        val_accuracy: Some(0.512),
        best_step: Some(4_500),
        wall_seconds: 61.0,
        peak_bytes: 1 << 20,
    });
    let text = view(&record);
    let at = |name: &str| text.find(name).unwrap();
    assert!(at("pretrained") < at("accuracy"), "{text}");
    for words in [
        "masked 10.00 %",
        "validation loss 1.234, 51.20 % of the tokens right",
        "step 4,500 of 5,000",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    record.outcome = Outcome::Interrupted { step: 0 };
    assert!(view(&record).contains("in pretraining"));
}

#[test]
fn a_model_on_the_majority_plateau_is_told_so() {
    insta::assert_snapshot!(view(&run("bag", 0, 0.1710)), @r#"
    bag · listops · recipe tay2021 · seed 0

      accuracy    17.10 % ± 0.84    FAIL: still on the majority plateau (17.05 ± 0.84 %); validation
                                    17.60 %; best checkpoint at step 4,800 of 5,000; 160,000 examples
                                    seen
      meaning     -19.15 points     below first token (36.25 %), the best trivial predictor
      speed       10.0 steps/s      p10 9.00, p90 11.0 over 4,990 steps; 320 examples/s, 655k tokens/s,
                                    21.4 GFLOP/s, padding counted; the harness takes 1.10 %
      memory      174.0 MiB         live heap bytes since the start, counting allocator; 12.0 MiB before
                                    it; resident 229.0 MiB
      published   -                 tay2021long has no figure for bag on listops

      majority 17.05 - [bag 17.10] -------------- bag of tokens 26.40 --------------- first token 36.25

      recipe      tay2021 (configuration files of 2021)
      data        listops from source generated, protocol tay2021, 96,000 / 2,000 / 2,000 rows, digest
                  9b1de5ee2f5b
      model       104,586 parameters, padding masked
      run         seed 0, f32, cpu, 2 threads, spec 3f9c2a71d04b, id listops-bag-0
      machine     AMD EPYC 9V74 with AVX-512, 2 cores, 8.00 GiB, Linux 6.8
      code        lra 0.1.0 (ded051b0c4f1, modified), candle 0.11.1, rustc 1.95.0
    "#);
}

#[test]
fn a_run_that_diverged() {
    insta::assert_snapshot!(view(&dozen()[7]), @r#"
    transformer · listops · recipe tay2021 · seed 2

      outcome     diverged          at step 812: the loss is NaN
      accuracy    -                 nothing was scored
      speed       -                 no steps were timed
      memory      -                 not measured
      published   36.37 %           Transformer on listops in tay2021long; no score to compare

      recipe      tay2021 (configuration files of 2021)
      data        listops from source generated, protocol tay2021, 96,000 / 2,000 / 2,000 rows, digest
                  9b1de5ee2f5b
      model       104,586 parameters, padding masked
      run         seed 2, f32, cpu, 2 threads, spec 3f9c2a71d04b, id listops-transformer-2
      machine     AMD EPYC 9V74 with AVX-512, 2 cores, 8.00 GiB, Linux 6.8
      code        lra 0.1.0 (ded051b0c4f1, modified), candle 0.11.1, rustc 1.95.0
    "#);
}

#[test]
fn other_endings_and_synthetic_data() {
    let mut record = on(run("local", 0, 0.09), "image", "synthetic", 10);
    record.task.partial = true;
    record.model.variant = "window 64".into();
    record.recipe.overrides = vec!["train.steps=200".into()];
    let text = view(&record);
    assert!(
        text.starts_with(
            "local (window 64) · image (synthetic, partial) · recipe tay2021 · seed 0\n"
        ),
        "{text}"
    );
    assert!(
        text.contains("9.00 % ± 0.64     FAIL: below the majority class (10.00 ± 0.67 %)"),
        "{text}"
    );
    assert!(
        !text.contains("41.46"),
        "a published figure beside synthetic data: {text}"
    );
    let words: Vec<_> = text.split_whitespace().collect();
    assert!(
        words
            .join(" ")
            .contains("not comparable: synthetic data, a part of the data"),
        "{text}"
    );
    assert!(text.contains("source synthetic (a part of it)"), "{text}");

    let mut altered = run("performer", 0, 0.3845);
    altered.task.altered = vec!["one review is another".into()];
    let text = view(&altered);
    assert!(
        text.starts_with("performer · listops (altered) · "),
        "{text}"
    );
    assert!(
        text.contains("ALTERED: one review is another") && !text.contains("18.01"),
        "{text}"
    );

    let outcomes = [
        (
            Outcome::Failed {
                // As older versions wrote them.
                reason: "disk full\n   0: main\n".into(),
            },
            "failed            disk full; `--resume` continues from the last checkpoint,",
        ),
        (
            Outcome::OutOfMemory {
                reason: "9 GiB".into(),
            },
            "out of memory     9 GiB; `--resume` continues from the last checkpoint,",
        ),
        (
            Outcome::Interrupted { step: 1200 },
            "interrupted       at step 1,200; `--resume` continues",
        ),
        (Outcome::Unknown, "unknown outcome\n"),
    ];
    for (outcome, expected) in outcomes {
        let text = view(&ended(run("linear", 0, 0.0), outcome));
        assert!(
            text.contains(&format!("  outcome     {expected}")),
            "{text}"
        );
        assert!(!text.contains("0: main"), "{text}");
    }
}

/// One of a thing is said in the singular.
#[test]
fn one_thread_is_no_threads() {
    let mut record = run("performer", 0, 0.38);
    record.provenance.threads = 1;
    record.provenance.host.cores = 1;
    let scores = record.scores.as_mut().unwrap();
    (scores.best_step, scores.steps, scores.examples_seen) = (None, 1, 1);
    let text = joined(summary(&record, None, &[]));
    for words in ["1 thread,", "1 core,", "1 step;", "1 example seen"] {
        assert!(text.contains(words), "{words}: {text}");
    }
}

/// What failed is red, what may go on is a warning, and a caveat stands beside a figure.
#[test]
fn pieces_have_their_meaning_and_figures_their_caveats() {
    let tones = |record: &Record| {
        let pieces = summary(record, None, &[]);
        pieces
            .into_iter()
            .filter_map(|(tone, _)| tone)
            .collect::<Vec<_>>()
    };
    assert_eq!(tones(&run("performer", 0, 0.3845)), []);
    assert_eq!(tones(&run("bag", 0, 0.1710)), [Tone::Bad], "on the plateau");
    let with = |outcome: Outcome| tones(&ended(run("linear", 0, 0.0), outcome));
    assert_eq!(with(Outcome::Interrupted { step: 3 }), [Tone::Caution]);
    assert_eq!(with(Outcome::Unknown), [Tone::Bad]);
    let mut clean = run("performer", 0, 0.3845);
    let words = |record: &Record| {
        let text = view(record);
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert!(
        words(&clean).contains("in tay2021long; comparable speed")
            || words(&clean).contains("in tay2021long; comparable majority")
    );
    clean.task.protocol = "clean".to_owned();
    assert!(words(&clean).contains("comparable, but: protocol clean"));
    // Errors are those of counting on the test split; what was not timed is not told.
    clean.task.rows.val = 50;
    assert!(view(&clean).contains("38.45 % ± 1.09"));
    let speed = clean.speed.as_mut().unwrap();
    speed.overhead_share = f64::NAN;
    assert!(!view(&clean).contains("the harness"));
}

/// Only runs that were scored stand for a model of the table.
#[test]
fn a_run_that_was_not_scored_is_no_score_of_its_model() {
    let mut unfinished = mini("linear", 1, 0.1);
    unfinished.outcome = Outcome::Interrupted { step: 3 };
    let table = [mini("linear", 0, 0.37), unfinished];
    let words = Meaning::of(&mini("performer", 0, 0.4045), &table)
        .unwrap()
        .words;
    assert!(
        words.ends_with("models with weak published figures 37.00 (linear)"),
        "{words}"
    );
}
