//! A table independent of its output format: the input of every renderer.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::tone::Tone;

/// A table with its title and footnotes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// Its name for machines: `accuracy`.
    pub name: String,
    /// Its title line.
    pub title: String,
    /// Common unit of its numbers for machines; empty if there is none. The title may name a larger
    /// unit.
    pub unit: String,
    /// The columns, from the left.
    pub columns: Vec<Column>,
    /// The rows, from the top; each has one cell per column.
    pub rows: Vec<Row>,
    /// Sentences below it.
    pub notes: Vec<String>,
    /// Names of its values for machines, whatever its rows hold; empty if rows and columns tell.
    pub schema: Schema,
}

/// The names of all values that a table has for machines: the same whatever is in the table, and
/// where it has no rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Schema {
    /// The facts that identify a row.
    pub info: &'static [&'static str],
    /// The values found: fields of cells, with their unit. The field `mean` of a table in % is
    /// `mean_percent`.
    pub found: &'static [&'static str],
}

impl Schema {
    /// Returns whether a table leaves its names to rows and columns.
    pub(crate) fn is_empty(&self) -> bool {
        self.info.is_empty() && self.found.is_empty()
    }
}

/// A column.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Its header.
    pub name: String,
    /// Alignment of its cells.
    pub align: Align,
    /// True if it identifies the row, so that every part of a broken table repeats it.
    pub key: bool,
    /// True if no entry is broken, however wide: they are names to search for.
    pub whole: bool,
    /// Unit of its numbers for machines, if it differs from the table's.
    pub unit: Option<&'static str>,
    /// Facts that hold for all its cells, such as the task with its data: names and values, for
    /// machines. The cells of a column that has any could as well stand in rows of their own.
    pub facts: Vec<Fact>,
    /// Names of the values that its cells hold for machines, where they are the same whatever the
    /// cells hold; empty for a column of words.
    pub fields: &'static [&'static str],
}

/// A name and a value for machines.
pub type Fact = (&'static str, Value);

/// Side that a column's cells keep to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

impl Column {
    /// Returns a column of words that identifies its row.
    pub fn key(name: impl Into<String>) -> Column {
        Column {
            key: true,
            ..Column::text(name)
        }
    }

    /// Returns a column of numbers.
    pub fn value(name: impl Into<String>) -> Column {
        Column {
            align: Align::Right,
            ..Column::text(name)
        }
    }

    /// Returns a column of words.
    pub fn text(name: impl Into<String>) -> Column {
        Column {
            name: name.into(),
            align: Align::Left,
            key: false,
            whole: false,
            unit: None,
            facts: Vec::new(),
            fields: &[],
        }
    }

    /// Returns the column with entries that are not broken.
    #[must_use]
    pub fn unbroken(self) -> Column {
        Column {
            whole: true,
            ..self
        }
    }

    /// Returns the column with its own unit.
    #[must_use]
    pub fn in_unit(self, unit: &'static str) -> Column {
        Column {
            unit: Some(unit),
            ..self
        }
    }

    /// Returns the column with facts about its cells.
    #[must_use]
    pub fn info(self, facts: Vec<Fact>) -> Column {
        Column { facts, ..self }
    }

    /// Returns the column with the names of the values that its cells hold.
    #[must_use]
    pub fn holding(self, fields: &'static [&'static str]) -> Column {
        Column { fields, ..self }
    }
}

/// A row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// True if a rule separates it from the row above.
    pub rule: bool,
    /// One cell per column.
    pub cells: Vec<Cell>,
    /// Facts about it beside its cells, for machines: the settings that people read once below the
    /// table.
    pub facts: Vec<Fact>,
    /// The kind of others that measured its values: of the facts about a column only the task is
    /// about it. `None` for our own values.
    pub foreign: Option<Foreign>,
    /// Rows that have the same here compete for the best value of a column. A row that has nothing
    /// does not compete.
    pub contest: Option<String>,
}

/// Origin of values that others measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreign {
    /// Printed in a paper.
    Published,
    /// Read from a file of results: its data are unknown but for the task.
    Imported,
}

impl Row {
    /// Returns a row without a rule above it.
    pub fn new(cells: Vec<Cell>) -> Row {
        Row {
            cells,
            ..Row::default()
        }
    }
}

/// A cell: text for people, and the same as named values for machines.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cell {
    /// Text for people; may be empty.
    pub text: String,
    /// Values for machines, in the table's unit and unrounded. A cell of only words has none.
    pub fields: Vec<(&'static str, Value)>,
    /// Its place among the numbers of its column, if its text is words such as `none up to 4096`.
    /// An HTML page sorts by it.
    pub order: Option<f64>,
    /// True if it is the best of its column.
    pub best: bool,
    /// Meaning of its text, which a terminal shows as a colour.
    pub tone: Option<Tone>,
}

/// Choice of the best number of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Best {
    /// Scores and speeds.
    Highest,
    /// Costs of a run.
    Lowest,
}

/// Name of the word that a source prints instead of a figure, such as `FAIL`.
pub const MISSING: &str = "missing";

/// Name of the address that a cell links to on an HTML page, relative to that page.
pub(crate) const PAGE: &str = "page";

/// Word of the second column for a row of our own runs.
pub(crate) const MEASURED: &str = "measured";

impl Cell {
    /// Returns a cell of words.
    pub fn text(text: impl Into<String>) -> Cell {
        Cell {
            text: text.into(),
            ..Cell::default()
        }
    }

    /// Returns a cell with text and one value.
    pub fn with(text: impl Into<String>, field: &'static str, value: impl Into<Value>) -> Cell {
        Cell {
            text: text.into(),
            fields: vec![(field, value.into())],
            ..Cell::default()
        }
    }

    /// Returns the cell with a meaning.
    #[must_use]
    pub fn toned(self, tone: impl Into<Option<Tone>>) -> Cell {
        Cell {
            tone: tone.into(),
            ..self
        }
    }

    /// Returns the cell with a link for an HTML page.
    #[must_use]
    pub(crate) fn linked(mut self, page: impl Into<Value>) -> Cell {
        self.fields.push((PAGE, page.into()));
        self
    }

    /// Returns the text to print: a dash if it is empty.
    pub(crate) fn shown(&self) -> &str {
        if self.text.is_empty() {
            "-"
        } else {
            &self.text
        }
    }

    /// Returns the number called `field`, unless the run failed or no seed trained.
    fn competing(&self, field: &str) -> Option<f64> {
        let well = self.field("status").is_none_or(Value::is_null)
            && self.field("trained").is_none_or(|trained| *trained != 0);
        self.field(field)?.as_f64().filter(|_| well)
    }

    /// Returns a value by name.
    pub fn field(&self, name: &str) -> Option<&Value> {
        let found = self.fields.iter().find(|(field, _)| *field == name);
        found.map(|(_, value)| value)
    }
}

/// Returns each name once, in the order of the first ones.
pub(crate) fn distinct<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = Vec::new();
    for name in names {
        if !seen.contains(&name) {
            seen.push(name);
        }
    }
    seen
}

/// Returns names of which no two are equal, nor equal to one that is `taken`: a number follows a
/// name that occurred before.
pub(crate) fn unique(names: impl IntoIterator<Item = String>, taken: &[&str]) -> Vec<String> {
    let mut all: Vec<String> = taken.iter().map(|name| (*name).to_owned()).collect();
    for name in names {
        let (mut own, mut count) = (name.clone(), 1);
        while all.contains(&own) {
            count += 1;
            own = format!("{name} #{count}");
        }
        all.push(own);
    }
    all.split_off(taken.len())
}

/// Returns a word for machines: null where it is empty.
#[must_use]
pub fn or_null(text: &str) -> Value {
    match text.is_empty() {
        true => Value::Null,
        false => Value::from(text),
    }
}

/// Returns a value for machines: null for an empty text.
pub(crate) fn known(value: &Value) -> Value {
    value.as_str().map_or_else(|| value.clone(), or_null)
}

impl Table {
    /// Marks the best value called `field` of each column among the rows of each contest, if at
    /// least two of them have a cell. A failed cell is never the best.
    pub(crate) fn with_best(mut self, field: &str, best: Best) -> Table {
        let better = |a: f64, b: f64| match best {
            Best::Highest => a > b,
            Best::Lowest => a < b,
        };
        let contests: BTreeSet<String> = self
            .rows
            .iter()
            .filter_map(|row| row.contest.clone())
            .collect();
        for contest in &contests {
            for column in 0..self.columns.len() {
                let rows = self.rows.iter_mut();
                let own = rows.filter(|row| row.contest.as_ref() == Some(contest));
                let cells = own.filter_map(|row| row.cells.get_mut(column));
                let mut rivals: Vec<&mut Cell> =
                    cells.filter(|cell| !cell.text.is_empty()).collect();
                let values = rivals.iter().filter_map(|cell| cell.competing(field));
                let first = values.reduce(|a, b| if better(b, a) { b } else { a });
                if first.is_some() && rivals.len() > 1 {
                    for cell in &mut rivals {
                        cell.best = cell.competing(field) == first;
                    }
                }
            }
        }
        self
    }
}
