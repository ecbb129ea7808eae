//! One copy of the published archive serves every task that was published in it.
#![allow(missing_docs, clippy::unwrap_used)]

use crate::raw::{self, Files};
use image::ImageEncoder;
use lra_datasets::tasks::pathfinder::PATHFINDER;
use lra_datasets::tasks::{ListOps, Retrieval};
use lra_datasets::{Key, Source, Store, Task};

/// Returns a small archive with ListOps twice, as in the published one.
fn release() -> Files {
    let mut files = Files::new();
    for outer in ["lra_release", "lra_release/lra_release"] {
        for part in ["train", "val", "test"] {
            let name = format!("{outer}/listops-1000/basic_{part}.tsv");
            files.push((name, b"Source\tTarget\r\n( [MAX 2 3 ] )\t3\r\n".to_vec()));
        }
    }
    for part in ["train", "eval", "test"] {
        let name = format!("lra_release/lra_release/tsv_data/new_aan_pairs.{part}.tsv");
        files.push((
            name,
            b"1.0\tA\tB\tone\ttwo\n0.0\tA\tC\tone\tthree\n".to_vec(),
        ));
    }
    let set = "lra_release/lra_release/pathfinder32/curv_contour_length_14";
    let mut list = String::new();
    for n in 0..20_u8 {
        let mut png = Vec::new();
        image::codecs::png::PngEncoder::new(&mut png)
            .write_image(&[n; 1024], 32, 32, image::ExtendedColorType::L8)
            .unwrap();
        files.push((format!("{set}/imgs/0/sample_{n}.png"), png));
        list += &format!("imgs/0 sample_{n}.png {n} {} 1.0 14 4 2 0.5 1 1\n", n % 2);
    }
    files.push((format!("{set}/metadata/0.npy"), list.into_bytes()));
    files
}

#[test]
fn every_task_reads_the_archive_that_one_of_them_fetched() {
    let root = tempfile::tempdir().unwrap();
    let store = Store::new(root.path());
    let folder = store.raw(&Retrieval);
    std::fs::create_dir_all(&folder).unwrap();
    let archive = raw::file(&folder, "lra_release.gz", &raw::gzip(&raw::tar(&release())));
    let tasks: [(&dyn Task, usize); 3] = [(&ListOps, 1), (&Retrieval, 2), (&PATHFINDER, 16)];
    for (task, rows) in tasks {
        let key = Key {
            source: Source::Official,
            ..Key::default_of(task)
        };
        assert_eq!(
            store.found(task).map(|path| archive.starts_with(path)),
            Some(true)
        );
        let splits = store.open_or_build(task, &key, None, &()).unwrap();
        assert_eq!(splits.train.len(), rows, "{}", task.info().name);
    }
}

#[test]
fn what_the_archive_lacks_is_said() {
    let root = tempfile::tempdir().unwrap();
    let mut files = release();
    files.retain(|(name, _)| !name.ends_with("basic_val.tsv"));
    let archive = raw::file(root.path(), "lra_release.gz", &raw::gzip(&raw::tar(&files)));
    let key = Key {
        source: Source::Official,
        ..Key::default_of(&ListOps)
    };
    let error = raw::build(&ListOps, &key, &archive)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("missing: a published file of listops") && error.contains("basic_val.tsv"),
        "{error}"
    );
}
