//! Properties of every registered task, with little data.
#![allow(missing_docs, clippy::unwrap_used)]

use lra_datasets::{Digest, Key, Source, SplitName, Store, Summary, TASKS, Task};
use serde_json::json;

/// Returns the default source with few rows; `None` for tasks that read published files by default.
fn small(task: &dyn Task, seed: u64) -> Option<Key> {
    let mut key = Key::default_of(task);
    let sources = task.info().sources.iter();
    key.source = *sources
        .clone()
        .find(|&&source| source != Source::Official)?;
    for (option, value) in [("train", 300), ("val", 60), ("test", 60), ("seed", seed)] {
        if key.options.get(option).is_some() {
            key.options[option] = json!(value);
        }
    }
    Some(key)
}

#[test]
fn names_are_unique_and_complete() {
    for (index, task) in TASKS.iter().enumerate() {
        let info = task.info();
        assert!(
            TASKS[..index]
                .iter()
                .all(|other| other.info().name != info.name)
        );
        // The name begins folder names and is followed by a dash.
        assert!(
            info.name
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
        );
        assert!(!info.title.is_empty() && !info.summary.is_empty() && !info.paper.is_empty());
        assert!(!info.sources.is_empty() && (1..=2).contains(&info.towers));
        assert!(info.vocabulary <= 256 + info.first_id as usize && info.classes <= 256);
    }
}

/// Models and self-pretraining are built by these numbers. The fractions of masked tokens are those
/// of arXiv:2310.02980, and 0.15 where it has none.
#[test]
fn tasks_have_their_sizes() {
    let of_task = |task: &&dyn Task| {
        let info = task.info();
        let kind = if info.probe { "probe" } else { "arena" };
        format!(
            "{}: {} ids from {}, {} classes, {} towers, {} masked, {}, {kind}",
            info.name,
            info.vocabulary,
            info.first_id,
            info.classes,
            info.towers,
            info.mask_ratio,
            info.sources[0]
        )
    };
    let lines: Vec<String> = TASKS.iter().map(of_task).collect();
    insta::assert_snapshot!(lines.join("\n"), @"
    listops: 17 ids from 1, 10 classes, 1 towers, 0.1 masked, generated, arena
    text: 257 ids from 1, 2 classes, 1 towers, 0.15 masked, official, arena
    retrieval: 257 ids from 1, 2 classes, 2 towers, 0.15 masked, official, arena
    image: 256 ids from 0, 10 classes, 1 towers, 0.5 masked, official, arena
    pathfinder: 256 ids from 0, 2 classes, 1 towers, 0.5 masked, generated, arena
    pathx: 256 ids from 0, 2 classes, 1 towers, 0.5 masked, generated, arena
    mqar: 257 ids from 1, 128 classes, 1 towers, 0.15 masked, generated, probe
    selective_copy: 19 ids from 1, 16 classes, 1 towers, 0.15 masked, generated, probe
    state_tracking: 121 ids from 1, 120 classes, 1 towers, 0.15 masked, generated, probe
    needle: 99 ids from 1, 64 classes, 1 towers, 0.15 masked, generated, probe
    toy: 12 ids from 1, 4 classes, 1 towers, 0.15 masked, generated, arena
    ");
}

/// Whole published data are read by no test, so a wrong digit would be seen only by those who have
/// them: as altered files.
#[test]
fn published_facts_are_what_they_were() {
    let facts = TASKS.iter().flat_map(|task| {
        let lines = task.known().into_iter().map(|known| {
            let (name, fact) = (task.info().name, known.fact);
            format!("{name} {} = {} {}", fact.name, fact.value, known.of_parts)
        });
        lines.collect::<Vec<_>>()
    });
    let facts: Vec<String> = facts.collect();
    assert_eq!(facts.len(), 41);
    assert_eq!(
        Digest::of(facts.join("\n").as_bytes()),
        "1d17d30afad31ffc116aadcf304ef58d0592a3e2213d73a4a731a0bc28ae4db2"
    );
}

#[test]
fn published_files_have_their_addresses() {
    let release = "https://storage.googleapis.com/long-range-arena/lra_release.gz";
    for task in TASKS {
        let (name, remote) = (task.info().name, task.remote());
        let expected = match name {
            "listops" | "retrieval" | "pathfinder" | "pathx" => (release, None, None),
            "text" => (
                "http://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz",
                Some(84_125_825),
                Some("c40f74a18d3b61f90feba1e17730e0d38e8b97c05fde7008942e91923d1658fe"),
            ),
            "image" => (
                "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
                Some(170_052_171),
                Some("c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"),
            ),
            _ => {
                assert!(remote.is_empty(), "{name}");
                continue;
            }
        };
        let [file] = remote else { panic!("{name}") };
        assert_eq!((file.url, file.bytes, file.sha256), expected, "{name}");
        assert!(file.url.ends_with(&format!("/{}", file.file)), "{name}");
    }
}

#[test]
fn defaults_are_the_published_task() {
    for task in TASKS {
        let defaults = task.defaults();
        let shape = task.shape(&defaults).unwrap();
        assert_eq!(shape.label, task.info().name);
        if let Some(length) = defaults.get("max_length") {
            assert_eq!(json!(shape.max_length), *length);
        }
        if defaults.get("seed").is_some() {
            let mut seeded = defaults.clone();
            seeded["seed"] = json!(12345);
            assert_eq!(
                task.shape(&seeded).unwrap(),
                shape,
                "the seed is no parameter of the task"
            );
        }
        let mut unknown = defaults.clone();
        unknown["surprise"] = json!(1);
        assert!(task.shape(&unknown).is_err());
    }
}

/// With other bytes of a seed, stored data and published digests are no longer valid: that takes a
/// new version of the task.
#[test]
fn data_is_reproducible_and_depends_on_the_seed() {
    let mut digests = Vec::new();
    for task in TASKS {
        let digest = |seed: u64| {
            let root = tempfile::tempdir().unwrap();
            let splits =
                Store::new(root.path()).open_or_build(*task, &small(*task, seed)?, None, &());
            Some(splits.unwrap().manifest.digest)
        };
        let Some(first) = digest(1) else { continue };
        digests.push(format!("{} {}", task.info().name, &first[..16]));
        assert_eq!(Some(&first), digest(1).as_ref(), "{}", task.info().name);
        if task.defaults().get("seed").is_some() {
            assert_ne!(Some(&first), digest(2).as_ref(), "{}", task.info().name);
        }
    }
    insta::assert_snapshot!(digests.join("\n"), @"
    listops 28b09258481c0b94
    text ce44f8147163fbbd
    retrieval 3b402d74a818e240
    image 2cfb94c3a1d4dc89
    pathfinder cf7af0668fcf0851
    pathx 1eb8cc32ca82178e
    mqar c62ada1e25aba75f
    selective_copy cc607b849f10ba2b
    state_tracking 76547c385fe4c407
    needle 4ad60de90802fa0f
    toy acfd65e5bb15206d
    ");
}

#[test]
fn entries_verify_draw_and_summarise() {
    for task in TASKS {
        let Some(key) = small(*task, 0) else { continue };
        let root = tempfile::tempdir().unwrap();
        let store = Store::new(root.path());
        let splits = store.open_or_build(*task, &key, None, &()).unwrap();
        let verification = store.verify(*task, &key, &()).unwrap();
        assert!(verification.passed(), "{verification}");
        for split_name in SplitName::ALL {
            let split = splits.get(split_name);
            let towers: Vec<_> = (0..split.towers())
                .map(|tower| split.tokens(tower, 0))
                .collect();
            assert!(!task.to_text(&towers, split.label(0)).is_empty());
        }
        // Bytes that no builder would write are described and cause no panic.
        let hostile: Vec<u8> = (0..=255).collect();
        let towers = vec![&hostile[..]; task.info().towers];
        assert!(!task.to_text(&towers, 255).is_empty());
        assert!(
            !task
                .to_text(&vec![&[][..]; task.info().towers], 0)
                .is_empty()
        );

        let summary = Summary::of(*task, &splits);
        assert!(
            summary
                .baselines
                .iter()
                .all(|baseline| (0.0..=1.0).contains(&baseline.accuracy))
        );
        assert!(summary.text().contains("bag of tokens"));
        assert!(serde_json::to_value(&summary).unwrap()["splits"][0]["lengths"]["bins"].is_array());
    }
}
