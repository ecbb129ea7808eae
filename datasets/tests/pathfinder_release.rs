//! Reading of published images: folders, archives, and their errors.
#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::support;
use image::ImageEncoder;
use lra_datasets::tasks::pathfinder::{PATHFINDER, PATHX};
use lra_datasets::{Error, Key, Protocol, Result, Source, SplitName, Splits, Store, Task};
use serde_json::json;

const HARD: &str = "pathfinder32/curv_contour_length_14";

/// Returns the files of a small set by path; image `n` is of grey value `n`, its label is `n % 2`.
fn small_set(images: u8) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut metadata = [String::new(), String::new()];
    for n in 0..images {
        // Two batches, so that their order matters.
        let batch = usize::from(n >= images / 2);
        let mut png = Vec::new();
        image::codecs::png::PngEncoder::new(&mut png)
            .write_image(&[n; 1024], 32, 32, image::ExtendedColorType::L8)
            .unwrap();
        files.insert(format!("{HARD}/imgs/{batch}/sample_{n}.png"), png);
        metadata[batch] += &format!(
            "imgs/{batch} sample_{n}.png {n} {} 1.0 14 4 2 0.5 1 1\n",
            n % 2
        );
    }
    for (batch, text) in metadata.into_iter().enumerate() {
        files.insert(format!("{HARD}/metadata/{batch}.npy"), text.into_bytes());
    }
    files
}

fn write_folder(root: &Path, files: &BTreeMap<String, Vec<u8>>) {
    for (name, bytes) in files {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

fn tar_of(files: &BTreeMap<String, Vec<u8>>, prefix: &str) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    // Metadata last: the reader must not depend on it coming first.
    for (name, bytes) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        builder
            .append_data(&mut header, format!("{prefix}{name}"), &bytes[..])
            .unwrap();
    }
    builder.into_inner().unwrap()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut encoder, bytes).unwrap();
    encoder.finish().unwrap()
}

fn official(protocol: Protocol, options: &[(&str, serde_json::Value)]) -> Key {
    let mut key = Key {
        source: Source::Official,
        protocol,
        ..Key::default_of(&PATHFINDER)
    };
    for (name, value) in options {
        key.options[*name] = value.clone();
    }
    key
}

fn read(from: &Path, key: &Key) -> Result<Splits> {
    let root = tempfile::tempdir().unwrap();
    Store::new(root.path()).open_or_build(&PATHFINDER, key, Some(from), &())
}

fn clean() -> Key {
    official(Protocol::Clean, &[])
}

/// Reads a set after some of its files were changed; returns the error's text.
fn refused(alter: impl FnOnce(&mut BTreeMap<String, Vec<u8>>)) -> String {
    let mut files = small_set(40);
    alter(&mut files);
    let folder = tempfile::tempdir().unwrap();
    write_folder(folder.path(), &files);
    read(folder.path(), &clean()).unwrap_err().to_string()
}

#[test]
fn folder_tar_and_gzip_give_the_same_data() {
    let files = small_set(40);
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("folder");
    write_folder(&folder, &files);
    let tar = root.path().join("some.tar");
    fs::write(&tar, tar_of(&files, "lra_release/lra_release/")).unwrap();
    let downloaded = root.path().join("downloaded");
    fs::create_dir(&downloaded).unwrap();
    fs::write(
        downloaded.join("lra_release.gz"),
        gzip(&tar_of(&files, "./")),
    )
    .unwrap();
    let zstd = root.path().join("some.tar.zst");
    fs::write(&zstd, zstd::encode_all(&tar_of(&files, "")[..], 3).unwrap()).unwrap();
    for protocol in Protocol::ALL {
        let key = official(protocol, &[]);
        let set_folder = folder.join(HARD);
        let sources: [&PathBuf; 5] = [&folder, &set_folder, &tar, &zstd, &downloaded];
        let digests: Vec<String> = sources
            .iter()
            .map(|from| read(from, &key).unwrap().manifest.digest)
            .collect();
        assert!(
            digests.iter().all(|digest| *digest == digests[0]),
            "{protocol}: {digests:?}"
        );
    }
}

#[test]
fn pixels_labels_and_splits_are_right() {
    let folder = tempfile::tempdir().unwrap();
    write_folder(folder.path(), &small_set(40));
    for protocol in Protocol::ALL {
        let splits = read(folder.path(), &official(protocol, &[])).unwrap();
        let mut seen = Vec::new();
        for split_name in SplitName::ALL {
            let split = splits.get(split_name);
            for row in 0..split.len() {
                let pixels = split.tokens(0, row);
                assert_eq!(pixels, [pixels[0]; 1024]);
                assert_eq!(split.label(row), pixels[0] % 2);
                seen.push(pixels[0]);
            }
        }
        assert_eq!(
            [splits.train.len(), splits.val.len(), splits.test.len()],
            [32, 4, 4]
        );
        assert_eq!(seen.is_sorted(), protocol == Protocol::Tay2021);
        if protocol == Protocol::Clean {
            // By the SHA-256 of the words "pathfinder clean split " and the path.
            assert_eq!(seen[32..], [15, 29, 34, 36, 2, 20, 25, 39]);
        }
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..40));
        assert!(splits.manifest.partial);
        assert!(
            splits
                .manifest
                .notes
                .iter()
                .any(|note| note.contains("40 of 200000"))
        );
        assert!(
            splits
                .manifest
                .notes
                .iter()
                .any(|note| note.contains("80/10/10"))
        );
    }
}

#[test]
fn missing_and_empty_images_are_left_out_and_counted() {
    let mut files = small_set(40);
    files.remove(&format!("{HARD}/imgs/0/sample_3.png"));
    files.insert(format!("{HARD}/imgs/1/sample_30.png"), Vec::new());
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("folder");
    write_folder(&folder, &files);
    let tar = root.path().join("some.tar.gz");
    fs::write(&tar, gzip(&tar_of(&files, ""))).unwrap();
    for from in [folder, tar] {
        let splits = read(&from, &clean()).unwrap();
        assert_eq!(
            splits.train.len() + splits.val.len() + splits.test.len(),
            38
        );
        let notes = &splits.manifest.notes;
        assert!(
            notes.iter().any(|note| note.starts_with("2 listed images")),
            "{notes:?}"
        );
    }
}

/// The release has one empty image, in the easy set.
#[test]
fn the_image_that_is_empty_in_the_release_is_not_counted() {
    let mut files = BTreeMap::new();
    for (name, bytes) in small_set(40) {
        let name = name.replace("14/imgs/0/sample_3.png", "14/imgs/0/sample_172.png");
        let text = String::from_utf8(bytes.clone());
        let bytes = text.map_or(bytes, |text| {
            text.replace("imgs/0 sample_3.png", "imgs/0 sample_172.png")
                .into_bytes()
        });
        files.insert(
            name.replace("curv_contour_length_14", "curv_baseline"),
            bytes,
        );
    }
    files.insert(
        "pathfinder32/curv_baseline/imgs/0/sample_172.png".to_owned(),
        Vec::new(),
    );
    let folder = tempfile::tempdir().unwrap();
    write_folder(folder.path(), &files);
    let key = official(Protocol::Clean, &[("difficulty", json!("easy"))]);
    let notes = read(folder.path(), &key).unwrap().manifest.notes;
    for note in [
        "1 listed image, missing or empty, left out",
        "39 of 200000 published images are here",
    ] {
        assert!(notes.contains(&note.to_owned()), "{notes:?}");
    }
}

#[test]
fn images_that_cannot_be_published_ones_are_altered() {
    let altered = |alter: fn(usize, &mut [u8])| {
        let mut files = small_set(40);
        let pictures = files.iter_mut().filter(|(name, _)| name.ends_with(".png"));
        for (index, (_, png)) in pictures.enumerate() {
            let mut pixels = [0; 1024];
            alter(index, &mut pixels);
            png.clear();
            image::codecs::png::PngEncoder::new(png)
                .write_image(&pixels, 32, 32, image::ExtendedColorType::L8)
                .unwrap();
        }
        let folder = tempfile::tempdir().unwrap();
        write_folder(folder.path(), &files);
        read(folder.path(), &clean()).unwrap().manifest.altered
    };
    let dashes = |index: usize, pixels: &mut [u8]| pixels[index..index + 9].fill(200);
    assert_eq!(altered(dashes), Vec::<String>::new());
    // One picture again and again.
    let actual = altered(|_, pixels| pixels[..9].fill(200)).join("\n");
    assert!(
        actual.contains("only 1 of 32 images of train differ"),
        "{actual}"
    );
    // Different, but nothing is on them.
    let actual = altered(|index, pixels| pixels.fill(index as u8));
    assert_eq!(
        actual,
        ["40 of 40 images are of one grey all over, and the published ones show dashes"]
    );
}

/// All 200,000 images are listed as published, and 400 are present: an archive that was unpacked in
/// part. With one more in the lists, these are not the published ones.
#[test]
fn listed_images_that_are_missing_make_the_data_partial() {
    let template = small_set(2);
    let png = &template[&format!("{HARD}/imgs/0/sample_0.png")];
    let mut files = BTreeMap::new();
    for batch in 0..200 {
        let line = |n: usize| format!("imgs/{batch} sample_{n}.png {n} {} 1.0 14\n", n % 2);
        let list: String = (0..1000).map(line).collect();
        files.insert(format!("{HARD}/metadata/{batch}.npy"), list.into_bytes());
        for n in 0..2 {
            files.insert(format!("{HARD}/imgs/{batch}/sample_{n}.png"), png.clone());
        }
    }
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("folder");
    write_folder(&folder, &files);
    let tar = root.path().join("some.tar");
    fs::write(&tar, tar_of(&files, "")).unwrap();
    for from in [&folder, &tar] {
        let manifest = read(from, &clean()).unwrap().manifest;
        assert!(manifest.partial, "{:?}", manifest.notes);
        let listed = |how: &String| how.contains("are listed");
        assert!(!manifest.altered.iter().any(listed));
        for note in [
            "199600 listed images, missing or empty, left out",
            "400 of 200000 published images are here",
        ] {
            assert!(
                manifest.notes.contains(&note.to_owned()),
                "{:?}",
                manifest.notes
            );
        }
    }
    let one = format!("{HARD}/metadata/200.npy");
    files.insert(one, b"imgs/200 sample_0.png 0 1 1.0 14\n".to_vec());
    fs::write(&tar, tar_of(&files, "")).unwrap();
    let altered = read(&tar, &clean()).unwrap().manifest.altered;
    let more = "200001 images are listed, more than the 200000 that were published".to_owned();
    assert!(altered.contains(&more), "{altered:?}");
}

/// Path-X counts its images as Pathfinder does.
#[test]
fn missing_images_of_path_x_make_the_data_partial() {
    const HARDEST: &str = "pathfinder128/curv_contour_length_14";
    let mut png = Vec::new();
    image::codecs::png::PngEncoder::new(&mut png)
        .write_image(&[9; 128 * 128], 128, 128, image::ExtendedColorType::L8)
        .unwrap();
    let mut files = BTreeMap::new();
    for batch in 0..200 {
        let line = |n: usize| format!("imgs/{batch} sample_{n}.png {n} {} 1.0 14\n", n % 2);
        let list: String = (0..2).map(line).collect();
        files.insert(format!("{HARDEST}/metadata/{batch}.npy"), list.into_bytes());
        for n in 0..2 {
            files.insert(
                format!("{HARDEST}/imgs/{batch}/sample_{n}.png"),
                png.clone(),
            );
        }
    }
    let root = tempfile::tempdir().unwrap();
    write_folder(root.path(), &files);
    let key = Key {
        source: Source::Official,
        ..Key::default_of(&PATHX)
    };
    let store = tempfile::tempdir().unwrap();
    let store = Store::new(store.path());
    let splits = store.open_or_build(&PATHX, &key, Some(root.path()), &());
    let manifest = splits.unwrap().manifest;
    assert!(manifest.partial, "{:?}", manifest.notes);
    let counted = "400 of 200000 published images are here".to_owned();
    assert!(manifest.notes.contains(&counted), "{:?}", manifest.notes);
}

/// A list that was loaded and saved again is an array of text.
#[test]
fn lists_saved_as_arrays_are_read() {
    let files = small_set(40);
    let root = tempfile::tempdir().unwrap();
    let plain = root.path().join("plain");
    write_folder(&plain, &files);
    let expected = read(&plain, &clean()).unwrap().manifest.digest;
    for by_columns in [false, true] {
        let mut files = files.clone();
        for (name, content) in &mut files {
            if !name.ends_with(".npy") {
                continue;
            }
            let text = String::from_utf8(content.clone()).unwrap();
            let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(' ').collect()).collect();
            let (height, width) = (rows.len(), rows[0].len());
            let cells = (0..height * width).map(|i| match by_columns {
                false => rows[i / width][i % width],
                true => rows[i % height][i / height],
            });
            let mut values = Vec::new();
            for cell in cells {
                let end = values.len() + 4 * 20;
                values.extend(
                    cell.chars()
                        .flat_map(|symbol| u32::from(symbol).to_le_bytes()),
                );
                values.resize(end, 0);
            }
            let order = if by_columns { "True" } else { "False" };
            let header = format!(
                "{{'descr': '<U20', 'fortran_order': {order}, 'shape': ({height}, {width}), }}\n"
            );
            *content = b"\x93NUMPY\x01\0".to_vec();
            content.extend((header.len() as u16).to_le_bytes());
            content.extend(header.as_bytes());
            content.extend(values);
        }
        let folder = root.path().join(format!("{by_columns}"));
        write_folder(&folder, &files);
        assert_eq!(read(&folder, &clean()).unwrap().manifest.digest, expected);
    }
}

#[test]
fn the_inner_of_two_copies_is_read() {
    let inner = small_set(40);
    let mut outer = inner.clone();
    for (name, bytes) in &mut outer {
        if name.ends_with(".npy") {
            *bytes = String::from_utf8(bytes.clone())
                .unwrap()
                .replace(" 1 1.0", " 0 1.0")
                .into_bytes();
        }
    }
    let both: BTreeMap<String, Vec<u8>> = inner
        .into_iter()
        .map(|(name, bytes)| (format!("lra_release/lra_release/{name}"), bytes))
        .chain(
            outer
                .into_iter()
                .map(|(name, bytes)| (format!("lra_release/{name}"), bytes)),
        )
        .collect();
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("folder");
    write_folder(&folder, &both);
    let tar = root.path().join("some.tar");
    fs::write(&tar, tar_of(&both, "")).unwrap();
    for from in [folder, tar] {
        let splits = read(&from, &clean()).unwrap();
        assert!(splits.train.labels().contains(&1), "{}", from.display());
        let notes = splits.manifest.notes.join("\n");
        assert!(
            notes.contains("not read: `lra_release/pathfinder32/"),
            "{notes}"
        );
    }
    // With two copies at one depth, either may be meant.
    let twice: BTreeMap<String, Vec<u8>> = small_set(40)
        .into_iter()
        .flat_map(|(name, bytes)| {
            [
                (format!("a/{name}"), bytes.clone()),
                (format!("b/{name}"), bytes),
            ]
        })
        .collect();
    let folder = root.path().join("twice");
    write_folder(&folder, &twice);
    let tar = root.path().join("twice.tar");
    fs::write(&tar, tar_of(&twice, "")).unwrap();
    for from in [folder, tar] {
        let error = read(&from, &clean()).unwrap_err().to_string();
        assert!(
            error.contains("the set is there twice, in `a/pathfinder32"),
            "{error}"
        );
    }
}

#[test]
fn wrong_data_is_refused_by_file_and_line() {
    let metadata = format!("{HARD}/metadata/0.npy");
    let set = |bytes: &[u8]| {
        let bytes = bytes.to_vec();
        refused(|files| {
            files.insert(metadata.clone(), bytes);
        })
    };
    let bad_label = set(b"imgs/0 sample_0.png 0 1\nimgs/0 sample_1.png 0 x\n");
    assert!(bad_label.contains("0.npy:2: the label"), "{bad_label}");
    let escape = set(b"imgs/0 ../../../etc/passwd.png 0 1\n");
    assert!(escape.contains("0.npy:1:"), "{escape}");
    let array = set(b"\x93NUMPY\x01\x00v\x00{'descr': '|S13'}");
    assert!(array.contains("0.npy: this is a NumPy array"), "{array}");
    let twice = set(b"imgs/0 sample_0.png 0 1\nimgs/0 sample_0.png 0 1\n");
    assert!(twice.contains("sample_0.png is listed twice"), "{twice}");
    let truncated = refused(|files| {
        files
            .get_mut(&format!("{HARD}/imgs/0/sample_2.png"))
            .unwrap()
            .truncate(60);
    });
    assert!(
        truncated.contains("sample_2.png: not a readable PNG"),
        "{truncated}"
    );
    let nothing = refused(|files| files.retain(|name, _| !name.ends_with(".png")));
    assert!(
        nothing.contains("40 of 40 listed images are missing or empty"),
        "{nothing}"
    );
    let folder = tempfile::tempdir().unwrap();
    let absent = read(folder.path(), &clean()).unwrap_err();
    assert!(matches!(absent, Error::Missing { .. }), "{absent}");
    assert!(absent.to_string().contains("--source generated"));
    let gone = read(&folder.path().join("nowhere.tar"), &clean()).unwrap_err();
    assert!(matches!(gone, Error::Missing { .. }), "{gone}");
}

#[test]
fn wrong_archives_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("some.tar.gz");
    let error = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        read(&path, &clean()).unwrap_err().to_string()
    };
    let whole = gzip(&tar_of(&small_set(40), ""));
    let cut = error(&whole[..whole.len() / 2]);
    assert!(
        cut.contains("some.tar.gz") && cut.contains("damaged or incomplete"),
        "{cut}"
    );
    let noise = error(&[7; 2000]);
    assert!(noise.contains("neither a folder nor"), "{noise}");
    let mut escaping = tar_of(&small_set(40), "");
    let mut header = tar::Header::new_gnu();
    header.set_size(0);
    let name = b"../../outside.png";
    header.as_old_mut().name[..name.len()].copy_from_slice(name);
    header.set_cksum();
    let mut outside = header.as_bytes().to_vec();
    outside.append(&mut escaping);
    let outside = error(&outside);
    assert!(
        outside.contains("would lie outside of the archive"),
        "{outside}"
    );
    let other = error(&gzip(&tar_of(
        &BTreeMap::from([("a.txt".to_owned(), vec![1])]),
        "",
    )));
    assert!(other.contains("missing: the published set"), "{other}");
}

#[test]
fn the_layout_sample_is_read() {
    let Some(sample) = support::shared("pathfinder/pathfinder_layout_sample.tar.gz") else {
        return;
    };
    for (size, difficulty, images) in [
        (32, "hard", 200),
        (32, "easy", 40),
        (32, "intermediate", 40),
        (64, "hard", 40),
        (128, "hard", 10),
    ] {
        let options = [("size", json!(size)), ("difficulty", json!(difficulty))];
        let splits = read(&sample, &official(Protocol::Tay2021, &options)).unwrap();
        let rows = splits.train.len() + splits.val.len() + splits.test.len();
        assert_eq!(rows, images, "{size} {difficulty}");
        assert_eq!(splits.train.tokens(0, 0).len(), size * size);
        assert!(splits.train.labels().contains(&1));
    }
    let options = [("size", json!(256))];
    assert!(matches!(
        read(&sample, &official(Protocol::Clean, &options)),
        Err(Error::Missing { .. })
    ));
}

#[test]
fn images_of_another_generator_are_refused() {
    let Some(images) = support::shared("pathfinder/pathfinder_public_images.tar.gz") else {
        return;
    };
    let root = tempfile::tempdir().unwrap();
    let file = fs::File::open(images).unwrap();
    tar::Archive::new(flate2::read::GzDecoder::new(file))
        .unpack(root.path())
        .unwrap();
    let options = [("size", json!(256)), ("difficulty", json!("easy"))];
    let from = root.path().join("gilbert_contours_256");
    let error = read(&from, &official(Protocol::Clean, &options))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("metadata/1.npy: this is a NumPy array"),
        "{error}"
    );
}

#[test]
fn drawing_options_do_not_matter_for_published_images() {
    let store = Store::new(Path::new("nowhere"));
    for (name, value) in [
        ("seed", json!(1)),
        ("train", json!(5)),
        ("val", json!(5)),
        ("test", json!(5)),
        ("pixels", json!("upstream")),
        ("min_dashes", json!(5)),
        ("max_dashes", json!(5)),
    ] {
        let one = official(Protocol::Clean, &[(name, value)]);
        assert_eq!(
            store.folder(&PATHFINDER, &one),
            store.folder(&PATHFINDER, &clean()),
            "{name}"
        );
    }
    for (name, value) in [("size", json!(64)), ("difficulty", json!("easy"))] {
        let other = official(Protocol::Clean, &[(name, value)]);
        assert_ne!(
            store.folder(&PATHFINDER, &other),
            store.folder(&PATHFINDER, &clean()),
            "{name}"
        );
    }
    assert_ne!(
        store.folder(&PATHFINDER, &official(Protocol::Tay2021, &[])),
        store.folder(&PATHFINDER, &clean())
    );
    assert_eq!(PATHFINDER.info().sources[0], Source::Generated);
}
