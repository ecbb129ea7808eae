//! `lra publish`: a site from end to end, and the folders that it does not touch.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::common::{Place, err};
use serde_json::Value;

/// Returns the files of a folder, by name.
fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    entries
        .map(|entry| {
            let name = entry.file_name().into_string().unwrap();
            (name, fs::read(entry.path()).unwrap())
        })
        .collect()
}

/// Returns the names of what is in a folder.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().map(Result::unwrap);
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Writing a site moves the earlier contents of its folder aside.
#[test]
fn a_site_does_not_take_the_place_of_its_source() {
    let place = Place::new();
    place.ok("run --task toy --model bag --recipe smoke --steps 2 --quiet");
    for words in ["publish runs runs --force", "publish . runs --force"] {
        let told = place.fails(2, words);
        assert!(
            told.contains("name another folder for the site"),
            "{words}: {told}"
        );
    }
    assert!(place.path().join("runs").is_dir());
}

#[test]
fn a_site_has_every_model_and_task_with_the_runs_of_folders() {
    let place = Place::new();
    place.ok("run --task toy --model bag --recipe smoke --steps 2 --quiet");
    fs::write(
        place.path().join("runs/imported.csv"),
        "source,task,model,accuracy_percent\nrerun,listops,linear,31.25\n",
    )
    .unwrap();
    let records = concat!(env!("CARGO_MANIFEST_DIR"), "/../results/records");
    let publish = || {
        let mut command = place.command("publish site runs");
        let output = command.arg(records).output().unwrap();
        assert!(output.status.success(), "{}", err(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let said = publish();
    assert!(said.contains("open site/index.html"), "{said}");
    let folder = place.path().join("site");
    let site = files(&folder);
    let text = |name: &str| String::from_utf8(site[name].clone()).unwrap();
    for model in models::registry() {
        let page = text(&format!("model-{}.html", model.name.replace('_', "-")));
        assert!(
            page.contains(model.title) && page.contains("<section id=\"card\">"),
            "{}",
            model.name
        );
    }
    for task in datasets::TASKS {
        text(&format!("task-{}.html", task.info().name.replace('_', "-")));
    }
    let bag = text("model-bag.html");
    assert!(
        bag.contains("<section id=\"cell-toy\">") && bag.contains("lra run --task toy"),
        "{bag}"
    );
    assert!(text("model-linear.html").contains("31.25 (1)"));
    let s5 = text("model-s5.html");
    assert!(s5.contains("<code>listops-s5-s5-s0-14a0c291</code>"));
    assert!(s5.contains("lra repro s5 listops s5") && s5.contains("known difference"));
    assert!(text("model-transformer.html").contains("<section id=\"mini\">"));
    let cells: Value = serde_json::from_slice(&site["cells.json"]).unwrap();
    let priced = cells["cells"].as_array().unwrap().iter();
    let priced = priced.filter(|cell| cell["petaflop"].as_f64().is_some_and(|it| it > 0.0));
    assert!(priced.count() > 50);
    for name in site.keys().filter(|name| name.ends_with(".html")) {
        let page = text(name);
        for to in page.split(" href=\"").skip(1) {
            let to = to.split(['#', '"']).next().unwrap();
            if to.starts_with("https://") {
                continue;
            }
            assert!(to.is_empty() || site.contains_key(to), "{name}: {to}");
        }
    }
    let bytes: usize = site.values().map(Vec::len).sum();
    assert!(bytes < 10_000_000, "{bytes} bytes");

    // Once more, from elsewhere: the same bytes, and nothing is left beside it.
    publish();
    let again = files(&folder);
    assert!(again == site);
    assert_eq!(names(place.path()), ["data", "runs", "site"]);
}

/// A cell of a bundled table that was trained again here is one run, not two seeds. So is a cell of
/// both tables.
#[test]
fn runs_of_the_bundled_table_count_once() {
    let place = Place::new();
    let bundled = include_str!("../../results/mini/records.csv");
    let mut lines = bundled.lines();
    let (header, row) = (lines.next().unwrap(), lines.next().unwrap());
    let again = row.replacen("2026-", "2025-", 1);
    assert_ne!(again, row, "another time of making");
    fs::write(place.path().join("own.csv"), format!("{header}\n{again}\n")).unwrap();
    place.ok("publish site own.csv");
    let index = || fs::read_to_string(place.path().join("site/index.html")).unwrap();
    let probes = include_str!("../../results/probes/records.csv");
    let ids =
        [bundled, probes].map(|table| table.lines().skip(1).map(|line| line.split(',').nth(1)));
    let runs: BTreeSet<_> = ids.into_iter().flatten().collect();
    let count = format!(", {} runs", runs.len());
    assert!(index().contains(&count), "{count}: {}", index());
    // A run that has no score takes no score's place, nor does one on another device. The latter
    // does not empty the table of ranks.
    let changes = [
        (",scored,", ",interrupted,"),
        (",scored,", ",diverged,"),
        (",cpu,", ",cuda:0 GPU,"),
    ];
    let others = changes.iter().enumerate().map(|(index, (is, becomes))| {
        let other = again.replacen(is, becomes, 1);
        assert_ne!(other, again, "{becomes}");
        // Made at different times.
        other.replacen("2025-", &format!("{}-", 2022 + index), 1) + "\n"
    });
    let table = format!("{header}\n{}", others.collect::<String>());
    fs::write(place.path().join("own.csv"), table).unwrap();
    place.ok("publish site own.csv");
    let count = format!(", {} runs", runs.len() + changes.len());
    assert!(index().contains(&count), "{count}: {}", index());
    let left_out = "1 run left out of another protocol, device or number";
    assert!(index().contains(left_out), "{}", index());
}

#[test]
fn predictions_have_a_page_where_the_weights_are() {
    let place = Place::new();
    for model in ["bag", "linear"] {
        place.ok(&format!(
            "run --task toy --model {model} --recipe smoke --steps 2 --quiet"
        ));
    }
    let runs = names(&place.path().join("runs"));
    let [bag, linear] = runs.as_slice() else {
        panic!("{runs:?}");
    };
    fs::remove_file(place.path().join("runs").join(bag).join("best.safetensors")).unwrap();
    place.ok("run --task toy --model linear --recipe smoke --steps 2 --quiet --out again");
    let file = place.run_folder("again").join("record.json");
    let mut record: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    record["created"] = "2025-01-01T00:00:00Z".into();
    fs::write(&file, record.to_string()).unwrap();
    let output = place.lra("publish site runs again --predictions");
    assert!(output.status.success(), "{}", err(&output));
    let said = err(&output);
    assert!(
        said.contains("of another run with the same settings"),
        "{said}"
    );
    assert!(
        said.contains(&format!("warning: no predictions of {bag}: ")),
        "{said}"
    );
    let file = format!("predictions-{}.html", linear.replace('_', "-"));
    let page = fs::read_to_string(place.path().join("site").join(&file)).unwrap();
    for part in ["confusion", "examples"] {
        assert!(page.contains(&format!("<section id=\"{part}\">")), "{page}");
    }
    let model = fs::read_to_string(place.path().join("site/model-linear.html")).unwrap();
    assert!(model.contains(&format!("<a href=\"{file}\">")), "{model}");
    assert!(
        !names(&place.path().join("site"))
            .iter()
            .any(|name| name.starts_with("predictions-toy-bag"))
    );
}

#[test]
fn what_is_not_a_site_is_left_alone() {
    let place = Place::new();
    let home = place.path();
    fs::create_dir(home.join("mine")).unwrap();
    fs::write(home.join("mine/letter.txt"), "dear").unwrap();
    fs::write(home.join("file"), "text").unwrap();
    let message = place.fails(2, "publish mine");
    assert!(
        message.contains("mine is there already and is not a site") && message.contains("--force"),
        "{message}"
    );
    assert!(
        place
            .fails(2, "publish file --force")
            .contains("file is not a folder")
    );
    assert!(place.fails(2, "publish .").contains("such as ./site"));
    assert_eq!(names(&home.join("mine")), ["letter.txt"]);

    // An empty folder holds nothing to lose.
    fs::create_dir(home.join("site")).unwrap();
    place.ok("publish site");
    fs::write(home.join("site/CNAME"), "example.org").unwrap();
    let message = place.fails(2, "publish site");
    assert!(message.contains("site holds CNAME"), "{message}");
    place.ok("publish site --force");
    assert!(home.join("site.old/CNAME").exists() && !home.join("site/CNAME").exists());
    fs::write(home.join("site/CNAME"), "example.org").unwrap();
    let message = place.fails(2, "publish site --force");
    assert!(
        message.contains("site.old, which is there already"),
        "{message}"
    );
}

#[test]
fn a_site_is_written_whole_or_not_at_all() {
    let place = Place::new();
    let home = place.path();
    for (words, part) in [("nowhere", "nowhere"), ("--strict damaged", "damaged")] {
        fs::create_dir_all(home.join("damaged/run")).unwrap();
        fs::write(home.join("damaged/run/record.json"), "{\n").unwrap();
        let message = place.fails(3, &format!("publish site {words}"));
        assert!(message.contains(part), "{message}");
        assert_eq!(names(home), ["damaged"], "{words}");
    }
    place.ok("publish site");
    let before = files(&home.join("site"));

    // A process that died when the old site was away: it comes back, and nothing is left over.
    let dead = home.join(".lra-publish-site-dead");
    fs::create_dir(&dead).unwrap();
    fs::write(dead.join("lock"), "").unwrap();
    fs::rename(home.join("site"), dead.join("before")).unwrap();
    place.fails(3, "publish site nowhere");
    assert!(files(&home.join("site")) == before);
    assert_eq!(names(home), ["damaged", "site"]);
    // Each file is renamed once, then what is there moves aside, and the new folder in its place.
    let renames = before.len();
    for (fault, code) in [
        ("write:7:28".to_owned(), 4),
        ("rename:50:13".to_owned(), 3),
        (format!("rename:{}:13", renames + 1), 3),
        (format!("rename:{}:13", renames + 2), 3),
    ] {
        let mut command = place.command("publish site");
        let output = command.env("LRA_FAULTS", &fault).output().unwrap();
        assert_eq!(
            output.status.code(),
            Some(code),
            "{fault}: {}",
            err(&output)
        );
        assert!(err(&output).contains("site"), "{}", err(&output));
        assert!(files(&home.join("site")) == before, "{fault}");
        assert_eq!(names(home), ["damaged", "site"], "{fault}");
    }
}
