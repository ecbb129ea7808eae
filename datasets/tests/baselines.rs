//! Figures of trivial baselines, on rows made so that each figure is known.
#![allow(missing_docs, clippy::unwrap_used)]

use lra_datasets::prelude::*;
use lra_datasets::tasks::Retrieval;
use lra_datasets::tasks::pathfinder::PATHFINDER;
use lra_datasets::{Key, Store, Summary, bag_of_tokens, first_token, majority, prior_loss};

/// Tokens of each tower, and the label.
type Row = (Vec<Vec<u8>>, u8);

/// A task with the rows that a function returns.
struct Given {
    info: TaskInfo,
    rows: fn(SplitName) -> Vec<Row>,
}

const ONE_TOWER: TaskInfo = TaskInfo {
    name: "given",
    title: "Given",
    summary: "Rows made for a test.",
    paper: "none",
    version: 1,
    vocabulary: 257,
    first_id: 1,
    classes: 3,
    towers: 1,
    mask_ratio: 0.15,
    sources: &[Source::Synthetic],
    probe: false,
};

const TWO_TOWERS: TaskInfo = TaskInfo {
    classes: 2,
    towers: 2,
    ..ONE_TOWER
};

impl Task for Given {
    fn info(&self) -> &'static TaskInfo {
        Box::leak(Box::new(self.info))
    }

    fn defaults(&self) -> Value {
        json!({})
    }

    fn shape(&self, _options: &Value) -> Result<Shape> {
        Ok(Shape::new(&self.info, 1024, []))
    }

    fn build(&self, _request: &Request<'_>, writer: &mut SplitWriter) -> Result<()> {
        for split in SplitName::ALL {
            for (towers, label) in (self.rows)(split) {
                let towers: Vec<&[u8]> = towers.iter().map(Vec::as_slice).collect();
                writer.row(split, &towers, label)?;
            }
        }
        Ok(())
    }

    fn to_text(&self, _towers: &[&[u8]], _label: u8) -> String {
        String::new()
    }
}

impl Given {
    fn splits(&self) -> (tempfile::TempDir, Splits) {
        let root = tempfile::tempdir().unwrap();
        let key = Key::default_of(self);
        let splits = Store::new(root.path()).open_or_build(self, &key, None, &());
        (root, splits.unwrap())
    }
}

/// Rows of one token each.
fn tokens(pairs: &[(u8, u8)]) -> Vec<Row> {
    let row = |&(token, label): &(u8, u8)| (vec![vec![token]], label);
    pairs.iter().map(row).collect()
}

#[test]
fn the_majority_and_the_first_token_are_those_of_train() {
    let task = Given {
        info: ONE_TOWER,
        // Classes 1 and 2 are equally frequent in train, where token 5 is mostly of class 1.
        rows: |split| match split {
            SplitName::Test => tokens(&[
                (5, 0),
                (5, 0),
                (5, 1),
                (6, 2),
                (7, 0),
                (6, 2),
                (5, 2),
                (5, 2),
            ]),
            _ => tokens(&[(5, 1), (5, 1), (5, 0), (6, 2), (6, 2)]),
        },
    };
    let (_root, splits) = task.splits();
    assert_eq!(majority(&splits, &task.info).accuracy, 1.0 / 8.0);
    // 5 is answered by 1, 6 by 2, and 7, which train lacks, by the first class.
    assert_eq!(first_token(&splits, &task.info).accuracy, 4.0 / 8.0);
}

/// The label follows from the number of one token, in the first tower, in the second, or in one as
/// compared with the other.
#[test]
fn a_bag_counts_the_tokens_of_every_tower() {
    fn row(counts: [usize; 2], label: bool) -> Row {
        let tower = |count: usize| [vec![3; count], vec![4; 10]].concat();
        (counts.map(tower).to_vec(), label.into())
    }
    let tasks: [fn(SplitName) -> Vec<Row>; 2] = [
        |_| {
            (0..80)
                .map(|number| row([1 + number % 2 * 4, 2], number % 2 > 0))
                .collect()
        },
        |_| {
            (0..80)
                .map(|number| row([2, 1 + number % 2 * 4], number % 2 > 0))
                .collect()
        },
    ];
    for rows in tasks {
        let task = Given {
            info: TWO_TOWERS,
            rows,
        };
        let (_root, splits) = task.splits();
        assert_eq!(majority(&splits, &task.info).accuracy, 0.5);
        assert_eq!(bag_of_tokens(&splits, &task.info).accuracy, 1.0);
    }
}

/// The label says whether both towers have the same tokens, and neither tower tells it alone.
#[test]
fn compared_bags_see_differences_in_either_direction() {
    let task = Given {
        info: TWO_TOWERS,
        rows: |_| {
            let pair = |number: u8| {
                let (one, other) = (number % 2, number / 2 % 2);
                (vec![vec![one; 6], vec![other; 6]], u8::from(one == other))
            };
            (0..80).map(pair).collect()
        },
    };
    let (_root, splits) = task.splits();
    let baselines = Retrieval.baselines(&splits);
    let named = |name: &str| {
        baselines
            .iter()
            .find(|it| it.name == name)
            .unwrap()
            .accuracy
    };
    assert_eq!(named("majority"), 0.5);
    assert_eq!(named("compared bags"), 1.0);
}

/// In train, near discs are on one contour and far ones are not. The same rule answers test.
#[test]
fn the_rule_of_discs_is_fitted_on_train() {
    /// Returns an image of two bright squares this far apart.
    fn image(apart: usize, label: u8) -> Row {
        let mut pixels = vec![0; 1024];
        for left in [6, 6 + apart] {
            for y in 15..18 {
                pixels[32 * y + left..][..3].fill(255);
            }
        }
        (vec![pixels], label)
    }
    let task = Given {
        info: TaskInfo {
            vocabulary: 256,
            first_id: 0,
            ..ONE_TOWER
        },
        rows: |split| match split {
            SplitName::Test => vec![image(7, 1), image(8, 1), image(14, 0), image(15, 1)],
            _ => (6..20)
                .map(|apart| image(apart, u8::from(apart < 12)))
                .collect(),
        },
    };
    let (_root, splits) = task.splits();
    let baselines = PATHFINDER.baselines(&splits);
    let discs = baselines.iter().find(|it| it.name == "disc distance");
    assert_eq!(discs.unwrap().accuracy, 0.75);
}

/// A task with labels at positions, as class and group.
struct Labelled;

/// Labels of train, and of test: group 1 has none in train, and group 3 none in test.
const LABELS: [&[(u8, u8)]; 2] = [
    &[(1, 0), (1, 0), (2, 0), (2, 2), (0, 2), (1, 3)],
    &[
        (2, 0),
        (2, 0),
        (1, 0),
        (1, 1),
        (2, 1),
        (0, 2),
        (0, 2),
        (2, 2),
    ],
];

impl Task for Labelled {
    fn info(&self) -> &'static TaskInfo {
        static INFO: TaskInfo = ONE_TOWER;
        &INFO
    }

    fn defaults(&self) -> Value {
        json!({})
    }

    fn shape(&self, _options: &Value) -> Result<Shape> {
        let dense = Dense::new(3, &["first", "new", "equal", "untested"]);
        Ok(Shape::new(self.info(), 16, []).with_dense(Some(dense)))
    }

    fn build(&self, _request: &Request<'_>, writer: &mut SplitWriter) -> Result<()> {
        for split in SplitName::ALL {
            let labels = LABELS[usize::from(split == SplitName::Test)];
            let mut row = DenseRow::unlabelled(16);
            for (place, &(target, group)) in labels.iter().enumerate() {
                row.label(2 * place, target, group);
            }
            writer.dense_row(split, &[7; 16], 0, &row)?;
        }
        Ok(())
    }

    fn to_text(&self, _towers: &[&[u8]], _label: u8) -> String {
        String::new()
    }
}

#[test]
fn each_group_is_answered_by_its_own_majority_of_train() {
    let root = tempfile::tempdir().unwrap();
    let key = Key::default_of(&Labelled);
    let splits = Store::new(root.path()).open_or_build(&Labelled, &key, None, &());
    let groups = splits.unwrap().dense_baselines().unwrap();
    let found: Vec<_> = groups
        .iter()
        .map(|it| (it.group.as_str(), &it.train[..], it.labels, it.majority))
        .collect();
    // Group 1 is answered by the majority of all groups. The first of equal classes counts.
    let expected: [(&str, &[u64], u64, f64); 3] = [
        ("first", &[0, 2, 1], 3, 1.0 / 3.0),
        ("new", &[0, 0, 0], 2, 1.0 / 2.0),
        ("equal", &[1, 0, 1], 3, 2.0 / 3.0),
    ];
    assert_eq!(found, expected);
}

#[test]
fn the_summary_has_the_lengths_and_labels_of_each_split() {
    let task = Given {
        info: ONE_TOWER,
        rows: |split| match split {
            SplitName::Train => {
                let label = |length: usize| u8::from(length > 10) + u8::from(length > 15);
                let row = |length: usize| (vec![vec![5; length]], label(length));
                (1..=20).map(row).collect()
            }
            SplitName::Val => vec![(vec![vec![6; 3]], 1)],
            SplitName::Test => {
                let row = |(token, label)| (vec![vec![token; 2]], label);
                [(1, 0), (2, 0), (3, 1), (4, 2)].map(row).to_vec()
            }
        },
    };
    let (_root, mut splits) = task.splits();
    let whole = Summary::of(&task, &splits).text();
    assert!(whole.starts_with("Given (given), synthetic\n\n"), "{whole}");
    splits.manifest.partial = true;
    splits
        .manifest
        .notes
        .push("two files are missing".to_owned());
    let text = Summary::of(&task, &splits).text();
    let (text, _) = text.split_once("  bag of tokens").unwrap();
    insta::assert_snapshot!(text, @"
    Given (given), synthetic, part of what is published
      two files are missing

               rows   length    5%   25% median   75%   95%   max     mean
    train        20        1     1     5     10    15    19    20     10.5
    val           1        3     3     3      3     3     3     3      3.0
    test          4        2     2     2      2     2     2     2      2.0

    labels of train
      0       10  50.0 % ████████████████████████████████████████
      1        5  25.0 % ████████████████████
      2        5  25.0 % ████████████████████

    lengths of train, in tokens
        0-1        1   5.0 % ████████████████████
        2-3        2  10.0 % ████████████████████████████████████████
        4-5        2  10.0 % ████████████████████████████████████████
        6-7        2  10.0 % ████████████████████████████████████████
        8-9        2  10.0 % ████████████████████████████████████████
      10-11        2  10.0 % ████████████████████████████████████████
      12-13        2  10.0 % ████████████████████████████████████████
      14-15        2  10.0 % ████████████████████████████████████████
      16-17        2  10.0 % ████████████████████████████████████████
      18-19        2  10.0 % ████████████████████████████████████████
         20        1   5.0 % ████████████████████

    accuracy without a model, fitted on train, measured on 4 rows of test
      majority           50.00 % ± 25.00
    ");
}

/// A label that train lacks has no share, so its surprise has no bound.
#[test]
fn the_prior_is_unknown_for_a_label_that_train_lacks() {
    let task = Given {
        info: ONE_TOWER,
        rows: |split| match split {
            SplitName::Val => tokens(&[(1, 0), (1, 2)]),
            _ => tokens(&[(1, 0), (1, 1)]),
        },
    };
    let (_root, splits) = task.splits();
    assert_eq!(prior_loss(&splits, 1.0), None);
    let task = Given {
        info: ONE_TOWER,
        rows: |_| tokens(&[(1, 0), (1, 1)]),
    };
    let (_root, splits) = task.splits();
    let loss = prior_loss(&splits, 1.0).unwrap();
    assert!((loss - 2_f64.ln()).abs() < 1e-12, "{loss}");
}
