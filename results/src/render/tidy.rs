//! Tables as rows of named values, for machines: a row per cell if columns are of one kind, such as
//! tasks or lengths, else a row per row. Facts that a printed table states once, in a header or a
//! note, are repeated in every row.

use serde_json::{Map, Value};

use crate::table::{Cell, Foreign, MEASURED, MISSING, Schema, Table, known, or_null};

/// A row in two parts, each of names and values.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct TidyRow {
    /// The facts that identify the row.
    pub(super) info: Map<String, Value>,
    /// The measured values.
    pub(super) found: Map<String, Value>,
}

impl TidyRow {
    /// Returns the row with the names of a schema, in its order; what the row lacks is null.
    fn arranged(self, schema: &Schema) -> TidyRow {
        let TidyRow { info, found } = self;
        let part = |names: &[&'static str], of: &Map<String, Value>| {
            debug_assert!(
                of.keys().all(|name| names.contains(&name.as_str())),
                "{of:?} has more than {names:?}"
            );
            let value = |name: &str| of.get(name).cloned().unwrap_or(Value::Null);
            let pairs = names.iter().map(|name| ((*name).to_owned(), value(name)));
            pairs.collect()
        };
        TidyRow {
            info: part(schema.info, &info),
            found: part(schema.found, &found),
        }
    }
}

impl Table {
    /// Returns one object per row, with a name for each value. It is the name of the value, or that
    /// of its column if several columns have values of that name.
    pub fn objects(&self) -> Vec<Map<String, Value>> {
        let rows = rows(self).into_iter();
        rows.map(|row| row.info.into_iter().chain(row.found).collect())
            .collect()
    }
}

/// Returns the names of a table's facts and values, in their order.
pub(super) fn names(table: &Table, rows: &[TidyRow]) -> (Vec<String>, Vec<String>) {
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    if !table.schema.is_empty() {
        return (owned(table.schema.info), owned(table.schema.found));
    }
    let distinct = |part: fn(&TidyRow) -> &Map<String, Value>| {
        let mut names: Vec<String> = Vec::new();
        for name in rows.iter().flat_map(|row| part(row).keys()) {
            if !names.contains(name) {
                names.push(name.clone());
            }
        }
        names
    };
    (distinct(|row| &row.info), distinct(|row| &row.found))
}

/// Returns the rows of a table.
pub(super) fn rows(table: &Table) -> Vec<TidyRow> {
    let rows = found_rows(table);
    match table.schema.is_empty() {
        true => rows,
        false => {
            let rows = rows.into_iter();
            rows.map(|row| row.arranged(&table.schema)).collect()
        }
    }
}

/// Returns the rows with the names that columns and cells give.
fn found_rows(table: &Table) -> Vec<TidyRow> {
    let names = Names::new(table);
    let mut rows = Vec::new();
    let melted = table.columns.iter().any(|column| !column.facts.is_empty());
    for row in &table.rows {
        let mut whole = TidyRow::default();
        let cells = || table.columns.iter().enumerate().zip(&row.cells);
        for ((index, column), cell) in cells().filter(|((_, column), _)| column.facts.is_empty()) {
            let part = match column.key {
                true => &mut whole.info,
                false => &mut whole.found,
            };
            names.enter(index, cell, part);
        }
        for (name, value) in &row.facts {
            whole.info.insert((*name).to_owned(), known(value));
        }
        if !melted {
            rows.push(whole);
            continue;
        }
        let filled = cells().filter(|(_, cell)| !cell.text.is_empty());
        for ((index, column), cell) in filled.filter(|((_, column), _)| !column.facts.is_empty()) {
            let mut one = whole.clone();
            for (name, value) in &column.facts {
                let value = match (row.foreign, *name) {
                    (None, _) | (Some(Foreign::Published), "task") => known(value),
                    (Some(Foreign::Imported), "task") => imported(value),
                    (Some(_), _) => Value::Null,
                };
                one.info.insert((*name).to_owned(), value);
            }
            names.enter(index, cell, &mut one.found);
            rows.push(one);
        }
    }
    without_repeats(rows)
}

/// Returns the label of a task without its source of data, which is unknown of imported values.
fn imported(label: &Value) -> Value {
    let text = label.as_str().unwrap_or_default();
    let task = text.split(" (").next().unwrap_or(text);
    format!("{task} (imported)").into()
}

/// Removes rows that others measured and that are there already, such as a published figure beside
/// runs by two protocols.
fn without_repeats(rows: Vec<TidyRow>) -> Vec<TidyRow> {
    let mut all: Vec<TidyRow> = Vec::new();
    for row in rows {
        let ours = row.info.get("from").is_none_or(|from| from == MEASURED);
        if ours || !all.contains(&row) {
            all.push(row);
        }
    }
    all
}

/// The names of the values behind the cells of each column.
struct Names(Vec<Vec<(&'static str, String)>>);

impl Names {
    fn new(table: &Table) -> Names {
        let fields: Vec<Vec<&'static str>> = (0..table.columns.len())
            .map(|column| fields(table, column))
            .collect();
        // Columns of one kind share the names of their values.
        let place = |index: usize| match table.columns[index].facts.is_empty() {
            true => index + 1,
            false => 0,
        };
        let words: Vec<String> = table.columns.iter().map(|it| word(&it.name)).collect();
        let is_unique = |index: usize, field: &str| {
            let mut others = (0..fields.len()).filter(|other| place(*other) != place(index));
            others.all(|other| !fields[other].contains(&field) && words[other] != field)
        };
        let named = |index: usize, field: &'static str| {
            let column = &table.columns[index];
            let stem = match (place(index), fields[index].as_slice()) {
                (0, _) => field.to_owned(),
                _ if is_unique(index, field) => field.to_owned(),
                // The word for a missing number does not make its column one of several values.
                (_, [_] | [_, MISSING]) => words[index].clone(),
                _ => format!("{}_{field}", words[index]),
            };
            with_unit(stem, field, column.unit.unwrap_or(&table.unit))
        };
        let all = fields
            .iter()
            .enumerate()
            .map(|(index, own)| match own.is_empty() {
                true => vec![("", words[index].clone())],
                false => own
                    .iter()
                    .map(|field| (*field, named(index, field)))
                    .collect(),
            });
        let mut all: Vec<Vec<(&'static str, String)>> = all.collect();
        // Two columns may have one header: the name of the later one gets a number.
        let mut taken: Vec<(usize, String)> = Vec::new();
        for (index, own) in all.iter_mut().enumerate() {
            for (_, name) in own {
                let stem = name.clone();
                let mut count = 1;
                while taken
                    .iter()
                    .any(|(other, used)| *used == *name && *other != place(index))
                {
                    count += 1;
                    *name = format!("{stem}_{count}");
                }
                taken.push((place(index), name.clone()));
            }
        }
        Names(all)
    }

    /// Inserts the values of a cell under their names.
    fn enter(&self, column: usize, cell: &Cell, into: &mut Map<String, Value>) {
        for (field, name) in &self.0[column] {
            let value = match *field {
                "" => or_null(&cell.text),
                field => cell.field(field).map_or(Value::Null, known),
            };
            into.insert(name.clone(), value);
        }
    }
}

/// Names of the values behind a column's cells: those that it declares, and others in the order of
/// their appearance. None: the column is words.
fn fields(table: &Table, column: usize) -> Vec<&'static str> {
    let mut names = table.columns[column].fields.to_vec();
    let cells = table.rows.iter().filter_map(|row| row.cells.get(column));
    for (name, _) in cells.flat_map(|cell| &cell.fields) {
        if !names.contains(name) {
            names.push(*name);
        }
    }
    names
}

/// The values that are in the unit of their column.
const IN_UNIT: [&str; 12] = [
    "accuracy",
    "mean",
    "deviation",
    "low",
    "high",
    "value",
    "difference",
    "margin",
    "baseline",
    "now",
    "majority",
    "trained_mean",
];

fn with_unit(name: String, field: &str, unit: &str) -> String {
    match unit.is_empty() || !IN_UNIT.contains(&field) {
        true => name,
        false => format!("{name}_{}", word(unit)),
    }
}

/// Returns a header or a unit as a name: `steps/s` is `steps_per_second`.
fn word(text: &str) -> String {
    let text = text.replace("steps/s", "steps per second");
    let text = text.replace('/', " per ").replace('%', "percent");
    let parts = text.split(|c: char| !c.is_ascii_alphanumeric());
    let parts: Vec<String> = parts
        .filter(|part| !part.is_empty())
        .map(str::to_ascii_lowercase)
        .collect();
    parts.join("_")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{Column, Row};

    #[test]
    fn no_column_takes_the_place_of_another_of_its_name() {
        let table = Table {
            name: "twins".to_owned(),
            columns: vec![
                Column::key("name"),
                Column::value("about"),
                Column::value("same"),
                Column::value("same"),
            ],
            rows: vec![Row {
                facts: vec![("setting", "x".into())],
                ..Row::new(vec![
                    Cell::text("a"),
                    Cell::with("0", "value", 0),
                    Cell::with("1", "value", 1),
                    Cell::with("2", "value", 2),
                ])
            }],
            ..Table::default()
        };
        let objects = serde_json::to_string(&table.objects()).unwrap();
        assert_eq!(
            objects,
            r#"[{"name":"a","setting":"x","about":0,"same":1,"same_2":2}]"#
        );
        let json = crate::Format::Json.render(&[table]);
        let json: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(
            json[0]["rows"][0].to_string(),
            r##"{"name":"a","about #2":{"value":0},"same":{"value":1},"same #2":{"value":2},"about":{"setting":"x"}}"##
        );
    }

    #[test]
    fn no_value_takes_the_place_of_another() {
        let table = Table {
            name: "odd".to_owned(),
            title: String::new(),
            unit: "%".to_owned(),
            columns: vec![
                Column::key("name"),
                Column::value("first"),
                Column::value("second, s").in_unit(""),
                Column::value("third"),
                Column::text("count"),
            ],
            rows: vec![Row::new(vec![
                Cell::text("a"),
                Cell::with("1", "count", 1),
                Cell::with("2", "count", 2),
                Cell {
                    text: "3 to 4".to_owned(),
                    fields: vec![("low", 3.into()), ("count", 4.into())],
                    ..Cell::default()
                },
                Cell::text("five"),
            ])],
            notes: vec![],
            schema: Schema::default(),
        };
        let objects = serde_json::to_string(&table.objects()).unwrap();
        assert_eq!(
            objects,
            r#"[{"name":"a","first":1,"second_s":2,"low_percent":3,"third_count":4,"count":"five"}]"#
        );
    }
}
