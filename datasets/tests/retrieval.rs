//! Pairs of the retrieval task: published files, and pairs made from a corpus.
#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::{BTreeSet, HashSet};

use crate::raw::{self, Built, Files, build};
use crate::shared;
use lra_datasets::tasks::Retrieval;
use lra_datasets::{Class, Key, Protocol, Source, SplitName, Splits, Store, Task};
use serde_json::json;

fn key(protocol: Protocol) -> Key {
    Key {
        protocol,
        ..Key::default_of(&Retrieval)
    }
}

/// Returns the three files in the published form.
fn pairs() -> Files {
    let file = |(name, rows): (&str, usize)| {
        let row = |row: usize| {
            format!(
                "{}.0\tP{row}\t{name}{row}\tb'It\\'s \\xc3\\xbc {row}'\tplain \"text\" {row}\n",
                row % 2
            )
        };
        let content: String = (0..rows).map(row).collect();
        (
            format!("lra_release/lra_release/tsv_data/new_aan_pairs.{name}.tsv"),
            content.into_bytes(),
        )
    };
    [("train", 12), ("eval", 4), ("test", 6)].map(file).to_vec()
}

#[test]
fn published_files_keep_their_splits_and_bytes() {
    let root = tempfile::tempdir().unwrap();
    let folder = raw::folder(&root.path().join("folder"), &pairs());
    let built = build(&Retrieval, &key(Protocol::Clean), &folder).unwrap();
    assert!(built.passed && built.manifest().partial, "{}", built.text);
    assert_eq!(built.rows(), [12, 4, 6]);
    let test = &built.splits.test;
    assert_eq!(
        (test.tokens(0, 5), test.tokens(1, 5)),
        (&br"b'It\'s \xc3\xbc 5'"[..], &b"plain \"text\" 5"[..])
    );
    assert_eq!(test.labels(), [0, 1, 0, 1, 0, 1]);
    let facts = built.manifest().facts.iter();
    let facts: Vec<String> = facts
        .map(|fact| format!("{}: {}", fact.name, fact.value))
        .collect();
    let expected = [
        "train: pairs: 12",
        "train: labels: 6 not linked, 6 linked",
        "val: pairs: 4",
        "val: labels: 2 not linked, 2 linked",
        "test: pairs: 6",
        "test: labels: 3 not linked, 3 linked",
    ];
    assert_eq!(facts, expected);
    let notes = built.manifest().notes.join("\n");
    assert!(
        notes.contains("12 pairs of train instead of 147086"),
        "{notes}"
    );
    assert!(
        notes.contains("6 of 12 papers of test also occur in train"),
        "{notes}"
    );

    let archive = raw::file(
        root.path(),
        "lra_release.gz",
        &raw::gzip(&raw::tar(&pairs())),
    );
    let other = build(&Retrieval, &key(Protocol::Clean), &archive).unwrap();
    assert_eq!(other.manifest().digest, built.manifest().digest);
}

/// Returns the three files with so many pairs, and texts by file and number of the pair.
fn pairs_with(rows: [usize; 3], text: impl Fn(&str, usize) -> String) -> Files {
    let file = |(name, rows): (&str, usize)| {
        let row = |row: usize| format!("{}.0\tA\tB\t{}\tb'other'\n", row % 2, text(name, row));
        let content: String = (0..rows).map(row).collect();
        (format!("new_aan_pairs.{name}.tsv"), content.into_bytes())
    };
    let names = ["train", "eval", "test"];
    names.into_iter().zip(rows).map(file).collect()
}

#[test]
fn pairs_whose_texts_are_missing_are_partial() {
    let root = tempfile::tempdir().unwrap();
    let published = [147_086, 18_090, 17_437];
    let with_empty = |name: &str, every: usize| {
        let files = pairs_with(published, |file, row| match row % every {
            0 => ["", "b''", "b\"\"", " ", r"b' \n'"][row / every % 5].to_owned(),
            _ => format!("b'{file} {row}'"),
        });
        let folder = raw::folder(&root.path().join(name), &files);
        build(&Retrieval, &key(Protocol::Clean), &folder).unwrap()
    };
    // A few empty texts among 294,172 are what a corpus may have.
    let whole = with_empty("whole", 10_000);
    let manifest = whole.manifest();
    assert!(!manifest.partial && whole.passed, "{}", whole.text);
    let note = "15 of 294172 texts of train without content";
    assert!(
        manifest.notes.iter().any(|it| it == note),
        "{:?}",
        manifest.notes
    );
    let part = with_empty("part", 30);
    assert!(part.manifest().partial, "{}", part.text);
    assert!(part.manifest().altered.is_empty(), "{}", part.text);
    // Without any text all pairs are alike, too.
    let none = with_empty("none", 1);
    assert!(none.manifest().partial && !none.passed, "{}", none.text);
}

#[test]
fn pairs_that_are_alike_are_altered() {
    let root = tempfile::tempdir().unwrap();
    let altered = |name: &str, text: fn(&str, usize) -> String| {
        let folder = raw::folder(&root.path().join(name), &pairs_with([60, 20, 20], text));
        let built = build(&Retrieval, &key(Protocol::Clean), &folder).unwrap();
        built.manifest().altered.join("; ")
    };
    assert_eq!(altered("others", |file, row| format!("{file} {row}")), "");
    assert_eq!(
        altered("copied", |file, row| format!("{} {row}", file == "eval")),
        "20 of 20 different pairs of test also occur in train, and few of the published ones do"
    );
    assert_eq!(
        altered("few", |file, row| format!("{file} {}", row % 15)),
        "only 15 of 60 pairs of train differ, and the published ones hardly repeat"
    );
}

/// No published split has examples of one class alone. A split of one example has no other way.
#[test]
fn splits_of_one_class_are_altered() {
    let mut files = pairs_with([4, 2, 1], |name, row| format!("b'{name} {row}'"));
    for (_, content) in &mut files {
        let text = String::from_utf8_lossy(content).replace("0.0\t", "1.0\t");
        *content = text.into_bytes();
    }
    let root = tempfile::tempdir().unwrap();
    let folder = raw::folder(root.path(), &files);
    let built = build(&Retrieval, &key(Protocol::Clean), &folder).unwrap();
    let expected = [
        "train: all of its 4 examples have the label 1",
        "val: all of its 2 examples have the label 1",
    ];
    assert_eq!(built.manifest().altered, expected);
    assert!(!built.passed);
}

#[test]
fn byte_order_marks_and_empty_lines_are_passed_over() {
    let root = tempfile::tempdir().unwrap();
    let plain = raw::folder(&root.path().join("plain"), &pairs());
    let mut files = pairs();
    for (_, content) in &mut files {
        content.splice(0..0, *b"\xef\xbb\xbf");
        content.extend(b"\r\n\n");
    }
    let edited = raw::folder(&root.path().join("edited"), &files);
    let [plain, edited] =
        [plain, edited].map(|raw| build(&Retrieval, &key(Protocol::Clean), &raw).unwrap());
    assert_eq!(plain.manifest().digest, edited.manifest().digest);
}

#[test]
fn literals_are_decoded_on_request() {
    let root = tempfile::tempdir().unwrap();
    let folder = raw::folder(root.path(), &pairs());
    let mut decoded = key(Protocol::Clean);
    decoded.options["decode"] = json!(true);
    let built = build(&Retrieval, &decoded, &folder).unwrap();
    assert_eq!(built.manifest().label, "retrieval@decoded");
    assert_eq!(built.splits.test.tokens(0, 5), "It's \u{fc} 5".as_bytes());
    assert_eq!(built.splits.test.tokens(1, 5), b"plain \"text\" 5");
    decoded.options["max_length"] = json!(16);
    assert_eq!(
        Retrieval.shape(&decoded.options).unwrap().label,
        "retrieval@16-decoded"
    );
}

#[test]
fn what_is_wrong_with_a_line_is_said() {
    let table: &[(&str, &[u8], &str)] = &[
        (
            "columns",
            b"1.0\ta\tb\ttext\n",
            ":2: 4 columns instead of 5",
        ),
        (
            "more columns",
            b"1.0\ta\tb\tt\tt\tt\n",
            ":2: 6 columns instead of 5",
        ),
        (
            "header",
            b"label\tid1\tid2\ttext1\ttext2\n",
            ":2: the label `label` is neither 0 nor 1",
        ),
        (
            "label",
            b"0.5\ta\tb\tt\tt\n",
            ":2: the label `0.5` is neither 0 nor 1",
        ),
        (
            "not a number",
            b"nan\ta\tb\tt\tt\n",
            ":2: the label `nan` is neither 0 nor 1",
        ),
        (
            "bytes",
            b"\xff\ta\tb\tt\tt\n",
            ":2: the label `\\xff` is neither 0 nor 1",
        ),
        ("id", b"1.0\t\tb\tt\tt\n", ":2: an id of 0 bytes"),
        ("blank", b" \n", ":2: 1 column instead of 5"),
        (
            "literal",
            b"1.0\ta\tb\tb'open\tt\n",
            ":2: a bytes literal without its closing quote",
        ),
    ];
    for (name, line, problem) in table {
        let root = tempfile::tempdir().unwrap();
        let mut files = pairs();
        let content = &mut files[1].1;
        let end = content.iter().position(|&byte| byte == b'\n').unwrap() + 1;
        content.splice(end..end, line.iter().copied());
        let folder = raw::folder(root.path(), &files);
        let mut decoded = key(Protocol::Clean);
        decoded.options["decode"] = json!(true);
        let error = build(&Retrieval, &decoded, &folder).expect_err(name);
        assert_eq!(error.class(), Class::Data, "{name}");
        let text = error.to_string();
        assert!(
            text.contains("new_aan_pairs.eval.tsv") && text.contains(problem),
            "{name}: {text}"
        );
    }
    // A file cut within its last text, which without decoding would be taken as it is.
    for start in [&b"1.0\ta\tb\tt\tb'cut sho"[..], b"1.0\ta\tb\tt\tb'it\\'"] {
        let root = tempfile::tempdir().unwrap();
        let mut files = pairs();
        files[1].1.extend_from_slice(start);
        let folder = raw::folder(root.path(), &files);
        let error = build(&Retrieval, &key(Protocol::Clean), &folder)
            .unwrap_err()
            .to_string();
        assert!(error.contains("the file ends within a text"), "{error}");
        assert!(error.contains("lra data fetch retrieval"), "{error}");
    }

    let root = tempfile::tempdir().unwrap();
    let folder = raw::folder(root.path(), &pairs()[..2].to_vec());
    let error = build(&Retrieval, &key(Protocol::Clean), &folder)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("no pairs of test: new_aan_pairs.test.tsv is missing"),
        "{error}"
    );
}

/// Returns sixty papers, of which each cites the next seven; one edge leads to an unknown paper, one
/// from a paper to itself, and one occurs twice.
fn corpus() -> Files {
    let papers: String = (0..60)
        .map(|i| format!("P{i:02}\tpaper number {i:02} {}\n", "x".repeat(i)))
        .collect();
    let mut edges = String::from("P00\tX99\t1\t0\nP00\tP01\t1\t0\nP05\tP05\n");
    for citing in 0..60 {
        for step in 1..=7 {
            edges.push_str(&format!(
                "P{citing:02}\tP{:02}\t1\t0\n",
                (citing + step) % 60
            ));
        }
    }
    vec![
        ("papers.tsv".into(), papers.into_bytes()),
        ("edges.tsv".into(), edges.into_bytes()),
    ]
}

/// Returns the papers of a split, distinguished by their texts.
fn papers(built: &Built, split_name: SplitName) -> HashSet<Vec<u8>> {
    let split = built.splits.get(split_name);
    let texts =
        (0..split.len()).flat_map(|row| [0, 1].map(|tower| split.tokens(tower, row).to_vec()));
    texts.collect()
}

#[test]
fn clean_pairs_share_no_paper_between_splits() {
    let root = tempfile::tempdir().unwrap();
    let folder = raw::folder(root.path(), &corpus());
    let built = build(&Retrieval, &key(Protocol::Clean), &folder).unwrap();
    assert!(built.passed && built.manifest().partial, "{}", built.text);
    let [train, val, test] = SplitName::ALL.map(|split_name| papers(&built, split_name));
    assert!(train.is_disjoint(&test) && train.is_disjoint(&val) && val.is_disjoint(&test));
    let notes = built.manifest().notes.join("\n");
    assert!(
        notes.contains("not the published pairs") && notes.contains("3 repeated or of papers"),
        "{notes}"
    );
    check_pairs(&built);
}

#[test]
fn published_protocol_deals_pairs_not_papers() {
    let root = tempfile::tempdir().unwrap();
    let folder = raw::folder(&root.path().join("folder"), &corpus());
    let built = build(&Retrieval, &key(Protocol::Tay2021), &folder).unwrap();
    let [train, val, test] = built.rows();
    assert_eq!(train + val + test, 840);
    // A tenth each, and five standard deviations.
    assert!(
        val.abs_diff(84) < 45 && test.abs_diff(84) < 45,
        "{val} {test}"
    );
    assert!(!papers(&built, SplitName::Train).is_disjoint(&papers(&built, SplitName::Test)));
    // The split depends on both papers: pairs of one first paper are in several.
    let firsts = |name: SplitName| -> BTreeSet<Vec<u8>> {
        let split = built.splits.get(name);
        let rows = 0..split.len();
        rows.map(|row| split.tokens(0, row).to_vec()).collect()
    };
    assert!(!firsts(SplitName::Train).is_disjoint(&firsts(SplitName::Test)));
    check_pairs(&built);
    // The order of lines does not matter, the seed does.
    let mut shuffled = corpus();
    for (_, content) in &mut shuffled {
        let mut lines: Vec<&[u8]> = content.split_inclusive(|&byte| byte == b'\n').collect();
        lines.reverse();
        *content = lines.concat();
    }
    let archive = raw::file(
        root.path(),
        "corpus.tar.zst",
        &raw::zstd(&raw::tar(&shuffled)),
    );
    let mut other = key(Protocol::Tay2021);
    assert_eq!(
        build(&Retrieval, &other, &archive)
            .unwrap()
            .manifest()
            .digest,
        built.manifest().digest
    );
    other.options["seed"] = json!(1);
    let other = build(&Retrieval, &other, &archive).unwrap();
    // Both the splits of the citations and the pairs without one are drawn.
    let linked = |built: &Built, split_name: SplitName| -> BTreeSet<[Vec<u8>; 2]> {
        let split = built.splits.get(split_name);
        let linked = (0..split.len()).filter(|row| split.label(*row) == 1);
        linked
            .map(|row| [0, 1].map(|tower| split.tokens(tower, row).to_vec()))
            .collect()
    };
    assert_ne!(
        linked(&built, SplitName::Test),
        linked(&other, SplitName::Test)
    );
    let unlinked = |built: &Built| -> BTreeSet<[Vec<u8>; 2]> {
        let of_split = |split_name: SplitName| {
            let split = built.splits.get(split_name);
            let unlinked = (0..split.len()).filter(|row| split.label(*row) == 0);
            unlinked.map(|row| [0, 1].map(|tower| split.tokens(tower, row).to_vec()))
        };
        SplitName::ALL.into_iter().flat_map(of_split).collect()
    };
    assert_ne!(unlinked(&built), unlinked(&other));
}

/// Checks that positive pairs are citations, that negative pairs are citations in neither
/// direction, and that no pair occurs twice.
fn check_pairs(built: &Built) {
    let number =
        |text: &[u8]| -> i64 { std::str::from_utf8(&text[13..15]).unwrap().parse().unwrap() };
    let mut seen = HashSet::new();
    let mut labels = [0; 2];
    for split_name in SplitName::ALL {
        let split = built.splits.get(split_name);
        for row in 0..split.len() {
            let (one, two) = (number(split.tokens(0, row)), number(split.tokens(1, row)));
            assert!(seen.insert((one, two)) && one != two);
            let step = (two - one).rem_euclid(60);
            match split.label(row) {
                1 => assert!((1..=7).contains(&step)),
                _ => assert!((8..=52).contains(&step)),
            }
            labels[usize::from(split.label(row))] += 1;
        }
    }
    assert_eq!(labels[0], labels[1]);
}

#[test]
fn options_of_the_stand_in_do_not_matter_to_published_pairs() {
    let store = Store::new(std::path::Path::new("nowhere"));
    let with = |protocol: Protocol, option: &str, value: serde_json::Value| {
        let mut key = key(protocol);
        key.options[option] = value;
        store.folder(&Retrieval, &key)
    };
    let folder = store.folder(&Retrieval, &key(Protocol::Clean));
    for split in ["train", "val", "test"] {
        assert_eq!(with(Protocol::Clean, split, json!(7)), folder);
    }
    // The seed is that of pairs made from a corpus.
    for (option, value) in [
        ("seed", json!(7)),
        ("max_length", json!(100)),
        ("decode", json!(true)),
    ] {
        assert_ne!(with(Protocol::Clean, option, value), folder, "{option}");
    }
    assert_ne!(with(Protocol::Tay2021, "seed", json!(0)), folder);
}

#[test]
fn a_wrong_corpus_is_refused() {
    type Harm = fn(&mut Files);
    let table: &[(&str, Harm, &str)] = &[
        (
            "paper",
            |files| files[0].1.extend(b"alone\n"),
            "papers.tsv:61: no tab between id and text",
        ),
        (
            "no text",
            |files| files[0].1.extend(b"P60\t\n"),
            "papers.tsv:61: an empty id or text",
        ),
        (
            "blank text",
            |files| files[0].1.extend(b"P60\tb' '\n"),
            "papers.tsv:61: an empty id or text",
        ),
        (
            "twice",
            |files| files[0].1.extend(b"P01\tagain\n"),
            "papers.tsv:61: a second paper of this id",
        ),
        (
            "edge",
            |files| files[1].1.extend(b"P01\n"),
            "edges.tsv:424: not two ids",
        ),
        (
            "header of edges",
            |files| files[1].1.splice(0..0, *b"citing\tcited\n").for_each(drop),
            "edges.tsv:1: a header, which this table has none of",
        ),
        (
            "few",
            |files| files[1].1.truncate(30),
            "too few for pairs of",
        ),
        (
            "no edges",
            |files| drop(files.pop()),
            "too few for pairs of",
        ),
    ];
    for (name, harm, problem) in table {
        let root = tempfile::tempdir().unwrap();
        let mut files = corpus();
        harm(&mut files);
        let folder = raw::folder(root.path(), &files);
        let error = build(&Retrieval, &key(Protocol::Clean), &folder).expect_err(name);
        assert_eq!(error.class(), Class::Data, "{name}");
        assert!(error.to_string().contains(problem), "{name}: {error}");
    }
}

#[test]
fn real_papers() {
    if let Some(sample) = shared::find("aan/aan_pairs_sample.tar.zst") {
        let built = build(&Retrieval, &key(Protocol::Clean), &sample).unwrap();
        assert!(built.passed && built.manifest().partial, "{}", built.text);
        assert_eq!(built.rows(), [300, 60, 60]);
        assert!(built.splits.train.tokens(0, 0).starts_with(b"b'"));
    }
    if let Some(corpus) = shared::find("aan/aan_subset_corpus.tar.zst") {
        let built = build(&Retrieval, &key(Protocol::Clean), &corpus).unwrap();
        assert!(built.passed && built.manifest().partial, "{}", built.text);
        assert_eq!(built.rows(), [7_500, 672, 1_064]);
        let [train, test] =
            [SplitName::Train, SplitName::Test].map(|split_name| papers(&built, split_name));
        assert!(train.is_disjoint(&test));
    }
}

/// Builds the stand-in of these topics with a few hundred rows.
fn drawn(topics: &str) -> (tempfile::TempDir, Key, Splits) {
    let root = tempfile::tempdir().unwrap();
    let mut key = Key::default_of(&Retrieval);
    key.source = Source::Synthetic;
    let sizes = [
        ("train", 800),
        ("val", 20),
        ("test", 400),
        ("max_length", 256),
    ];
    for (name, size) in sizes {
        key.options[name] = json!(size);
    }
    key.options["topics"] = json!(topics);
    let splits = Store::new(root.path()).open_or_build(&Retrieval, &key, None, &());
    (root, key, splits.unwrap())
}

/// Returns the words in the order of the text, the last of them cut.
fn words(text: &[u8]) -> Vec<&[u8]> {
    text.split(|byte| *byte == b' ').collect()
}

#[test]
fn no_trivial_predictor_tells_topics_that_are_anagrams() {
    let (root, key, splits) = drawn("anagrams");
    let verified = Store::new(root.path()).verify(&Retrieval, &key, &());
    assert!(verified.unwrap().passed());
    let manifest = &splits.manifest;
    assert_eq!(manifest.label, "retrieval@256-anagrams");
    assert!(manifest.notes[0].contains("stand-in"), "{manifest:?}");
    let baselines = Retrieval.baselines(&splits);
    let names: Vec<&str> = baselines.iter().map(|it| it.name.as_str()).collect();
    assert_eq!(names, ["majority", "bag of tokens", "compared bags"]);
    for baseline in baselines {
        // Four standard errors of 400 rows.
        assert!((baseline.accuracy - 0.5).abs() < 0.1, "{baseline:?}");
    }
    // Where topics have names, the same comparison succeeds.
    let (_root, _, splits) = drawn("names");
    let compared = Retrieval.baselines(&splits).pop().unwrap();
    assert!(compared.accuracy > 0.7, "{compared:?}");
}

#[test]
fn words_tell_whether_two_texts_share_a_topic() {
    let (_root, _, splits) = drawn("anagrams");
    let train = &splits.train;
    let mut lexicon = HashSet::new();
    let mut right = 0;
    for row in 0..train.len() {
        let texts = [0, 1].map(|tower| words(train.tokens(tower, row)));
        for text in &texts {
            // Whole rounds have the same letters in every text.
            let letters = |words: &[&[u8]]| {
                let mut letters = words.concat();
                letters.sort_unstable();
                letters
            };
            assert_eq!(letters(&text[..8]), letters(&text[8..16]));
            lexicon.extend(text[..40].iter().map(|word| word.to_vec()));
        }
        // Two texts of one topic share more words than two of different ones.
        let count = |text: &[&[u8]], word: &[u8]| text.iter().filter(|it| **it == word).count();
        let [one, other] = &texts;
        let shared: usize = one[..40].iter().map(|word| count(&other[..40], word)).sum();
        right += usize::from((shared > 58) == (train.label(row) == 1));
    }
    assert_eq!(lexicon.len(), 4 * 8);
    assert!(right * 100 > train.len() * 95, "{right} of {}", train.len());
}

/// A text has one name alone, one word in eight, and both have the same one where they are linked.
#[test]
fn names_are_those_of_one_topic() {
    let (_root, _, splits) = drawn("names");
    let train = &splits.train;
    let (mut all, mut named, mut whole) = (0, 0, 0);
    for row in 0..train.len() {
        let topics = [0, 1].map(|tower| {
            let text = train.tokens(tower, row);
            let words = words(text);
            let (_, words) = words.split_last().unwrap();
            let is_name = |word: &&&[u8]| word[0].is_ascii_uppercase();
            let names: Vec<&[u8]> = words.iter().filter(is_name).copied().collect();
            assert!(names.iter().all(|name| *name == names[0]), "row {row}");
            all += words.len();
            named += names.len();
            whole += usize::from(text.len() == 256);
            assert!((128..=256).contains(&text.len()));
            names.first().copied()
        });
        if let [Some(one), Some(other)] = topics {
            assert_eq!(one == other, train.label(row) == 1, "row {row}");
        }
    }
    // 68,000 words, and 1,600 texts of which half have the greatest length: four standard errors.
    let (named, whole) = (named as f64 / all as f64, whole as f64 / 1600.0);
    assert!((named - 0.125).abs() < 0.006, "{named}");
    assert!((whole - 0.5).abs() < 0.05, "{whole}");
}

#[test]
fn published_pairs_have_no_topics() {
    let root = tempfile::tempdir().unwrap();
    let folder = raw::folder(&root.path().join("folder"), &pairs());
    let mut key = key(Protocol::Clean);
    key.options["topics"] = json!("anagrams");
    let store = Store::new(root.path());
    let error = store.open_or_build(&Retrieval, &key, Some(&folder), &());
    let error = error.unwrap_err().to_string();
    assert!(error.contains("retrieval:synthetic"), "{error}");
    key.options["topics"] = json!("themes");
    let error = Retrieval.shape(&key.options).unwrap_err().to_string();
    assert!(error.contains("topics"), "{error}");
}

#[test]
fn a_word_that_is_no_value_is_answered_with_the_values() {
    let mut options = Retrieval.defaults();
    options["topics"] = json!("colours");
    let error = Retrieval.shape(&options).unwrap_err();
    assert_eq!(error.class(), Class::Usage);
    assert_eq!(
        error.to_string(),
        "retrieval: data.topics = \"colours\" is none of its values: names, anagrams"
    );
}
