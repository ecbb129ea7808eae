//! `lra tour`.

#![allow(clippy::unwrap_used)]

use std::fs;

use crate::common::Place;

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
