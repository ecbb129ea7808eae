//! The probes: labels compared with naive references, lengths, names, and stored bytes.
#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::BTreeMap;

use lra_datasets::tasks::probes::{MQAR, NEEDLE, SELECTIVE_COPY, STATE_TRACKING};
use lra_datasets::{Error, Key, Split, SplitName, Splits, Store, Summary, Task};
use serde_json::{Value, json};

static PROBES: [&dyn Task; 4] = [&MQAR, &SELECTIVE_COPY, &STATE_TRACKING, &NEEDLE];

fn key(task: &dyn Task, options: &[(&str, Value)]) -> Key {
    let mut key = Key::default_of(task);
    let sizes = [("train", 300), ("val", 30), ("test", 90)];
    for (name, size) in sizes {
        key.options[name] = json!(size);
    }
    for (name, value) in options {
        key.options[*name] = value.clone();
    }
    key
}

fn built(task: &dyn Task, options: &[(&str, Value)]) -> (tempfile::TempDir, Splits) {
    let root = tempfile::tempdir().unwrap();
    let splits = Store::new(root.path()).open_or_build(task, &key(task, options), None, &());
    (root, splits.unwrap())
}

fn splits(splits: &Splits) -> [&Split; 3] {
    SplitName::ALL.map(|name| splits.get(name))
}

/// Returns the position and class of every label of a row.
fn answers(split: &Split, row: usize) -> Vec<(usize, usize)> {
    let labels = split.dense(row).unwrap().iter();
    labels.map(|it| (it.0, usize::from(it.1))).collect()
}

/// Returns the number of rows of each length.
fn lengths(split: &Split) -> BTreeMap<usize, usize> {
    let mut counts = BTreeMap::new();
    for row in 0..split.len() {
        *counts.entry(split.tokens(0, row).len()).or_default() += 1;
    }
    counts
}

/// Looks every query up by walking from the start of the row.
#[test]
fn mqar_asks_for_the_value_beside_each_key() {
    let (_root, data) = built(&MQAR, &[("max_length", json!(512))]);
    for split in splits(&data) {
        for row in 0..split.len() {
            let tokens = split.tokens(0, row);
            let pairs = tokens.len() / 16;
            let mut expected = Vec::new();
            for at in 2 * pairs..tokens.len() {
                let mut pair = 0;
                while pair < pairs && tokens[2 * pair] != tokens[at] {
                    pair += 1;
                }
                if pair < pairs {
                    assert_eq!(at % 2, 0, "queries are an even distance apart");
                    expected.push((at, usize::from(tokens[2 * pair + 1]) - 128));
                }
            }
            assert_eq!(expected.len(), pairs);
            assert_eq!(answers(split, row), expected);
            assert_eq!(usize::from(split.label(row)), expected.last().unwrap().1);
            let mut keys: Vec<u8> = (0..pairs).map(|pair| tokens[2 * pair]).collect();
            let mut values: Vec<u8> = (0..pairs).map(|pair| tokens[2 * pair + 1]).collect();
            for distinct in [&mut keys, &mut values] {
                distinct.sort_unstable();
                distinct.dedup();
                assert_eq!(distinct.len(), pairs);
            }
            assert!(keys.iter().all(|key| *key < 128) && values.iter().all(|it| *it > 127));
        }
    }
    let thirds = |rows: usize| BTreeMap::from([64, 128, 256].map(|length| (length, rows)));
    assert_eq!(lengths(&data.train), thirds(100));
    assert_eq!(lengths(&data.val), thirds(10));
    let quarters = [(64, 23), (128, 23), (256, 22), (512, 22)];
    assert_eq!(lengths(&data.test), BTreeMap::from(quarters));
    let dense = data.manifest.dense.as_ref().unwrap();
    assert_eq!(dense.groups[0], "length 64");
    assert_eq!(dense.groups[3], "length 512");
    let labels = data.dense_baselines().unwrap();
    let labels: Vec<u64> = labels.iter().map(|it| it.labels).collect();
    assert_eq!(labels, [23 * 4, 23 * 8, 22 * 16, 22 * 32]);
}

/// Short distances are more frequent than long ones, in inverse proportion.
#[test]
fn distances_of_queries_follow_a_power_law() {
    let options = [
        ("train", json!(4000)),
        ("min_length", json!(256)),
        ("tokens_per_pair", json!(256)),
    ];
    let (_root, data) = built(&MQAR, &options);
    let mut counts = [0; 3];
    for row in 0..data.train.len() {
        let place = (answers(&data.train, row)[0].0 - 2) / 2;
        match place {
            0 => counts[0] += 1,
            1..4 => counts[1] += 1,
            _ => counts[2] += 1,
        }
    }
    // 127 places: the harmonic number is 5.425; 1 to 3 have the weight 1/2 + 1/3 + 1/4.
    let expected = [1.0, 13.0 / 12.0].map(|weight| weight / 5.425 * 4000.0);
    // Standard deviation 25.
    for (count, expected) in counts.iter().zip(expected) {
        assert!((f64::from(*count) - expected).abs() < 125.0, "{counts:?}");
    }
}

#[test]
fn selective_copy_repeats_what_is_no_noise() {
    let options = [
        ("max_length", json!(1024)),
        ("tokens", json!(5)),
        ("train_length", json!(256)),
    ];
    for options in [&options[..], &[]] {
        let (_root, data) = built(&SELECTIVE_COPY, options);
        let tokens_of = |length: usize| {
            if options.is_empty() {
                16
            } else {
                length.min(5)
            }
        };
        for split in splits(&data) {
            let mut places = 0;
            for row in 0..split.len() {
                let tokens = split.tokens(0, row);
                let count = tokens_of(tokens.len());
                let (context, markers) = tokens.split_at(tokens.len() - count);
                assert!(markers.iter().all(|token| *token == 17));
                let mut expected = Vec::new();
                for (at, token) in context.iter().enumerate() {
                    if *token != 16 {
                        assert!(*token < 16);
                        expected.push((context.len() + expected.len(), usize::from(*token)));
                        places += at;
                    }
                }
                assert_eq!(expected.len(), count);
                assert_eq!(answers(split, row), expected);
                let middle = expected[(count - 1) / 2].1;
                assert_eq!(usize::from(split.label(row)), middle);
            }
            // Data tokens are spread evenly: on average they are in the middle.
            if options.is_empty() {
                let mean = places as f64 / (16 * split.len()) as f64;
                assert!((mean - 119.5).abs() < 20.0, "{mean}");
            }
        }
        let tested = if options.is_empty() {
            vec![256]
        } else {
            vec![256, 512, 1024]
        };
        assert_eq!(lengths(&data.train).into_keys().collect::<Vec<_>>(), [256]);
        assert_eq!(lengths(&data.test).into_keys().collect::<Vec<_>>(), tested);
        assert_eq!(data.manifest.dense.unwrap().groups.len(), tested.len());
    }
}

/// Returns all numbers of five different digits 0 to 4, in ascending order.
fn arrangements() -> Vec<Vec<usize>> {
    let digits = |number: usize| {
        (0..5)
            .rev()
            .map(|at| number / 5_usize.pow(at) % 5)
            .collect()
    };
    let all = (0..5_usize.pow(5)).map(digits);
    let different = |digits: &Vec<usize>| (0..5).all(|digit| digits.contains(&digit));
    all.filter(different).collect()
}

/// Returns whether an arrangement has an even number of cycles of even length.
fn is_even(arrangement: &[usize]) -> bool {
    let mut seen = [false; 5];
    let mut even_cycles = 0;
    for start in 0..5 {
        let (mut at, mut length) = (start, 0);
        while !seen[at] {
            seen[at] = true;
            at = arrangement[at];
            length += 1;
        }
        if length > 0 && length % 2 == 0 {
            even_cycles += 1;
        }
    }
    even_cycles % 2 == 0
}

/// Moves five things about: thing `i` is in place `p[i]` after the first move, and each next move
/// takes what is in place `j` to place `q[j]`.
#[test]
fn states_are_products_of_prefixes() {
    for group in ["parity", "z60", "a5", "s5"] {
        let (_root, data) = built(&STATE_TRACKING, &[("group", json!(group))]);
        let mut elements = arrangements();
        assert_eq!(elements.len(), 120);
        match group {
            "s5" => {}
            "a5" => elements.retain(|it| is_even(it)),
            _ => elements.clear(),
        }
        let mut seen = [false; 120];
        for split in splits(&data) {
            for row in 0..split.len() {
                let tokens = split.tokens(0, row);
                let actual = answers(split, row);
                assert_eq!(actual.len(), tokens.len());
                let mut things = [0, 1, 2, 3, 4];
                let mut sum = 0;
                for (at, token) in tokens.iter().map(|it| usize::from(*it)).enumerate() {
                    seen[token] = true;
                    let expected = match group {
                        "parity" | "z60" => {
                            sum += token;
                            sum % if group == "z60" { 60 } else { 2 }
                        }
                        _ => {
                            things = things.map(|place| elements[token][place]);
                            elements.iter().position(|it| *it == things).unwrap()
                        }
                    };
                    assert_eq!(actual[at], (at, expected), "{group}, row {row}");
                }
                assert_eq!(usize::from(split.label(row)), actual.last().unwrap().1);
            }
        }
        let dense = data.manifest.dense.as_ref().unwrap();
        let size = seen.iter().filter(|seen| **seen).count();
        assert_eq!(dense.classes, size);
        assert_eq!(
            STATE_TRACKING
                .shape(&data.manifest.options)
                .unwrap()
                .classes,
            size
        );
        let groups = [
            "length 1 to 32",
            "length 33 to 64",
            "length 65 to 128",
            "length 129 to 256",
        ];
        assert_eq!(dense.groups, groups);
        for row in 0..data.test.len() {
            for (position, _, group) in data.test.dense(row).unwrap().iter() {
                let expected = [32, 64, 128, 256].iter().position(|it| position < *it);
                assert_eq!(expected, Some(usize::from(group)));
            }
        }
        let [train, test] = [&data.train, &data.test].map(lengths);
        assert!(train.keys().all(|length| (1..=32).contains(length)) && train.len() > 20);
        assert!(test.keys().all(|length| (33..=256).contains(length)) && test.len() > 50);
    }
}

/// Words of few letters are used up, and none is used twice.
#[test]
fn no_row_of_a_probe_is_there_twice() {
    let options = [
        ("group", json!("parity")),
        ("train_length", json!(5)),
        ("train", json!(40)),
        ("val", json!(10)),
    ];
    // As many rows as there are words of six letters, of all splits together.
    let all = [
        ("group", json!("parity")),
        ("min_length", json!(6)),
        ("train_length", json!(6)),
        ("test_min_length", json!(6)),
        ("max_length", json!(6)),
        ("train", json!(40)),
        ("val", json!(4)),
        ("test", json!(20)),
    ];
    for options in [&options[..], &all, &[]] {
        let (_root, data) = built(&STATE_TRACKING, options);
        assert!(data.manifest.distinct);
        let mut seen = std::collections::HashSet::new();
        for split in splits(&data) {
            for row in 0..split.len() {
                assert!(seen.insert(split.tokens(0, row).to_vec()));
            }
        }
    }
}

#[test]
fn shortest_lengths_of_words_are_options() {
    let options = [("min_length", json!(20)), ("test_min_length", json!(10))];
    let (_root, data) = built(&STATE_TRACKING, &options);
    let least = |split: &Split| *lengths(split).keys().next().unwrap();
    // Of 300 words of 13 lengths, and of 90 of 247.
    assert_eq!((least(&data.train), least(&data.val) >= 20), (20, true));
    assert!((10..33).contains(&least(&data.test)));
    let most = |split: &Split| *lengths(split).keys().last().unwrap();
    assert_eq!(most(&data.train), 32);
    assert!(most(&data.test) > 240);
}

#[test]
fn needles_are_found_by_their_marker() {
    let options = [("train_length", json!(64)), ("max_length", json!(1024))];
    let (_root, data) = built(&NEEDLE, &options);
    for split in splits(&data) {
        for row in 0..split.len() {
            let tokens = split.tokens(0, row);
            let text: Vec<String> = tokens.iter().map(u8::to_string).collect();
            let text = format!(" {} ", text.join(" "));
            let (_, needle) = text.split_once(" 96 ").unwrap();
            let (_, asked) = text.rsplit_once(" 97 ").unwrap();
            let mut needle = needle.split(' ');
            assert_eq!(needle.next().unwrap(), asked.trim());
            let value: usize = needle.next().unwrap().parse().unwrap();
            assert_eq!(answers(split, row), [(tokens.len() - 1, value)]);
            assert_eq!(usize::from(split.label(row)), value);
            assert_eq!(tokens.iter().filter(|token| **token >= 96).count(), 2);
        }
    }
    let thirds = BTreeMap::from([64, 256, 1024].map(|length| (length, 30)));
    assert_eq!(lengths(&data.test), thirds);
    assert_eq!(lengths(&data.train), BTreeMap::from([(64, 300)]));
    let groups = data.manifest.dense.unwrap().groups;
    assert_eq!(groups, ["length 64", "length 256", "length 1024"]);
}

/// The group of an answer is the length of its row.
#[test]
fn groups_are_lengths() {
    let longer = [
        ("train_length", json!(64)),
        ("max_length", json!(300)),
        ("test", json!(12)),
    ];
    let tasks: [(&dyn Task, Vec<usize>); 3] = [
        (&MQAR, vec![64, 128, 256]),
        (&SELECTIVE_COPY, vec![64, 128, 256]),
        (&NEEDLE, vec![64, 256]),
    ];
    for (task, expected) in tasks {
        let (_root, data) = built(task, &longer);
        assert!(lengths(&data.test).into_keys().eq(expected));
        let groups = &data.manifest.dense.as_ref().unwrap().groups;
        for split in splits(&data) {
            for row in 0..split.len() {
                let name = format!("length {}", split.tokens(0, row).len());
                for (_, _, group) in split.dense(row).unwrap().iter() {
                    assert_eq!(groups[usize::from(group)], name);
                }
            }
        }
    }
}

/// Bytes of small sets: they must not change without a new version of the task.
#[test]
fn golden() {
    let digest = |task: &'static dyn Task| {
        let (_root, data) = built(task, &[]);
        format!("{} {}", task.info().name, &data.manifest.digest[..16])
    };
    insta::assert_snapshot!(PROBES.map(digest).join("\n"), @"
    mqar 3367f77ae1be5783
    selective_copy f40ef8f15f096028
    state_tracking f1c655df48c60ae5
    needle 9b0876201c93d8b1
    ");
}

/// Returns the label of data with these options.
fn label(task: &dyn Task, options: &[(&str, Value)]) -> String {
    let mut key = Key::default_of(task);
    for (name, value) in options {
        key.options[*name] = value.clone();
    }
    task.shape(&key.options).unwrap().label
}

#[test]
fn labels_tell_the_data() {
    assert_eq!(label(&MQAR, &[("max_length", json!(512))]), "mqar@512");
    for (name, value) in [
        ("train", 5),
        ("val", 5),
        ("test", 5),
        ("train_length", 128),
        ("min_length", 128),
        ("tokens_per_pair", 8),
    ] {
        assert_eq!(label(&MQAR, &[(name, json!(value))]), "mqar@256*", "{name}");
    }
    let s5 = ("group", json!("s5"));
    assert_eq!(
        label(&STATE_TRACKING, std::slice::from_ref(&s5)),
        "state_tracking@s5"
    );
    let options = [s5, ("max_length", json!(512)), ("dense", json!(false))];
    assert_eq!(
        label(&STATE_TRACKING, &options),
        "state_tracking@s5-512-whole"
    );
    let shape = NEEDLE.shape(&NEEDLE.defaults()).unwrap();
    assert_eq!((shape.train_length, shape.max_length), (1024, 16_384));
}

#[test]
fn impossible_options_are_refused_by_name() {
    for (task, name, value) in [
        (PROBES[0], "train_length", json!(512)),
        (PROBES[0], "tokens_per_pair", json!(3)),
        (PROBES[0], "min_length", json!(512)),
        (PROBES[0], "min_length", json!(15)),
        (PROBES[0], "max_length", json!(4096)),
        (PROBES[0], "max_length", json!(2064)),
        (PROBES[1], "tokens", json!(129)),
        (PROBES[2], "group", json!("a6")),
        (PROBES[2], "test_min_length", json!(257)),
        (PROBES[3], "train_length", json!(7)),
        (PROBES[3], "dense", json!(1)),
    ] {
        let key = key(task, &[(name, value.clone())]);
        let error = task.shape(&key.options).unwrap_err().to_string();
        let named = error.contains(name) || name == "tokens" && error.contains("max_length");
        assert!(named, "{name} = {value}: {error}");
    }
    // As many pairs as keys.
    let key_of_most = key(&MQAR, &[("max_length", json!(2063))]);
    assert!(MQAR.shape(&key_of_most.options).is_ok());
    // There are 62 words of up to five bits.
    let short = [("group", json!("parity")), ("train_length", json!(5))];
    let root = tempfile::tempdir().unwrap();
    let built = Store::new(root.path()).open_or_build(
        &STATE_TRACKING,
        &key(&STATE_TRACKING, &short),
        None,
        &(),
    );
    let error = built.unwrap_err();
    assert!(matches!(error, Error::Infeasible { .. }), "{error}");
    assert!(
        error.to_string().contains("too few different rows"),
        "{error}"
    );
}

/// Without labels at positions, the rows are the same.
#[test]
fn whole_rows_alone_can_be_labelled() {
    for task in PROBES {
        let (_one, dense) = built(task, &[]);
        let (root, whole) = built(task, &[("dense", json!(false))]);
        assert!(whole.manifest.dense.is_none() && whole.test.dense(0).is_none());
        assert!(
            whole.manifest.label.ends_with("-whole"),
            "{}",
            whole.manifest.label
        );
        for row in 0..dense.test.len() {
            assert_eq!(dense.test.tokens(0, row), whole.test.tokens(0, row));
            assert_eq!(dense.test.label(row), whole.test.label(row));
        }
        let key = key(task, &[("dense", json!(false))]);
        let verified = Store::new(root.path()).verify(task, &key, &()).unwrap();
        assert!(verified.passed(), "{verified}");
        assert!(
            verified
                .to_string()
                .contains("every label follows from the tokens")
        );
        assert!(task.info().probe);
    }
}

/// Changes one label of a position or of a row, and corrects the manifest's SHA-256.
#[test]
fn verification_computes_the_answers_again() {
    for task in PROBES {
        let key = key(task, &[]);
        let (root, data) = built(task, &[]);
        let folder = Store::new(root.path()).folder(task, &key);
        let all = data.test.all_dense().unwrap();
        let (position, target, _) = all.iter().next().unwrap();
        let (tokens, rows, label) = (all.targets.len(), data.test.len(), data.test.label(0));
        drop(data);
        let file = folder.join("test.safetensors");
        let manifest = folder.join("manifest.json");
        let whole = std::fs::read(&file).unwrap();
        let text = std::fs::read_to_string(&manifest).unwrap();
        // The labels of rows stand before those of positions: classes, then groups.
        for (from_end, right, told) in [
            (
                2 * tokens - position,
                target,
                "other answers at its positions",
            ),
            (2 * tokens + rows, label, "but its label is"),
        ] {
            let mut bytes = whole.clone();
            let at = bytes.len() - from_end;
            assert_eq!(bytes[at], right);
            bytes[at] = u8::from(right == 0);
            std::fs::write(&file, &bytes).unwrap();
            let [before, now] = [&whole, &bytes].map(|it| lra_datasets::Digest::of(it));
            std::fs::write(&manifest, text.replace(&before, &now)).unwrap();
            let verified = Store::new(root.path()).verify(task, &key, &()).unwrap();
            assert!(verified.to_string().contains(told), "{verified}");
        }
    }
}

/// Checks that no trivial rule comes near the answers.
#[test]
fn nothing_trivial_solves_a_probe() {
    for task in PROBES {
        let (_root, data) = built(task, &[("train", json!(3000)), ("test", json!(300))]);
        for baseline in Summary::of(task, &data).baselines {
            let (name, accuracy) = (&baseline.name, baseline.accuracy);
            assert!(accuracy < 0.35, "{}: {name} {accuracy}", task.info().name);
        }
        for group in data.dense_baselines().unwrap() {
            assert!(group.majority < 0.2, "{group:?}");
        }
    }
}

/// Answers each row of test again by the rule that stands beside the scores.
#[test]
fn rules_are_scored_on_the_rows_of_test() {
    type Rule = fn(&[u8]) -> usize;
    /// Returns the smallest of the most frequent tokens below a bound.
    fn frequent(tokens: &[u8], bound: u8) -> usize {
        let count = |one: u8| tokens.iter().filter(|token| **token == one).count();
        let most = (0..bound).map(count).max();
        (0..bound).position(|one| Some(count(one)) == most).unwrap()
    }
    let rules: [(&str, Rule); 4] = [
        ("first value", |tokens| usize::from(tokens[1]) - 128),
        ("most common data", |tokens| frequent(tokens, 16)),
        ("last token", |tokens| usize::from(*tokens.last().unwrap())),
        ("most common value", |tokens| frequent(tokens, 64)),
    ];
    for (task, (name, rule)) in PROBES.into_iter().zip(rules) {
        let (_root, data) = built(task, &[]);
        let rows = 0..data.test.len();
        let is_right =
            |row: &usize| rule(data.test.tokens(0, *row)) == usize::from(data.test.label(*row));
        let expected = rows.filter(is_right).count() as f64 / data.test.len() as f64;
        let baselines = task.baselines(&data);
        let found = baselines.iter().find(|it| it.name == name).unwrap();
        assert_eq!(found.accuracy, expected, "{name}");
    }
}

#[test]
fn drawn_for_people() {
    let text = MQAR.to_text(&[&[3, 200, 7, 129, 15, 140, 7, 0, 3]], 72);
    insta::assert_snapshot!(text, @"
    k3 v72 k7 v1 k15 v12 k7 k0 k3
    answer to the last query: v72
    ");
    let mut row = vec![16; 30];
    (row[2], row[9]) = (1, 5);
    row.extend([17; 2]);
    insta::assert_snapshot!(SELECTIVE_COPY.to_text(&[&row], 1), @"
    · · b (6) f (20) ? ?
    middle data token: b
    ");
    insta::assert_snapshot!(STATE_TRACKING.to_text(&[&[4, 59, 0]], 12), @"
    4 59 0
    product: 12
    ");
    let mut row = vec![20; 900];
    row[600..603].copy_from_slice(&[96, 70, 12]);
    row.extend([97, 70]);
    insta::assert_snapshot!(NEEDLE.to_text(&[&row], 12), @"
    (600) needle: k6 v12 (297) question: k6
    answer: v12
    ");
    let long = MQAR.to_text(&[&[1; 2000]], 0);
    assert!(long.contains("... 1600 left out ...") && long.lines().all(|it| it.len() <= 100));
}
