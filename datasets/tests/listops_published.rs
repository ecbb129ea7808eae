//! Reader of the published ListOps files: every accepted form, every refusal, mutated bytes, and
//! real data.
#![allow(missing_docs, clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use crate::shared;
use lra_datasets::tasks::ListOps;
use lra_datasets::tasks::listops::{TOKENS, evaluate, evaluate_text, tokenizer};
use lra_datasets::{Class, Key, Result, Source, SplitName, Splits, Store, Task};
use proptest::prelude::*;
use serde_json::json;

const GOOD: &str = "Source\tTarget\n[MAX 2 3 ]\t3\n";

fn official() -> Key {
    Key {
        source: Source::Official,
        ..Key::default_of(&ListOps)
    }
}

/// Reads a raw folder with these three files.
fn read(train: &[u8], val: &[u8], test: &[u8]) -> Result<Splits> {
    let root = tempfile::tempdir().unwrap();
    let raw = root.path().join("raw/listops");
    fs::create_dir_all(&raw).unwrap();
    for (name, bytes) in [("train", train), ("val", val), ("test", test)] {
        fs::write(raw.join(format!("basic_{name}.tsv")), bytes).unwrap();
    }
    Store::new(root.path()).open_or_build(&ListOps, &official(), None, &())
}

/// Writes the three files with these rows of train.
fn write_raw(raw: &Path, train: &str) {
    fs::create_dir_all(raw).unwrap();
    for (name, text) in [("train", train), ("val", GOOD), ("test", GOOD)] {
        fs::write(raw.join(format!("basic_{name}.tsv")), text).unwrap();
    }
}

#[test]
fn data_of_other_raw_files_than_those_that_are_raw_now_are_told() {
    let root = tempfile::tempdir().unwrap();
    let store = Store::new(root.path());
    let [one, other] = ["one", "other"].map(|name| root.path().join(name));
    write_raw(&one, GOOD);
    write_raw(&other, &format!("{GOOD}[MIN 2 3 ]\t2\n"));
    let mut shorter = ListOps.defaults();
    shorter["max_length"] = json!(1500);
    let shorter = Key {
        options: shorter,
        ..official()
    };
    let keys = [official(), shorter];
    let told = || {
        let now = store.raw_files(&ListOps).unwrap();
        let found = keys.each_ref();
        found.map(|key| {
            store
                .other_raw_files(&ListOps, key, Some(&now))
                .map(|it| it.to_string())
        })
    };
    for key in &keys {
        store.open_or_build(&ListOps, key, Some(&one), &()).unwrap();
    }
    assert_eq!(told(), [None, None]);
    store
        .rebuild(&ListOps, &keys[0], Some(&other), &())
        .unwrap();
    let [replaced, kept] = told();
    assert_eq!(replaced, None);
    let kept = kept.unwrap();
    let [one, other] = [one, other].map(|path| path.canonicalize().unwrap());
    for words in [
        format!("from the raw files in {}", one.display()),
        format!("now those in {} are", other.display()),
        format!("--from {}` compares the examples", other.display()),
    ] {
        assert!(kept.contains(&words), "{kept}");
    }
    // Files of other bytes in the same place, and data that is drawn.
    write_raw(&other, &format!("{GOOD}[MIN 2 3 4 ]\t2\n"));
    let [replaced, _] = told();
    let words = format!("before the raw files in {} changed", other.display());
    assert!(replaced.unwrap().contains(&words));
    let drawn = Key::default_of(&ListOps);
    let now = store.raw_files(&ListOps).unwrap();
    assert_eq!(store.other_raw_files(&ListOps, &drawn, Some(&now)), None);
    // A build with the files that are raw now settles it.
    for key in &keys {
        store.rebuild(&ListOps, key, None, &()).unwrap();
    }
    assert_eq!(told(), [None, None]);
}

/// Files that were moved are noted at their new place although the data are there already.
#[test]
fn the_place_of_moved_files_is_noted() {
    let root = tempfile::tempdir().unwrap();
    let store = Store::new(&root.path().join("data"));
    // White space at the end of a name is a part of it.
    let [one, other] = ["one", "other "].map(|name| root.path().join(name));
    write_raw(&one, GOOD);
    store
        .open_or_build(&ListOps, &official(), Some(&one), &())
        .unwrap();
    fs::rename(&one, &other).unwrap();
    assert_eq!(store.found(&ListOps), None);
    store
        .open_or_build(&ListOps, &official(), Some(&other), &())
        .unwrap();
    assert_eq!(store.found(&ListOps), Some(other.canonicalize().unwrap()));
    let mut shorter = official();
    shorter.options["max_length"] = json!(1500);
    store.open_or_build(&ListOps, &shorter, None, &()).unwrap();
}

#[test]
fn accepted_forms() {
    let train = "Source\tTarget\r\n( ( ( [MAX 2 ) 3 ) ] )\t3\r\n[SM 9 9 X\t8\r\n\"( ( [MIN 4 ) X )\"\t4\r\n";
    let val = "\u{feff}Target\tNote\tSource\n7\tlone digit\t7\n\n";
    let test = "source\tTARGET\n[MED 2 5 ]\t3.0";
    let splits = read(train.as_bytes(), val.as_bytes(), test.as_bytes()).unwrap();
    assert_eq!(
        (splits.train.tokens(0, 0), splits.train.label(0)),
        (&[11, 2, 3, 14][..], 3)
    );
    assert_eq!(
        (splits.train.tokens(0, 1), splits.train.label(1)),
        (&[13, 9, 9, 14][..], 8)
    );
    assert_eq!(
        (splits.train.tokens(0, 2), splits.train.label(2)),
        (&[10, 4, 14][..], 4)
    );
    assert_eq!(
        (splits.val.tokens(0, 0), splits.val.label(0)),
        (&[7][..], 7)
    );
    assert_eq!(
        (splits.test.tokens(0, 0), splits.test.label(0)),
        (&[12, 2, 5, 14][..], 3)
    );
    assert_eq!(splits.manifest.label, "listops");
    assert!(splits.manifest.partial);
    assert_eq!(
        splits.manifest.notes[0],
        "basic_train.tsv has 3 examples, the published file 96000"
    );
}

/// As many examples as were published are no part of them, and one more is not the published file.
#[test]
fn files_of_the_published_sizes_are_whole() {
    let file = |rows: usize| format!("Source\tTarget\n{}", "7\t7\n".repeat(rows));
    let built = |rows: [usize; 3]| {
        let [train, val, test] = rows.map(file);
        let read = read(train.as_bytes(), val.as_bytes(), test.as_bytes());
        read.unwrap().manifest
    };
    let whole = built([96_000, 2000, 2000]);
    assert!(!whole.partial, "{:?}", whole.notes);
    let sizes = |altered: &[String]| {
        let of_sizes = altered
            .iter()
            .filter(|how| how.contains("that were published"));
        of_sizes.cloned().collect::<Vec<_>>()
    };
    assert!(sizes(&whole.altered).is_empty(), "{:?}", whole.altered);
    let more = sizes(&built([1, 1, 2001]).altered);
    assert_eq!(
        more,
        ["basic_test.tsv has 2001 examples, more than the 2000 that were published"]
    );
}

#[test]
fn repeats_are_reported_not_refused() {
    let splits = read(
        format!("{GOOD}[MAX 2 3 ]\t3\n").as_bytes(),
        GOOD.as_bytes(),
        b"Source\tTarget\n1\t1\n",
    )
    .unwrap();
    assert_eq!(
        splits.manifest.notes.last().unwrap(),
        "1 row repeated within a split, 1 in more than one split"
    );
}

#[test]
fn expressions_that_cannot_be_published_ones_are_altered() {
    // As many as anything is concluded from, and none of them of a published length.
    let lines = |count: usize, of: usize| {
        let line = |row: usize| {
            let (tens, ones) = (row % of / 10, row % of % 10);
            format!("[MAX {tens} {ones} ]\t{}\n", tens.max(ones))
        };
        let lines: String = (0..count).map(line).collect();
        format!("Source\tTarget\n{lines}")
    };
    let altered = |train: &str, test: &str| {
        let splits = read(train.as_bytes(), GOOD.as_bytes(), test.as_bytes()).unwrap();
        splits.manifest.altered
    };
    assert_eq!(altered(&lines(19, 2), GOOD), Vec::<String>::new());
    assert_eq!(
        altered(&lines(40, 10), &lines(20, 20)),
        [
            "40 of 40 expressions of train have 500 tokens or fewer, and the published ones have more",
            "20 of 20 expressions of test have 500 tokens or fewer, and the published ones have more",
            "only 10 of 40 expressions of train differ, and the published ones hardly repeat",
        ]
    );
    let within = altered(&lines(60, 60), &lines(20, 20)).pop().unwrap();
    assert_eq!(
        within,
        "20 of 20 different expressions of test also occur in train, and few of the published ones do"
    );

    // Short expressions under a short limit are the user's own, but not equal ones.
    let root = tempfile::tempdir().unwrap();
    let own = root.path().join("own");
    let mut key = official();
    key.options["max_length"] = json!(256);
    key.options["min_length"] = json!(0);
    write_raw(&own, &lines(30, 30));
    let store = Store::new(root.path());
    let built = store
        .open_or_build(&ListOps, &key, Some(&own), &())
        .unwrap();
    assert_eq!(built.manifest.altered, Vec::<String>::new());
    write_raw(&own, &lines(30, 2));
    store.rebuild(&ListOps, &key, Some(&own), &()).unwrap();
    let built = store.open_or_build(&ListOps, &key, None, &()).unwrap();
    let verified = store.verify(&ListOps, &key, &()).unwrap();
    assert!(!verified.passed());
    assert!(built.manifest.altered[0].starts_with("only 2 of 30"));
}

#[test]
fn repeats_are_counted_alike_when_made_and_when_verified() {
    let root = tempfile::tempdir().unwrap();
    let own = root.path().join("own");
    write_raw(&own, &format!("{GOOD}[MAX 2 3 ]\t3\n1\t1\n"));
    let store = Store::new(root.path());
    let built = store
        .open_or_build(&ListOps, &official(), Some(&own), &())
        .unwrap();
    let verified = store.verify(&ListOps, &official(), &()).unwrap();
    let words = "1 row repeated within a split, 1 in more than one split";
    assert_eq!(built.manifest.notes.last().unwrap(), words);
    assert!(verified.to_string().contains(words), "{verified}");
    // No fact has the number of rows, but the data is known to be a part.
    assert!(built.manifest.partial);
    let part = "a part of the published data: unproved";
    assert!(verified.to_string().contains(part), "{verified}");
    assert!(
        verified.to_string().contains("the published file 96000"),
        "{verified}"
    );
}

#[test]
fn refusals_name_file_and_line() {
    let long = format!("Source\tTarget\n[MAX {} ]\t1\n", "1 ".repeat(2000));
    let endless = format!("Source\tTarget\n{}\t1\n", "( ".repeat(1_000_000));
    let deep = format!("Source\tTarget\n{} 1\t1\n", "[MAX ".repeat(1999));
    let table: &[(&str, &str, u64, &str)] = &[
        (
            "wrong answer",
            "Source\tTarget\n[MAX 2 3 ]\t3\n[MAX 2 3 ]\t2\n",
            3,
            "the expression is 3, but the answer given is 2",
        ),
        (
            "missing column",
            "Source\tTarget\n[MAX 2 3 ]\n",
            2,
            "the column Target is missing",
        ),
        (
            "spaces for tabs",
            "Source\tTarget\n[MAX 2 3 ] 3\n",
            2,
            "the column Target is missing",
        ),
        ("no header", "[MAX 2 3 ]\t3\n", 1, "has no column Source"),
        (
            "other header",
            "Source\tLabel\n[MAX 2 3 ]\t3\n",
            1,
            "has no column Target",
        ),
        ("empty file", "", 1, "the file is empty"),
        (
            "label too large",
            "Source\tTarget\n[MAX 2 3 ]\t10\n",
            2,
            "the answer 10 is not 0 to 9",
        ),
        (
            "label negative",
            "Source\tTarget\n[MAX 2 3 ]\t-1\n",
            2,
            "the answer -1 is not 0 to 9",
        ),
        (
            "label not a number",
            "Source\tTarget\n[MAX 2 3 ]\tthree\n",
            2,
            "the answer `three` is not a whole number",
        ),
        (
            "unknown token",
            "Source\tTarget\n[FIRST 2 3 ]\t2\n",
            2,
            "unknown token `[FIRST`",
        ),
        (
            "the name of a reserved id",
            "Source\tTarget\n[PAD]\t2\n",
            2,
            "unknown token `[PAD]`",
        ),
        (
            "not closed",
            "Source\tTarget\n[MAX 2 3\t3\n",
            2,
            "1 brackets are not closed",
        ),
        (
            "no expression",
            "Source\tTarget\n\t3\n",
            2,
            "there is no expression",
        ),
        (
            "two expressions",
            "Source\tTarget\n2 3\t3\n",
            2,
            "is over before token 1",
        ),
        (
            "too many tokens",
            &long,
            2,
            "more than max_length = 2000 tokens",
        ),
        ("over-long line", &endless, 2, "the line is longer than"),
        ("deeply nested", &deep, 2, "1999 brackets are not closed"),
    ];
    for (name, text, line, problem) in table {
        let error = read(GOOD.as_bytes(), text.as_bytes(), GOOD.as_bytes()).expect_err(name);
        assert_eq!(error.class(), Class::Data, "{name}");
        let message = error.to_string();
        assert!(
            message.contains(&format!("basic_val.tsv:{line}: ")),
            "{name}: {message}"
        );
        assert!(message.contains(problem), "{name}: {message}");
        assert!(message.len() < 500, "{name}: {} bytes", message.len());
    }
    let error = read(GOOD.as_bytes(), b"Source\tTarget\n", GOOD.as_bytes()).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("basic_val.tsv: it has no examples\n"),
        "{error}"
    );
    let error = read(
        GOOD.as_bytes(),
        b"Source\tTarget\n\xff\xfe\t1\n",
        GOOD.as_bytes(),
    )
    .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("basic_val.tsv:2: not text in UTF-8\n"),
        "{error}"
    );
}

#[test]
fn missing_files_say_where_and_how() {
    let root = tempfile::tempdir().unwrap();
    let store = Store::new(root.path());
    let error = store
        .open_or_build(&ListOps, &official(), None, &())
        .unwrap_err();
    assert_eq!(error.class(), Class::Data);
    let text = error.to_string();
    assert!(
        text.contains(root.path().join("raw/listops").to_str().unwrap()),
        "{text}"
    );
    assert!(
        text.contains("lra data make listops --from") && text.contains("--source generated"),
        "{text}"
    );

    // Two of three files, at their place in the archive: the third is reported as missing.
    let nested = root
        .path()
        .join("elsewhere/lra_release/lra_release/listops-1000");
    fs::create_dir_all(&nested).unwrap();
    for name in ["train", "val"] {
        fs::write(nested.join(format!("basic_{name}.tsv")), GOOD).unwrap();
    }
    let from = root.path().join("elsewhere");
    let text = store
        .open_or_build(&ListOps, &official(), Some(&from), &())
        .unwrap_err()
        .to_string();
    assert!(
        text.contains(nested.join("basic_test.tsv").to_str().unwrap()),
        "{text}"
    );
    fs::write(nested.join("basic_test.tsv"), GOOD).unwrap();
    store
        .open_or_build(&ListOps, &official(), Some(&from), &())
        .unwrap();
}

#[test]
fn generator_options_do_not_apply_to_published_files() {
    let store = Store::new(Path::new("nowhere"));
    let with = |option: &str, value| {
        let mut key = official();
        key.options[option] = json!(value);
        store.folder(&ListOps, &key)
    };
    assert_eq!(with("seed", 5), with("train", 7));
    assert_ne!(with("seed", 5), with("max_length", 3000));
    let mut dense = official();
    dense.options["dense"] = json!(true);
    assert_ne!(store.folder(&ListOps, &dense), with("seed", 5));
    // The options for short expressions may be used with published files; an expression that does
    // not fit is refused by line.
    let mut short = official();
    short.options["max_length"] = json!(256);
    short.options["min_length"] = json!(64);
    assert!(ListOps.shape(&ListOps.identity(&short).options).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]
    /// Bytes changed, cut and repeated at random give rows or an error about the data.
    #[test]
    fn mutated_files_are_read_or_refused(
        changes in prop::collection::vec((0_usize..200, any::<u8>()), 0..6),
        cut in 0_usize..200,
        repeat in 0_usize..3,
    ) {
        let mut bytes = b"Source\tTarget\r\n( ( ( [MAX 2 ) 3 ) ] )\t3\r\n[SM 9 [MIN 4 5 ] X\t3\r\n7\t7\r\n".to_vec();
        for (place, value) in changes {
            let place = place % bytes.len();
            bytes[place] = value;
        }
        bytes.truncate(bytes.len().saturating_sub(cut % 40));
        let bytes = bytes.repeat(1 + repeat);
        match read(&bytes, GOOD.as_bytes(), GOOD.as_bytes()) {
            Ok(splits) => for row in 0..splits.train.len() {
                prop_assert_eq!(evaluate(splits.train.tokens(0, row)), Ok(splits.train.label(row)));
            },
            Err(error) => prop_assert_eq!(error.class(), Class::Data, "{}", error),
        }
    }

    /// The fast look-up and the tokenizer itself give the same ids.
    #[test]
    fn reader_and_tokenizer_agree(digits in prop::collection::vec(0_usize..10, 1..30), operator in 10_usize..14, parentheses: bool) {
        let words: Vec<_> = digits.iter().map(|&digit| TOKENS[digit]).collect();
        let mut text = format!("{} {} X", TOKENS[operator], words.join(" "));
        if parentheses {
            text = text.split(' ').map(|word| format!("( {word} )")).collect::<Vec<_>>().join(" ");
        }
        let encoding = tokenizer().unwrap().encode(text.as_str(), false).unwrap();
        let stored: Vec<u8> = encoding.get_ids().iter().map(|&id| id as u8 - 1).collect();
        let file = format!("Source\tTarget\n{text}\t{}\n", evaluate(&stored).unwrap());
        let splits = read(file.as_bytes(), GOOD.as_bytes(), GOOD.as_bytes()).unwrap();
        prop_assert_eq!(splits.train.tokens(0, 0), &stored[..]);
    }
}

/// 3,600 rows drawn by the published code, answers included, through the whole reader.
#[test]
fn rows_of_the_published_generator() {
    let Some(files) = shared::unpack("listops/listops_official_code_small.tar.zst") else {
        return;
    };
    let file = |name: &str| {
        &files
            .iter()
            .find(|(path, _)| path.ends_with(name))
            .unwrap()
            .1[..]
    };
    let (train, val) = (file("basic_train.tsv"), file("basic_val.tsv"));
    let splits = read(train, val, val).unwrap();
    assert_eq!([splits.train.len(), splits.val.len()], [3000, 600]);
    for split_name in [SplitName::Train, SplitName::Val] {
        let split = splits.get(split_name);
        assert!((0..split.len()).all(|row| (501..=1999).contains(&split.tokens(0, row).len())));
    }
    // Validation stands in for the missing test file, so each of its rows occurs twice.
    assert_eq!(
        splits.manifest.notes.last().unwrap(),
        "0 rows repeated within a split, 600 in more than one split"
    );
}

/// 30,000 rows of the original data of 2018: answer, tab, expression, no header. It uses FIRST and
/// LAST as well.
#[test]
fn answers_of_the_original_data() {
    let Some(files) = shared::unpack("listops/listops_nyu_original_tests.tar.zst") else {
        return;
    };
    assert_eq!(files.len(), 3);
    for (name, bytes) in files {
        let text = String::from_utf8(bytes).unwrap();
        assert_eq!(text.lines().count(), 10_000, "{name}");
        for line in text.lines() {
            let (answer, expression) = line.split_once('\t').unwrap();
            assert_eq!(
                evaluate_text(expression).unwrap().to_string(),
                answer,
                "{name}: {line}"
            );
        }
    }
}

/// The longest and the shortest length are counted to the token.
#[test]
fn limits_of_length_are_exact() {
    let line = |tokens: usize, last: usize| {
        let zeros = "0 ".repeat(tokens - 3);
        format!("[MAX {zeros}{last} ]\t{last}\n")
    };
    let train = |lines: String| {
        let text = format!("Source\tTarget\n{lines}");
        read(text.as_bytes(), GOOD.as_bytes(), GOOD.as_bytes())
    };
    assert!(train(line(2000, 3)).is_ok());
    assert!(train(line(2001, 3)).is_err());
    let short: String = (0..20).map(|row| line(500, row % 10)).collect();
    let altered = train(short).unwrap().manifest.altered;
    let told = |it: &String| it.starts_with("20 of 20 expressions of train have 500");
    assert!(altered.iter().any(told), "{altered:?}");
}
