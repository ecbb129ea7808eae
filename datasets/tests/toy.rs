//! The toy task matches its description.
#![allow(missing_docs, clippy::unwrap_used)]

use lra_datasets::tasks::Toy;
use lra_datasets::{Key, SplitName, Store, Summary, Task};

#[test]
fn labels_lengths_and_baselines() {
    let root = tempfile::tempdir().unwrap();
    let splits = Store::new(root.path())
        .open_or_build(&Toy, &Key::default_of(&Toy), None, &())
        .unwrap();
    for split_name in SplitName::ALL {
        let split = splits.get(split_name);
        for row in 0..split.len() {
            let tokens = split.tokens(0, row);
            assert!((8..=32).contains(&tokens.len()));
            assert_eq!(
                tokens.iter().find(|&&token| token < 4),
                Some(&split.label(row))
            );
        }
    }
    let summary = Summary::of(&Toy, &splits);
    // Four equal classes: 500 of 2000 each, standard deviation 19.
    assert!(
        summary.splits[0]
            .labels
            .iter()
            .all(|&count| count.abs_diff(500) < 100),
        "{:?}",
        summary.splits[0].labels
    );
    let accuracy = |name: &str| {
        summary
            .baselines
            .iter()
            .find(|baseline| baseline.name == name)
            .unwrap()
            .accuracy
    };
    // Within four standard deviations (2.7 points on 256 rows) of 25 % and (3.1 points) of the half
    // that the description promises.
    assert!(
        (0.14..0.36).contains(&accuracy("majority")),
        "{}",
        accuracy("majority")
    );
    assert!(
        (0.38..0.62).contains(&accuracy("bag of tokens")),
        "{}",
        accuracy("bag of tokens")
    );
}

#[test]
fn the_label_tells_other_data() {
    for (option, value) in [("train", 5), ("val", 5), ("test", 5), ("max_length", 16)] {
        let mut options = Toy.defaults();
        options[option] = value.into();
        let label = Toy.shape(&options).unwrap().label;
        assert!(label.starts_with("toy@"), "{option}: {label}");
    }
}

#[test]
fn the_summary_shows_shares_and_sampling_errors() {
    let root = tempfile::tempdir().unwrap();
    let splits = Store::new(root.path())
        .open_or_build(&Toy, &Key::default_of(&Toy), None, &())
        .unwrap();
    let summary = Summary::of(&Toy, &splits);
    let text = summary.text();
    for (label, count) in summary.splits[0].labels.iter().enumerate() {
        let share = 100.0 * *count as f64 / 2000.0;
        let line = format!("\n  {label} {count:>8} {share:>5.1} % █");
        assert!(text.contains(&line), "{text}");
    }
    for baseline in &summary.baselines {
        let share = baseline.accuracy;
        // Of a mean of 256 answers.
        let error = (share * (1.0 - share)).sqrt() / 16.0;
        let line = format!("{:>6.2} % ± {:.2}\n", 100.0 * share, 100.0 * error);
        assert!(text.contains(&line), "{text}");
    }
}

/// For four classes that are nearly equal, the prior's loss is nearly ln 4; it is at least the
/// entropy of validation's own shares.
#[test]
fn the_prior_knows_the_label_shares_and_nothing_else() {
    let root = tempfile::tempdir().unwrap();
    let splits = Store::new(root.path())
        .open_or_build(&Toy, &Key::default_of(&Toy), None, &())
        .unwrap();
    let shares = |labels: &[u8]| -> Vec<f64> {
        let count = |class: u8| labels.iter().filter(|label| **label == class).count();
        (0..4)
            .map(|class| count(class) as f64 / labels.len() as f64)
            .collect()
    };
    let (train, val) = (shares(splits.train.labels()), shares(splits.val.labels()));
    let cross: f64 = train.iter().zip(&val).map(|(p, q)| -q * p.ln()).sum();
    let own: f64 = val.iter().map(|q| -q * q.ln()).sum();
    let loss = lra_datasets::prior_loss(&splits, 1.0).unwrap();
    assert!((loss - cross).abs() < 1e-12 && loss >= own, "{loss}");
    assert!((loss - 4.0_f64.ln()).abs() < 0.02, "{loss}");
}

#[test]
fn drawn_for_people() {
    insta::assert_snapshot!(Toy.to_text(&[&[4, 10, 2, 5, 0, 2]], 2), @"
    ··C·AC
    first marker: C
    ");
}
