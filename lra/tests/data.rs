//! `lra data`, as a user types it.
#![allow(missing_docs, clippy::unwrap_used)]

use std::fs;
use std::path::Path;
use std::time::Duration;

use crate::common::{self, Place};
use serde_json::Value;

fn line<'a>(text: &'a str, starts: &str) -> &'a str {
    let found = text.lines().find(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        words.join(" ").starts_with(starts)
    });
    found.unwrap_or_else(|| panic!("no line `{starts}` in\n{text}"))
}

#[test]
fn the_list_says_what_there_is_and_how_to_get_the_rest() {
    let place = Place::new();
    let empty = place.ok("data list");
    assert!(line(&empty, "text official").ends_with("not here: lra data fetch text"));
    assert!(line(&empty, "text synthetic").contains("lra data make text --source synthetic"));
    assert!(line(&empty, "listops generated").contains("lra data make listops"));
    assert!(line(&empty, "pathx official").ends_with("not here: lra data fetch pathx"));

    reviews(&place.path().join("reviews/aclImdb"), "seen");
    place.ok("data make text --from reviews");
    let listed = place.ok("data list");
    let text = line(&listed, "text official clean");
    assert!(
        text.contains(" / 60") && text.ends_with("partial"),
        "{text}"
    );
    assert!(!listed.contains("lra data fetch text"));
    assert!(
        listed.lines().all(|line| line.chars().count() <= 100),
        "{listed}"
    );

    let json: Value = serde_json::from_str(&place.ok("data list --json")).unwrap();
    assert_eq!(json["entries"][0]["manifest"]["task"], "text");
    assert!(
        json["missing"]
            .as_array()
            .unwrap()
            .iter()
            .any(|missing| missing["task"] == "image")
    );
    // Every suggested command is one that the program has.
    for missing in json["missing"].as_array().unwrap() {
        let command = missing["command"].as_str().unwrap();
        let verb = command.split(' ').nth(2).unwrap();
        assert!(["make", "fetch"].contains(&verb), "{command}");
    }
}

#[test]
fn raw_files_are_official_data_and_are_verified_where_they_lie() {
    let place = Place::new();
    reviews(&place.path().join("reviews/aclImdb"), "seen");
    let said = place.ok("data verify text --from reviews");
    assert!(
        said.contains("raw files: train: reviews") && said.contains("a part of"),
        "{said}"
    );
    assert_eq!(fs::read_dir(place.path().join("data")).unwrap().count(), 0);
    let refused = place.fails(2, "data make pathfinder --source generated --from reviews");
    assert!(
        refused.contains("generated data is drawn here and reads no files"),
        "{refused}"
    );
    let refused = place.fails(2, "data make toy --from .");
    assert!(
        refused.contains("the data of toy are drawn here"),
        "{refused}"
    );
    let refused = place.fails(3, "check-task mine:");
    assert!(refused.contains("no folder with a name"), "{refused}");
    let refused = place.fails(3, "data make pathx --from reviews");
    assert!(
        refused.contains("pathfinder128/curv_contour_length_14"),
        "{refused}"
    );
    fs::write(
        place.path().join("reviews/aclImdb/train/pos/0_5.txt"),
        "so so",
    )
    .unwrap();
    let refused = place.fails(3, "data make text --from reviews");
    assert!(refused.contains("train/pos/0_5.txt") && refused.contains("lra data fetch text"));
}

#[test]
fn data_that_contradict_what_was_published_say_so_everywhere() {
    let place = Place::new();
    reviews(&place.path().join("reviews/aclImdb"), "seen");
    // More reviews of one class than there should be.
    let folder = place.path().join("reviews/aclImdb/train/pos");
    for number in 30..12_501 {
        fs::write(
            folder.join(format!("{number}_9.txt")),
            format!("more {number}"),
        )
        .unwrap();
    }
    let how = "12501 positive reviews of train, more than the 12500 that were published";
    let made = place.ok("data make text --from reviews");
    assert!(made.contains(&format!("ALTERED: {how}")), "{made}");
    let listed = place.ok("data list");
    let text = line(&listed, "text official clean");
    assert!(text.ends_with("partial  altered"), "{text}");
    let verified = place.lra("data verify text");
    assert_eq!(verified.status.code(), Some(3));
    let text = String::from_utf8(verified.stdout).unwrap();
    assert!(
        line(&text, "FAIL raw files: altered").ends_with(how),
        "{text}"
    );
    let run = "run --task text --model linear --recipe smoke";
    let output = place.lra(run);
    assert!(common::err(&output).contains(&format!("ALTERED    {how}")));
}

#[test]
fn allowing_a_part_is_refused_where_it_means_nothing() {
    let place = Place::new();
    reviews(&place.path().join("reviews/aclImdb"), "seen");
    for command in [
        "data make text --from reviews --allow-partial",
        "data verify text --from reviews --allow-partial",
        "run --task text --model linear --allow-partial",
    ] {
        let refused = place.fails(2, command);
        assert!(
            refused.contains("--allow-partial") && refused.contains("the flag is for image"),
            "{command}: {refused}"
        );
    }
}

#[test]
fn other_files_are_no_silent_replacement() {
    let place = Place::new();
    reviews(&place.path().join("reviews/aclImdb"), "seen");
    place.ok("data make text --from reviews");
    place.ok("data make text --from reviews");
    let review = place.path().join("reviews/aclImdb/test/neg/0_2.txt");
    fs::write(review, "edited").unwrap();
    let refused = place.fails(3, "data make text --from reviews");
    let way_out = "lra data make text --source official --from reviews --force";
    assert!(
        refused.contains("made from other files than reviews") && refused.contains(way_out),
        "{refused}"
    );
    place.ok(way_out.trim_start_matches("lra "));
    place.ok("data make text --from reviews");
}

#[test]
fn control_characters_of_files_do_not_reach_the_terminal() {
    let place = Place::new();
    let name = "\u{1b}[31mred\u{7}";
    reviews(&place.path().join("reviews/aclImdb"), "seen");
    fs::write(
        place
            .path()
            .join(format!("reviews/aclImdb/train/pos/{name}.txt")),
        "so so",
    )
    .unwrap();
    let refused = place.fails(3, "data make text --from reviews");
    assert!(refused.contains("\\u{1b}[31mred\\u{7}.txt"), "{refused}");
    assert!(!refused.contains('\u{1b}') && !refused.contains('\u{7}'));
    // A place of the user's choice is listed without them as well.
    let listed = place.ok(&format!("data list --data {name}"));
    assert!(
        listed.starts_with("data in \\u{1b}[31mred\\u{7}\n"),
        "{listed}"
    );
}

#[test]
fn a_killed_build_goes_on_and_gives_the_same_bytes() {
    let place = Place::new();
    // Two parts of 1,024 images and two of one image each.
    let make = "data make pathfinder --set data.difficulty=\"intermediate\" --set data.train=2048 \
                --set data.val=1 --set data.test=1 --json --data";
    let parts = |data: &str| {
        let items = fs::read_dir(place.path().join(data).join("store"));
        let parts = items
            .into_iter()
            .flatten()
            .flatten()
            .find(|item| item.file_name().to_string_lossy().starts_with(".parts-"));
        parts.map_or(0, |folder| {
            fs::read_dir(folder.path()).into_iter().flatten().count()
        })
    };
    let mut child = place
        .command(&format!("{make} killed"))
        .env("RAYON_NUM_THREADS", "1")
        .stdout(std::process::Stdio::null())
        .spawn()
        .unwrap();
    while parts("killed") == 0 {
        assert!(
            child.try_wait().unwrap().is_none(),
            "it ended before it could be killed"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let digest = |data: &str| {
        let made: Value = serde_json::from_str(&place.ok(&format!("{make} {data}"))).unwrap();
        made["manifest"]["digest"].as_str().unwrap().to_owned()
    };
    assert_eq!(digest("killed"), digest("whole"));
    assert_eq!(
        parts("killed"),
        0,
        "the parts of a complete entry are removed"
    );
}

/// Writes thirty reviews of each class and split, which say `word`.
fn reviews(folder: &Path, word: &str) {
    for split in ["train", "test"] {
        for (class, rating) in [("pos", 9), ("neg", 2)] {
            let place = folder.join(split).join(class);
            fs::create_dir_all(&place).unwrap();
            for index in 0..30 {
                let text = format!("{word} {class} {index} {split}");
                fs::write(place.join(format!("{index}_{rating}.txt")), text).unwrap();
            }
        }
    }
}

/// A command in a message is for the data directory in use, and a shell reads it as it stands.
#[test]
fn printed_commands_can_be_pasted() {
    let place = Place::new();
    reviews(&place.path().join("one A"), "good");
    reviews(&place.path().join("two B"), "fine");
    let lra = |words: &str, more: &[&str]| place.command(words).args(more).output().unwrap();
    let pasted = |command: &str| {
        let mut shell = std::process::Command::new("sh");
        let program = place.command("").get_program().to_owned();
        let script = format!("lra() {{ \"$PROGRAM\" \"$@\"; }}; {command}");
        shell.args(["-c", &script]).current_dir(place.path());
        shell
            .env("PROGRAM", program)
            .env("LRA_DATA", place.path().join("data"));
        shell.output().unwrap()
    };
    let make = "data make text --recipe smoke";
    for data in [&[][..], &["--data", "my data"]] {
        let made = lra(make, &[&["--from", "two B"], data].concat());
        assert!(made.status.success(), "{}", common::err(&made));
    }
    let manifest = |data: &str| {
        let mut store = fs::read_dir(place.path().join(data).join("store")).unwrap();
        let entry = store.find_map(|entry| {
            let path = entry.unwrap().path().join("manifest.json");
            path.exists().then_some(path)
        });
        fs::read(entry.unwrap()).unwrap()
    };
    let (default, mine) = (manifest("data"), manifest("my data"));
    let refused = lra(make, &["--from", "one A", "--data", "my data"]);
    assert!(!refused.status.success());
    let told = common::err(&refused);
    let at = told
        .find("lra data make")
        .unwrap_or_else(|| panic!("{told}"));
    let command = told[at..].lines().next().unwrap();
    assert!(
        command.contains("--data 'my data'") && command.contains("--from 'one A'"),
        "{told}"
    );
    let done = pasted(command);
    assert!(done.status.success(), "{command}: {}", common::err(&done));
    assert!(
        manifest("data") == default,
        "the default directory is left alone"
    );
    assert!(manifest("my data") != mine);

    // What is missing, and the tables of a run.
    let list = lra("data list --json", &["--data", "my data"]);
    let list: Value = serde_json::from_slice(&list.stdout).unwrap();
    let missing = list["missing"].as_array().unwrap();
    for missing in missing {
        let command = missing["command"].as_str().unwrap();
        assert!(command.contains("--data 'my data'"), "{command}");
    }
    let toy = "run --task toy --model bag --recipe smoke --steps 2 --quiet";
    let run = lra(toy, &["--out", "my runs"]);
    let text = String::from_utf8(run.stdout).unwrap();
    let command = text
        .split("tables      ")
        .nth(1)
        .unwrap()
        .lines()
        .next()
        .unwrap();
    let shown = pasted(command);
    assert!(shown.status.success(), "{command}: {}", common::err(&shown));
    let sweep = lra(
        "sweep --tasks toy --models bag --recipe smoke --steps 2 --quiet",
        &["--out", "my runs"],
    );
    let text = String::from_utf8(sweep.stdout).unwrap();
    let command = text
        .split("tables: ")
        .nth(1)
        .unwrap()
        .lines()
        .next()
        .unwrap();
    assert!(pasted(command).status.success(), "{command}");
}

/// An empty variable counts as unset: jobs of some schedulers have all variables, empty ones too.
#[test]
fn an_empty_variable_names_no_folder() {
    let place = Place::new();
    let mut command = place.command("data make toy");
    command.env("LRA_DATA", "");
    command.env("XDG_CACHE_HOME", place.path().join("cache"));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", common::err(&output));
    assert!(!place.path().join("store").exists());
    assert!(place.path().join("cache/lra/store").exists());

    let text = place.ok("data show image:synthetic --recipe smoke --png sheet.png --json");
    let shown: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(shown["png"], "sheet.png");
}
