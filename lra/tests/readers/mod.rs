//! Readers of files from outside, each as a function of bytes.
//!
//! `lra/fuzz` searches for bytes that make one fail, and `corpus.rs` reads the inputs on file. Any
//! bytes either give an error of class data or valid data: no panic, no hang, no unbounded memory.

use std::fs;
use std::path::{Path, PathBuf};

use datasets::{Class, Key, Source, Store, Task, tasks};
use serde_json::{Value, json};

/// A reader of one kind of file.
pub struct Reader {
    /// Name of the reader and of its folder in the corpus.
    pub name: &'static str,
    reads: Reads,
}

/// Ways to read the file.
enum Reads {
    /// Builds a task's data from raw files, one of which is the input.
    Task {
        task: &'static str,
        options: fn() -> Value,
        /// Returns names and contents of the files around it.
        around: fn() -> Vec<(String, Vec<u8>)>,
        /// Name of the input; empty if the input is an archive that holds all.
        file: &'static str,
    },
    /// Builds the task of a folder, one of whose files is the input.
    Folder {
        /// Name of the input.
        file: &'static str,
    },
    /// Reads a file of this name.
    File {
        file: &'static str,
        read: fn(&Path) -> results::Result<()>,
    },
}

const fn of_task(
    name: &'static str,
    task: &'static str,
    file: &'static str,
    around: fn() -> Vec<(String, Vec<u8>)>,
) -> Reader {
    Reader {
        name,
        reads: Reads::Task {
            task,
            options: || json!({}),
            around,
            file,
        },
    }
}

const fn of_file(
    name: &'static str,
    file: &'static str,
    read: fn(&Path) -> results::Result<()>,
) -> Reader {
    Reader {
        name,
        reads: Reads::File { file, read },
    }
}

const fn with_options(mut reader: Reader, options: fn() -> Value) -> Reader {
    if let Reads::Task { options: own, .. } = &mut reader.reads {
        *own = options;
    }
    reader
}

fn partial() -> Value {
    json!({ "allow_partial": true })
}

/// All readers.
pub const READERS: &[Reader] = &[
    of_task("expressions", "listops", "basic_val.tsv", expressions),
    of_task("pairs", "retrieval", "new_aan_pairs.eval.tsv", pairs),
    with_options(
        of_task(
            "pairs-decoded",
            "retrieval",
            "new_aan_pairs.eval.tsv",
            pairs,
        ),
        || json!({ "decode": true }),
    ),
    of_task("papers", "retrieval", "papers.tsv", corpus),
    of_task("citations", "retrieval", "edges.tsv", corpus),
    of_task("reviews-archive", "text", "", Vec::new),
    of_task("reviews-parquet", "text", "test.parquet", table),
    with_options(
        of_task("pictures", "image", "train/3/3.png", pictures),
        partial,
    ),
    with_options(of_task("pictures-archive", "image", "", Vec::new), partial),
    with_options(
        of_task("pictures-binary", "image", "test_batch.bin", batches),
        partial,
    ),
    with_options(
        of_task("pictures-pickle", "image", "test_batch", pickles),
        partial,
    ),
    of_task(
        "contour-lists",
        "pathfinder",
        "pathfinder32/curv_contour_length_14/metadata/0.npy",
        contours,
    ),
    of_task(
        "contour-pictures",
        "pathfinder",
        "pathfinder32/curv_contour_length_14/imgs/0/sample_3.png",
        contours,
    ),
    of_task("contour-archive", "pathfinder", "", Vec::new),
    Reader {
        name: "own-folder",
        reads: Reads::Folder {
            file: "train.jsonl",
        },
    },
    Reader {
        name: "own-table",
        reads: Reads::Folder {
            file: "train.parquet",
        },
    },
    of_file("record", "record.json", |path| {
        results::store::read(path).map(drop)
    }),
    of_file("records", "records.csv", |path| {
        results::store::record_file::read(path).map(drop)
    }),
    of_file("baseline", "base.csv", |path| {
        results::check::Baseline::read(path).map(drop)
    }),
    of_file("bench", "bench.jsonl", |path| {
        results::bench::read(path).map(drop)
    }),
    of_file("metrics", "metrics.jsonl", |path| {
        let folder = path.parent().unwrap_or(Path::new("."));
        results::metrics::read(folder).map(|lines| drop(results::metrics::trace(&lines)))
    }),
];

fn expressions() -> Vec<(String, Vec<u8>)> {
    let rows = "Source\tTarget\n[MAX 2 9 ]\t9\n[MIN 4 5 ]\t4\n";
    ["train", "val", "test"]
        .map(|split| (format!("basic_{split}.tsv"), rows.into()))
        .to_vec()
}

fn pairs() -> Vec<(String, Vec<u8>)> {
    let rows = "1.0\tA1\tB1\tb'one text'\tb'another'\n0.0\tA2\tB2\tb'one'\tb'more'\n";
    ["train", "eval", "test"]
        .map(|split| (format!("new_aan_pairs.{split}.tsv"), rows.into()))
        .to_vec()
}

fn corpus() -> Vec<(String, Vec<u8>)> {
    let papers: String = (0..40)
        .map(|i| format!("P{i}\tthe text of paper {i}\n"))
        .collect();
    let edges: String = (0..200)
        .map(|i| format!("P{}\tP{}\t1\t0\n", i % 40, (i * 7 + i / 40 + 1) % 40))
        .collect();
    vec![
        ("papers.tsv".into(), papers.into()),
        ("edges.tsv".into(), edges.into()),
    ]
}

fn table() -> Vec<(String, Vec<u8>)> {
    let rows = include_bytes!("../../fuzz/corpus/reviews-parquet/plain.parquet");
    vec![("train.parquet".into(), rows.to_vec())]
}

fn pictures() -> Vec<(String, Vec<u8>)> {
    let picture = include_bytes!("../../fuzz/corpus/pictures/whole.png");
    // Its hash puts it into the validation split.
    let validates = include_bytes!("../../fuzz/corpus/pictures/validates.png");
    let files = ["train", "test"].map(|split| {
        let name = move |class| format!("{split}/{class}/1.png");
        (0..10).map(move |class| (name(class), picture.to_vec()))
    });
    let mut files: Vec<_> = files.into_iter().flatten().collect();
    files.push(("train/0/2.png".into(), validates.to_vec()));
    files
}

fn pickles() -> Vec<(String, Vec<u8>)> {
    let batch = include_bytes!("../../fuzz/corpus/pictures-pickle/array");
    (1..=5)
        .map(|number| (format!("data_batch_{number}"), batch.to_vec()))
        .collect()
}

fn batches() -> Vec<(String, Vec<u8>)> {
    let batch = include_bytes!("../../fuzz/corpus/pictures-binary/whole.bin");
    (1..=2)
        .map(|number| (format!("data_batch_{number}.bin"), batch.repeat(20)))
        .collect()
}

fn contours() -> Vec<(String, Vec<u8>)> {
    let list = include_bytes!("../../fuzz/corpus/contour-lists/whole.npy");
    let picture = include_bytes!("../../fuzz/corpus/contour-pictures/whole.png");
    let set = "pathfinder32/curv_contour_length_14";
    let pictures = (0..12).map(|number| {
        let name = format!("{set}/imgs/0/sample_{number}.png");
        (name, picture.to_vec())
    });
    pictures
        .chain([(format!("{set}/metadata/0.npy"), list.to_vec())])
        .collect()
}

/// A reader with a folder of its own, in shared memory where possible, which holds the files around
/// the one under attack.
pub struct Prepared {
    reader: &'static Reader,
    folder: tempfile::TempDir,
}

impl Prepared {
    /// Creates the folder and writes the files around the one under attack.
    pub fn new(reader: &'static Reader) -> Prepared {
        let memory = Path::new("/dev/shm");
        let folder = match memory.is_dir() {
            true => tempfile::tempdir_in(memory),
            false => tempfile::tempdir(),
        };
        let prepared = Prepared {
            reader,
            folder: folder.unwrap(),
        };
        if let Reads::Task { around, .. } = &reader.reads {
            for (name, content) in around() {
                write(&prepared.raw().join(name), &content);
            }
        }
        prepared
    }

    fn raw(&self) -> PathBuf {
        self.folder.path().join("raw")
    }

    /// Writes `bytes` in place of the file and reads it. Returns whether they were accepted.
    pub fn read(&self, bytes: &[u8]) -> bool {
        match &self.reader.reads {
            Reads::File { file, read } => {
                let path = self.folder.path().join(file);
                write(&path, bytes);
                let read = read(&path);
                if let Err(error) = &read {
                    assert!(!error.to_string().is_empty());
                }
                read.is_ok()
            }
            Reads::Folder { file } => {
                let raw = self.raw();
                write(&raw.join(file), bytes);
                let test = raw.join("test.jsonl");
                if !test.exists() {
                    let rows = ["zero", "one"].iter().enumerate();
                    let rows = rows.map(|(label, text)| json!({"text": text, "label": label}));
                    let rows: Vec<String> = rows.map(|row| row.to_string()).collect();
                    write(&test, rows.join("\n").as_bytes());
                }
                let name = format!("{}{}", tasks::mine::PREFIX, raw.display());
                match tasks::mine::open(&name) {
                    Ok(task) => self.build_key(task, &Key::default_of(task), None),
                    Err(error) => {
                        assert_eq!(error.class(), Class::Data, "{error}");
                        false
                    }
                }
            }
            Reads::Task {
                task,
                options,
                file,
                ..
            } => {
                let raw = self.raw();
                write(
                    &if file.is_empty() {
                        raw.clone()
                    } else {
                        raw.join(file)
                    },
                    bytes,
                );
                self.build(task, options(), &raw)
            }
        }
    }

    /// Builds a task's data from raw files, and verifies accepted data. Returns whether they were
    /// accepted.
    fn build(&self, task: &str, options: Value, raw: &Path) -> bool {
        let task = tasks::find(task).unwrap();
        let mut key = Key {
            source: Source::Official,
            ..Key::default_of(task)
        };
        for (name, value) in options.as_object().unwrap() {
            key.options[name] = value.clone();
        }
        self.build_key(task, &key, Some(raw))
    }

    fn build_key(&self, task: &dyn Task, key: &Key, raw: Option<&Path>) -> bool {
        let store = Store::new(&self.folder.path().join("data"));
        match store.rebuild(task, key, raw, &()) {
            Ok(_) => {
                let verified = store.verify(task, key, &()).unwrap();
                let of_data = |name: &str| !name.starts_with("raw files");
                let failed = verified
                    .checks
                    .iter()
                    .find(|it| !it.ok && of_data(&it.name));
                assert_eq!(failed, None);
                true
            }
            Err(error) => {
                assert_eq!(error.class(), Class::Data, "{error}");
                false
            }
        }
    }
}

fn write(path: &Path, bytes: &[u8]) {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).unwrap();
    }
    fs::write(path, bytes).unwrap();
}
