//! Accuracies that others measured: files that are read, and tables that show them.

use std::path::{Path, PathBuf};

use lra_results::imported::{self, Field, Given, Imported};
use lra_results::{Format, Record, tables};

use crate::common::{on, run};

/// Writes a file and reads it.
fn read(name: &str, text: &str, given: &Given) -> Result<imported::Contents, String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    imported::read(&path, given).map_err(|error| error.to_string())
}

fn cell(source: &str, task: &str, model: &str, percent: f64) -> Imported {
    Imported {
        source: source.to_owned(),
        task: task.to_owned(),
        model: model.to_owned(),
        percent,
        deviation: None,
        seeds: 1,
        settings: String::new(),
    }
}

fn columns(pairs: &[(Field, &str)]) -> Given {
    Given {
        columns: pairs
            .iter()
            .map(|(field, name)| (*field, (*name).to_owned()))
            .collect(),
        ..Given::default()
    }
}

#[test]
fn seeds_of_a_cell_are_averaged() {
    let text = "Name,dataset,model,test/accuracy,seed\n\
                a,listops,S4,0.5,0\nb,listops,S4,0.6,1\nc,listops,S4,,2\nd,imdb,S4,0.9,0\n";
    let contents = read("export.csv", text, &Given::default()).unwrap();
    let marked = format!("\u{feff}{text}");
    let marked = read("export.csv", &marked, &Given::default()).unwrap();
    assert_eq!(marked.cells, contents.cells);
    assert_eq!(contents.without_accuracy, 1);
    let [listops, imdb] = &contents.cells[..] else {
        panic!("{contents:?}");
    };
    assert_eq!(
        (
            listops.source.as_str(),
            listops.task.as_str(),
            listops.seeds
        ),
        ("export", "listops", 2)
    );
    assert!((listops.percent - 55.0).abs() < 1e-9);
    assert!((listops.deviation.unwrap() - 50f64.sqrt()).abs() < 1e-9);
    assert_eq!((imdb.percent, imdb.seeds, imdb.deviation), (90.0, 1, None));
}

#[test]
fn json_is_read_with_the_keys_of_nested_objects() {
    let given = Given {
        values: vec![
            (Field::Task, "text".to_owned()),
            (Field::Model, "linear".to_owned()),
            (Field::Source, "jax".to_owned()),
        ],
        columns: vec![(Field::Accuracy, "eval.acc".to_owned())],
        ..Given::default()
    };
    for (name, text) in [
        (
            "results.json",
            r#"{"eval": {"acc": 0.25, "loss": 1}, "steps": [1]}"#,
        ),
        ("results.jsonl", "{\"eval\": {\"acc\": 0.25}}\n"),
        ("all.json", r#"[{"eval": {"acc": 0.25}}]"#),
    ] {
        let contents = read(name, text, &given).unwrap();
        assert_eq!(
            contents.cells,
            [cell("jax", "text", "linear", 25.0)],
            "{name}"
        );
    }
}

#[test]
fn what_cannot_be_an_accuracy_is_refused_with_its_line() {
    let none = Given::default();
    for (text, reason) in [
        (
            "task,model,accuracy\nlistops,s4,0.5\nlistops,s5,58.2\n",
            "line 3: the accuracy",
        ),
        ("task,model,accuracy\nlistops,s4,-0.5\n", "line 2"),
        ("task,model,accuracy\nlistops,s4,NaN\n", "line 2"),
        ("task,model,accuracy_percent\nlistops,s4,101\n", "0 to 100"),
        (
            "task,model,accuracy\nlistops,s4,0.5\nlistops,s4,0.6\n",
            "line 3: the same cell as line 2",
        ),
        (
            "task,model,seed,accuracy\nlistops,s4,1,0.5\nlistops,s4,1,0.6\n",
            "line 3: seed 1 of this cell is in line 2 too: remove one",
        ),
        (
            "model,accuracy\ns4,0.5\n",
            "--column task=HEADER; there are model, accuracy",
        ),
        (
            "task,model,accuracy,seeds\nlistops,s4,0.5,0\n",
            "seeds is 0",
        ),
        (
            "task,model,accuracy\nlistops,s4\n",
            "line 2: its number of fields is 2, that of the first line 3: add the fields",
        ),
        (
            "task,model,accuracy,accuracy_percent\nlistops,s4,0.4,60\n",
            "the columns accuracy and accuracy_percent",
        ),
        (
            "task,model,accuracy,test_acc\nlistops,s4,0.4,0.6\n",
            "accuracy and test_acc",
        ),
        (
            "task,model,accuracy\nlistops,s4,many\n",
            "line 2: the accuracy is many, not a number from 0 to 1: if it is in percent, ",
        ),
        (
            "task,model,accuracy,seed,seeds\nlistops,s4,0.4,0,3\n",
            "seed and seeds",
        ),
        (
            "task,model,accuracy,deviation_percent,seeds\nlistops,s4,0.4,0.5,1\n",
            "a deviation of a single seed",
        ),
        (
            "task,model,accuracy_percent,deviation_percent,seeds\nlistops,s4,99,60,3\n",
            "line 2: the deviation is 60, more than 1.73",
        ),
    ] {
        let message = read("theirs.csv", text, &none).unwrap_err();
        assert!(message.contains(reason), "{text}: {message}");
    }
    let message = read("theirs.json", "{\"task\": \"listops\"", &none).unwrap_err();
    assert!(message.contains("theirs.json"), "{message}");
    let percent = columns(&[(Field::AccuracyPercent, "accuracy")]);
    let contents = read("a.csv", "task,model,accuracy\nlistops,s4,58.2\n", &percent).unwrap();
    assert_eq!(contents.cells, [cell("a", "listops", "s4", 58.2)]);
}

/// One of two columns with one header would be taken, and nothing says which is meant.
#[test]
fn two_columns_of_one_header_are_refused_where_it_is_read() {
    let none = Given::default();
    let table = Given {
        is_task: Some(|header| header == "listops"),
        ..Given::default()
    };
    let named = columns(&[(Field::Accuracy, "acc")]);
    for (text, given, header) in [
        (
            "task,model,accuracy,accuracy\nlistops,s4,0.4,0.6\n",
            &none,
            "accuracy",
        ),
        (
            "task,model,model,accuracy\nlistops,s4,s5,0.4\n",
            &none,
            "model",
        ),
        (
            "task,model,accuracy,settings, Settings\nlistops,s4,0.4,a,b\n",
            &none,
            "Settings",
        ),
        ("task,model,acc,acc\nlistops,s4,0.4,0.6\n", &named, "acc"),
        ("model,listops,listops\ns4,60,61\n", &table, "listops"),
    ] {
        let message = read("theirs.csv", text, given).unwrap_err();
        let told = format!("theirs.csv, line 1: two columns have the header {header}: rename one");
        assert!(message.contains(&told), "{text}: {message}");
    }
    // Columns that are not read may be called alike, and be without a name.
    for (text, given) in [
        (
            "task,model,accuracy,std,std,,\nlistops,s4,0.4,1,2,3,4\n",
            &none,
        ),
        (
            "task,model,acc,accuracy,accuracy\nlistops,s4,0.4,0.6,0.7\n",
            &named,
        ),
        (
            "task,model,accuracy,listops,listops\nlistops,s4,0.4,1,2\n",
            &table,
        ),
    ] {
        let contents = read("a.csv", text, given).unwrap();
        assert_eq!(contents.cells, [cell("a", "listops", "s4", 40.0)], "{text}");
    }
}

#[test]
fn nothing_that_a_terminal_obeys_is_kept() {
    let text = "task,model,accuracy,settings\nlist\u{9b}ops,\u{1b}[31mA,0.4,\u{202e}x\n";
    let [one] = &read("a.csv", text, &Given::default()).unwrap().cells[..] else {
        panic!();
    };
    let all = format!("{}{}{}", one.task, one.model, one.settings);
    assert!(all.is_ascii() && all.contains("[31mA"), "{all}");
    assert!(!all.contains(char::is_control), "{all:?}");
}

#[test]
fn a_written_file_is_read_as_it_was() {
    let mut formula = cell("=1+1", "text@512", "my, \"model\"", 100.0 / 3.0);
    formula.deviation = Some(0.1 + 0.2);
    formula.seeds = 7;
    formula.settings = "-width 4".to_owned();
    let cells = vec![cell("a", "listops", "s4", 0.0), formula];
    let folder = tempfile::tempdir().unwrap();
    let path: PathBuf = folder.path().join(imported::FILE);
    imported::write(&path, &cells).unwrap();
    let contents = imported::read(&path, &Given::default()).unwrap();
    assert_eq!(contents.cells, cells);
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains("'=1+1"), "{text}");
    assert!(imported::write(Path::new("/nowhere/at/all.csv"), &cells).is_err());
}

#[test]
fn a_cell_with_two_accuracies_is_refused() {
    let one = cell("a", "listops", "s4", 50.0);
    let same = imported::merge(vec![one.clone()], vec![one.clone()]).unwrap();
    assert_eq!(same, std::slice::from_ref(&one));
    let message = imported::merge(vec![one], vec![cell("a", "listops", "s4", 51.0)]);
    let message = message.unwrap_err().to_string();
    assert!(
        message.contains("50") && message.contains("51"),
        "{message}"
    );
}

#[test]
fn imported_rows_stand_between_runs_and_trivial_predictors() {
    let kind = tables::find("accuracy").unwrap();
    let mut table = kind.make(&[run("performer", 0, 0.38)], None);
    let mut seeds = cell("theirs", "listops", "s4", 59.6);
    (seeds.seeds, seeds.deviation) = (3, Some(0.5));
    imported::add_to(&mut table, &[seeds, cell("theirs", "text", "s4", 86.8)]);
    insta::assert_snapshot!(Format::Text.render(&[table.clone()]), @"
    Test accuracy, %

    model          from                       listops   text
    --------------------------------------------------------
    performer      measured                     38.00      -
    s4             imported (theirs)  59.60 ±0.50 (3)  86.80
    --------------------------------------------------------
    majority       trivial                      17.05      -
    first token    trivial                      36.25      -
    bag of tokens  trivial                      26.40      -

      One seed per measured cell.
      Every measured row: recipe tay2021, precision f32, device cpu.
      listops: generated, protocol tay2021, data 9b1de5ee2f5b.
      imported: measured by others; nothing about their data or settings was checked.
    ");
    // For machines every accuracy has a line, under the names of the table.
    let csv = Format::Csv.render(&[table]);
    assert!(csv.contains("s4,imported (theirs)"), "{csv}");
    assert!(csv.contains("text (imported)"), "{csv}");
    assert!(csv.contains("listops (imported)"), "{csv}");
    // Nothing is known of the data of others.
    let theirs = csv.lines().find(|line| line.contains("59.6"));
    let theirs = theirs.unwrap();
    assert!(
        !theirs.contains("tay2021") && !theirs.contains("9b1de5"),
        "{theirs}"
    );

    // Rows that differ in their settings alone are told apart.
    let mut table = kind.make(&[run("performer", 0, 0.38)], None);
    let cells = ["lr 1e-3", "lr 3e-3"].map(|settings| {
        let mut one = cell("theirs", "listops", "s4", 59.6);
        one.settings = settings.to_owned();
        one
    });
    imported::add_to(&mut table, &cells);
    let text = Format::Text.render(&[table]);
    assert!(
        text.contains("lr 1e-3") && text.contains("lr 3e-3"),
        "{text}"
    );
}

/// Figures of others stand in the column of a data set only if it is the task itself and the only
/// one.
#[test]
fn imported_figures_do_not_stand_beside_stand_ins() {
    let kind = tables::find("accuracy").unwrap();
    let of = |records: &[Record]| {
        let mut table = kind.make(records, None);
        imported::add_to(&mut table, &[cell("theirs", "image", "s4", 88.5)]);
        let names: Vec<String> = table.columns.iter().map(|it| it.name.clone()).collect();
        let objects = table.objects();
        let labels: Vec<_> = objects
            .iter()
            .filter(|row| row["from"] == "imported (theirs)")
            .map(|row| {
                (
                    row["task"].clone(),
                    row["source"].clone(),
                    row["mean_percent"].clone(),
                )
            })
            .collect();
        let expected = (
            "image (imported)".into(),
            serde_json::Value::Null,
            88.5.into(),
        );
        assert_eq!(labels, [expected]);
        names[2..].to_vec()
    };
    let image = |source: &str| on(run("performer", 0, 0.38), "image", source, 2);
    assert_eq!(of(&[image("official")]), ["image"]);
    assert_eq!(
        of(&[image("synthetic")]),
        ["image (synthetic)", "image (imported)"]
    );
    let mut part = image("official");
    part.task.partial = true;
    assert_eq!(of(&[part]), ["image (partial)", "image (imported)"]);
    let mut clean = image("official");
    clean.task.protocol = "clean".to_owned();
    assert_eq!(
        of(&[image("official"), clean]),
        ["image (clean)", "image (tay2021)", "image (imported)"]
    );
}

#[test]
fn a_percent_sign_makes_a_fraction_a_percentage() {
    let text = "task,model,accuracy\nlistops,a,0.9%\nlistops,b,0.9\nlistops,c,62.5 %\n";
    let contents = read("table.csv", text, &Given::default()).unwrap();
    let percents: Vec<f64> = contents.cells.iter().map(|it| it.percent).collect();
    assert_eq!(percents, [0.9, 90.0, 62.5]);
    let given = Given {
        is_task: Some(|header| header == "listops"),
        fractions: true,
        ..Given::default()
    };
    let contents = read("wide.csv", "model,listops\na,60%\nb,0.6\n", &given).unwrap();
    let percents: Vec<f64> = contents.cells.iter().map(|it| it.percent).collect();
    assert_eq!(percents, [60.0, 60.0]);
}

/// A line that says the same in two ways is refused, unless the user chose one of them.
#[test]
fn each_pair_of_columns_of_one_value_is_refused_or_chosen() {
    for (header, line, group, field, column) in [
        (
            "task,dataset,model,accuracy",
            "a,b,m,0.5",
            "task and dataset",
            Field::Task,
            "dataset",
        ),
        (
            "task,model,method,accuracy",
            "a,m,n,0.5",
            "model and method",
            Field::Model,
            "method",
        ),
        (
            "task,model,accuracy,seed,seeds",
            "a,m,0.5,1,3",
            "seed and seeds",
            Field::Seeds,
            "seeds",
        ),
        (
            "task,model,accuracy,test_acc",
            "a,m,0.5,0.6",
            "accuracy and test_acc",
            Field::Accuracy,
            "test_acc",
        ),
    ] {
        let text = format!("{header}\n{line}\n");
        let message = read("a.csv", &text, &Given::default()).unwrap_err();
        assert!(message.contains(group), "{message}");
        let chosen = read("a.csv", &text, &columns(&[(field, column)])).unwrap();
        assert_eq!(chosen.cells.len(), 1, "{header}");
    }
}

/// A column that the user names takes the place of another with the same value.
#[test]
fn a_named_column_counts_and_not_its_twin() {
    let text = "task,model,test_acc,mean_percent,seed,seeds\nlistops,linear,0.40,99,3,5\n";
    let of = |pairs: &[(Field, &str)]| {
        let cell = read("f.csv", text, &columns(pairs))
            .unwrap()
            .cells
            .remove(0);
        (cell.percent, cell.seeds)
    };
    let (seed, seeds) = ((Field::Seed, "seed"), (Field::Seeds, "seeds"));
    assert_eq!(of(&[(Field::Accuracy, "test_acc"), seed]), (40.0, 1));
    assert_eq!(
        of(&[(Field::AccuracyPercent, "mean_percent"), seeds]),
        (99.0, 5)
    );
}

#[test]
fn headers_and_marks_are_read_in_any_case_and_tabs_part_columns() {
    let text = "Task\tMODEL\tAccuracy\nlistops\tS4\t0.8734\n";
    let contents = read("theirs.tsv", text, &Given::default()).unwrap();
    // 100 times 0.8734 has digits that the file has not.
    assert_eq!(contents.cells, [cell("theirs", "listops", "S4", 87.34)]);
    let given = Given {
        is_task: Some(|header| header == "listops" || header == "image"),
        ..Given::default()
    };
    let text = "model,listops,image\na,FAIL,50\nb,N/A,x\nc,-, nan \nd,60,n/a %\n";
    let contents = read("wide.csv", text, &given).unwrap();
    let found: Vec<_> = contents
        .cells
        .iter()
        .map(|it| (it.model.as_str(), it.task.as_str(), it.percent))
        .collect();
    assert_eq!(found, [("a", "image", 50.0), ("d", "listops", 60.0)]);
    assert_eq!(contents.without_accuracy, 6);
    // Where the lines name their task, a column of that name is another value.
    let text = "model,task,accuracy,listops\na,image,0.5,60\n";
    let contents = read("long.csv", text, &given).unwrap();
    assert_eq!(contents.cells, [cell("long", "image", "a", 50.0)]);
}

/// Papers round means: a deviation may exceed the largest one of the rounded mean by as little.
#[test]
fn a_deviation_may_be_as_large_as_rounding_allows() {
    // Of two seeds with a mean of 99.9 %, none deviates by more than 0.1414 points.
    let of = |deviation: &str| {
        let text = format!(
            "task,model,accuracy_percent,deviation_percent,seeds\nlistops,s4,99.9,{deviation},2\n"
        );
        read("a.csv", &text, &Given::default()).map(|it| it.cells[0].deviation)
    };
    assert_eq!(of("0.14"), Ok(Some(0.14)));
    assert_eq!(of("0.24"), Ok(Some(0.24)));
    assert!(of("0.25").unwrap_err().contains("more than 0.14"));
}

#[test]
fn settings_part_cells_and_are_shown_in_one_column() {
    let text = "task,model,accuracy,settings\nlistops,s4,0.5,lr 1\nlistops,s4,0.6,lr 2\n";
    let contents = read("a.csv", text, &Given::default()).unwrap();
    assert_eq!(contents.cells.len(), 2);
    let mut changed = run("linear", 0, 0.3);
    changed.recipe.overrides = vec!["train.steps=9".to_owned()];
    let kind = tables::find("accuracy").unwrap();
    let mut table = kind.make(&[run("performer", 0, 0.38), changed], None);
    imported::add_to(&mut table, &contents.cells);
    let sets = table.columns.iter().filter(|column| column.name == "set");
    assert_eq!(sets.count(), 1);
    assert!(
        table
            .rows
            .iter()
            .all(|row| row.cells.len() == table.columns.len())
    );
    // The task of a folder of one's own is the task itself.
    let own = on(run("performer", 0, 0.38), "mine:birds", "folder", 2);
    let mut table = kind.make(&[own], None);
    let count = table.columns.len();
    imported::add_to(&mut table, &[cell("theirs", "mine:birds", "s4", 88.5)]);
    assert_eq!(table.columns.len(), count);
}
