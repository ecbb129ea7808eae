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

#[test]
fn accuracies_of_others_stand_alone_and_beside_a_file_of_records() {
    let place = Place::new();
    fs::write(
        place.path().join("theirs.csv"),
        "dataset,method,accuracy\ntoy,Luna,0.5\n",
    )
    .unwrap();
    place.ok("import theirs.csv --source rerun --output table/imported.csv");
    let table = place.ok("report table --table accuracy");
    assert!(
        table.contains("imported (rerun)") && table.contains("50.00"),
        "{table}"
    );
    place.ok("run --task toy --model bag --recipe smoke --steps 2 --quiet");
    place.ok("merge runs --output records.csv");
    let both = place.ok("report records.csv --imported table/imported.csv --table accuracy");
    assert!(
        both.contains("bag") && both.contains("imported (rerun)"),
        "{both}"
    );
    let message = place.fails(3, "report records.csv --imported nowhere.csv");
    assert!(message.contains("nowhere.csv"), "{message}");
}

/// The tables of papers have a column for each task.
#[test]
fn a_table_with_a_column_for_each_task_is_read() {
    let place = Place::new();
    let table = "Model,ListOps,Text,Path-X,Avg,params\nS4D,60.2%,86.18,91.95,79.4,600k\nLocal,15.82,52.98,FAIL,34.4,600k\n";
    fs::write(place.path().join("table1.csv"), table).unwrap();
    place.ok("import table1.csv");
    let written = fs::read_to_string(place.path().join("runs/imported.csv")).unwrap();
    let rows: Vec<&str> = written.lines().skip(1).collect();
    assert_eq!(
        rows,
        [
            "table1,listops,s4d,60.2,,1,",
            "table1,text,s4d,86.18,,1,",
            "table1,pathx,s4d,91.95,,1,",
            "table1,listops,local,15.82,,1,",
            "table1,text,local,52.98,,1,",
        ]
    );
    let wrong = table.replace("52.98", "many");
    fs::write(place.path().join("table1.csv"), wrong).unwrap();
    let message = place.fails(3, "import table1.csv");
    assert!(
        message.contains("table1.csv, line 3") && message.contains("is many"),
        "{message}"
    );
    let fractions = "model,listops\nmine,0.602\n";
    fs::write(place.path().join("table2.csv"), fractions).unwrap();
    place.ok("import table2.csv --fractions --output other.csv");
    let written = fs::read_to_string(place.path().join("other.csv")).unwrap();
    assert!(written.contains("table2,listops,mine,60.2,"), "{written}");
}

/// Two commands that add to one file wait for each other.
#[test]
fn two_imports_into_one_file_lose_nothing() {
    let place = Place::new();
    for name in ["one", "two"] {
        let rows = (0..200).map(|i| format!("{name},toy,model_{i},0.5\n"));
        let text = "source,task,model,accuracy\n".to_owned() + &rows.collect::<String>();
        fs::write(place.path().join(format!("{name}.csv")), text).unwrap();
    }
    let both = ["one", "two"].map(|name| {
        let words = format!("import {name}.csv --output all.csv");
        place.command(&words).spawn().unwrap()
    });
    for mut child in both {
        assert!(child.wait().unwrap().success());
    }
    let all = fs::read_to_string(place.path().join("all.csv")).unwrap();
    assert_eq!(all.lines().count(), 401);
}

/// The file that collects accuracies is only added to: a table with other columns loses none.
#[test]
fn files_with_other_columns_are_not_written_over() {
    let place = Place::new();
    let table = "dataset,model,accuracy,lr,notes\nlistops,s4d,0.6,1e-3,mine\n";
    let path = place.path().join("theirs.csv");
    fs::write(&path, table).unwrap();
    let message = place.fails(2, "import theirs.csv --output theirs.csv");
    assert!(message.contains("other columns"), "{message}");
    let message = place.fails(2, "import theirs.csv --output all.json");
    assert!(message.contains("ends in .csv"), "{message}");
    assert_eq!(fs::read_to_string(&path).unwrap(), table);
    place.ok("import theirs.csv --output all.csv");
    // No output of another command takes its place, nor that of a damaged table of records.
    place.ok("run --task toy --model bag --recipe smoke --steps 2 --out runs --quiet");
    place.ok("merge runs --output records.csv");
    let records = fs::read_to_string(place.path().join("records.csv")).unwrap();
    let damaged = records.replace("scored", "pending");
    fs::write(place.path().join("damaged.csv"), &damaged).unwrap();
    for (file, kind) in [
        ("all.csv", "a file of imported accuracies"),
        ("damaged.csv", "a table of records"),
    ] {
        let message = place.fails(2, &format!("report runs --format csv --output {file}"));
        assert!(message.contains(kind), "{message}");
    }
    let kept = fs::read_to_string(place.path().join("damaged.csv")).unwrap();
    assert_eq!(kept, damaged);
}

/// Names of one model are one cell before its seeds are averaged.
#[test]
fn seeds_under_several_names_of_a_model_are_averaged() {
    let place = Place::new();
    let table = "source,task,model,accuracy,seed\nx,listops,S4D,0.5,0\nx,listops,s4d,0.6,1\n";
    fs::write(place.path().join("theirs.csv"), table).unwrap();
    place.ok("import theirs.csv");
    let written = fs::read_to_string(place.path().join("runs/imported.csv")).unwrap();
    assert!(written.contains("x,listops,s4d,55,"), "{written}");
    assert!(written.trim_end().ends_with(",2,"), "{written}");
}
