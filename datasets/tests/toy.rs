//! The toy task is what its description says.
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
    // Within four standard deviations (2.7 points on 256 rows) of 25 % and (3.1 points) of the half that the description promises.
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
fn drawn_for_people() {
    insta::assert_snapshot!(Toy.to_text(&[&[4, 10, 2, 5, 0, 2]], 2), @"
    ··C·AC
    first marker: C
    ");
}
