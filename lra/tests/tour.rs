//! `lra tour`.

#![allow(clippy::unwrap_used)]

use std::fs;

use crate::common::{Place, err};

#[test]
fn the_tour_runs_every_command_in_a_folder_of_its_own_and_can_be_repeated() {
    let place = Place::in_memory();
    for _ in 0..2 {
        let text = place.ok("tour --out tour");
        for step in 1..=7 {
            let shown = format!("[{step} of 7] $ lra ");
            assert_eq!(text.matches(&shown).count(), 1, "{shown}: {text}");
        }
        assert_eq!(text.matches("look at: ").count(), 7);
        assert!(text.contains("Test accuracy"), "{text}");
    }
    let entries = fs::read_dir(place.path()).unwrap();
    assert_eq!(entries.count(), 1, "nothing is beside the folder");
    assert!(place.path().join("tour/report.html").exists());
    fs::write(place.path().join("file"), "").unwrap();
    place.fails(2, "tour --out file");
}

/// The run of the third step died in the middle. The next tour continues it.
#[test]
fn a_tour_goes_on_where_a_run_died() {
    let place = Place::in_memory();
    let folder = place.path().join("tour");
    fs::create_dir(&folder).unwrap();
    let words = "run --task toy --model transformer --recipe smoke --steps 1000 --quiet";
    let mut command = place.command(words);
    command.current_dir(&folder).env("LRA_DATA", "data");
    let output = command.env("LRA_FAULTS", "rename:6:die").output().unwrap();
    assert_eq!(output.status.code(), None, "{}", err(&output));
    let runs: Vec<_> = fs::read_dir(folder.join("runs")).unwrap().collect();
    let run = runs[0].as_ref().unwrap().path();
    assert!(runs.len() == 1 && !run.join("record.json").exists());
    assert!(
        run.join("checkpoint.safetensors").exists(),
        "it died before its first checkpoint"
    );
    let text = place.ok("tour --out tour");
    assert_eq!(text.matches("look at: ").count(), 7, "{text}");
    assert!(run.join("record.json").exists());
}
