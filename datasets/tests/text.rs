//! Reviews of the text task, in all of their forms.
#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::HashSet;
use std::path::Path;

use crate::raw::{self, Files, build};
use crate::shared;
use ::parquet::file::metadata::KeyValue;
use ::parquet::file::properties::WriterProperties;
use lra_datasets::tasks::Text;
use lra_datasets::{Class, Key, Protocol, Source, SplitName, Store, Task};
use serde_json::json;

/// Returns reviews in the published layout, with everything around them that is to be skipped.
/// Twelve texts of train occur in test.
fn reviews() -> Files {
    let mut files: Files = vec![
        ("aclImdb/README".into(), b"about".to_vec()),
        ("aclImdb/train/unsup/0_0.txt".into(), b"no label".to_vec()),
        ("aclImdb/train/labeledBow.feat".into(), b"1:2".to_vec()),
        ("aclImdb/train/pos/.DS_Store".into(), b"noise".to_vec()),
    ];
    for split in ["train", "test"] {
        for (class, rating) in [("neg", 3), ("pos", 9)] {
            for number in 0..60 {
                let text = match number {
                    0..6 => format!("said twice, {class} {number}"),
                    6 => format!("{split} {class} {}", "gr\u{fc}\u{df} <br /> ".repeat(80)),
                    _ => format!("{split} {class} {number}"),
                };
                let name = format!("aclImdb/{split}/{class}/{number}_{rating}.txt");
                files.push((name, text.into_bytes()));
            }
        }
    }
    files
}

fn official(protocol: Protocol) -> Key {
    Key {
        protocol,
        ..Key::default_of(&Text)
    }
}

const SCHEMA: &str = "message m { optional binary text (STRING); optional int64 label; }";

/// Writes the same reviews as parquet files in a folder.
fn parquet_folder(root: &Path, compression: ::parquet::basic::Compression) {
    for split in ["train", "test"] {
        let mut rows: Vec<(&[u8], i64)> = Vec::new();
        let files = reviews();
        for (class, label) in [("neg", 0), ("pos", 1)] {
            let below = format!("aclImdb/{split}/{class}/");
            let texts = files
                .iter()
                .filter(|(name, _)| name.starts_with(&below) && name.ends_with(".txt"));
            rows.extend(texts.map(|(_, text)| (&text[..], label)));
        }
        let path = root.join(format!("plain_text/{split}-00000-of-00001.parquet"));
        raw::parquet(&path, SCHEMA, &rows, compression);
    }
    let unlabelled = root.join("plain_text/unsupervised-00000-of-00001.parquet");
    raw::parquet(&unlabelled, SCHEMA, &[(b"none", -1)], compression);
}

#[test]
fn every_form_gives_the_same_bytes() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let files = reviews();
    let mut backwards = files.clone();
    backwards.reverse();
    let folder = raw::folder(&root.join("folder"), &files);
    let mut forms = vec![
        folder.join("aclImdb"),
        raw::file(root, "plain.tar", &raw::tar(&files)),
        raw::file(root, "packed.tar.gz", &raw::gzip(&raw::tar(&backwards))),
        raw::file(root, "packed.tar.zst", &raw::zstd(&raw::tar(&files))),
        raw::file(root, "no-extension", &raw::gzip(&raw::tar(&files))),
        raw::file(root, "packed.zip", &raw::zip(&backwards)),
    ];
    // The state after a download: the archive in the raw folder.
    let fetched = root.join("raw");
    std::fs::create_dir(&fetched).unwrap();
    raw::file(&fetched, "aclImdb_v1.tar.gz", &raw::gzip(&raw::tar(&files)));
    raw::file(
        &fetched,
        "other.tar.gz",
        &raw::gzip(&raw::tar(&files[..1].to_vec())),
    );
    forms.push(fetched);
    for (number, packing) in raw::packings().into_iter().enumerate() {
        forms.push(root.join(format!("parquet{number}")));
        parquet_folder(&forms[forms.len() - 1], packing);
    }
    for protocol in Protocol::ALL {
        let key = official(protocol);
        let first = build(&Text, &key, &folder).unwrap();
        assert!(first.passed, "{}", first.text);
        for form in &forms {
            let other = build(&Text, &key, form).unwrap();
            assert_eq!(
                first.manifest().digest,
                other.manifest().digest,
                "{}",
                form.display()
            );
            assert_eq!(
                first.fact("train: digest by content"),
                other.fact("train: digest by content")
            );
        }
    }
}

#[test]
fn parquet_files_are_found_under_the_names_that_they_have() {
    let root = tempfile::tempdir().unwrap();
    let first = root.path().join("first");
    parquet_folder(&first, ::parquet::basic::Compression::SNAPPY);
    let digest = |raw: &Path| {
        let built = build(&Text, &official(Protocol::Clean), raw).unwrap();
        built.manifest().digest.clone()
    };
    let wanted = digest(&first);
    for (number, layout) in ["plain_text/SPLIT/0000.parquet", "imdb-SPLIT.parquet"]
        .into_iter()
        .enumerate()
    {
        let folder = root.path().join(format!("layout{number}"));
        for split in ["train", "test", "unsupervised"] {
            let from = format!("plain_text/{split}-00000-of-00001.parquet");
            let to = folder.join(layout.replace("SPLIT", split));
            std::fs::create_dir_all(to.parent().unwrap()).unwrap();
            std::fs::copy(first.join(from), to).unwrap();
        }
        assert_eq!(digest(&folder), wanted, "{layout}");
    }
    // The same rows twice, in two layouts: the choice is ambiguous.
    let second = first.join("plain_text/train/0000.parquet");
    std::fs::create_dir_all(second.parent().unwrap()).unwrap();
    std::fs::copy(
        first.join("plain_text/train-00000-of-00001.parquet"),
        second,
    )
    .unwrap();
    let error = build(&Text, &official(Protocol::Clean), &first).unwrap_err();
    assert!(error.to_string().contains("in two folders"), "{error}");
}

/// Writers choose the type of a column by its largest value, or by the types of their own language.
#[test]
fn labels_of_parquet_files_have_any_type() {
    let files = reviews();
    let mut wanted = None;
    for label in [
        "int64 label",
        "int32 label",
        "int32 label (INTEGER(8,true))",
        "int32 label (INTEGER(8,false))",
        "int32 label (INTEGER(16,true))",
        "int32 label (INTEGER(32,false))",
        "int64 label (INTEGER(64,false))",
        "boolean label",
        "float label",
        "double label",
        "binary label (STRING)",
        "int32 label (DECIMAL(3,0))",
        "int64 label (DECIMAL(12,2))",
        "binary label (DECIMAL(4,2))",
        "fixed_len_byte_array(1) label (DECIMAL(2,0))",
        "fixed_len_byte_array(7) label (DECIMAL(16,2))",
        "fixed_len_byte_array(21) label (DECIMAL(50,1))",
        "fixed_len_byte_array(32) label (DECIMAL(76,0))",
        "fixed_len_byte_array(2) label (FLOAT16)",
    ] {
        // Decimals are stored in units of their last digit.
        let one = match label {
            label if label.contains(",1)") => 10,
            label if label.contains(",2)") => 100,
            _ => 1,
        };
        let root = tempfile::tempdir().unwrap();
        let schema = format!("message m {{ required binary text (STRING); optional {label}; }}");
        for split in ["train", "test"] {
            let class = |(name, text): &(String, Vec<u8>)| {
                let label = one * i64::from(name.contains("/pos/"));
                let is_review = ["_3.txt", "_9.txt"].iter().any(|end| name.ends_with(end));
                (is_review && name.contains(split)).then(|| (text.clone(), label))
            };
            let rows: Vec<(Vec<u8>, i64)> = files.iter().filter_map(class).collect();
            let rows: Vec<(&[u8], i64)> = rows
                .iter()
                .map(|(text, label)| (&text[..], *label))
                .collect();
            let path = root.path().join(format!("{split}-00000-of-00001.PARQUET"));
            raw::parquet(&path, &schema, &rows, ::parquet::basic::Compression::SNAPPY);
        }
        let built = build(&Text, &official(Protocol::Clean), root.path());
        let built = built.unwrap_or_else(|error| panic!("{label}: {error}"));
        let digest = built.manifest().digest.clone();
        assert_eq!(*wanted.get_or_insert(digest.clone()), digest, "{label}");
    }
}

#[test]
fn clean_never_validates_or_trains_on_a_text_of_test() {
    let root = tempfile::tempdir().unwrap();
    let built = build(
        &Text,
        &official(Protocol::Clean),
        &raw::folder(root.path(), &reviews()),
    )
    .unwrap();
    let [train, val, test] = built.rows();
    assert_eq!((train + val, test), (120 - 12, 120));
    // 10.8 expected, standard deviation 3.1.
    assert!((1..=24).contains(&val), "{val}");
    let texts = |split_name: SplitName| -> HashSet<Vec<u8>> {
        let split = built.splits.get(split_name);
        (0..split.len())
            .map(|row| split.tokens(0, row).to_vec())
            .collect()
    };
    assert!(texts(SplitName::Train).is_disjoint(&texts(SplitName::Test)));
    assert!(texts(SplitName::Val).is_disjoint(&texts(SplitName::Test)));
    assert!(texts(SplitName::Train).is_disjoint(&texts(SplitName::Val)));
    let notes = built.manifest().notes.join("\n");
    assert!(
        notes.contains("12 left out because test has the same text"),
        "{notes}"
    );
    assert!(
        built.manifest().partial && notes.contains("120 reviews of train"),
        "{notes}"
    );
}

/// Copies of one text count once among the texts, and each among the reviews.
#[test]
fn copies_of_a_text_are_told() {
    let mut files = reviews();
    for (split, number) in [("train", 70), ("train", 71), ("test", 70)] {
        let name = format!("aclImdb/{split}/pos/{number}_8.txt");
        files.push((name, b"said twice, pos 0".to_vec()));
    }
    let root = tempfile::tempdir().unwrap();
    let folder = raw::folder(root.path(), &files);
    let built = build(&Text, &official(Protocol::Clean), &folder).unwrap();
    let manifest = built.manifest();
    let fact = |name: &str| {
        let mut facts = manifest.facts.iter();
        facts.find(|fact| fact.name == name).unwrap().value.clone()
    };
    assert_eq!(fact("train: reviews"), "60 negative, 62 positive");
    assert_eq!(fact("test: reviews"), "60 negative, 61 positive");
    assert_eq!(fact("train: ratings"), "3:60 8:2 9:60");
    assert_eq!(fact("train: distinct texts"), "120");
    assert_eq!(fact("test: distinct texts"), "120");
    assert_eq!(fact("texts in both"), "12");
    let notes = manifest.notes.join("\n");
    assert!(notes.contains("14 left out because test"), "{notes}");
    let [train, val, test] = built.rows();
    assert_eq!((train + val, test), (122 - 14, 121));
}

#[test]
fn rows_are_in_the_order_of_their_hashes() {
    let root = tempfile::tempdir().unwrap();
    let folder = raw::folder(root.path(), &reviews());
    for protocol in Protocol::ALL {
        let built = build(&Text, &official(protocol), &folder).unwrap();
        for split in SplitName::ALL.map(|name| built.splits.get(name)) {
            let texts = (0..split.len()).map(|row| split.tokens(0, row));
            // Those of whole texts are known.
            let whole = texts.filter(|text| text.len() < 1000);
            assert!(whole.map(lra_datasets::Digest::of).is_sorted());
        }
    }
}

#[test]
fn tay2021_validates_on_test() {
    let root = tempfile::tempdir().unwrap();
    let built = build(
        &Text,
        &official(Protocol::Tay2021),
        &raw::folder(root.path(), &reviews()),
    )
    .unwrap();
    assert_eq!(built.rows(), [120, 120, 120]);
    let (val, test) = (&built.splits.val, &built.splits.test);
    for row in 0..120 {
        assert_eq!(
            (val.tokens(0, row), val.label(row)),
            (test.tokens(0, row), test.label(row))
        );
    }
}

#[test]
fn texts_are_raw_bytes_cut_to_length() {
    let root = tempfile::tempdir().unwrap();
    let mut key = official(Protocol::Clean);
    key.options["max_length"] = json!(100);
    let built = build(&Text, &key, &raw::folder(root.path(), &reviews())).unwrap();
    assert_eq!(built.manifest().label, "text@100");
    let test = &built.splits.test;
    let long: Vec<&[u8]> = (0..test.len())
        .map(|row| test.tokens(0, row))
        .filter(|text| text.len() == 100)
        .collect();
    assert_eq!(long.len(), 2);
    let text = format!("test neg {}", "gr\u{fc}\u{df} <br /> ".repeat(80));
    assert!(long.contains(&&text.as_bytes()[..100]));
}

#[test]
fn labels_name_the_length() {
    for (length, label) in [(1000, "text"), (4000, "text@4000"), (256, "text@256")] {
        let mut options = Text.defaults();
        options["max_length"] = json!(length);
        assert_eq!(Text.shape(&options).unwrap().label, label);
    }
}

#[test]
fn options_of_the_stand_in_do_not_matter_to_the_reviews() {
    let store = Store::new(Path::new("data"));
    let mut key = Key::default_of(&Text);
    let folder = store.folder(&Text, &key);
    key.options["seed"] = json!(7);
    key.options["train"] = json!(7);
    assert_eq!(store.folder(&Text, &key), folder);
    key.source = Source::Synthetic;
    let drawn = store.folder(&Text, &key);
    assert_ne!(drawn, folder);
    key.protocol = Protocol::Tay2021;
    assert_eq!(store.folder(&Text, &key), drawn);
}

/// The word that prevails in the end is the label; over the whole text, neither does.
#[test]
fn the_end_of_the_stand_in_tells_its_label() {
    let mut key = Key::default_of(&Text);
    key.source = Source::Synthetic;
    for (name, size) in [("train", 400), ("val", 10), ("test", 10)] {
        key.options[name] = json!(size);
    }
    let root = tempfile::tempdir().unwrap();
    let splits = Store::new(root.path()).open_or_build(&Text, &key, None, &());
    let train = splits.unwrap().train;
    let (mut right, mut early, mut whole) = (0, 0, 0);
    let (mut words, mut marks, mut hopes) = (0, 0, 0);
    for row in 0..train.len() {
        let text = train.tokens(0, row);
        assert!((250..=1000).contains(&text.len()));
        whole += usize::from(text.len() == 1000);
        let count = |part: &[u8], word: &[u8]| {
            let words = part.split(|byte| *byte == b' ');
            words.filter(|it| *it == word).count()
        };
        let prevails = |part: &[u8]| count(part, b"Hope") > count(part, b"Fear");
        // The turning point lies between 30 and 70 % of the length.
        right += usize::from(prevails(&text[text.len() * 7 / 10..]) == (train.label(row) == 1));
        early += usize::from(prevails(&text[..text.len() * 3 / 10]) == (train.label(row) == 0));
        words += text.iter().filter(|byte| **byte == b' ').count();
        marks += count(text, b"Hope") + count(text, b"Fear");
        hopes += count(text, b"Hope");
    }
    let of_rows = |count: usize| count as f64 / train.len() as f64;
    let (right, early) = (of_rows(right), of_rows(early));
    assert!(right > 0.9 && early > 0.9, "{right} {early}");
    // Four standard errors.
    assert!((of_rows(whole) - 0.4).abs() < 0.1, "{whole}");
    let (marks, hopes) = (marks as f64, hopes as f64);
    assert!((marks / words as f64 - 0.125).abs() < 0.006, "{marks}");
    assert!((hopes / marks - 0.5).abs() < 0.06, "{hopes} of {marks}");
}

#[test]
fn what_is_wrong_with_a_file_is_said() {
    type Harm = fn(&mut Files);
    let table: &[(&str, Harm, &str)] = &[
        (
            "no rating",
            |files| files[5].0 = "aclImdb/train/neg/x.txt".into(),
            "neg/x.txt: its name is not",
        ),
        (
            "wrong rating",
            |files| files[5].0 = "aclImdb/train/neg/1_7.txt".into(),
            "neg/1_7.txt: its name is not",
        ),
        (
            "empty",
            |files| files[5].1.clear(),
            "neg/1_3.txt: an empty review",
        ),
        (
            "blank",
            |files| files[5].1 = b" \r\n".to_vec(),
            "neg/1_3.txt: an empty review",
        ),
        (
            "huge",
            |files| files[5].1 = vec![b'a'; 2 << 20],
            "neg/1_3.txt: larger than 1048576 bytes",
        ),
        (
            "twice",
            |files| files.push(("elsewhere/train/neg/1_3.txt".into(), b"again".to_vec())),
            "elsewhere/train/neg/1_3.txt: a second place of reviews, beside `aclImdb`",
        ),
        (
            "one class",
            |files| files.retain(|(name, _)| !name.contains("test/pos")),
            "no positive review of test",
        ),
    ];
    for (name, harm, problem) in table {
        let root = tempfile::tempdir().unwrap();
        let mut files = reviews();
        harm(&mut files);
        let archive = raw::file(root.path(), "reviews.tar", &raw::tar(&files));
        for form in [raw::folder(&root.path().join("folder"), &files), archive] {
            let error = build(&Text, &official(Protocol::Clean), &form).expect_err(name);
            assert_eq!(error.class(), Class::Data, "{name}");
            assert!(error.to_string().contains(problem), "{name}: {error}");
        }
    }
}

#[test]
fn ratings_are_those_of_the_class() {
    let root = tempfile::tempdir().unwrap();
    for (class, right, wrong) in [("neg", 3, [0, 5]), ("pos", 9, [6, 11])] {
        let name = format!("aclImdb/train/{class}/1_{right}.txt");
        for rating in wrong {
            let mut files = reviews();
            let file = files.iter_mut().find(|file| file.0 == name).unwrap();
            file.0 = format!("aclImdb/train/{class}/1_{rating}.txt");
            let archive = raw::file(root.path(), "reviews.tar", &raw::tar(&files));
            let error = build(&Text, &official(Protocol::Clean), &archive).unwrap_err();
            let told = format!("{class}/1_{rating}.txt: its name is not");
            assert!(error.to_string().contains(&told), "{error}");
        }
    }
    let mut files = reviews();
    for (class, ratings) in [("neg", [1, 4]), ("pos", [7, 10])] {
        for rating in ratings {
            let name = format!("aclImdb/train/{class}/99_{rating}.txt");
            files.push((name, format!("rated {rating}").into_bytes()));
        }
    }
    let archive = raw::file(root.path(), "reviews.tar", &raw::tar(&files));
    assert!(build(&Text, &official(Protocol::Clean), &archive).is_ok());
}

#[test]
fn missing_files_are_named_with_the_remedy() {
    let root = tempfile::tempdir().unwrap();
    for raw in [root.path().to_owned(), root.path().join("nowhere")] {
        let error = build(&Text, &official(Protocol::Clean), &raw).unwrap_err();
        let text = error.to_string();
        assert_eq!(error.class(), Class::Data);
        for split_name in [
            raw.to_str().unwrap(),
            "lra data fetch text",
            "--from",
            "--source synthetic",
        ] {
            assert!(text.contains(split_name), "{text}");
        }
    }
    let other = raw::file(root.path(), "notes.txt", b"no archive");
    let error = build(&Text, &official(Protocol::Clean), &other)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("notes.txt: neither a folder nor an archive"),
        "{error}"
    );
}

#[test]
fn the_published_reviews() {
    let Some(archive) = shared::find("imdb/aclImdb_labelled.tar.gz") else {
        return;
    };
    let clean = build(&Text, &official(Protocol::Clean), &archive).unwrap();
    assert!(clean.passed && !clean.manifest().partial, "{}", clean.text);
    assert_eq!(
        clean.text.matches("as published").count(),
        13,
        "{}",
        clean.text
    );
    assert_eq!(clean.rows(), [22_498, 2_379, 25_000]);
    let notes = clean.manifest().notes.join("\n");
    assert!(notes.contains("123 left out"), "{notes}");
    let published = build(&Text, &official(Protocol::Tay2021), &archive).unwrap();
    assert_eq!(published.rows(), [25_000; 3]);
    assert_eq!(published.manifest().splits.test.labels, [12_500, 12_500]);
}

#[test]
fn unlabelled_reviews_alone_are_no_data() {
    let Some(archive) = shared::find("imdb/aclImdb_unsup_sample.tar.gz") else {
        return;
    };
    let error = build(&Text, &official(Protocol::Clean), &archive)
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("missing: the labelled IMDb reviews"),
        "{error}"
    );
}

#[test]
fn wrong_parquet_files_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let refuse = |name: &str, schema: &str, rows: &[(&[u8], i64)], problem: &str| {
        let folder = root.path().join(name);
        for split in ["train", "test"] {
            let path = folder.join(format!("{split}.parquet"));
            raw::parquet(&path, schema, rows, ::parquet::basic::Compression::SNAPPY);
        }
        let error = build(&Text, &official(Protocol::Clean), &folder).unwrap_err();
        assert_eq!(error.class(), Class::Data, "{name}");
        assert!(error.to_string().contains(problem), "{name}: {error}");
    };
    let rows: &[(&[u8], i64)] = &[(b"good", 1), (b"bad", 0), (b"so so", 2)];
    refuse(
        "label",
        SCHEMA,
        rows,
        "train.parquet:3: the label 2 is neither 0 nor 1",
    );
    let other = "message m { required binary review; required int64 label; }";
    refuse(
        "column",
        other,
        rows,
        "it has no column `text`, but review, label",
    );
    refuse("empty", SCHEMA, &[(b"", 1)], "an empty review");
    let words = "message m { required binary text; required binary label; }";
    refuse(
        "words",
        words,
        &[(b"good", 1), (b"bad", 7)],
        "the label 7 is neither 0 nor 1",
    );
    // A file of neither split, beside those of both.
    let folder = root.path().join("stray");
    for split in ["train", "test", "validation"] {
        let path = folder.join(format!("{split}.parquet"));
        let rows: &[(&[u8], i64)] = &[(b"good", 1), (b"bad", 0)];
        raw::parquet(&path, SCHEMA, rows, ::parquet::basic::Compression::SNAPPY);
    }
    let error = build(&Text, &official(Protocol::Clean), &folder).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("validation.parquet: a parquet file beside"),
        "{text}"
    );
    let one = raw::file(
        root.path(),
        "one.parquet",
        &std::fs::read(root.path().join("label/train.parquet")).unwrap(),
    );
    let error = build(&Text, &official(Protocol::Clean), &one)
        .unwrap_err()
        .to_string();
    assert!(error.contains("name the folder"), "{error}");
}

/// A column of another type is not read as the numbers that it is stored as.
#[test]
fn stored_numbers_that_are_no_labels_are_refused() {
    let refuse = |label: &str, stored: i64, properties: WriterProperties, problem: &str| {
        let root = tempfile::tempdir().unwrap();
        let schema = format!("message m {{ required binary text (STRING); optional {label}; }}");
        for split in ["train", "test"] {
            let path = root.path().join(format!("{split}.parquet"));
            let rows: &[(&[u8], i64)] = &[(b"bad", 0), (b"good", stored)];
            raw::parquet_with(&path, &schema, rows, properties.clone());
        }
        let error = build(&Text, &official(Protocol::Clean), root.path()).unwrap_err();
        assert_eq!(error.class(), Class::Data, "{label}");
        let said = error.to_string();
        assert!(said.contains(problem), "{label}: {said}");
    };
    for (label, stored, problem) in [
        ("int32 label (DECIMAL(3,1))", 5, "the label 0.5 of `label`"),
        (
            "int64 label (DECIMAL(12,1))",
            15,
            "the label 1.5 of `label`",
        ),
        ("binary label (DECIMAL(4,1))", 5, "the label 0.5 of `label`"),
        (
            "fixed_len_byte_array(3) label (DECIMAL(5,2))",
            -50,
            "the label -0.5 of `label`",
        ),
        (
            "fixed_len_byte_array(32) label (DECIMAL(76,40))",
            1,
            "decimals with 40 digits after the point; read are those with 0 to 38",
        ),
        (
            "fixed_len_byte_array(21) label (DECIMAL(50,1))",
            -5,
            "the label -0.5 of `label`",
        ),
        (
            "int64 label (INTEGER(64,false))",
            i64::MIN + 5,
            "the label 9223372036854775813 of `label` is out of range",
        ),
        (
            "int64 label (UINT_64)",
            -1,
            "the label 18446744073709551615 of `label` is out of range",
        ),
        (
            "int32 label (INTEGER(32,false))",
            -1,
            "the label 4294967295 is neither 0 nor 1",
        ),
        (
            "int32 label (UINT_8)",
            200,
            "the label 200 is neither 0 nor 1",
        ),
        (
            "double label",
            1 << 50,
            "the label 1125899906842624 of `label` is out of range",
        ),
        ("int32 label (DATE)", 1, "`label` holds dates"),
        ("int32 label (TIME(MILLIS,true))", 1, "`label` holds times"),
        (
            "int64 label (TIMESTAMP(MICROS,false))",
            1,
            "`label` holds times",
        ),
        ("int64 label (TIMESTAMP_MILLIS)", 1, "`label` holds times"),
        (
            "fixed_len_byte_array(12) label (INTERVAL)",
            1,
            "`label` holds durations",
        ),
        (
            "fixed_len_byte_array(16) label (UUID)",
            1,
            "`label` holds bytes of a fixed length",
        ),
    ] {
        refuse(label, stored, WriterProperties::default(), problem);
    }
    // Arrow's durations are plain numbers but for its record, here of the columns `text`, `label`
    // and `other`.
    let record = KeyValue::new(
        "ARROW:schema".to_owned(),
        "\
        /////+AAAAAQAAAAAAAKAAwABgAFAAgACgAAAAABBAAMAAAACAAIAAAABAAIAAAABAAAAAMAAACEAAAAQAAAAAQA\
        AACY////AAABAhAAAAAgAAAABAAAAAAAAAAFAAAAb3RoZXIAAAAIAAwACAAHAAgAAAAAAAABQAAAAND///8AAAES\
        EAAAABwAAAAEAAAAAAAAAAUAAABsYWJlbAAGAAgABgAGAAAAAAAAABAAFAAIAAYABwAMAAAAEAAQAAAAAAABBRAA\
        AAAcAAAABAAAAAAAAAAEAAAAdGV4dAAAAAAEAAQABAAAAA=="
            .to_owned(),
    );
    let arrow = WriterProperties::builder().set_key_value_metadata(Some(vec![record]));
    refuse("int64 label", 1, arrow.build(), "`label` holds durations");
}

/// A page whose header states that it unpacks to 20,000 bytes, and that unpacks to a million.
#[test]
fn pages_that_understate_themselves_are_refused() {
    let zigzag = |number: u32| {
        let (mut rest, mut bytes) = (2 * number, Vec::new());
        while rest > 127 {
            bytes.push((rest % 128) as u8 | 128);
            rest /= 128;
        }
        bytes.push(rest as u8);
        bytes
    };
    for packing in raw::packings().into_iter().skip(3).take(2) {
        let root = tempfile::tempdir().unwrap();
        let long = vec![b'a'; 1_000_000];
        for split in ["train", "test"] {
            let path = root.path().join(format!("{split}.parquet"));
            raw::parquet(&path, SCHEMA, &[(&long, 1)], packing);
            let mut bytes = std::fs::read(&path).unwrap();
            let mut patched = 0;
            for size in 1_000_000..1_000_100 {
                let stated = zigzag(size);
                while let Some(place) = bytes.windows(3).position(|three| three == stated) {
                    bytes.splice(place..place + 3, zigzag(20_000));
                    patched += 1;
                }
            }
            assert!(patched > 0);
            std::fs::write(path, bytes).unwrap();
        }
        let error = build(&Text, &official(Protocol::Clean), root.path()).unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("unpacks to more than the 20000 bytes"),
            "{packing}: {text}"
        );
    }
}

#[test]
fn files_named_once_are_found_again() {
    let root = tempfile::tempdir().unwrap();
    let store = Store::new(&root.path().join("data"));
    let archive = raw::file(root.path(), "copy.tar", &raw::tar(&reviews()));
    let key = official(Protocol::Clean);
    store
        .open_or_build(&Text, &key, Some(&archive), &())
        .unwrap();
    let mut shorter = key.clone();
    shorter.options["max_length"] = json!(64);
    let splits = store.open_or_build(&Text, &shorter, None, &()).unwrap();
    assert_eq!(splits.manifest.label, "text@64");
    // When the archive is gone, the error names the folder for it.
    std::fs::remove_file(&archive).unwrap();
    shorter.options["max_length"] = json!(32);
    let error = store.open_or_build(&Text, &shorter, None, &()).unwrap_err();
    assert!(error.to_string().contains("raw/text"), "{error}");
}

#[test]
fn raw_files_are_verified_without_a_store() {
    let root = tempfile::tempdir().unwrap();
    let data = root.path().join("data");
    let store = Store::new(&data);
    let key = official(Protocol::Clean);
    let archive = raw::file(root.path(), "copy.tar", &raw::tar(&reviews()));
    let verified = |raw: &Path| store.verify_raw(&Text, &key, raw, &()).unwrap();

    let fine = verified(&archive);
    let text = fine.to_string();
    assert!(fine.passed(), "{text}");
    assert!(
        text.contains("60 negative, 60 positive, a part of the published 12500"),
        "{text}"
    );
    assert!(
        text.contains("% alike") && !text.contains("stored data"),
        "{text}"
    );
    assert_eq!(
        std::fs::read_dir(&data).unwrap().count(),
        0,
        "nothing is kept"
    );

    // With stored data, verification also reports whether it was built from the same files.
    store
        .open_or_build(&Text, &key, Some(&archive), &())
        .unwrap();
    assert!(
        verified(&archive)
            .to_string()
            .contains("the stored data is of these files")
    );
    let mut others = reviews();
    others.truncate(others.len() - 1);
    let other = raw::file(root.path(), "other.tar", &raw::tar(&others));
    let verification = verified(&other);
    assert!(!verification.passed());
    assert!(
        verification
            .to_string()
            .contains("the stored data is of other files")
    );

    // A file with the published name has to be the published file; for an unreadable one the error
    // gives the reason and the address of another copy.
    let named = raw::file(root.path(), "aclImdb_v1.tar.gz", b"\x1f\x8b cut");
    let text = verified(&named).to_string();
    assert!(text.contains("cut short: 6 of 84125825 bytes"), "{text}");
    assert!(
        text.contains("FAIL  readable") && text.contains("lra data fetch text"),
        "{text}"
    );
}

/// Orders equal texts of two classes by their labels, whatever the order of the files.
#[test]
fn equal_texts_of_two_classes_do_not_depend_on_the_order_of_files() {
    let mut files = reviews();
    for (class, rating) in [("neg", 1), ("pos", 10)] {
        let name = format!("aclImdb/train/{class}/900_{rating}.txt");
        files.push((name, b"in both classes".to_vec()));
    }
    let root = tempfile::tempdir().unwrap();
    let digest = |name: &str, files: &Files| {
        let archive = raw::file(root.path(), name, &raw::zstd(&raw::tar(files)));
        let built = build(&Text, &official(Protocol::Clean), &archive).unwrap();
        built.manifest().digest.clone()
    };
    let forward = digest("a.tar.zst", &files);
    files.reverse();
    assert_eq!(digest("b.tar.zst", &files), forward);
}
