//! Pictures of the image task, in all of their forms.
#![allow(missing_docs, clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use crate::raw::{self, Files, build};
use crate::shared;
use image::ImageEncoder;
use image::codecs::png::PngEncoder;
use lra_datasets::tasks::Image;
use lra_datasets::{Class, Key, Protocol, Source, Store, Task};
use serde_json::json;

const NAMES: [&str; 6] = [
    "data_batch_1.bin",
    "data_batch_2.bin",
    "data_batch_3.bin",
    "data_batch_4.bin",
    "data_batch_5.bin",
    "test_batch.bin",
];

fn key(allow_partial: bool) -> Key {
    let mut key = Key::default_of(&Image);
    key.options["allow_partial"] = json!(allow_partial);
    key
}

/// Returns a record: label, then three planes.
fn record(number: usize) -> Vec<u8> {
    let mut bytes = vec![(number % 10) as u8];
    bytes.extend((0..3072).map(|i| (i * (number + 3) / 5 % 256) as u8));
    bytes
}

/// Returns the binary files with `records` records each.
fn batches(records: usize) -> Files {
    let file = |(file, name): (usize, &&str)| {
        let content = (0..records)
            .flat_map(|index| record(100 * file + index))
            .collect();
        (format!("cifar-10-batches-bin/{name}"), content)
    };
    let mut files: Files = NAMES.iter().enumerate().map(file).collect();
    files.push((
        "cifar-10-batches-bin/batches.meta.txt".into(),
        b"airplane\n".to_vec(),
    ));
    files
}

/// Returns the same pictures as Python 2 pickled them.
fn pickles(records: usize) -> Files {
    let file = |(name, content): (String, Vec<u8>)| {
        let name = name.trim_end_matches(".bin").replace("-bin", "-py");
        (name, pickle(&content))
    };
    let files = batches(records).into_iter();
    files
        .filter(|(name, _)| name.ends_with(".bin"))
        .map(file)
        .collect()
}

fn pickle(records: &[u8]) -> Vec<u8> {
    let count = (records.len() / 3073) as u16;
    let mut bytes = b"\x80\x02}q\x01(U\x0bbatch_labelq\x02U\x15training batch 1 of 5q\x03".to_vec();
    bytes.extend(b"U\x06labelsq\x04]q\x05(");
    bytes.extend(records.chunks(3073).flat_map(|record| [b'K', record[0]]));
    bytes.extend(
        b"eU\x04dataq\x06cnumpy.core.multiarray\n_reconstruct\nq\x07cnumpy\nndarray\nq\x08",
    );
    bytes.extend(b"K\0\x85U\x01b\x87Rq\x09(K\x01M");
    bytes.extend(count.to_le_bytes());
    bytes.extend(b"M\x00\x0c\x86cnumpy\ndtype\nq\nU\x02u1K\0K\x01\x87Rq\x0b(K\x03U\x01|NNN");
    bytes.extend(b"J\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb\x89T");
    bytes.extend((u32::from(count) * 3072).to_le_bytes());
    bytes.extend(records.chunks(3073).flat_map(|record| &record[1..]));
    bytes.extend(b"tbU\x09filenamesq\x0c]q\x0dU\x05a.pngau.");
    bytes
}

/// Writes the first 20 pictures of the first batch and those of test as parquet files.
fn tables(folder: &Path, packing: parquet::basic::Compression) {
    let schema =
        "message m { optional group img { optional binary bytes; } optional int64 label; }";
    for (split, from) in [("train", 0), ("test", 500)] {
        let pictures: Vec<_> = (from..from + 20).map(|i| png(&record(i))).collect();
        let rows: Vec<_> = pictures
            .iter()
            .enumerate()
            .map(|(i, png)| (&png[..], (i % 10) as i64))
            .collect();
        let path = folder.join(format!("plain_text/{split}-00000-of-00001.parquet"));
        raw::parquet(&path, schema, &rows, packing);
    }
}

fn png(record: &[u8]) -> Vec<u8> {
    let planes = &record[1..];
    let pixels: Vec<u8> = (0..3072).map(|i| planes[i % 3 * 1024 + i / 3]).collect();
    let mut bytes = Vec::new();
    PngEncoder::new(&mut bytes)
        .write_image(&pixels, 32, 32, image::ExtendedColorType::Rgb8)
        .unwrap();
    bytes
}

/// Computes the grey values by the published formula, written out for one record.
fn grey(record: &[u8]) -> Vec<u8> {
    let at = |plane: usize, i: usize| f32::from(record[1 + 1024 * plane + i]) / 255.0;
    let light = |i| 0.2989 * at(0, i) + 0.587 * at(1, i) + 0.114 * at(2, i);
    (0..1024).map(|i| (light(i) * 255.5) as u8).collect()
}

#[test]
fn a_part_is_read_only_when_allowed_and_says_so() {
    let root = tempfile::tempdir().unwrap();
    let folder = raw::folder(root.path(), &batches(60));
    let error = build(&Image, &key(false), &folder).unwrap_err();
    assert_eq!(error.class(), Class::Data);
    let text = error.to_string();
    assert!(
        text.contains("data_batch_1.bin: 184380 bytes instead of 30730000"),
        "{text}"
    );
    assert!(text.contains("--allow-partial"), "{text}");

    let built = build(&Image, &key(true), &folder).unwrap();
    assert!(built.passed && built.manifest().partial, "{}", built.text);
    let [train, val, test] = built.rows();
    assert_eq!((train + val, test), (300, 60));
    // Validation places among the first sixty: 2, 37, 46, 57 (computed with Python's hashlib).
    for (row, place) in [2, 37, 46, 57].into_iter().enumerate() {
        assert_eq!(
            built.splits.val.tokens(0, row),
            grey(&record(place)),
            "{place}"
        );
        assert_eq!(built.splits.val.label(row), (place % 10) as u8);
    }
    assert_eq!(built.splits.train.tokens(0, 2), grey(&record(3)));
    assert_eq!(built.splits.test.tokens(0, 59), grey(&record(559)));
}

/// Three pictures as written by Python's `pickle.dumps(..., protocol=0..5)` under NumPy 1.26 and
/// 2.4: keys as text and as bytes, the array by rows and by columns (`np.asfortranarray`), of two
/// axes and of four, labels as list, tuple, NumPy scalars and arrays.
#[test]
fn pickles_of_every_protocol_and_numpy_are_read() {
    let packed = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/pickles.tar.zst");
    let unpacked = zstd::decode_all(&fs::read(packed).unwrap()[..]).unwrap();
    let mut read = 0;
    for entry in tar::Archive::new(&unpacked[..]).entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().display().to_string();
        let mut pickle = Vec::new();
        std::io::Read::read_to_end(&mut entry, &mut pickle).unwrap();
        if pickle.is_empty() {
            continue; // The folder.
        }
        let root = tempfile::tempdir().unwrap();
        let names = ["data_batch_1", "test_batch"];
        let files: Files = names.map(|name| (name.to_owned(), pickle.clone())).to_vec();
        let built = build(&Image, &key(true), &raw::folder(root.path(), &files));
        let test = built
            .unwrap_or_else(|error| panic!("{name}: {error}"))
            .splits
            .test;
        assert_eq!(test.labels(), [3, 0, 9], "{name}");
        for row in 0..3 {
            let value = |i: usize| ((row * 3072 + i) / 11 % 251) as u8;
            let record: Vec<u8> = std::iter::once(0).chain((0..3072).map(value)).collect();
            assert_eq!(test.tokens(0, row), grey(&record), "{name}");
        }
        read += 1;
    }
    assert_eq!(read, 38);
}

#[test]
fn pickles_of_other_data_are_refused_in_words() {
    let list = |key: &str| [b"U", &[key.len() as u8][..], key.as_bytes(), b"]"].concat();
    for (items, problem) in [
        (["fine_labels", "data"], "of CIFAR-100"),
        (["labels", "pixels"], "a Python pickle without `data`"),
        (["classes", "data"], "a Python pickle without `labels`"),
        (["labels", "data"], "`data`: not a NumPy array"),
    ] {
        let pickle = [&b"\x80\x02}("[..], &list(items[0]), &list(items[1]), b"u."].concat();
        let root = tempfile::tempdir().unwrap();
        let names = ["data_batch_1", "test_batch"];
        let files: Files = names.map(|name| (name.to_owned(), pickle.clone())).to_vec();
        let error = build(&Image, &key(true), &raw::folder(root.path(), &files)).unwrap_err();
        assert!(error.to_string().contains(problem), "{error}");
    }
}

#[test]
fn a_second_pickle_in_a_file_is_refused() {
    let mut files = pickles(20);
    let second = files[1].1.clone();
    files[0].1.extend(second);
    let root = tempfile::tempdir().unwrap();
    let error = build(&Image, &key(true), &raw::folder(root.path(), &files)).unwrap_err();
    let said = error.to_string();
    assert!(
        said.contains("data_batch_1: ") && said.contains("after its end, such as a second pickle"),
        "{said}"
    );
}

#[test]
fn classes_have_other_words() {
    let classes = [
        ["airplane", "automobile", "bird"],
        ["plane", "car", "Bird"],
        ["0", "1", "2"],
        ["Aeroplane", "auto", "2"],
    ];
    let digest = |classes: [&str; 3]| {
        let root = tempfile::tempdir().unwrap();
        let picture = |(split, label): (&str, usize)| {
            let name = format!("{split}/{}/{label}.PNG", classes[label]);
            (name, png(&record(10 * split.len() + label)))
        };
        let all = ["train", "test"]
            .into_iter()
            .flat_map(|split| (0..3).map(move |n| (split, n)));
        // Enough pictures of train for some to be in validation.
        let more = (0..40).map(|n| {
            (
                format!("train/{}/9{n}.png", classes[n % 3]),
                png(&record(100 + n)),
            )
        });
        let files: Files = all.map(picture).chain(more).collect();
        let built = build(&Image, &key(true), &raw::folder(root.path(), &files)).unwrap();
        built.manifest().digest.clone()
    };
    let expected = digest(classes[0]);
    for words in &classes[1..] {
        assert_eq!(digest(*words), expected, "{words:?}");
    }
}

#[test]
fn every_form_gives_the_same_bytes() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path();
    let files = batches(20);
    let mut shuffled = files.clone();
    shuffled.rotate_left(3);
    let first = build(
        &Image,
        &key(true),
        &raw::folder(&root.join("folder"), &files),
    )
    .unwrap();
    let archives = [
        raw::file(root, "records.tar.gz", &raw::gzip(&raw::tar(&shuffled))),
        raw::file(root, "records.tar.zst", &raw::zstd(&raw::tar(&files))),
        raw::file(root, "records.zip", &raw::zip(&shuffled)),
        raw::file(root, "pickles.tar.gz", &raw::gzip(&raw::tar(&pickles(20)))),
        raw::folder(&root.join("pickles"), &pickles(20)),
    ];
    for archive in archives {
        let other = build(&Image, &key(true), &archive).unwrap();
        assert_eq!(other.manifest().digest, first.manifest().digest);
    }

    // The first batch alone, and the same pictures as parquet.
    let mut one = vec![files[0].clone(), files[5].clone()];
    one.push(("readme.html".into(), Vec::new()));
    let binary = build(&Image, &key(true), &raw::folder(&root.join("one"), &one)).unwrap();
    for (number, packing) in raw::packings().into_iter().enumerate() {
        let folder = root.join(format!("parquet{number}"));
        tables(&folder, packing);
        let built = build(&Image, &key(true), &folder).unwrap();
        assert_eq!(built.manifest().digest, binary.manifest().digest);
    }
}

/// Both published archives are known by name, beside files, tables and each other.
#[test]
fn archives_beside_other_forms_are_told() {
    type Lay<'a> = &'a dyn Fn(&Path);
    const PYTHON: &str = "cifar-10-python.tar.gz lies there too and was not read";
    const BOTH: &str =
        "cifar-10-binary.tar.gz and cifar-10-python.tar.gz lie there too and were not read";
    let pictures: Files = (0..60)
        .map(|number| {
            let split = ["train", "train", "test"][number % 3];
            let name = format!("cifar/{split}/{}/{number}.png", number % 10);
            (name, png(&record(number)))
        })
        .collect();
    let folder = |files: Files| move |root: &Path| drop(raw::folder(root, &files));
    let (binary, python) = (folder(batches(20)), folder(pickles(20)));
    let forms: [(Lay<'_>, &str); 5] = [
        (&|_| {}, PYTHON),
        (&binary, BOTH),
        (&python, BOTH),
        (&folder(pictures), BOTH),
        (
            &|root| tables(root, parquet::basic::Compression::SNAPPY),
            BOTH,
        ),
    ];
    for (lay, told) in forms {
        let root = tempfile::tempdir().unwrap();
        lay(root.path());
        for (name, files) in [
            ("cifar-10-binary.tar.gz", batches(25)),
            ("cifar-10-python.tar.gz", pickles(30)),
        ] {
            raw::file(root.path(), name, &raw::gzip(&raw::tar(&files)));
        }
        let built = build(&Image, &key(true), root.path()).unwrap();
        let notes = built.manifest().notes.join("\n");
        assert!(notes.contains(told), "{notes}");
        assert!(!notes.contains("has no name of a data file"), "{notes}");
        // It was not read.
        fs::remove_file(root.path().join("cifar-10-python.tar.gz")).unwrap();
        let alone = build(&Image, &key(true), root.path()).unwrap();
        assert_eq!(alone.manifest().digest, built.manifest().digest);
    }
}

#[test]
fn folders_of_png_files() {
    const CLASSES: [&str; 10] = [
        "airplane",
        "automobile",
        "bird",
        "cat",
        "deer",
        "dog",
        "frog",
        "horse",
        "ship",
        "truck",
    ];
    let root = tempfile::tempdir().unwrap();
    let mut files: Files = Vec::new();
    for number in 0..80 {
        let split = if number < 60 { "train" } else { "test" };
        let record = record(number);
        let class = CLASSES[usize::from(record[0])];
        files.push((
            format!("cifar10/{split}/{class}/{number:04}_{class}.png"),
            png(&record),
        ));
    }
    let folder = raw::folder(&root.path().join("folder"), &files);
    let built = build(&Image, &key(true), &folder).unwrap();
    let [train, val, test] = built.rows();
    assert_eq!((train + val, test), (60, 20));
    let notes = built.manifest().notes.join("\n");
    assert!(notes.contains("do not tell the published order"), "{notes}");
    let mut pictures: Vec<_> = (0..20)
        .map(|row| {
            (
                built.splits.test.tokens(0, row).to_vec(),
                built.splits.test.label(row),
            )
        })
        .collect();
    let mut expected: Vec<_> = (60..80)
        .map(|number| (grey(&record(number)), (number % 10) as u8))
        .collect();
    pictures.sort();
    expected.sort();
    assert_eq!(pictures, expected);
    files.reverse();
    let archive = raw::file(root.path(), "pictures.tar", &raw::tar(&files));
    assert_eq!(
        build(&Image, &key(true), &archive)
            .unwrap()
            .manifest()
            .digest,
        built.manifest().digest
    );

    // The names of the files do not matter.
    let named = files.iter().enumerate().map(|(number, (name, png))| {
        let (folder, _) = name.rsplit_once('/').unwrap();
        (format!("{folder}/x{number}.png"), png.clone())
    });
    let named = raw::folder(&root.path().join("named"), &named.collect());
    let named = build(&Image, &key(true), &named).unwrap();
    assert_eq!(named.manifest().digest, built.manifest().digest);

    // Nor does the order of equal pictures of two classes.
    let twice = record(0);
    for class in ["airplane", "truck"] {
        files.push((format!("cifar10/train/{class}/twice.png"), png(&twice)));
    }
    let digest = |name: &str, files: &Files| {
        let archive = raw::file(root.path(), name, &raw::tar(files));
        let built = build(&Image, &key(true), &archive).unwrap();
        built.manifest().digest.clone()
    };
    let forwards = digest("forwards.tar", &files);
    files.reverse();
    assert_eq!(digest("backwards.tar", &files), forwards);

    // With binary files beside them the choice would be ambiguous.
    raw::folder(&folder, &batches(10));
    let error = build(&Image, &key(true), &folder).unwrap_err().to_string();
    assert!(error.contains("both binary files and PNG files"), "{error}");
}

#[test]
fn what_is_wrong_with_a_file_is_said() {
    type Harm = fn(&mut Files);
    let table: &[(&str, Harm, &str)] = &[
        (
            "label",
            |files| files[1].1[3 * 3073] = 10,
            "data_batch_2.bin:4: record with the label 10",
        ),
        (
            "cut",
            |files| files[1].1.truncate(5000),
            "data_batch_2.bin: 5000 bytes instead of 30730000",
        ),
        (
            "empty",
            |files| files[5].1.clear(),
            "test_batch.bin: 0 bytes instead of 30730000",
        ),
        (
            "no test",
            |files| drop(files.remove(5)),
            "120 pictures of train and 0 of test",
        ),
        (
            "twice",
            |files| files.push(("elsewhere/data_batch_1.bin".into(), record(0))),
            "elsewhere/data_batch_1.bin: a second place of batches",
        ),
    ];
    for (name, harm, problem) in table {
        let root = tempfile::tempdir().unwrap();
        let mut files = batches(24);
        harm(&mut files);
        let folder = raw::folder(root.path(), &files);
        let error = build(&Image, &key(true), &folder).expect_err(name);
        assert_eq!(error.class(), Class::Data, "{name}");
        assert!(error.to_string().contains(problem), "{name}: {error}");
    }
}

#[test]
fn pickles_are_read_and_not_run() {
    let refuse = |harm: fn(&mut Vec<u8>), problem: &str| {
        let root = tempfile::tempdir().unwrap();
        let mut files = pickles(20);
        harm(&mut files[1].1);
        let folder = raw::folder(root.path(), &files);
        let error = build(&Image, &key(true), &folder).unwrap_err();
        assert_eq!(error.class(), Class::Data);
        let text = error.to_string();
        assert!(
            text.contains("data_batch_2: ") && text.contains(problem),
            "{text}"
        );
    };
    refuse(|bytes| bytes.truncate(60_000), "it is cut short");
    refuse(
        |bytes| *bytes = b"cos\nsystem\nU\x0atouch evil\x85R.".to_vec(),
        "without `labels`",
    );
    refuse(
        |bytes| *bytes = b"\x80\x02}(U\x04dataK\x01u.".to_vec(),
        "without `labels`",
    );
    refuse(
        |bytes| {
            let label = bytes.windows(2).position(|pair| pair == b"K\x09").unwrap();
            bytes[label + 1] = 10;
        },
        "the label 10, which is not 0 to 9",
    );
    let root = tempfile::tempdir().unwrap();
    let folder = raw::folder(root.path(), &pickles(20));
    let error = build(&Image, &key(false), &folder).unwrap_err().to_string();
    assert!(error.contains("20 pictures instead of 10000"), "{error}");
}

#[test]
fn pictures_of_another_kind_are_refused() {
    let encode = |width, height, kind, bytes: &[u8]| {
        let mut png = Vec::new();
        PngEncoder::new(&mut png)
            .write_image(bytes, width, height, kind)
            .unwrap();
        png
    };
    let large = encode(64, 64, image::ExtendedColorType::Rgb8, &[0; 3 * 64 * 64]);
    let plain = encode(32, 32, image::ExtendedColorType::L8, &[0; 1024]);
    for (content, problem) in [
        (large, "64 x 64 pixels instead of 32 x 32"),
        (plain, "not a picture of three channels"),
        (
            b"\x89PNG\r\n\x1a\nno more".to_vec(),
            "not a readable PNG picture",
        ),
        (vec![0; 70_000], "larger than 65536 bytes"),
    ] {
        let root = tempfile::tempdir().unwrap();
        let folder = raw::folder(root.path(), &vec![("train/frog/1.png".into(), content)]);
        let error = build(&Image, &key(true), &folder).unwrap_err().to_string();
        assert!(
            error.contains("train/frog/1.png: ") && error.contains(problem),
            "{error}"
        );
    }
}

#[test]
fn both_protocols_have_the_published_validation_pictures() {
    let store = Store::new(Path::new("nowhere"));
    let mut other = key(false);
    other.protocol = Protocol::Tay2021;
    assert_eq!(
        store.folder(&Image, &other),
        store.folder(&Image, &key(false))
    );
}

#[test]
fn smaller_pictures_have_another_label() {
    for side in [8, 16, 32] {
        let mut options = Image.defaults();
        options["max_length"] = json!(side * side);
        assert_eq!(Image.shape(&options).unwrap().grid, Some([side; 2]));
    }
    let root = tempfile::tempdir().unwrap();
    let folder = raw::folder(root.path(), &batches(24));
    let mut small = key(true);
    small.options["max_length"] = json!(256);
    let built = build(&Image, &small, &folder).unwrap();
    assert_eq!(
        (
            built.manifest().label.as_str(),
            built.splits.test.tokens(0, 0).len()
        ),
        ("image@256", 256)
    );
    small.options["max_length"] = json!(1000);
    let error = Image.shape(&small.options).unwrap_err();
    assert_eq!(error.class(), Class::Usage);
}

#[test]
fn pictures_are_shown_in_characters() {
    let show = |pixels: &[u8], label| Image.to_text(&[pixels], label);
    assert_eq!(show(&[0, 255, 128, 25], 3), "  @@\n++  \ncat\n");
    assert_eq!(show(&[26; 4], 10), "....\n....\nnone of the ten classes\n");
    // Pixels of no square have the published width.
    let lines: Vec<usize> = show(&[255; 40], 9).lines().map(str::len).collect();
    assert_eq!(lines, [64, 16, "truck".len()]);
}

/// Finds both discs by their grey values, which noise does not mix, and tells the class by the
/// angle from one centre to the other.
#[test]
fn the_class_of_the_stand_in_is_a_direction() {
    for (side, least) in [(32, 0.97), (16, 0.9)] {
        let mut key = key(false);
        key.source = Source::Synthetic;
        let sizes = [("train", 400), ("val", 10), ("test", 10)];
        for (name, size) in sizes.into_iter().chain([("max_length", side * side)]) {
            key.options[name] = json!(size);
        }
        let root = tempfile::tempdir().unwrap();
        let splits = Store::new(root.path()).open_or_build(&Image, &key, None, &());
        let train = splits.unwrap().train;
        let mut right = 0;
        for row in 0..train.len() {
            let pixels = train.tokens(0, row);
            let centre = |is_of_disc: fn(u8) -> bool| {
                let places = (0..pixels.len()).filter(|at| is_of_disc(pixels[*at]));
                let places: Vec<usize> = places.collect();
                let mean = |along: &dyn Fn(usize) -> usize| {
                    places.iter().map(|at| along(*at) as f64).sum::<f64>() / places.len() as f64
                };
                [mean(&|at| at / side), mean(&|at| at % side)]
            };
            let (dark, bright) = (centre(|grey| grey < 64), centre(|grey| grey >= 192));
            let angle = (bright[0] - dark[0])
                .atan2(bright[1] - dark[1])
                .to_degrees();
            let sector = (angle / 36.0).round().rem_euclid(10.0);
            right += usize::from(sector == f64::from(train.label(row)));
            // The rest is grey.
            assert!(pixels.iter().any(|grey| (96..160).contains(grey)));
            assert!(
                pixels
                    .iter()
                    .all(|grey| matches!(grey, 0..64 | 96..160 | 192..))
            );
        }
        let share = right as f64 / train.len() as f64;
        assert!(share > least, "{side} pixels: {share}");
    }
}

#[test]
fn the_published_pictures_that_are_at_hand() {
    let Some(archive) = shared::find("cifar10/cifar10_exact_subset.tar.zst") else {
        return;
    };
    let error = build(&Image, &key(false), &archive)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("12292000 bytes instead of 30730000"),
        "{error}"
    );
    let built = build(&Image, &key(true), &archive).unwrap();
    assert!(built.passed && built.manifest().partial, "{}", built.text);
    assert_eq!(built.rows(), [7_329, 739, 1_017]);
    let files = shared::unpack("cifar10/cifar10_exact_subset.tar.zst").unwrap();
    let batch = |name: &str| {
        let found = files
            .iter()
            .find(|(path, _)| Path::new(path).ends_with(name));
        &found.unwrap().1
    };
    let at = |name: &str, index: usize| batch(name)[3073 * index..][..3073].to_vec();
    assert_eq!(
        built.splits.train.tokens(0, 0),
        grey(&at("data_batch_1.bin", 0))
    );
    assert_eq!(
        built.splits.val.tokens(0, 1),
        grey(&at("data_batch_1.bin", 37))
    );
    assert_eq!(
        built.splits.test.tokens(0, 1016),
        grey(&at("test_batch.bin", 1016))
    );
}
