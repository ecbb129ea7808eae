//! The table of a check, for terminals and pull requests.

use serde_json::{Value, json};

use super::aspect::{
    ANOTHER_PROCESSOR, AT_A_TIME, Aspect, Finding, LAST_ONLY, LEAST_BYTES, NOT_BESIDE,
    OTHER_SCORES, UNCERTAIN,
};
use super::baseline::Key;
use super::judge::{Check, State};
use crate::equivalence::MARGIN;
use crate::format::counted;
use crate::table::{Cell, Column, Row, Schema, Table, or_null};
use crate::tone::Tone;

/// A part of a key.
type Part = fn(&Key) -> &str;

/// Parts of a key besides task and model. Each is a column only if cells of the same task and model
/// differ in it.
const DIMENSIONS: [(&str, Part); 7] = [
    ("source", |key| &key.source),
    ("protocol", |key| &key.protocol),
    ("variant", |key| &key.variant),
    ("recipe", |key| &key.recipe),
    ("set", |key| &key.set),
    ("precision", |key| &key.precision),
    ("device", |key| &key.device),
];

/// The names of its values for machines.
const SCHEMA: Schema = Schema {
    info: &[
        "task",
        "model",
        "source",
        "protocol",
        "variant",
        "recipe",
        "set",
        "precision",
        "device",
    ],
    found: &[
        "accuracy_finding",
        "accuracy_words",
        "accuracy_baseline_percent",
        "accuracy_now_percent",
        "loss_finding",
        "loss_words",
        "loss_baseline_nats",
        "loss_now_nats",
        "gradient_finding",
        "gradient_words",
        "gradient_baseline_norm",
        "gradient_now_norm",
        "memory_finding",
        "memory_words",
        "memory_baseline_bytes",
        "memory_now_bytes",
        "speed_finding",
        "speed_words",
        "speed_baseline_steps_per_second",
        "speed_now_steps_per_second",
        "verdict",
        "remark",
    ],
};

/// Returns the table: what failed comes first.
pub fn table(check: &Check) -> Table {
    let mut cells: Vec<_> = check.cells.iter().collect();
    cells.sort_by_key(|cell| !cell.state.fails());
    let first = cells.first().map(|cell| &cell.key);
    let varies = |of: Part| {
        // If every task has one source, its name is sufficient.
        cells
            .iter()
            .any(|cell| first.is_some_and(|first| of(first) != of(&cell.key)))
    };
    let differs = |of: Part| {
        cells.iter().any(|a| {
            let mut others = cells.iter();
            others.any(|b| {
                (&a.key.task, &a.key.model) == (&b.key.task, &b.key.model)
                    && of(&a.key) != of(&b.key)
            })
        })
    };
    let varying: Vec<_> = DIMENSIONS
        .into_iter()
        .filter(|(_, of)| differs(*of))
        .collect();

    let mut columns = vec![Column::key("task"), Column::key("model")];
    columns.extend(varying.iter().map(|(name, _)| Column::key(*name)));
    columns.extend(Aspect::ALL.map(|aspect| {
        Column::value(aspect.word())
            .in_unit(aspect.unit())
            .holding(&["finding", "words", "baseline", "now"])
    }));
    columns.push(Column::text("verdict").holding(&["verdict", "remark"]));
    let rows = cells.iter().map(|cell| {
        let mut shown = vec![task(&cell.key), Cell::text(&cell.key.model)];
        shown.extend(varying.iter().map(|(_, of)| Cell::text(of(&cell.key))));
        let findings = cell
            .findings
            .iter()
            .map(Some)
            .chain(std::iter::repeat(None));
        let figures = cell.figures.iter().zip(findings).zip(Aspect::ALL);
        shown.extend(figures.map(|((figures, finding), aspect)| mark(aspect, *figures, finding)));
        shown.push(Cell {
            text: cell.state.word().to_owned(),
            fields: vec![
                ("verdict", json!(cell.state.word())),
                ("remark", json!(cell.remark)),
            ],
            tone: cell.state.tone(),
            ..Cell::default()
        });
        Row {
            facts: DIMENSIONS
                .iter()
                .map(|(name, of)| (*name, or_null(of(&cell.key))))
                .collect(),
            ..Row::new(shown)
        }
    });
    let rows = rows.collect();

    let mut notes = Vec::new();
    let count = |state: State| cells.iter().filter(|cell| cell.state == state).count();
    let tally = [
        State::Passed,
        State::Improved,
        State::Regressed,
        State::Changed,
        State::Missing,
        State::New,
    ];
    let tally: Vec<_> = tally
        .into_iter()
        .map(|state| format!("{} {}", count(state), state.word()))
        .collect();
    notes.push(format!(
        "{}: {}.",
        counted(cells.len() as u64, "cell"),
        tally.join(", ")
    ));
    if let Some(reason) = check.nothing_compared() {
        notes.push(format!("FAILED because {reason}."));
    }
    let remarks = cells
        .iter()
        .filter(|cell| cell.state.fails() || cell.ended_badly);
    let remarks = remarks.filter_map(|cell| {
        let remark = cell.remark.as_ref()?;
        Some(format!(
            "{} on {}: {remark}.",
            cell.key.model,
            cell.key.question()
        ))
    });
    notes.extend(remarks);
    let constant = DIMENSIONS.into_iter().filter(|(_, of)| !varies(*of));
    let constant: Vec<_> = constant
        .filter_map(|(name, of)| {
            Some(format!(
                "{name} {}",
                first.map(of).filter(|text| !text.is_empty())?
            ))
        })
        .collect();
    if !constant.is_empty() {
        notes.push(format!("Every cell: {}.", constant.join(", ")));
    }
    let by = &check.thresholds;
    let speed = by.speed.map_or_else(String::new, |share| {
        format!(
            "speed relative to {} lower by more than {} % and three standard errors; ",
            by.reference,
            100.0 * share
        )
    });
    notes.push(format!(
        "! marks what is worse: accuracy (%) below the baseline at level {}; any loss or norm of gradients that differs on \
         the same instruction set (elsewhere the last loss by more than {} %, the mean norm, whose change is shown, by more \
         than {} %); peak memory grown by more than {} % and {} KiB; {speed}a figure that the baseline has and the runs lack.",
        by.level,
        100.0 * by.loss,
        100.0 * by.gradient,
        100.0 * by.memory,
        LEAST_BYTES >> 10,
    ));
    let unjudged = |sign: &str| {
        let mut findings = cells.iter().flat_map(|cell| &cell.findings);
        findings.any(|one| matches!(one, Finding::Unjudged(words) if words.contains(sign)))
    };
    if unjudged(UNCERTAIN) {
        notes.push(format!(
            "({UNCERTAIN} ...): cannot tell, because the change is uncertain by this many points, more than {MARGIN}; more seeds or test rows narrow it."
        ));
    }
    if unjudged(AT_A_TIME) {
        notes.push(format!(
            "(... {AT_A_TIME}): as many runs shared the machine (`lra sweep --jobs`); speeds under another load are not compared."
        ));
    }
    if unjudged(ANOTHER_PROCESSOR) {
        notes.push(format!(
            "({ANOTHER_PROCESSOR}): the baseline was made on a processor with another name or other vector instructions, so neither memory nor \
             speed is judged, and losses by their thresholds where the instructions differ."
        ));
    }
    if unjudged(NOT_BESIDE) {
        notes.push(format!(
            "(no {} beside it): speeds are judged as multiples of that model's, and it did not run; --reference names another one.",
            by.reference
        ));
    }
    let ends_with = |mark: &str| {
        let mut found = cells.iter().flat_map(|cell| &cell.findings);
        found.any(|one| one.words().ends_with(mark))
    };
    if ends_with(OTHER_SCORES) {
        notes.push(format!(
            "{OTHER_SCORES}: every loss of the training is the same to the bit, so the evaluation or its data changed."
        ));
    }
    if ends_with(LAST_ONLY) {
        notes.push(format!(
            "{LAST_ONLY}: losses on the way were not compared, since the log of a run is missing here or was missing when the \
             baseline was written."
        ));
    }
    let verdict = if check.passed() { "passed" } else { "FAILED" };
    Table {
        name: "check".to_owned(),
        title: format!("Regression check: {verdict}"),
        unit: String::new(),
        columns,
        rows,
        notes,
        schema: SCHEMA,
    }
}

/// Returns the cell of a task: its name, and for machines its label with the source of its data, as
/// in all other tables.
fn task(key: &Key) -> Cell {
    let label = match key.source.as_str() {
        "" => key.task.clone(),
        source => format!("{} ({source})", key.task),
    };
    Cell::with(key.question(), "task", label)
}

/// Returns a figure as JSON: bytes are whole.
fn counted_in(aspect: Aspect, figure: Option<f64>) -> Value {
    match (aspect, figure) {
        (Aspect::Memory, Some(bytes)) => json!(bytes as u64),
        (_, figure) => json!(figure),
    }
}

/// Returns the cell of an aspect: the finding in words, and for machines also its figures. A new
/// cell has its accuracy in place of a finding.
fn mark(
    aspect: Aspect,
    (baseline, now): (Option<f64>, Option<f64>),
    finding: Option<&Finding>,
) -> Cell {
    let text = match (finding, aspect, now) {
        (Some(Finding::Same(words)), ..) => words.clone(),
        (Some(Finding::Better(words)), ..) => format!("+ {words}"),
        (Some(Finding::Worse(words)), ..) => format!("! {words}"),
        (Some(Finding::Unjudged(words)), ..) => format!("({words})"),
        (None, Aspect::Accuracy, Some(now)) => format!("{now:.2}"),
        (None, ..) => String::new(),
    };
    Cell {
        text,
        fields: vec![
            ("finding", json!(finding.map(Finding::word))),
            ("words", json!(finding.map(Finding::words))),
            ("baseline", counted_in(aspect, baseline)),
            ("now", counted_in(aspect, now)),
        ],
        tone: matches!(finding, Some(Finding::Worse(_))).then_some(Tone::Caution),
        ..Cell::default()
    }
}
