//! `lra import`, and the table that shows what was imported.

#![allow(clippy::unwrap_used)]

use std::fs;

use crate::common::Place;

#[test]
fn accuracies_of_others_stand_beside_runs_under_our_names() {
    let place = Place::new();
    place.ok("run --task toy --model bag --recipe smoke --steps 2 --quiet");
    let theirs = "dataset,method,accuracy,seed\nIMDB,Linear Transformer,0.65,0\nIMDB,Linear Transformer,0.66,1\n\
                  toy,BiLSTM-XL,0.5,0\n";
    fs::write(place.path().join("theirs.csv"), theirs).unwrap();
    place.ok("import theirs.csv --source rerun");
    // Once more, nothing is added twice.
    place.ok("import theirs.csv --source rerun");
    let table = place.ok("report --table accuracy");
    for part in [
        "imported (rerun)",
        "linear",
        "65.50 ±0.71 (2)",
        "BiLSTM-XL",
        "50.00",
        "text",
    ] {
        assert!(table.contains(part), "{part}: {table}");
    }
    let message = place.fails(3, "import theirs.csv --source rerun --task toy --model bag");
    assert!(message.contains("seed 0"), "{message}");
    let message = place.fails(2, "import theirs.csv --column acuracy=x");
    assert!(message.contains("did you mean 'accuracy'"), "{message}");
    let message = place.fails(3, "import missing.csv");
    assert!(message.contains("missing.csv"), "{message}");
    fs::write(
        place.path().join("runs/imported.csv"),
        "task,model,accuracy\nx\n",
    )
    .unwrap();
    let message = place.fails(3, "report --table accuracy");
    assert!(message.contains("imported.csv, line 2"), "{message}");
}
