//! A folder of your own as a task.

use std::fs;
use std::io::Write;
use std::path::Path;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use flate2::Compression;
use flate2::write::GzEncoder;
use lra_datasets::tasks::{self, mine};
use lra_datasets::{Class, Error, Key, Progress, Source, SplitName, Splits, Store, Task};
use parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type,
};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use serde_json::json;

/// Writes `rows` lines of text with two words as labels, and returns them.
fn lines(first: usize, rows: usize) -> String {
    let line = |row: usize| {
        let label = ["owl", "wren"][row % 2];
        format!(
            "{}\n",
            json!({"text": format!("row {row} {label}"), "label": label, "id": row})
        )
    };
    (first..first + rows).map(line).collect()
}

/// Returns a folder called `birds` with these files.
fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let place = tempfile::tempdir().unwrap();
    fs::create_dir(place.path().join("birds")).unwrap();
    for (name, text) in files {
        let path = place.path().join("birds").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    place
}

fn name(place: &Path) -> String {
    format!("mine:{}", place.join("birds").display())
}

fn open(place: &Path) -> &'static dyn Task {
    mine::open(&name(place)).unwrap()
}

fn splits(task: &dyn Task, store: &Path) -> Splits {
    Store::new(store)
        .open_or_build(task, &Key::default_of(task), None, &())
        .unwrap()
}

/// Returns the error of a folder with these files, after its path.
fn refused(files: &[(&str, &str)]) -> String {
    let place = folder(files);
    let error = mine::open(&name(place.path())).err().unwrap();
    assert_eq!(error.class(), Class::Data);
    let told = error.to_string();
    let path = place.path().join("birds").canonicalize().unwrap();
    told.strip_prefix(&path.display().to_string())
        .unwrap_or_else(|| panic!("{told}"))
        .to_owned()
}

#[test]
fn a_folder_is_a_task_under_a_name_of_its_own() {
    let place = folder(&[
        ("train.jsonl", &lines(0, 40)),
        ("val.jsonl", &lines(40, 10)),
        ("test.jsonl", &lines(50, 20)),
        ("README.md", "not read"),
        ("._train.jsonl", "of macOS"),
    ]);
    let task = open(place.path());
    let info = task.info();
    assert_eq!((info.classes, info.towers, info.first_id), (2, 1, 1));
    assert_eq!(
        (info.vocabulary, info.sources),
        (257, &[Source::Folder][..])
    );
    assert!(info.probe, "it is a part of no average over tasks");
    let shape = task.shape(&task.defaults()).unwrap();
    assert_eq!((shape.label.as_str(), shape.max_length), ("mine:birds", 11));
    assert_eq!(task.defaults(), json!({"max_length": 11}));
    assert_eq!(
        tasks::find(&name(place.path())).unwrap().info().name,
        info.name
    );

    let store = tempfile::tempdir().unwrap();
    let data = splits(task, store.path());
    assert_eq!(
        [data.train.len(), data.val.len(), data.test.len()],
        [40, 10, 20]
    );
    assert_eq!(data.train.tokens(0, 1), b"row 1 wren");
    assert_eq!(data.train.labels()[..4], [0, 1, 0, 1]);
    assert_eq!(data.manifest.notes, ["classes: 0 owl, 1 wren"]);
    let told = task.to_text(&[b"row 1\x1b"], 1);
    assert_eq!(told, "row 1·\nlabel: 1 (wren)\n");
    let verified = Store::new(store.path()).verify(task, &Key::default_of(task), &());
    assert!(verified.unwrap().passed());

    let mut shorter = Key::default_of(task);
    shorter.options["max_length"] = json!(5);
    assert_eq!(task.shape(&shorter.options).unwrap().label, "mine:birds@5");
    let data = Store::new(store.path()).open_or_build(task, &shorter, None, &());
    let data = data.unwrap();
    assert_eq!(data.train.tokens(0, 1), b"row 1");
    assert!(
        data.manifest
            .notes
            .iter()
            .any(|note| note == "70 examples cut")
    );
}

#[test]
fn without_val_a_tenth_of_train_is_held_out_by_content_and_seed() {
    // Every example of train twice.
    let twice = lines(0, 100).repeat(2);
    let place = folder(&[("train.jsonl", &twice), ("test.jsonl", &lines(100, 20))]);
    let task = open(place.path());
    assert_eq!(task.defaults()["seed"], json!(0));
    let store = tempfile::tempdir().unwrap();
    let data = splits(task, store.path());
    assert_eq!(
        [data.train.len(), data.val.len(), data.test.len()],
        [180, 20, 20]
    );
    let note = &data.manifest.notes[1];
    assert!(
        note.contains("20 of 200 examples of train, a tenth"),
        "{note}"
    );
    let rows = |split: SplitName| {
        let split = data.get(split);
        let rows = (0..split.len()).map(|row| split.tokens(0, row).to_vec());
        rows.collect::<std::collections::HashSet<_>>()
    };
    assert!(rows(SplitName::Train).is_disjoint(&rows(SplitName::Val)));
    let mut other = Key::default_of(task);
    other.options["seed"] = json!(1);
    let other = Store::new(store.path())
        .open_or_build(task, &other, None, &())
        .unwrap();
    assert_ne!(other.manifest.splits.val, data.manifest.splits.val);
    assert_eq!(other.manifest.splits.test, data.manifest.splits.test);
}

/// A class whose examples are all held out could not be learned.
#[test]
fn no_class_is_held_out_whole() {
    let rare = json!({"text": "once", "label": "rare"});
    let train = format!("{}{rare}\n", lines(0, 30));
    let place = folder(&[("train.jsonl", &train), ("test.jsonl", &lines(100, 4))]);
    let task = open(place.path());
    let store = tempfile::tempdir().unwrap();
    let (mut refused, mut one_class) = (0, 0);
    for seed in 0..60 {
        let mut key = Key::default_of(task);
        key.options["seed"] = json!(seed);
        match Store::new(store.path()).open_or_build(task, &key, None, &()) {
            Err(error) => {
                let told = error.to_string();
                let words = format!("data.seed = {seed} has every example with the label rare (1)");
                assert!(told.contains(&words), "{told}");
                refused += 1;
            }
            Ok(data) => {
                let labels = (0..data.train.len()).map(|row| data.train.label(row));
                let labels: std::collections::HashSet<u8> = labels.collect();
                assert_eq!(labels.len(), 3);
                let notes = data.manifest.notes.join("\n");
                one_class += usize::from(notes.contains("its accuracy tells nothing"));
            }
        }
    }
    assert!(refused > 0 && one_class > 0, "{refused} {one_class}");
}

/// The range of the levels is not read off the examples that are scored.
#[test]
fn levels_are_those_of_train_alone() {
    let row = |values: serde_json::Value, label: u8| {
        format!("{}\n", json!({"values": values, "label": label}))
    };
    let train = row(json!([-1.0, 0.0]), 0) + &row(json!([1.0, 0.5]), 1);
    let other = row(json!([5.0, -1.0, -7.0]), 0) + &row(json!([1.0]), 1);
    let place = folder(&[
        ("train.jsonl", &train),
        ("val.jsonl", &other),
        ("test.jsonl", &other),
    ]);
    let store = tempfile::tempdir().unwrap();
    let data = splits(open(place.path()), store.path());
    assert_eq!(data.train.tokens(0, 0), [0, 128]);
    assert_eq!(data.train.tokens(0, 1), [255, 191]);
    assert_eq!(data.val.tokens(0, 0), [255, 0, 0]);
    assert_eq!(data.test.tokens(0, 0), [255, 0, 0]);
}

#[test]
fn every_field_is_read_and_packed_files_are_too() {
    let line = |field: &str, value: serde_json::Value, label: u8| {
        format!("{}\n", json!({field: value, "label": label}))
    };
    let both = |field: &str, first: serde_json::Value, other: serde_json::Value| {
        line(field, first, 0) + &line(field, other, 1)
    };
    let data = |lines: &str| {
        let place = folder(&[("train.jsonl", lines), ("val.jsonl", lines)]);
        let file = fs::File::create(place.path().join("birds/test.jsonl.gz")).unwrap();
        let mut packed = GzEncoder::new(file, Compression::fast());
        packed.write_all(lines.as_bytes()).unwrap();
        packed.finish().unwrap();
        let task = open(place.path());
        let store = tempfile::tempdir().unwrap();
        let data = splits(task, store.path());
        let rows = [0, 1].map(|row| data.test.tokens(0, row).to_vec());
        (task, rows, data.manifest.notes.clone())
    };
    let (task, rows, notes) = data(&both("tokens", json!([1, 9]), json!([3])));
    assert_eq!((task.info().vocabulary, rows), (11, [vec![1, 9], vec![3]]));
    assert!(notes[0].contains("in more than one split"), "{notes:?}");
    let (task, rows, _) = data(&both(
        "pixels",
        json!([[0, 1, 2], [3, 4, 5]]),
        json!([[9, 9, 9], [0, 0, 255]]),
    ));
    let shape = task.shape(&json!({})).unwrap();
    assert_eq!((task.info().first_id, shape.grid), (0, Some([2, 3])));
    assert_eq!(rows[1], [9, 9, 9, 0, 0, 255]);
    assert!(task.to_text(&[&rows[1]], 1).contains("  @"));
    let (_, rows, notes) = data(&both("values", json!([-1.0, 1.0]), json!([0, 2.5, -1])));
    assert_eq!(rows, [vec![0, 146], vec![73, 255, 0]]);
    assert!(notes[0].contains("256 levels from -1 to 2.5"), "{notes:?}");
    let pair = format!(
        "{}\n{}\n",
        json!({"text": "a", "text2": "b", "label": false}),
        json!({"text": "c", "text2": "c", "label": true})
    );
    let (task, _, notes) = data(&pair);
    assert_eq!(task.info().towers, 2);
    assert!(notes[0].contains("0 false, 1 true"), "{notes:?}");
}

/// A list of a table as its writer has it: values, definition levels, repetition levels.
type Levels<'a, T> = (&'a [T], &'a [i16], &'a [i16]);

/// Returns levels, where there are any.
fn some(levels: &[i16]) -> Option<&[i16]> {
    (!levels.is_empty()).then_some(levels)
}

/// Writes a parquet file of one row group with a column of this schema beside labels 0, 1, ...
fn table<T: DataType>(path: &Path, column: &str, levels: &[Levels<T::T>]) {
    let schema = format!("message rows {{ {column} required int64 label; }}");
    let schema = Arc::new(parse_message_type(&schema).unwrap());
    let output = fs::File::create(path).unwrap();
    let mut writer = SerializedFileWriter::new(output, schema, Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut rows = 0;
    for (values, definition, repetition) in levels {
        let mut column = group.next_column().unwrap().unwrap();
        column
            .typed::<T>()
            .write_batch(values, some(definition), some(repetition))
            .unwrap();
        column.close().unwrap();
        rows = match repetition.is_empty() {
            true => definition.len().max(values.len()),
            false => repetition.iter().filter(|level| **level == 0).count(),
        };
    }
    let labels: Vec<i64> = (0..rows as i64).map(|row| row % 2).collect();
    let mut column = group.next_column().unwrap().unwrap();
    column
        .typed::<Int64Type>()
        .write_batch(&labels, None, None)
        .unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
}

const TOKENS: &str =
    "optional group tokens (LIST) { repeated group list { optional int32 element; } }";

/// Rows of bytes.
type Rows = Vec<Vec<u8>>;

/// Returns the data of a folder of parquet files that are written by `write`, or its error.
fn of_tables(write: impl Fn(&Path)) -> Result<(Rows, Option<[usize; 2]>), String> {
    let place = folder(&[]);
    for split in ["train", "val", "test"] {
        write(&place.path().join(format!("birds/{split}.parquet")));
    }
    let task = mine::open(&name(place.path())).map_err(|error| error.to_string())?;
    let store = tempfile::tempdir().unwrap();
    let data = splits(task, store.path());
    let rows = (0..2).map(|row| data.test.tokens(0, row).to_vec());
    Ok((rows.collect(), task.shape(&task.defaults()).unwrap().grid))
}

#[test]
fn tables_hold_lists() {
    let tokens = of_tables(|path| {
        table::<Int32Type>(path, TOKENS, &[(&[1, 9, 3], &[3, 3, 3], &[0, 1, 0])]);
    });
    assert_eq!(tokens.unwrap().0, [vec![1, 9], vec![3]]);
    let rows = "required group pixels (LIST) { repeated group list { required group element (LIST) \
                { repeated group list { required int32 element (INTEGER(8,false)); } } } }";
    let pixels = of_tables(|path| {
        let values = [0, 1, 2, 3, 4, 5, 9, 9, 9, 0, 0, 255];
        let repetition = [0, 2, 2, 1, 2, 2, 0, 2, 2, 1, 2, 2];
        table::<Int32Type>(path, rows, &[(&values, &[2; 12], &repetition)]);
    });
    let (pixels, grid) = pixels.unwrap();
    assert_eq!(
        (grid, &pixels[1]),
        (Some([2, 3]), &vec![9, 9, 9, 0, 0, 255])
    );
    let values = of_tables(|path| {
        let column = "repeated double values;";
        let values = [-1.0, 1.0, 0.0, 2.5, -1.0];
        table::<DoubleType>(path, column, &[(&values, &[1; 5], &[0, 1, 0, 1, 1])]);
    });
    assert_eq!(values.unwrap().0, [vec![0, 146], vec![73, 255, 0]]);
}

/// Writes a table of texts with labels of another type.
fn labelled<T: DataType>(path: &Path, label: &str, labels: &[T::T]) {
    let schema = format!("message rows {{ required binary text (STRING); required {label}; }}");
    let schema = Arc::new(parse_message_type(&schema).unwrap());
    let output = fs::File::create(path).unwrap();
    let mut writer = SerializedFileWriter::new(output, schema, Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let texts: Vec<ByteArray> = (0..labels.len())
        .map(|row| format!("row {row}").into_bytes().into())
        .collect();
    let mut column = group.next_column().unwrap().unwrap();
    let written = column
        .typed::<ByteArrayType>()
        .write_batch(&texts, None, None);
    written.unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let written = column.typed::<T>().write_batch(labels, None, None);
    written.unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
}

/// Labels of a table have the meaning of the same labels in lines of JSON.
#[test]
fn labels_of_tables_are_those_of_lines() {
    let words = |labels: &[&[u8]]| {
        let labels: Vec<ByteArray> = labels.iter().map(|it| it.to_vec().into()).collect();
        of_tables(|path| {
            labelled::<ByteArrayType>(path, "binary label (STRING)", &labels);
        })
    };
    words(&[b"1", b"2"]).unwrap();
    words(&[b"0", b"x"]).unwrap();
    let said = words(&[b"a", b" "]).unwrap_err();
    assert!(
        said.contains("train.parquet:2: its `label` is empty"),
        "{said}"
    );
    let said = words(&[b"caf\xe9", b"caf\xe8"]).unwrap_err();
    assert!(
        said.contains("a label of `label` is not text in UTF-8"),
        "{said}"
    );
    let said = of_tables(|path| {
        labelled::<Int64Type>(path, "int64 label", &[0, i64::MAX]);
    });
    let said = said.unwrap_err();
    assert!(
        said.contains("train.parquet:2: label 9223372036854775807 is out of range"),
        "{said}"
    );
    of_tables(|path| labelled::<BoolType>(path, "boolean label", &[true, false])).unwrap();
}

#[test]
fn mistakes_in_tables_are_named_with_the_row() {
    let refused = |values: &[i32], definition: &[i16], repetition: &[i16]| {
        let error = of_tables(|path| {
            table::<Int32Type>(path, TOKENS, &[(values, definition, repetition)]);
        });
        error.unwrap_err()
    };
    for (values, definition, repetition, told) in [
        (
            &[1, 2][..],
            &[3, 3, 0][..],
            &[0, 0, 0][..],
            "train.parquet:3: it has none of the fields",
        ),
        (
            &[1, 2],
            &[3, 1, 3],
            &[0, 0, 0],
            "train.parquet:2: `tokens` is empty",
        ),
        (
            &[1, 2],
            &[3, 2, 3],
            &[0, 1, 0],
            "train.parquet:1: `tokens` holds null at place 1",
        ),
        (
            &[1, 256],
            &[3, 3],
            &[0, 0],
            "train.parquet:2: `tokens` holds 256 at place 0, out of range",
        ),
    ] {
        let error = refused(values, definition, repetition);
        assert!(error.contains(told), "{error}");
    }
    let structure = "required group tokens { required int32 a; required int32 b; }";
    let error = of_tables(|path| {
        let column = (&[1, 2][..], &[][..], &[][..]);
        table::<Int32Type>(path, structure, &[column, column]);
    });
    assert!(
        error
            .unwrap_err()
            .contains("`tokens` holds structures of several fields")
    );
    let error = of_tables(|path| {
        let column = (&[1, 2][..], &[][..], &[][..]);
        table::<Int32Type>(path, "required int32 words;", &[column]);
    });
    assert!(
        error
            .unwrap_err()
            .contains("it has no column `text` or `text2` or `tokens`")
    );
}

#[test]
fn mistakes_are_named_by_file_and_line_with_the_remedy() {
    let good = lines(0, 4);
    let test = ("test.jsonl", good.as_str());
    for (train, told) in [
        (
            "{\"text\": \"a\"}\n",
            "/train.jsonl:1: it has no `label`: add one",
        ),
        (
            "{\"text\": \"a\", \"label\": 0}\n\n{\"tokens\": [1], \"label\": 0}\n",
            "/train.jsonl:3: it has `tokens`, and the lines before it have `text`",
        ),
        (
            "{\"text\": \"a\", \"label\": 0}\n{\"text\": \"b\", \"label\": \"owl\"}\n",
            "/train.jsonl:2: label `owl` after labels such as 0",
        ),
        (
            "{\"text\": \"a\", \"label\": 300}\n",
            "/train.jsonl:1: label 300 is out of range",
        ),
        (
            "{\"text\": \"a\", \"label\": 0}\n{\"text\": \"b\", \"label\": 2}\n",
            "/train.jsonl: no example has the label 1",
        ),
        (
            "{\"text\": \"a\", \"label\": \"owl\"}\n",
            "/train.jsonl: all of its 1 example have the label `owl`: a task has two classes",
        ),
        ("\n", "/train.jsonl: it holds no examples"),
        ("text,label\n", "/train.jsonl:1: no JSON object"),
        (
            "{\"pixels\": [1, 2], \"label\": 0}\n{\"pixels\": [1, 2, 3, 4], \"label\": 0}\n",
            "/train.jsonl:2: a picture of 2 x 2 pixels, and those before it have 1 x 2",
        ),
        (
            "{\"values\": [1], \"label\": 0}\n{\"values\": [1], \"label\": 1}\n",
            "/train.jsonl: all of its values are 1",
        ),
    ] {
        let error = refused(&[("train.jsonl", train), test]);
        assert!(error.starts_with(told), "{error}");
    }
    let owl = "{\"text\": \"a\", \"label\": \"owl\"}\n{\"text\": \"b\", \"label\": \"kite\"}\n";
    let error = refused(&[("train.jsonl", &good), ("test.jsonl", owl)]);
    assert!(
        error.starts_with("/test.jsonl:2: no example of train has the label `kite`"),
        "{error}"
    );
    let error = refused(&[("train.jsonl", &good)]);
    assert!(
        error.starts_with(": it has no test.jsonl; a task's folder has train and test"),
        "{error}"
    );
    let error = refused(&[("train.jsonl", &good), test, ("dev.jsonl", &good)]);
    assert!(
        error.starts_with(": dev.jsonl is none of train, val and test"),
        "{error}"
    );
    for unread in ["val.csv", "val.jsonl.zst", "train.json"] {
        let error = refused(&[("train.jsonl", &good), test, (unread, &good)]);
        let expected = format!(": {unread} is named after a split and cannot be read");
        assert!(error.starts_with(&expected), "{error}");
    }
    for unread in [
        "val/part.jsonl",
        "validation/0.png",
        "dev/x",
        "Val/x",
        "valid.csv",
        "Validation.txt",
        "VAL.PARQUET",
        "Test.jsonl.GZ",
    ] {
        let error = refused(&[("train.jsonl", &good), test, (unread, &good)]);
        let name = unread.split('/').next().unwrap();
        let expected = format!(": {name} is named after a split");
        assert!(error.starts_with(&expected), "{error}");
    }
    let error = refused(&[("train.jsonl", &good), test, ("sub/a/train.jsonl", &good)]);
    assert!(
        error.starts_with(": sub/a/train.jsonl lies in a folder of its own"),
        "{error}"
    );
    let error = refused(&[("train.jsonl", &good), test, ("test.parquet", "")]);
    assert!(
        error.starts_with(": test.jsonl and test.parquet are both test"),
        "{error}"
    );
    let error = refused(&[("train.parquet", &good), test]);
    assert!(
        error.starts_with("/train.parquet: not a readable parquet file"),
        "{error}"
    );
    let error = mine::open("mine:/nowhere/at/all")
        .err()
        .unwrap()
        .to_string();
    assert!(
        error.starts_with("/nowhere/at/all: there is no such folder"),
        "{error}"
    );
}

/// Progress of work that is stopped after it has asked `most` times.
struct StoppedAfter {
    most: usize,
    asked: AtomicUsize,
}

impl Progress for StoppedAfter {
    fn begin(&self, _what: &str, _total: Option<u64>) {}
    fn advance(&self, _by: u64) {}
    fn finish(&self) {}

    fn stopped(&self) -> bool {
        self.asked.fetch_add(1, SeqCst) >= self.most
    }
}

#[test]
fn a_first_reading_ends_when_it_is_stopped() {
    let both = lines(0, 40);
    let place = folder(&[("train.jsonl", &both), ("test.jsonl", &both)]);
    let progress = StoppedAfter {
        most: 10,
        asked: AtomicUsize::new(0),
    };
    let error = mine::open_unless_stopped(&name(place.path()), &progress).err();
    assert!(matches!(error, Some(Error::Interrupted)), "{error:?}");
    assert_eq!(progress.asked.into_inner(), 11, "no row is read after that");
    // The next one begins again.
    assert_eq!(open(place.path()).info().classes, 2);
}

/// Runs and notes may lie beside the data.
#[test]
fn other_files_are_told_in_the_manifest() {
    let both = lines(0, 40);
    let files = [
        ("train.jsonl", both.as_str()),
        ("test.jsonl", &both),
        ("README.md", "x"),
        ("runs/a/metrics.jsonl", "{}"),
        ("notes.csv", "x"),
    ];
    let place = folder(&files);
    let store = tempfile::tempdir().unwrap();
    let notes = splits(open(place.path()), store.path())
        .manifest
        .notes
        .join("; ");
    assert!(
        notes.contains("notes.csv and 1 other lie there too and were not read"),
        "{notes}"
    );
}

#[test]
fn changed_files_are_noticed_and_equal_names_kept_apart() {
    let place = folder(&[
        ("train.jsonl", &lines(0, 40)),
        ("test.jsonl", &lines(40, 20)),
    ]);
    let store = tempfile::tempdir().unwrap();
    let data = Store::new(store.path());
    let task = open(place.path());
    let key = Key::default_of(task);
    let first = data.open_or_build(task, &key, None, &()).unwrap();
    let now = data.raw_files(task).unwrap();
    assert_eq!(data.other_raw_files(task, &key, Some(&now)), None);

    // The same content at another time is the same data.
    let train = place.path().join("birds/train.jsonl");
    fs::write(&train, lines(0, 40)).unwrap();
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(60);
    fs::File::options()
        .write(true)
        .open(&train)
        .unwrap()
        .set_modified(later)
        .unwrap();
    let now = data.raw_files(task).unwrap();
    assert_eq!(data.other_raw_files(task, &key, Some(&now)), None);

    // Another content of the same size and time is other data.
    let stamp = fs::metadata(&train).unwrap().modified().unwrap();
    let swapped = lines(0, 40).replace("row 1 wren", "row 2 wren");
    assert_eq!(swapped.len(), lines(0, 40).len());
    fs::write(&train, swapped).unwrap();
    let file = fs::File::options().write(true).open(&train).unwrap();
    file.set_modified(stamp).unwrap();
    let now = data.raw_files(task).unwrap();
    let other = data
        .other_raw_files(task, &key, Some(&now))
        .unwrap()
        .to_string();
    assert!(
        other.contains("contents differ") && other.contains("--force"),
        "{other}"
    );
    let error = data.open_or_build(open(place.path()), &key, None, &());
    assert!(error.unwrap_err().to_string().contains("--force"));

    fs::write(&train, lines(0, 41)).unwrap();
    let task = open(place.path());
    let error = data.open_or_build(task, &key, None, &()).unwrap_err();
    assert_eq!(error.class(), Class::Data);
    assert!(error.to_string().contains("--force"), "{error}");
    let anew = data.rebuild(task, &key, None, &()).unwrap();
    assert_ne!(anew.manifest.digest, first.manifest.digest);

    // Another folder of the same last name.
    let elsewhere = folder(&[
        ("train.jsonl", &lines(7, 40)),
        ("test.jsonl", &lines(50, 20)),
    ]);
    let other = splits(open(elsewhere.path()), store.path());
    assert_ne!(other.manifest.digest, anew.manifest.digest);
    assert_eq!(data.list().unwrap().len(), 2);
}
